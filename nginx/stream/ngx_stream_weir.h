/*
 * The Redis protocol in nginx's stream: connections, authentication and commands. src/services/resp/resp.h shows the
 * way of a command; docs/reference/resp.md describes the service for its users.
 *
 *   module      directives, configuration
 *   session     a connection: reading, writing, timeouts
 *   commands    the table of commands, CL.THROTTLE, WEIR.RESET, WEIR.BLOCK, WEIR.STATS
 *   check       WEIR.CHECK, WEIR.PEEK, WEIR.RELEASE, WEIR.RENEW; commands that wait for the store
 *   handshake   AUTH, HELLO, CLIENT, COMMAND, INFO …
 */
#ifndef NGX_STREAM_WEIR_H
#define NGX_STREAM_WEIR_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_stream.h>

#include "ngx_weir.h"
#include "ngx_weir_store.h"
#include "base/buffer.h"
#include "base/sha256.h"
#include "services/resp/resp.h"

/* Hidden: not for other modules. */
#pragma GCC visibility push(hidden)

/* ---- Configuration ---- */

typedef ngx_weir_engine_t ngx_stream_weir_main_conf_t;

/* Compared by their digests, in constant time. */
typedef struct {
    u_char name[WEIR__SHA256_BYTES], password[WEIR__SHA256_BYTES];
    ngx_uint_t is_operator;
} ngx_stream_weir_user_t;

typedef struct {
    ngx_array_t *users; /* of ngx_stream_weir_user_t; NULL: none */
    ngx_flag_t closed;  /* some users are not operators: authentication is required */
    ngx_msec_t timeout; /* of an idle client; 0: none */
} ngx_stream_weir_srv_conf_t;

extern ngx_module_t ngx_stream_weir_module;

/* weir_resp_password, weir_resp_operator_password */
char *ngx_stream_weir_password(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* ---- A connection ---- */

#define NGX_STREAM_WEIR_NAME_MAX 64 /* bytes of a client's name */

typedef struct {
    ngx_stream_session_t *stream;
    ngx_stream_weir_srv_conf_t *conf;
    weir_segment *segment;
    weir *engine; /* NULL: no rules */

    /* Input that is not done: an incomplete command, or commands whose replies had no space. */
    struct weir__buffer in;
    size_t in_need; /* bytes to wait for before parsing */
    /* Replies that the client has not read; up to out_at they are sent. While there are any, nothing is read. */
    struct weir__buffer out;
    size_t out_at;

    /* For commands that wait for the store. */
    ngx_weir_store_t *store; /* NULL: none */
    ngx_weir_wait_t *wait;   /* NULL: no request is pending */
    ngx_uint_t prepared;     /* commands, from the next on, whose requests it has */
    unsigned waiting : 1;    /* for the replies */

    /* Login throttle: after wrong passwords replies are delayed, and no command runs meanwhile. */
    ngx_event_t pause;
    ngx_msec_t pause_ms;    /* starts with the next replies */
    ngx_uint_t wrong;       /* wrong passwords of this connection */
    ngx_weir_check_t check; /* of the next password */

    int version; /* of RESP: 2 or 3 */
    unsigned authenticated : 1;
    unsigned is_operator : 1;
    unsigned closing : 1; /* after the replies are sent */
    unsigned settled : 1; /* not new: it has sent something, or been silent for FIRST_MS */
    unsigned known : 1;   /* the last password was right: the next is checked at once */
    size_t name_len;
    char name[NGX_STREAM_WEIR_NAME_MAX];
} ngx_stream_weir_session_t;

/* The content handler. */
void ngx_stream_weir_handler(ngx_stream_session_t *s);
/* Resets the session to its initial state (RESET). */
void ngx_stream_weir_begin(ngx_stream_weir_session_t *session);
/* Runs the commands that are there, as far as possible now. May end the session. */
void ngx_stream_weir_resume(ngx_stream_weir_session_t *session);

/* ---- Commands ---- */

/* Bytes of the longest reply and of a full batch before it; a command runs only with so much space. */
#define NGX_STREAM_WEIR_REPLY_MAX (96 * 1024)

typedef struct {
    ngx_stream_weir_session_t *session;
    const weir_text *args; /* including the name */
    size_t count;
    struct weir__resp_out *out;
    ngx_uint_t needs_store; /* out: nothing was done; the store must reply first */
    ngx_uint_t must_wait;   /* out: nothing was done; the session is paused first */
} ngx_stream_weir_call_t;

typedef void ngx_stream_weir_run_pt(ngx_stream_weir_call_t *call);

typedef struct {
    const char *name; /* in lower case */
    int arity;        /* as in Redis: including the name; negative: a minimum */
    ngx_stream_weir_run_pt *run;
    ngx_uint_t before_auth;
    ngx_uint_t has_key; /* the first argument is a key */
} ngx_stream_weir_command_t;

extern const ngx_stream_weir_command_t ngx_stream_weir_commands[];
extern const size_t ngx_stream_weir_command_count;
/* NULL: there is none of this name. */
const ngx_stream_weir_command_t *ngx_stream_weir_find(weir_text name);

/* Runs one command. */
void ngx_stream_weir_run(ngx_stream_weir_call_t *call);

/* Replies with an error of at most 512 bytes. */
void ngx_stream_weir_error(ngx_stream_weir_call_t *call, const char *format, ...);
/* Replies with an error of the library, and logs it unless the client caused it. */
void ngx_stream_weir_failure(ngx_stream_weir_call_t *call, int error);
/* Replies with an error and returns 0 if there are no rules. */
ngx_uint_t ngx_stream_weir_has_rules(ngx_stream_weir_call_t *call);
/* Replies with the error for a wrong number of arguments; `sub` may be NULL. */
void ngx_stream_weir_wrong_count(ngx_stream_weir_call_t *call, const char *name, const char *sub);

/* Decides the pending batch of CL.THROTTLE; before any other reply. */
void ngx_stream_weir_throttle_decide(ngx_stream_weir_call_t *call);

/* The session's requests to the store; NULL: no store. */
weir_async *ngx_stream_weir_session_async(ngx_stream_weir_session_t *session);
/* A command that may have used the store's replies is done. */
void ngx_stream_weir_store_used(ngx_stream_weir_session_t *session);
/* A command waits for the store: adds the requests of the checks that follow it, at `at`. */
void ngx_stream_weir_prepare_ahead(ngx_stream_weir_call_t *call, char *at, size_t len);
void ngx_stream_weir_store_begin(ngx_stream_weir_session_t *session);
void ngx_stream_weir_store_end(ngx_stream_weir_session_t *session);

ngx_stream_weir_run_pt ngx_stream_weir_check, ngx_stream_weir_release, ngx_stream_weir_renew, ngx_stream_weir_auth,
    ngx_stream_weir_ping, ngx_stream_weir_hello, ngx_stream_weir_client, ngx_stream_weir_command,
    ngx_stream_weir_config, ngx_stream_weir_info, ngx_stream_weir_select, ngx_stream_weir_quit, ngx_stream_weir_reset;

#pragma GCC visibility pop

#endif
