/*
 * Overload control: signals.c turns samples of the kernel's and the upstreams' counters into load signals, controller.c
 * turns the highest signal into limits and shedding, sampler.c is the agent's loop that does both and publishes the
 * result in the load page. docs/reference/overload.md describes it from outside.
 */
#ifndef WEIR_OVERLOAD_OVERLOAD_H
#define WEIR_OVERLOAD_OVERLOAD_H

#include "base/log.h"
#include "config/config.h"
#include "table/load_page.h"

#include <math.h>

/*
 * ---- The load sampler of the agent ----
 *
 * Samples ten times a second, runs the controller and writes the load page. Of several agents of a segment one writes;
 * the others wait for its lock.
 */

#define WEIR__LOAD_SAMPLE_MS 100 /* between two steps */

struct weir__load_sampler;

/* NULL: the engine has no load page, or memory is exhausted. All arguments must outlive the sampler. */
struct weir__load_sampler *weir__load_sampler_open(const struct weir__config *config, weir *engine,
                                                   const struct weir__logger *log);
void weir__load_sampler_step(struct weir__load_sampler *sampler);
void weir__load_sampler_close(struct weir__load_sampler *sampler);

/* ---- Load signals: one number per signal; 1 is what the configuration calls full. Pure functions. ---- */

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

/* Adds a sample. Each signal is 0 to WEIR__SIGNAL_MAX, or WEIR__SIGNAL_ABSENT. Returns the highest, or
 * WEIR__SIGNAL_ABSENT if all are absent. */
double weir__signals_update(struct weir__signals *signals, const struct weir__load_config *config,
                            const struct weir__load_sample *sample, double signal[WEIR__SIGNALS]);

/*
 * The sojourn time of a request that arrives now, in seconds, by Little's law: requests in flight / completion rate. It
 * is known before any of these requests completes. 0: too few requests to estimate it.
 */
double weir__signals_sojourn(const struct weir__signals *signals);

/* ---- Figures of the kernel: false if the text of the file does not have them ---- */

/* /proc/pressure/…: microseconds since boot in which some task was stalled. */
bool weir__procfs_stalled(const char *text, uint64_t *total_us);
/* /proc/stat: ticks of all processors since boot; busy ones and all. */
bool weir__procfs_busy(const char *text, uint64_t *busy, uint64_t *all);
/* /proc/loadavg: runnable tasks, this one included. */
bool weir__procfs_running(const char *text, uint64_t *running);

/*
 * ---- The controller ----
 *
 * Turns the host's highest load signal into the published level, the throttle of adaptive limits and the shares of
 * requests to shed. Pure functions of the signal and of the elapsed time. All levels and shares are fractions; 1 is
 * what the configuration calls full. A signal may exceed 1.
 */

#define WEIR__SIGNAL_MAX 100.0 /* signals are clamped to this multiple of full */
#define WEIR__STEP_MAX_S 1.0   /* a longer pause between two samples (a stopped process) counts as one second */

static inline double weir__clamp(double value, double low, double high)
{
    return fmin(fmax(value, low), high);
}

/* One step of an exponentially weighted moving average. */
static inline double weir__ewma(double mean, double now, double time_constant_s, double elapsed_s)
{
    return mean + (now - mean) * (1 - exp(-elapsed_s / time_constant_s));
}

/* From weir.yaml. */
struct weir__controller_settings {
    double smooth_s;   /* time constant of the level */
    double adapt_to;   /* set point of the throttle, a level */
    double shed_above; /* shedding begins above this level; 1 and more: never */
};

struct weir__controller {
    double last;          /* highest signal of the previous sample */
    double excess;        /* highest signal, up to excess_max; above 1 only if the previous sample was, too */
    double mean;          /* EWMA of the signal, up to 1 */
    double level;         /* `mean` with hysteresis: the published level */
    double elastic_level; /* for elastic limits: at least `level`, falls slowly */
    double signal_mean;   /* EWMA of the highest signal, beyond 1: shows whether a backlog shrinks */
    double sojourn_mean;  /* EWMA of the sojourn time, in seconds: shows that earlier */
    double integral;      /* natural logarithm of the admitted share, at most 0 */
    double below_s;       /* time since the level was last at the set point or above */
    double shed;          /* classes that are shed, 0 to 3: low, then normal, then high */
};

/*
 * Continues from the values that the previous agent published, so that a restart changes no limit. If there are none
 * (view->known is false), the level starts at the first sample instead of rising to it from 0.
 */
void weir__controller_resume(struct weir__controller *controller, const struct weir__controller_settings *settings,
                             const struct weir__load_view *view, double highest);
/*
 * One control step. `highest` is the highest signal; `sojourn_s` the time that a request spends upstream, by Little's
 * law (0: unknown); `elapsed_s` the time since the previous step.
 */
void weir__controller_step(struct weir__controller *controller, const struct weir__controller_settings *settings,
                           double highest, double sojourn_s, double elapsed_s);
/* Position of adaptive limits between their min (0) and their max (1). */
double weir__controller_throttle(const struct weir__controller *controller,
                                 const struct weir__controller_settings *settings);
/* Share of a class that is shed; `priority` 0 is critical, which never is. */
double weir__controller_shed(const struct weir__controller *controller, int priority);
/* Fills in everything but the signals. */
void weir__controller_view(const struct weir__controller *controller, const struct weir__controller_settings *settings,
                           struct weir__load_view *view);

#endif
