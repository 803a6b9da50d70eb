/* The public calls: what they refuse, which outputs they leave unchanged, and statistics. */
#include "api.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- Arguments ---- */

/* Every call that takes a key refuses these arguments with this error, and changes nothing. */
static void check_refused(weir_segment *s, const weir_limit *limit, const void *key, size_t len, int64_t cost,
                          weir_time now, int error)
{
    weir_decision d, mark;
    memset(&mark, 0x5a, sizeof mark);
    d = mark;
    CHECK_EQ(weir_take(s, limit, key, len, cost, now, &d), error);
    CHECK_EQ(weir_peek(s, limit, key, len, cost, now, &d), error);
    CHECK_EQ(weir_charge(s, limit, key, len, cost, now, &d), error);
    CHECK_EQ(weir_refund(s, limit, key, len, cost, now, &d), error);
    CHECK(memcmp(&d, &mark, sizeof d) == 0);
    if (error != WEIR_ECOST) {
        CHECK_EQ(weir_reset(s, limit, key, len, now), error);
        CHECK_EQ(weir_block(s, limit, key, len, WEIR_SECOND, now), error);
        CHECK_EQ(weir_block(s, limit, key, len, 0, now), error);
    }
    weir_request r = {.limit = limit, .key = key, .key_len = len, .cost = cost, .decision = mark};
    if (s)
        CHECK_EQ(weir_take_batch(s, &r, 1, now), 1);
    CHECK_EQ(r.error, s ? error : 0);
    CHECK(memcmp(&r.decision, &mark, sizeof mark) == 0);
}

TEST(invalid_arguments_are_refused)
{
    weir_segment *s = make();
    weir_limit limit = limit_of(kinds[0]), raw;
    weir_decision d;
    char *big = malloc(65536);
    memset(&raw, 0, sizeof raw);
    memset(big, 'x', 65536);

    check_refused(s, &limit, "", 0, 1, NOW, WEIR_EKEYEMPTY);
    check_refused(s, &limit, NULL, 0, 1, NOW, WEIR_EKEYEMPTY);
    check_refused(s, &limit, NULL, 3, 1, NOW, WEIR_EINVAL);
    check_refused(s, &limit, big, 65536, 1, NOW, WEIR_EKEYLONG);
    check_refused(s, &limit, big, SIZE_MAX, 1, NOW, WEIR_EKEYLONG);
    check_refused(s, &limit, "k", 1, COST_MAX + 1, NOW, WEIR_ECOST);
    check_refused(s, &limit, "k", 1, -COST_MAX - 1, NOW, WEIR_ECOST);
    check_refused(s, &limit, "k", 1, INT64_MAX, NOW, WEIR_ECOST);
    check_refused(s, &limit, "k", 1, INT64_MIN, NOW, WEIR_ECOST);
    check_refused(s, &limit, "k", 1, 1, (weir_time){-1, 0}, WEIR_ETIME);
    check_refused(s, &limit, "k", 1, 1, (weir_time){0, -1}, WEIR_ETIME);
    check_refused(s, &limit, "k", 1, 1, (weir_time){INT64_MIN, INT64_MIN}, WEIR_ETIME);
    check_refused(s, NULL, "k", 1, 1, NOW, WEIR_EINVAL);
    check_refused(s, &raw, "k", 1, 1, NOW, WEIR_EINVAL);
    check_refused(NULL, &limit, "k", 1, 1, NOW, WEIR_EINVAL);
    CHECK_EQ(weir_take(s, &limit, big, 65535, 1, NOW, &d), 0);
    CHECK_EQ(d.remaining, 9);

    CHECK_EQ(weir_refund(s, &limit, "k", 1, -1, NOW, &d), WEIR_ECOST);
    CHECK_EQ(weir_charge(s, &limit, "k", 1, -1, NOW, &d), WEIR_ECOST);
    CHECK_EQ(weir_block(s, &limit, "k", 1, -1, NOW), WEIR_EINVAL);
    CHECK_EQ(weir_block(s, &limit, "k", 1, 401 * WEIR_DAY, NOW), WEIR_EWINDOW);
    CHECK_EQ(weir_block(s, &limit, "k", 1, INT64_MAX, NOW), WEIR_EWINDOW);
    CHECK_EQ(remaining(s, &limit, "k", NOW), 10);
    weir_segment_close(s);
    free(big);
}

static int visit_none(void *context, const weir_entry *entry)
{
    (void)entry;
    ++*(int *)context;
    return 7;
}

TEST(outputs_may_be_null)
{
    weir_segment *s = make();
    weir_limit limit = limit_of(kinds[0]);
    weir_stats stats;
    weir_report report;
    uint64_t looked, live;
    int visits = 0;

    CHECK_EQ(weir_take(s, &limit, "k", 1, 1, NOW, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_peek(s, &limit, "k", 1, 1, NOW, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_refund(s, &limit, "k", 1, 1, NOW, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_charge(s, &limit, "k", 1, 1, NOW, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_take_batch(s, NULL, 1, NOW), WEIR_EINVAL);
    CHECK_EQ(weir_take_batch(s, NULL, 0, NOW), 0);
    CHECK_EQ(weir_take_batch(NULL, NULL, 0, NOW), WEIR_EINVAL);
    CHECK_EQ(weir_stats_read(NULL, &stats), WEIR_EINVAL);
    CHECK_EQ(weir_stats_read(s, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_segment_each(NULL, NOW, visit_none, &visits), WEIR_EINVAL);
    CHECK_EQ(weir_segment_each(s, NOW, NULL, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_segment_sample(NULL, NOW, 1, &looked, &live), WEIR_EINVAL);
    CHECK_EQ(weir_segment_sample(s, NOW, 0, &looked, &live), WEIR_EINVAL);
    CHECK_EQ(weir_segment_sample(s, NOW, 1, NULL, &live), WEIR_EINVAL);
    CHECK_EQ(weir_segment_sample(s, NOW, 1, &looked, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_segment_validate(NULL, NOW, &report), WEIR_EINVAL);
    CHECK_EQ(weir_segment_validate(s, NOW, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_limit_init(NULL, &kinds[0]), WEIR_EINVAL);
    CHECK_EQ(weir_limit_init(&limit, NULL), WEIR_EINVAL);
    CHECK_EQ(weir_segment_each(s, NOW, visit_none, &visits), 0);
    CHECK_EQ(visits, 0);
    take(s, &limit, "a", 1, NOW);
    take(s, &limit, "b", 1, NOW);
    CHECK_EQ(weir_segment_each(s, NOW, visit_none, &visits), 7);
    CHECK_EQ(visits, 1); /* a non-zero result of the visitor ends it */
    weir_segment_close(s);
}

TEST(samples_estimate_the_fill)
{
    weir_segment *s = make();
    weir_limit limit = limit_of(kinds[0]);
    weir_stats stats;
    weir_report report;
    uint64_t looked, live;
    char key[16];

    CHECK_EQ(weir_segment_sample(s, NOW, 1000, &looked, &live), 0);
    CHECK_EQ(looked, 1000);
    CHECK_EQ(live, 0);
    CHECK_EQ(weir_stats_read(s, &stats), 0);
    for (uint64_t i = 0; i < stats.slots / 2; i++) {
        snprintf(key, sizeof key, "%d", (int)i);
        take(s, &limit, key, 1, NOW);
    }
    CHECK_EQ(weir_segment_validate(s, NOW, &report), 0);
    CHECK_EQ(weir_segment_sample(s, NOW, stats.slots * 2, &looked, &live), 0);
    CHECK_EQ(looked, stats.slots);
    CHECK_EQ(live, report.live);
    CHECK_EQ(weir_segment_sample(s, NOW, 1000, &looked, &live), 0);
    CHECK(live > looked * 4 / 10 && live < looked * 6 / 10);
    weir_segment_close(s);
}

TEST(keys_are_compared_byte_by_byte)
{
    weir_segment *s = make();
    weir_limit limit = limit_of(kinds[0]);
    static const struct {
        const char *bytes;
        size_t len;
    } keys[] = {{"\0", 1}, {"\0\0", 2}, {"\0\0\0", 3}, {"a\0b", 3}, {"a\0c", 3}, {"a", 1}, {"a\0", 2}, {"\xff", 1}};
    for (size_t i = 0; i < COUNT(keys); i++) {
        weir_decision d;
        CHECK_EQ(weir_take(s, &limit, keys[i].bytes, keys[i].len, 10, NOW, &d), 0);
        CHECK_EQ(d.verdict, WEIR_ALLOW);
    }
    for (size_t i = 0; i < COUNT(keys); i++) {
        weir_decision d;
        CHECK_EQ(weir_take(s, &limit, keys[i].bytes, keys[i].len, 1, NOW, &d), 0);
        CHECK_EQ(d.verdict, WEIR_DENY);
    }
    /* Ids and algorithms keep keys apart, too. */
    for (size_t i = 0; i < COUNT(kinds); i++) {
        weir_params p = kinds[i];
        p.id = 100 + i;
        weir_limit other = limit_of(p);
        CHECK(passes(s, &other, "a", 10, NOW));
    }
    weir_segment_close(s);
}

TEST(errors_have_names_and_texts)
{
    static const struct {
        int code;
        const char *name;
    } all[] = {{0, "WEIR_OK"},
#define ROW(name, number, text) {-(number), "WEIR_" #name},
               WEIR_ERRORS(ROW)
#undef ROW
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        CHECK(strcmp(weir_error_name(all[i].code), all[i].name) == 0);
        CHECK(strlen(weir_strerror(all[i].code)) > 5);
        for (size_t k = 0; k < i; k++) {
            CHECK(all[i].code != all[k].code);
            CHECK(strcmp(weir_error_name(all[i].code), weir_error_name(all[k].code)) != 0);
            CHECK(strcmp(weir_strerror(all[i].code), weir_strerror(all[k].code)) != 0);
        }
    }
    const int unknown[] = {1, all[COUNT(all) - 1].code - 1, -1000, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < COUNT(unknown); i++) {
        CHECK(strlen(weir_strerror(unknown[i])) > 5 && strlen(weir_error_name(unknown[i])) > 5);
        CHECK(strcmp(weir_error_name(unknown[i]), "WEIR_OK") != 0);
    }
    CHECK(strcmp(weir_version(), WEIR_VERSION) == 0);
}

/* ---- Read-only ---- */

TEST(read_only_segment_is_not_changed)
{
    char directory[200], path[220];
    const char *base = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/weir-test-XXXXXX", base ? base : "/tmp");
    CHECK(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/seg", directory);
    weir_segment_options options = {.path = path, .size = 1 << 20, .flags = WEIR_OPEN_CREATE};
    weir_segment *s = NULL, *r = NULL;
    CHECK_EQ(weir_segment_open(&options, &s), 0);
    options.flags = WEIR_OPEN_READONLY;
    CHECK_EQ(weir_segment_open(&options, &r), 0);

    for (size_t i = 0; i < COUNT(kinds); i++) {
        weir_params params = kinds[i];
        params.id = i;
        weir_limit limit = limit_of(params);
        weir_decision d, mark;
        memset(&mark, 0x5a, sizeof mark);
        d = mark;
        weir_request request = {.limit = &limit, .key = "k", .key_len = 1, .cost = 1};
        CHECK_EQ(weir_take(r, &limit, "k", 1, 1, NOW, &d), WEIR_EREADONLY);
        CHECK_EQ(weir_refund(r, &limit, "k", 1, 1, NOW, &d), WEIR_EREADONLY);
        CHECK_EQ(weir_charge(r, &limit, "k", 1, 1, NOW, &d), WEIR_EREADONLY);
        CHECK_EQ(weir_reset(r, &limit, "k", 1, NOW), WEIR_EREADONLY);
        CHECK_EQ(weir_block(r, &limit, "k", 1, WEIR_SECOND, NOW), WEIR_EREADONLY);
        CHECK_EQ(weir_take_batch(r, &request, 1, NOW), WEIR_EREADONLY);
        CHECK(memcmp(&d, &mark, sizeof d) == 0);

        CHECK_EQ(remaining(r, &limit, "k", NOW), 10);
        CHECK(passes(s, &limit, "k", 4, NOW));
        CHECK_EQ(remaining(r, &limit, "k", NOW), 6);
        CHECK_EQ(weir_peek(r, &limit, "k", 1, 7, NOW, &d), 0);
        CHECK_EQ(d.verdict, WEIR_DENY);
        CHECK_EQ(weir_peek(r, &limit, "k", 1, 6, NOW, &d), 0);
        CHECK(weir_passes(&d));
        CHECK_EQ(weir_block(s, &limit, "k", 1, WEIR_SECOND, NOW), 0);
        CHECK_EQ(weir_peek(r, &limit, "k", 1, 1, NOW, &d), 0);
        CHECK_EQ(d.verdict, WEIR_BLOCKED);
    }
    weir_stats stats;
    weir_report report;
    int visits = 0;
    CHECK_EQ(weir_stats_read(r, &stats), 0);
    CHECK_EQ(stats.allowed + stats.delayed, COUNT(kinds));
    CHECK_EQ(weir_segment_validate(r, NOW, &report), 0);
    CHECK(report.live >= COUNT(kinds));
    CHECK_EQ(weir_segment_each(r, NOW, visit_none, &visits), 7);
    weir_segment_close(r);
    weir_segment_close(s);
    CHECK_EQ(unlink(path) + rmdir(directory), 0);
}

/* ---- Batches ---- */

TEST(batch_with_bad_requests)
{
    weir_segment *s = make();
    weir_limit limit = limit_of(kinds[0]);
    weir_request r[100];
    weir_decision mark;
    memset(&mark, 0x5a, sizeof mark);
    for (int i = 0; i < 100; i++) {
        r[i] = (weir_request){.limit = &limit, .key = "k", .key_len = 1, .cost = 1, .error = 99, .decision = mark};
        if (i % 5 == 1)
            r[i].limit = NULL;
        else if (i % 5 == 2)
            r[i].key_len = 0;
        else if (i % 5 == 3)
            r[i].cost = COST_MAX + 1;
    }
    CHECK_EQ(weir_take_batch(s, r, 100, NOW), 60);
    int passed = 0;
    for (int i = 0; i < 100; i++) {
        const int expected[] = {0, WEIR_EINVAL, WEIR_EKEYEMPTY, WEIR_ECOST, 0};
        CHECK_EQ(r[i].error, expected[i % 5]);
        if (r[i].error)
            CHECK(memcmp(&r[i].decision, &mark, sizeof mark) == 0);
        else
            passed += weir_passes(&r[i].decision);
        if (!r[i].error)
            CHECK_EQ(weir_passes(&r[i].decision), i < 25); /* two of every five, until the ten are used up */
    }
    CHECK_EQ(passed, 10);
    weir_stats stats;
    CHECK_EQ(weir_stats_read(s, &stats), 0);
    CHECK_EQ(stats.allowed, 10);
    CHECK_EQ(stats.denied, 30);
    CHECK_EQ(stats.errors, 60);
    CHECK_EQ(weir_take_batch(s, r, 100, (weir_time){-1, 0}), 100);
    weir_segment_close(s);
}

/* ---- Statistics ---- */

TEST(statistics_add_up)
{
    weir_segment *s = make();
    uint64_t seed = 1, takes = 0, count[5] = {0}, errors = 0, soft = 0;
    weir_limit limits[COUNT(kinds)];
    for (size_t i = 0; i < COUNT(kinds); i++) {
        weir_params p = kinds[i];
        p.soft_percent = i % 2 ? 50 : 0;
        p.id = i;
        limits[i] = limit_of(p);
    }
    for (int64_t i = 0, rounds = test_scaled(200000, 2000); i < rounds; i++) {
        uint64_t bits = test_random(&seed);
        const weir_limit *limit = &limits[bits % COUNT(kinds)];
        uint32_t key = bits >> 8 & 63;
        weir_time now = later(i * 10000000);
        weir_decision d;
        if ((bits >> 20) % 64 == 0)
            CHECK_EQ(weir_block(s, limit, &key, sizeof key, WEIR_SECOND, now), 0);
        if ((bits >> 26) % 8 == 0) /* none of these is a decision about a request */
            CHECK_EQ(weir_charge(s, limit, &key, sizeof key, 1, now, &d) + weir_peek(s, limit, &key, 4, 1, now, &d) +
                         weir_refund(s, limit, &key, sizeof key, 1, now, &d) + weir_reset(s, limit, &key, 4, now),
                     0);
        int64_t cost = (bits >> 30 & 63) == 0 ? COST_MAX + 1 : (int64_t)(bits >> 36 & 15);
        int error = weir_take(s, limit, &key, sizeof key, cost, now, &d);
        CHECK_EQ(error, cost > COST_MAX ? WEIR_ECOST : 0);
        takes++;
        errors += error != 0;
        if (!error) {
            count[d.verdict]++;
            soft += d.flags & WEIR_OVER_SOFT;
        }
    }
    weir_stats stats;
    CHECK_EQ(weir_stats_read(s, &stats), 0);
    CHECK_EQ(stats.allowed, count[WEIR_ALLOW]);
    CHECK_EQ(stats.delayed, count[WEIR_DELAY]);
    CHECK_EQ(stats.denied, count[WEIR_DENY]);
    CHECK_EQ(stats.never_fits, count[WEIR_NEVER_FITS]);
    CHECK_EQ(stats.blocked, count[WEIR_BLOCKED]);
    CHECK_EQ(stats.errors, errors);
    CHECK_EQ(stats.soft, soft);
    CHECK_EQ(stats.allowed + stats.delayed + stats.denied + stats.never_fits + stats.blocked + stats.errors, takes);
    for (int i = 0; i < 5; i++)
        CHECK(count[i] > 0);
    CHECK(soft > 0 && errors > 0 && stats.created > 0);
    weir_segment_close(s);
}

TEST_MAIN
