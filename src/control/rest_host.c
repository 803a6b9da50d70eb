/* Keys and live figures, which the host knows. */
#define _GNU_SOURCE /* strptime, timegm */
#include "control/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const struct weir__control_host no_host;

static const struct weir__control_host *host_of(const struct weir__call *call)
{
    return call->control->host ? call->control->host : &no_host;
}

static int not_here(struct weir__call *call)
{
    return weir__fail(call, 501, "not_here", "this process does not know: it decides no requests", NULL);
}

static int fail_host(struct weir__call *call, int error)
{
    if (error == WEIR_ENORULE)
        return weir__fail(call, 404, "no_rule", weir_strerror(error), NULL);
    if (error == WEIR_ELIMIT)
        return weir__fail(call, 409, "no_counter", "the rule has no counter: it bans or lets pass everything", NULL);
    return weir__fail(call, 503, "failed", weir_strerror(error), NULL);
}

static int reply_host(struct weir__call *call, int error, char *json)
{
    if (error || !json)
        fail_host(call, error ? error : WEIR_ENOMEM);
    else
        weir__reply_text(call, 200, "application/json", json, strlen(json));
    free(json);
    return 0;
}

/* ---- Keys ---- */

static weir_text key_of(const struct weir__call *call)
{
    return (weir_text){call->param[1], strlen(call->param[1])};
}

int weir__rest_key_state(struct weir__call *call)
{
    char *json = NULL;
    if (!host_of(call)->key_state)
        return not_here(call);
    weir__call_release_database(call);
    int error = host_of(call)->key_state(host_of(call)->context, call->param[0], key_of(call), &json);
    return reply_host(call, error, json);
}

/* The log says it before it is done: what was done is in it, whatever happens in between. */
static int audit_key(struct weir__call *call, const char *action, json_t *details)
{
    char object[2 * WEIR__PARAM_MAX + 2];
    snprintf(object, sizeof object, "%s/%s", call->param[0], call->param[1]);
    details = details ? details : json_object();
    json_object_set_new(details, "rule", json_string(call->param[0])); /* both parts of the object may have slashes */
    return weir__audit(call, action, object, details);
}

int weir__rest_key_reset(struct weir__call *call)
{
    if (!host_of(call)->key_reset)
        return not_here(call);
    int error = audit_key(call, "key_reset", NULL);
    if (error)
        return error;
    weir__call_release_database(call);
    error = host_of(call)->key_reset(host_of(call)->context, call->param[0], key_of(call));
    if (error)
        return fail_host(call, error);
    weir__reply_json(call, 200,
                     json_pack("{s:s, s:s, s:b}", "rule", call->param[0], "key", call->param[1], "reset", 1));
    return 0;
}

#define BLOCK_MAX_NS (400 * WEIR_DAY)

/* Nanoseconds from {"for": "10m"} or {"until": "2026-11-15T12:00:00Z"}; 0: replied. */
static int64_t read_block(struct weir__call *call)
{
    json_t *body = weir__call_json(call, "for|until");
    const char *span = json_string_value(json_object_get(body, "for"));
    const char *until = json_string_value(json_object_get(body, "until"));
    struct tm local = {0};
    int64_t for_ns = 0;
    if (!body)
        return 0;
    size_t digits = span ? strspn(span, "0123456789") : 0;
    if (span && !until && digits && digits < 10 && strlen(span) == digits + 1) {
        char unit = span[digits];
        int64_t seconds = unit == 's' ? 1 : unit == 'm' ? 60 : unit == 'h' ? 3600 : unit == 'd' ? 86400 : 0;
        int64_t count = strtoll(span, NULL, 10);
        for_ns = seconds && count <= BLOCK_MAX_NS / WEIR_SECOND / seconds ? count * seconds * WEIR_SECOND : 0;
    } else if (until && !span) {
        const char *end = strptime(until, "%Y-%m-%dT%H:%M:%S", &local);
        end = end && *end == '.' ? end + 1 + strspn(end + 1, "0123456789") : end;
        int64_t left_ms = (int64_t)timegm(&local) * 1000 - call->now_ms;
        if (end && strcmp(end, "Z") == 0 && left_ms > 0 && left_ms <= BLOCK_MAX_NS / 1000000)
            for_ns = left_ms * 1000000;
    }
    json_decref(body);
    if (!for_ns)
        weir__fail(call, 400, "bad_block",
                   "for: such as 10m, or until: a time to come such as 2030-01-01T00:00:00Z; at most 400 days", NULL);
    return for_ns;
}

int weir__rest_key_block(struct weir__call *call)
{
    if (!host_of(call)->key_block)
        return not_here(call);
    int64_t for_ns = read_block(call);
    if (!for_ns)
        return 0;
    int error = audit_key(call, "key_block", json_pack("{s:f}", "for_s", (double)for_ns / 1e9));
    if (error)
        return error;
    weir__call_release_database(call);
    error = host_of(call)->key_block(host_of(call)->context, call->param[0], key_of(call), for_ns);
    if (error)
        return fail_host(call, error);
    weir__reply_json(call, 200,
                     json_pack("{s:s, s:s, s:f, s:o}", "rule", call->param[0], "key", call->param[1], "blocked_for_s",
                               (double)for_ns / 1e9, "until", weir__json_time(call->now_ms + for_ns / 1000000)));
    return 0;
}

int weir__rest_key_unblock(struct weir__call *call)
{
    if (!host_of(call)->key_block)
        return not_here(call);
    int error = audit_key(call, "key_unblock", NULL);
    if (error)
        return error;
    weir__call_release_database(call);
    error = host_of(call)->key_block(host_of(call)->context, call->param[0], key_of(call), 0);
    if (error)
        return fail_host(call, error);
    weir__reply_json(call, 200,
                     json_pack("{s:s, s:s, s:b}", "rule", call->param[0], "key", call->param[1], "blocked", 0));
    return 0;
}

/* ---- Figures ---- */

int weir__rest_stats(struct weir__call *call)
{
    char *json = NULL;
    if (!host_of(call)->stats)
        return not_here(call);
    weir__call_release_database(call);
    int error = host_of(call)->stats(host_of(call)->context, &json);
    return reply_host(call, error, json);
}

int weir__rest_history(struct weir__call *call)
{
    char rule[WEIR__PARAM_MAX], *json = NULL;
    int64_t seconds, step;
    if (!weir__query_number(call, "seconds", 1, 3600, 3600, &seconds) ||
        !weir__query_number(call, "step", 1, 3600, 1, &step) || !weir__query_text(call, "rule", rule, sizeof rule))
        return 0;
    if (!host_of(call)->history)
        return not_here(call);
    weir__call_release_database(call);
    int error = host_of(call)->history(host_of(call)->context, *rule ? rule : NULL, seconds, step, &json);
    return reply_host(call, error, json);
}

int weir__rest_hot(struct weir__call *call)
{
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
    if (!host_of(call)->hot)
        return not_here(call);
    weir__call_release_database(call);
    int error = host_of(call)->hot(host_of(call)->context, &what, &json);
    return reply_host(call, error, json);
}

int weir__rest_advice(struct weir__call *call)
{
    char rule[WEIR__PARAM_MAX], *json = NULL;
    if (!weir__query_text(call, "rule", rule, sizeof rule))
        return 0;
    if (!host_of(call)->advice)
        return not_here(call);
    weir__call_release_database(call);
    int error = host_of(call)->advice(host_of(call)->context, *rule ? rule : NULL, &json);
    return reply_host(call, error, json);
}

int weir__rest_hosts(struct weir__call *call)
{
    char *json = NULL;
    if (!host_of(call)->hosts)
        return not_here(call);
    weir__call_release_database(call);
    int error = host_of(call)->hosts(host_of(call)->context, &json);
    return reply_host(call, error, json);
}

void weir__rest_record_heartbeat(const struct weir__call *call)
{
    if (call->request->heartbeat.len && host_of(call)->record_heartbeat)
        host_of(call)->record_heartbeat(host_of(call)->context, call->request->heartbeat);
}

/* ---- The service itself ---- */

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
