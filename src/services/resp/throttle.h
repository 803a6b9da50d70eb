/*
 * CL.THROTTLE <key> <max_burst> <count> <period in seconds> [<quantity>], as redis-cell has it: the limit comes with
 * each call, and the answer is five numbers. The counters are token buckets of the segment.
 */
#ifndef WEIR_SERVICES_RESP_THROTTLE_H
#define WEIR_SERVICES_RESP_THROTTLE_H

#include "services/resp/parse.h"

/* Of all CL.THROTTLE counters, so that they never meet those of rules. It never changes: segments are on disk. */
#define WEIR__THROTTLE_ID UINT64_C(0x434c2e5448524f54)

struct weir__throttle {
    weir_text key;
    int64_t max_burst, count, period_s, quantity;
};

/* Reads a command's arguments. NULL, or what to answer after "-". */
const char *weir__throttle_read(const weir_text *args, size_t count, struct weir__throttle *call);

#define WEIR__THROTTLE_LIMITS 64

/* Limits that were asked for lately: most services use a handful, and making one takes as long as a decision. */
struct weir__throttle_limits {
    struct weir__throttle_known {
        int64_t max_burst, count, period_s; /* count 0: empty */
        weir_limit limit;
    } known[WEIR__THROTTLE_LIMITS];
};

/* The limit of a call if it is known, else NULL. */
const weir_limit *weir__throttle_known(const struct weir__throttle_limits *limits, const struct weir__throttle *call);
/* Makes the limit of a call, in the place of another: nobody must use a limit of before any more. 0 or an error. */
int weir__throttle_make(struct weir__throttle_limits *limits, const struct weir__throttle *call,
                        const weir_limit **limit);

/* What to take from the counter: the quantity, as far as the counter knows such numbers. */
int64_t weir__throttle_cost(const struct weir__throttle *call, const weir_limit *limit);
/* The five numbers: limited, limit, remaining, retry after and reset after in seconds. */
void weir__throttle_reply(const weir_decision *decision, int64_t numbers[5]);

#endif
