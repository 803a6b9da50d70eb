/*
 * A log of all requests that no request waits for: nginx's own access_log writes in the worker, which a disk that hangs
 * stops. The format is as in log_format: texts and $variables.
 */
#include "ngx_http_weir.h"

#define LINE_MAX_BYTES 8192
#define VALUE_BYTES    256 /* reserved for each value to come: a long one cannot crowd out status and decision */

/* A text, or the variable behind it. */
typedef struct {
    ngx_str_t text;
    ngx_int_t variable; /* NGX_CONF_UNSET: none */
} ngx_http_weir_log_part_t;

static size_t ngx_http_weir_name_len(const u_char *at, const u_char *last)
{
    size_t len = 0;
    while (at + len < last && (at[len] == '_' || (at[len] >= '0' && at[len] <= '9') ||
                               (ngx_tolower(at[len]) >= 'a' && ngx_tolower(at[len]) <= 'z')))
        len++;
    return len;
}

static ngx_int_t ngx_http_weir_access_log_parse(ngx_conf_t *cf, ngx_str_t format, ngx_array_t *fields)
{
    u_char *at = format.data, *last = format.data + format.len;
    while (at < last) {
        u_char *dollar = ngx_strlchr(at, last, '$');
        u_char *end = dollar ? dollar : last;
        size_t len = dollar ? ngx_http_weir_name_len(dollar + 1, last) : 0;
        ngx_http_weir_log_part_t *part = ngx_array_push(fields);
        if (part == NULL)
            return NGX_ERROR;
        part->text = (ngx_str_t){(size_t)(end - at), at};
        part->variable = NGX_CONF_UNSET;
        if (dollar && len == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "a \"$\" without a variable's name in \"%V\"", &format);
            return NGX_ERROR;
        }
        if (dollar) {
            ngx_str_t name = {len, dollar + 1};
            part->variable = ngx_http_get_variable_index(cf, &name);
            if (part->variable == NGX_ERROR)
                return NGX_ERROR;
        }
        at = end + (dollar ? len + 1 : 0);
    }
    return NGX_OK;
}

char *ngx_http_weir_access_log(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *lcf = conf;
    ngx_str_t *value = cf->args->elts;
    (void)cmd;
    if (lcf->access_log != NGX_CONF_UNSET_PTR)
        return "is duplicate";
    lcf->access_log = NULL;
    if (ngx_strcmp(value[1].data, "off") == 0)
        return cf->args->nelts == 2 ? NGX_CONF_OK : "takes no parameters after \"off\"";
    if (cf->args->nelts < 3)
        return "needs a path and a format";
    if (ngx_strncmp(value[1].data, "syslog:", 7) == 0 || ngx_strchr(value[1].data, '$'))
        return "needs the path of a file; there is neither syslog nor a variable";
    if (cf->args->nelts == 4 && ngx_strcmp(value[3].data, "escape=json") != 0)
        return "knows no parameter after the format but escape=json";
    ngx_http_weir_access_log_t *log = ngx_pcalloc(cf->pool, sizeof(ngx_http_weir_access_log_t));
    if (log == NULL || (log->fields = ngx_array_create(cf->pool, 16, sizeof(ngx_http_weir_log_part_t))) == NULL)
        return NGX_CONF_ERROR;
    log->json = cf->args->nelts == 4;
    if (ngx_http_weir_access_log_parse(cf, value[2], log->fields) != NGX_OK ||
        ngx_http_weir_log_open(cf, value[1], NGX_HTTP_WEIR_LOG_ACCESS, &log->to) != NGX_OK)
        return NGX_CONF_ERROR;
    const ngx_http_weir_log_part_t *part = log->fields->elts;
    for (ngx_uint_t i = 0; i < log->fields->nelts; i++)
        log->text_bytes += part[i].text.len;
    lcf->access_log = log;
    return NGX_CONF_OK;
}

/* As log_format does: quotes, backslashes and what is not printable as \xHH; "-" for none. */
static u_char *ngx_http_weir_access_log_text(u_char *to, const u_char *last, const u_char *text, size_t len)
{
    for (size_t i = 0; i < len && last - to > 4; i++) {
        if (text[i] == '"' || text[i] == '\\' || text[i] < 0x20 || text[i] > 0x7e)
            to = ngx_sprintf(to, "\\x%02Xd", (uint32_t)text[i]);
        else
            *to++ = text[i];
    }
    return to;
}

/* The value without its quotes, which the format has. */
static u_char *ngx_http_weir_access_log_json(u_char *to, u_char *last, const u_char *text, size_t len)
{
    u_char *end = ngx_http_weir_json_string(to, last, text, len);
    if (end - to < 2)
        return to;
    ngx_memmove(to, to + 1, (size_t)(end - to) - 2);
    return end - 2;
}

static u_char *ngx_http_weir_access_log_value(ngx_http_request_t *r, const ngx_http_weir_access_log_t *log,
                                              ngx_int_t variable, u_char *to, u_char *last)
{
    ngx_http_variable_value_t *value = ngx_http_get_indexed_variable(r, (ngx_uint_t)variable);
    if (value == NULL || value->not_found)
        return log->json ? to : ngx_slprintf(to, last, "-");
    return log->json ? ngx_http_weir_access_log_json(to, last, value->data, value->len)
                     : ngx_http_weir_access_log_text(to, last, value->data, value->len);
}

static ngx_int_t ngx_http_weir_access_log_handler(ngx_http_request_t *r)
{
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_http_weir_access_log_t *log = conf->access_log;
    u_char line[LINE_MAX_BYTES], *at = line, *last = line + sizeof(line) - 1;
    if (log == NULL)
        return NGX_OK;
    const ngx_http_weir_log_part_t *part = log->fields->elts;
    size_t texts = log->text_bytes; /* of the format, still to come */
    for (ngx_uint_t i = 0; i < log->fields->nelts; i++) {
        at = ngx_cpymem(at, part[i].text.data, ngx_min(part[i].text.len, (size_t)(last - at)));
        texts -= part[i].text.len;
        size_t left = (size_t)(last - at) > texts ? (size_t)(last - at) - texts : 0, later = log->fields->nelts - i - 1;
        left -= later * ngx_min(VALUE_BYTES, left / (later + 1));
        if (part[i].variable != NGX_CONF_UNSET)
            at = ngx_http_weir_access_log_value(r, log, part[i].variable, at, at + left);
    }
    *at++ = '\n';
    (void)ngx_http_weir_log_put(r->connection->log, &log->to, line, (size_t)(at - line));
    return NGX_OK;
}

ngx_int_t ngx_http_weir_access_log_init(ngx_conf_t *cf)
{
    ngx_http_core_main_conf_t *cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_http_weir_main_conf_t *mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    if (!mcf->logs)
        return NGX_OK;
    ngx_http_handler_pt *handler = ngx_array_push(&cmcf->phases[NGX_HTTP_LOG_PHASE].handlers);
    if (handler == NULL)
        return NGX_ERROR;
    *handler = ngx_http_weir_access_log_handler;
    return NGX_OK;
}
