/* weir_limit_init: every kind of invalid params, and the valid ones just inside the bounds. */
#include <weir/weir.h>

#include "../../test.h"

__extension__ typedef __int128 wide;

#define UNITS_MAX INT64_C(0xffffffff)

#define INIT(code, ...) check_init(code, &(weir_params){__VA_ARGS__}, __LINE__)
#define TOKEN           .algorithm = WEIR_TOKEN_BUCKET
#define INTERVAL        .algorithm = WEIR_TOKEN_BUCKET, .refill = WEIR_REFILL_INTERVAL
#define LEAKY           .algorithm = WEIR_LEAKY_BUCKET
#define FIXED           .algorithm = WEIR_FIXED_WINDOW
#define CALENDAR        .algorithm = WEIR_FIXED_WINDOW, .align = WEIR_ALIGN_CALENDAR
#define LOG             .algorithm = WEIR_SLIDING_WINDOW_LOG
#define COUNTER         .algorithm = WEIR_SLIDING_WINDOW_COUNTER
#define MINUTE          .window_ns = 60 * WEIR_SECOND
#define US              WEIR_MICROSECOND
#define LONGEST         (400 * WEIR_DAY)

static void check_init(int code, const weir_params *p, int line)
{
    weir_limit limit, untouched;

    memset(&limit, 0x5a, sizeof limit);
    memset(&untouched, 0x5a, sizeof untouched);
    int got = weir_limit_init(&limit, p);
    if (got != code && ++test_failures <= TEST_PRINTED)
        printf("  %s:%d: {.algorithm = %d, .limit = %" PRId64 ", .window_ns = %" PRId64 ", .burst = %" PRId64
               ", .soft_percent = %d, .buckets = %d, …} is %s, expected %s\n",
               __FILE__, line, (int)p->algorithm, p->limit, p->window_ns, p->burst, p->soft_percent, p->buckets,
               weir_error_name(got), weir_error_name(code));
    CHECK(got == 0 || memcmp(&limit, &untouched, sizeof limit) == 0);
}

/* Checks that all algorithms have in common. */
static void check_init_common(weir_params base, int64_t most)
{
    static const int64_t absurd[] = {0, -1, INT64_MIN, INT64_MAX, INT64_MAX - 1, INT64_C(1) << 32, INT64_C(1) << 62};
    weir_params p = base;

    p.limit = 1;
    check_init(0, &p, __LINE__);
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        p.limit = absurd[i];
        check_init(WEIR_ELIMIT, &p, __LINE__);
    }
    p.limit = most + 1;
    check_init(WEIR_ELIMIT, &p, __LINE__);

    p = base;
    p.limit = most;
    p.window_ns = p.align == WEIR_ALIGN_CALENDAR ? 0 : most * US; /* one unit per microsecond: nothing overflows */
    check_init(0, &p, __LINE__);
    p.soft_percent = 1;
    check_init(WEIR_EOVERFLOW, &p, __LINE__);
    p.limit = most / 11;
    p.soft_percent = 1000;
    p.window_ns = p.align == WEIR_ALIGN_CALENDAR ? 0 : p.limit * US;
    check_init(0, &p, __LINE__);
    p.limit = most / 11 + 1;
    p.window_ns = p.align == WEIR_ALIGN_CALENDAR ? 0 : p.limit * US;
    check_init(most % 11 == 10 ? 0 : WEIR_EOVERFLOW, &p, __LINE__);

    p = base;
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        p.soft_percent = (int)absurd[i] ? (int)absurd[i] : 1001;
        check_init(WEIR_ESOFT, &p, __LINE__);
    }
    p.soft_percent = INT32_MAX;
    check_init(WEIR_ESOFT, &p, __LINE__);
    p.soft_percent = INT32_MIN;
    check_init(WEIR_ESOFT, &p, __LINE__);

    static const int64_t bad_window[] = {
        0, -1, 1, 999, 1001, 1500, INT64_MAX, INT64_MIN, LONGEST + 1, -1000 * US, LONGEST + US, INT64_MAX / US * US};
    p = base;
    for (size_t i = 0; i < sizeof bad_window / sizeof *bad_window && p.align != WEIR_ALIGN_CALENDAR; i++) {
        p.window_ns = bad_window[i];
        check_init(WEIR_EWINDOW, &p, __LINE__);
    }
    p.window_ns = base.buckets ? base.buckets * US : US;
    check_init(0, &p, __LINE__);
    p.window_ns = LONGEST;
    check_init(0, &p, __LINE__);
}

TEST(limit_init_refuses_invalid_params)
{
    weir_limit limit;
    weir_params fine = {.limit = 1, MINUTE};

    CHECK_EQ(weir_limit_init(&limit, &fine), 0);
    CHECK_EQ(weir_limit_init(NULL, &fine), WEIR_EINVAL);
    CHECK_EQ(weir_limit_init(&limit, NULL), WEIR_EINVAL);
    INIT(WEIR_ELIMIT, .limit = 0, MINUTE);
    INIT(WEIR_EWINDOW, .limit = 1);

    check_init_common((weir_params){TOKEN, .limit = 5, MINUTE}, UNITS_MAX);
    check_init_common((weir_params){INTERVAL, .limit = 5, MINUTE}, UNITS_MAX);
    check_init_common((weir_params){LEAKY, .limit = 5, MINUTE}, UNITS_MAX);
    check_init_common((weir_params){FIXED, .limit = 5, MINUTE}, UNITS_MAX);
    check_init_common((weir_params){FIXED, .align = WEIR_ALIGN_FIRST_REQUEST, .limit = 5, MINUTE}, UNITS_MAX);
    check_init_common((weir_params){CALENDAR, .limit = 5}, UNITS_MAX);
    check_init_common((weir_params){LOG, .limit = 5, MINUTE}, 65535);
    check_init_common((weir_params){COUNTER, .limit = 5, MINUTE, .buckets = 2}, INT32_MAX);
    check_init_common((weir_params){COUNTER, .limit = 5, MINUTE, .buckets = 60}, INT32_MAX);

    /* With calendar alignment window_ns is ignored. */
    INIT(0, CALENDAR, .limit = 1, .window_ns = -1);
    INIT(0, CALENDAR, .limit = 1, .window_ns = INT64_MAX);
}

TEST(limit_init_burst)
{
    INIT(0, TOKEN, .limit = 1, MINUTE, .burst = 1);
    INIT(0, TOKEN, .limit = UNITS_MAX, .window_ns = UNITS_MAX * US, .burst = 1);
    INIT(0, TOKEN, .limit = 1, .window_ns = US, .burst = UNITS_MAX);
    INIT(0, LEAKY, .limit = 1, .window_ns = US, .burst = UNITS_MAX);
    INIT(0, INTERVAL, .limit = 1, .window_ns = US, .burst = UNITS_MAX);
    const int64_t absurd[] = {-1, INT64_MIN, INT64_MAX, UNITS_MAX + 1};
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        INIT(WEIR_EBURST, TOKEN, .limit = 5, MINUTE, .burst = absurd[i]);
        INIT(WEIR_EBURST, INTERVAL, .limit = 5, MINUTE, .burst = absurd[i]);
        INIT(WEIR_EBURST, LEAKY, .limit = 5, MINUTE, .burst = absurd[i]);
        INIT(WEIR_EINVAL, FIXED, .limit = 5, MINUTE, .burst = absurd[i]);
    }

    /* Too much for the counter: the burst with the soft share, or with a period of very many units. */
    INIT(WEIR_EOVERFLOW, TOKEN, .limit = 1, .window_ns = US, .burst = UNITS_MAX, .soft_percent = 1);
    INIT(WEIR_EOVERFLOW, TOKEN, .limit = UNITS_MAX, .window_ns = US);
    INIT(WEIR_EOVERFLOW, LEAKY, .limit = UNITS_MAX, .window_ns = 7 * US, .burst = UNITS_MAX, .soft_percent = 1000);

    /* Over 400 days to recover; 400 days are fine. */
    INIT(0, TOKEN, .limit = 1, .window_ns = WEIR_DAY, .burst = 400);
    INIT(WEIR_EOVERFLOW, TOKEN, .limit = 1, .window_ns = WEIR_DAY, .burst = 401);
    INIT(0, LEAKY, .limit = 3, .window_ns = WEIR_DAY, .burst = 1200);
    INIT(WEIR_EOVERFLOW, LEAKY, .limit = 3, .window_ns = WEIR_DAY, .burst = 1201);
    INIT(0, INTERVAL, .limit = 3, .window_ns = WEIR_DAY, .burst = 1200);
    INIT(WEIR_EOVERFLOW, INTERVAL, .limit = 3, .window_ns = WEIR_DAY, .burst = 1201);
    INIT(WEIR_EOVERFLOW, TOKEN, .limit = 1, .window_ns = LONGEST, .burst = 2);
    INIT(WEIR_EOVERFLOW, TOKEN, .limit = 100, .window_ns = LONGEST, .soft_percent = 1);

    /* Refill times that do not fit into 63 or 64 bits: every order of magnitude. */
    for (int64_t window = US; window <= LONGEST; window *= 2)
        for (int64_t burst = 1; burst <= UNITS_MAX; burst = burst * 2 + 1)
            for (int soft = 0; soft <= 1000; soft += 250) {
                wide cap = (wide)burst + (wide)burst * soft / 100, total = cap * (window / 1000);
                int code = cap > UNITS_MAX || total > LONGEST / 1000 ? WEIR_EOVERFLOW : 0;
                INIT(code, TOKEN, .limit = 1, .window_ns = window, .burst = burst, .soft_percent = soft);
                INIT(code, LEAKY, .limit = 1, .window_ns = window, .burst = burst, .soft_percent = soft);
                INIT(code, INTERVAL, .limit = 1, .window_ns = window, .burst = burst, .soft_percent = soft);
            }
}

TEST(limit_init_buckets)
{
    INIT(0, COUNTER, .limit = 1, MINUTE);
    INIT(0, COUNTER, .limit = 1, .window_ns = 2 * US, .buckets = 2);
    INIT(0, COUNTER, .limit = 1, .window_ns = 60 * US, .buckets = 60);
    INIT(0, COUNTER, .limit = 1, .window_ns = 61 * US, .buckets = 60);
    INIT(WEIR_EBUCKETS, COUNTER, .limit = 1, .window_ns = 59 * US, .buckets = 60);
    INIT(WEIR_EBUCKETS, COUNTER, .limit = 1, .window_ns = 2 * US, .buckets = 3);
    const int absurd[] = {1, 61, -1, 256 + 2, 65536 + 2, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++)
        INIT(WEIR_EBUCKETS, COUNTER, .limit = 1, MINUTE, .buckets = absurd[i]);

    /* 0 means the default of 2: the same result for both, also at the shortest window. */
    weir_limit limit;
    weir_params one = {COUNTER, .limit = 1, .window_ns = US}, two = one;
    two.buckets = 2;
    CHECK_EQ(weir_limit_init(&limit, &one), weir_limit_init(&limit, &two));
}

TEST(limit_init_combinations)
{
    weir_zone *zone = NULL;
    CHECK_EQ(weir_zone_open("Europe/Berlin", &zone), 0);

    for (int algorithm = WEIR_TOKEN_BUCKET; algorithm <= WEIR_CONCURRENCY; algorithm++) {
        const weir_params base = {.algorithm = (enum weir_algorithm)algorithm, .limit = 5, MINUTE};
        bool token = algorithm == WEIR_TOKEN_BUCKET, leaky = algorithm == WEIR_LEAKY_BUCKET;
        bool fixed = algorithm == WEIR_FIXED_WINDOW, log = algorithm == WEIR_SLIDING_WINDOW_LOG;
        bool counter = algorithm == WEIR_SLIDING_WINDOW_COUNTER;
        weir_params p;
#define ONLY(yes, ...)                                                                                                 \
    do {                                                                                                               \
        p = base;                                                                                                      \
        __VA_ARGS__;                                                                                                   \
        check_init((yes) ? 0 : WEIR_EINVAL, &p, __LINE__);                                                             \
    } while (0)
        ONLY(true, (void)p);
        ONLY(token || leaky, p.burst = 7);
        ONLY(token, p.refill = WEIR_REFILL_INTERVAL);
        ONLY(fixed, p.align = WEIR_ALIGN_FIRST_REQUEST);
        ONLY(fixed, p.align = WEIR_ALIGN_CALENDAR);
        ONLY(fixed, p.align = WEIR_ALIGN_CALENDAR; p.calendar = WEIR_CALENDAR_YEAR);
        ONLY(fixed, p.align = WEIR_ALIGN_CALENDAR; p.zone = zone);
        ONLY(false, p.align = WEIR_ALIGN_FIRST_REQUEST; p.calendar = WEIR_CALENDAR_WEEK);
        ONLY(false, p.align = WEIR_ALIGN_FIRST_REQUEST; p.zone = zone);
        ONLY(false, p.calendar = WEIR_CALENDAR_MONTH);
        ONLY(false, p.zone = zone);
        ONLY(log, p.count_rejected = true);
        ONLY(counter, p.buckets = 2);
        ONLY(counter, p.buckets = 60);
        ONLY(counter, p.round = WEIR_ROUND_UP);
        ONLY(leaky, p.delay = true);
        ONLY(leaky, p.delay = true; p.max_delay_ns = 1);
        ONLY(leaky, p.delay = true; p.max_delay_ns = INT64_MAX);
        ONLY(false, p.max_delay_ns = WEIR_SECOND);
        ONLY(false, p.delay = true; p.max_delay_ns = -1);
        ONLY(false, p.delay = true; p.max_delay_ns = INT64_MIN);
        /* Values that are not in the enumeration. */
        ONLY(false, p.refill = (enum weir_refill)2);
        ONLY(false, p.align = (enum weir_align)3);
        ONLY(false, p.align = WEIR_ALIGN_CALENDAR; p.calendar = (enum weir_calendar)4);
        ONLY(false, p.round = (enum weir_round)2);
        ONLY(false, p.algorithm = (enum weir_algorithm)6);
        ONLY(false, p.algorithm = (enum weir_algorithm) - 1);
        ONLY(false, p.refill = (enum weir_refill) - 1);
        ONLY(false, p.align = (enum weir_align) - 1);
        ONLY(false, p.calendar = (enum weir_calendar) - 1);
        ONLY(false, p.round = (enum weir_round) - 1);
#undef ONLY
    }
    weir_zone_close(zone);
}

TEST_MAIN
