/*
 * Writes nginx.conf for a weir.yaml: collects the values of the template nginx.conf.in, and fills it in.
 *
 *   {{name}}                 a value, escaped for a quoted parameter
 *   {{@name}}                a comment with the value's place in weir.yaml, for nginx_message.c
 *   {{#name}}...{{/name}}    once for each element of a list, once for another value, not at all for an empty one
 *   {{^name}}...{{/name}}    only for an empty value
 *   {{=name}}...{{/name}}    a part, which {{>name}} stands for
 *   {{! ... }}               a comment
 *
 * Names are looked up in the element first, then around it; one that is nowhere is an error, so that a misspelt name
 * leaves out no directive. Tags other than values take the end of their line with them.
 */
#include "serve/deployment.h"
#include "base/text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- The template ---- */

WEIR__EMBED(weir__nginx_template, "src/serve/nginx.conf.in");

struct scope {
    const json_t *values;
    const struct scope *around;
};

static const json_t *find(const struct scope *scope, weir_text name)
{
    const json_t *found = NULL;
    for (; scope && !found; scope = scope->around)
        found = json_object_getn(scope->values, name.data, name.len);
    return found;
}

/* Cuts a text behind the next `mark`; `before` gets what is before it. False: there is none. */
static bool split(weir_text *text, const char *mark, weir_text *before)
{
    const char *at = memmem(text->data, text->len, mark, strlen(mark));
    if (!at)
        return false;
    *before = (weir_text){text->data, (size_t)(at - text->data)};
    *text = (weir_text){at + strlen(mark), text->len - before->len - strlen(mark)};
    return true;
}

/* The text up to the end of a section, or of a part. */
static weir_text section(weir_text *text, weir_text name)
{
    char end[64];
    weir_text body = {"", 0};
    snprintf(end, sizeof end, "{{/%.*s}}", (int)name.len, name.data);
    if (split(text, end, &body))
        (void)weir__text_skip(text, "\n");
    return body;
}

static weir_text part(weir_text name)
{
    char begin[64];
    weir_text text = weir__text_of(weir__nginx_template), before;
    snprintf(begin, sizeof begin, "{{=%.*s}}\n", (int)name.len, name.data);
    return split(&text, begin, &before) ? section(&text, name) : (weir_text){"", 0};
}

static void put_value(FILE *to, const char *value, bool escape)
{
    for (; value && *value; value++) {
        if (escape && (*value == '"' || *value == '\\'))
            fputc('\\', to);
        fputc(*value, to);
    }
}

/* False: the template has a name that is not known. */
static bool fill_in(FILE *to, weir_text text, const struct scope *scope)
{
    bool good = true;
    for (weir_text before, name; split(&text, "{{", &before) && split(&text, "}}", &name);) {
        char kind = *name.data;
        fwrite(before.data, 1, before.len, to);
        if (strchr("#^=>!", kind))
            name = (weir_text){name.data + 1, name.len - 1};
        const json_t *value = strchr("=>!", kind) ? NULL : find(scope, name);
        good &= value || strchr("=>!", kind);
        if (!strchr("#^=>!", kind)) {
            put_value(to, json_string_value(value), kind != '@');
            continue;
        }
        (void)weir__text_skip(&text, "\n");
        weir_text body = kind == '>' ? part(name) : kind == '!' ? (weir_text){"", 0} : section(&text, name);
        bool empty = json_is_string(value) && json_string_length(value) == 0;
        if (kind == '#' && json_is_array(value))
            for (size_t i = 0; i < json_array_size(value); i++)
                good &= fill_in(to, body, &(struct scope){json_array_get(value, i), scope});
        else if (kind == '>' || (kind == '#' && !empty) || (kind == '^' && empty))
            good &= fill_in(to, body, scope);
    }
    fwrite(text.data, 1, text.len, to);
    return good;
}

/* ---- Values ---- */

struct writer {
    const struct weir__config *config;
    const struct weir__facts *facts;
    const struct weir__nginx_setting *setting;
    bool failed; /* no memory */
};

static void set(struct writer *w, json_t *to, const char *name, json_t *value)
{
    w->failed |= json_object_set_new_nocheck(to, name, value) != 0;
}

__attribute__((format(printf, 4, 5))) static void add(struct writer *w, json_t *to, const char *name,
                                                      const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int len = vasprintf(&text, format, arguments);
    va_end(arguments);
    set(w, to, name, len >= 0 ? json_stringn_nocheck(text, (size_t)len) : NULL);
    if (len > 0)
        explicit_bzero(text, (size_t)len); /* may be a token or a password */
    if (len >= 0)
        free(text);
}

/* Overwrites the texts, which may be tokens and passwords: the agent inherits the memory. */
static void wipe(json_t *value)
{
    const char *name;
    json_t *member;
    size_t i;
    if (json_is_string(value))
        explicit_bzero((char *)(uintptr_t)json_string_value(value), json_string_length(value));
    json_object_foreach(value, name, member) wipe(member);
    json_array_foreach(value, i, member) wipe(member);
}

static void add_text(struct writer *w, json_t *to, const char *name, const char *text)
{
    add(w, to, name, "%s", text ? text : "");
}

static void add_number(struct writer *w, json_t *to, const char *name, int64_t number)
{
    add(w, to, name, "%" PRId64, number);
}

/* Adds a number as text, and an empty text for 0. */
static void add_some(struct writer *w, json_t *to, const char *name, int64_t number)
{
    if (number)
        add_number(w, to, name, number);
    else
        add_text(w, to, name, "");
}

static void add_flag(struct writer *w, json_t *to, const char *name, bool flag)
{
    add(w, to, name, "%s", flag ? "on" : "");
}

/* Adds the place of a value in weir.yaml, as a comment. */
static void add_place(struct writer *w, json_t *to, const char *value, struct weir__place place)
{
    char file[4200], name[64];
    snprintf(name, sizeof name, "@%s", value);
    snprintf(file, sizeof file, "%s", w->config->file);
    for (char *c = file; *c; c++)
        *c = (unsigned char)*c < 0x20 ? '?' : *c;
    if (place.line > 0)
        add(w, to, name, " # %s:%u:%u", file, place.line, place.column);
    else
        add_text(w, to, name, "");
}

/* Adds a text and its place. */
static void add_placed(struct writer *w, json_t *to, const char *name, const char *text, struct weir__place place)
{
    add_text(w, to, name, text);
    add_place(w, to, name, place);
}

/* Adds an empty list. */
static json_t *add_list(struct writer *w, json_t *to, const char *name)
{
    json_t *list = json_array();
    set(w, to, name, list);
    return list;
}

/* Adds an element to a list. */
static json_t *add_element(struct writer *w, json_t *list)
{
    json_t *element = json_object();
    w->failed |= json_array_append_new(list, element) != 0;
    return element;
}

static void add_process(struct writer *w, json_t *to)
{
    enum { CONNECTIONS = 10240, RESERVED = 64, FEWEST = 64 };
    const struct weir__config *config = w->config;
    long files = w->setting->open_files - RESERVED;
    add_text(w, to, "module", w->setting->nginx->module);
    add_flag(w, to, "stream", weir__has_listener(config, WEIR__RESP));
    add_text(w, to, "stream_core", w->setting->nginx->stream_core);
    add_text(w, to, "stream_module", w->setting->nginx->stream_module);
    add_placed(w, to, "user", w->facts->workers.user, config->user_place);
    add_text(w, to, "group", w->facts->workers.group);
    add_some(w, to, "workers", config->workers);
    add_number(w, to, "number", w->setting->number);
    add_number(w, to, "connections", files > CONNECTIONS ? CONNECTIONS : files < FEWEST ? FEWEST : files);
}

/* Segment, rules and store. */
static void add_rules(struct writer *w, json_t *to)
{
    const struct weir__config *config = w->config;
    const struct weir__store *store = &config->store;
    bool test_only = w->setting->test_only;
    add_placed(w, to, "segment", test_only ? "segment" : config->segment_path, config->segment_place);
    add_number(w, to, "segment_bytes", test_only ? INT64_C(1) << 20 : config->segment_bytes);
    add_some(w, to, "hot_bytes", test_only ? 0 : config->hot_bytes);
    add_flag(w, to, "hot_hash", config->hot_hash || config->denied_hash || config->denial_hash); /* for all of them */
    add_place(w, to, "hot_bytes", config->hot_place);
    add_some(w, to, "denial_bytes", test_only ? 0 : config->denial_bytes);
    add_place(w, to, "denial_bytes", config->denial_place);
    add_flag(w, to, "load", config->load.on && !test_only);
    add_place(w, to, "load", config->load.place);
    add_placed(w, to, "rules_file", w->setting->rules_file, config->rules_place);
    add_flag(w, to, "rules_by_workers", w->setting->rules_by_workers);
    add_placed(w, to, "store", store->url, store->place);
    json_t *settings = add_list(w, to, "store_settings");
    for (size_t i = 0; i < store->setting_count; i++) {
        json_t *setting = add_element(w, settings);
        add_text(w, setting, "name", store->settings[i].name);
        add_text(w, setting, "value", store->settings[i].value);
    }
}

static void add_logs(struct writer *w, json_t *to)
{
    const struct weir__config *config = w->config;
    const char *all = w->setting->test_only ? "/dev/null" : NULL;
    const char *access = all ? all : config->access_path ? config->access_path : "/dev/stderr";
    const char *denied = all ? all : config->denied_path ? config->denied_path : "/dev/stderr";
    add_text(w, to, "access_text", config->access_log == WEIR__LOG_TEXT ? access : "");
    add_text(w, to, "access_json", config->access_log == WEIR__LOG_JSON ? access : "");
    add_place(w, to, "access", config->access_place);
    add_placed(w, to, "denied_path", config->denied_log ? denied : NULL, config->denied_place);
    add_number(w, to, "denied_rate", config->denied_rate);
    add_flag(w, to, "denied_hash", config->denied_hash);
}

/* ---- Routes ---- */

static void add_upstreams(struct writer *w, json_t *to)
{
    const struct weir__config *config = w->config;
    json_t *upstreams = add_list(w, to, "upstreams");
    for (size_t i = 0; i < config->route_count; i++) {
        const struct weir__route *route = &config->routes[i];
        json_t *upstream = add_element(w, upstreams), *servers = add_list(w, upstream, "upstream_servers");
        add(w, upstream, "upstream", "weir_%zu", i);
        add(w, upstream, "zone_kib", "%zu", 64 + 2 * route->server_count);
        for (size_t j = 0; j < route->server_count; j++)
            add_placed(w, add_element(w, servers), "address", route->servers[j].address, route->servers[j].place);
    }
    add_number(w, to, "max_fails", config->max_fails);
    add_number(w, to, "fail_s", config->fail_ms / 1000);
    add_some(w, to, "keepalive", config->keepalive);
    add_number(w, to, "connect_ms", config->connect_ms);
    add_number(w, to, "read_ms", config->read_ms);
    add_number(w, to, "send_ms", config->send_ms);
    add_number(w, to, "body_bytes", config->body_bytes);
    add_placed(w, to, "upstream_ca", w->facts->upstream_ca, config->upstream_ca_place);
}

/* `route` NULL: no upstream for this path. */
static void add_location(struct writer *w, json_t *to, bool exact, weir_text path, const struct weir__route *route)
{
    const struct weir__server *server = route ? &route->servers[0] : NULL;
    json_t *location = add_element(w, to);
    bool https = server && server->https;
    const char *name = w->config->upstream_name;
    add_text(w, location, "modifier", exact ? "= " : "");
    add(w, location, "path", "%.*s", (int)path.len, path.data);
    if (route)
        add(w, location, "upstream", "weir_%zu", (size_t)(route - w->config->routes));
    else
        add_text(w, location, "upstream", "");
    add_text(w, location, "ssl_name", !https ? "" : name ? name : server->host);
}

static const struct weir__route *route_of(const struct weir__config *config, enum weir__route_kind kind, weir_text path)
{
    for (size_t i = 0; i < config->route_count; i++)
        if (config->routes[i].kind == kind && weir__text_is(path, config->routes[i].path))
            return &config->routes[i];
    return NULL;
}

static void add_locations(struct writer *w, json_t *to)
{
    const struct weir__config *config = w->config;
    const struct weir__route *all = route_of(config, WEIR__ROUTE_ALL, WEIR__TEXT("/"));
    json_t *locations = add_list(w, to, "locations");
    for (size_t i = 0; i < config->route_count; i++) {
        const struct weir__route *route = &config->routes[i];
        weir_text path = weir__text_of(route->path), bare = {path.data, path.len - 1};
        if (route->kind != WEIR__ROUTE_ALL)
            add_location(w, locations, route->kind == WEIR__ROUTE_EXACT, path, route);
        /* Without it nginx redirects /api to /api/. */
        if (route->kind == WEIR__ROUTE_PREFIX && !route_of(config, WEIR__ROUTE_EXACT, bare))
            add_location(w, locations, true, bare, all);
    }
    add_location(w, locations, false, WEIR__TEXT("/"), all);
}

/* ---- The queue ---- */

/* Idle connections of all workers to the agent; half of the agent's limit, so that none is refused. */
#define IDLE_MAX 2048
/* Concurrent ticket requests, which no rule limits: bounded, so that they do not displace requests to be deferred. */
#define LOOKS_MAX 512

static long share_of_worker(const struct weir__config *config, long all, long most)
{
    enum { FEWEST = 4 };
    long workers = config->workers ? (long)config->workers : sysconf(_SC_NPROCESSORS_ONLN);
    long share = all / (workers > 0 ? workers : 1);
    return share > most ? most : share < FEWEST ? FEWEST : share;
}

static void add_queue(struct writer *w, json_t *to)
{
    const struct weir__config *config = w->config;
    const struct weir__queue_config *queue = &config->queue;
    /* A body longer than body_bytes is never forwarded. */
    int64_t body =
        config->body_bytes && config->body_bytes < queue->body_bytes ? config->body_bytes : queue->body_bytes;
    add_text(w, to, "queue", queue->wanted && config->route_count ? queue->socket : "");
    add_number(w, to, "queue_idle", share_of_worker(config, IDLE_MAX, IDLE_MAX / 8));
    add_number(w, to, "queue_looks", share_of_worker(config, LOOKS_MAX, LOOKS_MAX));
    add_number(w, to, "queue_body", body);
    add_number(w, to, "queue_body_max", body ? body : 1);
    add_text(w, to, "delivery", queue->deliver_to ? "" : queue->gateway ? queue->gateway : "deliver/socket");
}

/* ---- Listeners ---- */

static void add_listener(struct writer *w, json_t *to, const struct weir__listener *listener)
{
    enum { HTTP2_DIRECTIVE = 1025001 }; /* nginx 1.25.1: http2 is a directive */
    static const char *const kinds[] = {[WEIR__GATEWAY] = "is_gateway",
                                        [WEIR__GRPC] = "is_grpc",
                                        [WEIR__HTTP_API] = "is_http",
                                        [WEIR__RESP] = "is_resp"};
    const struct weir__tls *tls = &listener->tls;
    bool http2 = listener->kind == WEIR__GRPC || (listener->http2 && listener->kind != WEIR__RESP);
    for (int kind = 0; kind < (int)(sizeof kinds / sizeof *kinds); kind++)
        add_flag(w, to, kinds[kind], kind == (int)listener->kind);
    add_placed(w, to, "address", listener->address, listener->place);
    bool directive = w->setting->nginx->version >= HTTP2_DIRECTIVE && listener->kind != WEIR__RESP;
    add_flag(w, to, "http2_parameter", http2 && !directive);
    add_text(w, to, "http2_directive", !directive ? "" : http2 ? "on" : "off");
    add_placed(w, to, "certificate", tls->certificate, tls->certificate_place);
    add_placed(w, to, "key", tls->key, tls->key_place);
    add_placed(w, to, "client_ca", tls->client_ca, tls->client_ca_place);
}

static void add_listeners(struct writer *w, json_t *to)
{
    const struct weir__config *config = w->config;
    const struct weir__access *access = &config->access;
    json_t *listeners = add_list(w, to, "listeners"), *tokens = add_list(w, to, "tokens");
    json_t *proxies = add_list(w, to, "auth_proxies");
    for (size_t i = 0; i < config->listener_count; i++)
        add_listener(w, add_element(w, listeners), &config->listeners[i]);
    for (size_t i = 0; i < access->token_count; i++) {
        json_t *token = add_element(w, tokens);
        add_text(w, token, "token", access->token[i]);
        add_flag(w, token, "operator", access->token_operator[i]);
    }
    for (size_t i = 0; i < config->auth.proxy_count; i++)
        add_text(w, add_element(w, proxies), "proxy", config->auth.proxy[i]);
    add_text(w, to, "auth_headers", config->auth.headers ? weir__auth_headers[config->auth.headers - 1] : "");
    add_flag(w, to, "open_operator", access->open_operator);
    add_flag(w, to, "open_api", access->open[WEIR__ENDPOINT_API]);
    add_flag(w, to, "open_auth", access->open[WEIR__ENDPOINT_AUTH]);
    add_flag(w, to, "open_json", access->open[WEIR__ENDPOINT_JSON]);
    add_text(w, to, "rls_headers", config->rls_headers ? "on" : "off");
    add_text(w, to, "rls_metadata", config->rls_metadata ? "on" : "off");
    add_text(w, to, "rls_count_denied", config->rls_count_denied ? "on" : "off");
    add_text(w, to, "resp_password", access->password);
    add_text(w, to, "resp_operator_password", access->operator_password);
    static const struct weir__listener none = {.address = ""};
    const struct weir__listener *metrics = config->metrics ? config->metrics : &none;
    add_placed(w, to, "metrics", metrics->address, metrics->place);
}

char *weir__nginx_conf(const struct weir__config *config, const struct weir__facts *facts,
                       const struct weir__nginx_setting *setting)
{
    char *text = NULL;
    size_t len;
    struct writer w = {config, facts, setting, false};
    json_t *values = json_object();
    add_process(&w, values);
    add_rules(&w, values);
    add_logs(&w, values);
    add_upstreams(&w, values);
    add_locations(&w, values);
    add_queue(&w, values);
    add_listeners(&w, values);
    FILE *to = w.failed ? NULL : open_memstream(&text, &len);
    bool good = to && fill_in(to, weir__text_of(weir__nginx_template), &(struct scope){values, NULL});
    wipe(values);
    json_decref(values);
    good &= to && !ferror(to);
    good &= to && fclose(to) == 0;
    if (good)
        return text;
    free(text);
    return NULL;
}
