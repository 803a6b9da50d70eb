/* The directives of the engine. */
#include "ngx_weir.h"

/* `weir_segment PATH SIZE [mode=0660] [rebuild]` */
char *ngx_weir_segment(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_engine_t *engine = conf;
    ngx_str_t *value = cf->args->elts;
    if (engine->segment_path.data)
        return "is duplicate";
    engine->segment_path = value[1];
    if (ngx_conf_full_name(cf->cycle, &engine->segment_path, 0) != NGX_OK)
        return NGX_CONF_ERROR;
    engine->segment_size = ngx_parse_offset(&value[2]);
    if (engine->segment_size <= 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid size \"%V\" in \"%V\"; use a number with k, m or g",
                           &value[2], &cmd->name);
        return NGX_CONF_ERROR;
    }
    for (ngx_uint_t i = 3; i < cf->args->nelts; i++) {
        if (ngx_strcmp(value[i].data, "rebuild") == 0) {
            engine->rebuild = 1;
            continue;
        }
        if (ngx_strncmp(value[i].data, "mode=", 5) == 0 && value[i].len > 5 && value[i].len <= 9) {
            unsigned mode = 0;
            size_t at = 5;
            for (; at < value[i].len && value[i].data[at] >= '0' && value[i].data[at] <= '7'; at++)
                mode = mode * 8 + (unsigned)(value[i].data[at] - '0');
            if (at == value[i].len && mode > 0 && mode <= 0777) {
                engine->segment_mode = mode;
                continue;
            }
        }
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\" in \"%V\"; use mode=0660 or rebuild",
                           &value[i], &cmd->name);
        return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

/* `weir_hot_keys off`, `weir_hot_keys SIZE [hash]` */
char *ngx_weir_hot_keys(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_engine_t *engine = conf;
    ngx_str_t *value = cf->args->elts;
    if (engine->hot_logged)
        return "is duplicate";
    engine->hot_logged = 1;
    if (ngx_strcmp(value[1].data, "off") == 0 && cf->args->nelts == 2)
        return NGX_CONF_OK;
    engine->hot_size = ngx_parse_offset(&value[1]);
    engine->hot_hash = cf->args->nelts == 3;
    if (engine->hot_size < 128 * 1024 || (engine->hot_hash && ngx_strcmp(value[2].data, "hash") != 0)) {
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0,
            "invalid \"%V\"; use off, or a size from 128k (one rule) on with k, m or g and then, to hide "
            "keys, hash",
            &cmd->name);
        return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

/* `weir_load on|off` */
char *ngx_weir_load(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_engine_t *engine = conf;
    ngx_str_t *value = cf->args->elts;
    if (engine->load)
        return "is duplicate";
    engine->load = ngx_strcmp(value[1].data, "on") == 0;
    if (!engine->load && ngx_strcmp(value[1].data, "off") != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid value \"%V\" in \"%V\"; use on or off", &value[1],
                           &cmd->name);
        return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

/* `weir_rules PATH` */
char *ngx_weir_rules(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_engine_t *engine = conf;
    ngx_str_t *value = cf->args->elts;
    (void)cmd;
    if (engine->rules_path.data)
        return "is duplicate";
    if (cf->args->nelts > 2 && ngx_strcmp(value[2].data, "workers") != 0)
        return "takes a path, and \"workers\" if only they are to read it";
    engine->rules_by_workers = cf->args->nelts > 2;
    engine->rules_path = value[1];
    return ngx_conf_full_name(cf->cycle, &engine->rules_path, 1) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}
