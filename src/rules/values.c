/* The values of a request's attributes: each looked up once, when a rule needs it. */
#include "rules/attribute.h"

#include <stdio.h>

void weir__values_begin(struct weir__values *values, const struct weir__attributes *all, const weir_query *query)
{
    values->all = all;
    values->query = query;
    memset(values->looked, 0, sizeof values->looked);
    memset(values->cut, 0, sizeof values->cut);
    memset(values->several, 0, sizeof values->several);
    values->client_state = WEIR__CLIENT_UNKNOWN;
    values->have_target = values->have_path = values->have_arguments = values->have_cookies = values->path_cut =
        values->two_readings = false;
    values->scratch_used = 0;
}

/* ---- Attributes from the caller ---- */

static bool is_attribute(const weir_attribute *given, enum weir_attribute_kind kind, weir_text name)
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

/*
 * These functions return a text, empty if the attribute is missing. Returned in registers: writing two words and
 * copying them as one would stall on store forwarding.
 */
#define MISSING ((weir_text){"", 0})

static weir_text given(const weir_query *query, enum weir_attribute_kind kind, weir_text name)
{
    weir_text value = MISSING;

    if (query->lookup)
        return query->lookup(query->lookup_context, kind, name, &value) && value.data ? value : MISSING;
    for (size_t i = 0; query->attributes && i < query->attribute_count; i++)
        if (is_attribute(&query->attributes[i], kind, name))
            return (weir_text){query->attributes[i].value, strlen(query->attributes[i].value)};
    return MISSING;
}

/*
 * A value that may come from a header, without optional white space around it (RFC 9110, section 5.5). Upstream servers
 * strip it, so a key with it would be another counter for the same client. Blanks of paths and arguments were percent-
 * encoded and are kept.
 */
static weir_text given_trimmed(const weir_query *query, enum weir_attribute_kind kind, weir_text name)
{
    weir_text value = given(query, kind, name);

    if (value.len > 0 && (unsigned char)value.data[0] > ' ' && (unsigned char)value.data[value.len - 1] > ' ')
        return value; /* the fast path */
    return weir__text_trim(value);
}

static weir_text target_of(struct weir__values *values)
{
    if (!values->have_target) {
        values->have_target = true;
        values->target = given(values->query, WEIR_ATTR_TARGET, MISSING);
    }
    return values->target;
}

/* ---- Path and arguments ---- */

/* True if a path parameter of the target may have an encoded slash in it, which ends it for a server that decodes
 * first. */
static bool parameter_may_have_slash(weir_text target)
{
    weir_text path = weir__text_cut(&target, '?');
    const char *at = path.len ? memchr(path.data, ';', path.len) : NULL;
    for (const char *end = path.data + path.len; at && end - at > 2; at++)
        if (at[0] == '%' && at[1] == '2' && weir__lower(at[2]) == 'f')
            return true;
    return false;
}

weir_text weir__value_path(struct weir__values *values)
{
    if (values->have_path)
        return values->path;

    weir_text path = values->query->path, target;
    if (!path.data)
        path = given(values->query, WEIR_ATTR_PATH, MISSING);
    values->full_path = path;
    if (path.len > WEIR__PATH_MAX) {
        path.len = WEIR__PATH_MAX;
        values->path_cut = true;
    }
    if (path.len == 0 && (target = target_of(values)).len > 0) {
        path.data = values->path_room;
        path.len = weir__target_normalise(target, values->path_room, sizeof values->path_room, &values->path_cut);
        values->full_path = path;
    }
    values->two_readings = !values->query->path.data && parameter_may_have_slash(target_of(values));
    values->have_path = true;
    values->path = path;
    return path;
}

/* Writes the normal form to `room` of WEIR__PATH_MAX bytes; empty: there is none. */
static weir_text spell(struct weir__values *values, unsigned form, int number, char *room, bool *cut)
{
    weir_text path = weir__value_path(values), target;

    if (path.len == 0)
        return MISSING;
    if (number == 0) {
        size_t len = weir__path_normalise(values->full_path, form, room, WEIR__PATH_MAX, cut);
        *cut |= values->path_cut && values->full_path.len == path.len;
        return (weir_text){room, len};
    }
    if (!(form & WEIR__FORM_PARAMETERS) || (target = target_of(values)).len == 0 ||
        !(values->two_readings || (values->path_cut && memchr(target.data, ';', target.len))))
        return MISSING;
    return (weir_text){room, weir__target_form(target, form, room, WEIR__PATH_MAX, cut)};
}

bool weir__value_spelling(struct weir__values *values, unsigned form, int number, struct weir__spelling *spelling)
{
    spelling->text = spell(values, form, number, spelling->room, &spelling->cut);
    return spelling->text.len > 0;
}

bool weir__value_is_spelled(struct weir__values *values, unsigned form)
{
    weir_text path = weir__value_path(values);
    return form && path.len > 0 &&
           (values->path_cut || (values->two_readings && form & WEIR__FORM_PARAMETERS) ||
            weir__path_is_spelled(values->full_path, form));
}

/* The path in a normal form, for keys: the last spelling, of which parameters can make the fewest. */
static weir_text find_path(struct weir__values *values, unsigned form, bool *cut)
{
    weir_text path = weir__value_path(values), found = MISSING;

    *cut = values->path_cut;
    if (!weir__value_is_spelled(values, form))
        return path;
    for (int i = WEIR__SPELLINGS; i-- > 0 && found.len == 0;)
        found = spell(values, form, i, values->form_room, cut);
    return found;
}

/* The Nth part of the path. */
static weir_text find_segment(struct weir__values *values, const struct weir__attribute *attribute, bool *cut)
{
    weir_text path = find_path(values, attribute->form, cut);
    int number = attribute->segment;
    const char *at = path.data, *end = path.data + path.len;

    if (path.len == 0 || *at != '/')
        return MISSING; /* "*" has no parts */
    for (int i = 0; i < number; i++) {
        const char *slash = memchr(at, '/', (size_t)(end - at));
        if (!slash)
            return MISSING;
        at = slash + 1;
    }
    const char *slash = memchr(at, '/', (size_t)(end - at));
    *cut &= !slash;
    return (weir_text){at, (size_t)((slash ? slash : end) - at)};
}

static weir_text arguments_of(struct weir__values *values)
{
    if (!values->have_arguments) {
        weir_text arguments = given(values->query, WEIR_ATTR_QUERY, MISSING);
        values->have_arguments = true;
        values->arguments = arguments.len > 0 ? arguments : weir__target_query(target_of(values));
    }
    return values->arguments;
}

/*
 * The bytes of each argument: independent of its spelling and of the others, so that the spelling does not choose the
 * counter.
 */
static size_t argument_most(const struct weir__values *values)
{
    size_t part = sizeof values->scratch / (size_t)(values->all->arguments ? values->all->arguments : 1);
    return part < WEIR__ARGUMENT_MAX ? part : WEIR__ARGUMENT_MAX;
}

static weir_text find_argument(struct weir__values *values, weir_text name, bool *cut, bool *several)
{
    weir_text raw = MISSING;
    *several = weir__argument_find(arguments_of(values), name, &raw, 1) > 1;
    if (raw.len == 0)
        return MISSING;
    size_t most = argument_most(values);
    size_t left = sizeof values->scratch - values->scratch_used; /* never less, in a set that is complete */
    if (weir__argument_is_plain(raw)) {
        *cut = raw.len > most;
        return (weir_text){raw.data, *cut ? most : raw.len};
    }
    char *room = values->scratch + values->scratch_used;
    size_t len = weir__argument_decode(raw, room, most < left ? most : left, cut);
    values->scratch_used += (uint32_t)len;
    return (weir_text){room, len};
}

static weir_text cookies_of(struct weir__values *values)
{
    if (!values->have_cookies) {
        values->have_cookies = true;
        values->cookies = given_trimmed(values->query, WEIR_ATTR_HEADER, WEIR__TEXT("cookie"));
    }
    return values->cookies;
}

static weir_text find_cookie(struct weir__values *values, weir_text name, bool *several)
{
    weir_text value = MISSING;

    *several = weir__cookie_find(cookies_of(values), name, &value, 1) > 1;
    return value;
}

/* What a named attribute's map has for a value of its source. A value that was cut is not in it. */
static weir_text mapped(const struct weir__mapping *mapping, weir_text from, bool *cut)
{
    weir_text found = *cut ? MISSING : weir__map_find(mapping->map, from);
    *cut = false;
    return found.len > 0 ? found : mapping->fallback;
}

/* The value of an attribute whose cookie or argument has this one. */
static weir_text of_source(const struct weir__attributes *all, int attribute, weir_text value, bool *cut)
{
    const struct weir__attribute *wanted = &all->list[attribute];
    if (wanted->kind != WEIR__ATTR_NAMED)
        return value;
    value = of_source(all, wanted->source, value, cut); /* the reader has refused cycles */
    return wanted->mapping ? mapped(wanted->mapping, value, cut) : value;
}

void weir__value_several(struct weir__values *values, int attribute, struct weir__several *several)
{
    const struct weir__attribute *all = values->all->list, *wanted = &all[attribute];

    while (wanted->kind == WEIR__ATTR_NAMED)
        wanted = &all[wanted->source];
    several->all = values->all;
    several->attribute = attribute;
    bool argument = wanted->kind == WEIR__ATTR_QUERY;
    size_t count = argument ? weir__argument_find(arguments_of(values), wanted->name, several->raw, WEIR__SEVERAL_MAX)
                            : weir__cookie_find(cookies_of(values), wanted->name, several->raw, WEIR__SEVERAL_MAX);
    several->most = argument ? argument_most(values) : 0;
    several->more = count > WEIR__SEVERAL_MAX;
    several->count = several->more ? WEIR__SEVERAL_MAX : count;
}

weir_text weir__several_value(struct weir__several *several, size_t number, bool *cut)
{
    weir_text value = several->raw[number];

    *cut = false;
    if (several->most)
        value = (weir_text){several->room, weir__argument_decode(value, several->room, several->most, cut)};
    return of_source(several->all, several->attribute, value, cut);
}

/* ---- Host and method ---- */

/* The name in "example.com:8080", "example.com." or "[::1]:443". */
static weir_text bare_host(weir_text host)
{
    if (host.len > 0 && host.data[0] == '[') {
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

static weir_text find_host(struct weir__values *values)
{
    weir_text host = bare_host(given_trimmed(values->query, WEIR_ATTR_HOST, MISSING));
    size_t i = 0;

    while (i < host.len && weir__lower(host.data[i]) == (unsigned char)host.data[i])
        i++;
    if (i == host.len || host.len > sizeof values->host)
        return host;
    for (i = 0; i < host.len; i++)
        values->host[i] = (char)weir__lower(host.data[i]);
    return (weir_text){values->host, host.len};
}

static bool is_small_letter(char c)
{
    return c >= 'a' && c <= 'z';
}

static weir_text find_method(struct weir__values *values)
{
    weir_text method = given_trimmed(values->query, WEIR_ATTR_METHOD, MISSING);
    size_t i = 0;

    while (i < method.len && !is_small_letter(method.data[i]))
        i++;
    if (i == method.len || method.len > sizeof values->method)
        return method;
    for (i = 0; i < method.len; i++)
        values->method[i] = (char)(method.data[i] - (is_small_letter(method.data[i]) ? 'a' - 'A' : 0));
    return (weir_text){values->method, method.len};
}

weir_text weir__value_request_id(struct weir__values *values, bool header)
{
    weir_text id = given_trimmed(values->query, WEIR_ATTR_NAMED, WEIR__TEXT("request_id"));
    return id.len || !header ? id : given_trimmed(values->query, WEIR_ATTR_HEADER, WEIR__TEXT("x-request-id"));
}

/* ---- The client ---- */

static bool find_peer(const weir_query *query, struct weir__address *peer)
{
    if (query->peer && weir__address_from(query->peer, query->peer_len, peer))
        return true;
    return weir__address_parse(given_trimmed(query, WEIR_ATTR_PEER, MISSING), peer);
}

static bool find_client(struct weir__values *values)
{
    const struct weir__networks *trusted = values->all->identity.trusted;

    if (!find_peer(values->query, &values->client))
        return false;
    if (trusted && weir__networks_contain(trusted, &values->client)) {
        struct weir__address peer = values->client;
        enum weir__forwarded_header forwarded_header = values->all->identity.forwarded_header;
        weir_text x_forwarded_for = MISSING, forwarded = MISSING;
        if (forwarded_header != WEIR__FORWARDED_STANDARD)
            x_forwarded_for = given_trimmed(values->query, WEIR_ATTR_HEADER, WEIR__TEXT("x-forwarded-for"));
        if (forwarded_header != WEIR__FORWARDED_X && x_forwarded_for.len == 0)
            forwarded = given_trimmed(values->query, WEIR_ATTR_HEADER, WEIR__TEXT("forwarded"));
        weir__client_address(&peer, trusted, x_forwarded_for, forwarded, &values->client);
    }
    return true;
}

const struct weir__address *weir__value_client(struct weir__values *values)
{
    if (values->client_state == WEIR__CLIENT_UNKNOWN)
        values->client_state = find_client(values) ? WEIR__CLIENT_KNOWN : WEIR__CLIENT_NONE;
    return values->client_state == WEIR__CLIENT_KNOWN ? &values->client : NULL;
}

int weir__value_client_group(struct weir__values *values, struct weir__address *group)
{
    const struct weir__identity *identity = &values->all->identity;
    const struct weir__address *client = weir__value_client(values);
    if (!client)
        return 0;
    int length = weir__address_is4(client) ? 96 + identity->ipv4_prefix : identity->ipv6_prefix;
    *group = *client;
    if (length < 128)
        weir__address_mask(group, length);
    return length;
}

static weir_text find_client_text(struct weir__values *values)
{
    struct weir__address group;
    int length = weir__value_client_group(values, &group);
    return length ? (weir_text){values->client_text, weir__address_text(&group, length, values->client_text)} : MISSING;
}

/* ---- All of them ---- */

static weir_text find(struct weir__values *values, const struct weir__attribute *attribute, bool *cut, bool *several)
{
    *cut = *several = false;
    switch (attribute->kind) {
    case WEIR__ATTR_PATH:
        return find_path(values, attribute->form, cut);
    case WEIR__ATTR_METHOD:
        return find_method(values);
    case WEIR__ATTR_HOST:
        return find_host(values);
    case WEIR__ATTR_CLIENT_IP:
        return find_client_text(values);
    case WEIR__ATTR_HEADER:
        return given_trimmed(values->query, WEIR_ATTR_HEADER, attribute->name);
    case WEIR__ATTR_COOKIE:
        return find_cookie(values, attribute->name, several);
    case WEIR__ATTR_QUERY:
        return find_argument(values, attribute->name, cut, several);
    case WEIR__ATTR_SEGMENT:
        return find_segment(values, attribute, cut);
    case WEIR__ATTR_NAMED:
        return given_trimmed(values->query, WEIR_ATTR_NAMED, attribute->name);
    }
    return MISSING;
}

bool weir__value_find(struct weir__values *values, int attribute, weir_text *value)
{
    const struct weir__attribute *all = values->all->list, *wanted = &all[attribute];
    uint64_t bit = UINT64_C(1) << (attribute & 63);

    bool cut, several;
    weir_text found = find(values, wanted, &cut, &several), sources;
    /* One step without a map: only with one may the source be a named attribute, too. */
    if (found.len == 0 && wanted->kind == WEIR__ATTR_NAMED && wanted->source >= 0 &&
        (all[wanted->source].kind != WEIR__ATTR_NAMED || wanted->mapping)) {
        if (weir__value(values, wanted->source, &sources))
            found = sources;
        cut = weir__value_is_cut(values, wanted->source);
        several = weir__value_is_several(values, wanted->source);
        if (wanted->mapping)
            found = mapped(wanted->mapping, found, &cut);
    }
    values->cut[attribute >> 6] = (values->cut[attribute >> 6] & ~bit) | (cut ? bit : 0);
    values->several[attribute >> 6] |= several ? bit : 0;
    *value = found;
    /* form_room may hold another normal form the next time: not cached. */
    if (found.data >= values->form_room && found.data < values->form_room + sizeof values->form_room)
        return found.len > 0;
    values->looked[attribute >> 6] |= bit;
    values->value[attribute] = found;
    return found.len > 0;
}

bool weir__value_missing_text(struct weir__values *values, int attribute, char *text, size_t size)
{
    static const char *const kind_names[] = {[WEIR__ATTR_PATH] = "path",      [WEIR__ATTR_METHOD] = "method",
                                             [WEIR__ATTR_HOST] = "host",      [WEIR__ATTR_CLIENT_IP] = "client address",
                                             [WEIR__ATTR_HEADER] = "header",  [WEIR__ATTR_COOKIE] = "cookie",
                                             [WEIR__ATTR_QUERY] = "argument", [WEIR__ATTR_SEGMENT] = "path segment",
                                             [WEIR__ATTR_NAMED] = "attribute"};
    const struct weir__attribute *wanted;
    bool credential = false, present = false;
    weir_text value;
    char number[16] = "";

    for (;; attribute = wanted->source) { /* the reader has refused cycles */
        wanted = &values->all->list[attribute];
        present |= weir__value(values, attribute, &value);
        credential |= wanted->kind == WEIR__ATTR_NAMED &&
                      (weir__text_is(wanted->name, "user_id") || weir__text_is(wanted->name, "api_key"));
        if (wanted->kind != WEIR__ATTR_NAMED || wanted->source < 0)
            break;
    }
    credential |= wanted->kind == WEIR__ATTR_HEADER &&
                  (weir__text_is(wanted->name, "authorization") || weir__text_is(wanted->name, "x-api-key"));
    if (wanted->kind == WEIR__ATTR_SEGMENT)
        snprintf(number, sizeof number, "%d", wanted->segment);
    snprintf(text, size, "%s%s%s%.*s%s", kind_names[wanted->kind], wanted->name.len || *number ? " " : "", number,
             (int)wanted->name.len, wanted->name.data, present ? " with a known value" : "");
    return credential;
}
