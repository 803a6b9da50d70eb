/* The native dialect: cost, response, queue; and elastic, adaptive, reserve and priority. */
#include "base/number.h"
#include "rules/native.h"
#include "algo/algo.h"

#define COST_MAX INT64_C(0xffffffff) /* the largest count */

/* ---- cost ---- */

static bool read_number(struct weir__diagnostics *report, const struct weir__node *node, const char *what,
                        int64_t *cost)
{
    return weir__field_int(report, node, what, 0, COST_MAX, cost);
}

static void read_attribute(struct weir__builder *builder, const struct weir__node *node, weir_text text,
                           struct weir__cost *cost)
{
    cost->max = COST_MAX;
    cost->attribute = (int16_t)weir__attribute_parse(&builder->set->attributes, &builder->set->arena, builder->report,
                                                     node->place, text);
}

/* { from: header:X-Cost, default: 1, max: 100 } */
static void read_from(struct weir__builder *builder, const struct weir__node *node, struct weir__cost *cost)
{
    static const char *const names[] = {"from", "default", "max"};
    struct weir__diagnostics *report = builder->report;
    const struct weir__node *at[3];
    weir_text text;
    weir__native_pick(report, node, "cost", names, WEIR__COUNT(names), at);
    if (weir__field_text(report, at[0], names[0], &text))
        read_attribute(builder, at[0], text, cost);
    if (at[1])
        read_number(report, at[1], names[1], &cost->fallback);
    if (at[2])
        weir__field_int(report, at[2], names[2], 1, COST_MAX, &cost->max);
}

/* { "/api/export": 20, default: 1 } */
static void read_by_path(struct weir__builder *builder, const struct weir__node *node, struct weir__cost *cost)
{
    static const char *const names[] = {"from", "default", "max"};
    struct weir__diagnostics *report = builder->report;
    cost->paths = weir__arena_array(&builder->set->arena, node->count + 1, sizeof *cost->paths);
    if (!cost->paths)
        return;
    for (const struct weir__node *member = node->first; member; member = member->next) {
        weir_text name = member->name->text;
        struct weir__path_cost *path = &cost->paths[cost->path_count];
        if (weir__text_is(name, "default"))
            read_number(report, member, "cost", &cost->fallback);
        else if (!name.len || (name.data[0] != '/' && name.data[0] != '*'))
            weir__report_unknown(report, member->name->place, name, names, WEIR__COUNT(names),
                                 "cost: expected paths and default, or from, default and max; not \"%s\"", name.data);
        else if (read_number(report, member, "cost", &path->cost) &&
                 weir__native_path(builder, name, member->name->place, &path->path) &&
                 weir__native_normal(builder, &path->path, &path->normal)) {
            weir__lint_spellings(report, member->name->place, &path->path, builder->set->attributes.form);
            cost->normal_differs |= !weir__text_equal(path->path.text, path->normal.text);
            cost->path_count++;
        }
    }
}

void weir__native_cost(struct weir__builder *builder, const struct weir__node *node, struct weir__cost *cost)
{
    int64_t number;
    cost->written = weir__native_written(node);
    if (node->kind == WEIR__MAP && weir__node_get(node, "from"))
        read_from(builder, node, cost);
    else if (node->kind == WEIR__MAP && node->count)
        read_by_path(builder, node, cost);
    else if (node->kind == WEIR__SCALAR && node->text.len && !weir__parse_int(node->text, &number) &&
             (weir__lower(node->text.data[0]) >= 'a' && weir__lower(node->text.data[0]) <= 'z'))
        read_attribute(builder, node, node->text, cost);
    else
        read_number(builder->report, node, "cost", &cost->fallback);
}

/* ---- response ---- */

static void read_text(struct weir__diagnostics *report, const struct weir__node *node, const char *what,
                      weir_text *text)
{
    weir_text read;
    if (!weir__field_text(report, node, what, &read))
        return;
    if (read.len > WEIR__RESPONSE_TEXT_MAX)
        weir__report_error(report, node->place, "%s is longer than %d bytes", what, WEIR__RESPONSE_TEXT_MAX);
    else
        *text = read;
}

static unsigned read_headers(struct weir__diagnostics *report, const struct weir__node *node)
{
    static const char *const sets[] = {"x-ratelimit", "draft", "retry-after"};
    static const unsigned bits[] = {WEIR_HEADERS_X_RATELIMIT, WEIR_HEADERS_DRAFT, WEIR_HEADERS_RETRY_AFTER};
    unsigned headers = 0;
    int word;
    WEIR__EACH_ITEM (one, node)
        if (weir__field_choice(report, one, "headers", sets, WEIR__COUNT(sets), &word))
            headers |= bits[word];
    return headers;
}

static void read_body(struct weir__diagnostics *report, const struct weir__node *node, struct weir__response *response)
{
    static const char *const choices[] = {"auto", "json", "problem", "none"};
    static const enum weir_body bodies[] = {WEIR_BODY_AUTO, WEIR_BODY_JSON, WEIR_BODY_PROBLEM, WEIR_BODY_NONE};
    static const char *const names[] = {"text"};
    const struct weir__node *at[1];
    int word = 0;
    response->body_text = (weir_text){NULL, 0}; /* the default text belongs to the default kind */
    if (node->kind != WEIR__MAP) {
        if (weir__field_choice(report, node, "body", choices, WEIR__COUNT(choices), &word))
            response->body = bodies[word];
        return;
    }
    if (!weir__native_pick(report, node, "body", names, WEIR__COUNT(names), at))
        return;
    response->body = WEIR_BODY_TEXT;
    if (at[0])
        read_text(report, at[0], "text", &response->body_text);
    else
        weir__report_error(report, node->place, "body is auto, json, problem, none or { text: … }, not an empty map");
}

void weir__native_response(struct weir__builder *builder, const struct weir__node *node,
                           struct weir__response *response)
{
    static const char *const names[] = {"status", "headers", "reset", "body", "message"};
    static const char *const resets[] = {"epoch", "delta"};
    struct weir__diagnostics *report = builder->report;
    const struct weir__node *at[5];
    int64_t status;
    int reset = 0;

    weir__native_pick(report, node, "response", names, WEIR__COUNT(names), at);
    if (at[0] && weir__field_int(report, at[0], names[0], 400, 599, &status))
        response->status = (int)status;
    if (at[1])
        response->headers = read_headers(report, at[1]) | (response->headers & WEIR_HEADERS_RESET_DELTA);
    if (at[2] && weir__field_choice(report, at[2], names[2], resets, WEIR__COUNT(resets), &reset))
        response->headers =
            (response->headers & ~(unsigned)WEIR_HEADERS_RESET_DELTA) | (reset ? WEIR_HEADERS_RESET_DELTA : 0);
    if (at[3])
        read_body(report, at[3], response);
    if (at[4])
        read_text(report, at[4], names[4], &response->message);
}

/* ---- queue ---- */

/* { max: 1000, max_bytes: 64MiB, max_age: 1h } */
void weir__native_queue(struct weir__diagnostics *report, const struct weir__node *node, struct weir__deferral *queue)
{
    static const char *const names[] = {"max", "max_bytes", "max_age"};
    const struct weir__node *at[3];
    struct weir__parsed_window age;
    weir__native_pick(report, node, "queue", names, WEIR__COUNT(names), at);
    if (at[0])
        weir__field_int(report, at[0], names[0], 1, INT32_MAX, &queue->max);
    if (at[1])
        weir__field_size(report, at[1], names[1], INT64_C(1) << 10, &queue->max_bytes);
    if (at[2] && weir__field_window(report, at[2], names[2], &age))
        queue->max_age_ms = age.ns < 1000000 ? 1 : age.ns / 1000000;
}

/* ---- Overload: the scale ---- */

#define FULL_PER_MILLE 1000
#define ELASTIC_RANGE  100 /* per mille of load: below `while` an elastic limit grows to up_to over this range */

/* ---- Scale ---- */

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

static bool read_share(struct weir__diagnostics *report, const struct weir__node *node, const char *what, int least,
                       int most, int *value)
{
    if (!weir__field_percent(report, node, what, value))
        return false;
    if (*value >= least && *value <= most)
        return true;
    return weir__report_error(report, node->place, "%s is %d%% to %d%%, not %d%%", what, least, most, *value);
}

static void read_elastic(struct weir__diagnostics *report, const struct weir__node *node,
                         struct weir__overload_policy *to)
{
    static const char *const names[] = {"up_to", "while"};
    const struct weir__node *at[2];
    int up_to = 0, below = 70;
    if (!weir__native_pick(report, node, "elastic", names, WEIR__COUNT(names), at))
        return;
    if (!at[0])
        weir__report_error(report, node->place,
                           "up_to is missing: how much may the limit grow, in per cent of the limit?");
    else if (read_share(report, at[0], "up_to", 101, WEIR__PERCENT_MAX, &up_to) &&
             (!at[1] || read_share(report, at[1], "while", 1, 100, &below))) {
        to->up_to = (uint16_t)up_to;
        to->below = (uint16_t)below;
    }
}

static void read_adaptive(struct weir__diagnostics *report, const struct weir__node *node,
                          struct weir__overload_policy *to)
{
    static const char *const names[] = {"min", "max"};
    const struct weir__node *at[2];
    int min = 0, max = 100;
    if (!weir__native_pick(report, node, "adaptive", names, WEIR__COUNT(names), at))
        return;
    if (!at[0])
        weir__report_error(report, node->place, "min is missing: the limit under overload, in per cent of the limit");
    else if (read_share(report, at[0], "min", 1, WEIR__PERCENT_MAX, &min) &&
             (!at[1] || read_share(report, at[1], "max", 1, WEIR__PERCENT_MAX, &max))) {
        if (min >= max) {
            weir__report_error(report, at[0]->place, "min must be less than max, which is %d%%", max);
            return;
        }
        to->min = (uint16_t)min;
        to->max = (uint16_t)max;
    }
}

/* A class, or a number: of several rules that deny, the one with the highest number is reported. */
static void read_priority(struct weir__diagnostics *report, const struct weir__node *node, struct weir__rule *rule)
{
    static const char *const classes[] = {"critical", "high", "normal", "low"};
    int64_t number = 0;
    int word = 0;
    char first = node->kind == WEIR__SCALAR && node->text.len ? node->text.data[0] : 0;
    if ((first < 'a' || first > 'z') && (first < 'A' || first > 'Z')) {
        if (weir__field_int(report, node, "priority", INT32_MIN, INT32_MAX, &number))
            rule->priority = (int)number;
        return;
    }
    if (!weir__field_choice(report, node, "priority", classes, WEIR__COUNT(classes), &word))
        return;
    rule->overload.has_class = true;
    rule->overload.class = (enum weir_priority)word;
}

void weir__native_overload(struct weir__builder *builder, const struct weir__overload_nodes *nodes,
                           struct weir__rule *rule)
{
    struct weir__diagnostics *report = builder->report;
    int reserve = 0;
    if (nodes->priority)
        read_priority(report, nodes->priority, rule);
    if (nodes->elastic)
        read_elastic(report, nodes->elastic, &rule->overload);
    if (nodes->adaptive)
        read_adaptive(report, nodes->adaptive, &rule->overload);
    if (nodes->reserve && read_share(report, nodes->reserve, "reserve", 1, 99, &reserve))
        rule->overload.reserve = (uint8_t)reserve;
    if (nodes->priority && rule->shadow && rule->overload.has_class)
        weir__report_warning(report, nodes->priority->place, "priority has no effect in a shadow rule");
    else if (nodes->reserve && rule->overload.has_class && rule->overload.class == WEIR_CRITICAL)
        weir__report_warning(report, nodes->reserve->place,
                             "the reserve has no effect: every request of this rule is critical");
}

bool weir__native_reserve(struct weir__diagnostics *report, const struct weir__overload_nodes *nodes,
                          enum weir_algorithm algorithm)
{
    if (!nodes->reserve || (algorithm != WEIR_TOKEN_BUCKET && algorithm != WEIR_LEAKY_BUCKET))
        return true;
    return weir__report_error(report, nodes->reserve->name->place,
                              "token and leaky buckets cannot have a reserve; use fixed_window, sliding_window_log, "
                              "sliding_window_counter or concurrency");
}

/* ---- Scaled limits ---- */

static int64_t scaled(int64_t units, int64_t scale)
{
    int64_t at = weir__mul_div(units, scale, WEIR__SCALE_ONE);
    return units && at < 1 ? 1 : at;
}

/* The limit at a scale, checked as if it were written in the rule. */
static bool limit_at(struct weir__diagnostics *report, const struct weir__node *field, const weir_params *params,
                     int64_t scale, weir_limit *limit)
{
    weir_params there = *params;
    there.limit = scaled(params->limit, scale);
    there.burst = scaled(params->burst, scale);
    int error = weir_limit_init(limit, &there);
    if (!error)
        return true;
    return weir__report_error(report, field->name->place, "%s: a limit of %lld is too much: %s", field->name->text.data,
                              (long long)there.limit, weir_strerror(error));
}

bool weir__native_scaled_limit(struct weir__builder *builder, const struct weir__overload_nodes *nodes,
                               const struct weir__rule *rule, const weir_params *params, struct weir__quota *quota)
{
    const struct weir__overload_policy *policy = &rule->overload;
    weir_limit floor, *ceiling;
    if (!weir__overload_is_scaled(policy))
        return true;
    ceiling = weir__arena_take(&builder->set->arena, sizeof *ceiling);
    if (!ceiling)
        return false;
    if (!limit_at(builder->report, nodes->elastic ? nodes->elastic : nodes->adaptive, params,
                  weir__overload_scale(policy, 0, FULL_PER_MILLE), ceiling) ||
        (nodes->adaptive &&
         !limit_at(builder->report, nodes->adaptive, params, weir__overload_scale(policy, UINT32_MAX, 0), &floor)))
        return false;
    weir__limit_init_scaled(ceiling, ceiling);
    weir__limit_init_scaled(&quota->limit, ceiling);
    quota->ceiling = ceiling;
    return true;
}
