/*
 * Counters of each rule for every second of the last hour and every hour of the last eight days. The agent writes them
 * once a second from the rule statistics. In a file of fixed size, so that they survive the agent and `weir top` can
 * read them without it.
 */
#ifndef WEIR_TABLE_HISTORY_H
#define WEIR_TABLE_HISTORY_H

#include "table/layout.h"
#include "table/row_file.h"

#include <stddef.h>

#define WEIR__HISTORY_SECONDS 3600
#define WEIR__HISTORY_HOURS   192

struct weir__history_second {
    uint32_t allowed, delayed, denied, shed; /* saturates at 2^32 - 1 a second */
};

struct weir__history_hour {
    uint64_t hour; /* number of the hour: seconds / 3600; 0: none */
    uint64_t allowed, denied;
    uint32_t looked; /* recorded seconds of this hour */
    uint32_t most;   /* largest share of its limit that a key had used, in per mille; WEIR__HISTORY_UNSEEN: unknown */
};

#define WEIR__HISTORY_UNSEEN UINT32_MAX

/* The history of one rule. Second s is at s % WEIR__HISTORY_SECONDS, hours likewise. */
struct weir__history_row {
    uint64_t rule;    /* its id; 0: free */
    uint64_t used;    /* second of the last write; the least recently written row is reused for a new rule */
    uint64_t first;   /* second of the first write */
    uint64_t seen[4]; /* sums at the last write */
    uint64_t pad;
    struct weir__history_second second[WEIR__HISTORY_SECONDS];
    struct weir__history_hour hour[WEIR__HISTORY_HOURS];
};

struct weir__history_header {
    struct weir__row_header file;
    uint64_t last; /* the newest complete second; 0: none */
    uint64_t pad[4];
};

struct weir__history {
    struct weir__history_header *header;
    struct weir__history_row *row;
    uint32_t rows;
};

extern const struct weir__row_format weir__history_format;
bool weir__history_attach(void *memory, size_t bytes, struct weir__history *history);

/*
 * For the only writer. For each second: begin, add each rule with the sums of its counters, end. Seconds of any
 * monotonic clock; counts of skipped seconds are added to the next one that is written. `shed` of the sums is that of
 * all priority classes.
 */
void weir__history_begin(struct weir__history *history, uint64_t second);
/* `most`: the largest share of its limit that a key used recently; WEIR__HISTORY_UNSEEN if unknown. */
void weir__history_add(struct weir__history *history, uint64_t second, uint64_t rule,
                       const struct weir__rule_stats_shard *sums, uint32_t most);
void weir__history_end(struct weir__history *history, uint64_t second);

/*
 * The last `count` seconds (at most 3600) up to the newest, oldest first. Returns how many are known: fewer for a young
 * rule, 0 for an unknown one.
 */
size_t weir__history_read(const struct weir__history *history, uint64_t rule, struct weir__history_second *seconds,
                          size_t count);

/* The rule's hours, oldest first, up to the current one; hours without data are left out. */
size_t weir__history_hours(const struct weir__history *history, uint64_t rule,
                           struct weir__history_hour hours[WEIR__HISTORY_HOURS]);

#endif
