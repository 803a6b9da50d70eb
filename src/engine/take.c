/* The public calls that decide: arguments checked, statistics kept, the table asked. */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/engine.h"

#include <sched.h>

enum { BATCH = 32 }; /* requests in flight at once; more only push each other out of the cache */

/* The line of counters for this processor: no two write the same one at the same time, whatever thread they run. */
static struct weir__stripe *stripe(const weir_segment *segment)
{
    int cpu = sched_getcpu();
    return &segment->table.stats[(cpu < 0 ? 0 : (unsigned)cpu) % WEIR__STRIPES];
}

static int check(const weir_limit *limit, const void *key, size_t key_len, int64_t cost, weir_time now)
{
    if (!limit || limit->made != WEIR__LIMIT_MADE || (!key && key_len))
        return WEIR_EINVAL;
    if (!key_len)
        return WEIR_EKEYEMPTY;
    if (key_len > 65535)
        return WEIR_EKEYLONG;
    if (cost < -WEIR__USED_MAX || cost > WEIR__USED_MAX)
        return WEIR_ECOST;
    if (now.mono_ns < 0 || now.wall_ns < 0)
        return WEIR_ETIME;
    return 0;
}

static struct weir__op operation(const weir_segment *segment, struct weir__stripe *stats, weir_time now)
{
    return (struct weir__op){&segment->table, stats, now.mono_ns / 1000, now.wall_ns / 1000};
}

/* Sums of a batch or of one, added to the shared counters at the end. */
static void count(struct weir__stripe *sum, int error, const weir_decision *decision)
{
    if (error) {
        sum->errors++;
        return;
    }
    switch (decision->verdict) {
    case WEIR_ALLOW:
        sum->allowed++;
        break;
    case WEIR_DELAY:
        sum->delayed++;
        break;
    case WEIR_DENY:
        sum->denied++;
        break;
    case WEIR_NEVER_FITS:
        sum->never_fits++;
        break;
    case WEIR_BLOCKED:
        sum->blocked++;
        break;
    }
    sum->soft += decision->flags & WEIR_OVER_SOFT;
}

static void add_counts(struct weir__stripe *to, const struct weir__stripe *sum)
{
    if (sum->allowed)
        weir__count(&to->allowed, sum->allowed);
    if (sum->delayed)
        weir__count(&to->delayed, sum->delayed);
    if (sum->denied)
        weir__count(&to->denied, sum->denied);
    if (sum->never_fits)
        weir__count(&to->never_fits, sum->never_fits);
    if (sum->blocked)
        weir__count(&to->blocked, sum->blocked);
    if (sum->soft)
        weir__count(&to->soft, sum->soft);
    if (sum->errors)
        weir__count(&to->errors, sum->errors);
}

static int decide(const struct weir__op *op, const weir_limit *limit, const void *key, size_t key_len, int64_t cost,
                  enum weir__mode mode, weir_decision *decision)
{
    struct weir__where where = weir__key_locate(op->table, limit, key, key_len);
    weir_decision made;
    int error = weir__table_take(op, limit, &where, cost, mode, &made);
    if (!error)
        *decision = made;
    return error;
}

int weir_take(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t cost,
              weir_time now, weir_decision *decision)
{
    if (!segment || !decision)
        return WEIR_EINVAL;
    if (segment->read_only)
        return WEIR_EREADONLY;
    struct weir__stripe *stats = stripe(segment), sum = {0};
    struct weir__op op = operation(segment, stats, now);
    int error = check(limit, key, key_len, cost, now);
    if (!error)
        error = decide(&op, limit, key, key_len, cost, WEIR__TAKE, decision);
    count(&sum, error, decision);
    add_counts(stats, &sum);
    return error;
}

/* One group: hash and ask for the first line of all, then for the second where the first does not have it, then go. */
static int take_group(const struct weir__op *op, weir_request *request, size_t count_of, weir_time now,
                      struct weir__stripe *sum)
{
    struct weir__where where[BATCH];
    int failed = 0;

    for (size_t i = 0; i < count_of; i++) {
        weir_request *r = &request[i];
        r->error = check(r->limit, r->key, r->key_len, r->cost, now);
        if (r->error)
            continue;
        where[i] = weir__key_locate(op->table, r->limit, r->key, r->key_len);
        weir__prefetch(&op->table->line[where[i].home]);
    }
    for (size_t i = 0; i < count_of; i++) {
        weir__cell unused;
        if (!request[i].error && !weir__find_in(op->table, where[i].home, where[i].tag, &unused))
            weir__prefetch(&op->table->line[where[i].other]);
    }
    for (size_t i = 0; i < count_of; i++) {
        weir_request *r = &request[i];
        weir_decision made;
        if (!r->error)
            r->error = weir__table_take(op, r->limit, &where[i], r->cost, WEIR__TAKE, &made);
        if (!r->error)
            r->decision = made;
        failed += r->error != 0;
        count(sum, r->error, &made);
    }
    return failed;
}

int weir_take_batch(weir_segment *segment, weir_request *requests, size_t count_of, weir_time now)
{
    if (!segment || (!requests && count_of) || count_of > INT32_MAX)
        return WEIR_EINVAL;
    if (segment->read_only)
        return WEIR_EREADONLY;
    struct weir__stripe *stats = stripe(segment), sum = {0};
    struct weir__op op = operation(segment, stats, now);
    int failed = 0;

    for (size_t at = 0; at < count_of; at += BATCH) {
        size_t group = count_of - at < BATCH ? count_of - at : BATCH;
        failed += take_group(&op, requests + at, group, now, &sum);
    }
    add_counts(stats, &sum);
    return failed;
}

int weir_peek(const weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t cost,
              weir_time now, weir_decision *decision)
{
    if (!segment || !decision)
        return WEIR_EINVAL;
    struct weir__op op = operation(segment, NULL, now);
    int error = check(limit, key, key_len, cost, now);
    return error ? error : decide(&op, limit, key, key_len, cost, WEIR__TAKE, decision);
}

/* Refund and charge: not decisions about a request, so not counted as such. */
static int adjust(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t amount,
                  bool back, weir_time now, weir_decision *decision)
{
    if (!segment || !decision)
        return WEIR_EINVAL;
    if (segment->read_only)
        return WEIR_EREADONLY;
    struct weir__op op = operation(segment, stripe(segment), now);
    int error = check(limit, key, key_len, amount, now);
    if (!error && amount < 0)
        error = WEIR_ECOST;
    return error ? error
                 : decide(&op, limit, key, key_len, back ? -amount : amount, back ? WEIR__TAKE : WEIR__CHARGE, decision);
}

int weir_refund(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t amount,
                weir_time now, weir_decision *decision)
{
    return adjust(segment, limit, key, key_len, amount, true, now, decision);
}

int weir_charge(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t amount,
                weir_time now, weir_decision *decision)
{
    return adjust(segment, limit, key, key_len, amount, false, now, decision);
}

int weir_reset(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, weir_time now)
{
    if (!segment)
        return WEIR_EINVAL;
    if (segment->read_only)
        return WEIR_EREADONLY;
    int error = check(limit, key, key_len, 0, now);
    if (error)
        return error;
    struct weir__op op = operation(segment, stripe(segment), now);
    struct weir__where where = weir__key_locate(op.table, limit, key, key_len);
    return weir__table_reset(&op, limit, &where);
}

int weir_block(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t for_ns,
               weir_time now)
{
    if (!segment || for_ns < 0)
        return WEIR_EINVAL;
    if (segment->read_only)
        return WEIR_EREADONLY;
    int error = check(limit, key, key_len, 0, now);
    if (error)
        return error;
    if (for_ns / 1000 > WEIR__WINDOW_MAX)
        return WEIR_EWINDOW;
    struct weir__op op = operation(segment, stripe(segment), now);
    struct weir__where where = weir__key_locate(op.table, limit, key, key_len);
    return weir__table_block(&op, &where, for_ns / 1000 + (for_ns % 1000 != 0));
}

/* ---- Seeing inside ---- */

int weir_stats_read(const weir_segment *segment, weir_stats *stats)
{
    if (!segment || !stats)
        return WEIR_EINVAL;
    weir__segment_stats(&segment->table, stats);
    return 0;
}

int weir_segment_each(const weir_segment *segment, weir_time now, int (*visit)(void *context, const weir_entry *entry),
                      void *context)
{
    if (!segment || !visit)
        return WEIR_EINVAL;
    struct weir__op op = operation(segment, NULL, now);
    return weir__segment_each(&op, visit, context);
}

int weir_segment_validate(const weir_segment *segment, weir_time now, weir_report *report)
{
    if (!segment || !report)
        return WEIR_EINVAL;
    struct weir__op op = operation(segment, NULL, now);
    return weir__segment_validate(&op, report);
}
