/*
 * gRPC replies without a message: HTTP status 200 and grpc-status in the headers ("trailers only"). A denied call gets
 * RESOURCE_EXHAUSTED and grpc-retry-pushback-ms.
 */
#include "ngx_http_weir.h"

#define RESOURCE_EXHAUSTED 8
#define UNAVAILABLE        14 /* for shed calls, as 503 instead of 429 */

const char *ngx_http_weir_grpc_type(ngx_http_request_t *r)
{
    static const char *const types[] = {"application/grpc-web-text", "application/grpc-web", "application/grpc"};
    ngx_str_t type;
    if (r->headers_in.content_type == NULL)
        return NULL;
    type = r->headers_in.content_type->value;
    for (ngx_uint_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        size_t len = ngx_strlen(types[i]);
        if (type.len < len || ngx_strncasecmp(type.data, (u_char *)types[i], len) != 0)
            continue;
        if (type.len == len || type.data[len] == '+' || type.data[len] == ';' || type.data[len] == ' ')
            return types[i];
    }
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

ngx_int_t ngx_http_weir_grpc_status(ngx_http_request_t *r, ngx_uint_t code, const u_char *text, size_t len)
{
    ngx_str_t message, status;
    status.data = ngx_pnalloc(r->pool, NGX_INT_T_LEN);
    if (status.data == NULL || ngx_http_weir_grpc_message(r, text, len, &message) != NGX_OK)
        return NGX_ERROR;
    status.len = (size_t)(ngx_sprintf(status.data, "%ui", code) - status.data);
    if (ngx_http_weir_push_header(r, (ngx_str_t)ngx_string("grpc-status"), (u_char *)"grpc-status", status) != NGX_OK)
        return NGX_ERROR;
    return ngx_http_weir_push_header(r, (ngx_str_t)ngx_string("grpc-message"), (u_char *)"grpc-message", message);
}

ngx_int_t ngx_http_weir_grpc_send(ngx_http_request_t *r, const char *type)
{
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_type.data = (u_char *)type;
    r->headers_out.content_type.len = ngx_strlen(type);
    r->headers_out.content_type_len = r->headers_out.content_type.len;
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

/* ---- Denied calls ---- */

static ngx_int_t ngx_http_weir_grpc_denied(ngx_http_request_t *r, const weir_result *result)
{
    u_char text[96], *at;
    int64_t seconds = ngx_http_weir_seconds(result->decision.retry_after_ns);
    if (result->decided_by.reason == WEIR_BY_SHED) {
        at = ngx_snprintf(text, sizeof(text), "The service is busy. Please retry after %L second%s.", seconds,
                          seconds == 1 ? "" : "s");
        return ngx_http_weir_grpc_status(r, UNAVAILABLE, text, (size_t)(at - text));
    }
    if (result->message.len)
        return ngx_http_weir_grpc_status(r, RESOURCE_EXHAUSTED, (const u_char *)result->message.data,
                                         result->message.len);
    at = seconds ? ngx_snprintf(text, sizeof(text), "Too many requests. Please retry after %L second%s.", seconds,
                                seconds == 1 ? "" : "s")
                 : ngx_snprintf(text, sizeof(text), "Requests of this kind are not allowed.");
    return ngx_http_weir_grpc_status(r, RESOURCE_EXHAUSTED, text, (size_t)(at - text));
}

/* Milliseconds, rounded up; -1: the client must not retry. */
static ngx_int_t ngx_http_weir_grpc_pushback(ngx_http_request_t *r, const weir_result *result, ngx_str_t *pushback)
{
    int64_t wait = result->decision.retry_after_ns, ms = wait < 0 ? -1 : wait / 1000000 + (wait % 1000000 > 0);
    pushback->data = ngx_pnalloc(r->pool, NGX_INT64_LEN + 1);
    if (pushback->data == NULL)
        return NGX_ERROR;
    pushback->len = (size_t)(ngx_sprintf(pushback->data, "%L", ms) - pushback->data);
    return NGX_OK;
}

ngx_int_t ngx_http_weir_deny_grpc(ngx_http_request_t *r, const weir_result *result, const char *type)
{
    ngx_str_t pushback;
    if (ngx_http_weir_grpc_denied(r, result) != NGX_OK || ngx_http_weir_grpc_pushback(r, result, &pushback) != NGX_OK ||
        ngx_http_weir_push_header(r, (ngx_str_t)ngx_string("grpc-retry-pushback-ms"),
                                  (u_char *)"grpc-retry-pushback-ms", pushback) != NGX_OK)
        return NGX_ERROR;
    return ngx_http_weir_grpc_send(r, type);
}
