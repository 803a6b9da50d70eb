/*
 * The control laws: from the host's load to what limits may do about it. Pure functions of what was seen and of how
 * much time has passed; docs/pressure.md explains them and shows their response. All numbers are shares: 1 is full.
 *
 * Level: the highest signal (one bottleneck is enough), smoothed, and shown with hysteresis.
 *
 * Throttle, of adaptive limits: a proportional and an integral part, both relative to what passes now. What passes is
 * about proportional to `throttle + BASE` (a rule's min is not known here), and near the target the load to what
 * passes; so a relative change has the same effect on the level however many times the capacity is offered, and one
 * choice of gains is stable for all of them. A host with a queue sums up what is too much: for that one there is the
 * proportional part, and the integral, which is fast when it must be, rests while a backlog is worked off, and is slow
 * when it looks for what may pass again.
 *
 * Shedding: a position from 0 to 3, how many classes are shed whole: low, then normal, then high; critical never is.
 */
#ifndef WEIR_OVERLOAD_CONTROLLER_H
#define WEIR_OVERLOAD_CONTROLLER_H

#include "table/load_page.h"

struct weir__controller_settings {
    double smooth_s;   /* time constant of the level */
    double adapt_to;   /* the level that throttle steers to */
    double shed_above; /* 1 and more: never */
};

struct weir__controller {
    double smoothed;
    double level;           /* as shown */
    double elastic_level;   /* the same for elastic limits: comes down slowly */
    double held;            /* the integral part of throttle, 0 to 1 */
    double before, sure;    /* the highest signal, which may be far above 1; the lower of it and of the one before */
    double beyond, waits_s; /* the same, and how long requests stay; smoothed */
    double above_s, calm_s; /* for how long the level has been above the target's band; since when it has not */
    double shed;            /* position */
};

/* As it is when nothing has been seen. */
void weir__controller_init(struct weir__controller *controller);
/*
 * Goes on from where another was, by what it has said last; or, where nobody has said anything (view->known is false),
 * from what is seen first: a host that is full must not look empty until the level has been smoothed.
 */
void weir__controller_resume(struct weir__controller *controller, const struct weir__controller_settings *settings,
                             const struct weir__load_view *view, double highest);
#define WEIR__SIGNAL_MAX 100.0 /* more is no more */
/*
 * One step: `highest` is the highest signal, not cut off at 1, so that it can be seen whether an overload grows or goes
 * away; `waits_s` how long requests stay (0: nobody knows), which says it sooner; `passed_s` the time since the last
 * step.
 */
void weir__controller_step(struct weir__controller *controller, const struct weir__controller_settings *settings,
                           double highest, double waits_s, double passed_s);
double weir__controller_throttle(const struct weir__controller *controller,
                                 const struct weir__controller_settings *settings);
/* What share of a class is shed; by priority, 0 is critical. */
double weir__controller_shed(const struct weir__controller *controller, int priority);
/* All of it, for the load page; signals are the caller's. */
void weir__controller_view(const struct weir__controller *controller, const struct weir__controller_settings *settings,
                           struct weir__load_view *view);

#endif
