/*
 * Totals and state of the store's client over all workers, in shared memory, since any worker may serve /metrics. The
 * http and stream modules share a zone, with one part each.
 */
#include "ngx_weir_store.h"

#define BLOCKS  2
#define WORKERS 512
#define ZONE    (256 * 1024)

typedef struct {
    ngx_pid_t pid;   /* 0: free */
    ngx_uint_t down; /* servers that are unavailable to it */
    ngx_int_t error; /* of the last of these */
} ngx_weir_worker_state_t;

struct ngx_weir_store_stats_s {
    ngx_atomic_t outage; /* 1: it was logged that the store is unavailable, and not yet that it is available again */
    struct {
        ngx_atomic_t totals[NGX_WEIR_STORE_TOTALS];
        ngx_atomic_t failures[NGX_WEIR_STORE_REASONS];
        ngx_weir_worker_state_t workers[WORKERS];
    } blocks[BLOCKS];
};

static ngx_int_t ngx_weir_store_stats_init(ngx_shm_zone_t *zone, void *before)
{
    ngx_slab_pool_t *pool = (ngx_slab_pool_t *)zone->shm.addr;
    if (before) { /* a reload: totals continue, and new workers start with the store available */
        ngx_weir_store_stats_t *stats = before;
        for (ngx_uint_t i = 0; i < BLOCKS; i++)
            ngx_memzero(stats->blocks[i].workers, sizeof(stats->blocks[i].workers));
        zone->data = stats;
        return NGX_OK;
    }
    if (zone->shm.exists) {
        zone->data = pool->data;
        return NGX_OK;
    }
    pool->data = ngx_slab_calloc(pool, sizeof(ngx_weir_store_stats_t));
    zone->data = pool->data;
    return pool->data ? NGX_OK : NGX_ERROR;
}

ngx_int_t ngx_weir_store_stats_make(ngx_conf_t *cf, ngx_weir_store_t *store)
{
    static ngx_str_t name = ngx_string("weir_store");
    /* The tag identifies the zone's owner. It must be the same for both modules. */
    store->zone = ngx_shared_memory_add(cf, &name, ZONE, &ngx_core_module);
    if (store->zone == NULL)
        return NGX_ERROR;
    store->zone->init = ngx_weir_store_stats_init;
    return NGX_OK;
}

/* This worker's slot. NULL: a newer worker has it, as this one shuts down. */
static ngx_weir_worker_state_t *ngx_weir_store_stats_own(const ngx_weir_store_t *store)
{
    ngx_weir_worker_state_t *own = &store->stats->blocks[store->block].workers[ngx_worker % WORKERS];
    if (own->pid == 0 && !ngx_exiting) /* a reload began, and failed */
        own->pid = ngx_pid;
    return own->pid == ngx_pid ? own : NULL;
}

static void ngx_weir_store_stats_states(const ngx_weir_store_t *store, ngx_weir_store_sum_t *sum)
{
    sum->workers = sum->down = 0;
    sum->error = 0;
    for (ngx_uint_t i = 0; i < BLOCKS; i++) {
        for (ngx_uint_t j = 0; j < WORKERS; j++) {
            const ngx_weir_worker_state_t *worker = &store->stats->blocks[i].workers[j];
            sum->workers += worker->pid != 0;
            sum->down += worker->pid != 0 && worker->down;
            sum->error = worker->pid != 0 && worker->down ? (int)worker->error : sum->error;
        }
    }
}

void ngx_weir_store_stats_begin(ngx_weir_store_t *store)
{
    store->stats = store->zone->data;
    store->stats->blocks[store->block].workers[ngx_worker % WORKERS] = (ngx_weir_worker_state_t){.pid = ngx_pid};
    ngx_weir_store_sum_t sum;
    ngx_weir_store_stats_states(store, &sum);
    if (sum.down ==
        0) /* after a reload, or the death of a worker: the one that logged an outage will not log its end */
        store->stats->outage = 0;
}

void ngx_weir_store_stats_publish(ngx_weir_store_t *store)
{
    struct weir__client_stats stats;
    const uint64_t *now = &stats.requests;
    uint64_t *before = &store->published.requests;
    ngx_weir_worker_state_t *own = ngx_weir_store_stats_own(store);
    if (own)
        own->down = store->down;
    weir__client_stats_read(store->client, &stats);
    for (ngx_uint_t i = 0; i < NGX_WEIR_STORE_TOTALS; i++) {
        if (now[i] != before[i])
            (void)ngx_atomic_fetch_add(&store->stats->blocks[store->block].totals[i],
                                       (ngx_atomic_int_t)(now[i] - before[i]));
        before[i] = now[i];
    }
}

static const struct {
    int error;
    const char *name;
} ngx_weir_reasons[NGX_WEIR_STORE_REASONS] = {
    {0, "other"}, /* not of a store, e.g. no memory */
    {WEIR_ESTOREDOWN, "down"},
    {WEIR_ESTORESLOW, "slow"},
    {WEIR_ESTOREBREAKER, "breaker"},
    {WEIR_ESTOREGARBAGE, "garbage"},
    {WEIR_ESTORELOADING, "loading"},
    {WEIR_ESTOREREADONLY, "readonly"},
    {WEIR_ESTOREOOM, "oom"},
    {WEIR_ESTORECROSSSLOT, "crossslot"},
    {WEIR_ESTOREWRONGTYPE, "wrongtype"},
    {WEIR_ESTOREAUTH, "auth"},
    {WEIR_ESTOREERROR, "error"},
    {WEIR_ESTORECLOCK, "clock"},
    {WEIR_ESTORELIMIT, "limit"},
    {WEIR_ESTOREDISK, "disk"},
    {WEIR_ESTORECLIENTS, "clients"},
};

const char *ngx_weir_store_reason(ngx_uint_t reason)
{
    return ngx_weir_reasons[reason].name;
}

void ngx_weir_store_stats_failed(ngx_weir_store_t *store, int error)
{
    ngx_uint_t reason = NGX_WEIR_STORE_REASONS - 1;
    while (reason && ngx_weir_reasons[reason].error != error)
        reason--;
    (void)ngx_atomic_fetch_add(&store->stats->blocks[store->block].failures[reason], 1);
}

ngx_uint_t ngx_weir_store_stats_changed(ngx_weir_store_t *store, ngx_uint_t up, int error)
{
    ngx_weir_worker_state_t *own = ngx_weir_store_stats_own(store);
    ngx_weir_store_sum_t sum;
    store->down += up ? -1 : 1;
    if (own == NULL)
        return 0;
    own->down = store->down;
    if (!up) {
        own->error = error;
        return ngx_atomic_cmp_set(&store->stats->outage, 0, 1);
    }
    ngx_weir_store_stats_states(store, &sum);
    return sum.down == 0 && ngx_atomic_cmp_set(&store->stats->outage, 1, 0);
}

void ngx_weir_store_sum(const ngx_weir_store_t *store, ngx_weir_store_sum_t *sum)
{
    ngx_memzero(sum, sizeof(*sum));
    if (store->stats == NULL)
        return;
    for (ngx_uint_t i = 0; i < BLOCKS; i++) {
        for (ngx_uint_t j = 0; j < NGX_WEIR_STORE_TOTALS; j++)
            sum->totals[j] += store->stats->blocks[i].totals[j];
        for (ngx_uint_t j = 0; j < NGX_WEIR_STORE_REASONS; j++)
            sum->failures[j] += store->stats->blocks[i].failures[j];
    }
    ngx_weir_store_stats_states(store, sum);
}
