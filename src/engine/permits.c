/* Permits that a request holds, under one rule or several. */
#include "engine/permits.h"

/* ---- Of a request under evaluation ---- */

void weir__permits_add(weir_permits *permits, const weir_lease *lease)
{
    int64_t lease_ns = lease->for_us * 1000;
    permits->lease_ns = permits->count && permits->lease_ns < lease_ns ? permits->lease_ns : lease_ns;
    permits->lease[permits->count++] = *lease;
}

int weir__eval_hold(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, weir_decision *decision)
{
    const weir_limit *limit = &eval->quota->limit;
    weir_segment *segment = ctx->engine->segment;
    weir_permits *permits = ctx->permits;
    if (segment->mapped.read_only)
        return WEIR_EREADONLY;
    if (!permits || permits->count + ctx->remote_permits >= WEIR_PERMITS_MAX)
        return WEIR_ETOOMANY;
    weir_lease lease;
    int error = weir__acquire_on(ctx->cpu, segment, limit, eval->key, eval->key_len, ctx->now, &lease, decision);
    if (error || !weir_passes(decision))
        return error;
    weir__permits_add(permits, &lease);
    eval->permit_number = (uint8_t)permits->count;
    return 0;
}

int weir__eval_let_go(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, weir_decision *decision)
{
    weir_segment *segment = ctx->engine->segment;
    int error = weir_release(segment, &ctx->permits->lease[eval->permit_number - 1], ctx->now);
    if (error && error != WEIR_ELEASE)
        return error;
    error = weir_peek(segment, &eval->quota->limit, eval->key, eval->key_len, 0, ctx->now, decision);
    ctx->permits->lease[eval->permit_number - 1] = (weir_lease){0}; /* releases nothing */
    eval->permit_number = 0;
    return error;
}

/* ---- Of an allowed request ---- */

/*
 * Releases (WEIR__OP_REFUND) or renews (WEIR__OP_RENEW) all permits; `async` has the replies for those in the store.
 * Inlined for each kind. Afterwards `permits` has those that were renewed. Returns an error, or the number of permits
 * that were released.
 */
__attribute__((always_inline)) static inline int run(weir *engine, weir_permits *permits, enum weir__store_op_kind kind,
                                                     bool in_flight, weir_async *async)
{
    int failed = 0, released = 0;
    bool renew = kind == WEIR__OP_RENEW;
    uint32_t count = 0;
    if (!permits->count)
        return 0;
    weir_time now = weir__clock_fast(engine->segment);
    for (uint32_t i = 0; i < permits->count; i++) {
        weir_lease *lease = &permits->lease[i];
        bool remote = weir__is_remote_permit(lease);
        int error = remote  ? weir__remote_permit_reply(permits, lease, kind, in_flight, async)
                    : renew ? weir_renew(engine->segment, lease, now)
                            : weir_release(engine->segment, lease, now);
        released += error == 0 && !renew;
        if (error == WEIR_ELEASE && !(renew && remote && in_flight))
            continue;
        failed = error ? error : failed;
        if (renew)
            permits->lease[count++] = *lease;
    }
    permits->count = count;
    return failed ? failed : released;
}

static bool is_good(const weir *engine, const weir_permits *permits)
{
    return engine && permits && permits->count <= WEIR_PERMITS_MAX;
}

/* Sends the ops of permits in the store, if the engine has connections, and waits. */
__attribute__((always_inline)) static inline int run_waiting(weir *engine, weir_permits *permits,
                                                             enum weir__store_op_kind kind)
{
    int unused;
    struct weir__pooled_connection *pooled = NULL;
    if (!is_good(engine, permits))
        return WEIR_EINVAL;
    if (permits->count && permits->names_len && weir__load64(&engine->connection_pool))
        pooled = weir__connection_pool_acquire(engine, &unused);
    if (pooled && weir__remote_permit_ops(permits, kind, 1, pooled->async) == 1)
        weir__connection_pool_request(pooled);
    int result = run(engine, permits, kind, true, pooled ? pooled->async : NULL);
    weir__connection_pool_release(pooled);
    return result;
}

int weir_permits_release(weir *engine, weir_permits *permits)
{
    return run_waiting(engine, permits, WEIR__OP_REFUND);
}

int weir_permits_renew(weir *engine, weir_permits *permits)
{
    return run_waiting(engine, permits, WEIR__OP_RENEW);
}

/* ---- For callers that send the requests to the store themselves ---- */

static int begin(const weir *engine, const weir_permits *permits, enum weir__store_op_kind kind, int64_t cost,
                 weir_async *async)
{
    if (!is_good(engine, permits) || !async || async->engine != engine)
        return WEIR_EINVAL;
    return weir__remote_permit_ops(permits, kind, cost, async);
}

int weir_permits_release_begin(weir *engine, const weir_permits *permits, weir_async *async)
{
    return begin(engine, permits, WEIR__OP_REFUND, 1, async);
}

int weir_permits_release_finish(weir *engine, weir_permits *permits, weir_async *async)
{
    if (!async)
        return weir_permits_release(engine, permits);
    return is_good(engine, permits) ? run(engine, permits, WEIR__OP_REFUND, true, async) : WEIR_EINVAL;
}

int weir_permits_renew_begin(weir *engine, const weir_permits *permits, bool in_flight, weir_async *async)
{
    return begin(engine, permits, WEIR__OP_RENEW, in_flight, async);
}

int weir_permits_renew_finish(weir *engine, weir_permits *permits, bool in_flight, weir_async *async)
{
    if (!async)
        return weir_permits_renew(engine, permits);
    return is_good(engine, permits) ? run(engine, permits, WEIR__OP_RENEW, in_flight, async) : WEIR_EINVAL;
}

/* Adds them as takes that were not kept: weir_async_rollback refunds them. */
int weir_permits_release_detached(weir *engine, weir_permits *permits, weir_async *async)
{
    int error = begin(engine, permits, WEIR__OP_TAKE, 1, async);
    if (error == WEIR_EINVAL)
        return error;
    uint32_t near = 0;
    for (uint32_t i = 0; i < permits->count; i++)
        if (!weir__is_remote_permit(&permits->lease[i]))
            permits->lease[near++] = permits->lease[i];
    permits->count = near;
    int released = run(engine, permits, WEIR__OP_REFUND, true, NULL); /* also if there is no memory for the ops */
    return error < 0 ? error : released;
}
