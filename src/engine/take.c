/* The public calls that decide: arguments checked, statistics kept, the table asked. */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/engine.h"
#include "table/hash.h"
#include "table/usual.h"

#include <sched.h>

enum { WEIR__KEY_MAX = 65535 };

enum { BATCH = 32 }; /* requests in flight at once; more only push each other out of the cache */

/* The line of counters for this processor, so that threads that run at the same time rarely write the same one. */
static struct weir__stripe *stripe(const weir_segment *segment)
{
    int cpu = sched_getcpu();
    return &segment->table.stats[(cpu < 0 ? 0 : (unsigned)cpu) % WEIR__STRIPES];
}

/* What is wrong with a request; the same tests as below, one by one. */
static int fault(const weir_limit *limit, const void *key, size_t key_len, int64_t cost, weir_time now)
{
    if (!limit || limit->made != WEIR__LIMIT_MADE || (!key && key_len))
        return WEIR_EINVAL;
    if (!key_len)
        return WEIR_EKEYEMPTY;
    if (key_len > WEIR__KEY_MAX)
        return WEIR_EKEYLONG;
    if (cost < -WEIR__USED_MAX || cost > WEIR__USED_MAX)
        return WEIR_ECOST;
    if (now.mono_ns < 0 || now.wall_ns < 0)
        return WEIR_ETIME;
    return 0;
}

static inline int check(const weir_limit *limit, const void *key, size_t key_len, int64_t cost, weir_time now)
{
    bool good = limit && key && limit->made == WEIR__LIMIT_MADE && key_len - 1 < WEIR__KEY_MAX &&
                (uint64_t)cost + WEIR__USED_MAX <= 2 * WEIR__USED_MAX && (now.mono_ns | now.wall_ns) >= 0;
    return good ? 0 : fault(limit, key, key_len, cost, now);
}

static struct weir__op operation(const weir_segment *segment, struct weir__stripe *stats, weir_time now)
{
    return (struct weir__op){&segment->table, stats, now.mono_ns / 1000, now.wall_ns / 1000};
}

/* Adds to the shared counters what a batch, or one, came to. */
static void add_counts(struct weir__stripe *to, const struct weir__stripe *sum)
{
    for (int i = 0; i < 5; i++)
        if (sum->verdict[i])
            weir__count(&to->verdict[i], sum->verdict[i]);
    if (sum->soft)
        weir__count(&to->soft, sum->soft);
    if (sum->errors)
        weir__count(&to->errors, sum->errors);
}

static int decide(const struct weir__op *op, const weir_limit *limit, const void *key, size_t key_len, int64_t cost,
                  enum weir__mode mode, weir_decision *decision)
{
    struct weir__where where;
    weir_decision made;
    weir__key_locate(op->table, limit, key, key_len, &where);
    int error = weir__table_take(op, limit, &where, cost, mode, &made);
    if (!error)
        *decision = made;
    return error;
}

/* The usual case is tried only while no key is blocked; see table/usual.h. */
static inline bool any_blocked(const struct weir__op *op)
{
    return op->mono_us < (int64_t)weir__load64(&op->table->header->blocked_until_us);
}

/* For a key whose home alone is known. */
static int long_way(const struct weir__op *op, const weir_limit *limit, struct weir__where *where, int64_t cost,
                    weir_decision *made)
{
    weir__locate_other(op->table, where);
    return weir__table_take(op, limit, where, cost, WEIR__TAKE, made);
}

int weir_take(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t cost,
              weir_time now, weir_decision *decision)
{
    if (!segment || !decision)
        return WEIR_EINVAL;
    if (segment->read_only)
        return WEIR_EREADONLY;
    struct weir__stripe *stats = stripe(segment);
    struct weir__op op = operation(segment, stats, now);
    struct weir__where where;
    weir_decision made;
    int error = check(limit, key, key_len, cost, now);
    if (!error) {
        weir__key_home(op.table, limit, key, key_len, &where);
        weir__cell *slot = weir__slot_of(op.table, where.home, where.tag);
        if (!slot || any_blocked(&op) || !weir__usual_take(&op, limit, slot, where.tag, cost, &made))
            error = long_way(&op, limit, &where, cost, &made);
    }
    if (error) {
        weir__count(&stats->errors, 1);
        return error;
    }
    weir__count(&stats->verdict[made.verdict], 1);
    if (made.flags & WEIR_OVER_SOFT)
        weir__count(&stats->soft, 1);
    *decision = made;
    return 0;
}

/* One request of a group on its way. */
struct flight {
    struct weir__where where;
    weir__cell *slot; /* where it was found, or NULL */
};

/* Hashes all and asks for their first lines; then looks there, and asks for the second line where that was in vain. */
static void set_out(const struct weir__op *op, weir_request *request, struct flight *flight, size_t count,
                    weir_time now)
{
    for (size_t i = 0; i < count; i++) {
        weir_request *r = &request[i];
        r->error = check(r->limit, r->key, r->key_len, r->cost, now);
        if (r->error)
            continue;
        weir__key_home(op->table, r->limit, r->key, r->key_len, &flight[i].where);
        weir__prefetch(&op->table->line[flight[i].where.home]);
    }
    for (size_t i = 0; i < count; i++) {
        if (request[i].error)
            continue;
        flight[i].slot = weir__slot_of(op->table, flight[i].where.home, flight[i].where.tag);
        if (!flight[i].slot) {
            weir__locate_other(op->table, &flight[i].where);
            weir__prefetch(&op->table->line[flight[i].where.other]);
        }
    }
}

/* One request the long way, unless it was refused already. Returns 1 if it failed. */
static int take_long(const struct weir__op *op, weir_request *r, struct weir__where *where, struct weir__stripe *sum)
{
    weir_decision made;
    if (!r->error)
        r->error = long_way(op, r->limit, where, r->cost, &made);
    if (r->error) {
        sum->errors++;
        return 1;
    }
    r->decision = made;
    sum->verdict[made.verdict]++;
    sum->soft += made.flags & WEIR_OVER_SOFT;
    return 0;
}

/* The usual case of one request that has set out. */
static inline bool take_usual(const struct weir__op *op, weir_request *r, struct flight *f)
{
    weir__cell *slot = f->slot ? f->slot : weir__slot_of(op->table, f->where.other, f->where.tag);
    return slot && weir__usual_take(op, r->limit, slot, f->where.tag, r->cost, &r->decision);
}

static int take_group(const struct weir__op *op, weir_request *request, size_t count, weir_time now,
                      struct weir__stripe *sum)
{
    struct flight flight[BATCH];
    int failed = 0;
    bool usual = !any_blocked(op);

    set_out(op, request, flight, count, now);
    for (size_t i = 0; i < count; i++) {
        weir_request *r = &request[i];
        if (usual && !r->error && take_usual(op, r, &flight[i]))
            sum->verdict[WEIR_ALLOW]++;
        else
            failed += take_long(op, r, &flight[i].where, sum);
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
    return error
               ? error
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

/* What reset and block begin with: arguments checked, the key found its place. */
static int begin(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, weir_time now,
                 struct weir__op *op, struct weir__where *where)
{
    if (!segment)
        return WEIR_EINVAL;
    if (segment->read_only)
        return WEIR_EREADONLY;
    int error = check(limit, key, key_len, 0, now);
    if (error)
        return error;
    *op = operation(segment, stripe(segment), now);
    weir__key_locate(op->table, limit, key, key_len, where);
    return 0;
}

int weir_reset(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, weir_time now)
{
    struct weir__op op;
    struct weir__where where;
    int error = begin(segment, limit, key, key_len, now, &op, &where);
    return error ? error : weir__table_reset(&op, limit, &where);
}

int weir_block(weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len, int64_t for_ns,
               weir_time now)
{
    struct weir__op op;
    struct weir__where where;
    if (for_ns < 0)
        return WEIR_EINVAL;
    int error = begin(segment, limit, key, key_len, now, &op, &where);
    if (error)
        return error;
    if (for_ns / 1000 > WEIR__WINDOW_MAX)
        return WEIR_EWINDOW;
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
