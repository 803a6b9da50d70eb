/*
 * From what is read ten times a second to one number for each signal: 1 is what the configuration calls full. Pure, as
 * the control laws are.
 */
#ifndef WEIR_OVERLOAD_SIGNALS_H
#define WEIR_OVERLOAD_SIGNALS_H

#include "config/config.h"
#include "table/load_page.h"

/* What was read at one moment; sums are since some beginning. */
struct weir__load_sample {
    int64_t mono_ns;
    bool has_cpu, has_memory, has_busy, has_running;
    uint64_t cpu_us, memory_us; /* stalled */
    uint64_t busy, ticks;
    uint64_t running;
    unsigned processors;
    struct weir__upstream_sums upstream;
};

#define WEIR__BASELINE_SLOTS 9

/*
 * How long an upstream takes without load. What is slower becomes the usual only very slowly, so that an overload does
 * not; what is faster only if nothing slower has been seen for a while: where fast and slow requests take turns, the
 * slow ones are no overload. Seconds are those in which there were answers: of silence nothing is learnt.
 */
struct weir__baseline {
    double baseline_s; /* 0: not known yet */
    double steady_s;   /* the mean of some seconds: noise is not the slowest there was */
    double seen_s;     /* since the beginning */
    double slot_s;
    double slowest_s[WEIR__BASELINE_SLOTS]; /* of the last seconds, slot by slot; 0: nothing yet */
    unsigned slot;
};

struct weir__signals {
    bool begun;
    struct weir__load_sample last;
    /* Of upstreams, lately: each second counts for less the longer ago it is. */
    double done, errors;
    /* The same for means: no moment counts for more than others, however many answers there were in it. */
    double good, took_s, bad, failed_s;
    struct weir__baseline usual;
};

#define WEIR__SIGNAL_ABSENT (-1.0)

/* Begins with the baseline of another that was here a moment ago: so what it sees first is not the usual. */
void weir__signals_resume(struct weir__signals *signals, double baseline_s);

/* Takes a reading. A signal is 0 to WEIR__SIGNAL_MAX, or WEIR__SIGNAL_ABSENT. Returns the highest, 0 without any. */
double weir__signals_update(struct weir__signals *signals, const struct weir__load_config *config,
                            const struct weir__load_sample *reading, double signal[WEIR__SIGNALS]);

/*
 * How long a request stays that comes now, by how many there are and how many end in a second: that is known before any
 * of them has ended. 0: there are too few to say.
 */
double weir__signals_sojourn(const struct weir__signals *signals);

#endif
