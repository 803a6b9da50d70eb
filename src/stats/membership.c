/* Membership as readers see it: this host, and those of the .hosts file. See membership.h. */
#include "stats/membership.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void weir__membership_open(struct weir__membership *membership, const char *segment_path, bool has_store)
{
    *membership = (struct weir__membership){.has_store = has_store};
    snprintf(membership->path, sizeof membership->path, "%s.hosts", segment_path);
}

void weir__membership_close(struct weir__membership *membership)
{
    free(membership->hosts);
    *membership = (struct weir__membership){0};
}

/* The rules checksum of most running hosts; 0: unknown. */
static uint64_t rules_of_most(const struct weir__membership *membership)
{
    uint64_t best = 0;
    size_t votes = 0;
    for (size_t i = 0; i < membership->count; i++) {
        size_t same = 0;
        if (membership->hosts[i].silent || !membership->hosts[i].heartbeat.rules ||
            membership->hosts[i].heartbeat.rules == best)
            continue;
        for (size_t k = i; k < membership->count; k++)
            same += !membership->hosts[k].silent &&
                    membership->hosts[k].heartbeat.rules == membership->hosts[i].heartbeat.rules;
        if (same > votes) {
            votes = same;
            best = membership->hosts[i].heartbeat.rules;
        }
    }
    return best;
}

static void mark_hosts(struct weir__membership *membership)
{
    membership->silent = membership->differ = 0;
    for (size_t i = 0; i < membership->count; i++) {
        struct weir__host_status *host = &membership->hosts[i];
        host->silent = host->received_ms > weir__heartbeat_timeout_ms(&host->heartbeat);
        membership->silent += host->silent;
    }
    uint64_t most = rules_of_most(membership);
    for (size_t i = 0; i < membership->count; i++) {
        membership->hosts[i].differs =
            membership->hosts[i].heartbeat.rules && membership->hosts[i].heartbeat.rules != most;
        membership->differ += membership->hosts[i].differs;
    }
}

/* Adds the hosts of the file, except this one and those not heard from for too long. */
static void add_others(struct weir__membership *membership, const struct weir__host_list *list, int64_t since_ms)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct weir__received_heartbeat *received = &list->hosts[i];
        int64_t ago_ms = received->ago_ms + since_ms;
        if (received->via != WEIR__HOST_SELF &&
            strcmp(received->heartbeat.id, membership->hosts[0].heartbeat.id) != 0 &&
            (ago_ms <= WEIR__HOSTS_FORGET_MS || ago_ms <= weir__heartbeat_timeout_ms(&received->heartbeat)))
            membership->hosts[membership->count++] = (struct weir__host_status){
                .heartbeat = received->heartbeat, .received_ms = ago_ms, .via = received->via};
    }
}

void weir__membership_refresh(struct weir__membership *membership, const struct weir__snapshot *snapshot)
{
    struct weir__host_list list;
    struct weir__heartbeat self;
    bool there = weir__host_list_read(membership->path, snapshot->engine->segment->owner, &list);
    int64_t now_ms = (int64_t)weir__coarse_ms(), since_ms = now_ms - list.written_ms;
    if (since_ms < 0) /* written before the last boot */
        weir__host_list_free(&list);
    free(membership->hosts);
    membership->count = 0;
    membership->hosts = calloc(list.count + 1, sizeof *membership->hosts);
    weir__heartbeat_of_self(&self, snapshot, membership->has_store);
    /* The agent's own entry is better than what this process can see: it knows rule names and the store's state. */
    membership->agent = there && list.count && list.hosts[0].via == WEIR__HOST_SELF &&
                        since_ms <= weir__heartbeat_timeout_ms(&list.hosts[0].heartbeat);
    membership->store = membership->agent ? list.store : self.store;
    membership->left_out = membership->agent ? list.left_out : 0;
    snprintf(membership->why, sizeof membership->why, "%s", membership->agent ? list.why : "");
    if (membership->hosts) {
        membership->hosts[membership->count++] =
            (struct weir__host_status){.heartbeat = membership->agent ? list.hosts[0].heartbeat : self};
        add_others(membership, &list, since_ms);
        mark_hosts(membership);
    }
    weir__host_list_free(&list);
}
