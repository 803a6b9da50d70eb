/* Hosts that poll their rules from this one. See membership.h. */
#include "stats/membership.h"

#include <string.h>

/* The host's entry, a free one, or that of the longest silent host; NULL: none. */
static struct weir__subscriber *place_for(struct weir__subscribers *subscribers, const char *id, int64_t now_ms)
{
    struct weir__subscriber *oldest = NULL;
    for (size_t i = 0; i < subscribers->count; i++) {
        struct weir__subscriber *one = &subscribers->list[i];
        if (strcmp(one->heartbeat.id, id) == 0)
            return one;
        if (!oldest || one->received_ms < oldest->received_ms)
            oldest = one;
    }
    if (subscribers->count < WEIR__HOSTS_MAX)
        return &subscribers->list[subscribers->count++];
    return now_ms - oldest->received_ms > weir__heartbeat_timeout_ms(&oldest->heartbeat) ? oldest : NULL;
}

void weir__subscribers_record(struct weir__subscribers *subscribers, const struct weir__heartbeat *heartbeat,
                              int64_t now_ms)
{
    pthread_mutex_lock(&subscribers->lock);
    struct weir__subscriber *place = place_for(subscribers, heartbeat->id, now_ms);
    if (place)
        *place = (struct weir__subscriber){*heartbeat, now_ms};
    pthread_mutex_unlock(&subscribers->lock);
}

static struct weir__host_status *find(const struct weir__host_list *list, const char *id)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->hosts[i].heartbeat.id, id) == 0)
            return &list->hosts[i];
    return NULL;
}

static void add(struct weir__host_list *list, const struct weir__subscriber *one, int64_t ago_ms)
{
    struct weir__host_status *received = find(list, one->heartbeat.id);
    if (received && received->ago_ms <= ago_ms)
        return;
    if (!received && list->count == WEIR__HOSTS_MAX) {
        list->left_out++;
        return;
    }
    received = received ? received : &list->hosts[list->count++];
    *received = (struct weir__host_status){one->heartbeat, ago_ms, .via = WEIR__HOST_VIA_RULES};
}

void weir__subscribers_append(struct weir__subscribers *subscribers, struct weir__host_list *list, int64_t now_ms)
{
    pthread_mutex_lock(&subscribers->lock);
    for (size_t i = 0; i < subscribers->count;) {
        const struct weir__subscriber *one = &subscribers->list[i];
        int64_t ago_ms = now_ms > one->received_ms ? now_ms - one->received_ms : 0;
        if (ago_ms > WEIR__HOSTS_FORGET_MS && ago_ms > weir__heartbeat_timeout_ms(&one->heartbeat)) {
            subscribers->list[i] = subscribers->list[--subscribers->count];
            continue;
        }
        add(list, one, ago_ms);
        i++;
    }
    pthread_mutex_unlock(&subscribers->lock);
}
