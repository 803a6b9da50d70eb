/*
 * Forward authentication: another proxy asks before it serves, and describes the request in headers. Rules see what
 * they would see in that proxy's place: its client is the other end, and the header of forwarded addresses is what
 * came before.
 */
#include "ngx_http_weir.h"

#define OUTCOMES_MAX 16
#define TEXTS_MAX    8192

typedef struct {
    ngx_http_request_t *r;
    weir_lookup *usual; /* of the request that asks */
    ngx_str_t target, method, host, forwarded;
    u_char address[16];
} ngx_http_weir_asked_t;

/* The first of two headers that the request has, or what was there before. */
static void ngx_http_weir_asked_header(ngx_http_request_t *r, const char *first, const char *second, ngx_str_t *value)
{
    if (ngx_http_weir_header(r, first, ngx_strlen(first), value) != NGX_OK && second)
        (void)ngx_http_weir_header(r, second, ngx_strlen(second), value);
}

/*
 * Takes the last address of X-Forwarded-For, which the asking proxy added, from the list. Without it, or if it is
 * none, the client is who asks.
 */
static void ngx_http_weir_asked_client(ngx_http_weir_asked_t *asked, weir_query *query)
{
    char text[INET6_ADDRSTRLEN];
    ngx_str_t *list = &asked->forwarded;
    size_t start = list->len;
    while (start && list->data[start - 1] != ',')
        start--;
    ngx_str_t hop = {list->len - start, list->data + start};
    ngx_http_weir_trim(&hop);
    if (hop.len == 0 || hop.len >= sizeof(text))
        return;
    (void)ngx_cpystrn((u_char *)text, hop.data, hop.len + 1);
    size_t len = inet_pton(AF_INET, text, asked->address) == 1    ? 4
                 : inet_pton(AF_INET6, text, asked->address) == 1 ? 16
                                                                  : 0;
    if (len) {
        query->peer = asked->address;
        query->peer_len = len;
    }
    list->len = start ? start - 1 : 0;
    ngx_http_weir_trim(list);
}

static bool ngx_http_weir_asked_lookup(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    ngx_http_weir_asked_t *asked = context;
    ngx_str_t found = ngx_null_string;
    switch (kind) {
    case WEIR_ATTR_TARGET:
        found = asked->target;
        break;
    case WEIR_ATTR_METHOD:
        found = asked->method;
        break;
    case WEIR_ATTR_HOST:
        found = asked->host;
        break;
    case WEIR_ATTR_HEADER:
        if (name.len != 15 || ngx_memcmp(name.data, "x-forwarded-for", 15) != 0)
            return asked->usual(asked->r, kind, name, value);
        found = asked->forwarded;
        break;
    case WEIR_ATTR_NAMED:
        return asked->usual(asked->r, kind, name, value);
    case WEIR_ATTR_PATH: /* they follow from the target */
    case WEIR_ATTR_QUERY:
    case WEIR_ATTR_PEER:
        return false;
    }
    *value = (weir_text){(const char *)found.data, found.len};
    return found.len > 0;
}

static void ngx_http_weir_asked_describe(ngx_http_request_t *r, ngx_http_weir_asked_t *asked, weir_query *query)
{
    ngx_http_weir_describe(r, query);
    query->path = (weir_text){NULL, 0}; /* it follows from the target */
    asked->r = r;
    asked->usual = query->lookup;
    asked->method = r->method_name;
    asked->host = r->headers_in.server;
    ngx_http_weir_asked_header(r, "x-forwarded-uri", "x-original-uri", &asked->target);
    ngx_http_weir_asked_header(r, "x-forwarded-method", "x-original-method", &asked->method);
    ngx_http_weir_asked_header(r, "x-forwarded-host", "x-original-host", &asked->host);
    ngx_http_weir_asked_header(r, "x-forwarded-for", NULL, &asked->forwarded);
    ngx_http_weir_asked_client(asked, query);
    query->lookup = ngx_http_weir_asked_lookup;
    query->lookup_context = asked;
}

static ngx_int_t ngx_http_weir_auth_send(ngx_http_request_t *r, ngx_uint_t status, const char *text)
{
    ngx_str_t type = ngx_string("text/plain");
    ngx_http_complex_value_t value;
    ngx_memzero(&value, sizeof(value));
    value.value.data = (u_char *)text;
    value.value.len = ngx_strlen(text);
    return ngx_http_send_response(r, status, &type, &value);
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
    ngx_http_weir_asked_t asked = {.usual = NULL};
    weir_outcome outcomes[OUTCOMES_MAX];
    char texts[TEXTS_MAX];
    weir_query query = {.outcomes = outcomes, .outcomes_max = OUTCOMES_MAX, .text = texts, .text_size = sizeof(texts)};
    weir_answer answer;
    ngx_int_t rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK)
        return rc;
    ngx_http_weir_asked_describe(r, &asked, &query);
    if (asked.target.len == 0)
        return ngx_http_weir_auth_send(r, NGX_HTTP_BAD_REQUEST,
                                       "the proxy must say what is asked: X-Forwarded-Uri or X-Original-URI\n");
    ngx_weir_wait_t *wait;
    rc = ngx_http_weir_ask(r, mcf, &query, ngx_http_weir_auth_again, &wait);
    if (rc != NGX_OK) {
        r->main->count += rc == NGX_AGAIN;
        return rc == NGX_AGAIN ? NGX_DONE : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    int error = weir_check(mcf->engine, &query, &answer);
    ngx_http_weir_wait_over(wait);
    if (error) {
        ngx_weir_complain(r->connection->log, error, "weir_auth lets a request pass undecided", "");
        return ngx_http_weir_auth_send(r, NGX_HTTP_OK, "");
    }
    if (r == r->main && !ngx_http_weir_find(r) && ngx_http_weir_keep(r, &answer, outcomes, 0) == NULL)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (weir_passes(&answer.decision))
        return ngx_http_weir_auth_send(r, NGX_HTTP_OK, "");
    if (conf->log)
        ngx_http_weir_log(r, conf->log, &query, &answer, 0);
    if (conf->auth_status)
        answer.status = (int)conf->auth_status;
    return ngx_http_weir_deny_plain(r, &answer);
}
