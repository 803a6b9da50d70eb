/*
 * A hash map from the number of a parent and a label to a pointer: the children of all nodes of the path index and of
 * the tree of descriptors.
 */
#ifndef WEIR_RULES_LABEL_MAP_H
#define WEIR_RULES_LABEL_MAP_H

#include "base/arena.h"

enum { WEIR__LABEL_SHORT = 16 };

/* Two to a cache line, with the text of most labels: a lookup is one cache miss. */
struct weir__label_slot {
    union {
        char copy[WEIR__LABEL_SHORT]; /* the label, if it has at most WEIR__LABEL_SHORT bytes */
        const char *text;             /* any other */
    };
    uint32_t len;
    uint32_t parent;
    void *value; /* NULL: the slot is free */
};

/* From a parent and a label to a value. Open addressing, at most half full. */
struct weir__label_map {
    struct weir__label_slot *slots;
    size_t mask, count;
    unsigned shift; /* the first slot of a hash is its upper bits: the lower ones depend on few bytes of the label */
};

/* Up to eight bytes as a number. */
static inline uint64_t weir__label_word(const char *text, size_t len)
{
    uint32_t low = 0, high = 0;
    if (len >= 4) {
        memcpy(&low, text, 4);
        memcpy(&high, text + len - 4, 4);
    } else if (len > 0) {
        low = (unsigned char)text[0];
        high = (uint32_t)((unsigned char)text[len / 2] << 8 | (unsigned char)text[len - 1]);
    }
    return (uint64_t)high << 32 | low;
}

/*
 * Unkeyed: only rules are inserted, so requests cannot cause collisions. Most labels have three to ten bytes, for which
 * one or two multiplications suffice.
 */
static inline uint64_t weir__label_hash(weir_text label)
{
    const char *at = label.data;
    size_t left = label.len;
    uint64_t hash = label.len * UINT64_C(0x9e3779b97f4a7c15);

    for (; left > 8; left -= 8, at += 8) {
        hash = (hash ^ weir__label_word(at, 8)) * UINT64_C(0xd6e8feb86659fd93);
        hash ^= hash >> 32;
    }
    return (hash ^ weir__label_word(at, left)) * UINT64_C(0xd6e8feb86659fd93);
}

/* The label's hash does not depend on the parent, so a segment of a request is hashed once for all trees. */
static inline uint64_t weir__label_place(uint32_t parent, uint64_t label_hash)
{
    return label_hash + parent * UINT64_C(0x9e3779b97f4a7c15);
}

static inline weir_text weir__label_text(const struct weir__label_slot *slot)
{
    return (weir_text){slot->len <= WEIR__LABEL_SHORT ? slot->copy : slot->text, slot->len};
}

/* The slot of a label, or the free one where it would go. */
static inline struct weir__label_slot *weir__label_slot(const struct weir__label_map *map, uint32_t parent,
                                                        weir_text label, uint64_t label_hash)
{
    uint64_t hash = weir__label_place(parent, label_hash);

    for (size_t i = hash >> map->shift;; i = (i + 1) & map->mask) {
        struct weir__label_slot *slot = &map->slots[i];
        if (!slot->value || (slot->parent == parent && weir__text_equal(weir__label_text(slot), label)))
            return slot;
    }
}

/*
 * The value of a label, to be set by the caller if it is NULL and the label therefore new. The label's text is kept,
 * not copied, unless it is short. NULL: no memory. A map must have been made by weir__label_map_grow, or an insertion,
 * to be searched.
 */
void **weir__label_insert(struct weir__label_map *map, struct weir__arena *arena, uint32_t parent, weir_text label);
/* False: no memory. */
bool weir__label_map_grow(struct weir__label_map *map, struct weir__arena *arena);

#endif
