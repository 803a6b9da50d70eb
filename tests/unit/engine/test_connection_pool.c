/*
 * weir_check sends the store requests itself: threads, processes, and a store that fails. The functions below are
 * registered instead of the real blocking client; the store is simulated.
 */
#include "base/clock.h"
#include "../../store.h"
#include "engine/strict.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_store store;
static pthread_mutex_t server = PTHREAD_MUTEX_INITIALIZER; /* executes one request at a time */
static int links, given_back;
static bool no_link;
static int slow_us;

/* A connection that detects use by two threads at once, or by another process. */
struct weir__blocking_client {
    int busy;
    pid_t process;
};

static void fake_stats(struct weir__blocking_client *link, struct weir__client_stats *stats)
{
    CHECK_EQ(link->process, getpid());
    *stats = (struct weir__client_stats){.requests = 2, .failed = 1, .state = WEIR__STORE_UP};
}

static struct weir__blocking_client *fake_new(const struct weir__store_options *options)
{
    CHECK_EQ(strcmp(options->prefix, "weir"), 0);
    struct weir__blocking_client *link = no_link ? NULL : calloc(1, sizeof *link);
    if (!link)
        return NULL;
    link->process = getpid();
    __atomic_add_fetch(&links, 1, __ATOMIC_RELAXED);
    return link;
}

static int fake_request(struct weir__blocking_client *link, struct weir__store_request *request)
{
    CHECK_EQ(link->process, getpid());
    CHECK_EQ(__atomic_add_fetch(&link->busy, 1, __ATOMIC_RELAXED), 1);
    if (slow_us)
        usleep((useconds_t)slow_us);
    pthread_mutex_lock(&server);
    test_store_execute(&store, request);
    pthread_mutex_unlock(&server);
    __atomic_add_fetch(&link->busy, -1, __ATOMIC_RELAXED);
    return request->error;
}

static void fake_refund(struct weir__blocking_client *link, const struct weir__store_request *request)
{
    CHECK_EQ(link->process, getpid());
    pthread_mutex_lock(&server);
    test_store_refund(&store, request);
    given_back += (int)request->op_count;
    pthread_mutex_unlock(&server);
}

/* Only its own process waits for the refunds that a connection owes. */
static void fake_flush_refunds(struct weir__blocking_client *link, int64_t most_us)
{
    CHECK_EQ(link->process, getpid());
    CHECK(most_us > 0 && most_us < 1000000);
}

static void fake_free(struct weir__blocking_client *link)
{
    __atomic_add_fetch(&links, -1, __ATOMIC_RELAXED);
    free(link);
}

static const struct weir__store_ops fake_ops = {.version = WEIR_VERSION,
                                                .open = fake_new,
                                                .close = fake_free,
                                                .request = fake_request,
                                                .refund = fake_refund,
                                                .flush_refunds = fake_flush_refunds,
                                                .stats = fake_stats};

static const char rules[] =
    "rules:\n"
    "  - { name: api, match: { path: /api/* }, key: \"u:${user_id}\", limit: 50, window: 1d, consistency: strict,\n"
    "      algorithm: fixed_window }\n"
    "  - { name: all, match: { path: /api/two }, limit: 120, window: 1d, consistency: strict }\n"
    "  - { name: shut, match: { path: /shut }, limit: 5, window: 1d, consistency: strict, on_store_failure: closed }\n"
    "  - { name: near, match: { path: /near }, limit: 5, window: 1d }\n";

static weir *begin(const char *url)
{
    weir_options how = {.segment = {.size = 8 << 20},
                        .rules_text = rules,
                        .diagnose = test_print_diagnostic,
                        .store = url ? url : "redis://127.0.0.1:1"};
    weir *engine = NULL;
    if (weir_store_register(&fake_ops) != 0 || weir_open(&how, &engine) != 0)
        exit(1);
    return engine;
}

TEST(check_sends_the_store_request)
{
    test_store_open(&store);
    weir *engine = begin(NULL), *other = begin(NULL);
    CHECK(test_passes(engine, "GET /near", 0));
    CHECK_EQ(links, 0); /* connections are opened on demand */
    CHECK_EQ(test_passing(engine, "GET /api/x user_id=1", 0, 30) + test_passing(other, "GET /api/x user_id=1", 0, 30),
             50);
    CHECK_EQ(links, 2);
    weir_engine_stats stats;
    CHECK_EQ(weir_engine_stats_read(engine, &stats), 0);
    CHECK_EQ(stats.store.requests, 2);
    CHECK_EQ(stats.store.failed, 1);
    CHECK(stats.store.up);
    /* Denied once, and not requested again. */
    int requests = store.requests;
    CHECK_EQ(test_passing(other, "GET /api/x user_id=1", 0, 100), 0);
    CHECK_EQ(store.requests, requests);
    weir_close(engine);
    weir_close(other);
    CHECK_EQ(links, 0);
    weir_segment_close(store.segment);
}

TEST(policy_decides_on_failure)
{
    test_store_open(&store);
    weir *engine = begin(NULL);
    store.error = WEIR_ESTOREDOWN;
    weir_result result = test_check(engine, "GET /shut", 0);
    CHECK(!weir_passes(&result.decision));
    CHECK_EQ(result.decided_by.error, WEIR_ESTOREDOWN);
    CHECK_EQ(test_passing(engine, "GET /api/x user_id=1", 0, 60), 50);
    store.error = 0;
    CHECK_EQ(test_passing(engine, "GET /shut", 0, 9), 5);
    weir_close(engine);
    /* No memory for a connection. */
    engine = begin(NULL);
    no_link = true;
    result = test_check(engine, "GET /shut", 0);
    CHECK(!weir_passes(&result.decision));
    CHECK_EQ(result.decided_by.error, WEIR_ENOMEM);
    no_link = false;
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(key_calls_send_store_requests)
{
    test_store_open(&store);
    weir *engine = begin(NULL), *other = begin(NULL);
    weir_time now = test_seconds(0);
    weir_outcome outcome;
    weir_decision decision;
    weir_taken taken = {.rule = "api", .key = "u:1", .key_len = 3, .quota = 50, .window_ns = WEIR_DAY};
    CHECK_EQ(test_passing(engine, "GET /api/x user_id=1", 0, 60), 50);
    CHECK_EQ(weir_key_state(other, "api", "u:1", 3, now, &outcome), 0);
    CHECK_EQ(outcome.decision.remaining, 0);
    CHECK(!weir_passes(&outcome.decision));
    CHECK_EQ(weir_key_settle(other, &taken, -20, now, &decision), 0);
    CHECK_EQ(decision.remaining, 20);
    CHECK_EQ(test_passing(other, "GET /api/x user_id=1", 0, 60), 20);
    CHECK_EQ(weir_key_reset(engine, "api", "u:1", 3, now), 0);
    CHECK_EQ(test_passing(engine, "GET /api/x user_id=1", 0, 60), 50);
    store.error = WEIR_ESTOREDOWN;
    CHECK_EQ(weir_key_state(engine, "api", "u:2", 3, now, &outcome), 0);
    CHECK_EQ(outcome.error, WEIR_ESTOREDOWN);
    CHECK_EQ(weir_key_reset(engine, "api", "u:1", 3, now), WEIR_ESTOREDOWN);
    CHECK_EQ(weir_key_settle(engine, &taken, -20, now, &decision), WEIR_ESTOREDOWN);
    CHECK_EQ(weir_key_settle(engine, &taken, INT64_MIN, now, &decision), WEIR_ECOST);
    CHECK_EQ(weir_key_state(NULL, "api", "u:2", 3, now, &outcome), WEIR_EINVAL);
    weir_close(engine);
    weir_close(other);
    weir_segment_close(store.segment);
}

/* ---- Concurrency ---- */

enum { THREADS = 24, KEYS = 4 };

struct hammer {
    weir *engine;
    int each, passed[KEYS], two;
};

static void *hammer(void *argument)
{
    struct hammer *me = argument;
    for (int i = 0; i < me->each; i++) {
        char line[64];
        int key = i % KEYS;
        snprintf(line, sizeof line, "GET /api/x user_id=%d", key);
        me->passed[key] += test_passes(me->engine, line, 0);
    }
    for (int i = 0; i < me->each / KEYS; i++)
        me->two += test_passes(me->engine, "GET /api/two user_id=two", 0);
    return NULL;
}

static bool read_on;

/* Statistics can be read while connections are in use. */
static void *read_stats(void *engine)
{
    while (__atomic_load_n(&read_on, __ATOMIC_RELAXED)) {
        weir_engine_stats seen;
        CHECK_EQ(weir_engine_stats_read(engine, &seen), 0);
        CHECK(seen.store.requests <= UINT64_C(2) * WEIR__POOL_CONNECTIONS);
    }
    return NULL;
}

TEST(threads_share_connections_and_the_limit)
{
    test_store_open(&store);
    weir *engine = begin("redis://127.0.0.1:1?deadline=60s"); /* a long deadline */
    static struct hammer hammers[THREADS];
    pthread_t threads[THREADS], reader;
    int passed[KEYS] = {0}, two = 0;
    slow_us = 200;
    read_on = true;
    CHECK_EQ(pthread_create(&reader, NULL, read_stats, engine), 0);
    for (int i = 0; i < THREADS; i++) {
        hammers[i] = (struct hammer){.engine = engine, .each = 100};
        CHECK_EQ(pthread_create(&threads[i], NULL, hammer, &hammers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        for (int key = 0; key < KEYS; key++)
            passed[key] += hammers[i].passed[key];
        two += hammers[i].two;
    }
    __atomic_store_n(&read_on, false, __ATOMIC_RELAXED);
    pthread_join(reader, NULL);
    slow_us = 0;
    for (int key = 0; key < KEYS; key++)
        CHECK_EQ(passed[key], 50);
    CHECK_EQ(two, 50);
    CHECK(links > 1 && links <= WEIR__POOL_CONNECTIONS);
    weir_rule_stats stats;
    CHECK_EQ(weir_rule_stats_read(engine, "api", false, &stats), 0);
    CHECK_EQ(stats.failures, 0);
    weir_close(engine);
    CHECK_EQ(links, 0);
    weir_segment_close(store.segment);
}

struct late {
    weir *engine;
    struct weir__pooled_connection *got;
    int error;
};

static void *borrow(void *argument)
{
    struct late *late = argument;
    late->got = weir__connection_pool_acquire(late->engine, &late->error);
    return NULL;
}

TEST(waiter_gets_first_returned_connection)
{
    test_store_open(&store);
    weir *engine = begin("redis://127.0.0.1:1?deadline=60s");
    struct weir__pooled_connection *all[WEIR__POOL_CONNECTIONS];
    int error = 0;
    for (int i = 0; i < WEIR__POOL_CONNECTIONS; i++) {
        all[i] = weir__connection_pool_acquire(engine, &error);
        CHECK(all[i] && error == 0);
    }
    for (int i = 0; i < WEIR__POOL_CONNECTIONS; i++) { /* whichever it is */
        struct late late = {.engine = engine};
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, borrow, &late), 0);
        usleep(2000);
        weir__connection_pool_release(all[i]);
        pthread_join(thread, NULL);
        CHECK(late.got == all[i] && late.error == 0);
    }
    weir_engine_stats stats; /* of connections that are returned; no wait for others */
    CHECK_EQ(weir_engine_stats_read(engine, &stats), 0);
    CHECK_EQ(stats.store.requests, 2 * WEIR__POOL_CONNECTIONS);
    for (int i = 0; i < WEIR__POOL_CONNECTIONS; i++)
        weir__connection_pool_release(all[i]);
    weir_close(engine);
    CHECK_EQ(links, 0);
    weir_segment_close(store.segment);
}

TEST(waiter_without_a_connection_gets_an_error)
{
    test_store_open(&store);
    weir *engine = begin("redis://127.0.0.1:1?deadline=20ms");
    struct weir__pooled_connection *all[WEIR__POOL_CONNECTIONS];
    int error = 0;
    for (int i = 0; i < WEIR__POOL_CONNECTIONS; i++)
        all[i] = weir__connection_pool_acquire(engine, &error);
    int64_t begun = weir__monotonic_us();
    CHECK(!weir__connection_pool_acquire(engine, &error));
    CHECK_EQ(error, WEIR_ESTORESLOW);
    CHECK(weir__monotonic_us() - begun >= 20000);
    for (int i = 0; i < WEIR__POOL_CONNECTIONS; i++)
        weir__connection_pool_release(all[i]);
    CHECK(test_passes(engine, "GET /api/x user_id=1", 0));
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST(forked_process_has_its_own_connections)
{
    enum { PROCESSES = 4 };
    test_store_open(&store);
    weir *engine = begin(NULL);
    CHECK_EQ(test_passing(engine, "GET /api/x user_id=1", 0, 10), 10);
    int children[PROCESSES], passed = 0;
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            test_failures = 0;
            int mine = test_passing(engine, "GET /api/x user_id=1", 0, 30);
            weir_close(engine);
            fflush(stdout);
            _exit(test_failures ? 255 : mine);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        CHECK_EQ(waitpid(children[i], &status, 0), children[i]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 255);
        passed += WEXITSTATUS(status);
    }
    CHECK_EQ(passed, 40);
    CHECK_EQ(test_passing(engine, "GET /api/x user_id=1", 0, 10), 0);
    weir_close(engine);
    weir_segment_close(store.segment);
}

TEST_MAIN
