/* Routes: finds the handler of a request and runs it, with its locks and rights. */
#include "base/clock.h"
#include "control/call.h"

#include <stdio.h>
#include <stdlib.h>

#define ALLOW_MAX        64
#define NOBODY_BODY_MAX  4096  /* bytes of a body without authentication, which is parsed under the database lock */
#define DATABASE_WAIT_MS 3000  /* longest wait for the database lock */
#define WORK_MS          10000 /* longest wait for a compute lock */

const struct weir__rest_route weir__routes[] = {
    {"GET", "/v1/rules", WEIR__VIEWER, false, weir__rest_list},
    {"POST", "/v1/rules", WEIR__EDITOR, false, weir__rest_create},
    {"GET", "/v1/rules/published", WEIR__VIEWER, false, weir__rest_published},
    {"GET", "/v1/rules/{name}", WEIR__VIEWER, false, weir__rest_get},
    {"PUT", "/v1/rules/{name}", WEIR__EDITOR, false, weir__rest_update},
    {"DELETE", "/v1/rules/{name}", WEIR__EDITOR, false, weir__rest_delete},
    {"GET", "/v1/rules/{name}/versions", WEIR__VIEWER, false, weir__rest_versions},
    {"GET", "/v1/rules/{name}/diff", WEIR__VIEWER, false, weir__rest_diff},
    {"POST", "/v1/rules/{name}/rollback", WEIR__EDITOR, false, weir__rest_rollback},
    {"POST", "/v1/rules/{name}/publish", WEIR__EDITOR, false, weir__rest_publish},
    {"POST", "/v1/validate", WEIR__VIEWER, false, weir__rest_validate},
    {"GET", "/v1/revisions", WEIR__VIEWER, false, weir__rest_revisions},
    {"POST", "/v1/revisions", WEIR__EDITOR, false, weir__rest_publish_many},
    {"GET", "/v1/revisions/{revision}", WEIR__VIEWER, false, weir__rest_revision},
    {"POST", "/v1/revisions/{revision}/rollback", WEIR__EDITOR, false, weir__rest_revision_rollback},
    {"PUT", "/v1/keys/{rule}/{key}/block", WEIR__OPERATOR, false, weir__rest_key_block},
    {"DELETE", "/v1/keys/{rule}/{key}/block", WEIR__OPERATOR, false, weir__rest_key_unblock},
    {"POST", "/v1/keys/{rule}/{key}/take", WEIR__OPERATOR, false, weir__rest_key_take},
    {"GET", "/v1/keys", WEIR__OPERATOR, false, weir__rest_keys},
    {"GET", "/v1/blocks", WEIR__OPERATOR, false, weir__rest_blocks},
    {"GET", "/v1/keys/{rule}/{key}", WEIR__OPERATOR, false, weir__rest_key_state},
    {"DELETE", "/v1/keys/{rule}/{key}", WEIR__OPERATOR, false, weir__rest_key_reset},
    {"GET", "/v1/tokens", WEIR__OPERATOR, false, weir__rest_tokens},
    {"POST", "/v1/tokens", WEIR__OPERATOR, false, weir__rest_token_create},
    {"DELETE", "/v1/tokens/{id}", WEIR__OPERATOR, false, weir__rest_token_revoke},
    {"POST", "/v1/login-links", WEIR__OPERATOR, false, weir__rest_link_create},
    {"GET", "/v1/audit", WEIR__VIEWER, false, weir__rest_audit},
    {"POST", "/v1/session", WEIR__NOBODY, false, weir__rest_session_create},
    {"GET", "/v1/session", WEIR__VIEWER, false, weir__rest_session_get},
    {"DELETE", "/v1/session", WEIR__VIEWER, false, weir__rest_session_delete},
    {"GET", "/v1/stats", WEIR__VIEWER, false, weir__rest_stats},
    {"GET", "/v1/stats/history", WEIR__VIEWER, false, weir__rest_history},
    {"GET", "/v1/stats/hot", WEIR__VIEWER, false, weir__rest_hot},
    {"GET", "/v1/advice", WEIR__VIEWER, false, weir__rest_advice},
    {"POST", "/v1/check", WEIR__VIEWER, false, weir__rest_check},
    {"GET", "/v1/denials", WEIR__OPERATOR, false, weir__rest_denied},
    {"GET", "/v1/hosts", WEIR__VIEWER, false, weir__rest_hosts},
    {"GET", "/v1/queue", WEIR__VIEWER, false, weir__rest_queue_list},
    {"GET", "/v1/queue/stats", WEIR__VIEWER, false, weir__rest_queue_stats},
    {"GET", "/v1/queue/{ticket}", WEIR__VIEWER, false, weir__rest_queue_get},
    {"POST", "/v1/queue/{ticket}/cancel", WEIR__OPERATOR, false, weir__rest_queue_cancel},
    {"POST", "/v1/queue/{ticket}/requeue", WEIR__OPERATOR, false, weir__rest_queue_requeue},
    {"GET", "/v1/openapi.json", WEIR__NOBODY, true, weir__rest_openapi},
    {"GET", "/healthz", WEIR__NOBODY, true, weir__rest_health},
};
const size_t weir__route_count = sizeof weir__routes / sizeof *weir__routes;

WEIR__EMBED(weir__control_openapi, "src/control/openapi.json");

bool weir__rest_openapi(struct weir__call *call)
{
    return weir__reply_text(call, 200, "application/json", weir__text_of(weir__control_openapi));
}

/* ---- Paths ---- */

/* False unless it is UTF-8 without control characters. */
static bool decode_param(weir_text part, char *to)
{
    int len = weir__percent_decode(part, false, to, WEIR__PARAM_MAX + 1);
    return len > 0 && weir__text_sound((weir_text){to, (size_t)len});
}

/* A pattern has literal parts and {names}: each matches one segment, {key} everything up to the pattern's rest. */
static bool path_matches(const char *pattern, weir_text path, struct weir__call *call)
{
    for (int params = 0; *pattern;) {
        size_t literal = strcspn(pattern, "{");
        if (path.len < literal || memcmp(path.data, pattern, literal) != 0)
            return false;
        path = (weir_text){path.data + literal, path.len - literal};
        pattern += literal;
        if (!*pattern)
            break;
        bool all = strncmp(pattern, "{key}", 5) == 0;
        pattern = strchr(pattern, '}') + 1;
        size_t rest = strlen(pattern), len;
        if (all) {
            if (path.len <= rest || memcmp(path.data + path.len - rest, pattern, rest) != 0)
                return false;
            len = path.len - rest;
        } else {
            const char *slash = memchr(path.data, '/', path.len);
            len = slash ? (size_t)(slash - path.data) : path.len;
        }
        if (params == WEIR__PARAMS || !decode_param((weir_text){path.data, len}, call->param[params++]))
            return false;
        path = (weir_text){path.data + len, path.len - len};
    }
    return path.len == 0;
}

/* NULL: refused. */
static const struct weir__rest_route *find_route(struct weir__call *call)
{
    char allow[ALLOW_MAX] = "";
    const char *taken = NULL; /* the first path that matches wins: a literal one is no {name} */
    weir_text method = call->request->method;
    for (size_t i = 0; i < weir__route_count; i++) {
        const struct weir__rest_route *route = &weir__routes[i];
        if ((taken && strcmp(route->path, taken) != 0) || !path_matches(route->path, call->request->path, call))
            continue;
        if (weir__text_is(method, route->method))
            return route;
        taken = route->path;
        snprintf(allow + strlen(allow), sizeof allow - strlen(allow), "%s%s", *allow ? ", " : "", route->method);
    }
    if (taken) {
        weir__reply_header(call, "Allow", "%s", allow);
        weir__fail(call, 405, "no_method", "this path has no such method");
    } else {
        weir__fail(call, 404, "no_path", "there is nothing at this path");
    }
    return NULL;
}

/* ---- Running ---- */

static bool refuse_database(struct weir__call *call, int error)
{
    if (error == WEIR__DB_BUSY || error == WEIR__DB_GONE)
        weir__reply_header(call, "Retry-After", "1");
    return weir__fail(call, error == WEIR__DB_CONFLICT ? 409 : 503, weir__db_error_code(error), "%s",
                      weir__db_strerror(error));
}

/* Replaces the reply, also one that was made of what a failed statement returned. */
static bool fail_database(struct weir__call *call, int error)
{
    weir__rest_free(call->reply);
    call->failed = false;
    weir__control_note(call->control, error == WEIR__DB_BUSY || error == WEIR__DB_CONFLICT);
    return refuse_database(call, error);
}

static bool is_sound(struct weir__call *call)
{
    const struct weir__rest_request *request = call->request;
    if (request->body.len > WEIR__REST_BODY_MAX)
        return weir__fail(call, 413, "too_large", "a body has at most 1 MiB");
    if (request->path.len > 4 * WEIR__PARAM_MAX || request->query.len > 16 * WEIR__PARAM_MAX)
        return weir__fail(call, 414, "too_long", "the path or the query is too long");
    return weir__query_read(call);
}

static bool fail_busy(struct weir__call *call)
{
    weir__reply_header(call, "Retry-After", "1");
    return weir__fail(call, 503, "busy", "others are being served, and it takes long; nothing was changed, try again");
}

/*
 * One request at a time has the database; the others wait for the lock. If the database did not reply last time, they
 * do not wait, but get 503: otherwise all threads would wait for a database that hangs. False: refused.
 */
bool weir__call_take_database(struct weir__call *call)
{
    struct weir__control *control = call->control;
    pthread_mutex_lock(&control->published_lock);
    bool up = control->up;
    pthread_mutex_unlock(&control->published_lock);
    if (!weir__fair_lock_acquire_within(&control->database_lock, up ? DATABASE_WAIT_MS : 0))
        return up ? fail_busy(call) : refuse_database(call, WEIR__DB_GONE);
    if (weir__control_ready(control)) {
        call->db = control->db;
        return true;
    }
    int error = control->error;
    weir__fair_lock_release(&control->database_lock);
    return fail_database(call, error);
}

bool weir__call_release_database(struct weir__call *call)
{
    int error = call->db ? call->db->error : 0;
    if (error == WEIR__DB_BUSY || error == WEIR__DB_CONFLICT) /* of this request */
        weir__control_log(call->control, WEIR__LOG_WARNING, "the rules database: %s (%s)", weir__db_strerror(error),
                          call->db->why);
    else if (error)
        weir__control_state(call->control, error, call->db->why);
    if (error)
        fail_database(call, error);
    if (call->db)
        weir__fair_lock_release(&call->control->database_lock);
    call->db = NULL;
    return !call->failed;
}

/* False: too many read-only requests of this token, or in total, compute or wait. */
static bool take_dry_run(struct weir__call *call)
{
    struct weir__control *control = call->control;
    const char *token = *call->token_id ? call->token_id : "-"; /* a local command */
    char *slot = NULL;
    int of_one = 0;
    pthread_mutex_lock(&control->published_lock);
    for (int i = 0; i < WEIR__DRY_RUNS_MAX; i++) {
        of_one += strcmp(control->dry_runs[i], token) == 0;
        slot = *control->dry_runs[i] ? slot : control->dry_runs[i];
    }
    if (slot && of_one < WEIR__DRY_RUNS_PER_TOKEN) {
        snprintf(slot, WEIR__TOKEN_ID, "%s", token);
        call->dry_run = slot;
    }
    pthread_mutex_unlock(&control->published_lock);
    return call->dry_run != NULL;
}

static struct weir__fair_lock *compute_lock(struct weir__call *call)
{
    return call->only_reads ? &call->control->dry_run_lock : &call->control->compile_lock;
}

bool weir__work_begin(struct weir__call *call)
{
    if (!weir__call_release_database(call))
        return false;
    call->has_compute_lock =
        (!call->only_reads || take_dry_run(call)) && weir__fair_lock_acquire_within(compute_lock(call), WORK_MS);
    return call->has_compute_lock || fail_busy(call);
}

static void leave_work(struct weir__call *call)
{
    if (call->has_compute_lock)
        weir__fair_lock_release(compute_lock(call));
    call->has_compute_lock = false;
    if (!call->dry_run)
        return;
    pthread_mutex_lock(&call->control->published_lock);
    *call->dry_run = 0;
    pthread_mutex_unlock(&call->control->published_lock);
    call->dry_run = NULL;
}

bool weir__work_end(struct weir__call *call)
{
    leave_work(call);
    return weir__call_take_database(call);
}

struct weir__call weir__call_open(struct weir__control *control, const struct weir__rest_request *request,
                                  struct weir__rest_reply *reply)
{
    memset(reply, 0, sizeof *reply);
    return (struct weir__call){
        .control = control, .request = request, .reply = reply, .now_ms = weir__wall_ms(), .problems = json_array()};
}

void weir__call_close(struct weir__call *call)
{
    leave_work(call);
    weir__call_release_database(call);
    json_decref(call->query);
    json_decref(call->body);
    json_decref(call->problems);
    weir__arena_free(&call->arena);
}

bool weir__route_is_of_rules(const struct weir__rest_route *route)
{
    static const char *const beginnings[] = {"/v1/rules", "/v1/revisions", "/v1/validate"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strncmp(route->path, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}

/* The rules are in files: lets the service in memory handle the call. False: refused. */
static bool use_files(struct weir__call *call, const struct weir__rest_route *route)
{
    const struct weir__files_view *view = call->control->files;
    if (route->role >= WEIR__EDITOR)
        return weir__fail(call, 409, "rules_are_files",
                          "the rules are those of %s, and are changed there; to change them here, move them to the "
                          "database: weir rules import, and admin: { rules: database } in %s",
                          view->named->path ? view->named->path : view->named->file, view->named->file);
    if (!weir__call_release_database(call))
        return false;
    call->control = view->memory;
    return weir__call_take_database(call);
}

static void run(struct weir__call *call, const struct weir__rest_route *route)
{
    call->only_reads = route->role < WEIR__EDITOR;
    if (!route->no_database && !weir__call_take_database(call))
        return;
    if (route->role != WEIR__NOBODY && !weir__authenticate(call))
        return;
    if (call->role < route->role)
        weir__fail(call, 403, "not_allowed", "this needs a token with more rights");
    else if (!weir__route_is_of_rules(route) || !call->control->files || use_files(call, route))
        (void)route->run(call);
}

void weir__rest_run(struct weir__control *control, const struct weir__rest_request *request,
                    struct weir__rest_reply *reply)
{
    struct weir__call call = weir__call_open(control, request, reply);
    const struct weir__rest_route *route = is_sound(&call) ? find_route(&call) : NULL;
    if (route && route->role == WEIR__NOBODY && request->body.len > NOBODY_BODY_MAX) {
        weir__fail(&call, 413, "too_large", "a body has at most 4 KiB here");
        route = NULL;
    }
    if (route)
        run(&call, route);
    weir__call_close(&call);
    if (route)
        weir__reply_header(&call, "Cache-Control", "no-store");
}

void weir__rest_free(struct weir__rest_reply *reply)
{
    free(reply->body);
    memset(reply, 0, sizeof *reply);
}

const char *weir__rest_header(const struct weir__rest_reply *reply, const char *name)
{
    for (size_t i = 0; i < reply->header_count; i++)
        if (strcmp(reply->headers[i].name, name) == 0)
            return reply->headers[i].value;
    return NULL;
}
