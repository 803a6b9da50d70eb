/*
 * Reading what a client of the API sends, as it comes: of known length or not, in one piece or byte by byte. It never
 * takes more than the API accepts, and no file: what is too long is told so in the API's own words.
 */
#include "ngx_http_weir.h"

#define FIRST_BYTES 4096

typedef struct {
    ngx_http_weir_api_body_pt *done;
    u_char *data;
    size_t len, size;
} ngx_http_weir_body_t;

static ngx_int_t ngx_http_weir_body_add(ngx_http_request_t *r, ngx_http_weir_body_t *body, ngx_buf_t *buf)
{
    size_t len = (size_t)(buf->last - buf->pos), size = body->size ? body->size : FIRST_BYTES;
    if (len == 0) /* a mark of the end */
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

/* Takes what has come. */
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
            ngx_str_t whole = {body->len, body->data};
            body->done(r, &whole);
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
    /* Mostly all of it came with the header, and lies there in one piece. */
    if (!r->reading_body && bufs && bufs->next == NULL && !bufs->buf->in_file) {
        ngx_str_t whole = {(size_t)(bufs->buf->last - bufs->buf->pos), bufs->buf->pos};
        body->done(r, whole.len <= WEIR__API_BODY_MAX ? &whole : NULL);
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
