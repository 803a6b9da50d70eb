/*
 * Envoy's rate-limit service over gRPC and as JSON: content handlers. They read the complete call, run
 * src/services/rls, and send its reply, over gRPC with the status as a trailer.
 */
#include "ngx_http_weir.h"

#include "services/rls/rls.h"

#define FIRST_BLOCK 8192 /* bytes on the stack for a call: enough for a dozen descriptors */
#define GRPC_TYPE   "application/grpc"
#define JSON_TYPE   "application/json"

static bool ngx_http_weir_rls_is_grpc(ngx_http_request_t *r)
{
    weir_text type = ngx_http_weir_media_type(r);
    return weir__text_equal_nocase(type, WEIR__TEXT(GRPC_TYPE)) ||
           weir__text_equal_nocase(type, WEIR__TEXT(GRPC_TYPE "+proto"));
}

/* ---- Replies ---- */

static ngx_int_t ngx_http_weir_rls_fail(ngx_http_request_t *r, enum weir__grpc_code code, const char *message)
{
    if (ngx_http_weir_grpc_status(r, code, message, ngx_strlen(message)) != NGX_OK)
        return NGX_ERROR;
    return ngx_http_weir_grpc_send(r, GRPC_TYPE);
}

/* Without reading the call. */
static ngx_int_t ngx_http_weir_rls_refuse(ngx_http_request_t *r, enum weir__grpc_code code, const char *message)
{
    ngx_int_t rc = ngx_http_discard_request_body(r);
    return rc == NGX_OK ? ngx_http_weir_rls_fail(r, code, message) : rc;
}

/*
 * nginx sends headers and body by two system calls, each of which costs more than the rest of the call. While the write
 * event is not ready, nginx only queues them. The posted write event runs after the other calls that were read together
 * with this one, so one system call sends all their replies.
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
    ngx_http_weir_set_type(r, GRPC_TYPE);
    r->headers_out.content_length_n = -1;
    r->expect_trailers = 1;
    out.buf->last = ngx_cpymem(out.buf->pos, body, len);
    out.buf->last_buf = 1;
    out.buf->last_in_chain = 1;
    return ngx_http_weir_rls_queue(r, &out);
}

/* JSON: 200, or 429 over the limit, or 400 with the error. */
static ngx_int_t ngx_http_weir_rls_send_json(ngx_http_request_t *r, const struct weir__rls_reply *reply)
{
    if (reply->code == WEIR__GRPC_OK)
        r->headers_out.status = reply->over_limit ? NGX_HTTP_TOO_MANY_REQUESTS : NGX_HTTP_OK;
    else
        r->headers_out.status =
            reply->code == WEIR__GRPC_INTERNAL ? NGX_HTTP_INTERNAL_SERVER_ERROR : NGX_HTTP_BAD_REQUEST;
    return ngx_http_weir_send(r, reply->body, reply->len, JSON_TYPE);
}

static ngx_int_t ngx_http_weir_rls_reply(ngx_http_request_t *r, ngx_flag_t grpc, const struct weir__rls_reply *reply)
{
    if (!grpc)
        return ngx_http_weir_rls_send_json(r, reply);
    if (reply->body)
        return ngx_http_weir_rls_send(r, reply->body, reply->len);
    if (reply->compressed && ngx_http_weir_push_text(r, "grpc-accept-encoding", "identity") != NGX_OK)
        return NGX_ERROR;
    return ngx_http_weir_rls_fail(r, reply->code, reply->message);
}

/* ---- Calls: gRPC in locations of weir_rls, JSON in those of weir_rls_json ---- */

/* By the handler: an `if` block of the location has a configuration of its own. */
static ngx_flag_t ngx_http_weir_rls_by_grpc(const ngx_http_request_t *r)
{
    return r->content_handler == ngx_http_weir_rls_handler;
}

/* With the complete body; again when the store has replied. */
static void ngx_http_weir_rls_call(ngx_http_request_t *r, ngx_str_t *body)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_flag_t grpc = ngx_http_weir_rls_by_grpc(r);
    struct weir__rls service = {.engine = mcf->engine,
                                .headers = conf->rls_headers,
                                .metadata = conf->rls_metadata,
                                .charge_denied = conf->rls_count_denied,
                                .leaving = ngx_exiting || ngx_quit || ngx_terminate};
    struct weir__arena arena = {.bytes_max = WEIR__RLS_MEMORY_MAX};
    struct weir__rls_reply reply;
    ngx_uint_t store_replied;
    u_char first[FIRST_BLOCK];
    ngx_weir_wait_t *wait = ngx_http_weir_wait(r, mcf, &store_replied);
    service.async = wait ? wait->async : NULL;
    service.store_replied = store_replied != 0;
    weir__arena_borrow(&arena, first, FIRST_BLOCK);
    if (grpc)
        weir__rls_call(&service, &arena, (weir_text){(const char *)r->uri.data, r->uri.len}, body->data, body->len,
                       &reply);
    else
        weir__rls_json(&service, &arena, body->data, body->len, &reply);
    if (reply.needs_store) {
        weir__arena_free(&arena);
        if (ngx_http_weir_wait_begin(r, wait, ngx_http_weir_rls_call, body) == NGX_ERROR)
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }
    ngx_http_weir_wait_over(wait);
    if (reply.error)
        ngx_weir_log_limited(r->connection->log, reply.error,
                             *reply.rule ? "on_store_failure decides for rule" : "a call of weir_rls stays undecided",
                             reply.rule);
    ngx_int_t rc = ngx_http_weir_rls_reply(r, grpc, &reply);
    weir__arena_free(&arena);
    ngx_http_finalize_request(r, rc);
}

/*
 * The body in one piece, once nginx has read it: in place, or a copy, from a temporary file if nginx used one.
 * NGX_DECLINED: it has more than `max` bytes.
 */
static ngx_int_t ngx_http_weir_rls_body(ngx_http_request_t *r, size_t max, ngx_str_t *body)
{
    ngx_chain_t *first = r->request_body ? r->request_body->bufs : NULL;
    size_t total = 0;
    for (ngx_chain_t *link = first; link; link = link->next) {
        off_t size = ngx_buf_size(link->buf);
        if (size < 0 || (size_t)size > max - total)
            return NGX_DECLINED;
        total += (size_t)size;
    }
    *body = (ngx_str_t){total, total ? first->buf->pos : (u_char *)""};
    if (total == 0 || (first->next == NULL && ngx_buf_in_memory(first->buf)))
        return NGX_OK; /* in place */
    u_char *to = ngx_pnalloc(r->pool, total);
    body->data = to;
    if (to == NULL)
        return NGX_ERROR;
    for (ngx_chain_t *link = first; link; link = link->next) {
        size_t size = (size_t)ngx_buf_size(link->buf);
        if (ngx_buf_in_memory(link->buf))
            ngx_memcpy(to, link->buf->pos, size);
        else if (size && ngx_read_file(link->buf->file, to, size, link->buf->file_pos) != (ssize_t)size)
            return NGX_ERROR;
        to += size;
    }
    return NGX_OK;
}

static void ngx_http_weir_rls_body_read(ngx_http_request_t *r)
{
    ngx_flag_t grpc = ngx_http_weir_rls_by_grpc(r);
    ngx_str_t body;
    ngx_int_t rc = ngx_http_weir_rls_body(r, grpc ? WEIR__RLS_FRAME_MAX : WEIR__RLS_JSON_MAX, &body);
    if (rc == NGX_OK) {
        ngx_http_weir_rls_call(r, &body);
        return;
    }
    if (rc != NGX_DECLINED)
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;
    else if (!grpc)
        rc = NGX_HTTP_REQUEST_ENTITY_TOO_LARGE;
    else
        rc = ngx_http_weir_rls_fail(r, WEIR__GRPC_RESOURCE_EXHAUSTED, "the message is longer than 1048576 bytes");
    ngx_http_finalize_request(r, rc);
}

static ngx_int_t ngx_http_weir_rls_read(ngx_http_request_t *r)
{
    ngx_int_t rc = ngx_http_read_client_request_body(r, ngx_http_weir_rls_body_read);
    return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : NGX_DONE;
}

/* NGX_OK: a POST. Else what the content handler returns. */
static ngx_int_t ngx_http_weir_only_post(ngx_http_request_t *r)
{
    if (r->method == NGX_HTTP_POST)
        return NGX_OK;
    if (ngx_http_weir_push_text(r, "Allow", "POST") != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    return NGX_HTTP_NOT_ALLOWED;
}

static ngx_uint_t ngx_http_weir_rls_is_health(const ngx_http_request_t *r)
{
    static const u_char health[] = "/grpc.health.v1.Health/";
    return r->uri.len >= sizeof(health) - 1 && ngx_memcmp(r->uri.data, health, sizeof(health) - 1) == 0;
}

ngx_int_t ngx_http_weir_rls_handler(ngx_http_request_t *r)
{
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_int_t rc = ngx_http_weir_only_post(r);
    if (rc != NGX_OK)
        return rc;
    if (r->http_version < NGX_HTTP_VERSION_20)
        return NGX_HTTP_VERSION_NOT_SUPPORTED; /* no reliable trailers */
    if (!ngx_http_weir_rls_is_grpc(r))
        return NGX_HTTP_UNSUPPORTED_MEDIA_TYPE;
    if (conf->tokens == NULL || ngx_http_weir_rls_is_health(r)) /* health checks need no token */
        return ngx_http_weir_rls_read(r);
    ngx_uint_t caller = ngx_http_weir_api_caller(r, 1);
    rc = ngx_http_weir_login(r, caller);
    if (rc == NGX_BUSY)
        return ngx_http_weir_rls_refuse(r, WEIR__GRPC_UNAVAILABLE, NGX_HTTP_WEIR_LOGIN_BUSY);
    if (rc != NGX_DECLINED)
        return rc;
    if (!(caller & NGX_HTTP_WEIR_CALLER))
        return ngx_http_weir_rls_refuse(r, WEIR__GRPC_UNAUTHENTICATED,
                                        "a token is needed: metadata authorization: Bearer TOKEN");
    return ngx_http_weir_rls_read(r);
}

ngx_int_t ngx_http_weir_rls_json_handler(ngx_http_request_t *r)
{
    ngx_int_t rc = ngx_http_weir_only_post(r);
    if (rc != NGX_OK)
        return rc;
    rc = ngx_http_weir_admit(r, 0, 1);
    return rc == NGX_DECLINED ? ngx_http_weir_rls_read(r) : rc;
}

ngx_int_t ngx_http_weir_rls_refused(ngx_http_request_t *r)
{
    static const u_char text[] = "the message is longer than client_max_body_size allows";
    if (!ngx_http_weir_rls_by_grpc(r) || r != r->main || r->http_version < NGX_HTTP_VERSION_20 ||
        !ngx_http_weir_rls_is_grpc(r))
        return NGX_OK;
    ngx_http_clear_content_length(r);
    r->headers_out.content_length_n = -1;
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.status_line.len = 0;
    ngx_http_weir_set_type(r, GRPC_TYPE);
    r->header_only = 1; /* the error page is not sent */
    return ngx_http_weir_grpc_status(r, WEIR__GRPC_RESOURCE_EXHAUSTED, text, sizeof(text) - 1);
}
