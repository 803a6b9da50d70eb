/*
 * The negative cache: denials of the store, kept in the segment until they end, so that a client that retries does not
 * cause store requests.
 *
 * Each is a bucket next to the counter that drains one unit a microsecond: its level is the time left. Not implemented
 * as a block, since every take checks for blocks while there are any. Entries are separate by cost, since a smaller
 * cost may fit, and by limit, since a changed limit must be decided anew.
 */
#include "engine/strict.h"
#include "engine/segment.h"
#include "table/hash.h"

#define LONGEST_US WEIR__USED_MAX

int weir__negative_cache_init(weir_limit *negative_cache)
{
    weir_params params = {.limit = 1000000, .window_ns = WEIR_SECOND, .burst = LONGEST_US};
    return weir_limit_init(negative_cache, &params);
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    a = (a ^ b) * UINT64_C(0x9e3779b97f4a7c15);
    return a ^ a >> 29;
}

/* The entry of this request: the counter's salt, varied by cost and limit. */
static weir_limit place_of(const weir_limit *negative_cache, const weir_request *request)
{
    const weir_limit *limit = request->limit;
    weir_limit place = *negative_cache;
    uint64_t apart = mix((uint64_t)request->cost, (uint64_t)limit->cap);
    apart = mix(apart, (uint64_t)limit->limit);
    apart = mix(apart, (uint64_t)limit->window_us);
    place.salt ^= mix(apart, limit->salt);
    return place;
}

int64_t weir__negative_cache_left(const weir_segment *segment, const weir_limit *negative_cache,
                                  const weir_request *request, weir_time now)
{
    weir_limit place = place_of(negative_cache, request);
    weir_decision left;
    if (weir_peek(segment, &place, request->key, request->key_len, 0, now, &left) != 0)
        return 0; /* the store decides */
    return left.reset_after_ns;
}

void weir__negative_cache_add(weir_segment *segment, const weir_limit *negative_cache, const weir_request *request,
                              int64_t for_ns, weir_time now)
{
    int64_t for_us = for_ns / 1000 < LONGEST_US ? for_ns / 1000 : LONGEST_US;
    int64_t left_us = (weir__negative_cache_left(segment, negative_cache, request, now) + 999) / 1000;
    if (segment->mapped.read_only || for_us <= left_us)
        return;
    /* A bucket of just this size: concurrent additions do not exceed the longest denial. */
    weir_limit place = place_of(negative_cache, request);
    place.hard = place.cap = for_us;
    struct weir__op op = weir__operation(segment, weir__stats_shard_here(segment), now);
    struct weir__key_location where;
    weir_decision unused;
    weir__key_locate(op.table, &place, request->key, request->key_len, &where);
    /* if it cannot be cached, the next request goes to the store */
    (void)weir__table_take(&op, &place, &where, for_us - left_us, WEIR__TAKE, &unused);
}

int weir__negative_cache_remove(weir_segment *segment, const weir_limit *negative_cache, const weir_request *request,
                                weir_time now)
{
    weir_limit place = place_of(negative_cache, request);
    return weir_reset(segment, &place, request->key, request->key_len, now);
}
