/* Formatting a segment, verifying it on attach, iterating over its entries. */
#include "table/slab.h"
#include "table/table.h"

#include <stddef.h>
#include <string.h>

#define HOUR_US INT64_C(3600000000)

/* Checksum of the constant header fields. */
static uint64_t header_check(const struct weir__header *header)
{
    return weir__header_sum(header, offsetof(struct weir__header, check));
}

/* Less than 1 % of the segment: 2048 rules in 64 MiB. */
static uint64_t rule_stats_for(uint64_t bytes)
{
    uint64_t count = bytes / 128 / sizeof(struct weir__rule_stats);
    return count < WEIR__RULE_STATS_MIN   ? WEIR__RULE_STATS_MIN
           : count > WEIR__RULE_STATS_MAX ? WEIR__RULE_STATS_MAX
                                          : count;
}

/* Computes sizes and offsets. Returns 0 or WEIR_ESIZE. */
static int lay_out(struct weir__header *h, uint64_t bytes, uint64_t slab_bytes)
{
    if (bytes < WEIR__SIZE_MIN || bytes > UINT64_C(1) << 46 || slab_bytes > bytes / 2)
        return WEIR_ESIZE;
    h->bytes = bytes;
    h->stats_at = WEIR__HEADER_BYTES;
    h->moves_at = h->stats_at + WEIR__STATS_BYTES;
    h->times_at = h->moves_at + WEIR__MOVES_BYTES;
    h->rule_stats_at = h->times_at + WEIR__TIMES_BYTES;
    h->rule_stats_count = rule_stats_for(bytes);
    h->buckets_at = h->rule_stats_at + h->rule_stats_count * sizeof(struct weir__rule_stats);
    h->chunks = slab_bytes / (WEIR__CHUNK + sizeof(uint32_t));
    if (h->chunks > WEIR__CHUNKS_MAX)
        h->chunks = WEIR__CHUNKS_MAX;
    h->chunks_at = (bytes - h->chunks * WEIR__CHUNK) & ~UINT64_C(63);
    h->chunk_leases_at = (h->chunks_at - h->chunks * sizeof(uint32_t)) & ~UINT64_C(63);
    h->buckets =
        h->chunk_leases_at > h->buckets_at ? (h->chunk_leases_at - h->buckets_at) / sizeof(struct weir__bucket) : 0;
    return h->buckets < WEIR__HASH_BUCKETS_MIN ? WEIR_ESIZE : 0;
}

int weir__segment_format(void *memory, const struct weir__segment_spec *plan)
{
    struct weir__header *h = memory;
    int error = lay_out(h, plan->bytes, plan->slab_bytes);
    if (error)
        return error;
    h->layout = WEIR__LAYOUT;
    h->header_bytes = sizeof *h;
    h->made_wall_ns = plan->wall_ns;
    memcpy(h->secret, plan->secret, sizeof h->secret);
    memcpy(h->boot, plan->boot, sizeof h->boot);
    h->clock_offset_ns = plan->wall_ns - plan->boot_ns;
    h->magic = WEIR__MAGIC;
    h->check = header_check(h);
    return 0;
}

int weir__segment_attach(void *memory, uint64_t bytes, struct weir__table *table)
{
    struct weir__header copy, expected;
    if (bytes < sizeof copy.magic + sizeof copy.layout)
        return WEIR_ENOTSEG;

    /* Copied first: the memory may change between check and use. */
    memset(&copy, 0, sizeof copy);
    memcpy(&copy, memory, bytes < sizeof copy ? bytes : sizeof copy);
    if (copy.magic != WEIR__MAGIC)
        return WEIR_ENOTSEG;
    if (copy.layout != WEIR__LAYOUT && copy.layout != WEIR__LAYOUT_RESIZED)
        return WEIR_EVERSION;
    copy.layout = WEIR__LAYOUT; /* `check` was computed with it */
    if (bytes < WEIR__SIZE_MIN)
        return WEIR_ETRUNCATED;
    if (copy.check != header_check(&copy) || copy.header_bytes != sizeof copy)
        return WEIR_EDAMAGED;
    unsigned doublings = weir__doublings(copy.geometry), before = weir__doublings_before(copy.geometry), mapped = 0;
    if (doublings > WEIR__DOUBLINGS_MAX || before > WEIR__DOUBLINGS_MAX || !weir__geometry_is_valid(copy.geometry))
        return WEIR_EDAMAGED;
    while (mapped < WEIR__DOUBLINGS_MAX && copy.bytes <= bytes >> (mapped + 1))
        mapped++;
    if (bytes < copy.bytes || doublings > mapped || before > mapped)
        return WEIR_ETRUNCATED;
    expected = copy;
    uint64_t slab = copy.chunks > copy.bytes ? copy.bytes : copy.chunks * (WEIR__CHUNK + sizeof(uint32_t));
    if (lay_out(&expected, copy.bytes, slab) || header_check(&expected) != copy.check)
        return WEIR_EDAMAGED;

    unsigned char *base = memory;
    *table = (struct weir__table){
        .header = memory,
        .bucket = (struct weir__bucket *)(void *)(base + copy.buckets_at),
        .buckets = copy.buckets,
        .stride = copy.bytes / sizeof(struct weir__bucket),
        .doublings_max = mapped,
        .stats = (struct weir__stats_shard *)(void *)(base + copy.stats_at),
        .moves = (uint64_t *)(void *)(base + copy.moves_at),
        .times = (struct weir__times *)(void *)(base + copy.times_at),
        .rule_stats = (struct weir__rule_stats *)(void *)(base + copy.rule_stats_at),
        .rule_stats_count = copy.rule_stats_count,
        .lease = (uint32_t *)(void *)(base + copy.chunk_leases_at),
        .chunk = base + copy.chunks_at,
        .chunks = copy.chunks,
        .bytes = copy.bytes,
    };
    return 0;
}

/* The counters of a shard are the first ones of weir_stats, in the same order. */
#define COUNTERS         (offsetof(struct weir__stats_shard, spare) / sizeof(uint64_t))
#define SAME(field)      (offsetof(weir_stats, field) == offsetof(struct weir__stats_shard, field))
#define IS(field, which) (offsetof(weir_stats, field) == (which) * sizeof(uint64_t))
_Static_assert(IS(allowed, WEIR_ALLOW) && IS(delayed, WEIR_DELAY) && IS(denied, WEIR_DENY) &&
                   IS(never_fits, WEIR_NEVER_FITS) && IS(blocked, WEIR_BLOCKED) && SAME(soft) && SAME(errors) &&
                   SAME(created) && SAME(evicted_live) && SAME(displaced) && SAME(retries) && SAME(evicted_denied) &&
                   SAME(slab_full) && SAME(auth_failures) && IS(slots, COUNTERS),
               "the counters of a shard and of weir_stats are the same");

void weir__segment_stats(const struct weir__table *table, weir_stats *stats)
{
    uint64_t *sum = (uint64_t *)(void *)stats;
    unsigned doublings = weir__doublings(weir__load64(&table->header->geometry));
    *stats = (weir_stats){.slots = table->buckets * WEIR__BUCKET_SLOTS << doublings,
                          .chunks = table->chunks,
                          .bytes = table->bytes << doublings};
    for (int i = 0; i < WEIR__STATS_SHARDS; i++)
        for (size_t k = 0; k < COUNTERS; k++)
            sum[k] += weir__load64((const uint64_t *)(const void *)&table->stats[i] + k);
}

/* The number of buckets in all regions; those that are being left included. */
static uint64_t all_buckets(const struct weir__table *table)
{
    uint64_t geometry = weir__load64(&table->header->geometry);
    unsigned now = weir__doublings(geometry), before = weir__doublings_before(geometry), most = table->doublings_max;
    unsigned doublings = now > before ? now : before;
    return table->buckets << (doublings < most ? doublings : most);
}

/* The index of a bucket, by its number among those of all regions. */
static uint64_t bucket_at(const struct weir__table *table, uint64_t number)
{
    return number / table->buckets * table->stride + number % table->buckets;
}

static weir__cell slot_read(const struct weir__op *op, uint64_t at, uint64_t slot)
{
    return weir__cell_read(&op->table->bucket[at].slot[slot]);
}

static weir_entry entry_of(const struct weir__op *op, uint64_t at, uint64_t slot, weir__cell seen)
{
    struct weir__slot_fields p = weir__cell_unpack(seen);
    int64_t now_us = p.wall ? op->wall_us : op->mono_us;
    weir_entry e = {.bucket = at, .slot = (int)slot, .tag = p.tag, .wall = p.wall, .used = p.used};
    e.kind = p.state == WEIR__TENTATIVE ? WEIR_ENTRY_TENTATIVE
             : p.state == WEIR__NORMAL  ? WEIR_ENTRY_COUNTER
                                        : WEIR_ENTRY_MOVING;
    e.anchor_us = weir__anchor_expand(p.anchor, now_us);
    e.expires_in_us = e.anchor_us + weir__expiry_decode(p.expiry) - now_us;
    e.live = e.expires_in_us > 0;
    return e;
}

int weir__segment_each(const struct weir__op *op, int (*visit)(void *context, const weir_entry *entry), void *context)
{
    int stop = 0;
    for (uint64_t i = 0; i < all_buckets(op->table) * WEIR__BUCKET_SLOTS && !stop; i++) {
        uint64_t at = bucket_at(op->table, i / WEIR__BUCKET_SLOTS), slot = i % WEIR__BUCKET_SLOTS;
        weir__cell seen = slot_read(op, at, slot);
        weir_entry entry = entry_of(op, at, slot, seen);
        stop = weir__cell_tag(seen.lo) ? visit(context, &entry) : 0;
    }
    return stop;
}

uint64_t weir__segment_sample(const struct weir__op *op, uint64_t buckets, uint64_t *live)
{
    uint64_t all = all_buckets(op->table), step = buckets && all > buckets ? all / buckets : 1, looked = 0, found = 0;
    for (uint64_t at = 0; at < all && looked < buckets; at += step, looked++)
        for (uint64_t i = 0; i < WEIR__BUCKET_SLOTS; i++) /* of an empty slot it is negative */
            found += weir__cell_life(slot_read(op, bucket_at(op->table, at), i), op->mono_us, op->wall_us) > 0;
    *live = found;
    return looked * WEIR__BUCKET_SLOTS;
}

/* Number of entries of this tag that count, in both buckets; more than one is a duplicate. */
static int counting(const struct weir__op *op, uint64_t tag, uint64_t a, uint64_t b)
{
    int count = 0;
    for (uint64_t i = 0; i < WEIR__BUCKET_SLOTS; i++)
        count +=
            weir__is_entry_of(slot_read(op, a, i).lo, tag) + (a != b && weir__is_entry_of(slot_read(op, b, i).lo, tag));
    return count;
}

int weir__segment_validate(const struct weir__op *op, weir_report *report)
{
    weir_report r = {0};
    const uint64_t *magic = &op->table->header->magic; /* 0: the segment is lost meanwhile, and empty */
    for (uint64_t i = 0; i < all_buckets(op->table) * WEIR__BUCKET_SLOTS && weir__load64(magic); i++) {
        uint64_t at = bucket_at(op->table, i / WEIR__BUCKET_SLOTS);
        weir__cell seen = slot_read(op, at, i % WEIR__BUCKET_SLOTS);
        struct weir__slot_fields p = weir__cell_unpack(seen);
        if (!p.tag)
            continue;
        int64_t now_us = p.wall ? op->wall_us : op->mono_us;
        r.bad_state += p.tag == 1 || (p.state == WEIR__TENTATIVE && p.version != 0);
        r.tentative += p.state == WEIR__TENTATIVE;
        r.moving += p.state >= WEIR__RESERVED;
        r.future += weir__anchor_expand(p.anchor, now_us) > now_us + HOUR_US;
        r.live += weir__cell_life(seen, op->mono_us, op->wall_us) > 0;
        uint64_t other = weir__alternate_of(op->table, p.tag, at);
        if (weir__is_normal(seen.lo) && counting(op, p.tag, at, other) > 1)
            r.duplicates++;
    }
    *report = r;
    return r.duplicates || r.bad_state ? WEIR_EDAMAGED : 0;
}

/* ---- Counters of rules: open addressing by the id of the rule, which is a hash ---- */

#define PROBES 64 /* probes before the area counts as full */

struct weir__rule_stats *weir__rule_stats_find(const struct weir__table *table, uint64_t id, bool claim)
{
    for (uint64_t i = 0; id && i < PROBES && i < table->rule_stats_count; i++) {
        struct weir__rule_stats *entry = &table->rule_stats[(id + i) % table->rule_stats_count];
        uint64_t *word = &entry->shard[0].rule_id, known = weir__load64(word);
        if (known == id)
            return entry;
        if (known)
            continue;
        if (!claim)
            return NULL;
        /* The winner of the swap owns it; a concurrent claim for the same rule shares it. */
        if (weir__cas64(word, &known, id) || known == id)
            return entry;
    }
    return NULL;
}

#define WARNINGS_ID   UINT64_C(0x9d3c7c15b54a32d1) /* XOR the rule's id: the id of the entry of its warnings */
#define WARNINGS_MARK (UINT64_C(1) << 63)          /* `shed` of shard 1 of such an entry */

uint64_t *weir__rule_warnings_find(const struct weir__table *table, uint64_t rule_id, bool claim)
{
    struct weir__rule_stats *entry = weir__rule_stats_find(table, rule_id ^ WARNINGS_ID, claim);
    if (entry && claim)
        weir__store64(&entry->shard[1].shed, WARNINGS_MARK);
    return entry ? &entry->shard[0].allowed : NULL;
}

bool weir__rule_stats_is_warnings(const struct weir__rule_stats *entry)
{
    return weir__load64(&entry->shard[1].shed) == WARNINGS_MARK;
}

void weir__times_add(const struct weir__table *table, unsigned shard, int64_t ns)
{
    int bucket = 0;
    while (bucket < WEIR__TIMES - 1 && ns >= INT64_C(64) << bucket)
        bucket++;
    weir__count(&table->times[shard % WEIR__TIME_SHARDS].count[bucket], 1);
}
