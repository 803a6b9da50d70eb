/*
 * A host's statistics as JSON: for GET /v1/stats, /v1/stats/history, /v1/stats/hot, /v1/advice and /v1/hosts, and for
 * weir top and weir advise. Each function leaves a text from malloc in *json and returns 0, WEIR_ENORULE or
 * WEIR_ENOMEM. The snapshot must be recent.
 */
#ifndef WEIR_STATS_STATS_JSON_H
#define WEIR_STATS_STATS_JSON_H

#include "stats/advise.h"
#include "stats/membership.h"
#include "stats/snapshot.h"

#define WEIR__STATS_KEYS_MAX 256

int weir__stats_json_current(const struct weir__snapshot *snapshot, char **json);
/* `rule` NULL: the sum over all enforced rules, with shadow rules' denials as shadow_denied. */
int weir__stats_json_history(const struct weir__snapshot *snapshot, const char *rule, int64_t seconds, int64_t step,
                             char **json);

struct weir__stats_json_hot_keys {
    bool hide; /* show hashes in place of keys */
    const char *rule;
    bool shadow;
    bool denied; /* order by denied cost, else by admitted */
    bool near;   /* the keys nearest to their limit, and the distribution of use */
    int64_t n;
};
int weir__stats_json_hot_keys(const struct weir__snapshot *snapshot, const struct weir__stats_json_hot_keys *what,
                              char **json);
/* The hosts: "fleet" has totals, "hosts" each of them, this one first. */
int weir__stats_json_hosts(const struct weir__membership *membership, char **json);
/*
 * weir__stats_json_current and weir__stats_json_hosts in one, and each rule with its hottest `keys` as "hot":
 * {"admitted": [], "denied": [], "near": []}.
 */
int weir__stats_json_all(const struct weir__snapshot *snapshot, const struct weir__membership *membership, int64_t keys,
                         char **json);
/* `rule` NULL: all. `source`: where the rules' texts are from, for the changed rules. */
int weir__stats_json_advice(const struct weir__snapshot *snapshot, const char *rule, struct weir__rule_source *source,
                            char **json);

#endif
