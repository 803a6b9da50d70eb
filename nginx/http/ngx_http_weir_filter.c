/*
 * Response headers. What the client is told is written down when the request is decided and added to whatever answer
 * goes out: an upstream's, a file, an error page, our own denial. Where the upstream speaks of limits of its own, the
 * gateway's word counts: two values of one of these headers would mean nothing to a client.
 */
#include "ngx_http_weir.h"

typedef struct {
    ngx_str_t name;
    u_char *lowcase;
} ngx_http_weir_name_t;

/* By enum weir_header. */
static const ngx_http_weir_name_t ngx_http_weir_names[WEIR_HEADER_COUNT] = {
    {ngx_string("X-RateLimit-Limit"), (u_char *)"x-ratelimit-limit"},
    {ngx_string("X-RateLimit-Remaining"), (u_char *)"x-ratelimit-remaining"},
    {ngx_string("X-RateLimit-Reset"), (u_char *)"x-ratelimit-reset"},
    {ngx_string("X-RateLimit-Retry-After"), (u_char *)"x-ratelimit-retry-after"},
    {ngx_string("RateLimit-Policy"), (u_char *)"ratelimit-policy"},
    {ngx_string("RateLimit"), (u_char *)"ratelimit"},
    {ngx_string("Retry-After"), (u_char *)"retry-after"},
    {ngx_string("Cache-Control"), (u_char *)"cache-control"},
};

static void ngx_http_weir_set_header(ngx_table_elt_t *header, ngx_str_t name, u_char *lowcase, ngx_str_t value)
{
    ngx_memzero(header, sizeof(*header));
    header->hash = 1;
    header->key = name;
    header->lowcase_key = lowcase;
    header->value = value;
}

ngx_int_t ngx_http_weir_push_header(ngx_http_request_t *r, ngx_str_t name, u_char *lowcase, ngx_str_t value)
{
    ngx_table_elt_t *header = ngx_list_push(&r->headers_out.headers);
    if (header == NULL)
        return NGX_ERROR;
    ngx_http_weir_set_header(header, name, lowcase, value);
    return NGX_OK;
}

/* True if it is one of those that we send. The first letter tells most others apart. */
static ngx_uint_t ngx_http_weir_is_ours(const ngx_http_weir_ctx_t *ctx, const ngx_str_t *name)
{
    u_char first = name->len ? name->data[0] | 0x20 : 0;
    if (first != 'x' && first != 'r' && first != 'c')
        return 0;
    for (ngx_uint_t i = 0; i < WEIR_HEADER_COUNT; i++)
        if (ctx->header_len[i] && ngx_http_weir_names[i].name.len == name->len &&
            ngx_strncasecmp(name->data, ngx_http_weir_names[i].name.data, name->len) == 0)
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

/* nginx's list has room for twenty from the start: then each goes where it belongs, without a call. */
static void ngx_http_weir_add_quickly(ngx_list_part_t *to, ngx_http_weir_ctx_t *ctx, u_char *at)
{
    ngx_table_elt_t *first = (ngx_table_elt_t *)to->elts + to->nelts, *header = first;
    for (ngx_uint_t i = 0; i < WEIR_HEADER_COUNT; i++) {
        size_t len = ctx->header_len[i];
        if (len == 0)
            continue;
        ngx_http_weir_set_header(header++, ngx_http_weir_names[i].name, ngx_http_weir_names[i].lowcase,
                                 (ngx_str_t){len, at});
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
        ngx_http_weir_add_quickly(list->last, ctx, at);
        return NGX_OK;
    }
    for (ngx_uint_t i = 0; i < WEIR_HEADER_COUNT; at += ctx->header_len[i++])
        if (ctx->header_len[i] &&
            ngx_http_weir_push_header(r, ngx_http_weir_names[i].name, ngx_http_weir_names[i].lowcase,
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
    ngx_http_core_main_conf_t *cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    /*
     * In any case: the chain of filters is the process's, not the configuration's. If this configuration is refused
     * later on, the workers that the master starts for the one before have the chain that was made here.
     */
    ngx_http_weir_next_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_weir_filter;
    if (mcf->engine == NULL || !mcf->precontent)
        return NGX_OK;
    ngx_http_handler_pt *handler = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (handler == NULL)
        return NGX_ERROR;
    *handler = ngx_http_weir_precontent;
    return NGX_OK;
}

static ngx_http_module_t ngx_http_weir_filter_module_ctx = {.postconfiguration = ngx_http_weir_filter_init,
                                                            .create_main_conf = ngx_http_weir_api_create_conf};

ngx_module_t ngx_http_weir_filter_module = {NGX_MODULE_V1, &ngx_http_weir_filter_module_ctx,
                                            NULL,          NGX_HTTP_MODULE,
                                            NULL,          NULL,
                                            NULL,          NULL,
                                            NULL,          NULL,
                                            NULL,          NGX_MODULE_V1_PADDING};
