/* $weir_decision and the other variables. Not found until the request is decided. */
#include "ngx_http_weir.h"

enum { DECISION = 0, RULE, KEY, LIMIT, REMAINING, RETRY_AFTER };
enum { QUEUE_RULE = 0, QUEUE_KEY, QUEUE_TIER, QUEUE_COST, QUEUE_BOUNDS };

static ngx_int_t ngx_http_weir_text_value(ngx_http_variable_value_t *v, const void *text, size_t len)
{
    v->data = (u_char *)text;
    v->len = (unsigned)len & 0x0fffffff;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = len == 0;
    return NGX_OK;
}

static ngx_int_t ngx_http_weir_number_value(ngx_http_request_t *r, ngx_http_variable_value_t *v, int64_t number)
{
    u_char *text = ngx_pnalloc(r->pool, NGX_INT64_LEN + 1);
    if (text == NULL)
        return NGX_ERROR;
    return ngx_http_weir_text_value(v, text, (size_t)(ngx_sprintf(text, "%L", number) - text));
}

static const char *ngx_http_weir_decision_name(const ngx_http_weir_ctx_t *ctx)
{
    if (ctx->failed)
        return "error";
    if (ctx->deferred)
        return "queue";
    switch (ctx->verdict) {
    case WEIR_ALLOW:
        return "allow";
    case WEIR_DELAY:
        return ctx->dry_run ? "delay_dry_run" : "delay";
    default:
        if (ctx->shed)
            return ctx->dry_run ? "shed_dry_run" : "shed";
        return ctx->dry_run ? "deny_dry_run" : "deny";
    }
}

static ngx_int_t ngx_http_weir_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    const ngx_http_weir_ctx_t *ctx = ngx_http_weir_find(r);
    const char *name;
    v->not_found = 1;
    if (ctx == NULL)
        return NGX_OK;
    switch (data) {
    case DECISION:
        name = ngx_http_weir_decision_name(ctx);
        return ngx_http_weir_text_value(v, name, ngx_strlen(name));
    case RULE:
        return ngx_http_weir_text_value(v, ctx->text, ctx->rule_len);
    case KEY:
        return ngx_http_weir_text_value(v, ctx->text + ctx->rule_len, ctx->key_len);
    case LIMIT:
        return ctx->limit < 0 ? NGX_OK : ngx_http_weir_number_value(r, v, ctx->limit);
    case REMAINING: /* negative under soft limits; 0 as in the header */
        return ctx->limit < 0 ? NGX_OK : ngx_http_weir_number_value(r, v, ngx_max(ctx->remaining, 0));
    case RETRY_AFTER:
        if (ctx->failed || ctx->verdict == WEIR_ALLOW || ctx->verdict == WEIR_DELAY || ctx->retry_after_ns < 0)
            return NGX_OK;
        return ngx_http_weir_number_value(r, v, ngx_http_weir_seconds(ctx->retry_after_ns));
    default:
        return NGX_OK;
    }
}

static ngx_int_t ngx_http_weir_hex_value(ngx_http_request_t *r, ngx_http_variable_value_t *v, const void *text,
                                         size_t len)
{
    u_char *hex = ngx_pnalloc(r->pool, 2 * len);
    if (hex == NULL)
        return NGX_ERROR;
    ngx_hex_dump(hex, (u_char *)text, len);
    return ngx_http_weir_text_value(v, hex, 2 * len);
}

/*
 * The key; ";headers" if the headers of the deferred request are those that the gateway would have sent; and the other
 * rules that the request takes from. One value, so that every location that forwards the key forwards all of it, and
 * that a client can neither omit nor forge a part.
 */
static ngx_int_t ngx_http_weir_queue_key(ngx_http_request_t *r, ngx_http_variable_value_t *v,
                                         const ngx_http_weir_deferred_t *deferred)
{
    const weir_deferral *deferral = &deferred->result.deferral;
    /* The location sets every header itself, as none of the client's is passed on. */
    ngx_uint_t set = r->upstream != NULL && r->upstream->conf != NULL && !r->upstream->conf->pass_request_headers;
    u_char *text = ngx_pnalloc(r->pool, 2 * deferral->key.len + sizeof(";headers;") + deferral->others.len);
    if (text == NULL)
        return NGX_ERROR;
    u_char *end = ngx_hex_dump(text, (u_char *)deferral->key.data, deferral->key.len);
    if (set || deferred->client_headers)
        end = ngx_cpymem(end, ";headers", sizeof(";headers") - 1);
    if (deferral->others.len) {
        *end++ = ';';
        end = ngx_cpymem(end, deferral->others.data, deferral->others.len);
    }
    return ngx_http_weir_text_value(v, text, (size_t)(end - text));
}

/* $weir_queue_...: what the agent needs to know of a deferred request. */
static ngx_int_t ngx_http_weir_queue_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    const ngx_http_weir_ctx_t *ctx = ngx_http_weir_find(r);
    v->not_found = 1;
    if (ctx == NULL || ctx->deferred == NULL)
        return NGX_OK;
    const weir_deferral *deferral = &ctx->deferred->result.deferral;
    u_char *text;
    switch (data) {
    case QUEUE_RULE:
        return ngx_http_weir_hex_value(r, v, deferral->rule, ngx_strlen(deferral->rule));
    case QUEUE_KEY:
        return ngx_http_weir_queue_key(r, v, ctx->deferred);
    case QUEUE_TIER:
        return ngx_http_weir_hex_value(r, v, deferral->tier.data, deferral->tier.len);
    case QUEUE_COST:
        return ngx_http_weir_number_value(r, v, deferral->cost);
    default:
        text = ngx_pnalloc(r->pool, 3 * NGX_INT64_LEN + 2);
        if (text == NULL)
            return NGX_ERROR;
        u_char *end = ngx_sprintf(text, "%L,%L,%L", deferral->max, deferral->max_bytes, deferral->max_age_ms);
        return ngx_http_weir_text_value(v, text, (size_t)(end - text));
    }
}

/* $weir_client: computed on each use, whether the request has been decided or not. */
static ngx_int_t ngx_http_weir_client_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    weir_query query = {.lookup = NULL};
    u_char *room = ngx_pnalloc(r->pool, NGX_INET6_ADDRSTRLEN);
    (void)data;
    if (room == NULL)
        return NGX_ERROR;
    ngx_http_weir_describe(r, &query);
    ngx_str_t client = ngx_http_weir_client(r, &query, room);
    return ngx_http_weir_text_value(v, client.data, client.len);
}

/* Host and port of an absolute URI in an HTTP/1 request line; empty if there is none. */
static ngx_str_t ngx_http_weir_line_host(ngx_http_request_t *r)
{
    if (r->http_version >= NGX_HTTP_VERSION_20 || r->host_start == NULL || r->host_end == NULL)
        return (ngx_str_t)ngx_null_string;
    u_char *end = r->host_end;
    if (*end == ':') /* nginx has parsed the line: the digits end within it */
        for (end++; *end >= '0' && *end <= '9'; end++)
            ;
    return (ngx_str_t){(size_t)(end - r->host_start), r->host_start};
}

/*
 * $weir_host: the Host header for upstreams, which is the host that the rules saw. A host in the request line has
 * precedence over the header. HTTP/1.0 clients may send none, but HTTP/1.1 upstreams require one.
 */
static ngx_int_t ngx_http_weir_host_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t host = ngx_http_weir_line_host(r->main);
    (void)data;
    if (host.len == 0)
        host = r->headers_in.host ? r->headers_in.host->value : r->headers_in.server;
    if (host.len == 0)
        host = (ngx_str_t)ngx_string("localhost");
    return ngx_http_weir_text_value(v, host.data, host.len);
}

ngx_int_t ngx_http_weir_add_variables(ngx_conf_t *cf)
{
    static ngx_http_variable_t all[] = {
        {ngx_string("weir_decision"), NULL, ngx_http_weir_variable, DECISION, NGX_HTTP_VAR_NOCACHEABLE, 0},
        {ngx_string("weir_rule"), NULL, ngx_http_weir_variable, RULE, NGX_HTTP_VAR_NOCACHEABLE, 0},
        {ngx_string("weir_key"), NULL, ngx_http_weir_variable, KEY, NGX_HTTP_VAR_NOCACHEABLE, 0},
        {ngx_string("weir_limit"), NULL, ngx_http_weir_variable, LIMIT, NGX_HTTP_VAR_NOCACHEABLE, 0},
        {ngx_string("weir_remaining"), NULL, ngx_http_weir_variable, REMAINING, NGX_HTTP_VAR_NOCACHEABLE, 0},
        {ngx_string("weir_retry_after"), NULL, ngx_http_weir_variable, RETRY_AFTER, NGX_HTTP_VAR_NOCACHEABLE, 0},
        {ngx_string("weir_queue_rule"), NULL, ngx_http_weir_queue_variable, QUEUE_RULE, NGX_HTTP_VAR_NOCACHEABLE, 0},
        {ngx_string("weir_queue_key"), NULL, ngx_http_weir_queue_variable, QUEUE_KEY, NGX_HTTP_VAR_NOCACHEABLE, 0},
        {ngx_string("weir_queue_tier"), NULL, ngx_http_weir_queue_variable, QUEUE_TIER, NGX_HTTP_VAR_NOCACHEABLE, 0},
        {ngx_string("weir_queue_cost"), NULL, ngx_http_weir_queue_variable, QUEUE_COST, NGX_HTTP_VAR_NOCACHEABLE, 0},
        {ngx_string("weir_queue_bounds"), NULL, ngx_http_weir_queue_variable, QUEUE_BOUNDS, NGX_HTTP_VAR_NOCACHEABLE,
         0},
        {ngx_string("weir_client"), NULL, ngx_http_weir_client_variable, 0, 0, 0},
        {ngx_string("weir_host"), NULL, ngx_http_weir_host_variable, 0, 0, 0}};
    for (ngx_uint_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        ngx_http_variable_t *variable = ngx_http_add_variable(cf, &all[i].name, all[i].flags);
        if (variable == NULL)
            return NGX_ERROR;
        variable->get_handler = all[i].get_handler;
        variable->data = all[i].data;
    }
    return NGX_OK;
}
