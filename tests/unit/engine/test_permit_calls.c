/* Permits: acquired, released, renewed, and expired. */
#include <weir/weir.h>

#include "../../test.h"

#define START (WEIR_DAY * 20000 + 123456789)

static weir_segment *open_segment(uint64_t slab_bytes)
{
    weir_segment *segment = NULL;
    weir_segment_options options = {.size = 1 << 20, .slab_bytes = slab_bytes};
    CHECK_EQ(weir_segment_open(&options, &segment), 0);
    return segment;
}

static weir_limit limit_of(int64_t slots, int64_t lease_ns, int soft)
{
    weir_limit limit;
    weir_params params = {
        .algorithm = WEIR_CONCURRENCY, .limit = slots, .window_ns = lease_ns, .soft_percent = soft, .id = 7};
    CHECK_EQ(weir_limit_init(&limit, &params), 0);
    return limit;
}

static weir_time at(int64_t ns)
{
    return (weir_time){START + ns, START + ns};
}

static bool acquire(weir_segment *segment, const weir_limit *limit, const char *key, int64_t ns, weir_lease *lease)
{
    weir_decision d;
    CHECK_EQ(weir_acquire(segment, limit, key, strlen(key), at(ns), lease, &d), 0);
    return weir_passes(&d);
}

TEST(limit_is_the_number_of_permits)
{
    weir_segment *segment = open_segment(0);
    weir_limit three = limit_of(3, 0, 0);
    weir_lease lease[4];
    weir_decision d;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weir_acquire(segment, &three, "a", 1, at(0), &lease[i], &d), 0);
        CHECK_EQ(d.verdict, WEIR_ALLOW);
        CHECK_EQ(d.limit, 3);
        CHECK_EQ(d.remaining, 2 - i);
        CHECK_EQ(d.reset_after_ns, -1);
    }
    CHECK_EQ(weir_acquire(segment, &three, "a", 1, at(0), &lease[3], &d), 0);
    CHECK_EQ(d.verdict, WEIR_DENY);
    CHECK_EQ(d.remaining, 0);
    CHECK_EQ(d.retry_after_ns, WEIR_SECOND);
    CHECK(acquire(segment, &three, "b", 0, &lease[3]));

    CHECK_EQ(weir_release(segment, &lease[1], at(1)), 0);
    CHECK_EQ(weir_peek(segment, &three, "a", 1, 1, at(1), &d), 0);
    CHECK_EQ(d.verdict, WEIR_ALLOW);
    CHECK_EQ(d.remaining, 0);
    CHECK(acquire(segment, &three, "a", 2, &lease[3]));
    CHECK(!acquire(segment, &three, "a", 2, &lease[1]));
    weir_segment_close(segment);
}

TEST(second_release_frees_no_other_permit)
{
    weir_segment *segment = open_segment(0);
    weir_limit one = limit_of(1, 10 * WEIR_SECOND, 0);
    weir_lease first, second, third;
    CHECK(acquire(segment, &one, "a", 0, &first));
    CHECK_EQ(weir_release(segment, &first, at(0)), 0);
    CHECK_EQ(weir_release(segment, &first, at(0)), WEIR_ELEASE);
    CHECK(acquire(segment, &one, "a", 0, &second));
    CHECK_EQ(weir_release(segment, &first, at(0)), WEIR_ELEASE);
    CHECK(!acquire(segment, &one, "a", 0, &third));
    /* Too late: it is the third's by then. */
    CHECK(acquire(segment, &one, "a", 10 * WEIR_SECOND, &third));
    CHECK_EQ(weir_release(segment, &second, at(10 * WEIR_SECOND)), WEIR_ELEASE);
    CHECK(!acquire(segment, &one, "a", 10 * WEIR_SECOND, &second));
    CHECK_EQ(weir_release(segment, &third, at(10 * WEIR_SECOND)), 0);
    weir_segment_close(segment);
}

TEST(permit_is_free_when_its_lease_expires)
{
    weir_segment *segment = open_segment(0);
    weir_limit two = limit_of(2, WEIR_SECOND, 0);
    weir_lease a, b, c;
    CHECK(acquire(segment, &two, "a", 0, &a));
    CHECK(acquire(segment, &two, "a", 0, &b));
    CHECK(!acquire(segment, &two, "a", WEIR_SECOND - 1000, &c));
    CHECK_EQ(weir_renew(segment, &a, at(WEIR_SECOND - 1000)), 0);
    CHECK(acquire(segment, &two, "a", WEIR_SECOND, &c));
    CHECK(!acquire(segment, &two, "a", 2 * WEIR_SECOND - 2000, &b));
    CHECK_EQ(weir_renew(segment, &b, at(2 * WEIR_SECOND - 2000)), WEIR_ELEASE);
    CHECK(acquire(segment, &two, "a", 2 * WEIR_SECOND - 1000, &b));
    CHECK_EQ(weir_release(segment, &a, at(2 * WEIR_SECOND)), WEIR_ELEASE);
    /* Renewed again and again, its record stays. */
    for (int i = 1; i <= 100; i++)
        CHECK_EQ(weir_renew(segment, &b, at(2 * WEIR_SECOND + i * WEIR_SECOND / 2)), 0);
    CHECK_EQ(weir_release(segment, &b, at(52 * WEIR_SECOND)), 0);
    weir_segment_close(segment);
}

TEST(record_grows_and_keeps_its_permits)
{
    enum { SLOTS = 1000 };
    weir_segment *segment = open_segment(1 << 18);
    weir_limit many = limit_of(SLOTS, 0, 0);
    static weir_lease lease[SLOTS];
    weir_lease other;
    weir_decision d;
    for (int i = 0; i < SLOTS; i++)
        CHECK(acquire(segment, &many, "a", i, &lease[i]));
    CHECK(!acquire(segment, &many, "a", SLOTS, &other));
    /* The first ones have permit slots in records that are gone. */
    for (int i = 0; i < SLOTS; i++)
        CHECK_EQ(weir_release(segment, &lease[i], at(SLOTS)), 0);
    CHECK_EQ(weir_peek(segment, &many, "a", 1, 0, at(SLOTS), &d), 0);
    CHECK_EQ(d.remaining, SLOTS);
    for (int i = 0; i < SLOTS; i++)
        CHECK_EQ(weir_release(segment, &lease[i], at(SLOTS)), WEIR_ELEASE);
    weir_segment_close(segment);
}

TEST(soft_limit_block_and_reset)
{
    weir_segment *segment = open_segment(0);
    weir_limit soft = limit_of(2, 0, 50);
    weir_lease lease[4];
    weir_decision d;
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weir_acquire(segment, &soft, "a", 1, at(0), &lease[i], &d), 0);
    CHECK_EQ(d.flags, WEIR_OVER_SOFT);
    CHECK_EQ(d.remaining, -1);
    CHECK(!acquire(segment, &soft, "a", 0, &lease[3]));
    CHECK_EQ(weir_reset(segment, &soft, "a", 1, at(0)), 0);
    CHECK(acquire(segment, &soft, "a", 0, &lease[3]));
    for (int i = 0; i < 3; i++) /* of a record without an owner, or nothing */
        CHECK(weir_release(segment, &lease[i], at(0)) <= 0);
    CHECK_EQ(weir_peek(segment, &soft, "a", 1, 0, at(0), &d), 0);
    CHECK_EQ(d.remaining, 1);
    CHECK_EQ(weir_block(segment, &soft, "a", 1, WEIR_SECOND, at(0)), 0);
    CHECK_EQ(weir_acquire(segment, &soft, "a", 1, at(0), &lease[0], &d), 0);
    CHECK_EQ(d.verdict, WEIR_BLOCKED);
    CHECK_EQ(weir_release(segment, &lease[3], at(0)), 0);
    weir_segment_close(segment);
}

TEST(invalid_arguments_are_refused)
{
    weir_segment *segment = open_segment(0);
    weir_limit one = limit_of(1, 0, 0), bucket;
    weir_params params = {.limit = 1, .window_ns = WEIR_SECOND};
    weir_lease lease = {0}, good;
    weir_decision d;
    CHECK_EQ(weir_limit_init(&bucket, &params), 0);
    CHECK_EQ(weir_acquire(segment, &bucket, "a", 1, at(0), &lease, &d), WEIR_EINVAL);
    CHECK_EQ(weir_acquire(segment, &one, "a", 1, at(0), NULL, &d), WEIR_EINVAL);
    CHECK_EQ(weir_acquire(segment, &one, "", 0, at(0), &lease, &d), WEIR_EKEYEMPTY);
    CHECK_EQ(weir_release(segment, &lease, at(0)), WEIR_ELEASE);
    CHECK_EQ(weir_release(segment, NULL, at(0)), WEIR_EINVAL);
    CHECK_EQ(weir_release(segment, &lease, (weir_time){-1, 0}), WEIR_ETIME);
    CHECK_EQ(weir_renew(segment, &lease, at(0)), WEIR_ELEASE);
    params = (weir_params){.algorithm = WEIR_CONCURRENCY, .limit = 65536};
    CHECK_EQ(weir_limit_init(&bucket, &params), WEIR_ELIMIT);
    params = (weir_params){.algorithm = WEIR_CONCURRENCY, .limit = 1, .window_ns = WEIR_DAY + 1000};
    CHECK_EQ(weir_limit_init(&bucket, &params), WEIR_EWINDOW);
    params = (weir_params){.algorithm = WEIR_CONCURRENCY, .limit = 1, .burst = 2};
    CHECK_EQ(weir_limit_init(&bucket, &params), WEIR_EINVAL);

    /* A forged lease refers to nothing outside of the segment, and frees nothing. */
    uint64_t seed = 3;
    CHECK(acquire(segment, &one, "a", 0, &good));
    for (int64_t i = 0; i < test_scaled(100000, 1000); i++) {
        lease = good;
        uint64_t random[6];
        for (int j = 0; j < 6; j++)
            random[j] = test_random(&seed) >> test_random(&seed) % 64;
        memcpy((char *)&lease + test_random(&seed) % 6 * 8, random, 8);
        if (i % 2)
            memcpy(&lease, random, sizeof lease);
        bool same = lease.word == good.word && lease.place == good.place;
        int error = i % 3 ? weir_release(segment, &lease, at(0)) : weir_renew(segment, &lease, at(0));
        CHECK(error == WEIR_ELEASE || (same && error == 0));
        if (!error && i % 3)
            CHECK(acquire(segment, &one, "a", 0, &good));
        else if (!error)
            good = lease;
        CHECK(!acquire(segment, &one, "a", 0, &lease));
    }
    weir_segment_close(segment);
}

TEST(full_slab_is_an_error)
{
    weir_segment *segment = NULL;
    weir_segment_options options = {.size = 1 << 20, .no_slab = true};
    weir_limit one = limit_of(1, 0, 0);
    weir_lease lease;
    weir_decision d;
    CHECK_EQ(weir_segment_open(&options, &segment), 0);
    CHECK_EQ(weir_acquire(segment, &one, "a", 1, at(0), &lease, &d), WEIR_EFULL);
    weir_segment_close(segment);
}

/* ---- Against a naive list of holders, with changing limits ---- */

enum { KEYS = 6, HOLDERS = 300 };

struct holder {
    weir_lease lease;
    int key;
    int64_t until;
    bool over; /* released */
};

struct model {
    struct holder holder[HOLDERS];
    int64_t now;
};

static int64_t in_flight(const struct model *model, int key)
{
    int64_t count = 0;
    for (int i = 0; i < HOLDERS; i++)
        count += model->holder[i].key == key && !model->holder[i].over && model->holder[i].until > model->now;
    return count;
}

static void step(struct model *model, weir_segment *segment, const weir_limit *limit, uint64_t *seed)
{
    struct holder *holder = &model->holder[test_random(seed) % HOLDERS];
    bool holds = !holder->over && holder->until > model->now;
    char key[2] = {(char)('a' + test_random(seed) % KEYS), 0};
    weir_lease lease = holder->lease;
    weir_decision d;
    switch (test_random(seed) % 8) {
    case 0:
        model->now += (int64_t)(test_random(seed) % 40) * WEIR_SECOND / 100;
        return;
    case 1:
        CHECK_EQ(weir_renew(segment, &lease, at(model->now)), holds ? 0 : WEIR_ELEASE);
        if (holds)
            *holder = (struct holder){lease, holder->key, model->now + limit->window_us * 1000, false};
        return;
    case 2:
    case 3:
    case 4: {
        int error = weir_release(segment, &lease, at(model->now));
        /* An expired one may still be in its slot, if that was not needed. */
        CHECK(error == 0 ? !holder->over : error == WEIR_ELEASE && !holds);
        holder->over = true;
        return;
    }
    default:
        if (holds)
            return;
    }
    int64_t before = in_flight(model, key[0]);
    CHECK_EQ(weir_peek(segment, limit, key, 1, 1, at(model->now), &d), 0);
    CHECK_EQ(weir_passes(&d), before < limit->cap);
    if (weir_passes(&d))
        CHECK_EQ(d.remaining, limit->hard - before - 1);
    CHECK_EQ(weir_acquire(segment, limit, key, 1, at(model->now), &lease, &d), 0);
    CHECK_EQ(weir_passes(&d), before < limit->cap);
    if (!weir_passes(&d))
        return;
    CHECK(d.remaining <= limit->hard - before - 1 && d.remaining >= 0);
    *holder = (struct holder){lease, key[0], model->now + limit->window_us * 1000, false};
}

TEST(permits_agree_with_a_list_of_holders)
{
    static const int64_t slots[] = {1, 3, 7, 33, 40, 70};
    static struct model model;
    weir_limit limit[6];
    uint64_t seed = 42;
    for (int i = 0; i < 6; i++)
        limit[i] = limit_of(slots[i], WEIR_SECOND, 0);
    for (int round = 0; round < 20; round++) {
        weir_segment *segment = open_segment(1 << 18);
        weir_stats stats;
        memset(&model, 0, sizeof model);
        for (int i = 0; i < HOLDERS; i++)
            model.holder[i].over = true;
        for (int64_t i = 0; i < test_scaled(100000, 2000); i++) /* one limit at first; later all of them alternately */
            step(&model, segment, &limit[round < 10 ? round % 6 : (int)(test_random(&seed) % 6)], &seed);
        CHECK_EQ(weir_stats_read(segment, &stats), 0);
        CHECK_EQ(stats.evicted_live, 0);
        weir_segment_close(segment);
    }
}

TEST_MAIN
