/*
 * The ledger: what this host let pass under rules of `consistency: eventual` and has not told the store yet.
 *
 * A file of fixed size beside the segment. The data plane adds to it, one process (the agent) tells the store and takes
 * off what the store has acknowledged. Nobody waits for anybody, and everybody may be killed at any instruction.
 *
 *     header    4 KiB    what never changes, checked on attach; then what does: the agent's life sign, figures
 *     notes     128 KiB  the batch that is on its way to the store, so that a new agent can go on with it
 *     dirty     n / 8    a bit an entry: its amount has changed since the agent looked
 *     cells     n x 16   which counter an entry is for, and its amount
 *     texts     n x 112  what the counter is called
 *
 * A cell has the identity of a counter (64 bits of a keyed hash: 0 is free) and the amount that is unsent in one word
 * of 16 bytes, which is changed by compare-and-swap: an amount can never land on another counter's entry, whoever frees
 * or claims it meanwhile. The name is written before any amount is, by whoever finds the entry claimed but not ready:
 * all write the same. Two processes may claim two entries for one counter (twins), which is harmless: amounts add up.
 *
 * Dirty bits, not rings: a ring can be full, has a place that a killed writer reserved and never filled, and tells of
 * a hot key as often as it was used. A bit that is set twice is set, and the agent looks through all of them in
 * microseconds.
 *
 * Taking off what was acknowledged happens once for each batch, also if the agent is killed in the middle of it: the
 * cell remembers the last batch that was taken off, in the same compare-and-swap.
 */
#ifndef WEIR_TABLE_LEDGER_H
#define WEIR_TABLE_LEDGER_H

#include "base/atomic.h"

#include <stddef.h>

#define WEIR__LEDGER_MAGIC     UINT64_C(0x0a52474c524945f7)
#define WEIR__LEDGER_LAYOUT    2 /* raise with every change of this file */
#define WEIR__LEDGER_BYTES_MIN (UINT64_C(256) << 10)
#define WEIR__LEDGER_KEY       80   /* bytes of a key; of a longer one, what its name in the store has of it */
#define WEIR__LEDGER_BATCH_MAX 4096 /* counters of a batch */
#define WEIR__LEDGER_SENDER    32   /* digits */

/* What the counter of an entry is called. */
struct weir__ledger_text {
    uint64_t rule, tier; /* the rule's id; a hash of the tier's name, 0: the default */
    uint64_t check;      /* over the identity and all of it up to the key's end */
    uint16_t key_len;
    uint8_t cut; /* the key was longer */
    uint8_t spare[5];
    char key[WEIR__LEDGER_KEY];
};

/* One counter of the batch that is on its way. */
struct weir__ledger_in_flight {
    uint64_t identity;
    int64_t amount;
    int64_t window_end_us; /* of windows by clock or calendar: when the one ends that the amount belongs to; else 0 */
    uint64_t index;
};

struct weir__ledger_header {
    /* Written once, before anybody else sees the ledger; covered by `check`. */
    uint64_t magic;
    uint32_t layout, header_bytes;
    uint64_t bytes, entries;
    uint64_t notes_at, dirty_at, cells_at, texts_at;
    char sender[WEIR__LEDGER_SENDER + 1]; /* what the agent calls itself in the store */
    uint64_t check;

    /* The agent's; each word stands for itself. Times are milliseconds of CLOCK_MONOTONIC. */
    uint64_t batch __attribute__((aligned(64))); /* the last number that was used */
    uint64_t in_flight;                          /* counters of the batch on its way; 0: none is */
    uint64_t heartbeat_ms;                       /* the agent's last life sign */
    uint64_t state;                              /* enum weir__ledger_state */
    uint64_t state_since_ms;
    uint64_t acked_ms; /* when everything was told that was there when the agent looked */
    uint64_t exchanges, failures, ops, sent, applied, refunded, dropped, torn;
    uint64_t bytes_out, bytes_in;
    uint64_t filled; /* entries in use, when the agent last went through all */
    uint64_t last_error;

    /* Everybody's. */
    uint64_t full __attribute__((aligned(64))); /* amounts that found no room */
};

enum weir__ledger_state { WEIR__LEDGER_UNKNOWN, WEIR__LEDGER_UP, WEIR__LEDGER_DOWN };

#define WEIR__LEDGER_HEADER_BYTES 4096

_Static_assert(sizeof(struct weir__ledger_text) == 112, "a text and its cell are 128 bytes");
_Static_assert(sizeof(struct weir__ledger_header) <= WEIR__LEDGER_HEADER_BYTES, "the header has outgrown its page");

/* A mapped ledger. Made by weir__ledger_attach from checked numbers only. */
struct weir__ledger {
    struct weir__ledger_header *header;
    struct weir__ledger_in_flight *note;
    uint64_t *dirty; /* entries / 64 words */
    weir__cell *cell;
    struct weir__ledger_text *text;
    uint64_t entries; /* a multiple of 64 */
};

/* Lays out an empty one in zeroed memory. 0 or WEIR_ESIZE. `sender`: WEIR__LEDGER_SENDER digits and a zero byte. */
int weir__ledger_format(void *memory, uint64_t bytes, const char *sender);
/* Checks a mapped one. 0, or what is wrong with it, as for a segment. */
int weir__ledger_attach(void *memory, uint64_t bytes, struct weir__ledger *ledger);

/* ---- For the data plane ---- */

/*
 * Adds to the counter's amount, if it has an entry. False: it has none that is ready, and weir__ledger_add_entry makes
 * one. An identity is not 0.
 */
bool weir__ledger_add(const struct weir__ledger *ledger, uint64_t identity, int64_t amount);
/*
 * The same, and makes the entry; `text` without its check. False: there was no room, which was counted, or others were
 * always faster; nothing was added.
 */
bool weir__ledger_add_entry(const struct weir__ledger *ledger, uint64_t identity, const struct weir__ledger_text *text,
                            int64_t amount);

/* ---- For the agent ---- */

struct weir__ledger_entry {
    uint64_t identity; /* 0: free */
    int64_t amount;
    bool ready; /* it has a text, which is whole */
    struct weir__ledger_text text;
};

/* What a cell has: the entry without its text. */
struct weir__ledger_cell {
    uint64_t identity; /* 0: free */
    int64_t amount;
};

/* Takes the dirty bits of entries [64 * word, 64 * word + 64). */
uint64_t weir__ledger_dirty(const struct weir__ledger *ledger, uint64_t word);
/* Sets one again, for the next round. */
void weir__ledger_mark(const struct weir__ledger *ledger, uint64_t index);
/*
 * Reads an entry. One whose text is not whole (a process that was stopped for long wrote over it) is marked as not
 * ready: the next who uses the counter writes it again.
 */
void weir__ledger_read(const struct weir__ledger *ledger, uint64_t index, struct weir__ledger_entry *entry);
/* Its cell alone, which is one line of cache instead of three. */
struct weir__ledger_cell weir__ledger_read_cell(const struct weir__ledger *ledger, uint64_t index);
/* Asks for what weir__ledger_read will look at first, or for what weir__ledger_read_cell will. */
void weir__ledger_prefetch(const struct weir__ledger *ledger, uint64_t index);
void weir__ledger_prefetch_cell(const struct weir__ledger *ledger, uint64_t index);
/* Says that batch `batch` is going to take from this entry. False: it is another's. */
bool weir__ledger_begin_batch(const struct weir__ledger *ledger, uint64_t index, uint64_t identity, uint64_t batch);
/* Takes off what batch `batch` told, once however often it is called. */
void weir__ledger_ack(const struct weir__ledger *ledger, uint64_t index, uint64_t identity, int64_t amount,
                      uint64_t batch);
/* Takes off what will never be told. */
void weir__ledger_discard(const struct weir__ledger *ledger, uint64_t index, uint64_t identity, int64_t amount);
/* Frees the entry if its amount is 0. */
bool weir__ledger_free(const struct weir__ledger *ledger, uint64_t index, uint64_t identity);

#endif
