/* The engine's own connections to the store, for callers who would rather wait than have an event loop. */
#ifndef WEIR_ENGINE_CONNECTION_POOL_H
#define WEIR_ENGINE_CONNECTION_POOL_H

#include "engine/async.h"
#include "remote/client.h"

#define WEIR__POOL_CONNECTIONS 16 /* requests that can wait for the store at the same time; more wait for them */

struct weir__blocking_client;
struct weir__connection_pool;

/* One connection, and what is asked over it. Its borrower's alone. */
struct weir__pooled_connection {
    struct weir__blocking_client *client;
    weir_ask *ask;
};

/* Connects to nothing yet. NULL: no memory. */
struct weir__connection_pool *weir__connection_pool_new(void);
void weir__connection_pool_free(struct weir__connection_pool *pool);

/* One that is free, with an empty ask. NULL: *error says why: none was free within the store's deadline, or there is no
 * memory. */
struct weir__pooled_connection *weir__connection_pool_acquire(weir *engine, int *error);
/* Asks what is in its ask, and waits; the request then has its answers, or its error. */
void weir__connection_pool_request(struct weir__pooled_connection *pooled);
/* Gives back to the store what was not kept, and the client to whoever needs it next. */
void weir__connection_pool_release(struct weir__pooled_connection *pooled);

/* Sums over this process's, each as it was when it was returned last: waits for nobody. */
void weir__connection_pool_stats(weir *engine, weir_store_stats *stats);

#endif
