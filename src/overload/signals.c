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
#define SLOT_S         5.0   /* of these there are WEIR__BASELINE_SLOTS: so long nothing slower must have been seen */
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
    return value < 0 ? 0 : value > WEIR__SIGNAL_MAX ? WEIR__SIGNAL_MAX : value;
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

static double cpu(const struct weir__load_sample *now, const struct weir__load_sample *last, double passed_s,
                  double target)
{
    if (now->has_cpu && last->has_cpu)
        return stalled(now->cpu_us, last->cpu_us, passed_s, target);
    double all = grown(now->ticks, last->ticks);
    if (!now->has_busy || !last->has_busy || all <= 0)
        return WEIR__SIGNAL_ABSENT;
    return share((grown(now->busy, last->busy) / all - BUSY_FROM) / (1 - BUSY_FROM));
}

static double run_queue(const struct weir__load_sample *now, double target)
{
    uint64_t others = now->running ? now->running - 1 : 0;
    if (!now->has_running || !now->processors)
        return WEIR__SIGNAL_ABSENT;
    return cut((double)others / now->processors / target);
}

static void upstream_add(struct weir__signals *signals, const struct weir__upstream_sums *now, double passed_s)
{
    const struct weir__upstream_sums *last = &signals->last.upstream;
    double kept = exp(-passed_s / RECENT_S);
    double done = grown(now->done, last->done), errors = fmin(grown(now->errors, last->errors), done);
    signals->done = signals->done * kept + done;
    signals->errors = signals->errors * kept + errors;
    /*
     * After a cut there are few answers, and they are fast; those before it were many, and slow. A mean over answers
     * would remember these for much longer than a second, and more would be cut than has to be.
     */
    double counts = fmin(1, ANSWERS * passed_s / fmax(done, 1e-9));
    signals->good = signals->good * kept + (done - errors) * counts;
    signals->took_s = signals->took_s * kept + grown(now->took_us, last->took_us) / 1e6 * counts;
    signals->bad = signals->bad * kept + errors * counts;
    signals->failed_s = signals->failed_s * kept + grown(now->failed_us, last->failed_us) / 1e6 * counts;
}

/* How much the few answers there are may say. */
static double weight(const struct weir__signals *signals)
{
    return share(signals->done / ANSWERS);
}

static double weighed(const struct weir__signals *signals, double value)
{
    return weight(signals) < 1 ? share(value) * weight(signals) : cut(value);
}

static double nearer(double from, double to, double passed_s, double constant_s)
{
    return from + (to - from) * (1 - exp(-passed_s / constant_s));
}

/* The slowest of the last seconds, with what is seen now. */
static double slowest(struct weir__baseline *usual, double seconds)
{
    double most_s = 0;
    usual->slot_s += seconds;
    if (usual->slot_s >= SLOT_S) {
        usual->slot_s = 0;
        usual->slot = (usual->slot + 1) % WEIR__BASELINE_SLOTS;
        usual->slowest_s[usual->slot] = 0;
    }
    usual->slowest_s[usual->slot] = fmax(usual->slowest_s[usual->slot], usual->steady_s);
    for (int i = 0; i < WEIR__BASELINE_SLOTS; i++)
        most_s = fmax(most_s, usual->slowest_s[i]);
    return most_s;
}

static void usual_step(struct weir__baseline *usual, double mean, double answers, double passed_s)
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

void weir__signals_resume(struct weir__signals *signals, double baseline_s)
{
    if (baseline_s <= 0)
        return;
    double usual_s = fmin(fmax(baseline_s, BASELINE_MIN_S), BASELINE_MAX_S);
    signals->usual = (struct weir__baseline){.baseline_s = usual_s, .seen_s = FIRST_S, .slowest_s = {usual_s}};
}

/*
 * What fails at once says nothing about how fast an upstream is: after an outage its usual answers would be an
 * overload, for as long as the baseline needs to come back. What fails late does.
 */
static double latency(struct weir__signals *signals, double passed_s, double target)
{
    double mean = 0;
    if (weight(signals) <= 0)
        return 0;
    if (signals->good > GOOD_LEAST) {
        mean = signals->took_s / signals->good;
        usual_step(&signals->usual, mean, signals->done - signals->errors, passed_s);
    }
    if (signals->usual.baseline_s <= 0)
        return 0;
    mean = fmax(mean, (signals->took_s + signals->failed_s) / (signals->good + signals->bad));
    return weighed(signals, (mean / signals->usual.baseline_s - 1) / (target - 1));
}

static double errors(const struct weir__signals *signals, double target)
{
    return signals->done > 0 ? weighed(signals, signals->errors / signals->done / target) : 0;
}

static double sense(struct weir__signals *signals, enum weir__signal which, double target,
                    const struct weir__load_sample *now, double passed_s)
{
    const struct weir__load_sample *last = &signals->last;
    switch (which) {
    case WEIR__SIGNAL_CPU:
        return cpu(now, last, passed_s, target);
    case WEIR__SIGNAL_MEMORY:
        return now->has_memory && last->has_memory ? stalled(now->memory_us, last->memory_us, passed_s, target)
                                                   : WEIR__SIGNAL_ABSENT;
    case WEIR__SIGNAL_RUN_QUEUE:
        return run_queue(now, target);
    case WEIR__SIGNAL_LATENCY:
        return latency(signals, passed_s, target);
    case WEIR__SIGNAL_ERRORS:
        return errors(signals, target);
    default:
        return cut((double)now->upstream.in_flight / target);
    }
}

double weir__signals_sojourn(const struct weir__signals *signals)
{
    double in_flight = (double)signals->last.upstream.in_flight;
    return signals->done >= ANSWERS && in_flight >= ANSWERS ? in_flight / signals->done * RECENT_S : 0;
}

double weir__signals_update(struct weir__signals *signals, const struct weir__load_config *config,
                            const struct weir__load_sample *reading, double signal[WEIR__SIGNALS])
{
    double highest = 0, passed_s = (double)(reading->mono_ns - signals->last.mono_ns) / 1e9;
    bool known = signals->begun && passed_s > 0;
    if (known)
        upstream_add(signals, &reading->upstream, passed_s);
    for (int i = 0; i < WEIR__SIGNALS; i++) {
        signal[i] = WEIR__SIGNAL_ABSENT;
        if (known && config->target[i] > 0)
            signal[i] = sense(signals, (enum weir__signal)i, config->target[i], reading, passed_s);
        highest = signal[i] > highest ? signal[i] : highest;
    }
    signals->last = *reading;
    signals->begun = true;
    return highest;
}
