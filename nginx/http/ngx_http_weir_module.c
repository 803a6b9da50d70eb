/* Directives, and how configurations inherit. */
#include "ngx_http_weir.h"

#define BODY_BUFFER_BYTES 16384 /* of the API */

/* ---- Directives ---- */

/* Sets the content handler of the location that is being configured, and marks the engine as needed. */
static char *ngx_http_weir_set_handler(ngx_conf_t *cf, ngx_http_handler_pt handler)
{
    ngx_http_core_loc_conf_t *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ngx_http_weir_main_conf_t *mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    clcf->handler = handler;
    mcf->wanted = 1;
    return NGX_CONF_OK;
}

static char *ngx_http_weir_compile(ngx_conf_t *cf, ngx_str_t *text, ngx_http_complex_value_t *value)
{
    ngx_http_compile_complex_value_t compile;
    ngx_memzero(&compile, sizeof(compile));
    compile.cf = cf;
    compile.value = text;
    compile.complex_value = value;
    return ngx_http_compile_complex_value(&compile) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

/* `weir_cost NUMBER|$variable` */
static char *ngx_http_weir_cost(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *lcf = conf;
    ngx_str_t *value = cf->args->elts;
    char *result = ngx_http_set_complex_value_slot(cf, cmd, conf);
    if (result == NGX_CONF_OK && lcf->cost->lengths == NULL && ngx_atoof(value[1].data, value[1].len) == NGX_ERROR)
        return ngx_weir_invalid(cf, cmd, "cost", &value[1], "a whole number from 0 or a variable");
    return result;
}

static bool ngx_http_weir_is_name(const ngx_str_t *name)
{
    const char *text = (const char *)name->data;
    return name->len > 0 && !weir__is_digit(text[0]) &&
           strspn(text, "0123456789_abcdefghijklmnopqrstuvwxyz") == name->len;
}

static ngx_http_weir_attribute_t *ngx_http_weir_find_attribute(ngx_array_t *attributes, const ngx_str_t *name)
{
    ngx_http_weir_attribute_t *each = attributes->elts;
    for (ngx_uint_t i = 0; i < attributes->nelts; i++)
        if (each[i].name.len == name->len && ngx_strncmp(each[i].name.data, name->data, name->len) == 0)
            return &each[i];
    return NULL;
}

/* `weir_attribute NAME VALUE`, and `weir_key VALUE`, which is the attribute `key` */
static char *ngx_http_weir_attribute(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *lcf = conf;
    ngx_str_t *value = cf->args->elts, name = ngx_string("key");
    if (cf->args->nelts == 3)
        name = value[1];
    if (!ngx_http_weir_is_name(&name))
        return ngx_weir_invalid(cf, cmd, "name", &name, "small letters, digits and underscores");
    if (ngx_strcmp(name.data, "client_ip") == 0 || ngx_strcmp(name.data, "path") == 0 ||
        ngx_strcmp(name.data, "method") == 0 || ngx_strcmp(name.data, "host") == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\" cannot be given by \"%V\"; for client_ip there is realip",
                           &name, &cmd->name);
        return NGX_CONF_ERROR;
    }
    if (lcf->attributes == NULL)
        lcf->attributes = ngx_array_create(cf->pool, 4, sizeof(ngx_http_weir_attribute_t));
    if (lcf->attributes && ngx_http_weir_find_attribute(lcf->attributes, &name))
        return "names an attribute twice";
    ngx_http_weir_attribute_t *attribute = lcf->attributes ? ngx_array_push(lcf->attributes) : NULL;
    if (attribute == NULL)
        return NGX_CONF_ERROR;
    attribute->name = name;
    return ngx_http_weir_compile(cf, &value[cf->args->nelts - 1], &attribute->value);
}

/* `weir_queue @LOCATION|off [body=1m] [headers=client|set]` */
static char *ngx_http_weir_queue(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *lcf = conf;
    ngx_str_t *value = cf->args->elts;
    if (lcf->queue != NGX_CONF_UNSET_PTR)
        return "is duplicate";
    lcf->queue = NULL;
    if (ngx_strcmp(value[1].data, "off") == 0)
        return cf->args->nelts == 2 ? NGX_CONF_OK : "takes no parameters after \"off\"";
    if (value[1].len < 2 || value[1].data[0] != '@')
        return "needs a named location, such as @queue";
    lcf->queue = ngx_pcalloc(cf->pool, sizeof(ngx_http_weir_queue_t));
    if (lcf->queue == NULL)
        return NGX_CONF_ERROR;
    lcf->queue->location = value[1];
    lcf->queue->body = -1;
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++) {
        ngx_str_t size = {value[i].len - ngx_min(value[i].len, 5), value[i].data + ngx_min(value[i].len, 5)};
        if (ngx_strcmp(value[i].data, "headers=client") == 0 || ngx_strcmp(value[i].data, "headers=set") == 0) {
            lcf->queue->client_headers = value[i].data[8] == 'c';
        } else if (ngx_strncmp(value[i].data, "body=", 5) != 0 ||
                   (lcf->queue->body = ngx_parse_offset(&size)) == NGX_ERROR) {
            return ngx_weir_invalid(cf, cmd, "parameter", &value[i], "body=1m, headers=client or headers=set");
        }
    }
    return NGX_CONF_OK;
}

/* A number within bounds, to which `post` points. */
typedef struct {
    const char *what;
    ngx_int_t low, high;
} ngx_http_weir_bounds_t;

static const ngx_http_weir_bounds_t ngx_http_weir_reservations = {"number", 0, WEIR__RESERVATIONS_MAX},
                                    ngx_http_weir_statuses = {"status", 400, 599};

static char *ngx_http_weir_bounded(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    const ngx_http_weir_bounds_t *bounds = cmd->post;
    ngx_int_t *field = (ngx_int_t *)((char *)conf + cmd->offset);
    ngx_str_t *value = cf->args->elts;
    if (*field != NGX_CONF_UNSET)
        return "is duplicate";
    *field = ngx_atoi(value[1].data, value[1].len);
    if (*field >= bounds->low && *field <= bounds->high)
        return NGX_CONF_OK;
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid %s \"%V\" in \"%V\"; use one from %i to %i", bounds->what,
                       &value[1], &cmd->name, bounds->low, bounds->high);
    return NGX_CONF_ERROR;
}

static char *ngx_http_weir_serve(ngx_conf_t *cf, ngx_http_weir_loc_conf_t *lcf, ngx_http_handler_pt handler)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    if (lcf->service)
        return "contradicts another directive of this location, or is duplicate";
    lcf->service = 1;
    mcf->api = 1;
    return ngx_http_weir_set_handler(cf, handler);
}

/* `weir_api` */
static char *ngx_http_weir_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    (void)cmd;
#if (NGX_PCRE)
    if (clcf->regex)
        return "needs a location with a path, such as /v1/, not a regular expression";
#endif
    if (clcf->named || clcf->exact_match)
        return "needs a location with a path, such as /v1/";
    return ngx_http_weir_serve(cf, conf, ngx_http_weir_api_handler);
}

/* `weir_auth` */
static char *ngx_http_weir_auth(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    (void)cmd;
    return ngx_http_weir_serve(cf, conf, ngx_http_weir_auth_handler);
}

/* `weir_auth_trusted_proxies NETWORK …` */
static char *ngx_http_weir_auth_trusted_proxies(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *lcf = conf;
    ngx_str_t *value = cf->args->elts;
    if (lcf->auth_proxies == NULL)
        lcf->auth_proxies = ngx_array_create(cf->pool, cf->args->nelts, sizeof(ngx_cidr_t));
    for (ngx_uint_t i = 1; i < cf->args->nelts; i++) {
        ngx_cidr_t *network = lcf->auth_proxies ? ngx_array_push(lcf->auth_proxies) : NULL;
        if (network == NULL)
            return NGX_CONF_ERROR;
        ngx_int_t rc = ngx_ptocidr(&value[i], network);
        if (rc == NGX_ERROR)
            return ngx_weir_invalid(cf, cmd, "network", &value[i], "addresses and networks such as 10.0.0.0/8");
        if (rc == NGX_DONE)
            ngx_conf_log_error(NGX_LOG_WARN, cf, 0, "low address bits of %V are meaningless", &value[i]);
    }
    return NGX_CONF_OK;
}

/* A directive that only sets the content handler, to which `post` points. */
static char *ngx_http_weir_content(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    (void)conf;
    return ngx_http_weir_set_handler(cf, *(ngx_http_handler_pt *)cmd->post);
}

static ngx_http_handler_pt ngx_http_weir_status = ngx_http_weir_status_handler,
                           ngx_http_weir_metrics = ngx_http_weir_metrics_handler,
                           ngx_http_weir_denied = ngx_http_weir_denied_handler,
                           ngx_http_weir_rls = ngx_http_weir_rls_handler,
                           ngx_http_weir_rls_json = ngx_http_weir_rls_json_handler;

static ngx_conf_enum_t ngx_http_weir_modes[] = {{ngx_string("off"), NGX_HTTP_WEIR_OFF},
                                                {ngx_string("on"), NGX_HTTP_WEIR_ON},
                                                {ngx_string("dry_run"), NGX_HTTP_WEIR_DRY_RUN},
                                                {ngx_null_string, 0}};

static ngx_conf_enum_t ngx_http_weir_phases[] = {{ngx_string("preaccess"), NGX_HTTP_WEIR_PREACCESS},
                                                 {ngx_string("precontent"), NGX_HTTP_WEIR_PRECONTENT},
                                                 {ngx_null_string, 0}};

static ngx_conf_enum_t ngx_http_weir_families[] = {{ngx_string("forwarded"), NGX_HTTP_WEIR_FORWARDED},
                                                   {ngx_string("original"), NGX_HTTP_WEIR_ORIGINAL},
                                                   {ngx_null_string, 0}};

#define ANYWHERE (NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF)

/* Entries of the table: of the main configuration, of locations, and of locations for one field. */
#define MAIN(name, arguments, set, offset)                                                                             \
    ngx_string(name), NGX_HTTP_MAIN_CONF | (arguments), set, NGX_HTTP_MAIN_CONF_OFFSET, offset, NULL
#define LOCATION(name, where, set, post) ngx_string(name), where, set, NGX_HTTP_LOC_CONF_OFFSET, 0, post
#define FIELD(name, arguments, set, field, post)                                                                       \
    ngx_string(name), ANYWHERE | (arguments), set, NGX_HTTP_LOC_CONF_OFFSET,                                           \
        offsetof(ngx_http_weir_loc_conf_t, field), post
#define HERE (NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS)

static ngx_command_t ngx_http_weir_commands[] = {
    {MAIN("weir_segment", NGX_CONF_TAKE2 | NGX_CONF_TAKE3 | NGX_CONF_TAKE4, ngx_weir_segment, 0)},
    {MAIN("weir_hot_keys", NGX_CONF_TAKE12, ngx_weir_hot_keys, 0)},
    {MAIN("weir_denials", NGX_CONF_TAKE12, ngx_weir_denial_ring, 0)},
    {MAIN("weir_load", NGX_CONF_FLAG, ngx_conf_set_flag_slot, offsetof(ngx_http_weir_main_conf_t, load))},
    {MAIN("weir_store", NGX_CONF_1MORE, ngx_weir_store, 0)},
    {MAIN("weir_rules", NGX_CONF_TAKE12, ngx_weir_rules, 0)},
    {ngx_string("weir_api_reservations"), NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE1, ngx_http_weir_bounded,
     NGX_HTTP_MAIN_CONF_OFFSET, offsetof(ngx_http_weir_main_conf_t, reservations_max),
     (void *)&ngx_http_weir_reservations},
    {FIELD("weir", NGX_HTTP_LIF_CONF | NGX_CONF_TAKE1, ngx_conf_set_enum_slot, mode, ngx_http_weir_modes)},
    {FIELD("weir_phase", NGX_CONF_TAKE1, ngx_conf_set_enum_slot, phase, ngx_http_weir_phases)},
    {FIELD("weir_cost", NGX_HTTP_LIF_CONF | NGX_CONF_TAKE1, ngx_http_weir_cost, cost, NULL)},
    {LOCATION("weir_attribute", ANYWHERE | NGX_CONF_TAKE2, ngx_http_weir_attribute, NULL)},
    {LOCATION("weir_key", ANYWHERE | NGX_CONF_TAKE1, ngx_http_weir_attribute, NULL)},
    {LOCATION("weir_log_denied", ANYWHERE | NGX_CONF_TAKE123, ngx_http_weir_log_denied, NULL)},
    {LOCATION("weir_access_log", ANYWHERE | NGX_CONF_TAKE123, ngx_http_weir_access_log, NULL)},
    {LOCATION("weir_queue", ANYWHERE | NGX_CONF_TAKE123, ngx_http_weir_queue, NULL)},
    {LOCATION("weir_denied", HERE, ngx_http_weir_content, &ngx_http_weir_denied)},
    {LOCATION("weir_metrics", HERE, ngx_http_weir_content, &ngx_http_weir_metrics)},
    {LOCATION("weir_status", HERE, ngx_http_weir_content, &ngx_http_weir_status)},
    {LOCATION("weir_rls", HERE, ngx_http_weir_content, &ngx_http_weir_rls)},
    {LOCATION("weir_rls_json", HERE, ngx_http_weir_content, &ngx_http_weir_rls_json)},
    {FIELD("weir_rls_headers", NGX_CONF_FLAG, ngx_conf_set_flag_slot, rls_headers, NULL)},
    {FIELD("weir_rls_metadata", NGX_CONF_FLAG, ngx_conf_set_flag_slot, rls_metadata, NULL)},
    {FIELD("weir_rls_count_denied", NGX_CONF_FLAG, ngx_conf_set_flag_slot, rls_count_denied, NULL)},
    {LOCATION("weir_api", HERE, ngx_http_weir_api, NULL)},
    {LOCATION("weir_api_token", ANYWHERE | NGX_CONF_TAKE12, ngx_http_weir_api_token, NULL)},
    {FIELD("weir_api_operator", NGX_CONF_FLAG, ngx_conf_set_flag_slot, operators, NULL)},
    {FIELD("weir_api_open", NGX_CONF_FLAG, ngx_conf_set_flag_slot, open, NULL)},
    {LOCATION("weir_auth", HERE, ngx_http_weir_auth, NULL)},
    {FIELD("weir_auth_status", NGX_CONF_TAKE1, ngx_http_weir_bounded, auth_status, (void *)&ngx_http_weir_statuses)},
    {FIELD("weir_auth_headers", NGX_CONF_TAKE1, ngx_conf_set_enum_slot, auth_headers, ngx_http_weir_families)},
    {LOCATION("weir_auth_trusted_proxies", ANYWHERE | NGX_CONF_1MORE, ngx_http_weir_auth_trusted_proxies, NULL)},
    ngx_null_command};

static void *ngx_http_weir_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_weir_main_conf_t *mcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_weir_main_conf_t));
    if (mcf == NULL)
        return NULL;
    mcf->block = "http";
    mcf->load = NGX_CONF_UNSET;
    mcf->reservations_max = NGX_CONF_UNSET;
    return mcf;
}

static void *ngx_http_weir_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_weir_loc_conf_t *conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_weir_loc_conf_t));
    if (conf == NULL)
        return NULL;
    conf->mode = NGX_CONF_UNSET_UINT;
    conf->phase = NGX_CONF_UNSET_UINT;
    conf->cost = NGX_CONF_UNSET_PTR;
    conf->log = NGX_CONF_UNSET_PTR;
    conf->access_log = NGX_CONF_UNSET_PTR;
    conf->queue = NGX_CONF_UNSET_PTR;
    conf->rls_headers = NGX_CONF_UNSET;
    conf->rls_metadata = NGX_CONF_UNSET;
    conf->rls_count_denied = NGX_CONF_UNSET;
    conf->operators = NGX_CONF_UNSET;
    conf->open = NGX_CONF_UNSET;
    conf->auth_headers = NGX_CONF_UNSET_UINT;
    conf->auth_status = NGX_CONF_UNSET;
    return conf;
}

/* An attribute is inherited unless the inner level has one of that name. */
static char *ngx_http_weir_merge_attributes(ngx_array_t *outer, ngx_array_t **inner)
{
    if (outer == NULL)
        return NGX_CONF_OK;
    if (*inner == NULL) {
        *inner = outer;
        return NGX_CONF_OK;
    }
    ngx_http_weir_attribute_t *each = outer->elts;
    for (ngx_uint_t i = 0; i < outer->nelts; i++) {
        if (ngx_http_weir_find_attribute(*inner, &each[i].name))
            continue;
        ngx_http_weir_attribute_t *copy = ngx_array_push(*inner);
        if (copy == NULL)
            return NGX_CONF_ERROR;
        *copy = each[i];
    }
    return NGX_CONF_OK;
}

/* The part of the API and of forward authentication. */
static void ngx_http_weir_api_merge(ngx_conf_t *cf, ngx_http_weir_loc_conf_t *prev, ngx_http_weir_loc_conf_t *conf)
{
    ngx_conf_merge_value(conf->operators, prev->operators, 0);
    ngx_conf_merge_value(conf->open, prev->open, 0);
    ngx_conf_merge_value(conf->auth_status, prev->auth_status, 0);
    ngx_conf_merge_uint_value(conf->auth_headers, prev->auth_headers, NGX_HTTP_WEIR_EITHER);
    if (conf->auth_proxies == NULL)
        conf->auth_proxies = prev->auth_proxies;
    if (conf->tokens == NULL)
        conf->tokens = prev->tokens;
    if (!conf->service)
        return;
    if (conf->mode == NGX_CONF_UNSET_UINT)
        conf->mode = NGX_HTTP_WEIR_OFF;
    /* The API bounds bodies itself, so that the error is JSON like all others. */
    ngx_http_core_loc_conf_t *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->client_max_body_size = 0;
    clcf->client_body_buffer_size =
        BODY_BUFFER_BYTES; /* a client that only announces a long body occupies no more than this */
}

static char *ngx_http_weir_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_http_weir_loc_conf_t *prev = parent, *conf = child;
    ngx_http_weir_api_merge(cf, prev, conf);
    ngx_conf_merge_uint_value(conf->mode, prev->mode, NGX_HTTP_WEIR_OFF);
    ngx_conf_merge_uint_value(conf->phase, prev->phase, NGX_HTTP_WEIR_PREACCESS);
    mcf->wanted |= conf->mode != NGX_HTTP_WEIR_OFF;
    mcf->precontent |= conf->phase == NGX_HTTP_WEIR_PRECONTENT;
    ngx_conf_merge_ptr_value(conf->cost, prev->cost, NULL);
    ngx_conf_merge_ptr_value(conf->log, prev->log, NULL);
    ngx_conf_merge_ptr_value(conf->access_log, prev->access_log, NULL);
    mcf->logs |= conf->log != NULL || conf->access_log != NULL;
    ngx_conf_merge_ptr_value(conf->queue, prev->queue, NULL);
    ngx_conf_merge_value(conf->rls_headers, prev->rls_headers, 0);
    ngx_conf_merge_value(conf->rls_metadata, prev->rls_metadata, 0);
    ngx_conf_merge_value(conf->rls_count_denied, prev->rls_count_denied, 1);
    return ngx_http_weir_merge_attributes(prev->attributes, &conf->attributes);
}

ngx_int_t ngx_http_weir_add_phase(ngx_conf_t *cf, ngx_uint_t phase, ngx_http_handler_pt handler)
{
    ngx_http_core_main_conf_t *cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_http_handler_pt *added = ngx_array_push(&cmcf->phases[phase].handlers);
    if (added == NULL)
        return NGX_ERROR;
    *added = handler;
    return NGX_OK;
}

static ngx_int_t ngx_http_weir_init(ngx_conf_t *cf)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    if (ngx_weir_engine_open(cf, mcf) != NGX_OK)
        return NGX_ERROR;
    if (mcf->engine == NULL)
        return NGX_OK;
    if (mcf->logs && ngx_http_weir_add_phase(cf, NGX_HTTP_LOG_PHASE, ngx_http_weir_access_log_handler) != NGX_OK)
        return NGX_ERROR;
    if (mcf->load && ngx_http_weir_add_phase(cf, NGX_HTTP_LOG_PHASE, ngx_http_weir_load_log) != NGX_OK)
        return NGX_ERROR;
    if (mcf->api && ngx_http_weir_api_init(cf, mcf) != NGX_OK)
        return NGX_ERROR;
    return ngx_http_weir_add_phase(cf, NGX_HTTP_PREACCESS_PHASE, ngx_http_weir_preaccess);
}

static ngx_int_t ngx_http_weir_init_process(ngx_cycle_t *cycle)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_module);
    if (mcf == NULL || mcf->engine == NULL || (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE))
        return NGX_OK;
    if (mcf->api && ngx_http_weir_api_start(cycle, mcf) != NGX_OK)
        return NGX_ERROR;
    if (mcf->logs)
        ngx_http_weir_log_start(cycle);
    ngx_http_weir_load_start(mcf);
    return ngx_weir_engine_start(cycle, mcf);
}

static void ngx_http_weir_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_module);
    if (mcf == NULL)
        return;
    ngx_http_weir_log_stop();
    ngx_http_weir_load_stop(mcf);
    ngx_weir_store_stop(mcf->store);
}

static ngx_http_module_t ngx_http_weir_module_ctx = {.preconfiguration = ngx_http_weir_add_variables,
                                                     .postconfiguration = ngx_http_weir_init,
                                                     .create_main_conf = ngx_http_weir_create_main_conf,
                                                     .create_loc_conf = ngx_http_weir_create_loc_conf,
                                                     .merge_loc_conf = ngx_http_weir_merge_loc_conf};

ngx_module_t ngx_http_weir_module = {
    NGX_MODULE_V1,           .ctx = &ngx_http_weir_module_ctx,           .commands = ngx_http_weir_commands,
    .type = NGX_HTTP_MODULE, .init_process = ngx_http_weir_init_process, .exit_process = ngx_http_weir_exit_process};
