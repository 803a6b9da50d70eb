/* The HTTP decision API in nginx: authenticates the caller, reads the body, runs src/services/http, sends its reply. */
#include "ngx_http_weir.h"
#include "engine/mapped_file.h"

/* ---- The API's state in a worker, and the timer that refunds expired reservations ---- */

#define SCAN_MS     250
#define REPLY_BYTES 16384 /* on the stack; longer replies are allocated */

static struct weir__api ngx_http_weir_api_state;
static ngx_event_t ngx_http_weir_expire_event;

static void ngx_http_weir_reservations_close(void *data)
{
    weir__mapped_close(data);
}

/* The file of reservations is a sidecar of the segment, opened by the master and inherited by the workers. */
ngx_int_t ngx_http_weir_api_init(ngx_conf_t *cf, ngx_http_weir_main_conf_t *mcf)
{
    ngx_http_weir_api_conf_t *acf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_filter_module);
    ngx_conf_init_value(acf->reservations_max, WEIR__RESERVATIONS_DEFAULT);
    if (!acf->wanted || acf->reservations_max == 0)
        return NGX_OK;
    static const char suffix[] = ".reservations";
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, sizeof(struct weir__mapped));
    u_char *path = ngx_pnalloc(cf->pool, mcf->segment_path.len + sizeof(suffix));
    if (cleanup == NULL || path == NULL)
        return NGX_ERROR;
    (void)ngx_sprintf(path, "%V%s%Z", &mcf->segment_path, suffix);
    struct weir__mapped *mapped = cleanup->data;
    uint32_t count = (uint32_t)acf->reservations_max;
    struct weir__file_spec spec = {.path = (const char *)path,
                                   .bytes = weir__reservations_bytes(count),
                                   .mode = mcf->segment_mode,
                                   .owner = weir__segment_owner(mcf->segment),
                                   .disabled = "reservations expire only in the worker that made them (.reservations)",
                                   .format = weir__reservations_format,
                                   .plan = &count,
                                   .check = weir__reservations_check};
    char why[256];
    ngx_set_errno(0);
    int error = weir__mapped_open(&spec, mapped);
    if (error == 0) {
        cleanup->handler = ngx_http_weir_reservations_close;
        error = weir__reservations_attach(&acf->reservations, mapped->memory, mapped->bytes);
    }
    if (error) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, error == WEIR_ESYS ? ngx_errno : 0,
                      "\"%s\" for weir_api_reservations: %s (%s)", path,
                      weir__mapped_why((const char *)path, error, why, sizeof(why)), weir_error_name(error));
        return NGX_ERROR;
    }
    if (acf->reservations.count != count)
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"%s\" exists and keeps its room for %uD reservations; remove it for %uD: those in it are lost "
                      "then",
                      path, acf->reservations.count, count);
    return NGX_OK;
}

/* Every worker scans; the reservation's marker in the segment makes sure that only one refunds it. */
static void ngx_http_weir_expire(ngx_event_t *event)
{
    struct weir__api *api = &ngx_http_weir_api_state;
    ngx_http_weir_main_conf_t *mcf = event->data;
    if (ngx_exiting)
        return;
    ngx_weir_wait_t *wait = mcf->store ? ngx_weir_wait_new(mcf->store) : NULL;
    api->async = wait ? wait->async : NULL;
    api->store_replied = false;
    (void)weir__api_expire(api);
    if (wait && weir_async_request(wait->async)->op_count > 0)
        ngx_weir_wait_detached(wait);
    else if (wait)
        ngx_weir_wait_end(wait);
    ngx_add_timer(event, SCAN_MS);
}

ngx_int_t ngx_http_weir_api_start(ngx_cycle_t *cycle, ngx_http_weir_main_conf_t *mcf)
{
    ngx_http_weir_api_conf_t *acf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_filter_module);
    ngx_event_t *event = &ngx_http_weir_expire_event;
    if (!acf->wanted)
        return NGX_OK;
    int error =
        weir__api_open(&ngx_http_weir_api_state, mcf->engine, acf->reservations.count ? &acf->reservations : NULL);
    if (error) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, 0, "weir_api: %s (%s)", weir_strerror(error), weir_error_name(error));
        return NGX_ERROR;
    }
    if (acf->reservations.count == 0)
        return NGX_OK;
    event->handler = ngx_http_weir_expire;
    event->data = mcf;
    event->log = cycle->log;
    event->cancelable = 1; /* does not delay the worker's shutdown */
    ngx_add_timer(event, SCAN_MS);
    return NGX_OK;
}

/* ---- Replies ---- */

static ngx_int_t ngx_http_weir_api_header(ngx_http_request_t *r, const char *name, const char *value)
{
    return ngx_http_weir_push_header(r, name, (ngx_str_t){ngx_strlen(value), (u_char *)value});
}

static ngx_int_t ngx_http_weir_api_send(ngx_http_request_t *r, const struct weir__api_reply *reply)
{
    r->headers_out.status = (ngx_uint_t)reply->status;
    return ngx_http_weir_send(r, reply->out.data, reply->out.len, "application/json");
}

ngx_int_t ngx_http_weir_refuse(ngx_http_request_t *r, int status, const char *code, const char *message)
{
    char room[1024];
    struct weir__api_reply reply = {.status = status};
    if (ngx_http_discard_request_body(r) != NGX_OK)
        r->keepalive = 0;
    weir__buffer_borrow(&reply.out, room, sizeof(room));
    weir__api_write_error(&reply.out, code, message, NULL);
    ngx_int_t rc = ngx_http_weir_api_send(r, &reply);
    weir__buffer_free(&reply.out);
    return rc;
}

/* ---- Authentication and login throttle ---- */

/* A pool cleanup as a marker: the last token of the connection was right; its data is a flag. */
static void ngx_http_weir_known(void *data)
{
    (void)data;
}

static void ngx_http_weir_check_leave(void *data)
{
    ngx_weir_check_release(data);
}

/* The data of the pool's cleanup with this handler; with a size, it is created if there is none. NULL: none. */
static void *ngx_http_weir_pool_data(ngx_pool_t *pool, ngx_pool_cleanup_pt handler, size_t size)
{
    for (ngx_pool_cleanup_t *each = pool->cleanup; each; each = each->next)
        if (each->handler == handler)
            return each->data;
    ngx_pool_cleanup_t *cleanup = size ? ngx_pool_cleanup_add(pool, size) : NULL;
    if (cleanup == NULL)
        return NULL;
    ngx_memzero(cleanup->data, size);
    cleanup->handler = handler;
    return cleanup->data;
}

static ngx_pool_t *ngx_http_weir_connection_pool(const ngx_http_request_t *r)
{
#if (NGX_HTTP_V2)
    if (r->stream)
        return r->stream->connection->connection->pool;
#endif
    return r->connection->pool;
}

static void ngx_http_weir_checked(ngx_http_request_t *r, ngx_uint_t right)
{
    ngx_uint_t *known =
        ngx_http_weir_pool_data(ngx_http_weir_connection_pool(r), ngx_http_weir_known, right ? sizeof(*known) : 0);
    if (known)
        *known = right;
}

/* True while the pause of the request lasts. */
static ngx_uint_t ngx_http_weir_is_paused(ngx_http_request_t *r)
{
    ngx_event_t *write = r->connection->write;
    if (write->delayed) {
        if (ngx_handle_write_event(write, 0) != NGX_OK)
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return 1;
    }
    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_request_empty_handler;
    return 0;
}

static void ngx_http_weir_check_later(ngx_http_request_t *r)
{
    if (!ngx_http_weir_is_paused(r))
        ngx_http_finalize_request(r, r->content_handler(r));
}

/* Runs `later` after `ms`, unless the client disconnects. */
static ngx_int_t ngx_http_weir_pause(ngx_http_request_t *r, ngx_msec_t ms, ngx_http_event_handler_pt later)
{
    ngx_connection_t *c = r->connection;
    if (ngx_handle_read_event(c->read, 0) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = later;
    c->write->delayed = 1;
    ngx_add_timer(c->write, ms);
    r->main->count++;
    return NGX_DONE;
}

ngx_int_t ngx_http_weir_check_hold(ngx_http_request_t *r, ngx_uint_t caller)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    if (!(caller & (NGX_HTTP_WEIR_BY_TOKEN | NGX_HTTP_WEIR_BAD_TOKEN)) || r != r->main)
        return NGX_DECLINED; /* the connection's timer belongs to the main request */
    const ngx_uint_t *known = ngx_http_weir_pool_data(ngx_http_weir_connection_pool(r), ngx_http_weir_known, 0);
    if (known && *known)
        return NGX_DECLINED;
    ngx_weir_check_t *check = ngx_http_weir_pool_data(r->pool, ngx_http_weir_check_leave, sizeof(*check));
    if (check == NULL)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    ngx_msec_t ms = 0;
    if (check->peer_len) /* the pause is over */
        ngx_weir_check_release(check);
    else
        ms = ngx_weir_check_hold(check, mcf->segment, r->connection);
    if (ms == NGX_WEIR_NO_PLACE) {
        r->keepalive = 0;
        return NGX_BUSY;
    }
    if (ms)
        return ngx_http_weir_pause(r, ms, ngx_http_weir_check_later);
    if (caller & NGX_HTTP_WEIR_BY_TOKEN)
        ngx_http_weir_checked(r, 1);
    return NGX_DECLINED;
}

ngx_int_t ngx_http_weir_login_throttle(ngx_http_request_t *r, ngx_http_event_handler_pt later)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_msec_t ms = ngx_weir_wrong_secret(mcf->segment, r->connection);
    ngx_http_weir_checked(r, 0);
    return r == r->main ? ngx_http_weir_pause(r, ms, later) : NGX_DECLINED;
}

ngx_uint_t ngx_http_weir_login_is_throttled(ngx_http_request_t *r)
{
    if (ngx_http_weir_is_paused(r))
        return 1;
    r->keepalive = 0;
    return 0;
}

static ngx_int_t ngx_http_weir_unauthorized(ngx_http_request_t *r, ngx_uint_t bearer, ngx_uint_t caller)
{
    const char *challenge = !bearer                            ? "X-Weir-Token realm=\"weir\""
                            : caller == NGX_HTTP_WEIR_NO_TOKEN ? "Bearer realm=\"weir\""
                                                               : "Bearer realm=\"weir\", error=\"invalid_token\"";
    if (ngx_http_weir_api_header(r, "WWW-Authenticate", challenge) != NGX_OK)
        return NGX_ERROR;
    return ngx_http_weir_refuse(r, NGX_HTTP_UNAUTHORIZED, "unauthorized",
                                bearer ? "a token is needed: Authorization: Bearer TOKEN, or X-Weir-Token: TOKEN"
                                       : "a token of the proxy is needed: X-Weir-Token: TOKEN");
}

static void ngx_http_weir_wrong_bearer(ngx_http_request_t *r)
{
    if (!ngx_http_weir_login_is_throttled(r))
        ngx_http_finalize_request(r, ngx_http_weir_unauthorized(r, 1, NGX_HTTP_WEIR_BAD_TOKEN));
}

static void ngx_http_weir_wrong_token(ngx_http_request_t *r)
{
    if (!ngx_http_weir_login_is_throttled(r))
        ngx_http_finalize_request(r, ngx_http_weir_unauthorized(r, 0, NGX_HTTP_WEIR_BAD_TOKEN));
}

ngx_int_t ngx_http_weir_admit(ngx_http_request_t *r, ngx_uint_t operator_only, ngx_uint_t bearer)
{
    ngx_uint_t caller = ngx_http_weir_api_caller(r, bearer);
    ngx_int_t rc = ngx_http_weir_check_hold(r, caller);
    if (rc == NGX_BUSY) {
        if (ngx_http_weir_api_header(r, "Retry-After", "2") != NGX_OK)
            return NGX_ERROR;
        return ngx_http_weir_refuse(r, NGX_HTTP_SERVICE_UNAVAILABLE, "busy", NGX_HTTP_WEIR_LOGIN_BUSY);
    }
    if (rc != NGX_DECLINED)
        return rc;
    if ((caller & NGX_HTTP_WEIR_OPERATOR) == NGX_HTTP_WEIR_OPERATOR ||
        (caller & NGX_HTTP_WEIR_CALLER && !operator_only))
        return NGX_DECLINED;
    if (caller & NGX_HTTP_WEIR_CALLER) {
        ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
        if (conf->tokens == NULL)
            return ngx_http_weir_refuse(r, NGX_HTTP_FORBIDDEN, "operator_only",
                                        "this is for operators, and there are none: weir.yaml makes them with "
                                        "operator_tokens or open_operator in service.access, nginx.conf with "
                                        "weir_api_token … operator or weir_api_operator on");
        if (ngx_http_weir_api_header(r, "WWW-Authenticate", "Bearer realm=\"weir\", error=\"insufficient_scope\"") !=
            NGX_OK)
            return NGX_ERROR;
        return ngx_http_weir_refuse(r, NGX_HTTP_FORBIDDEN, "operator_only", "this needs a token of an operator");
    }
    if (caller != NGX_HTTP_WEIR_NO_TOKEN) {
        rc = ngx_http_weir_login_throttle(r, bearer ? ngx_http_weir_wrong_bearer : ngx_http_weir_wrong_token);
        if (rc != NGX_DECLINED)
            return rc;
    }
    return ngx_http_weir_unauthorized(r, bearer, caller);
}

/* ---- Routing ---- */

static enum weir__api_method ngx_http_weir_api_method(ngx_http_request_t *r)
{
    switch (r->method) {
    case NGX_HTTP_GET:
    case NGX_HTTP_HEAD:
        return WEIR__GET;
    case NGX_HTTP_POST:
        return WEIR__POST;
    case NGX_HTTP_PUT:
        return WEIR__PUT;
    case NGX_HTTP_DELETE:
        return WEIR__DELETE;
    default:
        return WEIR__OTHER_METHOD;
    }
}

/* The unparsed path after the location's own: keys may contain %2F or "//". */
static weir_text ngx_http_weir_api_path(ngx_http_request_t *r)
{
    ngx_http_core_loc_conf_t *clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    ngx_str_t path = r->unparsed_uri;
    u_char *query = ngx_strlchr(path.data, path.data + path.len, '?');
    if (query)
        path.len = (size_t)(query - path.data);
    if (path.len < clcf->name.len || ngx_memcmp(path.data, clcf->name.data, clcf->name.len) != 0)
        return (weir_text){"", 0};
    path.data += clcf->name.len;
    path.len -= clcf->name.len;
    if (path.len && path.data[0] == '/') { /* location /v1 rather than /v1/ */
        path.data++;
        path.len--;
    }
    return (weir_text){(const char *)path.data, path.len};
}

static ngx_int_t ngx_http_weir_api_allow(ngx_http_request_t *r, unsigned allowed)
{
    static const char *const lists[] = {[WEIR__GET] = "GET, HEAD",
                                        [WEIR__POST] = "POST",
                                        [WEIR__PUT | WEIR__DELETE] = "PUT, DELETE",
                                        [WEIR__GET | WEIR__DELETE] = "GET, HEAD, DELETE"};
    return ngx_http_weir_api_header(r, "Allow", lists[allowed]);
}

/* No content type, application/json, or a +json type. */
static ngx_uint_t ngx_http_weir_api_is_json(ngx_http_request_t *r)
{
    static u_char json[] = "application/json";
    const size_t len = sizeof(json) - 1;
    if (r->headers_in.content_type == NULL)
        return 1;
    ngx_str_t type = r->headers_in.content_type->value;
    u_char *end = ngx_strlchr(type.data, type.data + type.len, ';');
    type.len = end ? (size_t)(end - type.data) : type.len;
    while (type.len && type.data[type.len - 1] == ' ')
        type.len--;
    if (type.len == len && ngx_strncasecmp(type.data, json, len) == 0)
        return 1;
    return type.len > 5 && ngx_strncasecmp(type.data + type.len - 5, (u_char *)"+json", 5) == 0;
}

/* ---- The call ---- */

static ngx_uint_t ngx_http_weir_api_wants_status(ngx_http_request_t *r)
{
    ngx_str_t value;
    return r->args.len && ngx_http_arg(r, (u_char *)"status", 6, &value) == NGX_OK && value.len == 1 &&
           value.data[0] == '1';
}

/* A settlement or release that has begun is completed even if the client disconnects. */
static ngx_uint_t ngx_http_weir_api_goes_on(enum weir__api_action action)
{
    return action == WEIR__API_COMMIT || action == WEIR__API_CANCEL || action == WEIR__API_RELEASE ||
           action == WEIR__API_RENEW;
}

static ngx_int_t ngx_http_weir_api_reply(ngx_http_request_t *r, const struct weir__api_route *route,
                                         const struct weir__api_reply *reply)
{
    const struct weir__api *api = &ngx_http_weir_api_state;
    ngx_int_t rc = NGX_OK;
    if (api->failure)
        ngx_weir_log_limited(r->connection->log, api->failure,
                             *api->failed_rule ? "on_store_failure decides for rule"
                                               : "a request of the API cannot be decided",
                             api->failed_rule);
    if (reply->has_result && r == r->main && !ngx_http_weir_find(r) &&
        ngx_http_weir_keep(r, &reply->result, reply->outcomes, 0) == NULL)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (route->action == WEIR__API_NO_METHOD)
        rc = ngx_http_weir_api_allow(r, route->allowed);
    if (route->action == WEIR__API_STATE)
        rc = ngx_http_weir_api_header(r, "Cache-Control", "no-store");
    return rc == NGX_OK ? ngx_http_weir_api_send(r, reply) : rc;
}

/* With the complete body; again when the store has replied. Finalizes the request. */
static void ngx_http_weir_api_call(ngx_http_request_t *r, ngx_str_t *given)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    struct weir__api *api = &ngx_http_weir_api_state;
    weir_text body = {given->len ? (const char *)given->data : "", given->len};
    struct weir__api_route route;
    struct weir__api_reply reply;
    char room[REPLY_BYTES];
    ngx_uint_t store_replied = 0, status_wanted = ngx_http_weir_api_wants_status(r);
    ngx_weir_wait_t *wait = ngx_http_weir_wait(r, mcf, &store_replied);
    api->async = wait ? wait->async : NULL;
    api->store_replied = store_replied != 0;
    weir__api_find_route(ngx_http_weir_api_method(r), ngx_http_weir_api_path(r), &route);
    weir__buffer_borrow(&reply.out, room, sizeof(room));
    weir__api_run(api, &route, body, status_wanted, &reply);
    if (reply.needs_store) {
        ngx_int_t waited = ngx_http_weir_wait_begin(r, wait, ngx_http_weir_api_call, given);
        if (waited == NGX_AGAIN && ngx_http_weir_api_goes_on(route.action))
            r->read_event_handler = ngx_http_block_reading;
        if (waited == NGX_ERROR)
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        if (waited != NGX_OK) {
            weir__buffer_free(&reply.out);
            return;
        }
        api->store_replied = true;
        weir__api_run(api, &route, body, status_wanted, &reply);
    }
    ngx_http_weir_wait_over(wait);
    ngx_int_t rc = ngx_http_weir_api_reply(r, &route, &reply);
    weir__buffer_free(&reply.out);
    ngx_http_finalize_request(r, rc);
}

static void ngx_http_weir_api_with_body(ngx_http_request_t *r, ngx_str_t *body)
{
    if (body == NULL) {
        ngx_http_finalize_request(r, ngx_http_weir_refuse(r, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE, "too_large",
                                                          "the body is longer than 1 MiB"));
        return;
    }
    ngx_http_weir_api_call(r, body);
}

ngx_int_t ngx_http_weir_api_handler(ngx_http_request_t *r)
{
    struct weir__api_route route;
    weir__api_find_route(ngx_http_weir_api_method(r), ngx_http_weir_api_path(r), &route);
    ngx_int_t rc = ngx_http_weir_admit(r, route.operator_only, 1);
    if (rc != NGX_DECLINED)
        return rc;
    if (!route.takes_body) {
        ngx_str_t none = ngx_null_string;
        rc = ngx_http_discard_request_body(r);
        if (rc != NGX_OK)
            return rc;
        r->main->count++;
        ngx_http_weir_api_call(r, &none);
        return NGX_DONE;
    }
    if (!ngx_http_weir_api_is_json(r))
        return ngx_http_weir_refuse(r, NGX_HTTP_UNSUPPORTED_MEDIA_TYPE, "not_json",
                                    "the body must be JSON: Content-Type: application/json");
    if (r->headers_in.content_length_n > (off_t)WEIR__API_BODY_MAX) {
        r->keepalive = 0;
        return ngx_http_weir_refuse(r, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE, "too_large", "the body is longer than 1 MiB");
    }
    return ngx_http_weir_api_read_body(r, ngx_http_weir_api_with_body);
}
