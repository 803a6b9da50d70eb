/* Which hosts there are, as JSON. See stats_json.h. */
#include "stats/stats_json_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static json_t *host_json(const struct weir__fleet_host *host)
{
    static const char *const ways[] = {"here", "store", "rules"};
    const struct weir__told *told = &host->told;
    char rules[24];
    snprintf(rules, sizeof rules, "%016" PRIx64, told->rules);
    return json_pack("{s:s,s:o,s:b,s:s,s:f,s:s,s:o,s:o,s:o?,s:s,s:s?,s:I,s:b}", "id", told->id, "name",
                     weir__figures_text(told->name, strlen(told->name)), "here", host->via == WEIR__FLEET_HERE, "state",
                     host->silent ? "silent" : "running", "heard_s", (double)host->heard_ms / 1000, "via",
                     ways[host->via], "version", weir__figures_text(told->version, strlen(told->version)), "rates",
                     weir__figures_rates(&told->rates), "level", told->level >= 0 ? json_real(told->level) : NULL,
                     "store", weir__fleet_store_name(told->store), "rules", told->rules ? rules : NULL, "rule_count",
                     (json_int_t)told->rule_count, "rules_differ", host->differs);
}

json_t *weir__figures_fleet(const struct weir__fleet *fleet)
{
    json_t *hosts = json_array();
    bool good = hosts != NULL;
    for (size_t i = 0; i < fleet->count && good; i++)
        good = json_array_append_new(hosts, host_json(&fleet->hosts[i])) == 0;
    json_t *root = json_pack(
        "{s:{s:I,s:I,s:I,s:I,s:s,s:o?,s:b},s:o}", "fleet", "running", (json_int_t)(fleet->count - fleet->silent),
        "silent", (json_int_t)fleet->silent, "left_out", (json_int_t)fleet->left_out, "rules_differ",
        (json_int_t)fleet->differ, "store", weir__fleet_store_name(fleet->store), "why",
        *fleet->why ? weir__figures_text(fleet->why, strlen(fleet->why)) : NULL, "agent", fleet->agent, "hosts", hosts);
    if (good)
        return root;
    json_decref(root);
    return NULL;
}

int weir__figures_hosts(const struct weir__fleet *fleet, char **json)
{
    json_t *root = weir__figures_fleet(fleet);
    return weir__figures_finish(root, root != NULL, json);
}
