/* The phase handlers: one decision for each client request, and its enforcement. */
#include "ngx_http_weir.h"
#include "engine/fast_result.h"

#define OUTCOMES_MAX 16    /* rules that RateLimit-Policy lists; the header has no room for many more */
#define TEXTS_MAX    12800 /* bytes of a rule's message and body, a key, a tier, and the other rules of a request */
#define COST_MAX     INT64_C(4294967295)
#define KEY_ROOM     (6 * WEIR_KEY_SHOWN_MAX + 16) /* bytes of a key as JSON, every byte escaped */

/* ---- Delayed requests: they leave in the order of the departure times of the segment, across all workers ---- */

static void ngx_http_weir_go_on(ngx_http_request_t *r)
{
    if (ngx_http_weir_is_paused(r))
        return;
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_find(r);
    if (ctx) {
        ctx->waiting = 0;
        ngx_http_weir_load_begin(ngx_http_get_module_main_conf(r, ngx_http_weir_module), ctx);
    }
    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}

/* Identifies the active rule set of this worker. */
static uint32_t ngx_http_weir_active_rules(weir *engine)
{
    weir_engine_stats stats;
    return weir_engine_stats_read(engine, &stats) == 0 ? (uint32_t)stats.reloads : 0;
}

/*
 * The request ends. If it is still delayed, its units are refunded, unless the rules have changed meanwhile: then other
 * rules or keys might match, and a counter would be refunded that it did not take from.
 */
static void ngx_http_weir_leave(void *data)
{
    ngx_http_request_t *r = data;
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_find(r);
    if (ctx == NULL || !ctx->waiting || ctx->refund <= 0)
        return;
    ctx->waiting = 0;
    if (ctx->rules != ngx_http_weir_active_rules(mcf->engine))
        return;
    weir_query query = {.has_cost = true, .cost = -ctx->refund, .now = ctx->taken};
    weir_result result;
    if (ctx->not_taken) {
        query.not_taken = ctx->not_taken->id;
        query.not_taken_count = ctx->not_taken->count;
    }
    ngx_http_weir_describe(r, &query);
    int error = ngx_http_weir_check_detached(mcf, &query, &result);
    if (error)
        ngx_weir_log_limited(r->connection->log, error, "the units of a delayed request could not be refunded", "");
}

static ngx_int_t ngx_http_weir_delay(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx, int64_t delay_ns)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_http_cleanup_t *cleanup = ngx_http_cleanup_add(r, 0);
    if (cleanup == NULL)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    cleanup->handler = ngx_http_weir_leave;
    cleanup->data = r;
    ctx->waiting = 1;
    ctx->rules = ngx_http_weir_active_rules(mcf->engine);
    ngx_msec_t ms = (ngx_msec_t)(delay_ns / 1000000 + (delay_ns % 1000000 > 0));
    return ngx_http_weir_pause(r, ms, ngx_http_weir_go_on) == NGX_OK ? NGX_AGAIN : NGX_HTTP_INTERNAL_SERVER_ERROR;
}

/* ---- Decisions ---- */

/* Parses the value of weir_cost, digits; clamped, as a larger cost never fits either. False: not a number. */
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
        ngx_http_weir_trim(&text); /* it may be that of a header */
        query->has_cost = ngx_http_weir_read_cost(&text, &query->cost);
    }
}

static void ngx_http_weir_log_failures(ngx_http_request_t *r, const weir_result *result, const weir_outcome *outcomes)
{
    for (size_t i = 0; i < result->outcomes; i++)
        if (outcomes[i].reason == WEIR_BY_FAILURE || outcomes[i].error == WEIR_EFULL)
            ngx_weir_log_limited(r->connection->log, outcomes[i].error, "on_store_failure decides for rule",
                                 outcomes[i].rule);
}

void ngx_http_weir_log_denied_line(ngx_http_request_t *r, ngx_http_weir_loc_conf_t *conf, const weir_query *query,
                                   const weir_result *result, ngx_uint_t dry_run)
{
    u_char key[KEY_ROOM], *last;
    if (conf->log)
        ngx_http_weir_log(r, conf->log, query, result, dry_run);
    if (r->connection->log->log_level < NGX_LOG_INFO)
        return;
    /* as JSON: a key comes from the client, and may contain line feeds */
    last = ngx_http_weir_json_string(key, key + sizeof(key), result->decided_by.key, result->decided_by.key_len);
    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0, "weir: %s%s by rule \"%s\", key %*s",
                  result->decided_by.reason == WEIR_BY_SHED ? "shed" : "denied", dry_run ? " (dry run)" : "",
                  result->decided_by.rule, (size_t)(last - key), key);
}

/* Delays, defers or denies the request, if its result demands it. */
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
    fast.text = texts;                                  /* shared: a denial has no fast-path result */
    fast.headers = conf->mode != NGX_HTTP_WEIR_DRY_RUN; /* clients must not notice a dry run */
    query.permits = &permits;
    ngx_http_weir_describe(r, &query);
    ngx_http_weir_set_cost(r, conf, &query);

    ngx_weir_wait_t *sent = NULL;
    ngx_int_t rc = NGX_OK;
    /* Where the store is not needed, as mostly under leased rules, nothing is made for a wait. */
    int error = mcf->store && !ngx_http_weir_is_pending(r) ? weir__check_here(mcf->engine, &query, &result, &fast) : 0;
    if (error == 0 && mcf->store)
        rc = ngx_http_weir_store_request(r, mcf, &query, NULL, &sent);
    if (rc != NGX_OK)
        return rc == NGX_AGAIN ? NGX_AGAIN : NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (error == 0)
        error = weir__check_fast(mcf->engine, &query, &result, &fast);
    ngx_http_weir_wait_over(sent);
    if (error < 0) {
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
    ngx_http_weir_log_failures(r, &result, outcomes);
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_keep(r, &result, outcomes, conf->mode == NGX_HTTP_WEIR_DRY_RUN);
    if (ctx == NULL)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    rc = ngx_http_weir_enforce(r, conf, ctx, &query, &result);
    if (rc == NGX_DECLINED)
        ngx_http_weir_load_begin(mcf, ctx);
    return rc;
}

/*
 * Subrequests belong to a request that is decided already. The target of an error page or internal redirect is decided
 * if the request was not decided before.
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
