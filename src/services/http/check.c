/* POST check and refund: one item, or a batch. */
#include "services/http/api.h"

#include <stdlib.h>
#include <string.h>

/* ---- Permits ---- */

void weir__api_lease(struct weir__api *api, struct weir__api_reply *reply)
{
    bool renew = api->route->action == WEIR__API_RENEW;
    weir_permits *permits = &api->scratch->permits;
    struct weir__api_item item;
    if (!weir__api_read(api->body, WEIR__API_LEASE, &item, reply))
        return;
    if (weir_permits_from_text(api->engine, item.text, permits)) {
        weir__api_fail(reply, 400, "bad_lease", "this is no lease of this segment", "lease");
        return;
    }
    reply->needs_store =
        weir__api_collects(api) && (renew ? weir_permits_renew_begin(api->engine, permits, false, api->async)
                                          : weir_permits_release_begin(api->engine, permits, api->async)) == 1;
    if (reply->needs_store)
        return;
    int result = renew ? weir_permits_renew_finish(api->engine, permits, false, api->async)
                       : weir_permits_release_finish(api->engine, permits, api->async);
    if (result < 0) {
        weir__api_fail(reply, 503, "failed", weir_strerror(result), NULL);
    } else if (!renew) {
        weir__json_add(&reply->out, "{\"released\":%b}\n", result > 0);
    } else if (!permits->count) {
        weir__api_fail(reply, 410, "expired", "the lease is over: its slot may be another's", "lease");
    } else {
        weir__buffer_add_literal(&reply->out, "{\"renewed\":true");
        weir__api_write_lease(api, &reply->out);
        weir__buffer_add_literal(&reply->out, "}\n");
    }
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

static void set_direct_result(const struct weir__api_item *item, const weir_decision *decision, weir_time now,
                              weir_result *result)
{
    size_t shown = item->text.len < WEIR_KEY_SHOWN_MAX ? item->text.len : WEIR_KEY_SHOWN_MAX;
    *result = (weir_result){.decision = *decision,
                            .decided_by = {.decision = *decision,
                                           .reason = WEIR_BY_LIMIT,
                                           .cost = item->cost,
                                           .quota = item->params.limit,
                                           .effective_limit = item->params.limit,
                                           .window_ns = item->params.window_ns,
                                           .key_cut = shown < item->text.len,
                                           .key_len = (uint16_t)shown},
                            .matched = 1,
                            .status = weir_passes(decision) ? 0 : 429,
                            .headers = WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT | WEIR_HEADERS_RETRY_AFTER,
                            .now = now};
    weir_outcome_set_policy(&result->decided_by, &item->limit);
    memcpy(result->decided_by.key, item->text.data, shown);
}

static int decide_direct(struct weir__api *api, const struct weir__api_item *item, weir_time now, weir_result *result)
{
    weir_segment *segment = weir_engine_segment(api->engine);
    weir_text key = item->text;
    weir_decision made;
    if (!now.mono_ns)
        now = weir_clock(segment);
    int error = item->dry_run ? weir_peek(segment, &item->limit, key.data, key.len, item->cost, now, &made)
                              : weir_take(segment, &item->limit, key.data, key.len, item->cost, now, &made);
    if (!error)
        set_direct_result(item, &made, now, result);
    return error;
}

/* An error counts as no request to the store: the decision reports it. */
bool weir__api_needs_store(struct weir__api *api, struct weir__api_item *item)
{
    if (!weir__api_collects(api) || item->kind == WEIR__API_DIRECT)
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
    int error = item->kind == WEIR__API_RULES         ? decide_rules(api, item, now, result)
                : item->kind == WEIR__API_DESCRIPTORS ? decide_descriptors(api, item, now, result)
                                                      : decide_direct(api, item, now, result);
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
    weir__api_write_result(api, &reply->out, &result);
    weir__buffer_add_literal(&reply->out, "}\n");
    if (item->http)
        weir__api_set_http(api, &result, reply);
}

/* ---- A batch ---- */

/*
 * Takes consecutive direct items from `from` on together, so that the memory of the next ones is prefetched: 15 % of
 * the time of a batch, in a segment that is larger than the cache. Returns the index behind them.
 */
static size_t take_together(struct weir__api *api, size_t from, size_t count, weir_time now)
{
    struct weir__api_scratch *scratch = api->scratch;
    size_t end = from;
    for (; end < count && scratch->items[end].kind == WEIR__API_DIRECT && !scratch->items[end].dry_run; end++) {
        const struct weir__api_item *item = &scratch->items[end];
        scratch->requests[end] = (weir_request){
            .limit = &item->limit, .key = item->text.data, .key_len = item->text.len, .cost = item->cost};
    }
    int error =
        end > from ? weir_take_batch(weir_engine_segment(api->engine), scratch->requests + from, end - from, now) : 0;
    for (size_t i = from; error < 0 && i < end; i++)
        scratch->requests[i].error = error;
    return end;
}

static void check_batch(struct weir__api *api, size_t count, struct weir__buffer *out)
{
    struct weir__api_scratch *scratch = api->scratch;
    weir_time now = weir_clock(weir_engine_segment(api->engine));
    weir__buffer_add_literal(out, "{\"results\":[");
    for (size_t i = 0, taken = 0; i < count; i++) {
        weir_result result;
        int error = 0;
        if (i >= taken)
            taken = take_together(api, i, count, now);
        if (i >= taken) {
            error = weir__api_decide(api, &scratch->items[i], now, &result);
        } else {
            scratch->permits.count = 0;
            error = scratch->requests[i].error;
            set_direct_result(&scratch->items[i], &scratch->requests[i].decision, now, &result);
            if (error)
                note_failure(api, error, "");
        }
        if (i)
            weir__buffer_add_literal(out, ",\n");
        if (error)
            weir__json_add(out, "{\"error\":{\"code\":\"undecided\",\"message\":%s,\"field\":null}",
                           weir_strerror(error));
        else
            weir__api_write_result(api, out, &result);
        weir__buffer_add_literal(out, "}");
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
static bool read_item(json_t *object, bool refund, struct weir__api_item *item, struct weir__api_reply *reply)
{
    if (!weir__api_read_item(object, 0, item, reply))
        return false;
    if (refund && item->dry_run)
        return weir__api_wrong(reply, "dry_run", "has no meaning for a refund");
    item->has_cost |= refund;
    item->cost = refund ? -item->cost : item->cost;
    return true;
}

/* Reads the items into scratch->items. False: the reply has the error. */
static bool read_batch(struct weir__api *api, bool refund, size_t *count, struct weir__api_reply *reply)
{
    struct weir__api_item batch;
    size_t descriptors = 0;
    if (!weir__api_read(api->body, WEIR__API_BATCH, &batch, reply))
        return false;
    *count = json_array_size(batch.list);
    if (*count == 0 || *count > WEIR__API_BATCH_MAX)
        return weir__api_wrong(reply, "batch", "must be a list of 1 to %d requests", WEIR__API_BATCH_MAX);
    for (size_t i = 0; i < *count; i++) {
        struct weir__api_item *item = &api->scratch->items[i];
        reply->index = (int)i;
        if (!read_item(json_array_get(batch.list, i), refund, item, reply))
            return false;
        if (item->http)
            return weir__api_wrong(reply, "http", "has no meaning in a batch");
        descriptors += item->kind == WEIR__API_DESCRIPTORS ? json_array_size(item->list) : 0;
    }
    reply->index = -1;
    return descriptors <= WEIR__API_BATCH_MAX ||
           weir__api_wrong(reply, "batch", "has more than %d descriptors in all", WEIR__API_BATCH_MAX);
}

void weir__api_check(struct weir__api *api, struct weir__api_reply *reply)
{
    struct weir__api_item *item = &api->scratch->items[0];
    bool refund = api->route->action == WEIR__API_REFUND;
    size_t count = 1;
    if (json_object_get(api->body, "batch")) {
        if (read_batch(api, refund, &count, reply) && !needs_store(api, count, reply))
            check_batch(api, count, &reply->out);
    } else if (read_item(api->body, refund, item, reply) && !needs_store(api, 1, reply)) {
        item->http |= api->status_wanted;
        check_one(api, item, reply);
    }
}

void weir__api_try(weir *engine, weir_text body, struct weir__api_reply *reply)
{
    struct weir__api api = {.engine = engine, .scratch = calloc(1, sizeof *api.scratch)};
    weir_result result;
    int error = WEIR_ENOMEM;
    reply->status = 200;
    reply->index = -1;
    api.body = api.scratch ? weir__api_parse(body, reply) : NULL;
    if (api.body && weir__api_read_item(api.body, 0, &api.scratch->items[0], reply)) {
        struct weir__api_item *item = &api.scratch->items[0];
        item->dry_run = true;
        if (item->kind == WEIR__API_DIRECT)
            weir__api_wrong(reply, "key",
                            "has no meaning here: rules decide; give attributes, or domain and descriptors");
        else if ((error = weir__api_decide(&api, item, (weir_time){0, 0}, &result)) == 0) {
            weir__api_write_result(&api, &reply->out, &result);
            weir__json_add(&reply->out, ",\"shadow_denied\":%b,\"status\":%d}\n", result.shadow_denied,
                           (int64_t)(weir_passes(&result.decision) ? 200
                                     : result.status               ? result.status
                                                                   : 429));
        }
    }
    if (reply->status == 200 && error)
        weir__api_fail(reply, 503, "undecided", weir_strerror(error), NULL);
    json_decref(api.body);
    free(api.scratch);
}
