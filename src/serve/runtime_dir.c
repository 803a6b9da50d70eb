/* The runtime directory: nginx.conf, rules, sockets and temporary files of one weir serve. See deployment.h. */
#include "serve/deployment.h"
#include "base/file.h"
#include "serve/serve.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "weir-serve-"
#define LOCK   "lock"

/* ---- Removing ---- */

/* Follows no symbolic link. Keeps what is nested deeper than `depth`, which is more than nginx uses. */
static void remove_tree(int parent, const char *name, int depth)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        unlinkat(parent, name, 0);
        return;
    }
    for (const struct dirent *entry; depth > 0 && (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_tree(fd, entry->d_name, depth - 1);
    closedir(dir);
    unlinkat(parent, name, AT_REMOVEDIR);
}

enum { DEPTH = 6 };

void weir__remove_tree(const char *path)
{
    remove_tree(AT_FDCWD, path, DEPTH);
}

/* Removes directories of killed weir serve: they belong to this user, and their lock is free. */
static void remove_stale(const char *base)
{
    DIR *dir = opendir(base);
    int parent = dir ? dirfd(dir) : -1;
    for (const struct dirent *entry; parent >= 0 && (entry = readdir(dir));) {
        struct stat at;
        char lock_name[300];
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) != 0 ||
            fstatat(parent, entry->d_name, &at, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(at.st_mode) ||
            at.st_uid != geteuid())
            continue;
        snprintf(lock_name, sizeof lock_name, "%s/" LOCK, entry->d_name);
        int lock = openat(parent, lock_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0)
            remove_tree(parent, entry->d_name, DEPTH);
        if (lock >= 0)
            close(lock);
    }
    if (dir)
        closedir(dir);
}

void weir__runtime_dir_remove(struct weir__runtime_dir *folder)
{
    int error = errno;
    if (!folder->path[0])
        return;
    weir__remove_tree(folder->path);
    if (folder->lock >= 0)
        close(folder->lock);
    if (folder->itself >= 0)
        close(folder->itself);
    folder->path[0] = 0;
    errno = error;
}

/* ---- Creating ---- */

/* Locks the directory. ENOENT: another weir serve removed it as stale before it was locked. */
static bool hold(struct weir__runtime_dir *folder)
{
    char lock_path[300];
    struct stat lock;
    snprintf(lock_path, sizeof lock_path, "%s/" LOCK, folder->path);
    folder->lock = open(lock_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (folder->lock < 0 || flock(folder->lock, LOCK_EX | LOCK_NB) != 0 || fstat(folder->lock, &lock) != 0)
        return false;
    if (lock.st_nlink == 0) {
        errno = ENOENT;
        return false;
    }
    if (folder->itself < 0)
        folder->itself = open(folder->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return folder->itself >= 0 && flock(folder->itself, LOCK_EX | LOCK_NB) == 0;
}

static bool make_once(struct weir__runtime_dir *folder, const char *base)
{
    folder->lock = folder->itself = -1;
    snprintf(folder->path, sizeof folder->path, "%s/" PREFIX "XXXXXX", base);
    if (!mkdtemp(folder->path)) {
        folder->path[0] = 0;
        return false;
    }
    return hold(folder);
}

bool weir__runtime_dir_make(struct weir__runtime_dir *folder, unsigned group)
{
    enum { TRIES = 10 };
    const char *own = getenv("XDG_RUNTIME_DIR");
    /* XDG_RUNTIME_DIR is closed to workers of another user, and may be too long for the path of a socket. */
    bool usable = group == 0 && own && own[0] == '/' && strlen(own) < 64 && access(own, W_OK | X_OK) == 0;
    const char *base = usable ? own : "/tmp";
    remove_stale(base);
    for (int i = 0; i < TRIES; i++) {
        if (make_once(folder, base) && weir__runtime_dir_admit(folder, group))
            return true;
        int error = errno;
        weir__runtime_dir_remove(folder);
        if (error != ENOENT && error != EWOULDBLOCK)
            break;
    }
    return false;
}

bool weir__runtime_dir_admit(const struct weir__runtime_dir *folder, unsigned group)
{
    return group == 0 || (chown(folder->path, (uid_t)-1, (gid_t)group) == 0 && chmod(folder->path, 0710) == 0);
}

/* ---- Creating it again ---- */

/* True if the path still names the directory that was created. */
static bool has_its_name(const struct weir__runtime_dir *folder)
{
    struct stat made, named;
    return fstat(folder->itself, &made) == 0 && lstat(folder->path, &named) == 0 && made.st_dev == named.st_dev &&
           made.st_ino == named.st_ino;
}

bool weir__runtime_dir_exists(const struct weir__runtime_dir *folder)
{
    struct stat lock;
    return has_its_name(folder) && fstat(folder->lock, &lock) == 0 && lock.st_nlink > 0;
}

bool weir__runtime_dir_restore(struct weir__runtime_dir *folder, unsigned group)
{
    struct weir__runtime_dir made = *folder;
    bool emptied = has_its_name(folder), fresh = !emptied && mkdir(folder->path, 0700) == 0;
    made.lock = -1;
    made.itself = emptied ? folder->itself : -1;
    bool good = (emptied || fresh) && hold(&made) && weir__runtime_dir_admit(&made, group);
    int error = errno;
    if (!good && fresh)
        remove_tree(AT_FDCWD, folder->path, 1);
    const struct weir__runtime_dir *gone = good ? folder : &made;
    if (gone->lock >= 0)
        close(gone->lock);
    if (gone->itself >= 0 && !emptied)
        close(gone->itself);
    if (good)
        *folder = made;
    errno = error;
    return good;
}

bool weir__runtime_dir_write(const struct weir__runtime_dir *folder, const char *name, const char *text,
                             unsigned long len, unsigned group)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    return weir__file_swap(path, text, len, group ? 0640 : 0600, group ? group : (unsigned)-1);
}
