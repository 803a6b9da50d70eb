/* A thousand reloads under load: every request sees one rule set from beginning to end, and memory does not grow. */
#include "stress.h"

#include "../engine.h"

#include <malloc.h>

enum { READERS = 3, RULES = 8, PEACEFUL = 10 };

static char path[64];

/* All rules of a set have the same limit: a request that sees two limits has seen two sets. */
static void put(int64_t number)
{
    char fresh[80];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "w");
    fprintf(file, "rules:\n");
    for (int i = 0; i < RULES; i++)
        fprintf(file,
                "  - { name: r%d, match: { path: { regex: '^/[a-z]+%s' } }, key: 'k:${user_id}', limit: %" PRId64
                ", window: 1h, algorithm: fixed_window }\n",
                i, i % 2 ? "" : "$", number);
    fclose(file);
    rename(fresh, path);
}

struct reader {
    pthread_t id;
    weir *engine;
    int *stop;
    int64_t checks, mixed, failed;
};

static void *read_on(void *argument)
{
    struct reader *r = argument;
    struct test_request request;
    weir_outcome outcomes[RULES];
    test_request(&request, "GET /abc user_id=1");
    request.query.outcomes = outcomes;
    request.query.outcomes_max = RULES;
    request.query.has_cost = true; /* only peeks: the limit is what matters here */
    while (!__atomic_load_n(r->stop, __ATOMIC_ACQUIRE)) {
        weir_result decided;
        __atomic_fetch_add(&r->checks, 1, __ATOMIC_RELAXED);
        if (weir_check(r->engine, &request.query, &decided) != 0 || decided.outcomes != RULES) {
            r->failed++;
            continue;
        }
        for (int i = 1; i < RULES; i++)
            r->mixed += outcomes[i].quota != outcomes[0].quota;
    }
    return NULL;
}

static int64_t checks_of(struct reader readers[READERS])
{
    int64_t checks = 0;
    for (int i = 0; i < READERS; i++)
        checks += __atomic_load_n(&readers[i].checks, __ATOMIC_RELAXED);
    return checks;
}

static int64_t limit = 100, swapped;

/* Loads the next set, as soon as there is room for it: there is none while too many old ones are still in use. */
static void reload(weir *engine)
{
    put(++limit);
    for (int tries = 0, result = 0; result != 1 && tries < 60000; tries++) {
        result = weir_reload(engine);
        swapped += result == 1;
        if (result != 1)
            usleep(1000); /* so that their readers continue */
    }
}

/* Memory in use without any reader. */
static size_t used_without_readers(weir *engine)
{
    size_t most = 0;
    for (int i = 0; i < PEACEFUL; i++) {
        reload(engine);
        most = mallinfo2().uordblks > most ? mallinfo2().uordblks : most;
    }
    return most;
}

TEST(a_thousand_reloads_under_load)
{
    private_path(path, sizeof path, "rules.yaml");
    put(limit);
    weir_options how = {
        .segment = {.size = 4 << 20}, .rules_path = path, .diagnose = test_print_diagnostic, .flags = WEIR_NO_WATCH};
    weir *engine;
    CHECK_EQ(weir_open(&how, &engine), 0);
    size_t before = used_without_readers(engine);
    int stop = 0;
    struct reader readers[READERS];
    for (int i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.engine = engine, .stop = &stop};
        CHECK_EQ(pthread_create(&readers[i].id, NULL, read_on, &readers[i]), 0);
    }
    int64_t rounds = test_scaled(1000, 100);
    size_t most = 0;
    for (int64_t i = 1; i <= rounds; i++) {
        reload(engine);
        most = mallinfo2().uordblks > most ? mallinfo2().uordblks : most;
    }
    for (int i = 0; i < 60000 && checks_of(readers) <= rounds; i++) {
        usleep(1000); /* readers start late on a busy machine */
        reload(engine);
        rounds++;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i].id, NULL);
        CHECK_EQ(readers[i].mixed, 0);
        CHECK_EQ(readers[i].failed, 0);
    }
    CHECK(checks_of(readers) > rounds);
    CHECK(most <= before * (2 + READERS)); /* each reader keeps one set at most, however late it is */
    CHECK(used_without_readers(engine) <= before + before / 2);
    CHECK_EQ(swapped, rounds + 2 * PEACEFUL);
    weir_engine_stats stats;
    CHECK_EQ(weir_engine_stats_read(engine, &stats), 0);
    CHECK_EQ(stats.reloads, rounds + 2 * PEACEFUL);
    weir_close(engine);
    unlink(path);
}

TEST_MAIN
