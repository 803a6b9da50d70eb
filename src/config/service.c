/* weir.yaml: `service`: listeners for gRPC, HTTP and RESP, and access control. */
#include "config/config.h"
#include "rules/yaml.h"

#include <stdio.h>

/* Reads a password or token. NULL after a report. */
static const char *secret_read(struct weir__reader *reader, const struct weir__node *node, const char *what)
{
    enum { LEAST = 8, MOST = 512 };
    weir_text text;
    if (!weir__field_text(reader->report, node, what, &text))
        return NULL;
    bool good = text.len >= LEAST && text.len <= MOST;
    for (size_t i = 0; i < text.len; i++)
        good &= text.data[i] > 0x20 && text.data[i] < 0x7f;
    if (!good) {
        weir__report_error(reader->report, node->place, "%s must be %d to %d printable characters without spaces", what,
                           LEAST, MOST);
        return NULL;
    }
    const char *copy = weir__config_text(reader, text);
    explicit_bzero((void *)(uintptr_t)text.data, text.len); /* weir__config_wipe then wipes the only copy */
    return copy;
}

static void token_add(struct weir__reader *reader, const struct weir__node *node, const char *what, bool is_operator)
{
    struct weir__access *access = &reader->config->access;
    if (access->token_count == sizeof access->token / sizeof *access->token) {
        weir__report_error(reader->report, node->place, "there are more than %zu tokens", access->token_count);
        return;
    }
    const char *token = secret_read(reader, node, what);
    if (!token)
        return;
    access->token[access->token_count] = token;
    access->token_operator[access->token_count++] = is_operator;
}

static void open_add(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {
        [WEIR__ENDPOINT_API] = "api", [WEIR__ENDPOINT_AUTH] = "auth", [WEIR__ENDPOINT_JSON] = "json"};
    int which;
    if (weir__field_choice(reader->report, node, "open", WEIR__LIST_OF(names), &which))
        reader->config->access.open[which] = true;
}

/* Adds a network. ::/0 is IPv6 alone to nginx: all of IPv4 is added, too. */
static void network_add(struct weir__reader *reader, const struct weir__node *node)
{
    enum { MOST = sizeof reader->config->auth.proxy / sizeof *reader->config->auth.proxy - 1 };
    struct weir__forward_auth *auth = &reader->config->auth;
    struct weir__network network;
    char normal[WEIR__ADDRESS_TEXT];
    if (!weir__field_network(reader->report, node, "trusted_proxies", &network))
        return;
    if (auth->proxy_count >= MOST) {
        weir__report_error(reader->report, node->place, "trusted_proxies has more than %d networks", MOST);
        return;
    }
    weir_text text = {normal, weir__address_text(&network.address, network.length, normal)};
    auth->proxy[auth->proxy_count++] = weir__config_text(reader, text);
    if (network.length == 0)
        auth->proxy[auth->proxy_count++] = "0.0.0.0/0";
    auth->trusts_everybody |= network.length == 0 || (network.length == 96 && weir__address_is4(&network.address));
}

static void auth_read(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"headers", "trusted_proxies"};
    static const char *const families[] = {"forwarded", "original"};
    const struct weir__node *member;
    int which;
    if (!weir__field_names(reader->report, node, "auth", WEIR__LIST_OF(names)))
        return;
    if (WEIR__GIVEN(member, node, "headers") &&
        weir__field_choice(reader->report, member, "headers", WEIR__LIST_OF(families), &which))
        reader->config->auth.headers = families[which];
    if (!WEIR__GIVEN(member, node, "trusted_proxies"))
        return;
    if (member->kind == WEIR__LIST && !member->first)
        weir__report_error(reader->report, member->place,
                           "trusted_proxies is empty; leave it out to trust this host and peers that authenticate");
    WEIR__EACH_ITEM (network, member)
        network_add(reader, network);
}

static void access_read(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"tokens", "operator_tokens", "password", "operator_password", "open_operator",
                                        "open"};
    struct weir__access *access = &reader->config->access;
    const struct weir__node *member;
    if (!weir__field_names(reader->report, node, "access", WEIR__LIST_OF(names)))
        return;
    if (WEIR__GIVEN(member, node, "tokens"))
        WEIR__EACH_ITEM (token, member)
            token_add(reader, token, "a token", false);
    if (WEIR__GIVEN(member, node, "operator_tokens"))
        WEIR__EACH_ITEM (token, member)
            token_add(reader, token, "an operator's token", true);
    if (WEIR__GIVEN(member, node, "password"))
        access->password = secret_read(reader, member, "password");
    if (WEIR__GIVEN(member, node, "operator_password"))
        access->operator_password = secret_read(reader, member, "operator_password");
    if (WEIR__GIVEN(member, node, "open_operator"))
        weir__field_bool(reader->report, member, "open_operator", &access->open_operator);
    if (WEIR__GIVEN(member, node, "open")) {
        WEIR__EACH_ITEM (endpoint, member)
            open_add(reader, endpoint);
        if (!access->token_count)
            weir__report_warning(reader->report, member->place,
                                 "open changes nothing without tokens: then no endpoint requires one");
    }
}

static void envoy_read(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"headers", "metadata", "count_denied"};
    bool *const values[] = {&reader->config->rls_headers, &reader->config->rls_metadata,
                            &reader->config->rls_count_denied};
    const struct weir__node *member;
    if (!weir__field_names(reader->report, node, "envoy", WEIR__LIST_OF(names)))
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (WEIR__GIVEN(member, node, names[i]))
            weir__field_bool(reader->report, member, names[i], values[i]);
}

bool weir__config_is_loopback(const struct weir__listener *listener)
{
    return listener->host && (strncmp(listener->host, "127.", 4) == 0 || strcmp(listener->host, "::1") == 0 ||
                              strcmp(listener->host, "localhost") == 0);
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
static void warn_open(struct weir__reader *reader, size_t from)
{
    const struct weir__config *config = reader->config;
    char paths[64];
    open_paths(config, paths, sizeof paths);
    for (size_t i = from; i < config->listener_count; i++) {
        const struct weir__listener *listener = &config->listeners[i];
        bool http = listener->kind == WEIR__HTTP_API;
        if (weir__config_is_loopback(listener) || listener->tls.client_ca || (http && !*paths) ||
            (listener->kind == WEIR__RESP && config->access.password))
            continue;
        weir__report_warning(reader->report, listener->place, "%s%s%s is open to every client that can reach it: %s",
                             listener->address, http ? ": " : "", http ? paths : "",
                             !http ? listener->kind == WEIR__GRPC ? "gRPC has no tokens; set tls with client_ca"
                                                                  : "set access with a password, or tls with client_ca"
                             : config->access.token_count ? "access.open names it; else tls with client_ca guards it"
                                                          : "set access with tokens, or tls with client_ca");
    }
}

/* The ports of envoyproxy/ratelimit, for a drop-in replacement. NULL: it has no such listener. */
static const char *ratelimit_address(enum weir__listener_kind kind)
{
    return kind == WEIR__GRPC ? "127.0.0.1:8081" : kind == WEIR__HTTP_API ? "127.0.0.1:8080" : NULL;
}

void weir__config_service(struct weir__reader *reader, const struct weir__node *service)
{
    static const char *const names[] = {"ports", "grpc", "http", "resp", "tls", "access", "auth", "envoy"};
    static const char *const known[] = {"ratelimit"};
    static const struct {
        const char *name;
        enum weir__listener_kind kind;
    } kinds[] = {{"grpc", WEIR__GRPC}, {"http", WEIR__HTTP_API}, {"resp", WEIR__RESP}};
    struct weir__tls common = {0};
    struct weir__node default_listener = {0};
    const struct weir__node *member, *ports;
    int which;
    size_t before = reader->config->listener_count, errors = (size_t)reader->report->errors;
    if (!weir__field_names(reader->report, service, "service", WEIR__LIST_OF(names)))
        return;
    if (WEIR__GIVEN(member, service, "tls"))
        weir__config_tls(reader, member, &common);
    if (WEIR__GIVEN(member, service, "access"))
        access_read(reader, member);
    if (WEIR__GIVEN(member, service, "auth"))
        auth_read(reader, member);
    if (WEIR__GIVEN(member, service, "envoy"))
        envoy_read(reader, member);
    bool as_ratelimit = WEIR__GIVEN(ports, service, "ports") &&
                        weir__field_choice(reader->report, ports, "ports", WEIR__LIST_OF(known), &which);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *address = as_ratelimit ? ratelimit_address(kinds[i].kind) : NULL;
        if (!WEIR__GIVEN(member, service, kinds[i].name) && address) {
            default_listener = *ports;
            default_listener.text = (weir_text){address, strlen(address)};
            member = &default_listener;
        }
        if (member)
            weir__config_listen(reader, member, kinds[i].name, kinds[i].kind, &common);
    }
    if (reader->config->listener_count == before && (size_t)reader->report->errors == errors)
        weir__report_error(reader->report, service->place, "service has none of grpc, http, resp and ports");
    warn_open(reader, before);
}
