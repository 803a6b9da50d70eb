/*
 * The stored decision of a request. nginx clears a module's context at each internal redirect, so the decision is also
 * in the pool's list of cleanups, which lasts as long as the request: no request is decided twice.
 */
#include "ngx_http_weir.h"
#include "engine/fast_result.h"

/*
 * Decisions come from a free list instead of the request's pool: a proxied request fills its pool almost to the end of
 * a page, and another page would cost as much as the decision. Delayed requests are the opposite case: there are many
 * at once, and their pools are half empty.
 */
typedef struct ngx_http_weir_spare_s {
    struct ngx_http_weir_spare_s *next;
} ngx_http_weir_spare_t;

#define SPARE_TEXT 376  /* bytes of text in one, enough for a few rules; longer ones are allocated from the pool */
#define SPARE_MAX  1024 /* length of the free list */

static ngx_http_weir_spare_t *ngx_http_weir_spare;
static ngx_uint_t ngx_http_weir_spares;

static ngx_http_weir_ctx_t *ngx_http_weir_take_spare(ngx_log_t *log)
{
    ngx_http_weir_spare_t *first = ngx_http_weir_spare;
    if (first == NULL)
        return ngx_alloc(sizeof(ngx_http_weir_ctx_t) + SPARE_TEXT, log);
    ngx_http_weir_spare = first->next;
    ngx_http_weir_spares--;
    return (ngx_http_weir_ctx_t *)first;
}

/* The request has ended. Also identifies the entry in the list of cleanups. */
__attribute__((hot)) static void ngx_http_weir_done(void *data)
{
    const ngx_http_weir_ctx_t *ctx = data;
    ngx_http_weir_spare_t *spare = data;
    if (ctx == NULL || !ctx->reused)
        return;
    if (ngx_http_weir_spares == SPARE_MAX) {
        ngx_free(data);
        return;
    }
    spare->next = ngx_http_weir_spare;
    ngx_http_weir_spare = spare;
    ngx_http_weir_spares++;
}

__attribute__((hot)) ngx_http_weir_ctx_t *ngx_http_weir_find(ngx_http_request_t *r)
{
    r = r->main;
    ngx_http_weir_ctx_t *ctx = ngx_http_get_module_ctx(r, ngx_http_weir_module);
    if (ctx || !(r->internal || r->filter_finalize))
        return ctx;
    for (ngx_pool_cleanup_t *cleanup = r->pool->cleanup; cleanup; cleanup = cleanup->next)
        if (cleanup->handler == ngx_http_weir_done)
            return cleanup->data;
    return NULL;
}

__attribute__((hot)) static ngx_http_weir_ctx_t *ngx_http_weir_make(ngx_http_request_t *r, size_t text,
                                                                    ngx_uint_t waits)
{
    ngx_uint_t reused = !waits && text <= SPARE_TEXT;
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, reused ? 0 : sizeof(ngx_http_weir_ctx_t) + text);
    if (cleanup == NULL)
        return NULL;
    cleanup->handler = ngx_http_weir_done;
    if (reused)
        cleanup->data = ngx_http_weir_take_spare(r->connection->log);
    ngx_http_weir_ctx_t *ctx = cleanup->data;
    if (ctx == NULL)
        return NULL;
    *ctx = (ngx_http_weir_ctx_t){.reused = reused ? 1 : 0}; /* small: without a call of memset */
    ngx_http_set_ctx(r, ctx, ngx_http_weir_module);
    return ctx;
}

/* Stores the rules that took nothing. NGX_ERROR: no memory. */
static ngx_int_t ngx_http_weir_store_untaken(ngx_pool_t *pool, const weir_result *result, const weir_outcome *outcomes,
                                             ngx_http_weir_ctx_t *ctx)
{
    size_t count = 0;
    for (size_t i = 0; i < result->outcomes; i++)
        count += !weir_outcome_took(&outcomes[i]);
    if (count == 0)
        return NGX_OK;
    ctx->not_taken = ngx_palloc(pool, sizeof(ngx_http_weir_untaken_t) + count * sizeof(uint64_t));
    if (ctx->not_taken == NULL)
        return NGX_ERROR;
    ctx->not_taken->count = 0;
    for (size_t i = 0; i < result->outcomes; i++)
        if (!weir_outcome_took(&outcomes[i]))
            ctx->not_taken->id[ctx->not_taken->count++] = weir_outcome_id(&outcomes[i]);
    return NGX_OK;
}

/*
 * The refund if the client leaves during the delay: one amount for all rules that took something, the smallest if they
 * took different ones, so that none is refunded more than it took; 0 if not all rules are known.
 */
static void ngx_http_weir_set_refund(ngx_pool_t *pool, const weir_result *result, const weir_outcome *outcomes,
                                     ngx_http_weir_ctx_t *ctx)
{
    int64_t least = 0;
    if (result->outcomes < result->matched || ngx_http_weir_store_untaken(pool, result, outcomes, ctx) != NGX_OK)
        return;
    for (size_t i = 0; i < result->outcomes; i++)
        if (weir_outcome_took(&outcomes[i]) && (least == 0 || outcomes[i].cost < least))
            least = outcomes[i].cost;
    ctx->refund = least;
}

ngx_http_weir_ctx_t *ngx_http_weir_keep(ngx_http_request_t *r, const weir_result *result, const weir_outcome *outcomes,
                                        ngx_uint_t dry_run)
{
    char values[WEIR_HEADER_ROOM];
    uint16_t lens[WEIR_HEADER_COUNT] = {0};
    size_t rule_len = ngx_strlen(result->decided_by.rule), key_len = result->decided_by.key_len, headers_len = 0;
    /* Clients must not notice a dry run. */
    if (!dry_run)
        headers_len = weir_result_header_values(result, outcomes, values, lens);

    ngx_http_weir_ctx_t *ctx =
        ngx_http_weir_make(r, rule_len + key_len + headers_len, result->decision.verdict == WEIR_DELAY);
    if (ctx == NULL)
        return NULL;
    ctx->limit = result->decision.verdict == WEIR_BLOCKED ? -1 : result->decision.limit; /* as in the headers */
    ctx->remaining = result->decision.remaining;
    ctx->retry_after_ns = result->decision.retry_after_ns;
    ctx->verdict = (uint8_t)result->decision.verdict;
    ctx->dry_run = dry_run ? 1 : 0;
    ctx->shed = result->decided_by.reason == WEIR_BY_SHED ? 1 : 0;
    ctx->rule_len = (uint16_t)rule_len;
    ctx->key_len = (uint16_t)key_len;
    ctx->headers_len = (uint16_t)headers_len;
    if (result->decision.verdict == WEIR_DELAY)
        ngx_http_weir_set_refund(r->pool, result, outcomes, ctx);
    ctx->taken = result->now;
    ngx_memcpy(ctx->header_len, lens, sizeof(lens));
    u_char *at = ngx_cpymem(ctx->text, result->decided_by.rule, rule_len);
    at = ngx_cpymem(at, result->decided_by.key, key_len);
    ngx_memcpy(at, values, headers_len);
    return ctx;
}

__attribute__((hot)) ngx_http_weir_ctx_t *
ngx_http_weir_keep_fast(ngx_http_request_t *r, const struct weir__fast_result *fast, ngx_uint_t dry_run)
{
    size_t len = (size_t)fast->rule_len + fast->key_len + fast->values_len;
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_make(r, len, 0);
    if (ctx == NULL)
        return NULL;
    ctx->limit = fast->limit;
    ctx->remaining = fast->remaining;
    ctx->verdict = WEIR_ALLOW;
    ctx->dry_run = dry_run ? 1 : 0;
    ctx->rule_len = fast->rule_len;
    ctx->key_len = fast->key_len;
    ctx->headers_len = fast->values_len;
    ngx_memcpy(ctx->header_len, fast->lens, sizeof(fast->lens));
    ngx_memcpy(ctx->text, fast->text, len);
    return ctx;
}

ngx_http_weir_ctx_t *ngx_http_weir_keep_failure(ngx_http_request_t *r)
{
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_make(r, 0, 0);
    if (ctx) {
        ctx->limit = ctx->remaining = -1;
        ctx->failed = 1;
    }
    return ctx;
}
