/*
 * The segment as it lies in memory. Types only.
 *
 *     header    4 KiB    what never changes after it was made, checked on attach; then what does
 *     stats     8 KiB    two lines of counters a processor, modulo WEIR__STATS_SHARDS
 *     moves     8 KiB    generations of moved entries, by tag
 *     times     2 KiB    how long checks took, two lines a processor, modulo WEIR__TIME_SHARDS
 *     tallies   t x 256  what happened under each rule, by the rule's id
 *     lines     n x 64   four slots of 16 bytes each
 *     leases    m x 4    one word a grain of slab
 *     grains    m x 32   logs and wide counters
 *
 * Everything is addressed by index; no pointer is ever stored.
 */
#ifndef WEIR_TABLE_LAYOUT_H
#define WEIR_TABLE_LAYOUT_H

#include "base/atomic.h"

#define WEIR__MAGIC            UINT64_C(0x0a474553524945f7) /* not text at either end, so that no text file is taken for one */
#define WEIR__LAYOUT           4 /* raise when this file, slot.h or a record's head changes */
#define WEIR__SECRET_BYTES     192
#define WEIR__BUCKET_SLOTS     4 /* a line */
#define WEIR__STATS_SHARDS     64
#define WEIR__MOVES            1024
#define WEIR__CHUNK            32
#define WEIR__HASH_BUCKETS_MIN 64
#define WEIR__SIZE_MIN         65536

/* Counters, in the order of weir_stats. On lines of cache of their own: neighbours never share one. */
struct weir__stats_shard {
    uint64_t verdict[5]; /* by enum weir_verdict */
    uint64_t soft, errors, created, evicted_live, moved, retries, evicted_denied, slab_full, wrong_secrets;
    uint64_t spare[2];
} __attribute__((aligned(128)));

#define WEIR__TIMES             16 /* buckets: a check that took less than 64 ns << bucket, and the last for the rest */
#define WEIR__TIME_SHARDS       16 /* few: only some checks are timed */
#define WEIR__RULE_STATS_SHARDS 4
#define WEIR__RULE_STATS_MIN    16
#define WEIR__RULE_STATS_MAX    16384

/* How long checks took: those that were timed. */
struct weir__times {
    uint64_t count[WEIR__TIMES];
} __attribute__((aligned(128)));

/*
 * What happened under one rule, on four lines of cache. `word` of the first is the rule's id, or 0: free; of the others
 * how many requests of a class were shed (weir__rule_stats_shed).
 */
struct weir__rule_stats {
    struct weir__rule_stats_shard {
        uint64_t allowed, delayed, denied, listed, missing_key, failures, gave_back;
        uint64_t word;
    } shard[WEIR__RULE_STATS_SHARDS];
} __attribute__((aligned(64)));

struct weir__bucket {
    weir__cell slot[WEIR__BUCKET_SLOTS];
} __attribute__((aligned(64)));

struct weir__header {
    /* Written once, before anybody else sees the segment; covered by `check`. */
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

    /* Changes; each word stands for itself. */
    uint64_t boot[2] __attribute__((aligned(64))); /* which boot clock_offset_ns belongs to */
    int64_t clock_offset_ns;                       /* segment time minus CLOCK_BOOTTIME */
    uint64_t blocked_until_us;                     /* no block lasts longer: before it there is nothing to look up */
    uint64_t slab_cursor __attribute__((aligned(64)));
    uint64_t slab_searched; /* how far lapsed grains were looked for in vain: see slab.c */
};

#define WEIR__HEADER_BYTES 4096
#define WEIR__STATS_BYTES  (WEIR__STATS_SHARDS * sizeof(struct weir__stats_shard))
#define WEIR__MOVES_BYTES  (WEIR__MOVES * sizeof(uint64_t))
#define WEIR__TIMES_BYTES  (WEIR__TIME_SHARDS * sizeof(struct weir__times))

_Static_assert(sizeof(struct weir__bucket) == 64, "a line is a line of cache");
_Static_assert(sizeof(struct weir__header) <= WEIR__HEADER_BYTES, "the header has outgrown its page");

/* A mapped segment: where things are in this process. Made by weir__segment_attach from checked numbers only. */
struct weir__table {
    struct weir__header *header;
    struct weir__bucket *bucket;
    uint64_t buckets;
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
