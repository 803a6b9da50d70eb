/*
 * How loaded this host is, as the agent says it ten times a second (docs/pressure.md). Of an engine that was opened
 * with weir_options.load.
 *
 * And for programs that pass requests on, such as nginx: what they tell the agent of their upstreams. Each process has
 * a weir_load_worker; it is for one thread.
 */
#ifndef WEIR_LOAD_H
#define WEIR_LOAD_H

#include <weir/check.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#define WEIR_LOAD_SIGNALS 6
#define WEIR_LOAD_CLASSES 4 /* critical, high, normal, low */

/* All in per mille. Negative: there is no such signal, as it is not configured or the kernel does not have it. */
typedef struct weir_load {
    bool known; /* false: no agent has said anything for two seconds, and nothing is done about the load */
    int level;
    int throttle;                /* how far adaptive limits are between their min (0) and their max (1000) */
    int shed[WEIR_LOAD_CLASSES]; /* which share of the requests is shed */
    int signal[WEIR_LOAD_SIGNALS];
    uint64_t in_flight; /* requests that workers say they have passed on */
    unsigned workers;   /* who say so */
} weir_load;

/* WEIR_ENOENT: the engine has no load level. */
WEIR_MUST_CHECK int weir_load_read(weir *engine, weir_load *load);
/* "cpu", "memory", "run_queue", "latency", "errors", "in_flight"; NULL: there are no more. */
const char *weir_load_signal_name(int signal);
/* "critical", "high", "normal", "low"; the same. */
const char *weir_load_class_name(int priority);

/* ---- Workers ---- */

typedef struct weir_load_worker {
    uint64_t owner;
    uint64_t in_flight;
    uint32_t stripe;
} weir_load_worker;

/* Begins; without a load level all of these do nothing. */
void weir_load_join(weir *engine, weir_load_worker *worker);
/* To be called at least once a second: who is silent for two counts as dead, and what it had in flight as gone. */
void weir_load_heartbeat(weir *engine, weir_load_worker *worker);
void weir_load_leave(weir *engine, weir_load_worker *worker);
/* A request is passed on; it is over. */
void weir_load_begin(weir *engine, weir_load_worker *worker);
void weir_load_end(weir *engine, weir_load_worker *worker);
/* An upstream has answered after so long, or (error) badly or not at all. */
void weir_load_upstream(weir *engine, const weir_load_worker *worker, int64_t took_ns, bool error);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
