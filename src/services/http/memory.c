#include "services/http/memory.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define ROOM  (64 * 1024)
#define ALIGN _Alignof(max_align_t)

static _Alignas(max_align_t) char room[ROOM];
static size_t left; /* of the room, at its end; 0 while nobody is between begin and end */

static void *take(size_t size)
{
    if (size >= left) /* so that no piece begins at the end */
        return malloc(size);
    char *piece = room + (ROOM - left);
    size_t rounded = (size + ALIGN - 1) / ALIGN * ALIGN;
    left -= rounded < left ? rounded : left;
    return piece;
}

static void give(void *piece)
{
    if ((uintptr_t)piece - (uintptr_t)room >= ROOM)
        free(piece);
}

void weir__api_memory_use(void)
{
    json_set_alloc_funcs(take, give);
}

void weir__api_memory_begin(void)
{
#ifndef WEIR__SANITIZED /* a sanitizer should see each piece's bounds and end */
    left = ROOM;
#endif
}

void weir__api_memory_end(void)
{
    left = 0;
}
