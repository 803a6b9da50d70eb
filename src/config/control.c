/* weir.yaml: `admin`, `rules_db`, `state`, and `rules` that another host publishes. */
#include "config/config.h"
#include "rules/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HOUR_MS INT64_C(3600000)

static bool starts_with(weir_text text, const char *start)
{
    return weir__text_skip(&text, start);
}

static bool is_url(const struct weir__node *node)
{
    return node->kind == WEIR__SCALAR && (starts_with(node->text, "https://") || starts_with(node->text, "http://"));
}

bool weir__config_is_origin(const struct weir__node *rules)
{
    const struct weir__node *url = rules->kind == WEIR__MAP ? weir__node_get(rules, "url") : rules;
    return url && is_url(url);
}

/* Reads a printable text without blanks, for a header or URL. NULL after a report, which does not quote it: it may be a
 * secret. */
static const char *printable_read(struct weir__reader *reader, const struct weir__node *node, const char *what)
{
    weir_text text;
    if (!weir__field_text(reader->report, node, what, &text))
        return NULL;
    for (size_t i = 0; i < text.len; i++) {
        if ((unsigned char)text.data[i] <= 0x20 || (unsigned char)text.data[i] >= 0x7f) {
            weir__report_error(reader->report, node->place, "%s must be printable and without blanks", what);
            return NULL;
        }
    }
    return weir__config_text(reader, text);
}

/* ---- state ---- */

/* The default state folder of this user. */
static const char *state_default(struct weir__reader *reader)
{
    char path[4096];
    const char *home = getenv("HOME"), *state = getenv("XDG_STATE_HOME");
    int len = geteuid() == 0           ? snprintf(path, sizeof path, "/var/lib/weir")
              : state && *state == '/' ? snprintf(path, sizeof path, "%s/weir", state)
              : home && *home == '/'   ? snprintf(path, sizeof path, "%s/.local/state/weir", home)
                                       : -1;
    if (len < 0 || (size_t)len >= sizeof path)
        return NULL;
    return weir__config_text(reader, (weir_text){path, (size_t)len});
}

const char *weir__config_in_state(struct weir__reader *reader, const char *name, const char *before)
{
    char path[5000];
    int len = snprintf(path, sizeof path, "%s%s/%s", before, reader->config->state_path, name);
    if (len < 0 || (size_t)len >= sizeof path)
        return NULL;
    return weir__config_text(reader, (weir_text){path, (size_t)len});
}

static bool state_read(struct weir__reader *reader, const struct weir__node *root)
{
    struct weir__config *config = reader->config;
    const struct weir__node *state = weir__node_get(root, "state");
    if (state) {
        config->state_place = state->place;
        config->state_path = weir__config_path(reader, state, "state");
        return config->state_path != NULL;
    }
    config->state_path = state_default(reader);
    if (!config->state_path)
        weir__report_error(reader->report, root->place,
                           "there is no directory for persistent state: name one under state");
    return config->state_path != NULL;
}

/* ---- admin ---- */

static void database_read(struct weir__reader *reader, const struct weir__node *node)
{
    struct weir__admin_config *admin = &reader->config->admin;
    weir_text text;
    if (!node) {
        admin->database = weir__config_in_state(reader, "rules.db", "sqlite:");
        return;
    }
    if (!weir__field_text(reader->report, node, "rules_db", &text))
        return;
    if (starts_with(text, "sqlite:/") || starts_with(text, "postgresql://") || starts_with(text, "postgres://"))
        admin->database = printable_read(reader, node, "rules_db");
    else
        weir__report_error(reader->report, node->place,
                           "rules_db is sqlite: with a whole path (sqlite:/var/lib/weir/rules.db) or postgresql://…");
}

static void admin_read(struct weir__reader *reader, const struct weir__node *node, const struct weir__node *database)
{
    static const char *const names[] = {"listen", "tls", "rules_db", "session", "key_texts"};
    static const char *const roles[] = {"viewer", "editor", "operator"};
    struct weir__admin_config *admin = &reader->config->admin;
    struct weir__listener *listener = weir__arena_take(&reader->config->arena, sizeof *listener);
    const struct weir__node *at = node, *member;
    admin->session_ms = 12 * HOUR_MS;
    admin->key_texts = (int)(sizeof roles / sizeof *roles);
    if (!listener)
        return;
    if (node->kind == WEIR__MAP) {
        if (!weir__field_names(reader->report, node, "admin", WEIR__LIST_OF(names)))
            return;
        at = weir__node_get(node, "listen");
        if (!at) {
            weir__report_error(reader->report, node->place, "admin has no listen, such as 127.0.0.1:9091");
            return;
        }
        if (WEIR__GIVEN(member, node, "rules_db")) {
            if (database)
                weir__report_error(reader->report, member->place, "rules_db is given twice; give it once");
            database = member;
        }
        if (WEIR__GIVEN(member, node, "session"))
            weir__config_ms(reader, member, "session", &admin->session_ms);
        int role;
        if (WEIR__GIVEN(member, node, "key_texts") &&
            weir__field_choice(reader->report, member, "key_texts", WEIR__LIST_OF(roles), &role))
            admin->key_texts = 1 + role;
    }
    if (!weir__config_listener(reader, at, "admin", listener))
        return;
    if (node->kind == WEIR__MAP && (member = weir__node_get(node, "tls")) &&
        !weir__config_tls(reader, member, &listener->tls))
        return;
    if (listener->tls.client_ca)
        weir__report_error(reader->report, listener->tls.client_ca_place,
                           "admin knows its clients by their tokens: there is no client_ca here");
    if (!listener->tls.certificate && !weir__config_is_loopback(listener))
        weir__report_warning(reader->report, at->place,
                             "%s: tokens cross the network unencrypted; give admin a tls certificate",
                             listener->address);
    admin->listener = listener;
    database_read(reader, database);
}

/* ---- rules from another host ---- */

/* Sets origin->shown. Warns of rules, and perhaps a token, that cross the network unencrypted. */
static void origin_show(struct weir__reader *reader, struct weir__origin *origin)
{
    static const char *const here[] = {"127.", "localhost", "[::1]"};
    char shown[4096];
    const char *host = strstr(origin->url, "://") + 3;
    size_t scheme = (size_t)(host - origin->url), authority = strcspn(host, "/?#");
    bool local = false;
    for (const char *at; (at = memchr(host, '@', authority)) != NULL;) {
        authority -= (size_t)(at + 1 - host);
        host = at + 1;
    }
    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        local |= strncmp(host, here[i], strlen(here[i])) == 0;
    snprintf(shown, sizeof shown, "%.*s%.*s", (int)scheme, origin->url, (int)strcspn(host, "?#"), host);
    origin->shown = weir__config_text(reader, (weir_text){shown, strlen(shown)});
    if (!local && strncmp(origin->url, "http://", 7) == 0)
        weir__report_warning(reader->report, origin->place,
                             "%s: rules and token cross the network unencrypted; use https://", shown);
}

static void origin_read(struct weir__reader *reader, const struct weir__node *rules)
{
    static const char *const names[] = {"url", "token", "token_file", "ca", "poll"};
    struct weir__origin *origin = &reader->config->origin;
    const struct weir__node *url = rules, *member;
    origin->poll_ms = 2000;
    if (rules->kind == WEIR__MAP) {
        if (!weir__field_names(reader->report, rules, "rules", WEIR__LIST_OF(names)))
            return;
        url = weir__node_get(rules, "url");
        if (WEIR__GIVEN(member, rules, "token"))
            origin->token = printable_read(reader, member, "token");
        if (WEIR__GIVEN(member, rules, "token_file")) {
            origin->token_file = weir__config_path(reader, member, "token_file");
            if (origin->token)
                weir__report_error(reader->report, member->place, "there are token and token_file; give one");
        }
        if (WEIR__GIVEN(member, rules, "ca"))
            origin->ca = weir__config_path(reader, member, "ca");
        if (WEIR__GIVEN(member, rules, "poll") && weir__config_ms(reader, member, "poll", &origin->poll_ms) &&
            origin->poll_ms < 100)
            weir__report_error(reader->report, member->place, "poll is at least 100ms");
    }
    origin->place = url->place;
    origin->url = printable_read(reader, url, "rules");
    if (origin->url)
        origin_show(reader, origin);
}

void weir__config_control(struct weir__reader *reader, const struct weir__node *root)
{
    struct weir__config *config = reader->config;
    const struct weir__node *admin = weir__node_get(root, "admin"), *database = weir__node_get(root, "rules_db");
    const struct weir__node *rules = weir__node_get(root, "rules");
    bool origin = rules && weir__config_is_origin(rules);
    if (database && !admin)
        weir__report_error(reader->report, database->name->place,
                           "rules_db is for the rules service: give its address under admin");
    if (admin && origin)
        weir__report_error(reader->report, rules->place,
                           "rules come from another host or from the database of this one (admin), not from both");
    bool needed = admin || origin || weir__node_get(root, "state") || weir__node_get(root, "queue");
    if (!needed || !state_read(reader, root))
        return;
    if (admin)
        admin_read(reader, admin, database);
    if (origin)
        origin_read(reader, rules);
    config->published = admin || origin;
}

void weir__config_publish(struct weir__reader *reader)
{
    struct weir__config *config = reader->config;
    if (!config->published || !config->state_path)
        return;
    config->import_path = config->rules_path;
    config->import_text = config->rules_text;
    config->rules_text = (weir_text){0};
    config->rules_path = weir__config_in_state(reader, config->origin.url ? "retrieved.yaml" : "published.yaml", "");
}
