/*
 * All atomic operations of weir.
 *
 * The unit of change is a cell: 16 bytes, aligned, replaced by one compare-and-swap. It is the processor's instruction
 * in inline assembly: the compiler's library may use a lock instead, which is neither shared between processes nor
 * released by a kill.
 *
 * Ordering. weir__cell_cas has acquire and release semantics on both architectures. Everything a decision depends on is
 * in the cell that it swaps (or in words with their own compare-and-swap): a stale or torn read makes the swap fail. A
 * decision without a swap of the cell must read it by weir__cell_read. Three cases need more, and say so:
 *   - weir__fence: store of my entry before the load of yours (cuckoo.c, duplicates), or of the geometry before the
 * loads of slots (table/resize.c), which only a full fence orders;
 *   - weir__load64_ordered: load after a swap (ledger.c: is the bit set? permits.c: who owns the record? cuckoo.c: does
 * the displaced entry have to leave?). On arm64 it is an ldar, which is not reordered with the stlxp or stlxr of the
 * swap; an acquire load may be an ldapr, which is;
 *   - acquire loads of words that guard other words (displacement generation, head of a slab record, current window of
 * a slot pair).
 */
#ifndef WEIR_BASE_ATOMIC_H
#define WEIR_BASE_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__SANITIZE_THREAD__) || defined(WEIR__TSAN)
#define WEIR__PLAIN_ATOMICS /* ThreadSanitizer sees neither assembly nor vector loads */
#elif defined(__x86_64__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

typedef struct weir__cell {
    uint64_t lo, hi;
} __attribute__((aligned(16))) weir__cell;

static inline bool weir__cell_equal(weir__cell a, weir__cell b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* The halves are loaded one after the other and may be torn; see weir__cell_read. */
static inline weir__cell weir__cell_peek(const weir__cell *cell)
{
    weir__cell seen;
    seen.lo = __atomic_load_n(&cell->lo, __ATOMIC_ACQUIRE);
    seen.hi = __atomic_load_n(&cell->hi, __ATOMIC_ACQUIRE);
    return seen;
}

/*
 * An untorn read, for decisions without a swap of the cell: reads until two reads agree. At most 16 retries; may return
 * a torn pair under continuous writes.
 */
static inline weir__cell weir__cell_read(const weir__cell *cell)
{
    weir__cell seen = weir__cell_peek(cell);
    for (int round = 0; round < 16; round++) {
        weir__cell again = weir__cell_peek(cell);
        if (weir__cell_equal(seen, again))
            break;
        seen = again;
    }
    return seen;
}

/*
 * Bit mask of the cells of a bucket with `high` in the upper half of their `lo`, for weir__bucket_first; 0 if none. A
 * hint without ordering: the caller reads the cell itself. Compares all four cells at once, as separate branches would
 * be mispredicted.
 */
static inline uint64_t weir__bucket_match(const weir__cell *bucket, uint32_t high)
{
#if defined(WEIR__PLAIN_ATOMICS)
    uint64_t found = 0;
    for (int i = 0; i < 4; i++)
        found |= (uint64_t)(__atomic_load_n(&bucket[i].lo, __ATOMIC_RELAXED) >> 32 == high) << i;
    return found;
#elif defined(__x86_64__)
    const float *word = (const float *)(const void *)bucket;
    __m128 first = _mm_shuffle_ps(_mm_load_ps(word), _mm_load_ps(word + 4), _MM_SHUFFLE(1, 1, 1, 1));
    __m128 last = _mm_shuffle_ps(_mm_load_ps(word + 8), _mm_load_ps(word + 12), _MM_SHUFFLE(1, 1, 1, 1));
    __m128i all = _mm_castps_si128(_mm_shuffle_ps(first, last, _MM_SHUFFLE(2, 0, 2, 0)));
    return (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi32(all, _mm_set1_epi32((int)high)));
#elif defined(__aarch64__)
    uint32x4_t all = vld4q_u32((const uint32_t *)(const void *)bucket).val[1];
    return vget_lane_u64(vreinterpret_u64_u16(vmovn_u32(vceqq_u32(all, vdupq_n_u32(high)))), 0);
#endif
}

/* Bits a cell in the mask of weir__bucket_match. */
#if defined(WEIR__PLAIN_ATOMICS)
#define WEIR__MATCH_BITS 1
#elif defined(__x86_64__)
#define WEIR__MATCH_BITS 4
#else
#define WEIR__MATCH_BITS 16
#endif

/* The first cell of the mask; the last of the bucket if it is empty. */
static inline weir__cell *weir__bucket_first(weir__cell *bucket, uint64_t found)
{
    unsigned bit = (unsigned)__builtin_ctzll(found | UINT64_C(1) << 3 * WEIR__MATCH_BITS); /* a multiple of them */
    return (weir__cell *)(void *)((char *)bucket + bit * (sizeof *bucket / WEIR__MATCH_BITS));
}

/* Replaces *cell by `desired` if it equals *expected; otherwise stores the current content in *expected. */
static inline bool weir__cell_cas(weir__cell *cell, weir__cell *expected, weir__cell desired)
{
#if defined(WEIR__PLAIN_ATOMICS)
    /* The 16-byte operation that the sanitizer knows. */
    __extension__ typedef __int128 i128;
    union {
        weir__cell cell;
        i128 value;
    } e = {*expected}, d = {desired};
    bool swapped =
        __atomic_compare_exchange_n((i128 *)(void *)cell, &e.value, d.value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    *expected = e.cell;
    return swapped;
#elif defined(__x86_64__)
    bool swapped;
    __asm__ volatile("lock cmpxchg16b %1"
                     : "=@ccz"(swapped), "+m"(*cell), "+a"(expected->lo), "+d"(expected->hi)
                     : "b"(desired.lo), "c"(desired.hi)
                     : "memory");
    return swapped;
#elif defined(__aarch64__)
    /*
     * A pair is read atomically only if the paired store succeeds, so a mismatch stores the old value. One asm block:
     * the compiler must not insert memory accesses between the exclusive load and store.
     */
    uint64_t lo, hi, out_lo, out_hi;
    uint32_t failed;
    __asm__ volatile(
        "1: ldaxp %[lo], %[hi], %[cell]\n"
        "   cmp %[lo], %[want_lo]\n"
        "   ccmp %[hi], %[want_hi], #0, eq\n"
        "   csel %[out_lo], %[new_lo], %[lo], eq\n"
        "   csel %[out_hi], %[new_hi], %[hi], eq\n"
        "   stlxp %w[failed], %[out_lo], %[out_hi], %[cell]\n"
        "   cbnz %w[failed], 1b"
        : [lo] "=&r"(lo), [hi] "=&r"(hi), [out_lo] "=&r"(out_lo), [out_hi] "=&r"(out_hi), [failed] "=&r"(failed),
          [cell] "+Q"(*cell)
        : [want_lo] "r"(expected->lo), [want_hi] "r"(expected->hi), [new_lo] "r"(desired.lo), [new_hi] "r"(desired.hi)
        : "cc", "memory");
    bool swapped = lo == expected->lo && hi == expected->hi;
    expected->lo = lo;
    expected->hi = hi;
    return swapped;
#else
#error "weir needs a 16-byte compare-and-swap: x86-64 or arm64"
#endif
}

static inline void weir__fence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline uint64_t weir__load64(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Sequentially consistent: publish a hazard pointer, then check that the set is still current (hazard_pointers.c). */
static inline uint64_t weir__load64_ordered(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static inline void weir__store64_ordered(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static inline uint32_t weir__load32(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void weir__store32(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void weir__store64(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline bool weir__cas64(uint64_t *word, uint64_t *expected, uint64_t desired)
{
    return __atomic_compare_exchange_n(word, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static inline bool weir__cas32(uint32_t *word, uint32_t *expected, uint32_t desired)
{
    return __atomic_compare_exchange_n(word, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Sequentially consistent: the displacement generation is incremented between copy and removal. */
static inline void weir__add64(uint64_t *word, uint64_t amount)
{
    __atomic_fetch_add(word, amount, __ATOMIC_SEQ_CST);
}

/* Returns the value before. */
static inline uint64_t weir__fetch_add64(uint64_t *word, uint64_t amount)
{
    return __atomic_fetch_add(word, amount, __ATOMIC_SEQ_CST);
}

/* Sequentially consistent: the writer changes, then sets the bit; the reader clears the bit, then reads. */
static inline void weir__or64(uint64_t *word, uint64_t bits)
{
    __atomic_fetch_or(word, bits, __ATOMIC_SEQ_CST);
}

/* Fetches and clears all bits. */
static inline uint64_t weir__take64(uint64_t *word)
{
    return __atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST);
}

/* For statistics: relaxed. */
static inline void weir__count(uint64_t *word, uint64_t amount)
{
    __atomic_fetch_add(word, amount, __ATOMIC_RELAXED);
}

/*
 * Prefetches a cache line for writing. On x86-64 by instruction: compilers emit a prefetch for reading unless built for
 * newer processors, and a line that was fetched for reading costs another transfer when it is swapped. Processors
 * without the instruction ignore it.
 */
static inline void weir__prefetch(const void *address)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)address));
#else
    __builtin_prefetch(address, 1, 3);
#endif
}

/* Prefetches a cache line for reading. */
static inline void weir__prefetch_read(const void *address)
{
    __builtin_prefetch(address);
}

#endif
