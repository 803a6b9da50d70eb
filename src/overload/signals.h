/*
 * Load signals: turns samples of the kernel's and the upstreams' counters, ten a second, into one number per signal; 1
 * is what the configuration calls full. Pure functions.
 */
#ifndef WEIR_OVERLOAD_SIGNALS_H
#define WEIR_OVERLOAD_SIGNALS_H

#include "config/config.h"
#include "table/load_page.h"

/* Counters at one moment; they only grow. */
struct weir__load_sample {
    int64_t mono_ns;
    bool has_cpu, has_memory, has_busy, has_running;
    uint64_t cpu_us, memory_us; /* time that some task was stalled (PSI) */
    uint64_t busy, ticks;       /* processor time, in ticks */
    uint64_t running;           /* runnable tasks now */
    unsigned processors;
    struct weir__upstream_sums upstream;
};

#define WEIR__BASELINE_SLOTS 9

/*
 * The baseline: the latency of upstreams without load. It rises with a time constant of 15 minutes, so that an overload
 * does not become the baseline. It falls to the maximum, over the last 45 s, of the 4-second mean: where cheap and
 * expensive requests alternate, the expensive ones are no overload. Only seconds with responses count.
 */
struct weir__baseline {
    double baseline_s;                  /* 0: unknown */
    double mean_s;                      /* EWMA of the latency over 4 s */
    double seen_s;                      /* time since the start */
    double slot_s;                      /* time in the current slot */
    double max_s[WEIR__BASELINE_SLOTS]; /* ring of the maxima of mean_s, one per 5 s; 0: none yet */
    unsigned slot;
};

struct weir__signals {
    bool begun;
    struct weir__load_sample last;
    double done, errors; /* responses in about the last second, decaying exponentially */
    /* Means over time, not over responses: see upstream_add. */
    double good, took_s, bad, failed_s;
    struct weir__baseline baseline;
};

#define WEIR__SIGNAL_ABSENT (-1.0)

/* Starts with the baseline of the previous agent, instead of learning it from what may be an overload. */
void weir__signals_resume(struct weir__signals *signals, double baseline_s);

/* Adds a sample. Each signal is 0 to WEIR__SIGNAL_MAX, or WEIR__SIGNAL_ABSENT. Returns the highest; 0 if all are
 * absent. */
double weir__signals_update(struct weir__signals *signals, const struct weir__load_config *config,
                            const struct weir__load_sample *sample, double signal[WEIR__SIGNALS]);

/*
 * The sojourn time of a request that arrives now, in seconds, by Little's law: requests in flight / completion rate. It
 * is known before any of these requests completes. 0: too few requests to estimate it.
 */
double weir__signals_sojourn(const struct weir__signals *signals);

/* ---- Figures of the kernel: false if the text of the file does not have them ---- */

/* /proc/pressure/…: microseconds since boot in which some task was stalled. */
bool weir__procfs_stalled(weir_text text, uint64_t *total_us);
/* /proc/stat: ticks of all processors since boot; busy ones and all. */
bool weir__procfs_busy(weir_text text, uint64_t *busy, uint64_t *all);
/* /proc/loadavg: runnable tasks, this one included. */
bool weir__procfs_running(weir_text text, uint64_t *running);

#endif
