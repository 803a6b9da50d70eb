/*
 * The load level of this host, which the agent publishes ten times a second (docs/reference/overload.md), for engines
 * opened with weir_options.load; and reports to the agent, for programs that forward requests to upstreams, as nginx
 * does. Each such process has a weir_load_worker, for use by one thread.
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

/* In per mille. A negative signal is not configured, or not available on this kernel. */
typedef struct weir_load {
    bool known; /* false: no agent has published for two seconds; limits are as written and nothing is shed */
    int level;
    int throttle;                /* position of adaptive limits between their min (0) and their max (1000) */
    int shed[WEIR_LOAD_CLASSES]; /* share of the requests of each class that is shed */
    int signal[WEIR_LOAD_SIGNALS];
    uint64_t in_flight; /* requests at upstreams, of live workers */
    unsigned workers;   /* live ones */
} weir_load;

/* WEIR_ENOENT: the engine has no load level. */
WEIR_MUST_CHECK int weir_load_read(weir *engine, weir_load *load);
/* "cpu", "memory", "run_queue", "latency", "errors", "in_flight"; NULL beyond the last. */
const char *weir_load_signal_name(int signal);
/* "critical", "high", "normal", "low"; NULL beyond the last. */
const char *weir_load_class_name(int priority);

/* ---- Workers ---- */

/* Registers the worker. Without a load level all of these do nothing. */
void weir_load_join(weir *engine, weir_load_worker *worker);
/* Heartbeat, at least once a second. After two seconds without one the worker counts as dead, with nothing in flight.
 */
void weir_load_heartbeat(weir *engine, weir_load_worker *worker);
void weir_load_leave(weir *engine, weir_load_worker *worker);
/* A request goes to an upstream; it ends. */
void weir_load_begin(weir *engine, weir_load_worker *worker);
void weir_load_end(weir *engine, weir_load_worker *worker);
/* An upstream has responded after `took_ns`; `error`: with a 5xx, or not at all. */
void weir_load_upstream(weir *engine, const weir_load_worker *worker, int64_t took_ns, bool error);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
