/*
 * Reads a limit's algorithm and parameters, for both dialects: algorithm, burst, refill, align, timezone, buckets,
 * round, count_rejected, soft and lease.
 */
#ifndef WEIR_RULES_ALGORITHM_H
#define WEIR_RULES_ALGORITHM_H

#include "rules/set.h"

/* The names of the fields read here, for a dialect's list of known names. */
#define WEIR__ALGORITHM_FIELDS                                                                                         \
    "algorithm", "burst", "refill", "align", "timezone", "buckets", "round", "count_rejected", "soft", "lease"

enum weir__dialect {
    WEIR__NATIVE,     /* default: token bucket; a fixed window of 1d, 1w, 1mo or 1y follows the calendar */
    WEIR__DESCRIPTORS /* default: fixed window, aligned to the epoch unless a time zone is given */
};

/* The nodes of a limit, where errors about its numbers are reported. */
struct weir__limit_nodes {
    const struct weir__node *map; /* has the fields of WEIR__ALGORITHM_FIELDS */
    const struct weir__node
        *outer; /* defaults for fields that `map` lacks (the rule around one of its `limits`); or NULL */
    const struct weir__node *limit;  /* the number of units */
    const struct weir__node *window; /* its window */
};

/*
 * Reads all fields and the window into *params; limit, id and delay stay. A parameter that the algorithm does not have
 * is an error. False: errors were reported.
 */
bool weir__algorithm_read(struct weir__builder *builder, const struct weir__limit_nodes *nodes,
                          const struct weir__parsed_window *window, enum weir__dialect dialect, weir_params *params);

/* Initialises the limit from complete params. Values that the core refuses are reported at their field. */
bool weir__algorithm_make(struct weir__builder *builder, const struct weir__limit_nodes *nodes,
                          const weir_params *params, weir_limit *limit);

/* True for a limit of requests in flight, which has a lease and no window. */
bool weir__algorithm_is_concurrency(const struct weir__limit_nodes *nodes);

/* The length of the window as it is reported: calendar months and years count their longest. */
int64_t weir__algorithm_window_ns(const weir_params *params);

#endif
