/* Typed readers of YAML nodes. Each returns false after it has reported an error. */
#ifndef WEIR_RULES_FIELD_H
#define WEIR_RULES_FIELD_H

#include "rules/address.h"
#include "rules/yaml.h"

/* Reports every unknown member of `map`, with a suggestion. False only if it is not a map. `what` is e.g. "a rule". */
bool weir__field_names(struct weir__diagnostics *report, const struct weir__node *map, const char *what,
                       const char *const *names, size_t count);

/* `what` is the field's name in all of these. A text may be empty but not null. */
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
 * A window: seconds as a number (with fraction), or counts with ms, s, m, h, d, w, mo or y from the largest unit to the
 * smallest ("1h30m"). More than zero and at most 400 days.
 */
#define WEIR__WINDOW_DAYS_MAX 400
struct weir__parsed_window {
    int64_t ns;    /* months count 30 days, years 365 */
    bool calendar; /* exactly 1d, 1w, 1mo or 1y: may be aligned to the calendar */
    enum weir_calendar unit;
};
bool weir__field_window(struct weir__diagnostics *report, const struct weir__node *node, const char *what,
                        struct weir__parsed_window *value);

/* "64MiB", "512KiB", "1GiB", or bytes: at least `min`. */
bool weir__field_size(struct weir__diagnostics *report, const struct weir__node *node, const char *what, int64_t min,
                      int64_t *bytes);

#endif
