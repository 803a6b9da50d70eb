/* The phase handlers: one decision for each request of a client, and what follows from it. */
#include "ngx_http_weir.h"
#include "engine/fast_result.h"

#define OUTCOMES_MAX 16    /* rules that RateLimit-Policy lists; its header has no room for many more */
#define TEXTS_MAX    12800 /* of a rule's own message and body, a key and a tier, and the other rules of a request */
#define COST_MAX     INT64_C(4294967295)
#define KEY_ROOM     (6 * WEIR_KEY_SHOWN_MAX + 16) /* of a key as JSON, every byte escaped */

/* The cost that weir_cost gives, if it gives one: digits. What is more than any limit stays so and never fits. */
static ngx_uint_t ngx_http_weir_read_cost(const ngx_str_t *text, int64_t *cost)
{
    int64_t sum = 0;
    for (size_t i = 0; i < text->len; i++) {
        if (text->data[i] < '0' || text->data[i] > '9')
            return 0;
        sum = ngx_min(sum * 10 + (text->data[i] - '0'), COST_MAX);
    }
    *cost = sum;
    return text->len > 0;
}

static void ngx_http_weir_set_cost(ngx_http_request_t *r, ngx_http_weir_loc_conf_t *conf, weir_query *query)
{
    ngx_str_t text;
    if (conf->cost && ngx_http_complex_value(r, conf->cost, &text) == NGX_OK) {
        ngx_http_weir_trim(&text); /* of a header, perhaps */
        query->has_cost = ngx_http_weir_read_cost(&text, &query->cost);
    }
}

static void ngx_http_weir_metrics_failures(ngx_http_request_t *r, const weir_result *result,
                                           const weir_outcome *outcomes)
{
    for (size_t i = 0; i < result->outcomes; i++)
        if (outcomes[i].reason == WEIR_BY_FAILURE || outcomes[i].error == WEIR_EFULL)
            ngx_weir_log_limited(r->connection->log, outcomes[i].error, "on_store_failure decides for rule",
                                 outcomes[i].rule);
}

/* A line for those who have the error log tell everything. Keys are what clients send: a line's end in one is no end.
 */
static void ngx_http_weir_metrics_info(ngx_http_request_t *r, const weir_result *result, ngx_uint_t dry_run)
{
    u_char key[KEY_ROOM], *last = key + sizeof(key);
    if (r->connection->log->log_level < NGX_LOG_INFO)
        return;
    last = ngx_http_weir_json_string(key, last, (const u_char *)result->decided_by.key, result->decided_by.key_len);
    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0, "weir: %s%s by rule \"%s\", key %*s",
                  result->decided_by.reason == WEIR_BY_SHED ? "shed" : "denied", dry_run ? " (dry run)" : "",
                  result->decided_by.rule, (size_t)(last - key), key);
}

void ngx_http_weir_log_denied_line(ngx_http_request_t *r, ngx_http_weir_loc_conf_t *conf, const weir_query *query,
                                   const weir_result *result, ngx_uint_t dry_run)
{
    ngx_http_weir_metrics_info(r, result, dry_run);
    if (conf->log)
        ngx_http_weir_log(r, conf->log, query, result, dry_run);
}

/* Denied, or delayed: what the location says about it. */
static ngx_int_t ngx_http_weir_enforce(ngx_http_request_t *r, ngx_http_weir_loc_conf_t *conf, ngx_http_weir_ctx_t *ctx,
                                       const weir_query *query, const weir_result *result)
{
    if (weir_passes(&result->decision)) {
        if (result->decision.verdict == WEIR_DELAY && !ctx->dry_run && result->decision.delay_ns > 0)
            return ngx_http_weir_delay(r, ctx, result->decision.delay_ns);
        return NGX_DECLINED;
    }
    if (result->on_limit == WEIR_ON_LIMIT_QUEUE && ngx_http_weir_defer(r, conf, ctx, result) == NGX_DONE)
        return NGX_DONE;
    ngx_http_weir_log_denied_line(r, conf, query, result, ctx->dry_run);
    return ctx->dry_run ? NGX_DECLINED : ngx_http_weir_deny(r, result);
}

__attribute__((hot)) static ngx_int_t ngx_http_weir_decide(ngx_http_request_t *r, ngx_http_weir_loc_conf_t *conf)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    weir_outcome outcomes[OUTCOMES_MAX];
    char texts[TEXTS_MAX];
    weir_query query = {.outcomes = outcomes, .outcomes_max = OUTCOMES_MAX, .text = texts, .text_size = sizeof(texts)};
    static struct weir__second reset; /* a worker has one thread */
    struct weir__fast_result fast;
    weir_result result;
    weir_permits permits;
    permits.count = 0;
    fast.reset = &reset;
    fast.text = texts;                                  /* either that, or the texts of a denial */
    fast.headers = conf->mode != NGX_HTTP_WEIR_DRY_RUN; /* clients must not notice a dry run */
    query.permits = &permits;
    ngx_http_weir_describe(r, &query);
    ngx_http_weir_set_cost(r, conf, &query);

    ngx_weir_wait_t *sent = NULL;
    ngx_int_t rc = mcf->store ? ngx_http_weir_store_request_in_phase(r, mcf, &query, &sent) : NGX_OK;
    if (rc != NGX_OK)
        return rc == NGX_AGAIN ? NGX_AGAIN : NGX_HTTP_INTERNAL_SERVER_ERROR;
    int error = weir__check_fast(mcf->engine, &query, &result, &fast);
    ngx_http_weir_wait_over(sent);
    if (error) {
        ngx_weir_log_limited(r->connection->log, error, "a request passes undecided", "");
        return ngx_http_weir_keep_failure(r) ? NGX_DECLINED : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    if (fast.filled) {
        ngx_http_weir_ctx_t *kept = ngx_http_weir_keep_fast(r, &fast, conf->mode == NGX_HTTP_WEIR_DRY_RUN);
        if (kept == NULL)
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        ngx_http_weir_load_begin(mcf, kept);
        return NGX_DECLINED;
    }
    if (permits.count && ngx_http_weir_hold(r, mcf, &permits) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    ngx_http_weir_metrics_failures(r, &result, outcomes);
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_keep(r, &result, outcomes, conf->mode == NGX_HTTP_WEIR_DRY_RUN);
    if (ctx == NULL)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    rc = ngx_http_weir_enforce(r, conf, ctx, &query, &result);
    if (rc == NGX_DECLINED)
        ngx_http_weir_load_begin(mcf, ctx);
    return rc;
}

/*
 * Subrequests are part of a request that is decided as a whole. Where an error page or an internal redirect leads is
 * no excuse: what has not been decided so far is decided there.
 */
__attribute__((hot)) static ngx_int_t ngx_http_weir_phase(ngx_http_request_t *r, ngx_uint_t phase)
{
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    if (conf->mode == NGX_HTTP_WEIR_OFF || conf->phase != phase || r != r->main || ngx_http_weir_find(r))
        return NGX_DECLINED;
    return ngx_http_weir_decide(r, conf);
}

__attribute__((hot)) ngx_int_t ngx_http_weir_preaccess(ngx_http_request_t *r)
{
    return ngx_http_weir_phase(r, NGX_HTTP_WEIR_PREACCESS);
}

ngx_int_t ngx_http_weir_precontent(ngx_http_request_t *r)
{
    return ngx_http_weir_phase(r, NGX_HTTP_WEIR_PRECONTENT);
}
