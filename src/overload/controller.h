/*
 * The overload controller: turns the host's highest load signal into the published level, the throttle of adaptive
 * limits and the shares of requests to shed. Pure functions of the signal and of the elapsed time.
 *
 * All levels and shares are fractions; 1 is what the configuration calls full. A signal may exceed 1.
 */
#ifndef WEIR_OVERLOAD_CONTROLLER_H
#define WEIR_OVERLOAD_CONTROLLER_H

#include "table/load_page.h"

#define WEIR__SIGNAL_MAX 100.0 /* signals are clamped to this multiple of full */
#define WEIR__STEP_MAX_S 1.0   /* a longer pause between two samples (a stopped process) counts as one second */

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

/* No load has been seen. */
void weir__controller_init(struct weir__controller *controller);
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
