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

/* By enum weir_header. A packed header is its index here, the length in two bytes, and the value. */
static const ngx_http_weir_name_t ngx_http_weir_names[] = {
    {ngx_string("X-RateLimit-Limit"), (u_char *)"x-ratelimit-limit"},
    {ngx_string("X-RateLimit-Remaining"), (u_char *)"x-ratelimit-remaining"},
    {ngx_string("X-RateLimit-Reset"), (u_char *)"x-ratelimit-reset"},
    {ngx_string("X-RateLimit-Retry-After"), (u_char *)"x-ratelimit-retry-after"},
    {ngx_string("RateLimit-Policy"), (u_char *)"ratelimit-policy"},
    {ngx_string("RateLimit"), (u_char *)"ratelimit"},
    {ngx_string("Retry-After"), (u_char *)"retry-after"},
    {ngx_string("Cache-Control"), (u_char *)"cache-control"},
};
#define NAMES (sizeof(ngx_http_weir_names) / sizeof(ngx_http_weir_names[0]))

/* ---- Packing ---- */

typedef struct {
    u_char *at, *last;
} ngx_http_weir_packer_t;

static void ngx_http_weir_pack(void *context, enum weir_header header, const char *value, size_t len)
{
    ngx_http_weir_packer_t *to = context;
    if ((size_t)header >= NAMES || len > UINT16_MAX || (size_t)(to->last - to->at) < len + 3)
        return;
    *to->at++ = (u_char)header;
    *to->at++ = (u_char)(len & 0xff);
    *to->at++ = (u_char)(len >> 8);
    to->at = ngx_cpymem(to->at, value, len);
}

size_t ngx_http_weir_pack_headers(const weir_answer *answer, const weir_outcome *outcomes, u_char *to, size_t size)
{
    ngx_http_weir_packer_t packer = {to, to + size};
    weir_answer_headers(answer, outcomes, ngx_http_weir_pack, &packer);
    return (size_t)(packer.at - to);
}

/* ---- Adding them to an answer ---- */

ngx_int_t ngx_http_weir_push_header(ngx_http_request_t *r, ngx_str_t name, u_char *lowcase, ngx_str_t value)
{
    ngx_table_elt_t *header = ngx_list_push(&r->headers_out.headers);
    if (header == NULL)
        return NGX_ERROR;
    ngx_memzero(header, sizeof(*header));
    header->hash = 1;
    header->key = name;
    header->lowcase_key = lowcase;
    header->value = value;
    return NGX_OK;
}

static void ngx_http_weir_remove(ngx_http_request_t *r, const ngx_str_t *name)
{
    for (ngx_list_part_t *part = &r->headers_out.headers.part; part; part = part->next) {
        ngx_table_elt_t *header = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++)
            if (header[i].key.len == name->len && ngx_strncasecmp(header[i].key.data, name->data, name->len) == 0)
                header[i].hash = 0;
    }
}

static ngx_http_output_header_filter_pt ngx_http_weir_next_filter;

static ngx_int_t ngx_http_weir_filter(ngx_http_request_t *r)
{
    ngx_http_weir_ctx_t *ctx = r == r->main ? ngx_http_weir_find(r) : NULL;
    if (r->headers_out.status == NGX_HTTP_REQUEST_ENTITY_TOO_LARGE && ngx_http_weir_rls_refused(r) != NGX_OK)
        return NGX_ERROR;
    if (ctx == NULL)
        return ngx_http_weir_next_filter(r);
    u_char *at = ctx->text + ctx->rule_len + ctx->key_len, *last = at + ctx->headers_len;
    while (at < last) {
        const ngx_http_weir_name_t *name = &ngx_http_weir_names[*at];
        ngx_str_t value = {(size_t)at[1] | (size_t)at[2] << 8, at + 3};
        if (r->upstream || r->filter_finalize)
            ngx_http_weir_remove(r, &name->name);
        if (ngx_http_weir_push_header(r, name->name, name->lowcase, value) != NGX_OK)
            return NGX_ERROR;
        at += 3 + value.len;
    }
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
    if (mcf->engine == NULL)
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
