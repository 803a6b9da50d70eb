/* What the agent gets from the process that stays root: see handover.h. */
#define _GNU_SOURCE /* O_PATH, AT_EMPTY_PATH */
#include "agent/handover.h"
#include "agent/admin.h"
#include "agent/observe.h"
#include "agent/publish.h"
#include "control/in_force.h"
#include "engine/tls.h"

#include <weir/check.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Files beside the segment ---- */

bool weir__handover_file(const char *path, const struct weir__agent_user *user)
{
    struct stat at;
    int file = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return errno == ENOENT;
    bool good = fstat(file, &at) == 0;
    /* A file of another user, or with a second name, may be one that somebody else put there. */
    if (good && at.st_uid == 0 && at.st_nlink == 1 && S_ISREG(at.st_mode) &&
        (at.st_gid != user->group || (at.st_mode & 0060) != 0060))
        good = fchown(file, (uid_t)-1, user->group) == 0 && fchmod(file, (at.st_mode & 0777) | 0060) == 0;
    close(file);
    return good;
}

static bool lock_make(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (file >= 0)
        close(file);
    return file >= 0;
}

/* Makes the segment and what is mapped beside it; the rules are for the agent to read. What fails, the agent reports.
 */
static void segment_make(const struct weir__config *config)
{
    static const char none[] = "rules: []\n";
    char ledger[4200], load[4200];
    weir *engine = NULL;
    snprintf(ledger, sizeof ledger, "%s.ledger", config->segment_path);
    snprintf(load, sizeof load, "%s.load", config->segment_path);
    weir_options options = {.segment = {.path = config->segment_path,
                                        .size = (uint64_t)config->segment_bytes,
                                        .flags = WEIR_OPEN_CREATE | WEIR_OPEN_TRUSTED},
                            .rules_text = none,
                            .flags = WEIR_NO_WATCH | WEIR_NO_LINK,
                            .store = config->store.url,
                            .ledger = config->store.url ? ledger : NULL,
                            .load = config->load.on ? load : NULL};
    if (weir_open(&options, &engine) == 0)
        weir_close(engine);
}

static bool segment_share(const struct weir__config *config, const struct weir__agent_user *user,
                          const struct weir__journal *journal)
{
    static const char *const locks[] = {".observer", ".load.lock"};
    static const char *const files[] = {"", ".ledger", ".hot", ".load", ".history", ".observer", ".load.lock"};
    char path[4200];
    segment_make(config);
    (void)!weir__observer_prepare(config->segment_path, 0);
    for (size_t i = 0; i < sizeof locks / sizeof *locks; i++) {
        snprintf(path, sizeof path, "%s%s", config->segment_path, locks[i]);
        (void)!lock_make(path);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s%s", config->segment_path, files[i]);
        if (!weir__handover_file(path, user))
            weir__say(journal, WEIR__WARNING, "%s cannot be shared with the agent's user %s: %s", path, user->name,
                      strerror(errno));
    }
    return true;
}

/* ---- The state folder ---- */

static const char *database_path(const struct weir__config *config)
{
    static const char scheme[] = "sqlite:";
    const char *url = config->admin.database;
    return url && strncmp(url, scheme, sizeof scheme - 1) == 0 ? url + sizeof scheme - 1 : NULL;
}

static bool starts_with(const char *text, const char *start)
{
    while (*start && *text == *start) {
        text++;
        start++;
    }
    return !*start;
}

/* Files of weir's own begin with these names; SQLite and replacements add endings. */
static bool is_ours(const struct weir__config *config, const char *name)
{
    static const char *const begin[] = {"rules.db",       "queue.db",       "queue.sock",   "queue.lock",
                                        "published.yaml", "retrieved.yaml", "imported.yaml"};
    const char *path = database_path(config), *slash = path ? strrchr(path, '/') : NULL;
    if (slash && slash[1] && starts_with(name, slash + 1))
        return true;
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
        if (starts_with(name, begin[i]))
            return true;
    return false;
}

/*
 * A file of root's without a second name: only root can have put it there, so that nobody gets another's file in this
 * way. It is named by its descriptor from the look on.
 */
static void adopt(int folder, const char *name, const struct weir__agent_user *user)
{
    struct stat at;
    int file = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (file >= 0 && fstat(file, &at) == 0 && at.st_uid == 0 && at.st_nlink == 1 &&
        (S_ISREG(at.st_mode) || S_ISSOCK(at.st_mode)))
        (void)!fchownat(file, "", user->user, user->group, AT_EMPTY_PATH);
    if (file >= 0)
        close(file);
}

/* Hands over what is weir's in the folder; the folder itself if there is nothing else in it. */
static void folder_adopt(const struct weir__config *config, const char *path, const struct weir__agent_user *user)
{
    struct stat at;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = folder >= 0 ? fdopendir(folder) : NULL;
    bool alone = true;
    for (const struct dirent *entry; list && (entry = readdir(list));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (is_ours(config, entry->d_name))
            adopt(folder, entry->d_name, user);
        else
            alone = false;
    }
    if (list && alone && fstat(folder, &at) == 0 && at.st_uid == 0 && !(at.st_mode & S_IWOTH))
        (void)!fchown(folder, user->user, user->group);
    if (list)
        closedir(list);
    else if (folder >= 0)
        close(folder);
}

/* Whether the agent keeps anything there. */
static bool has_state(const struct weir__config *config)
{
    return config->state_path && (config->published || config->queue.wanted);
}

void weir__handover_state(const struct weir__config *config, const struct weir__agent_user *user)
{
    char folder[4200];
    const char *database = database_path(config), *slash = database ? strrchr(database, '/') : NULL;
    if (!user->drops || !has_state(config))
        return;
    folder_adopt(config, config->state_path, user);
    if (!slash || starts_with(database, config->state_path))
        return;
    snprintf(folder, sizeof folder, "%.*s", slash == database ? 1 : (int)(slash - database), database);
    folder_adopt(config, folder, user);
}

bool weir__handover_share(const struct weir__config *config, const struct weir__agent_user *user,
                          const struct weir__journal *journal)
{
    char inside[4200];
    if (!user->drops)
        return true;
    if (has_state(config)) {
        snprintf(inside, sizeof inside, "%s/x", config->state_path);
        if (!weir__publish_folder(inside)) {
            weir__say(journal, WEIR__ERROR, "the state folder %s cannot be made: %s; choose another under state",
                      config->state_path, strerror(errno));
            return false;
        }
        weir__handover_state(config, user);
    }
    return segment_share(config, user, journal);
}

bool weir__handover_check(const struct weir__config *config, const struct weir__agent_user *user,
                          const struct weir__journal *journal)
{
    if (!user->drops || !has_state(config) || faccessat(AT_FDCWD, config->state_path, W_OK | X_OK, AT_EACCESS) == 0)
        return true;
    weir__say(journal, WEIR__ERROR,
              "the agent does not start: the state folder %s is not writable for its user %s: %s; chown it, or name a "
              "folder of weir's own under state",
              config->state_path, user->name, strerror(errno));
    return false;
}

/* ---- What only root can read or bind ---- */

/* The first word, or the first line, of a small file, in the configuration's arena. NULL: it cannot be read. */
static const char *line_take(struct weir__config *config, const char *path, const char *ends)
{
    size_t len = 0;
    char *text = weir__file_read(path, &len);
    const char *taken = NULL;
    if (text && (len = strcspn(text, ends)) > 0)
        taken = weir__arena_copy(&config->arena, (weir_text){text, len}).data;
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
    return taken;
}

static void store_take(struct weir__store *store, struct weir__config *config)
{
    for (size_t i = 0; i < store->setting_count; i++) {
        struct weir__store_setting *setting = &store->settings[i];
        if (strcmp(setting->name, "password_file") == 0) {
            const char *password = line_take(config, setting->value, "\r\n");
            if (password) {
                setting->name = "password";
                setting->value = password;
            }
        } else if (strcmp(setting->name, "key") == 0 || strcmp(setting->name, "certificate") == 0) {
            (void)!weir__tls_keep(setting->value);
        }
    }
}

void weir__handover_take(struct weir__config *config, const struct weir__agent_user *user,
                         const struct weir__journal *journal)
{
    size_t len;
    char why[256];
    if (!user->drops)
        return;
    config->dropped = true;
    store_take(&config->store, config);
    if (config->origin.token_file) {
        config->origin.token = line_take(config, config->origin.token_file, " \t\r\n");
        if (config->origin.token)
            config->origin.token_file = NULL;
    }
    struct weir__admin_config *admin = &config->admin;
    if (!admin->listener)
        return;
    if (admin->listener->tls.certificate) {
        admin->certificate = weir__file_read(admin->listener->tls.certificate, &len);
        admin->key = weir__file_read(admin->listener->tls.key, &len);
    }
    admin->socket = weir__admin_bind(admin->listener, why, sizeof why);
    if (admin->socket < 0)
        weir__say(journal, WEIR__ERROR, "admin: %s", why);
}
