/*
 * Blocks and resets of keys on all hosts (docs/internals/sync.md, "Blocks and resets"): the agent publishes the
 * commands of this host's queue (engine/key_commands.h) in the store by lua/keys.lua, and applies those of all hosts to
 * its segment.
 */
#ifndef WEIR_SYNC_KEY_EXCHANGE_H
#define WEIR_SYNC_KEY_EXCHANGE_H

#include "base/log.h"
#include "config/config.h"
#include "engine/engine.h"

#define WEIR__KEY_EXCHANGE_MS 200   /* between two rounds */
#define WEIR__SHARED_KEYS_MAX 10000 /* entries in the store */

/* The script lua/keys.lua and its SHA-1 for EVALSHA. */
extern const char weir__keys_script[];
extern const char weir__keys_script_sha[41];

/* An entry of the store: a block, an ended one, or a reset. The texts are untrusted. */
struct weir__shared_key {
    uint64_t identity;        /* hash of kind, rule and key */
    int64_t sequence;         /* of the command in the store */
    int64_t end_ms;           /* of a block, by this host's monotonic clock; in the past: unblocked, or over */
    int64_t keep_ms;          /* the same, until the entry itself is over */
    bool reset, seen, behind; /* the store has it; the store has an older one */
    uint16_t key_len;
    char rule[WEIR_NAME_MAX + 1], key[WEIR__KEY_MAX];
    char by[WEIR__KEY_BY_MAX + 1], reason[WEIR__KEY_REASON_MAX + 1], host[65];
};

struct weir__key_exchange;

#define WEIR__OPEN_QUERIES_MAX 16   /* of all hosts, in the store */
#define WEIR__OPEN_QUERY_TEXT  2048 /* bytes */

/* An open query of another process, of this host or another one (lua/queries.lua). The texts are untrusted. */
struct weir__open_query {
    char id[17], text[WEIR__OPEN_QUERY_TEXT];
    size_t len;
};

/*
 * `engine`: its queue is sent, and entries are applied to its segment; NULL: entries are only read. NULL: no memory, or
 * wrong options of the store, which was logged.
 */
struct weir__key_exchange *weir__key_exchange_new(const struct weir__config *config, const struct weir__logger *log,
                                                  weir *engine);
void weir__key_exchange_free(struct weir__key_exchange *exchange);

/* A round ends early, with an error or before it has sent or restored all, once `ending` is true. */
void weir__key_exchange_until(struct weir__key_exchange *exchange, bool (*ending)(void *context), void *context);
/* A round calls `take` for each query that was not taken yet; it must not block. False: no room, the next round tries
 * again. */
void weir__key_exchange_queries(struct weir__key_exchange *exchange,
                                bool (*take)(void *context, const struct weir__open_query *query), void *context);
/* One round: sends the queue, then applies what is new. 0, or an error of the store; refusals and wrong replies are
 * logged. */
int weir__key_exchange_round(struct weir__key_exchange *exchange);
/* Calls `visit` for each block that has not ended, in no order. Thread-safe. */
void weir__key_exchange_each(struct weir__key_exchange *exchange,
                             void (*visit)(void *context, const struct weir__shared_key *entry, int64_t left_ms),
                             void *context);

#endif
