/* Membership: the readers' view of the .hosts file, which has all hosts that the agent knows of. See membership.h. */
#include "stats/membership.h"
#include "base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX ((off_t)4 << 20)

/* Reads the .hosts file; one of another user is refused. */
static bool host_list_read(const char *path, unsigned segment_owner, struct weir__host_list *list)
{
    struct stat at;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool sound = file >= 0 && weir__file_is_trusted(file, path, segment_owner) && fstat(file, &at) == 0 &&
                 at.st_size <= FILE_MAX;
    char *text = sound ? malloc((size_t)at.st_size + 1) : NULL;
    ssize_t len = text ? read(file, text, (size_t)at.st_size) : -1; /* the agent replaces the file, never changes it */
    *list = (struct weir__host_list){0};
    bool good = len > 0 && weir__host_list_parse(text, (size_t)len, list);
    free(text);
    if (file >= 0)
        close(file);
    return good;
}

/* ---- The readers' view ---- */

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
    const struct weir__host_status *hosts = membership->hosts;
    for (size_t i = 0; i < membership->count; i++) {
        uint64_t rules = hosts[i].silent ? 0 : hosts[i].heartbeat.rules;
        size_t same = 0;
        for (size_t k = i; rules && rules != best && k < membership->count; k++)
            same += !hosts[k].silent && hosts[k].heartbeat.rules == rules;
        if (same > votes) {
            votes = same;
            best = rules;
        }
    }
    return best;
}

static void mark_hosts(struct weir__membership *membership)
{
    membership->silent = membership->differ = 0;
    for (size_t i = 0; i < membership->count; i++) {
        struct weir__host_status *host = &membership->hosts[i];
        host->silent = host->ago_ms > weir__heartbeat_timeout_ms(&host->heartbeat);
        membership->silent += host->silent;
    }
    uint64_t most = rules_of_most(membership);
    for (size_t i = 0; i < membership->count; i++) {
        struct weir__host_status *host = &membership->hosts[i];
        host->differs = host->heartbeat.rules && host->heartbeat.rules != most;
        membership->differ += host->differs;
    }
}

/* Adds the hosts of the file, except this one and those not heard from for too long. */
static void add_others(struct weir__membership *membership, const struct weir__host_list *list, int64_t since_ms)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct weir__host_status *received = &list->hosts[i];
        int64_t ago_ms = received->ago_ms + since_ms;
        if (received->via != WEIR__HOST_SELF &&
            strcmp(received->heartbeat.id, membership->hosts[0].heartbeat.id) != 0 &&
            (ago_ms <= WEIR__HOSTS_FORGET_MS || ago_ms <= weir__heartbeat_timeout_ms(&received->heartbeat)))
            membership->hosts[membership->count++] =
                (struct weir__host_status){.heartbeat = received->heartbeat, .ago_ms = ago_ms, .via = received->via};
    }
}

void weir__membership_refresh(struct weir__membership *membership, const struct weir__snapshot *snapshot)
{
    struct weir__host_list list;
    struct weir__heartbeat self;
    bool there = host_list_read(membership->path, snapshot->engine->segment->mapped.owner, &list);
    int64_t now_ms = (int64_t)weir__coarse_ms(), since_ms = now_ms - list.written_ms;
    if (since_ms < 0) /* written before the last boot */
        weir__host_list_free(&list);
    free(membership->hosts);
    membership->count = 0;
    membership->hosts = calloc(list.count + 1, sizeof *membership->hosts);
    weir__heartbeat_of_self(&self, snapshot, membership->has_store);
    /* The agent's own entry is preferred: it has rule names and the store's state. */
    const struct weir__host_status *own = list.hosts;
    if (!there || !list.count || own->via != WEIR__HOST_SELF || since_ms > weir__heartbeat_timeout_ms(&own->heartbeat))
        own = NULL;
    membership->agent = own != NULL;
    membership->store = membership->agent ? list.store : self.store;
    membership->left_out = membership->agent ? list.left_out : 0;
    snprintf(membership->why, sizeof membership->why, "%s", membership->agent ? list.why : "");
    if (membership->hosts) {
        membership->hosts[membership->count++] = (struct weir__host_status){.heartbeat = own ? own->heartbeat : self};
        add_others(membership, &list, since_ms);
        mark_hosts(membership);
    }
    weir__host_list_free(&list);
}
