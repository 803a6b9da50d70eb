/*
 * Response headers. Their values are formatted when the request is decided, and added to whichever response is sent: an
 * upstream's, a file, an error page, a denial. Headers of the same names that an upstream sent are removed: a client
 * could not interpret two values.
 */
#include "ngx_http_weir.h"

/* By enum weir_header. */
static const ngx_str_t ngx_http_weir_names[WEIR_HEADER_COUNT] = {
    ngx_string("X-RateLimit-Limit"), ngx_string("X-RateLimit-Remaining"),
    ngx_string("X-RateLimit-Reset"), ngx_string("X-RateLimit-Retry-After"),
    ngx_string("RateLimit-Policy"),  ngx_string("RateLimit"),
    ngx_string("Retry-After"),       ngx_string("Cache-Control"),
};

static void ngx_http_weir_set_header(ngx_table_elt_t *header, ngx_str_t name, ngx_str_t value)
{
    ngx_memzero(header, sizeof(*header));
    header->hash = 1;
    header->key = name;
    header->value = value;
}

ngx_int_t ngx_http_weir_push_header(ngx_http_request_t *r, const char *name, ngx_str_t value)
{
    ngx_table_elt_t *header = ngx_list_push(&r->headers_out.headers);
    if (header == NULL)
        return NGX_ERROR;
    ngx_http_weir_set_header(header, (ngx_str_t){ngx_strlen(name), (u_char *)name}, value);
    return NGX_OK;
}

ngx_int_t ngx_http_weir_push_text(ngx_http_request_t *r, const char *name, const char *value)
{
    return ngx_http_weir_push_header(r, name, (ngx_str_t){ngx_strlen(value), (u_char *)value});
}

/* True if the decision has a header of this name. The first letter excludes most others. */
static ngx_uint_t ngx_http_weir_is_ours(const ngx_http_weir_ctx_t *ctx, const ngx_str_t *name)
{
    u_char first = name->len ? name->data[0] | 0x20 : 0;
    if (first != 'x' && first != 'r' && first != 'c')
        return 0;
    for (ngx_uint_t i = 0; i < WEIR_HEADER_COUNT; i++)
        if (ctx->header_len[i] && ngx_http_weir_names[i].len == name->len &&
            ngx_strncasecmp(name->data, ngx_http_weir_names[i].data, name->len) == 0)
            return 1;
    return 0;
}

static void ngx_http_weir_remove(ngx_http_request_t *r, const ngx_http_weir_ctx_t *ctx)
{
    for (ngx_list_part_t *part = &r->headers_out.headers.part; part; part = part->next) {
        ngx_table_elt_t *header = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++)
            if (ngx_http_weir_is_ours(ctx, &header[i].key))
                header[i].hash = 0;
    }
}

/* Fast path: nginx's list has room for all, as it is allocated with twenty elements. */
static void ngx_http_weir_add_in_place(ngx_list_part_t *to, const ngx_http_weir_ctx_t *ctx, u_char *at)
{
    ngx_table_elt_t *first = (ngx_table_elt_t *)to->elts + to->nelts, *header = first;
    for (ngx_uint_t i = 0; i < WEIR_HEADER_COUNT; i++) {
        size_t len = ctx->header_len[i];
        if (len == 0)
            continue;
        ngx_http_weir_set_header(header++, ngx_http_weir_names[i], (ngx_str_t){len, at});
        at += len;
    }
    to->nelts += (ngx_uint_t)(header - first);
}

static ngx_int_t ngx_http_weir_add(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx)
{
    ngx_list_t *list = &r->headers_out.headers;
    u_char *at = ctx->text + ctx->rule_len + ctx->key_len;
    if (r->upstream || r->filter_finalize)
        ngx_http_weir_remove(r, ctx);
    if (list->nalloc - list->last->nelts >= WEIR_HEADER_COUNT) {
        ngx_http_weir_add_in_place(list->last, ctx, at);
        return NGX_OK;
    }
    for (ngx_uint_t i = 0; i < WEIR_HEADER_COUNT; at += ctx->header_len[i++])
        if (ctx->header_len[i] && ngx_http_weir_push_header(r, (const char *)ngx_http_weir_names[i].data,
                                                            (ngx_str_t){ctx->header_len[i], at}) != NGX_OK)
            return NGX_ERROR;
    return NGX_OK;
}

static ngx_http_output_header_filter_pt ngx_http_weir_next_filter;

__attribute__((hot)) static ngx_int_t ngx_http_weir_filter(ngx_http_request_t *r)
{
    ngx_http_weir_ctx_t *ctx = r == r->main ? ngx_http_weir_find(r) : NULL;
    if (r->headers_out.status == NGX_HTTP_REQUEST_ENTITY_TOO_LARGE && ngx_http_weir_rls_refused(r) != NGX_OK)
        return NGX_ERROR;
    if (ctx && ctx->headers_len && ngx_http_weir_add(r, ctx) != NGX_OK)
        return NGX_ERROR;
    return ngx_http_weir_next_filter(r);
}

static ngx_int_t ngx_http_weir_filter_init(ngx_conf_t *cf)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    /*
     * Unconditionally: the chain of filters belongs to the process, not to the configuration. If this configuration is
     * rejected later, workers that the master starts for the previous one still have the chain that was made here.
     */
    ngx_http_weir_next_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_weir_filter;
    if (mcf->engine == NULL || !mcf->precontent)
        return NGX_OK;
    return ngx_http_weir_add_phase(cf, NGX_HTTP_PRECONTENT_PHASE, ngx_http_weir_precontent);
}

static ngx_http_module_t ngx_http_weir_filter_module_ctx = {.postconfiguration = ngx_http_weir_filter_init};

ngx_module_t ngx_http_weir_filter_module = {NGX_MODULE_V1, .ctx = &ngx_http_weir_filter_module_ctx,
                                            .type = NGX_HTTP_MODULE};
