/*
 * What is kept of a decision. nginx forgets a module's context at each internal redirect, so it also hangs in the
 * list of things to clean up, which lasts as long as the request: no request is ever decided twice.
 */
#include "ngx_http_weir.h"

/* Room to put texts together before their length is known. */
#define TEXT_MAX (WEIR_NAME_MAX + WEIR_SHOWN_MAX + 3072)

/* Nothing to clean up; it marks our entry in the list. */
static void ngx_http_weir_mark(void *data)
{
    (void)data;
}

ngx_http_weir_ctx_t *ngx_http_weir_find(ngx_http_request_t *r)
{
    r = r->main;
    ngx_http_weir_ctx_t *ctx = ngx_http_get_module_ctx(r, ngx_http_weir_module);
    if (ctx || !(r->internal || r->filter_finalize))
        return ctx;
    for (ngx_pool_cleanup_t *cleanup = r->pool->cleanup; cleanup; cleanup = cleanup->next)
        if (cleanup->handler == ngx_http_weir_mark)
            return cleanup->data;
    return NULL;
}

static ngx_http_weir_ctx_t *ngx_http_weir_make(ngx_http_request_t *r, size_t text)
{
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_weir_ctx_t) + text);
    if (cleanup == NULL)
        return NULL;
    cleanup->handler = ngx_http_weir_mark;
    ngx_memzero(cleanup->data, sizeof(ngx_http_weir_ctx_t));
    ngx_http_set_ctx(r, cleanup->data, ngx_http_weir_module);
    return cleanup->data;
}

/*
 * A request that leaves before its turn gives back what it took: the same from every rule. Where they took different
 * amounts it is the smallest, so that none gets back more than it gave; where not all of them are known, nothing.
 */
static int64_t ngx_http_weir_to_give_back(const weir_answer *answer, const weir_outcome *outcomes)
{
    int64_t least = answer->by.cost;
    if (answer->outcomes < answer->matched)
        return 0;
    for (size_t i = 0; i < answer->outcomes; i++)
        least = outcomes[i].cost < least ? outcomes[i].cost : least;
    return least;
}

ngx_http_weir_ctx_t *ngx_http_weir_keep(ngx_http_request_t *r, const weir_answer *answer, const weir_outcome *outcomes,
                                        ngx_uint_t dry_run)
{
    u_char text[TEXT_MAX];
    size_t rule_len = ngx_strlen(answer->by.rule), key_len = ngx_strlen(answer->by.key), headers_len = 0;
    u_char *at = ngx_cpymem(text, answer->by.rule, rule_len);
    at = ngx_cpymem(at, answer->by.key, key_len);
    /* Clients must not notice a dry run. */
    if (!dry_run)
        headers_len = ngx_http_weir_pack_headers(answer, outcomes, at, (size_t)(text + sizeof(text) - at));

    ngx_http_weir_ctx_t *ctx = ngx_http_weir_make(r, rule_len + key_len + headers_len);
    if (ctx == NULL)
        return NULL;
    ctx->limit = answer->decision.limit;
    ctx->remaining = answer->decision.remaining;
    ctx->retry_after_ns = answer->decision.retry_after_ns;
    ctx->verdict = (uint8_t)answer->decision.verdict;
    ctx->dry_run = dry_run ? 1 : 0;
    ctx->rule_len = (uint16_t)rule_len;
    ctx->key_len = (uint16_t)key_len;
    ctx->headers_len = (uint16_t)headers_len;
    ctx->give_back = ngx_http_weir_to_give_back(answer, outcomes);
    ctx->taken = answer->now;
    ngx_memcpy(ctx->text, text, rule_len + key_len + headers_len);
    return ctx;
}

ngx_http_weir_ctx_t *ngx_http_weir_keep_failure(ngx_http_request_t *r)
{
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_make(r, 0);
    if (ctx) {
        ctx->limit = ctx->remaining = -1;
        ctx->failed = 1;
    }
    return ctx;
}
