/*
 * The gateway: weir's decisions inside nginx. Which file does what:
 *
 *   module      the directives' table and how configurations inherit; directives: reading them
 *   decide      the phase handlers: one decision a client request, and what follows from it
 *   attributes  what the rules may ask about a request
 *   context     what is kept of a decision; found again after internal redirects
 *   deny, grpc  the answer to a denied request
 *   load        what the agent is told of upstreams and of requests in flight, and how loaded the host is
 *   queue       a denied request that is kept for later instead; and denied after all where that fails
 *   held        slots of requests in flight: renewed, and given back at the end
 *   delay       requests that wait for their turn; store: those that wait for the store
 *   store_tell  the store in status and metrics
 *   filter      response headers
 *   variables   $weir_...
 *   log         one line of JSON for each denied request
 *   rls         the service that Envoy asks: gRPC and its twin in JSON; body: reading a request's
 *   status      JSON for people and probes; json: writing it
 *   metrics     the same for Prometheus
 *   api         the HTTP decision API: from a request to src/api and back; api_body: reading what clients send;
 *               api_conf: its directives and tokens; api_auth: forward authentication; api_expire: reservations
 *
 * The rules and the segment are in ngx_weir.h. docs/nginx.md describes it from outside.
 */
#ifndef NGX_HTTP_WEIR_H
#define NGX_HTTP_WEIR_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_weir.h"
#include "ngx_weir_store.h"
#include "services/http/api.h"

/* Nothing below is for other modules. */
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

/* A file that a worker's thread writes lines to (engine/log_writer.h). */
typedef struct {
    ngx_open_file_t *file; /* of no other log, whatever its path */
    ngx_uint_t kind;       /* NGX_HTTP_WEIR_LOG_… */
    ngx_fd_t fd;           /* a copy of the file's for the thread, each worker's own; NGX_INVALID_FILE: none yet */
    ngx_uint_t stale;      /* the file is being reopened */
} ngx_http_weir_log_file_t;

enum { NGX_HTTP_WEIR_LOG_DENIED = 0, NGX_HTTP_WEIR_LOG_ACCESS };

/* A log of denied requests; `second` and what follows is each worker's own. */
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

/* Where denied requests go that may be kept for later. */
typedef struct {
    ngx_str_t location;        /* a named one; empty: nowhere */
    off_t body;                /* bytes that are taken; -1: any */
    ngx_flag_t client_headers; /* the gateway passes the client's headers on as they are: so may the queue */
} ngx_http_weir_queue_t;

typedef struct {
    ngx_uint_t mode;
    ngx_uint_t phase;
    ngx_http_complex_value_t *cost;
    ngx_array_t *attributes;  /* of ngx_http_weir_attribute_t */
    ngx_http_weir_log_t *log; /* NULL: none */
    ngx_http_weir_access_log_t *access_log;
    ngx_http_weir_queue_t *queue;
    ngx_flag_t rls; /* the location answers gRPC calls itself */
    ngx_flag_t rls_headers, rls_metadata, rls_count_denied;
    ngx_flag_t service;        /* decides about other requests, and is not limited itself unless it says so */
    ngx_array_t *tokens;       /* of ngx_http_weir_token_t; NULL: open */
    ngx_flag_t operators;      /* without tokens: everybody may act as an operator */
    ngx_flag_t open;           /* with tokens: only operators need one */
    ngx_uint_t auth_status;    /* of a denial by weir_auth; 0: the rule's */
    ngx_uint_t auth_headers;   /* NGX_HTTP_WEIR_EITHER, _FORWARDED or _ORIGINAL */
    ngx_array_t *auth_proxies; /* of ngx_cidr_t; NULL: this host, and peers that authenticate */
} ngx_http_weir_loc_conf_t;

/* Tokens are compared by their keyed digests, in a time that tells nothing of them. */
typedef struct {
    u_char digest[32];
    ngx_uint_t is_operator;
} ngx_http_weir_token_t;

extern ngx_module_t ngx_http_weir_module, ngx_http_weir_filter_module;

char *ngx_http_weir_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_cost(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_attribute(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_log_denied(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_queue(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_denied(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* Some location needs the engine. */
void ngx_http_weir_want(ngx_conf_t *cf);
char *ngx_http_weir_rls(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_rls_json(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* ---- A decision ---- */

/* A denial as a whole, of a request that is being brought to a queue: that may fail. */
typedef struct {
    weir_result result;
    ngx_flag_t client_headers; /* of ngx_http_weir_queue_t */
    char text[];               /* of its */
} ngx_http_weir_deferred_t;

/* Rules that took nothing of a request that they let pass all the same: shadows that denied it, and failures. */
typedef struct {
    size_t count;
    uint64_t id[]; /* weir_outcome_id */
} ngx_http_weir_untaken_t;

/* What is kept of a decision until the request ends. Requests that wait keep it as well: it is small. */
typedef struct {
    int64_t limit, remaining; /* negative: nothing limits the request */
    int64_t retry_after_ns;
    int64_t give_back; /* what a client that leaves its place gets back */
    weir_time taken;   /* when it took it: given back later, it must not count for a window that has begun since */
    ngx_http_weir_untaken_t *not_taken; /* who gets nothing back; NULL: all took something */
    ngx_http_weir_deferred_t *deferred; /* NULL: it is not for a queue, or was not taken there */
    uint32_t rules;                     /* those that it waits under */
    uint16_t rule_len, key_len, headers_len;
    uint8_t verdict; /* enum weir_verdict */
    unsigned failed : 1;
    unsigned dry_run : 1;
    unsigned shed : 1; /* for the sake of others, and not for what it did */
    unsigned waiting : 1;
    unsigned in_flight : 1; /* counted as such until its end */
    unsigned reused : 1;    /* goes back to the spare ones */
    uint16_t header_len[WEIR_HEADER_COUNT];
    u_char text[]; /* rule, key, and the headers' values as weir_result_header_values wrote them */
} ngx_http_weir_ctx_t;

/* The decision on the client's request that `r` belongs to, or NULL. */
ngx_http_weir_ctx_t *ngx_http_weir_find(ngx_http_request_t *r);
/* Keeps an answer. NULL: no memory. */
ngx_http_weir_ctx_t *ngx_http_weir_keep(ngx_http_request_t *r, const weir_result *result, const weir_outcome *outcomes,
                                        ngx_uint_t dry_run);
/* The same of what was told briefly. */
struct weir__fast_result;
ngx_http_weir_ctx_t *ngx_http_weir_keep_fast(ngx_http_request_t *r, const struct weir__fast_result *fast,
                                             ngx_uint_t dry_run);
/* Keeps that there is none. */
ngx_http_weir_ctx_t *ngx_http_weir_keep_failure(ngx_http_request_t *r);

ngx_int_t ngx_http_weir_preaccess(ngx_http_request_t *r);
ngx_int_t ngx_http_weir_precontent(ngx_http_request_t *r);

/* Fills in who is asked and what is known at once; the rest comes through the query's look-up. */
void ngx_http_weir_describe(ngx_http_request_t *r, weir_query *query);
/*
 * The client of a query as text, in `room`: with trusted_proxies in the rules whom these name. Where there is none, the
 * connection's other end, as $remote_addr has it.
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
ngx_uint_t ngx_http_weir_is_list(const char *name, size_t len);

/* ---- Asking the store first ---- */

/* Called when the answer has come: to do again what was begun, which then finds it. */
typedef void ngx_http_weir_go_on_pt(ngx_http_request_t *r, ngx_str_t *body);

/* A wait for what the request has to ask, or the answered one. NULL: there is nothing to be asked. */
ngx_weir_wait_t *ngx_http_weir_wait(ngx_http_request_t *r, ngx_http_weir_main_conf_t *mcf, ngx_uint_t *answered);
/* Asks. NGX_OK: it is answered; NGX_AGAIN: `go_on` is called later, with what `body` (or NULL) says; NGX_ERROR. */
ngx_int_t ngx_http_weir_wait_begin(ngx_http_request_t *r, ngx_weir_wait_t *wait, ngx_http_weir_go_on_pt *go_on,
                                   const ngx_str_t *body);
/* After the checks. NULL is allowed. */
void ngx_http_weir_wait_over(ngx_weir_wait_t *wait);

/* The three for one check: *asked is to be over after it. The second: for a phase handler, which is called again. */
ngx_int_t ngx_http_weir_store_request(ngx_http_request_t *r, ngx_http_weir_main_conf_t *mcf, weir_query *query,
                                      ngx_http_weir_go_on_pt *go_on, ngx_weir_wait_t **sent);
ngx_int_t ngx_http_weir_store_request_in_phase(ngx_http_request_t *r, ngx_http_weir_main_conf_t *mcf, weir_query *query,
                                               ngx_weir_wait_t **sent);
/* A check that gives something back: tells the store as well, and waits for nothing. */
int ngx_http_weir_check_detached(ngx_http_weir_main_conf_t *mcf, weir_query *query, weir_result *result);

/* ---- What follows ---- */

/* Each returns what the phase handler has to. */
ngx_int_t ngx_http_weir_deny(ngx_http_request_t *r, const weir_result *result);
/* Holds the slots of a request until it ends. NGX_ERROR: no memory, and they were given back. */
ngx_int_t ngx_http_weir_hold(ngx_http_request_t *r, ngx_http_weir_main_conf_t *mcf, weir_permits *permits);
ngx_int_t ngx_http_weir_delay(ngx_http_request_t *r, ngx_http_weir_ctx_t *ctx, int64_t delay_ns);
/* Brings a denied request to the queue. NGX_DECLINED: it is to be denied. */
ngx_int_t ngx_http_weir_defer(ngx_http_request_t *r, ngx_http_weir_loc_conf_t *conf, ngx_http_weir_ctx_t *ctx,
                              const weir_result *result);
/* The content handler of weir_denied: the denial of a request that no queue took. */
ngx_int_t ngx_http_weir_denied_handler(ngx_http_request_t *r);
/* Writes a denial down in the logs. */
void ngx_http_weir_log_denied_line(ngx_http_request_t *r, ngx_http_weir_loc_conf_t *conf, const weir_query *query,
                                   const weir_result *result, ngx_uint_t dry_run);

/* A denial as HTTP says it, for a content handler: returns what that has to. */
ngx_int_t ngx_http_weir_deny_plain(ngx_http_request_t *r, const weir_result *result);

/* The type of the answer if the request is a gRPC call, else NULL. */
const char *ngx_http_weir_grpc_type(ngx_http_request_t *r);
/* Pushes the headers that say how a call ended; then sends it: there is no more than headers. */
ngx_int_t ngx_http_weir_grpc_status(ngx_http_request_t *r, ngx_uint_t code, const u_char *text, size_t len);
ngx_int_t ngx_http_weir_grpc_send(ngx_http_request_t *r, const char *type);
ngx_int_t ngx_http_weir_deny_grpc(ngx_http_request_t *r, const weir_result *result, const char *type);

/* Sends headers and body; the status is set. */
ngx_int_t ngx_http_weir_send(ngx_http_request_t *r, const u_char *body, size_t len, const char *type);

/* Pushes one response header. */
ngx_int_t ngx_http_weir_push_header(ngx_http_request_t *r, ngx_str_t name, u_char *lowcase, ngx_str_t value);

ngx_int_t ngx_http_weir_add_variables(ngx_conf_t *cf);
/* `weir_access_log PATH FORMAT [escape=json]`, `off` */
char *ngx_http_weir_access_log(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_int_t ngx_http_weir_access_log_init(ngx_conf_t *cf);
/* Adds the file of a log to those that nginx opens, and reopens on USR1. */
ngx_int_t ngx_http_weir_log_open(ngx_conf_t *cf, ngx_str_t path, ngx_uint_t kind, ngx_http_weir_log_file_t *to);
/* Hands a line to the worker's thread; NGX_DECLINED: it was dropped. */
ngx_int_t ngx_http_weir_log_put(ngx_log_t *log, ngx_http_weir_log_file_t *to, u_char *line, size_t len);
void ngx_http_weir_log_start(ngx_cycle_t *cycle);
void ngx_http_weir_log_stop(void);
void ngx_http_weir_log(ngx_http_request_t *r, ngx_http_weir_log_t *log, const weir_query *query,
                       const weir_result *result, ngx_uint_t dry_run);

/* Whole seconds, rounded up; 0: waiting does not help. */
int64_t ngx_http_weir_seconds(int64_t retry_after_ns);

/* ---- The service ---- */

/*
 * The request's body in one piece, once nginx has read it: where it lies, or a copy. NGX_DECLINED: it has more than
 * `max` bytes.
 */
ngx_int_t ngx_http_weir_body(ngx_http_request_t *r, size_t max, ngx_str_t *body);
/* NGX_OK: a POST. Else what the content handler returns. */
ngx_int_t ngx_http_weir_only_post(ngx_http_request_t *r);
/* If nginx refuses a call for its size, the answer becomes one that gRPC clients understand. */
ngx_int_t ngx_http_weir_rls_refused(ngx_http_request_t *r);

/* ---- The load level ---- */

ngx_int_t ngx_http_weir_load_init(ngx_conf_t *cf, ngx_http_weir_main_conf_t *mcf);
void ngx_http_weir_load_start(ngx_cycle_t *cycle, ngx_http_weir_main_conf_t *mcf);
void ngx_http_weir_load_stop(ngx_http_weir_main_conf_t *mcf);
/* The request passes, and is in flight until it ends. */
void ngx_http_weir_load_begin(ngx_http_weir_main_conf_t *mcf, ngx_http_weir_ctx_t *ctx);

/* The content handlers of weir_status and weir_metrics. */
ngx_int_t ngx_http_weir_status_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_weir_metrics_handler(ngx_http_request_t *r);

/* ---- The decision API ---- */

/* What there is once; the main configuration of the filter's module. */
typedef struct {
    ngx_flag_t wanted; /* some location needs it */
    ngx_int_t reservations_max;
    void *token_mac; /* EVP_MAC_CTX: what makes the digests of tokens; NULL until there is one */
    struct weir__reservations *reservations; /* NULL: none */
} ngx_http_weir_api_conf_t;

void *ngx_http_weir_api_create_conf(ngx_conf_t *cf);
char *ngx_http_weir_api_reservations(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_auth(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_api_token(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_auth_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_auth_trusted_proxies(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* After the configuration was read and the engine opened. */
ngx_int_t ngx_http_weir_api_init(ngx_conf_t *cf, ngx_http_weir_main_conf_t *mcf);
/* What a location's configuration takes over from the one around it. */
char *ngx_http_weir_api_merge(ngx_conf_t *cf, ngx_http_weir_loc_conf_t *prev, ngx_http_weir_loc_conf_t *conf);
/* In a worker. */
ngx_int_t ngx_http_weir_api_start(ngx_cycle_t *cycle, ngx_http_weir_main_conf_t *mcf);
struct weir__api *ngx_http_weir_api_here(void);

/* Bits: an operator is a caller, too. */
enum {
    NGX_HTTP_WEIR_NOBODY = 0,
    NGX_HTTP_WEIR_CALLER = 1,
    NGX_HTTP_WEIR_OPERATOR = 3,
    NGX_HTTP_WEIR_BAD_TOKEN = 4,
    NGX_HTTP_WEIR_BY_TOKEN = 8 /* which was right */
};
/* By the token in X-Weir-Token; with `bearer` also by the one in Authorization, which forward auth has of the client.
 */
ngx_uint_t ngx_http_weir_api_who(ngx_http_request_t *r, ngx_uint_t bearer);
/*
 * Before anything is done that depends on `who`: holds a request with a token, right or wrong, back if its address sent
 * wrong ones, unless the last token of its connection was right. NGX_DECLINED: it goes on now. NGX_BUSY: too many of
 * the address are held back; it is to be refused, whatever its token is. Else the content handler returns the value;
 * after NGX_DONE it is called again later.
 */
ngx_int_t ngx_http_weir_check_hold(ngx_http_request_t *r, ngx_uint_t who);
#define NGX_HTTP_WEIR_LOGIN_BUSY "too many wrong tokens came from this address: try again"
/*
 * A wrong token: holds the request back, so that guessing takes its time. `later` answers it: first of all it asks
 * ngx_http_weir_login_is_throttled, which is true while it is not time yet. NGX_DECLINED: it cannot be; else the
 * content handler returns the value.
 */
ngx_int_t ngx_http_weir_login_throttle(ngx_http_request_t *r, ngx_http_event_handler_pt later);
ngx_uint_t ngx_http_weir_login_is_throttled(ngx_http_request_t *r);
/* NGX_DECLINED: the location's tokens admit the request. Else it was refused; the content handler returns the value. */
ngx_int_t ngx_http_weir_admit(ngx_http_request_t *r, ngx_uint_t operator_only, ngx_uint_t bearer);
/* Sends an error as JSON, and discards the request's body. */
ngx_int_t ngx_http_weir_refuse(ngx_http_request_t *r, int status, const char *code, const char *message);

ngx_int_t ngx_http_weir_api_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_weir_auth_handler(ngx_http_request_t *r);

/* Called with the whole body, or with NULL if it is too long. Finalizes the request. */
typedef void ngx_http_weir_api_body_pt(ngx_http_request_t *r, ngx_str_t *body);
/* Reads the body of up to WEIR__API_BODY_MAX bytes; returns what a content handler has to. */
ngx_int_t ngx_http_weir_api_read_body(ngx_http_request_t *r, ngx_http_weir_api_body_pt *done);

/* ---- JSON ---- */

/* A text that grows. */
typedef struct {
    ngx_pool_t *pool;
    ngx_chain_t *first, *last;
    off_t length;
    ngx_uint_t failed; /* no memory */
} ngx_http_weir_text_t;

/* Adds as ngx_sprintf does; at most 1024 bytes at once. */
void ngx_http_weir_text_add(ngx_http_weir_text_t *text, const char *format, ...);
/* Adds a string of JSON; at most 2048 bytes of it. */
void ngx_http_weir_text_add_string(ngx_http_weir_text_t *text, const void *string, size_t len);

/* What is told of the store. */
void ngx_http_weir_store_status(ngx_http_weir_text_t *text, const ngx_weir_store_t *store);
void ngx_http_weir_store_metrics(ngx_http_weir_text_t *text, const ngx_weir_store_t *store);
/* How loaded the host is; nothing without weir_load. */
void ngx_http_weir_load_status(ngx_http_weir_text_t *text, weir *engine);
void ngx_http_weir_load_metrics(ngx_http_weir_text_t *text, weir *engine);
/* And of the agent; nothing where no rule is eventual. */
void ngx_http_weir_ledger_status(ngx_http_weir_text_t *text, weir *engine);
void ngx_http_weir_ledger_metrics(ngx_http_weir_text_t *text, weir *engine);
/* And what the agent has written down: of deferred requests and of hosts; nothing where there are none. */
void ngx_http_weir_log_metrics(ngx_http_weir_text_t *text);
void ngx_http_weir_agent_metrics(ngx_http_weir_text_t *text, const ngx_http_weir_main_conf_t *mcf);

/* Answers a GET or HEAD with the text that `write` adds. Returns what a content handler has to. */
ngx_int_t ngx_http_weir_text_send(ngx_http_request_t *r, ngx_str_t type,
                                  void (*write)(ngx_http_weir_text_t *text, ngx_http_weir_main_conf_t *mcf));

/* Writes a string of JSON, quotes and all, into [to, last). What is not UTF-8 becomes U+FFFD; what does not fit is cut.
 */
u_char *ngx_http_weir_json_string(u_char *to, u_char *last, const u_char *text, size_t len);

#pragma GCC visibility pop

#endif
