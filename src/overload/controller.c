/*
 * The overload controller: a PI controller with a nonlinear integral gain and conditional integration.
 *
 * Admission control by PI is the scheme of active queue management: Hollot et al., "On Designing Improved Controllers
 * for AQM Routers Supporting TCP Flows", INFOCOM 2001; PIE, RFC 8033. An integral gain that vanishes near the set point
 * is the error-squared controller of Shinskey, "Process Control Systems"; conditional integration is in Åström and
 * Hägglund, "Advanced PID Control". docs/decisions/0002-overload-controller.md has the design.
 *
 * The controlled variable is ln(admitted share): a relative change of the admitted rate has the same effect on the
 * level at any multiple of the capacity, so one pair of gains serves all. Levels, signals and shares have no unit: 1 is
 * what the configuration calls full, and "level 100" below is the level 1 as operators see it. Times are in seconds.
 * With the level y, the set point r, the highest signal b and the error e, which is (y - r) / (1 - r) above the set
 * point and (y - r) / r below it:
 *
 *     ln(share) = integral - kp (y + max(0, b - 1) - r)
 *     d integral / dt = -ki e^3 max(1, b)           above the set point, unless the signal or the sojourn time falls
 *     d integral / dt = regrowth t |e|              below it, t: seconds since the level was at the set point
 */
#include "overload/overload.h"

static const struct {
    double kp;          /* 1: proportional gain, relative change of the admitted rate per unit of level */
    double ki;          /* 1/s: relative decrease of the admitted rate at level 100 */
    double excess_max;  /* multiples of full: signals beyond it act like it */
    double regrowth;    /* 1/s^2: acceleration of the increase below the set point */
    double floor;       /* share: admitted at throttle 0; bounds the integral */
    double dead_band;   /* level: no class returns within it below shed_above; a signal falls if it is so far under its
                           mean, relatively */
    double shed_rate;   /* classes/s: shedding at level 100 */
    double shed_return; /* classes/s: shedding just above shed_above, and return */
} params = {
    .kp = 0.22,         /* damps a queue of 0.1 s of work between empty and full: kp / 0.1 s * 0.7 s of delay < pi/2 */
    .ki = 0.3,          /* cuts the share to a fifth in 5 s at level 100, and in 1 s at 5 times full */
    .excess_max = 5,    /* a higher bound shortens no overload, and cuts the share too far */
    .regrowth = 0.02,   /* share from floor to 1 in 14 s: sqrt(2 * -ln(floor) / regrowth) */
    .floor = 0.14,      /* of the order of the rules' `min`, which the controller does not know */
    .dead_band = 0.05,  /* 5 points of the level that operators see */
    .shed_rate = 1,     /* a class in 1 s: slower than the level, which shows its effect within 2 * smooth_s */
    .shed_return = 0.1, /* a class in 10 s: the level shows meanwhile whether the host bears it */
};

/* Not tuned, but promised in docs/reference/overload.md. */
#define HYSTERESIS     0.01 /* level: smaller changes are not published */
#define ELASTIC_RETURN 0.02 /* level/s: how fast the level of elastic limits falls */
#define SHED_CLASSES   3.0  /* classes: low, normal, high */

#define SOJOURN_MIN_S 0.001 /* resolution of nginx's clock: a mean below it is none */

/* ---- Level ---- */

static void level_step(struct weir__controller *controller, double smooth_s, double elapsed_s)
{
    double now = fmin(controller->excess, 1);
    /* The further a signal is beyond full, the faster the level follows. */
    controller->mean = weir__ewma(controller->mean, now, smooth_s / fmax(1, controller->excess), elapsed_s);
    /* An EWMA never quite reaches 0 or 1. */
    if (fabs(now - controller->mean) < HYSTERESIS / 2 && (now <= 0 || now >= 1))
        controller->mean = now;
    if (fabs(controller->mean - controller->level) >= HYSTERESIS || controller->mean <= 0 || controller->mean >= 1)
        controller->level = controller->mean;
    controller->elastic_level = fmax(controller->level, controller->elastic_level - ELASTIC_RETURN * elapsed_s);
}

/* ---- Throttle ---- */

static double proportional(const struct weir__controller *controller, double set_point)
{
    return params.kp * (controller->mean + fmax(0, controller->excess - 1) - set_point);
}

/* True if the value is below its own recent mean. */
static bool falls(double *mean, double now, double smooth_s, double elapsed_s)
{
    *mean = weir__ewma(*mean, now, smooth_s, elapsed_s);
    return now < *mean * (1 - params.dead_band);
}

/*
 * True while the backlog of an overload shrinks. It keeps the level at 1, but needs no further cut: without this check
 * the integral would wind up until the backlog is gone.
 */
static bool backlog_shrinks(struct weir__controller *controller, double signal, double sojourn_s, double smooth_s,
                            double elapsed_s)
{
    bool signal_falls = falls(&controller->signal_mean, signal, smooth_s, elapsed_s) && controller->signal_mean > 1;
    /* A cut empties the queue, and then the sojourn time is unknown: 0. Its mean forgets the backlog in some seconds.
     */
    bool sojourn_falls =
        falls(&controller->sojourn_mean, sojourn_s, smooth_s, elapsed_s) && controller->sojourn_mean > SOJOURN_MIN_S;
    return sojourn_falls || signal_falls;
}

static void integral_step(struct weir__controller *controller, double set_point, bool shrinks, double elapsed_s)
{
    if (controller->level < set_point) {
        controller->below_s += elapsed_s;
        controller->integral += params.regrowth * controller->below_s * (1 - controller->level / set_point) * elapsed_s;
    } else {
        double error = (controller->level - set_point) / (1 - set_point);
        controller->below_s = 0;
        if (!shrinks)
            controller->integral -= params.ki * error * error * error * fmax(1, controller->excess) * elapsed_s;
    }
    controller->integral = weir__clamp(controller->integral, log(params.floor), 0);
}

double weir__controller_throttle(const struct weir__controller *controller,
                                 const struct weir__controller_settings *settings)
{
    double share = exp(controller->integral - proportional(controller, settings->adapt_to));
    return weir__clamp((share - params.floor) / (1 - params.floor), 0, 1);
}

/* ---- Shedding ---- */

static void shed_step(struct weir__controller *controller, double shed_above, bool shrinks, double elapsed_s)
{
    double error = (controller->level - shed_above) / (1 - shed_above);
    if (shed_above >= 1)
        controller->shed = 0;
    else if (error > 0 && !shrinks)
        controller->shed += elapsed_s * (params.shed_return + (params.shed_rate - params.shed_return) * error);
    else if (controller->level < shed_above - params.dead_band)
        controller->shed -= elapsed_s * params.shed_return;
    controller->shed = weir__clamp(controller->shed, 0, SHED_CLASSES);
}

double weir__controller_shed(const struct weir__controller *controller, int priority)
{
    return weir__clamp(controller->shed - (SHED_CLASSES - priority), 0, 1);
}

/* ---- Both ---- */

void weir__controller_resume(struct weir__controller *controller, const struct weir__controller_settings *settings,
                             const struct weir__load_view *view, double highest)
{
    *controller = (struct weir__controller){0};
    controller->last = controller->signal_mean = weir__clamp(highest, 0, WEIR__SIGNAL_MAX);
    controller->excess = fmin(controller->last, params.excess_max);
    controller->level = view->known ? (double)view->level / WEIR__LOAD_FULL : fmin(controller->last, 1);
    controller->mean = controller->elastic_level = controller->level;
    if (!view->known)
        return;
    controller->elastic_level = fmax(controller->level, (double)view->elastic_level / WEIR__LOAD_FULL);
    /* The inverse of weir__controller_throttle and weir__controller_shed. */
    double share = params.floor + (1 - params.floor) * view->throttle / WEIR__LOAD_FULL;
    controller->integral = weir__clamp(log(share) + proportional(controller, settings->adapt_to), log(params.floor), 0);
    for (int i = 1; i < WEIR__LOAD_CLASSES; i++)
        controller->shed += (double)view->shed[i] / WEIR__LOAD_FULL;
}

void weir__controller_step(struct weir__controller *controller, const struct weir__controller_settings *settings,
                           double highest, double sojourn_s, double elapsed_s)
{
    double seconds = weir__clamp(elapsed_s, 0, WEIR__STEP_MAX_S), signal = weir__clamp(highest, 0, WEIR__SIGNAL_MAX);
    /* A single sample beyond full counts as full. */
    controller->excess = fmin(fmin(signal, fmax(1, controller->last)), params.excess_max);
    controller->last = signal;
    level_step(controller, settings->smooth_s, seconds);
    bool shrinks = backlog_shrinks(controller, signal, fmax(0, sojourn_s), settings->smooth_s, seconds);
    integral_step(controller, settings->adapt_to, shrinks, seconds);
    shed_step(controller, settings->shed_above, shrinks, seconds);
}

/* A share in thousandths, the unit of the load page. */
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
