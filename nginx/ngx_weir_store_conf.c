/* The directive `weir_store URL [name=value …]`. */
#include "ngx_weir_store.h"

#include "ngx_weir.h"

#define VERIFY_DEPTH 5
#define WHY_MAX      256

/* Reads the password from the first line of a file, as nginx.conf is often readable by more users. */
static char *ngx_weir_store_password(ngx_conf_t *cf, ngx_weir_store_t *store, ngx_str_t path)
{
    char why[WHY_MAX] = "", room[sizeof(store->options.password) + 2];
    if (ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK)
        return NGX_CONF_ERROR;
    FILE *file = fopen((const char *)path.data, "re");
    const char *line = file ? fgets(room, sizeof(room), file) : NULL;
    ngx_err_t error = ngx_errno;
    if (file)
        (void)fclose(file);
    if (line == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, file ? 0 : error, "password_file \"%V\" in \"weir_store\" %s", &path,
                           file ? "is empty" : "cannot be read");
        return NGX_CONF_ERROR;
    }
    room[strcspn(room, "\r\n")] = '\0';
    int bad = weir__store_option(&store->options, "password", room, why, sizeof(why));
    ngx_memzero(room, sizeof(room));
    if (bad == 0)
        return NGX_CONF_OK;
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "password_file \"%V\" in \"weir_store\": %s", &path, why);
    return NGX_CONF_ERROR;
}

/* The default consistency of rules. */
static char *ngx_weir_store_consistency(ngx_conf_t *cf, ngx_weir_store_t *store, const u_char *word)
{
    static const struct {
        const char *word;
        enum weir_consistency means;
    } names[] = {{"local", WEIR_LOCAL}, {"eventual", WEIR_EVENTUAL}, {"strict", WEIR_STRICT}};
    for (ngx_uint_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (ngx_strcmp(word, names[i].word) == 0) {
            store->consistency = names[i].means;
            return NGX_CONF_OK;
        }
    }
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "consistency \"%s\" in \"weir_store\" is none of local, eventual, strict",
                       word);
    return NGX_CONF_ERROR;
}

static char *ngx_weir_store_set(ngx_conf_t *cf, ngx_weir_store_t *store, ngx_str_t *given)
{
    static const char file[] = "password_file=";
    char why[WHY_MAX] = "";
    u_char *equals = ngx_strlchr(given->data, given->data + given->len, '=');
    if (ngx_strncmp(given->data, file, sizeof(file) - 1) == 0) {
        ngx_str_t path = {given->len - (sizeof(file) - 1), given->data + sizeof(file) - 1};
        return ngx_weir_store_password(cf, store, path);
    }
    if (ngx_strncmp(given->data, "consistency=", 12) == 0)
        return ngx_weir_store_consistency(cf, store, given->data + 12);
    if (equals == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\" in \"weir_store\"; use name=value", given);
        return NGX_CONF_ERROR;
    }
    *equals = '\0'; /* nginx ends the words of a directive with a zero byte */
    int error =
        weir__store_option(&store->options, (const char *)given->data, (const char *)equals + 1, why, sizeof(why));
    *equals = '=';
    if (error == 0)
        return NGX_CONF_OK;
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"weir_store\": %s", *why ? why : weir_strerror(error));
    return NGX_CONF_ERROR;
}

/* ---- TLS ---- */

static ngx_int_t ngx_weir_store_file(ngx_conf_t *cf, const char *given, ngx_str_t *path)
{
    path->len = ngx_strlen(given);
    path->data = ngx_pnalloc(cf->pool, path->len + 1);
    if (path->data == NULL)
        return NGX_ERROR;
    ngx_memcpy(path->data, given, path->len + 1);
    return ngx_conf_full_name(cf->cycle, path, 1);
}

static ngx_int_t ngx_weir_store_authorities(ngx_conf_t *cf, ngx_weir_store_t *store)
{
    ngx_str_t ca;
    if (*store->options.ca == '\0') {
        if (SSL_CTX_set_default_verify_paths(store->ssl->ctx) == 1)
            return NGX_OK;
        ngx_ssl_error(NGX_LOG_EMERG, cf->log, 0, "SSL_CTX_set_default_verify_paths() failed");
        return NGX_ERROR;
    }
    if (ngx_weir_store_file(cf, store->options.ca, &ca) != NGX_OK)
        return NGX_ERROR;
    return ngx_ssl_trusted_certificate(cf, store->ssl, &ca, VERIFY_DEPTH);
}

static ngx_int_t ngx_weir_store_tls(ngx_conf_t *cf, ngx_weir_store_t *store)
{
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    ngx_str_t certificate, key;
    store->ssl = ngx_pcalloc(cf->pool, sizeof(ngx_ssl_t));
    if (store->ssl == NULL || cleanup == NULL)
        return NGX_ERROR;
    store->ssl->log = cf->log;
    if (ngx_ssl_create(store->ssl, NGX_SSL_TLSv1_2 | NGX_SSL_TLSv1_3, NULL) != NGX_OK)
        return NGX_ERROR;
    cleanup->handler = ngx_ssl_cleanup_ctx;
    cleanup->data = store->ssl;
    /* A retried write may have the bytes at another address, with more after them. */
    (void)SSL_CTX_set_mode(store->ssl->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (!store->options.no_verify && ngx_weir_store_authorities(cf, store) != NGX_OK)
        return NGX_ERROR;
    if (*store->options.certificate == '\0')
        return NGX_OK;
    if (ngx_weir_store_file(cf, store->options.certificate, &certificate) != NGX_OK ||
        ngx_weir_store_file(cf, store->options.key, &key) != NGX_OK)
        return NGX_ERROR;
    return ngx_ssl_certificate(cf, store->ssl, &certificate, &key, NULL);
}

/* ---- The directive ---- */

char *ngx_weir_store(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_weir_engine_t *engine = conf;
    ngx_str_t *value = cf->args->elts;
    char why[WHY_MAX] = "";
    if (engine->store)
        return "is duplicate";
    ngx_weir_store_t *store = ngx_pcalloc(cf->pool, sizeof(ngx_weir_store_t));
    if (store == NULL)
        return NGX_CONF_ERROR;
    int error = weir__store_parse((const char *)value[1].data, &store->options, why, sizeof(why));
    if (error) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\": %s", &cmd->name, *why ? why : weir_strerror(error));
        return NGX_CONF_ERROR;
    }
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++)
        if (ngx_weir_store_set(cf, store, &value[i]) != NGX_CONF_OK)
            return NGX_CONF_ERROR;
    if (*store->options.key == '\0') /* one file may contain both */
        ngx_memcpy(store->options.key, store->options.certificate, sizeof(store->options.key));
    if (weir__store_fits(&store->options, why, sizeof(why)) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\": %s", &cmd->name, why);
        return NGX_CONF_ERROR;
    }
    weir__store_shown(&store->options, store->shown, sizeof(store->shown));
    store->block = ngx_strcmp(engine->block, "stream") == 0;
    if (store->options.tls && ngx_weir_store_tls(cf, store) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\": TLS cannot be made ready with these files", &cmd->name);
        return NGX_CONF_ERROR;
    }
    if (ngx_weir_store_stats_make(cf, store) != NGX_OK)
        return NGX_CONF_ERROR;
    engine->store = store;
    return NGX_CONF_OK;
}
