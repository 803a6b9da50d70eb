/*
 * Store reset: a failover to a replica that lacks acknowledged batches, or FLUSHALL.
 *
 * The server keeps the number of each sender's last batch; number and counters are replicated together. Its reply to a
 * batch has the number of the sender's batches that it lacks; the agent re-sends their deltas. Each host does so with
 * its own, so a counter that the server does not know must not be restored from one host's level, which includes all
 * hosts' deltas (op.own_delta). If the server does not know the sender, or the batches are no longer remembered, every
 * counter is re-seeded once: the store keeps the minimum of its own and the host's level.
 */
#include "sync/sync_internal.h"

/* Consecutive batches before a gap counts as a reset: two hosts with one sender name never have so many. */
#define IN_STEP_MIN 8
#define IN_STEP_MAX (3 * IN_STEP_MIN) /* cost of a reset is IN_STEP_MIN, so that up to three in a row are handled */

void weir__sync_remember(struct weir__sync *sync, const struct weir__ledger_in_flight *note)
{
    if (!note->amount)
        return;
    struct weir__acknowledged *place = &sync->acked[sync->acked_count++ % WEIR__SYNC_ACKED_MAX];
    if (place->batch > sync->evicted_batch)
        sync->evicted_batch = place->batch;
    *place = (struct weir__acknowledged){note->identity, note->amount, note->window_end_us,
                                         weir__load64(&sync->ledger->header->batch)};
}

void weir__sync_reseed(struct weir__sync *sync, uint64_t index)
{
    if (index < sync->ledger->entries)
        sync->tracked[index].epoch = sync->reseed_epoch - 1;
}

/* Records the deltas of the batches after `known`, except the current one, in the ledger again. */
static void resend_deltas(struct weir__sync *sync, uint64_t known)
{
    uint64_t kept = sync->acked_count < WEIR__SYNC_ACKED_MAX ? sync->acked_count : WEIR__SYNC_ACKED_MAX;
    int64_t now_us = sync->with.now(sync->segment).wall_ns / 1000;
    for (uint64_t back = 1; back <= kept; back++) {
        struct weir__acknowledged *acked = &sync->acked[(sync->acked_count - back) % WEIR__SYNC_ACKED_MAX];
        if (acked->batch <= known)
            return;
        bool over = acked->window_end_us && acked->window_end_us <= now_us;
        if (!over && !weir__ledger_add(sync->ledger, acked->identity, acked->amount))
            weir__count(&sync->ledger->header->dropped, (uint64_t)(acked->amount > 0 ? acked->amount : 0));
        acked->amount = 0; /* remembered again when it is acknowledged */
    }
}

/* As the first command of the batch reports it: only that one checks the previous number. */
static int64_t missed_by(const struct weir__store_op *ops, uint64_t count)
{
    for (uint64_t i = 0; i < count && i < WEIR__BATCH_GROUPS; i++)
        if ((ops[i].kind == WEIR__OP_EXCHANGE || ops[i].kind == WEIR__OP_LEASE) && ops[i].missed > 0)
            return ops[i].missed;
    return 0;
}

void weir__sync_detect_reset(struct weir__sync *sync, uint64_t count)
{
    int64_t missed = missed_by(sync->ops, count);
    uint64_t before = sync->ledger->header->batch - 1;
    sync->store_reset = missed > 0 && before > 0; /* the first batch of a new sender is no reset */
    if (!sync->store_reset) {
        sync->in_step += sync->in_step < IN_STEP_MAX;
        return;
    }
    bool known = missed < WEIR__MISSED_ALL && (uint64_t)missed <= before && sync->in_step >= IN_STEP_MIN;
    sync->epoch++;
    if (known)
        resend_deltas(sync, before - (uint64_t)missed);
    if (!known || before - (uint64_t)missed < sync->evicted_batch) {
        sync->reseed_epoch = sync->epoch;
        weir__sync_schedule_all(sync);
    }
    sync->in_step = known ? sync->in_step - IN_STEP_MIN : 0;
}
