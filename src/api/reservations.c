/* reservations.h */
#include "api/reservations.h"

#include "table/atomic.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC        UINT64_C(0x31767365725f7277)
#define HEADER_BYTES 4096
#define PROBES       8192 /* slots that are looked at for a free one: 64 KiB of words, a few microseconds */

enum { FREE = 0, WRITING = 1, READY = 2, STATE = 3 };

struct header {
    uint64_t magic;
    uint32_t slot_bytes, count;
};

struct slot {
    uint32_t len, unused;
    uint8_t ticket[WEIR__TICKET_MAX];
};

struct weir__reservations {
    void *memory;
    size_t bytes;
    uint32_t count;
    uint64_t *states;
    struct slot *slots;
};

/* ---- The file ---- */

static size_t states_bytes(uint32_t count)
{
    return (count * sizeof(uint64_t) + HEADER_BYTES - 1) / HEADER_BYTES * HEADER_BYTES;
}

static size_t file_bytes(uint32_t count)
{
    return HEADER_BYTES + states_bytes(count) + count * sizeof(struct slot);
}

/* The number of slots if the file is a good one, else 0. */
static uint32_t count_in(int file)
{
    struct header header;
    struct stat seen;
    if (pread(file, &header, sizeof header, 0) != (ssize_t)sizeof header || fstat(file, &seen) != 0 ||
        header.magic != MAGIC || header.slot_bytes != sizeof(struct slot) || header.count == 0 ||
        header.count > WEIR__RESERVATIONS_MAX || (size_t)seen.st_size != file_bytes(header.count))
        return 0;
    return header.count;
}

/* All of its space at once, so that it cannot run out later; the header last, for it says that the rest is there. */
static bool fill(int file, uint32_t count)
{
    struct header header = {MAGIC, sizeof(struct slot), count};
    if (ftruncate(file, 0) != 0)
        return false;
    int error = posix_fallocate(file, 0, (off_t)file_bytes(count));
    if (error) {
        errno = error;
        return false;
    }
    return pwrite(file, &header, sizeof header, 0) == (ssize_t)sizeof header;
}

/*
 * The file, locked for the moment in which it is made: others that start at the same time wait for it. A damaged one
 * is replaced rather than emptied, for somebody may have it mapped.
 */
static int open_file(const char *path, unsigned mode, uint32_t *count)
{
    for (int round = 0; round < 3; round++) {
        struct stat seen;
        int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode ? mode : 0600);
        if (file < 0)
            return -1;
        uint32_t found = flock(file, LOCK_EX) == 0 ? count_in(file) : 0;
        bool fresh = fstat(file, &seen) == 0 && seen.st_size == 0;
        if (found || (fresh && fill(file, *count))) {
            *count = found ? found : *count;
            flock(file, LOCK_UN); /* a mapping keeps the file open, and so would keep the lock */
            return file;
        }
        int error = errno;
        if (fresh || unlink(path) != 0) {
            close(file);
            errno = error;
            return -1;
        }
        close(file);
    }
    errno = EBUSY;
    return -1;
}

int weir__reservations_open(const char *path, unsigned mode, uint32_t count, struct weir__reservations **reservations)
{
    if (!path || !reservations || count == 0 || count > WEIR__RESERVATIONS_MAX)
        return WEIR_EINVAL;
    int file = open_file(path, mode, &count);
    if (file < 0)
        return errno == ENOSPC ? WEIR_ENOSPC : errno == EACCES ? WEIR_EPERM : WEIR_ESYS;
    size_t bytes = file_bytes(count);
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return WEIR_ESYS;
    struct weir__reservations *made = malloc(sizeof *made);
    if (!made) {
        munmap(memory, bytes);
        return WEIR_ENOMEM;
    }
    *made = (struct weir__reservations){.memory = memory,
                                        .bytes = bytes,
                                        .count = count,
                                        .states = (void *)(memory + HEADER_BYTES),
                                        .slots = (void *)(memory + HEADER_BYTES + states_bytes(count))};
    *reservations = made;
    return 0;
}

void weir__reservations_close(struct weir__reservations *reservations)
{
    if (!reservations)
        return;
    munmap(reservations->memory, reservations->bytes);
    free(reservations);
}

uint32_t weir__reservations_count(const struct weir__reservations *reservations)
{
    return reservations->count;
}

/* ---- Slots ---- */

static uint64_t word(int64_t due_us, int state)
{
    return (uint64_t)due_us << 2 | (uint64_t)state;
}

int64_t weir__reservations_claim(struct weir__reservations *reservations, uint64_t spread, int64_t due_us)
{
    uint32_t probes = reservations->count < PROBES ? reservations->count : PROBES;
    for (uint32_t i = 0; i < probes; i++) {
        uint32_t slot = (uint32_t)((spread + i) % reservations->count);
        uint64_t nobody = FREE;
        if (weir__load64(&reservations->states[slot]) == FREE &&
            weir__cas64(&reservations->states[slot], &nobody, word(due_us, WRITING)))
            return slot;
    }
    return -1;
}

void weir__reservations_publish(struct weir__reservations *reservations, uint32_t slot, int64_t due_us,
                                const uint8_t *ticket, size_t len)
{
    uint64_t writing = word(due_us, WRITING);
    if (slot >= reservations->count || len > WEIR__TICKET_MAX)
        return;
    reservations->slots[slot].len = (uint32_t)len;
    memcpy(reservations->slots[slot].ticket, ticket, len);
    (void)weir__cas64(&reservations->states[slot], &writing, word(due_us, READY));
}

void weir__reservations_release(struct weir__reservations *reservations, uint32_t slot, int64_t due_us)
{
    uint64_t ready = word(due_us, READY), writing = word(due_us, WRITING);
    if (slot < reservations->count && !weir__cas64(&reservations->states[slot], &ready, FREE))
        (void)weir__cas64(&reservations->states[slot], &writing, FREE);
}

size_t weir__reservations_next_due(struct weir__reservations *reservations, uint32_t *at, int64_t now_us,
                                   uint8_t ticket[WEIR__TICKET_MAX], int64_t *due_us)
{
    while (*at < reservations->count) {
        uint32_t slot = (*at)++;
        uint64_t seen = weir__load64_ordered(&reservations->states[slot]);
        if (seen == FREE || (int64_t)(seen >> 2) > now_us)
            continue;
        *due_us = (int64_t)(seen >> 2);
        uint32_t len = reservations->slots[slot].len;
        if ((seen & STATE) == READY && len > 0 && len <= WEIR__TICKET_MAX) {
            memcpy(ticket, reservations->slots[slot].ticket, len);
            return len;
        }
        (void)weir__cas64(&reservations->states[slot], &seen, FREE); /* its writer died */
    }
    return 0;
}
