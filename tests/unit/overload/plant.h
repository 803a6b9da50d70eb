/*
 * A host simulated request by request, for the overload controller: a gateway with limits per tenant, and an upstream
 * like bench/upstream.c, with a number of slots and a queue. Clients leave after their patience; the gateway notices,
 * the upstream does not and works on their requests all the same.
 */
#ifndef WEIR_TESTS_PLANT_H
#define WEIR_TESTS_PLANT_H

#include "overload/overload.h"
#include "engine/engine.h"

#include <math.h>

#define PLANT_DT           0.005
#define PLANT_SAMPLE       20 /* steps between two samples of the agent */
#define PLANT_REQUESTS_MAX (1 << 20)
#define PLANT_SECONDS      200
#define PLANT_STREAMS      9

/* Shares of the offered load; critical requests are a share of the capacity instead. */
struct plant_stream {
    int tenant; /* -1: no limit */
    enum weir_priority priority;
    double share;
};

struct plant {
    /* Parameters. */
    double slots, service_s, queue; /* capacity of the queue */
    double patience_s;              /* of clients */
    double critical;                /* of the capacity */
    double limit, min;              /* of a tenant, of the capacity; 0: none. Adaptive down to `min` of it. */
    struct weir__load_config config;
    struct weir__controller_settings settings;
    uint64_t seed;

    /* State. */
    struct weir__signals signals;
    struct weir__load_sample reading;
    struct weir__controller controller;
    struct weir__load_view view;
    double now_s, tokens[4], due_s[PLANT_STREAMS];
    int64_t step;
    struct plant_request {
        double sent_s, until_s;
        enum weir_priority priority;
        bool over; /* answered, or its client has left */
    } * request;   /* [first, busy) are worked on, [busy, last) wait; all take the same time, so they end in their order
                    */
    size_t first, busy, last, leaving;

    /* Results per second. */
    struct {
        double good, critical, critical_sent, passed, level, throttle, shed;
    } second[PLANT_SECONDS];
};

static const struct plant_stream plant_streams[PLANT_STREAMS] = {
    {-1, WEIR_CRITICAL, 0},        {0, WEIR_NORMAL, 0.7 * 4 / 8}, {0, WEIR_LOW, 0.3 * 4 / 8},
    {1, WEIR_NORMAL, 0.7 * 2 / 8}, {1, WEIR_LOW, 0.3 * 2 / 8},    {2, WEIR_NORMAL, 0.7 / 8},
    {2, WEIR_LOW, 0.3 / 8},        {3, WEIR_NORMAL, 0.7 / 8},     {3, WEIR_LOW, 0.3 / 8}};

static inline double plant_capacity(const struct plant *plant)
{
    return plant->slots / plant->service_s;
}

static inline void plant_begin(struct plant *plant)
{
    plant->request = calloc(PLANT_REQUESTS_MAX, sizeof *plant->request);
    if (!plant->request)
        exit(1);
    plant->reading.mono_ns = 1000000000;
    plant->view = weir__load_view_neutral();
    plant->controller = (struct weir__controller){0};
}

static inline void plant_end(struct plant *plant)
{
    free(plant->request);
    plant->request = NULL;
}

static inline double plant_random(struct plant *plant)
{
    return ((double)(test_random(&plant->seed) >> 11) + 1) / 9007199254740993.0;
}

/* Shedding, then the tenant's token bucket, which holds a twentieth of a second. */
static inline bool plant_admits(struct plant *plant, const struct plant_stream *stream)
{
    double share = plant->view.shed[stream->priority] / 1000.0;
    if (share > 0 && plant_random(plant) <= share)
        return false;
    if (stream->tenant < 0 || plant->limit <= 0)
        return true;
    double *tokens = &plant->tokens[stream->tenant];
    if (*tokens < 1)
        return false;
    *tokens -= 1;
    return true;
}

static inline void plant_arrive(struct plant *plant, const struct plant_stream *stream)
{
    size_t at = (size_t)plant->now_s;
    if (stream->priority == WEIR_CRITICAL)
        plant->second[at].critical_sent++;
    if (!plant_admits(plant, stream))
        return;
    plant->second[at].passed++;
    if ((double)(plant->last - plant->busy) >= plant->queue) {
        plant->reading.upstream.done++; /* refused at once */
        plant->reading.upstream.errors++;
        return;
    }
    plant->request[plant->last++ % PLANT_REQUESTS_MAX] =
        (struct plant_request){.sent_s = plant->now_s, .priority = stream->priority};
    plant->reading.upstream.in_flight++;
}

static inline void plant_reply(struct plant *plant, struct plant_request *request)
{
    double took_s = plant->now_s - request->sent_s;
    if (request->over)
        return;
    request->over = true;
    plant->reading.upstream.in_flight--;
    plant->reading.upstream.done++;
    plant->reading.upstream.took_us += (uint64_t)(took_s * 1e6);
    plant->second[(size_t)request->sent_s].good++;
    plant->second[(size_t)request->sent_s].critical += request->priority == WEIR_CRITICAL;
}

static inline void plant_work(struct plant *plant)
{
    struct plant_request *all = plant->request;
    for (; plant->first < plant->busy && all[plant->first % PLANT_REQUESTS_MAX].until_s <= plant->now_s; plant->first++)
        plant_reply(plant, &all[plant->first % PLANT_REQUESTS_MAX]);
    for (; plant->busy < plant->last && (double)(plant->busy - plant->first) < plant->slots; plant->busy++)
        all[plant->busy % PLANT_REQUESTS_MAX].until_s = plant->now_s + plant->service_s;
    /* Clients leave. */
    for (; plant->leaving < plant->last &&
           plant->now_s - all[plant->leaving % PLANT_REQUESTS_MAX].sent_s > plant->patience_s;
         plant->leaving++) {
        struct plant_request *request = &all[plant->leaving % PLANT_REQUESTS_MAX];
        if (request->over)
            continue;
        request->over = true;
        plant->reading.upstream.in_flight--;
        plant->reading.upstream.done++; /* no error, but a response of at least this latency */
        plant->reading.upstream.took_us += (uint64_t)(plant->patience_s * 1e6);
    }
}

static inline void plant_sample(struct plant *plant)
{
    double signal[WEIR__SIGNALS];
    plant->reading.mono_ns += (int64_t)(PLANT_DT * PLANT_SAMPLE * 1e9);
    double highest = weir__signals_update(&plant->signals, &plant->config, &plant->reading, signal);
    weir__controller_step(&plant->controller, &plant->settings, highest, weir__signals_sojourn(&plant->signals),
                          PLANT_DT * PLANT_SAMPLE);
    weir__controller_view(&plant->controller, &plant->settings, &plant->view);
    size_t at = (size_t)plant->now_s;
    plant->second[at].level = plant->controller.level;
    plant->second[at].throttle = plant->view.throttle / 1000.0;
    plant->second[at].shed = plant->controller.shed;
}

/* Runs for `seconds` at `times` the capacity. */
static inline void plant_run(struct plant *plant, double seconds, double times)
{
    double capacity = plant_capacity(plant), until_s = plant->now_s + seconds;
    for (int i = 0; i < PLANT_STREAMS; i++)
        plant->due_s[i] = plant->now_s;
    while (plant->now_s < until_s && plant->now_s < PLANT_SECONDS) {
        double scale = plant->min + (1 - plant->min) * plant->view.throttle / 1000.0;
        for (int i = 0; i < 4; i++)
            plant->tokens[i] = fmin(plant->tokens[i] + plant->limit * capacity * scale * PLANT_DT,
                                    plant->limit * capacity * scale / 20 + 1);
        for (int i = 0; i < PLANT_STREAMS; i++) {
            const struct plant_stream *stream = &plant_streams[i];
            double rate = capacity * (i ? stream->share * fmax(times - plant->critical, 0) : plant->critical);
            if (rate <= 0)
                continue;
            while (plant->due_s[i] <= plant->now_s) {
                plant_arrive(plant, stream);
                plant->due_s[i] -= log(plant_random(plant)) / rate;
            }
        }
        plant_work(plant);
        if (++plant->step % PLANT_SAMPLE == 0)
            plant_sample(plant);
        plant->now_s = (double)plant->step * PLANT_DT;
    }
}

/* Requests sent in these seconds that were answered in time, as a share of the capacity. */
static inline double plant_goodput(const struct plant *plant, int from, int to)
{
    double good = 0;
    for (int i = from; i < to; i++)
        good += plant->second[i].good;
    return good / (to - from) / plant_capacity(plant);
}

#endif
