/*
 * Signals and controller together, against a host that is simulated request by request at up to ten times its capacity:
 * how soon it works again, its goodput then, and that every state recovers.
 */
#include "../../test.h"

#include "plant.h"

#define BEFORE 10
#define DURING 40
#define AFTER  40

/* The host of ./dev bench pressure: 320 requests/s, a queue of two seconds, clients that wait for one. */
static struct plant bench(double in_flight, double latency)
{
    struct plant plant = {.slots = 32,
                          .service_s = 0.1,
                          .queue = 640,
                          .patience_s = 1,
                          .critical = 0.1,
                          .limit = 1,
                          .min = 0.02,
                          .settings = {.smooth_s = 0.5, .adapt_to = 0.7, .shed_above = 1},
                          .seed = 5};
    plant.config.target[WEIR__SIGNAL_IN_FLIGHT] = in_flight;
    plant.config.target[WEIR__SIGNAL_LATENCY] = latency;
    return plant;
}

struct outcome {
    int dead_s;      /* seconds with less than half of the capacity, of the first twenty */
    double lost_s;   /* of the capacity, in its first twenty seconds */
    double goodput;  /* in the last ten seconds */
    double critical; /* answered in time, of its last ten seconds */
    double after;    /* goodput as a share of the offered load, from 20 s after the overload's end on */
};

static struct outcome overload(struct plant *plant, double times, const char *name)
{
    struct outcome result = {0};
    double sent = 0, in_time = 0;
    plant_begin(plant);
    plant_run(plant, BEFORE, 0.5);
    plant_run(plant, DURING, times);
    plant_run(plant, AFTER, 0.5);
    for (int i = BEFORE; i < BEFORE + 20; i++)
        result.dead_s += plant_goodput(plant, i, i + 1) < 0.5;
    result.lost_s = 20 * (1 - plant_goodput(plant, BEFORE, BEFORE + 20));
    result.goodput = plant_goodput(plant, BEFORE + DURING - 10, BEFORE + DURING);
    for (int i = BEFORE + DURING - 10; i < BEFORE + DURING; i++) {
        sent += plant->second[i].critical_sent;
        in_time += plant->second[i].critical;
    }
    result.critical = in_time / sent;
    result.after = plant_goodput(plant, BEFORE + DURING + 20, BEFORE + DURING + AFTER) / 0.5;
    if (getenv("WEIR_CONTROLLER_PRINT")) {
        printf("  %-28s x%-4g %2d s dead, %4.1f s lost in 20, goodput %.2f, critical %.3f, after %.2f\n", name, times,
               result.dead_s, result.lost_s, result.goodput, result.critical, result.after);
        for (int i = BEFORE; getenv("WEIR_CONTROLLER_PRINT")[0] == '2' && i < BEFORE + DURING; i++)
            printf("    %2d good %.2f passed %.2f level %.2f throttle %.3f shed %.2f\n", i - BEFORE,
                   plant_goodput(plant, i, i + 1), plant->second[i].passed / plant_capacity(plant),
                   plant->second[i].level, plant->second[i].throttle, plant->second[i].shed);
    }
    plant_end(plant);
    return result;
}

static const double times[] = {1.5, 2, 5, 10};
#define LOADS (sizeof times / sizeof *times)

/* Checks that no load has a worse outcome. */
static void withstands(struct plant host, const char *name, struct outcome worst)
{
    for (size_t i = 0; i < LOADS; i++) {
        struct plant plant = host;
        struct outcome result = overload(&plant, times[i], name);
        CHECK(result.dead_s <= worst.dead_s && result.lost_s <= worst.lost_s);
        CHECK(result.goodput >= worst.goodput && result.critical >= worst.critical && result.after >= worst.after);
    }
}

/* in_flight shows a queue at once. */
TEST(adaptive_by_requests_in_flight)
{
    withstands(bench(48, 0), "in flight", (struct outcome){2, 4, 0.9, 0.99, 0.93});
}

/* latency shows a queue only when requests have waited in it. */
TEST(adaptive_by_latency)
{
    withstands(bench(0, 3), "latency", (struct outcome){13, 13, 0.85, 0.99, 0.93});
}

TEST(adaptive_and_shedding)
{
    struct plant plant = bench(48, 0);
    plant.settings.shed_above = 0.85;
    withstands(plant, "in flight, and shedding", (struct outcome){2, 4, 0.85, 0.99, 0.93});
}

/* Without bounds for the first twenty seconds. */
TEST(shedding_alone)
{
    struct plant plant = bench(48, 0);
    plant.settings.shed_above = 0.7;
    plant.limit = 0;
    withstands(plant, "shedding", (struct outcome){20, 20, 0.7, 0.97, 0.93});
}

static double between(struct plant *plant, double low, double high)
{
    return low + (high - low) * plant_random(plant);
}

/*
 * Random hosts and settings: after the overload the throttle is full, nothing is shed and the load is served; during it
 * the goodput does not vanish.
 */
TEST(every_host_recovers_from_overload)
{
    for (uint64_t i = 0; i < (uint64_t)test_scaled(80, 8); i++) {
        struct plant plant = bench(0, 0);
        plant.seed = 100 + i;
        plant.queue = between(&plant, 0, 1000);
        plant.patience_s = between(&plant, 0.5, 3);
        plant.critical = between(&plant, 0, 0.2);
        plant.limit = between(&plant, 0.3, 2);
        plant.min = between(&plant, 0.01, 0.1);
        plant.settings.adapt_to = between(&plant, 0.4, 0.95);
        plant.settings.shed_above = i % 2 ? between(&plant, 0.4, 0.95) : 1;
        if (i % 3 != 1)
            plant.config.target[WEIR__SIGNAL_IN_FLIGHT] =
                plant.slots * between(&plant, 1.3, 4) / plant.settings.adapt_to;
        if (i % 3 != 0)
            plant.config.target[WEIR__SIGNAL_LATENCY] = between(&plant, 2, 5);
        double factor = between(&plant, 1.5, 20);
        struct outcome result = overload(&plant, factor, "some host");
        bool well = result.goodput > 0.35 && result.after > 0.93 && plant.controller.integral >= 0 &&
                    plant.controller.shed <= 0;
        if (!well)
            printf(
                "  host %d: x%g, goodput %.2f, after %.2f, throttle %.2f, shed %.2f, level %.2f; queue %.0f, patience "
                "%.1f, critical %.2f, limit %.2f, min %.2f, adapt %.2f, shed %.2f, in flight %.0f, latency %.1f\n",
                (int)i, factor, result.goodput, result.after, plant.controller.integral, plant.controller.shed,
                plant.controller.level, plant.queue, plant.patience_s, plant.critical, plant.limit, plant.min,
                plant.settings.adapt_to, plant.settings.shed_above, plant.config.target[WEIR__SIGNAL_IN_FLIGHT],
                plant.config.target[WEIR__SIGNAL_LATENCY]);
        CHECK(well);
    }
}

TEST_MAIN
