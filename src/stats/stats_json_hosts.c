/* Which hosts there are, as JSON. See stats_json.h. */
#include "stats/stats_json_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static json_t *host_json(const struct weir__host_status *host)
{
    static const char *const ways[] = {"here", "store", "rules"};
    const struct weir__heartbeat *heartbeat = &host->heartbeat;
    char rules[24];
    snprintf(rules, sizeof rules, "%016" PRIx64, heartbeat->rules);
    return json_pack(
        "{s:s,s:o,s:b,s:s,s:f,s:s,s:o,s:o,s:o?,s:s,s:s?,s:I,s:b}", "id", heartbeat->id, "name",
        weir__stats_json_text(heartbeat->name, strlen(heartbeat->name)), "here", host->via == WEIR__HOST_SELF, "state",
        host->silent ? "silent" : "running", "heard_s", (double)host->received_ms / 1000, "via", ways[host->via],
        "version", weir__stats_json_text(heartbeat->version, strlen(heartbeat->version)), "rates",
        weir__stats_json_rates(&heartbeat->rates), "level", heartbeat->level >= 0 ? json_real(heartbeat->level) : NULL,
        "store", weir__host_store_name(heartbeat->store), "rules", heartbeat->rules ? rules : NULL, "rule_count",
        (json_int_t)heartbeat->rule_count, "rules_differ", host->differs);
}

json_t *weir__stats_json_membership(const struct weir__membership *membership)
{
    json_t *hosts = json_array();
    bool good = hosts != NULL;
    for (size_t i = 0; i < membership->count && good; i++)
        good = json_array_append_new(hosts, host_json(&membership->hosts[i])) == 0;
    json_t *root =
        json_pack("{s:{s:I,s:I,s:I,s:I,s:s,s:o?,s:b},s:o}", "fleet", "running",
                  (json_int_t)(membership->count - membership->silent), "silent", (json_int_t)membership->silent,
                  "left_out", (json_int_t)membership->left_out, "rules_differ", (json_int_t)membership->differ, "store",
                  weir__host_store_name(membership->store), "why",
                  *membership->why ? weir__stats_json_text(membership->why, strlen(membership->why)) : NULL, "agent",
                  membership->agent, "hosts", hosts);
    if (good)
        return root;
    json_decref(root);
    return NULL;
}

int weir__stats_json_hosts(const struct weir__membership *membership, char **json)
{
    json_t *root = weir__stats_json_membership(membership);
    return weir__stats_json_finish(root, root != NULL, json);
}
