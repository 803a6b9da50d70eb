/* weir.yaml: `admin`, `rules_db`, `state`, `rules` that another host publishes, and `notify`. */
#include "config/config.h"
#include "rules/yaml.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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

/* Reads a printable text without blanks, for a header or URL. The message does not quote it: it may be a secret. */
static bool printable_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    weir_text text;
    (void)config;
    if (!weir__field_text(node, what, &text))
        return false;
    if (!weir__text_graphic(text))
        return weir__node_error(node, "%s must be printable and without blanks", what);
    *(const char **)to = text.data;
    return true;
}

/* ---- state ---- */

/* The default state folder of this user. */
static const char *state_default(struct weir__config *config)
{
    char path[4096];
    const char *home = getenv("HOME"), *state = getenv("XDG_STATE_HOME");
    int len = geteuid() == 0           ? snprintf(path, sizeof path, "/var/lib/weir")
              : state && *state == '/' ? snprintf(path, sizeof path, "%s/weir", state)
              : home && *home == '/'   ? snprintf(path, sizeof path, "%s/.local/state/weir", home)
                                       : -1;
    return len < 0 || (size_t)len >= sizeof path ? NULL : weir__config_text(config, weir__text_of(path));
}

const char *weir__config_in_state(struct weir__config *config, const char *name, const char *before)
{
    char path[5000];
    int len = snprintf(path, sizeof path, "%s%s/%s", before, config->state_path, name);
    return len < 0 || (size_t)len >= sizeof path ? NULL : weir__config_text(config, weir__text_of(path));
}

static bool state_read(struct weir__config *config, const struct weir__node *root)
{
    const struct weir__node *state = weir__node_get(root, "state");
    if (state) {
        config->state_place = state->place;
        return weir__config_path(config, state, "state", &config->state_path);
    }
    config->state_path = state_default(config);
    return config->state_path ||
           weir__node_error(root, "there is no directory for persistent state: name one under state");
}

/* ---- admin ---- */

static void database_read(struct weir__config *config, const struct weir__node *node)
{
    weir_text text;
    if (!node)
        config->admin.database = weir__config_in_state(config, "rules.db", "sqlite:");
    else if (weir__field_text(node, "rules_db", &text)) {
        if (starts_with(text, "sqlite:/") || starts_with(text, "postgresql://") || starts_with(text, "postgres://"))
            printable_read(config, node, "rules_db", &config->admin.database);
        else
            weir__node_error(node, "rules_db is sqlite: with a whole path (sqlite:/var/lib/weir/rules.db) or "
                                   "postgresql://…");
    }
}

static const char *const roles[] = {"viewer", "editor", "operator", NULL};
static const char *const rules_in[] = {"files", "database", NULL};

static const struct weir__field admin_fields[] = {
    {.name = "listen"},
    {.name = "tls"},
    {.name = "rules_db"},
    {"rules", WEIR__FIELD_CHOICE, WEIR__CONFIG(admin.rules), .min = WEIR__RULES_IN_FILES, .choices = rules_in},
    {"session", WEIR__FIELD_READ, WEIR__CONFIG(admin.session_ms), .read = weir__config_ms},
    {"key_texts", WEIR__FIELD_CHOICE, WEIR__CONFIG(admin.key_texts), .min = 1, .choices = roles},
};

/* An address, or a map with one. */
static void admin_read(struct weir__config *config, const struct weir__node *node, const struct weir__node *database)
{
    struct weir__admin_config *admin = &config->admin;
    struct weir__listener *listener = weir__arena_take(&config->arena, sizeof *listener);
    bool map = node->kind == WEIR__MAP;
    const struct weir__node *at = map ? weir__node_get(node, "listen") : node, *member;
    admin->session_ms = 12 * HOUR_MS;
    admin->key_texts = WEIR__COUNT(roles) - 1;
    if (!listener)
        return;
    if (map)
        weir__fields_read(node, "admin", WEIR__LIST_OF(admin_fields), config, config);
    if (!at) {
        weir__node_error(node, "admin has no listen, such as 127.0.0.1:9091");
        return;
    }
    if (WEIR__GIVEN(member, node, "rules_db")) {
        if (database)
            weir__node_error(member, "rules_db is given twice; give it once");
        database = member;
    }
    if (!weir__config_listener(config, at, "admin", listener))
        return;
    if (WEIR__GIVEN(member, node, "tls") && !weir__config_tls(config, member, &listener->tls))
        return;
    if (listener->tls.client_ca)
        weir__report_error(node->report, listener->tls.client_ca_place,
                           "admin knows its clients by their tokens: there is no client_ca here");
    if (!listener->tls.certificate && !weir__config_is_loopback(listener->host))
        weir__node_warning(at, "%s: tokens cross the network unencrypted; give admin a tls certificate",
                           listener->address);
    admin->listener = listener;
    database_read(config, database);
}

/* ---- rules from another host ---- */

/*
 * A URL for logs: without user and password, and from the first of the characters `ends` after the host on. Warns of
 * what crosses the network unencrypted.
 */
static const char *url_show(struct weir__config *config, const char *url, const char *ends,
                            struct weir__diagnostics *report, struct weir__place place, const char *what)
{
    char shown[4096];
    const char *host = strstr(url, "://") + 3;
    size_t scheme = (size_t)(host - url);
    const char *at = memrchr(host, '@', strcspn(host, "/?#"));
    host = at ? at + 1 : host;
    snprintf(shown, sizeof shown, "%.*s%.*s", (int)scheme, url, (int)strcspn(host, ends), host);
    bool bracket = *host == '[';
    weir_text name = {host + bracket, strcspn(host + bracket, bracket ? "]" : ":/?#")};
    if (strncmp(url, "http://", 7) == 0 && !weir__config_is_loopback(weir__config_text(config, name)))
        weir__report_warning(report, place, "%s: %s the network unencrypted; use https://", shown, what);
    return weir__config_text(config, weir__text_of(shown));
}

static bool poll_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    return weir__config_ms(config, node, what, to) &&
           (*(int64_t *)to >= 100 || weir__node_error(node, "poll is at least 100ms"));
}

static const struct weir__field origin_fields[] = {
    {"url", WEIR__FIELD_READ, WEIR__CONFIG(origin.url), WEIR__CONFIG_PLACE(origin.place), .what = "rules",
     .read = printable_read},
    {"token", WEIR__FIELD_READ, WEIR__CONFIG(origin.token), .read = printable_read},
    {"token_file", WEIR__FIELD_READ, WEIR__CONFIG(origin.token_file), .read = weir__config_path},
    {"ca", WEIR__FIELD_READ, WEIR__CONFIG(origin.ca), .read = weir__config_path},
    {"poll", WEIR__FIELD_READ, WEIR__CONFIG(origin.poll_ms), .read = poll_read},
};

static void origin_read(struct weir__config *config, const struct weir__node *rules)
{
    config->origin.poll_ms = 2000;
    weir__fields_or_first(rules, "rules", WEIR__LIST_OF(origin_fields), config, config);
    if (config->origin.token && weir__node_get(rules, "token_file"))
        weir__node_error(weir__node_get(rules, "token_file"), "there are token and token_file; give one");
    if (config->origin.url)
        config->origin.shown =
            url_show(config, config->origin.url, "?#", rules->report, config->origin.place, "rules and token cross");
}

/* ---- notify ---- */

static bool receiver_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    if (!printable_read(config, node, what, to))
        return false;
    const char *host = is_url(node) ? strstr(node->text.data, "://") + 3 : "";
    return strcspn(host, "/?#") > 0 || weir__node_error(node, "notify is a URL: https://…, or http://… on this host");
}

bool weir__config_notify(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const struct weir__field fields[] = {
        {"url", WEIR__FIELD_READ, WEIR__CONFIG(notify.url), WEIR__CONFIG_PLACE(notify.place), .what = "notify",
         .read = receiver_read},
        {"secret_file", WEIR__FIELD_READ, WEIR__CONFIG(notify.secret_file), .read = weir__config_path},
        {"ca", WEIR__FIELD_READ, WEIR__CONFIG(notify.ca), .read = weir__config_path},
    };
    struct weir__config *config = to;
    struct weir__notify_config *notify = &config->notify;
    bool good = weir__fields_or_first(node, what, WEIR__LIST_OF(fields), config, context);
    if (good && !notify->url)
        return weir__node_error(node, "notify has no url, such as https://hooks.example/weir");
    if (good && !config->denial_bytes)
        good = weir__node_error(node, "notify sends what the records of denials have: it cannot go with denials: off");
    if (good)
        notify->shown = url_show(config, notify->url, "/?#", node->report, notify->place, "warnings cross");
    else
        notify->url = NULL;
    return good;
}

void weir__config_control(struct weir__config *config, const struct weir__node *root)
{
    const struct weir__node *admin = weir__node_get(root, "admin"), *database = weir__node_get(root, "rules_db");
    const struct weir__node *rules = weir__node_get(root, "rules");
    bool origin = rules && weir__config_is_origin(rules);
    if (database && !admin)
        weir__node_error(database->name, "rules_db is for the rules service: give its address under admin");
    if (admin && origin)
        weir__node_error(rules, "rules come from another host or from the database of this one (admin), not from both");
    bool needed = admin || origin || weir__node_get(root, "state") || weir__node_get(root, "queue");
    if (!needed || !state_read(config, root))
        return;
    if (admin)
        admin_read(config, admin, database);
    if (origin)
        origin_read(config, rules);
    if (config->admin.rules == WEIR__RULES_IN_FILES && !rules)
        weir__node_error(weir__node_get(admin, "rules"), "the rules are in files, but in which? Name a file or a "
                                                         "directory under rules, or choose rules: database");
}

/* ---- Published rules ---- */

/* True if the file has published rules of a database. It is the agent's, so that another user may have replaced it. */
static bool has_revision(const char *path)
{
    char begin[sizeof WEIR__PUBLISHED_HEAD] = "";
    struct stat at;
    int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool read_it = file >= 0 && fstat(file, &at) == 0 && S_ISREG(at.st_mode) &&
                   read(file, begin, sizeof begin - 1) == (ssize_t)sizeof begin - 1;
    if (file >= 0)
        close(file);
    return read_it && strcmp(begin, WEIR__PUBLISHED_HEAD) == 0;
}

bool weir__config_publish(struct weir__config *config)
{
    bool named = config->rules_path || config->rules_text.len;
    if (config->published || !config->state_path || (!config->admin.listener && !config->origin.url))
        return false;
    const char *path = weir__config_in_state(config, config->origin.url ? "retrieved.yaml" : "published.yaml", "");
    if (!config->origin.url && named && config->admin.rules != WEIR__RULES_IN_DATABASE &&
        (config->admin.rules == WEIR__RULES_IN_FILES || !path || !has_revision(path)))
        return false; /* the rules are those of the files */
    config->published = true;
    config->import_path = config->rules_path;
    config->import_text = config->rules_text;
    config->rules_text = (weir_text){0};
    config->rules_path = path;
    return true;
}
