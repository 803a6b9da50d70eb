/* Attributes of a request, as the rules look them up. Nothing is copied unless a header has several lines. */
#include "ngx_http_weir.h"

/* ---- Headers ---- */

static ngx_uint_t ngx_http_weir_is_header(const ngx_table_elt_t *header, const char *name, size_t len)
{
    return header->hash != 0 && header->key.len == len && header->lowcase_key != NULL &&
           ngx_memcmp(header->lowcase_key, name, len) == 0;
}

void ngx_http_weir_trim(ngx_str_t *value)
{
    for (; value->len && (value->data[0] == ' ' || value->data[0] == '\t'); value->len--)
        value->data++;
    while (value->len && (value->data[value->len - 1] == ' ' || value->data[value->len - 1] == '\t'))
        value->len--;
}

/*
 * Visits the request's headers of one name: counts them, sums their lengths and, if `to` is set, joins them there.
 * Removes optional white space around each value in place: the upstream gets the value that is counted.
 */
static ngx_uint_t ngx_http_weir_join(ngx_http_request_t *r, const char *name, size_t len, u_char *to, ngx_str_t *found)
{
    const char *between = len == 6 && ngx_memcmp(name, "cookie", 6) == 0 ? "; " : ", ";
    ngx_list_part_t *part = &r->headers_in.headers.part;
    ngx_uint_t count = 0;
    size_t total = 0;
    for (; part; part = part->next) {
        ngx_table_elt_t *header = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            if (!ngx_http_weir_is_header(&header[i], name, len))
                continue;
            if (count && header[i].value.data == found->data) /* its value was joined into the first */
                continue;
            ngx_http_weir_trim(&header[i].value);
            if (to) {
                to = count ? ngx_cpymem(to, between, 2) : to;
                to = ngx_cpymem(to, header[i].value.data, header[i].value.len);
            }
            total += header[i].value.len + (count ? 2 : 0);
            if (count++ == 0)
                *found = header[i].value;
        }
    }
    found->len = count ? total : 0;
    return count;
}

ngx_int_t ngx_http_weir_header(ngx_http_request_t *r, const char *name, size_t len, ngx_str_t *value)
{
    ngx_str_t found = ngx_null_string;
    ngx_uint_t count = ngx_http_weir_join(r, name, len, NULL, &found);
    if (count == 0)
        return NGX_DECLINED;
    if (count > 1) {
        /* Bounded by what nginx accepts as headers of one request. */
        u_char *joined = ngx_pnalloc(r->pool, found.len + 1);
        if (joined == NULL)
            return NGX_ERROR;
        ngx_http_weir_join(r, name, len, joined, &found);
        joined[found.len] = '\0'; /* nginx expects that of headers */
        found.data = joined;
    }
    *value = found;
    return count > 1 ? NGX_DONE : NGX_OK;
}

bool ngx_http_weir_is_list(const char *name, size_t len)
{
    weir_text given = {name, len};
    return weir__text_is(given, "x-forwarded-for") || weir__text_is(given, "forwarded") ||
           weir__text_is(given, "cookie");
}

weir_text ngx_http_weir_media_type(ngx_http_request_t *r)
{
    if (r->headers_in.content_type == NULL)
        return (weir_text){NULL, 0};
    weir_text value = {(const char *)r->headers_in.content_type->value.data, r->headers_in.content_type->value.len};
    return weir__text_trim(weir__text_cut(&value, ';'));
}

/*
 * A rule's key must be the value that the upstream uses. Many servers use one of several lines: a client that sends its
 * API key in one and anything else in another would get a new counter with each request. So the first line is replaced
 * by the joined value, and the others are emptied. (The joined value in each could be a thousand times the input.)
 */
static ngx_int_t ngx_http_weir_header_counted(ngx_http_request_t *r, const char *name, size_t len, ngx_str_t *value)
{
    const ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    ngx_int_t rc = ngx_http_weir_header(r, name, len, value);
    if (rc != NGX_DONE || conf->mode != NGX_HTTP_WEIR_ON || conf->service || ngx_http_weir_is_list(name, len))
        return rc == NGX_DONE ? NGX_OK : rc;
    ngx_str_t filled = *value;
    for (ngx_list_part_t *part = &r->headers_in.headers.part; part; part = part->next) {
        ngx_table_elt_t *header = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            if (!ngx_http_weir_is_header(&header[i], name, len))
                continue;
            header[i].value = filled;
            filled.len = 0; /* ngx_http_weir_join recognizes the others by their address */
        }
    }
    return NGX_OK;
}

/* ---- Named attributes ---- */

static ngx_int_t ngx_http_weir_named(ngx_http_request_t *r, weir_text name, ngx_str_t *value)
{
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    if (conf->attributes == NULL)
        return NGX_DECLINED;
    ngx_http_weir_attribute_t *each = conf->attributes->elts;
    for (ngx_uint_t i = 0; i < conf->attributes->nelts; i++)
        if (each[i].name.len == name.len && ngx_memcmp(each[i].name.data, name.data, name.len) == 0)
            return ngx_http_complex_value(r, &each[i].value, value);
    return NGX_DECLINED;
}

/* ---- The look-up ---- */

static bool ngx_http_weir_lookup(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    ngx_http_request_t *r = context;
    ngx_str_t found = ngx_null_string;
    switch (kind) {
    case WEIR_ATTR_PATH:
        found = r->uri;
        break;
    case WEIR_ATTR_TARGET:
        found = r->unparsed_uri;
        break;
    case WEIR_ATTR_QUERY:
        found = r->args;
        break;
    case WEIR_ATTR_METHOD:
        found = r->method_name;
        break;
    case WEIR_ATTR_HOST:
        found = r->headers_in.server;
        break;
    case WEIR_ATTR_HEADER:
        if (ngx_http_weir_header_counted(r, name.data, name.len, &found) != NGX_OK)
            return false;
        break;
    case WEIR_ATTR_NAMED:
        if (ngx_http_weir_named(r, name, &found) != NGX_OK)
            return false;
        break;
    /* The peer is given in the query, or there is none. */
    case WEIR_ATTR_PEER:
        return false;
    }
    *value = (weir_text){(const char *)found.data, found.len};
    return found.len > 0;
}

/* The peer of the connection, or the address by which realip has replaced it. Unix sockets have none. */
static void ngx_http_weir_peer(ngx_http_request_t *r, weir_query *query)
{
    const struct sockaddr *address = r->connection->sockaddr;
    if (address->sa_family == AF_INET) {
        query->peer = (const uint8_t *)&((const struct sockaddr_in *)address)->sin_addr;
        query->peer_len = 4;
    }
    if (address->sa_family == AF_INET6) {
        query->peer = (const uint8_t *)&((const struct sockaddr_in6 *)address)->sin6_addr;
        query->peer_len = 16;
    }
}

__attribute__((hot)) void ngx_http_weir_describe(ngx_http_request_t *r, weir_query *query)
{
    query->lookup = ngx_http_weir_lookup;
    query->lookup_context = r;
    /* With a path parameter and encoded bytes the target is matched as well: r->uri may have lost the ';'. */
    bool two_readings =
        r->quoted_uri && ngx_strlchr(r->unparsed_uri.data, r->unparsed_uri.data + r->unparsed_uri.len, ';');
    query->path = two_readings ? (weir_text){NULL, 0} : (weir_text){(const char *)r->uri.data, r->uri.len};
    ngx_http_weir_peer(r, query);
}

ngx_str_t ngx_http_weir_client(ngx_http_request_t *r, const weir_query *query, u_char room[NGX_INET6_ADDRSTRLEN])
{
    ngx_http_weir_main_conf_t *mcf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    uint8_t address[16];
    int len = mcf->engine ? weir_client(mcf->engine, query, address) : 0;
    if (len <= 0)
        return r->connection->addr_text;
    size_t written = len == 4 ? ngx_inet_ntop(AF_INET, address, room, NGX_INET6_ADDRSTRLEN)
                              : ngx_inet6_ntop(address, room, NGX_INET6_ADDRSTRLEN);
    return (ngx_str_t){written, room};
}
