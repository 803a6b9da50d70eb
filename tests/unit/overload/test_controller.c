/*
 * The control laws against simulated hosts: their response to a step, to a saw-tooth, and to noise. With
 * WEIR_CONTROLLER_CSV the courses go into that file, for the plots of docs/pressure.md (bench/pressure.py draws them).
 */
#include "../../test.h"

#include "overload/controller.h"

#include <math.h>

#define DT        0.1
#define SERVICE   0.05 /* seconds that a request takes */
#define QUEUE     2.0  /* seconds of work: clients that would wait longer leave */
#define STEPS(s)  ((int)((s) / DT + 0.5))
#define STEPS_MAX 2000

/* What is limited: requests of some class, offered as multiples of the capacity. */
enum kind { PROCESSOR, IN_FLIGHT, IN_FLIGHT_NEAR, LATENCY, KINDS };
static const char *const kind_names[KINDS] = {"processor", "in_flight", "in_flight_near", "latency"};

struct host {
    enum kind kind;
    double min;    /* of the adaptive limits */
    double queued; /* seconds of work */
    double passed, served, offered;
    double lag[2]; /* what is admitted shows up so many turns later */
};

static const struct weir__controller_settings usual = {.smooth_s = 0.5, .adapt_to = 0.8, .shed_above = 1};

/* A turn of the host under the throttle; the signal that it shows. */
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
    case PROCESSOR: /* half of the time somebody waits is full, so more than 2 is never seen */
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

static bool knows; /* how long requests stay; false: there is no nginx that tells it */

/* Lets it run under `offered`, a function of time, for so long. */
static void run(struct course *course, const char *name, struct host *host, double seconds, double (*offered)(double))
{
    struct weir__controller controller;
    weir__controller_init(&controller);
    course->count = STEPS(seconds);
    for (int i = 0; i < course->count; i++) {
        double before = host->served, load = offered(i * DT);
        double signal = host_step(host, load, weir__controller_throttle(&controller, &usual));
        weir__controller_step(&controller, &usual, signal, knows ? host->queued + SERVICE : 0, DT);
        course->level[i] = controller.level;
        course->throttle[i] = weir__controller_throttle(&controller, &usual);
        course->offered[i] = load;
        course->served[i] = (host->served - before) / DT;
        if (knows && csv())
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

/* The time after which the values stay within `band` of what they come to. */
static double settled_after(const double *values, int from, int to, double band)
{
    double last = mean(values, to - STEPS(5), to);
    int at = to;
    while (at > from && fabs(values[at - 1] - last) <= band)
        at--;
    return (at - from) * DT;
}

/* How often the values turn by more than `least`: what swings does so again and again. */
static int turns(const double *values, int from, int to, double least)
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
            knows = kind < KINDS;
            times = loads[i];
            snprintf(name, sizeof name, "step_%g", times);
            run(&course, name, &host, 160, a_step);
            int from = STEPS(10), to = STEPS(100);
            double settle = settled_after(course.throttle, from, to, 0.05);
            double lowest = least_of(course.throttle, from, to);
            int swings = turns(course.throttle, from, to, 0.04);
            double rest = mean(course.throttle, to - STEPS(10), to);
            double range = most_of(course.throttle, to - STEPS(60), to) - least_of(course.throttle, to - STEPS(60), to);
            double goodput = mean(course.served, from + STEPS(10), to);
            double back = settled_after(course.throttle, to, course.count, 0.02);
            if (getenv("WEIR_CONTROLLER_PRINT"))
                printf("  %-14s x%-4g settle %.1f s, swings %d, range %.3f, rest %.3f, lowest %.3f, goodput %.2f, back "
                       "%.1f s\n",
                       kind_names[host.kind], times, settle, swings, range, rest, lowest, goodput, back);
            CHECK(course.throttle[STEPS(10) - 1] >= 1); /* nothing happens before there is too much */
            CHECK(settle <= 12);
            CHECK(swings <= 2);
            CHECK(range <= 0.03);
            CHECK(fabs(mean(course.level, to - STEPS(30), to) - usual.adapt_to) <= 0.15);
            CHECK(goodput >= (host.kind == PROCESSOR ? 0.75 : 0.9)); /* 80 % of a processor are 80 % */
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
        knows = kind < KINDS;
        times = 5;
        run(&course, "saw", &host, 160, a_saw);
        int swings = turns(course.throttle, 0, course.count, 0.08), full = 0;
        for (int i = 0; i < course.count; i++)
            full += course.level[i] >= 0.99;
        if (getenv("WEIR_CONTROLLER_PRINT"))
            printf("  saw %-9s swings %d, goodput %.2f, full %.0f %%\n", kind_names[host.kind], swings,
                   host.served / 160, 100.0 * full / course.count);
        /* Four teeth: each is a swing up and one down, and one around what may pass. */
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
    weir__controller_init(&controller);
    controller.integral = -0.5;
    for (int i = 0; i < STEPS(120); i++) {
        double noise = (double)(test_random(&seed) % 1000) / 1000 - 0.5;
        weir__controller_step(&controller, &usual, usual.adapt_to + 0.2 * noise, 0, DT);
        if (i < STEPS(5))
            continue;
        low = fmin(low, weir__controller_throttle(&controller, &usual));
        high = fmax(high, weir__controller_throttle(&controller, &usual));
    }
    CHECK(high - low <= 0.08);
}

/* However long an overload was: some time after it a short peak costs as little as one without. */
TEST(a_long_overload_is_forgotten)
{
    struct weir__controller after, fresh;
    weir__controller_init(&after);
    weir__controller_init(&fresh);
    for (int i = 0; i < STEPS(3600); i++)
        weir__controller_step(&after, &usual, 1, 0, DT);
    for (int i = 0; i < STEPS(60); i++) {
        weir__controller_step(&after, &usual, 0.2, 0, DT);
        weir__controller_step(&fresh, &usual, 0.2, 0, DT);
    }
    for (int i = 0; i < STEPS(2); i++) {
        weir__controller_step(&after, &usual, 1, 0, DT);
        weir__controller_step(&fresh, &usual, 1, 0, DT);
    }
    CHECK(fabs(weir__controller_throttle(&after, &usual) - weir__controller_throttle(&fresh, &usual)) < 0.001);
}

/* ---- The level ---- */

TEST(level_follows_within_a_second)
{
    struct weir__controller controller;
    weir__controller_init(&controller);
    CHECK(weir__controller_throttle(&controller, &usual) >= 1);
    for (int i = 0; i < STEPS(0.8); i++)
        weir__controller_step(&controller, &usual, 1, 0, DT);
    CHECK(controller.level > 0.75);
    for (int i = 0; i < STEPS(5); i++)
        weir__controller_step(&controller, &usual, 1, 0, DT);
    CHECK(controller.level >= 1);
    for (int i = 0; i < STEPS(0.8); i++)
        weir__controller_step(&controller, &usual, 0, 0, DT);
    CHECK(controller.level < 0.25);
    for (int i = 0; i < STEPS(5); i++)
        weir__controller_step(&controller, &usual, 0, 0, DT);
    CHECK(controller.level <= 0);
}

/* Elastic limits see it rise at once, and sink by two points a second. */
TEST(what_is_claimed_comes_down_slowly)
{
    struct weir__controller controller;
    weir__controller_init(&controller);
    for (int i = 0; i < STEPS(3); i++) {
        weir__controller_step(&controller, &usual, 0.7, 0, DT);
        CHECK(controller.elastic_level >= controller.level && controller.elastic_level <= controller.level);
    }
    for (int i = 0; i < STEPS(5); i++)
        weir__controller_step(&controller, &usual, 0, 0, DT);
    CHECK(controller.level <= 0 && controller.elastic_level > 0.58 && controller.elastic_level < 0.62);
    for (int i = 0; i < STEPS(60); i++)
        weir__controller_step(&controller, &usual, 0, 0, DT);
    CHECK(controller.elastic_level <= 0);
}

TEST(level_does_not_flicker)
{
    struct weir__controller controller;
    uint64_t seed = 3;
    int changes = 0;
    weir__controller_init(&controller);
    for (int i = 0; i < 200; i++) {
        double before = controller.level;
        weir__controller_step(&controller, &usual, 0.5 + (double)(test_random(&seed) % 1000) / 1000 * 0.02, 0, DT);
        changes += i > STEPS(5) && fabs(controller.level - before) > 0;
    }
    CHECK_EQ(changes, 0);
}

/* An agent that comes after another goes on where that one was. */
TEST(goes_on_from_what_was_said)
{
    struct weir__controller_settings sheds = usual;
    struct weir__controller controller, after;
    struct weir__load_view said, view;
    sheds.shed_above = 0.9;
    weir__controller_init(&controller);
    for (int i = 0; i < STEPS(10); i++) {
        weir__controller_step(&controller, &sheds, i < STEPS(4) ? 2 : 0.7, 0, DT);
        weir__controller_view(&controller, &sheds, &said);
        weir__controller_resume(&after, &sheds, &said, 1);
        weir__controller_view(&after, &sheds, &view);
        CHECK_EQ(view.level, said.level);
        CHECK_EQ(view.elastic_level, said.elastic_level);
        CHECK(view.throttle + 1 >= said.throttle && view.throttle <= said.throttle + 1);
        for (int c = 0; c < 4; c++)
            CHECK(view.shed[c] + 1 >= said.shed[c] && view.shed[c] <= said.shed[c] + 1);
    }
    CHECK(said.throttle < 1000 && said.shed[3] > 0);
    /* The first of all: a full host is not empty until it has been smoothed. */
    said = weir__load_view_neutral();
    weir__controller_resume(&after, &sheds, &said, 1.5);
    weir__controller_step(&after, &sheds, 1.5, 0, DT);
    CHECK(after.level >= 1);
    CHECK(weir__controller_throttle(&after, &sheds) > 0.75); /* the proportional part alone */
    weir__controller_resume(&after, &sheds, &said, -1);
    CHECK(after.level <= 0 && weir__controller_throttle(&after, &sheds) >= 1);
}

/* Whatever a signal and a clock say, all stays within its bounds. */
TEST(bad_steps)
{
    static const double highest[] = {-1, 0, 0.5, 1, 2, 1e300}, passed[] = {-5, 0, 1e-9, 0.1, 3600, 1e300};
    struct weir__controller_settings sheds = usual;
    struct weir__controller controller;
    struct weir__load_view view;
    uint64_t seed = 1;
    sheds.shed_above = 0.9;
    weir__controller_init(&controller);
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
    struct weir__controller_settings sheds = usual;
    struct weir__controller controller;
    sheds.shed_above = 0.9;
    weir__controller_init(&controller);
    int i = 0;
    for (; i < STEPS(10) && weir__controller_shed(&controller, 3) < 1; i++) {
        weir__controller_step(&controller, &sheds, 1, 0, DT);
        CHECK(weir__controller_shed(&controller, 2) <= 0 || weir__controller_shed(&controller, 3) >= 1);
    }
    CHECK(i * DT >= 1 && i * DT <= 3); /* the level needs more than a second to come so high */
    for (i = 0; i < STEPS(10); i++)
        weir__controller_step(&controller, &sheds, 1, 0, DT);
    CHECK(weir__controller_shed(&controller, 1) >= 1 && weir__controller_shed(&controller, 0) <= 0);
    /* Below the threshold it stays for a while, and comes back a class in ten seconds, the most important first. */
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

TEST(sheds_nothing_unless_asked)
{
    struct weir__controller controller;
    weir__controller_init(&controller);
    for (int i = 0; i < STEPS(60); i++)
        weir__controller_step(&controller, &usual, 1, 0, DT);
    CHECK(weir__controller_shed(&controller, 3) <= 0);
}

TEST_MAIN
