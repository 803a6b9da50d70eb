/*
 * Latency against its baseline, with the controller: a mix of fast and slow requests is no overload, and a threefold
 * slowdown of everything is one.
 */
#include "../../test.h"

#include "overload/overload.h"

#include <math.h>

#define SECOND    INT64_C(1000000000)
#define SAMPLE_NS (SECOND / 10)
#define DT        0.1
#define TURNS(s)  ((int)((s) / DT + 0.5))
#define CHEAP_S   0.010
#define DEAR_S    0.050

static const struct weir__load_config config = {.on = true, .target = {[WEIR__SIGNAL_LATENCY] = 3}};
static const struct weir__controller_settings settings = {.smooth_s = 0.5, .adapt_to = 0.8, .shed_above = 0.9};

/* An agent that samples responses, and the extremes that it has published. */
struct agent {
    struct weir__signals signals;
    struct weir__load_sample reading;
    struct weir__controller controller;
    double highest, lowest; /* level; throttle */
    uint64_t seed;
};

static void agent_begin(struct agent *agent)
{
    *agent = (struct agent){.reading = {.mono_ns = 1000 * SECOND}, .lowest = 1, .seed = 11};
    agent->controller = (struct weir__controller){0};
}

static void reset_extremes(struct agent *agent)
{
    agent->highest = 0;
    agent->lowest = 1;
}

/* One sample: the number of responses, and the sum of their latencies. */
static void agent_sample(struct agent *agent, uint64_t done, double took_s)
{
    double signal[WEIR__SIGNALS];
    agent->reading.mono_ns += SAMPLE_NS;
    agent->reading.upstream.done += done;
    agent->reading.upstream.took_us += (uint64_t)(took_s * 1e6);
    double highest = weir__signals_update(&agent->signals, &config, &agent->reading, signal);
    weir__controller_step(&agent->controller, &settings, highest, weir__signals_sojourn(&agent->signals), DT);
    agent->highest = fmax(agent->highest, agent->controller.level);
    agent->lowest = fmin(agent->lowest, weir__controller_throttle(&agent->controller, &settings));
}

/* A latency with about that mean, distributed as latencies are: most are below it, and some far above. */
static double some_time(struct agent *agent, double mean_s)
{
    return -mean_s * log(((double)(test_random(&agent->seed) % 1000000) + 1) / 1000001);
}

/* So many requests a sample; a part of each period, at its end, is of the slow kind; all latencies are multiplied by a
 * factor. */
struct mix {
    double period_s, dear; /* a share */
    uint64_t rate;
    bool at_random; /* every request is of a random kind, instead of one kind after the other */
};

static void play(struct agent *agent, const struct mix *mix, double from_s, double seconds, double times)
{
    for (int i = 0; i < TURNS(seconds); i++) {
        double at = fmod(from_s + i * DT, mix->period_s) / mix->period_s, took_s = 0;
        for (uint64_t j = 0; j < mix->rate; j++) {
            bool dear = mix->at_random ? (double)(test_random(&agent->seed) % 1000) < mix->dear * 1000
                                       : at + 1e-9 >= 1 - mix->dear;
            took_s += times * some_time(agent, dear ? DEAR_S : CHEAP_S);
        }
        agent_sample(agent, mix->rate, took_s);
    }
}

static const struct mix mixes[] = {
    {.period_s = 1, .dear = 0.5, .rate = 10},
    {.period_s = 4, .dear = 0.5, .rate = 10},
    {.period_s = 8, .dear = 0.5, .rate = 10},
    {.period_s = 10, .dear = 0.5, .rate = 20},
    {.period_s = 10, .dear = 0.3, .rate = 20},
    {.period_s = 8, .dear = 0.8, .rate = 10},
    {.period_s = 1, .dear = 0.2, .rate = 10, .at_random = true},
};

TEST(alternating_fast_and_slow_phases_are_no_overload)
{
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
        struct agent agent;
        agent_begin(&agent);
        play(&agent, &mixes[i], 0, 12, 1);
        reset_extremes(&agent);
        play(&agent, &mixes[i], 12, 1200, 1);
        if (getenv("WEIR_CONTROLLER_PRINT"))
            printf("  mix %zu: level up to %.2f, throttle down to %.2f, baseline %.0f ms\n", i, agent.highest,
                   agent.lowest, agent.signals.baseline.baseline_s * 1000);
        CHECK(agent.highest < 0.65); /* adaptive limits begin at 0.8, shedding at 0.9, and elastic ones end at 0.7 */
        CHECK(agent.lowest >= 1);
    }
}

/*
 * For requests of one kind, and in the slow part of each mix; soon after the start, and after a long time. The
 * configuration calls three times the baseline full, and the signal is a mean of about the last second.
 */
static void slows_down(const struct mix *mix, double after_s, double by, double in_two_s, double at_last)
{
    struct agent agent;
    double begun = ceil(after_s / mix->period_s) * mix->period_s + (1 - mix->dear) * mix->period_s;
    agent_begin(&agent);
    play(&agent, mix, 0, begun, 1);
    reset_extremes(&agent);
    play(&agent, mix, begun, 2, by);
    double seen = agent.highest;
    play(&agent, mix, begun + 2, 20, by);
    if (getenv("WEIR_CONTROLLER_PRINT"))
        printf("  period %.0f s, dear %.1f, %g times as slow: level %.2f after 2 s, then %.2f; throttle %.2f\n",
               mix->period_s, mix->dear, by, seen, agent.highest, agent.lowest);
    CHECK(seen > in_two_s);
    CHECK(agent.highest > at_last && agent.lowest < 1);
}

TEST(lasting_slowdown_is_an_overload_within_two_seconds)
{
    static const struct mix one_kind = {.period_s = 1, .dear = 0, .rate = 10};
    static const double after_s[] = {15, 1200};
    for (size_t i = 0; i <= sizeof mixes / sizeof *mixes; i++) {
        for (int j = 0; j < 2; j++) {
            slows_down(i ? &mixes[i - 1] : &one_kind, after_s[j], 3, 0.6, 0.8);
            slows_down(i ? &mixes[i - 1] : &one_kind, after_s[j], 4, 0.85, 0.95);
        }
    }
}

/* It remains one for minutes: the baseline does not adapt to it. */
TEST(overload_does_not_become_the_baseline)
{
    static const struct mix one_kind = {.period_s = 1, .dear = 0, .rate = 20};
    struct agent agent;
    agent_begin(&agent);
    play(&agent, &one_kind, 0, 60, 1);
    play(&agent, &one_kind, 60, 120, 5);
    CHECK(agent.controller.level >= 0.95);
    play(&agent, &one_kind, 180, 10, 1);
    CHECK(agent.controller.level < 0.1);
}

/* A slow kind that is new: indistinguishable from an overload at first, but then the baseline includes it. */
TEST(new_mix_becomes_the_baseline)
{
    static const struct mix one_kind = {.period_s = 1, .dear = 0, .rate = 20};
    static const struct mix in_turns = {.period_s = 40, .dear = 0.5, .rate = 20};
    struct agent agent;
    agent_begin(&agent);
    play(&agent, &one_kind, 0, 120, 1);
    play(&agent, &in_turns, 0, 60, 1);
    CHECK(agent.highest > 0.9);
    play(&agent, &in_turns, 60, 3600, 1);
    reset_extremes(&agent);
    play(&agent, &in_turns, 3660, 600, 1);
    CHECK(agent.highest < 0.5);
    /* A minute after the slow kind is gone for good, the baseline is what it was before. */
    play(&agent, &one_kind, 0, 60, 1);
    CHECK(agent.signals.baseline.baseline_s < 1.3 * CHEAP_S);
}

/* The first latencies are taken for the baseline; that is corrected within a minute of the overload's end. */
TEST(start_during_an_overload)
{
    static const struct mix one_kind = {.period_s = 1, .dear = 0, .rate = 20};
    struct agent agent;
    agent_begin(&agent);
    play(&agent, &one_kind, 0, 60, 5);
    CHECK(agent.signals.baseline.baseline_s > 4 * CHEAP_S);
    play(&agent, &one_kind, 60, 60, 1);
    CHECK(agent.signals.baseline.baseline_s < 1.3 * CHEAP_S);
    reset_extremes(&agent);
    play(&agent, &one_kind, 120, 2, 5);
    CHECK(agent.highest > 0.9);
}

/* A new agent continues with the baseline of the previous one, however slow or fast its first samples are. */
TEST(new_agent_continues_with_the_baseline)
{
    static const struct mix one_kind = {.period_s = 1, .dear = 0, .rate = 20};
    struct agent agent;
    agent_begin(&agent);
    weir__signals_resume(&agent.signals, CHEAP_S);
    play(&agent, &one_kind, 0, 2, 5);
    CHECK(agent.controller.level > 0.9);
    play(&agent, &one_kind, 2, 30, 5);
    CHECK(agent.controller.level > 0.9);
    agent_begin(&agent);
    weir__signals_resume(&agent.signals, DEAR_S);
    play(&agent, &one_kind, 0, 30, 1);
    CHECK(agent.signals.baseline.baseline_s > 0.9 * DEAR_S);
    /* With any value as its baseline. */
    static const double odd[] = {-1, 0, 1e-300, 1e300};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        agent_begin(&agent);
        weir__signals_resume(&agent.signals, odd[i]);
        CHECK(agent.signals.baseline.baseline_s >= 0 && agent.signals.baseline.baseline_s <= 3600);
        play(&agent, &one_kind, 0, 60, 1);
        CHECK(agent.signals.baseline.baseline_s > CHEAP_S / 20 && agent.signals.baseline.baseline_s < 1.3 * CHEAP_S);
    }
}

/* Without requests nothing is learnt: after an idle hour the baseline is what it was. */
TEST(baseline_is_kept_without_requests)
{
    static const struct mix one_kind = {.period_s = 1, .dear = 0, .rate = 20};
    struct agent agent;
    agent_begin(&agent);
    play(&agent, &mixes[1], 0, 60, 1);
    double before_s = agent.signals.baseline.baseline_s;
    for (int i = 0; i < TURNS(3600); i++)
        agent_sample(&agent, 0, 0);
    CHECK(fabs(agent.signals.baseline.baseline_s - before_s) < before_s / 100);
    play(&agent, &one_kind, 0, 10, 1);
    CHECK(fabs(agent.signals.baseline.baseline_s - before_s) < before_s / 100);
}

TEST_MAIN
