/*
 * Elastic limits end to end: an engine, the load page, the controller, and a host whose load is the traffic that
 * passes. Spare capacity is shared fairly between the keys that want more, and withdrawn within a second.
 */
#include "../../engine.h"

#include "overload/overload.h"
#include "engine/engine.h"

#include <math.h>

#define DT           0.01
#define SAMPLE_STEPS 10 /* steps between two samples of the agent */
#define KEYS         5

static const struct weir__controller_settings defaults = {.smooth_s = 0.5, .adapt_to = 0.8, .shed_above = 1};

/* Each key wants `demand` requests a second; its limit is 100 a second, and up to 300 while there is spare capacity. */
struct host {
    weir *engine;
    struct weir__controller controller;
    double capacity; /* requests a second that are a load of 100 % */
    double others;   /* load that this gateway does not cause */
    double demand[KEYS], owed[KEYS];
    int64_t step, passed[KEYS], recent; /* recent: since the last sample */
};

static void begin(struct host *host, double capacity)
{
    weir_options how = {.segment = {.size = 8 << 20},
                        .rules_text =
                            "rules:\n  - { name: a, key: \"u:${user_id}\", limit: 100, window: 1s, burst: 10,\n"
                            "      elastic: { up_to: 300%, while: 70% } }\n",
                        .diagnose = test_print_diagnostic,
                        .load = ""};
    *host = (struct host){.capacity = capacity};
    if (weir_open(&how, &host->engine) != 0 || !host->engine->load)
        exit(1);
    host->controller = (struct weir__controller){0};
}

static void agent_sample(struct host *host)
{
    struct weir__load_view view = weir__load_view_neutral();
    double passes = (double)host->recent / (SAMPLE_STEPS * DT) / host->capacity;
    weir__controller_step(&host->controller, &defaults, passes + host->others, 0, SAMPLE_STEPS * DT);
    weir__controller_view(&host->controller, &defaults, &view);
    weir__load_page_write(host->engine->load, test_seconds((double)host->step * DT).mono_ns, &view);
    host->recent = 0;
}

/* Runs for some seconds; the requests that pass are counted by key in `passed`. */
static void run(struct host *host, double seconds)
{
    memset(host->passed, 0, sizeof host->passed);
    for (int64_t end = host->step + (int64_t)(seconds / DT + 0.5); host->step < end; host->step++) {
        if (host->step % SAMPLE_STEPS == 0)
            agent_sample(host);
        for (int i = 0; i < KEYS; i++) {
            char line[32];
            snprintf(line, sizeof line, "GET / user_id=%d", i);
            host->owed[i] += host->demand[i] * DT;
            while (host->owed[i] >= 1) {
                bool passes = test_passes(host->engine, line, (double)host->step * DT);
                host->owed[i] -= 1;
                host->passed[i] += passes;
                host->recent += passes;
            }
        }
    }
}

/* A key that wants more than its limit while the others are idle gets it. */
TEST(idle_capacity_is_given_to_the_key_that_wants_it)
{
    struct host host;
    begin(&host, 1000);
    host.demand[0] = 500;
    run(&host, 2);
    run(&host, 10);
    CHECK(host.passed[0] >= 2900 && host.passed[0] <= 3030);
    weir_close(host.engine);
}

/*
 * The limits grow until the load is 0.6 to 0.7 of 800 a second; the keys' demands are 10:6:4:3, and one wants less
 * than its limit. Each of those that want more gets the same, whatever its demand, and more than its limit; the modest
 * one gets all it wants.
 */
TEST(spare_capacity_is_shared_equally)
{
    struct host host;
    static const double demand[KEYS] = {1000, 600, 400, 300, 40};
    begin(&host, 800);
    memcpy(host.demand, demand, sizeof demand);
    run(&host, 10);
    run(&host, 30);
    double sum = 0, squares = 0;
    for (int i = 0; i < 4; i++) {
        double rate = (double)host.passed[i] / 30;
        CHECK(rate > 110); /* part of the spare capacity */
        sum += rate;
        squares += rate * rate;
    }
    CHECK(sum * sum / (4 * squares) > 0.999); /* Jain's fairness index; for the demands it is 0.83 */
    CHECK(sum / 800 > 0.55 && sum / 800 < 0.72);
    CHECK(host.passed[4] >= 40 * 30 - 1);
    /* Another key that becomes active gets as much as the others, whose shares shrink. */
    host.demand[4] = 500;
    run(&host, 5);
    run(&host, 20);
    for (int i = 0; i < 4; i++)
        CHECK(llabs(host.passed[i] - host.passed[4]) * 50 < host.passed[4]);
    weir_close(host.engine);
}

/* The load rises at a random moment: a second later no key gets more than its own limit. */
TEST(spare_capacity_is_removed_within_a_second)
{
    for (int offset = 0; offset < SAMPLE_STEPS; offset++) {
        struct host host;
        begin(&host, 1000);
        host.demand[0] = host.demand[1] = 250;
        run(&host, 5 + offset * DT);
        run(&host, 1);
        CHECK(host.passed[0] >= 240 && host.passed[1] >= 240);
        host.others = 1; /* full, but not overloaded */
        run(&host, 1);
        weir_result result = test_check(host.engine, "GET / user_id=7", (double)host.step * DT);
        CHECK_EQ(result.decision.limit, 10); /* the burst as configured */
        run(&host, 2);
        CHECK(host.passed[0] <= 201 && host.passed[1] <= 201);
        weir_close(host.engine);
    }
}

TEST_MAIN
