/* Slots that a request holds, under one rule or several. */
#include "engine/permits.h"

#include "engine/permit_calls.h"
#include "engine/connection_pool.h"

/* ---- Of a request under decision ---- */

void weir__held_add(weir_permits *held, const weir_lease *lease)
{
    int64_t lease_ns = lease->for_us * 1000;
    held->lease_ns = held->count && held->lease_ns < lease_ns ? held->lease_ns : lease_ns;
    held->lease[held->count++] = *lease;
}

int weir__eval_hold(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, weir_decision *decision)
{
    const weir_limit *limit = &eval->quota->limit;
    weir_segment *segment = ctx->engine->segment;
    weir_permits *held = ctx->held;
    if (segment->read_only)
        return WEIR_EREADONLY;
    if (!held || held->count + ctx->remote_permits >= WEIR_PERMITS_MAX)
        return WEIR_ETOOMANY;
    weir_lease lease;
    int error = weir__acquire_on(ctx->cpu, segment, limit, eval->key, eval->key_len, ctx->now, &lease, decision);
    if (error || !weir_passes(decision))
        return error;
    weir__held_add(held, &lease);
    eval->held = (uint8_t)held->count;
    return 0;
}

int weir__eval_let_go(const struct weir__request_ctx *ctx, struct weir__rule_eval *eval, weir_decision *decision)
{
    weir_segment *segment = ctx->engine->segment;
    int error = weir_release(segment, &ctx->held->lease[eval->held - 1], ctx->now);
    if (error && error != WEIR_ELEASE)
        return error;
    error = weir_peek(segment, &eval->quota->limit, eval->key, eval->key_len, 0, ctx->now, decision);
    ctx->held->lease[eval->held - 1] = (weir_lease){0}; /* gives back nothing */
    eval->held = 0;
    return error;
}

/* ---- Of one that was decided ---- */

/* What the store said of its part is in `ask`. */
static int release(weir *engine, weir_permits *held, weir_async *ask)
{
    int failed = 0, released = 0;
    if (!held->count)
        return 0;
    weir_time now = weir__clock_fast(engine->segment);
    for (uint32_t i = 0; i < held->count; i++) {
        const weir_lease *lease = &held->lease[i];
        int error = weir__is_remote_permit(lease) ? weir__remote_permit_reply(held, lease, WEIR__OP_REFUND, 1, ask)
                                                  : weir_release(engine->segment, lease, now);
        failed = error && error != WEIR_ELEASE ? error : failed;
        released += error == 0;
    }
    held->count = 0;
    return failed ? failed : released;
}

static int renew(weir *engine, weir_permits *held, bool in_flight, weir_async *ask)
{
    int failed = 0;
    uint32_t kept = 0;
    weir_time now = weir__clock_fast(engine->segment);
    for (uint32_t i = 0; i < held->count; i++) {
        weir_lease *lease = &held->lease[i];
        bool remote = weir__is_remote_permit(lease);
        int error = remote ? weir__remote_permit_reply(held, lease, WEIR__OP_RENEW, in_flight, ask)
                           : weir_renew(engine->segment, lease, now);
        if (error == WEIR_ELEASE && !(remote && in_flight))
            continue;
        failed = error ? error : failed;
        held->lease[kept++] = *lease;
    }
    held->count = kept;
    return failed;
}

static bool is_good(const weir *engine, const weir_permits *held)
{
    return engine && held && held->count <= WEIR_PERMITS_MAX;
}

/* Asks the store for its part, and waits; to be handed back. NULL: it has none, or the engine has no way to it. */
static struct weir__pooled_connection *ask_store(weir *engine, const weir_permits *held, enum weir__store_op_kind kind)
{
    int unused;
    if (!held->count || !held->names_len || !weir__load64(&engine->connection_pool))
        return NULL;
    struct weir__pooled_connection *pooled = weir__connection_pool_acquire(engine, &unused);
    if (pooled && weir__remote_permit_ops(held, kind, 1, pooled->ask) == 1)
        weir__connection_pool_request(pooled);
    return pooled;
}

int weir_permits_release(weir *engine, weir_permits *held)
{
    if (!is_good(engine, held))
        return WEIR_EINVAL;
    struct weir__pooled_connection *pooled = ask_store(engine, held, WEIR__OP_REFUND);
    int released = release(engine, held, pooled ? pooled->ask : NULL);
    if (pooled)
        weir__connection_pool_release(pooled);
    return released;
}

int weir_permits_renew(weir *engine, weir_permits *held)
{
    if (!is_good(engine, held))
        return WEIR_EINVAL;
    struct weir__pooled_connection *pooled = ask_store(engine, held, WEIR__OP_RENEW);
    int error = renew(engine, held, true, pooled ? pooled->ask : NULL);
    if (pooled)
        weir__connection_pool_release(pooled);
    return error;
}

/* ---- For who asks the store itself ---- */

static int prepare(const weir *engine, const weir_permits *held, enum weir__store_op_kind kind, int64_t cost,
                   weir_async *ask)
{
    if (!is_good(engine, held) || !ask || ask->engine != engine)
        return WEIR_EINVAL;
    return weir__remote_permit_ops(held, kind, cost, ask);
}

int weir_permits_release_begin(weir *engine, const weir_permits *held, weir_async *ask)
{
    return prepare(engine, held, WEIR__OP_REFUND, 1, ask);
}

int weir_permits_release_finish(weir *engine, weir_permits *held, weir_async *ask)
{
    return is_good(engine, held) && ask ? release(engine, held, ask) : WEIR_EINVAL;
}

int weir_permits_renew_begin(weir *engine, const weir_permits *held, bool in_flight, weir_async *ask)
{
    return prepare(engine, held, WEIR__OP_RENEW, in_flight, ask);
}

int weir_permits_renew_finish(weir *engine, weir_permits *held, bool in_flight, weir_async *ask)
{
    return is_good(engine, held) && ask ? renew(engine, held, in_flight, ask) : WEIR_EINVAL;
}

/* As takes that nobody kept: weir_async_rollback finds them. */
int weir_permits_release_detached(weir *engine, weir_permits *held, weir_async *ask)
{
    int error = prepare(engine, held, WEIR__OP_TAKE, 1, ask);
    if (error == WEIR_EINVAL)
        return error;
    uint32_t near = 0;
    for (uint32_t i = 0; i < held->count; i++)
        if (!weir__is_remote_permit(&held->lease[i]))
            held->lease[near++] = held->lease[i];
    held->count = near;
    int released = release(engine, held, NULL); /* also where there is no memory for those in the store */
    return error < 0 ? error : released;
}
