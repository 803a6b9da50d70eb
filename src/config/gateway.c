/* weir.yaml: `gateway`: listeners, TLS, upstream servers and routes. */
#include "config/config.h"
#include "rules/yaml.h"

/* ---- Listening ---- */

#define TLS(member) WEIR__IN(struct weir__tls, member), .place = offsetof(struct weir__tls, member##_place)

bool weir__config_tls(struct weir__config *config, const struct weir__node *node, struct weir__tls *tls)
{
    static const struct weir__field fields[] = {
        {"certificate", WEIR__FIELD_READ, TLS(certificate), .read = weir__config_path},
        {"key", WEIR__FIELD_READ, TLS(key), .read = weir__config_path},
        {"client_ca", WEIR__FIELD_READ, TLS(client_ca), .read = weir__config_path},
    };
    *tls = (struct weir__tls){0};
    bool good = weir__fields_read(node, "tls", WEIR__LIST_OF(fields), tls, config);
    if (node->kind == WEIR__MAP && (!weir__node_get(node, "certificate") || !weir__node_get(node, "key")))
        good = weir__node_error(node, "tls needs certificate and key, and has no %s",
                                weir__node_get(node, "certificate") ? "key" : "certificate");
    return good;
}

void weir__config_listen(struct weir__config *config, const struct weir__node *node, const char *what,
                         enum weir__listener_kind kind, const struct weir__tls *common)
{
    static const char *const names[] = {"address", "tls", "http2"};
    const struct weir__node *address = node, *member;
    if (!config->listeners)
        return; /* no memory; reported by the caller */
    if (config->listener_count == WEIR__LISTENERS_MAX) {
        weir__node_error(node, "there are more than %d listeners", WEIR__LISTENERS_MAX);
        return;
    }
    struct weir__listener *listener = &config->listeners[config->listener_count];
    *listener = (struct weir__listener){.kind = kind, .tls = *common};
    if (node->kind == WEIR__MAP) {
        weir__field_names(node, what, WEIR__LIST_OF(names));
        if (!WEIR__GIVEN(address, node, "address")) {
            weir__node_error(node, "%s has no address", what);
            return;
        }
        if (WEIR__GIVEN(member, node, "tls") && !weir__config_tls(config, member, &listener->tls))
            return;
    }
    listener->http2 = listener->tls.certificate != NULL;
    if (WEIR__GIVEN(member, node, "http2") && !weir__field_bool(member, "http2", &listener->http2))
        return;
    if (weir__config_listener(config, address, what, listener))
        config->listener_count++;
}

/* ---- Upstreams ---- */

/* Reads one server or a list of servers. False after an error. */
static bool servers_read(struct weir__config *config, const struct weir__node *node, struct weir__route *route)
{
    size_t count = weir__item_count(node), i = 0;
    if (count == 0)
        return weir__node_error(node, "there is no server in this list");
    route->servers = weir__arena_array(&config->arena, count, sizeof *route->servers);
    if (!route->servers)
        return false;
    bool good = true;
    WEIR__EACH_ITEM (each, node) {
        good &= weir__config_server(config, each, &route->servers[i]);
        if (good && route->servers[i].https != route->servers[0].https)
            return weir__node_error(each, "servers of one path must be all http or all https");
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

static bool path_read(struct weir__config *config, const struct weir__node *node, struct weir__route *route)
{
    weir_text text;
    char shown[WEIR__SHOWN];
    if (!weir__field_text(node, "path", &text))
        return false;
    bool rest = text.len > 0 && text.data[text.len - 1] == '*';
    text.len -= rest;
    bool good = rest && text.len == 0;
    good |= weir__config_is_word(text, "*") && text.data[0] == '/' && (!rest || text.data[text.len - 1] == '/');
    if (!good)
        return weir__node_error(node, "path must be like /exact, /prefix/* or *, not \"%s\"",
                                weir__printable(node->text, shown, sizeof shown));
    if (!is_normal(text))
        return weir__node_error(node,
                                "no request has such a path: //, /./ and /../ are resolved before it is looked at");
    route->kind = !rest ? WEIR__ROUTE_EXACT : text.len <= 1 ? WEIR__ROUTE_ALL : WEIR__ROUTE_PREFIX;
    route->path = weir__config_text(config, text.len ? text : WEIR__TEXT("/"));
    return true;
}

/* { path: …, servers: […] } */
static void route_read(struct weir__config *config, const struct weir__node *node)
{
    static const char *const names[] = {"path", "servers"};
    struct weir__route *route = &config->routes[config->route_count];
    const struct weir__node *path, *servers;
    char at[256];
    if (!weir__field_names(node, "an upstream", WEIR__LIST_OF(names)))
        return;
    if (!WEIR__GIVEN(path, node, "path") || !WEIR__GIVEN(servers, node, "servers")) {
        weir__node_error(node, "an upstream by path needs path and servers, and has no %s", path ? "servers" : "path");
        return;
    }
    route->place = path->place;
    bool good = path_read(config, path, route);
    if (!(servers_read(config, servers, route) && good) || config->arena.failed)
        return;
    for (size_t i = 0; i < config->route_count; i++) {
        if (config->routes[i].kind == route->kind && strcmp(config->routes[i].path, route->path) == 0) {
            weir__node_error(path, "this path has its servers at %s already",
                             weir__place_text(path->report, config->routes[i].place, at, sizeof at));
            return;
        }
    }
    config->route_count++;
}

static void upstreams_read(struct weir__config *config, const struct weir__node *node)
{
    config->routes = weir__arena_array(&config->arena, weir__item_count(node) + 1, sizeof *config->routes);
    if (!config->routes)
        return;
    if (node->kind == WEIR__LIST && node->first && node->first->kind == WEIR__MAP) {
        WEIR__EACH_ITEM (each, node)
            route_read(config, each);
        return;
    }
    config->routes[0] = (struct weir__route){.kind = WEIR__ROUTE_ALL, .path = "/", .place = node->place};
    config->route_count = servers_read(config, node, &config->routes[0]);
}

/* nginx verifies one name for all servers of an upstream. */
static void check_names(const struct weir__config *config, struct weir__diagnostics *report)
{
    for (size_t r = 0; r < config->route_count && !config->upstream_name && !config->arena.failed; r++) {
        const struct weir__route *route = &config->routes[r];
        for (size_t i = 1; i < route->server_count; i++) {
            const char *a = route->servers[0].host, *b = route->servers[i].host;
            if (route->servers[i].https && a && b && strcmp(a, b) != 0) {
                weir__report_error(report, route->servers[i].place,
                                   "these https servers have different names; give the name that all their "
                                   "certificates have in upstream_tls, as in { name: api.example.com }");
                break;
            }
        }
    }
}

/* ---- Fields ---- */

static bool name_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    weir_text name;
    (void)config;
    if (!weir__field_text(node, what, &name))
        return false;
    *(const char **)to = name.data;
    return weir__config_is_word(name, "\"'\\$;{}") ||
           weir__node_error(node, "name must be the name in the servers' certificates");
}

static bool fail_timeout_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    if (!weir__config_ms(config, node, what, to))
        return false;
    return *(int64_t *)to % 1000 == 0 || weir__node_error(node, "fail_timeout must be in whole seconds");
}

static bool max_body_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    int64_t bytes = 0;
    (void)config;
    bool unlimited = weir__config_is(node, "unlimited");
    if (!unlimited && !weir__field_size(node, what, 0, &bytes))
        return false;
    *(int64_t *)to = !unlimited && bytes == 0 ? 1 : bytes; /* 0 is unlimited in nginx; 1 is the closest to none */
    return true;
}

static const struct weir__field upstream_tls[] = {
    {"verify", WEIR__FIELD_BOOL, WEIR__CONFIG(upstream_verify)},
    {"ca", WEIR__FIELD_READ, WEIR__CONFIG(upstream_ca), WEIR__CONFIG_PLACE(upstream_ca_place),
     .read = weir__config_path},
    {"name", WEIR__FIELD_READ, WEIR__CONFIG(upstream_name), .read = name_read},
};
static const struct weir__field timeouts[] = {
    {"connect", WEIR__FIELD_READ, WEIR__CONFIG(connect_ms), .read = weir__config_ms},
    {"read", WEIR__FIELD_READ, WEIR__CONFIG(read_ms), .read = weir__config_ms},
    {"send", WEIR__FIELD_READ, WEIR__CONFIG(send_ms), .read = weir__config_ms},
};
static const struct weir__field health[] = {
    {"max_fails", WEIR__FIELD_INT, WEIR__CONFIG(max_fails), .max = 1000000},
    {"fail_timeout", WEIR__FIELD_READ, WEIR__CONFIG(fail_ms), .read = fail_timeout_read},
};
static const struct weir__field gateway_fields[] = {
    {.name = "listen"},
    {.name = "tls"},
    {.name = "upstreams"},
    {"upstream_tls", WEIR__FIELD_MAP, WEIR__MAP_OF(upstream_tls)},
    {"timeouts", WEIR__FIELD_MAP, WEIR__MAP_OF(timeouts)},
    {"health", WEIR__FIELD_MAP, WEIR__MAP_OF(health)},
    {"keepalive", WEIR__FIELD_INT, WEIR__CONFIG(keepalive), .max = 65536},
    {"max_body", WEIR__FIELD_READ, WEIR__CONFIG(body_bytes), .read = max_body_read},
};

bool weir__config_gateway(void *context, const struct weir__node *gateway, const char *what, void *to)
{
    struct weir__config *config = to;
    const struct weir__node *member;
    struct weir__tls common = {0};
    weir__fields_read(gateway, what, WEIR__LIST_OF(gateway_fields), config, context);
    if (gateway->kind != WEIR__MAP)
        return false;
    if (WEIR__GIVEN(member, gateway, "tls"))
        weir__config_tls(config, member, &common);
    if (!WEIR__GIVEN(member, gateway, "listen"))
        weir__node_error(gateway, "gateway has no listen, such as 127.0.0.1:8080");
    else if (weir__item_count(member) == 0)
        weir__node_error(member, "listen has no address");
    else
        WEIR__EACH_ITEM (address, member)
            weir__config_listen(config, address, "listen", WEIR__GATEWAY, &common);
    if (!WEIR__GIVEN(member, gateway, "upstreams"))
        return weir__node_error(gateway,
                                "gateway has no upstreams: where do requests go, such as [http://127.0.0.1:9000]?");
    upstreams_read(config, member);
    check_names(config, gateway->report);
    return true;
}
