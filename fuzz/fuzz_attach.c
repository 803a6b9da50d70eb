/*
 * A segment with arbitrary bytes: attaching refuses it, or every operation works on it, whatever slots, leases and
 * records contain. So do a resize to or from any size, and a conversion.
 *
 * Input: 1 byte that selects what to overwrite, 3 bytes where (modulo the segment), 1 byte how often, then the bytes.
 * The first byte also selects a segment that has been in use, and flipping of bits instead of overwriting: random tags
 * and owners are never those of a key.
 */
#include "table/slab.h"
#include "table/hash.h"
#include "table/resize.h"

#include <stdlib.h>
#include <string.h>

#define BYTES    (64 << 10)
#define MAPPED   (4 * BYTES) /* two doublings */
#define SLAB     (4 << 10)   /* small, as every search of a full one goes through all of it */
#define START_US (INT64_C(20000) * 86400000000)

enum { HEADER, HEADER_SIGNED, BODY, LINES, SLAB_PART, PLANT, WHATS };
enum { FLIP = 64, USED = 128 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t pristine[BYTES] __attribute__((aligned(4096)));
static weir_limit limits[12];
static int limit_count;

static void add_limit(weir_params params)
{
    params.id = (uint64_t)limit_count;
    if (weir_limit_init(&limits[limit_count++], &params))
        abort();
}

static void prepare(void)
{
    struct weir__segment_spec plan = {.bytes = BYTES, .slab_bytes = SLAB, .wall_ns = START_US * 1000, .boot = {1, 2}};
    memset(plan.secret, 0x5a, sizeof plan.secret);
    if (weir__segment_format(pristine, &plan))
        abort();
    add_limit((weir_params){.limit = 10, .window_ns = WEIR_SECOND});
    add_limit((weir_params){.limit = 7, .window_ns = 3 * WEIR_SECOND, .refill = WEIR_REFILL_INTERVAL});
    add_limit((weir_params){.algorithm = WEIR_LEAKY_BUCKET, .limit = 1000000, .window_ns = WEIR_DAY, .delay = true});
    add_limit((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .window_ns = 60 * WEIR_SECOND});
    add_limit((weir_params){.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .align = WEIR_ALIGN_CALENDAR});
    add_limit((weir_params){
        .algorithm = WEIR_FIXED_WINDOW, .limit = 5, .window_ns = 1000, .align = WEIR_ALIGN_FIRST_REQUEST});
    add_limit((weir_params){
        .algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 40, .window_ns = 400 * WEIR_DAY, .count_rejected = true});
    add_limit((weir_params){.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 100, .window_ns = 10 * WEIR_SECOND});
    add_limit((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100, .window_ns = WEIR_SECOND});
    add_limit((weir_params){
        .algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 100, .window_ns = 400 * WEIR_DAY, .buckets = 60});
    /* In two slots. */
    add_limit((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 40000, .window_ns = WEIR_SECOND});
    add_limit((weir_params){.algorithm = WEIR_SLIDING_WINDOW_COUNTER, .limit = 40000, .window_ns = 400 * WEIR_DAY});
}

/* The check sum of segment.c, so that what lies behind it is reached, too. */
static void sign(uint8_t *memory)
{
    struct weir__header *h = (struct weir__header *)(void *)memory;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < offsetof(struct weir__header, check); i++)
        sum = (sum ^ memory[i]) * UINT64_C(0x100000001b3);
    h->check = sum;
}

/* Writes 16 bytes into a slot of a key that is looked up later, with its tag, as a torn or foreign write might. */
static void plant(struct weir__table *table, const uint8_t *data, size_t size)
{
    for (; size >= 18; data += 18, size -= 18) {
        uint8_t key = data[0] & 31, how = data[1];
        struct weir__key_location w;
        weir__key_locate(table, &limits[how % limit_count], &key, 1, &w);
        weir__cell *slot = &table->bucket[how & 128 ? w.primary : w.alternate].slot[how >> 5 & 3];
        memcpy(slot, data + 2, sizeof *slot);
        slot->lo = (slot->lo & ((UINT64_C(1) << 30) - 1)) | (w.tag ^ (data[0] >> 7)) << 30;
    }
}

static void overwrite(struct weir__table *table, uint8_t *memory, const uint8_t *data, size_t size)
{
    const struct weir__header *h = (const struct weir__header *)(const void *)pristine;
    const size_t from[WHATS] = {0, 0, sizeof *h, h->buckets_at, h->chunk_leases_at, 0};
    int what = data[0] % 64 % WHATS;
    bool flip = data[0] & FLIP;
    size_t limit = what <= HEADER_SIGNED ? sizeof *h : BYTES, room = limit - from[what];
    size_t at = (data[1] | (size_t)data[2] << 8 | (size_t)data[3] << 16) % room;
    unsigned times = data[4] + 1U;

    data += 5;
    size -= 5;
    if (what == PLANT) {
        plant(table, data, size);
        return;
    }
    for (; times > 0; times--)
        for (size_t i = 0; i < size; i++, at = (at + 1) % room)
            memory[from[what] + at] = flip ? memory[from[what] + at] ^ data[i] : data[i];
    if (what == HEADER_SIGNED)
        sign(memory);
}

static int visit(void *context, const weir_entry *entry)
{
    *(uint64_t *)context += entry->used;
    return 0;
}

static void check(int error)
{
    if (error != 0 && error != WEIR_EFULL && error != WEIR_EBUSY && error != WEIR_ERESIZED && error != WEIR_EDAMAGED)
        abort();
}

static void use(struct weir__table *table, uint64_t seed)
{
    struct weir__op op = {table, &table->stats[0], START_US, START_US}, look = op;
    weir_decision d;
    weir_report report;
    weir_stats stats;
    uint64_t sum = 0;

    for (int i = 0; i < 200; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const weir_limit *limit = &limits[(seed >> 40) % (unsigned)limit_count];
        uint8_t key = seed >> 33 & 31;
        int64_t cost = (int64_t)(seed >> 50 & 31) - 3;
        struct weir__key_location where;
        weir__key_locate(table, limit, &key, 1, &where);

        op.mono_us += (int64_t)(seed >> 20 & 0xfffff);
        op.wall_us = look.mono_us = look.wall_us = op.mono_us;
        look.stats = NULL;
        check(weir__table_take(&look, limit, &where, cost, WEIR__TAKE, &d));
        check(weir__table_take(&op, limit, &where, cost, i % 16 ? WEIR__TAKE : WEIR__CHARGE, &d));
        if (i % 32 == 7)
            check(weir__table_reset(&op, limit, &where));
        if (i % 32 == 11)
            check(weir__table_block(&op, &where, (int64_t)(seed >> 40)));
    }
    int error = weir__segment_validate(&op, &report);
    if ((error != 0 && error != WEIR_EDAMAGED) || weir__segment_each(&op, visit, &sum))
        abort();
    weir__segment_stats(table, &stats);
}

/* With entries in all regions, also where none of them belongs, and a geometry that may need more than are mapped. */
static void resize(uint8_t *memory, uint64_t seed)
{
    struct weir__table table;
    struct weir__header *header = (struct weir__header *)(void *)memory;
    struct weir__op op = {&table, NULL, START_US, START_US};
    uint64_t geometry = 1 << 24 | (seed >> 8 & 0xff) << 16, moved;

    for (int i = 1; i < MAPPED / BYTES; i++)
        memcpy(memory + (ptrdiff_t)i * BYTES, memory, BYTES);
    header->layout = WEIR__LAYOUT_RESIZED;
    header->geometry = geometry >> 16 | geometry * UINT64_C(0x9e3779b97f4a7c15) >> 48 << 48;
    if (weir__segment_attach(memory, MAPPED, &table) == 0) {
        op.stats = &table.stats[0];
        use(&table, seed);
        check(weir__resize_finish(&op, &moved));
        check(weir__resize_begin(&table, seed >> 16 & 15));
        use(&table, seed);
        check(weir__resize_finish(&op, &moved));
    }
}

static void convert(uint8_t *memory, uint64_t seed)
{
    struct weir__table table;

    ((struct weir__header *)(void *)memory)->layout = 2 + (seed >> 8 & 1);
    sign(memory);
    if (weir__segment_convert(memory, BYTES) == 0 && weir__segment_attach(memory, BYTES, &table) == 0)
        use(&table, seed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 6)
        return -1;
    if (!limit_count)
        prepare();

    struct weir__table table;
    uint8_t *memory = aligned_alloc(4096, MAPPED);
    uint64_t seed = 0;
    memcpy(memory, pristine, BYTES);
    if (weir__segment_attach(memory, BYTES, &table))
        abort();
    for (size_t i = 0; i < size; i++)
        seed = seed * 31 + data[i];
    if (data[0] & USED)
        use(&table, seed);
    overwrite(&table, memory, data, size);
    if (seed % 4 == 2)
        resize(memory, seed);
    else if (seed % 4 == 3)
        convert(memory, seed);
    else if (weir__segment_attach(memory, BYTES, &table) == 0)
        use(&table, seed);
    free(memory);
    return 0;
}
