/*
 * The overload controller against simulated hosts: response to a step, to a saw-tooth and to noise. With
 * WEIR_CONTROLLER_CSV the courses are written to that file, for the plots of docs/internals/overload.md
 * (bench/pressure.py); with WEIR_CONTROLLER_PRINT the measured values are printed.
 */
#include "../../test.h"

#include "overload/overload.h"

#include <math.h>

#define DT        0.1
#define SERVICE   0.05 /* service time in seconds */
#define QUEUE     2.0  /* seconds of work: clients that would wait longer leave */
#define STEPS(s)  ((int)((s) / DT + 0.5))
#define STEPS_MAX 2000

/* The signal of the host. */
enum kind { PROCESSOR, IN_FLIGHT, IN_FLIGHT_NEAR, LATENCY, KINDS };
static const char *const kind_names[KINDS] = {"processor", "in_flight", "in_flight_near", "latency"};

struct host {
    enum kind kind;
    double min;    /* of the adaptive limits */
    double queued; /* seconds of work */
    double passed, served, offered;
    double lag[2]; /* admitted requests reach the host two steps later */
};

static const struct weir__controller_settings defaults = {.smooth_s = 0.5, .adapt_to = 0.8, .shed_above = 1};

/* One step of the host under the throttle; returns its signal. */
static double host_step(struct host *host, double offered, double throttle)
{
    double share = host->min + (1 - host->min) * throttle;
    double allowed = offered * share;
    double passed = host->lag[0];
    host->lag[0] = host->lag[1];
    host->lag[1] = allowed;
    double work = host->queued + passed * DT, done = fmin(work, DT);
    host->queued = fmin(work - done, QUEUE);
    host->passed += allowed * DT;
    host->offered += offered * DT;
    host->served += done;
    switch (host->kind) {
    case PROCESSOR: /* full is 50 % stall time, so the signal is at most 2 */
        return fmin(passed, 2);
    case IN_FLIGHT: /* 100 % is four times as many as a host without a queue has at its capacity */
        return (host->queued + fmin(passed, 1) * SERVICE) / (4 * SERVICE);
    case IN_FLIGHT_NEAR: /* one and a half times */
        return (host->queued + fmin(passed, 1) * SERVICE) / (1.5 * SERVICE);
    default: /* 100 % is three times what it takes without a queue */
        return host->queued / SERVICE / 2;
    }
}

struct course {
    double level[STEPS_MAX], throttle[STEPS_MAX], offered[STEPS_MAX], served[STEPS_MAX];
    int count;
};

static FILE *csv(void)
{
    static FILE *to;
    const char *path = getenv("WEIR_CONTROLLER_CSV");
    if (path && !to && (to = fopen(path, "w")))
        fputs("course,signal,seconds,offered,level,throttle,served\n", to);
    return to;
}

static bool has_sojourn; /* false: no nginx reports requests in flight */

/* Runs the host and the controller under the offered load, a function of time. */
static void run(struct course *course, const char *name, struct host *host, double seconds, double (*offered)(double))
{
    struct weir__controller controller;
    controller = (struct weir__controller){0};
    course->count = STEPS(seconds);
    for (int i = 0; i < course->count; i++) {
        double before = host->served, load = offered(i * DT);
        double signal = host_step(host, load, weir__controller_throttle(&controller, &defaults));
        weir__controller_step(&controller, &defaults, signal, has_sojourn ? host->queued + SERVICE : 0, DT);
        course->level[i] = controller.level;
        course->throttle[i] = weir__controller_throttle(&controller, &defaults);
        course->offered[i] = load;
        course->served[i] = (host->served - before) / DT;
        if (has_sojourn && csv())
            fprintf(csv(), "%s,%s,%.1f,%.3f,%.4f,%.4f,%.4f\n", name, kind_names[host->kind], i * DT, load,
                    controller.level, course->throttle[i], course->served[i]);
    }
}

static double mean(const double *values, int from, int to)
{
    double sum = 0;
    for (int i = from; i < to; i++)
        sum += values[i];
    return sum / (to - from);
}

/* Time until the values stay within `band` of their final mean. */
static double settled_after(const double *values, int from, int to, double band)
{
    double last = mean(values, to - STEPS(5), to);
    int at = to;
    while (at > from && fabs(values[at - 1] - last) <= band)
        at--;
    return (at - from) * DT;
}

/* Number of reversals by more than `least`. */
static int count_reversals(const double *values, int from, int to, double least)
{
    double high = values[from], low = values[from];
    int count = 0, direction = 0;
    for (int i = from; i < to; i++) {
        high = fmax(high, values[i]);
        low = fmin(low, values[i]);
        if (direction >= 0 && values[i] < high - least) {
            count += direction > 0;
            direction = -1;
            low = values[i];
        } else if (direction <= 0 && values[i] > low + least) {
            count += direction < 0;
            direction = 1;
            high = values[i];
        }
        if (direction > 0)
            low = values[i];
        else if (direction < 0)
            high = values[i];
    }
    return count;
}

static double least_of(const double *values, int from, int to)
{
    double least = values[from];
    for (int i = from; i < to; i++)
        least = fmin(least, values[i]);
    return least;
}

static double most_of(const double *values, int from, int to)
{
    double most = values[from];
    for (int i = from; i < to; i++)
        most = fmax(most, values[i]);
    return most;
}

static double times; /* the capacity */

static double a_step(double at)
{
    return at < 10 ? 0.5 : at < 100 ? times : 0.5;
}

static struct course course;

TEST(step)
{
    static const double loads[] = {1.5, 3, 5, 10};
    for (int kind = 0; kind < 2 * KINDS; kind++) {
        for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
            char name[32];
            struct host host = {.kind = (enum kind)(kind % KINDS), .min = 0.05};
            has_sojourn = kind < KINDS;
            times = loads[i];
            snprintf(name, sizeof name, "step_%g", times);
            run(&course, name, &host, 160, a_step);
            int from = STEPS(10), to = STEPS(100);
            double settle = settled_after(course.throttle, from, to, 0.05);
            double lowest = least_of(course.throttle, from, to);
            int swings = count_reversals(course.throttle, from, to, 0.04);
            double rest = mean(course.throttle, to - STEPS(10), to);
            double range = most_of(course.throttle, to - STEPS(60), to) - least_of(course.throttle, to - STEPS(60), to);
            double goodput = mean(course.served, from + STEPS(10), to);
            double back = settled_after(course.throttle, to, course.count, 0.02);
            if (getenv("WEIR_CONTROLLER_PRINT"))
                printf("  %-14s x%-4g settle %.1f s, swings %d, range %.3f, rest %.3f, lowest %.3f, goodput %.2f, back "
                       "%.1f s\n",
                       kind_names[host.kind], times, settle, swings, range, rest, lowest, goodput, back);
            CHECK(course.throttle[STEPS(10) - 1] >= 1); /* full before the overload */
            CHECK(settle <= 12);
            CHECK(swings <= 2);
            CHECK(range <= 0.03);
            CHECK(fabs(mean(course.level, to - STEPS(30), to) - defaults.adapt_to) <= 0.15);
            CHECK(goodput >=
                  (host.kind == PROCESSOR ? 0.75 : 0.9)); /* the set point of a processor is 80 % of its capacity */
            CHECK(back <= 20);
        }
    }
}

static double a_saw(double at)
{
    return 0.5 + (times - 0.5) * fmod(at, 40) / 40;
}

TEST(saw_tooth)
{
    for (int kind = 0; kind < 2 * KINDS; kind++) {
        struct host host = {.kind = (enum kind)(kind % KINDS), .min = 0.05};
        has_sojourn = kind < KINDS;
        times = 5;
        run(&course, "saw", &host, 160, a_saw);
        int swings = count_reversals(course.throttle, 0, course.count, 0.08), full = 0;
        for (int i = 0; i < course.count; i++)
            full += course.level[i] >= 0.99;
        if (getenv("WEIR_CONTROLLER_PRINT"))
            printf("  saw %-9s swings %d, goodput %.2f, full %.0f %%\n", kind_names[host.kind], swings,
                   host.served / 160, 100.0 * full / course.count);
        /* Four teeth, each with a reversal up, one down and one around the capacity. */
        CHECK(swings <= 16);
        CHECK(full <= course.count / 20);
        CHECK(host.served / 160 >= (host.kind == PROCESSOR ? 0.7 : 0.8));
    }
}

TEST(noise_moves_nothing)
{
    struct weir__controller controller;
    uint64_t seed = 7;
    double low = 1, high = 0;
    controller = (struct weir__controller){0};
    controller.integral = -0.5;
    for (int i = 0; i < STEPS(120); i++) {
        double noise = (double)(test_random(&seed) % 1000) / 1000 - 0.5;
        weir__controller_step(&controller, &defaults, defaults.adapt_to + 0.2 * noise, 0, DT);
        if (i < STEPS(5))
            continue;
        low = fmin(low, weir__controller_throttle(&controller, &defaults));
        high = fmax(high, weir__controller_throttle(&controller, &defaults));
    }
    CHECK(high - low <= 0.08);
}

/* A minute after an overload of an hour the controller responds to a peak as a new one does. */
TEST(a_long_overload_is_forgotten)
{
    struct weir__controller after, fresh;
    after = (struct weir__controller){0};
    fresh = (struct weir__controller){0};
    for (int i = 0; i < STEPS(3600); i++)
        weir__controller_step(&after, &defaults, 1, 0, DT);
    for (int i = 0; i < STEPS(60); i++) {
        weir__controller_step(&after, &defaults, 0.2, 0, DT);
        weir__controller_step(&fresh, &defaults, 0.2, 0, DT);
    }
    for (int i = 0; i < STEPS(2); i++) {
        weir__controller_step(&after, &defaults, 1, 0, DT);
        weir__controller_step(&fresh, &defaults, 1, 0, DT);
    }
    CHECK(fabs(weir__controller_throttle(&after, &defaults) - weir__controller_throttle(&fresh, &defaults)) < 0.001);
}

/* ---- The level ---- */

TEST(level_follows_within_a_second)
{
    struct weir__controller controller;
    controller = (struct weir__controller){0};
    CHECK(weir__controller_throttle(&controller, &defaults) >= 1);
    for (int i = 0; i < STEPS(0.8); i++)
        weir__controller_step(&controller, &defaults, 1, 0, DT);
    CHECK(controller.level > 0.75);
    for (int i = 0; i < STEPS(5); i++)
        weir__controller_step(&controller, &defaults, 1, 0, DT);
    CHECK(controller.level >= 1);
    for (int i = 0; i < STEPS(0.8); i++)
        weir__controller_step(&controller, &defaults, 0, 0, DT);
    CHECK(controller.level < 0.25);
    for (int i = 0; i < STEPS(5); i++)
        weir__controller_step(&controller, &defaults, 0, 0, DT);
    CHECK(controller.level <= 0);
}

/* The elastic level rises with the level, and falls by two points a second. */
TEST(elastic_level_falls_slowly)
{
    struct weir__controller controller;
    controller = (struct weir__controller){0};
    for (int i = 0; i < STEPS(3); i++) {
        weir__controller_step(&controller, &defaults, 0.7, 0, DT);
        CHECK(controller.elastic_level >= controller.level && controller.elastic_level <= controller.level);
    }
    for (int i = 0; i < STEPS(5); i++)
        weir__controller_step(&controller, &defaults, 0, 0, DT);
    CHECK(controller.level <= 0 && controller.elastic_level > 0.58 && controller.elastic_level < 0.62);
    for (int i = 0; i < STEPS(60); i++)
        weir__controller_step(&controller, &defaults, 0, 0, DT);
    CHECK(controller.elastic_level <= 0);
}

TEST(level_does_not_flicker)
{
    struct weir__controller controller;
    uint64_t seed = 3;
    int changes = 0;
    controller = (struct weir__controller){0};
    for (int i = 0; i < 200; i++) {
        double before = controller.level;
        weir__controller_step(&controller, &defaults, 0.5 + (double)(test_random(&seed) % 1000) / 1000 * 0.02, 0, DT);
        changes += i > STEPS(5) && fabs(controller.level - before) > 0;
    }
    CHECK_EQ(changes, 0);
}

/* A new agent continues from the values that the previous one published. */
TEST(resumes_from_published_values)
{
    struct weir__controller_settings sheds = defaults;
    struct weir__controller controller, after;
    struct weir__load_view published, view;
    sheds.shed_above = 0.9;
    controller = (struct weir__controller){0};
    for (int i = 0; i < STEPS(10); i++) {
        weir__controller_step(&controller, &sheds, i < STEPS(4) ? 2 : 0.7, 0, DT);
        weir__controller_view(&controller, &sheds, &published);
        weir__controller_resume(&after, &sheds, &published, 1);
        weir__controller_view(&after, &sheds, &view);
        CHECK_EQ(view.level, published.level);
        CHECK_EQ(view.elastic_level, published.elastic_level);
        CHECK(view.throttle + 1 >= published.throttle && view.throttle <= published.throttle + 1);
        for (int c = 0; c < 4; c++)
            CHECK(view.shed[c] + 1 >= published.shed[c] && view.shed[c] <= published.shed[c] + 1);
    }
    CHECK(published.throttle < 1000 && published.shed[3] > 0);
    /* Without published values the level starts at the first sample. */
    published = weir__load_view_neutral();
    weir__controller_resume(&after, &sheds, &published, 1.5);
    weir__controller_step(&after, &sheds, 1.5, 0, DT);
    CHECK(after.level >= 1);
    CHECK(weir__controller_throttle(&after, &sheds) > 0.75); /* the proportional part alone */
    weir__controller_resume(&after, &sheds, &published, -1);
    CHECK(after.level <= 0 && weir__controller_throttle(&after, &sheds) >= 1);
}

/* All outputs stay within their bounds for any signal and any step. */
/* Few requests in flight: their sojourn time is not known any more, which is not a backlog that shrinks. */
TEST(unknown_sojourn_time_holds_nothing_back)
{
    struct weir__controller controller = {0};
    struct weir__controller_settings settings = {.smooth_s = 0.5, .adapt_to = 0.8, .shed_above = 0.9};
    for (int i = 0; i < STEPS(10); i++)
        weir__controller_step(&controller, &settings, 0.5, 0.5, DT);
    for (int i = 0; i < STEPS(15); i++)
        weir__controller_step(&controller, &settings, 1, 0, DT);
    CHECK(weir__controller_throttle(&controller, &settings) < 0.05);
    CHECK(weir__controller_shed(&controller, 3) > 0.95);
}

TEST(bad_steps)
{
    static const double highest[] = {-1, 0, 0.5, 1, 2, 1e300}, passed[] = {-5, 0, 1e-9, 0.1, 3600, 1e300};
    struct weir__controller_settings sheds = defaults;
    struct weir__controller controller;
    struct weir__load_view view;
    uint64_t seed = 1;
    sheds.shed_above = 0.9;
    controller = (struct weir__controller){0};
    for (int i = 0; i < 10000; i++) {
        weir__controller_step(&controller, &sheds, highest[test_random(&seed) % 6], 0, passed[test_random(&seed) % 6]);
        weir__controller_view(&controller, &sheds, &view);
        CHECK(view.level <= 1000 && view.throttle <= 1000 && view.shed[0] == 0);
        for (int c = 1; c < 4; c++)
            CHECK(view.shed[c] <= 1000 && view.shed[c] >= view.shed[c - 1]);
    }
}

/* ---- Shedding ---- */

TEST(sheds_the_lowest_first)
{
    struct weir__controller_settings sheds = defaults;
    struct weir__controller controller;
    sheds.shed_above = 0.9;
    controller = (struct weir__controller){0};
    int i = 0;
    for (; i < STEPS(10) && weir__controller_shed(&controller, 3) < 1; i++) {
        weir__controller_step(&controller, &sheds, 1, 0, DT);
        CHECK(weir__controller_shed(&controller, 2) <= 0 || weir__controller_shed(&controller, 3) >= 1);
    }
    CHECK(i * DT >= 1 && i * DT <= 3); /* the level needs more than a second to exceed shed_above */
    for (i = 0; i < STEPS(10); i++)
        weir__controller_step(&controller, &sheds, 1, 0, DT);
    CHECK(weir__controller_shed(&controller, 1) >= 1 && weir__controller_shed(&controller, 0) <= 0);
    /* Within the dead band nothing returns; below it one class in ten seconds, the most important first. */
    for (i = 0; i < STEPS(20); i++)
        weir__controller_step(&controller, &sheds, 0.87, 0, DT);
    CHECK(weir__controller_shed(&controller, 1) >= 1);
    for (i = 0; i < STEPS(11); i++)
        weir__controller_step(&controller, &sheds, 0.5, 0, DT);
    CHECK(weir__controller_shed(&controller, 1) <= 0.1 && weir__controller_shed(&controller, 2) > 0.8);
    for (i = 0; i < STEPS(21); i++)
        weir__controller_step(&controller, &sheds, 0.5, 0, DT);
    CHECK(weir__controller_shed(&controller, 3) <= 0);
}

TEST(sheds_nothing_unless_configured)
{
    struct weir__controller controller;
    controller = (struct weir__controller){0};
    for (int i = 0; i < STEPS(60); i++)
        weir__controller_step(&controller, &defaults, 1, 0, DT);
    CHECK(weir__controller_shed(&controller, 3) <= 0);
}

TEST_MAIN
