/*
 * The connection pool. See strict.h.
 *
 * A mutex protects which connections are free; a caller waits for the store without it. After a fork the child makes a
 * new pool: connections are the parent's, and the mutex may be locked by a thread that does not exist in the child.
 */
#include "engine/strict.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTLE_US 100000 /* for outstanding refunds when the engine is closed */

struct weir__connection_pool {
    uint64_t process;
    struct weir__connection_pool *parents; /* of the process that this one was forked from; freed with this one */
    pthread_mutex_t lock;
    pthread_cond_t released; /* signalled at each release */
    struct weir__pooled_connection connection[WEIR__POOL_CONNECTIONS];
};

/* ---- The store library ---- */

static uint64_t store_ops; /* const struct weir__store_ops *; 0: none */

const struct weir__store_ops *weir__store_ops(void)
{
    return (const struct weir__store_ops *)(uintptr_t)weir__load64(&store_ops);
}

int weir_store_register(const struct weir__store_ops *ops)
{
    if (strcmp(ops->version, WEIR_VERSION) != 0)
        return WEIR_ESTORELIB;
    weir__store64(&store_ops, (uint64_t)(uintptr_t)ops);
    return 0;
}

/* ---- The pool ---- */

struct weir__connection_pool *weir__connection_pool_new(void)
{
    struct weir__connection_pool *pool = calloc(1, sizeof *pool);

    if (!pool)
        return NULL;
    pool->process = (uint64_t)getpid();
    for (int i = 0; i < WEIR__POOL_CONNECTIONS; i++)
        pool->connection[i].pool = pool;
    weir__deadline_cond(&pool->released);
    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

static void free_one(struct weir__connection_pool *pool)
{
    bool ours = pool->process == (uint64_t)getpid(); /* not copied by a fork */

    for (int i = 0; i < WEIR__POOL_CONNECTIONS; i++) {
        struct weir__pooled_connection *pooled = &pool->connection[i];
        if (pooled->taken) /* by a thread of the parent, which does not exist here: left alone */
            continue;
        if (pooled->client && ours)
            weir__store_ops()->flush_refunds(pooled->client, SETTLE_US);
        if (pooled->client)
            weir__store_ops()->close(pooled->client);
        weir_async_free(pooled->async);
    }
    if (ours) { /* else a thread of the parent may be waiting on them */
        pthread_cond_destroy(&pool->released);
        pthread_mutex_destroy(&pool->lock);
    }
    free(pool);
}

void weir__connection_pool_free(struct weir__connection_pool *pool)
{
    while (pool) {
        struct weir__connection_pool *parents = pool->parents;
        free_one(pool);
        pool = parents;
    }
}

/* The pool of this process, created by the first caller after a fork. NULL: no memory. */
static struct weir__connection_pool *pool_of_process(weir *engine)
{
    uint64_t seen = weir__load64(&engine->connection_pool);
    struct weir__connection_pool *pool = (struct weir__connection_pool *)(uintptr_t)seen;
    if (pool->process == (uint64_t)getpid())
        return pool;
    struct weir__connection_pool *fresh = weir__connection_pool_new();
    if (!fresh)
        return NULL;
    fresh->parents = pool;
    if (weir__cas64(&engine->connection_pool, &seen, (uint64_t)(uintptr_t)fresh))
        return fresh;
    free_one(fresh); /* another thread was faster */
    return (struct weir__connection_pool *)(uintptr_t)seen;
}

/* The first free one, so that no more are connected than needed. */
static struct weir__pooled_connection *take_free(struct weir__connection_pool *pool)
{
    for (int i = 0; i < WEIR__POOL_CONNECTIONS; i++) {
        if (!pool->connection[i].taken) {
            pool->connection[i].taken = true;
            return &pool->connection[i];
        }
    }
    return NULL;
}

/* NULL: none became free in time. */
static struct weir__pooled_connection *take(struct weir__connection_pool *pool, int64_t wait_us)
{
    struct timespec until = weir__deadline(wait_us);
    bool in_time = true;
    pthread_mutex_lock(&pool->lock);
    struct weir__pooled_connection *pooled = take_free(pool);
    while (!pooled && in_time) {
        in_time = pthread_cond_timedwait(&pool->released, &pool->lock, &until) == 0;
        pooled = take_free(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    return pooled;
}

static void give_back(struct weir__pooled_connection *pooled)
{
    pthread_mutex_lock(&pooled->pool->lock);
    if (pooled->client)
        weir__store_ops()->stats(pooled->client, &pooled->stats);
    pooled->taken = false;
    pthread_cond_signal(&pooled->pool->released);
    pthread_mutex_unlock(&pooled->pool->lock);
}

static int fill(weir *engine, struct weir__pooled_connection *pooled)
{
    if (!pooled->client)
        pooled->client = weir__store_ops()->open(engine->store);
    if (!pooled->client)
        return WEIR_ENOMEM;
    return pooled->async ? 0 : weir_async_new(engine, &pooled->async);
}

struct weir__pooled_connection *weir__connection_pool_acquire(weir *engine, int *error)
{
    int64_t deadline_us = weir__monotonic_us() + engine->store->deadline_us;
    struct weir__connection_pool *pool = pool_of_process(engine);
    struct weir__pooled_connection *pooled = pool ? take(pool, engine->store->deadline_us) : NULL;
    if (!pooled) {
        *error = pool ? WEIR_ESTORESLOW : WEIR_ENOMEM;
        return NULL;
    }
    *error = fill(engine, pooled);
    if (*error) {
        give_back(pooled);
        return NULL;
    }
    weir_async_clear(pooled->async);
    weir_async_request(pooled->async)->deadline_us = deadline_us; /* waiting for a connection counts, too */
    return pooled;
}

void weir__connection_pool_request(struct weir__pooled_connection *pooled)
{
    struct weir__store_request *request = weir_async_request(pooled->async);
    request->error = weir__store_ops()->request(pooled->client, request);
}

void weir__connection_pool_release(struct weir__pooled_connection *pooled)
{
    if (!pooled)
        return;
    struct weir__store_request *back = weir_async_rollback(pooled->async);
    if (back)
        weir__store_ops()->refund(pooled->client, back);
    give_back(pooled);
}

static void add_stats(weir_store_stats *to, const struct weir__client_stats *from)
{
    to->requests += from->requests;
    to->failed += from->failed;
    to->slow += from->slow;
    to->refused += from->refused;
    to->rolled_back += from->refunds;
    to->connects += from->connects;
    to->up |= from->state == WEIR__STORE_UP;
    to->error = from->state != WEIR__STORE_UP && from->last_error ? from->last_error : to->error;
}

void weir__connection_pool_stats(weir *engine, weir_store_stats *stats)
{
    struct weir__connection_pool *pool = pool_of_process(engine);
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    /* An acquired connection belongs to its caller: only the copy of its statistics is read. */
    for (int i = 0; i < WEIR__POOL_CONNECTIONS; i++)
        add_stats(stats, &pool->connection[i].stats);
    pthread_mutex_unlock(&pool->lock);
}
