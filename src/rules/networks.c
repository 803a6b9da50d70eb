/*
 * Sets of networks: sorted ranges of addresses that do not touch, searched by halving. Overlapping networks melt into
 * one range, so that one comparison with the range before an address is enough.
 */
#include "rules/address.h"

#include <stdlib.h>

__extension__ typedef unsigned __int128 weir__address_number;

struct range {
    weir__address_number first, last; /* both inside */
};

struct weir__networks {
    size_t count;
    struct range *ranges;
    /* What ranges begin with, apart from where they end: the search reads only this. */
    weir__address_number *firsts;
};

static weir__address_number number_of(const struct weir__address *address)
{
    uint64_t high, low;

    memcpy(&high, address->bytes, 8);
    memcpy(&low, address->bytes + 8, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    high = __builtin_bswap64(high);
    low = __builtin_bswap64(low);
#endif
    return (weir__address_number)high << 64 | low;
}

static int compare_ranges(const void *a, const void *b)
{
    const struct range *one = a, *other = b;

    return one->first < other->first ? -1 : one->first > other->first;
}

/* Melts sorted ranges that overlap or touch; returns how many remain. */
static size_t melt(struct range *ranges, size_t count)
{
    size_t kept = 0;

    for (size_t i = 1; i < count; i++) {
        struct range *before = &ranges[kept];
        if (ranges[i].first <= before->last || ranges[i].first - before->last == 1) {
            if (ranges[i].last > before->last)
                before->last = ranges[i].last;
        } else {
            ranges[++kept] = ranges[i];
        }
    }
    return count > 0 ? kept + 1 : 0;
}

const struct weir__networks *weir__networks_make(struct weir__arena *arena, const struct weir__network *networks,
                                                 size_t count)
{
    struct weir__networks *set = weir__arena_take(arena, sizeof *set);
    if (!set)
        return NULL;
    if (count == 0)
        return set;
    set->ranges = weir__arena_array(arena, count, sizeof *set->ranges);
    if (!set->ranges)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        int rest = 128 - networks[i].length;
        weir__address_number span = rest == 128 ? ~(weir__address_number)0 : ((weir__address_number)1 << rest) - 1;
        set->ranges[i].first = number_of(&networks[i].address);
        set->ranges[i].last = set->ranges[i].first | span;
    }
    qsort(set->ranges, count, sizeof *set->ranges, compare_ranges);
    set->count = melt(set->ranges, count);
    set->firsts = weir__arena_array(arena, set->count, sizeof *set->firsts);
    if (!set->firsts)
        return NULL;
    for (size_t i = 0; i < set->count; i++)
        set->firsts[i] = set->ranges[i].first;
    return set;
}

bool weir__networks_contain(const struct weir__networks *networks, const struct weir__address *address)
{
    weir__address_number number = number_of(address);
    const weir__address_number *first = networks->firsts;
    size_t rest = networks->count;

    if (rest == 0 || number < first[0])
        return false;
    /* The last range that begins at or before the address is among `rest` from `first`; no branch to mispredict. */
    while (rest > 1) {
        size_t half = rest / 2;
        first = first[half] <= number ? first + half : first;
        rest -= half;
    }
    return number <= networks->ranges[first - networks->firsts].last;
}
