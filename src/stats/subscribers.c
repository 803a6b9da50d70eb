/* Hosts that take their rules from this one. See subscribers.h. */
#include "stats/subscribers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct follower {
    struct weir__told told;
    int64_t heard_ms; /* when */
};

struct weir__followers {
    pthread_mutex_t lock;
    size_t count;
    struct follower list[WEIR__FLEET_MAX];
};

struct weir__followers *weir__followers_new(void)
{
    struct weir__followers *followers = calloc(1, sizeof *followers);
    if (followers)
        pthread_mutex_init(&followers->lock, NULL);
    return followers;
}

void weir__followers_free(struct weir__followers *followers)
{
    if (!followers)
        return;
    pthread_mutex_destroy(&followers->lock);
    free(followers);
}

/* Where it belongs: its own place, a free one, that of the most silent; NULL: there is none. */
static struct follower *place_for(struct weir__followers *followers, const char *id, int64_t now_ms)
{
    struct follower *oldest = NULL;
    for (size_t i = 0; i < followers->count; i++) {
        struct follower *one = &followers->list[i];
        if (strcmp(one->told.id, id) == 0)
            return one;
        if (!oldest || one->heard_ms < oldest->heard_ms)
            oldest = one;
    }
    if (followers->count < WEIR__FLEET_MAX)
        return &followers->list[followers->count++];
    return now_ms - oldest->heard_ms > weir__told_patience_ms(&oldest->told) ? oldest : NULL;
}

void weir__followers_hear(struct weir__followers *followers, const struct weir__told *told, int64_t now_ms)
{
    pthread_mutex_lock(&followers->lock);
    struct follower *place = place_for(followers, told->id, now_ms);
    if (place)
        *place = (struct follower){*told, now_ms};
    pthread_mutex_unlock(&followers->lock);
}

static struct weir__heard *find(const struct weir__fleet_list *list, const char *id)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->hosts[i].told.id, id) == 0)
            return &list->hosts[i];
    return NULL;
}

static void add(struct weir__fleet_list *list, const struct follower *one, int64_t ago_ms)
{
    struct weir__heard *heard = find(list, one->told.id);
    if (heard && heard->ago_ms <= ago_ms)
        return;
    if (!heard && list->count == WEIR__FLEET_MAX) {
        list->left_out++;
        return;
    }
    heard = heard ? heard : &list->hosts[list->count++];
    *heard = (struct weir__heard){one->told, ago_ms, WEIR__FLEET_BY_RULES};
}

void weir__followers_add(struct weir__followers *followers, struct weir__fleet_list *list, int64_t now_ms)
{
    pthread_mutex_lock(&followers->lock);
    for (size_t i = 0; i < followers->count;) {
        const struct follower *one = &followers->list[i];
        int64_t ago_ms = now_ms > one->heard_ms ? now_ms - one->heard_ms : 0;
        if (ago_ms > WEIR__FLEET_FORGET_MS && ago_ms > weir__told_patience_ms(&one->told)) {
            followers->list[i] = followers->list[--followers->count];
            continue;
        }
        add(list, one, ago_ms);
        i++;
    }
    pthread_mutex_unlock(&followers->lock);
}
