/*
 * Which lines decisions touch, exactly: not every key is in its home line. A decision on one that is not touches that
 * line and then the other one. So the ids are put into the bare memory by the table's own rule, and each request knows
 * both of its places before anything is measured.
 */
#include "cli/bench.h"

#include <stdlib.h>

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

static uint64_t home_of(const struct weir__bench_table *table, uint64_t id)
{
    return scale(weir__bench_mix(id), table->lines);
}

static uint64_t other_of(const struct weir__bench_table *table, uint64_t id)
{
    return scale(weir__bench_mix(~id), table->lines);
}

/* The cell of `line` that has `held` (an id and 1; 0 is a free one), or NULL. */
static struct weir__bench_cell *cell_with(const struct weir__bench_table *table, uint64_t line, uint64_t held)
{
    for (int i = 0; i < 4; i++)
        if (table->bare[line].slot[i].lo == held)
            return &table->bare[line].slot[i];
    return NULL;
}

/* Moves an entry of `line` to its other line, where room is made in the same way, to a depth of so many moves. */
static bool make_room(const struct weir__bench_table *table, uint64_t line, int depth)
{
    for (int i = 0; i < 4; i++) {
        struct weir__bench_cell *from = &table->bare[line].slot[i];
        if (from->lo == 0)
            return true;
        uint64_t home = home_of(table, from->lo - 1), to = line == home ? other_of(table, from->lo - 1) : home;
        if (to == line || (depth > 1 && !make_room(table, to, depth - 1)))
            continue;
        struct weir__bench_cell *room = cell_with(table, to, 0);
        if (room) {
            room->lo = from->lo;
            from->lo = 0;
            return true;
        }
    }
    return false;
}

/* At home if there is room, else in the other line, else where room can be made with the fewest moves. */
static bool place(const struct weir__bench_table *table, uint64_t id)
{
    uint64_t line[2] = {home_of(table, id), other_of(table, id)};
    for (int depth = 0; depth <= MOVES_MAX; depth++) {
        for (int i = 0; i < 2; i++) {
            if (depth && !make_room(table, line[i], depth))
                continue;
            struct weir__bench_cell *cell = cell_with(table, line[i], 0);
            if (cell) {
                cell->lo = id + 1;
                return true;
            }
        }
    }
    return false;
}

bool weir__bench_table_settle(const struct weir__bench_table *table)
{
    for (uint64_t i = 0; i < table->lines * 4; i++)
        table->bare[i / 4].slot[i % 4].lo = 0;
    for (uint64_t id = 0; id < table->keys; id++)
        if (!place(table, id))
            return false;
    return true;
}

bool weir__bench_keys_route(const struct weir__bench_table *table, struct weir__bench_keys *keys)
{
    keys->route = malloc(keys->count * sizeof *keys->route);
    if (!keys->route)
        return false;
    for (size_t i = 0; i < keys->count; i++) {
        uint64_t id = keys->id[i], home = home_of(table, id);
        const struct weir__bench_cell *cell = cell_with(table, home, id + 1);
        if (!cell)
            cell = cell_with(table, other_of(table, id), id + 1);
        if (!cell)
            return false;
        keys->route[i] = (struct weir__bench_step){(uint32_t)home, (uint32_t)(cell - table->bare->slot)};
    }
    return true;
}
