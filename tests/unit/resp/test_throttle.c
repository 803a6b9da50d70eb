/* CL.THROTTLE against its own arithmetic in nanoseconds, with a simulated clock. */
#include "../../test.h"
#include "services/resp/resp.h"

__extension__ typedef __int128 wide;

#define START_NS (100 * WEIR_DAY)

static struct weir__throttle_limits limits;

static weir_segment *segment_of(uint64_t size)
{
    weir_segment_options how = {.size = size};
    weir_segment *segment = NULL;
    CHECK_EQ(weir_segment_open(&how, &segment), 0);
    return segment;
}

static weir_text text(const char *from)
{
    return (weir_text){from, strlen(from)};
}

/* One call as the service makes it. Returns the library's error. */
static int call_at(weir_segment *segment, const struct weir__throttle *call, int64_t ns, int64_t numbers[5])
{
    const weir_limit *limit = weir__throttle_known(&limits, call);
    int error = limit ? 0 : weir__throttle_make(&limits, call, &limit);
    weir_decision decision;
    if (!error)
        error = weir_take(segment, limit, call->key.data, call->key.len, weir__throttle_cost(call, limit),
                          (weir_time){ns, ns}, &decision);
    if (!error)
        weir__throttle_reply(&decision, numbers);
    return error;
}

/* ---- The model: GCRA as the wire format describes it ---- */

struct model {
    bool stored;
    wide tat;
};

static int64_t model_seconds(wide ns)
{
    wide seconds = ns / 1000000000, part = ns % 1000000000 / 1000000;
    return (int64_t)seconds + (part > 0);
}

static void model_call(struct model *model, const struct weir__throttle *call, wide now, int64_t numbers[5])
{
    wide ei = (wide)call->period_s * 1000000000 / call->count, dvt = ei * (call->max_burst + 1);
    wide increment = ei * call->quantity;
    wide tat = model->stored ? model->tat : now;
    if (tat < now)
        tat = now; /* a TAT in the past has expired: the key is like a new one */
    wide fresh = tat + increment;
    bool limited = now < fresh - dvt;
    if (fresh < now)
        fresh = now; /* a refund never exceeds the initial state */
    wide ttl = (limited ? tat : fresh) - now;
    if (!limited) {
        model->stored = true;
        model->tat = fresh;
    }
    numbers[0] = limited;
    numbers[1] = call->max_burst + 1;
    numbers[2] = dvt - ttl > 0 ? (int64_t)((dvt - ttl) / ei) : 0;
    numbers[3] = !limited || increment > dvt ? -1 : model_seconds(tat + increment - dvt - now);
    numbers[4] = model_seconds(ttl);
}

static bool same(const int64_t a[5], const int64_t b[5])
{
    return memcmp(a, b, 5 * sizeof *a) == 0;
}

static void show(const struct weir__throttle *call, const int64_t got[5], const int64_t expected[5])
{
    printf("  %" PRId64 " %" PRId64 " %" PRId64 " q %" PRId64 ":", call->max_burst, call->count, call->period_s,
           call->quantity);
    for (int i = 0; i < 5; i++)
        printf(" %" PRId64 "/%" PRId64, got[i], expected[i]);
    printf("\n");
}

static bool replies(weir_segment *segment, const char *key, int64_t burst, int64_t count, int64_t period,
                    int64_t quantity, double at_s, const int64_t expected[5])
{
    struct weir__throttle call = {text(key), burst, count, period, quantity};
    int64_t got[5] = {77, 77, 77, 77, 77};
    CHECK_EQ(call_at(segment, &call, START_NS + (int64_t)(at_s * 1e9), got), 0);
    if (!same(got, expected))
        show(&call, got, expected);
    return same(got, expected);
}

#define REPLY(...) ((const int64_t[5]){__VA_ARGS__})

TEST(examples)
{
    weir_segment *s = segment_of(1 << 20);
    CHECK(replies(s, "user123", 15, 30, 60, 1, 0, REPLY(0, 16, 15, -1, 2)));
    CHECK(replies(s, "user123", 15, 30, 60, 1, 0, REPLY(0, 16, 14, -1, 4)));
    CHECK(replies(s, "user123", 15, 30, 60, 0, 0, REPLY(0, 16, 14, -1, 4)));     /* peeks */
    CHECK(replies(s, "user123", 15, 30, 60, -1, 0, REPLY(0, 16, 15, -1, 2)));    /* refunds one */
    CHECK(replies(s, "user123", 15, 30, 60, -100, 0, REPLY(0, 16, 16, -1, 0)));  /* never beyond the initial state */
    CHECK(replies(s, "user123", 15, 30, 60, 17, 0, REPLY(1, 16, 16, -1, 0)));    /* can never be allowed */
    CHECK(replies(s, "user123", 15, 30, 60, 16, 0, REPLY(0, 16, 0, -1, 32)));    /* all at once */
    CHECK(replies(s, "user123", 15, 30, 60, 1, 0, REPLY(1, 16, 0, 2, 32)));      /* limited */
    CHECK(replies(s, "user123", 15, 30, 60, 1, 0.0004, REPLY(1, 16, 0, 2, 32))); /* 1.9996 s: rounded up */
    CHECK(replies(s, "user123", 15, 30, 60, 1, 1.9995, REPLY(1, 16, 0, 0, 30))); /* less than a millisecond */
    CHECK(replies(s, "user123", 15, 30, 60, 2, 2, REPLY(1, 16, 1, 2, 30)));      /* one of two units is available */
    CHECK(replies(s, "user123", 15, 30, 60, 17, 2, REPLY(1, 16, 1, -1, 30)));    /* can never be allowed, partly used */
    CHECK(replies(s, "user123", 15, 30, 60, 1, 2, REPLY(0, 16, 0, -1, 32)));     /* the denied ones took nothing */
    CHECK(replies(s, "user123", 15, 30, 60, 0, 1000, REPLY(0, 16, 16, -1, 0)));  /* recovered */
    CHECK(replies(s, "no burst", 0, 1, 10, 1, 0, REPLY(0, 1, 0, -1, 10)));
    CHECK(replies(s, "no burst", 0, 1, 10, 1, 9.5, REPLY(1, 1, 0, 1, 1)));
    CHECK(replies(s, "no burst", 0, 1, 10, 1, 10, REPLY(0, 1, 0, -1, 10)));
    CHECK(replies(s, "huge", 15, 30, 60, INT64_MAX, 0, REPLY(1, 16, 16, -1, 0)));
    CHECK(replies(s, "huge", 15, 30, 60, INT64_MIN, 0, REPLY(0, 16, 16, -1, 0)));
    weir_segment_close(s);
}

/*
 * Random keys, limits and moments. Where a unit takes an integral number of microseconds, every reply equals the
 * model's exactly at moments of full microseconds. The bursts and steps are chosen so that calls are allowed and
 * limited about evenly.
 */
static void compare(uint64_t seed, int64_t size, bool exact_units, int64_t *different, int64_t *calls)
{
    weir_segment *segment = segment_of(4 << 20);
    uint64_t random = seed;
    enum { KEYS = 64 };
    static struct model models[KEYS];
    struct weir__throttle call[KEYS];
    char names[KEYS][16];
    int64_t now = START_NS;
    memset(models, 0, sizeof models);
    for (int k = 0; k < KEYS; k++) {
        snprintf(names[k], sizeof names[k], "key %d", k);
        call[k].key = text(names[k]);
        call[k].max_burst = (int64_t)(test_random(&random) % (uint64_t)size);
        call[k].period_s = 1 + (int64_t)(test_random(&random) % 100);
        call[k].count = 1 + (int64_t)(test_random(&random) % ((uint64_t)size * 25));
        while (exact_units && call[k].period_s * 1000000 % call[k].count != 0)
            call[k].count = 1 + (int64_t)(test_random(&random) % ((uint64_t)size * 25));
    }
    for (int64_t i = 0; i < test_scaled(200000, 20000); i++) {
        size_t k = test_random(&random) % KEYS;
        int64_t got[5], expected[5], scale = size / 40, unit_us = call[k].period_s * 1000000 * scale / call[k].count;
        now += (int64_t)(test_random(&random) % ((uint64_t)unit_us / 16 + 2)) * 1000;
        call[k].quantity = (int64_t)(test_random(&random) % (12 * (uint64_t)scale)) - 2 * scale;
        if (test_random(&random) % 50 == 0)
            call[k].quantity *= 10;
        CHECK_EQ(call_at(segment, &call[k], now, got), 0);
        struct model before = models[k];
        model_call(&models[k], &call[k], now, expected);
        (*calls)++;
        if (same(got, expected))
            continue;
        (*different)++;
        if (exact_units)
            show(&call[k], got, expected);
        CHECK(!exact_units);
        /* A unit is up to a nanosecond longer than the model's: never more is admitted or reported as remaining. */
        CHECK(got[0] >= expected[0]);
        CHECK(got[2] <= expected[2] || got[0] > expected[0]);
        CHECK(got[4] >= expected[4] || got[0] > expected[0]);
        if (got[0] != expected[0]) /* synchronises the two states again */
            models[k] = before;
    }
    weir_segment_close(segment);
}

TEST(units_of_full_microseconds_agree_exactly)
{
    int64_t different = 0, calls = 0;
    for (uint64_t seed = 1; seed <= 5; seed++)
        compare(seed, 40, true, &different, &calls);
    CHECK_EQ(different, 0);
}

/* Small buckets agree even so; the difference reaches a microsecond only after about ten thousand units. */
TEST(fractional_units_never_admit_more)
{
    int64_t different = 0, calls = 0;
    for (uint64_t seed = 11; seed <= 15; seed++)
        compare(seed, 400, false, &different, &calls);
    CHECK(different * 10000 <= calls);
    different = calls = 0;
    for (uint64_t seed = 21; seed <= 25; seed++)
        compare(seed, 4000000, false, &different, &calls);
    CHECK(different > 0);
}

/* A moment between two microseconds counts as the earlier one. */
TEST(time_is_rounded_down_to_microseconds)
{
    weir_segment *segment = segment_of(1 << 20);
    struct weir__throttle call = {text("key"), 0, 1000, 1, 1};
    int64_t got[5];
    CHECK_EQ(call_at(segment, &call, START_NS + 999, got), 0);
    CHECK_EQ(got[0], 0);
    CHECK_EQ(call_at(segment, &call, START_NS + 999999, got), 0);
    CHECK_EQ(got[0], 1);
    CHECK_EQ(call_at(segment, &call, START_NS + 1000000, got), 0);
    CHECK_EQ(got[0], 0);
    weir_segment_close(segment);
}

TEST(changed_limit_on_the_same_key)
{
    weir_segment *s = segment_of(1 << 20);
    CHECK(replies(s, "key", 9, 10, 10, 8, 0, REPLY(0, 10, 2, -1, 8)));
    /* Consumed units stay consumed: 8 units, now of 2 s each. */
    CHECK(replies(s, "key", 9, 10, 20, 0, 0, REPLY(0, 10, 2, -1, 16)));
    CHECK(replies(s, "key", 4, 10, 20, 0, 0, REPLY(1, 5, 0, 6, 16)));
    weir_segment_close(s);
}

/* ---- Arguments ---- */

static const char *read_args(const char *const *argv, size_t count, struct weir__throttle *call)
{
    weir_text args[8];
    for (size_t i = 0; i < count; i++)
        args[i] = text(argv[i]);
    return weir__throttle_read(args, count, call);
}

#define READ(call, ...)                                                                                                \
    read_args((const char *const[]){"CL.THROTTLE", __VA_ARGS__},                                                       \
              sizeof(const char *[]){"", __VA_ARGS__} / sizeof(char *), (call))

TEST(arguments)
{
    static const char integer[] = "ERR value is not an integer or out of range";
    static const char arity[] = "ERR wrong number of arguments for 'cl.throttle' command";
    struct weir__throttle call;
    CHECK(READ(&call, "k", "15", "30", "60") == NULL);
    CHECK(call.max_burst == 15 && call.count == 30 && call.period_s == 60 && call.quantity == 1 && call.key.len == 1);
    CHECK(READ(&call, "k", "15", "30", "60", "-3") == NULL);
    CHECK_EQ(call.quantity, -3);
    CHECK(strcmp(READ(&call, "k", "15", "30"), arity) == 0);
    CHECK(strcmp(READ(&call, "k", "15", "30", "60", "1", "1"), arity) == 0);
    CHECK(strcmp(READ(&call, "k", "x", "30", "60"), integer) == 0);
    CHECK(strcmp(READ(&call, "k", "15", "3.5", "60"), integer) == 0);
    CHECK(strcmp(READ(&call, "k", "15", "30", ""), integer) == 0);
    CHECK(strcmp(READ(&call, "k", "15", "30", "60", "9223372036854775808"), integer) == 0);
    CHECK(READ(&call, "k", "15", "0", "60") != NULL);
    CHECK(READ(&call, "k", "15", "30", "0") != NULL);
    CHECK(READ(&call, "k", "-1", "30", "60") != NULL);
    CHECK(READ(&call, "k", "15", "-30", "60") != NULL);
    CHECK(READ(&call, "k", "15", "30", "-60") != NULL);
}

TEST(out_of_range)
{
    weir_segment *segment = segment_of(1 << 20);
    static const struct {
        int64_t burst, count, period, quantity;
        int error;
    } cases[] = {{0, INT64_MAX, 1, 1, WEIR_ELIMIT},
                 {0, INT64_C(4294967296), 1, 1, WEIR_ELIMIT},
                 {INT64_MAX, 1, 1, 1, WEIR_EBURST},
                 {INT64_C(4294967295), 1, 1, 1, WEIR_EBURST},
                 {0, 1, INT64_MAX, 1, WEIR_EWINDOW},
                 {0, 1, INT64_C(400) * 86400 + 1, 1, WEIR_EWINDOW},
                 {1, 1, INT64_C(400) * 86400, 1, WEIR_EOVERFLOW},
                 {0, 1, INT64_C(400) * 86400, 1, 0},
                 {0, 1, 1, INT64_MAX, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir__throttle call = {text("key"), cases[i].burst, cases[i].count, cases[i].period, cases[i].quantity};
        int64_t numbers[5] = {0};
        CHECK_EQ(call_at(segment, &call, START_NS, numbers), cases[i].error);
        CHECK_EQ(call_at(segment, &call, START_NS, numbers), cases[i].error); /* an invalid limit is not cached */
    }
    struct weir__throttle empty = {{"", 0}, 1, 1, 1, 1};
    int64_t numbers[5];
    CHECK_EQ(call_at(segment, &empty, START_NS, numbers), WEIR_EKEYEMPTY);
    weir_segment_close(segment);
}

TEST(blocked_key_is_limited)
{
    weir_segment *segment = segment_of(1 << 20);
    struct weir__throttle call = {text("key"), 15, 30, 60, 1};
    const weir_limit *limit = NULL;
    CHECK_EQ(weir__throttle_make(&limits, &call, &limit), 0);
    CHECK_EQ(weir_block(segment, limit, "key", 3, 30 * WEIR_SECOND, (weir_time){START_NS, START_NS}), 0);
    CHECK(replies(segment, "key", 15, 30, 60, 1, 0, REPLY(1, 16, 16, 30, 0)));
    weir_segment_close(segment);
}

TEST_MAIN
