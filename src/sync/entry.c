/* From an entry of the ledger to what the store is asked, and from its answer to the host's counter. */
#include "base/clock.h"
#include "sync/sync_internal.h"
#include "algo/calendar.h"
#include "engine/counter_by_hash.h"
#include "engine/overload.h"

#include <stdlib.h>

#define LITTLE 1024 /* such a part of a bucket is little */

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
        if (weir__delta_ledger_of(sync->ruleset, rules->rules[i]))
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
    sync->reloads = UINT64_MAX; /* to be tried repolls */
    weir__hazard_release(&engine->hazards, *at);
    return false;
}

void weir__sync_release_rules(struct weir__sync *sync, int at)
{
    weir__hazard_release(&sync->with.engine->hazards, at);
}

static const struct weir__rule *rule_of(const struct weir__sync *sync, uint64_t id)
{
    size_t low = 0, high = sync->by_id_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sync->by_id[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sync->by_id_count && sync->by_id[low]->id == id ? sync->by_id[low] : NULL;
}

/* The tier's, or the first that counts: a changed rule keeps its counters. */
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
    return true;
}

/* ---- Asking ---- */

const weir_limit *weir__sync_limit(const struct weir__sync *sync, const struct weir__sync_counter *counter,
                                   struct weir__quota *room)
{
    return &weir__quota_effective(sync->with.engine, counter->rule, counter->quota, sync->now, room)->limit;
}

int weir__sync_peek(const struct weir__sync *sync, const struct weir__sync_counter *counter, const weir_limit *limit,
                    weir_decision *decision)
{
    return weir__counter_move(sync->segment, limit, counter->hash, 0, sync->now, decision);
}

int64_t weir__sync_window_end(const struct weir__sync *sync, const weir_limit *limit, const weir_decision *here)
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

/* The windows around the present one: the server has no zones. */
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

static void clear(struct weir__store_op *op)
{
    memset(op, 0, offsetof(struct weir__store_op, name)); /* and not half of it for a name that comes anyway */
}

void weir__sync_fill_nothing(const struct weir__sync *sync, struct weir__store_op *op)
{
    weir_params one = {.limit = 1, .window_ns = WEIR_SECOND};
    clear(op);
    op->kind = WEIR__OP_PEEK;
    if (weir_limit_init(&op->limit, &one) == 0)
        op->name_len = (uint16_t)weir__store_name(&sync->with.naming, WEIR__TEXT("\"agent\""), false,
                                                  WEIR__TEXT("looks"), op->name);
}

/* In kind long a time came together what an entry has to tell, if its server did not answer, or none did; 0: it did. */
static int64_t late_of(const struct weir__sync *sync, const struct weir__sync_entry *f)
{
    int64_t failed_ms = f->failed_ms ? (int32_t)((uint32_t)weir__coarse_ms() - f->failed_ms) : 0;
    return failed_ms > WEIR__SYNC_LATE_MS && failed_ms * 1000 > sync->late_us ? failed_ms * 1000 : sync->late_us;
}

void weir__sync_fill(const struct weir__sync *sync, uint64_t place, const struct weir__sync_observed *observed)
{
    const struct weir__ledger_in_flight *note = &sync->ledger->note[place];
    struct weir__store_op *op = &sync->ops[place];
    const weir_limit *limit = observed->limit;
    clear(op);
    op->limit = *limit;
    op->limit.zone = NULL;
    op->kind = WEIR__OP_EXCHANGE;
    op->cost = note->amount;
    uint32_t epoch = sync->tracked[note->index].epoch;
    op->reseed = (int32_t)(epoch - sync->reseed_epoch) < 0;
    op->own_delta = !op->reseed && epoch != sync->epoch;
    op->level = observed->here->remaining + observed->since;
    if (note->window_end_us)
        op->left_us = note->window_end_us - sync->now.wall_ns / 1000;
    else if (limit->algorithm != WEIR_FIXED_WINDOW)
        op->left_us = late_of(sync, &sync->tracked[note->index]);
    if (weir__on_wall(limit) && limit->align == WEIR_ALIGN_CALENDAR)
        set_bounds(sync, limit, op->bounds_us);
    op->name_len = (uint16_t)name_of(sync, sync->targets[place].rule, observed->text, op->name);
}

void weir__sync_fill_again(struct weir__sync *sync, uint64_t place)
{
    const struct weir__ledger_in_flight *note = &sync->ledger->note[place];
    struct weir__sync_counter *counter = &sync->targets[place];
    struct weir__ledger_entry entry = {0};
    struct weir__quota room;
    weir_decision here;
    if (note->identity && note->index < sync->ledger->entries) /* it may come from a file that others wrote to */
        weir__ledger_read(sync->ledger, note->index, &entry);
    weir__sync_clock(sync);
    const weir_limit *limit = NULL;
    if (entry.identity == note->identity && weir__sync_find_counter(sync, &entry, counter))
        limit = weir__sync_limit(sync, counter, &room);
    if (!limit || weir__sync_peek(sync, counter, limit, &here) != 0) {
        counter->rule = NULL;
        weir__sync_fill_nothing(sync, &sync->ops[place]);
        return;
    }
    /* The amount after the counter, as for one that is noted now: who comes between is told of next, and must not be
     * missing from what is left, too. */
    struct weir__ledger_cell held = weir__ledger_read_cell(sync->ledger, note->index);
    int64_t since = held.identity == note->identity ? held.amount - note->amount : 0;
    weir__sync_fill(sync, place, &(struct weir__sync_observed){&entry.text, limit, &here, since});
}

/* ---- The answer ---- */

/* Host and server are not asked at the same moment, and count in whole units: so much is no difference. */
static int64_t tolerance(const weir_limit *limit, int64_t took_us)
{
    if (limit->algorithm == WEIR_FIXED_WINDOW)
        return 0;
    double refilled = (double)limit->limit * (double)took_us / (double)limit->window_us;
    return 1 + (refilled < (double)limit->hard ? (int64_t)refilled : limit->hard);
}

static int64_t within(int64_t amount)
{
    return amount > WEIR__USED_MAX ? WEIR__USED_MAX : amount < -WEIR__USED_MAX ? -WEIR__USED_MAX : amount;
}

/*
 * Moves the host's counter to what is left for all. Returns what there was to move. A store that was set back gives
 * nothing back.
 */
static int64_t move(struct weir__sync *sync, uint64_t hash, const weir_limit *limit, int64_t difference,
                    int64_t took_us)
{
    weir_decision unused;
    struct weir__ledger_header *header = sync->ledger->header;
    if (difference == 0 || (difference < 0 && sync->store_reset) ||
        (difference < 0 && -difference <= tolerance(limit, took_us)))
        return 0;
    int64_t amount = within(difference);
    int error = weir__counter_move(sync->segment, limit, hash, amount, sync->now, &unused);
    if (!error && amount > 0)
        weir__count(&header->applied, (uint64_t)amount);
    else if (!error)
        weir__count(&header->given_back, (uint64_t)-amount);
    return amount;
}

static bool is_bucket(const weir_limit *limit)
{
    return limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
}

static bool is_more(int64_t amount, int64_t than)
{
    return amount > than || amount < -than;
}

/*
 * Whether an answer is a reason to op for more of them. As long as this host and the others have used next to nothing
 * of a bucket, there is little to make wrong with what is not heard: what the next requests take is told within an
 * interval, and with that it hears of the others. Windows do not repay what was too much.
 */
static bool is_news(const struct weir__sync_entry *f, const weir_limit *limit, int64_t told, int64_t moved)
{
    int64_t little = is_bucket(limit) ? limit->hard / LITTLE : 0;
    return is_more(told, little) || is_more(moved, little) || (moved && f->repolls > 0);
}

/* When to op for it repolls, if at all. */
static void reschedule(struct weir__sync *sync, uint64_t index, bool news, bool recovered)
{
    struct weir__sync_entry *f = &sync->tracked[index];
    unsigned repolls = news ? WEIR__SYNC_REPOLLS : f->repolls > 0 ? f->repolls - 1U : 0;
    /* Who is behind has enough to do with what is used. */
    if (!news && (recovered || sync->behind))
        repolls = 0;
    f->repolls = (uint8_t)repolls;
    if (repolls)
        weir__sync_schedule(sync, index, 1U << (WEIR__SYNC_REPOLLS - repolls));
    else
        weir__sync_unschedule(sync, index);
}

/* Nothing was taken: later, and then now and then. */
static void reschedule_failed(struct weir__sync *sync, uint64_t index)
{
    struct weir__sync_entry *f = &sync->tracked[index];
    f->repolls = f->repolls ? f->repolls : WEIR__SYNC_REPOLLS;
    reschedule(sync, index, false, false);
    f->repolls = 2;
}

/* So much of `units` as `us` is of a window; 0 of fixed windows, in which nothing comes back. */
static int64_t part_of(const weir_limit *limit, int64_t units, int64_t us)
{
    double part = (double)units * (double)us / (double)limit->window_us;
    bool none = limit->algorithm == WEIR_FIXED_WINDOW || part <= 0;
    return none ? 0 : part < WEIR__USED_MAX ? (int64_t)part : WEIR__USED_MAX;
}

/* What has come back after so long a time of what was let pass in it, evenly. */
static int64_t paid_of(const weir_limit *limit, int64_t amount, int64_t us)
{
    if (is_bucket(limit))
        return part_of(limit, limit->limit, us);
    return us > limit->window_us ? amount - (int64_t)((double)amount * (double)limit->window_us / (double)us) : 0;
}

/*
 * How much the host's counter is to be moved by: what it has used less than all. An exchange that was on its way for
 * long says what was left when the server carried it out, `ago`. Since then some has come back; and what the host let
 * pass since it was noted may have been paid by what came back until then, if the counter was full: that shows when it
 * is told, with its time. In between, the host's counter is left as it is.
 */
static int64_t difference_of(const struct weir__store_op *op, const weir_decision *here, int64_t unsent,
                             int64_t took_us)
{
    /* By what is used, not by what is left: the limit may have changed with the load since it was asked. */
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

/* What is left for all is known, and what the host has left: `here`. */
static void converge(struct weir__sync *sync, uint64_t place, const weir_limit *limit, const weir_decision *here,
                     int64_t took_us)
{
    const struct weir__ledger_in_flight *note = &sync->ledger->note[place];
    const struct weir__store_op *op = &sync->ops[place];
    /* The counter was observed at before the amount is: who comes between makes it seem less, not more. */
    struct weir__ledger_cell held = weir__ledger_read_cell(sync->ledger, note->index);
    int64_t unsent = held.amount - note->amount;
    if (held.identity != note->identity)
        return;
    if (!sync->store_reset)
        sync->tracked[note->index].epoch = sync->epoch;
    int64_t difference = difference_of(op, here, unsent, took_us);
    if (note->window_end_us && note->window_end_us <= sync->now.wall_ns / 1000)
        difference = 0; /* what is left of a window that is over */
    int64_t moved = move(sync, sync->targets[place].hash, limit, difference, took_us);
    bool news = is_news(&sync->tracked[note->index], limit, note->amount, moved);
    reschedule(sync, note->index, news, here->remaining >= here->limit);
    weir__count(&sync->ledger->header->told, (uint64_t)(note->amount > 0 ? note->amount : 0));
}

void weir__sync_apply(struct weir__sync *sync, uint64_t place, int64_t took_us)
{
    struct weir__ledger_header *header = sync->ledger->header;
    const struct weir__ledger_in_flight *note = &sync->ledger->note[place];
    const struct weir__store_op *op = &sync->ops[place];
    const struct weir__sync_counter *counter = &sync->targets[place];
    struct weir__quota room;
    weir_decision here;
    if (op->kind != WEIR__OP_EXCHANGE)
        return; /* nobody knew what it was for; the sweep will see */
    if (op->error && op->error != WEIR_ESTOREWRONGTYPE && op->error != WEIR_ESTORECLOCK)
        weir__sync_reseed(sync, note->index); /* its server was away, and another may take its place */
    struct weir__sync_entry *f = &sync->tracked[note->index];
    if (op->error || op->other_window > 0) {
        if (!f->failed_ms && note->amount)
            f->failed_ms = (uint32_t)(weir__load64(&header->told_ms) | 1);
        reschedule_failed(sync, note->index);
        return;
    }
    f->failed_ms = 0;
    if (op->other_window < 0) {
        weir__count(&header->dropped, (uint64_t)(note->amount > 0 ? note->amount : 0));
        reschedule(sync, note->index, note->amount != 0, true);
    } else {
        const weir_limit *limit = weir__sync_limit(sync, counter, &room);
        if (weir__sync_peek(sync, counter, limit, &here) == 0)
            converge(sync, place, limit, &here, took_us);
    }
    weir__ledger_ack(sync->ledger, note->index, note->identity, note->amount, header->batch);
    weir__sync_remember(sync, note);
}
