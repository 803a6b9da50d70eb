/*
 * The algorithm of a limit and its parameters, as both dialects write them: algorithm, burst, refill, align, timezone,
 * buckets, round, count_rejected, soft and lease.
 */
#ifndef WEIR_RULES_ALGORITHM_H
#define WEIR_RULES_ALGORITHM_H

#include "rules/set.h"

/* The fields that are read here: for the lists of a dialect's known names. */
#define WEIR__ALGORITHM_FIELDS                                                                                         \
    "algorithm", "burst", "refill", "align", "timezone", "buckets", "round", "count_rejected", "soft", "lease"

enum weir__dialect {
    WEIR__NATIVE,     /* token bucket unless named; a fixed window of 1d, 1w, 1mo or 1y follows the calendar */
    WEIR__DESCRIPTORS /* fixed window unless named; it is cut from the epoch on, unless a time zone is given */
};

/* Where the numbers of a limit stand: what the core refuses is reported there. */
struct weir__limit_nodes {
    const struct weir__node *map; /* has the fields above */
    const struct weir__node
        *outer; /* gives those that `map` does not have (the rule around one of its `limits`); or NULL */
    const struct weir__node *limit;  /* the number of units */
    const struct weir__node *window; /* its window */
};

/*
 * Reads all of them into *params, and the window with them; what is set there besides (limit, id, delay) stays as it
 * is. Parameters that the algorithm does not have are errors. False after an error, which was reported.
 */
bool weir__algorithm_read(struct weir__builder *builder, const struct weir__limit_nodes *nodes,
                          const struct weir__parsed_window *window, enum weir__dialect dialect, weir_params *params);

/* Makes the limit of params that are complete. What the core does not take is reported at the field that is to blame.
 */
bool weir__algorithm_make(struct weir__builder *builder, const struct weir__limit_nodes *nodes,
                          const weir_params *params, weir_limit *limit);

/* True if these are the nodes of a limit of requests in flight, which has a lease and no window. */
bool weir__algorithm_is_concurrency(const struct weir__limit_nodes *nodes);

/* The length of the window as it is told to others: a calendar's months and years by their longest. */
int64_t weir__algorithm_window_ns(const weir_params *params);

#endif
