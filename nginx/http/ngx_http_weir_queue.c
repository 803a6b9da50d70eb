/*
 * Defers denied requests (on_limit: queue). The request is redirected to a named location that passes it to the agent's
 * ingest (src/queue/ingest.c); nginx reads and bounds its body there. Any error leads to weir_denied, by error_page,
 * and the client gets the original denial.
 */
#include "ngx_http_weir.h"

/* one redirect to the location, one to weir_denied, and one in reserve: nginx replies 500 if they are used up */
#define CHANGES_MIN 4

static ngx_uint_t ngx_http_weir_has_location(ngx_http_request_t *r, const ngx_str_t *name)
{
    ngx_http_core_srv_conf_t *cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);
    if (cscf->named_locations == NULL)
        return 0;
    for (ngx_http_core_loc_conf_t **at = cscf->named_locations; *at; at++)
        if ((*at)->name.len == name->len && ngx_strncmp((*at)->name.data, name->data, name->len) == 0)
            return 1;
    return 0;
}

/* Not deferrable: bodies known to be too long, gRPC calls and upgrades, whose clients would not understand 202. */
static ngx_uint_t ngx_http_weir_may_wait(ngx_http_request_t *r, const ngx_http_weir_queue_t *queue)
{
    if (queue->body >= 0 && r->headers_in.content_length_n > queue->body)
        return 0;
    return r->headers_in.upgrade == NULL && ngx_http_weir_grpc_type(r) == NULL && r->uri_changes >= CHANGES_MIN;
}

/* A copy of the result with the texts that the client or the agent gets. */
static ngx_http_weir_deferred_t *ngx_http_weir_keep_denial(ngx_http_request_t *r, const weir_result *result)
{
    const weir_deferral *deferral = &result->deferral;
    ngx_http_weir_deferred_t *kept =
        ngx_palloc(r->pool, sizeof(ngx_http_weir_deferred_t) + result->message.len + result->body_text.len +
                                deferral->key.len + deferral->tier.len + deferral->others.len);
    if (kept == NULL)
        return NULL;
    kept->result = *result;
    weir_text *texts[] = {&kept->result.message, &kept->result.body_text, &kept->result.deferral.key,
                          &kept->result.deferral.tier, &kept->result.deferral.others};
    char *to = kept->text;
    for (ngx_uint_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char *next = texts[i]->len ? (char *)ngx_cpymem(to, texts[i]->data, texts[i]->len) : to;
        texts[i]->data = to;
        to = next;
    }
    kept->result.tier = kept->result.deferral.tier;
    return kept;
}

ngx_int_t ngx_http_weir_defer(ngx_http_request_t *r, ngx_http_weir_loc_conf_t *conf, ngx_http_weir_ctx_t *ctx,
                              const weir_result *result)
{
    ngx_http_weir_queue_t *queue = conf->queue;
    if (queue == NULL || ctx->dry_run || result->deferral.key.len == 0 || !ngx_http_weir_may_wait(r, queue))
        return NGX_DECLINED;
    if (!ngx_http_weir_has_location(r, &queue->location)) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "weir: weir_queue: there is no location %V",
                      &queue->location);
        return NGX_DECLINED;
    }
    ctx->deferred = ngx_http_weir_keep_denial(r, result);
    if (ctx->deferred == NULL)
        return NGX_DECLINED;
    ctx->deferred->client_headers = queue->client_headers;
    (void)ngx_http_named_location(r, &queue->location);
    ngx_http_finalize_request(r, NGX_DONE);
    return NGX_DONE;
}

ngx_int_t ngx_http_weir_denied_handler(ngx_http_request_t *r)
{
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_find(r);
    if (r != r->main || ctx == NULL || ctx->deferred == NULL)
        return NGX_HTTP_NOT_FOUND;
    const weir_result *result = &ctx->deferred->result;
    weir_query query = {.lookup = NULL};
    ctx->deferred = NULL;
    r->err_status = 0; /* clears the error that led here */
    ngx_http_weir_describe(r, &query);
    ngx_http_weir_log_denied_line(r, conf, &query, result, 0);
    if (ngx_http_discard_request_body(r) != NGX_OK)
        r->keepalive = 0;
    return ngx_http_weir_deny_plain(r, result);
}
