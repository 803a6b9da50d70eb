/* A rule set: everything that a request is matched against. Built once, then read without locks. */
#ifndef WEIR_RULES_SET_H
#define WEIR_RULES_SET_H

#include "rules/label_map.h"
#include "rules/yaml.h"
#include "rules/rule.h"

#define WEIR__RULES_MAX     65536
#define WEIR__SET_BYTES_MAX ((size_t)512 << 20)
#define WEIR__REGEXES_MAX   16384 /* bound of compiled expressions, which are not in the arena */

/* Fixed indices of the attributes that every request needs. */
enum { WEIR__AT_PATH, WEIR__AT_HOST, WEIR__AT_METHOD };

struct weir__domain;
struct weir__surroundings;

struct weir_rules {
    struct weir__arena arena;
    struct weir__attributes attributes;
    struct weir__rule **rules; /* enforced and shadow, both dialects, in file order */
    size_t count;
    const struct weir__paths *paths;          /* native dialect */
    const struct weir__gate *gates;           /* by rule */
    struct weir__access_list allow, block;    /* for the whole set */
    struct weir__response response;           /* default of rules without one, and of requests that `block` denies */
    struct weir__domain *domains;             /* descriptor dialect */
    bool has_regex;                           /* a request may need a weir__regex_scratch */
    bool has_report;                          /* some rule, or the set, has `response: { report: RULE }` */
    bool load_aware;                          /* some rule is elastic or adaptive, or has a class or a reserve */
    bool warns;                               /* some rule has warn_at */
    bool by_host, by_path;                    /* some rule names hosts, paths: the index needs them */
    uint8_t form;                             /* of rules that have none of their own */
    uint16_t forms;                           /* bit set of the normal forms under which the index has paths */
    uint8_t odd;                              /* union of their options */
    const struct weir__path_entry *open_ends; /* globs of the index with a '*' elsewhere than behind the last '/' */
    size_t open_end_count;
    size_t own_count;                 /* rules of the native dialect */
    const char *const *source_names;  /* by weir__place.source */
    struct weir__regex_list *regexes; /* freed with the set */
    struct weir__zone_list *zones;
    void (*close_zone)(weir_zone *zone);
};

struct weir__buffer;
#define WEIR__NO_STORE_TEXT "counts on each host: every rule, as there is no store"
/*
 * Adds a line for each consistency that rules have where there is a store, such as "counts over all hosts, exact: a,
 * b". `names_max`: bytes of names in a line, after which the rest is counted. `interval_us` is between two exchanges.
 */
void weir__rules_hosts(const weir_rules *rules, enum weir__consistency fallback, int64_t interval_us, size_t names_max,
                       struct weir__buffer *to);

/* What only one of the documents of a set may have. */
enum weir__section { WEIR__NORMALIZE, WEIR__IDENTITY, WEIR__RESPONSE, WEIR__ALLOW, WEIR__BLOCK, WEIR__SECTIONS };

/* A set under construction, to which the dialects' readers add. */
struct weir__builder {
    weir_rules *set;
    struct weir__diagnostics *report;
    size_t rule_room; /* of set->rules */
    const struct weir__surroundings *around;
    void *names;                                 /* tree of the rules, to find duplicate names */
    struct weir__label_map keys;                 /* key templates by their source, which rules share */
    void *descriptor_names;                      /* tree of the names that descriptors have given their rules */
    struct weir__place sections[WEIR__SECTIONS]; /* where they were given; line 0: not yet */
    struct weir__place none_place;               /* of a list without rules */
    size_t regex_count;
    bool full; /* more than WEIR__RULES_MAX rules, which was reported */
};

/* Adds a rule. Sets index and id, reports a double name with both places. False: not added. */
bool weir__builder_add(struct weir__builder *builder, const struct weir__rule *rule);
/* A regular expression that lives as long as the set. */
const struct weir__regex *weir__builder_regex(struct weir__builder *builder, const struct weir__node *node,
                                              weir_text text, bool nocase);
/* A time zone that lives as long as the set; NULL after an error, which was reported. */
const weir_zone *weir__builder_zone(struct weir__builder *builder, const struct weir__node *node, weir_text name);

/* Reads `normalize`, which `identity` may need: of all documents before weir__native_basis of any. */
void weir__native_form(struct weir__builder *builder, const struct weir__node *root);
/*
 * Reads `identity` and `response`, which rules of any file depend on: of all documents before weir__native_read of any.
 */
void weir__native_basis(struct weir__builder *builder, const struct weir__node *root);
/* Reads the rest of one document of the native dialect. */
void weir__native_read(struct weir__builder *builder, const struct weir__node *root);
/* Reports each `report` that names no enforced rule: after all documents. */
void weir__native_check_reports(struct weir__builder *builder);

/* ---- A limit's algorithm and its parameters, for both dialects (algorithm.c) ---- */

/* The names of the fields read here, for a dialect's list of known names. */
#define WEIR__ALGORITHM_FIELDS                                                                                         \
    "algorithm", "burst", "refill", "align", "timezone", "buckets", "round", "count_rejected", "soft", "lease"

enum weir__dialect {
    WEIR__NATIVE,     /* default: token bucket; a fixed window of 1d, 1w, 1mo or 1y follows the calendar */
    WEIR__DESCRIPTORS /* default: fixed window, aligned to the epoch unless a time zone is given */
};

/* The nodes of a limit, where errors about its numbers are reported. */
struct weir__limit_nodes {
    const struct weir__node *map; /* has the fields of WEIR__ALGORITHM_FIELDS */
    const struct weir__node
        *outer; /* defaults for fields that `map` lacks (the rule around one of its `limits`); or NULL */
    const struct weir__node *limit;  /* the number of units */
    const struct weir__node *window; /* its window */
};

/*
 * Reads all fields and the window into *params; limit, id and delay stay. A parameter that the algorithm does not have
 * is an error. False: errors were reported.
 */
bool weir__algorithm_read(struct weir__builder *builder, const struct weir__limit_nodes *nodes,
                          const struct weir__parsed_window *window, enum weir__dialect dialect, weir_params *params);

/* Initialises the limit from complete params. Values that the core refuses are reported at their field. */
bool weir__algorithm_make(const struct weir__limit_nodes *nodes, const weir_params *params, weir_limit *limit);

/* True for a limit of requests in flight, which has a lease and no window. */
bool weir__algorithm_is_concurrency(const struct weir__limit_nodes *nodes);

/* The length of the window as it is reported: calendar months and years count their longest. */
int64_t weir__algorithm_window_ns(const weir_params *params);

/* ---- Compiling and matching ---- */

/* Services of the engine that the reader needs: time zones, and files with maps of attributes. Each may be NULL. */
struct weir__surroundings {
    int (*open_zone)(const char *name, weir_zone **zone);
    void (*close_zone)(weir_zone *zone);
    /*
     * Reads the file that `node` names, a map of the attribute `from` to the attribute `to`; the set then holds it.
     * NULL: errors were reported, or, without any, there is no memory.
     */
    struct weir__map *(*open_map)(void *files, const struct weir__node *node, weir_text from, weir_text to);
    void *files;
};

/* Compiles sources into a set. WEIR_ERULES after reported errors, WEIR_ENOMEM. */
int weir__rules_compile(struct weir__diagnostics *report, const struct weir__surroundings *around, weir_rules **set);

/* The memory of a set, with the maps of its attributes. */
size_t weir__rules_bytes(const weir_rules *set);

/* A top-level member that only weir.yaml has, or NULL: to report a weir.yaml given as a rule file. */
const struct weir__node *weir__rules_weir_yaml(const struct weir__node *root);

/* Warnings that take all rules (lint_set.c). */
void weir__rules_lint(const weir_rules *set, struct weir__diagnostics *report);

/* ---- Memory ---- */

/* Bytes of a segment that keys need: in slots, and in records of the slab (docs/internals/table.md). */
struct weir__footprint {
    double slots, slab;
};
/* Of a key that has used its limit, in the tier that needs most. */
struct weir__footprint weir__rule_footprint(const struct weir__rule *rule);
/* The size of the segment that holds it, which sets a sixteenth aside for the slab and is to be filled to 90 %. */
double weir__footprint_segment(struct weir__footprint footprint);
/* False: no slab is so large, whatever the size of the segment. */
bool weir__footprint_is_possible(struct weir__footprint footprint);
/* How many times a segment holds it; the slab has 2^26 chunks at most. */
double weir__footprint_keys(struct weir__footprint each, double segment_bytes);

/* ---- Matching ---- */

/*
 * The rules of the native dialect that match, in order: the index finds candidates, conditions and networks verify
 * them.
 */
void weir__rules_match(const weir_rules *set, struct weir__values *values, struct weir__matching *matching,
                       struct weir__found *found);
/* Keeps those of the rules that weir__paths_few found whose other conditions hold as well. */
void weir__rules_filter(const weir_rules *set, struct weir__values *values, struct weir__matching *matching,
                        struct weir__found *found);

/* The quota for this request, by tier. NULL: the tier is not listed and there is no default. */
const struct weir__quota *weir__rule_quota(const struct weir__rule *rule, struct weir__values *values);
/* The quota of a tier; that of the empty one is the default. NULL: the rule does not limit it. */
const struct weir__quota *weir__rule_quota_of(const struct weir__rule *rule, weir_text tier);
/*
 * The quota of a key's tier, if the key determines that: it has an attribute for which a map names the tier, as with
 * plans by API key. *quota is NULL if the rule does not limit the tier.
 */
bool weir__rule_quota_of_key(const weir_rules *set, const struct weir__rule *rule, weir_text key,
                             const struct weir__quota **quota);
/* True if the rule only counts under its key: enforced, one limit, one cost, no lists. */
bool weir__rule_is_plain(const weir_rules *set, const struct weir__rule *rule);
/* The cost of this request under a rule. */
int64_t weir__rule_cost(const struct weir__rule *rule, struct weir__values *values, struct weir__matching *matching);

#endif
