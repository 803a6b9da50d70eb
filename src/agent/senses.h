/*
 * From what is read ten times a second to one number for each signal: 1 is what the configuration calls full. Pure, as
 * the control laws are.
 */
#ifndef WEIR_AGENT_SENSES_H
#define WEIR_AGENT_SENSES_H

#include "agent/config.h"
#include "table/load.h"

/* What was read at one moment; sums are since some beginning. */
struct weir__reading {
    int64_t mono_ns;
    bool has_cpu, has_memory, has_busy, has_running;
    uint64_t cpu_us, memory_us; /* stalled */
    uint64_t busy, ticks;
    uint64_t running;
    unsigned processors;
    struct weir__load_sums upstream;
};

struct weir__senses {
    bool begun;
    struct weir__reading last;
    double done, took_s, errors, failed_s; /* of upstreams, lately: each second counts for less the longer ago it is */
    double baseline_s;                     /* how long an upstream takes without load; 0: not known yet */
};

#define WEIR__SENSES_NONE (-1.0)

/* Takes a reading. A signal is 0 to WEIR__LAW_MOST, or WEIR__SENSES_NONE. Returns the highest, 0 without any. */
double weir__senses_take(struct weir__senses *senses, const struct weir__load_config *config,
                         const struct weir__reading *reading, double signal[WEIR__SIGNALS]);

#endif
