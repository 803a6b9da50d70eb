/*
 * The gateway: weir's decisions inside nginx. Files:
 *
 *   module      directives, and how configurations inherit
 *   decide      phase handlers: one decision a client request, and its enforcement; delayed requests
 *   attributes  attributes of a request, as the rules look them up
 *   context     the stored decision of a request, which survives internal redirects
 *   deny        replies to denied requests, plain and gRPC
 *   queue       denied requests that are deferred instead
 *   permits     permits of requests in flight: renewed, and released at the end
 *   wait        requests that wait, for a time or for the store
 *   load        reports to the agent: requests in flight, responses of upstreams
 *   filter      response headers
 *   variables   $weir_...
 *   log         weir_log_denied and weir_access_log, written by a thread
 *   status      weir_status and weir_metrics
 *   rls         Envoy's rate-limit service, over gRPC and as JSON
 *   api         the HTTP decision API: from a request to src/services/http and back; reservations
 *   api_auth    forward authentication
 *   login       tokens of these services, and the login throttle
 *
 * ngx_weir.h has the rules and the segment. docs/reference/nginx.md describes the module for its users.
 */
#ifndef NGX_HTTP_WEIR_H
#define NGX_HTTP_WEIR_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_weir.h"
#include "ngx_weir_store.h"
#include "base/sha256.h"
#include "base/text.h"
#include "services/http/api.h"

/* Hidden: not for other modules. */
#pragma GCC visibility push(hidden)

/* ---- Configuration ---- */

enum { NGX_HTTP_WEIR_OFF = 0, NGX_HTTP_WEIR_ON, NGX_HTTP_WEIR_DRY_RUN };
enum { NGX_HTTP_WEIR_PREACCESS = 0, NGX_HTTP_WEIR_PRECONTENT };
/* The headers in which a proxy describes a request to weir_auth: X-Forwarded-… or X-Original-… */
enum { NGX_HTTP_WEIR_FORWARDED = 0, NGX_HTTP_WEIR_ORIGINAL, NGX_HTTP_WEIR_EITHER };

typedef ngx_weir_engine_t ngx_http_weir_main_conf_t;

typedef struct {
    ngx_str_t name;
    ngx_http_complex_value_t value;
} ngx_http_weir_attribute_t;

/* A file that a worker's thread writes lines to (base/log.h). */
typedef struct {
    ngx_open_file_t *file; /* not shared with another log, even of the same path */
    ngx_uint_t kind;       /* NGX_HTTP_WEIR_LOG_… */
    ngx_fd_t fd;           /* the worker's duplicate of the descriptor, for the thread; NGX_INVALID_FILE: none yet */
    ngx_uint_t stale;      /* the file is being reopened */
} ngx_http_weir_log_file_t;

enum { NGX_HTTP_WEIR_LOG_DENIED = 0, NGX_HTTP_WEIR_LOG_ACCESS };

/* A log of denied requests; from `second` on: state of the worker. */
typedef struct {
    ngx_http_weir_log_file_t to;
    ngx_uint_t rate; /* lines a second */
    ngx_flag_t hash;
    ngx_str_t salt;
    time_t second;
    ngx_uint_t written; /* in this second */
    ngx_uint_t skipped; /* since the last line */
} ngx_http_weir_log_t;

/* A log of all requests. */
typedef struct {
    ngx_http_weir_log_file_t to;
    ngx_array_t *fields; /* of its format: ngx_http_weir_log_part_t */
    size_t text_bytes;   /* of its format without the variables */
    ngx_flag_t json;     /* values are escaped as in JSON */
} ngx_http_weir_access_log_t;

/* weir_queue: where denied requests are deferred to. */
typedef struct {
    ngx_str_t location;        /* a named one */
    off_t body;                /* maximum bytes of a body; -1: any */
    ngx_flag_t client_headers; /* the gateway forwards the client's headers unchanged, so the queue may do so, too */
} ngx_http_weir_queue_t;

typedef struct {
    ngx_uint_t mode;
    ngx_uint_t phase;
    ngx_http_complex_value_t *cost;
    ngx_array_t *attributes;  /* of ngx_http_weir_attribute_t */
    ngx_http_weir_log_t *log; /* NULL: none */
    ngx_http_weir_access_log_t *access_log;
    ngx_http_weir_queue_t *queue;
    ngx_flag_t rls_headers, rls_metadata, rls_count_denied;
    ngx_flag_t service;        /* weir_api or weir_auth: not limited itself unless `weir on` is set here */
    ngx_array_t *tokens;       /* of ngx_http_weir_token_t; NULL: open */
    ngx_flag_t operators;      /* without tokens: every caller is an operator */
    ngx_flag_t open;           /* with tokens: only operators need one */
    ngx_int_t auth_status;     /* of a denial by weir_auth; 0: the rule's */
    ngx_uint_t auth_headers;   /* NGX_HTTP_WEIR_EITHER, _FORWARDED or _ORIGINAL */
    ngx_array_t *auth_proxies; /* of ngx_cidr_t; NULL: this host, and peers that authenticate */
} ngx_http_weir_loc_conf_t;

/* Tokens are compared by their digests, in constant time. */
typedef struct {
    u_char digest[WEIR__SHA256_BYTES];
    ngx_uint_t is_operator;
} ngx_http_weir_token_t;

extern ngx_module_t ngx_http_weir_module, ngx_http_weir_filter_module;

/* Adds a handler to a phase of all requests. */
ngx_int_t ngx_http_weir_add_phase(ngx_conf_t *cf, ngx_uint_t phase, ngx_http_handler_pt handler);

/* ---- A decision ---- */

/* A denial whose request is being deferred; it is sent if that fails. */
typedef struct {
    weir_result result;
    ngx_flag_t client_headers; /* of ngx_http_weir_queue_t */
    char text[];               /* texts of the result */
} ngx_http_weir_deferred_t;

/* Rules that took nothing although the request passes: shadow rules that would deny it, and failures. */
typedef struct {
    size_t count;
    uint64_t id[]; /* weir_outcome_id */
} ngx_http_weir_untaken_t;

/* The stored decision of a request, until it ends. Kept small because delayed requests have one, too. */
typedef struct {
    int64_t limit, remaining; /* negative: nothing limits the request */
    int64_t retry_after_ns;
    int64_t refund;                     /* units that are refunded if the client leaves during its delay */
    weir_time taken;                    /* when they were taken: a later window must not be refunded */
    ngx_http_weir_untaken_t *not_taken; /* rules that get no refund; NULL: all took something */
    ngx_http_weir_deferred_t *deferred; /* NULL: not being deferred */
    uint32_t rules;                     /* the rule set under which it is delayed */
    uint16_t rule_len, key_len, headers_len;
    uint8_t verdict; /* enum weir_verdict */
    unsigned failed : 1;
    unsigned dry_run : 1;
    unsigned shed : 1; /* denied to protect the host or a reserve, not by its own limit */
    unsigned waiting : 1;
    unsigned in_flight : 1; /* counted by ngx_http_weir_load_begin */
    unsigned reused : 1;    /* from the free list, not from the request's pool */
    uint16_t header_len[WEIR_HEADER_COUNT];
    u_char text[]; /* rule, key, and the headers' values as weir_result_header_values wrote them */
} ngx_http_weir_ctx_t;

/* The stored decision of the main request of `r`, or NULL. */
ngx_http_weir_ctx_t *ngx_http_weir_find(ngx_http_request_t *r);
/* These store a decision: a full result, a fast-path result, or that there is none. NULL: no memory. */
ngx_http_weir_ctx_t *ngx_http_weir_keep(ngx_http_request_t *r, const weir_result *result, const weir_outcome *outcomes,
                                        ngx_uint_t dry_run);
struct weir__fast_result;
ngx_http_weir_ctx_t *ngx_http_weir_keep_fast(ngx_http_request_t *r, const struct weir__fast_result *fast,
                                             ngx_uint_t dry_run);
ngx_http_weir_ctx_t *ngx_http_weir_keep_failure(ngx_http_request_t *r);

ngx_int_t ngx_http_weir_preaccess(ngx_http_request_t *r);
ngx_int_t ngx_http_weir_precontent(ngx_http_request_t *r);

/* Fills in path, peer and the lookup function, by which the rules read all other attributes. */
void ngx_http_weir_describe(ngx_http_request_t *r, weir_query *query);
/*
 * The client's address as text, in `room`: by trusted_proxies of the rules if there are any, else the peer of the
 * connection, as $remote_addr.
 */
ngx_str_t ngx_http_weir_client(ngx_http_request_t *r, const weir_query *query, u_char room[NGX_INET6_ADDRSTRLEN]);
/* Removes spaces and tabs at both ends. */
void ngx_http_weir_trim(ngx_str_t *value);
/*
 * The value of a request header (`name` in lower case), without white space around it. NGX_DONE: several lines, joined;
 * NGX_DECLINED: none; NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_weir_header(ngx_http_request_t *r, const char *name, size_t len, ngx_str_t *value);
/* A header to which each proxy or the browser adds lines: X-Forwarded-For, Forwarded, Cookie. Others have one value. */
bool ngx_http_weir_is_list(const char *name, size_t len);
/* The content type of the request without parameters; data NULL: none. */
weir_text ngx_http_weir_media_type(ngx_http_request_t *r);

/* ---- Waiting ---- */

/* Runs `later` after `ms`, unless the client disconnects. Of main requests only. NGX_OK or NGX_ERROR. */
ngx_int_t ngx_http_weir_pause(ngx_http_request_t *r, ngx_msec_t ms, ngx_http_event_handler_pt later);
/* For `later`: true if it was called too early, or the request was finalized. */
ngx_uint_t ngx_http_weir_is_paused(ngx_http_request_t *r);

/* Called when the reply has arrived: repeats the call, which then finds the reply. */
typedef void ngx_http_weir_go_on_pt(ngx_http_request_t *r, ngx_str_t *body);

/* True if the request waits for the store's reply, or it has arrived. */
ngx_uint_t ngx_http_weir_is_pending(ngx_http_request_t *r);
/* The request's wait for the store; *replied: the reply has arrived. NULL: there is no store. */
ngx_weir_wait_t *ngx_http_weir_wait(ngx_http_request_t *r, ngx_http_weir_main_conf_t *mcf, ngx_uint_t *replied);
/* Sends the ops. NGX_AGAIN: `go_on` is called later, with `body` (NULL: an empty one); NGX_ERROR. */
ngx_int_t ngx_http_weir_wait_begin(ngx_http_request_t *r, ngx_weir_wait_t *wait, ngx_http_weir_go_on_pt *go_on,
                                   const ngx_str_t *body);
/* After the checks. NULL is allowed. */
void ngx_http_weir_wait_over(ngx_weir_wait_t *wait);

/*
 * All of these for one check; *sent must be passed to ngx_http_weir_wait_over after it. `go_on` NULL: for a phase
 * handler, which runs again.
 */
ngx_int_t ngx_http_weir_store_request(ngx_http_request_t *r, ngx_http_weir_main_conf_t *mcf, weir_query *query,
                                      ngx_http_weir_go_on_pt *go_on, ngx_weir_wait_t **sent);
/* A check that refunds, also in the store, without waiting for its reply. */
int ngx_http_weir_check_detached(ngx_http_weir_main_conf_t *mcf, weir_query *query, weir_result *result);

/* ---- Enforcement and replies ---- */

/* Denies the request; returns what the phase handler returns. */
ngx_int_t ngx_http_weir_deny(ngx_http_request_t *r, const weir_result *result);
/* Sends a denial that is not gRPC's; returns what the content handler returns. */
ngx_int_t ngx_http_weir_deny_plain(ngx_http_request_t *r, const weir_result *result);
/* Adds WWW-Authenticate to a denial with status 401. */
ngx_int_t ngx_http_weir_challenge(ngx_http_request_t *r, const weir_result *result);
/* Holds the permits of a request until it ends. NGX_ERROR: no memory, and they were released. */
ngx_int_t ngx_http_weir_hold(ngx_http_request_t *r, ngx_http_weir_main_conf_t *mcf, weir_permits *permits);
/* Defers a denied request. NGX_DECLINED: it must be denied. */
ngx_int_t ngx_http_weir_defer(ngx_http_request_t *r, ngx_http_weir_loc_conf_t *conf, ngx_http_weir_ctx_t *ctx,
                              const weir_result *result);
/* The content handler of weir_denied: denies a request that could not be deferred. */
ngx_int_t ngx_http_weir_denied_handler(ngx_http_request_t *r);
/* Logs a denial: to weir_log_denied, and at level info to nginx's error log. */
void ngx_http_weir_log_denied_line(ngx_http_request_t *r, ngx_http_weir_loc_conf_t *conf, const weir_query *query,
                                   const weir_result *result, ngx_uint_t dry_run);

/* The content type of the reply if the request is a gRPC call, else NULL. */
const char *ngx_http_weir_grpc_type(ngx_http_request_t *r);
/* Adds grpc-status and grpc-message. */
ngx_int_t ngx_http_weir_grpc_status(ngx_http_request_t *r, ngx_uint_t code, const void *text, size_t len);
/* Sends a gRPC reply that consists of headers only. */
ngx_int_t ngx_http_weir_grpc_send(ngx_http_request_t *r, const char *type);

void ngx_http_weir_set_type(ngx_http_request_t *r, const char *type);
/* Sends headers and body; the status is set. */
ngx_int_t ngx_http_weir_send(ngx_http_request_t *r, const void *body, size_t len, const char *type);
/* Adds one response header. */
ngx_int_t ngx_http_weir_push_header(ngx_http_request_t *r, const char *name, ngx_str_t value);
ngx_int_t ngx_http_weir_push_text(ngx_http_request_t *r, const char *name, const char *value);
ngx_int_t ngx_http_weir_push_number(ngx_http_request_t *r, const char *name, int64_t number);
/* Whole seconds, rounded up; 0: waiting does not help. */
int64_t ngx_http_weir_seconds(int64_t retry_after_ns);

ngx_int_t ngx_http_weir_add_variables(ngx_conf_t *cf);

/* ---- Logs ---- */

/* `weir_access_log PATH FORMAT [escape=json]`, `off` */
char *ngx_http_weir_access_log(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* `weir_log_denied PATH|off [rate=100] [hash|hash=SALT]` */
char *ngx_http_weir_log_denied(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* Of the log phase. */
ngx_int_t ngx_http_weir_access_log_handler(ngx_http_request_t *r);
void ngx_http_weir_log_start(ngx_cycle_t *cycle);
void ngx_http_weir_log_stop(void);
void ngx_http_weir_log(ngx_http_request_t *r, ngx_http_weir_log_t *log, const weir_query *query,
                       const weir_result *result, ngx_uint_t dry_run);
void ngx_http_weir_log_metrics(struct weir__buffer *text);
/*
 * Writes a JSON string with its quotes into [to, last). Bytes that are not UTF-8 become U+FFFD; text that does not fit
 * is cut.
 */
u_char *ngx_http_weir_json_string(u_char *to, u_char *last, const void *text, size_t len);

/* ---- Services ---- */

/* The content handlers of weir_rls and weir_rls_json. */
ngx_int_t ngx_http_weir_rls_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_weir_rls_json_handler(ngx_http_request_t *r);
/* If nginx refuses a gRPC call for its size, replaces the reply by gRPC's. */
ngx_int_t ngx_http_weir_rls_refused(ngx_http_request_t *r);

/* The content handlers of weir_status and weir_metrics. */
ngx_int_t ngx_http_weir_status_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_weir_metrics_handler(ngx_http_request_t *r);

/* ---- Load ---- */

/* The handler of the log phase: the request has ended. */
ngx_int_t ngx_http_weir_load_log(ngx_http_request_t *r);
void ngx_http_weir_load_start(ngx_http_weir_main_conf_t *mcf);
void ngx_http_weir_load_stop(ngx_http_weir_main_conf_t *mcf);
/* The request passes, and is in flight until it ends. */
void ngx_http_weir_load_begin(ngx_http_weir_main_conf_t *mcf, ngx_http_weir_ctx_t *ctx);

/* ---- The decision API ---- */

char *ngx_http_weir_api_token(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* After the configuration was read and the engine opened. */
ngx_int_t ngx_http_weir_api_init(ngx_conf_t *cf, ngx_http_weir_main_conf_t *mcf);
/* In a worker. */
ngx_int_t ngx_http_weir_api_start(ngx_cycle_t *cycle, ngx_http_weir_main_conf_t *mcf);

/* Bits: an operator is a caller, too. */
enum {
    NGX_HTTP_WEIR_NO_TOKEN = 0,
    NGX_HTTP_WEIR_CALLER = 1,
    NGX_HTTP_WEIR_OPERATOR = 3,
    NGX_HTTP_WEIR_BAD_TOKEN = 4,
    NGX_HTTP_WEIR_BY_TOKEN = 8 /* with a valid token */
};
/* The caller by the token in X-Weir-Token, with `bearer` also in Authorization, which in forward auth is the client's.
 */
ngx_uint_t ngx_http_weir_api_caller(ngx_http_request_t *r, ngx_uint_t bearer);
/*
 * The login throttle; must run before anything that depends on the caller. Delays a request with a token, valid or not,
 * if its address sent invalid ones, unless the last token of its connection was valid; and delays the reply to an
 * invalid token. NGX_DECLINED: continue. NGX_BUSY: too many requests of the address are delayed, and this one must be
 * refused, whatever its token. Else the content handler returns the value; after NGX_DONE it is called again later.
 */
ngx_int_t ngx_http_weir_login(ngx_http_request_t *r, ngx_uint_t caller);
#define NGX_HTTP_WEIR_LOGIN_BUSY "too many wrong tokens came from this address: try again"
/* NGX_DECLINED: the location's tokens admit the request. Else it was refused; the content handler returns the value. */
ngx_int_t ngx_http_weir_admit(ngx_http_request_t *r, ngx_uint_t operator_only, ngx_uint_t bearer);
/* Sends an error as JSON, and discards the request's body. */
ngx_int_t ngx_http_weir_refuse(ngx_http_request_t *r, int status, const char *code, const char *message);

ngx_int_t ngx_http_weir_api_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_weir_auth_handler(ngx_http_request_t *r);

#pragma GCC visibility pop

#endif
