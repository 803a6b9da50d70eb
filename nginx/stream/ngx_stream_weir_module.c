/* The stream module: directives, configuration, process start and exit. */
#include "ngx_stream_weir.h"

/* `weir_resp` */
static char *ngx_stream_weir_resp(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_stream_core_srv_conf_t *cscf = ngx_stream_conf_get_module_srv_conf(cf, ngx_stream_core_module);
    ngx_stream_weir_main_conf_t *mcf = ngx_stream_conf_get_module_main_conf(cf, ngx_stream_weir_module);
    (void)cmd;
    (void)conf;
    if (cscf->handler)
        return cscf->handler == ngx_stream_weir_handler ? "is duplicate"
                                                        : "conflicts with another handler of this server";
    cscf->handler = ngx_stream_weir_handler;
    mcf->wanted = 1;
    return NGX_CONF_OK;
}

/* Entries of the table: of the main configuration and of servers. */
#define MAIN(name, arguments, set, offset)                                                                             \
    ngx_string(name), NGX_STREAM_MAIN_CONF | (arguments), set, NGX_STREAM_MAIN_CONF_OFFSET, offset, NULL
#define SERVER(name, where, set, offset) ngx_string(name), where, set, NGX_STREAM_SRV_CONF_OFFSET, offset, NULL
#define ANYWHERE                         (NGX_STREAM_MAIN_CONF | NGX_STREAM_SRV_CONF)

static ngx_command_t ngx_stream_weir_directives[] = {
    {MAIN("weir_segment", NGX_CONF_TAKE2 | NGX_CONF_TAKE3 | NGX_CONF_TAKE4, ngx_weir_segment, 0)},
    {MAIN("weir_hot_keys", NGX_CONF_TAKE12, ngx_weir_hot_keys, 0)},
    {MAIN("weir_denials", NGX_CONF_TAKE12, ngx_weir_denial_ring, 0)},
    {MAIN("weir_load", NGX_CONF_FLAG, ngx_conf_set_flag_slot, offsetof(ngx_stream_weir_main_conf_t, load))},
    {MAIN("weir_store", NGX_CONF_1MORE, ngx_weir_store, 0)},
    {MAIN("weir_rules", NGX_CONF_TAKE12, ngx_weir_rules, 0)},
    {SERVER("weir_resp", NGX_STREAM_SRV_CONF | NGX_CONF_NOARGS, ngx_stream_weir_resp, 0)},
    {SERVER("weir_resp_password", ANYWHERE | NGX_CONF_TAKE12, ngx_stream_weir_password, 0)},
    {SERVER("weir_resp_operator_password", ANYWHERE | NGX_CONF_TAKE12, ngx_stream_weir_password, 0)},
    {SERVER("weir_resp_timeout", ANYWHERE | NGX_CONF_TAKE1, ngx_conf_set_msec_slot,
            offsetof(ngx_stream_weir_srv_conf_t, timeout))},
    ngx_null_command};

static void *ngx_stream_weir_create_main_conf(ngx_conf_t *cf)
{
    ngx_stream_weir_main_conf_t *mcf = ngx_pcalloc(cf->pool, sizeof(ngx_stream_weir_main_conf_t));
    if (mcf == NULL)
        return NULL;
    mcf->block = "stream";
    mcf->load = NGX_CONF_UNSET;
    mcf->rules_optional = 1; /* CL.THROTTLE needs none */
    return mcf;
}

static void *ngx_stream_weir_create_srv_conf(ngx_conf_t *cf)
{
    ngx_stream_weir_srv_conf_t *conf = ngx_pcalloc(cf->pool, sizeof(ngx_stream_weir_srv_conf_t));
    if (conf)
        conf->timeout = NGX_CONF_UNSET_MSEC;
    return conf;
}

/* A server's own passwords replace the inherited ones. */
static char *ngx_stream_weir_merge_srv_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_stream_weir_srv_conf_t *prev = parent, *conf = child;
    (void)cf;
    ngx_conf_merge_msec_value(conf->timeout, prev->timeout, 0);
    if (conf->users == NULL) {
        conf->users = prev->users;
        conf->closed = prev->closed;
    }
    return NGX_CONF_OK;
}

static ngx_int_t ngx_stream_weir_init(ngx_conf_t *cf)
{
    return ngx_weir_engine_open(cf, ngx_stream_conf_get_module_main_conf(cf, ngx_stream_weir_module));
}

static ngx_int_t ngx_stream_weir_init_process(ngx_cycle_t *cycle)
{
    ngx_stream_weir_main_conf_t *mcf = ngx_stream_cycle_get_module_main_conf(cycle, ngx_stream_weir_module);
    if (mcf == NULL || mcf->engine == NULL || (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE))
        return NGX_OK;
    return ngx_weir_engine_start(cycle, mcf);
}

static void ngx_stream_weir_exit_process(ngx_cycle_t *cycle)
{
    ngx_stream_weir_main_conf_t *mcf = ngx_stream_cycle_get_module_main_conf(cycle, ngx_stream_weir_module);
    if (mcf)
        ngx_weir_store_stop(mcf->store);
}

static ngx_stream_module_t ngx_stream_weir_module_ctx = {.postconfiguration = ngx_stream_weir_init,
                                                         .create_main_conf = ngx_stream_weir_create_main_conf,
                                                         .create_srv_conf = ngx_stream_weir_create_srv_conf,
                                                         .merge_srv_conf = ngx_stream_weir_merge_srv_conf};

ngx_module_t ngx_stream_weir_module = {NGX_MODULE_V1,
                                       .ctx = &ngx_stream_weir_module_ctx,
                                       .commands = ngx_stream_weir_directives,
                                       .type = NGX_STREAM_MODULE,
                                       .init_process = ngx_stream_weir_init_process,
                                       .exit_process = ngx_stream_weir_exit_process};
