/*
 * An arena: pieces of memory that are freed all at once, e.g. of a rule set or of one call of a service. Bounded, so
 * that no rule file or request can exhaust the host's memory.
 */
#ifndef WEIR_BASE_ARENA_H
#define WEIR_BASE_ARENA_H

#include "base/text.h"

struct weir__arena_block;

struct weir__arena {
    struct weir__arena_block *last;
    size_t bytes; /* taken from the system */
    size_t bytes_max;
    bool failed; /* something did not fit or malloc failed: what was built must not be used */
    bool full;   /* after `failed`: it was bytes_max, so there is no sense in trying again */
};

/* Begins in memory of the caller's, e.g. on the stack; malloc is called only when it is full. */
void weir__arena_borrow(struct weir__arena *arena, void *memory, size_t size);
/* Zeroed memory, aligned for anything; NULL when there is none, and arena->failed is set. */
void *weir__arena_take(struct weir__arena *arena, size_t bytes);
/* `count` elements of `bytes` each, zeroed. */
void *weir__arena_array(struct weir__arena *arena, size_t count, size_t bytes);
/* Zeroed memory that begins at a cache line, for what is read on the hot path. */
void *weir__arena_lines(struct weir__arena *arena, size_t bytes);
/* A copy that is followed by a zero byte. {NULL, 0} when there is no memory. */
weir_text weir__arena_copy(struct weir__arena *arena, weir_text text);
void weir__arena_free(struct weir__arena *arena);

#endif
