/* Typed readers of YAML nodes. See yaml.h. */
#include "rules/yaml.h"
#include "base/duration.h"
#include "base/text.h"
#include "base/number.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- Messages ---- */

#define FOUND_MAX (WEIR__SHOWN + 2)

/* The value of a node for messages: `"text"`, 12, `a list`. */
static const char *found(const struct weir__node *node, char buffer[FOUND_MAX])
{
    char shown[WEIR__SHOWN];
    if (node->kind != WEIR__SCALAR || (node->text.len == 0 && !node->quoted))
        return weir__node_is(node);
    bool bare = !node->quoted && strcmp(weir__node_is(node), "text") != 0;
    snprintf(buffer, FOUND_MAX, bare ? "%s" : "\"%s\"", weir__printable(node->text, shown, sizeof shown));
    return buffer;
}

/* True for a scalar that is not null; else reports that it is not `expected`. */
static bool is_given(const struct weir__node *node, const char *what, const char *expected)
{
    if (node->kind == WEIR__SCALAR && !weir__node_is_null(node))
        return true;
    return weir__node_error(node, "%s must be %s, not %s", what, expected, weir__node_is(node));
}

/* ---- Texts and words ---- */

bool weir__field_text(const struct weir__node *node, const char *what, weir_text *value)
{
    if (!is_given(node, what, "text"))
        return false;
    *value = node->text;
    return true;
}

/* What other products call a field or a value of a field: each with its name here. */
static const char *const elsewhere[][2] = {
    {"limit", "rate,requests,max,quota"},
    {"window", "per,period,interval,duration"},
    {"shadow", "dry_run,log_only,mode"},
    {"key", "by"},
    {"match", "paths,methods,hosts"},
    {"algorithm", "strategy,type"},
    {"burst", "capacity"},
    {"cost", "weight"},
    {"allow", "whitelist,allowlist,exempt"},
    {"block", "blacklist,blocklist,denylist,ban"},
    {"status", "code"},
    {"gateway", "listen,upstream,upstreams,port,tls,proxy"},
    {"store", "redis,valkey,backend"},
    {"admin", "dashboard,ui"},
    {"metrics", "prometheus"},
    {"segment", "shm,memory"},
    {"identity", "trusted_proxies"},
    {"token_bucket", "gcra"},
    {"strict", "strong,exact"},
    {"open", "allow,fail_open,pass"},
    {"closed", "deny,fail_closed"},
    {"reject", "deny,block"},
};

/* The one of `names` that other products call `word`, or NULL. */
static const char *called_here(weir_text word, const char *const *names, size_t count)
{
    for (size_t row = 0; row < WEIR__COUNT(elsewhere); row++) {
        const char *meant = weir__report_meant(word, &elsewhere[row], 1);
        for (size_t i = 0; meant && i < count; i++)
            if (strcmp(meant, names[i]) == 0)
                return meant;
    }
    return NULL;
}

bool weir__field_choice(const struct weir__node *node, const char *what, const char *const *choices, int *value)
{
    char list[320] = "", shown[FOUND_MAX];
    size_t count = 0, used = 0;
    for (; choices[count]; count++) {
        if (node->kind == WEIR__SCALAR && weir__text_is(node->text, choices[count])) {
            *value = (int)count;
            return true;
        }
    }
    for (size_t i = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 i == 0          ? ""
                                 : i + 1 < count ? ", "
                                                 : " or ",
                                 choices[i]);
    if (is_given(node, what, list)) {
        const char *meant = called_here(node->text, choices, count);
        weir__node_unknown(node, meant ? weir__text_of(meant) : node->text, choices, count, "%s must be %s, not %s",
                           what, list, found(node, shown));
    }
    return false;
}

/* ---- true and false ---- */

bool weir__field_bool(const struct weir__node *node, const char *what, bool *value)
{
    /* What YAML 1.1 reads as true or false, and 1 and 0. */
    static const char *const meant[][2] = {{"true", "true,yes,on,y,1"}, {"false", "false,no,off,n,0"}};
    char shown[FOUND_MAX];
    if (!is_given(node, what, "true or false"))
        return false;

    bool is_true = weir__text_is(node->text, "true"), is_false = weir__text_is(node->text, "false");
    if (!node->quoted && (is_true || is_false)) {
        *value = is_true;
        return true;
    }
    if (is_true || is_false)
        weir__node_error(node, "%s is text because of its quotes; remove them", what);
    else
        weir__node_suggest(node, weir__report_meant(node->text, WEIR__LIST_OF(meant)),
                           "%s must be true or false, not %s", what, found(node, shown));
    return false;
}

/* ---- Whole numbers ---- */

static bool is_digits(weir_text text)
{
    size_t sign = text.len > 1 && text.data[0] == '-';
    return text.len > sign && sign + strspn(text.data + sign, WEIR__DECIMALS) == text.len;
}

/* Explains why a text that looks like a number is not one; "": it does not look like one. */
static const char *number_hint(weir_text text)
{
    size_t first = text.len > 0 && (text.data[0] == '-' || text.data[0] == '+');
    if (first == text.len || text.data[first] < '0' || text.data[first] > '9')
        return "";
    if (text.data[0] == '+')
        return "; leave the '+' out";
    if (text.data[first] == '0' && text.len > first + 1 && text.data[first + 1] != '.')
        return "; write it in decimal, without zeros or 0x before it";
    if (memchr(text.data, '_', text.len) || memchr(text.data, ',', text.len) || memchr(text.data, '\'', text.len))
        return "; write its digits without anything between them";
    if (memchr(text.data, '.', text.len) || memchr(text.data, 'e', text.len) || memchr(text.data, 'E', text.len))
        return "; write it as a whole number";
    return "";
}

bool weir__field_int(const struct weir__node *node, const char *what, int64_t min, int64_t max, int64_t *value)
{
    char range[80], shown[FOUND_MAX];
    int64_t number;

    snprintf(range, sizeof range, "a number from %" PRId64 " to %" PRId64, min, max);
    if (!is_given(node, what, range))
        return false;
    if (node->quoted && is_digits(node->text))
        return weir__node_error(node, "%s is text because of its quotes; remove them", what);
    if (node->quoted || !weir__parse_int(node->text, &number) || number < min || number > max)
        return weir__node_error(node, "%s must be %s, not %s%s", what, range, found(node, shown),
                                node->quoted ? "" : number_hint(node->text));
    *value = number;
    return true;
}

bool weir__field_percent(const struct weir__node *node, const char *what, int *value)
{
    char expected[48], shown[FOUND_MAX];
    int64_t number;

    snprintf(expected, sizeof expected, "a percentage from 0%% to %d%%", WEIR__PERCENT_MAX);
    if (!is_given(node, what, expected))
        return false;
    weir_text text = node->text;
    if (text.len > 1 && text.data[text.len - 1] == '%')
        text.len--;
    if (!weir__parse_int(text, &number) || number < 0 || number > WEIR__PERCENT_MAX)
        return weir__node_error(node, "%s must be %s, not %s%s", what, expected, found(node, shown), number_hint(text));
    *value = (int)number;
    return true;
}

bool weir__field_network(const struct weir__node *node, const char *what, struct weir__network *network)
{
    bool host_bits = false;
    if (node->kind != WEIR__SCALAR || !weir__network_parse(node->text, network, &host_bits))
        return weir__node_error(node, "%s: expected a network such as 10.0.0.0/8 or 2001:db8::/32, not %s%.*s", what,
                                node->kind == WEIR__SCALAR ? "" : weir__node_is(node),
                                node->kind == WEIR__SCALAR ? (int)node->text.len : 0, node->text.data);
    if (host_bits) {
        char text[WEIR__ADDRESS_TEXT];
        int length = network->length;
        size_t len = weir__address_text(&network->address, length, text);
        weir__node_warning(node, "%.*s has bits after its prefix; it is taken as %.*s", (int)node->text.len,
                           node->text.data, (int)len, text);
    }
    return true;
}

/* ---- Sizes ---- */

/* Rewrites "64MB", "64m" or "64 MiB" as a size. False if it does not resemble one. */
static bool size_meant(weir_text number, weir_text unit, char *buffer, size_t size)
{
    static const char letters[] = "kmg", *const units[] = {"KiB", "MiB", "GiB"};
    unit = weir__text_trim(unit);
    if (number.len == 0 || number.len > 12 || unit.len == 0 || unit.len > 3)
        return false;
    const char *letter = strchr(letters, weir__lower(unit.data[0]));
    if (!letter || (unit.len > 1 && weir__lower(unit.data[unit.len - 1]) != 'b'))
        return false;
    snprintf(buffer, size, "%.*s%s", (int)number.len, number.data, units[letter - letters]);
    return true;
}

bool weir__field_size(const struct weir__node *node, const char *what, int64_t min, int64_t *bytes)
{
    weir_text text;
    char shown[WEIR__SHOWN], meant[24];
    if (!weir__field_text(node, what, &text))
        return false;
    weir_text number = {text.data, strspn(text.data, WEIR__DECIMALS)};
    weir_text unit = {text.data + number.len, text.len - number.len};
    if (weir__parse_size(text, bytes)) {
        if (*bytes == INT64_MAX)
            weir__node_error(node, "%s must be at most 1048576GiB", what);
        else if (*bytes < min)
            weir__node_error(node, "%s must be at least %" PRId64 "KiB", what, min >> 10);
        else
            return true;
        return false;
    }
    weir__printable(text, shown, sizeof shown);
    bool likely = size_meant(number, unit, meant, sizeof meant);
    return weir__node_suggest(node, likely ? meant : NULL,
                              "%s must be a size such as 512KiB, 64MiB or 1GiB, not \"%s\"", what, shown);
}

/* ---- Windows ---- */

#define MAX_NS (WEIR__WINDOW_DAYS_MAX * 86400 * WEIR_SECOND)

#define ALLOWED "seconds, or a number with ms, s, m, h, d, w, mo or y, such as 30s or 1h"

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

/* ---- Suggestions ---- */

/* The unit meant by a longer name, in any case and with or without an s at the end; or NULL. */
static const char *unit_meant(weir_text word)
{
    static const char *const meant[][2] = {{"ms", "millisecond,milli,msec,ms"},
                                           {"s", "second,sec,s"},
                                           {"m", "minute,min,m"},
                                           {"h", "hour,hr,h"},
                                           {"d", "day,d"},
                                           {"w", "week,wk,w"},
                                           {"mo", "month,mon,mth,mo"},
                                           {"y", "year,yr,y,a"}};
    const char *unit = weir__report_meant(word, WEIR__LIST_OF(meant));
    if (unit || word.len < 2 || weir__lower(word.data[word.len - 1]) != 's')
        return unit;
    return weir__report_meant((weir_text){word.data, word.len - 1}, WEIR__LIST_OF(meant));
}

/* Rewrites "1 hour", "5min" or "Day" as a window. False if it does not resemble one. */
static bool window_meant(weir_text text, char *buffer, size_t size)
{
    size_t count_len = strspn(text.data, WEIR__DECIMALS "."), start = count_len + strspn(text.data + count_len, " -");
    const char *unit = unit_meant((weir_text){text.data + start, text.len - start});
    if (!unit || count_len > 12 || (count_len == 0 && start > 0))
        return false;

    struct weir__parsed_window unused;
    snprintf(buffer, size, "%.*s%s", count_len ? (int)count_len : 1, count_len ? text.data : "1", unit);
    return window_read((weir_text){buffer, strlen(buffer)}, &unused) == WEIR__DURATION_OK && unused.ns > 0;
}

static void report_unreadable(const struct weir__node *node, const char *what)
{
    char shown[WEIR__SHOWN], meant[24];
    weir_text text = node->text;

    weir__printable(text, shown, sizeof shown);
    if (text.len > 1 && text.data[0] == '-' && weir__is_digit(text.data[1]))
        weir__node_error(node, "%s must be longer than zero, not %s", what, shown);
    else if (text.len > 1 && text.data[text.len - 1] == 'M' && window_meant(text, meant, sizeof meant - 1) &&
             !weir__is_letter(text.data[text.len - 2])) {
        size_t count_len = strlen(meant) - 1;
        weir__node_error(node, "%s is \"%s\"; write %.*smo for months or %s for minutes", what, shown, (int)count_len,
                         meant, meant);
    } else if (window_meant(text, meant, sizeof meant))
        weir__node_suggest(node, meant, "%s must be " ALLOWED ", not \"%s\"", what, shown);
    else
        weir__node_error(node, "%s must be " ALLOWED ", not \"%s\"", what, shown);
}

bool weir__field_window(const struct weir__node *node, const char *what, struct weir__parsed_window *value)
{
    char shown[WEIR__SHOWN];
    struct weir__parsed_window read;
    if (node->kind != WEIR__SCALAR || node->text.len == 0)
        return weir__node_error(node, "%s must be " ALLOWED ", not %s", what,
                                node->kind == WEIR__SCALAR ? "nothing" : weir__node_is(node));
    switch (window_read(node->text, &read)) {
    case WEIR__DURATION_OK:
        if (read.ns > 0) {
            *value = read;
            return true;
        }
        weir__node_error(node, "%s must be longer than zero", what);
        break;
    case WEIR__DURATION_TOO_LONG:
        weir__node_error(node, "%s must be at most %d days, not %s", what, WEIR__WINDOW_DAYS_MAX,
                         weir__printable(node->text, shown, sizeof shown));
        break;
    case WEIR__DURATION_TOO_FINE:
        weir__node_error(node, "%s is finer than a nanosecond", what);
        break;
    default:
        report_unreadable(node, what);
        break;
    }
    return false;
}

/* ---- Tables ---- */

void weir__field_unknown(const struct weir__node *name, const char *what, const char *const *names, size_t count)
{
    const char *meant = called_here(name->text, names, count);
    char shown[WEIR__SHOWN];
    weir__node_unknown(name, meant ? weir__text_of(meant) : name->text, names, count, "%s has no field \"%s\"", what,
                       weir__printable(name->text, shown, sizeof shown));
}

bool weir__field_names(const struct weir__node *map, const char *what, const char *const *names, size_t count)
{
    if (map->kind != WEIR__MAP)
        return count ? weir__node_error(map, "%s must be a map such as { %s: … }, not %s", what, names[0],
                                        weir__node_is(map))
                     : weir__node_error(map, "%s must be a map, not %s", what, weir__node_is(map));
    for (const struct weir__node *member = map->first; member; member = member->next) {
        size_t i = 0;
        while (i < count && !weir__text_is(member->name->text, names[i]))
            i++;
        if (i == count)
            weir__field_unknown(member->name, what, names, count);
    }
    return true;
}

/* Writes an integer to a field of any size. */
static bool put_number(const struct weir__field *field, void *at, int64_t number)
{
    if (field->size == sizeof(int64_t))
        *(int64_t *)at = number;
    else if (field->size == sizeof(int32_t))
        *(int32_t *)at = (int32_t)number;
    else if (field->size == sizeof(int16_t))
        *(int16_t *)at = (int16_t)number;
    else
        *(uint8_t *)at = (uint8_t)number;
    return true;
}

bool weir__field_read(const struct weir__field *field, const struct weir__node *node, void *to, void *context)
{
    const char *what = field->what ? field->what : field->name;
    void *at = (char *)to + field->offset;
    struct weir__parsed_window window = {0};
    weir_text text = {NULL, 0};
    int64_t number = 0;
    int word = 0;
    if (field->place)
        *(struct weir__place *)(void *)((char *)to + field->place) = node->place;
    switch (field->type) {
    case WEIR__FIELD_SKIP:
        return true;
    case WEIR__FIELD_NODE:
        *(const struct weir__node **)at = node;
        return true;
    case WEIR__FIELD_TEXT:
    case WEIR__FIELD_STRING:
        if (!weir__field_text(node, what, &text))
            return false;
        if (field->max && text.len > (size_t)field->max)
            return weir__node_error(node, "%s is longer than %" PRId64 " bytes", what, field->max);
        if (field->type == WEIR__FIELD_TEXT)
            *(weir_text *)at = text;
        else
            *(const char **)at = text.data;
        return true;
    case WEIR__FIELD_BOOL:
        return weir__field_bool(node, what, at);
    case WEIR__FIELD_INT:
        return weir__field_int(node, what, field->min, field->max, &number) && put_number(field, at, number);
    case WEIR__FIELD_CHOICE:
        return weir__field_choice(node, what, field->choices, &word) && put_number(field, at, field->min + word);
    case WEIR__FIELD_PERCENT:
        if (!weir__field_percent(node, what, &word))
            return false;
        if (field->max && (word < field->min || word > field->max))
            return weir__node_error(node, "%s is %" PRId64 "%% to %" PRId64 "%%, not %d%%", what, field->min,
                                    field->max, word);
        return put_number(field, at, word);
    case WEIR__FIELD_SIZE:
        return weir__field_size(node, what, field->min, at) &&
               (!field->max || *(int64_t *)at <= field->max ||
                weir__node_error(node, "%s must be at most %" PRId64 "MiB", what, field->max >> 20));
    case WEIR__FIELD_AGE:
        return weir__field_window(node, what, &window) &&
               put_number(field, at, window.ns < 1000000 ? 1 : window.ns / 1000000);
    case WEIR__FIELD_MAP:
        return weir__fields_read(node, what, field->fields, field->field_count, to, context);
    case WEIR__FIELD_READ:
        return field->read(context, node, what, at);
    }
    return false;
}

bool weir__fields_given(const struct weir__node *map, const struct weir__field *fields, size_t count, void *to,
                        void *context)
{
    int errors = map->report->errors;
    for (size_t i = 0; i < count; i++) {
        const struct weir__node *node = weir__node_get(map, fields[i].name);
        if (node && !(fields[i].or_null && weir__node_is_null(node)))
            weir__field_read(&fields[i], node, to, context);
    }
    return map->report->errors == errors;
}

bool weir__fields_read(const struct weir__node *map, const char *what, const struct weir__field *fields, size_t count,
                       void *to, void *context)
{
    enum { NAMES_MAX = 64 };
    const char *names[NAMES_MAX];
    int errors = map->report->errors;
    for (size_t i = 0; i < count; i++)
        names[i] = fields[i].name;
    return weir__field_names(map, what, names, count) && weir__fields_given(map, fields, count, to, context) &&
           map->report->errors == errors;
}

bool weir__fields_or_first(const struct weir__node *node, const char *what, const struct weir__field *fields,
                           size_t count, void *to, void *context)
{
    return node->kind == WEIR__MAP ? weir__fields_read(node, what, fields, count, to, context)
                                   : weir__field_read(fields, node, to, context);
}
