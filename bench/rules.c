/*
 * ./dev bench rules: the cost of weir_check, from attributes to decision, compared with the bare core decision.
 *
 * One program, so that all cases run in one process and alternate: each round measures every case once, and the median
 * of the rounds counts. A malloc of this program, in front of the C library's, counts allocations a request.
 */
#include <weir/weir.h>

#include "rules/map.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { USERS = 100000, ROUNDS_MAX = 31, CASES_MAX = 12 };

static uint64_t allocations;

void *malloc(size_t size)
{
    static void *(*real)(size_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "malloc");
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return real(size);
}

static uint64_t random_state = 1;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static double now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

/* ---- Rules: a third exact, a third prefixes, a third globs ---- */

static void write_rule(FILE *to, int i, const char *wide)
{
    static const char *const shapes[] = {"/svc%d/items/list", "/svc%d/files/*", "/svc%d/*/orders"};
    char path[64];
    snprintf(path, sizeof path, shapes[i % 3], i);
    fprintf(to,
            "  - { name: rule-%d, match: { path: '%s', method: [GET, POST] }, key: 'user:${user_id}', limit: 1000000, "
            "window: 1s }\n",
            i, wide ? wide : path);
}

/* `wide` of the rules match every request of the bench, besides the one for its path. */
static char *make_rules(int count, int wide)
{
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    fprintf(to, "identity: { user_id: header:X-User-Id }\nrules:\n");
    for (int i = 0; i < count; i++)
        write_rule(to, i, i < wide ? (i % 2 ? "/*" : "/**") : NULL);
    fclose(to);
    return text;
}

static void path_for(int rule, char *path, size_t size)
{
    static const char *const shapes[] = {"/svc%d/items/list", "/svc%d/files/report.pdf", "/svc%d/4711/orders"};
    snprintf(path, size, shapes[rule % 3], rule);
}

/* ---- Requests ---- */

struct request {
    char path[64];
    char user[16];
};

static bool lookup(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    const struct request *r = context;
    const char *text = kind == WEIR_ATTR_PATH     ? r->path
                       : kind == WEIR_ATTR_METHOD ? "GET"
                       : kind == WEIR_ATTR_HOST   ? "api.example.com"
                       : kind == WEIR_ATTR_HEADER && name.len == 9 && memcmp(name.data, "x-user-id", 9) == 0 ? r->user
                                                                                                             : NULL;
    if (!text)
        return false;
    *value = (weir_text){text, strlen(text)};
    return true;
}

enum { REQUESTS = 4096 };

struct bench {
    const char *name;
    int rules;
    int wide;     /* rules that match every request */
    int one_in;   /* of how many requests does one match */
    weir *engine; /* NULL: the bare core decision */
    struct request *requests;
    double ns[ROUNDS_MAX];
    uint64_t allocated, checked;
    double load_ms;
};

static void prepare(struct bench *b, weir_segment *segment)
{
    b->requests = calloc(REQUESTS, sizeof *b->requests);
    for (int i = 0; i < REQUESTS; i++) {
        struct request *r = &b->requests[i];
        snprintf(r->user, sizeof r->user, "%d", (int)(next_random() % USERS));
        if (b->one_in > 1 && i % b->one_in)
            snprintf(r->path, sizeof r->path, "/other%d/items/list", (int)(next_random() % 1000));
        else
            path_for(b->wide + (b->rules ? (int)(next_random() % (uint64_t)(b->rules - b->wide)) : 0), r->path,
                     sizeof r->path);
    }
    if (!b->rules)
        return;
    char *text = make_rules(b->rules, b->wide);
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        weir_options how = {.attached = segment, .rules_text = text};
        double start = now_ns();
        if (weir_open(&how, &b->engine) != 0) {
            fprintf(stderr, "the bench's rules do not load\n");
            exit(1);
        }
        double took = (now_ns() - start) / 1e6;
        best = took < best ? took : best;
        if (i < 4)
            weir_close(b->engine);
    }
    b->load_ms = best;
    free(text);
}

static void check_all(struct bench *b, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        weir_query query = {.lookup = lookup, .lookup_context = &b->requests[i % REQUESTS]};
        weir_result answer;
        if (weir_check(b->engine, &query, &answer) != 0 || !weir_passes(&answer.decision) ||
            (b->one_in == 1 && answer.matched != (size_t)b->wide + 1)) {
            fprintf(stderr, "%s: a check went wrong (%zu matched)\n", b->name, answer.matched);
            exit(1);
        }
    }
}

static void take_all(const struct bench *b, weir_segment *segment, const weir_limit *limit, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const struct request *r = &b->requests[i % REQUESTS];
        weir_decision d;
        if (weir_take(segment, limit, r->user, strlen(r->user), 1, weir_clock(segment), &d) != 0 || !weir_passes(&d)) {
            fprintf(stderr, "a take went wrong\n");
            exit(1);
        }
    }
}

static void run(struct bench *b, weir_segment *segment, const weir_limit *limit, int round, uint64_t count)
{
    uint64_t before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
    double start = now_ns();
    if (b->engine)
        check_all(b, count);
    else
        take_all(b, segment, limit, count);
    b->ns[round] = (now_ns() - start) / (double)count;
    b->allocated += __atomic_load_n(&allocations, __ATOMIC_RELAXED) - before;
    b->checked += count;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(const double *values, int count)
{
    double sorted[ROUNDS_MAX];
    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    return sorted[count / 2];
}

/* Of each round's difference or ratio, the median: both saw the same machine. */
static double compare(const struct bench *a, const struct bench *b, int rounds, bool ratio)
{
    double values[ROUNDS_MAX];
    for (int i = 0; i < rounds; i++)
        values[i] = ratio ? a->ns[i] / b->ns[i] : a->ns[i] - b->ns[i];
    return median(values, rounds);
}

static void line(const char *name, int rules, double value, const char *unit, double bar)
{
    printf("{\"bench\":\"rules\",\"case\":\"%s\",\"rules\":%d,\"value\":%.4g,\"unit\":\"%s\"", name, rules, value,
           unit);
    if (bar >= 0)
        printf(",\"bar\":%.4g,\"most\":true,\"holds\":%s", bar, value <= bar ? "true" : "false");
    printf("}\n");
    fflush(stdout);
}

/* ---- A map of a million API keys to plans ---- */

enum { PLANS = 1000000, LOOKUPS = 1 << 16 };

/* NULL: there is no memory. */
static struct weir__map *make_plans(void)
{
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);
    if (!to)
        return NULL;
    for (int i = 0; i < PLANS; i++)
        fprintf(to, "key-%08x-%07d,%s\n", (unsigned)i * 2654435761u, i, i % 9 ? "free" : "pro");
    fclose(to);
    struct weir__source source = {.name = "plans.csv", .text = {text, len}};
    struct weir__diagnostics report = {.sources = &source, .source_count = 1};
    struct weir__map *map = weir__map_read(&report, WEIR__TEXT("api_key"), WEIR__TEXT("tier"));
    free(text);
    return map;
}

/* ns for the look-up of a random key; the keys are formatted before, so that only look-ups are timed. */
static double time_lookups(const struct weir__map *map)
{
    static char keys[LOOKUPS][32];
    static uint8_t lens[LOOKUPS];
    uint64_t found = 0;
    for (int i = 0; i < LOOKUPS; i++) {
        unsigned number = (unsigned)(next_random() % PLANS);
        lens[i] = (uint8_t)snprintf(keys[i], sizeof keys[i], "key-%08x-%07u", number * 2654435761u, number);
    }
    double begun = now_ns();
    for (int i = 0; i < LOOKUPS; i++)
        found += weir__map_find(map, (weir_text){keys[i], lens[i]}).len > 0;
    double took = (now_ns() - begun) / LOOKUPS;
    if (found != LOOKUPS)
        exit(1);
    return took;
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    int rounds = quick ? 7 : 21;
    uint64_t count = quick ? 100000 : 400000;
    struct bench all[] = {
        {.name = "core decision", .one_in = 1},
        {.name = "check", .rules = 1, .one_in = 1},
        {.name = "check", .rules = 100, .one_in = 1},
        {.name = "check", .rules = 10000, .one_in = 1},
        {.name = "check, 1 request in 100 matches", .rules = 10000, .one_in = 100},
        {.name = "check, 3 rules match", .rules = 3, .wide = 2, .one_in = 1},
        {.name = "check, 100 rules match", .rules = 10000, .wide = 99, .one_in = 1},
    };
    enum { CORE, ONE, HUNDRED, TEN_THOUSAND, RARE, THREE, MANY, CASES };
    weir_segment *segment;
    weir_segment_options how = {.size = 512 << 20};
    weir_limit limit;
    weir_params params = {.limit = 1000000, .window_ns = WEIR_SECOND, .id = 1};
    if (weir_segment_open(&how, &segment) != 0 || weir_limit_init(&limit, &params) != 0)
        return 1;
    for (int i = 0; i < CASES; i++)
        prepare(&all[i], segment);
    for (int round = -1; round < rounds; round++) /* the first is to warm up */
        for (int i = 0; i < CASES; i++)
            run(&all[i], segment, &limit, round < 0 ? 0 : round, i == MANY ? count / 50 : count);

    uint64_t allocated = 0, checked = 0;
    for (int i = 0; i < CASES; i++) {
        line(all[i].name, all[i].rules, median(all[i].ns, rounds), "ns", -1);
        allocated += all[i].engine ? all[i].allocated : 0;
        checked += all[i].engine ? all[i].checked : 0;
    }
    line("1 rule beyond the core decision", 1, compare(&all[ONE], &all[CORE], rounds, false), "ns", 250);
    line("10000 rules against 1", 10000, compare(&all[TEN_THOUSAND], &all[ONE], rounds, true), "ratio", 4);
    line("10000 rules, 1 request in 100 matches, against 1", 10000, compare(&all[RARE], &all[ONE], rounds, true),
         "ratio", 4);
    line("3 rules match, against 1", 3, compare(&all[THREE], &all[ONE], rounds, true), "ratio", 2.5);
    line("allocations a check", 10000, (double)allocated / (double)checked, "allocations", 0);
    line("loading 10000 rules", 10000, all[TEN_THOUSAND].load_ms, "ms", 200);
    struct weir__map *plans = make_plans();
    double lookups[ROUNDS_MAX];
    for (int round = -1; plans && round < rounds; round++)
        lookups[round < 0 ? 0 : round] = time_lookups(plans);
    if (!plans)
        return 1;
    line("look-up of a plan among 1,000,000 keys", 1, median(lookups, rounds), "ns", 200);
    weir__map_release(plans);
    for (int i = 0; i < CASES; i++) {
        weir_close(all[i].engine);
        free(all[i].requests);
    }
    weir_segment_close(segment);
    return 0;
}
