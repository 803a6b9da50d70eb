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

/*
 * Resets a key, or blocks it for `for_ns` (0: unblocks it), and replies with `more` besides rule and key. The audit log
 * gets the entry first, so that a change is in it even if the process ends before the reply.
 */
static bool change_key(struct weir__call *call, const char *action, bool reset, int64_t for_ns, json_t *more)
{
    const struct weir__control_host *host = call->control->host;
    const char *rule = call->param[0];
    weir_text key = weir__text_of(call->param[1]);
    char object[2 * WEIR__PARAM_MAX + 2];
    snprintf(object, sizeof object, "%s/%s", rule, key.data);
    json_t *details = json_pack("{s:s}", "rule", rule); /* both parts of the object may have slashes */
    if (for_ns)
        json_object_set_new(details, "for_s", json_real((double)for_ns / 1e9));
    weir__audit(call, action, object, details);
    json_t *body = json_pack("{s:s, s:s}", "rule", rule, "key", key.data);
    json_object_update(body, more);
    json_decref(more);
    bool good = weir__call_release_database(call);
    int error = !good   ? 0
                : reset ? host->key_reset(host->context, rule, key)
                        : host->key_block(host->context, rule, key, for_ns);
    if (good && !error)
        return weir__reply_json(call, 200, body);
    json_decref(body);
    return good && fail_host(call, error);
}

bool weir__rest_key_reset(struct weir__call *call)
{
    return call->control->host->key_reset ? change_key(call, "key_reset", true, 0, json_pack("{s:b}", "reset", 1))
                                          : fail_not_here(call);
}

#define BLOCK_MAX_MS (400 * WEIR_DAY / 1000000)

/* Blocks for {"for": "10m"} or {"until": "2026-11-15T12:00:00Z"}. */
bool weir__rest_key_block(struct weir__call *call)
{
    if (!call->control->host->key_block)
        return fail_not_here(call);
    if (!weir__call_json(call, "for|until"))
        return false;
    const char *span = weir__body_text(call, "for"), *until = weir__body_text(call, "until");
    int64_t ms = 0;
    bool good = span && !until ? weir__parse_span(span, &ms) : until && !span ? weir__parse_time(until, &ms) : false;
    if (until)
        ms -= call->now_ms;
    if (!good || ms <= 0 || ms > BLOCK_MAX_MS)
        return weir__fail(call, 400, "bad_block",
                          "for: such as 10m, or until: a time to come such as 2030-01-01T00:00:00Z; at most 400 days");
    return change_key(
        call, "key_block", false, ms * 1000000,
        json_pack("{s:f, s:o}", "blocked_for_s", (double)ms / 1e3, "until", weir__json_time(call->now_ms + ms)));
}

bool weir__rest_key_unblock(struct weir__call *call)
{
    return call->control->host->key_block ? change_key(call, "key_unblock", false, 0, json_pack("{s:b}", "blocked", 0))
                                          : fail_not_here(call);
}

/* ---- Statistics ---- */

bool weir__rest_stats(struct weir__call *call)
{
    return reply_host(call, call->control->host->stats, &(struct weir__host_query){.rule = NULL});
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
                                     .seconds = weir__query_number(call, "seconds", 1, DENIED_SECONDS_MAX, 0)};
    return reply_host(call, call->control->host->denied, &query);
}

bool weir__rest_history(struct weir__call *call)
{
    struct weir__host_query query = {.seconds = weir__query_number(call, "seconds", 1, 3600, 3600),
                                     .step = weir__query_number(call, "step", 1, 3600, 1)};
    query.rule = query_rule(call);
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
