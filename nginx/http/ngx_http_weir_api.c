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
    ngx_conf_init_value(mcf->reservations_max, WEIR__RESERVATIONS_DEFAULT);
    if (mcf->reservations_max == 0)
        return NGX_OK;
    mcf->reservations = ngx_pcalloc(cf->pool, sizeof(struct weir__reservations));
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, sizeof(struct weir__mapped));
    if (cleanup == NULL || mcf->reservations == NULL)
        return NGX_ERROR;
    char path[NGX_WEIR_PATH_MAX], why[256];
    struct weir__mapped *mapped = cleanup->data;
    uint32_t count = (uint32_t)mcf->reservations_max;
    struct weir__file_spec spec = {.path = ngx_weir_sidecar(mcf, ".reservations", path),
                                   .bytes = weir__reservations_bytes(count),
                                   .mode = mcf->segment_mode,
                                   .owner = weir__segment_owner(mcf->segment),
                                   .disabled = "reservations expire only in the worker that made them (.reservations)",
                                   .format = weir__reservations_format,
                                   .plan = &count,
                                   .check = weir__reservations_check};
    ngx_set_errno(0);
    int error = weir__mapped_open(&spec, mapped);
    if (error == 0) {
        cleanup->handler = ngx_http_weir_reservations_close;
        error = weir__reservations_attach(mcf->reservations, mapped->memory, mapped->bytes);
    }
    if (error) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, error == WEIR_ESYS ? ngx_errno : 0,
                      "\"%s\" for weir_api_reservations: %s (%s)", path,
                      weir__mapped_why(path, error, why, sizeof(why)), weir_error_name(error));
        return NGX_ERROR;
    }
    if (mcf->reservations->count != count)
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"%s\" exists and keeps its room for %uD reservations; remove it for %uD: those in it are lost "
                      "then",
                      path, mcf->reservations->count, count);
    return NGX_OK;
}

/* Every worker scans; the reservation's marker in the segment makes sure that only one refunds it. */
static void ngx_http_weir_expire(ngx_event_t *event)
{
    struct weir__api *api = &ngx_http_weir_api_state;
    ngx_http_weir_main_conf_t *mcf = event->data;
    if (ngx_exiting)
        return;
    ngx_weir_wait_t *wait = ngx_weir_wait_new(mcf->store);
    api->async = wait ? wait->async : NULL;
    api->store_replied = false;
    (void)weir__api_expire(api);
    ngx_weir_wait_detached(wait);
    ngx_add_timer(event, SCAN_MS);
}

ngx_int_t ngx_http_weir_api_start(ngx_cycle_t *cycle, ngx_http_weir_main_conf_t *mcf)
{
    int error = weir__api_open(&ngx_http_weir_api_state, mcf->engine, mcf->reservations);
    if (error) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, 0, "weir_api: %s (%s)", weir_strerror(error), weir_error_name(error));
        return NGX_ERROR;
    }
    if (mcf->reservations)
        ngx_weir_start_timer(&ngx_http_weir_expire_event, ngx_http_weir_expire, mcf, SCAN_MS);
    return NGX_OK;
}

/* ---- Replies ---- */

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

/* ---- Routing ---- */

static enum weir__api_method ngx_http_weir_api_method(ngx_http_request_t *r)
{
    return r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD) ? WEIR__GET
           : r->method & NGX_HTTP_POST                ? WEIR__POST
           : r->method & NGX_HTTP_PUT                 ? WEIR__PUT
           : r->method & NGX_HTTP_DELETE              ? WEIR__DELETE
                                                      : WEIR__OTHER_METHOD;
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
    return ngx_http_weir_push_text(r, "Allow", lists[allowed]);
}

/* No content type, application/json, or a +json type. */
static bool ngx_http_weir_api_is_json(ngx_http_request_t *r)
{
    weir_text type = ngx_http_weir_media_type(r), json = WEIR__TEXT("+json");
    if (type.data == NULL || weir__text_equal_nocase(type, WEIR__TEXT("application/json")))
        return true;
    return type.len > json.len && weir__text_equal_nocase((weir_text){type.data + type.len - json.len, json.len}, json);
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
        (ngx_http_weir_keep(r, &reply->result, reply->outcomes, 0) == NULL ||
         ngx_http_weir_challenge(r, &reply->result) != NGX_OK))
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (route->action == WEIR__API_NO_METHOD)
        rc = ngx_http_weir_api_allow(r, route->allowed);
    if (route->action == WEIR__API_STATE)
        rc = ngx_http_weir_push_text(r, "Cache-Control", "no-store");
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
    ngx_uint_t store_replied = 0;
    ngx_weir_wait_t *wait = ngx_http_weir_wait(r, mcf, &store_replied);
    api->async = wait ? wait->async : NULL;
    api->store_replied = store_replied != 0;
    weir__api_find_route(ngx_http_weir_api_method(r), ngx_http_weir_api_path(r), &route);
    weir__buffer_borrow(&reply.out, room, sizeof(room));
    weir__api_run(api, &route, body, ngx_http_weir_api_wants_status(r), &reply);
    if (reply.needs_store) {
        weir__buffer_free(&reply.out);
        if (ngx_http_weir_wait_begin(r, wait, ngx_http_weir_api_call, given) == NGX_ERROR)
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        else if (ngx_http_weir_api_goes_on(route.action))
            r->read_event_handler = ngx_http_block_reading;
        return;
    }
    ngx_http_weir_wait_over(wait);
    ngx_int_t rc = ngx_http_weir_api_reply(r, &route, &reply);
    weir__buffer_free(&reply.out);
    ngx_http_finalize_request(r, rc);
}

/*
 * ---- The body ----
 *
 * It is read into memory, of known length or chunked, up to the API's limit, without a temporary file; a longer body
 * gets the API's own error. The buffer is in the request's context of the filter module, which has no other use for it.
 */

static ngx_int_t ngx_http_weir_api_too_large(ngx_http_request_t *r)
{
    r->keepalive = 0;
    return ngx_http_weir_refuse(r, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE, "too_large", "the body is longer than 1 MiB");
}

static void ngx_http_weir_body_free(void *data)
{
    weir__buffer_free(data);
}

static void ngx_http_weir_body_read(ngx_http_request_t *r)
{
    struct weir__buffer *body = ngx_http_get_module_ctx(r, ngx_http_weir_filter_module);
    for (;;) {
        for (ngx_chain_t *link = r->request_body->bufs; link; link = link->next) {
            size_t len = (size_t)(link->buf->last - link->buf->pos);
            if (len > WEIR__API_BODY_MAX - body->len) {
                ngx_http_finalize_request(r, ngx_http_weir_api_too_large(r));
                return;
            }
            weir__buffer_add(body, link->buf->pos, len);
            link->buf->pos = link->buf->last;
        }
        r->request_body->bufs = NULL;
        if (body->failed) {
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
            return;
        }
        if (!r->reading_body) {
            ngx_str_t complete = {body->len, (u_char *)body->data};
            ngx_http_weir_api_call(r, &complete);
            return;
        }
        ngx_int_t rc = ngx_http_read_unbuffered_request_body(r);
        if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
            ngx_http_finalize_request(r, rc);
            return;
        }
        if (rc == NGX_AGAIN && r->request_body->bufs == NULL) {
            r->read_event_handler = ngx_http_weir_body_read;
            return;
        }
    }
}

static void ngx_http_weir_body_begin(ngx_http_request_t *r)
{
    ngx_chain_t *bufs = r->request_body ? r->request_body->bufs : NULL;
    /* Fast path: the complete body came with the header, in one buffer. */
    if (!r->reading_body && bufs && bufs->next == NULL && !bufs->buf->in_file) {
        ngx_str_t complete = {(size_t)(bufs->buf->last - bufs->buf->pos), bufs->buf->pos};
        if (complete.len > WEIR__API_BODY_MAX)
            ngx_http_finalize_request(r, ngx_http_weir_api_too_large(r));
        else
            ngx_http_weir_api_call(r, &complete);
        return;
    }
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, sizeof(struct weir__buffer));
    if (cleanup == NULL) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }
    ngx_memzero(cleanup->data, sizeof(struct weir__buffer));
    cleanup->handler = ngx_http_weir_body_free;
    ngx_http_set_ctx(r, cleanup->data, ngx_http_weir_filter_module);
    ngx_http_weir_body_read(r);
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
    if (r->headers_in.content_length_n > (off_t)WEIR__API_BODY_MAX)
        return ngx_http_weir_api_too_large(r);
    r->request_body_no_buffering = 1;
    rc = ngx_http_read_client_request_body(r, ngx_http_weir_body_begin);
    return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : NGX_DONE;
}
