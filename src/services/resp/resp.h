/*
 * The Redis protocol (RESP2 and RESP3) and CL.THROTTLE, without connections. docs/reference/resp.md describes the
 * service for its users. The way of a command:
 *
 *   nginx/stream/ngx_stream_weir_session.c   reads from the client
 *     weir__resp_parse                       parse.c: bytes to arguments
 *     ngx_stream_weir_run                    ngx_stream_weir_commands.c: finds the command, checks authentication
 *       CL.THROTTLE                          ngx_stream_weir_commands.c, throttle.c: arguments to a limit, in batches
 *       WEIR.CHECK and others                ngx_stream_weir_check.c, ngx_stream_weir_commands.c
 *     weir__resp_simple, _error, _map …      write.c: the reply, into the worker's buffer
 *   ngx_stream_weir_session.c                sends the replies of all commands that were read
 *
 * Parsing keeps no state: an incomplete command is parsed again from its beginning when `need` bytes are there.
 */
#ifndef WEIR_SERVICES_RESP_RESP_H
#define WEIR_SERVICES_RESP_RESP_H

#include <weir/weir.h>

/* ---- Requests (parse.c) ---- */

#define WEIR__RESP_ARGS        1024          /* of a command */
#define WEIR__RESP_COMMAND_MAX (1024 * 1024) /* bytes of a command */
#define WEIR__RESP_INLINE_MAX  (64 * 1024)   /* bytes of an inline command, including its end */

/* Limits for a client that has not authenticated: enough for AUTH and HELLO. */
#define WEIR__RESP_UNAUTHENTICATED_ARGS 10
#define WEIR__RESP_UNAUTHENTICATED_BULK (16 * 1024)

enum weir__resp_result {
    WEIR__RESP_COMMAND, /* a command; without arguments: to be skipped */
    WEIR__RESP_MORE,    /* incomplete */
    WEIR__RESP_INVALID  /* protocol error: `error` is set, and the connection must be closed */
};

struct weir__resp_command {
    size_t count;   /* arguments, including the command's name */
    size_t length;  /* bytes of the command */
    size_t need;    /* WEIR__RESP_MORE: bytes to wait for before the next call */
    char error[64]; /* WEIR__RESP_INVALID: without "ERR" and CR LF */
    weir_text args[WEIR__RESP_ARGS];
};

/*
 * Parses the command at the beginning of `data`. The arguments point into `data`. A complete inline command is unquoted
 * in place.
 */
enum weir__resp_result weir__resp_parse(char *data, size_t len, bool unauthenticated,
                                        struct weir__resp_command *command);

/* An integer as Redis reads it: no blanks, no '+', no leading zeros. False: malformed, or beyond 64 bits. */
bool weir__resp_integer(weir_text text, int64_t *value);
/* Case-insensitive; `word` in lower case. */
bool weir__resp_is(weir_text text, const char *word);

/* ---- Replies (write.c) ---- */

struct weir__resp_out {
    char *at, *end;
    int version;   /* 2 or 3 */
    bool overflow; /* a reply did not fit; nothing is written from then on */
};

void weir__resp_simple(struct weir__resp_out *out, const char *text); /* +text */
/* -text, at most 512 bytes; control characters become blanks. */
void weir__resp_error(struct weir__resp_out *out, const char *text, size_t len);
void weir__resp_number(struct weir__resp_out *out, int64_t value);
void weir__resp_bulk(struct weir__resp_out *out, const char *text, size_t len);
/* A verbatim string in RESP3, else a bulk string. */
void weir__resp_verbatim(struct weir__resp_out *out, const char *text, size_t len);
void weir__resp_null(struct weir__resp_out *out);
void weir__resp_array(struct weir__resp_out *out, size_t count);
/* A map in RESP3, else an array of 2 * pairs. */
void weir__resp_map(struct weir__resp_out *out, size_t pairs);
/* A set in RESP3, else an array. */
void weir__resp_set(struct weir__resp_out *out, size_t count);

/* A pair of a map. */
void weir__resp_named_number(struct weir__resp_out *out, const char *name, int64_t value);
void weir__resp_named_text(struct weir__resp_out *out, const char *name, const char *value);

/* An array of five numbers, the reply to CL.THROTTLE. */
void weir__resp_five(struct weir__resp_out *out, const int64_t numbers[5]);

/* ---- CL.THROTTLE <key> <max_burst> <count> <period in seconds> [<quantity>], as in redis-cell (throttle.c) ---- */

/* Id of all CL.THROTTLE counters, distinct from rules' counters. Stored in segments: never changes. */
#define WEIR__THROTTLE_ID UINT64_C(0x434c2e5448524f54)

struct weir__throttle {
    weir_text key;
    int64_t max_burst, count, period_s, quantity;
};

/* Parses the arguments. NULL, or the text of the error reply. */
const char *weir__throttle_read(const weir_text *args, size_t count, struct weir__throttle *call);

#define WEIR__THROTTLE_LIMITS 64

/* A direct-mapped cache of limits: initializing one costs as much as a decision. */
struct weir__throttle_limits {
    struct weir__throttle_known {
        int64_t max_burst, count, period_s; /* count 0: empty */
        weir_limit limit;
    } known[WEIR__THROTTLE_LIMITS];
};

/* The cached limit of a call, or NULL. */
const weir_limit *weir__throttle_known(const struct weir__throttle_limits *limits, const struct weir__throttle *call);
/* Caches the limit of a call; limits returned before become invalid. 0 or an error. */
int weir__throttle_make(struct weir__throttle_limits *limits, const struct weir__throttle *call,
                        const weir_limit **limit);

/* The quantity, clamped to what a counter can hold. */
int64_t weir__throttle_cost(const struct weir__throttle *call, const weir_limit *limit);
/* limited, limit, remaining, and in seconds retry after and reset after. */
void weir__throttle_reply(const weir_decision *decision, int64_t numbers[5]);

#endif
