/*
 * Cost and accuracy of the statistics: the rate of checks with and without the hot-key sampler, alternating; and the
 * list of the heaviest keys against exact counts. One JSON object a line, as DESIGN.md has it.
 *
 *     bench/control [--quick]
 *     bench/control on|off COUNT      only so many checks, to count instructions
 */
#include "engine/hot_key_sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEYS        1000000
#define REQUESTS    (1 << 20)
#define COUNTED_MAX 32768
#define PARTS       4 /* of as many requests, for the list of the heaviest */
#define ROUNDS_MAX  64
#define TOP         20
#define BAR_RATE    0.9
#define BAR_TOP     19

static const char rules[] = "rules:\n"
                            "  - name: api\n"
                            "    match: { path: /api/* }\n"
                            "    key: user:${user_id}\n"
                            "    limit: 4000000000\n"
                            "    window: 1h\n";

static char users[REQUESTS][12];
static uint32_t chosen[REQUESTS];
static uint64_t exact[KEYS];

static void fail(const char *what)
{
    fprintf(stderr, "bench/control: %s\n", what);
    exit(1);
}

/* The processor's time of this process: others may run at the same time. */
static double now_s(void)
{
    struct timespec at;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Users of the requests, by Zipf 0.99. */
static void choose(uint64_t *seed, size_t count)
{
    static double sum[KEYS];
    static double all;
    for (size_t i = 0; i < KEYS && !sum[KEYS - 1]; i++)
        sum[i] = all += 1 / pow((double)(i + 1), 0.99);
    for (size_t i = 0; i < count; i++) {
        double at = (double)(next_random(seed) >> 11) / 9007199254740992.0 * all;
        size_t low = 0, high = KEYS - 1;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (sum[middle] < at)
                low = middle + 1;
            else
                high = middle;
        }
        chosen[i] = (uint32_t)low;
        snprintf(users[i], sizeof users[i], "%zu", low);
    }
}

static bool lookup(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    const char *user = context;
    (void)name;
    *value = kind == WEIR_ATTR_PATH ? (weir_text){"/api/items", 10} : (weir_text){user, strlen(user)};
    return kind == WEIR_ATTR_PATH || kind == WEIR_ATTR_NAMED;
}

static weir *engine_new(bool hot)
{
    weir *engine;
    weir_options how = {.segment = {.size = UINT64_C(64) << 20}, .rules_text = rules, .hot = hot ? "" : NULL};
    if (weir_open(&how, &engine) != 0)
        fail("no engine");
    return engine;
}

static void check_all(weir *engine, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        weir_query query = {.lookup = lookup, .lookup_context = users[i % REQUESTS]};
        weir_result answer;
        if (weir_check(engine, &query, &answer) != 0 || !weir_passes(&answer.decision) || answer.matched != 1)
            fail("a check went wrong");
    }
}

/* ---- Cost ---- */

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

static void measure_cost(int rounds)
{
    /* Two pairs, of which either has the other first: where memory comes from makes a difference of some per cent. */
    weir *engine[4] = {engine_new(false), engine_new(true), NULL, NULL};
    engine[3] = engine_new(true);
    engine[2] = engine_new(false);
    double rate[2][ROUNDS_MAX], ratio[ROUNDS_MAX];
    for (int i = 0; i < 4; i++)
        check_all(engine[i], REQUESTS);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 2; i++) {
            int which = (round / 2 + i) % 2; /* each is first as often as the other */
            double start = now_s();
            check_all(engine[round % 2 * 2 + which], REQUESTS);
            rate[which][round] = REQUESTS / (now_s() - start);
        }
        ratio[round] = rate[1][round] / rate[0][round];
    }
    double part = median(ratio, rounds);
    const char *const names[] = {"check, hot keys off", "check, hot keys on"};
    for (int i = 0; i < 2; i++)
        printf("{\"bench\":\"control\",\"case\":\"%s\",\"keys\":%d,\"value\":%.0f,\"unit\":\"checks/s\"}\n", names[i],
               KEYS, median(rate[i], rounds));
    printf("{\"bench\":\"control\",\"case\":\"rate with hot keys on, of off\",\"keys\":%d,\"value\":%.4f,\"unit\":"
           "\"ratio\",\"bar\":%.2f,\"holds\":%s}\n",
           KEYS, part, BAR_RATE, part >= BAR_RATE ? "true" : "false");
    for (int i = 0; i < 4; i++)
        weir_close(engine[i]);
}

/* ---- Truth ---- */

/* How many of the true heaviest are in the list that the sketch gives. */
static int found_of_top(uint64_t seed)
{
    struct weir__hot_key keys[TOP];
    weir *engine = engine_new(true);
    memset(exact, 0, sizeof exact);
    for (int part = 0; part < PARTS; part++) {
        choose(&seed, REQUESTS);
        for (size_t i = 0; i < REQUESTS; i++)
            exact[chosen[i]]++;
        check_all(engine, REQUESTS);
    }
    const struct weir__hot_rule *panel =
        weir__hot_lookup(&engine->hot_sampler.hot, weir__rule_id((weir_text){"api", 3}, false));
    size_t count =
        panel ? weir__hot_top(panel, WEIR__HOT_ADMITTED, weir__hot_sampler_hash, engine->segment, keys, TOP) : 0;
    int found = 0;
    for (size_t i = 0; i < count; i++) {
        char text[WEIR__HOT_TEXT_MAX + 1] = "";
        memcpy(text, keys[i].text, keys[i].shown < WEIR__HOT_TEXT_MAX ? keys[i].shown : WEIR__HOT_TEXT_MAX);
        size_t user = strncmp(text, "user:", 5) == 0 ? strtoul(text + 5, NULL, 10) : KEYS, heavier = 0;
        for (size_t other = 0; user < KEYS && other < KEYS; other++)
            heavier += exact[other] > exact[user];
        found += user < KEYS && heavier < TOP;
    }
    weir_close(engine);
    return found;
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    int rounds = quick ? 16 : 40, tries = quick ? 5 : 11, least = TOP;
    uint64_t seed = 1;
    if (argc > 2) {
        for (size_t i = 0; i < COUNTED_MAX; i++) /* Zipf's shares would take longer than the checks */
            snprintf(users[i], sizeof users[i], "%u", (unsigned)(next_random(&seed) % COUNTED_MAX));
        weir *engine = engine_new(strcmp(argv[1], "on") == 0);
        check_all(engine, strtoul(argv[2], NULL, 10) % COUNTED_MAX);
        weir_close(engine);
        return 0;
    }
    choose(&seed, REQUESTS);
    measure_cost(rounds);
    double found[ROUNDS_MAX];
    for (int i = 0; i < tries; i++) {
        found[i] = found_of_top((uint64_t)i << 32);
        least = found[i] < least ? (int)found[i] : least;
    }
    double middle = median(found, tries);
    printf("{\"bench\":\"control\",\"case\":\"hot keys listed, of the true top 20, Zipf 0.99\",\"keys\":%d,"
           "\"requests\":%d,\"least\":%d,\"value\":%.0f,\"unit\":\"keys\",\"bar\":%d,\"holds\":%s}\n",
           KEYS, PARTS * REQUESTS, least, middle, BAR_TOP, middle >= BAR_TOP ? "true" : "false");
    return 0;
}
