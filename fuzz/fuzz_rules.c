/*
 * Rule files, in both dialects: any bytes are refused with at least one error that has a line, or become a rule set
 * under which any request can be matched, where the index and a linear search find the same; at every load level no
 * limit exceeds its ceiling. A form feed separates files.
 */
#include "algo/algo.h"
#include "rules/descriptors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SOURCES_MAX = 3, REQUESTS_MAX = 24, FOUND_MAX = 256 };

/* No files here: a zone that never changes, for one name. */
static int open_zone(const char *name, weir_zone **zone)
{
    if (strcmp(name, "Europe/Berlin") != 0)
        return WEIR_EZONE;
    *zone = calloc(1, sizeof **zone);
    return *zone ? 0 : WEIR_ENOMEM;
}

static void close_zone(weir_zone *zone)
{
    free(zone);
}

struct heard {
    size_t errors;
};

static void hear(void *context, const weir_diagnostic *diagnostic)
{
    struct heard *heard = context;
    if (!diagnostic->file || !diagnostic->message || !diagnostic->message[0] || diagnostic->line < 0 ||
        diagnostic->column < 0)
        abort();
    heard->errors += diagnostic->severity == WEIR_IS_ERROR;
}

/* A request with every attribute: path and host are given, each other one has its name as value. */
struct request {
    weir_text path, host, method;
};

static bool look_up(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    const struct request *request = context;
    switch (kind) {
    case WEIR_ATTR_PATH:
        *value = request->path;
        return true;
    case WEIR_ATTR_HOST:
        *value = request->host;
        return true;
    case WEIR_ATTR_METHOD:
        *value = request->method;
        return true;
    case WEIR_ATTR_QUERY:
        *value = WEIR__TEXT("a=1&q=%41&X=");
        return true;
    case WEIR_ATTR_PEER:
        *value = WEIR__TEXT("10.1.2.3");
        return true;
    case WEIR_ATTR_HEADER:
    case WEIR_ATTR_NAMED:
        *value = name;
        return name.len % 2;
    default:
        return false;
    }
}

static void use_rule(const struct weir__rule *rule, struct weir__values *values, struct weir__matching *matching)
{
    char key[WEIR__KEY_MAX];
    const struct weir__quota *quota = weir__rule_quota(rule, values);
    if (quota && quota->kind == WEIR__LIMITED && (quota->limit.limit < 1 || quota->window_ns < 1))
        abort();
    if (!quota && rule->has_default)
        abort();
    if (weir__rule_cost(rule, values, matching) < 0)
        abort();
    int len = weir__template_fill(&rule->key, values, rule->on_missing == WEIR__MISSING_SHARE, key);
    if (len > (int)sizeof key)
        abort();
    size_t keys = weir__template_keys(&rule->key, values);
    for (size_t i = 0; len >= 0 && i < keys && keys <= WEIR__KEYS_MAX; i++)
        if (weir__template_fill_one(&rule->key, values, rule->on_missing == WEIR__MISSING_SHARE, i, key) >
            (int)sizeof key)
            abort();
    if (len >= 0) {
        weir__list_has_key(&rule->allow, (weir_text){key, (size_t)len}, true);
        weir__list_has_key(&rule->block, (weir_text){key, (size_t)len}, false);
    }
}

/* What matches the path as it was sent is among what matches it or its normal forms. */
static void check_sent(const weir_rules *set, struct weir__values *values, struct weir__matching *matching,
                       const struct weir__found *found)
{
    static uint32_t rules[FOUND_MAX];
    static weir_rules bare;
    struct weir__found sent = {.rules = rules, .max = FOUND_MAX};
    size_t at = 0;
    bare = *set;
    bare.forms = 0;
    weir__rules_match(&bare, values, matching, &sent);
    for (size_t i = 0; i < found->count && at < sent.count; i++)
        at += found->rules[i] == rules[at];
    if (!found->overflow && at < sent.count)
        abort();
}

static void check_request(const weir_rules *set, struct request *request, struct weir__matching *matching)
{
    static struct weir__values values;
    static uint32_t rules[FOUND_MAX], first[1];
    weir_query query = {.lookup = look_up, .lookup_context = request};
    struct weir__found found = {.rules = rules, .max = FOUND_MAX}, narrow = {.rules = first, .max = 1};

    weir__values_begin(&values, &set->attributes, &query);
    weir__rules_match(set, &values, matching, &found);
    weir__rules_match(set, &values, matching, &narrow);
    if (narrow.overflow != (found.count > 1) || narrow.count != (found.count > 0) ||
        (found.count && first[0] != rules[0]))
        abort();
    check_sent(set, &values, matching, &found);
    for (size_t i = 0; i < found.count; i++) {
        if (rules[i] >= set->count || !set->rules[rules[i]]->match || (i && rules[i] <= rules[i - 1]))
            abort();
        use_rule(set->rules[rules[i]], &values, matching);
    }
}

/* Requests that the set's own patterns suggest. */
/* An effective limit is valid for the algorithms, whatever the load page contains. */
static void check_limits(const struct weir__rule *rule)
{
    static const uint32_t points[] = {0, 1, 333, 650, 999, 1000, UINT32_MAX};
    enum { POINTS = sizeof points / sizeof *points };
    for (size_t i = 0; i < rule->quota_count * POINTS * POINTS; i++) {
        const struct weir__quota *quota = &rule->quotas[i / (POINTS * POINTS)];
        weir_limit at;
        if (quota->kind != WEIR__LIMITED || !quota->ceiling)
            continue;
        int64_t scale = weir__overload_scale(&rule->overload, points[i % POINTS], points[i / POINTS % POINTS]);
        weir__limit_scale(&quota->limit, scale, &at);
        if (at.limit < 1 || at.hard < 1 || at.cap < at.hard || at.limit > quota->ceiling->limit ||
            at.hard > quota->ceiling->hard || at.cap > at.most || at.period_us < 1 || at.period_units < 1 ||
            weir__is_packed(&at) != weir__is_packed(quota->ceiling) || at.salt != quota->ceiling->salt)
            abort();
    }
}

static void check_set(const weir_rules *set)
{
    for (size_t i = 0; i < set->count && i < REQUESTS_MAX; i++)
        check_limits(set->rules[i]);
    static const weir_text methods[] = {{"GET", 3}, {"post", 4}, {"X", 1}, {"", 0}};
    struct weir__matching matching = {.regex_scratch = set->has_regex ? weir__regex_scratch_make() : NULL};
    struct request request = {.path = WEIR__TEXT("/api/v1/items"), .host = WEIR__TEXT("www.example.com")};
    size_t step = set->count / REQUESTS_MAX + 1;
    check_request(set, &request, &matching);
    for (size_t i = 0; i < set->count; i += step) {
        const struct weir__match *match = set->rules[i]->match;
        weir_rule_info info;
        weir_rules_info(set, i, &info);
        if (!info.name || !info.key || !info.file || info.bytes_per_key < 0 || strlen(info.name) > WEIR_NAME_MAX)
            abort();
        request.method = methods[i % 4];
        if (match && match->entries->path)
            request.path = match->entries->path->text;
        if (match && match->entries->host)
            request.host = match->entries->host->text;
        check_request(set, &request, &matching);
    }
    weir__regex_scratch_free(matching.regex_scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct weir__surroundings around = {.open_zone = open_zone, .close_zone = close_zone};
    static const char *const names[SOURCES_MAX] = {"a.yaml", "b.yaml", "c.yaml"};
    struct weir__source sources[SOURCES_MAX];
    struct heard heard = {0};
    struct weir__diagnostics report = {.diagnose = hear, .context = &heard, .sources = sources};
    const char *at = (const char *)data, *end = at + size;
    weir_rules *set = NULL;

    while (report.source_count < SOURCES_MAX) {
        const char *feed =
            report.source_count + 1 < SOURCES_MAX && at < end ? memchr(at, '\f', (size_t)(end - at)) : NULL;
        const char *stop = feed ? feed : end;
        sources[report.source_count] = (struct weir__source){names[report.source_count], {at, (size_t)(stop - at)}};
        report.source_count++;
        if (!feed)
            break;
        at = feed + 1;
    }
    int error = weir__rules_compile(&report, &around, &set);
    if ((error == 0) != (set != NULL) || (error && (error != WEIR_ERULES && error != WEIR_ENOMEM)) ||
        (error != 0) != (heard.errors > 0))
        abort();
    if (set)
        check_set(set);
    weir_rules_free(set);
    return 0;
}
