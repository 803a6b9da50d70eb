/* Writing JSON. Keys and paths are whatever clients send: what is not UTF-8 must not make the line unreadable. */
#include "ngx_http_weir.h"

#include "base/json_writer.h"

#define ADD_MAX    1024
#define STRING_MAX 2048
#define BLOCK_MAX  16384

u_char *ngx_http_weir_json_string(u_char *to, u_char *last, const u_char *text, size_t len)
{
    if (last - to < 2)
        return to;
    return (u_char *)weir__json_put_string((char *)to, (size_t)(last - to), (weir_text){(const char *)text, len});
}

/* ---- A text that grows ---- */

static void ngx_http_weir_text_put(ngx_http_weir_text_t *text, const u_char *data, size_t len)
{
    if (text->failed)
        return;
    if (text->last == NULL || (size_t)(text->last->buf->end - text->last->buf->last) < len) {
        ngx_chain_t *link = ngx_alloc_chain_link(text->pool);
        ngx_buf_t *block = ngx_create_temp_buf(text->pool, BLOCK_MAX);
        if (link == NULL || block == NULL) {
            text->failed = 1;
            return;
        }
        link->buf = block;
        link->next = NULL;
        if (text->last)
            text->last->next = link;
        else
            text->first = link;
        text->last = link;
    }
    text->last->buf->last = ngx_cpymem(text->last->buf->last, data, len);
    text->length += (off_t)len;
}

void ngx_http_weir_text_add(ngx_http_weir_text_t *text, const char *format, ...)
{
    u_char room[ADD_MAX];
    va_list arguments;
    va_start(arguments, format);
    u_char *last = ngx_vslprintf(room, room + sizeof(room), format, arguments);
    va_end(arguments);
    ngx_http_weir_text_put(text, room, (size_t)(last - room));
}

void ngx_http_weir_text_add_string(ngx_http_weir_text_t *text, const void *string, size_t len)
{
    u_char room[STRING_MAX];
    ngx_http_weir_text_put(text, room,
                           (size_t)(ngx_http_weir_json_string(room, room + sizeof(room), string, len) - room));
}

ngx_int_t ngx_http_weir_text_send(ngx_http_request_t *r, ngx_str_t type,
                                  void (*write)(ngx_http_weir_text_t *text, ngx_http_weir_main_conf_t *mcf))
{
    ngx_http_weir_text_t text = {.pool = r->pool};
    if (!(r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD)))
        return NGX_HTTP_NOT_ALLOWED;
    ngx_int_t rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK)
        return rc;
    write(&text, ngx_http_get_module_main_conf(r, ngx_http_weir_module));
    if (text.failed || ngx_http_weir_push_header(r, (ngx_str_t)ngx_string("Cache-Control"), (u_char *)"cache-control",
                                                 (ngx_str_t)ngx_string("no-store")) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = text.length;
    r->headers_out.content_type = type;
    r->headers_out.content_type_len = type.len;
    rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only)
        return rc;
    text.last->buf->last_buf = r == r->main;
    text.last->buf->last_in_chain = 1;
    return ngx_http_output_filter(r, text.first);
}
