/*
 * Which cache lines decisions touch: not every key is in its primary bucket, and a decision on one that is not touches
 * that bucket and then the alternate one. So the ids are distributed over buckets by the table's rule, and each request
 * knows both of its places before the measurement.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>

enum { MOVES_MAX = 6 }; /* for one key, as in the table (table/lines.c) */

static uint64_t scale(uint64_t hash, uint64_t range)
{
    __extension__ typedef unsigned __int128 u128;
    return (uint64_t)((u128)hash * range >> 64);
}

uint64_t weir__bench_mix(uint64_t id)
{
    id = (id ^ id >> 32) * UINT64_C(0xd6e8feb86659fd93);
    id = (id ^ id >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return id ^ id >> 32;
}

/* As many lines as the table has. */
struct lines {
    struct weir__bench_line *line;
    uint64_t count;
};

static uint64_t home_of(const struct lines *all, uint64_t id)
{
    return scale(weir__bench_mix(id), all->count);
}

static uint64_t other_of(const struct lines *all, uint64_t id)
{
    return scale(weir__bench_mix(~id), all->count);
}

/* The cell of `line` that has `held` (an id and 1; 0 is a free one), or NULL. */
static struct weir__bench_cell *cell_with(const struct lines *all, uint64_t line, uint64_t held)
{
    for (int i = 0; i < 4; i++)
        if (all->line[line].slot[i].lo == held)
            return &all->line[line].slot[i];
    return NULL;
}

/* Moves an entry of `line` to its other line, where room is made in the same way, to a depth of so many moves. */
static bool make_room(const struct lines *all, uint64_t line, int depth)
{
    for (int i = 0; i < 4; i++) {
        struct weir__bench_cell *from = &all->line[line].slot[i];
        if (from->lo == 0)
            return true;
        uint64_t home = home_of(all, from->lo - 1), to = line == home ? other_of(all, from->lo - 1) : home;
        if (to == line || (depth > 1 && !make_room(all, to, depth - 1)))
            continue;
        struct weir__bench_cell *room = cell_with(all, to, 0);
        if (room) {
            room->lo = from->lo;
            from->lo = 0;
            return true;
        }
    }
    return false;
}

/* At home if there is room, else in the other line, else where room can be made with the fewest moves. */
static bool place(const struct lines *all, uint64_t id)
{
    uint64_t line[2] = {home_of(all, id), other_of(all, id)};
    for (int depth = 0; depth <= MOVES_MAX; depth++) {
        for (int i = 0; i < 2; i++) {
            if (depth && !make_room(all, line[i], depth))
                continue;
            struct weir__bench_cell *cell = cell_with(all, line[i], 0);
            if (cell) {
                cell->lo = id + 1;
                return true;
            }
        }
    }
    return false;
}

static bool settle(const struct lines *all, uint64_t keys)
{
    for (uint64_t id = 0; id < keys; id++)
        if (!place(all, id))
            return false;
    return true;
}

/* Looks up where the keys are. False: one is missing. */
static bool look_up(const struct lines *all, const struct weir__bench_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++) {
        uint64_t id = keys->id[i], home = home_of(all, id);
        const struct weir__bench_cell *cell = cell_with(all, home, id + 1);
        if (!cell)
            cell = cell_with(all, other_of(all, id), id + 1);
        if (!cell)
            return false;
        keys->route[i] = (struct weir__bench_step){(uint32_t)home, (uint32_t)(cell - all->line->slot)};
    }
    return true;
}

bool weir__bench_keys_route(const struct weir__bench_table *table, struct weir__bench_keys *keys)
{
    size_t bytes = table->lines * sizeof(struct weir__bench_line);
    struct lines all = {aligned_alloc(sizeof(struct weir__bench_line), bytes), table->lines};
    keys->route = malloc(keys->count * sizeof *keys->route);
    bool done = all.line && keys->route;
    if (done) {
        memset(all.line, 0, bytes);
        done = settle(&all, table->keys) && look_up(&all, keys);
    }
    free(all.line);
    return done;
}
