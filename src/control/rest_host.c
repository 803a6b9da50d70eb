/* Keys, statistics and health: handlers that call the process which the rules service is a part of. */
#include "base/duration.h"
#include "control/call.h"

#include <stdio.h>
#include <stdlib.h>

static bool fail_not_here(struct weir__call *call)
{
    return weir__fail(call, 501, "not_here", "not available here: this process decides no requests");
}

static bool fail_host(struct weir__call *call, int error)
{
    if (error == WEIR_ENORULE)
        return weir__fail(call, 404, "no_rule", "%s", weir_strerror(error));
    if (error == WEIR__HOST_UNKNOWN)
        return weir__fail(call, 404, "no_host", "no host has this name or id; GET /v1/hosts lists them");
    if (error == WEIR__HOST_NO_REPLY)
        return weir__fail(call, 503, "no_reply", "the host did not reply: it is silent, or the store is unavailable");
    if (error == WEIR_ELIMIT)
        return weir__fail(call, 409, "no_counter", "the rule has no counter: it bans or lets pass everything");
    return weir__fail(call, 503, "failed", "%s", weir_strerror(error));
}

/* Replies with what a function of the host returns, which is called without the database lock. */
static bool reply_host(struct weir__call *call, weir__host_read *read, const struct weir__host_query *query)
{
    char *json = NULL;
    if (!read)
        return fail_not_here(call);
    if (!weir__call_release_database(call))
        return false;
    int error = read(call->control->host->context, query, &json);
    if (error || !json)
        fail_host(call, error ? error : WEIR_ENOMEM);
    else
        weir__reply_text(call, 200, "application/json", weir__text_of(json));
    free(json);
    return !call->failed;
}

/* ---- Keys ---- */

bool weir__rest_key_state(struct weir__call *call)
{
    struct weir__host_query query = {.rule = call->param[0], .key = weir__text_of(call->param[1])};
    return reply_host(call, call->control->host->key_state, &query);
}

/* All rules of a key: of `about`, or of what is a part of their keys. */
bool weir__rest_keys(struct weir__call *call)
{
    struct weir__host_query query = {.key = weir__text_of(weir__query_text(call, "about", WEIR__PARAM_MAX - 1))};
    if (!query.key.len)
        return weir__fail(call, 400, "bad_query", "about: which key? Such as user:42, or a part of it: 42");
    return reply_host(call, call->control->host->keys, &query);
}

bool weir__rest_blocks(struct weir__call *call)
{
    return reply_host(call, call->control->host->blocks, &(struct weir__host_query){.rule = NULL});
}

/*
 * Changes a key, and replies with `more` besides rule, key and hosts. The audit log gets the entry first, so that a
 * change is in it even if the process ends before the reply.
 */
static bool change_key(struct weir__call *call, const char *action, struct weir__host_key_change change, json_t *more)
{
    const struct weir__control_host *host = call->control->host;
    const char *rule = call->param[0], *reason = weir__call_reason(call);
    weir_text key = weir__text_of(call->param[1]);
    char object[2 * WEIR__PARAM_MAX + 2];
    if (!host->key_change)
        fail_not_here(call);
    if (call->failed) { /* also for the reason */
        json_decref(more);
        return false;
    }
    snprintf(object, sizeof object, "%s/%s", rule, key.data);
    change.rule = rule;
    change.key = key;
    change.by = weir__text_of(call->who);
    change.reason = weir__text_of(reason);
    json_t *details = json_pack("{s:s}", "rule", rule); /* both parts of the object may have slashes */
    if (change.for_ns)
        json_object_set_new(details, "for_s", json_real((double)change.for_ns / 1e9));
    if (change.cost)
        json_object_set_new(details, "cost", json_integer(change.cost));
    if (*reason)
        json_object_set_new(details, "reason", json_string(reason));
    weir__audit(call, action, object, details);
    json_t *body = json_pack("{s:s, s:s}", "rule", rule, "key", key.data);
    json_object_update(body, more);
    json_decref(more);
    bool good = weir__call_release_database(call);
    int error = good ? host->key_change(host->context, &change) : 0;
    if (good && !error) {
        if (change.action == WEIR__HOST_TAKE)
            json_object_update_new(body, json_pack("{s:b, s:I, s:o}", "allowed", change.passes, "remaining",
                                                   (json_int_t)change.remaining, "retry_after_s",
                                                   change.passes || change.retry_after_ns < 0
                                                       ? json_null()
                                                       : json_real((double)change.retry_after_ns / 1e9)));
        else
            json_object_update_new(body, json_pack("{s:s, s:s?}", "hosts", change.hosts, "why", change.why));
        return weir__reply_json(call, 200, body);
    }
    json_decref(body);
    return good && fail_host(call, error);
}

bool weir__rest_key_reset(struct weir__call *call)
{
    return change_key(call, "key_reset", (struct weir__host_key_change){.action = WEIR__HOST_RESET},
                      json_pack("{s:b}", "reset", 1));
}

#define BLOCK_MAX_MS (400 * WEIR_DAY / 1000000)

/* Blocks for {"for": "10m"} or {"until": "2026-11-15T12:00:00Z"}, with a "reason" if there is one. */
bool weir__rest_key_block(struct weir__call *call)
{
    if (!weir__call_json(call, "for|until|reason"))
        return false;
    const char *span = weir__body_text(call, "for"), *until = weir__body_text(call, "until");
    int64_t ms = 0, ns = 0;
    bool good = span && !until ? weir__parse_span(span, &ms) : until && !span && weir__parse_time(until, &ns);
    if (until)
        ms = ns / 1000000 - call->now_ms;
    if (!good || ms <= 0 || ms > BLOCK_MAX_MS)
        return weir__fail(call, 400, "bad_block",
                          "for: such as 10m, or until: a time to come such as 2030-01-01T00:00:00Z; at most 400 days");
    return change_key(
        call, "key_block", (struct weir__host_key_change){.action = WEIR__HOST_BLOCK, .for_ns = ms * 1000000},
        json_pack("{s:f, s:o}", "blocked_for_s", (double)ms / 1e3, "until", weir__json_time(call->now_ms + ms)));
}

bool weir__rest_key_unblock(struct weir__call *call)
{
    return change_key(call, "key_unblock", (struct weir__host_key_change){.action = WEIR__HOST_BLOCK},
                      json_pack("{s:b}", "blocked", 0));
}

#define TAKE_MAX 4294967295

/* Takes {"cost": 3}, or 1, as a request would that this rule alone matched. */
bool weir__rest_key_take(struct weir__call *call)
{
    if (!weir__call_json(call, "cost|reason"))
        return false;
    const json_t *cost = json_object_get(call->body, "cost");
    if (cost && (!json_is_integer(cost) || json_integer_value(cost) < 1 || json_integer_value(cost) > TAKE_MAX))
        return weir__fail(call, 400, "bad_cost", "cost: a whole number from 1 to 4294967295");
    return change_key(
        call, "key_take",
        (struct weir__host_key_change){.action = WEIR__HOST_TAKE, .cost = cost ? json_integer_value(cost) : 1},
        json_object());
}

/* ---- Trying a request ---- */

#define CHECK_MAX ((size_t)64 << 10) /* bytes of a body */

bool weir__rest_check(struct weir__call *call)
{
    const struct weir__control_host *host = call->control->host;
    int status = 200;
    char *json = NULL;
    if (!host->check)
        return fail_not_here(call);
    if (call->request->body.len > CHECK_MAX)
        return weir__fail(call, 413, "too_large", "a body has at most 64 KiB here");
    if (!weir__call_release_database(call) || !weir__call_json(call, "attributes|cost|domain|descriptors|hits"))
        return false;
    int error = host->check(host->context, call->request->body, &status, &json);
    if (error)
        fail_host(call, error);
    else
        weir__reply_text(call, status, "application/json", weir__text_of(json));
    free(json);
    return !call->failed;
}

/* ---- Statistics ---- */

/* Which hosts the query is about: ?host=NAME, ?this_host=1; else all. */
static void read_hosts(struct weir__call *call, struct weir__host_query *query)
{
    const char *host = weir__query_text(call, "host", WEIR__PARAM_MAX - 1);
    query->host = *host ? host : NULL;
    query->this_host = weir__is_one_of(weir__query_text(call, "this_host", 7), "1|true");
}

bool weir__rest_stats(struct weir__call *call)
{
    struct weir__host_query query = {.rule = NULL};
    read_hosts(call, &query);
    return reply_host(call, call->control->host->stats, &query);
}

bool weir__rest_hosts(struct weir__call *call)
{
    return reply_host(call, call->control->host->hosts, &(struct weir__host_query){.rule = NULL});
}

/* The query's rule; NULL: none. */
static const char *query_rule(struct weir__call *call)
{
    const char *rule = weir__query_text(call, "rule", WEIR__PARAM_MAX - 1);
    return *rule ? rule : NULL;
}

bool weir__rest_advice(struct weir__call *call)
{
    return reply_host(call, call->control->host->advice, &(struct weir__host_query){.rule = query_rule(call)});
}

#define DENIED_SECONDS_MAX (400 * INT64_C(86400))

bool weir__rest_denied(struct weir__call *call)
{
    struct weir__host_query query = {.key = weir__text_of(weir__query_text(call, "about", WEIR__PARAM_MAX - 1)),
                                     .seconds = weir__query_number(call, "seconds", 1, DENIED_SECONDS_MAX, 0),
                                     .n = weir__query_number(call, "limit", 1, 1000, 1000)};
    read_hosts(call, &query);
    return reply_host(call, call->control->host->denied, &query);
}

bool weir__rest_history(struct weir__call *call)
{
    struct weir__host_query query = {.seconds = weir__query_number(call, "seconds", 1, 3600, 3600),
                                     .step = weir__query_number(call, "step", 1, 3600, 1)};
    query.rule = query_rule(call);
    read_hosts(call, &query);
    return reply_host(call, call->control->host->history, &query);
}

bool weir__rest_hot(struct weir__call *call)
{
    struct weir__host_query query = {.n = weir__query_number(call, "n", 1, 1000, 20), .hide = !weir__sees_keys(call)};
    const char *by = weir__query_text(call, "by", 15);
    query.denied = strcmp(by, "denied") == 0;
    query.near = weir__is_one_of(weir__query_text(call, "near", 7), "1|true");
    query.rule = query_rule(call);
    if (!query.rule)
        return weir__fail(call, 400, "bad_query", "rule: which one?");
    if (*by && !weir__is_one_of(by, "admitted|denied"))
        return weir__fail(call, 400, "bad_query", "by: admitted or denied");
    read_hosts(call, &query);
    return reply_host(call, call->control->host->hot, &query);
}

bool weir__rest_health(struct weir__call *call)
{
    struct weir__control *control = call->control, *memory = control->files ? control->files->memory : NULL;
    pthread_mutex_lock(&control->published_lock);
    bool stale = !memory && control->stale, up = control->up,
         written = !control->path || !control->published.revision || control->written;
    int64_t revision = control->published.revision;
    pthread_mutex_unlock(&control->published_lock);
    revision = memory ? weir__control_revision(memory) : revision;
    return weir__reply_json(call, 200,
                            json_pack("{s:b, s:s, s:I, s:b, s:b, s:b}", "ok", 1, "rules", memory ? "files" : "database",
                                      "revision", (json_int_t)revision, "database", up, "database_restored", stale,
                                      "written", written));
}
