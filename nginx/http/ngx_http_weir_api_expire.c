/* The API's state in a worker, and the timer that refunds expired reservations. */
#include "ngx_http_weir.h"
#include "engine/mapped_file.h"

#define LOOK_MS 250

static struct weir__api ngx_http_weir_api_own;
static ngx_event_t ngx_http_weir_expire_event;

struct weir__api *ngx_http_weir_api_here(void)
{
    return &ngx_http_weir_api_own;
}

static void ngx_http_weir_reservations_close(void *data)
{
    weir__reservations_close(data);
}

/* A sidecar file of the segment, opened by the master and inherited. */
ngx_int_t ngx_http_weir_api_init(ngx_conf_t *cf, ngx_http_weir_main_conf_t *mcf)
{
    ngx_http_weir_api_conf_t *acf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_filter_module);
    ngx_conf_init_value(acf->reservations_max, WEIR__RESERVATIONS_DEFAULT);
    if (!acf->wanted || acf->reservations_max == 0)
        return NGX_OK;
    static const char suffix[] = ".reservations";
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    u_char *path = ngx_pnalloc(cf->pool, mcf->segment_path.len + sizeof(suffix));
    if (cleanup == NULL || path == NULL)
        return NGX_ERROR;
    (void)ngx_sprintf(path, "%V%s%Z", &mcf->segment_path, suffix);
    struct weir__making where = {
        .path = (const char *)path, .mode = mcf->segment_mode, .owner = weir__segment_owner(mcf->segment)};
    char why[256];
    ngx_set_errno(0);
    int error = weir__reservations_open(&where, (uint32_t)acf->reservations_max, &acf->reservations);
    if (error) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, error == WEIR_ESYS ? ngx_errno : 0,
                      "\"%s\" for weir_api_reservations: %s (%s)", path,
                      weir__mapped_why((const char *)path, error, why, sizeof(why)), weir_error_name(error));
        return NGX_ERROR;
    }
    cleanup->handler = ngx_http_weir_reservations_close;
    cleanup->data = acf->reservations;
    if (weir__reservations_count(acf->reservations) != (uint32_t)acf->reservations_max)
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"%s\" exists and keeps its room for %uD reservations; remove it for %i: those in it are lost "
                      "then",
                      path, weir__reservations_count(acf->reservations), acf->reservations_max);
    return NGX_OK;
}

/* Every worker scans; the reservation's marker in the segment makes sure that only one refunds it. */
static void ngx_http_weir_expire(ngx_event_t *event)
{
    struct weir__api *api = &ngx_http_weir_api_own;
    ngx_http_weir_main_conf_t *mcf = event->data;
    if (ngx_exiting)
        return;
    ngx_weir_wait_t *wait = mcf->store ? ngx_weir_wait_new(mcf->store) : NULL;
    api->async = wait ? wait->async : NULL;
    api->store_replied = false;
    (void)weir__api_expire(api);
    if (wait && weir_async_request(wait->async)->op_count > 0)
        ngx_weir_wait_detached(wait);
    else if (wait)
        ngx_weir_wait_end(wait);
    ngx_add_timer(event, LOOK_MS);
}

ngx_int_t ngx_http_weir_api_start(ngx_cycle_t *cycle, ngx_http_weir_main_conf_t *mcf)
{
    ngx_http_weir_api_conf_t *acf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_filter_module);
    ngx_event_t *event = &ngx_http_weir_expire_event;
    if (!acf->wanted)
        return NGX_OK;
    int error = weir__api_open(&ngx_http_weir_api_own, mcf->engine, acf->reservations);
    if (error) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, 0, "weir_api: %s (%s)", weir_strerror(error), weir_error_name(error));
        return NGX_ERROR;
    }
    if (acf->reservations == NULL)
        return NGX_OK;
    event->handler = ngx_http_weir_expire;
    event->data = mcf;
    event->log = cycle->log;
    event->cancelable = 1; /* does not delay the worker's shutdown */
    ngx_add_timer(event, LOOK_MS);
    return NGX_OK;
}
