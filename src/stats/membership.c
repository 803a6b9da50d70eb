/* Who there is, for who looks. See membership.h. */
#include "stats/membership.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void weir__fleet_open(struct weir__fleet *fleet, const char *segment_path, bool has_store)
{
    *fleet = (struct weir__fleet){.has_store = has_store};
    snprintf(fleet->path, sizeof fleet->path, "%s.hosts", segment_path);
}

void weir__fleet_close(struct weir__fleet *fleet)
{
    free(fleet->hosts);
    *fleet = (struct weir__fleet){0};
}

/* What most of those say who tell; 0: nobody says. */
static uint64_t rules_of_most(const struct weir__fleet *fleet)
{
    uint64_t best = 0;
    size_t votes = 0;
    for (size_t i = 0; i < fleet->count; i++) {
        size_t same = 0;
        if (fleet->hosts[i].silent || !fleet->hosts[i].told.rules || fleet->hosts[i].told.rules == best)
            continue;
        for (size_t k = i; k < fleet->count; k++)
            same += !fleet->hosts[k].silent && fleet->hosts[k].told.rules == fleet->hosts[i].told.rules;
        if (same > votes) {
            votes = same;
            best = fleet->hosts[i].told.rules;
        }
    }
    return best;
}

static void judge(struct weir__fleet *fleet)
{
    fleet->silent = fleet->differ = 0;
    for (size_t i = 0; i < fleet->count; i++) {
        struct weir__fleet_host *host = &fleet->hosts[i];
        host->silent = host->heard_ms > weir__told_patience_ms(&host->told);
        fleet->silent += host->silent;
    }
    uint64_t most = rules_of_most(fleet);
    for (size_t i = 0; i < fleet->count; i++) {
        fleet->hosts[i].differs = fleet->hosts[i].told.rules && fleet->hosts[i].told.rules != most;
        fleet->differ += fleet->hosts[i].differs;
    }
}

/* Those of the file but this one. */
static void add_others(struct weir__fleet *fleet, const struct weir__fleet_list *list, int64_t since_ms)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct weir__heard *heard = &list->hosts[i];
        int64_t ago_ms = heard->ago_ms + since_ms;
        if (heard->via != WEIR__FLEET_HERE && strcmp(heard->told.id, fleet->hosts[0].told.id) != 0 &&
            (ago_ms <= WEIR__FLEET_FORGET_MS || ago_ms <= weir__told_patience_ms(&heard->told)))
            fleet->hosts[fleet->count++] =
                (struct weir__fleet_host){.told = heard->told, .heard_ms = ago_ms, .via = heard->via};
    }
}

void weir__fleet_look(struct weir__fleet *fleet, const struct weir__sight *sight)
{
    struct weir__fleet_list list;
    struct weir__told self;
    bool there = weir__fleet_load(fleet->path, sight->engine->segment->owner, &list);
    int64_t now_ms = (int64_t)weir__coarse_ms(), since_ms = now_ms - list.written_ms;
    if (since_ms < 0) /* it is from before the machine started */
        weir__fleet_list_free(&list);
    free(fleet->hosts);
    fleet->count = 0;
    fleet->hosts = calloc(list.count + 1, sizeof *fleet->hosts);
    weir__told_self(&self, sight, fleet->has_store);
    /* The agent knows what this process may not: rules by their names, the store. */
    fleet->agent = there && list.count && list.hosts[0].via == WEIR__FLEET_HERE &&
                   since_ms <= weir__told_patience_ms(&list.hosts[0].told);
    fleet->store = fleet->agent ? list.store : self.store;
    fleet->left_out = fleet->agent ? list.left_out : 0;
    snprintf(fleet->why, sizeof fleet->why, "%s", fleet->agent ? list.why : "");
    if (fleet->hosts) {
        fleet->hosts[fleet->count++] = (struct weir__fleet_host){.told = fleet->agent ? list.hosts[0].told : self};
        add_others(fleet, &list, since_ms);
        judge(fleet);
    }
    weir__fleet_list_free(&list);
}
