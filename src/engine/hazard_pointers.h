/*
 * Which set of rules each request is using, so that a replaced one is freed when nobody does any more.
 *
 * A reader writes the pointer of the current set into a slot of its own (a pin) and then looks whether it is still
 * the current one; the writer replaces the pointer and then looks at the pins. Both steps of each are in the one
 * order of all seq_cst operations, so either the writer sees the pin or the reader sees the new pointer. Nobody waits.
 */
#ifndef WEIR_ENGINE_HAZARD_POINTERS_H
#define WEIR_ENGINE_HAZARD_POINTERS_H

#include "base/atomic.h"

#define WEIR__PINS 64

struct weir__pin {
    uint64_t what; /* a pointer, or 0 */
    uint64_t pad[7];
};

struct weir__pins {
    _Alignas(64) uint64_t current; /* a pointer; never 0 while there are readers */
    uint64_t crowd;                /* readers that found no free pin: while there are any, nothing is freed */
    uint64_t pad[6];
    struct weir__pin pin[WEIR__PINS];
};

/* Returns the current pointer, to be used until weir__unpin; *at is the pin, or -1 in a crowd. */
void *weir__pin(struct weir__pins *pins, int *at);
/* The same for those who know their processor: where to look for a free one first. */
void *weir__pin_near(struct weir__pins *pins, unsigned cpu, int *at);
void weir__unpin(struct weir__pins *pins, int at);

/* For the one writer. */
void weir__pins_replace(struct weir__pins *pins, void *with);
/* True if nobody uses `what`, which was replaced before. */
bool weir__pins_free(const struct weir__pins *pins, const void *what);

#endif
