/* The control laws: see controller.h. */
#include "overload/controller.h"

#include <math.h>

#define WAITS_MAX_S 3600.0
#define STEP_MAX_S  1.0  /* after a longer pause (the process was stopped) nothing is known of the time between */
#define HYSTERESIS  0.01 /* changes of the level by less are not shown, so that limits do not flicker */

#define CLAIMED_DOWN 0.02 /* a second: what elastic limits had to withdraw is given again in small steps */

#define BAND    0.03 /* beside the target, in which the integral rests */
#define BASE    0.15 /* of what passes at throttle 0 */
#define GAIN    0.25 /* the proportional part: a level that is 0.1 too high lets 2.5 % less pass */
#define DOWN    0.08 /* a second: how fast the integral sinks at a level of 1 ... */
#define FAR     0.42 /* ... and how much faster when it has been there ... */
#define FAR_S   2.5  /* ... for so long: then it is not a moment's. Sooner, the further beyond its end the signal is */
#define ABOVE_S 10.0 /* longer is not remembered: after half of it a peak is a moment's again, whatever was before */
#define FASTER  4.0  /* all of this so many times as fast at the most, the further beyond its end the signal is */
#define FALL    0.12 /* a second: what falls so fast by itself is not cut any more */
#define FALL_S  0.3  /* time constant by which that is seen */
#define UP      0.20 /* a second, without any load */
#define UP_SLOW 0.20 /* of this, after an overload: what may pass is looked for carefully */
#define CALM_S  12.0 /* after so long without one, at full speed again */

#define QUICK      5.0  /* the level follows so many times as fast at the most, the same */
#define DRAIN_FROM 2.0  /* what is further beyond is a backlog ... */
#define DRAIN      0.25 /* ... and while it is there less passes: 1 / (1 + this × how far) of what may otherwise ... */
#define DRAIN_MOST 0.45 /* ... but not less than this */

#define SHED_UP    1.0 /* classes a second at a level of 1 */
#define SHED_LEAST 0.1 /* of this, just above the threshold */
#define SHED_DOWN  0.1 /* classes a second ... */
#define SHED_FREE  2.0 /* ... and so many times this more without any load: then too much is shed */
#define SHED_BAND  0.05
#define SHED_LAST  3.0 /* low, normal and high */

static double between(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

void weir__controller_init(struct weir__controller *controller)
{
    *controller = (struct weir__controller){.held = 1, .calm_s = CALM_S};
}

/* The proportional part: which share passes of what the integral allows. */
static double passing(const struct weir__controller *controller, const struct weir__controller_settings *settings)
{
    double backlog = fmax(0, controller->sure - DRAIN_FROM);
    return (1 - GAIN * (controller->level - settings->adapt_to)) * fmax(DRAIN_MOST, 1 / (1 + DRAIN * backlog));
}

void weir__controller_resume(struct weir__controller *controller, const struct weir__controller_settings *settings,
                             const struct weir__load_view *view, double highest)
{
    weir__controller_init(controller);
    controller->level = controller->smoothed =
        view->known ? (double)view->level / WEIR__LOAD_FULL : between(highest, 0, 1);
    controller->elastic_level = controller->level;
    controller->before = controller->sure = controller->beyond = between(highest, 0, WEIR__SIGNAL_MAX);
    if (!view->known)
        return;
    controller->elastic_level = fmax(controller->level, (double)view->elastic_level / WEIR__LOAD_FULL);
    /* The inverse of weir__controller_throttle and weir__controller_shed. */
    double passes = (double)view->throttle / WEIR__LOAD_FULL + BASE;
    controller->held = between(passes / passing(controller, settings) - BASE, 0, 1);
    controller->calm_s = controller->held < 1 ? 0 : CALM_S;
    for (int i = 1; i < WEIR__LOAD_CLASSES; i++)
        controller->shed += (double)view->shed[i] / WEIR__LOAD_FULL;
}

static void level_step(struct weir__controller *controller, double smooth_s, double highest, double passed_s)
{
    controller->smoothed += (highest - controller->smoothed) * (1 - exp(-passed_s / smooth_s));
    /* The ends are reached, too, though smoothing comes only ever nearer. */
    if (fabs(highest - controller->smoothed) < HYSTERESIS / 2 && (highest <= 0 || highest >= 1))
        controller->smoothed = highest;
    if (fabs(controller->smoothed - controller->level) >= HYSTERESIS || controller->smoothed <= 0 ||
        controller->smoothed >= 1)
        controller->level = controller->smoothed;
}

static bool falls(double *smoothed, double now, double passed_s)
{
    double before = *smoothed;
    *smoothed += (now - before) * (1 - exp(-passed_s / FALL_S));
    return before - *smoothed > FALL * passed_s * *smoothed;
}

/*
 * A backlog that is being worked off keeps the level at its end. That it gets better is said by the signal itself, as
 * it is beyond that; and by how long requests stay, while those end that have waited for the longest.
 */
static bool gets_better(struct weir__controller *controller, double highest, double waits_s, double passed_s)
{
    bool signal = falls(&controller->beyond, highest, passed_s) && controller->beyond > 1;
    return falls(&controller->waits_s, waits_s, passed_s) || signal;
}

static void throttle_step(struct weir__controller *controller, const struct weir__controller_settings *settings,
                          bool better, double passed_s)
{
    double from = settings->adapt_to + BAND, to = settings->adapt_to - BAND;
    double above = between((controller->level - from) / (1 - from), 0, 1),
           below = between((to - controller->level) / to, 0, 1);
    controller->above_s =
        above > 0 ? fmin(controller->above_s + passed_s, ABOVE_S) : fmax(0, controller->above_s - 2 * passed_s);
    controller->calm_s = above > 0 ? 0 : controller->calm_s + passed_s;
    double calm = controller->calm_s / CALM_S;
    double far =
        fmin(1, controller->above_s * fmax(1, controller->beyond) / FAR_S) * between(controller->sure, 1, FASTER);
    double down = DOWN * above + FAR * above * above * above * far;
    double rate = UP * below * fmin(1, UP_SLOW + calm * calm) - (better ? 0 : down);
    controller->held = between((controller->held + BASE) * exp(rate * passed_s) - BASE, 0, 1);
}

static void shed_step(struct weir__controller *controller, const struct weir__controller_settings *settings,
                      bool better, double passed_s)
{
    double from = settings->shed_above;
    if (from >= 1)
        controller->shed = 0;
    else if (controller->level > from && !better)
        controller->shed +=
            passed_s * SHED_UP * (SHED_LEAST + (1 - SHED_LEAST) * (controller->level - from) / (1 - from));
    else if (controller->level < from - SHED_BAND)
        controller->shed -= passed_s * SHED_DOWN * (1 + SHED_FREE * pow(1 - controller->level / (from - SHED_BAND), 4));
    controller->shed = between(controller->shed, 0, SHED_LAST);
}

void weir__controller_step(struct weir__controller *controller, const struct weir__controller_settings *settings,
                           double highest, double waits_s, double passed_s)
{
    double seconds = between(passed_s, 0, STEP_MAX_S), now = between(highest, 0, WEIR__SIGNAL_MAX);
    controller->sure = fmin(now, controller->before); /* one look may be a moment's */
    controller->before = now;
    level_step(controller, settings->smooth_s / between(controller->sure, 1, QUICK), between(highest, 0, 1), seconds);
    controller->elastic_level = fmax(controller->level, controller->elastic_level - CLAIMED_DOWN * seconds);
    bool better = gets_better(controller, now, between(waits_s, 0, WAITS_MAX_S), seconds);
    throttle_step(controller, settings, better, seconds);
    shed_step(controller, settings, better, seconds);
}

double weir__controller_throttle(const struct weir__controller *controller,
                                 const struct weir__controller_settings *settings)
{
    return between((controller->held + BASE) * passing(controller, settings) - BASE, 0, 1);
}

double weir__controller_shed(const struct weir__controller *controller, int priority)
{
    return between(controller->shed - (SHED_LAST - priority), 0, 1);
}

static uint32_t per_mille(double share)
{
    return (uint32_t)(share * WEIR__LOAD_FULL + 0.5);
}

void weir__controller_view(const struct weir__controller *controller, const struct weir__controller_settings *settings,
                           struct weir__load_view *view)
{
    view->level = per_mille(controller->level);
    view->elastic_level = per_mille(controller->elastic_level);
    view->throttle = per_mille(weir__controller_throttle(controller, settings));
    for (int i = 0; i < WEIR__LOAD_CLASSES; i++)
        view->shed[i] = per_mille(weir__controller_shed(controller, i));
    view->known = true;
}
