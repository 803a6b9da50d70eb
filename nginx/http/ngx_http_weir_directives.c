/* Reading the directives. */
#include "ngx_http_weir.h"

void ngx_http_weir_want(ngx_conf_t *cf)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    mcf->wanted = 1;
}

/* `weir on|off|dry_run` */
char *ngx_http_weir_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    static ngx_conf_enum_t modes[] = {{ngx_string("off"), NGX_HTTP_WEIR_OFF},
                                      {ngx_string("on"), NGX_HTTP_WEIR_ON},
                                      {ngx_string("dry_run"), NGX_HTTP_WEIR_DRY_RUN},
                                      {ngx_null_string, 0}};
    ngx_command_t slot = *cmd;
    slot.offset = offsetof(ngx_http_weir_loc_conf_t, mode);
    slot.post = modes;
    char *result = ngx_conf_set_enum_slot(cf, &slot, conf);
    if (result == NGX_CONF_OK && ((ngx_http_weir_loc_conf_t *)conf)->mode != NGX_HTTP_WEIR_OFF)
        ngx_http_weir_want(cf);
    return result;
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
char *ngx_http_weir_cost(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *lcf = conf;
    ngx_str_t *value = cf->args->elts;
    if (lcf->cost != NGX_CONF_UNSET_PTR)
        return "is duplicate";
    lcf->cost = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (lcf->cost == NULL || ngx_http_weir_compile(cf, &value[1], lcf->cost) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    if (lcf->cost->lengths == NULL && ngx_atoof(value[1].data, value[1].len) == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid cost \"%V\" in \"%V\"; use a whole number from 0 or a variable", &value[1],
                           &cmd->name);
        return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

/* What rules know of every request is not for the configuration to say. */
static ngx_uint_t ngx_http_weir_is_reserved(ngx_str_t *name)
{
    static ngx_str_t reserved[] = {ngx_string("client_ip"), ngx_string("path"), ngx_string("method"),
                                   ngx_string("host")};
    for (ngx_uint_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (reserved[i].len == name->len && ngx_strncmp(reserved[i].data, name->data, name->len) == 0)
            return 1;
    return 0;
}

static ngx_uint_t ngx_http_weir_is_name(ngx_str_t *name)
{
    for (size_t i = 0; i < name->len; i++) {
        u_char c = name->data[i];
        if (!((c >= 'a' && c <= 'z') || c == '_' || (i > 0 && c >= '0' && c <= '9')))
            return 0;
    }
    return name->len > 0;
}

/* `weir_attribute NAME VALUE`, and `weir_key VALUE`, which is the attribute `key` */
char *ngx_http_weir_attribute(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *lcf = conf;
    ngx_str_t *value = cf->args->elts, name = ngx_string("key");
    if (cf->args->nelts == 3)
        name = value[1];
    if (!ngx_http_weir_is_name(&name)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid name \"%V\" in \"%V\"; use small letters, digits and underscores", &name,
                           &cmd->name);
        return NGX_CONF_ERROR;
    }
    if (ngx_http_weir_is_reserved(&name)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\" cannot be given by \"%V\"; for client_ip there is realip",
                           &name, &cmd->name);
        return NGX_CONF_ERROR;
    }
    if (lcf->attributes == NULL)
        lcf->attributes = ngx_array_create(cf->pool, 4, sizeof(ngx_http_weir_attribute_t));
    ngx_http_weir_attribute_t *attribute = lcf->attributes ? ngx_array_push(lcf->attributes) : NULL;
    if (attribute == NULL)
        return NGX_CONF_ERROR;
    ngx_http_weir_attribute_t *each = lcf->attributes->elts;
    for (ngx_uint_t i = 0; i + 1 < lcf->attributes->nelts; i++)
        if (each[i].name.len == name.len && ngx_strncmp(each[i].name.data, name.data, name.len) == 0)
            return "names an attribute twice";
    attribute->name = name;
    return ngx_http_weir_compile(cf, &value[cf->args->nelts - 1], &attribute->value);
}

/* `weir_log_denied PATH|off [rate=100] [hash|hash=SALT]` */
char *ngx_http_weir_log_denied(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *lcf = conf;
    ngx_str_t *value = cf->args->elts;
    if (lcf->log != NGX_CONF_UNSET_PTR)
        return "is duplicate";
    lcf->log = NULL;
    if (ngx_strcmp(value[1].data, "off") == 0)
        return cf->args->nelts == 2 ? NGX_CONF_OK : "takes no parameters after \"off\"";
    /* Of access_log one is used to more, and a file of such a name would be made without a word. */
    if (ngx_strncmp(value[1].data, "syslog:", 7) == 0 || ngx_strchr(value[1].data, '$'))
        return "needs the path of a file; there is neither syslog nor a variable";
    lcf->log = ngx_pcalloc(cf->pool, sizeof(ngx_http_weir_log_t));
    if (lcf->log == NULL)
        return NGX_CONF_ERROR;
    lcf->log->rate = 100;
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++) {
        if (ngx_strncmp(value[i].data, "rate=", 5) == 0) {
            ngx_int_t rate = ngx_atoi(value[i].data + 5, value[i].len - 5);
            if (rate > 0) {
                lcf->log->rate = (ngx_uint_t)rate;
                continue;
            }
        } else if (ngx_strcmp(value[i].data, "hash") == 0) {
            lcf->log->hash = 1;
            continue;
        } else if (ngx_strncmp(value[i].data, "hash=", 5) == 0) {
            lcf->log->hash = 1;
            lcf->log->salt.data = value[i].data + 5;
            lcf->log->salt.len = value[i].len - 5;
            continue;
        }
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\" in \"%V\"; use rate=100, hash or hash=SALT",
                           &value[i], &cmd->name);
        return NGX_CONF_ERROR;
    }
    return ngx_http_weir_log_open(cf, value[1], NGX_HTTP_WEIR_LOG_DENIED, &lcf->log->to) == NGX_OK ? NGX_CONF_OK
                                                                                                   : NGX_CONF_ERROR;
}

/* `weir_queue @LOCATION|off [body=1m] [headers=client|set]` */
char *ngx_http_weir_queue(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
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
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid parameter \"%V\" in \"%V\"; use body=1m, headers=client or headers=set",
                               &value[i], &cmd->name);
            return NGX_CONF_ERROR;
        }
    }
    return NGX_CONF_OK;
}

static char *ngx_http_weir_send_text(ngx_conf_t *cf, ngx_http_handler_pt handler)
{
    ngx_http_core_loc_conf_t *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = handler;
    ngx_http_weir_want(cf);
    return NGX_CONF_OK;
}

/* `weir_status` */
char *ngx_http_weir_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    (void)cmd;
    (void)conf;
    return ngx_http_weir_send_text(cf, ngx_http_weir_status_handler);
}

/* `weir_denied` */
char *ngx_http_weir_denied(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    (void)cmd;
    (void)conf;
    return ngx_http_weir_send_text(cf, ngx_http_weir_denied_handler);
}

/* `weir_metrics` */
char *ngx_http_weir_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    (void)cmd;
    (void)conf;
    return ngx_http_weir_send_text(cf, ngx_http_weir_metrics_handler);
}
