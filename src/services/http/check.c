/* POST check and refund: one item, or a batch. */
#include "services/http/api.h"

#include <string.h>

/* ---- Permits ---- */

void weir__api_write_lease(struct weir__api *api, struct weir__buffer *out)
{
    char text[WEIR_PERMITS_TEXT_MAX + 1];
    const weir_permits *permits = &api->scratch->permits;
    size_t len = permits->count ? weir_permits_to_text(api->engine, permits, text) : 0;
    if (!len)
        return;
    weir__buffer_add_literal(out, ",\"lease\":");
    weir__json_add_string(out, (weir_text){text, len});
    weir__buffer_add_literal(out, ",\"lease_s\":");
    weir__json_add_seconds(out, permits->lease_ns);
}

/* Reads {"lease"}. False: the reply has the error. */
static bool read_lease(struct weir__api *api, weir_text body, weir_permits *permits, struct weir__api_reply *reply)
{
    static const char *const known[] = {"lease", NULL};
    struct weir__api_fault fault = {.code = ""};
    json_t *root = weir__api_parse(body, &fault);
    const json_t *text = json_object_get(root, "lease");
    int error = 0;
    if (root && weir__api_only(root, known, NULL, -1, &fault)) {
        if (!json_is_string(text))
            weir__api_wrong(&fault, -1, "lease", "is needed: the text that check returned");
        else
            error = weir_permits_from_text(api->engine, (weir_text){json_string_value(text), json_string_length(text)},
                                           permits);
    }
    json_decref(root);
    if (*fault.code)
        weir__api_fail(reply, 400, fault.code, fault.message, fault.field);
    else if (error)
        weir__api_fail(reply, 400, "bad_lease", "this is no lease of this segment", "lease");
    return !*fault.code && !error;
}

void weir__api_release(struct weir__api *api, weir_text body, struct weir__api_reply *reply)
{
    weir_permits *permits = &api->scratch->permits;
    if (!read_lease(api, body, permits, reply))
        return;
    if (api->async && !api->store_replied && weir_permits_release_begin(api->engine, permits, api->async) == 1) {
        reply->needs_store = true;
        return;
    }
    int released = api->async ? weir_permits_release_finish(api->engine, permits, api->async)
                              : weir_permits_release(api->engine, permits);
    if (released < 0) {
        weir__api_fail(reply, 503, "failed", weir_strerror(released), NULL);
        return;
    }
    weir__buffer_add_literal(&reply->out, "{\"released\":");
    weir__json_add_bool(&reply->out, released > 0);
    weir__buffer_add_literal(&reply->out, "}\n");
}

void weir__api_renew(struct weir__api *api, weir_text body, struct weir__api_reply *reply)
{
    weir_permits *permits = &api->scratch->permits;
    if (!read_lease(api, body, permits, reply))
        return;
    if (api->async && !api->store_replied && weir_permits_renew_begin(api->engine, permits, false, api->async) == 1) {
        reply->needs_store = true;
        return;
    }
    int error = api->async ? weir_permits_renew_finish(api->engine, permits, false, api->async)
                           : weir_permits_renew(api->engine, permits);
    if (error) {
        weir__api_fail(reply, 503, "failed", weir_strerror(error), NULL);
        return;
    }
    if (!permits->count) {
        weir__api_fail(reply, 410, "expired", "the lease is over: its slot may be another's", "lease");
        return;
    }
    weir__buffer_add_literal(&reply->out, "{\"renewed\":true");
    weir__api_write_lease(api, &reply->out);
    weir__buffer_add_literal(&reply->out, "}\n");
}

/* ---- One item ---- */

/* `result` NULL: only collects the requests to the store, as weir_check_begin does. */
static int decide_rules(struct weir__api *api, struct weir__api_item *item, weir_time now, weir_result *result)
{
    weir_query query = {.lookup = weir__api_lookup,
                        .lookup_context = item,
                        .peer = item->peer_len ? item->peer : NULL,
                        .peer_len = item->peer_len,
                        .has_cost = item->has_cost,
                        .cost = item->cost,
                        .dry_run = item->dry_run,
                        .now = now,
                        .async = api->async,
                        .permits = &api->scratch->permits,
                        .outcomes = api->scratch->outcomes,
                        .outcomes_max = WEIR__API_DESCRIPTORS_MAX};
    if (!result)
        return weir_check_begin(api->engine, &query);
    return weir_check(api->engine, &query, result);
}

static int decide_descriptors(struct weir__api *api, const struct weir__api_item *item, weir_time now,
                              weir_result *result)
{
    struct weir__api_scratch *scratch = api->scratch;
    size_t count = weir__api_descriptors(item, scratch->descriptors, scratch->entries);
    for (size_t i = 0; i < count; i++) { /* per descriptor, because 0 hits of the query mean the default */
        scratch->descriptors[i].has_hits = true;
        scratch->descriptors[i].hits = item->cost;
    }
    weir_descriptor_query query = {.domain = item->domain,
                                   .descriptors = scratch->descriptors,
                                   .descriptor_count = count,
                                   .dry_run = item->dry_run,
                                   .now = now,
                                   .async = api->async,
                                   .outcomes = scratch->outcomes};
    if (!result)
        return weir_check_descriptors_begin(api->engine, &query);
    return weir_check_descriptors(api->engine, &query, result);
}

void weir__api_direct_result(const struct weir__api_item *item, const weir_decision *decision, weir_time now,
                             weir_result *result)
{
    size_t shown = item->key.len < WEIR_KEY_SHOWN_MAX ? item->key.len : WEIR_KEY_SHOWN_MAX;
    *result = (weir_result){.decision = *decision,
                            .decided_by = {.decision = *decision,
                                           .reason = WEIR_BY_LIMIT,
                                           .cost = item->cost,
                                           .quota = item->params.limit,
                                           .window_ns = item->params.window_ns,
                                           .key_cut = shown < item->key.len,
                                           .key_len = (uint16_t)shown},
                            .matched = 1,
                            .status = weir_passes(decision) ? 0 : 429,
                            .headers = WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT | WEIR_HEADERS_RETRY_AFTER,
                            .now = now};
    memcpy(result->decided_by.key, item->key.data, shown);
}

static int decide_direct(struct weir__api *api, const struct weir__api_item *item, weir_time now, weir_result *result)
{
    weir_segment *segment = weir_engine_segment(api->engine);
    weir_decision made;
    if (!now.mono_ns)
        now = weir_clock(segment);
    int error = item->dry_run ? weir_peek(segment, &item->limit, item->key.data, item->key.len, item->cost, now, &made)
                              : weir_take(segment, &item->limit, item->key.data, item->key.len, item->cost, now, &made);
    if (!error)
        weir__api_direct_result(item, &made, now, result);
    return error;
}

static int decide(struct weir__api *api, struct weir__api_item *item, weir_time now, weir_result *result)
{
    switch (item->kind) {
    case WEIR__API_RULES:
        return decide_rules(api, item, now, result);
    case WEIR__API_DESCRIPTORS:
        return decide_descriptors(api, item, now, result);
    case WEIR__API_DIRECT:
        return decide_direct(api, item, now, result);
    }
    return WEIR_EINVAL;
}

/* An error counts as no request to the store: the decision reports it. */
bool weir__api_needs_store(struct weir__api *api, struct weir__api_item *item)
{
    if (!api->async || api->store_replied || item->kind == WEIR__API_DIRECT)
        return false;
    return (item->kind == WEIR__API_RULES ? decide_rules(api, item, (weir_time){0, 0}, NULL)
                                          : decide_descriptors(api, item, (weir_time){0, 0}, NULL)) == 1;
}

/* For the log. */
static void note_failure(struct weir__api *api, int error, const char *rule)
{
    api->failure = error;
    memcpy(api->failed_rule, rule, strlen(rule) + 1);
}

int weir__api_decide(struct weir__api *api, struct weir__api_item *item, weir_time now, weir_result *result)
{
    api->scratch->permits.count = 0;
    int error = decide(api, item, now, result);
    if (error)
        note_failure(api, error, "");
    for (size_t i = 0; !error && i < result->outcomes; i++)
        if (api->scratch->outcomes[i].reason == WEIR_BY_FAILURE || api->scratch->outcomes[i].error == WEIR_EFULL)
            note_failure(api, api->scratch->outcomes[i].error, api->scratch->outcomes[i].rule);
    return error;
}

void weir__api_set_http(struct weir__api *api, const weir_result *result, struct weir__api_reply *reply)
{
    if (!weir_passes(&result->decision))
        reply->status = result->status ? result->status : 429;
    reply->has_result = true;
    reply->result = *result;
    reply->outcomes = result->outcomes ? api->scratch->outcomes : NULL;
}

static void check_one(struct weir__api *api, struct weir__api_item *item, struct weir__api_reply *reply)
{
    weir_result result;
    int error = weir__api_decide(api, item, (weir_time){0, 0}, &result);
    if (error) {
        weir__api_fail(reply, 503, "undecided", weir_strerror(error), NULL);
        return;
    }
    weir__api_write_result(&reply->out, &result, api->scratch->outcomes);
    weir__api_write_lease(api, &reply->out);
    weir__buffer_add_literal(&reply->out, "}\n");
    if (item->http)
        weir__api_set_http(api, &result, reply);
}

/* ---- A batch ---- */

static void write_result(struct weir__api *api, struct weir__buffer *out, int error, const weir_result *result)
{
    if (out->len && out->data[out->len - 1] == '}')
        weir__buffer_add_literal(out, ",\n");
    if (!error) {
        weir__api_write_result(out, result, api->scratch->outcomes);
        weir__api_write_lease(api, out);
        weir__buffer_add_literal(out, "}");
        return;
    }
    weir__buffer_add_literal(out, "{\"error\":{\"code\":\"undecided\",\"message\":");
    weir__json_add_name(out, weir_strerror(error));
    weir__buffer_add_literal(out, ",\"field\":null}}");
}

/* Takes consecutive direct items as one batch, so that the memory of the next ones is prefetched. */
static void take_together(struct weir__api *api, size_t from, size_t to, weir_time now, struct weir__buffer *out)
{
    struct weir__api_scratch *scratch = api->scratch;
    scratch->permits.count = 0;
    for (size_t i = from; i < to; i++)
        scratch->requests[i] = (weir_request){.limit = &scratch->items[i].limit,
                                              .key = scratch->items[i].key.data,
                                              .key_len = scratch->items[i].key.len,
                                              .cost = scratch->items[i].cost};
    int error = weir_take_batch(weir_engine_segment(api->engine), scratch->requests + from, to - from, now);
    for (size_t i = from; i < to; i++) {
        weir_result result;
        weir__api_direct_result(&scratch->items[i], &scratch->requests[i].decision, now, &result);
        int failed = error < 0 ? error : scratch->requests[i].error;
        if (failed)
            note_failure(api, failed, "");
        write_result(api, out, failed, &result);
    }
}

static bool is_taken_together(const struct weir__api_item *item)
{
    return item->kind == WEIR__API_DIRECT && !item->dry_run;
}

static void check_batch(struct weir__api *api, size_t count, struct weir__buffer *out)
{
    struct weir__api_scratch *scratch = api->scratch;
    weir_time now = weir_clock(weir_engine_segment(api->engine));
    weir__buffer_add_literal(out, "{\"results\":[");
    for (size_t i = 0; i < count;) {
        size_t end = i;
        while (end < count && is_taken_together(&scratch->items[end]))
            end++;
        if (end > i) {
            take_together(api, i, end, now, out);
            i = end;
            continue;
        }
        weir_result result;
        write_result(api, out, weir__api_decide(api, &scratch->items[i], now, &result), &result);
        i++;
    }
    weir__buffer_add_literal(out, "]}\n");
}

/* ---- The call ---- */

/* One request to the store for all items: none is decided before all can be. */
static bool needs_store(struct weir__api *api, size_t count, struct weir__api_reply *reply)
{
    for (size_t i = 0; i < count; i++)
        reply->needs_store |= weir__api_needs_store(api, &api->scratch->items[i]);
    return reply->needs_store;
}

/* A refund is a negative cost. */
static bool negate_refund(struct weir__api_item *item, int index, bool refund, struct weir__api_fault *fault)
{
    if (!refund)
        return true;
    if (item->dry_run)
        return weir__api_wrong(fault, index, "dry_run", "has no meaning for a refund");
    item->has_cost = true;
    item->cost = -item->cost;
    return true;
}

/* The number of items in scratch->items; 0: a fault. */
static size_t read_batch(struct weir__api *api, const json_t *root, bool refund, struct weir__api_fault *fault)
{
    static const char *const known[] = {"batch", NULL};
    const json_t *batch = json_object_get(root, "batch");
    size_t descriptors = 0;
    if (!weir__api_only(root, known, NULL, -1, fault))
        return 0;
    if (!json_is_array(batch) || json_array_size(batch) == 0 || json_array_size(batch) > WEIR__API_BATCH_MAX) {
        weir__api_wrong(fault, -1, "batch", "must be a list of 1 to %d requests", WEIR__API_BATCH_MAX);
        return 0;
    }
    size_t count = json_array_size(batch);
    for (size_t i = 0; i < count; i++) {
        struct weir__api_item *item = &api->scratch->items[i];
        if (!weir__api_read_item(json_array_get(batch, i), (int)i, NULL, item, fault) ||
            !negate_refund(item, (int)i, refund, fault))
            return 0;
        if (item->http) {
            weir__api_wrong(fault, (int)i, "http", "has no meaning in a batch");
            return 0;
        }
        descriptors += item->kind == WEIR__API_DESCRIPTORS ? json_array_size(item->descriptors) : 0;
    }
    if (descriptors <= WEIR__API_BATCH_MAX)
        return count;
    weir__api_wrong(fault, -1, "batch", "has more than %d descriptors in all", WEIR__API_BATCH_MAX);
    return 0;
}

void weir__api_check(struct weir__api *api, weir_text body, bool refund, bool status_wanted,
                     struct weir__api_reply *reply)
{
    struct weir__api_fault fault = {.code = ""};
    struct weir__api_item *item = &api->scratch->items[0];
    json_t *root = weir__api_parse(body, &fault);
    if (root && json_object_get(root, "batch")) {
        size_t count = read_batch(api, root, refund, &fault);
        if (count && !needs_store(api, count, reply))
            check_batch(api, count, &reply->out);
    } else if (root && weir__api_read_item(root, -1, NULL, item, &fault) && negate_refund(item, -1, refund, &fault)) {
        item->http |= status_wanted;
        if (!needs_store(api, 1, reply))
            check_one(api, item, reply);
    }
    if (*fault.code)
        weir__api_fail(reply, 400, fault.code, fault.message, fault.field);
    json_decref(root);
}
