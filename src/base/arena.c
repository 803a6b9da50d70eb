/* An arena: blocks from malloc that double in size, each handed out from its beginning. */
#include "base/arena.h"

#include <stdlib.h>

#define ALIGN       16
#define BLOCK_FIRST 4096
#define BLOCK_MAX   ((size_t)1 << 20)

/* Followed by the memory that it hands out, aligned like it. */
struct weir__arena_block {
    struct weir__arena_block *before;
    size_t used, size; /* of that memory */
    bool borrowed;     /* the caller's memory */
} __attribute__((aligned(ALIGN)));

/* A new block with room for `bytes`, counted against the bound. */
static struct weir__arena_block *block_new(struct weir__arena *arena, size_t bytes)
{
    size_t total = bytes + sizeof(struct weir__arena_block);
    if (arena->bytes_max && (arena->bytes > arena->bytes_max || total > arena->bytes_max - arena->bytes)) {
        arena->full = true;
        return NULL;
    }
    arena->full = false;
    struct weir__arena_block *block = malloc(total);
    if (!block)
        return NULL;
    *block = (struct weir__arena_block){NULL, 0, bytes, false};
    arena->bytes += total;
    return block;
}

/*
 * A block with room for `bytes`, a multiple of ALIGN. A request larger than a block gets a block of its own, inserted
 * before the current one, whose rest stays usable.
 */
static struct weir__arena_block *block_for(struct weir__arena *arena, size_t bytes)
{
    struct weir__arena_block *last = arena->last;
    if (last && last->size - last->used >= bytes)
        return last;

    size_t block_bytes = last ? last->size + sizeof *last : BLOCK_FIRST / 2;
    block_bytes = (block_bytes < BLOCK_MAX / 2 ? block_bytes * 2 : BLOCK_MAX) - sizeof *last;
    struct weir__arena_block *block = block_new(arena, bytes > block_bytes ? bytes : block_bytes);
    if (!block && bytes < block_bytes)
        block = block_new(arena, bytes); /* near the bound, a small block may still fit */
    if (!block)
        return NULL;
    if (last && bytes > block_bytes) {
        block->before = last->before;
        last->before = block;
    } else {
        block->before = last;
        arena->last = block;
    }
    return block;
}

void weir__arena_borrow(struct weir__arena *arena, void *memory, size_t size)
{
    size_t skip = -(uintptr_t)memory & (ALIGN - 1), header = skip + sizeof(struct weir__arena_block);
    if (size < header)
        return;
    arena->last = (void *)((char *)memory + skip);
    *arena->last = (struct weir__arena_block){NULL, 0, (size - header) / ALIGN * ALIGN, true};
}

void *weir__arena_take(struct weir__arena *arena, size_t bytes)
{
    struct weir__arena_block *block = NULL;

    if (!arena->failed && bytes <= PTRDIFF_MAX - ALIGN - sizeof *block) {
        bytes = (bytes ? bytes + ALIGN - 1 : ALIGN) / ALIGN * ALIGN;
        block = block_for(arena, bytes);
    }
    if (!block) {
        arena->failed = true;
        return NULL;
    }
    char *taken = (char *)(block + 1) + block->used;
    block->used += bytes;
    return memset(taken, 0, bytes);
}

void *weir__arena_array(struct weir__arena *arena, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        arena->failed = true;
        return NULL;
    }
    return weir__arena_take(arena, total);
}

void *weir__arena_lines(struct weir__arena *arena, size_t bytes)
{
    enum { LINE = 64 };
    char *taken = weir__arena_take(arena, bytes < SIZE_MAX - LINE ? bytes + LINE - ALIGN : bytes);
    return taken ? taken + (-(uintptr_t)taken & (LINE - 1)) : NULL;
}

weir_text weir__arena_copy(struct weir__arena *arena, weir_text text)
{
    char *copy = text.len < SIZE_MAX ? weir__arena_take(arena, text.len + 1) : NULL;
    if (!copy)
        return (weir_text){NULL, 0};
    if (text.len)
        memcpy(copy, text.data, text.len);
    return (weir_text){copy, text.len};
}

void weir__arena_free(struct weir__arena *arena)
{
    struct weir__arena_block *block = arena->last;
    while (block) {
        struct weir__arena_block *before = block->before;
        if (!block->borrowed)
            free(block);
        block = before;
    }
    arena->last = NULL;
    arena->bytes = 0;
}
