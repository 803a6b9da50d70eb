/*
 * The store of strict rules in a worker: src/store's client, driven by nginx's events. Which file does what:
 *
 *   store           the client, its clock and its owner's waits
 *   store_channel   a connection: names, TLS, reading and writing
 *   store_lookup    addresses of names, without waiting for them
 *   store_conf      the directive
 *   store_stats     what all workers have counted, and what they believe, in shared memory
 *
 * Nothing here waits: whoever asks is called when there is an answer, or when the deadline is over.
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
/* An URL for the engine, which needs to know what counters are called, and nothing else. */
const char *ngx_weir_store_names(const ngx_weir_store_t *store, char url[NGX_WEIR_STORE_NAMES_MAX]);
/* In a worker: connects ahead of the first request. And its end. */
ngx_int_t ngx_weir_store_start(ngx_cycle_t *cycle, ngx_weir_store_t *store, weir *engine);
void ngx_weir_store_stop(ngx_weir_store_t *store);

/* ---- Asking ---- */

/*
 * Somebody who has something to ask. First prepare all checks with its `ask`; then wait, if one of them says so; then
 * check all in the same order; then end.
 */
struct ngx_weir_wait_s {
    weir_ask *ask;
    void *data; /* the owner's */

    /* The store's. */
    ngx_weir_store_t *store;
    ngx_weir_wait_t *next;
    void (*on_reply)(ngx_weir_wait_t *wait);
    ngx_event_t event;
    unsigned on_its_way : 1;
};

/* NULL: no memory. */
ngx_weir_wait_t *ngx_weir_wait_new(ngx_weir_store_t *store);
/* Brings the requests to the store. NGX_AGAIN: `on_reply` is called later; NGX_OK: it is known now what it says. */
ngx_int_t ngx_weir_wait_begin(ngx_weir_wait_t *wait, void (*on_reply)(ngx_weir_wait_t *wait));
/* The same with so long a time for it, as no client waits. */
ngx_int_t ngx_weir_wait_begin_for(ngx_weir_wait_t *wait, ngx_msec_t ms, void (*on_reply)(ngx_weir_wait_t *wait));
/* The same without anybody who waits, for what is given back: it is tried for longer, and ends by itself. */
void ngx_weir_wait_detached(ngx_weir_wait_t *wait);
/* The checks are done, or whoever wanted to know is gone: what was taken and is not used goes back. */
void ngx_weir_wait_end(ngx_weir_wait_t *wait);

/* ---- Figures ---- */

#define NGX_WEIR_STORE_REASONS 16 /* the library's errors of stores: see ngx_weir_store_stats.c */
#define NGX_WEIR_STORE_TOTALS  14 /* numbers of struct weir__client_stats, from `requests` to `opened` */

/* Of all workers, http's and stream's. */
typedef struct {
    uint64_t totals[NGX_WEIR_STORE_TOTALS];
    uint64_t failures[NGX_WEIR_STORE_REASONS];
    ngx_uint_t workers, down; /* how many there are, and how many of them take the store for away */
    int error;                /* why the last of these did */
} ngx_weir_store_sum_t;

void ngx_weir_store_sum(const ngx_weir_store_t *store, ngx_weir_store_sum_t *sum);
/* The store's URL as it may be shown. */
const char *ngx_weir_store_shown(const ngx_weir_store_t *store);
/* "slow", "down" … for failures[reason]. */
const char *ngx_weir_store_reason(ngx_uint_t reason, char text[32]);

/* ---- Between the files ---- */

typedef struct ngx_weir_channel_s ngx_weir_channel_t;
typedef struct ngx_weir_store_stats_s ngx_weir_store_stats_t;

#define NGX_WEIR_DETAIL_MAX 256

struct ngx_weir_store_s {
    struct weir__store_options options;
    char shown[1024];
    ngx_ssl_t *ssl; /* NULL: without TLS */
    ngx_shm_zone_t *zone;
    ngx_uint_t block;                  /* 0: http, 1: stream */
    enum weir_consistency consistency; /* of rules that do not say */

    /* A worker's. */
    weir *engine;
    struct weir__driver driver;
    struct weir__client *client;
    ngx_weir_channel_t *channels; /* WEIR__CHANNELS of them */
    ngx_weir_store_stats_t *stats;
    struct weir__client_stats published;
    ngx_event_t flush, wake;
    int64_t wake_at, timer_at; /* when the client wants to be woken, and when it will be */
    ngx_uint_t waiting;        /* requests on their way */
    ngx_weir_wait_t *idle;     /* waits that were used before */
    ngx_uint_t idle_count;
    ngx_log_t quiet;                  /* of connections: what goes wrong with one is no news when the store is away */
    char detail[NGX_WEIR_DETAIL_MAX]; /* the last thing it heard */
};

/* A worker that is to end stays as long as somebody waits in it, or something is not back yet: that is over soon. */
void ngx_weir_store_stay(ngx_weir_store_t *store);

/* A connection's part of struct weir__driver; the context is the store. */
ngx_int_t ngx_weir_channels_make(ngx_weir_store_t *store, ngx_cycle_t *cycle);
void ngx_weir_channel_open(void *context, unsigned channel, const char *host, uint16_t port);
void ngx_weir_channel_close(void *context, unsigned channel);
void ngx_weir_channel_send(void *context, unsigned channel);

#define NGX_WEIR_ADDRESSES 6

typedef struct {
    struct sockaddr_storage list[NGX_WEIR_ADDRESSES];
    socklen_t lens[NGX_WEIR_ADDRESSES];
    ngx_uint_t count; /* 0: there are none */
} ngx_weir_addresses_t;

/* An address written as one, and no name. */
ngx_uint_t ngx_weir_literal(const char *host, uint16_t port, ngx_weir_addresses_t *addresses);
/*
 * Asks the system for the addresses of a name; calls `found` later, outside of this call. The same `owner` must not ask
 * twice at a time. NGX_ERROR: it cannot be asked now.
 */
typedef void ngx_weir_found_pt(void *owner, const ngx_weir_addresses_t *addresses);
ngx_int_t ngx_weir_lookup(const char *host, uint16_t port, ngx_weir_found_pt *found, void *owner, ngx_log_t *log);
/* The owner does not want to know any more. */
void ngx_weir_lookup_forget(void *owner);

ngx_int_t ngx_weir_store_stats_make(ngx_conf_t *cf, ngx_weir_store_t *store);
void ngx_weir_store_stats_begin(ngx_weir_store_t *store);
/* Adds what this worker has counted since the last time. */
void ngx_weir_store_stats_publish(ngx_weir_store_t *store);
void ngx_weir_store_stats_failed(ngx_weir_store_t *store, int error);
/* True if this is news for the whole host: the first worker that takes it for away, or the last that no longer does. */
ngx_uint_t ngx_weir_store_stats_changed(ngx_weir_store_t *store, ngx_uint_t up, int error);

#pragma GCC visibility pop

#endif
