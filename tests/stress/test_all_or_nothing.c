/*
 * Several rules on one request, taken all or nothing, from threads and from processes. The clock stands still, so
 * nothing is refilled: in the end each key must have given exactly what was admitted under it. One unit more admitted
 * is a violated limit; one unit less left is a denied request that consumed something.
 */
#include "stress.h"

#include "../engine.h"

#include "engine/fast_result.h"

enum { WORKERS = 4, USERS = 40, ADDRESSES = 10, TENANTS = 3 };

struct board {
    uint32_t user[USERS], address[ADDRESSES], tenant[TENANTS];
    uint32_t errors;
};

/* Per algorithm: three rules that deny at different moments. */
static const char *const algorithms[] = {
    "algorithm: token_bucket",
    "algorithm: token_bucket, refill: interval",
    "algorithm: leaky_bucket",
    "algorithm: fixed_window",
    "algorithm: sliding_window_log",
    "algorithm: sliding_window_counter",
    "algorithm: sliding_window_counter, buckets: 6",
};

enum { USER_LIMIT = 50, ADDRESS_LIMIT = 150, TENANT_LIMIT = 400 };

static void rules_text(char *text, size_t size, const char *algorithm)
{
    snprintf(text, size,
             "rules:\n"
             "  - { name: tenant, key: 't:${tenant}', limit: %d, window: 1d, %s }\n"
             "  - { name: address, key: 'a:${address}', limit: %d, window: 1d, %s }\n"
             "  - { name: user, key: 'u:${user_id}', limit: %d, window: 1d, %s }\n",
             TENANT_LIMIT, algorithm, ADDRESS_LIMIT, algorithm, USER_LIMIT, algorithm);
}

struct who {
    int user, address, tenant;
};

/* Checks one request; with a cost of 1 on the fast path, as the gateway does, and then `result` has only what that
 * path returns. */
static int check(weir *engine, struct who who, int64_t cost, weir_result *result, weir_outcome outcomes[3])
{
    char user[16], address[16], tenant[16], text[WEIR__FAST_RESULT_BYTES];
    struct weir__second reset = {0};
    struct weir__fast_result fast = {.reset = &reset, .headers = true, .text = text};
    snprintf(user, sizeof user, "%d", who.user);
    snprintf(address, sizeof address, "%d", who.address);
    snprintf(tenant, sizeof tenant, "%d", who.tenant);
    weir_attribute about[] = {
        {WEIR_ATTR_NAMED, "user_id", user}, {WEIR_ATTR_NAMED, "address", address}, {WEIR_ATTR_NAMED, "tenant", tenant}};
    weir_query query = {.attributes = about,
                        .attribute_count = 3,
                        .path = {"/", 1},
                        .has_cost = cost != 1,
                        .cost = cost,
                        .now = {STRESS_NOW, STRESS_NOW},
                        .outcomes = outcomes,
                        .outcomes_max = 3};
    if (cost != 1)
        return weir_check(engine, &query, result);
    int error = weir__check_fast(engine, &query, result, &fast);
    if (!error && fast.filled)
        *result = (weir_result){.matched = 3, .decision = {.verdict = WEIR_ALLOW}};
    return error;
}

static void work(weir *engine, struct board *board, uint64_t seed, int64_t requests)
{
    for (int64_t i = 0; i < requests; i++) {
        struct who who = {(int)(test_random(&seed) % USERS), (int)(test_random(&seed) % ADDRESSES),
                          (int)(test_random(&seed) % TENANTS)};
        uint32_t cost = 1 + (uint32_t)(test_random(&seed) % 5) / 2;
        weir_result result;
        weir_outcome outcomes[3];
        if (check(engine, who, cost, &result, outcomes) != 0 || result.matched != 3) {
            __atomic_fetch_add(&board->errors, 1, __ATOMIC_RELAXED);
        } else if (weir_passes(&result.decision)) {
            __atomic_fetch_add(&board->user[who.user], cost, __ATOMIC_RELAXED);
            __atomic_fetch_add(&board->address[who.address], cost, __ATOMIC_RELAXED);
            __atomic_fetch_add(&board->tenant[who.tenant], cost, __ATOMIC_RELAXED);
        }
    }
}

static void check_key(const uint32_t *admitted, int count, int64_t limit, weir *engine, int which)
{
    for (int i = 0; i < count; i++) {
        struct who who = {which == 2 ? i : 0, which == 1 ? i : 0, which == 0 ? i : 0};
        weir_result result;
        weir_outcome outcomes[3];
        CHECK_EQ(check(engine, who, 0, &result, outcomes), 0);
        CHECK(admitted[i] <= limit);
        CHECK_EQ(outcomes[which].decision.remaining, limit - admitted[i]);
    }
}

static void check_board(weir *engine, const struct board *board)
{
    int64_t admitted = 0;
    CHECK_EQ(board->errors, 0);
    for (int i = 0; i < TENANTS; i++)
        admitted += board->tenant[i];
    CHECK(admitted > TENANT_LIMIT); /* or the test would prove nothing */
    check_key(board->tenant, TENANTS, TENANT_LIMIT, engine, 0);
    check_key(board->address, ADDRESSES, ADDRESS_LIMIT, engine, 1);
    check_key(board->user, USERS, USER_LIMIT, engine, 2);
}

struct thread {
    pthread_t id;
    weir *engine;
    struct board *board;
    uint64_t seed;
};

static void *thread_main(void *argument)
{
    struct thread *t = argument;
    work(t->engine, t->board, t->seed, test_scaled(4000, 500));
    return NULL;
}

TEST(threads_take_all_or_nothing)
{
    for (size_t a = 0; a < sizeof algorithms / sizeof *algorithms; a++) {
        char text[1024];
        rules_text(text, sizeof text, algorithms[a]);
        struct board board = {0};
        struct thread threads[WORKERS];
        weir *engine = test_engine(text);
        for (int i = 0; i < WORKERS; i++) {
            threads[i] = (struct thread){.engine = engine, .board = &board, .seed = a * 100 + (uint64_t)i};
            CHECK_EQ(pthread_create(&threads[i].id, NULL, thread_main, &threads[i]), 0);
        }
        for (int i = 0; i < WORKERS; i++)
            pthread_join(threads[i].id, NULL);
        check_board(engine, &board);
        weir_close(engine);
    }
}

TEST(processes_take_all_or_nothing)
{
    char path[64];
    private_path(path, sizeof path, "segment");
    for (size_t a = 0; a < sizeof algorithms / sizeof *algorithms; a++) {
        char text[1024];
        rules_text(text, sizeof text, algorithms[a]);
        struct board *board = stress_shared(sizeof *board);
        weir_options how = {.segment = {.path = path, .size = 8 << 20, .flags = WEIR_OPEN_CREATE}, .rules_text = text};
        weir *engine;
        CHECK_EQ(weir_open(&how, &engine), 0);
        fflush(stdout);
        for (int i = 0; i < WORKERS; i++)
            if (fork() == 0) {
                weir *own; /* as every worker has: its own mapping and its own copy of the rules */
                if (weir_open(&how, &own) == 0)
                    work(own, board, a * 100 + (uint64_t)i, test_scaled(4000, 500));
                else
                    __atomic_fetch_add(&board->errors, 1, __ATOMIC_RELAXED);
                _exit(0);
            }
        while (wait(NULL) > 0 || errno == EINTR)
            ;
        check_board(engine, board);
        weir_close(engine);
        unlink(path);
        munmap(board, sizeof *board);
    }
}

TEST_MAIN
