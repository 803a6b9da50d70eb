/* Routes: opens the API, finds the action of a method and path, runs it; and the actions on one key. */
#include "services/http/api.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

WEIR__EMBED(weir__openapi, "src/services/http/openapi.json");

/* ---- Opening ---- */

int weir__api_open(struct weir__api *api, weir *engine, struct weir__reservations *reservations)
{
    *api = (struct weir__api){.engine = engine, .reservations = reservations};
    int error = weir_segment_secret(weir_engine_segment(engine), "tickets of reservations", api->token_key);
    if (error)
        return error;
    weir__api_memory_use();
    api->scratch = malloc(sizeof *api->scratch);
    return api->scratch ? 0 : WEIR_ENOMEM;
}

/* ---- Routes ---- */

static bool ends_in(weir_text text, const char *end)
{
    size_t len = strlen(end);
    return text.len > len && memcmp(text.data + text.len - len, end, len) == 0;
}

/* RULE/KEY or RULE/KEY/block; '/' in the rule's name, or before "block" at a key's end, is written %2F. */
static void find_key_route(enum weir__api_method method, weir_text path, struct weir__api_route *route)
{
    bool block = ends_in(path, "/block");
    path.len -= block ? sizeof "/block" - 1 : 0;
    weir_text rule = weir__text_cut(&path, '/');
    int rule_len = weir__percent_decode(rule, false, route->rule, sizeof route->rule);
    int key_len = weir__percent_decode(path, false, route->key, sizeof route->key);
    if (rule_len <= 0 || key_len <= 0 || memchr(route->rule, 0, (size_t)rule_len))
        return;
    route->key_len = (size_t)key_len;
    route->allowed = block ? WEIR__PUT | WEIR__DELETE : WEIR__GET | WEIR__DELETE;
    route->action = WEIR__API_NO_METHOD;
    if (!(route->allowed & method))
        return;
    route->operator_only = method != WEIR__GET;
    route->takes_body = method == WEIR__PUT;
    route->action = block                 ? method == WEIR__PUT ? WEIR__API_BLOCK : WEIR__API_UNBLOCK
                    : method == WEIR__GET ? WEIR__API_STATE
                                          : WEIR__API_RESET;
}

void weir__api_find_route(enum weir__api_method method, weir_text path, struct weir__api_route *route)
{
    static const struct {
        const char *name;
        enum weir__api_method method;
        enum weir__api_action action;
    } routes[] = {{"check", WEIR__POST, WEIR__API_CHECK},     {"refund", WEIR__POST, WEIR__API_REFUND},
                  {"reserve", WEIR__POST, WEIR__API_RESERVE}, {"commit", WEIR__POST, WEIR__API_COMMIT},
                  {"cancel", WEIR__POST, WEIR__API_CANCEL},   {"release", WEIR__POST, WEIR__API_RELEASE},
                  {"renew", WEIR__POST, WEIR__API_RENEW},     {"openapi.json", WEIR__GET, WEIR__API_OPENAPI}};
    route->action = WEIR__API_NO_PATH;
    route->operator_only = route->takes_body = false;
    route->allowed = 0;
    route->key_len = 0;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!weir__text_is(path, routes[i].name))
            continue;
        route->allowed = routes[i].method;
        route->action = method == routes[i].method ? routes[i].action : WEIR__API_NO_METHOD;
        route->takes_body = method == WEIR__POST;
        return;
    }
    if (weir__text_skip(&path, "keys/"))
        find_key_route(method, path, route);
}

/* ---- Keys ---- */

static void fail_key(struct weir__api_reply *reply, int error)
{
    if (error == WEIR_ENORULE)
        weir__api_fail(reply, 404, "no_rule", weir_strerror(error), "rule");
    else if (error == WEIR_ELIMIT)
        weir__api_fail(reply, 409, "no_counter", "the rule has no counter: it bans or lets pass everything", "rule");
    else
        weir__api_fail(reply, 503, "failed", weir_strerror(error), NULL);
}

/* Where a block or a reset holds, by the agent's last round. `alone`: on this host, as the queue to the others is full.
 */
static const char *hosts_of(weir *engine, bool alone)
{
    enum weir_reach reach = alone ? WEIR_THIS_HOST : weir_key_reach(engine);
    return reach == WEIR_ALL_HOSTS ? "all" : reach == WEIR_THIS_HOST ? "this" : "later";
}

static void state(struct weir__api *api, struct weir__api_reply *reply)
{
    const struct weir__api_route *route = api->route;
    weir_time now = {0, 0};
    weir_outcome outcome;
    reply->needs_store = weir__api_collects(api) && weir_key_state_begin(api->engine, route->rule, route->key,
                                                                         route->key_len, now, api->async) == 1;
    if (reply->needs_store)
        return;
    int error = weir_key_state_finish(api->engine, route->rule, route->key, route->key_len, now, api->async, &outcome);
    if (error || outcome.error) { /* the host's own state instead of the store's would mislead */
        fail_key(reply, error ? error : outcome.error);
        return;
    }
    weir__buffer_add_literal(&reply->out, "{");
    weir__api_write_decision(&reply->out, &outcome, &outcome.decision);
    weir__buffer_add_literal(&reply->out, "}\n");
}

static void reset(struct weir__api *api, struct weir__api_reply *reply)
{
    const struct weir__api_route *route = api->route;
    weir_time now = {0, 0};
    reply->needs_store = weir__api_collects(api) && weir_key_reset_begin(api->engine, route->rule, route->key,
                                                                         route->key_len, now, api->async) == 1;
    if (reply->needs_store)
        return;
    int error = weir_key_reset_finish(api->engine, route->rule, route->key, route->key_len, now, api->async);
    if (error < 0)
        fail_key(reply, error);
    else
        weir__json_add(&reply->out, "{\"rule\":%s,\"key\":%t,\"reset\":true,\"hosts\":%s}\n", route->rule,
                       (weir_text){route->key, route->key_len}, hosts_of(api->engine, error > 0));
}

/* Also unblocks, without a body. */
static void block(struct weir__api *api, struct weir__api_reply *reply)
{
    const struct weir__api_route *route = api->route;
    struct weir__api_item item = {.for_ns = 0};
    if (api->body && !weir__api_read(api->body, WEIR__API_TO_BLOCK, &item, reply))
        return;
    int error = weir_key_block(api->engine, route->rule, route->key, route->key_len, item.for_ns, (weir_time){0, 0});
    if (error < 0)
        fail_key(reply, error);
    else
        weir__json_add(&reply->out, "{\"rule\":%s,\"key\":%t,\"blocked_for_s\":%n,\"hosts\":%s}\n", route->rule,
                       (weir_text){route->key, route->key_len}, item.for_ns, hosts_of(api->engine, error > 0));
}

/* ---- Run ---- */

static void send_openapi(struct weir__api *api, struct weir__api_reply *reply)
{
    (void)api;
    weir__buffer_add(&reply->out, weir__openapi, strlen(weir__openapi));
}

void weir__api_run(struct weir__api *api, const struct weir__api_route *route, weir_text body, bool status_wanted,
                   struct weir__api_reply *reply)
{
    static void (*const actions[])(struct weir__api *,
                                   struct weir__api_reply *) = {[WEIR__API_CHECK] = weir__api_check,
                                                                [WEIR__API_REFUND] = weir__api_check,
                                                                [WEIR__API_RESERVE] = weir__api_reserve,
                                                                [WEIR__API_COMMIT] = weir__api_settle,
                                                                [WEIR__API_CANCEL] = weir__api_settle,
                                                                [WEIR__API_RELEASE] = weir__api_lease,
                                                                [WEIR__API_RENEW] = weir__api_lease,
                                                                [WEIR__API_OPENAPI] = send_openapi,
                                                                [WEIR__API_STATE] = state,
                                                                [WEIR__API_RESET] = reset,
                                                                [WEIR__API_BLOCK] = block,
                                                                [WEIR__API_UNBLOCK] = block};
    reply->status = 200;
    reply->index = -1;
    reply->has_result = reply->needs_store = false;
    api->failure = 0;
    api->route = route;
    api->status_wanted = status_wanted;
    weir__api_memory_begin();
    if (route->action == WEIR__API_NO_PATH) {
        weir__api_fail(reply, 404, "not_found", "there is nothing at this path; see openapi.json beside it", NULL);
    } else if (route->action == WEIR__API_NO_METHOD) {
        weir__api_fail(reply, 405, "method_not_allowed", "this path has other methods", NULL);
    } else {
        api->body = route->takes_body ? weir__api_parse(body, reply) : NULL;
        if (api->body || !route->takes_body)
            actions[route->action](api, reply);
        json_decref(api->body);
    }
    weir__api_memory_end();
    if (reply->out.failed) {
        static char last_resort[256]; /* for the error, as malloc failed; a worker has one thread */
        reply->status = 500;
        weir__buffer_free(&reply->out);
        weir__buffer_borrow(&reply->out, last_resort, sizeof last_resort);
        weir__api_write_error(&reply->out, "no_memory", weir_strerror(WEIR_ENOMEM), NULL);
    }
}
