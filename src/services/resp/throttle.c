/* CL.THROTTLE: arguments, limits, reply. */
#include "services/resp/resp.h"

#define UNITS_MAX INT64_C(4294967295) /* maximum of a counter */
#define YEARS_MAX (INT64_C(400) * 86400)

const char *weir__throttle_read(const weir_text *args, size_t count, struct weir__throttle *call)
{
    if (count != 5 && count != 6)
        return "ERR wrong number of arguments for 'cl.throttle' command";
    call->key = args[1];
    call->quantity = 1;
    if (!weir__resp_integer(args[2], &call->max_burst) || !weir__resp_integer(args[3], &call->count) ||
        !weir__resp_integer(args[4], &call->period_s) || (count == 6 && !weir__resp_integer(args[5], &call->quantity)))
        return "ERR value is not an integer or out of range";
    if (!call->count || !call->period_s)
        return "ERR count and period cannot be zero";
    if (call->count < 0 || call->period_s < 0 || call->max_burst < 0)
        return "ERR max_burst, count and period cannot be negative";
    return NULL;
}

static size_t place_of(const struct weir__throttle *call)
{
    uint64_t mixed = (uint64_t)call->max_burst * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (uint64_t)call->count) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 32 ^ (uint64_t)call->period_s) * UINT64_C(0x94d049bb133111eb);
    return (size_t)(mixed >> 32) % WEIR__THROTTLE_LIMITS;
}

const weir_limit *weir__throttle_known(const struct weir__throttle_limits *limits, const struct weir__throttle *call)
{
    const struct weir__throttle_known *known = &limits->known[place_of(call)];
    bool same = known->count == call->count && known->period_s == call->period_s && known->max_burst == call->max_burst;
    return same ? &known->limit : NULL;
}

int weir__throttle_make(struct weir__throttle_limits *limits, const struct weir__throttle *call,
                        const weir_limit **limit)
{
    struct weir__throttle_known *known = &limits->known[place_of(call)];
    /* before they are multiplied and incremented */
    if (call->period_s > YEARS_MAX)
        return WEIR_EWINDOW;
    if (call->max_burst >= UNITS_MAX)
        return WEIR_EBURST;
    weir_params params = {.limit = call->count,
                          .window_ns = call->period_s * WEIR_SECOND,
                          .burst = call->max_burst + 1,
                          .id = WEIR__THROTTLE_ID};
    int error = weir_limit_init(&known->limit, &params);
    known->count = error ? 0 : call->count;
    known->period_s = call->period_s;
    known->max_burst = call->max_burst;
    if (!error)
        *limit = &known->limit;
    return error;
}

int64_t weir__throttle_cost(const struct weir__throttle *call, const weir_limit *limit)
{
    /* Clamped: a larger cost never fits either, and a larger refund exceeds what was taken. */
    if (call->quantity > limit->hard)
        return limit->hard + 1;
    return call->quantity < -UNITS_MAX ? -UNITS_MAX : call->quantity;
}

/* Truncated, plus one if the rest is at least a millisecond, as redis-cell does. */
static int64_t seconds(int64_t ns)
{
    return ns / WEIR_SECOND + (ns % WEIR_SECOND >= 1000 * WEIR_MICROSECOND);
}

void weir__throttle_reply(const weir_decision *decision, int64_t numbers[5])
{
    bool passes = weir_passes(decision);
    numbers[0] = !passes;
    numbers[1] = decision->limit;
    numbers[2] = decision->remaining > 0 ? decision->remaining : 0;
    numbers[3] = passes || decision->retry_after_ns < 0 ? -1 : seconds(decision->retry_after_ns);
    numbers[4] = seconds(decision->reset_after_ns);
}
