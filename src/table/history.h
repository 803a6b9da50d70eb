/*
 * What happened under each rule in every second of the last hour, and in every hour of the last eight days. The agent
 * writes it, once a second, from the tallies; anybody may read it. In memory of fixed size, so that it outlives the
 * agent and `weir top` needs nobody's help.
 */
#ifndef WEIR_TABLE_HISTORY_H
#define WEIR_TABLE_HISTORY_H

#include "table/layout.h"

#include <stddef.h>

#define WEIR__HISTORY_LAYOUT  3
#define WEIR__HISTORY_MAGIC   UINT64_C(0x0a545349485245f7)
#define WEIR__HISTORY_SECONDS 3600
#define WEIR__HISTORY_HOURS   192

struct weir__history_second {
    uint32_t allowed, delayed, denied, shed; /* more than 2^32 - 1 in a second are no more */
};

struct weir__history_hour {
    uint64_t hour; /* which one this is: seconds / 3600; 0: none */
    uint64_t allowed, denied;
    uint32_t looked; /* seconds of it that were written */
    uint32_t most; /* per mille of its limit that any key was seen to have used; WEIR__HISTORY_UNSEEN: nobody looked */
};

#define WEIR__HISTORY_UNSEEN UINT32_MAX

/* A rule's hour. Second s is at s % WEIR__HISTORY_SECONDS, and hours the same way. */
struct weir__history_row {
    uint64_t rule;  /* its id; 0: free */
    uint64_t used;  /* the second in which it was last written; the row that was longest ago gives way to a new rule */
    uint64_t first; /* the second in which it was begun */
    uint64_t seen[4]; /* what the tally had then */
    uint64_t pad;
    struct weir__history_second second[WEIR__HISTORY_SECONDS];
    struct weir__history_hour hour[WEIR__HISTORY_HOURS];
};

struct weir__history_header {
    uint64_t magic;
    uint32_t layout;
    uint32_t rows;
    uint64_t bytes;
    uint64_t last; /* the newest second that is written whole; 0: none yet */
    uint64_t pad[4];
};

struct weir__history {
    struct weir__history_header *header;
    struct weir__history_row *row;
    uint32_t rows;
};

size_t weir__history_bytes(uint32_t rows);
/* Makes an empty one of zeroed memory. False: not even one row fits. */
bool weir__history_make(void *memory, size_t bytes);
bool weir__history_attach(void *memory, size_t bytes, struct weir__history *history);

/*
 * For the one writer. A second: begin, add each rule with its tally's sums, end. Seconds (of any clock that only goes
 * forward) that were left out have nothing: what happened meanwhile is added to the one that is written. What was shed
 * is in the sums' `word`, as in a tally (weir__rule_stats_shed).
 */
void weir__history_begin(struct weir__history *history, uint64_t second);
/* `most`: how much of its limit the key has used that used most of it lately; WEIR__HISTORY_UNSEEN, if unknown. */
void weir__history_add(struct weir__history *history, uint64_t second, uint64_t rule,
                       const struct weir__rule_stats_shard *sums, uint32_t most);
void weir__history_end(struct weir__history *history, uint64_t second);

/*
 * The last `count` seconds (at most 3600) up to the newest, oldest first, of a rule. Returns how many are known: fewer
 * when the rule is younger. Those of a rule that is not there: 0.
 */
size_t weir__history_read(const struct weir__history *history, uint64_t rule, struct weir__history_second *seconds,
                          size_t count);

/* The rule's hours, oldest first, up to the present one. Those in which nobody looked are left out. */
size_t weir__history_hours(const struct weir__history *history, uint64_t rule,
                           struct weir__history_hour hours[WEIR__HISTORY_HOURS]);

#endif
