/* A segment in plain memory, with a slab of so many chunks. */
#ifndef WEIR_TEST_SLABS_H
#define WEIR_TEST_SLABS_H

#include "table/slab.h"

#include "../../test.h"

#define SECOND_US INT64_C(1000000)
#define START_US  (INT64_C(20000) * 86400 * SECOND_US)

struct fixture {
    void *memory;
    struct weir__table table;
    struct weir__op op;
};

static inline struct fixture *fixture_make(uint64_t chunk_count)
{
    struct fixture *f = calloc(1, sizeof *f);
    uint64_t slab = chunk_count * (WEIR__CHUNK + sizeof(uint32_t)), bytes = ((slab * 2 + (1 << 17)) / 4096 + 1) * 4096;
    struct weir__segment_spec plan = {.bytes = bytes, .slab_bytes = slab, .wall_ns = START_US * 1000};
    for (size_t i = 0; i < sizeof plan.secret; i++)
        plan.secret[i] = (uint8_t)(i * 7 + 1);

    f->memory = aligned_alloc(4096, bytes);
    memset(f->memory, 0, bytes);
    CHECK_EQ(weir__segment_format(f->memory, &plan), 0);
    CHECK_EQ(weir__segment_attach(f->memory, bytes, &f->table), 0);
    CHECK_EQ(f->table.chunks, chunk_count);
    f->op = (struct weir__op){&f->table, &f->table.stats[0], START_US, START_US};
    return f;
}

static inline void fixture_free(struct fixture *f)
{
    free(f->memory);
    free(f);
}

static inline uint64_t evicted(const struct fixture *f)
{
    return f->table.stats[0].evicted_live;
}

static inline void pass_time(struct fixture *f, int64_t us)
{
    f->op.mono_us += us;
    f->op.wall_us += us;
}

/* Whether the lease of a chunk has not expired. As in slab.c: 27 bits of about two seconds above an ABA tag of 3 bits.
 */
static inline bool leased(const struct fixture *f, uint64_t chunk)
{
    uint32_t word = f->table.lease[chunk], mask = UINT32_C(0x07ffffff);
    uint32_t left = ((word >> 3 & mask) - ((uint32_t)((uint64_t)f->op.mono_us >> 21) & mask)) & mask;
    return word && left && left <= mask / 2;
}

/* Takes a record and publishes it for a key, so that it can be evicted like any other. */
static inline int take_record(struct fixture *f, unsigned size_class, int64_t for_us, struct weir__record *record)
{
    const struct weir__key_location other_key = {.tag = 1000};
    int error = weir__record_take(&f->op, size_class, for_us, NULL, true, record);
    if (!error)
        CHECK(weir__record_publish(&f->op, &other_key, record, (weir__cell){0, size_class}));
    return error;
}

/* Takes records of one chunk until none is available without an eviction; returns how many there were. */
static inline uint64_t fill_by_ones(struct fixture *f, int64_t for_us)
{
    uint64_t count = 0, before = evicted(f);
    struct weir__record r;
    while (take_record(f, 0, for_us, &r) == 0 && evicted(f) == before)
        count++;
    return count;
}

#endif
