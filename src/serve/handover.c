/* Handover: what the agent gets from root before it drops root's privileges. See privilege.h. */
#include "serve/privilege.h"
#include "control/control.h"
#include "stats/stats.h"
#include "base/file.h"

#include <weir/check.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The segment and its sidecar files ---- */

enum { MAKE_MS = 5000, MAKE_GIB_MS = 2000 }; /* deadline for creating the segment; in addition, for each GiB */

/* stat() of the folder of a path. */
static bool stat_folder(const char *path, struct stat *at)
{
    char folder[4200];
    weir__folder_of(path, folder, sizeof folder);
    return stat(folder, at) == 0;
}

static bool only_root_writes(const struct stat *at)
{
    return at->st_uid == 0 && !(at->st_mode & (S_IWGRP | S_IWOTH));
}

/*
 * True if weir made the file. In a folder that only root writes to every file of root's is accepted. Elsewhere the
 * agent may have moved any file of root's to this name, as rename(2) needs no permission for the file: there it must be
 * empty, as locks are, or begin as mapped files do: the first byte of every kind is 0xf7, the last of its first eight
 * 0x0a.
 */
static bool is_made_by_weir(const char *path, int file, const struct stat *at)
{
    struct stat around;
    unsigned char magic[8] = {0};
    if (stat_folder(path, &around) && only_root_writes(&around))
        return true;
    return at->st_size == 0 ||
           (pread(file, magic, sizeof magic, 0) == (ssize_t)sizeof magic && magic[0] == 0xf7 && magic[7] == 0x0a);
}

bool weir__handover_file(const char *path, const struct weir__agent_user *user, int create)
{
    struct stat at;
    int file = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | create, 0600);
    if (file < 0)
        return errno == ENOENT;
    bool good = fstat(file, &at) == 0;
    /* Not a file of another user, nor one with a second name: another user may have put it there. */
    if (good && at.st_uid == 0 && at.st_nlink == 1 && S_ISREG(at.st_mode) && is_made_by_weir(path, file, &at) &&
        (at.st_gid != user->group || (at.st_mode & 0060) != 0060))
        good = fchown(file, (uid_t)-1, user->group) == 0 && fchmod(file, (at.st_mode & 0777) | 0060) == 0;
    close(file);
    return good;
}

/* Creates the segment and its mapped sidecar files. In a helper process: the agent may have locked or truncated
 * existing ones. Ignores errors, as the agent reports them. */
static void segment_make(const struct weir__config *config)
{
    static const char none[] = "rules: []\n";
    char ledger[4200], load[4200], ring[4200], keys[4200];
    weir *engine = NULL;
    snprintf(ledger, sizeof ledger, "%s.ledger", config->segment_path);
    snprintf(load, sizeof load, "%s.load", config->segment_path);
    snprintf(ring, sizeof ring, "%s.denials", config->segment_path);
    snprintf(keys, sizeof keys, "%s.keys", config->segment_path);
    weir_options options = {.segment = {.path = config->segment_path,
                                        .size = (uint64_t)config->segment_bytes,
                                        .flags = WEIR_OPEN_CREATE | WEIR_OPEN_TRUSTED},
                            .rules_text = none,
                            .flags = WEIR_NO_WATCH | WEIR_NO_CONNECT,
                            .store = config->store.url,
                            .ledger = config->store.url ? ledger : NULL,
                            .load = config->load.on ? load : NULL,
                            .denial_ring = config->denial_bytes ? ring : NULL,
                            .denial_bytes = (uint64_t)config->denial_bytes,
                            .key_commands = config->store.url ? keys : NULL};
    (void)!weir_open(&options, &engine);
    (void)!weir__history_writer_prepare(config->segment_path, 0);
}

static void segment_share(const struct weir__config *config, const struct weir__agent_user *user,
                          const struct weir__logger *log)
{
    static const char *const files[] = {"",         ".ledger", ".hot",      ".load",     ".history",
                                        ".denials", ".keys",   ".observer", ".load.lock"};
    enum { FIRST_LOCK_FILE = 7 }; /* files from here on are empty, for locks */
    char path[4200];
    int code = weir__helper_fork(MAKE_MS + (config->segment_bytes >> 30) * MAKE_GIB_MS, 0, 0);
    if (code == WEIR__IN_HELPER) {
        segment_make(config);
        _exit(0);
    }
    if (code != 0)
        weir__logf(log, WEIR__LOG_WARNING, "cannot prepare segment %s for the agent: %s; the agent opens it as it is",
                   config->segment_path, strerror(errno));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s%s", config->segment_path, files[i]);
        if (!weir__handover_file(path, user, i >= FIRST_LOCK_FILE ? O_CREAT : 0))
            weir__logf(log, WEIR__LOG_WARNING, "cannot share %s with the agent's user %s: %s", path, user->name,
                       strerror(errno));
    }
}

/* ---- The state folder ---- */

/* True if the path names something in the folder, or below it. */
static bool is_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);
    while (len > 1 && folder[len - 1] == '/')
        len--;
    return strncmp(path, folder, len) == 0 && (path[len] == '/' || len == 1);
}

/* True if `name` is `file`, or `file` with an ending that SQLite or a replacement of the file adds. */
static bool is_name_of(const char *name, const char *file)
{
    static const char *const endings[] = {"", "-wal", "-shm", "-log", ".new"};
    size_t len = strlen(file);
    for (size_t i = 0; i < sizeof endings / sizeof *endings && strncmp(name, file, len) == 0; i++)
        if (strcmp(name + len, endings[i]) == 0)
            return true;
    return false;
}

/* True for the names of files that the agent keeps in a folder of its own. */
static bool is_ours(const struct weir__config *config, const char *name)
{
    static const char *const files[] = {"rules.db",       "queue.db",       "queue.sock",   "queue.lock",
                                        "published.yaml", "retrieved.yaml", "imported.yaml"};
    const char *path = weir__database_path(config->admin.database), *slash = path ? strrchr(path, '/') : NULL;
    if (slash && slash[1] && is_name_of(name, slash + 1))
        return true;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (is_name_of(name, files[i]))
            return true;
    return false;
}

/* True for weir.yaml itself, and for the folder that it is in. */
static bool is_of_config(const struct weir__config *config, const struct stat *at)
{
    struct stat file, around;
    return (stat(config->file, &file) == 0 && file.st_dev == at->st_dev && file.st_ino == at->st_ino) ||
           (stat_folder(config->file, &around) && around.st_dev == at->st_dev && around.st_ino == at->st_ino);
}

/* Hands over a file of root without a second name. Only root may be able to write to the folder: rename(2) needs no
 * permission for the file, so elsewhere another user may have moved it there. */
static void adopt(const struct weir__config *config, int folder, const char *name, const struct weir__agent_user *user)
{
    struct stat at;
    int file = folder >= 0 ? openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (file >= 0 && fstat(file, &at) == 0 && at.st_uid == 0 && at.st_nlink == 1 &&
        (S_ISREG(at.st_mode) || S_ISSOCK(at.st_mode)) && !is_of_config(config, &at))
        (void)!fchownat(file, "", user->user, user->group, AT_EMPTY_PATH);
    if (file >= 0)
        close(file);
}

/* True if every entry is a file of weir. Hands them over unless `user` is NULL. */
static bool entries_look(const struct weir__config *config, DIR *list, const struct weir__agent_user *user)
{
    bool alone = true;
    rewinddir(list);
    for (const struct dirent *entry; (entry = readdir(list));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        alone &= is_ours(config, entry->d_name);
        if (user && is_ours(config, entry->d_name))
            adopt(config, dirfd(list), entry->d_name, user);
    }
    return alone;
}

/* Opens a folder; follows a symbolic link only where root alone can create one. */
static int folder_open(const char *path)
{
    struct stat at;
    char name[4200];
    int len = snprintf(name, sizeof name, "%s", path);
    while (len > 1 && len < (int)sizeof name && name[len - 1] == '/') /* with a trailing slash open follows a link */
        name[--len] = 0;
    bool safe = stat_folder(name, &at) && only_root_writes(&at);
    return open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (safe ? 0 : O_NOFOLLOW));
}

/* Hands a folder over with weir's files in it, if only root can write to it and it holds nothing else. A folder that is
 * the agent's already is left alone. */
static void folder_adopt(const struct weir__config *config, const char *path, const struct weir__agent_user *user)
{
    struct stat at;
    int folder = folder_open(path);
    DIR *list = folder >= 0 ? fdopendir(folder) : NULL;
    if (list && fstat(folder, &at) == 0 && only_root_writes(&at) && !is_of_config(config, &at) &&
        entries_look(config, list, NULL)) {
        entries_look(config, list, user);
        (void)!fchown(folder, user->user, user->group);
    }
    if (list)
        closedir(list);
    else if (folder >= 0)
        close(folder);
}

/* True if the agent uses the state folder. */
static bool has_state(const struct weir__config *config)
{
    return config->state_path && (config->published || config->admin.database || config->queue.wanted);
}

static void state_adopt(const struct weir__config *config, const struct weir__agent_user *user)
{
    char folder[4200];
    const char *database = weir__database_path(config->admin.database);
    folder_adopt(config, config->state_path, user);
    if (!database || is_below(database, config->state_path))
        return;
    weir__folder_of(database, folder, sizeof folder);
    folder_adopt(config, folder, user);
}

/* True if the path is a file of root in a folder of another user. */
static bool is_foreign(const char *path)
{
    struct stat at;
    return lstat(path, &at) == 0 && at.st_uid == 0 && S_ISREG(at.st_mode) && stat_folder(path, &at) && at.st_uid != 0;
}

bool weir__handover_warn(const struct weir__config *config, const struct weir__agent_user *user, bool known,
                         const struct weir__logger *log)
{
    static const char *const names[] = {"rules.db",   "rules.db-wal",   "queue.db",      "queue.db-wal",
                                        "queue.lock", "published.yaml", "retrieved.yaml"};
    enum { NAMES = sizeof names / sizeof *names };
    char path[4200];
    bool found = false;
    for (size_t i = 0; user->drops && has_state(config) && i <= NAMES; i++) {
        const char *database = weir__database_path(config->admin.database);
        if (i < NAMES)
            snprintf(path, sizeof path, "%s/%s", config->state_path, names[i]);
        else
            snprintf(path, sizeof path, "%s", database ? database : "");
        if (!is_foreign(path) || (i == NAMES && is_below(path, config->state_path)))
            continue;
        found = true;
        if (!known)
            weir__logf(log, WEIR__LOG_WARNING,
                       "%s belongs to root, and the agent's user %s may have no access to it; if you put it there, as "
                       "from a backup: chown %s: %s",
                       path, user->name, user->name, path);
    }
    return found;
}

bool weir__handover_writable(const char *state, const struct weir__logger *log)
{
    if (access(state, W_OK | X_OK) == 0)
        return true;
    weir__logf(log, WEIR__LOG_ERROR, "the state folder %s is not writable for this user: %s; set state to another path",
               state, strerror(errno));
    return false;
}

bool weir__handover_share(const struct weir__config *config, const struct weir__agent_user *user,
                          const struct weir__logger *log)
{
    char inside[4200] = "";
    if (has_state(config))
        snprintf(inside, sizeof inside, "%s/x", config->state_path);
    bool made = !*inside || weir__file_make_folder(inside);
    if (!made)
        weir__logf(log, WEIR__LOG_ERROR, "cannot create the state folder %s: %s; set state to another path",
                   config->state_path, strerror(errno));
    if (!user->drops) { /* then this user opens what is in it */
        if (made && *inside)
            weir__handover_writable(config->state_path, log);
        return true;
    }
    if (!made)
        return false;
    if (*inside)
        state_adopt(config, user);
    segment_share(config, user, log);
    return true;
}

bool weir__handover_check(const struct weir__config *config, const struct weir__agent_user *user,
                          const struct weir__logger *log)
{
    if (!user->drops || !has_state(config) || faccessat(AT_FDCWD, config->state_path, W_OK | X_OK, AT_EACCESS) == 0)
        return true;
    weir__logf(log, WEIR__LOG_ERROR,
               "agent failed to start: the state folder %s is not writable for its user %s: %s; chown it, or name a "
               "folder of weir's own under state",
               config->state_path, user->name, strerror(errno));
    return false;
}

/* ---- What only root can read or bind ---- */

/* Reads a small file up to one of `ends`, into the configuration's arena. NULL: unreadable or empty. */
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

void weir__handover_take(struct weir__config *config, const struct weir__agent_user *user,
                         const struct weir__logger *log)
{
    size_t len;
    char why[256];
    if (!user->drops)
        return;
    config->dropped = true;
    weir__store_take_files(config);
    if (config->origin.token_file) {
        config->origin.token = line_take(config, config->origin.token_file, " \t\r\n");
        if (config->origin.token)
            config->origin.token_file = NULL;
    }
    if (config->notify.secret_file) {
        config->notify.secret = line_take(config, config->notify.secret_file, " \t\r\n");
        if (config->notify.secret)
            config->notify.secret_file = NULL;
    }
    struct weir__admin_config *admin = &config->admin;
    if (!admin->listener)
        return;
    if (admin->listener->tls.certificate) {
        admin->certificate = weir__file_read(admin->listener->tls.certificate, &len);
        admin->key = weir__file_read(admin->listener->tls.key, &len);
    }
    if (admin->socket == 0)
        admin->socket = weir__admin_bind(admin->listener, why, sizeof why);
    if (admin->socket < 0)
        weir__logf(log, WEIR__LOG_ERROR, "admin: %s", why);
}
