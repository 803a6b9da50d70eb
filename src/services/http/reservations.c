/* The file of pending reservations: see reservations.h. */
#include "services/http/reservations.h"

#include "engine/mapped_file.h"
#include "base/atomic.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC        UINT64_C(0x31767365725f7277)
#define HEADER_BYTES WEIR__RESERVATIONS_PAGE
#define PROBES       8192 /* slots scanned for a free one: 64 KiB of state words */

enum { FREE = 0, WRITING = 1, READY = 2, STATE = 3 };

struct header {
    uint64_t magic;
    uint32_t slot_bytes, count;
};

struct slot {
    uint32_t len, unused;
    uint8_t token[WEIR__RESERVATION_TOKEN_MAX];
};

_Static_assert(sizeof(struct slot) == WEIR__RESERVATION_BYTES, "one size of a slot");

struct weir__reservations {
    struct weir__mapped mapped;
    uint32_t count;
    uint64_t *states;
    struct slot *slots;
};

/* ---- The file ---- */

static size_t states_bytes(uint32_t count)
{
    return (count * sizeof(uint64_t) + HEADER_BYTES - 1) / HEADER_BYTES * HEADER_BYTES;
}

/* The number of slots if the file is valid, else 0. */
static uint32_t count_in(const void *memory, uint64_t bytes)
{
    struct header header;
    if (bytes < sizeof header)
        return 0;
    memcpy(&header, memory, sizeof header);
    if (header.magic != MAGIC || header.slot_bytes != sizeof(struct slot) || header.count == 0 ||
        header.count > WEIR__RESERVATIONS_MAX || bytes != weir__reservations_bytes(header.count))
        return 0;
    return header.count;
}

static int format(void *memory, uint64_t bytes, const void *plan)
{
    struct header header = {MAGIC, sizeof(struct slot), *(const uint32_t *)plan};
    memcpy(memory, &header, sizeof header);
    return count_in(memory, bytes) ? 0 : WEIR_ESIZE;
}

static int check(void *memory, uint64_t bytes)
{
    return count_in(memory, bytes) ? 0 : WEIR_EDAMAGED;
}

int weir__reservations_open(const struct weir__making *where, uint32_t count, struct weir__reservations **reservations)
{
    if (!where->path || !reservations || count == 0 || count > WEIR__RESERVATIONS_MAX)
        return WEIR_EINVAL;
    struct weir__making making = *where;
    making.bytes = weir__reservations_bytes(count);
    making.format = format;
    making.plan = &count;
    making.check = check;
    making.disabled = "reservations expire only in the worker that made them (.reservations)";
    struct weir__reservations *made = calloc(1, sizeof *made);
    int error = made ? weir__mapped_open(&making, &made->mapped) : WEIR_ENOMEM;
    /* read again: the file may have changed since the check, and the count must fit the mapping */
    if (!error && (made->count = count_in(made->mapped.memory, made->mapped.bytes)) == 0)
        error = WEIR_EDAMAGED;
    if (error) {
        weir__reservations_close(made);
        return error;
    }
    char *memory = made->mapped.memory;
    made->states = (void *)(memory + HEADER_BYTES);
    made->slots = (void *)(memory + HEADER_BYTES + states_bytes(made->count));
    *reservations = made;
    return 0;
}

void weir__reservations_close(struct weir__reservations *reservations)
{
    if (!reservations)
        return;
    weir__mapped_close(&reservations->mapped);
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

int64_t weir__reservations_claim(struct weir__reservations *reservations, uint64_t first_slot, int64_t due_us)
{
    uint32_t probes = reservations->count < PROBES ? reservations->count : PROBES;
    for (uint32_t i = 0; i < probes; i++) {
        uint32_t slot = (uint32_t)((first_slot + i) % reservations->count);
        uint64_t expected = FREE;
        if (weir__load64(&reservations->states[slot]) == FREE &&
            weir__cas64(&reservations->states[slot], &expected, word(due_us, WRITING)))
            return slot;
    }
    return -1;
}

void weir__reservations_publish(struct weir__reservations *reservations, uint32_t slot, int64_t due_us,
                                const uint8_t *token, size_t len)
{
    uint64_t writing = word(due_us, WRITING);
    if (slot >= reservations->count || len > WEIR__RESERVATION_TOKEN_MAX)
        return;
    reservations->slots[slot].len = (uint32_t)len;
    memcpy(reservations->slots[slot].token, token, len);
    (void)weir__cas64(&reservations->states[slot], &writing, word(due_us, READY));
}

void weir__reservations_release(struct weir__reservations *reservations, uint32_t slot, int64_t due_us)
{
    uint64_t ready = word(due_us, READY), writing = word(due_us, WRITING);
    if (slot < reservations->count && !weir__cas64(&reservations->states[slot], &ready, FREE))
        (void)weir__cas64(&reservations->states[slot], &writing, FREE);
}

size_t weir__reservations_next_due(struct weir__reservations *reservations, uint32_t *at, int64_t now_us,
                                   uint8_t token[WEIR__RESERVATION_TOKEN_MAX], int64_t *due_us)
{
    while (*at < reservations->count) {
        uint32_t slot = (*at)++;
        uint64_t seen = weir__load64_ordered(&reservations->states[slot]);
        if (seen == FREE || (int64_t)(seen >> 2) > now_us)
            continue;
        *due_us = (int64_t)(seen >> 2);
        uint32_t len = reservations->slots[slot].len;
        if ((seen & STATE) == READY && len > 0 && len <= WEIR__RESERVATION_TOKEN_MAX) {
            memcpy(token, reservations->slots[slot].token, len);
            return len;
        }
        (void)weir__cas64(&reservations->states[slot], &seen, FREE); /* its writer died */
    }
    return 0;
}
