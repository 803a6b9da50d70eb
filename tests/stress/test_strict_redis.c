/*
 * Strict rules with a real Redis: hosts (processes with a segment each) and their threads use the same keys, and
 * exactly the limit passes; a stalled Redis costs at most the deadline, and then the policy decides.
 */
#include "stress.h"

#include <weir/store.h>

#include "../awake.h"
#include "../engine.h"
#include "../unit/remote/server.h"

#include <time.h>

enum { HOSTS = 3, THREADS = 3, KEYS = 12, LIMIT = 7, RULES = 8, TRIES = 3 * LIMIT };

/* One path per rule; windows that do not end while the test runs. */
#define RULE(name, more)                                                                                               \
    "  - { name: " name ", match: { path: /" name                                                                      \
    " }, key: \"${user_id}\", limit: 7, window: 30d, consistency: strict" more " }\n"

static const char rules[] = "rules:\n" RULE("0", "") RULE("1", ", refill: interval")
    RULE("2", ", algorithm: leaky_bucket") RULE("3", ", algorithm: fixed_window")
        RULE("4", ", algorithm: sliding_window_counter") RULE("5", ", algorithm: sliding_window_counter, buckets: 6")
            RULE("6", ", algorithm: sliding_window_log") RULE("7", ", algorithm: fixed_window, align: first_request")
    /* Two rules at once: the first loses nothing that the second denies. */
    "  - { name: half, match: { path: /both }, key: \"${user_id}\", limit: 7, window: 30d, consistency: strict }\n"
    "  - { name: whole, match: { path: /both }, limit: 50, window: 30d, consistency: strict }\n"
    "  - { name: here, match: { path: /here }, key: \"${user_id}\", limit: 3, window: 30d }\n"
    "  - { name: far, match: { path: /here }, limit: 60000, window: 30d, consistency: strict,\n"
    "      algorithm: sliding_window_log }\n";

static weir *host(const char *with, const char *text)
{
    char url[192];
    snprintf(url, sizeof url, "redis+unix://%s?%s", server.socket, with);
    weir_options how = {
        .segment = {.size = 8 << 20}, .rules_text = text, .diagnose = test_print_diagnostic, .store = url};
    weir *engine = NULL;
    int error = weir_store_use();
    if (!error)
        error = weir_open(&how, &engine);
    if (error) {
        printf("  weir_open: %s\n", weir_strerror(error));
        exit(1);
    }
    return engine;
}

static weir_result check_now(weir *engine, const char *line)
{
    struct test_request r;
    weir_result result;
    test_request(&r, line);
    if (weir_check(engine, &r.query, &result) != 0)
        exit(1);
    return result;
}

/* ---- Exactly the limit ---- */

struct shared {
    int passed[RULES][KEYS], both[KEYS], here[KEYS], failed;
};

static struct shared *shared;

static void *hammer(void *argument)
{
    weir *engine = argument;
    char line[64];
    for (int try = 0; try < TRIES; try++)
        for (int key = 0; key < KEYS; key++) {
            for (int rule = 0; rule <= RULES + 1; rule++) {
                if (rule < RULES)
                    snprintf(line, sizeof line, "GET /%d user_id=%d", rule, key);
                else
                    snprintf(line, sizeof line, "GET /%s user_id=%d", rule == RULES ? "both" : "here", key);
                weir_result result = check_now(engine, line);
                int *passed = rule < RULES    ? &shared->passed[rule][key]
                              : rule == RULES ? &shared->both[key]
                                              : &shared->here[key];
                if (weir_passes(&result.decision))
                    __atomic_add_fetch(passed, 1, __ATOMIC_RELAXED);
                if (result.decided_by.error)
                    __atomic_add_fetch(&shared->failed, 1, __ATOMIC_RELAXED);
            }
        }
    return NULL;
}

static int64_t left_of(weir *engine, const char *rule, const char *key)
{
    weir_outcome outcome;
    CHECK_EQ(weir_key_state(engine, rule, key, strlen(key), (weir_time){0, 0}, &outcome), 0);
    CHECK_EQ(outcome.error, 0);
    return outcome.decision.remaining;
}

TEST(hosts_and_threads_get_exactly_the_limit)
{
    if (!server_start())
        return;
    server_do("FLUSHALL");
    shared = stress_shared(sizeof *shared);
    pid_t hosts[HOSTS];
    fflush(stdout);
    for (int i = 0; i < HOSTS; i++) {
        hosts[i] = fork();
        if (hosts[i] == 0) {
            pthread_t threads[THREADS];
            weir *engine = host("deadline=30s&connect_timeout=30s", rules);
            for (int t = 0; t < THREADS; t++)
                pthread_create(&threads[t], NULL, hammer, engine);
            for (int t = 0; t < THREADS; t++)
                pthread_join(threads[t], NULL);
            weir_close(engine);
            _exit(0);
        }
    }
    for (int i = 0; i < 20; i++) { /* the script must be loaded again, in the middle of it */
        usleep(20000);
        server_do("SCRIPT FLUSH");
    }
    for (int i = 0; i < HOSTS; i++) {
        int status = 1;
        CHECK_EQ(waitpid(hosts[i], &status, 0), hosts[i]);
        CHECK_EQ(status, 0);
    }
    int both = 0, here = 0;
    for (int key = 0; key < KEYS; key++) {
        for (int rule = 0; rule < RULES; rule++)
            CHECK_EQ(shared->passed[rule][key], LIMIT);
        CHECK(shared->both[key] <= LIMIT);
        both += shared->both[key];
        CHECK_EQ(shared->here[key], 3 * HOSTS); /* each host has its own local limit */
        here += shared->here[key];
    }
    CHECK_EQ(both, 50);
    CHECK_EQ(shared->failed, 0);
    /* What was not admitted was not taken, or was refunded. */
    weir *engine = host("deadline=30s&connect_timeout=30s", rules);
    int64_t used = 0;
    for (int key = 0; key < KEYS; key++) {
        char name[16];
        snprintf(name, sizeof name, "%d", key);
        used += LIMIT - left_of(engine, "half", name);
    }
    CHECK_EQ(used, 50);
    CHECK_EQ(60000 - left_of(engine, "far", "*"), here);
    weir_close(engine);
    munmap(shared, sizeof *shared);
}

/* ---- A stalled store ---- */

static const char policies[] =
    "rules:\n"
    "  - { name: open, match: { path: /open }, limit: 2, window: 30d, consistency: strict, on_store_failure: open }\n"
    "  - { name: shut, match: { path: /shut }, limit: 1000, window: 30d, consistency: strict,\n"
    "      on_store_failure: closed }\n"
    "  - { name: near, match: { path: /near }, limit: 5, window: 30d, consistency: strict }\n";

static int64_t now_ms(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

TEST(stalled_store_costs_at_most_the_deadline)
{
    enum { REQUESTS = 60, DEADLINE_MS = 20, SLACK_MS = 250 };
    if (!server_start())
        return;
    server_do("FLUSHALL");
    weir *engine = host("deadline=20ms", policies);
    weir_result result = check_now(engine, "GET /shut");
    CHECK(weir_passes(&result.decision) || result.decided_by.reason == WEIR_BY_FAILURE); /* the first has to connect */
    kill(server.pid, SIGSTOP);
    int open = 0, shut = 0, near = 0, late = 0;
    for (int i = 0; i < REQUESTS; i++) {
        int64_t start = now_ms();
        weir_result of_open = check_now(engine, "GET /open"), of_shut = check_now(engine, "GET /shut"),
                    of_near = check_now(engine, "GET /near");
        open += weir_passes(&of_open.decision);
        shut += weir_passes(&of_shut.decision);
        near += weir_passes(&of_near.decision);
        late += now_ms() - start >= 3 * DEADLINE_MS + SLACK_MS;
    }
    CHECK_EQ(open, REQUESTS);
    CHECK_EQ(shut, 0);
    CHECK_EQ(near, 5);
    CHECK(late <=
          REQUESTS / 4); /* a busy machine stalls at times; a request that waited for the store would always be late */
    weir_engine_stats stats;
    CHECK_EQ(weir_engine_stats_read(engine, &stats), 0);
    /* The breaker opens: not every request waits. */
    CHECK(stats.store.slow < REQUESTS * 3 / 2);
    CHECK(stats.store.refused > 0);
    CHECK(stats.store.slow > 0);
    CHECK(!stats.store.up);
    CHECK(stats.store.error != 0);

    kill(server.pid, SIGCONT);
    double back = awake_seconds(), slow = (double)stats.store.slow;
    do {
        usleep(5000);
        result = check_now(engine, "GET /shut");
    } while (!weir_passes(&result.decision) && awake_seconds() - back < 60);
    CHECK_EQ(result.decided_by.reason, WEIR_BY_LIMIT);
    CHECK_EQ(weir_engine_stats_read(engine, &stats), 0);
    /* Probes come at least once a second; but on a busy machine not each is replied to within 20 ms. */
    CHECK(awake_seconds() - back < 5 + (double)stats.store.slow - slow);
    CHECK(stats.store.up);
    weir_close(engine);
}

TEST(engine_opens_without_a_store)
{
    char url[192];
    snprintf(url, sizeof url, "redis+unix:///nonexistent/socket");
    weir_options how = {.segment = {.size = 8 << 20}, .rules_text = policies, .store = url};
    weir *engine = NULL;
    CHECK_EQ(weir_store_use(), 0);
    CHECK_EQ(weir_open(&how, &engine), 0);
    weir_result result = check_now(engine, "GET /shut");
    CHECK(!weir_passes(&result.decision));
    CHECK(result.decided_by.error != 0);
    result = check_now(engine, "GET /near");
    CHECK(weir_passes(&result.decision));
    weir_close(engine);
}

TEST_MAIN
