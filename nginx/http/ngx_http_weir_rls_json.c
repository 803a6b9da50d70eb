/* The service that Envoy asks, with JSON on both sides: 200, or 429 over the limit, or 400 with the reason. */
#include "ngx_http_weir.h"

#include "services/rls/rls.h"

#define FIRST_PIECE 8192
#define JSON_TYPE   "application/json"

static ngx_uint_t ngx_http_weir_rls_json_status(const struct weir__rls_reply *reply)
{
    if (reply->code == WEIR__GRPC_OK)
        return reply->over_limit ? NGX_HTTP_TOO_MANY_REQUESTS : NGX_HTTP_OK;
    return reply->code == WEIR__GRPC_INTERNAL ? NGX_HTTP_INTERNAL_SERVER_ERROR : NGX_HTTP_BAD_REQUEST;
}

static void ngx_http_weir_rls_json_again(ngx_http_request_t *r, ngx_str_t *body);

/* NGX_BUSY: the store is asked first. */
static ngx_int_t ngx_http_weir_rls_json_call(ngx_http_request_t *r, const ngx_str_t *body)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    struct weir__rls service = {.engine = mcf->engine,
                                .headers = conf->rls_headers,
                                .metadata = conf->rls_metadata,
                                .charge_denied = conf->rls_count_denied};
    struct weir__rls_memory memory;
    struct weir__rls_reply reply;
    ngx_uint_t store_replied;
    u_char first[FIRST_PIECE];
    ngx_weir_wait_t *wait = ngx_http_weir_wait(r, mcf, &store_replied);
    service.async = wait ? wait->ask : NULL;
    service.store_replied = store_replied != 0;
    weir__rls_memory_begin(&memory, first, sizeof(first));
    weir__rls_json(&service, &memory, body->data, body->len, &reply);
    if (reply.needs_store) {
        weir__rls_memory_end(&memory);
        ngx_int_t asked = ngx_http_weir_wait_begin(r, wait, ngx_http_weir_rls_json_again, body);
        if (asked != NGX_OK)
            return asked == NGX_AGAIN ? NGX_BUSY : NGX_HTTP_INTERNAL_SERVER_ERROR;
        service.store_replied = true;
        weir__rls_memory_begin(&memory, first, sizeof(first));
        weir__rls_json(&service, &memory, body->data, body->len, &reply);
    }
    ngx_http_weir_wait_over(wait);
    if (reply.error)
        ngx_weir_complain(r->connection->log, reply.error,
                          *reply.rule ? "on_store_failure decides for rule" : "a request stays undecided", reply.rule);
    r->headers_out.status = ngx_http_weir_rls_json_status(&reply);
    ngx_int_t rc = ngx_http_weir_send(r, reply.body, reply.len, JSON_TYPE);
    weir__rls_memory_end(&memory);
    return rc;
}

static void ngx_http_weir_rls_json_again(ngx_http_request_t *r, ngx_str_t *body)
{
    ngx_int_t rc = ngx_http_weir_rls_json_call(r, body);
    if (rc != NGX_BUSY)
        ngx_http_finalize_request(r, rc);
}

static void ngx_http_weir_rls_json_body_read(ngx_http_request_t *r)
{
    ngx_str_t body;
    ngx_int_t rc = ngx_http_weir_body(r, WEIR__RLS_JSON_MAX, &body);
    if (rc == NGX_OK)
        ngx_http_weir_rls_json_again(r, &body);
    else
        ngx_http_finalize_request(r, rc == NGX_DECLINED ? NGX_HTTP_REQUEST_ENTITY_TOO_LARGE
                                                        : NGX_HTTP_INTERNAL_SERVER_ERROR);
}

static ngx_int_t ngx_http_weir_rls_json_handler(ngx_http_request_t *r)
{
    ngx_int_t rc = ngx_http_weir_only_post(r);
    if (rc != NGX_OK)
        return rc;
    rc = ngx_http_weir_admit(r, 0, 1);
    if (rc != NGX_DECLINED)
        return rc;
    rc = ngx_http_read_client_request_body(r, ngx_http_weir_rls_json_body_read);
    return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : NGX_DONE;
}

/* `weir_rls_json` */
char *ngx_http_weir_rls_json(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    (void)cmd;
    (void)conf;
    clcf->handler = ngx_http_weir_rls_json_handler;
    ngx_http_weir_want(cf);
    return NGX_CONF_OK;
}
