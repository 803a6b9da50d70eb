/* One counter of an exchange: builds its op from the ledger's entry, and applies the reply to the host's counter. */
#include "base/clock.h"
#include "sync/sync_internal.h"
#include "algo/algo.h"
#include "engine/segment.h"
#include "engine/evaluation.h"

#include <stdlib.h>

#define LITTLE 1024 /* a fraction of a bucket that is negligible */

/* ---- Rules ---- */

static int by_id(const void *a, const void *b)
{
    uint64_t left = (*(const struct weir__rule *const *)a)->id, right = (*(const struct weir__rule *const *)b)->id;
    return left < right ? -1 : left > right;
}

static bool index_rules(struct weir__sync *sync)
{
    const weir_rules *rules = sync->ruleset->rules;
    const struct weir__rule **list = malloc((rules->count + 1) * sizeof(const struct weir__rule *));
    if (!list)
        return false;
    size_t count = 0;
    for (size_t i = 0; i < rules->count; i++)
        if (weir__demand_ledger_of(sync->ruleset, rules->rules[i]))
            list[count++] = rules->rules[i];
    qsort(list, count, sizeof(const struct weir__rule *), by_id);
    free(sync->by_id);
    sync->by_id = list;
    sync->by_id_count = count;
    return true;
}

bool weir__sync_acquire_rules(struct weir__sync *sync, int *at)
{
    weir *engine = sync->with.engine;
    weir__watch(engine);
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, at);
    uint64_t reloads = weir__load64(&engine->reloads);
    bool same = sync->by_id && ruleset == sync->ruleset && reloads == sync->reloads;
    sync->ruleset = ruleset;
    sync->reloads = reloads;
    if (same || index_rules(sync))
        return true;
    sync->reloads = UINT64_MAX; /* try again */
    weir__hazard_release(&engine->hazards, *at);
    return false;
}

static const struct weir__rule *rule_of(const struct weir__sync *sync, uint64_t id)
{
    struct weir__rule wanted, *key = &wanted;
    wanted.id = id; /* all that by_id reads */
    const struct weir__rule **found = bsearch(&key, sync->by_id, sync->by_id_count, sizeof(struct weir__rule *), by_id);
    return found ? *found : NULL;
}

/* The quota of the tier, or the first limited one: a changed rule keeps its counters. */
static const struct weir__quota *quota_of(const struct weir__rule *rule, uint64_t tier)
{
    const struct weir__quota *first = NULL;
    for (size_t i = 0; i < rule->quota_count; i++) {
        const struct weir__quota *quota = &rule->quotas[i];
        if (quota->kind != WEIR__LIMITED)
            continue;
        if (weir__delta_ledger_tier(quota) == tier)
            return quota;
        first = first ? first : quota;
    }
    return first;
}

bool weir__sync_find_counter(const struct weir__sync *sync, const struct weir__ledger_entry *entry,
                             struct weir__sync_counter *counter)
{
    const struct weir__ledger_text *text = &entry->text;
    counter->rule = entry->identity && entry->ready ? rule_of(sync, text->rule) : NULL;
    counter->quota = counter->rule ? quota_of(counter->rule, text->tier) : NULL;
    if (!counter->quota) {
        counter->rule = NULL;
        return false;
    }
    counter->hash = text->cut ? entry->identity ^ text->tier
                              : weir__counter_hash(sync->segment, &counter->quota->limit, text->key, text->key_len);
    counter->leased = counter->hash ^ text->tier;
    return true;
}

/* ---- Building ops ---- */

/* Reads the host's counter. Returns the limit in effect (`scaled` is for a scaled one); NULL: unknown rule, or an
 * error.
 */
static const weir_limit *peek(const struct weir__sync *sync, const struct weir__sync_counter *counter,
                              struct weir__quota *scaled, weir_decision *here)
{
    if (!counter->rule)
        return NULL;
    const weir_limit *limit =
        &weir__quota_effective(sync->with.engine, counter->rule, counter->quota, sync->now, scaled)->limit;
    return weir__counter_move(sync->segment, limit, counter->hash, 0, sync->now, here) == 0 ? limit : NULL;
}

/* End of the current fixed window, by the wall clock; 0: none, or another algorithm. */
static int64_t window_end(const struct weir__sync *sync, const weir_limit *limit, const weir_decision *here)
{
    int64_t start, end, now_us = sync->now.wall_ns / 1000;
    if (limit->algorithm != WEIR_FIXED_WINDOW)
        return 0;
    if (!weir__on_wall(limit))
        return here->reset_after_ns > 0 ? now_us + here->reset_after_ns / 1000 : 0;
    if (limit->align == WEIR_ALIGN_CLOCK)
        return now_us - now_us % limit->window_us + limit->window_us;
    weir__calendar_window(limit->zone, (enum weir_calendar)limit->calendar, now_us, &start, &end);
    return end;
}

/* The windows around the current one: the server has no time zones. */
static void set_bounds(const struct weir__sync *sync, const weir_limit *limit, int64_t bounds_us[4])
{
    int64_t unused, now_us = sync->now.wall_ns / 1000;
    enum weir_calendar calendar = (enum weir_calendar)limit->calendar;
    weir__calendar_window(limit->zone, calendar, now_us, &bounds_us[1], &bounds_us[2]);
    weir__calendar_window(limit->zone, calendar, bounds_us[1] - 1, &bounds_us[0], &unused);
    weir__calendar_window(limit->zone, calendar, bounds_us[2], &unused, &bounds_us[3]);
}

static size_t name_of(const struct weir__sync *sync, const struct weir__rule *rule,
                      const struct weir__ledger_text *text, char *to)
{
    weir_text key = {text->key, text->key_len};
    if (!text->cut)
        return weir__store_name(&sync->with.naming, rule->name, rule->shadow, key, to);
    key.len = WEIR__NAME_KEY_CUT;
    return weir__store_name_cut(&sync->with.naming, rule->name, rule->shadow, key, text->key + WEIR__NAME_KEY_CUT, to);
}

void weir__sync_fill_nothing(const struct weir__sync *sync, struct weir__store_op *op)
{
    weir_params one = {.limit = 1, .window_ns = WEIR_SECOND};
    memset(op, 0, sizeof *op);
    op->kind = WEIR__OP_PEEK;
    if (weir_limit_init(&op->limit, &one) == 0)
        op->name_len = (uint16_t)weir__store_name(&sync->with.naming, WEIR__TEXT("\"agent\""), false,
                                                  WEIR__TEXT("looks"), op->name);
}

/* Over how long a time the entry's delta accumulated, if its server or the store was unavailable; else 0. */
static int64_t late_of(const struct weir__sync *sync, const struct weir__sync_entry *f)
{
    int64_t failed_ms = f->failed_ms ? (int32_t)((uint32_t)weir__coarse_ms() - f->failed_ms) : 0;
    return failed_ms > WEIR__SYNC_LATE_MS && failed_ms * 1000 > sync->late_us ? failed_ms * 1000 : sync->late_us;
}

void weir__sync_fill_op(const struct weir__sync *sync, const struct weir__sync_counter *counter,
                        const struct weir__ledger_text *text, struct weir__store_op *op)
{
    memset(op, 0, offsetof(struct weir__store_op, name)); /* the name is written below */
    op->limit = counter->quota->limit;
    if (weir__on_wall(&op->limit) && op->limit.align == WEIR_ALIGN_CALENDAR)
        set_bounds(sync, &op->limit, op->bounds_us);
    op->limit.zone = NULL;
    op->name_len = (uint16_t)name_of(sync, counter->rule, text, op->name);
}

/*
 * Fills op `place` from its entry in flight. `limit`: in effect; `level`: what remains according to the host, without
 * the units taken after the delta in flight.
 */
static void fill(const struct weir__sync *sync, uint64_t place, const struct weir__ledger_text *text,
                 const weir_limit *limit, int64_t level)
{
    const struct weir__ledger_in_flight *note = &sync->ledger->note[place];
    struct weir__store_op *op = &sync->ops[place];
    memset(op, 0, offsetof(struct weir__store_op, name)); /* the name is written below */
    op->limit = *limit;
    op->limit.zone = NULL;
    op->kind = WEIR__OP_EXCHANGE;
    op->cost = note->amount;
    uint32_t epoch = sync->tracked[note->index].epoch;
    op->reseed = (int32_t)(epoch - sync->reseed_epoch) < 0;
    op->own_delta = !op->reseed && epoch != sync->epoch;
    op->level = level;
    if (note->window_end_us)
        op->left_us = note->window_end_us - sync->now.wall_ns / 1000;
    else if (limit->algorithm != WEIR_FIXED_WINDOW)
        op->left_us = late_of(sync, &sync->tracked[note->index]);
    if (weir__on_wall(limit) && limit->align == WEIR_ALIGN_CALENDAR)
        set_bounds(sync, limit, op->bounds_us);
    op->name_len = (uint16_t)name_of(sync, sync->targets[place].rule, text, op->name);
}

/*
 * The delta to send, given the counter's state `here`, which was read before: a take between the two is part of the
 * delta, and the store does not count it twice, from the level and from the next delta. Fixed windows: units of earlier
 * windows limit nothing any more. What exceeds the counter's use belongs to a window that is over, and is dropped.
 * There the delta is not read again after the counter, since it could include units of the next window, which would be
 * lost with this one: a take between the two counts twice if the store does not know the counter yet.
 */
static int64_t delta_of(struct weir__sync *sync, uint64_t index, const struct weir__ledger_entry *entry,
                        const weir_limit *limit, const weir_decision *here)
{
    int64_t used = here->limit - here->remaining;
    if (limit->algorithm != WEIR_FIXED_WINDOW) {
        struct weir__ledger_cell cell = weir__ledger_read_cell(sync->ledger, index);
        return cell.identity == entry->identity ? cell.amount : 0;
    }
    if (entry->amount <= used)
        return entry->amount;
    weir__ledger_discard(sync->ledger, index, entry->identity, entry->amount - used);
    weir__count(&sync->ledger->header->dropped, (uint64_t)(entry->amount - used));
    return used;
}

bool weir__sync_fill(struct weir__sync *sync, uint64_t index, const struct weir__ledger_entry *entry,
                     const struct weir__sync_counter *counter, uint64_t place)
{
    struct weir__quota scaled;
    weir_decision here;
    if (weir__sync_is_leased(sync, counter))
        return weir__sync_fill_lease(sync, index, entry, counter, place);
    const weir_limit *limit = peek(sync, counter, &scaled, &here);
    sync->tracked[index].idle = false;
    if (!limit) {
        weir__sync_unschedule(sync, index); /* the sweep retries */
        return false;
    }
    sync->tracked[index].orphan = 0;
    sync->ledger->note[place] = (struct weir__ledger_in_flight){.identity = entry->identity,
                                                                .amount = delta_of(sync, index, entry, limit, &here),
                                                                .window_end_us = window_end(sync, limit, &here),
                                                                .index = index};
    sync->targets[place] = *counter;
    fill(sync, place, &entry->text, limit, here.remaining);
    return weir__ledger_begin_batch(sync->ledger, index, entry->identity, sync->ledger->header->batch + 1);
}

void weir__sync_fill_again(struct weir__sync *sync, uint64_t place)
{
    const struct weir__ledger_in_flight *note = &sync->ledger->note[place];
    struct weir__sync_counter *counter = &sync->targets[place];
    struct weir__ledger_entry entry = {0};
    struct weir__quota scaled;
    weir_decision here;
    if (note->identity && note->index < sync->ledger->entries) /* the file may have been written by others */
        weir__ledger_read(sync->ledger, note->index, &entry);
    weir__sync_clock(sync);
    const weir_limit *limit = NULL;
    bool found = entry.identity == note->identity && weir__sync_find_counter(sync, &entry, counter);
    if (found && weir__sync_is_leased(sync, counter) && weir__sync_fill_lease_again(sync, place, &entry))
        return;
    if (found && !weir__sync_is_leased(sync, counter))
        limit = peek(sync, counter, &scaled, &here);
    if (!limit) {
        counter->rule = NULL;
        weir__sync_fill_nothing(sync, &sync->ops[place]);
        return;
    }
    /*
     * The delta is read after the counter, as for a new op: a take between the two is sent with the next batch, and
     * must not be subtracted from the level as well.
     */
    struct weir__ledger_cell cell = weir__ledger_read_cell(sync->ledger, note->index);
    int64_t since = cell.identity == note->identity ? cell.amount - note->amount : 0;
    fill(sync, place, &entry.text, limit, here.remaining + since);
}

/* ---- Applying replies ---- */

/* Differences that come from rounding, and from host and server being read at different moments. */
static int64_t tolerance(const weir_limit *limit, int64_t took_us)
{
    if (limit->algorithm == WEIR_FIXED_WINDOW)
        return 0;
    double refilled = (double)limit->limit * (double)took_us / (double)limit->window_us;
    return 1 + (refilled < (double)limit->hard ? (int64_t)refilled : limit->hard);
}

/* Moves the host's counter by `difference`, and returns by how much. After a store reset nothing is refunded. */
static int64_t move(struct weir__sync *sync, uint64_t hash, const weir_limit *limit, int64_t difference,
                    int64_t took_us)
{
    weir_decision unused;
    struct weir__ledger_header *header = sync->ledger->header;
    if (difference == 0 || (difference < 0 && sync->store_reset) ||
        (difference < 0 && -difference <= tolerance(limit, took_us)))
        return 0;
    int64_t amount = difference > WEIR__USED_MAX    ? WEIR__USED_MAX
                     : difference < -WEIR__USED_MAX ? -WEIR__USED_MAX
                                                    : difference;
    int error = weir__counter_move(sync->segment, limit, hash, amount, sync->now, &unused);
    if (!error && amount > 0)
        weir__count(&header->applied, (uint64_t)amount);
    else if (!error)
        weir__count(&header->refunded, (uint64_t)-amount);
    return amount;
}

static bool is_bucket(const weir_limit *limit)
{
    return limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
}

/*
 * Whether the counter must be polled. While the use of a bucket is negligible, a missed update does little harm: the
 * next take is exchanged within an interval. Windows do not repay an excess, so there every use counts.
 */
static bool is_news(const struct weir__sync_entry *f, const weir_limit *limit, int64_t sent, int64_t moved)
{
    int64_t little = is_bucket(limit) ? limit->hard / LITTLE : 0;
    return llabs(sent) > little || llabs(moved) > little || (moved && f->repolls > 0);
}

/* Schedules the next poll, if any. */
static void reschedule(struct weir__sync *sync, uint64_t index, bool news, bool recovered)
{
    struct weir__sync_entry *f = &sync->tracked[index];
    unsigned repolls = news ? WEIR__SYNC_REPOLLS : f->repolls > 0 ? f->repolls - 1U : 0;
    /* an agent that cannot keep up polls no idle counters */
    if (!news && (recovered || sync->behind))
        repolls = 0;
    f->repolls = (uint8_t)repolls;
    if (repolls)
        weir__sync_schedule(sync, index, 1U << (WEIR__SYNC_REPOLLS - repolls));
    else
        weir__sync_unschedule(sync, index);
}

/* The store took nothing: retries, then polls at longer intervals. */
static void reschedule_failed(struct weir__sync *sync, uint64_t index)
{
    struct weir__sync_entry *f = &sync->tracked[index];
    f->repolls = f->repolls ? f->repolls : WEIR__SYNC_REPOLLS;
    reschedule(sync, index, false, false);
    f->repolls = 2;
}

/* The share of `units` that `us` is of a window; 0 for fixed windows, which do not refill. */
static int64_t part_of(const weir_limit *limit, int64_t units, int64_t us)
{
    double part = (double)units * (double)us / (double)limit->window_us;
    bool none = limit->algorithm == WEIR_FIXED_WINDOW || part <= 0;
    return none ? 0 : part < WEIR__USED_MAX ? (int64_t)part : WEIR__USED_MAX;
}

/* How much of `amount`, taken evenly over `us`, has been refilled since. */
static int64_t paid_of(const weir_limit *limit, int64_t amount, int64_t us)
{
    if (is_bucket(limit))
        return part_of(limit, limit->limit, us);
    return us > limit->window_us ? amount - (int64_t)((double)amount * (double)limit->window_us / (double)us) : 0;
}

/*
 * By how much the host's counter must be moved: what all hosts have used, less what the host's counter shows. A delayed
 * exchange replies what remained `ago_us` ago. Since then units have refilled, and what the host took since may have
 * been covered by them if the counter was full; the store computes that when it gets the delta with its time. Until
 * then any value of the host's counter between the two bounds is left as it is.
 */
static int64_t difference_of(const struct weir__store_op *op, const weir_decision *here, int64_t unsent,
                             int64_t took_us)
{
    /* Compares use, not remaining units: the limit may have been scaled since the request. */
    int64_t mine = here->limit - here->remaining, all = op->limit.hard - op->decision.remaining;
    bool late = took_us > WEIR__SYNC_LATE_MS * 1000 || (op->left_us > 0 && op->limit.algorithm != WEIR_FIXED_WINDOW);
    if (!late)
        return all + unsent - mine;
    all -= part_of(&op->limit, is_bucket(&op->limit) ? op->limit.limit : all, op->ago_us);
    int64_t most = all + unsent > 0 ? all + unsent : 0;
    int64_t age_us = op->limit.algorithm == WEIR_FIXED_WINDOW ? 0 : op->left_us + took_us - op->ago_us;
    int64_t paid = paid_of(&op->limit, unsent, age_us);
    int64_t least = all + (unsent > paid ? unsent - paid : 0);
    return mine < least ? least - mine : mine > most ? most - mine : 0;
}

/* Moves the host's counter, which shows `here`, to what remains for all hosts. */
static void converge(struct weir__sync *sync, uint64_t place, const weir_limit *limit, const weir_decision *here,
                     int64_t took_us)
{
    const struct weir__ledger_in_flight *note = &sync->ledger->note[place];
    const struct weir__store_op *op = &sync->ops[place];
    /* The counter was read before the delta: a take between the two makes it seem less used, not more. */
    struct weir__ledger_cell cell = weir__ledger_read_cell(sync->ledger, note->index);
    int64_t unsent = cell.amount - note->amount;
    if (cell.identity != note->identity)
        return;
    if (!sync->store_reset)
        sync->tracked[note->index].epoch = sync->epoch;
    int64_t difference = difference_of(op, here, unsent, took_us);
    if (note->window_end_us && note->window_end_us <= sync->now.wall_ns / 1000)
        difference = 0; /* of a window that is over */
    int64_t moved = move(sync, sync->targets[place].hash, limit, difference, took_us);
    bool news = is_news(&sync->tracked[note->index], limit, note->amount, moved);
    reschedule(sync, note->index, news, here->remaining >= here->limit);
    weir__count(&sync->ledger->header->sent, (uint64_t)(note->amount > 0 ? note->amount : 0));
}

void weir__sync_apply(struct weir__sync *sync, uint64_t place, int64_t took_us)
{
    struct weir__ledger_header *header = sync->ledger->header;
    const struct weir__ledger_in_flight *note = &sync->ledger->note[place];
    const struct weir__store_op *op = &sync->ops[place];
    const struct weir__sync_counter *counter = &sync->targets[place];
    struct weir__quota scaled;
    weir_decision here;
    if (op->kind == WEIR__OP_LEASE) {
        weir__sync_apply_lease(sync, place);
        return;
    }
    if (op->kind != WEIR__OP_EXCHANGE)
        return; /* the counter is unknown; the sweep handles it */
    if (op->error && op->error != WEIR_ESTOREWRONGTYPE && op->error != WEIR_ESTORECLOCK)
        weir__sync_reseed(sync, note->index); /* another server may take the place of the failed one */
    struct weir__sync_entry *f = &sync->tracked[note->index];
    if (op->error || op->other_window > 0) {
        if (!f->failed_ms && note->amount)
            f->failed_ms = (uint32_t)(weir__load64(&header->acked_ms) | 1);
        reschedule_failed(sync, note->index);
        return;
    }
    f->failed_ms = 0;
    if (op->other_window < 0) {
        weir__count(&header->dropped, (uint64_t)(note->amount > 0 ? note->amount : 0));
        reschedule(sync, note->index, note->amount != 0, true);
    } else {
        const weir_limit *limit = peek(sync, counter, &scaled, &here);
        if (limit)
            converge(sync, place, limit, &here, took_us);
    }
    (void)weir__ledger_ack(sync->ledger, note->index, note->identity, note->amount, header->batch);
    weir__sync_remember(sync, note);
}
