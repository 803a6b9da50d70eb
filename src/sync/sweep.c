/* The sweep through the ledger: entries that nobody uses any more, and amounts that nobody knows. */
#include "sync/sync_internal.h"

#define SWEEP_MS     10000 /* in which it goes round once */
#define ORPHAN_TIMES 6     /* sweeps after which an amount that nobody knows is given up */

/* An amount whose counter is not known: the rule is gone, or the text. It may come back; not for ever. */
static void wait_for_owner(struct weir__sync *sync, uint64_t index)
{
    struct weir__ledger_entry entry;
    struct weir__sync_counter counter;
    struct weir__sync_entry *f = &sync->tracked[index];
    weir__ledger_read(sync->ledger, index, &entry);
    if (weir__sync_find_counter(sync, &entry, &counter)) {
        weir__sync_schedule(sync, index, 1);
        return;
    }
    if (++f->orphan < ORPHAN_TIMES)
        return;
    weir__ledger_discard(sync->ledger, index, entry.identity, entry.amount);
    weir__count(&sync->ledger->header->dropped, (uint64_t)(entry.amount > 0 ? entry.amount : 0));
    f->orphan = 0;
}

void weir__sync_sweep(struct weir__sync *sync, unsigned slices)
{
    uint64_t entries = sync->ledger->entries, rounds = SWEEP_MS / (sync->with.interval_ms ? sync->with.interval_ms : 1);
    uint64_t count = entries * slices / ((rounds ? rounds : 1) * sync->slices) + 1;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t index = sync->swept;
        struct weir__ledger_cell held = weir__ledger_read_cell(sync->ledger, index);
        sync->filled += held.identity != 0;
        bool tracked = sync->scheduled[index / 64] >> index % 64 & 1;
        if (held.identity && !tracked && held.amount) {
            wait_for_owner(sync, index);
        } else if (held.identity && !tracked) {
            if (sync->tracked[index].idle && weir__ledger_free(sync->ledger, index, held.identity))
                sync->tracked[index].failed_ms = 0;
            sync->tracked[index].idle = !sync->tracked[index].idle;
        }
        sync->swept = index + 1 < entries ? index + 1 : 0;
        if (!sync->swept) {
            weir__store64(&sync->ledger->header->filled, sync->filled);
            sync->filled = 0;
        }
    }
}
