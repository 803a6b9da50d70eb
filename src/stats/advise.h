/*
 * Is a rule what it should be? From figures to advice: too strict, too loose, or the wrong algorithm, with the numbers
 * that say so and the changed rule, ready to be tried as a shadow. Says nothing when the figures say nothing.
 */
#ifndef WEIR_STATS_ADVISE_H
#define WEIR_STATS_ADVISE_H

#include "stats/snapshot.h"

#define WEIR__HOT_KEYS_MINUTES 10 /* of keys that are near their limit, and of how much keys use */
#define WEIR__EVIDENCE_KEYS    256

/* A key that was denied something. */
struct weir__denied_key {
    uint64_t denied, admitted; /* cost, in the seconds that the weights stand for */
};

/* Everything that advice about one rule is made of. */
struct weir__evidence {
    enum weir_algorithm algorithm;
    int64_t limit, hard; /* units a window, and at once */
    double window_s;     /* 0: a calendar's; nothing is known then of how fast a key may be */
    bool by_clock;       /* a fixed window of whole ones since 1970 */
    bool shadow, tiers;

    struct weir__history_second second[WEIR__HISTORY_SECONDS]; /* the newest last */
    size_t second_count;
    uint64_t newest_wall; /* the newest one's second since 1970 */
    struct weir__history_hour hour[WEIR__HISTORY_HOURS];
    size_t hour_count;

    struct weir__denied_key key[WEIR__EVIDENCE_KEYS]; /* heaviest first */
    size_t key_count;
    uint64_t denied_total; /* of all keys */
    uint64_t stands_for_s; /* seconds; 0: unknown */
    uint64_t keys;         /* about as many were there lately */
};

/* From malloc; NULL: no memory. */
struct weir__evidence *weir__evidence_gather(const struct weir__snapshot *snapshot,
                                             const struct weir__rule_snapshot *rule);

enum weir__advice_kind { WEIR__TOO_STRICT, WEIR__TOO_LOOSE, WEIR__BURSTS, WEIR__EDGE_BURSTS };
/* "too_strict" ... */
const char *weir__advice_kind_name(enum weir__advice_kind kind);

/* What to change; 0 and NULL: leave it as it is. */
struct weir__rule_change {
    int64_t limit, burst;
    double limit_factor; /* for rules with tiers: each limit times this */
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

/* Returns how many there are. */
size_t weir__advise(const struct weir__evidence *evidence, struct weir__advice advice[WEIR__ADVICE_MAX]);

/* Where rules were read from: a file or a directory; or with `path` NULL a text. */
struct weir__rule_source {
    const char *path;
    weir_text text;
    struct weir__rule_trees *trees; /* what was read, by the first weir__advice_rule; NULL before */
};

/*
 * The rule with the change, from malloc: to be tried beside the enforced one as a whole rule file with a shadow, or
 * alone, as the document that the rules service takes, where being a shadow is not the document's business. NULL: the
 * rule is not written as one that can be changed so (of several limits, of the descriptor dialect), or not there any
 * more.
 */
enum weir__advice_form { WEIR__ADVICE_FILE, WEIR__ADVICE_DOCUMENT };
char *weir__advice_rule(struct weir__rule_source *source, const weir_rule_info *info,
                        const struct weir__rule_change *change, enum weir__advice_form form);
/* Frees what weir__advice_rule has read; the next one reads again. */
void weir__rule_source_free(struct weir__rule_source *source);

#endif
