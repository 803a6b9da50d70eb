/* weir's own dialect: what a request costs, what a denied one is answered, and how many of them may wait. */
#include "base/number.h"
#include "rules/native.h"

#define COST_MAX INT64_C(0xffffffff) /* what a counter can hold */

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
    bool is_list = node->kind == WEIR__LIST;
    unsigned headers = 0;
    int word;
    for (const struct weir__node *one = is_list ? node->first : node; one; one = is_list ? one->next : NULL)
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
    response->body_text = (weir_text){NULL, 0}; /* a default's goes with its kind of body */
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
