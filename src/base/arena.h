/*
 * Memory of a rule set: taken piece by piece while it is compiled, given back all at once. Bounded, so that no rule
 * file can eat the host's memory.
 */
#ifndef WEIR_BASE_ARENA_H
#define WEIR_BASE_ARENA_H

#include "base/text.h"

struct weir__arena_block;

struct weir__arena {
    struct weir__arena_block *last;
    size_t bytes; /* taken from the system */
    size_t bytes_max;
    bool failed; /* something did not fit or malloc failed: the set must not be used */
    bool full;   /* after `failed`: it was bytes_max, so there is no sense in trying again */
};

/* Zeroed memory, aligned for anything; NULL when there is none, and arena->failed is set. */
void *weir__arena_take(struct weir__arena *arena, size_t bytes);
/* `count` elements of `bytes` each, zeroed. */
void *weir__arena_array(struct weir__arena *arena, size_t count, size_t bytes);
/* A copy that is followed by a zero byte. {NULL, 0} when there is no memory. */
weir_text weir__arena_copy(struct weir__arena *arena, weir_text text);
void weir__arena_free(struct weir__arena *arena);

#endif
