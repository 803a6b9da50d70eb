/*
 * The layout of a segment.
 *
 *     header      4 KiB    struct weir__header: constant fields, verified on attach; then the variable ones
 *     stats       8 KiB    struct weir__stats_shard: counters of the whole segment, in shards chosen by processor
 *     moves       8 KiB    displacement generations, chosen by tag (cuckoo.c)
 *     times       2 KiB    struct weir__times: histograms of check durations, in shards
 *     rule stats  t x 256  struct weir__rule_stats: open addressing by the rule's id
 *     buckets     n x 64   struct weir__bucket: four slots of 16 bytes (slot.h)
 *     leases      m x 4    when each chunk of the slab is free again (slab.c)
 *     chunks      m x 32   the slab: state of keys that does not fit into a slot (slab.h)
 *
 * A segment that was resized (resize.h) has 2, 4, 8 or 16 regions of n buckets, each at the offset of the buckets in a
 * part of the file that is as long as the segment was at first. The rest of the parts after the first is unused.
 *
 * Offsets are in the header. Buckets and chunks are addressed by index; no pointer is stored.
 */
#ifndef WEIR_TABLE_LAYOUT_H
#define WEIR_TABLE_LAYOUT_H

#include "base/atomic.h"

#define WEIR__MAGIC  UINT64_C(0x0a474553524945f7) /* no text file begins with it */
#define WEIR__LAYOUT 4                            /* raise when this file, slot.h or the head of a record changes */
/* The layout after the first resize, so that programs that know no `geometry` refuse it; many bits from any number. */
#define WEIR__LAYOUT_RESIZED   (WEIR__LAYOUT | UINT32_C(0x52530000))
#define WEIR__DOUBLINGS_MAX    4 /* a segment may grow to 16 times the size that it was made with */
#define WEIR__SECRET_BYTES     192
#define WEIR__BUCKET_SLOTS     4 /* a bucket */
#define WEIR__STATS_SHARDS     64
#define WEIR__MOVES            1024
#define WEIR__CHUNK            32
#define WEIR__HASH_BUCKETS_MIN 64
#define WEIR__SIZE_MIN         65536

/* Counters, in the order of weir_stats. Aligned so that two shards never share a cache line. */
struct weir__stats_shard {
    uint64_t verdict[5]; /* by enum weir_verdict */
    uint64_t soft, errors, created, evicted_live, displaced, retries, evicted_denied, slab_full, auth_failures;
    uint64_t spare[2];
} __attribute__((aligned(128)));

#define WEIR__TIMES             16 /* histogram buckets: durations below 64 ns << bucket; the last has no bound */
#define WEIR__TIME_SHARDS       16 /* few: only some checks are timed */
#define WEIR__RULE_STATS_SHARDS 4
#define WEIR__RULE_STATS_MIN    16
#define WEIR__RULE_STATS_MAX    16384

/* Histogram of the durations of sampled checks. */
struct weir__times {
    uint64_t count[WEIR__TIMES];
} __attribute__((aligned(128)));

/* Counters of one rule, in shards of a cache line each, chosen by processor. The sum over the shards is the count. */
struct weir__rule_stats {
    struct weir__rule_stats_shard {
        uint64_t allowed, delayed, denied, listed, missing_key, failures, rolled_back;
        /* The last word is not sharded: shard 0 has the rule's id, each other shard the count of one priority class. */
        union {
            uint64_t rule_id; /* 0: these counters are free */
            uint64_t shed;    /* requests of the class that were shed; see weir__rule_stats_shed */
        };
    } shard[WEIR__RULE_STATS_SHARDS];
} __attribute__((aligned(64)));

struct weir__bucket {
    weir__cell slot[WEIR__BUCKET_SLOTS];
} __attribute__((aligned(64)));

struct weir__header {
    /* Written once, before the segment is visible to others; covered by `check`. */
    uint64_t magic;
    uint32_t layout;
    uint32_t header_bytes;
    uint64_t bytes;
    uint64_t buckets, buckets_at;
    uint64_t chunks, chunk_leases_at, chunks_at;
    uint64_t stats_at, moves_at, times_at;
    uint64_t rule_stats_count, rule_stats_at;
    int64_t made_wall_ns;
    uint8_t secret[WEIR__SECRET_BYTES];
    uint64_t check;

    /* Variable; each word is independent of the others. */
    uint64_t boot[2] __attribute__((aligned(64))); /* the boot that clock_offset_ns belongs to */
    int64_t clock_offset_ns;                       /* segment time minus CLOCK_BOOTTIME */
    uint64_t blocked_until_us;                     /* no block ends later: afterwards takes need not look up blocks */
    uint64_t geometry;                             /* how many regions of buckets there are (resize.h); 0: one */
    uint64_t leaving_displaced;                    /* displacements of entries that had to leave their region */
    uint64_t slab_cursor __attribute__((aligned(64)));
    uint64_t slab_searched; /* hint: how far a search found no lapsed chunk, see slab.c */
};

#define WEIR__HEADER_BYTES 4096
#define WEIR__STATS_BYTES  (WEIR__STATS_SHARDS * sizeof(struct weir__stats_shard))
#define WEIR__MOVES_BYTES  (WEIR__MOVES * sizeof(uint64_t))
#define WEIR__TIMES_BYTES  (WEIR__TIME_SHARDS * sizeof(struct weir__times))

_Static_assert(sizeof(struct weir__bucket) == 64, "a bucket is a cache line");
_Static_assert(sizeof(struct weir__header) <= WEIR__HEADER_BYTES, "the header has outgrown its page");

/* FNV-1a: detects every single-bit error of a header. */
static inline uint64_t weir__header_sum(const void *header, uint64_t bytes)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (const unsigned char *byte = header, *end = byte + bytes; byte < end; byte++)
        sum = (sum ^ *byte) * UINT64_C(0x100000001b3);
    return sum;
}

/* A mapped segment: addresses in this process. Filled in by weir__segment_attach from verified numbers only. */
struct weir__table {
    struct weir__header *header;
    struct weir__bucket *bucket;
    uint64_t buckets;       /* of a region */
    uint64_t stride;        /* buckets from the start of a region to that of the next */
    unsigned doublings_max; /* geometries with more are not mapped here */
    struct weir__stats_shard *stats;
    uint64_t *moves;
    struct weir__times *times;
    struct weir__rule_stats *rule_stats;
    uint64_t rule_stats_count;
    uint32_t *lease;
    uint8_t *chunk;
    uint64_t chunks;
    uint64_t bytes;
};

#endif
