/*
 * For bench/pressure.py: the cost of a permit, taken and released, compared with one token; and of a check whose engine
 * has the load level, under rules that do not use it, compared with one without it. Alternating, by the time of this
 * process alone; prints the medians in nanoseconds, and those of the rounds' ratios, as one JSON object.
 *
 *   flight ROUNDS
 */
#include <weir/weir.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEYS = 10000, CALLS = 50000, ROUNDS_MAX = 101, CASES = 4, RATIOS = 2 };

static weir_segment *segment;
static weir_limit token, slots;
static weir *plain, *knowing;
static char key[KEYS][16];
static uint64_t seed = 1;

static _Noreturn void fail(const char *what, int error)
{
    fprintf(stderr, "bench/flight: %s: %s\n", what, weir_strerror(error));
    exit(1);
}

static void must(const char *what, int error)
{
    if (error < 0)
        fail(what, error);
}

static const char *any_key(void)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return key[(seed >> 33) % KEYS];
}

static void take_token(weir_time now)
{
    weir_decision decision;
    const char *of = any_key();
    must("take", weir_take(segment, &token, of, strlen(of), 1, now, &decision));
}

static void take_slot(weir_time now)
{
    weir_decision decision;
    weir_lease lease;
    const char *of = any_key();
    must("acquire", weir_acquire(segment, &slots, of, strlen(of), now, &lease, &decision));
    if (weir_passes(&decision))
        must("release", weir_release(segment, &lease, now));
}

static void check(weir *engine)
{
    weir_attribute about[] = {{WEIR_ATTR_PATH, "", "/api/items"}, {WEIR_ATTR_NAMED, "user_id", any_key()}};
    weir_query query = {.attributes = about, .attribute_count = 2};
    weir_result answer;
    must("check", weir_check(engine, &query, &answer));
}

/* Nanoseconds a call. */
static double measure(int which)
{
    struct timespec from, to;
    weir_time now = weir_clock(segment);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    for (int i = 0; i < CALLS; i++) {
        if (which == 0)
            take_token(now);
        else if (which == 1)
            take_slot(now);
        else
            check(which == 2 ? plain : knowing);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / CALLS;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, long count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

static void open_all(void)
{
    weir_segment_options how = {.size = 64 << 20, .flags = WEIR_OPEN_CREATE};
    weir_params tokens = {.limit = 1000000, .window_ns = WEIR_SECOND};
    weir_params flights = {.algorithm = WEIR_CONCURRENCY, .limit = 10, .window_ns = 60 * WEIR_SECOND};
    weir_options options = {
        .rules_text =
            "rules: [{ name: user, match: { path: /api/* }, key: 'user:${user_id}', limit: 1000000, window: 1s }]\n"};
    must("segment", weir_segment_open(&how, &segment));
    must("tokens", weir_limit_init(&token, &tokens));
    must("slots", weir_limit_init(&slots, &flights));
    options.attached = segment;
    must("open", weir_open(&options, &plain));
    options.load = "";
    must("open", weir_open(&options, &knowing));
    for (int i = 0; i < KEYS; i++)
        snprintf(key[i], sizeof key[i], "user:%d", i);
}

int main(int argc, char **argv)
{
    static const char *const names[CASES] = {"token_ns", "slot_ns", "check_ns", "check_knowing_ns"};
    static const char *const ratio_names[RATIOS] = {"slot_per_token", "rate_knowing"};
    static double took[CASES][ROUNDS_MAX], ratio[RATIOS][ROUNDS_MAX];
    long rounds = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
    if (rounds < 1 || rounds > ROUNDS_MAX)
        return fprintf(stderr, "usage: flight ROUNDS (1 to %d)\n", ROUNDS_MAX), 2;
    open_all();
    for (long round = -1; round < rounds; round++) { /* the first is to warm up */
        long at = round < 0 ? 0 : round;
        for (int i = 0; i < CASES; i++)
            took[i][at] = measure(i);
        ratio[0][at] = took[1][at] / took[0][at];
        ratio[1][at] = took[2][at] / took[3][at];
    }
    for (int i = 0; i < CASES; i++)
        printf("%s\"%s\":%.1f", i ? "," : "{", names[i], median(took[i], rounds));
    for (int i = 0; i < RATIOS; i++)
        printf(",\"%s\":%.3f", ratio_names[i], median(ratio[i], rounds));
    puts("}");
    weir_close(plain);
    weir_close(knowing);
    weir_segment_close(segment);
    return 0;
}
