/* weir.yaml: `load`: `on`, or a map with signals, their targets and the reaction. */
#include "base/text.h"
#include "base/number.h"
#include "config/config.h"
#include "rules/yaml.h"

#include <stdio.h>

/*
 * Signals with their default targets: the values that mean 100 % load. cpu and memory are shares of time in which tasks
 * were stalled (pressure stall information), not utilisation; run_queue is waiting tasks a processor, latency a
 * multiple of the baseline.
 */
static const struct signal {
    const char *name;
    bool percent;                       /* else a number */
    double default_target, least, most; /* a share, or a number */
    bool on_by_default;                 /* without `signals` in the file */
} signals[WEIR__SIGNALS] = {
    [WEIR__SIGNAL_CPU] = {"cpu", true, 0.5, 0.01, 1, true},
    [WEIR__SIGNAL_MEMORY] = {"memory", true, 0.1, 0.01, 1, true},
    [WEIR__SIGNAL_RUN_QUEUE] = {"run_queue", false, 2, 1, 1000, false},
    [WEIR__SIGNAL_LATENCY] = {"latency", false, 3, 2, 1000, true},
    [WEIR__SIGNAL_ERRORS] = {"errors", true, 0.1, 0.01, 1, true},
    [WEIR__SIGNAL_IN_FLIGHT] = {"in_flight", false, 200, 1, 1e9, false},
};

static bool signal_read(const struct weir__node *node, const struct signal *signal, double *target)
{
    weir_text text = node->kind == WEIR__SCALAR ? node->text : (weir_text){"", 0};
    bool percent = signal->percent;
    char shown[WEIR__SHOWN];
    int64_t number;
    if (weir__config_is(node, "on") || weir__config_is(node, "off")) {
        *target = weir__config_is(node, "on") ? signal->default_target : 0;
        return true;
    }
    if (percent && text.len > 0 && text.data[text.len - 1] == '%')
        text.len--;
    if (weir__parse_int(text, &number)) {
        *target = percent ? (double)number / 100 : (double)number;
        if (*target >= signal->least && *target <= signal->most)
            return true;
    }
    return weir__node_error(node, "%s must be on, off or what counts as full, from %.0f%s to %.0f%s, not \"%s\"",
                            signal->name, percent ? signal->least * 100 : signal->least, percent ? "%" : "",
                            percent ? signal->most * 100 : signal->most, percent ? "%" : "",
                            node->kind == WEIR__SCALAR ? weir__printable(node->text, shown, sizeof shown)
                                                       : "a list or map");
}

/* Those that are not given are off. */
static bool signals_read(void *context, const struct weir__node *node, const char *what, void *to)
{
    double *target = to;
    const char *names[WEIR__SIGNALS];
    const struct weir__node *member;
    bool any = false;
    (void)context;
    for (int i = 0; i < WEIR__SIGNALS; i++)
        names[i] = signals[i].name;
    if (!weir__field_names(node, what, names, WEIR__SIGNALS))
        return false;
    for (int i = 0; i < WEIR__SIGNALS; i++) {
        target[i] = 0;
        if (!WEIR__GIVEN(member, node, signals[i].name))
            continue;
        signal_read(member, &signals[i], &target[i]);
        any |= !weir__config_is(member, "off");
    }
    return any || weir__node_error(node, "no signal is on: the level would always be 0");
}

static bool smooth_read(void *context, const struct weir__node *node, const char *what, void *to)
{
    const int64_t *ms = to;
    return weir__config_ms(context, node, what, to) &&
           ((*ms >= 100 && *ms <= 60000) || weir__node_error(node, "smooth must be from 100ms to 1m"));
}

/* A level, in per cent, that is neither of the ends. */
static bool level_read(void *context, const struct weir__node *node, const char *what, void *to)
{
    int percent;
    (void)context;
    if (!weir__field_percent(node, what, &percent))
        return false;
    *(int64_t *)to = percent;
    return (percent >= 10 && percent <= 95) || weir__node_error(node, "%s must be a level from 10 to 95", what);
}

bool weir__config_load_level(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const struct weir__field fields[] = {
        {"signals", WEIR__FIELD_READ, WEIR__CONFIG(load.target), .read = signals_read},
        {"smooth", WEIR__FIELD_READ, WEIR__CONFIG(load.smooth_ms), .read = smooth_read},
        {"adapt_to", WEIR__FIELD_READ, WEIR__CONFIG(load.adapt_to), .read = level_read},
        {"shed_above", WEIR__FIELD_READ, WEIR__CONFIG(load.shed_above), .read = level_read},
    };
    struct weir__config *config = to;
    struct weir__load_config *load = &config->load;
    if (weir__config_is(node, "off"))
        return true;
    *load = (struct weir__load_config){.on = true, .smooth_ms = 500, .adapt_to = 80, .place = node->place};
    for (int i = 0; i < WEIR__SIGNALS; i++)
        load->target[i] = signals[i].on_by_default ? signals[i].default_target : 0;
    if (weir__config_is(node, "on"))
        return true;
    if (!weir__fields_read(node, what, WEIR__LIST_OF(fields), config, context))
        return false;
    if (load->shed_above && load->shed_above <= load->adapt_to)
        weir__node_warning(weir__node_get(node, "shed_above"),
                           "requests are shed before adaptive limits have shrunk: shed_above is at most adapt_to");
    return true;
}
