/*
 * The connection pool. See strict.h.
 *
 * A mutex protects which connections are free; a caller waits for the store without it. After a fork the child makes a
 * new pool: connections are the parent's, and the mutex may be locked by a thread that does not exist in the child.
 */
#include "engine/strict.h"
#include "base/clock.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTLE_US 100000 /* for outstanding refunds when the engine is closed */

struct place {
    struct weir__pooled_connection pooled; /* first: a caller's pointer is also the slot's */
    struct weir__connection_pool *pool;
    struct weir__client_stats stats; /* as of the last release */
    bool taken;
};

struct weir__connection_pool {
    uint64_t process;
    struct weir__connection_pool
        *parents; /* the pool of the process that this one was forked from; freed with this one */
    pthread_mutex_t lock;
    pthread_cond_t given; /* signalled at each release */
    struct place place[WEIR__POOL_CONNECTIONS];
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
        pool->place[i].pool = pool;
    weir__deadline_cond(&pool->given);
    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

static void free_one(struct weir__connection_pool *pool)
{
    bool ours = pool->process == (uint64_t)getpid(); /* not copied by a fork */

    for (int i = 0; i < WEIR__POOL_CONNECTIONS; i++) {
        struct weir__pooled_connection *pooled = &pool->place[i].pooled;
        if (pool->place[i].taken) /* by a thread of the parent, which does not exist here: left alone */
            continue;
        if (pooled->client && ours)
            weir__store_ops()->flush_refunds(pooled->client, SETTLE_US);
        if (pooled->client)
            weir__store_ops()->close(pooled->client);
        weir_async_free(pooled->async);
    }
    if (ours) { /* else a thread of the parent may be waiting on them */
        pthread_cond_destroy(&pool->given);
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
static struct place *take_free(struct weir__connection_pool *pool)
{
    for (int i = 0; i < WEIR__POOL_CONNECTIONS; i++) {
        if (!pool->place[i].taken) {
            pool->place[i].taken = true;
            return &pool->place[i];
        }
    }
    return NULL;
}

/* NULL: none became free in time. */
static struct place *take(struct weir__connection_pool *pool, int64_t wait_us)
{
    bool in_time = true;
    pthread_mutex_lock(&pool->lock);
    struct place *place = take_free(pool);
    if (!place) {
        struct timespec until = weir__deadline(wait_us);
        while (!place && in_time) {
            in_time = pthread_cond_timedwait(&pool->given, &pool->lock, &until) == 0;
            place = take_free(pool);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return place;
}

static void give(struct place *place)
{
    struct weir__connection_pool *pool = place->pool;
    pthread_mutex_lock(&pool->lock);
    if (place->pooled.client)
        weir__store_ops()->stats(place->pooled.client, &place->stats);
    place->taken = false;
    pthread_cond_signal(&pool->given);
    pthread_mutex_unlock(&pool->lock);
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
    struct place *place = pool ? take(pool, engine->store->deadline_us) : NULL;
    if (!place) {
        *error = pool ? WEIR_ESTORESLOW : WEIR_ENOMEM;
        return NULL;
    }
    *error = fill(engine, &place->pooled);
    if (*error) {
        give(place);
        return NULL;
    }
    weir_async_clear(place->pooled.async);
    weir_async_request(place->pooled.async)->deadline_us = deadline_us; /* waiting for a connection counts, too */
    return &place->pooled;
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
    give((struct place *)pooled);
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
    for (int i = 0; i < WEIR__POOL_CONNECTIONS;
         i++) /* an acquired connection belongs to its caller: only the copy of its statistics is read */
        add_stats(stats, &pool->place[i].stats);
    pthread_mutex_unlock(&pool->lock);
}
