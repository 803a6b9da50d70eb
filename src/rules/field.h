/* Typed readers of YAML nodes. Each reports what it does not like and then returns false. */
#ifndef WEIR_RULES_FIELD_H
#define WEIR_RULES_FIELD_H

#include "rules/address.h"
#include "rules/yaml.h"

/*
 * Reports every member of `map` that is not one of `names`, with a suggestion. False only if it is no map, which is
 * reported, too: unknown members are no reason not to look at the others. `what` is e.g. "a rule".
 */
bool weir__field_names(struct weir__diagnostics *report, const struct weir__node *map, const char *what,
                       const char *const *names, size_t count);

/* `what` is the name of the field in all of these. A text may be empty, but must be there and not null. */
bool weir__field_text(struct weir__diagnostics *report, const struct weir__node *node, const char *what,
                      weir_text *value);
bool weir__field_bool(struct weir__diagnostics *report, const struct weir__node *node, const char *what, bool *value);
bool weir__field_int(struct weir__diagnostics *report, const struct weir__node *node, const char *what, int64_t min,
                     int64_t max, int64_t *value);
/* One of `words`: its index. */
bool weir__field_choice(struct weir__diagnostics *report, const struct weir__node *node, const char *what,
                        const char *const *choices, size_t count, int *value);
/* A network or an address; bits after the prefix are a warning. */
bool weir__field_network(struct weir__diagnostics *report, const struct weir__node *node, const char *what,
                         struct weir__network *network);
/* "10%" or 10: 0 to WEIR__PERCENT_MAX. */
#define WEIR__PERCENT_MAX 1000
bool weir__field_percent(struct weir__diagnostics *report, const struct weir__node *node, const char *what, int *value);

/*
 * A window: seconds as a number (fractions too), or a count with ms, s, m, h, d, w, mo or y, or several of these from
 * the largest to the smallest ("1h30m"). Longer than zero and at most 400 days.
 */
#define WEIR__WINDOW_DAYS_MAX 400
struct weir__parsed_window {
    int64_t ns;    /* months count 30 days, years 365 */
    bool calendar; /* exactly one day, week, month or year, written so: may be aligned to the calendar */
    enum weir_calendar unit;
};
bool weir__field_window(struct weir__diagnostics *report, const struct weir__node *node, const char *what,
                        struct weir__parsed_window *value);

/* "64MiB", "512KiB", "1GiB", or bytes: at least `min`. */
bool weir__field_size(struct weir__diagnostics *report, const struct weir__node *node, const char *what, int64_t min,
                      int64_t *bytes);

/* Numbers and durations in text, without a report: true if all of the text is one. */
bool weir__parse_int(weir_text text, int64_t *value);
bool weir__parse_window(weir_text text, struct weir__parsed_window *value);

#endif
