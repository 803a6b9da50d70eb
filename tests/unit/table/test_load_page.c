/* The load page: values are read as written, stale values are neutral, and killed workers leave nothing in flight. */
#include "../../test.h"

#include "table/load_page.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define NOW    (1000000 * SECOND)

static struct weir__load_page *made(void)
{
    void *memory =
        mmap(NULL, sizeof(struct weir__load_page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK_EQ(weir__row_file_format(memory, sizeof(struct weir__load_page), &weir__load_format), 0);
    CHECK_EQ(weir__row_file_check(memory, sizeof(struct weir__load_page), &weir__load_format), 0);
    return memory;
}

static void drop(struct weir__load_page *load)
{
    munmap(load, sizeof *load);
}

static bool is_neutral(const struct weir__load_view *view)
{
    bool neutral = !view->known && view->level == 0 && view->throttle == 1000;
    for (int i = 0; i < WEIR__LOAD_CLASSES; i++)
        neutral &= view->shed[i] == 0;
    for (int i = 0; i < WEIR__SIGNALS; i++)
        neutral &= view->signal[i] == WEIR__SIGNAL_NONE;
    return neutral;
}

TEST(invalid_page_is_refused)
{
    struct weir__load_page *load = made();
    size_t bytes = sizeof *load;
    CHECK_EQ(weir__row_file_format(load, bytes - 1, &weir__load_format), WEIR_ESIZE);
    CHECK_EQ(weir__row_file_check(load, bytes - 1, &weir__load_format), WEIR_EDAMAGED);
    CHECK_EQ(weir__row_file_check(load, bytes + 1, &weir__load_format), WEIR_EDAMAGED);
    load->file.layout++;
    CHECK_EQ(weir__row_file_check(load, bytes, &weir__load_format), WEIR_EDAMAGED);
    load->file.layout--;
    load->file.rows--;
    CHECK_EQ(weir__row_file_check(load, bytes, &weir__load_format), WEIR_EDAMAGED);
    load->file.rows++;
    load->file.magic ^= 1;
    CHECK_EQ(weir__row_file_check(load, bytes, &weir__load_format), WEIR_EDAMAGED);
    drop(load);
}

TEST(values_are_read_as_written)
{
    struct weir__load_page *load = made();
    uint64_t seed = 5;
    for (int round = 0; round < 1000; round++) {
        struct weir__load_view in = {.level = (uint32_t)(test_random(&seed) % 1001),
                                     .elastic_level = (uint32_t)(test_random(&seed) % 1001),
                                     .throttle = (uint32_t)(test_random(&seed) % 1001)};
        struct weir__load_view out;
        for (int i = 1; i < WEIR__LOAD_CLASSES; i++)
            in.shed[i] = (uint32_t)(test_random(&seed) % 1001);
        for (int i = 0; i < WEIR__SIGNALS; i++)
            in.signal[i] = test_random(&seed) % 4 ? (uint32_t)(test_random(&seed) % 1001) : WEIR__SIGNAL_NONE;
        weir__load_page_write(load, NOW, &in);
        weir__load_page_read(load, NOW, &out);
        CHECK(out.known && out.level == in.level && out.throttle == in.throttle);
        CHECK_EQ(out.elastic_level,
                 in.elastic_level > in.level ? in.elastic_level : in.level); /* never less than the level */
        CHECK(memcmp(out.shed, in.shed, sizeof in.shed) == 0 && memcmp(out.signal, in.signal, sizeof in.signal) == 0);
    }
    drop(load);
}

TEST(baseline_is_valid_for_a_minute)
{
    struct weir__load_page *load = made();
    struct weir__load_view view = weir__load_view_neutral();
    weir__load_page_set_baseline(load, 20000);
    CHECK_EQ(weir__load_page_baseline(load, NOW), 0); /* nothing was published yet */
    weir__load_page_write(load, NOW, &view);
    CHECK_EQ(weir__load_page_baseline(load, NOW), 20000);
    CHECK_EQ(weir__load_page_baseline(load, NOW + 59 * SECOND), 20000); /* longer than a level */
    CHECK_EQ(weir__load_page_baseline(load, NOW + 61 * SECOND), 0);     /* but not forever */
    drop(load);
}

TEST(too_high_values_are_clamped)
{
    struct weir__load_page *load = made();
    struct weir__load_view view = {.level = 5000, .throttle = 1001, .shed = {1001, 4000000000u, 0, 1000}};
    view.signal[0] = 1500;
    weir__load_page_write(load, NOW, &view);
    weir__load_page_read(load, NOW, &view);
    CHECK(view.level == 1000 && view.throttle == 1000 && view.shed[0] == 0 && view.shed[1] == 1000);
    CHECK(view.shed[2] == 0 && view.signal[0] == 1000);
    /* And for any bytes in the file. */
    memset(&load->state, 0xff, 16);
    weir__load_page_read(load, NOW, &view);
    CHECK(view.level == 1000 && view.throttle == 1000 && view.shed[0] == 0 && view.shed[3] == 1000);
    drop(load);
}

TEST(stale_values_are_neutral)
{
    struct weir__load_page *load = made();
    struct weir__load_view view = {.level = 900, .throttle = 100, .shed = {0, 0, 500, 1000}}, seen;
    weir__load_page_read(load, NOW, &seen);
    CHECK(is_neutral(&seen));
    weir__load_page_write(load, NOW, &view);
    static const struct {
        int64_t after_ns;
        bool known;
    } cases[] = {{0, true},
                 {WEIR__LOAD_STALE_NS, true},
                 {WEIR__LOAD_STALE_NS + 1, false},
                 {-1, true},
                 {-WEIR__LOAD_STALE_NS, true},
                 {-WEIR__LOAD_STALE_NS - 1, false},
                 {INT64_MAX - NOW, false},
                 {-NOW, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir__load_page_read(load, NOW + cases[i].after_ns, &seen);
        CHECK_EQ(seen.known, cases[i].known);
        CHECK(seen.known || is_neutral(&seen));
    }
    weir__load_page_write(load, 0, &view);
    weir__load_page_read(load, 0, &seen);
    CHECK(seen.known); /* a clock that begins at 0 is valid, too */
    drop(load);
}

/* ---- Workers ---- */

static struct weir__upstream_sums sums_at(const struct weir__load_page *load, int64_t mono_ns)
{
    struct weir__upstream_sums sums;
    weir__load_page_sum(load, mono_ns, &sums);
    return sums;
}

TEST(silent_worker_has_nothing_in_flight)
{
    struct weir__load_page *load = made();
    unsigned a = weir__load_page_join(load, 11, NOW), b = weir__load_page_join(load, 12, NOW);
    CHECK(a != b && a < WEIR__LOAD_SHARDS && b < WEIR__LOAD_SHARDS);
    weir__load_page_in_flight(load, a, 1);
    weir__load_page_in_flight(load, a, 1);
    weir__load_page_in_flight(load, b, 1);
    weir__load_page_upstream(load, a, 5000, false);
    weir__load_page_upstream(load, b, 7000, true);
    weir__load_page_upstream(load, b, -5, false);
    weir__load_page_in_flight(load, a, -1);
    struct weir__upstream_sums sums = sums_at(load, NOW);
    CHECK(sums.done == 3 && sums.took_us == 5000 && sums.failed_us == 7000 && sums.errors == 1 && sums.in_flight == 2 &&
          sums.workers == 2);
    CHECK(weir__load_page_heartbeat(load, a, 11, NOW + 3 * SECOND, 1));
    sums = sums_at(load, NOW + 3 * SECOND);
    CHECK(sums.done == 3 && sums.in_flight == 1 && sums.workers == 1);
    /* It continues: its requests count again. */
    CHECK(weir__load_page_heartbeat(load, b, 12, NOW + 3 * SECOND, 4));
    CHECK_EQ(sums_at(load, NOW + 3 * SECOND).in_flight, 5);
    weir__load_page_leave(load, b, 12);
    CHECK_EQ(sums_at(load, NOW + 3 * SECOND).in_flight, 1);
    CHECK(!weir__load_page_heartbeat(load, b, 12, NOW + 3 * SECOND, 4));
    drop(load);
}

TEST(shard_of_a_silent_worker_is_reused)
{
    struct weir__load_page *load = made();
    for (uint64_t i = 0; i < WEIR__LOAD_SHARDS; i++)
        CHECK_EQ(weir__load_page_join(load, 100 + i, NOW), i);
    CHECK_EQ(weir__load_page_join(load, 1, NOW), WEIR__LOAD_NO_SHARD);
    /* a worker without a shard counts nothing, and corrupts nothing */
    weir__load_page_in_flight(load, WEIR__LOAD_NO_SHARD, 1);
    weir__load_page_in_flight(load, WEIR__LOAD_NO_SHARD, -1);
    CHECK(!weir__load_page_heartbeat(load, WEIR__LOAD_NO_SHARD, 1, NOW, 0));
    weir__load_page_leave(load, WEIR__LOAD_NO_SHARD, 1);
    weir__load_page_upstream(load, WEIR__LOAD_NO_SHARD, 1000, false);
    CHECK_EQ(sums_at(load, NOW).done, 1);

    int64_t later = NOW + 60 * SECOND;
    weir__load_page_in_flight(load, 0, 1);
    CHECK_EQ(weir__load_page_join(load, 1, later), 0);
    CHECK_EQ(sums_at(load, later).in_flight, 0);
    CHECK_EQ(sums_at(load, later).done, 1);
    /* The old owner continues: it may not disturb the new one for longer than until the next heartbeat. */
    weir__load_page_in_flight(load, 0, -1);
    CHECK(!weir__load_page_heartbeat(load, 0, 100, later, 7));
    weir__load_page_leave(load, 0, 100);
    CHECK(weir__load_page_heartbeat(load, 0, 1, later, 3));
    CHECK_EQ(sums_at(load, later).in_flight, 3);
    drop(load);
}

/* Processes join, work and are killed, while another sums up: at the end nothing is in flight, and no sum is lost. */
TEST(killed_workers_leave_nothing_in_flight)
{
    struct weir__load_page *load = made();
    int64_t rounds = test_scaled(200, 20), now = NOW;
    uint64_t *reported = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(reported != MAP_FAILED);
    for (int64_t round = 0; round < rounds; round++) {
        pid_t child = fork();
        if (child == 0) {
            unsigned shard = weir__load_page_join(load, (uint64_t)round + 1, now);
            for (;;) {
                weir__load_page_in_flight(load, shard, 1);
                weir__load_page_upstream(load, shard, 1, false);
                __atomic_fetch_add(reported, 1, __ATOMIC_RELAXED);
            }
        }
        usleep(500);
        for (int i = 0; i < 10000 && __atomic_load_n(reported, __ATOMIC_RELAXED) == 0; i++)
            usleep(1000); /* the first, on a busy machine */
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        now += SECOND / 10;
    }
    struct weir__upstream_sums sums = sums_at(load, now + WEIR__LOAD_STALE_NS + 1);
    CHECK(sums.in_flight == 0 && sums.workers == 0);
    CHECK(sums.done >= *reported && sums.done <= *reported + (uint64_t)rounds && *reported > 0);
    munmap(reported, 4096);
    drop(load);
}

TEST_MAIN
