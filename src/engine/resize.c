/* weir_segment_resize and weir_segment_convert: the file's side of table/resize.h and table/convert.c. */
#include "engine/segment.h"
#include "table/resize.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FULL_PERCENT = 80 }; /* of the slots of a smaller segment: up to this, no entry is evicted for lack of room */

/* Opens the file that `segment` has mapped, and locks it against other resizes. -1, and *error is set. */
static int open_locked(const char *path, const weir_segment *segment, int *error)
{
    struct stat what;
    int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) {
        *error = weir__errno_error(errno);
        return -1;
    }
    *error = 0;
    if (flock(file, LOCK_EX | LOCK_NB) != 0)
        *error = errno == EWOULDBLOCK ? WEIR_ERESIZING : weir__errno_error(errno);
    else if (fstat(file, &what) != 0 || what.st_ino != segment->mapped.inode)
        *error = WEIR_ERESIZING; /* it was replaced */
    if (*error)
        close(file);
    return *error ? -1 : file;
}

/* The number of doublings that give `size`, or else the ones that come nearest, with WEIR_ESIZE. */
static int choose(uint64_t first, uint64_t size, unsigned *doublings)
{
    unsigned least = 0;
    while (least < WEIR__DOUBLINGS_MAX && first << least < size)
        least++;
    if (least && size < first << least && size - (first << (least - 1)) < (first << least) - size)
        least--;
    *doublings = least;
    return first << least == size ? 0 : WEIR_ESIZE;
}

static int finish(const weir_segment *segment, uint64_t *moved)
{
    struct weir__op op = weir__operation(segment, weir__stats_shard_here(segment), weir_clock(segment));
    return weir__is_resizing(op.table) ? weir__resize_finish(&op, moved) : 0;
}

/* The smallest number of doublings whose slots have room for all entries. */
static unsigned least_doublings(const struct weir__table *table, uint64_t live)
{
    unsigned least = 0;
    while (least < WEIR__DOUBLINGS_MAX && live > (table->buckets * WEIR__BUCKET_SLOTS << least) / 100 * FULL_PERCENT)
        least++;
    return least;
}

static int resize(weir_segment *segment, int file, unsigned doublings, weir_resize *result)
{
    const struct weir__table *table = &segment->table;
    unsigned before = weir__doublings(weir__load64(&table->header->geometry)), least;
    uint64_t size = table->bytes << doublings;
    weir_report report = {0};
    struct stat what;
    (void)!weir_segment_validate(segment, weir_clock(segment), &report); /* for the count */
    if (weir__lost(segment))
        return WEIR_ELOST;
    result->live = report.live;
    if (doublings < before && (least = least_doublings(table, report.live)) > doublings) {
        result->size = table->bytes << least;
        return WEIR_EFULL;
    }
    if (doublings > table->doublings_max)
        return WEIR_ERESIZED;
    /* Within the file's length, too, where a smaller size has left a hole. All that is there is empty. */
    int error = doublings > before ? weir__file_extend(file, table->bytes << before, size) : 0;
    if (!error && doublings != before)
        error = weir__resize_begin(table, doublings);
    uint64_t moved = 0;
    if (!error)
        error = finish(segment, &moved);
    result->moved += moved;
    result->size = size;
    /*
     * Frees what is beyond, also what a process that died has left. The file keeps its length: a process that was
     * preempted in a lookup may still read there.
     */
    if (!error && !weir__lost(segment) && fstat(file, &what) == 0 && (uint64_t)what.st_size > size)
        (void)!fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)size, what.st_size - (off_t)size);
    return error;
}

int weir_segment_resize(const char *path, uint64_t size, weir_resize *result)
{
    weir_segment *segment = NULL;
    unsigned doublings;
    if (!path || !result)
        return WEIR_EINVAL;
    *result = (weir_resize){0};
    int error = weir_segment_open(&(weir_segment_options){.path = path, .flags = WEIR_OPEN_TRUSTED}, &segment),
        file = -1;
    if (!error) {
        (void)!weir_segment_guard(segment); /* best effort: with 16 others a truncated file ends the process */
        file = open_locked(path, segment, &error);
    }
    if (file >= 0)
        error = finish(segment, &result->moved); /* what a process that died has begun */
    if (file >= 0 && !error) {
        result->first = segment->table.bytes;
        result->size_before = weir__table_bytes(&segment->table);
        error = choose(result->first, size, &doublings);
        result->size = result->first << doublings;
    }
    if (file >= 0 && !error)
        error = resize(segment, file, doublings, result);
    if (weir_segment_lost(segment))
        error = WEIR_ELOST;
    if (file >= 0)
        close(file);
    weir_segment_close(segment);
    return error;
}

/* ---- Conversion ---- */

static int is_segment(void *memory, uint64_t bytes, const void *plan)
{
    const struct weir__header *header = memory;
    (void)plan;
    if (bytes < sizeof *header || header->magic != WEIR__MAGIC)
        return WEIR_ENOTSEG;
    return 0;
}

/* Copies the old segment by cells, as a process that should have been ended may still write to it, and converts it. */
static int convert(void *memory, uint64_t bytes, const void *plan)
{
    const struct weir__mapped *old = plan;
    const weir__cell *from = old->memory;
    weir__cell *to = memory;
    for (uint64_t i = 0; i < bytes / sizeof *to && !weir__load32(&old->lost); i++)
        to[i] = weir__cell_read(&from[i]);
    return weir__load32(&old->lost) ? WEIR_ELOST : weir__segment_convert(memory, bytes);
}

static int check_converted(void *memory, uint64_t bytes, const void *plan)
{
    struct weir__table unused;
    (void)plan;
    return weir__segment_attach(memory, bytes, &unused);
}

int weir_segment_convert(const char *path, unsigned *layout)
{
    struct weir__mapped old = {0}, fresh = {0};
    if (!path || !layout)
        return WEIR_EINVAL;
    *layout = 0;
    struct weir__file_spec was = {.path = path, .read_only = true, .trusted = true, .check = is_segment};
    int error = weir__mapped_open_segment(&was, &old);
    if (error)
        return error;
    (void)!weir__mapped_guard(&old); /* best effort: with 16 others a truncated file ends the process */
    *layout = ((const struct weir__header *)old.memory)->layout;
    if (*layout == WEIR__LAYOUT_RESIZED)
        *layout = WEIR__LAYOUT;
    if (*layout != WEIR__LAYOUT && !weir__layout_is_older(*layout))
        error = WEIR_EVERSION;
    else if (*layout != WEIR__LAYOUT && old.owner != geteuid())
        error = WEIR_EPERM; /* the new file would be this user's */
    if (!error && *layout != WEIR__LAYOUT) {
        struct weir__file_spec spec = {.path = path,
                                       .bytes = old.bytes,
                                       .like = &old,
                                       .trusted = true,
                                       .rebuild = true,
                                       .format = convert,
                                       .plan = &old,
                                       .check = check_converted};
        error = weir__mapped_open_segment(&spec, &fresh);
    }
    if (weir__load32(&old.lost))
        error = WEIR_ELOST;
    weir__mapped_close(&fresh);
    weir__mapped_close(&old);
    return error ? error : *layout != WEIR__LAYOUT;
}
