/* weir.yaml: `service`: listeners for gRPC, HTTP and RESP, and access control. */
#include "config/config.h"
#include "rules/yaml.h"

#include <stdio.h>

/* Reads a password or token to a const char *. */
static bool secret_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    enum { LEAST = 8, MOST = 512 };
    weir_text text;
    if (!weir__field_text(node, what, &text))
        return false;
    if (text.len < LEAST || text.len > MOST || !weir__text_graphic(text))
        return weir__node_error(node, "%s must be %d to %d printable characters without spaces", what, LEAST, MOST);
    *(const char **)to = weir__config_text(config, text);
    explicit_bzero((void *)(uintptr_t)text.data, text.len); /* weir__secrets_wipe then wipes the only copy */
    return *(const char **)to;
}

/* `tokens` or `operator_tokens`: one or several. */
static bool tokens_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    struct weir__access *access = to;
    bool is_operator = weir__text_is(node->name->text, "operator_tokens");
    WEIR__EACH_ITEM (token, node) {
        if (access->token_count == WEIR__COUNT(access->token))
            return weir__node_error(token, "there are more than %zu tokens", access->token_count);
        access->token_operator[access->token_count] = is_operator;
        access->token_count += secret_read(config, token, what, &access->token[access->token_count]);
    }
    return true;
}

static bool open_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    static const char *const names[] = {[WEIR__ENDPOINT_API] = "api",
                                        [WEIR__ENDPOINT_AUTH] = "auth",
                                        [WEIR__ENDPOINT_JSON] = "json",
                                        [WEIR__ENDPOINTS] = NULL};
    struct weir__access *access = to;
    int which;
    (void)config;
    WEIR__EACH_ITEM (endpoint, node)
        if (weir__field_choice(endpoint, what, names, &which))
            access->open[which] = true;
    if (!access->token_count)
        weir__node_warning(node, "open changes nothing without tokens: then no endpoint requires one");
    return true;
}

static const struct weir__field access_fields[] = {
    {"tokens", WEIR__FIELD_READ, WEIR__CONFIG(access), .what = "a token", .read = tokens_read},
    {"operator_tokens", WEIR__FIELD_READ, WEIR__CONFIG(access), .what = "an operator's token", .read = tokens_read},
    {"password", WEIR__FIELD_READ, WEIR__CONFIG(access.password), .read = secret_read},
    {"operator_password", WEIR__FIELD_READ, WEIR__CONFIG(access.operator_password), .read = secret_read},
    {"open_operator", WEIR__FIELD_BOOL, WEIR__CONFIG(access.open_operator)},
    {"open", WEIR__FIELD_READ, WEIR__CONFIG(access), .read = open_read},
};

/* Networks. ::/0 is IPv6 alone to nginx: all of IPv4 is added, too. */
static bool proxies_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    struct weir__forward_auth *auth = to;
    enum { MOST = WEIR__COUNT(auth->proxy) - 1 };
    struct weir__network network;
    char normal[WEIR__ADDRESS_TEXT];
    if (weir__item_count(node) == 0)
        weir__node_error(node, "trusted_proxies is empty; leave it out to trust this host and peers that authenticate");
    WEIR__EACH_ITEM (item, node) {
        if (!weir__field_network(item, what, &network))
            continue;
        if (auth->proxy_count >= MOST)
            return weir__node_error(item, "trusted_proxies has more than %d networks", MOST);
        weir_text text = {normal, weir__address_text(&network.address, network.length, normal)};
        auth->proxy[auth->proxy_count++] = weir__config_text(config, text);
        if (network.length == 0)
            auth->proxy[auth->proxy_count++] = "0.0.0.0/0";
        auth->trusts_everybody |= network.length == 0 || (network.length == 96 && weir__address_is4(&network.address));
    }
    return true;
}

const char *const weir__auth_headers[] = {"forwarded", "original", NULL};

static const struct weir__field auth_fields[] = {
    {"headers", WEIR__FIELD_CHOICE, WEIR__CONFIG(auth.headers), .min = 1, .choices = weir__auth_headers},
    {"trusted_proxies", WEIR__FIELD_READ, WEIR__CONFIG(auth), .read = proxies_read},
};

static const struct weir__field envoy_fields[] = {
    {"headers", WEIR__FIELD_BOOL, WEIR__CONFIG(rls_headers)},
    {"metadata", WEIR__FIELD_BOOL, WEIR__CONFIG(rls_metadata)},
    {"count_denied", WEIR__FIELD_BOOL, WEIR__CONFIG(rls_count_denied)},
};

bool weir__config_is_loopback(const char *host)
{
    struct weir__address unused;
    return host && (strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
                    (strncmp(host, "127.", 4) == 0 && weir__address_parse(weir__text_of(host), &unused)));
}

/* Formats the paths of an HTTP listener that need no token; "": none. */
static void open_paths(const struct weir__config *config, char *text, size_t size)
{
    static const char *const paths[] = {
        [WEIR__ENDPOINT_API] = "/v1/", [WEIR__ENDPOINT_AUTH] = "/v1/auth", [WEIR__ENDPOINT_JSON] = "/json"};
    size_t len = 0;
    *text = 0;
    for (size_t i = 0; i < WEIR__ENDPOINTS; i++) {
        bool open = !config->access.token_count || config->access.open[i];
        if (open && (i != WEIR__ENDPOINT_AUTH || config->auth.trusts_everybody))
            len += (size_t)snprintf(text + len, size - len, "%s%s", len ? ", " : "", paths[i]);
    }
}

/* Warns of listeners that other hosts can reach without authentication. */
static void warn_open(const struct weir__config *config, struct weir__diagnostics *report, size_t from)
{
    char paths[64];
    open_paths(config, paths, sizeof paths);
    for (size_t i = from; i < config->listener_count; i++) {
        const struct weir__listener *listener = &config->listeners[i];
        bool http = listener->kind == WEIR__HTTP_API;
        if (weir__config_is_loopback(listener->host) || listener->tls.client_ca || (http && !*paths) ||
            (listener->kind == WEIR__RESP && config->access.password))
            continue;
        weir__report_warning(report, listener->place, "%s%s%s is open to every client that can reach it: %s",
                             listener->address, http ? ": " : "", http ? paths : "",
                             !http ? listener->kind == WEIR__GRPC ? "gRPC has no tokens; set tls with client_ca"
                                                                  : "set access with a password, or tls with client_ca"
                             : config->access.token_count ? "access.open names it; else tls with client_ca guards it"
                                                          : "set access with tokens, or tls with client_ca");
    }
}

/* The listeners, and the addresses of envoyproxy/ratelimit, for a drop-in replacement; NULL: it has no such listener.
 */
static const struct {
    const char *name;
    enum weir__listener_kind kind;
    const char *ratelimit;
} kinds[] = {
    {"grpc", WEIR__GRPC, "127.0.0.1:8081"}, {"http", WEIR__HTTP_API, "127.0.0.1:8080"}, {"resp", WEIR__RESP, NULL}};

static const struct weir__field service_fields[] = {
    {.name = "ports"},
    {.name = "grpc"},
    {.name = "http"},
    {.name = "resp"},
    {.name = "tls"},
    {"access", WEIR__FIELD_MAP, WEIR__MAP_OF(access_fields)},
    {"auth", WEIR__FIELD_MAP, WEIR__MAP_OF(auth_fields)},
    {"envoy", WEIR__FIELD_MAP, WEIR__MAP_OF(envoy_fields)},
};

bool weir__config_service(void *context, const struct weir__node *service, const char *what, void *to)
{
    static const char *const known[] = {"ratelimit", NULL};
    struct weir__config *config = to;
    struct weir__tls common = {0};
    struct weir__node default_listener = {0};
    const struct weir__node *member, *ports;
    int which, errors = service->report->errors;
    size_t before = config->listener_count;
    weir__fields_read(service, what, WEIR__LIST_OF(service_fields), config, context);
    if (service->kind != WEIR__MAP)
        return false;
    if (WEIR__GIVEN(member, service, "tls"))
        weir__config_tls(config, member, &common);
    bool as_ratelimit = WEIR__GIVEN(ports, service, "ports") && weir__field_choice(ports, "ports", known, &which);
    for (size_t i = 0; i < WEIR__COUNT(kinds); i++) {
        if (!WEIR__GIVEN(member, service, kinds[i].name) && as_ratelimit && kinds[i].ratelimit) {
            default_listener = *ports;
            default_listener.text = weir__text_of(kinds[i].ratelimit);
            member = &default_listener;
        }
        if (member)
            weir__config_listen(config, member, kinds[i].name, kinds[i].kind, &common);
    }
    if (config->listener_count == before && service->report->errors == errors)
        weir__node_error(service, "service has none of grpc, http, resp and ports");
    warn_open(config, service->report, before);
    return true;
}
