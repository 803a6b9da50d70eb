/* Shared by the http and the stream module; each is linked with a copy of its own. */
#ifndef NGX_WEIR_H
#define NGX_WEIR_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <weir/weir.h>

#pragma GCC visibility push(hidden)

/* The rules and the segment of an http or stream block. */
typedef struct {
    const char *block;      /* "http" or "stream" */
    ngx_str_t segment_path; /* ends with a zero byte, as all paths here */
    off_t segment_size;
    unsigned segment_mode; /* of a new file; 0: the library's choice */
    ngx_flag_t rebuild;
    off_t hot_size;        /* of the sidecar file of hot keys; 0: none */
    ngx_flag_t hot_logged; /* weir_hot_keys was given */
    off_t denial_size;     /* of the sidecar file of recent denials; 0: none, or the default */
    ngx_flag_t denial_off;
    ngx_flag_t hash_keys; /* hot keys and denials have hashes of keys instead of keys */
    ngx_flag_t load;      /* uses the load level: the sidecar file .load is opened */
    ngx_str_t rules_path;
    ngx_flag_t rules_optional;
    ngx_flag_t rules_by_workers; /* only workers read them, as another user than root writes them */
    ngx_flag_t wanted;           /* something in the block needs the engine */
    ngx_flag_t precontent;       /* some location decides in that phase */
    ngx_flag_t logs;             /* some location has weir_log_denied or weir_access_log */
    ngx_flag_t api;              /* some location has weir_api or weir_auth */
    ngx_int_t reservations_max;  /* of the API; 0: off */
    struct weir__reservations *reservations;
    struct ngx_weir_store_s *store; /* NULL: none */

    weir_segment *segment; /* NULL: neither configured nor needed */
    weir *engine;          /* NULL, too, without rules */
    ngx_flag_t lost;       /* its file was truncated, which has been logged */
    ngx_uint_t agentless;  /* polls in a row that found no agent */
    ngx_flag_t quiet;      /* an http block reads the same rules, and logs what there is to log about them */
    ngx_flag_t broken;     /* it was logged that the newest rules were not loaded */
    uint64_t reloads, reload_failures; /* that were logged */
    ngx_log_t *open_log;               /* for diagnostics while the configuration is read; NULL later: ngx_cycle->log */
} ngx_weir_engine_t;

/* The directives weir_segment, weir_hot_keys, weir_denials, weir_rules and (in ngx_weir_store.h) weir_store; their
 * configuration is an ngx_weir_engine_t. */
char *ngx_weir_segment(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_weir_hot_keys(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_weir_denial_ring(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_weir_rules(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* Logs "invalid WHAT VALUE in DIRECTIVE; use …". Always NGX_CONF_ERROR. */
char *ngx_weir_invalid(ngx_conf_t *cf, ngx_command_t *cmd, const char *what, const ngx_str_t *value, const char *use);

ngx_int_t ngx_weir_engine_open(ngx_conf_t *cf, ngx_weir_engine_t *conf);
/* The path of a sidecar file of the segment. */
#define NGX_WEIR_PATH_MAX 4096
const char *ngx_weir_sidecar(const ngx_weir_engine_t *conf, const char *ending, char path[NGX_WEIR_PATH_MAX]);
/* In a worker, whose shutdown does not wait for the timer. */
void ngx_weir_start_timer(ngx_event_t *event, ngx_event_handler_pt handler, void *data, ngx_msec_t ms);
/* In a worker: starts the timer that polls for new rules. */
ngx_int_t ngx_weir_engine_start(ngx_cycle_t *cycle, ngx_weir_engine_t *conf);
/* Counts a wrong password or token; returns the delay of its reply. IPv6 addresses count by their /64. */
ngx_msec_t ngx_weir_wrong_secret(weir_segment *segment, ngx_connection_t *c);

/* The delayed check of a password or token: it occupies a place in the worker until it is released. */
typedef struct {
    ngx_queue_t queue;
    u_char peer[9];
    u_char peer_len; /* 0: it has none */
} ngx_weir_check_t;

/*
 * The delay before a password or token of `c` may be checked, during which it occupies a place. 0: none.
 * NGX_WEIR_NO_PLACE: all places of the address are taken, and the secret must be refused without a check.
 */
#define NGX_WEIR_NO_PLACE ((ngx_msec_t)-1)
ngx_msec_t ngx_weir_check_hold(ngx_weir_check_t *check, weir_segment *segment, ngx_connection_t *c);
/* Without effect if it has no place. */
void ngx_weir_check_release(ngx_weir_check_t *check);
/* Logs an error, at most once a minute for each code. `rule` may be "". */
void ngx_weir_log_limited(ngx_log_t *log, int error, const char *what, const char *rule);

#pragma GCC visibility pop

#endif
