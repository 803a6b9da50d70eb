/*
 * The delta ledger: units that this host has consumed under rules of `consistency: eventual` and the store has not
 * acknowledged yet. See src/sync/sync.h for the protocol.
 *
 * A file of fixed size beside the segment. Workers add to it; one process (the agent) sends the deltas to the store and
 * subtracts what the store has acknowledged. Wait-free of each other; any process may be killed at any instruction.
 *
 *     header     4 KiB    constant fields, verified on attach; then heartbeat and statistics of the agent
 *     in flight  128 KiB  the batch that was sent, so that a new agent can resume it
 *     dirty      n / 8    a bit an entry: its amount has changed since the agent read it
 *     cells      n x 16   identity of a counter, and its amount
 *     texts      n x 112  name of the counter
 *
 * A cell has the identity of a counter (64 bits of a keyed hash; 0 is free) and its unsent amount in 16 bytes that one
 * compare-and-swap replaces: an amount can never be added to another counter's entry. The name is written before any
 * amount, by each process that finds the entry claimed but not ready: all write the same. Two processes may claim two
 * entries for one counter (duplicates), which is harmless: amounts add up.
 *
 * Dirty bits instead of a ring buffer: a ring can be full, a killed writer leaves a hole in it, and a hot key fills it.
 * A dirty bit is idempotent, and the agent scans all of them in microseconds.
 *
 * An acknowledged amount is subtracted exactly once for each batch, also if the agent is killed in between: the cell
 * contains the number of the last batch that was subtracted, replaced by the same compare-and-swap.
 */
#ifndef WEIR_TABLE_LEDGER_H
#define WEIR_TABLE_LEDGER_H

#include "base/atomic.h"

#include <stddef.h>

#define WEIR__LEDGER_MAGIC     UINT64_C(0x0a52474c524945f7)
#define WEIR__LEDGER_LAYOUT    3 /* raise with every change of this file */
#define WEIR__LEDGER_BYTES_MIN (UINT64_C(256) << 10)
#define WEIR__LEDGER_KEY       80   /* bytes of a key; longer ones are shortened as in their name in the store */
#define WEIR__LEDGER_BATCH_MAX 4096 /* maximum number of counters of a batch */
#define WEIR__LEDGER_SENDER    32   /* digits */

/* The name of an entry's counter. */
struct weir__ledger_text {
    uint64_t rule, tier; /* the rule's id; a hash of the tier's name, 0: the default */
    uint64_t check;      /* checksum of the identity and all bytes up to the end of the key */
    uint16_t key_len;
    uint8_t cut; /* the key was longer */
    uint8_t spare[5];
    char key[WEIR__LEDGER_KEY];
};

/* One counter of the batch in flight. */
struct weir__ledger_in_flight {
    uint64_t identity;
    int64_t amount;
    int64_t window_end_us; /* end of the clock or calendar window that the amount belongs to; else 0 */
    uint64_t index;
};

struct weir__ledger_header {
    /* Written once, before anybody else sees the ledger; covered by `check`. */
    uint64_t magic;
    uint32_t layout, header_bytes;
    uint64_t bytes, entries;
    uint64_t notes_at, dirty_at, cells_at, texts_at;
    char sender[WEIR__LEDGER_SENDER + 1]; /* the agent's name in the store */
    uint64_t check;

    /* Written by the agent; each word is independent. Times are milliseconds of CLOCK_MONOTONIC. */
    uint64_t batch __attribute__((aligned(64))); /* the last batch number used */
    uint64_t in_flight;                          /* counters of the batch in flight; 0: none */
    uint64_t heartbeat_ms;                       /* the agent's last heartbeat */
    uint64_t state;                              /* enum weir__ledger_state */
    uint64_t state_since_ms;
    uint64_t acked_ms; /* time at which the store had acknowledged everything that the agent's scan found */
    uint64_t exchanges, failures, ops, sent, applied, refunded, dropped, torn;
    uint64_t bytes_out, bytes_in;
    uint64_t filled; /* entries in use at the last full scan */
    uint64_t last_error;
    uint64_t lease_granted, lease_spent, lease_returned, lease_expired; /* units */

    /* Written by all processes. */
    uint64_t full __attribute__((aligned(64))); /* amounts that were lost because the ledger was full */
    uint64_t lease_waits;                       /* requests under leased rules that the store decided, and allowed */
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

/* Formats zeroed memory. Returns 0 or WEIR_ESIZE. `sender`: text of WEIR__LEDGER_SENDER digits and a zero byte. */
int weir__ledger_format(void *memory, uint64_t bytes, const void *sender);
/* Verifies a mapped ledger. Returns 0 or an error, as for a segment. */
int weir__ledger_attach(void *memory, uint64_t bytes, struct weir__ledger *ledger);

/* ---- For the data plane ---- */

/*
 * Adds to the counter's amount. False: it has no entry that is ready; then call weir__ledger_add_entry. The identity is
 * not 0.
 */
bool weir__ledger_add(const struct weir__ledger *ledger, uint64_t identity, int64_t amount);
/*
 * Adds to the counter's amount and inserts its entry; `text` without its checksum. False: no room (counted), or too
 * many collisions; nothing was added.
 */
bool weir__ledger_add_entry(const struct weir__ledger *ledger, uint64_t identity, const struct weir__ledger_text *text,
                            int64_t amount);

/* ---- For the agent ---- */

struct weir__ledger_entry {
    uint64_t identity; /* 0: free */
    int64_t amount;
    uint64_t batch; /* the last one that was acknowledged, modulo 2^23; 0: none */
    bool ready;     /* it has a complete text */
    struct weir__ledger_text text;
};

/* The content of a cell. */
struct weir__ledger_cell {
    uint64_t identity; /* 0: free */
    int64_t amount;
};

/* Fetches and clears the dirty bits of entries [64 * word, 64 * word + 64). */
uint64_t weir__ledger_dirty(const struct weir__ledger *ledger, uint64_t word);
/* Sets a dirty bit again, for the next round. */
void weir__ledger_mark(const struct weir__ledger *ledger, uint64_t index);
/*
 * Reads an entry. An entry with a torn text (overwritten by a process that was stopped for long) is marked as not
 * ready: the next process that uses the counter writes it again.
 */
void weir__ledger_read(const struct weir__ledger *ledger, uint64_t index, struct weir__ledger_entry *entry);
/* Reads the cell only: one cache line instead of three. */
struct weir__ledger_cell weir__ledger_read_cell(const struct weir__ledger *ledger, uint64_t index);
/* Prefetches for weir__ledger_read, and for weir__ledger_read_cell. */
void weir__ledger_prefetch(const struct weir__ledger *ledger, uint64_t index);
void weir__ledger_prefetch_cell(const struct weir__ledger *ledger, uint64_t index);
/* Prepares the entry for an acknowledgement of `batch`. False: another counter has it. */
bool weir__ledger_begin_batch(const struct weir__ledger *ledger, uint64_t index, uint64_t identity, uint64_t batch);
/* Subtracts the amount that batch `batch` sent; idempotent. False: that was done before, or another counter has it. */
bool weir__ledger_ack(const struct weir__ledger *ledger, uint64_t index, uint64_t identity, int64_t amount,
                      uint64_t batch);
/* Subtracts an amount that will not be sent. */
void weir__ledger_discard(const struct weir__ledger *ledger, uint64_t index, uint64_t identity, int64_t amount);
/* Frees the entry if its amount is 0. */
bool weir__ledger_free(const struct weir__ledger *ledger, uint64_t index, uint64_t identity);

#endif
