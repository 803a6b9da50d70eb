/* From readings to signals: see senses.h. */
#include "agent/senses.h"
#include "agent/law.h"

#include <math.h>

#define RECENT_S        1.0   /* time constant of what "lately" means for upstreams */
#define ANSWERS         10.0  /* lately; fewer say proportionally less: one slow answer is no overload */
#define GOOD_LEAST      0.01  /* of answers that are no errors: less is rounding */
#define BASELINE_MIN_S  0.001 /* what nginx can tell apart */
#define BASELINE_DOWN_S 2.0   /* time constants: quickly to what is faster, */
#define BASELINE_UP_S   900.0 /* and so slowly to what is slower that overload is not taken for the usual */
#define BUSY_FROM       0.5   /* of all processors' time: without PSI, what is above counts */

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
    senses->done = senses->done * kept + grown(now->done, last->done);
    senses->took_s = senses->took_s * kept + grown(now->took_us, last->took_us) / 1e6;
    senses->errors = senses->errors * kept + grown(now->errors, last->errors);
    senses->failed_s = senses->failed_s * kept + grown(now->failed_us, last->failed_us) / 1e6;
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

static void baseline_step(struct weir__senses *senses, double mean, double answers, double passed_s)
{
    double usual = mean > BASELINE_MIN_S ? mean : BASELINE_MIN_S;
    if (senses->baseline_s <= 0)
        senses->baseline_s = usual;
    double constant = usual < senses->baseline_s ? BASELINE_DOWN_S : BASELINE_UP_S;
    senses->baseline_s += (usual - senses->baseline_s) * (1 - exp(-passed_s * share(answers / ANSWERS) / constant));
}

/*
 * What fails at once says nothing about how fast an upstream is: after an outage its usual answers would be an
 * overload, for as long as the baseline needs to come back. What fails late does.
 */
static double latency(struct weir__senses *senses, double passed_s, double target)
{
    double good = senses->done - senses->errors, mean = 0;
    if (weight(senses) <= 0)
        return 0;
    if (good > GOOD_LEAST) {
        mean = senses->took_s / good;
        baseline_step(senses, mean, good, passed_s);
    }
    if (senses->baseline_s <= 0)
        return 0;
    mean = fmax(mean, (senses->took_s + senses->failed_s) / senses->done);
    return weighed(senses, (mean / senses->baseline_s - 1) / (target - 1));
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
