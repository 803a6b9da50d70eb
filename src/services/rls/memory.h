/*
 * Memory for one call: taken piece by piece, given back all at once, and bounded, so that no message makes a worker
 * large. Most calls need no more than the caller's own first piece.
 */
#ifndef WEIR_SERVICES_RLS_MEMORY_H
#define WEIR_SERVICES_RLS_MEMORY_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#define WEIR__RLS_MEMORY_MAX ((size_t)4 << 20) /* several times what a call of the largest sensible size needs */

struct weir__rls_memory {
    char *at, *end;                  /* what is left of the present piece */
    size_t left;                     /* of what may still be asked of the system */
    struct weir__rls_piece *pieces;  /* those from the system */
    bool exhausted;                  /* something was asked for in vain */
    ProtobufCAllocator for_messages; /* the same, in protobuf-c's words */
};

/* `first` is any memory of the caller's that lasts as long. */
void weir__rls_memory_begin(struct weir__rls_memory *memory, void *first, size_t size);
/* Gives everything back. */
void weir__rls_memory_end(struct weir__rls_memory *memory);
/* NULL: there is no more. Aligned for anything, not zeroed. */
void *weir__rls_take(struct weir__rls_memory *memory, size_t size);
/* `count` zeroed things. */
void *weir__rls_array(struct weir__rls_memory *memory, size_t count, size_t size);

#endif
