/* weir.yaml: `load`. */
#include "configs.h"

#include <math.h>

/* Loads a gateway configuration with this text appended. */
static int load_with(const char *yaml)
{
    char text[4096];
    CHECK(snprintf(text, sizeof text, GATEWAY RULES "%s", yaml) < (int)sizeof text);
    return load(text);
}

static bool targets(double cpu, double memory, double run_queue, double latency, double errors, double in_flight)
{
    const double expected[WEIR__SIGNALS] = {cpu, memory, run_queue, latency, errors, in_flight};
    for (int i = 0; i < WEIR__SIGNALS; i++)
        if (fabs(config.load.target[i] - expected[i]) > 1e-9)
            return false;
    return true;
}

TEST(overload_is_off_by_default)
{
    CHECK_EQ(load_with(""), 0);
    CHECK(!config.load.on);
    CHECK_EQ(load_with("load: off\n"), 0);
    CHECK(!config.load.on);
}

TEST(overload_defaults)
{
    CHECK_EQ(load_with("load: on\n"), 0);
    CHECK(config.load.on && config.load.smooth_ms == 500 && config.load.adapt_to == 80 && config.load.shed_above == 0);
    CHECK(targets(0.5, 0.1, 0, 3, 0.1, 0));
    CHECK_EQ(load_with("load: { shed_above: 90 }\n"), 0);
    CHECK(targets(0.5, 0.1, 0, 3, 0.1, 0) && config.load.shed_above == 90);
}

TEST(every_overload_option)
{
    CHECK_EQ(load_with("load:\n"
                       "  signals: { cpu: 60%, memory: on, run_queue: 4, latency: 5, errors: 20%, in_flight: 300 }\n"
                       "  smooth: 1s\n"
                       "  shed_above: 95\n"
                       "  adapt_to: 70\n"),
             0);
    CHECK_EQ(diags.count, 0);
    CHECK(targets(0.6, 0.1, 4, 5, 0.2, 300));
    CHECK(config.load.smooth_ms == 1000 && config.load.shed_above == 95 && config.load.adapt_to == 70);
    CHECK_EQ(load_with("load: { signals: { in_flight: on, cpu: off } }\n"), 0);
    CHECK(targets(0, 0, 0, 0, 0, 200));
}

TEST(bad_overload_options_are_refused)
{
    static const struct {
        const char *yaml;
        int line, column;
        const char *message;
    } cases[] = {
        {"load: 5\n", 3, 7, "load"},
        {"load: []\n", 3, 7, "load"},
        {"load: { level: 5 }\n", 3, 9, "level"},
        {"load: { signals: on }\n", 3, 18, "signals"},
        {"load: { signals: {} }\n", 3, 18, "no signal is on"},
        {"load: { signals: { cpu: off } }\n", 3, 18, "no signal is on"},
        {"load: { signals: { cpus: on } }\n", 3, 20, "cpus"},
        {"load: { signals: { cpu: 0% } }\n", 3, 25, "cpu must be on, off or what counts as full, from 1% to 100%"},
        {"load: { signals: { cpu: 101% } }\n", 3, 25, "cpu must be"},
        {"load: { signals: { cpu: yes } }\n", 3, 25, "cpu must be"},
        {"load: { signals: { memory: [1] } }\n", 3, 28, "memory must be"},
        {"load: { signals: { latency: 1 } }\n", 3, 29, "from 2 to 1000"},
        {"load: { signals: { latency: 50% } }\n", 3, 29, "latency must be"},
        {"load: { signals: { run_queue: -1 } }\n", 3, 31, "run_queue must be"},
        {"load: { signals: { in_flight: 0 } }\n", 3, 31, "in_flight must be"},
        {"load: { smooth: 10ms }\n", 3, 17, "smooth must be from 100ms to 1m"},
        {"load: { smooth: 1h }\n", 3, 17, "smooth must be"},
        {"load: { adapt_to: 99 }\n", 3, 19, "adapt_to must be a level from 10 to 95"},
        {"load: { adapt_to: high }\n", 3, 19, "adapt_to"},
        {"load: { shed_above: 5 }\n", 3, 21, "shed_above must be"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_EQ(load_with(cases[i].yaml), WEIR_ERULES);
        CHECK(diags_is(&diags, 0, cases[i].line, cases[i].column, cases[i].message));
    }
}

TEST(shedding_before_adapting_is_warned_about)
{
    CHECK_EQ(load_with("load: { shed_above: 70 }\n"), 0);
    CHECK_EQ(diags.count, 1);
}

TEST_MAIN
