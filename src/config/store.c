/* weir.yaml: `store`: a URL, or a map with a URL and settings; and the URL for libweir that results from it. */
#include "config/config.h"
#include "rules/yaml.h"
#include "engine/store_options.h"

#include <stdio.h>

#define PASSWORD_MAX 512

/* Settings that weir__store_option does not know. */
static const char *const others[] = {"url", "password_file", "consistency"};

static const char *const settings[] = {"deadline",
                                       "connect_timeout",
                                       "sync_interval",
                                       "prefix",
                                       "hash_keys",
                                       "ca",
                                       "certificate",
                                       "key",
                                       "server_name",
                                       "verify",
                                       "user",
                                       "password",
                                       "sentinel_user",
                                       "sentinel_password",
                                       "breaker_failures",
                                       "retry_min",
                                       "retry_max"};

bool weir__store_is_file(const char *name)
{
    static const char *const paths[] = {"ca", "certificate", "key", "password_file"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strcmp(name, paths[i]) == 0)
            return true;
    return false;
}

/* Reads a value without control characters, for nginx.conf. NULL after a report, which does not quote it: it may be a
 * secret. */
static const char *value_read(struct weir__reader *reader, const struct weir__node *node, const char *name)
{
    weir_text text;
    if (weir__store_is_file(name))
        return weir__config_path(reader, node, name);
    if (!weir__field_text(reader->report, node, name, &text))
        return NULL;
    for (size_t i = 0; i < text.len; i++) {
        if ((unsigned char)text.data[i] < 0x20 || text.data[i] == 0x7f) {
            weir__report_error(reader->report, node->place, "%s has control characters", name);
            return NULL;
        }
    }
    return weir__config_text(reader, text);
}

static void setting_add(struct weir__reader *reader, const struct weir__node *node, const char *name, const char *value)
{
    struct weir__store *store = &reader->config->store;
    store->settings[store->setting_count++] = (struct weir__store_setting){name, value, node->place};
}

static void setting_read(struct weir__reader *reader, const struct weir__node *node, const char *name,
                         struct weir__store_options *options)
{
    char why[256] = "";
    const char *value = value_read(reader, node, name);
    if (!value)
        return;
    if (strcmp(name, "password_file") != 0 && weir__store_option(options, name, value, why, sizeof why) != 0) {
        weir__report_error(reader->report, node->place, "%s", why);
        return;
    }
    setting_add(reader, node, name, value);
}

static void consistency_read(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"local", "eventual", "strict"};
    int word;
    if (weir__field_choice(reader->report, node, "consistency", WEIR__LIST_OF(names), &word))
        setting_add(reader, node, "consistency", names[word]);
}

static bool url_read(struct weir__reader *reader, const struct weir__node *node, struct weir__store_options *options)
{
    struct weir__store *store = &reader->config->store;
    char why[256] = "", shown[1024];
    const char *url = value_read(reader, node, "store");
    if (!url)
        return false;
    if (weir__store_parse(url, options, why, sizeof why) != 0)
        return weir__report_error(reader->report, node->place, "store: %s", why);
    weir__store_shown(options, shown, sizeof shown);
    store->url = url;
    store->shown = weir__config_text(reader, (weir_text){shown, strlen(shown)});
    store->place = node->place;
    return true;
}

static void members_read(struct weir__reader *reader, const struct weir__node *map, struct weir__store_options *options)
{
    const struct weir__node *member;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (WEIR__GIVEN(member, map, settings[i]))
            setting_read(reader, member, settings[i], options);
    if (WEIR__GIVEN(member, map, "password_file")) {
        if (weir__node_get(map, "password"))
            weir__report_error(reader->report, member->place, "there are password and password_file; give one");
        setting_read(reader, member, "password_file", options);
        memcpy(options->password, "?", sizeof "?"); /* a placeholder: the file is read later */
    }
    if (WEIR__GIVEN(member, map, "consistency"))
        consistency_read(reader, member);
    char why[256] = "";
    if (weir__store_fits(options, why, sizeof why) != 0)
        weir__report_error(reader->report, map->place, "store: %s", why);
}

void weir__config_store(struct weir__reader *reader, const struct weir__node *store)
{
    const char *names[sizeof others / sizeof *others + sizeof settings / sizeof *settings];
    struct weir__store_options options;
    const struct weir__node *url = store;
    size_t count = 0;
    _Static_assert(sizeof names / sizeof *names <= WEIR__STORE_SETTINGS_MAX, "room for all settings");
    if (store->kind == WEIR__MAP) {
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            names[count++] = others[i];
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
            names[count++] = settings[i];
        if (!weir__field_names(reader->report, store, "store", names, count))
            return;
        url = weir__node_get(store, "url");
        if (!url) {
            weir__report_error(reader->report, store->place, "store has no url, such as redis://10.0.0.5:6379");
            return;
        }
    }
    if (url_read(reader, url, &options) && store->kind == WEIR__MAP)
        members_read(reader, store, &options);
}

/* ---- The URL for libweir ---- */

/* Appends a text, percent-encoded if `escape`. False: no room. */
static bool add(char *to, size_t size, const char *text, bool escape)
{
    size_t len = strlen(to);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = !escape || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-_.~/", c) != NULL;
        if (len + 4 > size)
            return false;
        len += (size_t)snprintf(to + len, size - len, plain ? "%c" : "%%%02X", c);
    }
    return true;
}

static bool password_read(const char *path, char *to, char *why, size_t why_size)
{
    FILE *file = fopen(path, "re");
    bool good = file && fgets(to, PASSWORD_MAX, file);
    /* A password that is cut would be a wrong one. */
    int next = good && !strpbrk(to, "\r\n") ? fgetc(file) : EOF;
    bool cut = next != EOF && next != '\n' && next != '\r';
    if (file)
        fclose(file);
    if (good)
        to[strcspn(to, "\r\n")] = 0;
    if (!good)
        snprintf(why, why_size, "password_file %s cannot be read, or is empty", path);
    else if (cut)
        snprintf(why, why_size, "password_file %s: the password is longer than %d bytes", path, PASSWORD_MAX - 1);
    return good && !cut;
}

enum weir_consistency weir__store_consistency(const struct weir__store *store)
{
    for (size_t i = 0; i < store->setting_count; i++)
        if (strcmp(store->settings[i].name, "consistency") == 0)
            return strcmp(store->settings[i].value, "strict") == 0     ? WEIR_STRICT
                   : strcmp(store->settings[i].value, "eventual") == 0 ? WEIR_EVENTUAL
                                                                       : WEIR_LOCAL;
    return WEIR_LOCAL;
}

bool weir__store_url(const struct weir__store *store, char *to, size_t size, char *why, size_t why_size)
{
    char password[PASSWORD_MAX];
    *to = 0;
    bool good = add(to, size, store->url, false);
    for (size_t i = 0; i < store->setting_count && good; i++) {
        const char *name = store->settings[i].name, *value = store->settings[i].value;
        if (strcmp(name, "consistency") == 0)
            continue;
        if (strcmp(name, "password_file") == 0) {
            if (!password_read(value, password, why, why_size))
                return false;
            name = "password";
            value = password;
        }
        good = add(to, size, strchr(to, '?') ? "&" : "?", false) && add(to, size, name, false) &&
               add(to, size, "=", false) && add(to, size, value, true);
    }
    if (!good)
        snprintf(why, why_size, "its URL and settings are too long");
    return good;
}
