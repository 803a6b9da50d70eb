/* The agent's sampler of the load level: what it publishes, and when it publishes nothing. */
#include "../../engine.h"
#include "../../private_dir.h"
#include "../../frozen_clock.h"

#include "overload/overload.h"
#include "engine/engine.h"

#include <weir/load.h>

static struct weir__config config;
static char segment[64];

static weir *begin(enum weir__signal signal, double target)
{
    weir_options how = {.segment = {.size = 8 << 20}, .rules_text = "rules: []\n", .load = ""};
    weir *engine = NULL;
    private_path(segment, sizeof segment, "segment");
    config = (struct weir__config){.segment_path = segment};
    config.load = (struct weir__load_config){.on = true, .smooth_ms = 60000, .adapt_to = 80};
    config.load.target[signal] = target;
    if (weir_open(&how, &engine) != 0 || !engine->load)
        exit(1);
    return engine;
}

static weir_load run_sampler(weir *engine, int count)
{
    static const struct weir__logger quiet = {.file = 2};
    weir_load load = {0};
    struct weir__load_sampler *sampler = weir__load_sampler_open(&config, engine, &quiet);
    CHECK(sampler != NULL);
    for (int i = 0; i < count; i++) {
        weir__load_sampler_step(sampler);
        frozen_ns += WEIR_SECOND / 100;
    }
    weir__load_sampler_close(sampler);
    CHECK_EQ(weir_load_read(engine, &load), 0);
    return load;
}

static void end(weir *engine)
{
    weir_close(engine);
}

/* A level without any signal (a kernel without PSI, and no signal but memory) is unknown, not 0. */
TEST(without_any_signal_nothing_is_published)
{
    weir *engine = begin(WEIR__SIGNAL_MEMORY, 0);
    CHECK(!run_sampler(engine, 5).known);
    end(engine);
}

/* The first value is not smoothed towards it from 0: elastic limits would grow on a host that is full. */
TEST(first_published_level_is_the_first_sample)
{
    weir_load_worker worker;
    weir *engine = begin(WEIR__SIGNAL_IN_FLIGHT, 2);
    weir_load_join(engine, &worker);
    CHECK(!run_sampler(engine, 1).known); /* a single sample has no predecessor to be compared with */
    weir_load_begin(engine, &worker);
    CHECK_EQ(run_sampler(engine, 2).level, 500);
    end(engine);
}

TEST(new_agent_continues_from_the_published_level)
{
    weir_load_worker worker;
    weir *engine = begin(WEIR__SIGNAL_IN_FLIGHT, 1);
    struct weir__load_view published = weir__load_view_neutral();
    published.level = 950;
    published.throttle = 300;
    weir_load_join(engine, &worker);
    weir_load_begin(engine, &worker);
    weir__load_page_write(engine->load, weir_clock(engine->segment).mono_ns, &published);
    weir_load load = run_sampler(engine, 3);
    CHECK(load.known && load.level >= 940 && load.throttle >= 250 && load.throttle <= 305);
    end(engine);
}

/* The latency baseline is handed from one agent to the next, so that an overload does not become the baseline of a new
 * agent. */
TEST(new_agent_continues_with_the_published_baseline)
{
    weir_load_worker worker;
    weir *engine = begin(WEIR__SIGNAL_LATENCY, 3);
    struct weir__load_view published = weir__load_view_neutral();
    weir_load_join(engine, &worker);
    weir__load_page_set_baseline(engine->load, 20000);
    weir__load_page_write(engine->load, weir_clock(engine->segment).mono_ns, &published);
    static const struct weir__logger quiet = {.file = 2};
    struct weir__load_sampler *sampler = weir__load_sampler_open(&config, engine, &quiet);
    CHECK(sampler != NULL);
    for (int i = 0; i < 10; i++) {
        for (int j = 0; j < 100; j++)
            weir_load_upstream(engine, &worker, WEIR_SECOND / 10, false);
        weir__load_sampler_step(sampler);
        frozen_ns += WEIR_SECOND / 100;
    }
    weir__load_sampler_close(sampler);
    weir_load load = {0};
    CHECK_EQ(weir_load_read(engine, &load), 0);
    CHECK_EQ(load.signal[WEIR__SIGNAL_LATENCY], 1000); /* five times the baseline */
    uint64_t baseline = weir__load_page_baseline(engine->load, weir_clock(engine->segment).mono_ns);
    CHECK(baseline >= 20000 && baseline < 20100);
    end(engine);
}

TEST_MAIN
