/* Tokens of the services: the directive, the caller of a request, and the login throttle. */
#include "ngx_http_weir.h"

#define TOKEN_MIN  8
#define TOKENS_MAX 65536 /* bytes of a token file */

/* ---- Tokens ---- */

static char *ngx_http_weir_add_token(ngx_http_weir_loc_conf_t *lcf, ngx_str_t text, ngx_uint_t is_operator)
{
    if (text.len < TOKEN_MIN)
        return "has a token of less than 8 characters";
    ngx_http_weir_token_t *token = ngx_array_push(lcf->tokens);
    if (token == NULL)
        return NGX_CONF_ERROR;
    weir__sha256(text.data, text.len, token->digest);
    token->is_operator = is_operator;
    return NGX_CONF_OK;
}

/* One token a line; empty lines and '#' comments are skipped. */
static char *ngx_http_weir_add_tokens(ngx_http_weir_loc_conf_t *lcf, ngx_str_t text, ngx_uint_t is_operator)
{
    u_char *last = text.data + text.len;
    ngx_uint_t before = lcf->tokens->nelts;
    for (u_char *at = text.data; at < last;) {
        u_char *end = ngx_strlchr(at, last, '\n');
        ngx_str_t line = {(size_t)((end ? end : last) - at), at};
        at += line.len + 1;
        while (line.len && (line.data[line.len - 1] == '\r' || line.data[line.len - 1] == ' '))
            line.len--;
        if (line.len == 0 || line.data[0] == '#')
            continue;
        char *result = ngx_http_weir_add_token(lcf, line, is_operator);
        if (result != NGX_CONF_OK)
            return result;
    }
    return lcf->tokens->nelts > before ? NGX_CONF_OK : "names a file without a token";
}

static char *ngx_http_weir_token_file(ngx_conf_t *cf, ngx_http_weir_loc_conf_t *lcf, ngx_str_t path,
                                      ngx_uint_t is_operator)
{
    static u_char text[TOKENS_MAX];
    if (ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK)
        return NGX_CONF_ERROR;
    ngx_fd_t fd = ngx_open_file(path.data, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);
    ssize_t len = fd == NGX_INVALID_FILE ? -1 : ngx_read_fd(fd, text, sizeof(text));
    if (fd != NGX_INVALID_FILE)
        ngx_close_file(fd);
    if (len < 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno, "weir_api_token cannot read \"%V\"", &path);
        return NGX_CONF_ERROR;
    }
    char *result = len < (ssize_t)sizeof(text)
                       ? ngx_http_weir_add_tokens(lcf, (ngx_str_t){(size_t)len, text}, is_operator)
                       : "names a file of more than 64 KiB";
    ngx_memzero(text, sizeof(text));
    return result;
}

/* `weir_api_token TOKEN|file=PATH [operator]` */
char *ngx_http_weir_api_token(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *lcf = conf;
    ngx_str_t *value = cf->args->elts;
    ngx_uint_t is_operator = cf->args->nelts == 3;
    if (is_operator && ngx_strcmp(value[2].data, "operator") != 0)
        return ngx_weir_invalid(cf, cmd, "parameter", &value[2], "operator");
    if (lcf->tokens == NULL)
        lcf->tokens = ngx_array_create(cf->pool, 4, sizeof(ngx_http_weir_token_t));
    if (lcf->tokens == NULL)
        return NGX_CONF_ERROR;
    if (value[1].len > 5 && ngx_strncmp(value[1].data, "file=", 5) == 0)
        return ngx_http_weir_token_file(cf, lcf, (ngx_str_t){value[1].len - 5, value[1].data + 5}, is_operator);
    return ngx_http_weir_add_token(lcf, value[1], is_operator);
}

/* ---- The caller ---- */

static bool ngx_http_weir_bearer(ngx_http_request_t *r, ngx_str_t *token)
{
    if (r->headers_in.authorization == NULL)
        return false;
    ngx_str_t *header = &r->headers_in.authorization->value;
    weir_text value = weir__text_trim((weir_text){(const char *)header->data, header->len});
    weir_text scheme = weir__text_cut(&value, ' ');
    value = weir__text_trim(value);
    *token = (ngx_str_t){value.len, (u_char *)value.data};
    return value.len > 0 && weir__text_equal_nocase(scheme, WEIR__TEXT("Bearer"));
}

ngx_uint_t ngx_http_weir_api_caller(ngx_http_request_t *r, ngx_uint_t bearer)
{
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_uint_t caller = NGX_HTTP_WEIR_NO_TOKEN;
    ngx_str_t token;
    u_char digest[WEIR__SHA256_BYTES];
    if (conf->tokens == NULL)
        return conf->operators ? NGX_HTTP_WEIR_OPERATOR : NGX_HTTP_WEIR_CALLER;
    ngx_int_t rc = ngx_http_weir_header(r, "x-weir-token", 12, &token);
    if (rc == NGX_ERROR)
        return NGX_HTTP_WEIR_BAD_TOKEN;
    if (rc == NGX_DECLINED && !(bearer && ngx_http_weir_bearer(r, &token)))
        return conf->open ? NGX_HTTP_WEIR_CALLER : NGX_HTTP_WEIR_NO_TOKEN;
    weir__sha256(token.data, token.len, digest);
    ngx_http_weir_token_t *each = conf->tokens->elts;
    for (ngx_uint_t i = 0; i < conf->tokens->nelts; i++)
        if (weir__equal_secrets(each[i].digest, digest, sizeof(digest)))
            caller |= each[i].is_operator ? NGX_HTTP_WEIR_OPERATOR : NGX_HTTP_WEIR_CALLER;
    return caller ? caller | NGX_HTTP_WEIR_BY_TOKEN : NGX_HTTP_WEIR_BAD_TOKEN;
}

/* ---- The login throttle ---- */

/* A pool cleanup as a marker: the last token of the connection was right; its data is a flag. */
static void ngx_http_weir_known(void *data)
{
    (void)data;
}

typedef struct {
    ngx_weir_check_t check;
    ngx_uint_t wrong; /* the token: the reply is delayed */
} ngx_http_weir_login_t;

static void ngx_http_weir_login_leave(void *data)
{
    ngx_weir_check_release(&((ngx_http_weir_login_t *)data)->check);
}

/* The data of the pool's cleanup with this handler; with a size, it is created if there is none. NULL: none. */
static void *ngx_http_weir_pool_data(ngx_pool_t *pool, ngx_pool_cleanup_pt handler, size_t size)
{
    for (ngx_pool_cleanup_t *each = pool->cleanup; each; each = each->next)
        if (each->handler == handler)
            return each->data;
    ngx_pool_cleanup_t *cleanup = size ? ngx_pool_cleanup_add(pool, size) : NULL;
    if (cleanup == NULL)
        return NULL;
    ngx_memzero(cleanup->data, size);
    cleanup->handler = handler;
    return cleanup->data;
}

static ngx_pool_t *ngx_http_weir_connection_pool(const ngx_http_request_t *r)
{
    return r->stream ? r->stream->connection->connection->pool : r->connection->pool;
}

static void ngx_http_weir_checked(ngx_http_request_t *r, ngx_uint_t right)
{
    ngx_uint_t *known =
        ngx_http_weir_pool_data(ngx_http_weir_connection_pool(r), ngx_http_weir_known, right ? sizeof(*known) : 0);
    if (known)
        *known = right;
}

static void ngx_http_weir_login_again(ngx_http_request_t *r)
{
    if (!ngx_http_weir_is_paused(r))
        ngx_http_finalize_request(r, r->content_handler(r));
}

/* Calls the content handler again after `ms`. */
static ngx_int_t ngx_http_weir_login_pause(ngx_http_request_t *r, ngx_msec_t ms)
{
    if (ngx_http_weir_pause(r, ms, ngx_http_weir_login_again) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    r->main->count++;
    return NGX_DONE;
}

/* Delays the check of a token. */
static ngx_int_t ngx_http_weir_login_hold(ngx_http_request_t *r, weir_segment *segment, ngx_weir_check_t *check)
{
    if (check->peer_len) { /* the pause is over */
        ngx_weir_check_release(check);
        return NGX_DECLINED;
    }
    ngx_msec_t ms = ngx_weir_check_hold(check, segment, r->connection);
    if (ms == NGX_WEIR_NO_PLACE) {
        r->keepalive = 0;
        return NGX_BUSY;
    }
    return ms ? ngx_http_weir_login_pause(r, ms) : NGX_DECLINED;
}

ngx_int_t ngx_http_weir_login(ngx_http_request_t *r, ngx_uint_t caller)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_http_weir_login_t *login = NULL;
    ngx_uint_t right = caller & NGX_HTTP_WEIR_BY_TOKEN;
    if (!right && !(caller & NGX_HTTP_WEIR_BAD_TOKEN))
        return NGX_DECLINED;
    const ngx_uint_t *known = ngx_http_weir_pool_data(ngx_http_weir_connection_pool(r), ngx_http_weir_known, 0);
    ngx_uint_t at_once = known && *known;
    if (right && (at_once || r != r->main))
        return NGX_DECLINED;
    if (r == r->main) { /* the connection's timer belongs to the main request */
        login = ngx_http_weir_pool_data(r->pool, ngx_http_weir_login_leave, sizeof(*login));
        if (login == NULL)
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        if (login->wrong) /* the delay of the reply is over */
            return NGX_DECLINED;
        ngx_int_t rc = at_once ? NGX_DECLINED : ngx_http_weir_login_hold(r, mcf->segment, &login->check);
        if (rc != NGX_DECLINED)
            return rc;
    }
    ngx_http_weir_checked(r, right);
    if (right)
        return NGX_DECLINED;
    ngx_msec_t ms = ngx_weir_wrong_secret(mcf->segment, r->connection);
    if (login == NULL)
        return NGX_DECLINED;
    login->wrong = 1;
    r->keepalive = 0;
    return ngx_http_weir_login_pause(r, ms);
}

static ngx_int_t ngx_http_weir_unauthorized(ngx_http_request_t *r, ngx_uint_t bearer, ngx_uint_t caller)
{
    const char *challenge = !bearer                            ? "X-Weir-Token realm=\"weir\""
                            : caller == NGX_HTTP_WEIR_NO_TOKEN ? "Bearer realm=\"weir\""
                                                               : "Bearer realm=\"weir\", error=\"invalid_token\"";
    if (ngx_http_weir_push_text(r, "WWW-Authenticate", challenge) != NGX_OK)
        return NGX_ERROR;
    return ngx_http_weir_refuse(r, NGX_HTTP_UNAUTHORIZED, "unauthorized",
                                bearer ? "a token is needed: Authorization: Bearer TOKEN, or X-Weir-Token: TOKEN"
                                       : "a token of the proxy is needed: X-Weir-Token: TOKEN");
}

ngx_int_t ngx_http_weir_admit(ngx_http_request_t *r, ngx_uint_t operator_only, ngx_uint_t bearer)
{
    ngx_uint_t caller = ngx_http_weir_api_caller(r, bearer);
    ngx_int_t rc = ngx_http_weir_login(r, caller);
    if (rc == NGX_BUSY) {
        if (ngx_http_weir_push_text(r, "Retry-After", "2") != NGX_OK)
            return NGX_ERROR;
        return ngx_http_weir_refuse(r, NGX_HTTP_SERVICE_UNAVAILABLE, "busy", NGX_HTTP_WEIR_LOGIN_BUSY);
    }
    if (rc != NGX_DECLINED)
        return rc;
    if ((caller & NGX_HTTP_WEIR_OPERATOR) == NGX_HTTP_WEIR_OPERATOR ||
        (caller & NGX_HTTP_WEIR_CALLER && !operator_only))
        return NGX_DECLINED;
    if (caller & NGX_HTTP_WEIR_CALLER) {
        ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
        if (conf->tokens == NULL)
            return ngx_http_weir_refuse(r, NGX_HTTP_FORBIDDEN, "operator_only",
                                        "this is for operators, and there are none: weir.yaml makes them with "
                                        "operator_tokens or open_operator in service.access, nginx.conf with "
                                        "weir_api_token … operator or weir_api_operator on");
        if (ngx_http_weir_push_text(r, "WWW-Authenticate", "Bearer realm=\"weir\", error=\"insufficient_scope\"") !=
            NGX_OK)
            return NGX_ERROR;
        return ngx_http_weir_refuse(r, NGX_HTTP_FORBIDDEN, "operator_only", "this needs a token of an operator");
    }
    return ngx_http_weir_unauthorized(r, bearer, caller);
}
