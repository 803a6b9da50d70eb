/* The values of one request's attributes: asked for when a rule needs them, once each. */
#include "rules/attribute.h"

void weir__values_begin(struct weir__values *values, const struct weir__attributes *all, const weir_query *query)
{
    values->all = all;
    values->query = query;
    memset(values->looked, 0, sizeof values->looked);
    memset(values->found, 0, sizeof values->found);
    values->client_state = WEIR__CLIENT_UNKNOWN;
    values->have_target = values->have_path = values->have_arguments = false;
    values->scratch_used = 0;
}

/* ---- What the caller gives ---- */

static bool is_asked(const weir_attribute *given, enum weir_attribute_kind kind, weir_text name)
{
    if (given->kind != kind || !given->value)
        return false;
    if (kind != WEIR_ATTR_HEADER && kind != WEIR_ATTR_NAMED)
        return true;
    if (!given->name)
        return false;
    weir_text its = {given->name, strlen(given->name)};
    return kind == WEIR_ATTR_HEADER ? weir__text_equal_nocase(its, name) : weir__text_equal(its, name);
}

/* What is empty is missing. */
static bool ask(const weir_query *query, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    if (query->lookup) {
        *value = (weir_text){NULL, 0};
        return query->lookup(query->lookup_context, kind, name, value) && value->data && value->len > 0;
    }
    if (!query->attributes)
        return false;
    for (size_t i = 0; i < query->attribute_count; i++)
        if (is_asked(&query->attributes[i], kind, name)) {
            *value = (weir_text){query->attributes[i].value, strlen(query->attributes[i].value)};
            return value->len > 0;
        }
    return false;
}

static bool ask_plain(const weir_query *query, enum weir_attribute_kind kind, weir_text *value)
{
    return ask(query, kind, (weir_text){"", 0}, value);
}

static weir_text target_of(struct weir__values *values)
{
    if (!values->have_target) {
        values->have_target = true;
        if (!ask_plain(values->query, WEIR_ATTR_TARGET, &values->target))
            values->target = (weir_text){"", 0};
    }
    return values->target;
}

/* ---- Path and arguments ---- */

/* Also for those that are made of it. */
static bool find_path(struct weir__values *values, weir_text *value)
{
    if (!values->have_path) {
        weir_text path = {"", 0}, target;
        values->have_path = true;
        if (ask_plain(values->query, WEIR_ATTR_PATH, &path)) {
            if (path.len > WEIR__PATH_MAX)
                path.len = WEIR__PATH_MAX;
        } else if ((target = target_of(values)).len > 0) {
            path.data = values->path_room;
            path.len = weir__target_normalise(target, values->path_room, sizeof values->path_room, NULL);
        } else {
            path.len = 0;
        }
        values->path = path;
    }
    *value = values->path;
    return value->len > 0;
}

/* The Nth part of a path. */
static bool find_segment(struct weir__values *values, int number, weir_text *value)
{
    weir_text path;

    if (!find_path(values, &path))
        return false;
    const char *at = path.data, *end = path.data + path.len;
    for (int i = 0; i < number; i++) {
        const char *slash = memchr(at, '/', (size_t)(end - at));
        if (!slash || (i == 0 && slash != at)) /* "*" has no parts */
            return false;
        at = slash + 1;
    }
    const char *slash = memchr(at, '/', (size_t)(end - at));
    *value = (weir_text){at, (size_t)((slash ? slash : end) - at)};
    return value->len > 0;
}

static bool find_argument(struct weir__values *values, weir_text name, weir_text *value)
{
    if (!values->have_arguments) {
        values->have_arguments = true;
        if (!ask_plain(values->query, WEIR_ATTR_QUERY, &values->arguments))
            values->arguments = weir__target_query(target_of(values));
    }
    if (!weir__argument_find(values->arguments, name, value) || value->len == 0)
        return false;
    if (!weir__argument_is_plain(*value) && value->len <= sizeof values->scratch - values->scratch_used) {
        char *room = values->scratch + values->scratch_used;
        *value = (weir_text){room, weir__argument_decode(*value, room)};
        values->scratch_used += (uint32_t)value->len;
    }
    return true;
}

static bool find_cookie(struct weir__values *values, weir_text name, weir_text *value)
{
    weir_text header;

    return ask(values->query, WEIR_ATTR_HEADER, WEIR__TEXT("cookie"), &header) &&
           weir__cookie_find(header, name, value) && value->len > 0;
}

/* ---- Host and method ---- */

/* "example.com:8080", "example.com.", "[::1]:443": the part that names. */
static weir_text bare_host(weir_text host)
{
    if (host.data[0] == '[') {
        const char *close = memchr(host.data, ']', host.len);
        if (close)
            host.len = (size_t)(close - host.data) + 1;
        return host;
    }
    const char *colon = memchr(host.data, ':', host.len);
    if (colon) {
        size_t before = (size_t)(colon - host.data);
        /* More than one colon: an IPv6 address without its brackets, all of it. */
        if (!memchr(colon + 1, ':', host.len - before - 1))
            host.len = before;
    }
    if (host.len > 0 && host.data[host.len - 1] == '.')
        host.len--;
    return host;
}

static bool find_host(struct weir__values *values, weir_text *value)
{
    if (!ask_plain(values->query, WEIR_ATTR_HOST, value))
        return false;
    *value = bare_host(*value);
    size_t i = 0;
    while (i < value->len && weir__lower(value->data[i]) == (unsigned char)value->data[i])
        i++;
    if (i < value->len && value->len <= sizeof values->host) {
        for (i = 0; i < value->len; i++)
            values->host[i] = (char)weir__lower(value->data[i]);
        value->data = values->host;
    }
    return value->len > 0;
}

static bool is_small_letter(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool find_method(struct weir__values *values, weir_text *value)
{
    if (!ask_plain(values->query, WEIR_ATTR_METHOD, value))
        return false;
    size_t i = 0;
    while (i < value->len && !is_small_letter(value->data[i]))
        i++;
    if (i < value->len && value->len <= sizeof values->method) {
        for (i = 0; i < value->len; i++)
            values->method[i] = (char)(value->data[i] - (is_small_letter(value->data[i]) ? 'a' - 'A' : 0));
        value->data = values->method;
    }
    return true;
}

/* ---- The client ---- */

static bool find_peer(const weir_query *query, struct weir__address *peer)
{
    weir_text text;

    if (query->peer && weir__address_from(query->peer, query->peer_len, peer))
        return true;
    return ask_plain(query, WEIR_ATTR_PEER, &text) && weir__address_parse(text, peer);
}

static bool find_client(struct weir__values *values)
{
    const struct weir__networks *trusted = values->all->identity.trusted;
    struct weir__address peer;

    if (!find_peer(values->query, &peer))
        return false;
    values->client = peer;
    if (trusted && weir__networks_contain(trusted, &peer)) {
        weir_text standard = {"", 0}, usual = {"", 0};
        if (!ask(values->query, WEIR_ATTR_HEADER, WEIR__TEXT("forwarded"), &standard)) {
            standard.len = 0;
            if (!ask(values->query, WEIR_ATTR_HEADER, WEIR__TEXT("x-forwarded-for"), &usual))
                usual.len = 0;
        }
        weir__client_behind(&peer, trusted, usual, standard, &values->client);
    }
    return true;
}

const struct weir__address *weir__value_client(struct weir__values *values)
{
    if (values->client_state == WEIR__CLIENT_UNKNOWN)
        values->client_state = find_client(values) ? WEIR__CLIENT_KNOWN : WEIR__CLIENT_NONE;
    return values->client_state == WEIR__CLIENT_KNOWN ? &values->client : NULL;
}

static bool find_client_text(struct weir__values *values, weir_text *value)
{
    const struct weir__address *client = weir__value_client(values);
    if (!client)
        return false;
    const struct weir__identity *identity = &values->all->identity;
    int group = weir__address_is4(client) ? 96 + identity->ipv4_prefix : identity->ipv6_prefix;
    struct weir__address grouped = *client;
    weir__address_mask(&grouped, group);
    *value = (weir_text){values->client_text, weir__address_text(&grouped, group, values->client_text)};
    return true;
}

/* ---- All of them ---- */

static bool find(struct weir__values *values, const struct weir__attribute *attribute, weir_text *value)
{
    switch (attribute->kind) {
    case WEIR__ATTR_PATH:
        return find_path(values, value);
    case WEIR__ATTR_METHOD:
        return find_method(values, value);
    case WEIR__ATTR_HOST:
        return find_host(values, value);
    case WEIR__ATTR_CLIENT_IP:
        return find_client_text(values, value);
    case WEIR__ATTR_HEADER:
        return ask(values->query, WEIR_ATTR_HEADER, attribute->name, value);
    case WEIR__ATTR_COOKIE:
        return find_cookie(values, attribute->name, value);
    case WEIR__ATTR_QUERY:
        return find_argument(values, attribute->name, value);
    case WEIR__ATTR_SEGMENT:
        return find_segment(values, attribute->segment, value);
    case WEIR__ATTR_NAMED:
        return ask(values->query, WEIR_ATTR_NAMED, attribute->name, value);
    }
    return false;
}

bool weir__value_find(struct weir__values *values, int attribute, weir_text *value)
{
    const struct weir__attribute *all = values->all->list, *asked = &all[attribute];
    uint64_t bit = UINT64_C(1) << (attribute & 63);
    weir_text found = {"", 0};

    bool has = find(values, asked, &found);
    /* One step and no more: a named one is no source. */
    if (!has && asked->kind == WEIR__ATTR_NAMED && asked->source >= 0 && all[asked->source].kind != WEIR__ATTR_NAMED)
        has = weir__value(values, asked->source, &found);
    if (!has)
        found = (weir_text){"", 0};
    values->looked[attribute >> 6] |= bit;
    if (has)
        values->found[attribute >> 6] |= bit;
    values->value[attribute] = found;
    *value = found;
    return has;
}
