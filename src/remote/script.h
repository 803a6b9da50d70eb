/*
 * The script that decides in the store, and how it is called. The text is put together from lua/ when weir is built.
 */
#ifndef WEIR_REMOTE_SCRIPT_H
#define WEIR_REMOTE_SCRIPT_H

#include "remote/request.h"

struct redisReply;

/* The whole script, and its SHA-1 in hexadecimal as the server computes it. */
extern const char weir__script[];
size_t weir__script_len(void);
extern const char weir__script_sha[41];

/* A text that grows; `failed` when there was no memory, then nothing more is added. */
struct weir__buffer {
    char *data;
    size_t len, size;
    bool failed;
};

void weir__buffer_add(struct weir__buffer *buffer, const void *data, size_t len);
/* Makes room for at least so many bytes more. Where they go; NULL: no memory. */
char *weir__buffer_grow(struct weir__buffer *buffer, size_t len);
/* The same where there mostly is room. Who writes there adds to `len` what it has written. */
static inline char *weir__buffer_room(struct weir__buffer *buffer, size_t len)
{
    return len <= buffer->size - buffer->len ? buffer->data + buffer->len : weir__buffer_grow(buffer, len);
}
void weir__buffer_free(struct weir__buffer *buffer);

/* Some groups of some requests, which one run of the script decides. */
struct weir__group_ref {
    struct weir__store_request *request;
    uint32_t group;
};

#define WEIR__BATCH_GROUPS 64

/* Of an EXCHANGE. */
struct weir__exchange_sender {
    const char *key;  /* the sender's own, in the same slot or on the only server; NULL: batches are not counted */
    uint64_t batch;   /* with a key */
    int64_t clock_us; /* the server's clock now, as earlier replies let it be estimated; 0: it is not known */
};

/*
 * Appends the command (EVALSHA) that ops for `refs` in order. Groups with after_first must follow their request's
 * first. `sending`: only for EXCHANGE, else NULL.
 */
void weir__script_call(struct weir__buffer *to, const struct weir__group_ref *refs, size_t count,
                       const struct weir__exchange_sender *sending);
/*
 * Reads the answer into the ops. 0, or an error for all of them: WEIR_ESTOREGARBAGE. An answer of the kind "done
 * before" (a batch that the server has carried out already) fills EXCHANGE ops as if they had been carried out now.
 */
int weir__script_read(const struct redisReply *reply, const struct weir__group_ref *refs, size_t count);

/* The library's error for an error reply: LOADING, READONLY, OOM … WEIR_ESTOREERROR for others. */
int weir__store_error(const char *text, size_t len);

/* A limit that the script can compute exactly with doubles? Otherwise it must be refused when rules are loaded. */
bool weir__script_fits(const weir_limit *limit);

#endif
