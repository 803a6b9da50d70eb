/*
 * Envoy's rate-limit service over gRPC and as JSON: content handlers. They read the complete call, run
 * src/services/rls, and send its reply, over gRPC with the status as a trailer.
 */
#include "ngx_http_weir.h"

#include "services/rls/rls.h"

#define FIRST_PIECE 8192 /* first chunk of a call's memory: enough for a dozen descriptors */
#define GRPC_TYPE   "application/grpc"
#define JSON_TYPE   "application/json"

/* application/grpc or application/grpc+proto, with or without parameters. */
static ngx_uint_t ngx_http_weir_rls_is_grpc(ngx_http_request_t *r)
{
    static const u_char proto[] = "+proto";
    if (r->headers_in.content_type == NULL)
        return 0;
    ngx_str_t type = r->headers_in.content_type->value;
    size_t at = sizeof(GRPC_TYPE) - 1;
    if (type.len < at || ngx_strncasecmp(type.data, (u_char *)GRPC_TYPE, at) != 0)
        return 0;
    if (type.len - at >= sizeof(proto) - 1 && ngx_strncasecmp(type.data + at, (u_char *)proto, sizeof(proto) - 1) == 0)
        at += sizeof(proto) - 1;
    return type.len == at || type.data[at] == ';' || type.data[at] == ' ';
}

/* ---- Replies ---- */

static ngx_int_t ngx_http_weir_rls_fail(ngx_http_request_t *r, const struct weir__rls_reply *reply)
{
    if (ngx_http_weir_grpc_status(r, reply->code, (const u_char *)reply->message, ngx_strlen(reply->message)) != NGX_OK)
        return NGX_ERROR;
    if (reply->compressed &&
        ngx_http_weir_push_header(r, (ngx_str_t)ngx_string("grpc-accept-encoding"), (u_char *)"grpc-accept-encoding",
                                  (ngx_str_t)ngx_string("identity")) != NGX_OK)
        return NGX_ERROR;
    return ngx_http_weir_grpc_send(r, GRPC_TYPE);
}

/*
 * nginx writes headers at once and the body with a second system call; each costs more than the rest of a call. While
 * the write event is not ready it only queues. The posted write event runs after the other calls that were read
 * together with this one, so one system call sends all their replies.
 */
static ngx_int_t ngx_http_weir_rls_queue(ngx_http_request_t *r, ngx_chain_t *out)
{
    ngx_event_t *write = r->stream->connection->connection->write;
    unsigned ready = write->ready;
    write->ready = 0;
    ngx_int_t rc = ngx_http_send_header(r);
    if (rc != NGX_ERROR && rc <= NGX_OK && !r->header_only)
        rc = ngx_http_output_filter(r, out);
    write->ready = ready;
    if (ready) {
        ngx_post_event(write, &ngx_posted_events);
    }
    return rc;
}

static ngx_int_t ngx_http_weir_rls_send(ngx_http_request_t *r, const u_char *body, size_t len)
{
    ngx_table_elt_t *trailer = ngx_list_push(&r->headers_out.trailers);
    ngx_chain_t out = {.buf = ngx_create_temp_buf(r->pool, len), .next = NULL};
    if (trailer == NULL || out.buf == NULL)
        return NGX_ERROR;
    ngx_memzero(trailer, sizeof(*trailer));
    trailer->hash = 1;
    ngx_str_set(&trailer->key, "grpc-status");
    ngx_str_set(&trailer->value, "0");

    r->headers_out.status = NGX_HTTP_OK;
    ngx_str_set(&r->headers_out.content_type, GRPC_TYPE);
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_length_n = -1;
    r->expect_trailers = 1;
    out.buf->last = ngx_cpymem(out.buf->pos, body, len);
    out.buf->last_buf = 1;
    out.buf->last_in_chain = 1;
    return ngx_http_weir_rls_queue(r, &out);
}

static void ngx_http_weir_rls_again(ngx_http_request_t *r, ngx_str_t *body);

/* NGX_BUSY: waits for the store. (NGX_AGAIN: the reply is being sent.) */
static ngx_int_t ngx_http_weir_rls_call(ngx_http_request_t *r, const ngx_str_t *body)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    struct weir__rls service = {.engine = mcf->engine,
                                .headers = conf->rls_headers,
                                .metadata = conf->rls_metadata,
                                .charge_denied = conf->rls_count_denied,
                                .leaving = ngx_exiting || ngx_quit || ngx_terminate};
    weir_text method = {(const char *)r->uri.data, r->uri.len};
    struct weir__rls_memory memory;
    struct weir__rls_reply reply;
    ngx_uint_t store_replied;
    u_char first[FIRST_PIECE];
    ngx_weir_wait_t *wait = ngx_http_weir_wait(r, mcf, &store_replied);
    service.async = wait ? wait->async : NULL;
    service.store_replied = store_replied != 0;
    weir__rls_memory_begin(&memory, first, sizeof(first));
    weir__rls_call(&service, &memory, method, body->data, body->len, &reply);
    if (reply.needs_store) {
        weir__rls_memory_end(&memory);
        ngx_int_t waited = ngx_http_weir_wait_begin(r, wait, ngx_http_weir_rls_again, body);
        if (waited != NGX_OK)
            return waited == NGX_AGAIN ? NGX_BUSY : NGX_HTTP_INTERNAL_SERVER_ERROR;
        service.store_replied = true;
        weir__rls_memory_begin(&memory, first, sizeof(first));
        weir__rls_call(&service, &memory, method, body->data, body->len, &reply);
    }
    ngx_http_weir_wait_over(wait);
    if (reply.error)
        ngx_weir_log_limited(r->connection->log, reply.error,
                             *reply.rule ? "on_store_failure decides for rule" : "a gRPC call stays undecided",
                             reply.rule);
    ngx_int_t rc = reply.body ? ngx_http_weir_rls_send(r, reply.body, reply.len) : ngx_http_weir_rls_fail(r, &reply);
    weir__rls_memory_end(&memory);
    return rc;
}

static void ngx_http_weir_rls_again(ngx_http_request_t *r, ngx_str_t *body)
{
    ngx_int_t rc = ngx_http_weir_rls_call(r, body);
    if (rc != NGX_BUSY)
        ngx_http_finalize_request(r, rc);
}

static void ngx_http_weir_rls_body_read(ngx_http_request_t *r)
{
    static const struct weir__rls_reply large = {.code = WEIR__GRPC_RESOURCE_EXHAUSTED,
                                                 .message = "the message is longer than 1048576 bytes"};
    ngx_str_t body;
    ngx_int_t rc = ngx_http_weir_body(r, WEIR__RLS_FRAME_MAX, &body);
    if (rc == NGX_OK) {
        ngx_http_weir_rls_again(r, &body);
        return;
    }
    if (rc == NGX_DECLINED)
        rc = ngx_http_weir_rls_fail(r, &large);
    else
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;
    ngx_http_finalize_request(r, rc);
}

/* By the location's tokens, if it has any. Health checks need none. */
static ngx_uint_t ngx_http_weir_rls_admits(ngx_http_request_t *r, ngx_uint_t *who)
{
    static const u_char health[] = "/grpc.health.v1.Health/";
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    if (conf->tokens == NULL ||
        (r->uri.len >= sizeof(health) - 1 && ngx_memcmp(r->uri.data, health, sizeof(health) - 1) == 0))
        return 1;
    *who = ngx_http_weir_api_who(r, 1);
    return (*who & NGX_HTTP_WEIR_CALLER) != 0;
}

static ngx_int_t ngx_http_weir_rls_unauthenticated(ngx_http_request_t *r)
{
    static const struct weir__rls_reply nobody = {.code = WEIR__GRPC_UNAUTHENTICATED,
                                                  .message = "a token is needed: metadata authorization: Bearer TOKEN"};
    ngx_int_t rc = ngx_http_discard_request_body(r);
    return rc == NGX_OK ? ngx_http_weir_rls_fail(r, &nobody) : rc;
}

static void ngx_http_weir_rls_wrong_token(ngx_http_request_t *r)
{
    if (!ngx_http_weir_login_is_throttled(r))
        ngx_http_finalize_request(r, ngx_http_weir_rls_unauthenticated(r));
}

static ngx_int_t ngx_http_weir_rls_handler(ngx_http_request_t *r)
{
    ngx_uint_t who = NGX_HTTP_WEIR_NOBODY;
    ngx_int_t rc = ngx_http_weir_only_post(r);
    if (rc != NGX_OK)
        return rc;
    if (r->http_version < NGX_HTTP_VERSION_20)
        return NGX_HTTP_VERSION_NOT_SUPPORTED; /* no reliable trailers */
    if (!ngx_http_weir_rls_is_grpc(r))
        return NGX_HTTP_UNSUPPORTED_MEDIA_TYPE;
    ngx_uint_t admits = ngx_http_weir_rls_admits(r, &who);
    rc = ngx_http_weir_check_hold(r, who);
    if (rc == NGX_BUSY) {
        static const struct weir__rls_reply busy = {.code = WEIR__GRPC_UNAVAILABLE,
                                                    .message = NGX_HTTP_WEIR_LOGIN_BUSY};
        rc = ngx_http_discard_request_body(r);
        return rc == NGX_OK ? ngx_http_weir_rls_fail(r, &busy) : rc;
    }
    if (rc != NGX_DECLINED)
        return rc;
    if (!admits) {
        rc =
            who == NGX_HTTP_WEIR_NOBODY ? NGX_DECLINED : ngx_http_weir_login_throttle(r, ngx_http_weir_rls_wrong_token);
        return rc == NGX_DECLINED ? ngx_http_weir_rls_unauthenticated(r) : rc;
    }
    rc = ngx_http_read_client_request_body(r, ngx_http_weir_rls_body_read);
    return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : NGX_DONE;
}

ngx_int_t ngx_http_weir_rls_refused(ngx_http_request_t *r)
{
    static const u_char text[] = "the message is longer than client_max_body_size allows";
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    if (!conf->rls || r != r->main || r->http_version < NGX_HTTP_VERSION_20 || !ngx_http_weir_rls_is_grpc(r))
        return NGX_OK;
    ngx_http_clear_content_length(r);
    r->headers_out.content_length_n = -1;
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.status_line.len = 0;
    ngx_str_set(&r->headers_out.content_type, GRPC_TYPE);
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->header_only = 1; /* the error page is not sent */
    return ngx_http_weir_grpc_status(r, WEIR__GRPC_RESOURCE_EXHAUSTED, text, sizeof(text) - 1);
}

/* `weir_rls` */
char *ngx_http_weir_rls(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    (void)cmd;
    ((ngx_http_weir_loc_conf_t *)conf)->rls = 1;
    clcf->handler = ngx_http_weir_rls_handler;
    ngx_http_weir_want(cf);
    return NGX_CONF_OK;
}

/* ---- JSON: 200, or 429 over the limit, or 400 with the error ---- */

static ngx_uint_t ngx_http_weir_rls_json_status(const struct weir__rls_reply *reply)
{
    if (reply->code == WEIR__GRPC_OK)
        return reply->over_limit ? NGX_HTTP_TOO_MANY_REQUESTS : NGX_HTTP_OK;
    return reply->code == WEIR__GRPC_INTERNAL ? NGX_HTTP_INTERNAL_SERVER_ERROR : NGX_HTTP_BAD_REQUEST;
}

static void ngx_http_weir_rls_json_again(ngx_http_request_t *r, ngx_str_t *body);

/* NGX_BUSY: waits for the store. */
static ngx_int_t ngx_http_weir_rls_json_call(ngx_http_request_t *r, const ngx_str_t *body)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    struct weir__rls service = {.engine = mcf->engine,
                                .headers = conf->rls_headers,
                                .metadata = conf->rls_metadata,
                                .charge_denied = conf->rls_count_denied};
    struct weir__rls_memory memory;
    struct weir__rls_reply reply;
    ngx_uint_t store_replied;
    u_char first[FIRST_PIECE];
    ngx_weir_wait_t *wait = ngx_http_weir_wait(r, mcf, &store_replied);
    service.async = wait ? wait->async : NULL;
    service.store_replied = store_replied != 0;
    weir__rls_memory_begin(&memory, first, sizeof(first));
    weir__rls_json(&service, &memory, body->data, body->len, &reply);
    if (reply.needs_store) {
        weir__rls_memory_end(&memory);
        ngx_int_t waited = ngx_http_weir_wait_begin(r, wait, ngx_http_weir_rls_json_again, body);
        if (waited != NGX_OK)
            return waited == NGX_AGAIN ? NGX_BUSY : NGX_HTTP_INTERNAL_SERVER_ERROR;
        service.store_replied = true;
        weir__rls_memory_begin(&memory, first, sizeof(first));
        weir__rls_json(&service, &memory, body->data, body->len, &reply);
    }
    ngx_http_weir_wait_over(wait);
    if (reply.error)
        ngx_weir_log_limited(r->connection->log, reply.error,
                             *reply.rule ? "on_store_failure decides for rule" : "a request stays undecided",
                             reply.rule);
    r->headers_out.status = ngx_http_weir_rls_json_status(&reply);
    ngx_int_t rc = ngx_http_weir_send(r, reply.body, reply.len, JSON_TYPE);
    weir__rls_memory_end(&memory);
    return rc;
}

static void ngx_http_weir_rls_json_again(ngx_http_request_t *r, ngx_str_t *body)
{
    ngx_int_t rc = ngx_http_weir_rls_json_call(r, body);
    if (rc != NGX_BUSY)
        ngx_http_finalize_request(r, rc);
}

static void ngx_http_weir_rls_json_body_read(ngx_http_request_t *r)
{
    ngx_str_t body;
    ngx_int_t rc = ngx_http_weir_body(r, WEIR__RLS_JSON_MAX, &body);
    if (rc == NGX_OK)
        ngx_http_weir_rls_json_again(r, &body);
    else
        ngx_http_finalize_request(r, rc == NGX_DECLINED ? NGX_HTTP_REQUEST_ENTITY_TOO_LARGE
                                                        : NGX_HTTP_INTERNAL_SERVER_ERROR);
}

static ngx_int_t ngx_http_weir_rls_json_handler(ngx_http_request_t *r)
{
    ngx_int_t rc = ngx_http_weir_only_post(r);
    if (rc != NGX_OK)
        return rc;
    rc = ngx_http_weir_admit(r, 0, 1);
    if (rc != NGX_DECLINED)
        return rc;
    rc = ngx_http_read_client_request_body(r, ngx_http_weir_rls_json_body_read);
    return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : NGX_DONE;
}

/* `weir_rls_json` */
char *ngx_http_weir_rls_json(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    (void)cmd;
    (void)conf;
    clcf->handler = ngx_http_weir_rls_json_handler;
    ngx_http_weir_want(cf);
    return NGX_CONF_OK;
}
