/* The body of a request, as the service needs it: whole and in one piece. */
#include "ngx_http_weir.h"

/* Sums up; if there is room, writes it. A body that nginx put into a file is read from there. */
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
    if (ngx_http_weir_push_header(r, (ngx_str_t)ngx_string("Allow"), (u_char *)"allow",
                                  (ngx_str_t)ngx_string("POST")) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    return NGX_HTTP_NOT_ALLOWED;
}
