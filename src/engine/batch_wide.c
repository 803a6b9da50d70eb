/*
 * Batches, eight requests at a time, on processors with AVX-512.
 *
 * Many callers ask for many keys under one limit and cost. Then all but the swap can be done for eight requests by the
 * same instructions, a request a lane. The steps are those of batch.c, but a turn does each of them for one eight, a
 * different one each: lines that are asked for by the dozen at once are partly not brought at all, so every turn asks
 * for a few.
 *
 *     set_out      are they like the first one? hashes, and asks for the home lines
 *     look_home    which slot has the tag?
 *     ask_other    where it was none: asks for the other line, and
 *     look_other   looks there
 *     plan         reads the slots, and works out what they become: before the looking, which hides how long it takes
 *     decide       swaps one after the other, and answers
 *
 * Nothing here decides by itself what is not plain: a lane that is not the usual case (table/usual.h, which says the
 * same in scalars), or whose swap fails, as that of a key's second request among the eight does, is left to
 * weir__batch_decide, in its turn, so that requests of one key stay in their order. But eight of one key that has
 * enough for all, as a hot one often has, take by one swap what they would have taken one after the other. Requests
 * from the first on that is not like the others are left to batch.c.
 */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/batch.h"

bool weir__wide_forbidden;

#if defined(__x86_64__) && !defined(WEIR__PLAIN_ATOMICS)
#include "table/hash.h"
#include "table/fast_path.h"

#include <immintrin.h>

#define WIDE   __attribute__((target("avx512f,avx512dq,avx512cd,avx512bw,avx512vl,avx512ifma,bmi,bmi2")))
#define INLINE WIDE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8") /* 2 % faster */

enum { LANES = 8, RING = 8 }; /* a power of two, for the eights on their way */

/* In which turn after it has set out each step of an eight comes. Sooner, and lines are not there yet. */
enum { LOOK_HOME = 3, ASK_OTHER = 4, LOOK_OTHER = 6, DECIDE = 7 };

struct eight {
    uint64_t wanted[LANES]; /* tags, as in batch.c */
    struct weir__bucket *primary[LANES], *alternate[LANES];
    weir__cell *slot[LANES];
    uint16_t found[LANES]; /* in the home line: one bit, 4 a slot, or none */
    unsigned away;         /* a bit for each lane that was not found */
} __attribute__((aligned(64)));

/* What the slots held and shall hold. */
struct plan {
    uint64_t lo[LANES], hi[LANES], next_lo[LANES], next_hi[LANES];
    __m512i remaining, reset;
    unsigned odd;  /* a bit for each lane that is not to be swapped */
    bool together; /* one key has enough for all eight: the last lane's swap is for all of them */
} __attribute__((aligned(64)));

/* What is the same for all requests. */
struct terms {
    __m256i like;
    size_t key_len;
    const uint8_t *secret;
    __m512i flip, spread, buckets, base;
    __m512i now, mono, period, inverse, hard, cost;
    __m512i so_far; /* the costs of a lane and of those before it */
};

/* The first four fields of a request are compared together, and its answer is written by two overlapping stores. */
_Static_assert(offsetof(weir_request, limit) == 0 && offsetof(weir_request, key) == 8 &&
                   offsetof(weir_request, key_len) == 16 && offsetof(weir_request, cost) == 24,
               "32 bytes of request");
_Static_assert(offsetof(weir_request, error) == 32 && offsetof(weir_request, decision.limit) == 48 &&
                   offsetof(weir_request, decision.remaining) == 56 && sizeof(weir_request) == 88,
               "56 bytes of answer");
enum { KEY_FIELD = 2, OTHER_FIELDS = 13 };

bool weir__wide_can(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512ifma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

INLINE __m512i all(uint64_t value)
{
    return _mm512_set1_epi64((long long)value);
}

INLINE long long word(const weir_request *r)
{
    long long key;
    memcpy(&key, r->key, sizeof key);
    return key;
}

/* weir__hash of each key. That of 8 bytes is XXH3_len_4to8_64b by lanes; the others one by one. */
INLINE __m512i hashes(const struct terms *t, const weir_request *r)
{
    const __m512i prime = all(UINT64_C(0x9fb21c651e98df25));
    if (t->key_len != 8) {
        uint64_t hash[LANES] __attribute__((aligned(64)));
        for (size_t i = 0; i < LANES; i++)
            hash[i] = weir__hash(r[i].key, t->key_len, t->secret);
        return _mm512_load_si512(hash);
    }
    __m512i h = _mm512_set_epi64(word(r + 7), word(r + 6), word(r + 5), word(r + 4), word(r + 3), word(r + 2),
                                 word(r + 1), word(r));
    h = _mm512_xor_si512(_mm512_rol_epi64(h, 32), t->flip);
    h = _mm512_ternarylogic_epi64(h, _mm512_rol_epi64(h, 49), _mm512_rol_epi64(h, 24), 0x96); /* a ^ b ^ c */
    h = _mm512_mullo_epi64(h, prime);
    h = _mm512_xor_si512(h, _mm512_add_epi64(_mm512_srli_epi64(h, 35), all(8)));
    h = _mm512_mullo_epi64(h, prime);
    return _mm512_xor_si512(h, _mm512_srli_epi64(h, 28));
}

/* weir__scale for a range below 2^32. */
INLINE __m512i scaled(__m512i hash, __m512i range)
{
    __m512i upper = _mm512_mul_epu32(_mm512_srli_epi64(hash, 32), range);
    __m512i lower = _mm512_srli_epi64(_mm512_mul_epu32(hash, range), 32);
    return _mm512_srli_epi64(_mm512_add_epi64(upper, lower), 32);
}

/* False, with nothing done, if one of them is not like the first. */
INLINE bool set_out(const struct terms *t, const weir_request *r, struct eight *e)
{
    __m256i differs = _mm256_setzero_si256(), least = _mm256_set1_epi64x(-1);
    UNROLL
    for (size_t i = 0; i < LANES; i++) {
        __m256i one = _mm256_loadu_si256((const __m256i *)(const void *)&r[i]);
        differs = _mm256_ternarylogic_epi64(differs, one, t->like, 0xf6); /* a | (b ^ c) */
        least = _mm256_min_epu64(least, one);
    }
    if (_mm256_test_epi64_mask(differs, differs) & OTHER_FIELDS || _mm256_testn_epi64_mask(least, least) & KEY_FIELD)
        return false;
    __m512i hash = _mm512_xor_si512(hashes(t, r), t->spread);
    if (_mm512_testn_epi64_mask(hash, all(WEIR__TAG_MASK - 1))) /* weir__with_tag */
        return false;
    _mm512_store_si512(e->wanted, _mm512_slli_epi64(hash, 30));
    _mm512_store_si512(e->primary, _mm512_add_epi64(t->base, _mm512_slli_epi64(scaled(hash, t->buckets), 6)));
    UNROLL
    for (size_t i = 0; i < LANES; i++)
        weir__prefetch(e->primary[i]);
    return true;
}

/* weir__bucket_match by one comparison, a hint as that one: bits 1, 5, 9 and 13. */
INLINE unsigned match(const struct weir__bucket *line, uint64_t wanted)
{
    __m512i tag = _mm512_set1_epi32((int)(wanted >> 32));
    return _mm512_mask_cmpeq_epi32_mask(0x2222, _mm512_load_si512(line), tag);
}

INLINE void look_home(struct eight *e)
{
    UNROLL
    for (size_t i = 0; i < LANES; i++)
        e->found[i] = (uint16_t)match(e->primary[i], e->wanted[i]);
}

/* A turn after look_home: what it wrote piece by piece is read at once. */
INLINE void ask_other(const struct terms *t, struct eight *e)
{
    __m512i home = _mm512_load_si512(e->primary);
    __m512i found = _mm512_cvtepu16_epi64(_mm_load_si128((const __m128i *)(const void *)e->found));
    unsigned away = _mm512_testn_epi64_mask(found, found);
    /* The slot of the lowest bit; the last one if there is none. */
    found = _mm512_or_si512(found, all(0x2000));
    found = _mm512_and_si512(found, _mm512_sub_epi64(_mm512_setzero_si512(), found));
    __m512i offset = _mm512_sub_epi64(all(62), _mm512_lzcnt_epi64(found));
    _mm512_store_si512(e->slot, _mm512_add_epi64(home, _mm512_slli_epi64(offset, 2)));

    /* weir__alternate_bucket */
    __m512i tag = _mm512_srli_epi64(_mm512_load_si512(e->wanted), 30);
    __m512i sum = scaled(_mm512_mullo_epi64(tag, all(UINT64_C(0xd6e8feb86659fd93))), t->buckets);
    __m512i other = _mm512_sub_epi64(sum, _mm512_srli_epi64(_mm512_sub_epi64(home, t->base), 6));
    other = _mm512_mask_add_epi64(other, _mm512_movepi64_mask(other), other, t->buckets);
    _mm512_store_si512(e->alternate, _mm512_add_epi64(t->base, _mm512_slli_epi64(other, 6)));
    e->away = away;
    for (; away; away &= away - 1)
        weir__prefetch(e->alternate[__builtin_ctz(away)]);
}

INLINE void look_other(struct eight *e)
{
    for (unsigned away = e->away; away; away &= away - 1) {
        unsigned i = (unsigned)__builtin_ctz(away);
        unsigned found = match(e->alternate[i], e->wanted[i]) | 0x2000;
        e->slot[i] = &e->alternate[i]->slot[(unsigned)__builtin_ctz(found) / 4];
    }
}

/* Every other of eight slots, as weir__cell_peek reads them. */
INLINE __m512i four(weir__cell *const *slot)
{
    __m512i cells = _mm512_castsi128_si512(weir__cell_vector(slot[0]));
    cells = _mm512_inserti64x2(cells, weir__cell_vector(slot[2]), 1);
    cells = _mm512_inserti64x2(cells, weir__cell_vector(slot[4]), 2);
    cells = _mm512_inserti64x2(cells, weir__cell_vector(slot[6]), 3);
    __asm__("" : "+v"(cells)); /* read once: what is compared by the swap is what the plan was made from */
    return cells;
}

/* weir__expiry_decode, without its table: 4 to 7 times a power of two. */
INLINE __m512i whole_decode(__m512i code)
{
    code = _mm512_mask_sub_epi64(code, _mm512_cmpge_epu64_mask(code, all(WEIR__EXPIRY_DENIED)), code,
                                 all(WEIR__EXPIRY_DENIED - WEIR__EXPIRY_MARKED));
    __m512i power = _mm512_max_epu64(_mm512_srli_epi64(code, 2), all(1));
    __m512i times = _mm512_and_si512(code, all(3));
    times = _mm512_mask_or_epi64(times, _mm512_cmpgt_epu64_mask(code, all(3)), times, all(4));
    return _mm512_sllv_epi64(times, _mm512_sub_epi64(power, all(1)));
}

/* weir__expiry_encode_long */
INLINE __m512i whole_encode(__m512i us)
{
    __m512i less = _mm512_sub_epi64(us, all(1));
    __m512i power = _mm512_sub_epi64(all(61), _mm512_lzcnt_epi64(less));
    return _mm512_add_epi64(_mm512_add_epi64(_mm512_slli_epi64(power, 2), all(1)), _mm512_srlv_epi64(less, power));
}

/*
 * weir__fast_swap and weir__fast_add, without the swap. Times are below 2^46 and, where it matters, products below
 * 2^45: 52 bits by 52 do, and of the inverse the upper 52; so the quotient is one short at most, as there.
 */
INLINE void plan(const struct terms *t, const struct eight *e, struct plan *p)
{
    const __m512i low17 = all(0x1ffff), none = _mm512_setzero_si512();
    __m512i even = four(e->slot), uneven = four(e->slot + 1);
    __m512i lo = _mm512_unpacklo_epi64(even, uneven), hi = _mm512_unpackhi_epi64(even, uneven);
    __m512i slot = _mm512_load_si512(e->slot), cost = t->cost;
    /* One hot key: each lane takes after those before it, from the one state that was read first. */
    bool one_key = _mm512_cmpeq_epi64_mask(slot, _mm512_broadcastq_epi64(_mm512_castsi512_si128(slot))) == 0xff;
    if (__builtin_expect(one_key, 0)) {
        lo = _mm512_broadcastq_epi64(_mm512_castsi512_si128(lo));
        hi = _mm512_broadcastq_epi64(_mm512_castsi512_si128(hi));
        cost = t->so_far;
    }
    __m512i since = _mm512_sub_epi64(t->now, hi);
    __m512i differs = _mm512_xor_si512(lo, _mm512_load_si512(e->wanted));
    __mmask8 odd = _mm512_movepi64_mask(since) | _mm512_test_epi64_mask(differs, all(~UINT64_C(0x077fffff)));
    __m512i elapsed = _mm512_srli_epi64(since, 17);
    __m512i used = _mm512_slli_epi64(_mm512_and_si512(lo, all(0x7fff)), 17);
    used = _mm512_ternarylogic_epi64(used, hi, low17, 0xf8); /* a | (b & c) */
    __m512i whole = whole_decode(_mm512_and_si512(_mm512_srli_epi64(lo, 15), all(0xff)));

    __m512i periods = _mm512_madd52hi_epu64(none, elapsed, t->inverse);
    __m512i rest = _mm512_sub_epi64(elapsed, _mm512_madd52lo_epu64(none, periods, t->period));
    __mmask8 more = _mm512_cmpge_epi64_mask(rest, t->period);
    rest = _mm512_mask_sub_epi64(rest, more, rest, t->period);
    used = _mm512_sub_epi64(used, periods);
    used = _mm512_mask_sub_epi64(used, more, used, all(1));
    __mmask8 live = _mm512_mask_cmpgt_epi64_mask(_mm512_cmplt_epi64_mask(elapsed, whole), used, none);
    rest = _mm512_maskz_mov_epi64(live, rest);
    used = _mm512_mask_add_epi64(cost, live, used, cost);
    odd |= _mm512_cmpgt_epi64_mask(used, t->hard);
    whole = _mm512_madd52lo_epu64(none, used, t->period);

    __m512i low = _mm512_or_si512(_mm512_slli_epi64(whole_encode(whole), 15), _mm512_srli_epi64(used, 17));
    __m512i anchor = _mm512_slli_epi64(_mm512_sub_epi64(t->mono, rest), 17);
    _mm512_store_si512(p->next_lo, _mm512_ternarylogic_epi64(low, lo, all(~UINT64_C(0x7fffff)), 0xf8));
    _mm512_store_si512(p->next_hi, _mm512_ternarylogic_epi64(anchor, used, low17, 0xf8));
    _mm512_store_si512(p->lo, lo);
    _mm512_store_si512(p->hi, hi);
    p->remaining = _mm512_sub_epi64(t->hard, used);
    p->reset = _mm512_mullo_epi64(_mm512_sub_epi64(whole, rest), all(1000));
    p->together = one_key && !odd;
    p->odd = one_key && odd ? 0xff : odd; /* all of them in their order, or none */
}

INLINE bool swap(const struct eight *e, const struct plan *p, size_t i)
{
    weir__cell seen = {p->lo[i], p->hi[i]}, next = {p->next_lo[i], p->next_hi[i]};
    return weir__cell_cas(e->slot[i], &seen, next);
}

/* The answers of all that were swapped. */
INLINE void answer(const struct terms *t, const struct plan *p, weir_request *r, unsigned odd)
{
    /* Error, verdict, limit, remaining, delay, retry, reset: of the fourth and the seventh this is the index, of the
     * others the value. */
    __m512i told = _mm512_mask_mov_epi64(_mm512_set_epi64(0, LANES, 0, 0, 0, 0, 0, 0), 1 << 2, t->hard);
    const __m512i step = _mm512_set_epi64(0, 1, 0, 0, 1, 0, 0, 0);
    UNROLL
    for (size_t i = 0; i < LANES; i++, told = _mm512_add_epi64(told, step)) {
        if (odd >> i & 1)
            continue;
        __m512i one = _mm512_mask2_permutex2var_epi64(p->remaining, told, 1 << 3 | 1 << 6, p->reset);
        __m512i rest = _mm512_alignr_epi64(one, one, 3);
        _mm256_storeu_si256((__m256i *)(void *)&r[i].error, _mm512_castsi512_si256(one));
        _mm256_storeu_si256((__m256i *)(void *)&r[i].decision.remaining, _mm512_castsi512_si256(rest));
    }
}

/* All from lane `from` on, one by one. Returns which were not swapped as planned. */
WIDE static __attribute__((noinline)) unsigned decide_singly(struct weir__batch *b, const struct eight *e,
                                                             const struct plan *p, weir_request *r, size_t from)
{
    unsigned odd = p->odd;
    for (size_t i = from; i < LANES; i++) {
        if (!(odd >> i & 1) && swap(e, p, i))
            continue;
        odd |= 1U << i;
        weir__batch_decide(b, &r[i], e->slot[i], e->wanted[i], e->primary[i]);
    }
    return odd;
}

/* For all eight at once, which others may want to do as well. Returns as decide_singly does. */
WIDE static __attribute__((noinline)) unsigned decide_together(struct weir__batch *b, const struct terms *t,
                                                               const struct eight *e, struct plan *p, weir_request *r)
{
    for (int tries = 0; tries < 4 && p->together; tries++) {
        if (swap(e, p, LANES - 1))
            return 0;
        plan(t, e, p);
    }
    p->odd = 0xff;
    return decide_singly(b, e, p, r, 0);
}

INLINE void decide(struct weir__batch *b, const struct terms *t, const struct eight *e, struct plan *p, weir_request *r)
{
    size_t done = 0;
    unsigned odd = 0;
    if (__builtin_expect(!p->odd && !p->together, 1)) {
        UNROLL
        for (; done < LANES; done++)
            if (!swap(e, p, done))
                break;
    }
    if (__builtin_expect(p->together, 0))
        odd = decide_together(b, t, e, p, r);
    else if (__builtin_expect(done < LANES, 0))
        odd = decide_singly(b, e, p, r, done); /* tries again the one that failed, which does no harm */
    b->sum.verdict[WEIR_ALLOW] += LANES - (unsigned)__builtin_popcount(odd);
    if (__builtin_expect(!odd, 1))
        answer(t, p, r, 0);
    else
        answer(t, p, r, odd);
}

WIDE static struct terms make_terms(const struct weir__batch *b)
{
    const struct weir__table *table = b->op.table;
    const weir_request *r = b->request;
    const uint8_t *secret = table->header->secret;
    uint64_t mono_us = (uint64_t)b->op.mono_us;
    return (struct terms){
        .like = _mm256_loadu_si256((const __m256i *)(const void *)r),
        .key_len = r->key_len,
        .secret = secret,
        .flip = all(XXH_readLE64(secret + 8) ^ XXH_readLE64(secret + 16)),
        .spread = all(r->limit->spread),
        .buckets = all(table->buckets),
        .base = all((uint64_t)(uintptr_t)table->bucket),
        .now = all(mono_us << 17 | 0x1ffff),
        .mono = all(mono_us),
        .period = all((uint64_t)r->limit->period_us),
        .inverse = all(r->limit->inverse >> 12),
        .hard = all((uint64_t)r->limit->hard),
        .cost = all((uint64_t)r->cost),
        /* Below 2^35, as a cost is at most WEIR__USED_MAX. */
        .so_far = _mm512_mullo_epi64(all((uint64_t)r->cost), _mm512_set_epi64(8, 7, 6, 5, 4, 3, 2, 1)),
    };
}

WIDE static __attribute__((noinline)) void take(struct weir__batch *b)
{
    const struct terms t = make_terms(b);
    weir_request *first = b->request;
    size_t eights = b->left / LANES; /* that are alike, as far as is known */
    struct eight ring[RING];
    struct plan p;
    for (size_t turn = 0; turn < eights + DECIDE; turn++) {
        struct eight *last = &ring[(turn - DECIDE) % RING];
        if (turn < eights && !set_out(&t, first + turn * LANES, &ring[turn % RING]))
            eights = turn;
        if (turn - DECIDE < eights)
            plan(&t, last, &p);
        if (turn - LOOK_HOME < eights)
            look_home(&ring[(turn - LOOK_HOME) % RING]);
        if (turn - ASK_OTHER < eights)
            ask_other(&t, &ring[(turn - ASK_OTHER) % RING]);
        if (turn - LOOK_OTHER < eights)
            look_other(&ring[(turn - LOOK_OTHER) % RING]);
        if (turn - DECIDE < eights)
            decide(b, &t, last, &p, first + (turn - DECIDE) * LANES);
    }
    b->request += eights * LANES;
    b->left -= eights * LANES;
}

void weir__wide_take(struct weir__batch *b)
{
    const weir_request *r = b->request;
    if (b->left < LANES || !b->usual || weir__wide_forbidden || b->op.table->buckets > UINT32_MAX || !weir__wide_can())
        return;
    if (!weir__request_check(r->limit, r->key, r->key_len, r->cost, b->now) && weir__may_take_fast(r->limit, r->cost))
        take(b);
}

#else

bool weir__wide_can(void)
{
    return false;
}

void weir__wide_take(struct weir__batch *b)
{
    (void)b;
}

#endif
