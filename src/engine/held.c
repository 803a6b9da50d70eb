/* Slots that a request holds, under one rule or several. */
#include "engine/held.h"

#include "engine/lease.h"

/* ---- Of a request under decision ---- */

int weir__hit_hold(const struct weir__trial *trial, struct weir__hit *hit, weir_decision *decision)
{
    const weir_limit *limit = &hit->quota->limit;
    weir_segment *segment = trial->engine->segment;
    weir_held *held = trial->held;
    if (segment->read_only)
        return WEIR_EREADONLY;
    if (!held || held->count >= WEIR_HELD_MAX)
        return WEIR_ETOOMANY;
    int error = weir__acquire_on(trial->cpu, segment, limit, hit->key, hit->key_len, trial->now,
                                 &held->lease[held->count], decision);
    if (error || !weir_passes(decision))
        return error;
    int64_t lease_ns = limit->window_us * 1000;
    held->lease_ns = held->count && held->lease_ns < lease_ns ? held->lease_ns : lease_ns;
    hit->held = (uint8_t)++held->count;
    return 0;
}

int weir__hit_let_go(const struct weir__trial *trial, struct weir__hit *hit, weir_decision *decision)
{
    weir_segment *segment = trial->engine->segment;
    int error = weir_release(segment, &trial->held->lease[hit->held - 1], trial->now);
    if (error && error != WEIR_ELEASE)
        return error;
    error = weir_peek(segment, &hit->quota->limit, hit->key, hit->key_len, 0, trial->now, decision);
    trial->held->lease[hit->held - 1] = (weir_lease){0}; /* gives back nothing */
    hit->held = 0;
    return error;
}

/* ---- Of one that was decided ---- */

int weir_held_release(weir *engine, weir_held *held)
{
    if (!engine || !held || held->count > WEIR_HELD_MAX)
        return WEIR_EINVAL;
    int failed = 0, released = 0;
    if (!held->count)
        return 0;
    weir_time now = weir__clock_quick(engine->segment);
    for (uint32_t i = 0; i < held->count; i++) {
        int error = weir_release(engine->segment, &held->lease[i], now);
        failed = error && error != WEIR_ELEASE ? error : failed;
        released += error == 0;
    }
    held->count = 0;
    return failed ? failed : released;
}

int weir_held_renew(weir *engine, weir_held *held)
{
    if (!engine || !held || held->count > WEIR_HELD_MAX)
        return WEIR_EINVAL;
    int failed = 0;
    uint32_t kept = 0;
    weir_time now = weir__clock_quick(engine->segment);
    for (uint32_t i = 0; i < held->count; i++) {
        int error = weir_renew(engine->segment, &held->lease[i], now);
        if (error == WEIR_ELEASE)
            continue;
        failed = error ? error : failed;
        held->lease[kept++] = held->lease[i];
    }
    held->count = kept;
    return failed;
}
