/*
 * Threads under rules of all kinds while the load turns over all the time: limits shrink and grow, requests are shed, a
 * reserve is kept. However they meet, nothing leaks: what passed is what was taken, and no slot stays behind.
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
static int64_t inside, most; /* slots that are held, and the most at once */
static uint64_t shed;        /* not 0: somebody was */

static void *turn_over(void *unused)
{
    (void)unused;
    struct weir__load_view view = weir__load_view_neutral();
    for (uint32_t turn = 0; !weir__load64(&stopped); turn++) {
        view.level = turn % 3 * 400;
        view.throttle = turn % 5 * 250;
        view.shed[WEIR_LOW] = turn % 4 * 300;
        view.shed[WEIR_NORMAL] = turn % 7 ? 0 : 500;
        weir__load_page_write(engine->load, weir_clock(engine->segment).mono_ns, &view);
    }
    return NULL;
}

struct tally {
    int64_t passed, shed, denied, odd;
};

static void *ask(void *context)
{
    static const char *const lines[] = {"GET /pay", "GET /bulk", "GET /any"};
    struct tally *tally = context;
    /* Who turns the load over comes late on a busy machine: as many more, until he was there. */
    int64_t count = test_scaled(60000, 2000);
    for (int64_t i = 0; i < count || (!weir__load64(&shed) && i < 20 * count); i++) {
        struct test_request r;
        weir_result answer;
        weir_permits held;
        test_request(&r, lines[i % 3]);
        r.query.permits = &held;
        if (weir_check(engine, &r.query, &answer) != 0)
            exit(1);
        if (!weir_passes(&answer.decision)) {
            tally->shed += answer.decided_by.reason == WEIR_BY_SHED;
            if (answer.decided_by.reason == WEIR_BY_SHED && !weir__load64(&shed))
                weir__store64(&shed, 1);
            tally->denied += answer.decided_by.reason != WEIR_BY_SHED;
            tally->odd += held.count != 0 || (answer.decided_by.reason == WEIR_BY_SHED) != (answer.status == 503);
            continue;
        }
        tally->passed++;
        int64_t now = __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST), seen = __atomic_load_n(&most, __ATOMIC_SEQ_CST);
        while (now > seen && !__atomic_compare_exchange_n(&most, &seen, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            ;
        tally->odd += held.count != 1;
        if (i % 4 == 0)
            sched_yield();
        __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        tally->odd += weir_permits_release(engine, &held) != 1;
    }
    return NULL;
}

TEST(nothing_leaks_while_the_load_turns_over)
{
    weir_options how = {
        .segment = {.size = 8 << 20}, .rules_text = rules, .diagnose = test_print_diagnostic, .load = ""};
    pthread_t threads[THREADS], turner;
    struct tally tallies[THREADS] = {{0}}, sum = {0};
    if (weir_open(&how, &engine) != 0)
        exit(1);
    CHECK_EQ(pthread_create(&turner, NULL, turn_over, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, ask, &tallies[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        sum.passed += tallies[i].passed;
        sum.shed += tallies[i].shed;
        sum.denied += tallies[i].denied;
        sum.odd += tallies[i].odd;
    }
    weir__store64(&stopped, 1);
    CHECK_EQ(pthread_join(turner, NULL), 0);
    CHECK_EQ(sum.odd, 0);
    CHECK(sum.passed > 0 && sum.shed > 0);
    CHECK(most <= SLOTS);
    /* What each counter has is what passed: by its figures, and by what is left under the limit as it is now. */
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
        else /* of the bucket one comes back in half a minute */
            CHECK(used <= sum.passed && used >= sum.passed - 20);
    }
    weir_close(engine);
}

TEST_MAIN
