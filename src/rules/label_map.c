/* The hash map of labels: insertion. See label_map.h. */
#include "rules/label_map.h"

bool weir__label_map_grow(struct weir__label_map *map, struct weir__arena *arena)
{
    struct weir__label_map old = *map;
    size_t room = old.slots ? 2 * (old.mask + 1) : 64;
    struct weir__label_slot *slots = weir__arena_array(arena, room, sizeof *slots);

    if (!slots)
        return false;
    *map = (struct weir__label_map){slots, room - 1, old.count, 64 - (unsigned)__builtin_ctzl(room)};
    for (size_t i = 0; old.slots && i <= old.mask; i++) {
        size_t to = old.slots[i].hash >> map->shift;
        if (!old.slots[i].value)
            continue;
        while (slots[to].value)
            to = (to + 1) & map->mask;
        slots[to] = old.slots[i];
    }
    return true;
}

void **weir__label_insert(struct weir__label_map *map, struct weir__arena *arena, uint32_t parent, weir_text label)
{
    if ((!map->slots || 2 * (map->count + 1) > map->mask + 1) && !weir__label_map_grow(map, arena))
        return NULL;
    struct weir__label_slot *slot = weir__label_slot(map, parent, label, weir__label_hash(label));
    if (!slot->value) {
        *slot = (struct weir__label_slot){weir__label_place(parent, weir__label_hash(label)), label.data,
                                          (uint32_t)label.len, parent, NULL};
        map->count++;
    }
    return &slot->value;
}
