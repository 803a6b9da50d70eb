/* Durations and sizes as text. */
#include "base/duration.h"
#include "../../test.h"

#define S  INT64_C(1000000000)
#define MS (S / 1000)
#define D  (86400 * S)

TEST(time_from_text)
{
    static const struct {
        const char *text;
        int64_t ns;
    } good[] = {
        {"1970-01-02", D},
        {"1970-01-02T00:00:00Z", D},
        {"1970-01-02t01:00z", D + 3600 * S},
        {"1970-01-02 00:00:01.25", D + 1250 * MS},
        {"1970-01-02T00:00:00.0000000019Z", D + 1},
        {"1970-01-02T02:30:00+02:30", D},
        {"1970-01-01T22:00:00-0200", D},
        {"2024-02-29T23:59:59.999Z", INT64_C(1709251199999) * MS},
    };
    static const char *const bad[] = {"",
                                      "1970-01-02T",
                                      "1970-01-02T00",
                                      "1970-13-01",
                                      "2023-02-29",
                                      "1970-01-02T24:00Z",
                                      "1970-01-02T00:00:60Z",
                                      "1970-01-02T00:00:00ZZ",
                                      "2026-01-02T00:00:00+99:00",
                                      "2026-01-02T00:00:00-24:00",
                                      "2026-01-02T00:00:00+01:60",
                                      "1970-01-02T00:00:00+1",
                                      "1969-12-31T23:59:59Z",
                                      "2200-01-01",
                                      "99999-01-01",
                                      "1970-01-02T00:00:00 x"};
    int64_t ns;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(weir__parse_time(good[i].text, &ns));
        CHECK_EQ(ns, good[i].ns);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!weir__parse_time(bad[i], &ns));
}

TEST(duration_from_text)
{
    static const struct {
        const char *text;
        int64_t ns;
        int one; /* the unit of which it is exactly one; -1: none */
    } good[] = {
        {"0", 0, -1},
        {"0s", 0, -1},
        {"250us", S / 4000, -1},
        {"1", S, WEIR__SECONDS},
        {"60", 60 * S, -1},
        {"0.5", S / 2, -1},
        {"0.000000001", 1, -1},
        {"1.500", 1500 * MS, -1},
        {"1.5s", 1500 * MS, -1},
        {"500ms", 500 * MS, -1},
        {"30s", 30 * S, -1},
        {"5m", 300 * S, -1},
        {"1h", 3600 * S, WEIR__HOURS},
        {"1d", D, WEIR__DAYS},
        {"1w", 7 * D, WEIR__WEEKS},
        {"1mo", 30 * D, WEIR__MONTHS},
        {"1y", 365 * D, WEIR__YEARS},
        {"2d", 2 * D, -1},
        {"24h", D, -1},
        {"86400", D, -1},
        {"1.0d", D, -1},
        {"11d", 11 * D, -1},
        {"1d1h", D + 3600 * S, -1},
        {"1h30m", 5400 * S, -1},
        {"1h30m15s250ms", 5415 * S + 250 * MS, -1},
        {"1.5h", 5400 * S, -1},
        {"0.25d", D / 4, -1},
        {"0m1s", S, -1},
        {"400d", 400 * D, -1},
        {"1y1mo5d", 400 * D, -1},
        {"34560000", 400 * D, -1},
    };
    static const char *const bad[] = {
        "",
        "-1",
        "-5s",
        "+5s",
        "s",
        "1x",
        "1M",
        "1 h",
        "1h ",
        " 1h",
        "1min",
        "1hour",
        "1H",
        "1mo1y",
        "30m1h",
        "1h1h",
        "1.",
        ".5",
        "1.s",
        "1.5.5",
        "1..5",
        "1h5",
        "1h30m5",
        "1,5s",
        "401d",
        "2y",
        "1y1mo6d",
        "34560001",
        "1e3",
        "0x1",
        "1s1",
        "h1",
        "1µs",
        "1ns",
        "010",
        "01d",
        "1h05m",
        "00.5",
        "99999999999999999999",
        "999999999999999999999999999999y",
        "0.0000000001",
        "1.0000001ms",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct weir__duration duration = {0};
        CHECK(weir__duration_read(weir__text_of(good[i].text), 400 * D, &duration) == WEIR__DURATION_OK);
        CHECK_EQ(duration.ns, good[i].ns);
        CHECK_EQ(duration.is_one ? (int)duration.finest : -1, good[i].one);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct weir__duration duration = {.ns = 77};
        bool taken = weir__duration_read(weir__text_of(bad[i]), 400 * D, &duration) == WEIR__DURATION_OK;
        if (taken)
            printf("  taken: %s\n", bad[i]);
        CHECK(!taken);
        CHECK_EQ(duration.ns, 77);
    }
}

/* Any number of milliseconds, formatted in parts, parses to the same value. */
TEST(duration_of_any_length)
{
    uint64_t seed = 21;
    for (int64_t run = test_scaled(100000, 1000); run > 0; run--) {
        char text[96];
        int64_t ms = (int64_t)(test_random(&seed) % (UINT64_C(400) * 86400000) >> (test_random(&seed) % 35)) + 1;
        snprintf(text, sizeof text, "%" PRId64 "d%" PRId64 "h%" PRId64 "m%" PRId64 ".%03" PRId64 "s", ms / 86400000,
                 ms / 3600000 % 24, ms / 60000 % 60, ms / 1000 % 60, ms % 1000);
        struct weir__duration duration;
        if (ms > INT64_C(400) * 86400000)
            continue;
        CHECK(weir__duration_read(weir__text_of(text), 400 * D, &duration) == WEIR__DURATION_OK);
        CHECK_EQ(duration.ns, ms * MS);
        CHECK(!duration.is_one);
    }
}

TEST(duration_is_bounded)
{
    int64_t ns = 77;
    CHECK(!weir__parse_duration(WEIR__TEXT("61m"), 3600 * S, &ns) && ns == 77);
    CHECK(weir__parse_duration(WEIR__TEXT("60m"), 3600 * S, &ns) && ns == 3600 * S);
    CHECK(!weir__parse_duration(WEIR__TEXT("292y292y"), INT64_MAX, &ns));
    CHECK(!weir__parse_duration(WEIR__TEXT("292y12mo"), INT64_MAX, &ns));
}

TEST(size_from_text)
{
    static const struct {
        const char *text;
        int64_t bytes; /* -1: unreadable */
    } cases[] = {{"0", 0},
                 {"17", 17},
                 {"17B", 17},
                 {"512KiB", 512 << 10},
                 {"1048576GiB", INT64_C(1) << 50},
                 {"1048577GiB", INT64_MAX},
                 {"64MB", -1},
                 {"64 MiB", -1},
                 {"MiB", -1},
                 {"", -1},
                 {"-1MiB", -1},
                 {"01MiB", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes = -1;
        CHECK_EQ(weir__parse_size(weir__text_of(cases[i].text), &bytes), cases[i].bytes >= 0);
        CHECK_EQ(bytes, cases[i].bytes);
    }
}

TEST(duration_is_formatted)
{
    char text[WEIR__DURATION_TEXT];
    CHECK(strcmp(weir__seconds_text(1250 * MS, text), "1.25") == 0);
    CHECK(strcmp(weir__seconds_text(-S, text), "-1") == 0);
    CHECK(strcmp(weir__wait_text(1, text), "0.001") == 0);
    CHECK(strcmp(weir__window_text(500 * MS, text), "500ms") == 0);
    CHECK(strcmp(weir__window_text(1500 * MS, text), "1.5s") == 0);
    CHECK(strcmp(weir__window_text(3600 * S, text), "1h") == 0);
    CHECK(strcmp(weir__window_text(14 * D, text), "14d") == 0);
    CHECK(strcmp(weir__bytes_text(17.83e6, text), "17.8 MB") == 0);
    CHECK(strcmp(weir__bytes_text(512, text), "512 B") == 0);
    CHECK(strcmp(weir__size_text(19.1e6, text), "19MiB") == 0);
    CHECK(strcmp(weir__size_text(67108864, text), "64MiB") == 0);
    CHECK(strcmp(weir__size_text(67108865, text), "65MiB") == 0);
    CHECK(strcmp(weir__size_text(1024, text), "1024B") == 0);
    CHECK(strcmp(weir__size_text(6e12, text), "5588GiB") == 0);
    int64_t bytes;
    CHECK(weir__parse_size(weir__text_of(weir__size_text(1.28e9, text)), &bytes) && bytes >= 1280000000);
}

TEST_MAIN
