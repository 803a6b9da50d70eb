/*
 * The store of strict rules in a worker: the client of src/remote, driven by nginx's events. Files:
 *
 *     store           the client, its timer, and waits; the directive
 *     store_channel   a connection: resolving names without blocking, TLS, reading and writing
 *     store_stats     totals and state of all workers, in shared memory
 *
 * Nothing here blocks: a callback is called when the reply arrives, or at the deadline.
 */
#ifndef NGX_WEIR_STORE_H
#define NGX_WEIR_STORE_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include <weir/store.h>

#include "remote/client.h"

#pragma GCC visibility push(hidden)

typedef struct ngx_weir_store_s ngx_weir_store_t;
typedef struct ngx_weir_wait_s ngx_weir_wait_t;

/* ---- Configuration ---- */

/* The directive weir_store; its configuration is an ngx_weir_engine_t. */
char *ngx_weir_store(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
#define NGX_WEIR_STORE_NAMES_MAX 320
/* A URL for the engine, which needs prefix and hash_keys only. */
const char *ngx_weir_store_names(const ngx_weir_store_t *store, char url[NGX_WEIR_STORE_NAMES_MAX]);
/* Starts the client of a worker, which connects at once. And stops it; NULL is allowed. */
ngx_int_t ngx_weir_store_start(ngx_cycle_t *cycle, ngx_weir_store_t *store, weir *engine);
void ngx_weir_store_stop(ngx_weir_store_t *store);

/* ---- Waiting for replies ---- */

/*
 * One wait for the store: begin all checks with `async`; ngx_weir_wait_begin, if one of them returns 1; check all in
 * the same order; ngx_weir_wait_end.
 */
struct ngx_weir_wait_s {
    weir_async *async;
    void *data; /* for the caller */

    /* Internal. */
    ngx_weir_store_t *store;
    ngx_weir_wait_t *next;
    void (*on_reply)(ngx_weir_wait_t *wait);
    ngx_event_t event;
    unsigned in_flight : 1;
};

/* NULL: no store, or no memory. */
ngx_weir_wait_t *ngx_weir_wait_new(ngx_weir_store_t *store);
/* Sends the ops. `on_reply` is called later, from an event, at the latest after `ms`; 0: the store's deadline. */
void ngx_weir_wait_begin(ngx_weir_wait_t *wait, ngx_msec_t ms, void (*on_reply)(ngx_weir_wait_t *wait));
/* Without a callback, for refunds: a longer timeout; ends by itself, at once without ops. NULL is allowed. */
void ngx_weir_wait_detached(ngx_weir_wait_t *wait);
/* The checks are done, or the caller leaves: refunds what was taken and not used. NULL is allowed. */
void ngx_weir_wait_end(ngx_weir_wait_t *wait);

/* ---- Statistics ---- */

#define NGX_WEIR_STORE_REASONS 16 /* see ngx_weir_store_stats.c */
#define NGX_WEIR_STORE_TOTALS  14 /* of struct weir__client_stats, from `requests` to `opened` */

/* Sums over all workers, of http and stream. */
typedef struct {
    uint64_t totals[NGX_WEIR_STORE_TOTALS];
    uint64_t failures[NGX_WEIR_STORE_REASONS];
    ngx_uint_t workers, down; /* how many there are, and how many have an open circuit breaker */
    int error;                /* of the last of these */
} ngx_weir_store_sum_t;

void ngx_weir_store_sum(const ngx_weir_store_t *store, ngx_weir_store_sum_t *sum);
/* "slow", "down" … for failures[reason]. */
const char *ngx_weir_store_reason(ngx_uint_t reason);

/* ---- Internal ---- */

typedef struct ngx_weir_channel_s ngx_weir_channel_t;
typedef struct ngx_weir_store_stats_s ngx_weir_store_stats_t;

#define NGX_WEIR_DETAIL_MAX 256

struct ngx_weir_store_s {
    struct weir__store_options options;
    char shown[1024]; /* the URL without secrets */
    ngx_ssl_t *ssl;   /* NULL: without TLS */
    ngx_shm_zone_t *zone;
    ngx_uint_t block;                  /* 0: http, 1: stream */
    enum weir_consistency consistency; /* default_consistency */

    /* Of a worker. */
    weir *engine;
    struct weir__driver driver;
    struct weir__client *client;
    ngx_weir_channel_t *channels; /* WEIR__CHANNELS of them */
    ngx_weir_store_stats_t *stats;
    struct weir__client_stats published;
    ngx_uint_t down; /* servers that are unavailable */
    ngx_event_t flush, wake;
    int64_t wake_at, timer_at; /* when the client needs a tick, and when the timer fires */
    ngx_uint_t waiting;        /* requests in flight */
    ngx_weir_wait_t *idle;     /* for reuse */
    ngx_uint_t idle_count;
    ngx_log_t quiet;                  /* collects errors of connections, which are not logged each */
    char detail[NGX_WEIR_DETAIL_MAX]; /* last error */
};

/*
 * Makes the timer cancelable while no request waits and all refunds are sent: a worker that shuts down waits for a
 * timer that is not, at most for the timeouts of these.
 */
void ngx_weir_store_update_cancelable(ngx_weir_store_t *store);

/* Functions of struct weir__driver; the context is the store. */
ngx_int_t ngx_weir_channels_make(ngx_weir_store_t *store, ngx_cycle_t *cycle);
void ngx_weir_channel_open(void *context, unsigned channel, const char *host, uint16_t port);
void ngx_weir_channel_close(void *context, unsigned channel);
void ngx_weir_channel_send(void *context, unsigned channel);

ngx_int_t ngx_weir_store_stats_make(ngx_conf_t *cf, ngx_weir_store_t *store);
void ngx_weir_store_stats_begin(ngx_weir_store_t *store);
/* Adds what this worker has counted since the last call. */
void ngx_weir_store_stats_publish(ngx_weir_store_t *store);
void ngx_weir_store_stats_failed(ngx_weir_store_t *store, int error);
/* Whether the state of the host changes: the first worker whose breaker opens, or the last whose breaker closes. */
ngx_uint_t ngx_weir_store_stats_changed(ngx_weir_store_t *store, ngx_uint_t up, int error);

#pragma GCC visibility pop

#endif
