/* Mapped files: see mapped_file.h. */
#include "engine/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ /* Linux 5.14; an older kernel returns EINVAL */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

int weir__errno_error(int number)
{
    switch (number) {
    case ENOENT:
    case ENOTDIR:
        return WEIR_ENOENT;
    case EACCES:
    case EPERM:
    case EROFS:
        return WEIR_EPERM;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return WEIR_ENOSPC;
    case ENOMEM:
        return WEIR_ENOMEM;
    case EEXIST:
        return WEIR_EEXIST;
    default:
        return WEIR_ESYS;
    }
}

int weir__random_fill(void *to, size_t size)
{
    size_t have = 0;
    while (have < size) {
        ssize_t got = getrandom((char *)to + have, size - have, 0);
        if (got < 0 && errno != EINTR)
            return WEIR_ESYS;
        have += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* Maps a file, with addresses for `room` times its size if there are, or anonymous memory for -1. */
static int map(int file, uint64_t bytes, unsigned room, bool read_only, struct weir__mapped *mapped)
{
    int access = read_only ? PROT_READ : PROT_READ | PROT_WRITE,
        kind = file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    uint64_t addresses = file >= 0 && room > 1 && bytes <= UINT64_MAX / room ? bytes * room : bytes;
    void *memory = mmap(NULL, addresses, access, kind, file, 0);
    /* EAGAIN: after mlockall they would have to be locked, which RLIMIT_MEMLOCK does not permit. */
    if (memory == MAP_FAILED && (errno == ENOMEM || errno == EAGAIN) && addresses > bytes)
        memory = mmap(NULL, addresses = bytes, access, kind, file, 0);
    if (memory == MAP_FAILED)
        return weir__errno_error(errno);
    /* Best effort: with large pages a miss in the table is not also a miss in the page tables. */
    (void)madvise(memory, addresses, MADV_HUGEPAGE);
    *mapped = (struct weir__mapped){
        .memory = memory, .bytes = bytes, .mapped = addresses, .read_only = read_only, .owner = geteuid()};
    return 0;
}

void weir__mapped_close(struct weir__mapped *mapped)
{
    if (mapped->memory) {
        weir__unguard(mapped);
        munmap(mapped->memory, mapped->mapped);
    }
    *mapped = (struct weir__mapped){0};
}

/*
 * Reserves the blocks of a file on a tmpfs through a mapping: if that is mounted with huge=advise, only blocks that are
 * populated through a mapping with MADV_HUGEPAGE get large pages. Not tried for more than is free: it would use up all
 * memory first. If it fails here, posix_fallocate fails as well, and returns the error.
 */
static int reserve_mapped(int file, uint64_t bytes)
{
    struct statfs where;
    struct weir__mapped complete = {0};
    if (fstatfs(file, &where) || where.f_type != TMPFS_MAGIC || where.f_bavail < bytes / (uint64_t)where.f_bsize + 1 ||
        ftruncate(file, (off_t)bytes))
        return 0;
    int error = map(file, bytes, 0, false, &complete);
    if (!error)
        (void)madvise(complete.memory, bytes, MADV_POPULATE_WRITE);
    weir__mapped_close(&complete);
    return error;
}

/* Maps fresh memory and fills it. Nothing is left mapped on failure. */
static int fill(const struct weir__file_spec *spec, int file, struct weir__mapped *mapped)
{
    int error = map(file, spec->bytes, spec->room, false, mapped);
    if (error)
        return error;
    error = spec->format(mapped->memory, spec->bytes, spec->plan);
    if (error)
        weir__mapped_close(mapped);
    return error;
}

/* The directory part of a path, in `copy`. NULL: too long; errno is set. */
static const char *directory_of(const char *path, char copy[PATH_MAX])
{
    if (snprintf(copy, PATH_MAX, "%s", path) < PATH_MAX)
        return dirname(copy);
    errno = ENAMETOOLONG;
    return NULL;
}

/* Links an open, unnamed (or temporary) file to its path. With `replace` an existing file is replaced. */
static int publish(int file, const char *temporary, const char *path, bool replace)
{
    char self[64], sidecar[4096];
    snprintf(self, sizeof self, "/proc/self/fd/%d", file);

    if (!replace) {
        int failed = temporary[0] ? link(temporary, path) : linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
        return failed ? weir__errno_error(errno) : 0;
    }
    const char *from = temporary;
    if (!temporary[0]) {
        if (snprintf(sidecar, sizeof sidecar, "%s.%ld.new", path, (long)getpid()) >= (int)sizeof sidecar)
            return WEIR_EINVAL;
        unlink(sidecar); /* left by a process with the same id that died here */
        if (linkat(AT_FDCWD, self, AT_FDCWD, sidecar, AT_SYMLINK_FOLLOW))
            return weir__errno_error(errno);
        from = sidecar;
    }
    if (rename(from, path)) {
        int error = weir__errno_error(errno);
        unlink(from);
        return error;
    }
    return 0;
}

/* Opens an unnamed file in the path's directory; `temporary` is its name where that is not supported. */
static int open_unnamed(const char *path, unsigned mode, char *temporary, size_t size)
{
    char copy[PATH_MAX];
    const char *directory = directory_of(path, copy);
    temporary[0] = 0;
    if (!directory)
        return -1;
    /* Without /proc an unnamed file could not be given a name. */
    bool proc = access("/proc/self/fd", X_OK) == 0;
    int file = proc ? open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, mode) : -1;
    if (!proc)
        errno = EOPNOTSUPP;
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return file;
    if (snprintf(temporary, size, "%s.XXXXXX", path) >= (int)size) {
        errno = ENAMETOOLONG;
        return -1;
    }
    file = mkostemp(temporary, O_CLOEXEC);
    if (file >= 0 && fchmod(file, mode)) {
        close(file);
        unlink(temporary);
        file = -1;
    }
    return file;
}

/* Whether a file may be so large: beyond RLIMIT_FSIZE the kernel would end the process by SIGXFSZ. */
static bool is_allowed(uint64_t bytes)
{
    struct rlimit most;
    return getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY || bytes <= most.rlim_cur;
}

/* Reserves the blocks [from, to) of a file, which grows to that. Returns an errno or 0. */
static int reserve(int file, uint64_t from, uint64_t to)
{
    int number = EINTR;
    for (int round = 0; round < 16 && number == EINTR; round++)
        number = posix_fallocate(file, (off_t)from, (off_t)(to - from));
    return number;
}

int weir__file_extend(int file, uint64_t from, uint64_t to)
{
    struct statvfs system;
    struct stat what;
    if (!is_allowed(to))
        return weir__errno_error(errno = EFBIG);
    if (fstat(file, &what) != 0)
        return weir__errno_error(errno);
    if ((uint64_t)what.st_size < from)
        return WEIR_ELOST; /* truncated: extended again, it would have zeros where its counters were, without a SIGBUS
                            */
    /* Some of the blocks may exist; those of [0, from) do. */
    uint64_t have = (uint64_t)what.st_blocks * 512;
    have = have < from ? from : have > to ? to : have;
    /* Asked first, as a tmpfs takes all memory before it fails; f_blocks is 0 without a bound. */
    if (fstatvfs(file, &system) == 0 && system.f_blocks && system.f_bavail < (to - have) / system.f_frsize)
        return weir__errno_error(errno = ENOSPC);
    int number = reserve(file, from, to);
    if (number)
        (void)!ftruncate(file, what.st_size);
    return number ? weir__errno_error(errno = number) : 0;
}

/* Makes the file. With `replace` an existing file is replaced; otherwise WEIR_EEXIST. */
static int make(const struct weir__file_spec *spec, bool replace, struct weir__mapped *mapped)
{
    char temporary[4096];
    if (!spec->path)
        return fill(spec, -1, mapped);
    if (!is_allowed(spec->bytes))
        return weir__errno_error(errno = EFBIG);
    int file = open_unnamed(spec->path, spec->mode ? spec->mode : 0600, temporary, sizeof temporary);
    if (file < 0)
        return weir__errno_error(errno);
    const struct weir__mapped *like = spec->like;
    int error =
        like && (fchown(file, (uid_t)-1, like->group) || fchmod(file, like->mode)) ? weir__errno_error(errno) : 0;
    if (!error)
        error = reserve_mapped(file, spec->bytes);
    int number = error ? 0 : reserve(file, 0, spec->bytes);
    if (number)
        error = weir__errno_error(errno = number); /* it does not set it */
    if (!error)
        error = fill(spec, file, mapped);
    if (!error) {
        error = publish(file, temporary, spec->path, replace);
        if (error)
            weir__mapped_close(mapped);
    }
    if (temporary[0])
        unlink(temporary);
    close(file);
    return error;
}

/* Reserves the blocks that the first `bytes` of a file with holes still need. */
static int fill_holes(const struct weir__mapped *mapped, uint64_t bytes)
{
    /* On a tmpfs reading reserves blocks, too. */
    int how = mapped->read_only ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
    if (mapped->holes && madvise(mapped->memory, bytes, how) && errno != EINVAL)
        return errno == EFAULT ? WEIR_ENOSPC : weir__errno_error(errno); /* EFAULT: there would have been a SIGBUS */
    return 0;
}

/* ---- Whose file it is ---- */

/*
 * In a folder that every user may write to, any user can create the path first, and a hard link may lead to any file.
 * In other folders only users that the folder's owner admits can create files.
 */
static bool is_strangers(const char *path, const struct stat *what, unsigned segment_owner)
{
    char copy[PATH_MAX];
    const char *directory = directory_of(path, copy);
    struct stat folder;
    bool known = what->st_uid == 0 || what->st_uid == geteuid() || what->st_uid == segment_owner;
    if (known && what->st_nlink <= 1)
        return false;
    if (!directory || stat(directory, &folder) != 0)
        return true;
    return folder.st_mode & S_IWOTH && (what->st_nlink > 1 || what->st_uid != folder.st_uid);
}

bool weir__file_is_trusted(int file, const char *path, unsigned segment_owner)
{
    struct stat what;
    return fstat(file, &what) == 0 && S_ISREG(what.st_mode) && !is_strangers(path, &what, segment_owner);
}

static void name_owner(uid_t owner, char *name, size_t size)
{
    char strings[1024];
    struct passwd user, *found = NULL;
    if (getpwuid_r(owner, &user, strings, sizeof strings, &found) == 0 && found)
        snprintf(name, size, "user %s (uid %u)", user.pw_name, (unsigned)owner);
    else
        snprintf(name, size, "uid %u", (unsigned)owner);
}

bool weir__free_bytes(const char *path, uint64_t *bytes)
{
    char copy[PATH_MAX];
    const char *directory = directory_of(path, copy);
    struct statvfs system;
    if (!directory || statvfs(directory, &system) != 0)
        return false;
    *bytes = system.f_blocks ? (uint64_t)system.f_bavail * system.f_frsize : UINT64_MAX; /* a tmpfs without a bound */
    return true;
}

const char *weir__mapped_why(const char *path, int error, char *text, size_t size)
{
    char owner[128] = "";
    struct stat what;
    uint64_t free_bytes;
    bool there = lstat(path, &what) == 0;
    if (there)
        name_owner(what.st_uid, owner, sizeof owner);
    if (error == WEIR_ENOSPC && weir__free_bytes(path, &free_bytes))
        snprintf(text, size,
                 "no space left for it (%llu KiB are free); use a smaller size or free space on its file system",
                 (unsigned long long)free_bytes >> 10);
    else if (error == WEIR_EPERM && there)
        snprintf(text, size, "no permission: it belongs to %s and has mode %04o; change that, or remove it", owner,
                 (unsigned)what.st_mode & 07777);
    else if (error == WEIR_EPERM)
        return "no permission; check owner and mode of its folder, and whether it is mounted read-only";
    else if (!there || (error != WEIR_EOWNER && error != WEIR_ENOTSEG && error != WEIR_ELEDGER))
        return weir_strerror(error);
    else if (S_ISLNK(what.st_mode))
        snprintf(text, size, "it is a symbolic link of %s, which is not followed; remove it", owner);
    else if (!S_ISREG(what.st_mode))
        snprintf(text, size, "it is not a regular file, and belongs to %s; remove it", owner);
    else if (error == WEIR_EOWNER && what.st_nlink > 1)
        snprintf(text, size,
                 "it belongs to %s and has %lu hard links in a folder where everybody may make files; "
                 "remove it, or give the segment a folder of its own",
                 owner, (unsigned long)what.st_nlink);
    else if (error == WEIR_EOWNER)
        snprintf(text, size,
                 "it belongs to %s, who is neither this user nor root nor the folder's owner, and everybody "
                 "may make files there; remove it, or give the segment a folder of its own",
                 owner);
    else
        return weir_strerror(error);
    return text;
}

/* ---- Attaching ---- */

/* Maps an open file, and checks it. */
static int attach_open(const struct weir__file_spec *spec, bool sidecar, int file, const struct stat *what,
                       struct weir__mapped *mapped)
{
    if (spec->trusted && is_strangers(spec->path, what, spec->owner))
        return WEIR_EOWNER;
    if (!S_ISREG(what->st_mode) || what->st_size == 0)
        return S_ISREG(what->st_mode) && sidecar && spec->check ? WEIR_ETRUNCATED : WEIR_ENOTSEG;
    int error = map(file, (uint64_t)what->st_size, spec->room, spec->read_only, mapped);
    if (error)
        return error;
    mapped->owner = what->st_uid;
    mapped->group = what->st_gid;
    mapped->mode = what->st_mode & 0777;
    mapped->device = what->st_dev;
    mapped->inode = what->st_ino;
    mapped->holes = (uint64_t)what->st_blocks * 512 < (uint64_t)what->st_size;
    error = fill_holes(mapped, 1); /* its first page, which identifies it */
    if (!error && spec->check)
        error = spec->check(mapped->memory, mapped->bytes, spec->plan);
    if (!error && spec->check)
        error = fill_holes(mapped, spec->used ? spec->used(mapped->memory) : mapped->bytes); /* its kind is known */
    if (error)
        weir__mapped_close(mapped);
    return error;
}

static int attach(const struct weir__file_spec *spec, bool sidecar, struct weir__mapped *mapped)
{
    int links = spec->trusted ? O_NOFOLLOW : 0;
    int file = open(spec->path, (spec->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK | links);
    if (file < 0) /* ENXIO: a socket */
        return errno == EISDIR || errno == ELOOP || errno == ENXIO ? WEIR_ENOTSEG : weir__errno_error(errno);
    struct stat what = {0};
    off_t length = -1; /* at the last attempt */
    int error = WEIR_ETRUNCATED;
    /* Again if it has grown: a resize that extended it after fstat has changed what `check` reads. */
    for (int round = 0; round < 3 && error == WEIR_ETRUNCATED; round++) {
        if (fstat(file, &what) != 0)
            error = weir__errno_error(errno);
        else if (what.st_size > length)
            error = attach_open(spec, sidecar, file, &what, mapped);
        length = what.st_size;
    }
    close(file);
    return error;
}

/*
 * Locks a broken file while it is replaced. The lock is given up after some seconds, so that a stopped holder does not
 * block the others for ever. -1: it cannot be opened, errno has the reason.
 */
static int lock_broken(const char *path)
{
    const struct timespec moment = {0, 10000000};
    int lock = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    for (int round = 0; lock >= 0 && round < 500 && flock(lock, LOCK_EX | LOCK_NB); round++)
        nanosleep(&moment, NULL);
    return lock;
}

int weir__lock_open(const char *path, unsigned segment_owner)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (file < 0 || weir__file_is_trusted(file, path, segment_owner))
        return file;
    close(file);
    errno = EPERM;
    return -1;
}

static bool is_broken(int error)
{
    return error == WEIR_EDAMAGED || error == WEIR_ETRUNCATED || error == WEIR_EVERSION;
}

static int open_spec(const struct weir__file_spec *spec, bool sidecar, struct weir__mapped *mapped)
{
    int error = WEIR_ENOENT, lock = -1;
    /* Three times: another process may have made, replaced or removed it meanwhile. */
    for (int round = 0; round < 3; round++) {
        if (!spec->exclusive && spec->path)
            error = attach(spec, sidecar, mapped);
        bool replace = spec->rebuild && is_broken(error);
        if (!spec->format || (error != WEIR_ENOENT && !replace))
            break;
        if (replace && lock < 0) {
            /* One process replaces it; the next one finds the new file. */
            lock = lock_broken(spec->path);
            if (lock >= 0 || errno == ENOENT)
                continue;
            return weir__errno_error(errno);
        }
        error = spec->make_error ? spec->make_error : make(spec, lock >= 0, mapped);
        if (error != WEIR_EEXIST || spec->exclusive)
            break;
    }
    if (lock >= 0)
        close(lock);
    return error;
}

int weir__mapped_open_segment(const struct weir__file_spec *spec, struct weir__mapped *mapped)
{
    return open_spec(spec, false, mapped);
}

int weir__mapped_open(const struct weir__file_spec *spec, struct weir__mapped *mapped)
{
    struct weir__file_spec how = *spec;
    how.trusted = how.rebuild = true;
    int error = open_spec(&how, true, mapped);
    if (error || !spec->path)
        return error;
    mapped->disabled = spec->disabled;
    if (weir__sidecar_guard(mapped))
        return 0;
    weir__mapped_close(mapped);
    return WEIR_EGUARDS;
}
