/* Whole files. See file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX ((64U << 20) - 1)
#define TRIES    100

/* ---- Reading ---- */

ssize_t weir__read_fully(int file, void *to, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = read(file, (char *)to + done, size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

char *weir__file_read_short(const char *path, size_t max, size_t *len)
{
    struct stat about;
    /* Non-blocking: it may be a pipe. */
    int file = (int)TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (file < 0)
        return NULL;
    char *text = NULL;
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && (size_t)about.st_size <= max)
        text = malloc((size_t)about.st_size + 1);
    ssize_t got = text ? weir__read_fully(file, text, (size_t)about.st_size) : 0;
    if (got < 0) {
        free(text);
        text = NULL;
    }
    *len = got > 0 ? (size_t)got : 0;
    if (text)
        text[*len] = 0;
    close(file);
    return text;
}

char *weir__file_read(const char *path, size_t *len)
{
    return weir__file_read_short(path, FILE_MAX, len);
}

/* ---- Replacing ---- */

int weir__write_fully(int file, const void *data, size_t len)
{
    for (const char *at = data, *end = at + len; at < end;) {
        ssize_t put = write(file, at, (size_t)(end - at));
        if (put < 0 && errno != EINTR)
            return errno;
        at += put > 0 ? put : 0;
    }
    return 0;
}

bool weir__file_swap(const char *path, const char *text, size_t len, unsigned mode, unsigned group)
{
    char temporary[4200];
    if (snprintf(temporary, sizeof temporary, "%s.new", path) >= (int)sizeof temporary) {
        errno = ENAMETOOLONG;
        return false;
    }
    unlink(temporary); /* left by a killed process, or by another user */
    int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = file >= 0 && fchown(file, (uid_t)-1, (gid_t)group) == 0 && fchmod(file, mode) == 0;
    if (good) {
        errno = weir__write_fully(file, text, len);
        good = errno == 0;
    }
    if (file >= 0)
        close(file);
    return good && rename(temporary, path) == 0;
}

/* Makes a rename durable: a name is on the disk once its folder is. */
static int sync_folder(const char *path)
{
    char *copy = strdup(path);
    int folder = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int error = folder < 0 || fsync(folder) != 0 ? -errno : 0;
    if (folder >= 0)
        close(folder);
    free(copy);
    return error;
}

/* Opens the temporary file, empty and locked: weir serve and its agent may both replace a file. -errno on failure. */
static int open_locked(const char *path)
{
    for (int i = 0; i < TRIES; i++) {
        struct stat mine, there;
        int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (file < 0)
            return -errno;
        if (flock(file, LOCK_EX) == 0 && fstat(file, &mine) == 0 && stat(path, &there) == 0 &&
            mine.st_ino == there.st_ino && mine.st_dev == there.st_dev && ftruncate(file, 0) == 0)
            return file;
        close(file); /* the process that held the lock has renamed the file */
    }
    return -EBUSY;
}

int weir__file_replace(const char *path, const char *head, const char *text, size_t len)
{
    char *temporary = NULL;
    if (asprintf(&temporary, "%s.new", path) < 0)
        return -ENOMEM;
    int file = open_locked(temporary);
    int error = file < 0 ? file : -weir__write_fully(file, head, strlen(head));
    if (!error)
        error = -weir__write_fully(file, text, len);
    if (!error && (fsync(file) != 0 || rename(temporary, path) != 0))
        error = -errno;
    if (error && file >= 0)
        unlink(temporary);
    if (file >= 0 && close(file) != 0 && !error)
        error = -errno;
    free(temporary);
    return error ? error : sync_folder(path);
}

void weir__folder_of(const char *path, char *folder, size_t size)
{
    const char *slash = strrchr(path, '/');
    snprintf(folder, size, "%.*s", slash && slash > path ? (int)(slash - path) : 1, slash ? path : ".");
}

bool weir__file_make_folder(const char *path)
{
    char folder[4200];
    const char *end = strrchr(path, '/');
    if (!end || end == path || (size_t)(end - path) >= sizeof folder) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(folder, path, (size_t)(end - path));
    folder[end - path] = 0;
    for (char *slash = folder + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        if (mkdir(folder, 0755) != 0 && errno != EEXIST)
            return false;
        *slash = '/';
    }
    return mkdir(folder, 0755) == 0 || errno == EEXIST;
}

bool weir__file_write(const char *path, const char *text, size_t len)
{
    if (!weir__file_make_folder(path))
        return false;
    int error = weir__file_replace(path, "", text, len);
    errno = -error;
    return !error;
}

/* ---- Acting as the owner of a file ---- */

struct weir__file_owner weir__file_owner(const char *path)
{
    struct stat at;
    char folder[4200];
    weir__folder_of(path, folder, sizeof folder);
    if (geteuid() == 0 && ((stat(folder, &at) == 0 && at.st_uid != 0) || (lstat(path, &at) == 0 && at.st_uid != 0)))
        return (struct weir__file_owner){at.st_uid, at.st_gid};
    return (struct weir__file_owner){0, 0};
}

bool weir__act_as_owner(const struct weir__file_owner *owner)
{
    gid_t group = owner->group;
    return !owner->user || (setgroups(1, &group) == 0 && setegid(group) == 0 && seteuid(owner->user) == 0);
}

void weir__act_as_self(const struct weir__file_owner *owner)
{
    if (owner->user && (seteuid(0) != 0 || setegid(getgid()) != 0))
        abort();
}
