/* The script that decides in the store: its text (put together from lua/ by the build), calls and replies. */
#ifndef WEIR_REMOTE_SCRIPT_H
#define WEIR_REMOTE_SCRIPT_H

#include "base/buffer.h"
#include "engine/store_request.h"

struct redisReply;

/* The script, and its SHA-1 in hexadecimal. */
extern const char weir__script[];
extern const char weir__script_sha[41];

/* One group of a request. */
struct weir__group_ref {
    struct weir__store_request *request;
    uint32_t group;
};

#define WEIR__BATCH_GROUPS 64

/* The sender of an EXCHANGE. */
struct weir__exchange_sender {
    const char *key;  /* the sender's key, in the same slot or on the only server; NULL: batches are not numbered */
    uint64_t batch;   /* number of the batch, with a key */
    int64_t clock_us; /* the server's clock now, estimated from earlier replies; 0: unknown */
};

/*
 * Appends the EVALSHA command that carries out the groups `refs` in order. A group with after_first is only peeked at
 * if its request's first group is not among those before it. `sending`: for EXCHANGE, else NULL.
 */
void weir__script_call(struct weir__buffer *to, const struct weir__group_ref *refs, size_t count,
                       const struct weir__exchange_sender *sending);
/*
 * Parses the reply into the ops. 0, or WEIR_ESTOREGARBAGE for all. If the server has carried out the batch before,
 * EXCHANGE ops are filled as if it had been carried out now.
 */
int weir__script_read(const struct redisReply *reply, const struct weir__group_ref *refs, size_t count);

/* The Redis protocol: appends "*LENGTH" or "$LENGTH", a bulk string, a number as one. */
void weir__redis_add_length(struct weir__buffer *to, char mark, size_t length);
void weir__redis_add_text(struct weir__buffer *to, const char *text, size_t len);
void weir__redis_add_int(struct weir__buffer *to, int64_t number);

/* The error code of an error reply (LOADING, READONLY, OOM …); WEIR_ESTOREERROR for unknown ones. */
int weir__store_error(const char *text, size_t len);

/* ---- Numbers that the script and the library share, encoded as MessagePack ---- */

#define WEIR__EXACT_MAX (INT64_C(1) << 52) /* largest magnitude that is exact in the script's doubles */

/* Kinds of limits, each implemented by a file of lua/. */
enum {
    WEIR__KIND_BUCKET = 1,
    WEIR__KIND_INTERVAL,
    WEIR__KIND_WINDOW,
    WEIR__KIND_COUNTER_2,
    WEIR__KIND_COUNTER_N,
    WEIR__KIND_LOG,
    WEIR__KIND_FLIGHT
};

/* The code of a reply: the verdict in the lowest three bits, and these flags. */
enum { WEIR__CODE_SOFT = 8, WEIR__CODE_TAKEN = 16, WEIR__CODE_OVER = 32, WEIR__CODE_AHEAD = 64 };

#endif
