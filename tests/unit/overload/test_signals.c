/* Parsing of the kernel's files, and the signals computed from samples. */
#include "../../test.h"

#include "overload/overload.h"

#include <math.h>

#define SECOND    INT64_C(1000000000)
#define SAMPLE_NS (SECOND / 10)

static bool near(double a, double b)
{
    return fabs(a - b) < 0.02;
}

/* For times. */
static bool is(double seconds, double expected)
{
    return fabs(seconds - expected) < expected / 20;
}

/* ---- Files ---- */

TEST(parse_psi_file)
{
    static const char *const bad[] = {"",
                                      "some",
                                      "some ",
                                      "some avg10=0.00 total=",
                                      "some total=x",
                                      "some total=-1",
                                      "some total=99999999999999999999999",
                                      "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
                                      "total=5\n",
                                      "\n\n\n"};
    uint64_t us = 0;
    CHECK(weir__procfs_stalled("some avg10=43.68 avg60=33.54 avg300=15.55 total=12071440574\n"
                               "full avg10=0.00 avg60=0.00 avg300=0.00 total=17\n",
                               &us));
    CHECK_EQ(us, INT64_C(12071440574));
    CHECK(weir__procfs_stalled("some total=0", &us) && us == 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!weir__procfs_stalled(bad[i], &us));
}

TEST(parse_cpu_usage)
{
    static const char *const bad[] = {
        "", "cpu", "cpu ", "cpu  1 2 3", "cpu0 1 2 3 4 5", "intr 1 2 3 4 5", "cpu  18446744073709551615 1 1 1 1"};
    uint64_t busy_ticks = 0, all = 0;
    CHECK(weir__procfs_busy("cpu  100 10 20 500 50 1 2 3 7 8\ncpu0 1 1 1 1 1 1 1 1 1 1\n", &busy_ticks, &all));
    CHECK(all == 686 && busy_ticks == 136);
    CHECK(weir__procfs_busy("cpu 1 2 3 4", &busy_ticks, &all) && all == 10 && busy_ticks == 6);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!weir__procfs_busy(bad[i], &busy_ticks, &all));
}

TEST(parse_run_queue)
{
    static const char *const bad[] = {
        "", "1.77", "1.77 1.45 1.51", "1.77 1.45 1.51 x/125 1", "1.77 1.45 1.51 2 125", "1.77 1.45 1.51 2/", "\n"};
    uint64_t tasks = 0;
    CHECK(weir__procfs_running("1.77 1.45 1.51 12/125 12649\n", &tasks) && tasks == 12);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!weir__procfs_running(bad[i], &tasks));
}

/* Random bytes are parsed without a crash. */
TEST(random_bytes_are_harmless)
{
    static const char letters[] = "some total=cpu 0123456789/.\n";
    uint64_t seed = 9, a, b;
    char bytes[64];
    for (int i = 0; i < 20000; i++) {
        size_t len = (size_t)(test_random(&seed) % sizeof bytes);
        for (size_t j = 0; j < len; j++)
            bytes[j] = letters[test_random(&seed) % (sizeof letters - 1)];
        bytes[len] = 0;
        (void)weir__procfs_stalled(bytes, &a);
        (void)weir__procfs_busy(bytes, &a, &b);
        (void)weir__procfs_running(bytes, &a);
    }
    CHECK(true);
}

/* ---- Signals ---- */

static struct weir__signals signals;
static struct weir__load_sample reading;
static double signal[WEIR__SIGNALS];

static const struct weir__load_config all = {.on = true, .target = {0.5, 0.1, 2, 3, 0.1, 200}};

static void begin(void)
{
    signals = (struct weir__signals){0};
    reading = (struct weir__load_sample){.mono_ns = 1000 * SECOND,
                                         .has_cpu = true,
                                         .has_memory = true,
                                         .has_running = true,
                                         .running = 1,
                                         .processors = 2};
    weir__signals_update(&signals, &all, &reading, signal);
    for (int i = 0; i < WEIR__SIGNALS; i++)
        CHECK(signal[i] < 0); /* the first sample yields no signal */
}

static double sample(void)
{
    reading.mono_ns += SAMPLE_NS;
    return weir__signals_update(&signals, &all, &reading, signal);
}

/* So many responses per sample, each with this latency. */
static void responses(int turns, uint64_t count, uint64_t ms, uint64_t errors)
{
    for (int i = 0; i < turns; i++) {
        reading.upstream.done += count;
        reading.upstream.took_us += (count - errors) * ms * 1000;
        reading.upstream.errors += errors;
        reading.upstream.failed_us += errors * ms * 1000;
        sample();
    }
}

TEST(kernel_signals)
{
    begin();
    reading.cpu_us += 25000; /* of 100 ms, where 50 are full */
    reading.memory_us += 5000;
    reading.running = 3;
    CHECK(near(sample(), 0.5));
    CHECK(near(signal[WEIR__SIGNAL_CPU], 0.5) && near(signal[WEIR__SIGNAL_MEMORY], 0.5));
    CHECK(near(signal[WEIR__SIGNAL_RUN_QUEUE], 0.5));
    reading.cpu_us += 90000;
    reading.running = 500;
    reading.upstream.in_flight = 50;
    CHECK(sample() >= 1);
    CHECK(near(signal[WEIR__SIGNAL_CPU], 1.8) && near(signal[WEIR__SIGNAL_RUN_QUEUE], 100)); /* more does not count */
    CHECK(signal[WEIR__SIGNAL_MEMORY] <= 0 && near(signal[WEIR__SIGNAL_IN_FLIGHT], 0.25));
    reading.cpu_us = 0; /* the counter was reset */
    reading.running = 0;
    reading.upstream.in_flight = 0;
    CHECK(sample() <= 0);
}

TEST(kernel_without_psi)
{
    begin();
    signals = (struct weir__signals){0};
    reading.has_cpu = reading.has_memory = false;
    reading.has_busy = true;
    weir__signals_update(&signals, &all, &reading, signal);
    reading.busy += 15;
    reading.ticks += 20;
    sample();
    CHECK(near(signal[WEIR__SIGNAL_CPU], 0.5));
    CHECK(signal[WEIR__SIGNAL_MEMORY] < 0);
    reading.ticks += 20;
    sample();
    CHECK(signal[WEIR__SIGNAL_CPU] >= 0 && signal[WEIR__SIGNAL_CPU] <= 0);
    reading.has_busy = false;
    sample();
    CHECK(signal[WEIR__SIGNAL_CPU] < 0);
}

TEST(disabled_signals_are_ignored)
{
    struct weir__load_config some = {.on = true, .target = {0, 0, 0, 0, 0, 10}};
    begin();
    reading.cpu_us += 100000;
    reading.upstream.in_flight = 5;
    reading.mono_ns += SAMPLE_NS;
    CHECK(near(weir__signals_update(&signals, &some, &reading, signal), 0.5));
    for (int i = 0; i < WEIR__SIGNAL_IN_FLIGHT; i++)
        CHECK(signal[i] < 0);
    /* A clock that stands still or goes back yields no signal. */
    CHECK(weir__signals_update(&signals, &some, &reading, signal) <= 0 && signal[WEIR__SIGNAL_IN_FLIGHT] < 0);
    reading.mono_ns -= SECOND;
    CHECK(weir__signals_update(&signals, &some, &reading, signal) <= 0);
}

TEST(latency_against_its_baseline)
{
    begin();
    responses(20, 10, 20, 0);
    CHECK(near(signal[WEIR__SIGNAL_LATENCY], 0) && is(signals.baseline.baseline_s, 0.02)); /* immediately */
    responses(130, 10, 20, 0);
    responses(50, 10, 40, 0); /* twice the baseline; three times is full */
    CHECK(near(signal[WEIR__SIGNAL_LATENCY], 0.5));
    responses(600, 10, 40, 0);
    CHECK(signal[WEIR__SIGNAL_LATENCY] > 0.35); /* a minute of it does not move the baseline yet */
    responses(300, 10, 10, 0);
    CHECK(near(signal[WEIR__SIGNAL_LATENCY], 0) &&
          signals.baseline.baseline_s > 0.02); /* nor does half a minute of faster responses */
    responses(320, 10, 10, 0);
    CHECK(signals.baseline.baseline_s > 0.0099 && signals.baseline.baseline_s < 0.011); /* but a minute does */
    responses(20, 0, 0, 0);
    CHECK(near(signal[WEIR__SIGNAL_LATENCY], 0));
}

/* An upstream that is down for a while refuses immediately: when it responds normally again, that is no overload. */
TEST(immediate_failures_do_not_lower_the_baseline)
{
    begin();
    responses(150, 10, 50, 0);
    responses(300, 10, 0, 10);
    CHECK(is(signals.baseline.baseline_s, 0.05));
    CHECK(near(signal[WEIR__SIGNAL_LATENCY], 0));
    for (int i = 0; i < 100; i++) {
        responses(1, 10, 50, 0);
        CHECK(signal[WEIR__SIGNAL_LATENCY] < 0.1);
    }
    responses(50, 10, 50, 5); /* half of them are errors */
    CHECK(near(signal[WEIR__SIGNAL_LATENCY], 0));
    responses(50, 10, 5000, 10); /* but timeouts count */
    CHECK(signal[WEIR__SIGNAL_LATENCY] >= 1);
    CHECK(is(signals.baseline.baseline_s, 0.05));
}

TEST(single_slow_response_is_no_overload)
{
    begin();
    responses(100, 1, 20, 0);
    responses(1, 1, 100, 0);
    CHECK(signal[WEIR__SIGNAL_LATENCY] < 0.3);
    begin();
    for (int i = 0; i < 10; i++) {
        responses(20, 0, 0, 0);
        responses(1, 1, i % 2 ? 5000 : 20, 0);
        CHECK(signal[WEIR__SIGNAL_LATENCY] <= 0.2);
    }
}

/* Differences below the resolution of nginx's clock do not count. */
TEST(upstreams_faster_than_the_clock_resolution)
{
    begin();
    responses(50, 100, 0, 0);
    CHECK(signals.baseline.baseline_s >= 0.001);
    responses(20, 100, 1, 0);
    CHECK(near(signal[WEIR__SIGNAL_LATENCY], 0));
}

TEST(errors_of_upstreams)
{
    begin();
    responses(50, 100, 5, 5);
    CHECK(near(signal[WEIR__SIGNAL_ERRORS], 0.5));
    responses(50, 100, 5, 100);
    CHECK(signal[WEIR__SIGNAL_ERRORS] >= 1);
    responses(80, 100, 5, 0);
    CHECK(near(signal[WEIR__SIGNAL_ERRORS], 0));
    begin();
    responses(1, 1, 5, 1); /* one error of one response */
    CHECK(signal[WEIR__SIGNAL_ERRORS] <= 0.11);
}

TEST_MAIN
