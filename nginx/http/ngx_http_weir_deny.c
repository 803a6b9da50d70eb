/* Replies to denied requests, and sending of replies in general. */
#include "ngx_http_weir.h"

#include "engine/response.h"
#include "services/rls/rls.h"

#define BODY_MAX 16384

int64_t ngx_http_weir_seconds(int64_t retry_after_ns)
{
    if (retry_after_ns < 0)
        return 0;
    int64_t seconds = retry_after_ns / WEIR_SECOND + (retry_after_ns % WEIR_SECOND > 0);
    return ngx_max(seconds, 1);
}

void ngx_http_weir_set_type(ngx_http_request_t *r, const char *type)
{
    r->headers_out.content_type.data = (u_char *)type;
    r->headers_out.content_type.len = ngx_strlen(type);
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;
}

ngx_int_t ngx_http_weir_send(ngx_http_request_t *r, const void *body, size_t len, const char *type)
{
    ngx_chain_t out = {.next = NULL};
    r->headers_out.content_length_n = (off_t)len;
    if (len)
        ngx_http_weir_set_type(r, type);
    ngx_int_t rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only)
        return rc;
    out.buf = ngx_create_temp_buf(r->pool, len + 1);
    if (out.buf == NULL)
        return NGX_ERROR;
    out.buf->last = ngx_cpymem(out.buf->pos, body, len);
    out.buf->last_buf = r == r->main;
    out.buf->last_in_chain = 1;
    if (len == 0) { /* nginx takes an empty buffer only if it is marked as special */
        out.buf->temporary = 0;
        out.buf->sync = r != r->main;
    }
    return ngx_http_output_filter(r, &out);
}

/* ---- gRPC replies without a message: HTTP status 200 and grpc-status in the headers ("trailers only") ---- */

const char *ngx_http_weir_grpc_type(ngx_http_request_t *r)
{
    static const char *const types[] = {"application/grpc-web-text", "application/grpc-web", "application/grpc"};
    weir_text type = ngx_http_weir_media_type(r), name = weir__text_cut(&type, '+'); /* without +proto, +json … */
    for (ngx_uint_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (weir__text_equal_nocase(name, weir__text_of(types[i])))
            return types[i];
    return NULL;
}

/* Percent-encodes a grpc-message: all but printable ASCII, and '%'. */
static ngx_int_t ngx_http_weir_grpc_message(ngx_http_request_t *r, const u_char *text, size_t len, ngx_str_t *message)
{
    static const u_char digits[] = "0123456789ABCDEF";
    u_char *at = ngx_pnalloc(r->pool, 3 * len);
    if (at == NULL)
        return NGX_ERROR;
    message->data = at;
    for (size_t i = 0; i < len; i++) {
        if (text[i] >= 0x20 && text[i] < 0x7f && text[i] != '%') {
            *at++ = text[i];
            continue;
        }
        *at++ = '%';
        *at++ = digits[text[i] >> 4];
        *at++ = digits[text[i] & 15];
    }
    message->len = (size_t)(at - message->data);
    return NGX_OK;
}

ngx_int_t ngx_http_weir_push_number(ngx_http_request_t *r, const char *name, int64_t number)
{
    u_char *text = ngx_pnalloc(r->pool, NGX_INT64_LEN + 1);
    if (text == NULL)
        return NGX_ERROR;
    size_t len = (size_t)(ngx_sprintf(text, "%L", number) - text);
    return ngx_http_weir_push_header(r, name, (ngx_str_t){len, text});
}

ngx_int_t ngx_http_weir_grpc_status(ngx_http_request_t *r, ngx_uint_t code, const void *text, size_t len)
{
    ngx_str_t message;
    if (ngx_http_weir_grpc_message(r, text, len, &message) != NGX_OK ||
        ngx_http_weir_push_number(r, "grpc-status", (int64_t)code) != NGX_OK)
        return NGX_ERROR;
    return ngx_http_weir_push_header(r, "grpc-message", message);
}

ngx_int_t ngx_http_weir_grpc_send(ngx_http_request_t *r, const char *type)
{
    r->headers_out.status = NGX_HTTP_OK;
    ngx_http_weir_set_type(r, type);
    if (r->http_version >= NGX_HTTP_VERSION_20) {
        r->header_only = 1; /* the headers end the stream */
        r->headers_out.content_length_n = -1;
        return ngx_http_send_header(r);
    }
    r->headers_out.content_length_n = 0;
    ngx_int_t rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only)
        return rc;
    return ngx_http_send_special(r, NGX_HTTP_LAST);
}

static ngx_int_t ngx_http_weir_grpc_denied(ngx_http_request_t *r, const weir_result *result)
{
    static const ngx_uint_t codes[] = {[WEIR__DENIED_BY_LIMIT] = WEIR__GRPC_RESOURCE_EXHAUSTED,
                                       [WEIR__DENIED_BY_BLOCK] = WEIR__GRPC_PERMISSION_DENIED,
                                       [WEIR__DENIED_MISSING] = WEIR__GRPC_INVALID_ARGUMENT,
                                       [WEIR__DENIED_FAILURE] = WEIR__GRPC_UNAVAILABLE,
                                       [WEIR__DENIED_SHED] = WEIR__GRPC_UNAVAILABLE};
    char text[WEIR__MESSAGE_ROOM];
    ngx_uint_t code = codes[weir__denial_kind_of(result->decided_by.reason, result->decided_by.decision.verdict)];
    weir_text message = weir__result_message(result, text);
    if (result->missing[0] && result->status == NGX_HTTP_UNAUTHORIZED)
        code = WEIR__GRPC_UNAUTHENTICATED;
    return ngx_http_weir_grpc_status(r, code, message.data, message.len);
}

static ngx_int_t ngx_http_weir_deny_grpc(ngx_http_request_t *r, const weir_result *result, const char *type)
{
    /* grpc-retry-pushback-ms: rounded up; -1: the client must not retry */
    int64_t wait = result->decision.retry_after_ns, ms = wait < 0 ? -1 : wait / 1000000 + (wait % 1000000 > 0);
    if (ngx_http_weir_grpc_denied(r, result) != NGX_OK ||
        ngx_http_weir_push_number(r, "grpc-retry-pushback-ms", ms) != NGX_OK)
        return NGX_ERROR;
    return ngx_http_weir_grpc_send(r, type);
}

/* ---- Which body ---- */

/* True if the parameters of a media type contain q=0, 0.0 and so on: not acceptable. */
static bool ngx_http_weir_refused(weir_text parameters)
{
    while (parameters.len) {
        weir_text one = weir__text_trim(weir__text_cut(&parameters, ';'));
        if (one.len > 2 && weir__lower(one.data[0]) == 'q' && one.data[1] == '=')
            return strspn(one.data + 2, "0.") >= one.len - 2;
    }
    return false;
}

static bool ngx_http_weir_accepts_problem(ngx_http_request_t *r)
{
    ngx_str_t accept;
    ngx_int_t rc = ngx_http_weir_header(r, "accept", 6, &accept);
    if (rc != NGX_OK && rc != NGX_DONE)
        return false;
    weir_text list = {(const char *)accept.data, accept.len};
    while (list.len) {
        weir_text parameters = weir__text_cut(&list, ',');
        weir_text type = weir__text_trim(weir__text_cut(&parameters, ';'));
        if (weir__text_equal_nocase(type, WEIR__TEXT("application/problem+json")))
            return !ngx_http_weir_refused(parameters);
    }
    return false;
}

/* ---- Sending ---- */

/* True if error_page is configured for this status; the headers are sent with that page. */
static ngx_uint_t ngx_http_weir_has_page(ngx_http_request_t *r, ngx_int_t status)
{
    ngx_http_core_loc_conf_t *clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    if (clcf->error_pages == NULL || r->error_page || r->uri_changes == 0)
        return 0;
    ngx_http_err_page_t *page = clcf->error_pages->elts;
    for (ngx_uint_t i = 0; i < clcf->error_pages->nelts; i++)
        if (page[i].status == status)
            return 1;
    return 0;
}

ngx_int_t ngx_http_weir_deny_plain(ngx_http_request_t *r, const weir_result *result)
{
    char body[BODY_MAX];
    const char *type = "";
    size_t len = weir_result_body(result, ngx_http_weir_accepts_problem(r), body, sizeof(body), &type);
    r->headers_out.status = (ngx_uint_t)result->status;
    return ngx_http_weir_send(r, body, len, type);
}

ngx_int_t ngx_http_weir_challenge(ngx_http_request_t *r, const weir_result *result)
{
    const char *challenge = weir_result_challenge(result);
    return challenge ? ngx_http_weir_push_text(r, "WWW-Authenticate", challenge) : NGX_OK;
}

/* True if the client waits for 100 Continue before it sends its body. */
static ngx_uint_t ngx_http_weir_holds_body(ngx_http_request_t *r)
{
    return r->headers_in.expect && !r->expect_tested && r->http_version == NGX_HTTP_VERSION_11 &&
           r->header_in->pos == r->header_in->last;
}

ngx_int_t ngx_http_weir_deny(ngx_http_request_t *r, const weir_result *result)
{
    const char *grpc = ngx_http_weir_grpc_type(r);
    r->err_status = 0; /* clears the error that led here */
    if (grpc == NULL && ngx_http_weir_challenge(r, result) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (grpc == NULL && ngx_http_weir_has_page(r, result->status))
        return result->status;
    /* No 100 Continue: the body is not needed. The client may send it anyway, so the connection is closed. */
    if (ngx_http_weir_holds_body(r)) {
        r->expect_tested = 1;
        r->keepalive = 0;
    }
    /* Discards what the client is still sending, so that the connection can be reused. */
    if (ngx_http_discard_request_body(r) != NGX_OK)
        r->keepalive = 0;
    ngx_http_finalize_request(r, grpc ? ngx_http_weir_deny_grpc(r, result, grpc) : ngx_http_weir_deny_plain(r, result));
    return NGX_DONE;
}
