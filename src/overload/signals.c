/* Load signals: see overload.h. */
#include "overload/overload.h"

#define RECENT_S 1.0 /* time constant of the means over responses of upstreams */
#define RESPONSES_MIN                                                                                                  \
    10.0 /* in about a second: fewer weigh proportionally less, so that one slow response is no overload */
#define GOOD_MIN          0.01   /* responses without error: fewer have no meaningful mean */
#define BASELINE_MIN_S    0.001  /* resolution of nginx's clock */
#define BASELINE_MAX_S    3600.0 /* larger values, from a damaged load page, are clamped */
#define BASELINE_RISE_S   900.0  /* time constant of a rise: an overload does not last so long */
#define BASELINE_WINDOW_S 45.0   /* the baseline falls to the maximum mean of this time */
#define BASELINE_MEAN_S   4.0    /* time constant of that mean: shorter ones have noise for their maximum */
#define LEARN_S           10.0   /* during the first seconds every latency is normal */
#define BUSY_MIN          0.5    /* without PSI: busy time of all processors that is level 0 */

static double share(double value)
{
    return weir__clamp(value, 0, 1);
}

/* A signal may exceed 1: the controller uses how far. */
static double clamp_signal(double value)
{
    return weir__clamp(value, 0, WEIR__SIGNAL_MAX);
}

/* Increase of a counter; 0 if it was reset. */
static double increase(uint64_t now, uint64_t before)
{
    return now > before ? (double)(now - before) : 0;
}

static double stalled(uint64_t now_us, uint64_t before_us, double elapsed_s, double target)
{
    return clamp_signal(increase(now_us, before_us) / 1e6 / elapsed_s / target);
}

static double cpu(const struct weir__load_sample *now, const struct weir__load_sample *last, double elapsed_s,
                  double target)
{
    if (now->has_cpu && last->has_cpu)
        return stalled(now->cpu_us, last->cpu_us, elapsed_s, target);
    double all = increase(now->ticks, last->ticks);
    if (!now->has_busy || !last->has_busy || all <= 0)
        return WEIR__SIGNAL_ABSENT;
    return share((increase(now->busy, last->busy) / all - BUSY_MIN) / (1 - BUSY_MIN));
}

static double run_queue(const struct weir__load_sample *now, double target)
{
    uint64_t others = now->running ? now->running - 1 : 0;
    if (!now->has_running || !now->processors)
        return WEIR__SIGNAL_ABSENT;
    return clamp_signal((double)others / now->processors / target);
}

static void upstream_add(struct weir__signals *signals, const struct weir__upstream_sums *now, double elapsed_s)
{
    const struct weir__upstream_sums *last = &signals->last.upstream;
    double kept = exp(-elapsed_s / RECENT_S);
    double done = increase(now->done, last->done), errors = fmin(increase(now->errors, last->errors), done);
    signals->done = signals->done * kept + done;
    signals->errors = signals->errors * kept + errors;
    /*
     * Each sample has the same weight, however many responses it has: after a cut there are few responses, and fast
     * ones. A mean over responses would be dominated for seconds by the many slow ones before it.
     */
    double weight = fmin(1, RESPONSES_MIN * elapsed_s / fmax(done, 1e-9));
    signals->good = signals->good * kept + (done - errors) * weight;
    signals->took_s = signals->took_s * kept + increase(now->took_us, last->took_us) / 1e6 * weight;
    signals->bad = signals->bad * kept + errors * weight;
    signals->failed_s = signals->failed_s * kept + increase(now->failed_us, last->failed_us) / 1e6 * weight;
}

/* Weight of a signal by the number of responses that it is made of. */
static double confidence(const struct weir__signals *signals)
{
    return share(signals->done / RESPONSES_MIN);
}

static double weighted(const struct weir__signals *signals, double value)
{
    return confidence(signals) < 1 ? share(value) * confidence(signals) : clamp_signal(value);
}

/* Adds the current mean to the ring, and returns the maximum of all slots. */
static double window_max(struct weir__baseline *baseline, double seconds)
{
    double max_s = 0;
    baseline->slot_s += seconds;
    if (baseline->slot_s >= BASELINE_WINDOW_S / WEIR__BASELINE_SLOTS) {
        baseline->slot_s = 0;
        baseline->slot = (baseline->slot + 1) % WEIR__BASELINE_SLOTS;
        baseline->max_s[baseline->slot] = 0;
    }
    baseline->max_s[baseline->slot] = fmax(baseline->max_s[baseline->slot], baseline->mean_s);
    for (int i = 0; i < WEIR__BASELINE_SLOTS; i++)
        max_s = fmax(max_s, baseline->max_s[i]);
    return max_s;
}

static void baseline_step(struct weir__baseline *baseline, double latency_s, double responses, double elapsed_s)
{
    double now_s = weir__clamp(latency_s, BASELINE_MIN_S, BASELINE_MAX_S);
    double seconds = fmin(elapsed_s, WEIR__STEP_MAX_S) * share(responses / RESPONSES_MIN);
    baseline->seen_s += seconds;
    if (baseline->mean_s <= 0)
        baseline->mean_s = now_s;
    baseline->mean_s = weir__ewma(baseline->mean_s, now_s, fmin(baseline->seen_s, BASELINE_MEAN_S), seconds);
    if (baseline->seen_s < BASELINE_MEAN_S) { /* too short a mean for the maximum */
        baseline->baseline_s = baseline->mean_s;
        return;
    }
    double max_s = window_max(baseline, seconds);
    if (baseline->seen_s < LEARN_S || max_s < baseline->baseline_s)
        baseline->baseline_s = max_s;
    else if (now_s > baseline->baseline_s)
        baseline->baseline_s = weir__ewma(baseline->baseline_s, now_s, BASELINE_RISE_S, seconds);
}

void weir__signals_resume(struct weir__signals *signals, double baseline_s)
{
    if (baseline_s <= 0)
        return;
    double clamped_s = weir__clamp(baseline_s, BASELINE_MIN_S, BASELINE_MAX_S);
    signals->baseline = (struct weir__baseline){.baseline_s = clamped_s, .seen_s = LEARN_S, .max_s = {clamped_s}};
}

/*
 * Errors do not change the baseline: an upstream that refuses at once is not fast, and its normal latency after the
 * outage would look like an overload. Errors that come late do count as latency.
 */
static double latency(struct weir__signals *signals, double elapsed_s, double target)
{
    double mean = 0;
    if (confidence(signals) <= 0)
        return 0;
    if (signals->good > GOOD_MIN) {
        mean = signals->took_s / signals->good;
        baseline_step(&signals->baseline, mean, signals->done - signals->errors, elapsed_s);
    }
    if (signals->baseline.baseline_s <= 0)
        return 0;
    mean = fmax(mean, (signals->took_s + signals->failed_s) / (signals->good + signals->bad));
    return weighted(signals, (mean / signals->baseline.baseline_s - 1) / (target - 1));
}

static double errors(const struct weir__signals *signals, double target)
{
    return signals->done > 0 ? weighted(signals, signals->errors / signals->done / target) : 0;
}

static double signal_value(struct weir__signals *signals, enum weir__signal which, double target,
                           const struct weir__load_sample *now, double elapsed_s)
{
    const struct weir__load_sample *last = &signals->last;
    switch (which) {
    case WEIR__SIGNAL_CPU:
        return cpu(now, last, elapsed_s, target);
    case WEIR__SIGNAL_MEMORY:
        return now->has_memory && last->has_memory ? stalled(now->memory_us, last->memory_us, elapsed_s, target)
                                                   : WEIR__SIGNAL_ABSENT;
    case WEIR__SIGNAL_RUN_QUEUE:
        return run_queue(now, target);
    case WEIR__SIGNAL_LATENCY:
        return latency(signals, elapsed_s, target);
    case WEIR__SIGNAL_ERRORS:
        return errors(signals, target);
    default:
        return clamp_signal((double)now->upstream.in_flight / target);
    }
}

double weir__signals_sojourn(const struct weir__signals *signals)
{
    double in_flight = (double)signals->last.upstream.in_flight;
    return signals->done >= RESPONSES_MIN && in_flight >= RESPONSES_MIN ? in_flight / signals->done * RECENT_S : 0;
}

double weir__signals_update(struct weir__signals *signals, const struct weir__load_config *config,
                            const struct weir__load_sample *sample, double signal[WEIR__SIGNALS])
{
    double highest = WEIR__SIGNAL_ABSENT, elapsed_s = (double)(sample->mono_ns - signals->last.mono_ns) / 1e9;
    bool known = signals->begun && elapsed_s > 0;
    if (known)
        upstream_add(signals, &sample->upstream, elapsed_s);
    for (int i = 0; i < WEIR__SIGNALS; i++) {
        signal[i] = WEIR__SIGNAL_ABSENT;
        if (known && config->target[i] > 0)
            signal[i] = signal_value(signals, (enum weir__signal)i, config->target[i], sample, elapsed_s);
        highest = fmax(highest, signal[i]);
    }
    signals->last = *sample;
    signals->begun = true;
    return highest;
}
