/* What this host has to tell of itself. See membership.h. */
#include "stats/membership.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SPAN_S 10

/* By what only those know who use the segment: hosts of the same name are not the same host. */
static void id_make(const weir_segment *segment, char id[WEIR__FLEET_ID + 1])
{
    uint8_t secret[WEIR_SECRET_BYTES];
    uint64_t hash = 0;
    if (weir_segment_secret(segment, "who this host is", secret) == 0)
        hash = weir__hash_text((weir_text){(const char *)secret, sizeof secret}, 0);
    snprintf(id, WEIR__FLEET_ID + 1, "%016" PRIx64, hash);
}

struct sum {
    const struct weir__sight *sight;
    struct weir__told *told;
};

static int add_rule(void *context, const struct weir__seen_rule *rule)
{
    const struct sum *sum = context;
    struct weir__rates rates = weir__sight_rates(sum->sight, rule, SPAN_S);
    sum->told->rule_count++;
    weir__rates_add(&sum->told->rates, rule, &rates);
    return 0;
}

static enum weir__fleet_store store_of(const struct weir__sight *sight, bool has_store)
{
    weir_ledger_stats stats;
    if (!weir__sight_has_ledger(sight))
        return has_store ? WEIR__FLEET_STORE_UNKNOWN : WEIR__FLEET_NO_STORE;
    weir__delta_ledger_stats(&sight->deltas, &stats);
    return stats.store == WEIR_STORE_DOWN || !stats.agent ? WEIR__FLEET_STORE_AWAY
           : stats.store == WEIR_STORE_UP                 ? WEIR__FLEET_STORE_UP
                                                          : WEIR__FLEET_STORE_UNKNOWN;
}

void weir__told_self(struct weir__told *told, const struct weir__sight *sight, bool has_store)
{
    struct weir__load_view view;
    struct weir__upstream_sums sums;
    char name[WEIR__HOST_NAME];
    struct sum sum = {sight, told};
    *told = (struct weir__told){.level = -1, .every_ms = WEIR__FLEET_EVERY_MS, .store = store_of(sight, has_store)};
    weir__sight_host_name(sight, name);
    weir__printable((weir_text){name, strlen(name)}, told->name, sizeof told->name);
    snprintf(told->version, sizeof told->version, "%s", weir_version());
    id_make(sight->engine->segment, told->id);
    (void)weir__sight_rules(sight, add_rule, &sum);
    if (!sight->unnamed)
        told->rules = weir__rules_checksum(sight->engine);
    if (weir__sight_load(sight, &view, &sums))
        told->level = 100.0 * view.level / WEIR__LOAD_FULL;
}
