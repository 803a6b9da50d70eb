/*
 * Concurrency limits: taking, renewing and releasing permits. permits.h has the words of a record.
 *
 * A record's `reach` is the largest limit that it was used with. Under a smaller limit (a tier, or a lowered limit) the
 * record has more slots than permits: the slot is taken first, then all taken slots are counted, and it is released
 * again if they exceed the limit. Of several concurrent takers, the last one counts all others.
 */
#include "table/permits.h"
#include "algo/algo.h"

/* ---- Growing a record ---- */

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

/* Links a record of at least `room` slots to the key, with the permits that it has. Returns 0 to retry, or an error. */
static int grow(const struct weir__op *op, const struct weir__key_location *where, struct weir__key_record *key,
                int64_t room, int64_t reach, int64_t for_us)
{
    struct weir__record record;
    if (key->found) {
        int64_t capacity = weir__permit_slots_of(op, key->record, key->head).capacity;
        room = room > capacity ? room : capacity;
        reach = reach > weir__permit_reach(key->head) ? reach : weir__permit_reach(key->head);
    }
    int64_t word_count = room + (room + WEIR__PERMIT_MAP_SLOTS - 1) / WEIR__PERMIT_MAP_SLOTS;
    unsigned size_class = weir__class_for(sizeof(weir__cell) + sizeof(uint64_t) * (uint64_t)word_count);
    int error = weir__record_take(op, size_class, for_us + for_us / 4 + for_us / 2, key->found ? &key->record : NULL,
                                  false, &record);
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
    error = weir__key_record_link(op, where, key, record, for_us);
    return error < 0 ? error : 0;
}

#define RETRY_NS   WEIR_SECOND /* Retry-After of a denial: the time of the next release is unknown */
#define FIRST_ROOM 5           /* permit slots of a first record, unless the limit is smaller: two chunks */

#define NO_PLACE (-1)
#define MOVED    (-2)

static uint64_t taken_word(uint64_t was, int64_t until_us)
{
    uint64_t sequence = (was + WEIR__PERMIT_SEQUENCE_ONE) & WEIR__PERMIT_SEQUENCE_MASK;
    return ((uint64_t)until_us & WEIR__TIME_MASK) << WEIR__PERMIT_EXPIRY_SHIFT | sequence | WEIR__PERMIT_TAKEN;
}

/* ---- Maps ---- */

static int64_t marked(const struct weir__permit_slots *body)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < body->maps; i++)
        sum += __builtin_popcount((uint32_t)weir__load64(&body->map[i]));
    return sum;
}

/*
 * Checks one slot that the map marks as taken, chosen by the clock, so that expired permits of dead processes are
 * unmarked before they are needed.
 */
static void freshen(const struct weir__permit_slots *body, int64_t now_us)
{
    int64_t base = now_us / WEIR__PERMIT_MAP_SLOTS % body->maps * WEIR__PERMIT_MAP_SLOTS;
    uint32_t from = (uint32_t)now_us % WEIR__PERMIT_MAP_SLOTS,
             taken = (uint32_t)weir__load64(&body->map[base / WEIR__PERMIT_MAP_SLOTS]);
    uint32_t rotated = taken >> from | taken << (WEIR__PERMIT_MAP_SLOTS - from) % WEIR__PERMIT_MAP_SLOTS;
    if (!rotated)
        return;
    int64_t place = base + ((uint32_t)__builtin_ctz(rotated) + from) % WEIR__PERMIT_MAP_SLOTS;
    if (place < body->capacity && !weir__permit_is_taken(weir__load64(&body->place[place]), now_us))
        weir__permit_map_mark(body, place, false);
}

/* ---- Reading ---- */

static int64_t count_taken(const struct weir__permit_slots *body, int64_t now_us)
{
    int64_t taken = 0;
    for (int64_t i = 0; i < body->capacity; i++)
        taken += weir__permit_is_taken(weir__load64(&body->place[i]), now_us);
    return taken;
}

/* All slots are marked as taken: checks each, as permits expire, and corrects the maps. */
static int64_t sweep(const struct weir__permit_slots *body, int64_t usable, int64_t now_us, uint64_t *seen)
{
    int64_t found = NO_PLACE;
    for (int64_t i = 0; i < usable; i++) {
        uint64_t word = weir__load64(&body->place[i]);
        if (word & WEIR__PERMIT_FROZEN)
            return MOVED;
        if (weir__permit_is_taken(word, now_us))
            continue;
        weir__permit_map_mark(body, i, false);
        if (found != NO_PLACE)
            continue;
        found = i;
        *seen = word;
    }
    return found;
}

/* A free slot among the first `usable`; *seen is its word. */
static int64_t pick(const struct weir__permit_slots *body, int64_t usable, int64_t now_us, uint64_t *seen)
{
    for (int64_t base = 0; base < usable; base += WEIR__PERMIT_MAP_SLOTS) {
        uint32_t all = usable - base < WEIR__PERMIT_MAP_SLOTS ? (1U << (usable - base)) - 1 : UINT32_MAX;
        uint32_t open = ~(uint32_t)weir__load64(&body->map[base / WEIR__PERMIT_MAP_SLOTS]) & all;
        for (; open; open &= open - 1) {
            int64_t place = base + __builtin_ctz(open);
            uint64_t word = weir__load64(&body->place[place]);
            if (word & WEIR__PERMIT_FROZEN)
                return MOVED;
            if (!weir__permit_is_taken(word, now_us)) {
                *seen = word;
                return place;
            }
            weir__permit_map_mark(body, place, true);
        }
    }
    return sweep(body, usable, now_us, seen);
}

/* ---- Taking ---- */

static void decide(const weir_limit *limit, int64_t taken, int64_t cost, weir_decision *decision)
{
    weir__decide(limit, taken, cost, WEIR__TAKE, decision);
    if (decision->verdict == WEIR_DENY)
        decision->retry_after_ns = RETRY_NS;
    decision->reset_after_ns = -1; /* the time of the next release is unknown */
}

int weir__permit_peek(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                      int64_t cost, weir_decision *decision)
{
    struct weir__key_record key;
    int error = weir__key_record_find(op, where, &key);
    if (error)
        return error;
    struct weir__permit_slots body =
        key.found ? weir__permit_slots_of(op, key.record, key.head) : (struct weir__permit_slots){0};
    decide(limit, count_taken(&body, op->mono_us), cost > 0, decision);
    return 0;
}

/* True if the permit just taken stands: the record still belongs to the key, and no smaller limit is exceeded. */
static bool may_keep(const struct weir__op *op, const weir_limit *limit, const struct weir__key_record *key,
                     const struct weir__permit_slots *body)
{
    uint64_t head = weir__load64_ordered(&weir__record_head(op, key->record)->lo);
    if (head == key->head.lo && weir__permit_reach(key->head) == limit->cap)
        return true;
    if (weir__head_mark((weir__cell){head, 0}) != weir__head_mark(key->head))
        return false;
    weir__fence(); /* orders the take before the count of the others */
    return count_taken(body, op->mono_us) <= limit->cap;
}

/* Takes slot `place`, whose word is `seen`. False: retry. */
static bool take_place(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                       struct weir__key_record *key, const struct weir__permit_slots *body, int64_t place,
                       uint64_t seen, weir_lease *lease)
{
    if (!weir__key_record_renew(op, key, limit->window_us))
        return false;
    uint64_t word = taken_word(seen, op->mono_us + limit->window_us);
    if (!weir__cas64(&body->place[place], &seen, word)) {
        weir__count(&op->stats->retries, 1);
        return false;
    }
    *lease = (weir_lease){.primary = weir__bucket_in_region(op->table, where->primary),
                          .tag = where->tag,
                          .word = word,
                          .mark = weir__head_mark(key->head),
                          .for_us = limit->window_us,
                          .record = (uint32_t)weir__record_pack(key->record),
                          .place = (uint32_t)place};
    if (!may_keep(op, limit, key, body)) {
        weir__permit_release(op, lease); /* also if the record is being copied into a larger one */
        return false;
    }
    weir__permit_map_mark(body, place, true);
    freshen(body, op->mono_us);
    return true;
}

/* Raises the reach; slots up to it may be used afterwards. */
static void raise(const struct weir__op *op, const weir_limit *limit, struct weir__key_record *key)
{
    weir__cell higher = {weir__head_mark(key->head) | WEIR__PERMIT_USE | (uint64_t)limit->cap, key->head.hi};
    weir__cell_cas(weir__record_head(op, key->record), &key->head, higher);
}

/* One attempt. Returns 1 when decided, 0 to retry, or a negative error. */
static int attempt(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                   weir_lease *lease, weir_decision *decision)
{
    struct weir__key_record key;
    int error = weir__key_record_find(op, where, &key);
    if (error)
        return error;
    if (!key.found)
        return grow(op, where, &key, limit->cap < FIRST_ROOM ? limit->cap : FIRST_ROOM, limit->cap, limit->window_us);
    if (weir__permit_reach(key.head) < limit->cap) {
        raise(op, limit, &key);
        return 0;
    }

    struct weir__permit_slots body = weir__permit_slots_of(op, key.record, key.head);
    uint64_t seen;
    int64_t usable = limit->cap < body.capacity ? limit->cap : body.capacity;
    int64_t taken = weir__permit_reach(key.head) > limit->cap ? count_taken(&body, op->mono_us) : marked(&body);
    bool full = weir__permit_reach(key.head) > limit->cap && taken >= limit->cap;
    int64_t place = full ? NO_PLACE : pick(&body, usable, op->mono_us, &seen);
    if (place == MOVED || (place == NO_PLACE && !full && usable < limit->cap)) {
        int64_t more = place == MOVED ? usable : 2 * usable;
        return grow(op, where, &key, more < limit->cap ? more : limit->cap, limit->cap, limit->window_us);
    }
    if (place == NO_PLACE) {
        (void)weir__slot_mark(key.slot, key.seen);
        decide(limit, limit->cap, 1, decision);
        return 1;
    }
    if (!take_place(op, limit, where, &key, &body, place, seen, lease))
        return 0;
    decide(limit, taken < limit->cap ? taken : limit->cap - 1, 1, decision); /* maps may include expired permits */
    return 1;
}

int weir__permit_take(const struct weir__op *op, const weir_limit *limit, const struct weir__key_location *where,
                      weir_lease *lease, weir_decision *decision)
{
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        int result = attempt(op, limit, where, lease, decision);
        if (result)
            return result > 0 ? 0 : result;
    }
    return WEIR_EBUSY;
}

/* ---- Release and renewal ---- */

/* A lease comes from the caller: values out of range are refused. */
static bool is_sound(const struct weir__op *op, const weir_lease *lease)
{
    return lease->word & WEIR__PERMIT_TAKEN && !(lease->word & WEIR__PERMIT_FROZEN) &&
           lease->primary < op->table->buckets && lease->tag <= WEIR__TAG_MASK && lease->tag > 1 && lease->for_us > 0 &&
           lease->for_us <= WEIR__LEASE_MAX;
}

static struct weir__key_location where_of(const struct weir__op *op, const weir_lease *lease)
{
    struct weir__key_location where = {.tag = lease->tag, .primary = lease->primary};
    weir__locate_alternate(op->table, &where);
    return where;
}

/* Replaces the word of the lease by `next`. */
static bool swap(const struct weir__permit_slots *body, const weir_lease *lease, uint64_t next)
{
    uint64_t seen = lease->word;
    return lease->place < body->capacity && weir__cas64(&body->place[lease->place], &seen, next);
}

/* The common case: the record is where the permit was taken. */
static bool release_there(const struct weir__op *op, const weir_lease *lease)
{
    struct weir__record record = weir__record_unpack(lease->record);
    if ((uint64_t)record.chunk + weir__class_chunks(record.size_class) > op->table->chunks)
        return false;
    weir__cell head = weir__cell_peek(weir__record_head(op, record));
    if (weir__head_mark(head) != lease->mark)
        return false;
    struct weir__permit_slots body = weir__permit_slots_of(op, record, head);
    if (!swap(&body, lease, lease->word & ~WEIR__PERMIT_TAKEN))
        return false;
    weir__permit_map_mark(&body, lease->place, false);
    return true;
}

/* Finds the record and slot of a lease; completes a copy into a larger record that it meets. */
static int find_place(const struct weir__op *op, const weir_lease *lease, struct weir__key_record *key,
                      struct weir__permit_slots *body)
{
    struct weir__key_location where = where_of(op, lease);
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        int error = weir__key_record_find(op, &where, key);
        if (error || !key->found)
            return error ? error : WEIR_ELEASE;
        *body = weir__permit_slots_of(op, key->record, key->head);
        uint64_t word = lease->place < body->capacity ? weir__load64(&body->place[lease->place]) : 0;
        if (word == lease->word)
            return 0;
        if (word != (lease->word | WEIR__PERMIT_FROZEN))
            return WEIR_ELEASE;
        error = grow(op, &where, key, body->capacity, 0, lease->for_us);
        if (error)
            return error;
    }
    return WEIR_EBUSY;
}

int weir__permit_release(const struct weir__op *op, const weir_lease *lease)
{
    struct weir__key_record key;
    struct weir__permit_slots body;
    if (!is_sound(op, lease))
        return WEIR_ELEASE;
    if (release_there(op, lease))
        return 0;
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        int error = find_place(op, lease, &key, &body);
        if (error)
            return error;
        if (!swap(&body, lease, lease->word & ~WEIR__PERMIT_TAKEN))
            continue; /* frozen, or expired */
        weir__permit_map_mark(&body, lease->place, false);
        return 0;
    }
    return WEIR_EBUSY;
}

int weir__permit_renew(const struct weir__op *op, weir_lease *lease)
{
    struct weir__key_record key;
    struct weir__permit_slots body;
    if (!is_sound(op, lease) || !weir__permit_is_taken(lease->word, op->mono_us))
        return WEIR_ELEASE;
    for (int round = 0; round < WEIR__ROUNDS; round++) {
        int error = find_place(op, lease, &key, &body);
        if (error)
            return error;
        /* First the record: it must not expire before the permit. */
        if (!weir__key_record_renew(op, &key, lease->for_us))
            continue;
        uint64_t until = (uint64_t)(op->mono_us + lease->for_us) & WEIR__TIME_MASK;
        uint64_t next =
            until << WEIR__PERMIT_EXPIRY_SHIFT | (lease->word & (WEIR__PERMIT_SEQUENCE_MASK | WEIR__PERMIT_TAKEN));
        if (!swap(&body, lease, next))
            continue;
        lease->word = next;
        lease->record = (uint32_t)weir__record_pack(key.record);
        lease->mark = weir__head_mark(key.head);
        return 0;
    }
    return WEIR_EBUSY;
}
