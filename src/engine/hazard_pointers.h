/*
 * Hazard pointers: they protect the published ruleset snapshot while a request uses it, so that a replaced snapshot is
 * freed only when no request can still read it.
 *
 * A reader stores the published pointer in a hazard slot and then checks that it is still the published one; the writer
 * publishes a new pointer and then scans the slots. All four steps are seq_cst, so either the writer sees the slot or
 * the reader sees the new pointer. No reader waits.
 */
#ifndef WEIR_ENGINE_HAZARD_POINTERS_H
#define WEIR_ENGINE_HAZARD_POINTERS_H

#include "base/atomic.h"

#define WEIR__HAZARD_SLOTS 64

struct weir__hazard_slot {
    uint64_t what; /* a pointer; 0: free */
    uint64_t pad[7];
};

struct weir__hazard_pointers {
    _Alignas(64) uint64_t current; /* the published pointer; not 0 while there are readers */
    uint64_t overflow;             /* readers that found no free slot; while it is not 0, nothing is freed */
    uint64_t pad[6];
    struct weir__hazard_slot slot[WEIR__HAZARD_SLOTS];
};

/* Returns the published pointer, valid until weir__hazard_release; *at is the slot, or -1: counted in `overflow`. */
void *weir__hazard_acquire(struct weir__hazard_pointers *hazards, int *at);
/* Acquires for a caller that knows its processor: the search for a free slot begins at `cpu`. */
void *weir__hazard_acquire_on(struct weir__hazard_pointers *hazards, unsigned cpu, int *at);
void weir__hazard_release(struct weir__hazard_pointers *hazards, int at);

/* For the one writer. */
void weir__hazard_publish(struct weir__hazard_pointers *hazards, void *with);
/* True if no reader holds `what`, which is no longer published: it may be freed. */
bool weir__hazard_unused(const struct weir__hazard_pointers *hazards, const void *what);

#endif
