/* weir.yaml: the decision service, what it listens on and who may use it. */
#include "agent/config.h"
#include "rules/field.h"

#define NAMES(list)            (list), sizeof(list) / sizeof *(list)
#define GIVEN(node, map, name) ((node) = weir__node_get((map), (name)))

/* A password or a token. NULL after a report. */
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
    return weir__config_text(reader, text);
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

static void tokens_read(struct weir__reader *reader, const struct weir__node *node, const char *what, bool is_operator)
{
    if (node->kind != WEIR__LIST) {
        token_add(reader, node, what, is_operator);
        return;
    }
    for (const struct weir__node *each = node->first; each; each = each->next)
        token_add(reader, each, what, is_operator);
}

static void access_read(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"tokens", "operator_tokens", "password", "operator_password", "open_operator"};
    struct weir__access *access = &reader->config->access;
    const struct weir__node *member;
    if (!weir__field_names(reader->report, node, "access", NAMES(names)))
        return;
    if (GIVEN(member, node, "tokens"))
        tokens_read(reader, member, "a token", false);
    if (GIVEN(member, node, "operator_tokens"))
        tokens_read(reader, member, "an operator's token", true);
    if (GIVEN(member, node, "password"))
        access->password = secret_read(reader, member, "password");
    if (GIVEN(member, node, "operator_password"))
        access->operator_password = secret_read(reader, member, "operator_password");
    if (GIVEN(member, node, "open_operator"))
        weir__field_bool(reader->report, member, "open_operator", &access->open_operator);
}

static void envoy_read(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"headers", "metadata", "count_denied"};
    bool *const values[] = {&reader->config->rls_headers, &reader->config->rls_metadata,
                            &reader->config->rls_count_denied};
    const struct weir__node *member;
    if (!weir__field_names(reader->report, node, "envoy", NAMES(names)))
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (GIVEN(member, node, names[i]))
            weir__field_bool(reader->report, member, names[i], values[i]);
}

bool weir__config_is_loopback(const struct weir__listener *listener)
{
    return listener->host && (strncmp(listener->host, "127.", 4) == 0 || strcmp(listener->host, "::1") == 0 ||
                              strcmp(listener->host, "localhost") == 0);
}

/* Others than this host can reach it, and nothing asks who they are: perhaps meant so, but better said. */
static void warn_open(struct weir__reader *reader, size_t from)
{
    const struct weir__config *config = reader->config;
    const struct weir__access *access = &config->access;
    for (size_t i = from; i < config->listener_count; i++) {
        const struct weir__listener *listener = &config->listeners[i];
        bool secret = listener->kind == WEIR__RESP ? access->password != NULL
                                                   : listener->kind == WEIR__HTTP_API && access->token_count > 0;
        if (!weir__config_is_loopback(listener) && !secret && !listener->tls.client_ca)
            weir__report_warning(reader->report, listener->place,
                                 "%s can be used by everybody who can reach it: set access, or tls with client_ca",
                                 listener->address);
    }
}

/* The ports of envoyproxy/ratelimit, for who puts weir in its place. NULL: it has no such listener. */
static const char *ratelimit_address(enum weir__listener_kind kind)
{
    return kind == WEIR__GRPC ? "127.0.0.1:8081" : kind == WEIR__HTTP_API ? "127.0.0.1:8080" : NULL;
}

void weir__config_service(struct weir__reader *reader, const struct weir__node *service)
{
    static const char *const names[] = {"ports", "grpc", "http", "resp", "tls", "access", "envoy"};
    static const char *const known[] = {"ratelimit"};
    static const struct {
        const char *name;
        enum weir__listener_kind kind;
    } kinds[] = {{"grpc", WEIR__GRPC}, {"http", WEIR__HTTP_API}, {"resp", WEIR__RESP}};
    struct weir__tls common = {0};
    struct weir__node usual = {0};
    const struct weir__node *member, *ports;
    int which;
    size_t before = reader->config->listener_count, errors = (size_t)reader->report->errors;
    if (!weir__field_names(reader->report, service, "service", NAMES(names)))
        return;
    if (GIVEN(member, service, "tls"))
        weir__config_tls(reader, member, &common);
    if (GIVEN(member, service, "access"))
        access_read(reader, member);
    if (GIVEN(member, service, "envoy"))
        envoy_read(reader, member);
    bool as_ratelimit =
        GIVEN(ports, service, "ports") && weir__field_word(reader->report, ports, "ports", NAMES(known), &which);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *address = as_ratelimit ? ratelimit_address(kinds[i].kind) : NULL;
        if (!GIVEN(member, service, kinds[i].name) && address) {
            usual = *ports;
            usual.text = (weir_text){address, strlen(address)};
            member = &usual;
        }
        if (member)
            weir__config_listen(reader, member, kinds[i].name, kinds[i].kind, &common);
    }
    if (reader->config->listener_count == before && (size_t)reader->report->errors == errors)
        weir__report_error(reader->report, service->place, "service has none of grpc, http, resp and ports");
    warn_open(reader, before);
}
