/* The control laws: see law.h. */
#include "agent/law.h"

#include <math.h>

#define STEP_MAX_S 1.0  /* after a longer pause (the process was stopped) nothing is known of the time between */
#define HYSTERESIS 0.01 /* changes of the level by less are not shown, so that limits do not flicker */

#define BAND    0.03 /* beside the target, in which the integral rests */
#define BASE    0.15 /* of what passes at throttle 0 */
#define GAIN    0.25 /* the proportional part: a level that is 0.1 too high lets 2.5 % less pass */
#define DOWN    0.08 /* a second: how fast the integral sinks at a level of 1 ... */
#define FAR     0.42 /* ... and how much faster when it has been there ... */
#define FAR_S   2.5  /* ... for so long: then it is not a moment's. Sooner, the further beyond its end the signal is */
#define ABOVE_S 10.0 /* longer is not remembered: after half of it a peak is a moment's again, whatever was before */
#define FALL    0.12 /* a second: what falls so fast by itself is not cut any more */
#define FALL_S  0.3  /* time constant by which that is seen */
#define UP      0.20 /* a second, without any load */
#define UP_SLOW 0.20 /* of this, after an overload: what may pass is looked for carefully */
#define CALM_S  12.0 /* after so long without one, at full speed again */

#define SHED_UP    1.0 /* classes a second at a level of 1 */
#define SHED_LEAST 0.1 /* of this, just above the threshold */
#define SHED_DOWN  0.1 /* classes a second */
#define SHED_BAND  0.05
#define SHED_LAST  3.0 /* low, normal and high */

static double between(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

void weir__law_begin(struct weir__law *law)
{
    *law = (struct weir__law){.held = 1, .calm_s = CALM_S};
}

void weir__law_resume(struct weir__law *law, const struct weir__law_settings *settings,
                      const struct weir__load_view *view, double highest)
{
    weir__law_begin(law);
    law->level = law->smoothed = view->known ? (double)view->level / WEIR__LOAD_FULL : between(highest, 0, 1);
    law->beyond = between(highest, 0, WEIR__LAW_MOST);
    if (!view->known)
        return;
    /* The inverse of weir__law_throttle and weir__law_shed. */
    double passes = (double)view->throttle / WEIR__LOAD_FULL + BASE;
    law->held = between(passes / (1 - GAIN * (law->level - settings->adapt_to)) - BASE, 0, 1);
    law->calm_s = law->held < 1 ? 0 : CALM_S;
    for (int i = 1; i < WEIR__LOAD_CLASSES; i++)
        law->shed += (double)view->shed[i] / WEIR__LOAD_FULL;
}

static void level_step(struct weir__law *law, double smooth_s, double highest, double passed_s)
{
    law->smoothed += (highest - law->smoothed) * (1 - exp(-passed_s / smooth_s));
    /* The ends are reached, too, though smoothing comes only ever nearer. */
    if (fabs(highest - law->smoothed) < HYSTERESIS / 2 && (highest <= 0 || highest >= 1))
        law->smoothed = highest;
    if (fabs(law->smoothed - law->level) >= HYSTERESIS || law->smoothed <= 0 || law->smoothed >= 1)
        law->level = law->smoothed;
}

/* A backlog that is being worked off keeps the level at its end; the signal itself says that it gets better. */
static bool gets_better(struct weir__law *law, double highest, double passed_s)
{
    double before = law->beyond;
    law->beyond += (highest - law->beyond) * (1 - exp(-passed_s / FALL_S));
    return law->beyond > 1 && before - law->beyond > FALL * passed_s * law->beyond;
}

static void throttle_step(struct weir__law *law, const struct weir__law_settings *settings, bool better,
                          double passed_s)
{
    double from = settings->adapt_to + BAND, to = settings->adapt_to - BAND;
    double above = between((law->level - from) / (1 - from), 0, 1), below = between((to - law->level) / to, 0, 1);
    law->above_s = above > 0 ? fmin(law->above_s + passed_s, ABOVE_S) : fmax(0, law->above_s - 2 * passed_s);
    law->calm_s = above > 0 ? 0 : law->calm_s + passed_s;
    double calm = law->calm_s / CALM_S;
    double down = DOWN * above + FAR * above * above * above * fmin(1, law->above_s * fmax(1, law->beyond) / FAR_S);
    double rate = UP * below * fmin(1, UP_SLOW + calm * calm) - (better ? 0 : down);
    law->held = between((law->held + BASE) * exp(rate * passed_s) - BASE, 0, 1);
}

static void shed_step(struct weir__law *law, const struct weir__law_settings *settings, bool better, double passed_s)
{
    double from = settings->shed_above;
    if (from >= 1)
        law->shed = 0;
    else if (law->level > from && !better)
        law->shed += passed_s * SHED_UP * (SHED_LEAST + (1 - SHED_LEAST) * (law->level - from) / (1 - from));
    else if (law->level < from - SHED_BAND)
        law->shed -= passed_s * SHED_DOWN;
    law->shed = between(law->shed, 0, SHED_LAST);
}

void weir__law_step(struct weir__law *law, const struct weir__law_settings *settings, double highest, double passed_s)
{
    double seconds = between(passed_s, 0, STEP_MAX_S);
    level_step(law, settings->smooth_s, between(highest, 0, 1), seconds);
    bool better = gets_better(law, between(highest, 0, WEIR__LAW_MOST), seconds);
    throttle_step(law, settings, better, seconds);
    shed_step(law, settings, better, seconds);
}

double weir__law_throttle(const struct weir__law *law, const struct weir__law_settings *settings)
{
    return between((law->held + BASE) * (1 - GAIN * (law->level - settings->adapt_to)) - BASE, 0, 1);
}

double weir__law_shed(const struct weir__law *law, int priority)
{
    return between(law->shed - (SHED_LAST - priority), 0, 1);
}

static uint32_t per_mille(double share)
{
    return (uint32_t)(share * WEIR__LOAD_FULL + 0.5);
}

void weir__law_view(const struct weir__law *law, const struct weir__law_settings *settings,
                    struct weir__load_view *view)
{
    view->level = per_mille(law->level);
    view->throttle = per_mille(weir__law_throttle(law, settings));
    for (int i = 0; i < WEIR__LOAD_CLASSES; i++)
        view->shed[i] = per_mille(weir__law_shed(law, i));
    view->known = true;
}
