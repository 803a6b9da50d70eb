/* Others, who come between two steps of somebody's: each once, and then no more. */
#ifndef WEIR_TEST_OTHERS_H
#define WEIR_TEST_OTHERS_H

#include <stddef.h>

static inline void let_others(void (**come)(void))
{
    void (*now)(void) = *come;
    *come = NULL;
    if (now)
        now();
}

#endif
