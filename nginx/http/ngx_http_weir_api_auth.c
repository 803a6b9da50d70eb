/*
 * Forward authentication (weir_auth): another proxy sends a subrequest before it serves, and describes the client's
 * request in headers. Rules see the request as that proxy received it: its peer is the client, and X-Forwarded-For
 * lists the hops before. Proxies pass on their clients' headers, so a client can send the describing headers, too.
 * Therefore only one family counts, X-Forwarded-… or X-Original-…, one line of each header, and only from trusted
 * peers.
 */
#include "ngx_http_weir.h"

#define OUTCOMES_MAX 16
#define TEXTS_MAX    8192

typedef struct {
    ngx_http_request_t *r;
    weir_lookup *own_lookup; /* of the subrequest */
    ngx_str_t target, method, host, forwarded_for;
    u_char address[16];
    ngx_uint_t several; /* a header that a rule reads has several lines */
} ngx_http_weir_forwarded_t;

/* Reads the headers of a family. Returns the number of their lines; a header with several lines counts as 4, which is
 * more than the caller allows. */
static ngx_uint_t ngx_http_weir_forwarded_read(ngx_http_request_t *r, ngx_uint_t family,
                                               ngx_http_weir_forwarded_t *forwarded)
{
    static const char *const names[][3] = {
        [NGX_HTTP_WEIR_FORWARDED] = {"x-forwarded-uri", "x-forwarded-method", "x-forwarded-host"},
        [NGX_HTTP_WEIR_ORIGINAL] = {"x-original-uri", "x-original-method", "x-original-host"}};
    ngx_str_t *const values[] = {&forwarded->target, &forwarded->method, &forwarded->host};
    ngx_uint_t lines = 0;
    for (ngx_uint_t i = 0; i < 3; i++) {
        ngx_int_t rc = ngx_http_weir_header(r, names[family][i], ngx_strlen(names[family][i]), values[i]);
        lines += rc == NGX_OK ? 1 : rc == NGX_DONE ? 4 : 0;
    }
    return lines;
}

/*
 * Removes the last address of X-Forwarded-For, which the proxy added: the client. Without a valid one, the proxy is the
 * client.
 */
static void ngx_http_weir_forwarded_client(ngx_http_weir_forwarded_t *forwarded, weir_query *query)
{
    char text[INET6_ADDRSTRLEN];
    ngx_str_t *list = &forwarded->forwarded_for;
    size_t start = list->len;
    while (start && list->data[start - 1] != ',')
        start--;
    ngx_str_t hop = {list->len - start, list->data + start};
    ngx_http_weir_trim(&hop);
    if (hop.len == 0 || hop.len >= sizeof(text))
        return;
    (void)ngx_cpystrn((u_char *)text, hop.data, hop.len + 1);
    size_t len = inet_pton(AF_INET, text, forwarded->address) == 1    ? 4
                 : inet_pton(AF_INET6, text, forwarded->address) == 1 ? 16
                                                                      : 0;
    if (len) {
        query->peer = forwarded->address;
        query->peer_len = len;
    }
    list->len = start ? start - 1 : 0;
    ngx_http_weir_trim(list);
}

static bool ngx_http_weir_forwarded_lookup(void *context, enum weir_attribute_kind kind, weir_text name,
                                           weir_text *value)
{
    ngx_http_weir_forwarded_t *forwarded = context;
    ngx_str_t found = ngx_null_string;
    switch (kind) {
    case WEIR_ATTR_TARGET:
        found = forwarded->target;
        break;
    case WEIR_ATTR_METHOD:
        found = forwarded->method;
        break;
    case WEIR_ATTR_HOST:
        found = forwarded->host;
        break;
    case WEIR_ATTR_HEADER:
        if (weir__text_is(name, "x-weir-token"))
            return false; /* the proxy's, not the client's */
        if (weir__text_is(name, "x-forwarded-for")) {
            found = forwarded->forwarded_for;
            break;
        }
        /* X-Request-ID is read to record a denial, which must not become an error. */
        forwarded->several |= ngx_http_weir_header(forwarded->r, name.data, name.len, &found) == NGX_DONE &&
                              !ngx_http_weir_is_list(name.data, name.len) && !weir__text_is(name, "x-request-id");
        break;
    case WEIR_ATTR_NAMED:
        return forwarded->own_lookup(forwarded->r, kind, name, value);
    case WEIR_ATTR_PATH: /* they follow from the target */
    case WEIR_ATTR_QUERY:
    case WEIR_ATTR_PEER:
        return false;
    }
    *value = (weir_text){(const char *)found.data, found.len};
    return found.len > 0;
}

/* The error, or NULL. */
static const char *ngx_http_weir_forwarded_describe(ngx_http_request_t *r, const ngx_http_weir_loc_conf_t *conf,
                                                    ngx_http_weir_forwarded_t *forwarded, weir_query *query)
{
    ngx_uint_t forwarded_lines = 0, original_lines = 0;
    ngx_http_weir_describe(r, query);
    query->path = (weir_text){NULL, 0}; /* it follows from the target */
    forwarded->r = r;
    forwarded->own_lookup = query->lookup;
    forwarded->method = r->method_name;
    forwarded->host = r->headers_in.server;
    if (conf->auth_headers != NGX_HTTP_WEIR_ORIGINAL)
        forwarded_lines = ngx_http_weir_forwarded_read(r, NGX_HTTP_WEIR_FORWARDED, forwarded);
    if (conf->auth_headers != NGX_HTTP_WEIR_FORWARDED)
        original_lines = ngx_http_weir_forwarded_read(r, NGX_HTTP_WEIR_ORIGINAL, forwarded);
    if (forwarded_lines && original_lines)
        return "X-Forwarded-… and X-Original-… headers describe two requests, and one of them may be the client's: "
               "choose the proxy's by service.auth.headers in weir.yaml, or weir_auth_headers in nginx.conf";
    if (forwarded_lines > 3 || original_lines > 3)
        return "a header that describes the request has several lines, and one of them may be the client's: the proxy "
               "must replace it, not add to it";
    if (forwarded->target.len == 0)
        return conf->auth_headers == NGX_HTTP_WEIR_FORWARDED  ? "the proxy must describe the request: X-Forwarded-Uri"
               : conf->auth_headers == NGX_HTTP_WEIR_ORIGINAL ? "the proxy must describe the request: X-Original-URI"
                                                              : "the proxy must describe the request: X-Forwarded-Uri "
                                                                "or X-Original-URI";
    if (ngx_http_weir_header(r, "x-forwarded-for", 15, &forwarded->forwarded_for) == NGX_ERROR)
        return "no memory";
    ngx_http_weir_forwarded_client(forwarded, query);
    query->lookup = ngx_http_weir_forwarded_lookup;
    query->lookup_context = forwarded;
    return NULL;
}

/* ---- Peers ---- */

static ngx_uint_t ngx_http_weir_is_loopback(const struct sockaddr *peer)
{
    if (peer->sa_family == AF_INET)
        return *(const u_char *)&((const struct sockaddr_in *)peer)->sin_addr == 127;
    if (peer->sa_family == AF_INET6) {
        const struct in6_addr *address = &((const struct sockaddr_in6 *)peer)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(address) || (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
    }
    return 0;
}

/* The value of another module's variable; empty if there is none. */
static ngx_str_t ngx_http_weir_variable_of(ngx_http_request_t *r, const char *text)
{
    ngx_str_t name = {ngx_strlen(text), (u_char *)text};
    ngx_http_variable_value_t *found = ngx_http_get_variable(r, &name, ngx_hash_key(name.data, name.len));
    if (found == NULL || found->not_found)
        return (ngx_str_t)ngx_null_string;
    return (ngx_str_t){found->len, found->data};
}

/* TLS verified the peer's certificate. */
static ngx_uint_t ngx_http_weir_has_certificate(ngx_http_request_t *r)
{
    ngx_str_t verified = ngx_http_weir_variable_of(r, "ssl_client_verify");
    return verified.len == 7 && ngx_memcmp(verified.data, "SUCCESS", 7) == 0;
}

/*
 * True if the peer may describe requests. Its token was checked before. The peer is that of the connection, also where
 * realip replaced its address. A Unix socket is protected by its permissions.
 */
static ngx_uint_t ngx_http_weir_is_trusted(ngx_http_request_t *r, const ngx_http_weir_loc_conf_t *conf)
{
    struct sockaddr *peer = r->connection->sockaddr;
    ngx_str_t text = ngx_http_weir_variable_of(r, "realip_remote_addr");
    ngx_addr_t parsed;
    if (text.len && ngx_parse_addr(r->pool, &parsed, text.data, text.len) == NGX_OK)
        peer = parsed.sockaddr;
    else if (peer->sa_family == AF_UNIX || (text.len && ngx_strncmp(text.data, "unix:", 5) == 0))
        return 1;
    if (conf->auth_proxies)
        return ngx_cidr_match(peer, conf->auth_proxies) == NGX_OK;
    return ngx_http_weir_is_loopback(peer) || (conf->tokens && !conf->open) || ngx_http_weir_has_certificate(r);
}

static ngx_int_t ngx_http_weir_auth_admit(ngx_http_request_t *r, const ngx_http_weir_loc_conf_t *conf)
{
    static time_t logged;
    ngx_int_t rc = ngx_http_weir_admit(r, 0, 0);
    if (rc != NGX_DECLINED || ngx_http_weir_is_trusted(r, conf))
        return rc;
    if (logged != ngx_time())
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "weir: forward auth refuses %V, which is not one of the trusted proxies (service.auth."
                      "trusted_proxies in weir.yaml, weir_auth_trusted_proxies in nginx.conf)",
                      &r->connection->addr_text);
    logged = ngx_time();
    return ngx_http_weir_refuse(r, NGX_HTTP_FORBIDDEN, "untrusted_proxy",
                                "this address is not one of the trusted proxies: service.auth.trusted_proxies in "
                                "weir.yaml, weir_auth_trusted_proxies in nginx.conf");
}

/* ---- The handler ---- */

static ngx_int_t ngx_http_weir_auth_pass(ngx_http_request_t *r)
{
    r->headers_out.status = NGX_HTTP_OK;
    ngx_http_weir_set_type(r, "text/plain");
    return ngx_http_weir_send(r, "", 0, NULL);
}

static void ngx_http_weir_auth_again(ngx_http_request_t *r, ngx_str_t *body)
{
    (void)body;
    ngx_http_finalize_request(r, ngx_http_weir_auth_handler(r));
}

ngx_int_t ngx_http_weir_auth_handler(ngx_http_request_t *r)
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_http_weir_forwarded_t forwarded = {.own_lookup = NULL};
    weir_outcome outcomes[OUTCOMES_MAX];
    char texts[TEXTS_MAX];
    weir_query query = {.outcomes = outcomes, .outcomes_max = OUTCOMES_MAX, .text = texts, .text_size = sizeof(texts)};
    weir_result result;
    ngx_int_t rc = ngx_http_weir_auth_admit(r, conf);
    if (rc != NGX_DECLINED)
        return rc;
    const char *wrong = ngx_http_weir_forwarded_describe(r, conf, &forwarded, &query);
    if (wrong)
        return ngx_http_weir_refuse(r, NGX_HTTP_BAD_REQUEST, "bad_request", wrong);
    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK)
        return rc;
    ngx_weir_wait_t *wait;
    rc = ngx_http_weir_store_request(r, mcf, &query, ngx_http_weir_auth_again, &wait);
    if (rc != NGX_OK) {
        r->main->count += rc == NGX_AGAIN;
        return rc == NGX_AGAIN ? NGX_DONE : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    int error = weir_check(mcf->engine, &query, &result);
    ngx_http_weir_wait_over(wait);
    if (forwarded.several)
        return ngx_http_weir_refuse(r, NGX_HTTP_BAD_REQUEST, "bad_request",
                                    "a header that a rule reads has several lines, and the upstream may take any of "
                                    "them: send one");
    if (error) {
        ngx_weir_log_limited(r->connection->log, error, "weir_auth lets a request pass undecided", "");
        return ngx_http_weir_auth_pass(r);
    }
    if (r == r->main && !ngx_http_weir_find(r) && ngx_http_weir_keep(r, &result, outcomes, 0) == NULL)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (weir_passes(&result.decision))
        return ngx_http_weir_auth_pass(r);
    if (conf->log)
        ngx_http_weir_log(r, conf->log, &query, &result, 0);
    if (ngx_http_weir_challenge(r, &result) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (conf->auth_status && result.status != NGX_HTTP_UNAUTHORIZED) { /* the proxy passes 401 on */
        if (ngx_http_weir_push_number(r, "X-Weir-Status", result.status) != NGX_OK)
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        result.status = (int)conf->auth_status;
    }
    return ngx_http_weir_deny_plain(r, &result);
}
