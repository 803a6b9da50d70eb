/* Hooks that run between two steps of the code under test, as another process would: each runs once. */
#ifndef WEIR_TEST_HOOKS_H
#define WEIR_TEST_HOOKS_H

#include <stddef.h>

static inline void run_hook(void (**hook)(void))
{
    void (*now)(void) = *hook;
    *hook = NULL;
    if (now)
        now();
}

#endif
