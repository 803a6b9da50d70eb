/* The list of in-doubt puts: see queue_internal.h. */
#include "queue/queue_internal.h"

struct weir__in_doubt weir__in_doubt_puts = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void remove_at(struct weir__in_doubt *all, size_t at)
{
    all->count--;
    memmove(&all->list[at], &all->list[at + 1], (all->count - at) * sizeof all->list[0]);
}

/* Removes expired entries; if there are none, the oldest. */
static void make_room(struct weir__in_doubt *all, int64_t now_ms)
{
    for (size_t i = all->count; i-- > 0;)
        if (all->list[i].until_ms && all->list[i].until_ms <= now_ms)
            remove_at(all, i);
    if (all->count == WEIR__IN_DOUBT_MAX)
        remove_at(all, 0);
}

static struct weir__in_doubt_put *find(struct weir__in_doubt *all, const char *ticket)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->list[i].ticket, ticket) == 0)
            return &all->list[i];
    return NULL;
}

void weir__in_doubt_add(struct weir__in_doubt *all, const char *ticket, int64_t now_ms)
{
    pthread_mutex_lock(&all->lock);
    if (all->count == WEIR__IN_DOUBT_MAX)
        make_room(all, now_ms);
    struct weir__in_doubt_put *one = &all->list[all->count++];
    memcpy(one->ticket, ticket, sizeof one->ticket);
    one->until_ms = 0;
    pthread_mutex_unlock(&all->lock);
}

bool weir__in_doubt_has(struct weir__in_doubt *all, const char *ticket)
{
    pthread_mutex_lock(&all->lock);
    bool has = find(all, ticket) != NULL;
    pthread_mutex_unlock(&all->lock);
    return has;
}

void weir__in_doubt_resolve(struct weir__in_doubt *all, const char *ticket, int64_t now_ms)
{
    pthread_mutex_lock(&all->lock);
    struct weir__in_doubt_put *one = find(all, ticket);
    if (one && !one->until_ms)
        one->until_ms = now_ms + WEIR__IN_DOUBT_LATE_MS;
    pthread_mutex_unlock(&all->lock);
}

size_t weir__in_doubt_pending(struct weir__in_doubt *all, size_t skip, char (*tickets)[WEIR__TICKET_LEN + 1],
                              size_t max)
{
    size_t found = 0;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->count && found < max; i++) {
        if (all->list[i].until_ms)
            continue;
        if (skip > 0)
            skip--;
        else
            memcpy(tickets[found++], all->list[i].ticket, sizeof all->list[i].ticket);
    }
    pthread_mutex_unlock(&all->lock);
    return found;
}
