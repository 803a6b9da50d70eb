/*
 * All atomics of weir, in one place.
 *
 * The unit of change is a cell: 16 bytes, aligned, replaced as a whole by one compare-and-swap. It is the machine's
 * own instruction, written out: what a compiler's library may do instead (take a lock) would neither be shared
 * between processes nor survive a kill.
 *
 * Ordering. On both machines weir__cell_cas acquires and releases. Everything a decision depends on is inside the
 * cell it swaps (or in words that are compared-and-swapped themselves): a stale or torn pair of halves makes the swap
 * fail. What is decided *without* swapping the cell it was read from must come from weir__cell_read. Three need more,
 * and say so where they stand:
 *   - weir__fence: "I put my entry, now I look for yours" (cuckoo.c, twins), which only a full fence orders;
 *   - weir__load64_ordered: "I swapped, now I look at a word" (ledger.c: is the bit set? permits.c: whose record is
 * it?). On arm64 it is an ldar, which stays behind the stlxp or stlxr of the swap; a load that only acquires may be an
 *     ldapr on newer processors, which does not;
 *   - acquire on loads whose value lets us trust other words (the generation of moves, a slab record's head, a pair's
 *     present window, after which the one before is read).
 */
#ifndef WEIR_BASE_ATOMIC_H
#define WEIR_BASE_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__SANITIZE_THREAD__) || defined(WEIR__TSAN)
#define WEIR__PLAIN_ATOMICS /* ThreadSanitizer sees neither into assembly nor into vectors */
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

/* The halves are loaded one after the other and may come from two states; see weir__cell_read for when it matters. */
static inline weir__cell weir__cell_peek(const weir__cell *cell)
{
    weir__cell seen;
    seen.lo = __atomic_load_n(&cell->lo, __ATOMIC_ACQUIRE);
    seen.hi = __atomic_load_n(&cell->hi, __ATOMIC_ACQUIRE);
    return seen;
}

#if defined(__x86_64__) && !defined(WEIR__PLAIN_ATOMICS)
/* The same in a register for both halves. */
static inline __m128i weir__cell_vector(const weir__cell *cell)
{
    return _mm_load_si128((const __m128i *)(const void *)cell);
}
#endif

/*
 * Both halves of one state, for decisions that are not checked by a swap of the same cell. Reads until it sees the
 * same twice; gives up after a few rounds under a storm of writers, when any answer is as
 * good as another.
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
 * Which cells of a line have `high` in the upper half of their `lo`: 0 if none has, else for weir__bucket_first. A
 * hint, taken without any order: whoever uses a cell reads it by itself. All four are compared at once, as a branch on
 * each would be guessed wrong every other time.
 */
static inline uint64_t weir__bucket_match(const weir__cell *line, uint32_t high)
{
#if defined(WEIR__PLAIN_ATOMICS)
    uint64_t found = 0;
    for (int i = 0; i < 4; i++)
        found |= (uint64_t)(__atomic_load_n(&line[i].lo, __ATOMIC_RELAXED) >> 32 == high) << i;
    return found;
#elif defined(__x86_64__)
    const float *word = (const float *)(const void *)line;
    __m128 first = _mm_shuffle_ps(_mm_load_ps(word), _mm_load_ps(word + 4), _MM_SHUFFLE(1, 1, 1, 1));
    __m128 last = _mm_shuffle_ps(_mm_load_ps(word + 8), _mm_load_ps(word + 12), _MM_SHUFFLE(1, 1, 1, 1));
    __m128i all = _mm_castps_si128(_mm_shuffle_ps(first, last, _MM_SHUFFLE(2, 0, 2, 0)));
    return (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi32(all, _mm_set1_epi32((int)high)));
#elif defined(__aarch64__)
    uint32x4_t all = vld4q_u32((const uint32_t *)(const void *)line).val[1];
    return vget_lane_u64(vreinterpret_u64_u16(vmovn_u32(vceqq_u32(all, vdupq_n_u32(high)))), 0);
#endif
}

/* Bits a cell of what weir__bucket_match tells. */
#if defined(WEIR__PLAIN_ATOMICS)
#define WEIR__MATCH_BITS 1
#elif defined(__x86_64__)
#define WEIR__MATCH_BITS 4
#else
#define WEIR__MATCH_BITS 16
#endif

/* The first cell of those that weir__bucket_match found; the last one of the line if it found none. */
static inline weir__cell *weir__bucket_first(weir__cell *line, uint64_t found)
{
    unsigned bit = (unsigned)__builtin_ctzll(found | UINT64_C(1) << 3 * WEIR__MATCH_BITS); /* a multiple of them */
    return (weir__cell *)(void *)((char *)line + bit * (sizeof *line / WEIR__MATCH_BITS));
}

/* Replaces *cell by `desired` if it equals *expected; if not, tells in *expected what it found. */
static inline bool weir__cell_cas(weir__cell *cell, weir__cell *expected, weir__cell desired)
{
#if defined(WEIR__PLAIN_ATOMICS)
    /* The sanitizer's own 16-byte operation stands in for ours. */
    __extension__ typedef __int128 i128;
    union {
        weir__cell cell;
        i128 whole;
    } e = {*expected}, d = {desired};
    bool swapped =
        __atomic_compare_exchange_n((i128 *)(void *)cell, &e.whole, d.whole, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
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
     * A pair is only read as one if the paired store succeeds, so what does not match is stored back unchanged. One
     * block: between the two halves of an exclusive access there must be nothing of the compiler's.
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

/* In the one order of all seq_cst operations: "I said what I use, now I look whether it is still the one" (pins.c). */
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

/* seq_cst: the generation of moves is added to between two steps of a move, and must stay between them. */
static inline void weir__add64(uint64_t *word, uint64_t amount)
{
    __atomic_fetch_add(word, amount, __ATOMIC_SEQ_CST);
}

/* seq_cst: who sets a bit has made the change that it tells of, and who takes it looks for the change after it. */
static inline void weir__or64(uint64_t *word, uint64_t bits)
{
    __atomic_fetch_or(word, bits, __ATOMIC_SEQ_CST);
}

/* Takes all bits of a word and leaves none. */
static inline uint64_t weir__take64(uint64_t *word)
{
    return __atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST);
}

/* For statistics: nobody draws conclusions from the order. */
static inline void weir__count(uint64_t *word, uint64_t amount)
{
    __atomic_fetch_add(word, amount, __ATOMIC_RELAXED);
}

/*
 * Asks for a line that will be written. On x86-64 by name: compilers emit a prefetch for reading unless told that the
 * processor is newer than the first ones, and a line fetched for reading costs another trip when it is swapped.
 * Processors without the instruction ignore it.
 */
static inline void weir__prefetch(const void *address)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)address));
#else
    __builtin_prefetch(address, 1, 3);
#endif
}

/* Asks for a line that will only be read: it stays where else it is. */
static inline void weir__prefetch_read(const void *address)
{
    __builtin_prefetch(address);
}

#endif
