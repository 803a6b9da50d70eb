/* Directives of the API and of forward authentication, and the API's tokens. */
#include "ngx_http_weir.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#define BUFFER_BYTES 16384
#define TOKEN_MIN    8
#define TOKENS_MAX   65536 /* bytes of a token file */
#define DIGEST_BYTES sizeof(((ngx_http_weir_token_t *)0)->digest)

/* ---- Main configuration ---- */

void *ngx_http_weir_api_create_conf(ngx_conf_t *cf)
{
    ngx_http_weir_api_conf_t *acf = ngx_pcalloc(cf->pool, sizeof(ngx_http_weir_api_conf_t));
    if (acf)
        acf->reservations_max = NGX_CONF_UNSET;
    return acf;
}

/* `weir_api_reservations NUMBER` */
char *ngx_http_weir_api_reservations(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_api_conf_t *acf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_filter_module);
    ngx_str_t *value = cf->args->elts;
    (void)conf;
    if (acf->reservations_max != NGX_CONF_UNSET)
        return "is duplicate";
    acf->reservations_max = ngx_atoi(value[1].data, value[1].len);
    if (acf->reservations_max != NGX_ERROR && acf->reservations_max <= WEIR__RESERVATIONS_MAX)
        return NGX_CONF_OK;
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid number \"%V\" in \"%V\"; use one from 0 to %d", &value[1],
                       &cmd->name, WEIR__RESERVATIONS_MAX);
    return NGX_CONF_ERROR;
}

/* ---- Locations ---- */

static char *ngx_http_weir_serve(ngx_conf_t *cf, ngx_http_weir_loc_conf_t *lcf, ngx_http_handler_pt handler)
{
    ngx_http_weir_api_conf_t *acf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_filter_module);
    if (lcf->service)
        return "contradicts another directive of this location, or is duplicate";
    lcf->service = 1;
    acf->wanted = 1;
    return ngx_http_weir_set_handler(cf, handler);
}

/* `weir_api` */
char *ngx_http_weir_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
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
char *ngx_http_weir_auth(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    (void)cmd;
    return ngx_http_weir_serve(cf, conf, ngx_http_weir_auth_handler);
}

/* `weir_auth_status STATUS` */
char *ngx_http_weir_auth_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_weir_loc_conf_t *lcf = conf;
    ngx_str_t *value = cf->args->elts;
    ngx_int_t status = ngx_atoi(value[1].data, value[1].len);
    if (lcf->auth_status != NGX_CONF_UNSET_UINT)
        return "is duplicate";
    if (status < 400 || status > 599)
        return ngx_weir_invalid(cf, cmd, "status", &value[1], "one from 400 to 599");
    lcf->auth_status = (ngx_uint_t)status;
    return NGX_CONF_OK;
}

/* `weir_auth_trusted_proxies NETWORK …` */
char *ngx_http_weir_auth_trusted_proxies(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
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

void ngx_http_weir_api_merge(ngx_conf_t *cf, ngx_http_weir_loc_conf_t *prev, ngx_http_weir_loc_conf_t *conf)
{
    ngx_conf_merge_value(conf->operators, prev->operators, 0);
    ngx_conf_merge_value(conf->open, prev->open, 0);
    ngx_conf_merge_uint_value(conf->auth_status, prev->auth_status, 0);
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
        BUFFER_BYTES; /* a client that only announces a long body occupies no more than this */
}

/* ---- Tokens ---- */

static void ngx_http_weir_mac_free(void *data)
{
    EVP_MAC_CTX_free(data);
}

/* HMAC with a random key, initialized once because that costs more than a use. */
static ngx_int_t ngx_http_weir_mac_make(ngx_conf_t *cf, ngx_http_weir_api_conf_t *acf)
{
    u_char key[DIGEST_BYTES];
    char digest[] = "SHA256";
    OSSL_PARAM how[] = {OSSL_PARAM_utf8_string("digest", digest, sizeof(digest) - 1), OSSL_PARAM_END};
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *mac = hmac ? EVP_MAC_CTX_new(hmac) : NULL;
    EVP_MAC_free(hmac); /* the context keeps a reference */
    if (cleanup && mac && RAND_bytes(key, sizeof(key)) == 1 && EVP_MAC_init(mac, key, sizeof(key), how) == 1) {
        cleanup->handler = ngx_http_weir_mac_free;
        cleanup->data = acf->token_mac = mac;
        return NGX_OK;
    }
    EVP_MAC_CTX_free(mac);
    return NGX_ERROR;
}

static ngx_int_t ngx_http_weir_digest(ngx_http_weir_api_conf_t *acf, const u_char *token, size_t len, u_char *digest)
{
    size_t size = 0;
    return EVP_MAC_init(acf->token_mac, NULL, 0, NULL) == 1 && EVP_MAC_update(acf->token_mac, token, len) == 1 &&
                   EVP_MAC_final(acf->token_mac, digest, &size, DIGEST_BYTES) == 1 && size == DIGEST_BYTES
               ? NGX_OK
               : NGX_ERROR;
}

static char *ngx_http_weir_add_token(ngx_conf_t *cf, ngx_http_weir_loc_conf_t *lcf, ngx_str_t text,
                                     ngx_uint_t is_operator)
{
    ngx_http_weir_api_conf_t *acf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_filter_module);
    if (acf->token_mac == NULL && ngx_http_weir_mac_make(cf, acf) != NGX_OK)
        return "finds no HMAC-SHA256 in OpenSSL";
    if (text.len < TOKEN_MIN)
        return "has a token of less than 8 characters";
    ngx_http_weir_token_t *token = ngx_array_push(lcf->tokens);
    if (token == NULL || ngx_http_weir_digest(acf, text.data, text.len, token->digest) != NGX_OK)
        return NGX_CONF_ERROR;
    token->is_operator = is_operator;
    return NGX_CONF_OK;
}

/* One token a line; empty lines and '#' comments are skipped. */
static char *ngx_http_weir_add_tokens(ngx_conf_t *cf, ngx_http_weir_loc_conf_t *lcf, ngx_str_t text,
                                      ngx_uint_t is_operator)
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
        char *result = ngx_http_weir_add_token(cf, lcf, line, is_operator);
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
                       ? ngx_http_weir_add_tokens(cf, lcf, (ngx_str_t){(size_t)len, text}, is_operator)
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
    return ngx_http_weir_add_token(cf, lcf, value[1], is_operator);
}

/* ---- The caller ---- */

static ngx_uint_t ngx_http_weir_bearer(ngx_http_request_t *r, ngx_str_t *token)
{
    static u_char scheme[] = "Bearer ";
    const size_t len = sizeof(scheme) - 1;
    if (r->headers_in.authorization == NULL)
        return 0;
    *token = r->headers_in.authorization->value;
    ngx_http_weir_trim(token);
    if (token->len <= len || ngx_strncasecmp(token->data, scheme, len) != 0)
        return 0;
    token->data += len;
    token->len -= len;
    ngx_http_weir_trim(token);
    return 1;
}

ngx_uint_t ngx_http_weir_api_caller(ngx_http_request_t *r, ngx_uint_t bearer)
{
    ngx_http_weir_api_conf_t *acf = ngx_http_get_module_main_conf(r, ngx_http_weir_filter_module);
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_uint_t caller = NGX_HTTP_WEIR_NO_TOKEN;
    ngx_str_t token;
    u_char digest[DIGEST_BYTES];
    if (conf->tokens == NULL)
        return conf->operators ? NGX_HTTP_WEIR_OPERATOR : NGX_HTTP_WEIR_CALLER;
    ngx_int_t rc = ngx_http_weir_header(r, "x-weir-token", 12, &token);
    if (rc == NGX_ERROR)
        return NGX_HTTP_WEIR_BAD_TOKEN;
    if (rc == NGX_DECLINED && !(bearer && ngx_http_weir_bearer(r, &token)))
        return conf->open ? NGX_HTTP_WEIR_CALLER : NGX_HTTP_WEIR_NO_TOKEN;
    if (ngx_http_weir_digest(acf, token.data, token.len, digest) != NGX_OK)
        return NGX_HTTP_WEIR_BAD_TOKEN;
    ngx_http_weir_token_t *each = conf->tokens->elts;
    for (ngx_uint_t i = 0; i < conf->tokens->nelts; i++)
        if (CRYPTO_memcmp(each[i].digest, digest, sizeof(digest)) == 0)
            caller |= each[i].is_operator ? NGX_HTTP_WEIR_OPERATOR : NGX_HTTP_WEIR_CALLER;
    return caller ? caller | NGX_HTTP_WEIR_BY_TOKEN : NGX_HTTP_WEIR_BAD_TOKEN;
}
