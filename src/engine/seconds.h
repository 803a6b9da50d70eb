/* Times as clients are told them: whole seconds, rounded up, so that who waits as told is not early. */
#ifndef WEIR_ENGINE_SECONDS_H
#define WEIR_ENGINE_SECONDS_H

#include <weir/weir.h>

static inline int64_t weir__seconds_up(int64_t ns)
{
    return ns <= 0 ? 0 : (ns - 1) / WEIR_SECOND + 1;
}

static inline int64_t weir__at_least(int64_t value, int64_t least)
{
    return value < least ? least : value;
}

/* Until a retry makes sense; 0: never. */
static inline int64_t weir__retry_seconds(const weir_result *result)
{
    int64_t wait = result->decision.retry_after_ns;
    return wait < 0 ? 0 : weir__at_least(weir__seconds_up(wait), 1);
}

#endif
