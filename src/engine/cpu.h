/* Which processor this runs on: threads that run at the same time choose different lines by it. */
#ifndef WEIR_ENGINE_CPU_H
#define WEIR_ENGINE_CPU_H

#include <sched.h> /* sched_getcpu: define _GNU_SOURCE */

static inline unsigned weir__cpu(void)
{
    int cpu = sched_getcpu();
    return cpu < 0 ? 0 : (unsigned)cpu;
}

#endif
