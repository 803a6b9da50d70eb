/*
 * A slot of the hash table: the state of one key in 128 bits. One compare-and-swap replaces all of it, so that key,
 * count and time always belong together.
 *
 *     lo:  tag 34 | state 3 | version 3 | wall 1 | expiry 8 | used, upper 15 bits
 *     hi:  anchor 47 | used, lower 17 bits
 *
 * tag      34 bits of the key's hash; 0: the slot is empty
 * state    enum weir__cell_state: NORMAL, or a step of an insertion or displacement
 * version  how often the entry was displaced, modulo 8; a move to another region gives it the next of 1 to 7
 * wall     the anchor is a time of the wall clock; else of the segment's monotonic clock
 * expiry   duration from the anchor until the counter has recovered completely and the slot is free; an 8-bit float
 * used     units counted since the anchor; of a key whose state is in the slab, the reference to its record
 * anchor   time that the count refers to (e.g. start of the window), in microseconds modulo 2^47 (4.4 years)
 *
 * Whether a slot is free follows from the slot alone, without the limit of its key.
 *
 * ABA: a NORMAL entry that returns to an earlier state (a take, then its refund) does no harm, as a decision depends on
 * nothing but the slot. Insertion and displacement do depend on other slots. There the bits that have no other meaning
 * (an empty slot without its tag, `used` of TENTATIVE and RESERVED) are an ABA tag: a number derived from the previous
 * content, so that no two such states of a slot are equal. An entry that is displaced, or moved to another region, has
 * its version instead: one that is displaced exactly 8 times, or moved exactly 7 times, while a helper is preempted can
 * still suffer ABA.
 */
#ifndef WEIR_TABLE_SLOT_H
#define WEIR_TABLE_SLOT_H

#include "base/atomic.h"

#define WEIR__TAG_BITS  34
#define WEIR__TAG_MASK  ((UINT64_C(1) << WEIR__TAG_BITS) - 1)
#define WEIR__TIME_BITS 47
#define WEIR__TIME_MASK ((UINT64_C(1) << WEIR__TIME_BITS) - 1)

enum weir__cell_state {
    WEIR__NORMAL = 0, /* the entry counts */
    WEIR__TENTATIVE,  /* claimed for a key; counts nothing until the claimant has checked for a duplicate */
    WEIR__RESERVED,   /* destination of a displacement that is about to begin; counts nothing. See also is_leaving */
    WEIR__LANDED,     /* the copy at the destination; immutable until the FROZEN original is gone */
    WEIR__FROZEN /* 4 to 7: being displaced to slot `state & 3` of its alternate bucket; immutable until that ends */
};

#define WEIR__VERSIONS 8

struct weir__slot_fields {
    uint64_t tag;
    unsigned state, version;
    bool wall;
    unsigned expiry;
    uint64_t used;
    uint64_t anchor; /* modulo 2^47 */
};

static inline uint64_t weir__cell_tag(uint64_t lo)
{
    return lo >> 30;
}

/* The tag at its position in `lo`, all other bits 0. Upper bits of `tag` are shifted out, so a full hash is accepted.
 */
static inline uint64_t weir__tag_bits_of(uint64_t tag)
{
    return tag << 30;
}

static inline unsigned weir__cell_state(uint64_t lo)
{
    return lo >> 27 & 7;
}

static inline unsigned weir__cell_version(uint64_t lo)
{
    return lo >> 24 & 7;
}

/* True for a NORMAL entry of this tag. */
static inline bool weir__is_entry_of(uint64_t lo, uint64_t tag)
{
    return lo >> 27 == tag << 3; /* NORMAL is 0 */
}

static inline weir__cell weir__cell_pack(struct weir__slot_fields p)
{
    weir__cell cell;
    cell.lo = p.tag << 30 | (uint64_t)p.state << 27 | (uint64_t)p.version << 24 | (uint64_t)p.wall << 23 |
              (uint64_t)p.expiry << 15 | p.used >> 17;
    cell.hi = p.anchor << 17 | (p.used & 0x1ffff);
    return cell;
}

static inline struct weir__slot_fields weir__cell_unpack(weir__cell cell)
{
    struct weir__slot_fields p;
    p.tag = weir__cell_tag(cell.lo);
    p.state = weir__cell_state(cell.lo);
    p.version = weir__cell_version(cell.lo);
    p.wall = cell.lo >> 23 & 1;
    p.expiry = cell.lo >> 15 & 0xff;
    p.used = (cell.lo & 0x7fff) << 17 | (cell.hi & 0x1ffff);
    p.anchor = cell.hi >> 17;
    return p;
}

static inline weir__cell weir__cell_with_state(weir__cell cell, unsigned state, unsigned version)
{
    cell.lo = (cell.lo & ~(UINT64_C(63) << 24)) | (uint64_t)state << 27 | (uint64_t)(version % WEIR__VERSIONS) << 24;
    return cell;
}

static inline bool weir__is_normal(uint64_t lo)
{
    return weir__cell_state(lo) == WEIR__NORMAL;
}

static inline bool weir__is_frozen(uint64_t lo)
{
    return weir__cell_state(lo) >= WEIR__FROZEN;
}

static inline bool weir__is_landed(uint64_t lo)
{
    return weir__cell_state(lo) == WEIR__LANDED;
}

/*
 * An entry on its way to another region (cuckoo.c): RESERVED with the version that it will have there, 1 to 7, which no
 * reservation has. All other bits are those of the entry; immutable until it is gone.
 */
static inline bool weir__is_leaving(uint64_t lo)
{
    return weir__cell_state(lo) == WEIR__RESERVED && weir__cell_version(lo);
}

static inline weir__cell weir__cell_leaving(weir__cell cell)
{
    return weir__cell_with_state(cell, WEIR__RESERVED, weir__cell_version(cell.lo) % (WEIR__VERSIONS - 1) + 1);
}

/* The entry as it arrives in its new region. */
static inline weir__cell weir__cell_arrived(weir__cell leaving)
{
    return weir__cell_with_state(leaving, WEIR__NORMAL, weir__cell_version(leaving.lo));
}

/* The version of an entry that replaces `seen` in the same slot: that of a NORMAL one, else 0. */
static inline unsigned weir__version_kept(weir__cell seen)
{
    return weir__is_normal(seen.lo) ? weir__cell_version(seen.lo) : 0;
}

/* An empty slot; its ABA tag is derived from the previous content. */
static inline weir__cell weir__cell_empty(weir__cell was)
{
    uint64_t mixed = (was.lo ^ (was.hi >> 29)) * UINT64_C(0x9e3779b97f4a7c15);
    weir__cell empty = {(mixed >> 36), was.hi + mixed + 1};
    return empty;
}

/* `cell` with an ABA tag in place of its count, derived from the content that it replaces. */
static inline weir__cell weir__cell_with_aba_tag(weir__cell cell, weir__cell was)
{
    uint64_t mixed = (was.lo ^ (was.hi << 21 | was.hi >> 43)) * UINT64_C(0xd6e8feb86659fd93);
    cell.lo = (cell.lo & ~UINT64_C(0x7fff)) | mixed >> 49;
    cell.hi = (cell.hi & ~UINT64_C(0x1ffff)) | (mixed >> 20 & 0x1ffff);
    return cell;
}

/*
 * Expands an anchor to 64 bits. It must lie between 3.9 years before and half a year after now_us. An anchor after now
 * means that the clock was stepped back; an anchor older than 3.9 years is misread as one.
 */
static inline int64_t weir__anchor_expand(uint64_t anchor, int64_t now_us)
{
    uint64_t age = ((uint64_t)now_us - anchor) & WEIR__TIME_MASK;
    if (age < UINT64_C(7) << (WEIR__TIME_BITS - 3))
        return now_us - (int64_t)age;
    return now_us + (int64_t)(WEIR__TIME_MASK + 1 - age);
}

/*
 * Durations are stored as an 8-bit code, rounded up: codes 0 to 4 are microseconds, a code above is a float with a
 * mantissa of 4 to 7: (4 + code % 4) << (code / 4 - 1).
 *
 * Encodes more than 4 us. To round up, it truncates us - 1 and adds 1 to the code, which carries from mantissa 7 into
 * the exponent.
 */
static inline unsigned weir__expiry_encode_long(int64_t us)
{
    uint64_t less = (uint64_t)us - 1;
    unsigned power = ((unsigned)__builtin_clzll(less) ^ 63) - 2; /* leaves 3 bits: 4 to 7 */
    return power * 4 + (unsigned)(less >> power) + 1;
}

/* 4.4 years. Longer durations are stored as this one, which never ends: anchors are at most 3.9 years old. */
#define WEIR__EXPIRY_LONGEST (INT64_C(1) << WEIR__TIME_BITS)

static inline unsigned weir__expiry_encode(int64_t us)
{
    us = us < WEIR__EXPIRY_LONGEST ? us : WEIR__EXPIRY_LONGEST;
    return us > 4 ? weir__expiry_encode_long(us) : us < 0 ? 0 : (unsigned)us;
}

/*
 * An entry whose key was denied is marked, so that it is evicted last. The mark has no bit of its own: codes 185 to
 * 255, which no duration needs, mean the durations of codes 96 to 166 (34 s to 76 days) and the mark. Entries with
 * shorter or longer durations cannot be marked: short ones recover before a flood of keys fills a table, long ones are
 * evicted last anyway.
 */
#define WEIR__EXPIRY_DENIED 185 /* first marked code; 184 is the code of WEIR__EXPIRY_LONGEST */
#define WEIR__EXPIRY_MARKED 96  /* the code that it stands for: 2^25 us */

static inline int64_t weir__expiry_decode(uint64_t code)
{
    code = code < WEIR__EXPIRY_DENIED ? code : code - WEIR__EXPIRY_DENIED + WEIR__EXPIRY_MARKED;
    return code <= 4 ? (int64_t)code : (int64_t)(4 + code % 4) << (code / 4 - 1);
}

static inline bool weir__cell_is_denied(weir__cell cell)
{
    return (cell.lo >> 15 & 0xff) >= WEIR__EXPIRY_DENIED;
}

/* The entry with the mark of a denied key; unchanged if its duration has no marked code. */
static inline weir__cell weir__cell_denied(weir__cell cell)
{
    uint64_t code = cell.lo >> 15 & 0xff, marked = code + (WEIR__EXPIRY_DENIED - WEIR__EXPIRY_MARKED);
    if (code >= WEIR__EXPIRY_MARKED && code < WEIR__EXPIRY_DENIED && marked <= 0xff)
        cell.lo = (cell.lo & ~(UINT64_C(0xff) << 15)) | marked << 15;
    return cell;
}

/* Time to expiry; not positive for an expired entry or an empty slot. */
static inline int64_t weir__cell_life(weir__cell cell, int64_t mono_us, int64_t wall_us)
{
    struct weir__slot_fields p = weir__cell_unpack(cell);
    int64_t now_us = p.wall ? wall_us : mono_us;
    if (!p.tag)
        return INT64_MIN;
    return weir__anchor_expand(p.anchor, now_us) + weir__expiry_decode(p.expiry) - now_us;
}

#endif
