/* From readings to signals: see signals.h. */
#include "overload/signals.h"
#include "overload/controller.h"

#include <math.h>

#define RECENT_S       1.0   /* time constant of what "lately" means for upstreams */
#define ANSWERS        10.0  /* lately; fewer say proportionally less: one slow answer is no overload */
#define GOOD_LEAST     0.01  /* of answers that are no errors: less is rounding */
#define BASELINE_MIN_S 0.001 /* what nginx can tell apart */
#define BASELINE_MAX_S 3600.0
#define BASELINE_UP_S  900.0 /* time constant: so slowly that overload is not taken for the usual */
#define SLOT_S         5.0   /* of these there are WEIR__USUAL_SLOTS: so long nothing slower must have been seen */
#define STEADY_S       4.0   /* time constant of the mean that counts for that */
#define ROUGH_S        3.0   /* before, it is of too few to be remembered */
#define FIRST_S        10.0  /* until then whatever is seen is the usual */
#define STEP_MAX_S     1.0   /* a pause says no more than a moment */
#define BUSY_FROM      0.5   /* of all processors' time: without PSI, what is above counts */

static double share(double value)
{
    return value < 0 ? 0 : value > 1 ? 1 : value;
}

/* A signal: what is far beyond full is of interest, too. */
static double cut(double value)
{
    return value < 0 ? 0 : value > WEIR__LAW_MOST ? WEIR__LAW_MOST : value;
}

/* By how much a sum has grown; one that begins anew has not. */
static double grown(uint64_t now, uint64_t before)
{
    return now > before ? (double)(now - before) : 0;
}

static double stalled(uint64_t now_us, uint64_t before_us, double passed_s, double target)
{
    return cut(grown(now_us, before_us) / 1e6 / passed_s / target);
}

static double cpu(const struct weir__reading *now, const struct weir__reading *last, double passed_s, double target)
{
    if (now->has_cpu && last->has_cpu)
        return stalled(now->cpu_us, last->cpu_us, passed_s, target);
    double all = grown(now->ticks, last->ticks);
    if (!now->has_busy || !last->has_busy || all <= 0)
        return WEIR__SENSES_NONE;
    return share((grown(now->busy, last->busy) / all - BUSY_FROM) / (1 - BUSY_FROM));
}

static double run_queue(const struct weir__reading *now, double target)
{
    uint64_t others = now->running ? now->running - 1 : 0;
    if (!now->has_running || !now->processors)
        return WEIR__SENSES_NONE;
    return cut((double)others / now->processors / target);
}

static void upstream_add(struct weir__senses *senses, const struct weir__load_sums *now, double passed_s)
{
    const struct weir__load_sums *last = &senses->last.upstream;
    double kept = exp(-passed_s / RECENT_S);
    double done = grown(now->done, last->done), errors = fmin(grown(now->errors, last->errors), done);
    senses->done = senses->done * kept + done;
    senses->errors = senses->errors * kept + errors;
    /*
     * After a cut there are few answers, and they are fast; those before it were many, and slow. A mean over answers
     * would remember these for much longer than a second, and more would be cut than has to be.
     */
    double counts = fmin(1, ANSWERS * passed_s / fmax(done, 1e-9));
    senses->good = senses->good * kept + (done - errors) * counts;
    senses->took_s = senses->took_s * kept + grown(now->took_us, last->took_us) / 1e6 * counts;
    senses->bad = senses->bad * kept + errors * counts;
    senses->failed_s = senses->failed_s * kept + grown(now->failed_us, last->failed_us) / 1e6 * counts;
}

/* How much the few answers there are may say. */
static double weight(const struct weir__senses *senses)
{
    return share(senses->done / ANSWERS);
}

static double weighed(const struct weir__senses *senses, double value)
{
    return weight(senses) < 1 ? share(value) * weight(senses) : cut(value);
}

static double nearer(double from, double to, double passed_s, double constant_s)
{
    return from + (to - from) * (1 - exp(-passed_s / constant_s));
}

/* The slowest of the last seconds, with what is seen now. */
static double slowest(struct weir__usual *usual, double seconds)
{
    double most_s = 0;
    usual->slot_s += seconds;
    if (usual->slot_s >= SLOT_S) {
        usual->slot_s = 0;
        usual->slot = (usual->slot + 1) % WEIR__USUAL_SLOTS;
        usual->slowest_s[usual->slot] = 0;
    }
    usual->slowest_s[usual->slot] = fmax(usual->slowest_s[usual->slot], usual->steady_s);
    for (int i = 0; i < WEIR__USUAL_SLOTS; i++)
        most_s = fmax(most_s, usual->slowest_s[i]);
    return most_s;
}

static void usual_step(struct weir__usual *usual, double mean, double answers, double passed_s)
{
    double now_s = fmin(fmax(mean, BASELINE_MIN_S), BASELINE_MAX_S);
    double seconds = fmin(passed_s, STEP_MAX_S) * share(answers / ANSWERS);
    usual->seen_s += seconds;
    if (usual->steady_s <= 0)
        usual->steady_s = now_s;
    /* One that is young is the mean of all there was. */
    usual->steady_s = nearer(usual->steady_s, now_s, seconds, fmin(usual->seen_s, STEADY_S));
    if (usual->seen_s < ROUGH_S) {
        usual->baseline_s = usual->steady_s;
        return;
    }
    double slowest_s = slowest(usual, seconds);
    if (usual->seen_s < FIRST_S || slowest_s < usual->baseline_s)
        usual->baseline_s = slowest_s;
    else if (now_s > usual->baseline_s)
        usual->baseline_s = nearer(usual->baseline_s, now_s, seconds, BASELINE_UP_S);
}

void weir__senses_resume(struct weir__senses *senses, double baseline_s)
{
    if (baseline_s <= 0)
        return;
    double usual_s = fmin(fmax(baseline_s, BASELINE_MIN_S), BASELINE_MAX_S);
    senses->usual = (struct weir__usual){.baseline_s = usual_s, .seen_s = FIRST_S, .slowest_s = {usual_s}};
}

/*
 * What fails at once says nothing about how fast an upstream is: after an outage its usual answers would be an
 * overload, for as long as the baseline needs to come back. What fails late does.
 */
static double latency(struct weir__senses *senses, double passed_s, double target)
{
    double mean = 0;
    if (weight(senses) <= 0)
        return 0;
    if (senses->good > GOOD_LEAST) {
        mean = senses->took_s / senses->good;
        usual_step(&senses->usual, mean, senses->done - senses->errors, passed_s);
    }
    if (senses->usual.baseline_s <= 0)
        return 0;
    mean = fmax(mean, (senses->took_s + senses->failed_s) / (senses->good + senses->bad));
    return weighed(senses, (mean / senses->usual.baseline_s - 1) / (target - 1));
}

static double errors(const struct weir__senses *senses, double target)
{
    return senses->done > 0 ? weighed(senses, senses->errors / senses->done / target) : 0;
}

static double sense(struct weir__senses *senses, enum weir__signal which, double target,
                    const struct weir__reading *now, double passed_s)
{
    const struct weir__reading *last = &senses->last;
    switch (which) {
    case WEIR__SIGNAL_CPU:
        return cpu(now, last, passed_s, target);
    case WEIR__SIGNAL_MEMORY:
        return now->has_memory && last->has_memory ? stalled(now->memory_us, last->memory_us, passed_s, target)
                                                   : WEIR__SENSES_NONE;
    case WEIR__SIGNAL_RUN_QUEUE:
        return run_queue(now, target);
    case WEIR__SIGNAL_LATENCY:
        return latency(senses, passed_s, target);
    case WEIR__SIGNAL_ERRORS:
        return errors(senses, target);
    default:
        return cut((double)now->upstream.in_flight / target);
    }
}

double weir__senses_waits(const struct weir__senses *senses)
{
    double in_flight = (double)senses->last.upstream.in_flight;
    return senses->done >= ANSWERS && in_flight >= ANSWERS ? in_flight / senses->done * RECENT_S : 0;
}

double weir__senses_take(struct weir__senses *senses, const struct weir__load_config *config,
                         const struct weir__reading *reading, double signal[WEIR__SIGNALS])
{
    double highest = 0, passed_s = (double)(reading->mono_ns - senses->last.mono_ns) / 1e9;
    bool known = senses->begun && passed_s > 0;
    if (known)
        upstream_add(senses, &reading->upstream, passed_s);
    for (int i = 0; i < WEIR__SIGNALS; i++) {
        signal[i] = WEIR__SENSES_NONE;
        if (known && config->target[i] > 0)
            signal[i] = sense(senses, (enum weir__signal)i, config->target[i], reading, passed_s);
        highest = signal[i] > highest ? signal[i] : highest;
    }
    senses->last = *reading;
    senses->begun = true;
    return highest;
}
