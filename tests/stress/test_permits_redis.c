/*
 * Permits of several hosts with a real Redis and kill -9. Each holder is a process with a segment of its own. A holder
 * of a permit sets its bit in a mask of the key: after it has acquired the permit, and no longer than until it
 * releases it. There are never more bits than the limit; and when the leases have expired every permit is available
 * again, however many processes have died holding one, or while acquiring or releasing one.
 */
#include "stress.h"

#include <weir/store.h>

#include "../engine.h"
#include "../unit/remote/server.h"

#include <time.h>

enum { KEYS = 6, WORKERS = 4, HANDS = 6, SLOTS = 5, ROUND = 100 };

static const char rules[] =
    "rules:\n"
    "  - { name: slow, key: '${user_id}', algorithm: concurrency, limit: 5, lease: 1m, consistency: strict,\n"
    "      on_store_failure: closed }\n"
    "  - { name: rate, limit: 4000000000, window: 30d, algorithm: fixed_window, consistency: strict,\n"
    "      on_store_failure: closed }\n";

struct board {
    uint64_t mask[KEYS];
    uint64_t over, failed, taken, denied, lost;
};

static struct board *board;

static weir *host(void)
{
    char url[192];
    snprintf(url, sizeof url, "redis+unix://%s?deadline=30s&connect_timeout=30s", server.socket);
    weir_options how = {
        .segment = {.size = 1 << 20}, .rules_text = rules, .diagnose = test_print_diagnostic, .store = url};
    weir *engine = NULL;
    if (weir_store_use() != 0 || weir_open(&how, &engine) != 0)
        exit(1);
    return engine;
}

static void add(uint64_t *to)
{
    __atomic_fetch_add(to, 1, __ATOMIC_RELAXED);
}

static bool hold(weir *engine, uint64_t key, weir_permits *permits)
{
    struct test_request r;
    weir_result result;
    char line[32];
    snprintf(line, sizeof line, "GET / user_id=%d", (int)key);
    test_request(&r, line);
    r.query.permits = permits;
    if (weir_check(engine, &r.query, &result) != 0 || result.decided_by.error)
        add(&board->failed);
    bool passes = weir_passes(&result.decision);
    add(passes ? &board->taken : &board->denied);
    return passes;
}

struct hand {
    weir_permits permits;
    uint64_t key;
    bool holds;
};

static void step(weir *engine, struct hand *hand, uint64_t bit, uint64_t *seed)
{
    if (hand->holds && test_random(seed) % 4 == 0) {
        if (weir_permits_renew(engine, &hand->permits) != 0)
            add(&board->lost);
        return;
    }
    if (hand->holds) {
        weir_permits copy;
        memcpy(&copy, &hand->permits, weir_permits_size(&hand->permits));
        __atomic_fetch_and(&board->mask[hand->key], ~bit, __ATOMIC_SEQ_CST);
        if (weir_permits_release(engine, &hand->permits) != 1)
            add(&board->lost);
        if (test_random(seed) % 2 && weir_permits_release(engine, &copy) != 0)
            add(&board->failed);
        hand->holds = false;
        return;
    }
    hand->key = test_random(seed) % KEYS;
    hand->holds = hold(engine, hand->key, &hand->permits);
    if (!hand->holds)
        return;
    uint64_t holders = __atomic_fetch_or(&board->mask[hand->key], bit, __ATOMIC_SEQ_CST) | bit;
    if (__builtin_popcountll(holders) > SLOTS)
        add(&board->over);
}

/* Every permit is renewed or released long before its lease ends, however slow the machine. */
static void work(int worker, uint64_t seed)
{
    weir *engine = host();
    struct hand *hands = calloc(HANDS, sizeof *hands);
    if (!hands)
        exit(1);
    for (uint64_t i = 0;; i = (i + 1) % HANDS)
        step(engine, &hands[i], UINT64_C(1) << ((uint64_t)worker * HANDS + i), &seed);
}

static pid_t start(int worker, uint64_t seed)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        work(worker, seed);
    return child;
}

static void end(pid_t child, int worker)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (int key = 0; key < KEYS; key++)
        __atomic_fetch_and(&board->mask[key], ~(((UINT64_C(1) << HANDS) - 1) << worker * HANDS), __ATOMIC_SEQ_CST);
}

/*
 * Expires all leases by changing what the server has stored. Before that, the server executes what the killed
 * processes had sent: a reply is sent when everything received with its request is done.
 */
static void end_leases(void)
{
    server_do("PING");
    redisReply *reply = redisCommand(server.context, "EVAL %s 0",
                                     "for _, name in ipairs(redis.call('KEYS', '*')) do\n"
                                     "if redis.call('TYPE', name).ok == 'zset' then\n"
                                     "for _, lease in ipairs(redis.call('ZRANGE', name, 0, -1)) do\n"
                                     "redis.call('ZINCRBY', name, -60000000, lease)\n"
                                     "end\n"
                                     "end\n"
                                     "end\n"
                                     "return 1");
    CHECK(reply && reply->type == REDIS_REPLY_INTEGER);
    freeReplyObject(reply);
}

static void check_all_free(void)
{
    weir *engine = host();
    weir_permits *permits = calloc(SLOTS + 1, sizeof *permits);
    for (uint64_t key = 0; key < KEYS && permits; key++) {
        int got = 0;
        for (int i = 0; i <= SLOTS; i++)
            got += hold(engine, key, &permits[i]);
        CHECK_EQ(got, SLOTS);
        for (int i = 0; i < SLOTS; i++)
            CHECK_EQ(weir_permits_release(engine, &permits[i]), 1);
    }
    free(permits);
    weir_close(engine);
}

/* On a busy machine processes are killed before they have acquired anything: waits until more was acquired than
 * processes died. */
static void until_taken(int64_t died)
{
    for (int i = 0; i < 10000 && __atomic_load_n(&board->taken, __ATOMIC_RELAXED) <= (uint64_t)died + WORKERS; i++)
        usleep(1000);
}

TEST(killed_holders_lose_no_permit)
{
    uint64_t seed = 15;
    pid_t child[WORKERS];
    int64_t deaths = test_scaled(1000, 60), died = 0;
    if (!server_start())
        return;
    server_do("FLUSHALL");
    board = stress_shared(sizeof *board);
    while (died < deaths || (!board->denied && died < 100 * deaths)) {
        for (int i = 0; i < WORKERS; i++)
            child[i] = start(i, test_random(&seed));
        for (int i = 0; i < ROUND - WORKERS; i++, died++) {
            usleep((useconds_t)(1000 + test_random(&seed) % 9000));
            until_taken(died);
            int at = (int)(test_random(&seed) % WORKERS);
            end(child[at], at);
            child[at] = start(at, test_random(&seed));
            if (i % 16 == 7)
                server_do("SCRIPT FLUSH");
        }
        for (int i = 0; i < WORKERS; i++, died++)
            end(child[i], i);
        end_leases();
        check_all_free();
    }
    CHECK_EQ(board->over, 0);
    CHECK_EQ(board->failed, 0);
    CHECK_EQ(board->lost, 0);
    CHECK(board->taken > (uint64_t)died && board->denied > 0);
    munmap(board, sizeof *board);
}

TEST_MAIN
