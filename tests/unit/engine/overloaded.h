/* Engines under a load that the test publishes itself, as the agent would. */
#ifndef WEIR_TESTS_OVERLOADED_H
#define WEIR_TESTS_OVERLOADED_H

#include "strict_requests.h"

#include "engine/engine.h"

static inline weir *overloaded_engine(const char *rules)
{
    weir_options how = {
        .segment = {.size = 8 << 20}, .rules_text = rules, .diagnose = test_print_diagnostic, .load = ""};
    weir *engine = NULL;
    if (weir_open(&how, &engine) != 0) {
        printf("  the test's rules are bad\n");
        exit(1);
    }
    CHECK(engine->load != NULL);
    return engine;
}

/* Publishes this load at `s` seconds. */
static inline void load_is(weir *engine, double s, uint32_t level, uint32_t throttle)
{
    struct weir__load_view view = weir__load_view_neutral();
    view.level = level;
    view.throttle = throttle;
    weir__load_page_write(engine->load, test_seconds(s).mono_ns, &view);
}

static inline void shed_is(weir *engine, double s, uint32_t high, uint32_t normal, uint32_t low)
{
    struct weir__load_view view = weir__load_view_neutral();
    view.shed[WEIR_HIGH] = high;
    view.shed[WEIR_NORMAL] = normal;
    view.shed[WEIR_LOW] = low;
    weir__load_page_write(engine->load, test_seconds(s).mono_ns, &view);
}

static inline weir_rule_stats stats_of(weir *engine, const char *rule)
{
    weir_rule_stats stats = {0};
    CHECK_EQ(weir_rule_stats_read(engine, rule, false, &stats), 0);
    return stats;
}

/* An engine with a store, whose requests the test executes. */
static inline weir *strict_engine(const char *rules)
{
    weir_options how = {.segment = {.size = 8 << 20},
                        .rules_text = rules,
                        .diagnose = test_print_diagnostic,
                        .flags = WEIR_NO_CONNECT,
                        .store = "redis://127.0.0.1:1",
                        .load = ""};
    weir *engine = NULL;
    if (weir_open(&how, &engine) != 0)
        exit(1);
    return engine;
}

#endif
