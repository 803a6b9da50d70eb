/*
 * The private contents of weir_limit, weir_lease and weir_load_worker, which are opaque storage in the public headers.
 * weir.h includes this file where WEIR__BUILD is defined: in weir's own sources, modules and tests.
 */
#ifndef WEIR_BASE_OPAQUE_H
#define WEIR_BASE_OPAQUE_H

#include <stdint.h>

typedef struct weir__limit {
    uint32_t made; /* set by weir_limit_init */
    uint8_t algorithm, refill, align, calendar;
    uint8_t round_up, count_rejected, delay, buckets;
    uint8_t has_fast_path; /* token bucket that refills one unit at a time: has a fast path */
    uint8_t wide;          /* sliding counter in two slots though one would suffice: its limit may be scaled up */
    /* What a token bucket needs comes first: with what is before it in struct weir__quota, two cache lines. */
    uint64_t salt;     /* salt of the key's hash, from id and algorithm */
    int64_t limit;     /* units a window */
    int64_t hard;      /* capacity: burst or limit */
    int64_t cap;       /* capacity with soft */
    int64_t period_us; /* window : limit in lowest terms: period_units are refilled every period_us, exactly */
    int64_t period_units;
    uint64_t inverse; /* 2^64 / period_us */
    int64_t most;     /* the largest cap that overload control may set; cap if the limit is not scaled */
    int64_t window_us;
    int64_t part_us;    /* length of one of the counter's buckets */
    int64_t quantum_us; /* resolution of logged times */
    int64_t max_delay_us;
    const weir_zone *zone;
    /* The fastest refill that overload control may have set: bounds what a refund returns. */
    int64_t back_us, back_units;
} weir_limit;

typedef struct weir__lease {
    uint64_t primary, tag, word, mark;
    int64_t for_us;
    uint32_t record, place;
} weir_lease;

typedef struct weir__load_worker {
    uint64_t owner;
    uint64_t in_flight;
    uint32_t shard;
} weir_load_worker;

#ifndef __cplusplus
/* A program passes pointers to single limits, which may be larger than the library's. Leases are in an array of
 * weir_permits. */
_Static_assert(sizeof(weir_limit) <= WEIR_LIMIT_BYTES && _Alignof(weir_limit) <= 8, "fits the public weir_limit");
_Static_assert(sizeof(weir_lease) == WEIR_LEASE_BYTES && _Alignof(weir_lease) <= 8, "is the public weir_lease");
_Static_assert(sizeof(weir_load_worker) <= WEIR_LOAD_WORKER_BYTES && _Alignof(weir_load_worker) <= 8,
               "fits the public weir_load_worker");
#endif

#endif
