/* Pins: see hazard_pointers.h for the argument why a pinned set stays. */
#define _GNU_SOURCE /* sched_getcpu */
#include "engine/hazard_pointers.h"
#include "engine/cpu.h"

__attribute__((hot)) void *weir__pin_near(struct weir__pins *pins, unsigned cpu, int *at)
{
    for (unsigned i = 0; i < WEIR__PINS; i++) {
        unsigned try = (cpu + i) % WEIR__PINS;
        struct weir__pin *pin = &pins->pin[try];
        uint64_t empty = 0, what = weir__load64_ordered(&pins->current);
        if (!weir__cas64(&pin->what, &empty, what))
            continue;
        /* Ends as soon as no reload falls into these two lines; there is one a second at the most. */
        for (uint64_t now; (now = weir__load64_ordered(&pins->current)) != what; what = now)
            weir__store64_ordered(&pin->what, now);
        *at = (int)try;
        return (void *)(uintptr_t)what;
    }
    *at = -1;
    weir__add64(&pins->crowd, 1);
    return (void *)(uintptr_t)weir__load64_ordered(&pins->current);
}

void *weir__pin(struct weir__pins *pins, int *at)
{
    return weir__pin_near(pins, weir__cpu(), at);
}

__attribute__((hot)) void weir__unpin(struct weir__pins *pins, int at)
{
    if (at < 0)
        weir__add64(&pins->crowd, UINT64_MAX);
    else
        weir__store64(&pins->pin[at].what, 0);
}

void weir__pins_replace(struct weir__pins *pins, void *with)
{
    weir__store64_ordered(&pins->current, (uint64_t)(uintptr_t)with);
}

bool weir__pins_free(const struct weir__pins *pins, const void *what)
{
    if (weir__load64_ordered(&pins->crowd))
        return false;
    for (int i = 0; i < WEIR__PINS; i++)
        if (weir__load64_ordered(&pins->pin[i].what) == (uint64_t)(uintptr_t)what)
            return false;
    return true;
}
