/*
 * A store that was set back: another server took its place and never got what the one before had acknowledged, or
 * somebody emptied it.
 *
 * The server remembers the number of a sender's last batch beside the counters, and both are replicated together. So
 * it can tell how many of our batches it does not know of, and what they told is told again. So do the others with
 * theirs: a counter that the server has never heard of is not brought back as this host knows it, with all of them in
 * it. If it does not know us at all, or the batches are further back than we remember, every counter is in doubt once:
 * the store then has no more left than this host knows of.
 */
#include "sync/sync_internal.h"

#include <stdlib.h>

#define IN_STEP_MIN 8                 /* batches that followed each other; if two hosts have one name, they never do */
#define IN_STEP_MAX (3 * IN_STEP_MIN) /* one failover may follow the other: each costs as many */

bool weir__sync_memory(struct weir__sync *sync)
{
    sync->told = calloc(WEIR__TOLD, sizeof *sync->told);
    sync->forgotten = sync->ledger->header->batch;
    return sync->told != NULL;
}

void weir__sync_remember(struct weir__sync *sync, const struct weir__ledger_in_flight *note)
{
    if (!note->amount)
        return;
    struct weir__acknowledged *place = &sync->told[sync->told_count++ % WEIR__TOLD];
    if (place->batch > sync->forgotten)
        sync->forgotten = place->batch;
    *place = (struct weir__acknowledged){note->identity, note->amount, note->window_end_us,
                                         weir__load64(&sync->ledger->header->batch)};
}

void weir__sync_doubt(struct weir__sync *sync, uint64_t index)
{
    if (index < sync->ledger->entries)
        sync->followed[index].age = sync->doubted - 1;
}

/* Everything that was told after batch `known` and before the present one goes to the ledger again. */
static void tell_again(struct weir__sync *sync, uint64_t known)
{
    uint64_t kept = sync->told_count < WEIR__TOLD ? sync->told_count : WEIR__TOLD;
    int64_t now_us = sync->with.now(sync->segment).wall_ns / 1000;
    for (uint64_t back = 1; back <= kept; back++) {
        struct weir__acknowledged *told = &sync->told[(sync->told_count - back) % WEIR__TOLD];
        if (told->batch <= known)
            return;
        bool over = told->window_end_us && told->window_end_us <= now_us;
        if (!over && !weir__ledger_add(sync->ledger, told->identity, told->amount))
            weir__count(&sync->ledger->header->dropped, (uint64_t)(told->amount > 0 ? told->amount : 0));
        told->amount = 0; /* it is remembered anew when it is told */
    }
}

/* What the first command of the batch was told; the others have no batch before them for sure. */
static int64_t missed_by(const struct weir__ask *asks, uint64_t count)
{
    for (uint64_t i = 0; i < count && i < WEIR__BATCH_GROUPS; i++)
        if (asks[i].how == WEIR__ASK_EXCHANGE && asks[i].missed > 0)
            return asks[i].missed;
    return 0;
}

void weir__sync_compare(struct weir__sync *sync, uint64_t count)
{
    int64_t missed = missed_by(sync->asks, count);
    uint64_t before = sync->ledger->header->batch - 1;
    sync->set_back = missed > 0 && before > 0; /* whom nobody has heard of yet, nobody has forgotten */
    if (!sync->set_back) {
        sync->in_step += sync->in_step < IN_STEP_MAX;
        return;
    }
    bool known = missed < WEIR__MISSED_ALL && (uint64_t)missed <= before && sync->in_step >= IN_STEP_MIN;
    sync->age++;
    if (known)
        tell_again(sync, before - (uint64_t)missed);
    if (!known || before - (uint64_t)missed < sync->forgotten) {
        sync->doubted = sync->age;
        weir__sync_follow_all(sync);
    }
    sync->in_step = known ? sync->in_step - IN_STEP_MIN : 0;
}
