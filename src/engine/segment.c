/*
 * Opening, creating and attaching segments: all system calls on files and memory.
 *
 * A new segment is made without a name (or under a name of its own, where the file system knows no unnamed files),
 * filled, and only then linked to its path: nobody ever sees half of one, and a process that dies on the way leaves
 * nothing behind. Its blocks are reserved first, so a full file system is an error here and not a SIGBUS later.
 */
#define _GNU_SOURCE /* O_TMPFILE, mkostemp */
#include "engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

static int error_of(int number)
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

static bool processor_fits(void)
{
#ifdef __x86_64__
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_CMPXCHG16B);
#else
    return true;
#endif
}

/* Maps a file (or anonymous memory, for -1) and wraps it in a handle that is not attached yet. */
static int map(int file, uint64_t bytes, bool read_only, weir_segment **segment)
{
    weir_segment *made = calloc(1, sizeof *made);
    if (!made)
        return WEIR_ENOMEM;
    made->memory = mmap(NULL, bytes, read_only ? PROT_READ : PROT_READ | PROT_WRITE,
                        file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, file, 0);
    if (made->memory == MAP_FAILED) {
        int error = error_of(errno);
        free(made);
        return error;
    }
    made->bytes = bytes;
    made->read_only = read_only;
    /* Best effort: with large pages a miss in the table is not also a miss in the page tables. */
    (void)madvise(made->memory, bytes, MADV_HUGEPAGE);
    *segment = made;
    return 0;
}

static int fill_plan(const weir_segment_options *options, struct weir__plan *plan)
{
    *plan = (struct weir__plan){.bytes = options->size, .slab_bytes = options->slab_bytes};
    if (!options->slab_bytes && !options->no_slab)
        plan->slab_bytes = options->size / 16;
    if (options->slab_bytes && options->no_slab)
        return WEIR_EINVAL;

    weir_time now = weir__clocks();
    plan->wall_ns = now.wall_ns;
    plan->boot_ns = now.mono_ns;
    weir__boot_id(plan->boot);
    size_t have = 0;
    while (have < sizeof plan->secret) {
        ssize_t got = getrandom(plan->secret + have, sizeof plan->secret - have, 0);
        if (got < 0 && errno != EINTR)
            return WEIR_ESYS;
        have += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* Formats freshly mapped memory and attaches to it. Unmaps and frees on failure. */
static int format(weir_segment *made, const struct weir__plan *plan, weir_segment **segment)
{
    int error = weir__segment_format(made->memory, plan);
    if (!error)
        error = weir__segment_attach(made->memory, made->bytes, &made->table);
    if (error) {
        weir_segment_close(made);
        return error;
    }
    *segment = made;
    return 0;
}

/* The directory part of a path, "." if it has none. False if it does not fit. */
static bool directory_of(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (!slash)
        return snprintf(out, size, ".") < (int)size;
    if (!length)
        length = 1;
    if (length >= size)
        return false;
    memcpy(out, path, length);
    out[length] = 0;
    return true;
}

/* Gives an open, unnamed (or temporary) file its name. With `replace` whatever is there goes. */
static int publish(int file, const char *temporary, const char *path, bool replace)
{
    char self[64], beside[4096];
    snprintf(self, sizeof self, "/proc/self/fd/%d", file);

    if (!replace) {
        int failed = temporary[0] ? link(temporary, path) : linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
        return failed ? error_of(errno) : 0;
    }
    const char *from = temporary;
    if (!temporary[0]) {
        if (snprintf(beside, sizeof beside, "%s.%ld.new", path, (long)getpid()) >= (int)sizeof beside)
            return WEIR_EINVAL;
        unlink(beside); /* of a process that had our number and died here */
        if (linkat(AT_FDCWD, self, AT_FDCWD, beside, AT_SYMLINK_FOLLOW))
            return error_of(errno);
        from = beside;
    }
    if (rename(from, path)) {
        int error = error_of(errno);
        unlink(from);
        return error;
    }
    return 0;
}

/* Opens a file without a name in the path's directory; `temporary` is its name where that cannot be. */
static int open_unnamed(const char *path, unsigned mode, char *temporary, size_t size)
{
    char directory[4096];
    temporary[0] = 0;
    if (!directory_of(path, directory, sizeof directory)) {
        errno = ENAMETOOLONG;
        return -1;
    }
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

static int create(const weir_segment_options *options, bool replace, weir_segment **segment)
{
    struct weir__plan plan;
    weir_segment *made = NULL;
    char temporary[4096];
    int error = fill_plan(options, &plan);
    if (error)
        return error;
    /* Before anything is reserved; weir__segment_format has the last word. */
    if (plan.bytes < WEIR__SIZE_MIN || plan.bytes > INT64_MAX || plan.slab_bytes > plan.bytes / 2)
        return WEIR_ESIZE;

    if (!options->path) {
        error = map(-1, plan.bytes, false, &made);
        return error ? error : format(made, &plan, segment);
    }
    int file = open_unnamed(options->path, options->mode ? options->mode : 0600, temporary, sizeof temporary);
    if (file < 0)
        return error_of(errno);
    int number = EINTR;
    for (int round = 0; round < 16 && number == EINTR; round++)
        number = posix_fallocate(file, 0, (off_t)plan.bytes);
    errno = number; /* it does not set it */
    error = number ? error_of(number) : map(file, plan.bytes, false, &made);
    if (!error)
        error = format(made, &plan, &made);
    if (!error) {
        error = publish(file, temporary, options->path, replace);
        if (error)
            weir_segment_close(made);
    }
    if (temporary[0])
        unlink(temporary);
    close(file);
    if (!error)
        *segment = made;
    return error;
}

static int attach(const weir_segment_options *options, weir_segment **segment)
{
    bool read_only = options->flags & WEIR_OPEN_READONLY;
    struct stat what;
    int file = open(options->path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return errno == EISDIR ? WEIR_ENOTSEG : error_of(errno);

    weir_segment *made = NULL;
    int error = fstat(file, &what) ? error_of(errno) : 0;
    if (!error && (!S_ISREG(what.st_mode) || what.st_size == 0))
        error = WEIR_ENOTSEG;
    if (!error)
        error = map(file, (uint64_t)what.st_size, read_only, &made);
    close(file);
    if (error)
        return error;
    error = weir__segment_attach(made->memory, made->bytes, &made->table);
    if (error) {
        weir_segment_close(made);
        return error;
    }
    weir__clock_adopt(made);
    *segment = made;
    return 0;
}

static bool is_broken(int error)
{
    return error == WEIR_EDAMAGED || error == WEIR_ETRUNCATED || error == WEIR_EVERSION;
}

/*
 * Replaces a broken segment, one process at a time: who comes second finds what the first has made. A holder that is
 * stopped does not hold up the others for ever; they then replace it themselves.
 */
static int rebuild(const weir_segment_options *options, weir_segment **segment)
{
    const struct timespec moment = {0, 10000000};
    int lock = open(options->path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (lock < 0)
        return error_of(errno);
    for (int round = 0; round < 500 && flock(lock, LOCK_EX | LOCK_NB); round++)
        nanosleep(&moment, NULL);
    int error = attach(options, segment);
    if (is_broken(error))
        error = create(options, true, segment);
    close(lock);
    return error;
}

int weir_segment_open(const weir_segment_options *options, weir_segment **segment)
{
    const int known = WEIR_OPEN_CREATE | WEIR_OPEN_EXCLUSIVE | WEIR_OPEN_READONLY | WEIR_OPEN_REBUILD;
    if (!options || !segment || (options->flags & ~known) || (options->path && !options->path[0]))
        return WEIR_EINVAL;
    bool make = options->flags & WEIR_OPEN_CREATE || !options->path;
    bool only_new = options->flags & WEIR_OPEN_EXCLUSIVE || !options->path;
    if ((make && options->flags & WEIR_OPEN_READONLY) ||
        (!make && options->flags & (WEIR_OPEN_REBUILD | WEIR_OPEN_EXCLUSIVE)))
        return WEIR_EINVAL;
    if (!processor_fits())
        return WEIR_ECPU;

    /* Twice: between a look and a link somebody else may have made or removed it. */
    int error = WEIR_ENOENT;
    for (int round = 0; round < 2; round++) {
        if (!only_new) {
            error = attach(options, segment);
            if (is_broken(error) && options->flags & WEIR_OPEN_REBUILD)
                return rebuild(options, segment);
            if (error != WEIR_ENOENT || !make)
                return error;
        }
        error = create(options, false, segment);
        if (error != WEIR_EEXIST || only_new)
            return error;
    }
    return error;
}

void weir_segment_close(weir_segment *segment)
{
    if (!segment)
        return;
    munmap(segment->memory, segment->bytes);
    free(segment);
}
