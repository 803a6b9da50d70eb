/*
 * The table that test_interleavings.c explores: a few buckets and chunks, the keys that are used on them with an
 * account of the units granted to them, and the invariants. Include it after explore.h and the sources.
 */
#ifndef WEIR_WORLD_H
#define WEIR_WORLD_H

/* Up to four regions of buckets, after two doublings. */
enum {
    BUCKETS_MAX = 4,
    DOUBLINGS_MAX = 2,
    BUCKETS_ALL = BUCKETS_MAX << DOUBLINGS_MAX,
    CHUNKS_MAX = 48,
    KEYS = 3,
    FILLERS_MAX = 20
};

#define HOUR INT64_C(3600000000)
#define BASE (10 * HOUR) /* a boundary of windows of an hour and of twenty minutes */

static struct world {
    struct weir__bucket bucket[BUCKETS_ALL];
    uint8_t chunk[CHUNKS_MAX * WEIR__CHUNK] __attribute__((aligned(64)));
    uint32_t lease[CHUNKS_MAX];
    uint64_t moves[WEIR__MOVES];
    struct weir__header header;
    struct weir__stats_shard stats;
} world;

static struct weir__table table;
static int64_t clocks[2]; /* of the processes: slightly different */

/* A key under the limit of the scenario. A refund counts when it begins, a grant when it ends: a process that dies in
 * between has at most refunded more, or been granted less, than the account shows. */
struct key {
    struct weir__key_location where;
    int64_t requested, given, refunded;
    int resets;
    bool blocked, unblocked; /* a block is active; one was ended, or is about to be */
};

static struct key keys[KEYS];
static struct weir__key_location filler[FILLERS_MAX]; /* keys that only occupy slots */
static int fillers, near_fillers;                     /* the first near_fillers of them are used */

/* ---- Tracing ---- */

static void name_of(char *name, size_t size, const void *at)
{
    size_t offset = (size_t)((const char *)at - (const char *)&world);
    size_t chunk = offset - offsetof(struct world, chunk), lease = offset - offsetof(struct world, lease);
    if (offset < sizeof world.bucket)
        snprintf(name, size, "bucket %zu.%zu%s", offset / 64, offset / 16 % 4, offset % 16 ? ".hi" : "");
    else if (chunk < sizeof world.chunk)
        snprintf(name, size, "chunk %zu+%zu", chunk / WEIR__CHUNK, chunk % WEIR__CHUNK);
    else if (lease < sizeof world.lease)
        snprintf(name, size, "lease %zu", lease / sizeof *world.lease);
    else if (offset - offsetof(struct world, moves) < sizeof world.moves)
        snprintf(name, size, "generation %zu", (offset - offsetof(struct world, moves)) / sizeof *world.moves);
    else if (at == &world.header.blocked_until_us)
        snprintf(name, size, "blocked_until");
    else if (at == &world.header.geometry)
        snprintf(name, size, "geometry");
    else if (at == &world.header.leaving_displaced)
        snprintf(name, size, "leaving_displaced");
    else
        snprintf(name, size, "%s", at == &world.header.slab_cursor ? "cursor" : "?");
}

static void show_slot(char *text, size_t size, weir__cell cell)
{
    struct weir__slot_fields p = weir__cell_unpack(cell);
    char state[24];
    if (!p.tag) {
        snprintf(text, size, "empty(%" PRIx64 ")", cell.hi);
        return;
    }
    if (weir__is_leaving(cell.lo))
        snprintf(state, sizeof state, "LEAVING");
    else if (weir__is_frozen(cell.lo))
        snprintf(state, sizeof state, "FROZEN%u>%u", p.version, p.state & 3);
    else if (p.state == WEIR__TENTATIVE || p.state == WEIR__RESERVED)
        snprintf(state, sizeof state, "%s", p.state == WEIR__TENTATIVE ? "TENTATIVE" : "RESERVED");
    else
        snprintf(state, sizeof state, "%s%u", weir__is_landed(cell.lo) ? "LANDED" : "NORMAL", p.version);
    snprintf(text, size, "{%" PRIx64 " %s used %" PRIx64 " anchor %+" PRId64 " whole %u}", p.tag, state, p.used,
             weir__anchor_expand(p.anchor, BASE) - BASE, p.expiry);
}

static void show_value(char *text, size_t size, const void *at, int bytes, weir__cell value)
{
    bool in_line = (const char *)at >= (const char *)world.bucket && (const char *)at < (const char *)world.chunk;
    if (bytes == 16 && in_line)
        show_slot(text, size, value);
    else if (bytes == 16)
        snprintf(text, size, "%016" PRIx64 ":%016" PRIx64, value.lo, value.hi);
    else
        snprintf(text, size, "%" PRIx64, value.lo);
}

static void explore_show(const char *what, const void *at, int bytes, weir__cell was, weir__cell put, bool done)
{
    char name[32], before[128], after[128];
    name_of(name, sizeof name, at);
    show_value(before, sizeof before, at, bytes, was);
    show_value(after, sizeof after, at, bytes, put);
    printf("%5" PRId64 " [%d] %s %s %s", explore.step, explore.current, what, name, before);
    if (*what == 's' || *what == 'a')
        printf(" -> %s%s", after, done ? "" : " FAILED");
    printf("\n");
}

static void show_world(const char *when)
{
    for (uint64_t i = 0; i < BUCKETS_ALL * WEIR__BUCKET_SLOTS && explore.trace; i++) {
        char text[128];
        show_slot(text, sizeof text, world.bucket[i / WEIR__BUCKET_SLOTS].slot[i % WEIR__BUCKET_SLOTS]);
        printf("%s: bucket %d.%d %s\n", when, (int)(i / WEIR__BUCKET_SLOTS), (int)(i % WEIR__BUCKET_SLOTS), text);
    }
}

/* ---- Construction ---- */

static struct weir__op op_at(int64_t now_us)
{
    return (struct weir__op){&table, &world.stats, now_us, now_us};
}

static struct weir__key_location make_where(uint64_t tag)
{
    uint64_t home = (uint64_t)explore_random((int)table.buckets);
    return (struct weir__key_location){tag, home, weir__alternate_bucket(tag, home, table.buckets), 0};
}

static struct weir__key_location make_filler_where(void)
{
    return make_where(UINT64_C(0x100000) * (uint64_t)(fillers + 1) + 0x1000 + 0x10 * (uint64_t)explore_random(1000));
}

/* An entry of another key; one that expires exactly at the later clock's time is free for one process only. */
static void fill_slot(uint64_t line, weir__cell *slot, bool recovers)
{
    struct weir__key_location w = make_filler_where();
    w.primary = line;
    w.alternate = weir__alternate_bucket(w.tag, line, table.buckets);
    filler[fillers++] = w;
    unsigned lifetime = weir__expiry_encode(recovers ? 1 << 20 : HOUR);
    int64_t anchor = recovers ? clocks[1] - weir__expiry_decode(lifetime) : BASE - 1000000;
    *slot = weir__cell_pack((struct weir__slot_fields){.tag = w.tag,
                                                       .version = (unsigned)explore_random(8),
                                                       .expiry = lifetime,
                                                       .used = 5,
                                                       .anchor = (uint64_t)anchor});
}

static bool near(const struct weir__key_location *a, const struct weir__key_location *b)
{
    return a->primary == b->primary || a->primary == b->alternate || a->alternate == b->primary ||
           a->alternate == b->alternate;
}

/*
 * A table with two to four buckets, filled to some extent, and keys without entries. A narrow one has one key and
 * those that share a bucket with it: others cannot interfere.
 */
static void make_world(int chunks, bool narrow)
{
    static const int filled[] = {100, 95, 90, 80, 50};
    memset(&world, 0, sizeof world);
    memset(keys, 0, sizeof keys);
    fillers = 0;
    table = (struct weir__table){.header = &world.header,
                                 .bucket = world.bucket,
                                 .buckets = 2 + (uint64_t)explore_random(3),
                                 .stride = BUCKETS_MAX,
                                 .doublings_max = DOUBLINGS_MAX,
                                 .stats = &world.stats,
                                 .moves = world.moves,
                                 .lease = world.lease,
                                 .chunk = world.chunk,
                                 .chunks = (uint64_t)chunks};
    for (int i = 0; i < KEYS; i++)
        keys[i].where = make_where(0x100 * (uint64_t)(i + 1) + 2 * (uint64_t)explore_random(40));
    int percent = filled[explore_random(5)], recovering = explore_random(3);
    for (uint64_t i = 0; i < table.buckets * WEIR__BUCKET_SLOTS; i++)
        if (explore_random(100) < percent)
            fill_slot(i / WEIR__BUCKET_SLOTS, &world.bucket[i / WEIR__BUCKET_SLOTS].slot[i % WEIR__BUCKET_SLOTS],
                      explore_random(6) < recovering);
    for (int more = explore_random(4); more > 0; more--) {
        filler[fillers] = make_filler_where();
        fillers++;
    }
    /* One of those that are near, and the last ones, which have no entry yet. */
    for (int i = 0; i < fillers && narrow; i++)
        if (near(&filler[i], &keys[0].where) && explore_random(2)) {
            struct weir__key_location chosen = filler[i];
            filler[i] = filler[0];
            filler[0] = chosen;
        }
    near_fillers = narrow && fillers > 2 ? 2 : fillers;
}

static void empty_lines(void)
{
    memset(world.bucket, 0, sizeof world.bucket);
    fillers = near_fillers = 0;
}

/* ---- Invariants ---- */

/* No duplicates: a tag counts in one slot at most. The copy at the end of a displacement counts from when the original
 * is gone, and an entry that leaves for another region does not count once it has arrived there. */
static void check_single(uint64_t tag)
{
    int counting = 0, frozen = 0, landed = 0, leaving = 0;
    for (uint64_t i = 0; i < BUCKETS_ALL * WEIR__BUCKET_SLOTS; i++) {
        uint64_t lo = world.bucket[i / WEIR__BUCKET_SLOTS].slot[i % WEIR__BUCKET_SLOTS].lo;
        if (weir__cell_tag(lo) != tag)
            continue;
        frozen += weir__is_frozen(lo);
        landed += weir__is_landed(lo);
        leaving += weir__is_leaving(lo);
        counting += weir__is_normal(lo) || weir__is_frozen(lo);
    }
    if (counting + (frozen ? 0 : landed) > 1 || leaving > 1)
        explore_fail("twins of %" PRIx64, tag);
}

static void explore_changed(const weir__cell *cell, weir__cell was)
{
    const uint64_t tag[2] = {weir__cell_tag(cell->lo), weir__cell_tag(was.lo)};
    bool in_line = (const char *)cell < (const char *)world.chunk;
    for (int i = 0; i < 2 && in_line; i++)
        if (tag[i] && (!i || tag[1] != tag[0]))
            check_single(tag[i]);
}

/* Looks up everything, without concurrency: nothing that dead processes left may block it. */
static void look_up(const struct weir__op *op, struct weir__key_location where)
{
    weir__cell *slot, seen;
    int error = weir__lookup_helping(op, &where, &slot, &seen);
    if (error)
        explore_fail("alone, looking for %" PRIx64 " is error %d", where.tag, error);
}

static void look_up_all(const struct weir__op *op)
{
    for (int i = 0; i < KEYS; i++) {
        struct weir__key_location sibling = keys[i].where;
        sibling.tag ^= 1; /* its alternate bucket differs */
        sibling.alternate = weir__alternate_bucket(sibling.tag, sibling.primary, table.buckets);
        look_up(op, keys[i].where);
        look_up(op, sibling);
        look_up(op, block_of(op, &keys[i].where));
    }
    for (int i = 0; i < fillers; i++)
        look_up(op, filler[i]);
}

/* After all lookups: no displacement may be pending, and tentative entries must be free by `by_us`. */
static void check_settled(int64_t by_us)
{
    struct weir__op op = op_at(by_us);
    for (uint64_t i = 0; i < BUCKETS_ALL * WEIR__BUCKET_SLOTS; i++) {
        weir__cell seen = world.bucket[i / WEIR__BUCKET_SLOTS].slot[i % WEIR__BUCKET_SLOTS];
        if (!weir__cell_tag(seen.lo) || weir__is_normal(seen.lo))
            continue;
        if (weir__is_frozen(seen.lo) || weir__is_landed(seen.lo) || weir__is_leaving(seen.lo))
            explore_fail("a move of %" PRIx64 " was not finished", weir__cell_tag(seen.lo));
        else if (!is_free(&op, seen))
            explore_fail("a slot is kept for %" PRIx64 ", which no process uses", weir__cell_tag(seen.lo));
    }
}

/* When all leases have expired, every slot and every chunk is available, without an eviction. */
static void check_reclaimed(int64_t now_us)
{
    struct weir__op op = op_at(now_us);
    uint64_t lost = world.stats.evicted_live;
    look_up_all(&op);
    for (uint64_t i = 0; i < table.buckets * WEIR__BUCKET_SLOTS; i++)
        if (!is_free(&op, world.bucket[i / WEIR__BUCKET_SLOTS].slot[i % WEIR__BUCKET_SLOTS]))
            explore_fail("bucket %d.%d is never free again", (int)(i / WEIR__BUCKET_SLOTS),
                         (int)(i % WEIR__BUCKET_SLOTS));
    for (uint64_t i = 0; i < table.chunks; i++) {
        struct weir__record record;
        if (weir__record_take(&op, 0, HOUR, NULL, true, &record) || world.stats.evicted_live != lost) {
            explore_fail("of %d chunks only %d are ever free again", (int)table.chunks, (int)i);
            return;
        }
    }
}

#endif
