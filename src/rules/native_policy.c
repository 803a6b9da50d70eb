/* The native dialect: cost, response, queue, warn_at; and elastic, adaptive, reserve and priority. */
#include "base/number.h"
#include "rules/native.h"
#include "algo/algo.h"

#include <stdlib.h>

#define COST_MAX INT64_C(0xffffffff) /* the largest count */

/* ---- cost ---- */

/* Reads the attribute that has the cost. */
static bool read_attribute(void *context, const struct weir__node *node, const char *what, void *to)
{
    struct weir__builder *builder = context;
    struct weir__cost *cost = to;
    weir_text text;
    cost->max = COST_MAX;
    if (!weir__field_text(node, what, &text))
        return false;
    cost->attribute = (int16_t)weir__attribute_parse(&builder->set->attributes, &builder->set->arena, node->report,
                                                     node->place, text);
    return cost->attribute >= 0;
}

/* { from: header:X-Cost, default: 1, max: 100 } */
static const struct weir__field from_fields[] = {
    {"from", WEIR__FIELD_READ, .read = read_attribute},
    {"default", WEIR__FIELD_INT, WEIR__IN(struct weir__cost, fallback), .max = COST_MAX},
    {"max", WEIR__FIELD_INT, WEIR__IN(struct weir__cost, max), .min = 1, .max = COST_MAX},
};

/* { "/api/export": 20, default: 1 } */
static bool read_by_path(struct weir__builder *builder, const struct weir__node *node, struct weir__cost *cost)
{
    static const char *const names[] = {"from", "default", "max"};
    cost->paths = weir__arena_array(&builder->set->arena, node->count + 1, sizeof *cost->paths);
    if (!cost->paths)
        return false;
    for (const struct weir__node *member = node->first; member; member = member->next) {
        const struct weir__node *name = member->name;
        struct weir__path_cost *path = &cost->paths[cost->path_count];
        if (weir__text_is(name->text, "default"))
            weir__field_int(member, "cost", 0, COST_MAX, &cost->fallback);
        else if (name->text.data[0] != '/' && name->text.data[0] != '*')
            weir__node_unknown(name, name->text, names, WEIR__COUNT(names),
                               "cost: expected paths and default, or from, default and max; not \"%s\"",
                               name->text.data);
        else if (weir__field_int(member, "cost", 0, COST_MAX, &path->cost) &&
                 weir__native_path(builder, name, &path->path) &&
                 weir__native_normal(builder, &path->path, &path->normal)) {
            weir__lint_spellings(name, &path->path, builder->set->attributes.form);
            cost->normal_differs |= !weir__text_equal(path->path.text, path->normal.text);
            cost->path_count++;
        }
    }
    return true;
}

bool weir__native_cost(void *builder, const struct weir__node *node, const char *what, void *to)
{
    struct weir__cost *cost = to;
    int64_t number;
    cost->written = weir__native_written(node);
    if (node->kind == WEIR__MAP && weir__node_get(node, "from"))
        return weir__fields_read(node, what, WEIR__LIST_OF(from_fields), cost, builder);
    if (node->kind == WEIR__MAP && node->count)
        return read_by_path(builder, node, cost);
    if (node->kind == WEIR__SCALAR && weir__is_letter(node->text.data[0]) && !weir__parse_int(node->text, &number))
        return read_attribute(builder, node, what, cost);
    return weir__field_int(node, what, 0, COST_MAX, &cost->fallback);
}

/* ---- response ---- */

static bool read_headers(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const char *const sets[] = {"x-ratelimit", "draft", "retry-after", NULL};
    static const unsigned bits[] = {WEIR_HEADERS_X_RATELIMIT, WEIR_HEADERS_DRAFT, WEIR_HEADERS_RETRY_AFTER};
    unsigned *headers = to;
    int word;
    (void)context;
    *headers &= WEIR_HEADERS_RESET_DELTA | WEIR_HEADERS_LIST_ALL;
    WEIR__EACH_ITEM (one, node)
        if (weir__field_choice(one, what, sets, &word))
            *headers |= bits[word];
    return true;
}

static bool read_reset(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const char *const resets[] = {"epoch", "delta", NULL};
    unsigned *headers = to;
    int word;
    (void)context;
    if (!weir__field_choice(node, what, resets, &word))
        return false;
    *headers = (*headers & ~(unsigned)WEIR_HEADERS_RESET_DELTA) | (word ? WEIR_HEADERS_RESET_DELTA : 0);
    return true;
}

#define REPORT_FORMS "tightest, all, the name of a rule, or { rule: NAME, list: all }"

static bool read_list(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const char *const lists[] = {"one", "all", NULL};
    unsigned *headers = to;
    int word;
    (void)context;
    if (!weir__field_choice(node, what, lists, &word))
        return false;
    *headers |= word ? WEIR_HEADERS_LIST_ALL : 0;
    return true;
}

/* Which rule an allowed request reports, and whether RateLimit lists the others, too. */
static bool read_report(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const struct weir__field fields[] = {
        {"rule", WEIR__FIELD_TEXT, WEIR__IN(struct weir__response, report), .max = WEIR_NAME_MAX},
        {"list", WEIR__FIELD_READ, WEIR__IN(struct weir__response, headers), .read = read_list},
    };
    struct weir__response *response = to;
    response->report = (weir_text){NULL, 0};
    response->report_place = node->place;
    response->headers &= ~(unsigned)WEIR_HEADERS_LIST_ALL;
    if (node->kind == WEIR__MAP && node->first) {
        const struct weir__node *rule = weir__node_get(node, "rule");
        return weir__fields_read(node, what, WEIR__LIST_OF(fields), response, context) &&
               (!rule || response->report.len || weir__node_error(rule, "the name of the rule is empty"));
    }
    if (node->kind != WEIR__SCALAR || !node->text.len)
        return weir__node_error(node, "report is " REPORT_FORMS ", not %s", weir__node_is(node));
    if (weir__text_is(node->text, "all"))
        response->headers |= WEIR_HEADERS_LIST_ALL;
    else if (!weir__text_is(node->text, "tightest"))
        response->report = node->text;
    return true;
}

/* The names that `report` may have: of enforced rules, and of rules with several limits. NULL: no memory. */
static weir_text *reportable(weir_rules *set, size_t *count)
{
    weir_text *names = weir__arena_array(&set->arena, 2 * set->count + 1, sizeof *names);
    *count = 0;
    for (size_t i = 0; names && i < set->count; i++) {
        const struct weir__rule *rule = set->rules[i];
        if (rule->shadow || !rule->match)
            continue;
        names[(*count)++] = rule->name;
        if (!weir__text_equal(rule->name, rule->base))
            names[(*count)++] = rule->base;
    }
    if (names)
        qsort(names, *count, sizeof *names, weir__text_compare);
    return names;
}

static void report_unknown(const struct weir__builder *builder, const struct weir__response *response,
                           const weir_text *names, size_t count)
{
    enum { SUGGESTED = 256 };
    const char *choices[SUGGESTED] = {"tightest", "all"};
    char shown[WEIR__SHOWN];
    size_t known = 2;
    for (size_t i = 0; i < count && known < SUGGESTED; i++)
        choices[known++] = names[i].data;
    weir__report_unknown(builder->report, response->report_place, response->report, choices, known,
                         "report is " REPORT_FORMS ", and there is no enforced rule \"%s\"",
                         weir__printable(response->report, shown, sizeof shown));
}

void weir__native_check_reports(struct weir__builder *builder)
{
    weir_rules *set = builder->set;
    const char *seen = NULL;
    size_t count = 0;
    const weir_text *names = NULL;
    set->has_report = set->response.report.len > 0;
    for (size_t i = 0; i < set->count && !builder->report->errors; i++) {
        const struct weir__response *response = &set->rules[i]->response;
        if (!response->report.len || response->report.data == seen)
            continue; /* most rules have that of the set */
        set->has_report = true;
        seen = response->report.data;
        if (!names && !(names = reportable(set, &count)))
            return;
        if (!bsearch(&response->report, names, count, sizeof *names, weir__text_compare))
            report_unknown(builder, response, names, count);
    }
}

static bool read_body(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const char *const choices[] = {"auto", "json", "problem", "none", NULL};
    static const enum weir_body bodies[] = {WEIR_BODY_AUTO, WEIR_BODY_JSON, WEIR_BODY_PROBLEM, WEIR_BODY_NONE};
    static const struct weir__field fields[] = {
        {"text", WEIR__FIELD_TEXT, WEIR__IN(struct weir__response, body_text), .max = WEIR__RESPONSE_TEXT_MAX}};
    struct weir__response *response = to;
    int word = 0;
    response->body_text = (weir_text){NULL, 0}; /* the default text belongs to the default kind */
    if (node->kind != WEIR__MAP) {
        if (!weir__field_choice(node, what, choices, &word))
            return false;
        response->body = bodies[word];
        return true;
    }
    response->body = WEIR_BODY_TEXT;
    if (!node->first)
        return weir__node_error(node, "body is auto, json, problem, none or { text: … }, not an empty map");
    return weir__fields_read(node, what, WEIR__LIST_OF(fields), response, context);
}

/* { status: 403, message: "…" } */
static bool read_other_response(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const struct weir__field fields[] = {
        {"status", WEIR__FIELD_INT, WEIR__IN(struct weir__other_response, status), .min = 400, .max = 599},
        {"message", WEIR__FIELD_TEXT, WEIR__IN(struct weir__other_response, message), .max = WEIR__RESPONSE_TEXT_MAX},
    };
    return weir__fields_read(node, what, WEIR__LIST_OF(fields), to, context);
}

bool weir__native_response(void *builder, const struct weir__node *node, const char *what, void *to)
{
    static const struct weir__field fields[] = {
        {"status", WEIR__FIELD_INT, WEIR__IN(struct weir__response, status), .min = 400, .max = 599},
        {"headers", WEIR__FIELD_READ, WEIR__IN(struct weir__response, headers), .read = read_headers},
        {"reset", WEIR__FIELD_READ, WEIR__IN(struct weir__response, headers), .read = read_reset},
        {"report", WEIR__FIELD_READ, .read = read_report},
        {"body", WEIR__FIELD_READ, .read = read_body},
        {"message", WEIR__FIELD_TEXT, WEIR__IN(struct weir__response, message), .max = WEIR__RESPONSE_TEXT_MAX},
        {"blocked", WEIR__FIELD_READ, WEIR__IN(struct weir__response, blocked), .read = read_other_response},
        {"missing", WEIR__FIELD_READ, WEIR__IN(struct weir__response, missing), .read = read_other_response},
    };
    return weir__fields_read(node, what, WEIR__LIST_OF(fields), to, builder);
}

/* ---- queue ---- */

/* { max: 1000, max_bytes: 64MiB, max_age: 1h } */
bool weir__native_queue(void *builder, const struct weir__node *node, const char *what, void *to)
{
    static const struct weir__field fields[] = {
        {"max", WEIR__FIELD_INT, WEIR__IN(struct weir__deferral, max), .min = 1, .max = INT32_MAX},
        {"max_bytes", WEIR__FIELD_SIZE, WEIR__IN(struct weir__deferral, max_bytes), .min = INT64_C(1) << 10},
        {"max_age", WEIR__FIELD_AGE, WEIR__IN(struct weir__deferral, max_age_ms)},
    };
    return weir__fields_read(node, what, WEIR__LIST_OF(fields), to, builder);
}

/* ---- warn_at ---- */

#define WARNED_SALT  UINT64_C(0x3a9e7c15d1b54a33) /* any number: separates the marks from the counters */
#define WARNED_UNITS (INT64_C(1) << 31)           /* into which the longest time without another warning is divided */

bool weir__native_warn_at(void *builder, const struct weir__node *node, const char *what, void *to)
{
    static const struct weir__field percent = {"warn_at", WEIR__FIELD_PERCENT, .size = sizeof(uint8_t), .min = 1,
                                               .max = 99};
    (void)what;
    /* A number alone may be meant as units. */
    if (node->kind == WEIR__SCALAR && node->text.len && weir__is_digit(node->text.data[0]) &&
        node->text.data[node->text.len - 1] != '%')
        return weir__node_error(node, "warn_at is a percentage of the limit, such as 80%%, not %s", node->text.data);
    return weir__field_read(&percent, node, to, builder);
}

/* A bucket that drains one unit in period_us: its level is the time in which the key is not warned again. */
static const weir_limit *make_warned(struct weir__arena *arena, const weir_limit *limit)
{
    weir_limit *warned = weir__arena_take(arena, sizeof *warned);
    weir_params params = {.limit = 1, .window_ns = (limit->window_us / WARNED_UNITS + 1) * 1000};
    if (!warned || weir_limit_init(warned, &params) != 0)
        return NULL;
    warned->salt = limit->salt ^ WARNED_SALT;
    return warned;
}

bool weir__native_warned(struct weir__builder *builder, const struct weir__node *node, const struct weir__rule *rule,
                         struct weir__quota *quotas, size_t count)
{
    bool counts = false, early = false;
    for (size_t i = 0; i < count; i++) {
        if (quotas[i].kind != WEIR__LIMITED)
            continue;
        quotas[i].warned = make_warned(&builder->set->arena, &quotas[i].limit);
        if (!quotas[i].warned)
            return false;
        counts = true;
        early |= weir__mul_div_up(quotas[i].limit.hard, rule->warn_at, 100) < quotas[i].limit.hard;
    }
    if (!counts)
        weir__node_warning(node, "warn_at has no effect: the rule counts nothing");
    else if (!early)
        weir__node_warning(node, "%d%% of so small a limit is all of it: the warning comes with the last unit",
                           rule->warn_at);
    return true;
}

/* ---- Overload: the scale ---- */

#define FULL_PER_MILLE 1000
#define ELASTIC_RANGE  100 /* per mille of load: below `while` an elastic limit grows to up_to over this range */

int64_t weir__overload_scale(const struct weir__overload_policy *policy, uint32_t level, uint32_t throttle)
{
    int64_t shrunk = 100 * FULL_PER_MILLE, stretched = 100 * ELASTIC_RANGE;
    if (throttle > FULL_PER_MILLE)
        throttle = FULL_PER_MILLE;
    if (policy->max)
        shrunk = (int64_t)policy->min * FULL_PER_MILLE + (int64_t)(policy->max - policy->min) * throttle;
    /* A limit that is both is stretched only while the throttle is full. */
    if (policy->up_to && !(policy->max && throttle < FULL_PER_MILLE)) {
        int64_t room = (int64_t)policy->below * 10 - (int64_t)level;
        stretched += (policy->up_to - 100) * (room < 0 ? 0 : room > ELASTIC_RANGE ? ELASTIC_RANGE : room);
    }
    return shrunk *
           stretched; /* per cent × per mille × per cent × ELASTIC_RANGE: WEIR__SCALE_ONE is all of them at 100 % */
}

_Static_assert(INT64_C(100) * FULL_PER_MILLE * 100 * ELASTIC_RANGE == WEIR__SCALE_ONE,
               "weir__overload_scale returns a scale");

/* ---- Parsing ---- */

static bool read_elastic(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const struct weir__field fields[] = {
        {"up_to", WEIR__FIELD_PERCENT, WEIR__IN(struct weir__overload_policy, up_to), .min = 101,
         .max = WEIR__PERCENT_MAX},
        {"while", WEIR__FIELD_PERCENT, WEIR__IN(struct weir__overload_policy, below), .min = 1, .max = 100},
    };
    struct weir__overload_policy *policy = to;
    policy->below = 70;
    if (weir__fields_read(node, what, WEIR__LIST_OF(fields), policy, context))
        return policy->up_to ||
               weir__node_error(node, "up_to is missing: how much may the limit grow, in per cent of the limit?");
    policy->up_to = 0;
    return false;
}

static bool read_adaptive(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const struct weir__field fields[] = {
        {"min", WEIR__FIELD_PERCENT, WEIR__IN(struct weir__overload_policy, min), .min = 1, .max = WEIR__PERCENT_MAX},
        {"max", WEIR__FIELD_PERCENT, WEIR__IN(struct weir__overload_policy, max), .min = 1, .max = WEIR__PERCENT_MAX},
    };
    struct weir__overload_policy *policy = to;
    policy->max = 100;
    bool good = weir__fields_read(node, what, WEIR__LIST_OF(fields), policy, context);
    if (good && !policy->min)
        good = weir__node_error(node, "min is missing: the limit under overload, in per cent of the limit");
    else if (good && policy->min >= policy->max)
        good = weir__node_error(weir__node_get(node, "min"), "min must be less than max, which is %d%%", policy->max);
    policy->max = good ? policy->max : 0;
    return good;
}

static bool read_priority(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const char *const classes[] = {"critical", "high", "normal", "low", NULL};
    struct weir__rule *rule = to;
    int64_t number;
    int word = 0;
    (void)context;
    if (node->kind == WEIR__SCALAR && weir__parse_int(node->text, &number))
        return weir__node_error(node,
                                "priority is critical, high, normal or low; the number that sets which of several "
                                "denials is reported is report_priority: %s",
                                node->text.data);
    rule->overload.has_class = weir__field_choice(node, what, classes, &word);
    rule->overload.class = (enum weir_priority)word;
    return rule->overload.has_class;
}

void weir__native_overload(const struct weir__node *map, struct weir__rule *rule)
{
    static const struct weir__field fields[] = {
        {"priority", WEIR__FIELD_READ, .read = read_priority},
        {"elastic", WEIR__FIELD_READ, WEIR__IN(struct weir__rule, overload), .read = read_elastic},
        {"adaptive", WEIR__FIELD_READ, WEIR__IN(struct weir__rule, overload), .read = read_adaptive},
        {"reserve", WEIR__FIELD_PERCENT, WEIR__IN(struct weir__rule, overload.reserve), .min = 1, .max = 99},
    };
    const struct weir__node *priority = weir__node_get(map, "priority"), *reserve = weir__node_get(map, "reserve");
    weir__fields_given(map, WEIR__LIST_OF(fields), rule, NULL);
    if (priority && rule->shadow)
        weir__node_warning(priority, "priority has no effect in a shadow rule");
    else if (reserve && rule->overload.has_class && rule->overload.class == WEIR_CRITICAL)
        weir__node_warning(reserve, "the reserve has no effect: every request of this rule is critical");
}

/* ---- Scaled limits ---- */

static int64_t scaled(int64_t units, int64_t scale)
{
    int64_t at = weir__mul_div(units, scale, WEIR__SCALE_ONE);
    return units && at < 1 ? 1 : at;
}

/* The limit at a scale, checked as if it were written in the rule. */
static bool limit_at(const struct weir__node *field, const weir_params *params, int64_t scale, weir_limit *limit)
{
    weir_params there = *params;
    there.limit = scaled(params->limit, scale);
    there.burst = scaled(params->burst, scale);
    int error = weir_limit_init(limit, &there);
    if (!error)
        return true;
    return weir__node_error(field->name, "%s: a limit of %lld is too much: %s", field->name->text.data,
                            (long long)there.limit, weir_strerror(error));
}

bool weir__native_scaled_limit(struct weir__builder *builder, const struct weir__node *map,
                               const struct weir__rule *rule, const weir_params *params, struct weir__quota *quota)
{
    const struct weir__overload_policy *policy = &rule->overload;
    const struct weir__node *elastic = weir__node_get(map, "elastic"), *adaptive = weir__node_get(map, "adaptive");
    weir_limit floor, *ceiling;
    if (!weir__overload_is_scaled(policy))
        return true;
    ceiling = weir__arena_take(&builder->set->arena, sizeof *ceiling);
    if (!ceiling ||
        !limit_at(elastic ? elastic : adaptive, params, weir__overload_scale(policy, 0, FULL_PER_MILLE), ceiling) ||
        (adaptive && !limit_at(adaptive, params, weir__overload_scale(policy, UINT32_MAX, 0), &floor)))
        return false;
    weir__limit_init_scaled(ceiling, ceiling);
    weir__limit_init_scaled(&quota->limit, ceiling);
    quota->ceiling = ceiling;
    return true;
}
