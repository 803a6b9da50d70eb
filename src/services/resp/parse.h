/*
 * Reading requests of the Redis protocol: arrays of bulk strings, which all clients send in RESP2 and RESP3, and inline
 * commands, which people type. Nothing is kept between calls: a command that has not come as a whole is read again from
 * its beginning when `need` bytes are there, so that a bulk string that comes in pieces is looked at twice.
 */
#ifndef WEIR_SERVICES_RESP_PARSE_H
#define WEIR_SERVICES_RESP_PARSE_H

#include <weir/weir.h>

#define WEIR__RESP_ARGS        1024          /* of a command */
#define WEIR__RESP_COMMAND_MAX (1024 * 1024) /* bytes of a command, all in */
#define WEIR__RESP_INLINE_MAX  (64 * 1024)   /* bytes of an inline command, its end included */

/* Who has not said who they are may send this much: enough for AUTH and HELLO. */
#define WEIR__RESP_UNAUTHENTICATED_ARGS 10
#define WEIR__RESP_UNAUTHENTICATED_BULK (16 * 1024)

enum weir__resp_result {
    WEIR__RESP_COMMAND, /* a command, perhaps of no arguments, which is to be skipped */
    WEIR__RESP_MORE,    /* not all of it is there */
    WEIR__RESP_INVALID  /* not the protocol: `error` says why, and what follows cannot be made sense of */
};

struct weir__resp_command {
    size_t count;   /* arguments, the command's name among them */
    size_t length;  /* bytes that the command has taken */
    size_t need;    /* with WEIR__RESP_MORE: calling again makes no sense with fewer bytes than these */
    char error[64]; /* with WEIR__RESP_INVALID: without "ERR" and the end of the line */
    weir_text args[WEIR__RESP_ARGS];
};

/*
 * Reads the command at the beginning of `data`. Quotes and escapes of an inline command are resolved in place, so
 * `data` is written to, once a command is complete. The arguments point into `data`.
 */
enum weir__resp_result weir__resp_parse(char *data, size_t len, bool unauthenticated,
                                        struct weir__resp_command *command);

/* A whole number as Redis reads it: no blanks, no '+', no needless zeros. False: it is none, or not of 64 bits. */
bool weir__resp_integer(weir_text text, int64_t *value);
/* Letters in any case; `word` in lower case. */
bool weir__resp_is(weir_text text, const char *word);

#endif
