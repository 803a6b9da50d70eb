/*
 * What is seen of a host, as JSON: for GET /v1/stats, /v1/stats/history, /v1/stats/hot, /v1/advice and /v1/hosts, and
 * for the commands weir top and weir advise. Each leaves a text from malloc in *json and returns 0, or WEIR_ENORULE or
 * WEIR_ENOMEM. The sight must have looked lately.
 */
#ifndef WEIR_STATS_STATS_JSON_H
#define WEIR_STATS_STATS_JSON_H

#include "stats/advise.h"
#include "stats/membership.h"
#include "stats/snapshot.h"

#define WEIR__FIGURES_KEYS_MAX 256

int weir__figures_stats(const struct weir__sight *sight, char **json);
/* `rule` NULL: all that are enforced together, and as shadow_denied what shadow rules would have denied. */
int weir__figures_history(const struct weir__sight *sight, const char *rule, int64_t seconds, int64_t step,
                          char **json);

struct weir__figures_hot {
    bool hide; /* hashes instead of the texts of keys */
    const char *rule;
    bool shadow;
    bool denied; /* by denied cost; else by admitted */
    bool near;   /* the keys near their limit instead, and how much of it keys use */
    int64_t n;
};
int weir__figures_hot(const struct weir__sight *sight, const struct weir__figures_hot *what, char **json);
/* Which hosts there are: "fleet" has what is to be said of all, "hosts" each of them, this one first. */
int weir__figures_hosts(const struct weir__fleet *fleet, char **json);
/*
 * weir__figures_stats and weir__figures_hosts in one, and each rule with its hottest `keys` as "hot": {"admitted": [],
 * "denied": [], "near": []}.
 */
int weir__figures_all(const struct weir__sight *sight, const struct weir__fleet *fleet, int64_t keys, char **json);
/* `rule` NULL: all. `source`: where the rules' texts are from, for the changed rules. */
int weir__figures_advice(const struct weir__sight *sight, const char *rule, struct weir__rule_source *source,
                         char **json);

#endif
