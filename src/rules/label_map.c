/* The hash map of labels: insertion. See label_map.h. */
#include "rules/label_map.h"

bool weir__label_map_grow(struct weir__label_map *map, struct weir__arena *arena)
{
    struct weir__label_map old = *map;
    size_t room = old.slots ? 2 * (old.mask + 1) : 64;
    struct weir__label_slot *slots = weir__arena_lines(arena, room * sizeof *slots);

    if (!slots)
        return false;
    *map = (struct weir__label_map){slots, room - 1, old.count, 64 - (unsigned)__builtin_ctzl(room)};
    for (size_t i = 0; old.slots && i <= old.mask; i++) {
        const struct weir__label_slot *slot = &old.slots[i];
        weir_text label = weir__label_text(slot);
        if (slot->value)
            *weir__label_slot(map, slot->parent, label, weir__label_hash(label)) = *slot;
    }
    return true;
}

void **weir__label_insert(struct weir__label_map *map, struct weir__arena *arena, uint32_t parent, weir_text label)
{
    if ((!map->slots || 2 * (map->count + 1) > map->mask + 1) && !weir__label_map_grow(map, arena))
        return NULL;
    struct weir__label_slot *slot = weir__label_slot(map, parent, label, weir__label_hash(label));
    if (!slot->value) {
        *slot = (struct weir__label_slot){.text = label.data, .len = (uint32_t)label.len, .parent = parent};
        if (label.len - 1 < WEIR__LABEL_SHORT)
            memcpy(slot->copy, label.data, label.len);
        map->count++;
    }
    return &slot->value;
}
