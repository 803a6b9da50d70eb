/*
 * Threads under rules of all kinds while the load changes all the time: limits shrink and grow, requests are shed, a
 * reserve is kept. In any interleaving nothing leaks: the units consumed are those that passed, and no permit stays
 * behind.
 */
#include "../engine.h"

#include "engine/engine.h"

#include <pthread.h>

enum { THREADS = 4, SLOTS = 10 };

static const char rules[] =
    "rules:\n"
    "  - { name: rate, limit: 1000000, window: 400d, algorithm: fixed_window, align: first_request,\n"
    "      adaptive: { min: 50% } }\n"
    "  - { name: quota, limit: 900000, window: 400d, elastic: { up_to: 150% } }\n"
    "  - { name: flight, limit: 10, algorithm: concurrency, lease: 1d, reserve: 40%, adaptive: { min: 50% } }\n"
    "  - { name: pay, match: { path: /pay }, limit: unlimited, priority: critical }\n"
    "  - { name: bulk, match: { path: /bulk }, limit: unlimited, priority: low }\n";

static weir *engine;
static uint64_t stopped;
static int64_t inside, most; /* permits in use, and the maximum */
static uint64_t shed;        /* not 0: a request was shed */

static void *change_load(void *unused)
{
    (void)unused;
    struct weir__load_view view = weir__load_view_neutral();
    for (uint32_t round = 0; !weir__load64(&stopped); round++) {
        view.level = round % 3 * 400;
        view.throttle = round % 5 * 250;
        view.shed[WEIR_LOW] = round % 4 * 300;
        view.shed[WEIR_NORMAL] = round % 7 ? 0 : 500;
        weir__load_page_write(engine->load, weir_clock(engine->segment).mono_ns, &view);
    }
    return NULL;
}

struct counts {
    int64_t passed, shed, denied, odd;
};

static void *send_requests(void *context)
{
    static const char *const lines[] = {"GET /pay", "GET /bulk", "GET /any"};
    struct counts *counts = context;
    /* On a busy machine the thread that changes the load starts late: more requests, until it has started. */
    int64_t count = test_scaled(60000, 2000);
    for (int64_t i = 0; i < count || (!weir__load64(&shed) && i < 20 * count); i++) {
        struct test_request r;
        weir_result result;
        weir_permits permit;
        test_request(&r, lines[i % 3]);
        r.query.permits = &permit;
        if (weir_check(engine, &r.query, &result) != 0)
            exit(1);
        if (!weir_passes(&result.decision)) {
            counts->shed += result.decided_by.reason == WEIR_BY_SHED;
            if (result.decided_by.reason == WEIR_BY_SHED && !weir__load64(&shed))
                weir__store64(&shed, 1);
            counts->denied += result.decided_by.reason != WEIR_BY_SHED;
            counts->odd += permit.count != 0 || (result.decided_by.reason == WEIR_BY_SHED) != (result.status == 503);
            continue;
        }
        counts->passed++;
        int64_t now = __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST), seen = __atomic_load_n(&most, __ATOMIC_SEQ_CST);
        while (now > seen && !__atomic_compare_exchange_n(&most, &seen, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            ;
        counts->odd += permit.count != 1;
        if (i % 4 == 0)
            sched_yield();
        __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        counts->odd += weir_permits_release(engine, &permit) != 1;
    }
    return NULL;
}

TEST(nothing_leaks_while_the_load_changes)
{
    weir_options how = {
        .segment = {.size = 8 << 20}, .rules_text = rules, .diagnose = test_print_diagnostic, .load = ""};
    pthread_t threads[THREADS], turner;
    struct counts counts_of[THREADS] = {{0}}, sum = {0};
    if (weir_open(&how, &engine) != 0)
        exit(1);
    CHECK_EQ(pthread_create(&turner, NULL, change_load, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, send_requests, &counts_of[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        sum.passed += counts_of[i].passed;
        sum.shed += counts_of[i].shed;
        sum.denied += counts_of[i].denied;
        sum.odd += counts_of[i].odd;
    }
    weir__store64(&stopped, 1);
    CHECK_EQ(pthread_join(turner, NULL), 0);
    CHECK_EQ(sum.odd, 0);
    CHECK(sum.passed > 0 && sum.shed > 0);
    CHECK(most <= SLOTS);
    /* Each counter has what passed: by its statistics, and by the remaining units under the current limit. */
    static const char *const counted[] = {"rate", "quota", "flight"};
    struct weir__load_view view = weir__load_view_neutral();
    view.level = WEIR__LOAD_FULL;
    weir__load_page_write(engine->load, weir_clock(engine->segment).mono_ns, &view);
    weir_time now = weir_clock(engine->segment);
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
        weir_outcome outcome;
        weir_rule_stats stats;
        CHECK_EQ(weir_rule_stats_read(engine, counted[i], false, &stats), 0);
        CHECK_EQ((int64_t)stats.allowed, sum.passed);
        CHECK_EQ(weir_key_state(engine, counted[i], "*", 1, now, &outcome), 0);
        int64_t used = outcome.decision.limit - outcome.decision.remaining;
        if (strcmp(counted[i], "flight") == 0)
            CHECK_EQ(used, 0);
        else /* one unit of the bucket is refilled in half a minute */
            CHECK(used <= sum.passed && used >= sum.passed - 20);
    }
    weir_close(engine);
}

TEST_MAIN
