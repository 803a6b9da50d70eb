/*
 * Leases of units, in rounds of the agent: which entries of leased rules need an exchange, their ops, and the replies.
 * docs/internals/leases.md has the protocol and why it is exact.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "engine/segment.h"
#include "sync/sync_internal.h"
#include "table/leased.h"

#include <stdlib.h>
#include <unistd.h>

#define SCALE        256            /* of weir__sync_entry.demand */
#define AHEAD_S      4              /* seconds of demand that a refill aims at; lua/leases.lua has the same */
#define DEMAND_MIN   1              /* units a second: less is not leased */
#define REPORT_MS    2000           /* between two reports of a lease that needs no refill */
#define IDLE_MS      5000           /* without demand, after which all is returned */
#define EMPTY_MAX    3              /* 2^3 intervals between requests for units of an exhausted counter */
#define PLACES       UINT64_C(4096) /* sequence numbers of a batch */
#define DRIFT        1024           /* the host's clock is at most 1/1024 slower than the server's */
#define CHECK_ROUNDS 10             /* until the next look at a lease without demand */

_Static_assert(PLACES >= WEIR__LEDGER_BATCH_MAX, "each op of a batch has a sequence number of its own");

static struct weir__op operation(const struct weir__sync *sync)
{
    return weir__operation(sync->segment, weir__stats_shard_here(sync->segment), sync->now);
}

bool weir__sync_is_leased(const struct weir__sync *sync, const struct weir__sync_counter *counter)
{
    return counter->rule && sync->ruleset->consistency[counter->rule->index] == WEIR__LEASED;
}

/* Stays the same when the agent is replaced. Containers of one machine have the same boot, but other names. */
uint64_t weir__sync_machine(void)
{
    struct {
        uint64_t boot[2];
        char name[256];
    } machine;
    memset(&machine, 0, sizeof machine);
    weir__boot_id(machine.boot);
    (void)!gethostname(machine.name, sizeof machine.name - 1);
    return XXH3_64bits(&machine, sizeof machine);
}

/*
 * 52 bits of the ledger's name, mixed with the machine, since a ledger may have been copied; they differ by tier: each
 * tier has its own entry, but one counter in the store.
 */
static uint64_t host_of(const struct weir__sync *sync, uint64_t tier)
{
    char digits[14] = {0};
    memcpy(digits, sync->ledger->header->sender, sizeof digits - 1);
    uint64_t host = (strtoull(digits, NULL, 16) ^ tier ^ sync->machine) & ((UINT64_C(1) << 52) - 1);
    return host ? host : 1;
}

/* False: the rule has another algorithm now, and thus another counter, with an entry of its own. */
static bool is_current(const struct weir__ledger_entry *entry, const struct weir__sync_counter *counter)
{
    return entry->identity == (counter->leased ? counter->leased : 1); /* 0 is free */
}

/* ---- Demand ---- */

/* Units a second, with exponential decay. */
static void update_demand(struct weir__sync_entry *f, int64_t amount, uint32_t now_ms)
{
    uint64_t passed = f->looked_ms ? now_ms - f->looked_ms : 0;
    int64_t fresh = amount - f->counted;
    uint64_t demand = ((uint64_t)f->demand + (fresh > 0 ? (uint64_t)fresh * SCALE : 0)) * 1000 / (1000 + passed);
    f->demand = demand < UINT32_MAX ? (uint32_t)demand : UINT32_MAX;
    f->counted = amount;
    f->looked_ms = now_ms ? now_ms : 1; /* 0: never */
    if (fresh > 0)
        f->used_ms = now_ms;
}

/* What an exchange is to do. */
struct terms {
    bool needed;
    int64_t leave; /* units that stay in the slot at most */
    int64_t want;
};

static struct terms terms_of(const struct weir__sync *sync, const struct weir__sync_entry *f, int64_t unspent,
                             uint32_t now_ms)
{
    bool wanted = f->demand >= DEMAND_MIN * SCALE;
    int64_t goal = (AHEAD_S * (int64_t)f->demand + SCALE - 1) / SCALE;
    uint32_t age_ms = now_ms - f->leased_ms;
    uint64_t interval_ms = sync->with.interval_ms ? sync->with.interval_ms : 1;
    struct terms terms = {.leave = INT64_MAX};
    goal = goal < WEIR__LEASED_MAX ? goal : WEIR__LEASED_MAX;
    if (sync->returning || now_ms - f->used_ms >= IDLE_MS) {
        terms = (struct terms){.needed = unspent > 0, .leave = 0};
    } else if (unspent > 0 && f->rules != (uint32_t)sync->reloads) {
        terms = (struct terms){.needed = true, .leave = 0, .want = goal};
    } else if (unspent > 2 * goal + 1 && age_ms >= REPORT_MS) {
        terms = (struct terms){.needed = true, .leave = goal};
    } else if (wanted && unspent * SCALE <= f->demand) {
        terms.needed = age_ms >= interval_ms << f->empty || !f->empty;
        terms.want = goal > unspent ? goal - unspent : 0;
    } else if (unspent > 0 && age_ms >= REPORT_MS) {
        terms.needed = true;
        terms.want = wanted && goal > unspent ? goal - unspent : 0;
    }
    return terms;
}

/* ---- Building ops ---- */

static void fill(const struct weir__sync *sync, uint64_t place, const struct weir__ledger_entry *entry, uint64_t batch,
                 int64_t want, int64_t unspent)
{
    struct weir__store_op *op = &sync->ops[place];
    const struct weir__ledger_in_flight *note = &sync->ledger->note[place];
    const struct weir__sync_counter *counter = &sync->targets[place];
    weir__sync_fill_op(sync, counter, &entry->text, op);
    op->kind = WEIR__OP_LEASE;
    op->cost = want;
    op->units = (struct weir__units_lease){.sequence = batch * PLACES + place,
                                           .previous = entry->batch,
                                           .host = host_of(sync, entry->text.tier),
                                           .unspent = unspent,
                                           .returned = note->window_end_us};
}

/* Reads the slot, and stamps it. Without a known predecessor nothing in it can be trusted: it is emptied. */
static bool report(const struct weir__sync *sync, const struct weir__sync_counter *counter,
                   const struct weir__ledger_entry *entry, int64_t leave, int64_t *given, struct weir__leased *leased)
{
    struct weir__op op = operation(sync);
    struct weir__key_location where;
    weir__leased_locate(&op, counter->leased, &where);
    if (weir__leased_report(&op, &where, entry->batch ? leave : 0, given, leased) != 0)
        return false;
    *given = entry->batch ? *given : 0;
    return true;
}

static void count_spent(const struct weir__sync *sync, struct weir__sync_entry *f, const struct weir__leased *leased,
                        int64_t given)
{
    int64_t gone = f->units - leased->units - given;
    if (gone > 0)
        weir__count(leased->end_us ? &sync->ledger->header->lease_spent : &sync->ledger->header->lease_expired,
                    (uint64_t)gone);
    f->units = (uint32_t)leased->units;
}

bool weir__sync_fill_lease(struct weir__sync *sync, uint64_t index, const struct weir__ledger_entry *entry,
                           const struct weir__sync_counter *counter, uint64_t place)
{
    struct weir__sync_entry *f = &sync->tracked[index];
    uint32_t now_ms = (uint32_t)(sync->now.mono_ns / 1000000);
    struct weir__op op = operation(sync);
    struct weir__key_location where;
    struct weir__leased leased;
    int64_t given;
    f->idle = false;
    if (!is_current(entry, counter)) {
        weir__ledger_discard(sync->ledger, index, entry->identity, entry->amount);
        weir__sync_unschedule(sync, index);
        return false;
    }
    weir__leased_locate(&op, counter->leased, &where);
    if (weir__leased_read(&op, &where, &leased) != 0)
        return false;
    update_demand(f, entry->amount, now_ms);
    count_spent(sync, f, &leased, 0);
    struct terms terms = terms_of(sync, f, leased.units, now_ms);
    if (!terms.needed && !leased.units && now_ms - f->used_ms >= IDLE_MS) {
        weir__ledger_discard(sync->ledger, index, entry->identity, entry->amount);
        f->counted = 0;
        weir__sync_unschedule(sync, index);
        return false;
    }
    if (!terms.needed || !report(sync, counter, entry, terms.leave, &given, &leased)) {
        weir__sync_schedule(sync, index, leased.units ? CHECK_ROUNDS : 2 * CHECK_ROUNDS);
        return false;
    }
    count_spent(sync, f, &leased, given);
    f->orphan = 0;
    f->rules = (uint32_t)sync->reloads;
    sync->targets[place] = *counter;
    sync->ledger->note[place] = (struct weir__ledger_in_flight){
        .identity = entry->identity, .amount = entry->amount, .window_end_us = given, .index = index};
    fill(sync, place, entry, sync->ledger->header->batch + 1, terms.want, leased.units);
    return weir__ledger_begin_batch(sync->ledger, index, entry->identity, sync->ledger->header->batch + 1);
}

bool weir__sync_fill_lease_again(struct weir__sync *sync, uint64_t place, const struct weir__ledger_entry *entry)
{
    struct weir__leased leased;
    int64_t given;
    if (!is_current(entry, &sync->targets[place]) ||
        !report(sync, &sync->targets[place], entry, INT64_MAX, &given, &leased))
        return false;
    fill(sync, place, entry, sync->ledger->header->batch, 0, leased.units);
    return true;
}

/* ---- Applying replies ---- */

void weir__sync_apply_lease(struct weir__sync *sync, uint64_t place)
{
    struct weir__ledger_header *header = sync->ledger->header;
    const struct weir__ledger_in_flight *note = &sync->ledger->note[place];
    const struct weir__store_op *op = &sync->ops[place];
    struct weir__sync_entry *f = &sync->tracked[note->index];
    f->leased_ms = (uint32_t)(sync->now.mono_ns / 1000000);
    weir__sync_schedule(sync, note->index, CHECK_ROUNDS);
    struct weir__op table = operation(sync);
    struct weir__key_location where;
    struct weir__leased leased = {0};
    int64_t dropped;
    weir__leased_locate(&table, sync->targets[place].leased, &where);
    /* Before the acknowledgement: after it the store would take these units for those on record. */
    if (!op->error && !op->units.known && weir__leased_report(&table, &where, 0, &dropped, &leased) != 0)
        return;
    if (op->error || !weir__ledger_ack(sync->ledger, note->index, note->identity, note->amount, header->batch))
        return; /* units that were returned are lost with an error, and so is a grant that was put before */
    f->counted -= note->amount;
    f->empty = (uint8_t)(op->cost && !op->units.granted ? f->empty + (f->empty < EMPTY_MAX) : 0);
    const struct weir__leased grant = {
        .units = op->units.granted,
        .pool = op->decision.remaining,
        .end_us = sync->sent_us + op->units.life_us - op->units.life_us / DRIFT,
    };
    int error = weir__leased_put(&table, &where, &grant, op->units.known, &leased);
    leased = error ? (struct weir__leased){0} : leased;
    /* What is missing was spent meanwhile, or is lost: the host's other units are on no record, or the lease is over.
     */
    int64_t missing = f->units + op->units.granted - leased.units;
    bool kept = leased.end_us && op->units.known;
    if (missing > 0)
        weir__count(kept ? &header->lease_spent : &header->lease_expired, (uint64_t)missing);
    weir__count(&header->lease_granted, (uint64_t)op->units.granted);
    weir__count(op->units.known ? &header->lease_returned : &header->lease_expired, (uint64_t)op->units.returned);
    f->units = (uint32_t)leased.units;
}

int weir__sync_return_leases(struct weir__sync *sync)
{
    sync->returning = true;
    weir__sync_schedule_all(sync);
    int error = weir__sync_round(sync);
    sync->returning = false;
    return error;
}
