/*
 * Runs random operations on the library and on the models side by side, and compares the decisions. A run depends on
 * its seed alone, which a failure prints: see test_models.c on repeating it.
 */
#ifndef WEIR_TEST_MODELS_DRIVER_H
#define WEIR_TEST_MODELS_DRIVER_H

#include <weir/weir.h>

#include "../../test.h"
#include "models.h"

#define RUN_STEPS        4000
#define BATCH_MAX        40
#define TIME_MAX_NS      INT64_C(8800000000000000000) /* 2248; room for all waits before 2^63 */
#define ZONE_TIME_MAX_NS INT64_C(7200000000000000000) /* 2198: zones are known until 2200 (src/engine/timezone.c) */

/*
 * A slot has the start of its window modulo 4.4 years, so the library mistakes an entry for a later one when that lies
 * more than 3.9 years back or half a year ahead. A window may be 400 days, a jump 365.
 */
#define OLDEST_US (1200 * DAY_US)
#define FORGET_US (430 * DAY_US)
#define BACK_US   (90 * DAY_US) /* the lease of a record with a window of 400 days is valid from 114 days before */

/* One key under one limit. */
struct subject {
    char key[24];
    weir_limit limit;
    struct model model;
};

struct run {
    uint64_t seed, random;
    int64_t step;
    bool backward, refunds, charges;
    bool failed, trace;
    weir_segment *segment;
    weir_params params;
    struct subject subject[4];
    int subjects;
    struct model scratch;
    int64_t now_ns, end_ns;
    int64_t forget_us, latest_us; /* time of the last reset of the keys, and the latest moment since */
    weir_decision last;
};

/* ---- Random numbers of the sizes that matter ---- */

static int64_t below(struct run *r, int64_t bound)
{
    return bound > 0 ? (int64_t)(test_random(&r->random) % (uint64_t)bound) : 0;
}

static bool one_in(struct run *r, int64_t n)
{
    return below(r, n) == 0;
}

/* 1 to most, every order of magnitude with the same probability. */
static int64_t any_size(struct run *r, int64_t most)
{
    int bits = 1;
    while (bits < 62 && most >> bits)
        bits++;
    int64_t bound = INT64_C(1) << (1 + below(r, bits));
    return 1 + below(r, bound < most ? bound : most);
}

static int64_t any_limit(struct run *r, int64_t most)
{
    switch (below(r, 8)) {
    case 0:
    case 1:
    case 2:
        return 1 + below(r, 5);
    case 3:
    case 4:
        return 1 + below(r, 100);
    case 5:
        return 1 + below(r, 10000);
    case 6:
        return any_size(r, most);
    default:
        return one_in(r, 4) ? most : 1 + below(r, most);
    }
}

static int64_t any_window_us(struct run *r)
{
    static const int64_t common[] = {1000,   SECOND_US,  10 * SECOND_US, 60 * SECOND_US, 3600 * SECOND_US,
                                     DAY_US, 7 * DAY_US, 30 * DAY_US,    365 * DAY_US,   400 * DAY_US};
    switch (below(r, 6)) {
    case 0:
        return 1 + below(r, 10);
    case 1:
        return 1 + below(r, 5000);
    case 2:
    case 3:
        return common[below(r, (int64_t)(sizeof common / sizeof *common))];
    default:
        return any_size(r, 400 * DAY_US);
    }
}

/* ---- A run: a limit, one key or four, and thousands of operations ---- */

static void any_params(struct run *r)
{
    weir_params *p = &r->params;
    int64_t most = p->algorithm == WEIR_SLIDING_WINDOW_LOG       ? 65535
                   : p->algorithm == WEIR_SLIDING_WINDOW_COUNTER ? INT32_MAX
                                                                 : UNITS_MAX;
    p->limit = any_limit(r, most);
    p->window_ns = p->align == WEIR_ALIGN_CALENDAR ? 0 : any_window_us(r) * 1000;
    p->soft_percent = one_in(r, 2) ? 0 : (int[]){1, 10, 33, 100, 1000}[below(r, 5)];
    if (p->algorithm <= WEIR_LEAKY_BUCKET) {
        p->burst = one_in(r, 2) ? 0 : one_in(r, 2) ? 1 + below(r, 2 * p->limit) : any_limit(r, UNITS_MAX);
        p->burst = p->burst > UNITS_MAX ? UNITS_MAX : p->burst;
    }
    if (p->algorithm == WEIR_SLIDING_WINDOW_LOG)
        p->count_rejected = one_in(r, 3);
    if (p->algorithm == WEIR_SLIDING_WINDOW_COUNTER && p->buckets != 2) {
        p->buckets = 3 + (int)below(r, 58);
        if (p->window_ns < 1000 * p->buckets)
            p->window_ns = 1000 * (p->buckets + below(r, 100));
    } else if (p->algorithm == WEIR_SLIDING_WINDOW_COUNTER) {
        p->round = one_in(r, 2) ? WEIR_ROUND_UP : WEIR_ROUND_DOWN;
        if (p->window_ns < 2000)
            p->window_ns = 2000;
    }
    if (p->algorithm == WEIR_LEAKY_BUCKET) {
        p->delay = !one_in(r, 3);
        p->max_delay_ns = !p->delay || one_in(r, 3) ? 0 : any_size(r, 3 * p->window_ns);
    }
}

static void begin(struct run *r, const weir_params *like, uint64_t seed, int subjects)
{
    weir_segment_options options = {.size = 8 << 20, .slab_bytes = 4 << 20};
    weir_segment *segment = r->segment;
    int error;

    memset(r, 0, sizeof *r);
    r->seed = r->random = seed;
    r->segment = segment;
    r->params = *like;
    if (!segment)
        CHECK_EQ(weir_segment_open(&options, &r->segment), 0);

    /* Only numbers that are too large together are refused. */
    do {
        any_params(r);
        error = weir_limit_init(&r->subject[0].limit, &r->params);
    } while (error == WEIR_EOVERFLOW);
    CHECK_EQ(error, 0);

    r->backward = one_in(r, 2);
    r->refunds = !one_in(r, 3);
    r->charges = one_in(r, 2);
    r->subjects = subjects;
    uint64_t id = test_random(&r->random);
    for (int i = 0; i < subjects; i++) {
        /* Two keys under one limit, and the same two under a limit with another id. */
        struct subject *s = &r->subject[i];
        snprintf(s->key, sizeof s->key, "%016" PRIx64 "%d", seed, i & 1);
        r->params.id = id + (i > 1);
        CHECK_EQ(weir_limit_init(&s->limit, &r->params), 0);
        model_init(&s->model, &r->params, &s->limit);
    }
    r->end_ns = r->params.zone ? ZONE_TIME_MAX_NS : TIME_MAX_NS;
    int64_t start_us = one_in(r, 4)   ? below(r, 3 * r->subject[0].model.window_us + 1)
                       : one_in(r, 2) ? below(r, r->end_ns / 1000)
                                      : 20000 * DAY_US + below(r, DAY_US);
    r->now_ns = start_us * 1000 + below(r, 1000);
    r->forget_us = r->latest_us = start_us;
}

static void end(struct run *r, bool keep_segment)
{
    for (int i = 0; i < r->subjects; i++)
        model_free(&r->subject[i].model);
    model_free(&r->scratch);
    if (!keep_segment) {
        weir_segment_close(r->segment);
        r->segment = NULL;
    }
}

/* The limit uses one of the clocks; the other one is random and must not matter. */
static weir_time moment(struct run *r, int64_t now_ns)
{
    int64_t other = one_in(r, 2) ? now_ns : below(r, TIME_MAX_NS);
    bool wall = r->params.algorithm == WEIR_FIXED_WINDOW && r->params.align != WEIR_ALIGN_FIRST_REQUEST;
    return wall ? (weir_time){other, now_ns} : (weir_time){now_ns, other};
}

static void advance(struct run *r)
{
    const struct model *m = &r->subject[0].model;
    int64_t window = m->window_us ? m->window_us : (int64_t[]){1, 7, 31, 366}[r->params.calendar] * DAY_US;
    int64_t drip = window / r->params.limit, step_ns = 0;

    switch (below(r, 16)) {
    case 0:
    case 1:
    case 2:
    case 3:
        break;
    case 4:
        step_ns = below(r, 1000);
        break;
    case 5:
        step_ns = below(r, 10000);
        break;
    case 6:
    case 7:
        step_ns = 1000 * (drip + below(r, 3) - 1);
        break;
    case 8:
        step_ns = 1000 * (window / (1 + below(r, 100)));
        break;
    case 9:
        step_ns = 1000 * below(r, window + 1);
        break;
    case 10:
        step_ns = 1000 * below(r, m->part_us ? 2 * m->part_us : 2 * drip + 2);
        break;
    case 11: /* to the boundary of a window, or a microsecond beside it */
        step_ns = 1000 * (window - r->now_ns / 1000 % window + below(r, 3) - 1);
        break;
    case 12:
        step_ns = 1000 * window * (1 + below(r, 3)) + 1000 * (below(r, 3) - 1);
        break;
    case 13: /* to the moment the last decision named */
        step_ns = (one_in(r, 2) ? r->last.retry_after_ns : r->last.reset_after_ns) + 1000 * (below(r, 3) - 1);
        break;
    case 14:
        step_ns = one_in(r, 20) ? 1000 * below(r, 10 * window) : 1000 * below(r, drip + 2);
        break;
    default:
        if (r->backward)
            step_ns = -(one_in(r, 4)   ? below(r, 1000)
                        : one_in(r, 3) ? 1000 * below(r, 10)
                        : one_in(r, 2) ? 1000 * below(r, window + 1)
                                       : 1000 * below(r, 2 * drip + 1));
    }
    if (step_ns < 0 && !r->backward)
        step_ns = 0;
    if (step_ns > 365 * WEIR_DAY)
        step_ns = 365 * WEIR_DAY;
    if (r->now_ns + step_ns >= 0 && r->now_ns + step_ns >= (r->latest_us - BACK_US) * 1000)
        r->now_ns += step_ns;
    if (r->now_ns / 1000 > r->latest_us)
        r->latest_us = r->now_ns / 1000;

    /* An entry may not become older than 3.3 years: reset, which also tests weir_reset. */
    if (r->now_ns / 1000 - r->forget_us > FORGET_US) {
        r->forget_us = r->latest_us = r->now_ns / 1000;
        for (int i = 0; i < r->subjects; i++) {
            struct subject *s = &r->subject[i];
            CHECK_EQ(weir_reset(r->segment, &s->limit, s->key, strlen(s->key), moment(r, r->now_ns)), 0);
            model_clear(&s->model);
        }
    }
}

static int64_t any_cost(struct run *r, struct model *m)
{
    int64_t now_us = r->now_ns / 1000, level = model_level(m, now_us), cost = 1;

    switch (below(r, 16)) {
    case 0:
        cost = 0;
        break;
    case 1:
        cost = 1 + below(r, 5);
        break;
    case 2:
        cost = 1 + below(r, m->cap);
        break;
    case 3:
        cost = m->cap + below(r, 3) - 1;
        break;
    case 4: /* a cost that just fits, or just does not */
        cost = m->cap - level + below(r, 2);
        break;
    case 5:
        cost = m->hard - level + below(r, 2);
        break;
    case 6:
        cost = 1 + below(r, m->cap - level);
        break;
    case 7:
        cost = one_in(r, 8) ? UNITS_MAX - below(r, 2) : any_size(r, UNITS_MAX);
        break;
    case 8:
    case 9:
        cost = one_in(r, 8) ? -any_size(r, UNITS_MAX) : -1 - below(r, level + 1);
        break;
    default:
        break;
    }
    /*
     * Whether a refund that finds no units in a new part begins that part: with two buckets it does not, with more it
     * does while the record's lease runs. The difference is visible only if time goes back, and neither is promised.
     */
    bool begins = m->buckets > 2 && r->backward && now_us / m->part_us > m->reached;
    if (cost < 0 && (!r->refunds || begins))
        cost = 0;
    return cost > UNITS_MAX ? UNITS_MAX : cost;
}

/* ---- Comparing ---- */

static void report_difference(struct run *r, const struct subject *s, const char *what, int64_t cost, const char *field,
                              int64_t got, int64_t expected)
{
    const weir_params *p = &r->params;

    r->failed = true;
    if (++test_failures > TEST_PRINTED)
        return;
    printf("  seed %" PRIu64 " step %" PRId64 ": %s(cost %" PRId64 ") of key %s at %" PRId64 " ns: %s is %" PRId64
           ", expected %" PRId64 "\n",
           r->seed, r->step, what, cost, s->key, r->now_ns, field, got, expected);
    printf("    {.algorithm = %d, .limit = %" PRId64 ", .window_ns = %" PRId64 ", .burst = %" PRId64
           ", .refill = %d, .align = %d, .calendar = %d, .zone = %s, .count_rejected = %d, .buckets = %d, .round = %d, "
           ".soft_percent = %d, .delay = %d, .max_delay_ns = %" PRId64 "} backward %d\n",
           (int)p->algorithm, p->limit, p->window_ns, p->burst, (int)p->refill, (int)p->align, (int)p->calendar,
           p->zone ? "berlin" : "NULL", p->count_rejected, p->buckets, (int)p->round, p->soft_percent, p->delay,
           p->max_delay_ns, r->backward);
}

/*
 * Waiting times, checked by what they promise, in the model after the decision: a wait is right if the promise holds
 * at its end and did not hold a microsecond earlier (once it holds, it stays so: see models.h).
 */
static bool fits_after(struct model *m, int64_t now_ns, int64_t wait_ns, int64_t cost)
{
    int64_t at = (now_ns + wait_ns) / 1000;
    return model_fits(m, at, cost) && !model_fits(m, at - 1, cost);
}

static bool full_after(struct model *m, int64_t now_ns, int64_t wait_ns)
{
    int64_t at = (now_ns + wait_ns) / 1000;
    return model_level(m, at) == 0 && (wait_ns == 0 || model_level(m, at - 1) > 0);
}

/* How long from `now` until `cost` fits (cost < 0: until the counter is empty): by bisection, to print the expected
 * value. */
static int64_t model_earliest(struct model *m, int64_t now, int64_t cost)
{
    int64_t low = 0, high = INT64_C(1) << 52;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (cost < 0 ? model_level(m, now + middle) == 0 : model_fits(m, now + middle, cost))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void compare(struct run *r, const struct subject *s, struct model *after, const char *what, int64_t cost,
                    struct expected expected, const weir_decision *got)
{
    if (r->trace)
        printf("  step %" PRId64 " at %" PRId64 " ns, key %s: %s(cost %" PRId64 "): verdict %d, remaining %" PRId64
               ", retry after %" PRId64 ", reset after %" PRId64 " ns\n",
               r->step, r->now_ns, s->key, what, cost, (int)got->verdict, got->remaining, got->retry_after_ns,
               got->reset_after_ns);
    if (got->verdict != expected.verdict)
        report_difference(r, s, what, cost, "verdict", (int64_t)got->verdict, (int64_t)expected.verdict);
    else if (got->flags != expected.flags)
        report_difference(r, s, what, cost, "flags", got->flags, expected.flags);
    else if (got->limit != after->hard)
        report_difference(r, s, what, cost, "limit", got->limit, after->hard);
    else if (got->remaining != expected.remaining)
        report_difference(r, s, what, cost, "remaining", got->remaining, expected.remaining);
    else if (got->delay_ns != expected.delay_ns)
        report_difference(r, s, what, cost, "delay_ns", got->delay_ns, expected.delay_ns);
    else if (expected.verdict == WEIR_NEVER_FITS && got->retry_after_ns != -1)
        report_difference(r, s, what, cost, "retry_after_ns", got->retry_after_ns, -1);
    else if (weir_passes(got) && got->retry_after_ns != 0)
        report_difference(r, s, what, cost, "retry_after_ns", got->retry_after_ns, 0);
    else if (got->verdict == WEIR_DENY &&
             (got->retry_after_ns <= 0 || !fits_after(after, r->now_ns, got->retry_after_ns, cost)))
        report_difference(r, s, what, cost, "retry_after_ns (earliest moment it fits)", got->retry_after_ns,
                          model_earliest(after, r->now_ns / 1000, cost) * 1000);
    else if (got->reset_after_ns < 0 || !full_after(after, r->now_ns, got->reset_after_ns))
        report_difference(r, s, what, cost, "reset_after_ns (earliest moment nothing is held)", got->reset_after_ns,
                          model_earliest(after, r->now_ns / 1000, -1) * 1000);
}

static weir_decision peek_at(struct run *r, const struct subject *s, int64_t cost, int64_t later_ns)
{
    weir_decision d = {0};
    weir_time then = moment(r, r->now_ns + later_ns);
    CHECK_EQ(weir_peek(r->segment, &s->limit, s->key, strlen(s->key), cost, then, &d), 0);
    return d;
}

/* The same promises, checked on the library itself: whether its decision at that time is the one promised now. */
static void check_promises(struct run *r, const struct subject *s, int64_t cost, const weir_decision *d)
{
    weir_decision then;
    int64_t known_ns = (r->forget_us + OLDEST_US - 400 * DAY_US) * 1000 - r->now_ns;

    if (d->verdict == WEIR_DENY && d->retry_after_ns < known_ns) {
        then = peek_at(r, s, cost, d->retry_after_ns);
        if (!weir_passes(&then))
            report_difference(r, s, "peek after retry_after", cost, "verdict", (int64_t)then.verdict, WEIR_ALLOW);
        then = peek_at(r, s, cost, d->retry_after_ns - 1000);
        if (weir_passes(&then))
            report_difference(r, s, "peek just before retry_after", cost, "verdict", (int64_t)then.verdict, WEIR_DENY);
    }
    if (d->reset_after_ns < known_ns) {
        then = peek_at(r, s, 0, d->reset_after_ns);
        if (then.remaining != then.limit)
            report_difference(r, s, "peek after reset_after", cost, "remaining", then.remaining, then.limit);
    }
    if (d->reset_after_ns >= 1000 && d->reset_after_ns < known_ns) {
        then = peek_at(r, s, 0, d->reset_after_ns - 1000);
        if (then.remaining == then.limit)
            report_difference(r, s, "peek just before reset_after", cost, "remaining", then.remaining, then.limit);
    }
}

/* ---- The operations ---- */

static void step_batch(struct run *r)
{
    weir_request request[BATCH_MAX];
    struct subject *of[BATCH_MAX];
    int count = 2 + (int)below(r, BATCH_MAX - 1);

    for (int i = 0; i < count; i++) {
        struct subject *s = of[i] = &r->subject[below(r, r->subjects)];
        request[i] = (weir_request){.limit = &s->limit, .key = s->key, .key_len = strlen(s->key)};
        request[i].cost = any_cost(r, &s->model);
    }
    CHECK_EQ(weir_take_batch(r->segment, request, (size_t)count, moment(r, r->now_ns)), 0);
    for (int i = 0; i < count && !r->failed; i++, r->step++) {
        struct expected expected = model_step(&of[i]->model, r->now_ns / 1000, request[i].cost, false);
        compare(r, of[i], &of[i]->model, "take_batch", request[i].cost, expected, &request[i].decision);
        r->last = request[i].decision;
    }
}

/* A deeper debt saturates, and so do the waiting times: see the test of it. */
static int64_t any_charge(struct run *r, const struct model *m, int64_t level)
{
    int64_t most = 2 * m->cap < UNITS_MAX / 2 ? 2 * m->cap : m->cap / 2;
    int64_t bound = m->p.algorithm == WEIR_SLIDING_WINDOW_COUNTER ? INT32_MAX : UNITS_MAX - m->p.limit;

    if (m->p.algorithm == WEIR_SLIDING_WINDOW_LOG)
        return any_size(r, UNITS_MAX);
    if (level > m->cap || level + most > bound)
        return 0;
    return below(r, most + 1);
}

static void step_one(struct run *r)
{
    struct subject *s = &r->subject[below(r, r->subjects)];
    int64_t now_us = r->now_ns / 1000, level = model_level(&s->model, now_us), cost = any_cost(r, &s->model);
    weir_time now = moment(r, r->now_ns);
    size_t len = strlen(s->key);
    int64_t kind = below(r, 16);
    struct model *after = &s->model;
    const char *what = "take";
    struct expected expected;
    weir_decision d;

    if (kind == 0 || kind == 1) {
        what = "peek";
        CHECK_EQ(weir_peek(r->segment, &s->limit, s->key, len, cost, now, &d), 0);
        model_copy(&r->scratch, &s->model);
        after = &r->scratch;
        expected = model_step(after, now_us, cost, false);
    } else if (kind == 2 && r->refunds) {
        what = "refund";
        cost = cost > 0 ? 0 : cost;
        CHECK_EQ(weir_refund(r->segment, &s->limit, s->key, len, -cost, now, &d), 0);
        expected = model_step(after, now_us, cost, false);
    } else if (kind == 3 && r->charges) {
        what = "charge";
        cost = any_charge(r, &s->model, level);
        CHECK_EQ(weir_charge(r->segment, &s->limit, s->key, len, cost, now, &d), 0);
        expected = model_step(after, now_us, cost, true);
    } else {
        CHECK_EQ(weir_take(r->segment, &s->limit, s->key, len, cost, now, &d), 0);
        expected = model_step(after, now_us, cost, false);
    }
    compare(r, s, after, what, cost, expected, &d);
    if (!r->failed && kind > 1 && one_in(r, 16))
        check_promises(r, s, cost, &d);
    r->last = d;
    r->step++;
}

static void play(struct run *r)
{
    while (r->step < RUN_STEPS && !r->failed && r->now_ns < r->end_ns) {
        advance(r);
        if (one_in(r, 32))
            step_batch(r);
        else
            step_one(r);
    }
}

/* Runs with limits like `like`, `steps` operations in total. */
static void run_all(const weir_params *like, int64_t steps, int subjects)
{
    const char *replay = getenv("WEIR_TEST_SEED");
    uint64_t seed = (uint64_t)like->algorithm * 1000003 + (uint64_t)like->refill * 10007 + (uint64_t)like->align * 101 +
                    (uint64_t)like->calendar * 17 + (like->zone ? 7 : 0) + (uint64_t)like->buckets * 31;
    static struct run r;

    if (replay) {
        begin(&r, like, strtoull(replay, NULL, 0), subjects);
        r.trace = true;
        play(&r);
        end(&r, false);
        return;
    }
    /* A log may be large, so each run of logs has a segment of its own, without records of earlier runs in its slab. */
    bool keep = like->algorithm != WEIR_SLIDING_WINDOW_LOG;
    int failures = 0;
    steps = test_scaled(steps, RUN_STEPS);
    for (int64_t done = 0, i = 0; done < steps && failures < 3; i++) {
        begin(&r, like, test_random(&seed), subjects);
        play(&r);
        done += r.step + 1;
        failures += r.failed;
        end(&r, keep && i % 64 != 63);
    }
    weir_segment_close(r.segment);
    r.segment = NULL;
}

#endif
