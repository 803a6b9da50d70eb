/* Windows: lengths of time as people write them. Whole numbers of nanoseconds throughout. */
#include "base/text.h"
#include "rules/field.h"
#include "base/duration.h"

#include <stdio.h>

#define MAX_NS (WEIR__WINDOW_DAYS_MAX * 86400 * WEIR_SECOND)

#define ALLOWED "seconds, or a number with ms, s, m, h, d, w, mo or y, such as 30s or 1h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    unsigned char lower = weir__lower(c);
    return lower >= 'a' && lower <= 'z';
}

static enum weir__duration_error window_read(weir_text text, struct weir__parsed_window *value)
{
    static const enum weir_calendar calendars[] = {[WEIR__YEARS] = WEIR_CALENDAR_YEAR,
                                                   [WEIR__MONTHS] = WEIR_CALENDAR_MONTH,
                                                   [WEIR__WEEKS] = WEIR_CALENDAR_WEEK,
                                                   [WEIR__DAYS] = WEIR_CALENDAR_DAY};
    struct weir__duration duration;
    enum weir__duration_error error = weir__duration_read(text, MAX_NS, &duration);
    if (!error && duration.finest == WEIR__MICROSECONDS)
        error = WEIR__DURATION_UNREADABLE;
    if (error)
        return error;
    bool calendar = duration.is_one && duration.finest <= WEIR__DAYS;
    *value =
        (struct weir__parsed_window){duration.ns, calendar, calendar ? calendars[duration.finest] : WEIR_CALENDAR_DAY};
    return WEIR__DURATION_OK;
}

/* ---- What was meant ---- */

/* Names of units that people write and weir does not, in any case of letters and with or without an s at the end. */
static const char *unit_meant(weir_text word)
{
    static const char *const meant[][2] = {
        {"millisecond", "ms"},
        {"milli", "ms"},
        {"msec", "ms"},
        {"ms", "ms"},
        {"second", "s"},
        {"sec", "s"},
        {"s", "s"},
        {"minute", "m"},
        {"min", "m"},
        {"m", "m"},
        {"hour", "h"},
        {"hr", "h"},
        {"h", "h"},
        {"day", "d"},
        {"d", "d"},
        {"week", "w"},
        {"wk", "w"},
        {"w", "w"},
        {"month", "mo"},
        {"mon", "mo"},
        {"mth", "mo"},
        {"mo", "mo"},
        {"year", "y"},
        {"yr", "y"},
        {"y", "y"},
        {"a", "y"},
    };
    for (int plural = 0; plural < 2; plural++) {
        for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
            if (weir__text_equal_nocase(word, (weir_text){meant[i][0], strlen(meant[i][0])}))
                return meant[i][1];
        if (word.len < 2 || weir__lower(word.data[word.len - 1]) != 's')
            break;
        word.len--;
    }
    return NULL;
}

/* For "1 hour", "5min", "Day": how weir writes it. False if it is nothing like that. */
static bool window_meant(weir_text text, char *buffer, size_t size)
{
    size_t i = 0;
    while (i < text.len && (is_digit(text.data[i]) || text.data[i] == '.'))
        i++;
    size_t count_len = i;
    while (i < text.len && (text.data[i] == ' ' || text.data[i] == '-'))
        i++;
    size_t start = i;
    while (i < text.len && is_letter(text.data[i]))
        i++;
    const char *unit = unit_meant((weir_text){text.data + start, i - start});
    if (!unit || i != text.len || count_len > 12 || (count_len == 0 && start > 0))
        return false;

    struct weir__parsed_window unused;
    snprintf(buffer, size, "%.*s%s", count_len ? (int)count_len : 1, count_len ? text.data : "1", unit);
    return window_read((weir_text){buffer, strlen(buffer)}, &unused) == WEIR__DURATION_OK && unused.ns > 0;
}

static void report_unreadable(struct weir__diagnostics *report, const struct weir__node *node, const char *what)
{
    char shown[WEIR__SHOWN], meant[24];
    weir_text text = node->text;

    weir__printable(text, shown, sizeof shown);
    if (text.len > 1 && text.data[0] == '-' && is_digit(text.data[1]))
        weir__report_error(report, node->place, "%s must be longer than zero, not %s", what, shown);
    else if (text.len > 1 && text.data[text.len - 1] == 'M' && window_meant(text, meant, sizeof meant - 1) &&
             !is_letter(text.data[text.len - 2])) {
        size_t count_len = strlen(meant) - 1;
        weir__report_error(report, node->place, "%s is \"%s\"; write %.*smo for months or %s for minutes", what, shown,
                           (int)count_len, meant, meant);
    } else if (window_meant(text, meant, sizeof meant))
        weir__report_suggest(report, node->place, meant, "%s must be " ALLOWED ", not \"%s\"", what, shown);
    else
        weir__report_error(report, node->place, "%s must be " ALLOWED ", not \"%s\"", what, shown);
}

bool weir__field_window(struct weir__diagnostics *report, const struct weir__node *node, const char *what,
                        struct weir__parsed_window *value)
{
    char shown[WEIR__SHOWN];
    struct weir__parsed_window read;
    if (node->kind != WEIR__SCALAR || node->text.len == 0) {
        weir__report_error(report, node->place, "%s must be " ALLOWED ", not %s", what,
                           node->kind == WEIR__SCALAR ? "nothing" : weir__node_is(node));
        return false;
    }
    switch (window_read(node->text, &read)) {
    case WEIR__DURATION_OK:
        if (read.ns > 0) {
            *value = read;
            return true;
        }
        weir__report_error(report, node->place, "%s must be longer than zero", what);
        break;
    case WEIR__DURATION_TOO_LONG:
        weir__report_error(report, node->place, "%s must be at most %d days, not %s", what, WEIR__WINDOW_DAYS_MAX,
                           weir__printable(node->text, shown, sizeof shown));
        break;
    case WEIR__DURATION_TOO_FINE:
        weir__report_error(report, node->place, "%s is finer than a nanosecond", what);
        break;
    default:
        report_unreadable(report, node, what);
        break;
    }
    return false;
}
