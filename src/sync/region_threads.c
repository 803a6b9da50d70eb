/* The agent's threads of the exchange with other regions: one for the election, one for each other region. */
#include "base/clock.h"
#include "sync/regions.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RETRY_MS 200     /* after an error */
#define END_US   1000000 /* for the last exchange: the agent is killed after three seconds */

struct region_thread {
    struct weir__region_threads *all;
    size_t index; /* of the other region */
    pthread_t thread;
};

struct weir__region_threads {
    struct weir__regions *regions;
    struct weir__store_options own, others[WEIR__REGIONS_MAX];
    bool unread[WEIR__REGIONS_MAX + 1]; /* options of others that could not be read */
    char host[65];
    int64_t interval_ms, look_ms; /* between two exchanges of all counters, of exhausted ones */
    size_t count;
    struct region_thread threads[WEIR__REGIONS_MAX + 1]; /* the last one elects */
    size_t started;
    pthread_mutex_t lock;
    pthread_cond_t end;
    bool ending;
};

/* True: the threads must end. */
static bool wait_ms(struct weir__region_threads *all, int64_t ms)
{
    struct timespec until = weir__deadline(ms * 1000);
    pthread_mutex_lock(&all->lock);
    while (!all->ending && pthread_cond_timedwait(&all->end, &all->lock, &until) != ETIMEDOUT)
        continue;
    bool ending = all->ending;
    pthread_mutex_unlock(&all->lock);
    return ending;
}

static void *elect(void *context)
{
    struct region_thread *self = context;
    do
        (void)!weir__regions_elect(self->all->regions); /* sync logs that the own store is unavailable */
    while (!wait_ms(self->all, WEIR__REGION_ELECT_MS));
    return NULL;
}

static void *exchange(void *context)
{
    struct region_thread *self = context;
    struct weir__region_threads *all = self->all;
    int64_t due_ms = weir__monotonic_ms();
    int sent = 0;
    bool more;
    do {
        int64_t now_ms = weir__monotonic_ms();
        bool is_due = now_ms >= due_ms;
        sent = weir__regions_exchange(all->regions, self->index, is_due, &more);
        if (sent >= 0 && !more && is_due)
            due_ms = due_ms + all->interval_ms > now_ms ? due_ms + all->interval_ms : now_ms + all->interval_ms;
    } while (!wait_ms(all, sent < 0 ? RETRY_MS : more ? 0 : all->look_ms));
    if (sent >= 0)
        (void)!weir__regions_exchange(all->regions, self->index, true, &more);
    return NULL;
}

/* Without those of another region, units for it wait in the ledger. */
static bool read_stores(struct weir__region_threads *all, const struct weir__config *config,
                        const struct weir__logger *log)
{
    char why[256] = "";
    const struct weir__store *store;
    if (!weir__store_options_of(&config->store, &all->own, why, sizeof why)) {
        weir__logf(log, WEIR__LOG_ERROR, "store: %s", why);
        return false;
    }
    for (size_t i = 0; (store = weir__config_store_at(config, i + 1)); i++)
        if (!weir__store_options_of(store, &all->others[i], why, sizeof why)) {
            weir__logf(log, WEIR__LOG_ERROR,
                       "region %s: %s; this region keeps its counts until the agent starts with one that it can read",
                       config->region.others[i].name, why);
            all->others[i] = all->own; /* not used */
            all->unread[i] = true;
        }
    return true;
}

static bool start(struct weir__region_threads *all, const struct weir__config *config, const struct weir__logger *log,
                  weir *engine)
{
    if (!read_stores(all, config, log))
        return false;
    if (config->host_name)
        snprintf(all->host, sizeof all->host, "%s", config->host_name);
    else if (gethostname(all->host, sizeof all->host - 1) != 0)
        all->host[0] = 0;
    struct weir__regions_options options = {.engine = engine,
                                            .log = log,
                                            .region = config->region.name,
                                            .host = all->host,
                                            .own = &all->own,
                                            .interval_us = config->region.interval_ms * 1000,
                                            .other_count = config->region.other_count};
    for (size_t i = 0; i < options.other_count; i++)
        options.others[i] =
            (struct weir__other_region){.name = config->region.others[i].name, .store = &all->others[i]};
    all->interval_ms = config->region.interval_ms;
    all->look_ms = all->own.sync_interval_us >= 1000 ? all->own.sync_interval_us / 1000 : 1;
    all->look_ms = all->look_ms < all->interval_ms ? all->look_ms : all->interval_ms;
    all->regions = weir__regions_new(&options);
    for (size_t i = 0; i <= options.other_count && all->regions; i++) {
        struct region_thread *thread = &all->threads[all->started];
        if (all->unread[i])
            continue;
        *thread = (struct region_thread){.all = all, .index = i};
        if (pthread_create(&thread->thread, NULL, i < options.other_count ? exchange : elect, thread) != 0)
            return false;
        all->started++;
    }
    return all->regions != NULL;
}

struct weir__region_threads *weir__region_threads_start(const struct weir__config *config,
                                                        const struct weir__logger *log, weir *engine, bool *failed)
{
    *failed = false;
    if (!config->region.other_count) {
        weir__regions_clear(engine);
        return NULL;
    }
    struct weir__region_threads *all = calloc(1, sizeof *all);
    if (all) {
        pthread_mutex_init(&all->lock, NULL);
        weir__deadline_cond(&all->end);
        if (start(all, config, log, engine))
            return all;
        weir__region_threads_stop(all);
    }
    *failed = true;
    return NULL;
}

void weir__region_threads_end(struct weir__region_threads *all)
{
    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    if (!all->ending && all->regions)
        weir__regions_end(all->regions, END_US);
    all->ending = true;
    pthread_cond_broadcast(&all->end);
    pthread_mutex_unlock(&all->lock);
}

void weir__region_threads_stop(struct weir__region_threads *all)
{
    if (!all)
        return;
    weir__region_threads_end(all);
    for (size_t i = 0; i < all->started; i++)
        pthread_join(all->threads[i].thread, NULL);
    if (all->regions)
        weir__regions_leave(all->regions);
    weir__regions_free(all->regions);
    pthread_cond_destroy(&all->end);
    pthread_mutex_destroy(&all->lock);
    explicit_bzero(all, sizeof *all); /* passwords */
    free(all);
}
