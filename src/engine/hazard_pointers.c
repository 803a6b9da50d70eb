/*
 * Hazard pointers: they protect the published ruleset snapshot while a request uses it, so that a replaced snapshot is
 * freed only when no request can still read it.
 *
 * A reader stores the published pointer in a hazard slot and then checks that it is still the published one; the writer
 * publishes a new pointer and then scans the slots. All four steps are seq_cst, so either the writer sees the slot or
 * the reader sees the new pointer. No reader waits.
 */
#include "engine/engine.h"

__attribute__((hot)) void *weir__hazard_acquire_on(struct weir__hazard_pointers *hazards, unsigned cpu, int *at)
{
    for (unsigned i = 0; i < WEIR__HAZARD_SLOTS; i++) {
        unsigned try = (cpu + i) % WEIR__HAZARD_SLOTS;
        struct weir__hazard_slot *slot = &hazards->slot[try];
        uint64_t empty = 0, what = weir__load64_ordered(&hazards->current);
        if (!weir__cas64(&slot->what, &empty, what))
            continue;
        /* Repeats only if a reload falls between the two loads; there is at most one a second. */
        for (uint64_t now; (now = weir__load64_ordered(&hazards->current)) != what; what = now)
            weir__store64_ordered(&slot->what, now);
        *at = (int)try;
        return (void *)(uintptr_t)what;
    }
    *at = -1;
    weir__add64(&hazards->overflow, 1);
    return (void *)(uintptr_t)weir__load64_ordered(&hazards->current);
}

void *weir__hazard_acquire(struct weir__hazard_pointers *hazards, int *at)
{
    return weir__hazard_acquire_on(hazards, weir__cpu(), at);
}

__attribute__((hot)) void weir__hazard_release(struct weir__hazard_pointers *hazards, int at)
{
    if (at < 0)
        weir__add64(&hazards->overflow, UINT64_MAX);
    else
        weir__store64(&hazards->slot[at].what, 0);
}

bool weir__hazard_unused(const struct weir__hazard_pointers *hazards, const void *what)
{
    if (weir__load64_ordered(&hazards->overflow))
        return false;
    for (int i = 0; i < WEIR__HAZARD_SLOTS; i++)
        if (weir__load64_ordered(&hazards->slot[i].what) == (uint64_t)(uintptr_t)what)
            return false;
    return true;
}
