/* The engine's connections to the store, for callers that block instead of running an event loop. */
#ifndef WEIR_ENGINE_CONNECTION_POOL_H
#define WEIR_ENGINE_CONNECTION_POOL_H

#include "engine/async.h"
#include "engine/store_ops.h"

#define WEIR__POOL_CONNECTIONS 16 /* at once in a process; more callers wait for one */

struct weir__connection_pool;

/* One connection and its ops, for one caller at a time. */
struct weir__pooled_connection {
    struct weir__blocking_client *client;
    weir_async *async;
};

/* Without connecting. NULL: no memory. */
struct weir__connection_pool *weir__connection_pool_new(void);
void weir__connection_pool_free(struct weir__connection_pool *pool);

/* A free connection, with no ops. NULL: *error: none became free within the store's deadline, or no memory. */
struct weir__pooled_connection *weir__connection_pool_acquire(weir *engine, int *error);
/* Sends the ops and waits for the replies, or the error. */
void weir__connection_pool_request(struct weir__pooled_connection *pooled);
/* Refunds what was not kept, and returns the connection to the pool. */
void weir__connection_pool_release(struct weir__pooled_connection *pooled);

/* Sums over this process's connections, each as of its last release: takes no lock that a request holds. */
void weir__connection_pool_stats(weir *engine, weir_store_stats *stats);

#endif
