/* weir.yaml: `load`: `on`, or a map with signals, their targets and the reaction. */
#include "base/text.h"
#include "base/number.h"
#include "config/config.h"
#include "rules/yaml.h"

#include <stdio.h>

enum unit { PERCENT, NUMBER };

/* Signals with their default targets: the values that mean 100 % load. */
static const struct signal {
    const char *name;
    enum unit unit;
    double default_target, least, most; /* a share, or a number */
    bool on_by_default;                 /* without `signals` in the file */
} signals[WEIR__SIGNALS] = {
    [WEIR__SIGNAL_CPU] = {"cpu", PERCENT, 0.5, 0.01, 1, true},
    [WEIR__SIGNAL_MEMORY] = {"memory", PERCENT, 0.1, 0.01, 1, true},
    [WEIR__SIGNAL_RUN_QUEUE] = {"run_queue", NUMBER, 2, 1, 1000, false},
    [WEIR__SIGNAL_LATENCY] = {"latency", NUMBER, 3, 2, 1000, true},
    [WEIR__SIGNAL_ERRORS] = {"errors", PERCENT, 0.1, 0.01, 1, true},
    [WEIR__SIGNAL_IN_FLIGHT] = {"in_flight", NUMBER, 200, 1, 1e9, false},
};

static void signal_wrong(struct weir__reader *reader, const struct weir__node *node, const struct signal *signal)
{
    char shown[WEIR__SHOWN];
    bool percent = signal->unit == PERCENT;
    weir__report_error(reader->report, node->place,
                       "%s must be on, off or what counts as full, from %.0f%s to %.0f%s, not \"%s\"", signal->name,
                       percent ? signal->least * 100 : signal->least, percent ? "%" : "",
                       percent ? signal->most * 100 : signal->most, percent ? "%" : "",
                       node->kind == WEIR__SCALAR ? weir__printable(node->text, shown, sizeof shown) : "a list or map");
}

static void signal_read(struct weir__reader *reader, const struct weir__node *node, const struct signal *signal,
                        double *target)
{
    weir_text text = node->kind == WEIR__SCALAR ? node->text : (weir_text){"", 0};
    int64_t number;
    if (weir__config_is(node, "on") || weir__config_is(node, "off")) {
        *target = weir__config_is(node, "on") ? signal->default_target : 0;
        return;
    }
    if (signal->unit == PERCENT && text.len > 0 && text.data[text.len - 1] == '%')
        text.len--;
    if (!weir__parse_int(text, &number)) {
        signal_wrong(reader, node, signal);
        return;
    }
    double value = signal->unit == PERCENT ? (double)number / 100 : (double)number;
    if (value < signal->least || value > signal->most)
        signal_wrong(reader, node, signal);
    else
        *target = value;
}

static void signals_read(struct weir__reader *reader, const struct weir__node *node)
{
    const char *names[WEIR__SIGNALS];
    const struct weir__node *member;
    for (int i = 0; i < WEIR__SIGNALS; i++)
        names[i] = signals[i].name;
    if (!weir__field_names(reader->report, node, "signals", names, WEIR__SIGNALS))
        return;
    bool any = false;
    for (int i = 0; i < WEIR__SIGNALS; i++) {
        if (!(member = weir__node_get(node, signals[i].name)))
            continue;
        signal_read(reader, member, &signals[i], &reader->config->load.target[i]);
        any |= !weir__config_is(member, "off");
    }
    if (!any)
        weir__report_error(reader->report, node->place, "no signal is on: the level would always be 0");
}

/* A level, in per cent, that is neither of the ends. */
static void level_read(struct weir__reader *reader, const struct weir__node *node, const char *what, int64_t *level)
{
    int percent;
    if (!weir__field_percent(reader->report, node, what, &percent))
        return;
    if (percent < 10 || percent > 95)
        weir__report_error(reader->report, node->place, "%s must be a level from 10 to 95", what);
    else
        *level = percent;
}

void weir__config_load_level(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"signals", "smooth", "shed_above", "adapt_to"};
    struct weir__load_config *load = &reader->config->load;
    const struct weir__node *member = NULL;
    if (weir__config_is(node, "off"))
        return;
    *load = (struct weir__load_config){.on = true, .smooth_ms = 500, .adapt_to = 80, .place = node->place};
    if (!weir__config_is(node, "on") && !weir__field_names(reader->report, node, "load", WEIR__LIST_OF(names)))
        return;
    bool map = node->kind == WEIR__MAP;
    if (map && (member = weir__node_get(node, "signals")))
        signals_read(reader, member);
    else
        for (int i = 0; i < WEIR__SIGNALS; i++)
            load->target[i] = signals[i].on_by_default ? signals[i].default_target : 0;
    if (map && (member = weir__node_get(node, "smooth")) &&
        weir__config_ms(reader, member, "smooth", &load->smooth_ms) &&
        (load->smooth_ms < 100 || load->smooth_ms > 60000))
        weir__report_error(reader->report, member->place, "smooth must be from 100ms to 1m");
    if (map && (member = weir__node_get(node, "adapt_to")))
        level_read(reader, member, "adapt_to", &load->adapt_to);
    if (!map || !(member = weir__node_get(node, "shed_above")))
        return;
    level_read(reader, member, "shed_above", &load->shed_above);
    if (load->shed_above && load->shed_above <= load->adapt_to)
        weir__report_warning(reader->report, member->place,
                             "requests are shed before adaptive limits have shrunk: shed_above is at most adapt_to");
}
