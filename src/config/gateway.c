/* weir.yaml: `gateway`: listeners, TLS, upstream servers and routes. */
#include "config/config.h"
#include "rules/yaml.h"

/* ---- Listening ---- */

bool weir__config_tls(struct weir__reader *reader, const struct weir__node *node, struct weir__tls *tls)
{
    static const char *const names[] = {"certificate", "key", "client_ca"};
    const struct weir__node *certificate = NULL, *key = NULL, *client_ca = NULL;
    if (!weir__field_names(reader->report, node, "tls", WEIR__LIST_OF(names)))
        return false;
    if (!WEIR__GIVEN(certificate, node, "certificate") || !WEIR__GIVEN(key, node, "key"))
        return weir__report_error(reader->report, node->place, "tls needs certificate and key, and has no %s",
                                  certificate ? "key" : "certificate");
    tls->certificate = weir__config_path(reader, certificate, "certificate");
    tls->key = weir__config_path(reader, key, "key");
    tls->certificate_place = certificate->place;
    tls->key_place = key->place;
    tls->client_ca = NULL;
    if (WEIR__GIVEN(client_ca, node, "client_ca")) {
        tls->client_ca = weir__config_path(reader, client_ca, "client_ca");
        tls->client_ca_place = client_ca->place;
        if (!tls->client_ca)
            return false;
    }
    return tls->certificate && tls->key;
}

void weir__config_listen(struct weir__reader *reader, const struct weir__node *node, const char *what,
                         enum weir__listener_kind kind, const struct weir__tls *common)
{
    static const char *const names[] = {"address", "tls", "http2"};
    struct weir__config *config = reader->config;
    if (!config->listeners)
        return; /* no memory; reported by the caller */
    if (config->listener_count == WEIR__LISTENERS_MAX) {
        weir__report_error(reader->report, node->place, "there are more than %d listeners", WEIR__LISTENERS_MAX);
        return;
    }
    struct weir__listener *listener = &config->listeners[config->listener_count];
    const struct weir__node *address = node, *member;
    *listener = (struct weir__listener){.kind = kind, .tls = *common};
    if (node->kind == WEIR__MAP) {
        if (!weir__field_names(reader->report, node, what, WEIR__LIST_OF(names)))
            return;
        if (!WEIR__GIVEN(address, node, "address")) {
            weir__report_error(reader->report, node->place, "%s has no address", what);
            return;
        }
        if (WEIR__GIVEN(member, node, "tls") && !weir__config_tls(reader, member, &listener->tls))
            return;
    }
    listener->http2 = listener->tls.certificate != NULL;
    if (node->kind == WEIR__MAP && WEIR__GIVEN(member, node, "http2") &&
        !weir__field_bool(reader->report, member, "http2", &listener->http2))
        return;
    if (weir__config_listener(reader, address, what, listener))
        config->listener_count++;
}

static void listen_read(struct weir__reader *reader, const struct weir__node *node, const struct weir__tls *common)
{
    if (weir__item_count(node) == 0)
        weir__report_error(reader->report, node->place, "listen has no address");
    WEIR__EACH_ITEM (address, node)
        weir__config_listen(reader, address, "listen", WEIR__GATEWAY, common);
}

/* ---- Upstreams ---- */

/* Reads one server or a list of servers. False after a report. */
static bool servers_read(struct weir__reader *reader, const struct weir__node *node, struct weir__route *route)
{
    size_t count = weir__item_count(node), i = 0;
    if (count == 0)
        return weir__report_error(reader->report, node->place, "there is no server in this list");
    route->servers = weir__arena_array(&reader->config->arena, count, sizeof *route->servers);
    if (!route->servers)
        return false;
    bool good = true;
    WEIR__EACH_ITEM (each, node) {
        good &= weir__config_server(reader, each, &route->servers[i]);
        if (good && route->servers[i].https != route->servers[0].https)
            return weir__report_error(reader->report, each->place, "servers of one path must be all http or all https");
        i++;
    }
    route->server_count = count;
    return good;
}

/* True if a request can have this path: nginx resolves `//`, `/./` and `/../`. */
static bool is_normal(weir_text path)
{
    for (size_t from = 1, i = 1; i <= path.len; i++) {
        if (i < path.len && path.data[i] != '/')
            continue;
        size_t len = i - from;
        bool dots = len > 0 && len <= 2 && path.data[from] == '.' && path.data[i - 1] == '.';
        if (dots || (len == 0 && i < path.len))
            return false;
        from = i + 1;
    }
    return true;
}

static bool path_read(struct weir__reader *reader, const struct weir__node *node, struct weir__route *route)
{
    weir_text text;
    char shown[WEIR__SHOWN];
    if (!weir__field_text(reader->report, node, "path", &text))
        return false;
    bool rest = text.len > 0 && text.data[text.len - 1] == '*';
    text.len -= rest;
    bool good = (text.len > 0 && text.data[0] == '/') || (rest && text.len == 0);
    good &= !rest || text.len == 0 || text.data[text.len - 1] == '/';
    for (size_t i = 0; i < text.len; i++)
        good &= (unsigned char)text.data[i] > 0x20 && text.data[i] != 0x7f && text.data[i] != '*';
    if (!good)
        return weir__report_error(reader->report, node->place, "path must be like /exact, /prefix/* or *, not \"%s\"",
                                  weir__printable(node->text, shown, sizeof shown));
    if (!is_normal(text))
        return weir__report_error(reader->report, node->place,
                                  "no request has such a path: //, /./ and /../ are resolved before it is looked at");
    route->kind = !rest ? WEIR__ROUTE_EXACT : text.len <= 1 ? WEIR__ROUTE_ALL : WEIR__ROUTE_PREFIX;
    route->path = weir__config_text(reader, text.len ? text : WEIR__TEXT("/"));
    return true;
}

/* { path: …, servers: […] } */
static void route_read(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"path", "servers"};
    struct weir__config *config = reader->config;
    struct weir__route *route = &config->routes[config->route_count];
    const struct weir__node *path, *servers;
    char at[256];
    if (!weir__field_names(reader->report, node, "an upstream", WEIR__LIST_OF(names)))
        return;
    if (!WEIR__GIVEN(path, node, "path") || !WEIR__GIVEN(servers, node, "servers")) {
        weir__report_error(reader->report, node->place, "an upstream by path needs path and servers, and has no %s",
                           path ? "servers" : "path");
        return;
    }
    route->place = path->place;
    bool good = path_read(reader, path, route);
    if (!(servers_read(reader, servers, route) && good) || config->arena.failed)
        return;
    for (size_t i = 0; i < config->route_count; i++) {
        if (config->routes[i].kind == route->kind && strcmp(config->routes[i].path, route->path) == 0) {
            weir__report_error(reader->report, path->place, "this path has its servers at %s already",
                               weir__place_text(reader->report, config->routes[i].place, at, sizeof at));
            return;
        }
    }
    config->route_count++;
}

static void upstreams_read(struct weir__reader *reader, const struct weir__node *node)
{
    struct weir__config *config = reader->config;
    const struct weir__node *first = node->kind == WEIR__LIST ? node->first : NULL;
    size_t count = node->kind == WEIR__LIST ? node->count : 1;
    config->routes = weir__arena_array(&config->arena, count + 1, sizeof *config->routes);
    if (!config->routes)
        return;
    if (first && first->kind == WEIR__MAP) {
        for (const struct weir__node *each = first; each; each = each->next)
            route_read(reader, each);
        return;
    }
    config->routes[0] = (struct weir__route){.kind = WEIR__ROUTE_ALL, .path = "/", .place = node->place};
    config->route_count = servers_read(reader, node, &config->routes[0]);
}

static void upstream_tls_read(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"verify", "ca", "name"};
    const struct weir__node *member;
    weir_text name;
    if (!weir__field_names(reader->report, node, "upstream_tls", WEIR__LIST_OF(names)))
        return;
    if (WEIR__GIVEN(member, node, "verify"))
        weir__field_bool(reader->report, member, "verify", &reader->config->upstream_verify);
    if (WEIR__GIVEN(member, node, "ca")) {
        reader->config->upstream_ca = weir__config_path(reader, member, "ca");
        reader->config->upstream_ca_place = member->place;
    }
    if (WEIR__GIVEN(member, node, "name") && weir__field_text(reader->report, member, "name", &name)) {
        bool good = name.len > 0;
        for (size_t i = 0; i < name.len; i++)
            good &= strchr("\"'\\$;{}", name.data[i]) == NULL && (unsigned char)name.data[i] > 0x20;
        if (good)
            reader->config->upstream_name = weir__config_text(reader, name);
        else
            weir__report_error(reader->report, member->place, "name must be the name in the servers' certificates");
    }
}

/* nginx verifies one name for all servers of an upstream. */
static void check_names(struct weir__reader *reader)
{
    const struct weir__config *config = reader->config;
    for (size_t r = 0; r < config->route_count && !config->upstream_name && !config->arena.failed; r++) {
        const struct weir__route *route = &config->routes[r];
        for (size_t i = 1; i < route->server_count; i++) {
            const char *a = route->servers[0].host, *b = route->servers[i].host;
            if (route->servers[i].https && a && b && strcmp(a, b) != 0) {
                weir__report_error(
                    reader->report, route->servers[i].place,
                    "these https servers have different names; give the name that all their certificates "
                    "have in upstream_tls, as in { name: api.example.com }");
                break;
            }
        }
    }
}

/* ---- All of it ---- */

static void amounts_read(struct weir__reader *reader, const struct weir__node *gateway)
{
    static const char *const timeouts[] = {"connect", "read", "send"}, *const healths[] = {"max_fails", "fail_timeout"};
    struct weir__config *config = reader->config;
    const struct weir__node *map, *member;
    if (WEIR__GIVEN(map, gateway, "timeouts") &&
        weir__field_names(reader->report, map, "timeouts", WEIR__LIST_OF(timeouts))) {
        int64_t *to[] = {&config->connect_ms, &config->read_ms, &config->send_ms};
        for (size_t i = 0; i < sizeof to / sizeof *to; i++)
            if (WEIR__GIVEN(member, map, timeouts[i]))
                weir__config_ms(reader, member, timeouts[i], to[i]);
    }
    if (WEIR__GIVEN(map, gateway, "health") &&
        weir__field_names(reader->report, map, "health", WEIR__LIST_OF(healths))) {
        if (WEIR__GIVEN(member, map, "max_fails"))
            weir__field_int(reader->report, member, "max_fails", 0, 1000000, &config->max_fails);
        if (WEIR__GIVEN(member, map, "fail_timeout") &&
            weir__config_ms(reader, member, "fail_timeout", &config->fail_ms) && config->fail_ms % 1000 != 0)
            weir__report_error(reader->report, member->place, "fail_timeout must be in whole seconds");
    }
    if (WEIR__GIVEN(member, gateway, "keepalive"))
        weir__field_int(reader->report, member, "keepalive", 0, 65536, &config->keepalive);
    if (WEIR__GIVEN(member, gateway, "max_body")) {
        if (weir__config_is(member, "unlimited"))
            config->body_bytes = 0;
        else if (weir__field_size(reader->report, member, "max_body", 0, &config->body_bytes) &&
                 config->body_bytes == 0)
            config->body_bytes = 1; /* the closest value: 0 is unlimited in nginx */
    }
}

void weir__config_gateway(struct weir__reader *reader, const struct weir__node *gateway)
{
    static const char *const names[] = {"listen",   "tls",    "upstreams", "upstream_tls",
                                        "timeouts", "health", "keepalive", "max_body"};
    const struct weir__node *member;
    struct weir__tls common = {0};
    if (!weir__field_names(reader->report, gateway, "gateway", WEIR__LIST_OF(names)))
        return;
    if (WEIR__GIVEN(member, gateway, "tls"))
        weir__config_tls(reader, member, &common);
    if (WEIR__GIVEN(member, gateway, "listen"))
        listen_read(reader, member, &common);
    else
        weir__report_error(reader->report, gateway->place, "gateway has no listen, such as 127.0.0.1:8080");
    if (WEIR__GIVEN(member, gateway, "upstream_tls"))
        upstream_tls_read(reader, member);
    if (WEIR__GIVEN(member, gateway, "upstreams"))
        upstreams_read(reader, member);
    else
        weir__report_error(reader->report, gateway->place,
                           "gateway has no upstreams: where do requests go, such as [http://127.0.0.1:9000]?");
    check_names(reader);
    amounts_read(reader, gateway);
}
