/* What this host has to tell of itself. See membership.h. */
#include "stats/membership.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SPAN_S 10

/* By what only those know who use the segment: hosts of the same name are not the same host. */
static void id_make(const weir_segment *segment, char id[WEIR__HOST_ID + 1])
{
    uint8_t secret[WEIR_SECRET_BYTES];
    uint64_t hash = 0;
    if (weir_segment_secret(segment, "who this host is", secret) == 0)
        hash = weir__hash_text((weir_text){(const char *)secret, sizeof secret}, 0);
    snprintf(id, WEIR__HOST_ID + 1, "%016" PRIx64, hash);
}

struct sum {
    const struct weir__snapshot *snapshot;
    struct weir__heartbeat *heartbeat;
};

static int add_rule(void *context, const struct weir__rule_snapshot *rule)
{
    const struct sum *sum = context;
    struct weir__rates rates = weir__snapshot_rates(sum->snapshot, rule, SPAN_S);
    sum->heartbeat->rule_count++;
    weir__rates_add(&sum->heartbeat->rates, rule, &rates);
    return 0;
}

static enum weir__host_store store_of(const struct weir__snapshot *snapshot, bool has_store)
{
    weir_ledger_stats stats;
    if (!weir__snapshot_has_ledger(snapshot))
        return has_store ? WEIR__HOST_STORE_UNKNOWN : WEIR__HOST_STORE_NONE;
    weir__delta_ledger_stats(&snapshot->deltas, &stats);
    return stats.store == WEIR_STORE_DOWN || !stats.agent ? WEIR__HOST_STORE_UNAVAILABLE
           : stats.store == WEIR_STORE_UP                 ? WEIR__HOST_STORE_UP
                                                          : WEIR__HOST_STORE_UNKNOWN;
}

void weir__heartbeat_of_self(struct weir__heartbeat *heartbeat, const struct weir__snapshot *snapshot, bool has_store)
{
    struct weir__load_view view;
    struct weir__upstream_sums sums;
    char name[WEIR__HOST_NAME];
    struct sum sum = {snapshot, heartbeat};
    *heartbeat = (struct weir__heartbeat){
        .level = -1, .every_ms = WEIR__HEARTBEAT_EVERY_MS, .store = store_of(snapshot, has_store)};
    weir__snapshot_host_name(snapshot, name);
    weir__printable((weir_text){name, strlen(name)}, heartbeat->name, sizeof heartbeat->name);
    snprintf(heartbeat->version, sizeof heartbeat->version, "%s", weir_version());
    id_make(snapshot->engine->segment, heartbeat->id);
    (void)weir__snapshot_each_rule(snapshot, add_rule, &sum);
    if (!snapshot->unnamed)
        heartbeat->rules = weir__rules_checksum(snapshot->engine);
    if (weir__snapshot_load(snapshot, &view, &sums))
        heartbeat->level = 100.0 * view.level / WEIR__LOAD_FULL;
}
