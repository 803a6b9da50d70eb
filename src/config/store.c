/* weir.yaml: `store`: a URL, or a map with a URL and settings; and the URL for libweir that results from it. */
#include "config/config.h"
#include "rules/yaml.h"
#include "engine/store_options.h"
#include "remote/socket.h"

#include <stdio.h>

#define PASSWORD_MAX 512

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
                                       "retry_max",
                                       "heartbeat",
                                       "password_file",
                                       "consistency",
                                       "url"};
_Static_assert(WEIR__COUNT(settings) <= WEIR__STORE_SETTINGS_MAX, "room for all settings");

bool weir__store_is_file(const char *name)
{
    return strcmp(name, "ca") == 0 || strcmp(name, "certificate") == 0 || strcmp(name, "key") == 0 ||
           strcmp(name, "password_file") == 0;
}

/* Reads a value without control characters, for nginx.conf. The message does not quote it: it may be a secret. */
static bool value_read(struct weir__config *config, const struct weir__node *node, const char *name, const char **value)
{
    weir_text text;
    if (weir__store_is_file(name))
        return weir__config_path(config, node, name, value);
    if (!weir__field_text(node, name, &text))
        return false;
    if (!weir__text_sound(text))
        return weir__node_error(node, "%s has control characters", name);
    *value = text.data;
    return true;
}

static bool setting_read(struct weir__config *config, const struct weir__node *node, const char *name,
                         struct weir__store_options *options)
{
    static const char *const consistencies[] = {
        [WEIR_LOCAL] = "local", [WEIR_EVENTUAL] = "eventual", [WEIR_STRICT] = "strict", [WEIR_LEASED] = "leased", NULL};
    struct weir__store *store = &config->store;
    const char *value = NULL;
    char why[256] = "";
    int word;
    if (strcmp(name, "consistency") == 0) {
        if (!weir__field_choice(node, name, consistencies, &word))
            return false;
        store->consistency = (enum weir_consistency)word;
        value = consistencies[word];
    } else if (!value_read(config, node, name, &value)) {
        return false;
    } else if (strcmp(name, "password_file") == 0) {
        memcpy(options->password, "?", sizeof "?"); /* a placeholder: the file is read later */
    } else if (weir__store_option(options, name, value, why, sizeof why) != 0) {
        return weir__node_error(node, "%s", why);
    }
    store->settings[store->setting_count++] = (struct weir__store_setting){name, value, node->place};
    store->sync_interval_us = options->sync_interval_us;
    return true;
}

static bool url_read(struct weir__config *config, const struct weir__node *node, struct weir__store_options *options)
{
    struct weir__store *store = &config->store;
    char why[256] = "", shown[1024];
    const char *url = NULL;
    if (!value_read(config, node, "store", &url))
        return false;
    if (weir__store_parse(url, options, why, sizeof why) != 0)
        return weir__node_error(node, "store: %s", why);
    weir__store_shown(options, shown, sizeof shown);
    *store = (struct weir__store){
        .url = url,
        .shown = weir__config_text(config, weir__text_of(shown)),
        .place = node->place,
        .consistency = WEIR_PER_ALGORITHM,
        .sync_interval_us = options->sync_interval_us,
    };
    return true;
}

bool weir__config_store(void *config, const struct weir__node *store, const char *what, void *to)
{
    struct weir__store_options options;
    const struct weir__node *url = store, *member;
    char why[256] = "";
    (void)to;
    if (store->kind == WEIR__MAP) {
        weir__field_names(store, what, WEIR__LIST_OF(settings));
        if (!WEIR__GIVEN(url, store, "url"))
            return weir__node_error(store, "store has no url, such as redis://10.0.0.5:6379");
    }
    if (!url_read(config, url, &options) || store->kind != WEIR__MAP)
        return false;
    for (size_t i = 0; i + 1 < WEIR__COUNT(settings); i++)
        if (WEIR__GIVEN(member, store, settings[i]))
            setting_read(config, member, settings[i], &options);
    if (weir__node_get(store, "password") && WEIR__GIVEN(member, store, "password_file"))
        weir__node_error(member, "there are password and password_file; give one");
    return weir__store_fits(&options, why, sizeof why) == 0 || weir__node_error(store, "store: %s", why);
}

/* ---- The URL for libweir ---- */

/* Appends a text, percent-encoded if `escape`. False: no room. */
static bool add(char *to, size_t size, const char *text, bool escape)
{
    size_t len = strlen(to);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = !escape || weir__is_letter(*text) || weir__is_digit(*text) || strchr("-_.~/", c);
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

void weir__store_take_files(struct weir__config *config)
{
    char password[PASSWORD_MAX], why[256];
    for (size_t i = 0; i < config->store.setting_count; i++) {
        struct weir__store_setting *setting = &config->store.settings[i];
        if (strcmp(setting->name, "password_file") == 0 && password_read(setting->value, password, why, sizeof why)) {
            const char *copy = weir__arena_copy(&config->arena, weir__text_of(password)).data;
            setting->name = copy ? "password" : setting->name;
            setting->value = copy ? copy : setting->value;
        } else if (strcmp(setting->name, "key") == 0 || strcmp(setting->name, "certificate") == 0) {
            (void)!weir__tls_keep(setting->value);
        }
    }
    explicit_bzero(password, sizeof password);
}
