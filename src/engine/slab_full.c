/*
 * A log or wide counter that the segment's slab has no room for. With on_store_failure `local` the host still holds the
 * limit, by a counter that needs no record: a sliding counter of two buckets, in the lines. It counts only what finds
 * no room; a record that the key has but that cannot grow goes on for what fits into it, and what it holds is taken off
 * the stand-in's limit. So both together let no more pass than the limit, as exactly as a sliding counter of two
 * buckets is.
 */
#include "engine/evaluation.h"

#define APART UINT64_C(0x5ca1ab1e0ddba11) /* any number: a stand-in is not counted where the counter is */

static weir_limit stand_in(const struct weir__trial *trial, const struct weir__hit *hit)
{
    const weir_limit *limit = &hit->quota->limit;
    weir_limit made = *limit;
    weir_decision looked;
    made.algorithm = WEIR_SLIDING_WINDOW_COUNTER;
    made.buckets = 2;
    made.part_us = made.window_us;
    made.count_rejected = false;
    made.spread ^= APART;
    made.wide = !weir__is_packed(&made); /* by the whole limit: its form must not depend on what is taken off */
    if (weir_peek(trial->engine->segment, limit, hit->key, hit->key_len, 0, trial->now, &looked) == 0) {
        int64_t logged = limit->hard - looked.remaining;
        made.hard -= logged;
        made.cap -= logged;
    }
    return made;
}

static bool has_stand_in(const struct weir__hit *hit)
{
    const weir_limit *limit = &hit->quota->limit;
    bool in_slab = limit->algorithm == WEIR_SLIDING_WINDOW_LOG ||
                   (limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && limit->buckets > 2);
    return in_slab && hit->cost > 0 && (!hit->rule || hit->rule->on_failure == WEIR__FAIL_LOCAL);
}

int weir__hit_take_without_room(const struct weir__trial *trial, struct weir__hit *hit, weir_decision *made)
{
    if (!has_stand_in(hit))
        return WEIR_EFULL;
    weir_limit limit = stand_in(trial, hit);
    int error =
        weir__take_on(trial->cpu, trial->engine->segment, &limit, hit->key, hit->key_len, hit->cost, trial->now, made);
    if (error)
        return error;
    made->limit = hit->quota->limit.hard;
    hit->store_error = WEIR_EFULL;
    return 0;
}

int weir__hit_refund(const struct weir__trial *trial, const struct weir__hit *hit, weir_decision *made)
{
    weir_limit limit = hit->store_error == WEIR_EFULL ? stand_in(trial, hit) : hit->quota->limit;
    return weir_refund(trial->engine->segment, &limit, hit->key, hit->key_len, hit->cost, trial->now, made);
}
