/* weir.yaml: the store that several hosts share. An URL, or a map with one; checked here, so that faults have their
 * place. */
#include "config/config.h"
#include "rules/field.h"
#include "remote/options.h"

#define NAMES(list) (list), sizeof(list) / sizeof *(list)

/* Beside the names of weir__store_option. */
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

/* What nginx's configuration can hold. NULL after a report, which does not repeat what may be a secret. */
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
    static const char *const words[] = {"local", "eventual", "strict"};
    int word;
    if (weir__field_word(reader->report, node, "consistency", NAMES(words), &word))
        setting_add(reader, node, "consistency", words[word]);
}

static bool url_read(struct weir__reader *reader, const struct weir__node *node, struct weir__store_options *options)
{
    struct weir__store *store = &reader->config->store;
    char why[256] = "", shown[1024];
    const char *url = value_read(reader, node, "store");
    if (!url)
        return false;
    if (weir__store_parse(url, options, why, sizeof why) != 0) {
        weir__report_error(reader->report, node->place, "store: %s", why);
        return false;
    }
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
        if ((member = weir__node_get(map, settings[i])))
            setting_read(reader, member, settings[i], options);
    if ((member = weir__node_get(map, "password_file"))) {
        if (weir__node_get(map, "password"))
            weir__report_error(reader->report, member->place, "there are password and password_file; give one");
        setting_read(reader, member, "password_file", options);
        memcpy(options->password, "?", sizeof "?"); /* there will be one when it is read */
    }
    if ((member = weir__node_get(map, "consistency")))
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
