/* Request bodies: in one piece, once nginx has read them; and reading them for the API. */
#include "ngx_http_weir.h"

/* Sums the length; copies the body if `to` is set, from a temporary file if nginx used one. */
static ngx_int_t ngx_http_weir_gather(ngx_http_request_t *r, u_char *to, size_t max, size_t *total)
{
    *total = 0;
    for (ngx_chain_t *link = r->request_body->bufs; link; link = link->next) {
        ngx_buf_t *buf = link->buf;
        off_t size = ngx_buf_size(buf);
        if (size < 0 || (size_t)size > max - *total)
            return NGX_DECLINED;
        if (to && ngx_buf_in_memory(buf)) {
            ngx_memcpy(to + *total, buf->pos, (size_t)size);
        } else if (to && buf->in_file) {
            if (ngx_read_file(buf->file, to + *total, (size_t)size, buf->file_pos) != (ssize_t)size)
                return NGX_ERROR;
        }
        *total += (size_t)size;
    }
    return NGX_OK;
}

ngx_int_t ngx_http_weir_body(ngx_http_request_t *r, size_t max, ngx_str_t *body)
{
    body->len = 0;
    body->data = (u_char *)"";
    if (r->request_body == NULL || r->request_body->bufs == NULL)
        return NGX_OK;
    ngx_int_t rc = ngx_http_weir_gather(r, NULL, max, &body->len);
    if (rc != NGX_OK || body->len == 0)
        return rc;
    ngx_chain_t *first = r->request_body->bufs;
    if (first->next == NULL && ngx_buf_in_memory(first->buf)) {
        body->data = first->buf->pos;
        return NGX_OK;
    }
    body->data = ngx_pnalloc(r->pool, body->len);
    if (body->data == NULL)
        return NGX_ERROR;
    return ngx_http_weir_gather(r, body->data, max, &body->len);
}

ngx_int_t ngx_http_weir_only_post(ngx_http_request_t *r)
{
    if (r->method == NGX_HTTP_POST)
        return NGX_OK;
    if (ngx_http_weir_push_header(r, "Allow", (ngx_str_t)ngx_string("POST")) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    return NGX_HTTP_NOT_ALLOWED;
}

/* ---- The API ---- */

/*
 * Reads the body of an API request into memory, of known length or chunked, up to the API's limit, without a temporary
 * file; a longer body gets the API's own error.
 */
#define FIRST_BYTES 4096

typedef struct {
    ngx_http_weir_api_body_pt *done;
    u_char *data;
    size_t len, size;
} ngx_http_weir_body_t;

static ngx_int_t ngx_http_weir_body_add(ngx_http_request_t *r, ngx_http_weir_body_t *body, ngx_buf_t *buf)
{
    size_t len = (size_t)(buf->last - buf->pos), size = body->size ? body->size : FIRST_BYTES;
    if (len == 0) /* ends the list */
        return NGX_OK;
    if (len > WEIR__API_BODY_MAX - body->len)
        return NGX_DECLINED;
    while (size < body->len + len)
        size *= 4;
    if (size > body->size) {
        u_char *more = ngx_palloc(r->pool, size);
        if (more == NULL)
            return NGX_ERROR;
        if (body->data) {
            ngx_memcpy(more, body->data, body->len);
            (void)ngx_pfree(r->pool, body->data);
        }
        body->data = more;
        body->size = size;
    }
    ngx_memcpy(body->data + body->len, buf->pos, len);
    body->len += len;
    buf->pos = buf->last;
    return NGX_OK;
}

/* Copies what has arrived. */
static ngx_int_t ngx_http_weir_body_take(ngx_http_request_t *r, ngx_http_weir_body_t *body)
{
    ngx_int_t rc = NGX_OK;
    for (ngx_chain_t *link = r->request_body->bufs; link && rc == NGX_OK; link = link->next)
        rc = ngx_http_weir_body_add(r, body, link->buf);
    r->request_body->bufs = NULL;
    return rc;
}

static void ngx_http_weir_body_read(ngx_http_request_t *r)
{
    ngx_http_weir_body_t *body = ngx_http_get_module_ctx(r, ngx_http_weir_filter_module);
    for (;;) {
        ngx_int_t rc = ngx_http_weir_body_take(r, body);
        if (rc == NGX_DECLINED) {
            r->keepalive = 0;
            body->done(r, NULL);
            return;
        }
        if (rc == NGX_ERROR) {
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
            return;
        }
        if (!r->reading_body) {
            ngx_str_t complete = {body->len, body->data};
            body->done(r, &complete);
            return;
        }
        rc = ngx_http_read_unbuffered_request_body(r);
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
    ngx_http_weir_body_t *body = ngx_http_get_module_ctx(r, ngx_http_weir_filter_module);
    ngx_chain_t *bufs = r->request_body ? r->request_body->bufs : NULL;
    /* Fast path: the complete body came with the header, in one buffer. */
    if (!r->reading_body && bufs && bufs->next == NULL && !bufs->buf->in_file) {
        ngx_str_t complete = {(size_t)(bufs->buf->last - bufs->buf->pos), bufs->buf->pos};
        body->done(r, complete.len <= WEIR__API_BODY_MAX ? &complete : NULL);
        return;
    }
    ngx_http_weir_body_read(r);
}

ngx_int_t ngx_http_weir_api_read_body(ngx_http_request_t *r, ngx_http_weir_api_body_pt *done)
{
    ngx_http_weir_body_t *body = ngx_pcalloc(r->pool, sizeof(ngx_http_weir_body_t));
    if (body == NULL)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    body->done = done;
    ngx_http_set_ctx(r, body, ngx_http_weir_filter_module);
    r->request_body_no_buffering = 1;
    ngx_int_t rc = ngx_http_read_client_request_body(r, ngx_http_weir_body_begin);
    return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : NGX_DONE;
}
