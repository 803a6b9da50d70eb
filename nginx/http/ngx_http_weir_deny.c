/* The answer to a denied request. */
#include "ngx_http_weir.h"

#define BODY_MAX 16384

int64_t ngx_http_weir_seconds(int64_t retry_after_ns)
{
    if (retry_after_ns < 0)
        return 0;
    int64_t seconds = retry_after_ns / WEIR_SECOND + (retry_after_ns % WEIR_SECOND > 0);
    return ngx_max(seconds, 1);
}

/* ---- Which body ---- */

/* True if the text ends here or goes on with something that ends a media type's name. */
static ngx_uint_t ngx_http_weir_ends_name(const u_char *at, const u_char *last)
{
    return at == last || *at == ',' || *at == ';' || *at == ' ' || *at == '\t';
}

/* True if the parameters up to the next comma say q=0, 0.0 and so on: not acceptable. */
static ngx_uint_t ngx_http_weir_refused(const u_char *at, const u_char *last)
{
    for (; at < last && *at != ','; at++) {
        if ((*at != 'q' && *at != 'Q') || last - at < 3 || at[1] != '=' || (at[-1] != ';' && at[-1] != ' '))
            continue;
        for (at += 2; at < last && (*at == '0' || *at == '.'); at++)
            ;
        return at == last || *at == ',' || *at == ';' || *at == ' ';
    }
    return 0;
}

static ngx_uint_t ngx_http_weir_accepts_problem(ngx_http_request_t *r)
{
    static u_char problem[] = "application/problem+json";
    const size_t len = sizeof(problem) - 1;
    ngx_str_t accept;
    ngx_int_t rc = ngx_http_weir_header(r, "accept", 6, &accept);
    if (rc != NGX_OK && rc != NGX_DONE)
        return 0;
    const u_char *last = accept.data + accept.len;
    for (u_char *at = accept.data; (size_t)(last - at) >= len; at++)
        if (ngx_strncasecmp(at, problem, len) == 0 && ngx_http_weir_ends_name(at + len, last))
            return !ngx_http_weir_refused(at + len, last);
    return 0;
}

/* ---- Sending ---- */

/* True if the configuration has a page of its own for this status; the headers go with it. */
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

ngx_int_t ngx_http_weir_send(ngx_http_request_t *r, const u_char *body, size_t len, const char *type)
{
    ngx_chain_t out = {.next = NULL};
    r->headers_out.content_length_n = (off_t)len;
    if (len) {
        r->headers_out.content_type.data = (u_char *)type;
        r->headers_out.content_type.len = ngx_strlen(type);
        r->headers_out.content_type_len = r->headers_out.content_type.len;
        r->headers_out.content_type_lowcase = NULL;
    }
    ngx_int_t rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only)
        return rc;
    out.buf = ngx_create_temp_buf(r->pool, len + 1);
    if (out.buf == NULL)
        return NGX_ERROR;
    out.buf->last = ngx_cpymem(out.buf->pos, body, len);
    out.buf->last_buf = 1;
    out.buf->last_in_chain = 1;
    if (len == 0) { /* a buffer of memory must not be empty */
        out.buf->temporary = 0;
    }
    return ngx_http_output_filter(r, &out);
}

ngx_int_t ngx_http_weir_deny_plain(ngx_http_request_t *r, const weir_result *result)
{
    char body[BODY_MAX];
    const char *type = "";
    size_t len = weir_result_body(result, ngx_http_weir_accepts_problem(r), body, sizeof(body), &type);
    r->headers_out.status = (ngx_uint_t)result->status;
    return ngx_http_weir_send(r, (u_char *)body, len, type);
}

/* True if the client waits for a word before it sends its body. */
static ngx_uint_t ngx_http_weir_holds_body(ngx_http_request_t *r)
{
    return r->headers_in.expect && !r->expect_tested && r->http_version == NGX_HTTP_VERSION_11 &&
           r->header_in->pos == r->header_in->last;
}

ngx_int_t ngx_http_weir_deny(ngx_http_request_t *r, const weir_result *result)
{
    const char *grpc = ngx_http_weir_grpc_type(r);
    r->err_status = 0; /* of an error that led here */
    if (grpc == NULL && ngx_http_weir_has_page(r, result->status))
        return result->status;
    /* It is not asked for a body that nobody wants. It may send it all the same, so nothing can follow. */
    if (ngx_http_weir_holds_body(r)) {
        r->expect_tested = 1;
        r->keepalive = 0;
    }
    /* What the client is still sending is read and forgotten: the connection stays good for the next request. */
    if (ngx_http_discard_request_body(r) != NGX_OK)
        r->keepalive = 0;
    ngx_http_finalize_request(r, grpc ? ngx_http_weir_deny_grpc(r, result, grpc) : ngx_http_weir_deny_plain(r, result));
    return NGX_DONE;
}
