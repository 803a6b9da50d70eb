/*
 * The ring of recent denials, in a sidecar file of fixed size: docs/reference/denials.md.
 * Three quarters of its rows are for denials, the rest for warnings (warn_at), so that neither replaces the other.
 *
 * Writers are all processes that decide, without a lock. A denial of a rule and key that were denied shortly before
 * only changes the count, the time and the recent clients of the existing entry, which an index finds. Any other takes
 * a ticket, and with it the oldest row. Writers never wait, and a process that is killed while it writes, or writers
 * that meet in one row, leave a row whose checksum is wrong: readers skip it, and the next ticket of the row
 * overwrites it.
 */
#ifndef WEIR_TABLE_DENIAL_RING_H
#define WEIR_TABLE_DENIAL_RING_H

#include "table/row_file.h"

#include <stddef.h>

#define WEIR__DENIAL_TEXT    376                 /* bytes of all texts of an entry */
#define WEIR__DENIAL_RECENT  8                   /* requests of an entry whose client and id are known */
#define WEIR__DENIAL_BYTES   (UINT64_C(1) << 20) /* default size of a new file: 1587 entries */
#define WEIR__DENIAL_GAP_MS  60000               /* without a denial, after which the next one gets a new entry */
#define WEIR__DENIAL_SPAN_MS 600000              /* from its first to its last denial, that an entry covers */
#define WEIR__DENIAL_BUSY_MS 1000 /* since its last denial, in which an entry keeps its place in the index */
#define WEIR__DENIAL_BUCKETS 512  /* of the index; a power of two */
#define WEIR__DENIAL_WAYS    8    /* of a bucket: one cache line */

#define WEIR__DENIAL_BYTES_MAX (INT64_C(64) << 20) /* that a configuration may ask for; readers read all of it */

enum {
    WEIR__DENIAL_SHADOW = 1,      /* the rule is in shadow: the request was not denied by it */
    WEIR__DENIAL_KEY_CUT = 2,     /* the key is longer than its text */
    WEIR__DENIAL_HIDDEN = 4,      /* key and client have no texts, or hashes of them that all hosts share */
    WEIR__DENIAL_CONCURRENCY = 8, /* the limit counts requests in flight */
    WEIR__DENIAL_WARNING = 16,    /* nothing was denied: the key has used the share of its limit that warn_at names */
};

/* The hashes of a denied request. 0: none. */
struct weir__denied_request {
    uint64_t client, id;
};

enum weir__denial_text {
    WEIR__DENIAL_RULE,
    WEIR__DENIAL_KEY,
    WEIR__DENIAL_TIER,
    WEIR__DENIAL_CLIENT,
    WEIR__DENIAL_REQUEST,
    WEIR__DENIAL_MISSING, /* what the request lacked; before the path, which leaves no room where it is long */
    WEIR__DENIAL_PATH,
    WEIR__DENIAL_OTHERS,
    WEIR__DENIAL_TEXTS
};

/* An entry: denials of one rule, key and reason. */
struct weir__denial {
    uint64_t identity; /* hash of rule, key and reason; 0: empty, or being written. Stored last */
    uint64_t checksum; /* of `first_ms` and all from `ticket` on */
    /* Changed by later denials, and therefore not in the checksum. */
    uint64_t count;
    uint64_t last_ms;
    struct weir__denied_request recent[WEIR__DENIAL_RECENT]; /* the request number n is at n % WEIR__DENIAL_RECENT */

    /* Of the first denial. */
    uint64_t first_ms; /* since 1970 */
    uint64_t ticket;   /* from 1 on; warnings have their own */
    uint64_t rule;     /* its id; 0: a list of all rules, or a limit that the request brought */
    uint64_t key;      /* its hash, keyed by the segment's secret */
    int64_t limit;     /* units a window; -1: none */
    int64_t window_ns;
    int64_t capacity;  /* units that can be used at once: of a bucket its burst */
    int64_t remaining; /* of them */
    int64_t cost;
    int64_t retry_after_ns; /* -1: never */
    int32_t error;          /* why the counter failed; 0: it did not */
    uint8_t reason;         /* enum weir_reason */
    uint8_t verdict;        /* enum weir_verdict */
    uint8_t flags;
    uint8_t warn_at;                  /* of a warning: per cent of the capacity; else 0 */
    uint16_t len[WEIR__DENIAL_TEXTS]; /* of the texts, which follow each other in `text` */
    char text[WEIR__DENIAL_TEXT];
};

/* Another rule that matched the first denied request: in WEIR__DENIAL_OTHERS, followed by its name. */
struct weir__denial_other {
    int64_t capacity, remaining;
    uint8_t verdict, reason, shadow, name_len;
    char name[4]; /* of name_len bytes */
};
#define WEIR__DENIAL_OTHER_BYTES offsetof(struct weir__denial_other, name)

struct weir__denial_row {
    uint64_t word[sizeof(struct weir__denial) / sizeof(uint64_t)];
};
_Static_assert(sizeof(struct weir__denial) == sizeof(struct weir__denial_row) &&
                   sizeof(struct weir__denial_row) % 64 == 0,
               "rows are whole cache lines");

struct weir__denial_header {
    struct weir__row_header file;
    uint64_t tickets;  /* taken so far by denials */
    uint64_t warnings; /* tickets taken by warnings */
    /* The next ticket of a warning to log, and to send to the URL of `notify`; 0: not begun. */
    uint64_t to_log, to_notify;
    uint64_t notifier_ms;                                    /* heartbeat of the notifier, since 1970 */
    uint64_t index[WEIR__DENIAL_BUCKETS][WEIR__DENIAL_WAYS]; /* upper half of an identity, and the row plus 1; 0: none
                                                              */
};

/* A mapped ring: addresses in this process. */
struct weir__denial_ring {
    struct weir__denial_header *header;
    struct weir__denial_row *row;
    uint32_t rows; /* 0: there is none */
};

extern const struct weir__row_format weir__denial_format;
/* Attaches to a file. False: another format, or damaged. */
bool weir__denial_attach(void *memory, size_t bytes, struct weir__denial_ring *ring);

/*
 * Counts a denial in the present entry of this identity. False: there is none. At worst, while the row gets another
 * entry, the denial is counted in that one.
 */
bool weir__denial_repeat(const struct weir__denial_ring *ring, uint64_t identity, uint64_t now_ms,
                         const struct weir__denied_request *request);
/* Writes a new entry with `identity`, `first_ms`, `recent[0]`, `flags` and the rest; sets what is left. A denial only
 * if not all entries of its bucket in the index were denied a moment ago. */
void weir__denial_add(const struct weir__denial_ring *ring, struct weir__denial *entry);

/* Adds the next text to a new entry, in the order of the enum, cut to `max` bytes or what is left. Returns its length.
 */
size_t weir__denial_put(struct weir__denial *entry, enum weir__denial_text which, const void *text, size_t len,
                        size_t max);
/* Adds another rule that matched, if there is room. The texts before WEIR__DENIAL_OTHERS must be complete. */
void weir__denial_put_other(struct weir__denial *entry, const struct weir__denial_other *other, const void *name,
                            size_t len);

/* Copies the entry of a row. False: empty, torn or damaged. */
bool weir__denial_read(const struct weir__denial_ring *ring, uint32_t row, struct weir__denial *entry);

/* The progress of a reader of the warnings. */
struct weir__warning_cursor {
    uint64_t next;    /* ticket */
    uint64_t missed;  /* overwritten before they were read, or left torn by a writer that was killed */
    uint32_t waiting; /* calls in a row that found `next` unreadable: its writer may not have finished */
};
/* Goes on at the ticket in *kept, a word of the header; 0: at the first warning that is written from now on. */
void weir__warning_resume(const struct weir__denial_ring *ring, const uint64_t *kept,
                          struct weir__warning_cursor *cursor);
/* Copies the next warning. False: none now. */
bool weir__warning_next(const struct weir__denial_ring *ring, struct weir__warning_cursor *cursor,
                        struct weir__denial *entry);
/* A text of an entry that was read. */
weir_text weir__denial_text(const struct weir__denial *entry, enum weir__denial_text which);
/* The next of the other rules, from *at = 0 on. False: no more. */
bool weir__denial_next_other(const struct weir__denial *entry, size_t *at, struct weir__denial_other *other,
                             weir_text *name);

#endif
