/*
 * The core bench: speed and size of the core. core.c: cases; core_run.c: measuring; core_table.c and core_route.c: the
 * measured data; core_print.c: output.
 */
#ifndef WEIR_BENCH_CORE_H
#define WEIR_BENCH_CORE_H

#include <weir/weir.h>

/* ---- core_print.c ---- */

enum weir__bench_sense { WEIR__BENCH_NO_BAR = 0, WEIR__BENCH_AT_LEAST, WEIR__BENCH_AT_MOST };

/* One line of output: what was measured, on what, and the bar it stands for, if any. */
struct weir__bench_result {
    const char *name, *algorithm, *distribution;
    uint64_t keys;
    int threads;
    double value;
    const char *unit;
    enum weir__bench_sense sense;
    double bar;
    bool unsound; /* whatever the value, the bar does not hold */
};

void weir__bench_print_head(bool json);
void weir__bench_print(bool json, const struct weir__bench_result *result);
/* To standard error, so that it never gets into the way of --json. */
void weir__bench_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- core_table.c ---- */

struct weir__bench_line {
    struct weir__bench_cell {
        uint64_t lo, hi;
    } __attribute__((aligned(16))) slot[4];
} __attribute__((aligned(64)));

/* An algorithm and how a table for it is laid out. */
struct weir__bench_kind {
    const char *algorithm;
    weir_params params;
    int slots;        /* of the table a key takes */
    uint64_t slab;    /* bytes of slab a key; 0: the segment has none */
    double bytes_bar; /* a key at 90 % full; 0: no bar */
    bool denied;      /* every request after the first is */
    bool tight;       /* under Zipf the hottest keys are, now and then */
    bool routed;      /* compared with the bound by its own access pattern, too */
};

/* A segment in which every key has an entry, and its memory for the bound, which puts back what it finds. */
struct weir__bench_table {
    const struct weir__bench_kind *kind;
    weir_limit limit;
    weir_segment *segment;
    uint64_t keys;
    uint64_t lines;
    struct weir__bench_line *bare;
    double bytes_a_key; /* all of the segment by live keys, right after it was filled */
    uint64_t live;      /* keys, then */
    uint64_t evicted_live;
};

/*
 * Makes and fills a table of `keys` keys, which take 90 % of its slots, with files in `directory` (NULL: anonymous
 * memory). Nothing is left there, however the process ends. Returns 1, or prints the reason and returns 0 if there is
 * too little memory, -1 if something failed.
 */
int weir__bench_table_make(const struct weir__bench_kind *kind, uint64_t keys, const char *directory,
                           struct weir__bench_table *table);
void weir__bench_table_drop(struct weir__bench_table *table);

/* Keys in the order of their requests: drawn beforehand, so that drawing is not measured. */
struct weir__bench_keys {
    const char *distribution;
    bool even;                      /* all keys alike */
    uint64_t *id;                   /* the key is these 8 bytes */
    size_t count;                   /* a power of two */
    struct weir__bench_step *route; /* of each in the bare memory; NULL: not known */
};

enum weir__bench_draw { WEIR__BENCH_UNIFORM, WEIR__BENCH_ZIPF, WEIR__BENCH_ONE };

bool weir__bench_keys_draw(enum weir__bench_draw draw, uint64_t keys, struct weir__bench_keys *out);
void weir__bench_keys_drop(struct weir__bench_keys *keys);

/* ---- core_route.c ---- */

/* Where a key is at home and where it is. */
struct weir__bench_step {
    uint32_t primary; /* bucket */
    uint32_t cell;    /* of all: four a line */
};

/* Spreads ids over the lines as evenly as a hash does; two multiplications, so next to nothing. */
uint64_t weir__bench_mix(uint64_t id);
/* Looks up where each of the keys would be. False: no memory, or they do not fit. */
bool weir__bench_keys_route(const struct weir__bench_table *table, struct weir__bench_keys *keys);

/* ---- core_run.c ---- */

enum { WEIR__BENCH_BATCH = 256, WEIR__BENCH_ROUNDS_MAX = 99, WEIR__BENCH_THREADS_MAX = 64, WEIR__BENCH_KEY_BYTES = 8 };

enum weir__bench_mode {
    WEIR__BENCH_BOUND,
    WEIR__BENCH_ROUTE,
    WEIR__BENCH_SINGLE,
    WEIR__BENCH_CLOCK,
    WEIR__BENCH_IN_BATCHES
};

/* One of those that take turns. */
struct weir__bench_contender {
    const char *name;
    enum weir__bench_mode mode;
    const struct weir__bench_table *table;
    const struct weir__bench_keys *keys;
    int threads;
    double rate[WEIR__BENCH_ROUNDS_MAX]; /* out: decisions a second in each round, all threads together */
};

/* Processors this process may run on. */
int weir__bench_processors(void);
/* Runs `work(context, thread)` on `threads` threads, each on a processor of its own, until all have returned. */
void weir__bench_on_threads(int threads, void (*work)(void *context, int thread), void *context);
/* Lets them take turns, `rounds` times after one that does not count. False if a decision was not the expected one. */
bool weir__bench_contest(struct weir__bench_contender *contender, int count, int rounds, int round_ms);
double weir__bench_median(const double *value, int count);
/* The median of a's rate by b's, round by round. */
double weir__bench_ratio(const struct weir__bench_contender *a, const struct weir__bench_contender *b, int rounds);

#endif
