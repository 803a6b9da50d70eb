/*
 * Advice about rules: derives from a rule's statistics whether it is too strict, too loose or of the wrong algorithm,
 * with the numbers behind it and the changed rule, to be tried as a shadow rule. Returns no advice when the evidence is
 * too thin.
 */
#ifndef WEIR_STATS_ADVISE_H
#define WEIR_STATS_ADVISE_H

#include "stats/snapshot.h"
#include "stats/stats.h"

#include <jansson.h>

#define WEIR__EVIDENCE_KEYS 256

/* A key of the list of most denied keys. */
struct weir__denied_key {
    uint64_t denied, admitted; /* cost, accumulated over `stands_for_s` seconds */
};

/* The input of weir__advise: one rule's parameters, history and hottest keys. */
struct weir__evidence {
    enum weir_algorithm algorithm;
    int64_t limit, hard; /* units a window; `hard`: largest burst */
    double window_s;     /* 0: a calendar window, whose length varies; rates are unknown */
    bool by_clock;       /* a fixed window aligned to the epoch */
    bool shadow;

    struct weir__history_second second[WEIR__HISTORY_SECONDS]; /* oldest first */
    size_t second_count;
    uint64_t newest_wall; /* Unix time of the newest second */
    struct weir__history_hour hour[WEIR__HISTORY_HOURS];
    size_t hour_count;

    struct weir__denied_key key[WEIR__EVIDENCE_KEYS]; /* heaviest first */
    size_t key_count;
    uint64_t stands_for_s; /* seconds; 0: unknown */
    uint64_t keys;         /* estimated number of active keys */
};

/* From malloc; NULL: no memory. */
struct weir__evidence *weir__evidence_gather(const struct weir__snapshot *snapshot,
                                             const struct weir__rule_snapshot *rule);

enum weir__advice_kind { WEIR__TOO_STRICT, WEIR__TOO_LOOSE, WEIR__BURSTS, WEIR__EDGE_BURSTS };

/* The recommended change; 0 and NULL: keep that field. */
struct weir__rule_change {
    int64_t limit, burst;
    double limit_factor; /* multiplies each tier's limit */
    const char *algorithm;
};

#define WEIR__ADVICE_MAX     4
#define WEIR__ADVICE_NUMBERS 8

struct weir__advice {
    enum weir__advice_kind kind;
    char message[512];
    struct {
        const char *name;
        double value;
    } numbers[WEIR__ADVICE_NUMBERS];
    size_t number_count;
    struct weir__rule_change change;
};

/* The least evidence for advice about denials, in the history of the last hour, and for a limit that is too loose. */
#define WEIR__ADVICE_SECONDS  600
#define WEIR__ADVICE_REQUESTS 1000
#define WEIR__ADVICE_DENIED   50
#define WEIR__ADVICE_HOURS    168

/* The evidence that there is for the enforced rules. */
struct weir__advice_basis {
    size_t rules;              /* how many were looked at */
    size_t seconds, hours;     /* of the longest history */
    const char *busiest;       /* the rule with the most requests in its seconds; NULL: none had any */
    uint64_t requests, denied; /* of that rule */
    bool keys;                 /* keys are sampled */
};

/* Returns how many there are. */
size_t weir__advise(const struct weir__evidence *evidence, struct weir__advice advice[WEIR__ADVICE_MAX]);
/*
 * Advice about the rule of this name (NULL: about all rules) as a list of JSON, which the caller frees; `source`: where
 * the rules' texts are from. 0, WEIR_ENORULE or WEIR_ENOMEM.
 */
int weir__advise_all(const struct weir__snapshot *snapshot, const char *name, struct weir__rule_source *source,
                     json_t **list, struct weir__advice_basis *basis);

/*
 * The changed rule as YAML, from malloc: returns a complete rule file with the rule in shadow, and *document gets the
 * document that the rules service takes, without `shadow`. Both NULL: the rule is gone, or has a form that cannot be
 * changed (several limits, descriptor dialect).
 */
char *weir__advice_rule(struct weir__rule_source *source, const weir_rule_info *info,
                        const struct weir__rule_change *change, char **document);

#endif
