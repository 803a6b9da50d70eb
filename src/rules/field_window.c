/* Windows: lengths of time as people write them. Whole numbers of nanoseconds throughout. */
#include "rules/field.h"

#include <stdio.h>

#define SECOND_NS INT64_C(1000000000)
#define DAY_NS    (86400 * SECOND_NS)
#define MAX_NS    (WEIR__WINDOW_DAYS_MAX * DAY_NS)

static const struct window_unit {
    const char *name;
    int64_t ns;
    bool calendar;
    enum weir_calendar unit;
} units[] = {
    /* from the largest to the smallest */
    {"y", 365 * DAY_NS, true, WEIR_CALENDAR_YEAR},     {"mo", 30 * DAY_NS, true, WEIR_CALENDAR_MONTH},
    {"w", 7 * DAY_NS, true, WEIR_CALENDAR_WEEK},       {"d", DAY_NS, true, WEIR_CALENDAR_DAY},
    {"h", 3600 * SECOND_NS, false, WEIR_CALENDAR_DAY}, {"m", 60 * SECOND_NS, false, WEIR_CALENDAR_DAY},
    {"s", SECOND_NS, false, WEIR_CALENDAR_DAY},        {"ms", SECOND_NS / 1000, false, WEIR_CALENDAR_DAY},
};
enum { UNITS = sizeof units / sizeof *units, SECONDS = 6 };

#define ALLOWED "seconds, or a number with ms, s, m, h, d, w, mo or y, such as 30s or 1h"

enum wrong { RIGHT, UNREADABLE, ZERO, TOO_LONG, TOO_FINE };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    unsigned char lower = weir__lower(c);
    return lower >= 'a' && lower <= 'z';
}

/* A number with or without a fraction, found in a text. */
struct window_number {
    weir_text integer, fraction;
};

static size_t number_read(weir_text text, size_t i, struct window_number *number)
{
    size_t start = i;
    while (i < text.len && is_digit(text.data[i]))
        i++;
    number->integer = (weir_text){text.data + start, i - start};
    number->fraction = (weir_text){text.data + i, 0};
    if (i == start || i + 1 >= text.len || text.data[i] != '.' || !is_digit(text.data[i + 1]))
        return i;
    start = ++i;
    while (i < text.len && is_digit(text.data[i]))
        i++;
    number->fraction = (weir_text){text.data + start, i - start};
    return i;
}

/* Adds so many units to *ns, which stays at most MAX_NS. */
static enum wrong number_add(const struct window_number *number, int64_t unit_ns, int64_t *ns)
{
    int64_t integer = 0;
    for (size_t i = 0; i < number->integer.len; i++) {
        integer = integer * 10 + (number->integer.data[i] - '0');
        if (integer > MAX_NS / unit_ns)
            return TOO_LONG;
    }
    int64_t sum = *ns + integer * unit_ns;
    for (size_t i = 0; i < number->fraction.len; i++) {
        int digit = number->fraction.data[i] - '0';
        if (digit && unit_ns % 10)
            return TOO_FINE;
        unit_ns /= 10;
        sum += digit * unit_ns;
    }
    if (sum > MAX_NS)
        return TOO_LONG;
    *ns = sum;
    return RIGHT;
}

/* The unit that the text at `i` is, up to the next digit. UNITS: none. */
static int unit_read(weir_text text, size_t *i)
{
    size_t start = *i;
    while (*i < text.len && is_letter(text.data[*i]))
        ++*i;
    weir_text name = {text.data + start, *i - start};
    int unit = 0;
    while (unit < UNITS && !weir__text_is(name, units[unit].name))
        unit++;
    return unit;
}

static enum wrong window_read(weir_text text, struct weir__parsed_window *value)
{
    struct weir__parsed_window window = {0, false, WEIR_CALENDAR_DAY};
    int before = -1; /* the unit of the part before */
    size_t i = 0;

    do {
        struct window_number number;
        size_t begin = i;
        i = number_read(text, i, &number);
        if (i == begin || (number.integer.len > 1 && number.integer.data[0] == '0'))
            return UNREADABLE; /* for some, a zero before a number makes it octal */
        int unit = i == text.len && begin == 0 ? SECONDS : unit_read(text, &i);
        if (unit == UNITS || unit <= before)
            return UNREADABLE;
        before = unit;
        enum wrong wrong = number_add(&number, units[unit].ns, &window.ns);
        if (wrong)
            return wrong;
        if (begin == 0 && i == text.len && number.integer.len == 1 && text.data[0] == '1' && number.fraction.len == 0) {
            window.calendar = units[unit].calendar;
            window.unit = units[unit].unit;
        }
    } while (i < text.len);
    if (window.ns == 0)
        return ZERO;
    *value = window;
    return RIGHT;
}

bool weir__parse_window(weir_text text, struct weir__parsed_window *value)
{
    return window_read(text, value) == RIGHT;
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
    struct window_number number;
    size_t i = number_read(text, 0, &number), count_len = i;
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
    return window_read((weir_text){buffer, strlen(buffer)}, &unused) == RIGHT;
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
    if (node->kind != WEIR__SCALAR || node->text.len == 0) {
        weir__report_error(report, node->place, "%s must be " ALLOWED ", not %s", what,
                           node->kind == WEIR__SCALAR ? "nothing" : weir__node_is(node));
        return false;
    }
    switch (window_read(node->text, value)) {
    case RIGHT:
        return true;
    case ZERO:
        weir__report_error(report, node->place, "%s must be longer than zero", what);
        break;
    case TOO_LONG:
        weir__report_error(report, node->place, "%s must be at most %d days, not %s", what, WEIR__WINDOW_DAYS_MAX,
                           weir__printable(node->text, shown, sizeof shown));
        break;
    case TOO_FINE:
        weir__report_error(report, node->place, "%s is finer than a nanosecond", what);
        break;
    default:
        report_unreadable(report, node, what);
        break;
    }
    return false;
}
