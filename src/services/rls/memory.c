/* The arena of one call: see rls.h. */
#include "services/rls/rls.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN      ((size_t)16)
#define PIECE_SIZE ((size_t)64 << 10)

struct weir__rls_piece {
    struct weir__rls_piece *next;
    _Alignas(16) char bytes[];
};

static void *take_for_message(void *memory, size_t size)
{
    return weir__rls_take(memory, size);
}

static void leave(void *memory, void *pointer)
{
    (void)memory;
    (void)pointer;
}

void weir__rls_memory_begin(struct weir__rls_memory *memory, void *first, size_t size)
{
    size_t skip = -(uintptr_t)first & (ALIGN - 1);
    *memory =
        (struct weir__rls_memory){.left = WEIR__RLS_MEMORY_MAX, .for_messages = {take_for_message, leave, memory}};
    if (skip < size) {
        memory->at = (char *)first + skip;
        memory->end = (char *)first + size;
    }
}

void weir__rls_memory_end(struct weir__rls_memory *memory)
{
    while (memory->pieces) {
        struct weir__rls_piece *piece = memory->pieces;
        memory->pieces = piece->next;
        free(piece);
    }
    memory->at = memory->end = NULL;
}

static bool add_piece(struct weir__rls_memory *memory, size_t size)
{
    size_t room = size > PIECE_SIZE ? size : PIECE_SIZE;
    struct weir__rls_piece *piece = NULL;
    if (room <= memory->left)
        piece = malloc(sizeof *piece + room);
    if (!piece) {
        memory->exhausted = true;
        return false;
    }
    memory->left -= room;
    piece->next = memory->pieces;
    memory->pieces = piece;
    memory->at = piece->bytes;
    memory->end = piece->bytes + room;
    return true;
}

void *weir__rls_take(struct weir__rls_memory *memory, size_t size)
{
    if (size > WEIR__RLS_MEMORY_MAX) {
        memory->exhausted = true;
        return NULL;
    }
    size = size ? (size + ALIGN - 1) & ~(ALIGN - 1) : ALIGN;
    if (size > (size_t)(memory->end - memory->at) && !add_piece(memory, size))
        return NULL;
    void *taken = memory->at;
    memory->at += size;
    return taken;
}

void *weir__rls_array(struct weir__rls_memory *memory, size_t count, size_t size)
{
    if (count > WEIR__RLS_MEMORY_MAX / size) {
        memory->exhausted = true;
        return NULL;
    }
    void *taken = weir__rls_take(memory, count * size);
    return taken ? memset(taken, 0, count * size) : NULL;
}
