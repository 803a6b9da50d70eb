/* `bench/core`: the cases, their bars, and the command line. */
#include "core.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASE_TOKEN = 1, CASE_CLOCK = 2, CASE_HOT = 4, CASE_ALGORITHMS = 8, CASE_DENIED = 16, CASE_ALL = 31 };
enum { LIST_MAX = 8 };

#define MILLION UINT64_C(1000000)
#define PLENTY  INT64_C(1000000000) /* so much that no request of a whole run is denied */

struct options {
    bool json, quick, help;
    const char *directory; /* NULL: anonymous */
    unsigned cases;
    uint64_t keys[LIST_MAX];
    int key_counts;
    int threads[LIST_MAX];
    int thread_counts;
    bool uniform, zipf;
    int rounds, round_ms;
};

static const struct weir__bench_kind token = {
    .algorithm = "token_bucket",
    .params = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .window_ns = WEIR_SECOND, .burst = PLENTY},
    .slots = 1,
    .bytes_bar = 20,
    .routed = true,
};

static const struct weir__bench_kind denied = {
    .algorithm = "token_bucket",
    .params = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1, .window_ns = WEIR_DAY},
    .slots = 1,
    .denied = true,
};

/* The others. Those with a slab get one of half the segment, the most there can be, and fewer keys. */
static const struct weir__bench_kind others[] = {
    {.algorithm = "token_bucket (interval)",
     .params = {.algorithm = WEIR_TOKEN_BUCKET,
                .limit = PLENTY,
                .window_ns = 60 * WEIR_SECOND,
                .refill = WEIR_REFILL_INTERVAL},
     .slots = 1,
     .bytes_bar = 20},
    {.algorithm = "leaky_bucket",
     .params = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 100, .window_ns = WEIR_SECOND, .burst = PLENTY},
     .slots = 1,
     .bytes_bar = 20},
    {.algorithm = "fixed_window",
     .params = {.algorithm = WEIR_FIXED_WINDOW, .limit = PLENTY, .window_ns = 60 * WEIR_SECOND},
     .slots = 1,
     .bytes_bar = 20},
    {.algorithm = "sliding_window_counter(2)",
     .params = {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 30000, .window_ns = 60 * WEIR_SECOND},
     .slots = 1,
     .bytes_bar = 36,
     .tight = true},
    /* Over 32767 its two counts do not fit into one slot. */
    {.algorithm = "sliding_window_counter(2), large",
     .params = {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = PLENTY, .window_ns = 60 * WEIR_SECOND},
     .slots = 2,
     .bytes_bar = 36},
    {.algorithm = "sliding_window_counter(10)",
     .params =
         {.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = PLENTY, .window_ns = 10 * WEIR_SECOND, .buckets = 10},
     .slots = 1,
     .slab = 256},
    /* At the pace of the bench's time each of 100 thousand keys has about 50 requests a window, so its log is that
       long. */
    {.algorithm = "sliding_window_log",
     .params = {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 250, .window_ns = WEIR_SECOND / 10},
     .slots = 1,
     .slab = 2048,
     .tight = true},
};

/* ---- Cases ---- */

static bool is_bound(const struct weir__bench_contender *who)
{
    return who->mode == WEIR__BENCH_BOUND || who->mode == WEIR__BENCH_ROUTE;
}

static struct weir__bench_result line_of(const struct weir__bench_contender *who, double value, const char *unit)
{
    bool bare = is_bound(who);
    return (struct weir__bench_result){.name = who->name,
                                       .algorithm = bare ? "none" : who->table->kind->algorithm,
                                       .distribution = who->keys->distribution,
                                       .keys = who->table->keys,
                                       .threads = who->threads,
                                       .value = value,
                                       .unit = unit};
}

static void print_rate(const struct options *o, const struct weir__bench_contender *who)
{
    struct weir__bench_result line = line_of(who, weir__bench_median(who->rate, o->rounds), "decisions/s");
    if (is_bound(who))
        line.unit = "swaps/s";
    if (who->mode == WEIR__BENCH_IN_BATCHES && who->table->keys == 100 * MILLION && who->threads == 2 &&
        strcmp(who->keys->distribution, "uniform") == 0) {
        line.sense = WEIR__BENCH_AT_LEAST;
        line.bar = 10e6;
    }
    weir__bench_print(o->json, &line);
}

/* `bar` 0: none. */
static void print_ratio(const struct options *o, const char *name, const struct weir__bench_contender *who,
                        const struct weir__bench_contender *than, double bar)
{
    struct weir__bench_result line = line_of(who, weir__bench_ratio(who, than, o->rounds), "ratio");
    line.name = name;
    line.sense = bar > 0 ? WEIR__BENCH_AT_LEAST : WEIR__BENCH_NO_BAR;
    line.bar = bar;
    weir__bench_print(o->json, &line);
}

static void tell_bytes(const struct options *o, const struct weir__bench_table *table)
{
    struct weir__bench_result line = {.name = "bytes a key at 90 % full",
                                      .algorithm = table->kind->algorithm,
                                      .distribution = "each once",
                                      .keys = table->keys,
                                      .threads = weir__bench_processors(),
                                      .value = table->bytes_a_key,
                                      .unit = "bytes/key",
                                      .bar = table->kind->bytes_bar,
                                      .unsound = table->evicted_live != 0};
    if (table->keys >= MILLION) /* in a tiny segment the header weighs more than the keys */
        line.sense = WEIR__BENCH_AT_MOST;
    if (table->evicted_live)
        weir__bench_note("%s, %llu keys: %llu were evicted while live", table->kind->algorithm,
                         (unsigned long long)table->keys, (unsigned long long)table->evicted_live);
    if (table->kind->bytes_bar > 0)
        weir__bench_print(o->json, &line);
}

/*
 * The bounds, single decisions and batches take turns. The bound is the access pattern of the decisions: of a key that
 * is not in its home line, that line and its own. Where the keys' routes are not known, only that of one line a key.
 */
static bool against_bound(const struct options *o, const struct weir__bench_table *table,
                          const struct weir__bench_keys *keys, int threads)
{
    bool no = table->kind->denied;
    struct weir__bench_contender who[] = {
        {.name = "memory bound, one line", .mode = WEIR__BENCH_BOUND},
        {.name = no ? "single, denied" : "single", .mode = WEIR__BENCH_SINGLE},
        {.name = no ? "batch, denied" : "batch", .mode = WEIR__BENCH_IN_BATCHES},
        {.name = "memory bound", .mode = WEIR__BENCH_ROUTE},
    };
    int count = keys->route ? 4 : 3;
    for (int i = 0; i < count; i++) {
        who[i].table = table;
        who[i].keys = keys;
        who[i].threads = threads;
    }
    if (!weir__bench_contest(who, count, o->rounds, o->round_ms))
        return false;
    for (int i = 0; i < count; i++)
        print_rate(o, &who[i]);
    print_ratio(o, no ? "denied / one line's bound" : "batch / one line's bound", &who[2], &who[0], 0);
    bool bar = table->keys == MILLION && threads == 2 && strcmp(keys->distribution, "uniform") == 0;
    if (keys->route)
        print_ratio(o, "batch / memory bound", &who[2], &who[3], bar ? 0.45 : 0);
    return true;
}

static bool with_clock(const struct options *o, const struct weir__bench_table *table,
                       const struct weir__bench_keys *keys)
{
    struct weir__bench_contender who[] = {
        {.name = "single", .mode = WEIR__BENCH_SINGLE, .table = table, .keys = keys, .threads = 1},
        {.name = "single with clock", .mode = WEIR__BENCH_CLOCK, .table = table, .keys = keys, .threads = 1},
    };
    if (!weir__bench_contest(who, 2, o->rounds, o->round_ms))
        return false;
    print_rate(o, &who[1]);
    print_ratio(o, "single with clock / without", &who[1], &who[0], 0);
    return true;
}

/* One key for all threads, against as many threads on all keys. */
static bool hot_key(const struct options *o, const struct weir__bench_table *table, const struct weir__bench_keys *keys)
{
    struct weir__bench_keys one;
    if (!weir__bench_keys_draw(WEIR__BENCH_ONE, 1, &one))
        return false;
    struct weir__bench_contender who[] = {
        {.name = "single", .mode = WEIR__BENCH_SINGLE, .keys = keys},
        {.name = "hot key, single", .mode = WEIR__BENCH_SINGLE, .keys = &one},
        {.name = "batch", .mode = WEIR__BENCH_IN_BATCHES, .keys = keys},
        {.name = "hot key, batch", .mode = WEIR__BENCH_IN_BATCHES, .keys = &one},
    };
    for (int i = 0; i < 4; i++) {
        who[i].table = table;
        who[i].threads = 2;
    }
    bool done = weir__bench_contest(who, 4, o->rounds, o->round_ms);
    if (done) {
        print_rate(o, &who[1]);
        print_ratio(o, "hot key / uniform, single", &who[1], &who[0], 1.0 / 3);
        print_rate(o, &who[3]);
        print_ratio(o, "hot key / uniform, batch", &who[3], &who[2], 1.0 / 3);
    }
    weir__bench_keys_drop(&one);
    return done;
}

static bool token_distribution(const struct options *o, const struct weir__bench_table *table,
                               enum weir__bench_draw draw, unsigned cases)
{
    struct weir__bench_keys keys;
    bool done = weir__bench_keys_draw(draw, table->keys, &keys);
    if (!done)
        return false;
    if (cases & CASE_TOKEN && table->kind->routed) {
        done = weir__bench_keys_route(table, &keys);
        if (!done)
            weir__bench_note("no memory for the bound");
    }
    for (int i = 0; i < o->thread_counts && done && cases & CASE_TOKEN; i++) {
        if (o->threads[i] <= weir__bench_processors())
            done = against_bound(o, table, &keys, o->threads[i]);
        else
            weir__bench_note("skipped %d threads: there are fewer processors", o->threads[i]);
    }
    if (done && cases & CASE_CLOCK)
        done = with_clock(o, table, &keys);
    if (done && cases & CASE_HOT && weir__bench_processors() >= 2)
        done = hot_key(o, table, &keys);
    weir__bench_keys_drop(&keys);
    return done;
}

static bool token_cases(const struct options *o)
{
    bool done = true;
    for (int i = 0; i < o->key_counts && done; i++) {
        /* The clock and the hot key do not depend on the number of keys: once is enough. */
        unsigned cases = o->cases & (i ? CASE_TOKEN : CASE_TOKEN | CASE_CLOCK | CASE_HOT);
        struct weir__bench_table table;
        int made = cases ? weir__bench_table_make(&token, o->keys[i], o->directory, &table) : 0;
        done = made >= 0;
        if (made <= 0)
            continue;
        if (cases & CASE_TOKEN)
            tell_bytes(o, &table);
        if (o->uniform || cases & (CASE_CLOCK | CASE_HOT))
            done = token_distribution(o, &table, WEIR__BENCH_UNIFORM,
                                      o->uniform ? cases : cases & (CASE_CLOCK | CASE_HOT));
        if (done && o->zipf && cases & CASE_TOKEN)
            done = token_distribution(o, &table, WEIR__BENCH_ZIPF, CASE_TOKEN);
        weir__bench_table_drop(&table);
    }
    return done;
}

/* Every selected distribution and number of threads; `once`: uniform, on one. */
static bool kind_of_keys(const struct options *o, const struct weir__bench_kind *kind, uint64_t count, bool once)
{
    static const enum weir__bench_draw draws[] = {WEIR__BENCH_UNIFORM, WEIR__BENCH_ZIPF};
    const bool wanted[] = {once || o->uniform, !once && o->zipf};
    struct weir__bench_table table;
    int made = weir__bench_table_make(kind, count, o->directory, &table);
    if (made <= 0)
        return made == 0;
    tell_bytes(o, &table);
    bool done = true;
    for (int d = 0; d < 2 && done; d++) {
        struct weir__bench_keys keys;
        if (!wanted[d])
            continue;
        done = weir__bench_keys_draw(draws[d], count, &keys);
        if (!done)
            break;
        for (int i = 0; i < (once ? 1 : o->thread_counts) && done; i++)
            if (once || o->threads[i] <= weir__bench_processors())
                done = against_bound(o, &table, &keys, once ? 1 : o->threads[i]);
        weir__bench_keys_drop(&keys);
    }
    weir__bench_table_drop(&table);
    return done;
}

static bool one_kind(const struct options *o, const struct weir__bench_kind *kind)
{
    if (o->quick || kind->denied)
        return kind_of_keys(o, kind, kind->slab ? MILLION / 10 : MILLION, true);
    /* Long logs, too: with more keys the bench's time is too slow for them. */
    bool done = !kind->slab || kind_of_keys(o, kind, MILLION / 10, true);
    for (int i = 0; i < o->key_counts && done; i++)
        done = kind_of_keys(o, kind, o->keys[i], false);
    return done;
}

static bool run_cases(const struct options *o)
{
    weir__bench_print_head(o->json);
    bool done = token_cases(o);
    for (size_t i = 0; i < sizeof others / sizeof *others && done && o->cases & CASE_ALGORITHMS; i++)
        done = one_kind(o, &others[i]);
    if (done && o->cases & CASE_DENIED)
        done = one_kind(o, &denied);
    return done;
}

/* ---- The command line ---- */

static void help(void)
{
    fputs("usage: bench/core [options]\n"
          "\n"
          "Measures decisions a second and bytes a key, beside the bound this machine's memory sets: the same access\n"
          "pattern with nothing but a prefetch and a 16-byte compare-and-swap. Cases take turns; figures are medians.\n"
          "\n"
          "  --json                one JSON object a line\n"
          "  --quick               fewer keys and rounds: under a minute\n"
          "  --cases LIST          of token, clock, hot, algorithms, denied (default: all)\n"
          "  --keys LIST           each 10k to 1000M (default: 1M,10M,100M; --quick: 1M,10M, and for token only)\n"
          "  --threads LIST        the same (default: 1,2)\n"
          "  --distributions LIST  the same, of uniform, zipf (default: both)\n"
          "  --rounds N            1 to 99 (default: 15; --quick: 3)\n"
          "  --round-ms N          length of a round, 10 to 10000 (default: 150; --quick: 100)\n"
          "  --path DIR            where segments go (default: /dev/shm); nothing stays there\n"
          "  --anonymous           in anonymous memory instead\n"
          "  --help                this text\n",
          stdout);
}

/* A whole number with k, K, m or M behind it; 0 if it is none. */
static uint64_t number(const char *text, uint64_t most)
{
    char *end;
    if (*text < '0' || *text > '9')
        return 0;
    uint64_t value = strtoull(text, &end, 10), unit = 1;
    if (*end == 'k' || *end == 'K')
        unit = 1000;
    else if (*end == 'm' || *end == 'M')
        unit = MILLION;
    end += unit > 1;
    return *end || value > most / unit ? 0 : value * unit;
}

static bool add_item(struct options *o, int option, const char *item)
{
    static const char *const name[] = {"token", "clock", "hot", "algorithms", "denied"};
    switch (option) {
    case 'c':
        for (unsigned i = 0; i < sizeof name / sizeof *name; i++)
            if (strcmp(item, name[i]) == 0)
                return o->cases |= 1U << i;
        return false;
    case 'k':
        return o->key_counts < LIST_MAX && (o->keys[o->key_counts++] = number(item, 1000 * MILLION)) >= 10000;
    case 't':
        return o->thread_counts < LIST_MAX &&
               (o->threads[o->thread_counts++] = (int)number(item, WEIR__BENCH_THREADS_MAX)) > 0;
    default:
        o->uniform |= strcmp(item, "uniform") == 0;
        o->zipf |= strcmp(item, "zipf") == 0;
        return strcmp(item, "uniform") == 0 || strcmp(item, "zipf") == 0;
    }
}

static bool add_list(struct options *o, int option, char *list)
{
    char *rest = NULL, *item = strtok_r(list, ",", &rest);
    if (!item)
        return false;
    for (; item; item = strtok_r(NULL, ",", &rest))
        if (!add_item(o, option, item))
            return false;
    return true;
}

static bool apply(struct options *o, int option)
{
    switch (option) {
    case 'j':
        return o->json = true;
    case 'q':
        return o->quick = true;
    case 'a':
        o->directory = NULL;
        return true;
    case 'h':
        return o->help = true;
    case 'p':
        o->directory = optarg;
        return *optarg && strlen(optarg) < 4000;
    case 'r':
        return (o->rounds = (int)number(optarg, WEIR__BENCH_ROUNDS_MAX)) > 0;
    case 'm':
        return (o->round_ms = (int)number(optarg, 10000)) >= 10;
    default:
        return add_list(o, option, optarg);
    }
}

static void set_defaults(struct options *o)
{
    static const uint64_t counts[] = {MILLION, 10 * MILLION, 100 * MILLION};
    if (!o->cases)
        o->cases = CASE_ALL;
    if (!o->key_counts) {
        o->key_counts = o->quick ? 2 : 3;
        memcpy(o->keys, counts, sizeof counts);
    }
    if (!o->thread_counts) {
        o->thread_counts = 2;
        o->threads[0] = 1;
        o->threads[1] = 2;
    }
    if (!o->uniform && !o->zipf)
        o->uniform = o->zipf = true;
    if (!o->rounds)
        o->rounds = o->quick ? 3 : 15;
    if (!o->round_ms)
        o->round_ms = o->quick ? 100 : 150;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"json", no_argument, NULL, 'j'},          {"quick", no_argument, NULL, 'q'},
        {"cases", required_argument, NULL, 'c'},   {"keys", required_argument, NULL, 'k'},
        {"threads", required_argument, NULL, 't'}, {"distributions", required_argument, NULL, 'd'},
        {"rounds", required_argument, NULL, 'r'},  {"round-ms", required_argument, NULL, 'm'},
        {"path", required_argument, NULL, 'p'},    {"anonymous", no_argument, NULL, 'a'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    struct options o = {.directory = "/dev/shm"};
    int option, index = 0;

    opterr = 0;
    optind = 0; /* start over: the command may have looked at its own options first */
    while ((option = getopt_long(argc, argv, ":", known, &index)) != -1) {
        if (option == '?' || option == ':') {
            weir__bench_note("%s '%s'; see bench/core --help",
                             option == '?' ? "unknown option" : "a value is missing after", argv[optind - 1]);
            return 2;
        }
        if (!apply(&o, option)) {
            weir__bench_note("bad value for --%s; see bench/core --help", known[index].name);
            return 2;
        }
    }
    if (optind < argc) {
        weir__bench_note("unexpected argument '%s'; see bench/core --help", argv[optind]);
        return 2;
    }
    if (o.help) {
        help();
        return 0;
    }
    set_defaults(&o);
    return run_cases(&o) ? 0 : 1;
}
