/*
 * The service's Redis protocol, in nginx's stream. Which file does what:
 *
 *   module      the directives' table, and how configurations come about
 *   session     a connection: reading, writing, and waiting for clients that do neither
 *   commands    the table of commands, and finding one
 *   throttle    CL.THROTTLE, in batches
 *   check       WEIR.CHECK, WEIR.PEEK; store: those that ask the store first
 *   held        WEIR.RELEASE, WEIR.RENEW
 *   operator    WEIR.RESET, WEIR.BLOCK, WEIR.STATS
 *   auth        AUTH and passwords
 *   handshake   what clients send when they connect: HELLO, CLIENT, COMMAND, INFO …
 *
 * What the bytes mean is in src/resp. docs/service-resp.md describes it from outside.
 */
#ifndef NGX_STREAM_WEIR_H
#define NGX_STREAM_WEIR_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_stream.h>

#include "ngx_weir.h"
#include "ngx_weir_store.h"
#include "services/resp/parse.h"
#include "services/resp/write.h"

/* Nothing below is for other modules. */
#pragma GCC visibility push(hidden)

/* ---- Configuration ---- */

typedef ngx_weir_engine_t ngx_stream_weir_main_conf_t;

typedef struct {
    ngx_str_t name;
    ngx_str_t password;
    ngx_uint_t is_operator;
} ngx_stream_weir_user_t;

typedef struct {
    ngx_array_t *users; /* of ngx_stream_weir_user_t; NULL: none */
    ngx_flag_t closed;  /* some of them are no operators: who is none of them may do nothing */
    ngx_msec_t timeout; /* 0: idle clients may stay */
} ngx_stream_weir_srv_conf_t;

extern ngx_module_t ngx_stream_weir_module;

/* weir_resp_password, weir_resp_operator_password */
char *ngx_stream_weir_password(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* ---- A connection ---- */

#define NGX_STREAM_WEIR_NAME_MAX 64 /* bytes of the name that a client gives itself */

typedef struct {
    ngx_stream_session_t *stream;
    ngx_stream_weir_srv_conf_t *conf;
    weir_segment *segment;
    weir *engine; /* NULL: there are no rules */

    /* What has come and is not done: the beginning of a command, or commands whose replies found no room. */
    char *in;
    size_t in_size, in_len;
    size_t in_need; /* bytes without which there is nothing to be done */
    /* Replies that the client has not taken. While there are any, nothing is read. */
    char *out;
    size_t out_at, out_len;

    /* Of checks that ask the store first. */
    ngx_weir_store_t *store; /* NULL: there is none */
    ngx_weir_wait_t *wait;   /* NULL: nothing was asked */
    ngx_uint_t prepared;     /* the checks that come next, whose questions it has */
    unsigned waiting : 1;    /* for the answers */

    /* Of wrong passwords: the replies are held back, and nothing is carried out meanwhile. */
    ngx_event_t pause;
    ngx_msec_t pause_ms;    /* it is to begin when the replies are there */
    ngx_uint_t wrong;       /* of this connection */
    ngx_weir_check_t check; /* of the password that comes next */

    int version; /* of the protocol */
    unsigned authenticated : 1;
    unsigned is_operator : 1;
    unsigned closing : 1; /* when the replies are sent */
    unsigned known : 1;   /* the last password was right: the next is checked at once */
    size_t name_len;
    char name[NGX_STREAM_WEIR_NAME_MAX];
} ngx_stream_weir_session_t;

/* The content handler. */
void ngx_stream_weir_handler(ngx_stream_session_t *s);
/* As it was when it connected. */
void ngx_stream_weir_begin(ngx_stream_weir_session_t *session);
/* Carries out what has come, as far as that goes now. It may be over afterwards. */
void ngx_stream_weir_resume(ngx_stream_weir_session_t *session);

/* ---- Commands ---- */

/* The longest reply to one command, and of a full batch before it: there is always as much room. */
#define NGX_STREAM_WEIR_REPLY_MAX (96 * 1024)

typedef struct {
    ngx_stream_weir_session_t *session;
    const weir_text *args; /* the name first */
    size_t count;
    struct weir__resp_out *out;
    ngx_uint_t needs_store; /* out: nothing was done; the store must be asked first */
    ngx_uint_t must_wait;   /* out: nothing was done; the session's pause comes first */
} ngx_stream_weir_call_t;

typedef struct {
    const char *name; /* in lower case */
    int arity;        /* as Redis counts: with the name; negative: at least so many */
    void (*run)(ngx_stream_weir_call_t *call);
    ngx_uint_t before_auth;
    ngx_uint_t has_key; /* its first argument is one */
} ngx_stream_weir_command_t;

extern const ngx_stream_weir_command_t ngx_stream_weir_commands[]; /* ends with a name of NULL */

/* Carries out one command. */
void ngx_stream_weir_run(ngx_stream_weir_call_t *call);

/* Replies with an error; at most 512 bytes of it. */
void ngx_stream_weir_error(ngx_stream_weir_call_t *call, const char *format, ...);
/* The same for one of the library's; what is not the client's fault is logged, too. */
void ngx_stream_weir_failure(ngx_stream_weir_call_t *call, int error);
/* False after an error that was replied: there are no rules. */
ngx_uint_t ngx_stream_weir_has_rules(ngx_stream_weir_call_t *call);
/* Replies that the number of arguments is wrong; `sub` may be NULL. */
void ngx_stream_weir_wrong_count(ngx_stream_weir_call_t *call, const char *name, const char *sub);

/* CL.THROTTLE: keeps it for the batch, which must be decided before anything else is replied. */
void ngx_stream_weir_throttle(ngx_stream_weir_call_t *call);
void ngx_stream_weir_throttle_decide(ngx_stream_weir_call_t *call);
/* A limit like those of CL.THROTTLE's counters, to find them by. */
const weir_limit *ngx_stream_weir_throttle_any(void);

/* What WEIR.CHECK asks. */
typedef struct {
    ngx_uint_t dry_run, has_cost;
    int64_t cost;
    weir_text domain;       /* data NULL: none */
    const weir_text *pairs; /* name, value, name, value … */
    size_t pair_count;
    weir_async *ask;    /* what the store is asked, or NULL */
    weir_permits *held; /* where slots go that it holds, or NULL */
} ngx_stream_weir_check_t;

/* False after an error that was replied. */
ngx_uint_t ngx_stream_weir_read_check(ngx_stream_weir_call_t *call, ngx_stream_weir_check_t *check);
/* As weir_check; without an answer as weir_check_begin. */
int ngx_stream_weir_decide(weir *engine, ngx_stream_weir_check_t *check, weir_result *answer);

/* What the session asks the store with; NULL: there is none. */
weir_async *ngx_stream_weir_session_async(ngx_stream_weir_session_t *session);
/* Sets the check's `ask`. True: the command must wait until the store was asked. */
ngx_uint_t ngx_stream_weir_needs_store(ngx_stream_weir_call_t *call, ngx_stream_weir_check_t *check);
/* A check was decided. */
void ngx_stream_weir_store_used(ngx_stream_weir_session_t *session);
/* One command must ask: adds what the checks behind it, at `at`, will ask. */
void ngx_stream_weir_prepare_ahead(ngx_stream_weir_call_t *call, char *at, size_t len);
void ngx_stream_weir_store_begin(ngx_stream_weir_session_t *session);
void ngx_stream_weir_store_end(ngx_stream_weir_session_t *session);
/* The command as an array of bulk strings; its length. */
size_t ngx_stream_weir_rewrite(const ngx_stream_weir_call_t *call, char *to, size_t size);

void ngx_stream_weir_check(ngx_stream_weir_call_t *call);
void ngx_stream_weir_peek(ngx_stream_weir_call_t *call);
void ngx_stream_weir_release(ngx_stream_weir_call_t *call);
void ngx_stream_weir_renew(ngx_stream_weir_call_t *call);
void ngx_stream_weir_reset_key(ngx_stream_weir_call_t *call);
void ngx_stream_weir_block_key(ngx_stream_weir_call_t *call);
void ngx_stream_weir_stats(ngx_stream_weir_call_t *call);

void ngx_stream_weir_auth(ngx_stream_weir_call_t *call);
/* False: not now; the command's handler returns and is called again later, or the connection is closed. */
ngx_uint_t ngx_stream_weir_may_check(ngx_stream_weir_call_t *call);
/* True if the password is right; replies nothing. A wrong one is replied by the other. */
ngx_uint_t ngx_stream_weir_login(ngx_stream_weir_session_t *session, weir_text name, weir_text password);
void ngx_stream_weir_wrong_password(ngx_stream_weir_call_t *call);

void ngx_stream_weir_ping(ngx_stream_weir_call_t *call);
void ngx_stream_weir_echo(ngx_stream_weir_call_t *call);
void ngx_stream_weir_hello(ngx_stream_weir_call_t *call);
void ngx_stream_weir_client(ngx_stream_weir_call_t *call);
void ngx_stream_weir_command(ngx_stream_weir_call_t *call);
void ngx_stream_weir_config(ngx_stream_weir_call_t *call);
void ngx_stream_weir_info(ngx_stream_weir_call_t *call);
void ngx_stream_weir_select(ngx_stream_weir_call_t *call);
void ngx_stream_weir_quit(ngx_stream_weir_call_t *call);
void ngx_stream_weir_reset(ngx_stream_weir_call_t *call);

#pragma GCC visibility pop

#endif
