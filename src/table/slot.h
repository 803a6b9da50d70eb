/*
 * What the 128 bits of a slot mean.
 *
 *     lo:  tag 34 | state 3 | version 3 | wall 1 | whole 8 | used, high 15
 *     hi:  anchor 47 | used, low 17
 *
 * tag     of the key's hash; 0 is an empty slot (its other bits are a nonce, so that no two emptinesses of a slot
 *         are alike and a late compare-and-swap cannot mistake one for another)
 * state   see below
 * version counts the moves of the entry, so that one that is moved back and forth does not look as it did before
 * wall    the anchor is on the wall clock, not on the monotonic one
 * whole   how long after the anchor the entry equals no entry; a small float, rounded up. The same times have other
 *         codes in an entry whose key was denied
 * used    units counted since the anchor; for keys in the slab, where
 * anchor  microseconds, modulo 2^47 (4.4 years)
 *
 * One compare-and-swap changes all of it: there is no moment at which a key, its count and its time do not belong
 * together. Whoever needs a slot can tell from the slot alone whether it is free, without knowing its limit.
 */
#ifndef WEIR_TABLE_SLOT_H
#define WEIR_TABLE_SLOT_H

#include "base/atomic.h"

#define WEIR__TAG_BITS  34
#define WEIR__TAG_MASK  ((UINT64_C(1) << WEIR__TAG_BITS) - 1)
#define WEIR__TIME_BITS 47
#define WEIR__TIME_MASK ((UINT64_C(1) << WEIR__TIME_BITS) - 1)

/*
 * NORMAL     counts
 * TENTATIVE  claimed for a key by somebody who has yet to see whether another has done the same; counts nothing
 * RESERVED   kept for an entry that is about to be moved here; counts nothing
 * FROZEN     being moved to slot `state & 3` of its other line; not to be changed, only to be moved on
 * LANDED     the copy at the other end; not to be changed before the FROZEN one is gone
 *
 * TENTATIVE and RESERVED carry a nonce in place of a count, so that none looks like one before it.
 */
enum weir__cell_state {
    WEIR__NORMAL = 0,
    WEIR__TENTATIVE,
    WEIR__RESERVED,
    WEIR__LANDED,
    WEIR__FROZEN /* | destination */
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

/* The tag where an entry has it, all else 0. The upper bits of `tag` do not matter, so a whole hash will do. */
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

/* True if the entry counts for this tag. */
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

/* The version an entry goes on with when it is rewritten in place. */
static inline unsigned weir__version_kept(weir__cell seen)
{
    return weir__is_normal(seen.lo) ? weir__cell_version(seen.lo) : 0;
}

/* An empty slot that looks like none before it: the nonce is made from what was there. */
static inline weir__cell weir__cell_empty(weir__cell was)
{
    uint64_t mixed = (was.lo ^ (was.hi >> 29)) * UINT64_C(0x9e3779b97f4a7c15);
    weir__cell empty = {(mixed >> 36), was.hi + mixed + 1};
    return empty;
}

/* `cell` with a nonce in place of its count, made from what it replaces: no slot holds the same one twice. */
static inline weir__cell weir__cell_with_aba_tag(weir__cell cell, weir__cell was)
{
    uint64_t mixed = (was.lo ^ (was.hi << 21 | was.hi >> 43)) * UINT64_C(0xd6e8feb86659fd93);
    cell.lo = (cell.lo & ~UINT64_C(0x7fff)) | mixed >> 49;
    cell.hi = (cell.hi & ~UINT64_C(0x1ffff)) | (mixed >> 20 & 0x1ffff);
    return cell;
}

/*
 * The full time of an anchor, given that it lies at most 3.9 years before or half a year after now_us. An anchor
 * ahead of now means that the clock was stepped back; one that is older than 3.9 years looks like that, too.
 */
static inline int64_t weir__anchor_expand(uint64_t anchor, int64_t now_us)
{
    uint64_t age = ((uint64_t)now_us - anchor) & WEIR__TIME_MASK;
    if (age < UINT64_C(7) << (WEIR__TIME_BITS - 3))
        return now_us - (int64_t)age;
    return now_us + (int64_t)(WEIR__TIME_MASK + 1 - age);
}

/*
 * A duration as 8 bits: 4, 5, 6 or 7 times a power of two, rounded up; 0 is no time at all. This one is for more than
 * 4 us. One less is rounded down, and one added to that: so the mantissa may become 8, which is 4 at the next power,
 * and that is what the sum makes of it.
 */
static inline unsigned weir__expiry_encode_long(int64_t us)
{
    uint64_t less = (uint64_t)us - 1;
    unsigned power = ((unsigned)__builtin_clzll(less) ^ 63) - 2; /* leaves 3 bits: 4 to 7 */
    return power * 4 + (unsigned)(less >> power) + 1;
}

/* Longer is for ever: no anchor is taken for older than 3.9 years, and this is 4.4. */
#define WEIR__EXPIRY_LONGEST (INT64_C(1) << WEIR__TIME_BITS)

static inline unsigned weir__expiry_encode(int64_t us)
{
    us = us < WEIR__EXPIRY_LONGEST ? us : WEIR__EXPIRY_LONGEST;
    return us > 4 ? weir__expiry_encode_long(us) : us < 0 ? 0 : (unsigned)us;
}

/*
 * Codes from here on are those from WEIR__EXPIRY_MARKED on, of entries whose keys were denied: 33 s to 86 days. Entries
 * of less or more cannot be marked. The former recover before a flood has filled a table, the latter last longest as it
 * is.
 */
#define WEIR__EXPIRY_DENIED 185 /* the code of WEIR__EXPIRY_LONGEST is the one before */
#define WEIR__EXPIRY_MARKED 96  /* 2^25 us */

static inline uint64_t weir__expiry_unmarked(uint64_t code)
{
    return code < WEIR__EXPIRY_DENIED ? code : code - WEIR__EXPIRY_DENIED + WEIR__EXPIRY_MARKED;
}

static inline int64_t weir__expiry_decode(uint64_t code)
{
    code = weir__expiry_unmarked(code);
    return code <= 4 ? (int64_t)code : (int64_t)(4 + code % 4) << (code / 4 - 1);
}

static inline bool weir__cell_is_denied(weir__cell cell)
{
    return (cell.lo >> 15 & 0xff) >= WEIR__EXPIRY_DENIED;
}

/* The entry, marked as one of a key that was denied, if its time has such a code. It means the same otherwise. */
static inline weir__cell weir__cell_denied(weir__cell cell)
{
    uint64_t code = cell.lo >> 15 & 0xff, marked = code + (WEIR__EXPIRY_DENIED - WEIR__EXPIRY_MARKED);
    if (code >= WEIR__EXPIRY_MARKED && code < WEIR__EXPIRY_DENIED && marked <= 0xff)
        cell.lo = (cell.lo & ~(UINT64_C(0xff) << 15)) | marked << 15;
    return cell;
}

/* When the entry equals no entry. */
static inline int64_t weir__cell_expiry(weir__cell cell, int64_t mono_us, int64_t wall_us)
{
    struct weir__slot_fields p = weir__cell_unpack(cell);
    return weir__anchor_expand(p.anchor, p.wall ? wall_us : mono_us) + weir__expiry_decode(p.expiry);
}

/* How long until the entry equals no entry; not positive if it does already, or is none. */
static inline int64_t weir__cell_life(weir__cell cell, int64_t mono_us, int64_t wall_us)
{
    if (!weir__cell_tag(cell.lo))
        return INT64_MIN;
    return weir__cell_expiry(cell, mono_us, wall_us) - (cell.lo >> 23 & 1 ? wall_us : mono_us);
}

#endif
