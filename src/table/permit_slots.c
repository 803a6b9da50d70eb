/* Growing a record of permits: see permit_slots.h. */
#include "table/permit_slots.h"

/* Freezes a slot and returns its word. False: the record has changed hands, or too many collisions. */
static bool freeze(const struct weir__op *op, struct weir__record record, uint64_t *place, uint64_t *word)
{
    *word = weir__load64(place);
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        if (!weir__record_is_current(op, record))
            return false;
        if (*word & WEIR__PERMIT_FROZEN || weir__cas64(place, word, *word | WEIR__PERMIT_FROZEN)) {
            *word &= ~WEIR__PERMIT_FROZEN;
            return true;
        }
    }
    return false;
}

/* Fills a new record: the key's slots, if it has a record, and free slots after them. */
static bool fill(const struct weir__op *op, const struct weir__key_record *key, const struct weir__permit_slots *body)
{
    struct weir__permit_slots from =
        key->found ? weir__permit_slots_of(op, key->record, key->head) : (struct weir__permit_slots){0};
    for (int64_t i = 0; i < body->maps; i++)
        weir__store64(&body->map[i], (uint64_t)body->aba_tag << 32);
    for (int64_t i = 0; i < body->capacity; i++) {
        uint64_t word = (uint64_t)op->mono_us << WEIR__PERMIT_EXPIRY_SHIFT;
        if (i < from.capacity && !freeze(op, key->record, &from.place[i], &word))
            return false;
        weir__store64(&body->place[i], word);
        if (weir__permit_is_taken(word, op->mono_us))
            weir__permit_map_mark(body, i, true);
    }
    return true;
}

int weir__permit_slots_grow(const struct weir__op *op, const struct weir__key_location *where,
                            struct weir__key_record *key, int64_t room, int64_t reach, int64_t for_us)
{
    struct weir__record record, old = key->record;
    bool had = key->found;
    if (had) {
        int64_t capacity = weir__permit_slots_of(op, old, key->head).capacity;
        room = room > capacity ? room : capacity;
        reach = reach > weir__permit_reach(key->head) ? reach : weir__permit_reach(key->head);
    }
    int64_t words = room + (room + WEIR__PERMIT_MAP_SLOTS - 1) / WEIR__PERMIT_MAP_SLOTS;
    unsigned size_class = weir__class_for(sizeof(weir__cell) + sizeof(uint64_t) * (uint64_t)words);
    int error = weir__record_take(op, size_class, for_us + for_us / 4 + for_us / 2, had ? &old : NULL, false, &record);
    if (error)
        return error;
    weir__cell head = {WEIR__PERMIT_USE | (uint64_t)reach, (uint32_t)op->mono_us};
    if (!weir__record_publish(op, where, &record, head))
        return 0; /* the lease ended meanwhile: retry */
    struct weir__permit_slots body = weir__permit_slots_of(op, record, head);
    if (!fill(op, key, &body)) {
        weir__record_release(op, record);
        return 0;
    }
    if (weir__key_record_link(op, where, key, record, for_us, &error) && had)
        weir__record_release(op, old);
    return error;
}
