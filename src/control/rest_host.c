/* Keys, statistics and health: handlers that call the host. */
#include "base/duration.h"
#include "control/call.h"

#include <stdio.h>
#include <stdlib.h>

static const struct weir__control_host *host_of(const struct weir__call *call)
{
    static const struct weir__control_host no_host;
    return call->control->host ? call->control->host : &no_host;
}

static int not_here(struct weir__call *call)
{
    return weir__fail(call, 501, "not_here", "this process does not know: it decides no requests", NULL);
}

/* Releases the database lock before a call of the host. False, and 501 replied: the host lacks the function. */
static bool leave_for_host(struct weir__call *call, bool has_function)
{
    if (has_function)
        weir__call_release_database(call);
    else
        (void)not_here(call);
    return has_function;
}

static int fail_host(struct weir__call *call, int error)
{
    if (error == WEIR_ENORULE)
        return weir__fail(call, 404, "no_rule", weir_strerror(error), NULL);
    if (error == WEIR_ELIMIT)
        return weir__fail(call, 409, "no_counter", "the rule has no counter: it bans or lets pass everything", NULL);
    return weir__fail(call, 503, "failed", weir_strerror(error), NULL);
}

static int reply_host(struct weir__call *call, int error, char **json)
{
    if (error || !*json)
        fail_host(call, error ? error : WEIR_ENOMEM);
    else
        weir__reply_text(call, 200, "application/json", *json, strlen(*json));
    free(*json);
    return 0;
}

/* ---- Keys ---- */

int weir__rest_key_state(struct weir__call *call)
{
    const struct weir__control_host *host = host_of(call);
    char *json = NULL;
    if (!leave_for_host(call, host->key_state))
        return 0;
    return reply_host(call, host->key_state(host->context, call->param[0], weir__text_of(call->param[1]), &json),
                      &json);
}

/*
 * Resets a key, or blocks it for `for_ns` (0: unblocks it), and replies with `more` besides rule and key. The audit log
 * gets the entry first, so that a change is in it even if the process ends before the reply.
 */
static int change_key(struct weir__call *call, const char *action, bool reset, int64_t for_ns, json_t *more)
{
    const struct weir__control_host *host = host_of(call);
    const char *rule = call->param[0];
    weir_text key = weir__text_of(call->param[1]);
    char object[2 * WEIR__PARAM_MAX + 2];
    snprintf(object, sizeof object, "%s/%s", rule, key.data);
    json_t *details = json_pack("{s:s}", "rule", rule); /* both parts of the object may have slashes */
    if (for_ns)
        json_object_set_new(details, "for_s", json_real((double)for_ns / 1e9));
    int error = weir__audit(call, action, object, details);
    if (!error) {
        weir__call_release_database(call);
        int failed =
            reset ? host->key_reset(host->context, rule, key) : host->key_block(host->context, rule, key, for_ns);
        json_t *body = json_pack("{s:s, s:s}", "rule", rule, "key", key.data);
        json_object_update(body, more);
        if (failed)
            fail_host(call, failed);
        else
            weir__reply_json(call, 200, json_incref(body));
        json_decref(body);
    }
    json_decref(more);
    return error;
}

int weir__rest_key_reset(struct weir__call *call)
{
    if (!host_of(call)->key_reset)
        return not_here(call);
    return change_key(call, "key_reset", true, 0, json_pack("{s:b}", "reset", 1));
}

#define BLOCK_MAX_MS (400 * WEIR_DAY / 1000000)

/* Milliseconds from {"for": "10m"} or {"until": "2026-11-15T12:00:00Z"}; 0: replied. */
static int64_t read_block(struct weir__call *call)
{
    json_t *body = weir__call_json(call, "for|until");
    const char *span = json_string_value(json_object_get(body, "for"));
    const char *until = json_string_value(json_object_get(body, "until"));
    int64_t ms = 0;
    if (!body)
        return 0;
    bool good = span && !until ? weir__parse_span(span, &ms) : until && !span ? weir__parse_time(until, &ms) : false;
    if (until)
        ms -= call->now_ms;
    json_decref(body);
    if (good && ms > 0 && ms <= BLOCK_MAX_MS)
        return ms;
    weir__fail(call, 400, "bad_block",
               "for: such as 10m, or until: a time to come such as 2030-01-01T00:00:00Z; at most 400 days", NULL);
    return 0;
}

int weir__rest_key_block(struct weir__call *call)
{
    if (!host_of(call)->key_block)
        return not_here(call);
    int64_t ms = read_block(call);
    return ms ? change_key(call, "key_block", false, ms * 1000000,
                           json_pack("{s:f, s:o}", "blocked_for_s", (double)ms / 1e3, "until",
                                     weir__json_time(call->now_ms + ms)))
              : 0;
}

int weir__rest_key_unblock(struct weir__call *call)
{
    if (!host_of(call)->key_block)
        return not_here(call);
    return change_key(call, "key_unblock", false, 0, json_pack("{s:b}", "blocked", 0));
}

/* ---- Statistics ---- */

int weir__rest_stats(struct weir__call *call)
{
    const struct weir__control_host *host = host_of(call);
    char *json = NULL;
    return leave_for_host(call, host->stats) ? reply_host(call, host->stats(host->context, &json), &json) : 0;
}

int weir__rest_history(struct weir__call *call)
{
    const struct weir__control_host *host = host_of(call);
    char rule[WEIR__PARAM_MAX], *json = NULL;
    int64_t seconds, step;
    if (!weir__query_number(call, "seconds", 1, 3600, 3600, &seconds) ||
        !weir__query_number(call, "step", 1, 3600, 1, &step) || !weir__query_text(call, "rule", rule, sizeof rule) ||
        !leave_for_host(call, host->history))
        return 0;
    return reply_host(call, host->history(host->context, *rule ? rule : NULL, seconds, step, &json), &json);
}

int weir__rest_hot(struct weir__call *call)
{
    const struct weir__control_host *host = host_of(call);
    char rule[WEIR__PARAM_MAX], by[16], near[8], *json = NULL;
    struct weir__host_hot what = {.rule = rule, .hide = !weir__sees_keys(call)};
    if (!weir__query_number(call, "n", 1, 1000, 20, &what.n) || !weir__query_text(call, "by", by, sizeof by) ||
        !weir__query_text(call, "near", near, sizeof near) || !weir__query_text(call, "rule", rule, sizeof rule))
        return 0;
    what.denied = strcmp(by, "denied") == 0;
    what.near = strcmp(near, "1") == 0 || strcmp(near, "true") == 0;
    if (!*rule)
        return weir__fail(call, 400, "bad_query", "rule: which one?", NULL);
    if (*by && !what.denied && strcmp(by, "admitted") != 0)
        return weir__fail(call, 400, "bad_query", "by: admitted or denied", NULL);
    return leave_for_host(call, host->hot) ? reply_host(call, host->hot(host->context, &what, &json), &json) : 0;
}

int weir__rest_advice(struct weir__call *call)
{
    const struct weir__control_host *host = host_of(call);
    char rule[WEIR__PARAM_MAX], *json = NULL;
    if (!weir__query_text(call, "rule", rule, sizeof rule) || !leave_for_host(call, host->advice))
        return 0;
    return reply_host(call, host->advice(host->context, *rule ? rule : NULL, &json), &json);
}

int weir__rest_hosts(struct weir__call *call)
{
    const struct weir__control_host *host = host_of(call);
    char *json = NULL;
    return leave_for_host(call, host->hosts) ? reply_host(call, host->hosts(host->context, &json), &json) : 0;
}

void weir__rest_record_heartbeat(const struct weir__call *call)
{
    if (call->request->heartbeat.len && host_of(call)->record_heartbeat)
        host_of(call)->record_heartbeat(host_of(call)->context, call->request->heartbeat);
}

/* ---- The service ---- */

int weir__rest_openapi(struct weir__call *call)
{
    weir__reply_text(call, 200, "application/json", weir__control_openapi, weir__control_openapi_len());
    return 0;
}

int weir__rest_health(struct weir__call *call)
{
    struct weir__control *control = call->control;
    pthread_mutex_lock(&control->published_lock);
    bool stale = control->stale, up = control->up,
         written = !control->path || !control->published.revision || control->written;
    int64_t revision = control->published.revision;
    pthread_mutex_unlock(&control->published_lock);
    weir__reply_json(call, 200,
                     json_pack("{s:b, s:I, s:b, s:b, s:b}", "ok", 1, "revision", (json_int_t)revision, "database", up,
                               "database_restored", stale, "written", written));
    return 0;
}
