/* The engine: a segment, the published ruleset, and the replaced rulesets that requests may still use. */
#ifndef WEIR_ENGINE_ENGINE_H
#define WEIR_ENGINE_ENGINE_H

#include "base/arena.h"
#include "engine/key_commands.h"
#include "engine/rule_files.h"
#include "engine/segment.h"
#include "engine/store_options.h"
#include "table/denial_ring.h"
#include "table/hot_keys.h"
#include "table/ledger.h"
#include "table/load_page.h"

/* ---- Hazard pointers: hazard_pointers.c ---- */

#define WEIR__HAZARD_SLOTS 64

struct weir__hazard_slot {
    uint64_t what; /* a pointer; 0: free */
    uint64_t pad[7];
};

struct weir__hazard_pointers {
    _Alignas(64) uint64_t current; /* the published pointer; not 0 while there are readers */
    uint64_t overflow;             /* readers that found no free slot; while it is not 0, nothing is freed */
    uint64_t pad[6];
    struct weir__hazard_slot slot[WEIR__HAZARD_SLOTS];
};

/* Returns the published pointer, valid until weir__hazard_release; *at is the slot, or -1: counted in `overflow`. */
void *weir__hazard_acquire(struct weir__hazard_pointers *hazards, int *at);
/* Acquires for a caller that knows its processor: the search for a free slot begins at `cpu`. */
void *weir__hazard_acquire_on(struct weir__hazard_pointers *hazards, unsigned cpu, int *at);
void weir__hazard_release(struct weir__hazard_pointers *hazards, int at);

/* For the only writer, which publishes by weir__store64_ordered: true if no reader holds `what`, which is no longer
 * published: it may be freed. */
bool weir__hazard_unused(const struct weir__hazard_pointers *hazards, const void *what);

/* ---- The engine ---- */

/* A sidecar file and its contents; not open: mapped.memory is NULL. See hot_key_sampler.h. */
struct weir__hot_sampler {
    struct weir__mapped mapped;
    struct weir__hot hot;
    bool hide; /* the texts of keys are not stored */
};

/* See denial_recorder.h. Not open: ring.rows is 0. */
struct weir__denial_recorder {
    struct weir__mapped mapped;
    struct weir__denial_ring ring;
    bool hide; /* the texts of keys and clients are not stored */
};

/* See ledger.h. Open once ledger.entries is not 0. */
struct weir__delta_ledger {
    struct weir__mapped mapped;
    struct weir__ledger ledger;
    uint64_t opened_ms;
};

/* A ruleset snapshot: a compiled set of rules with its runtime state. Hazard pointers protect it. */
struct weir__ruleset {
    weir_rules *rules;
    struct weir__rule_stats **rule_stats; /* by rule index; the engine's unread_stats if the segment has no room */
    uint64_t *hot;                        /* struct weir__hot_rule * by rule index, 0: none yet; NULL: no sampling */
    struct weir__rule_plan **plan;        /* by rule index, see fast_result.h; NULL for rules whose headers vary */
    struct weir__arena arena;             /* of the arrays here; plans are next to each other */
    uint8_t *consistency;                 /* by rule index, enum weir__consistency: with this engine's store */
    bool strict;                          /* some request may need the store */
    bool leased;                          /* some rule is leased */
    bool leased_only;                     /* only for leased rules a request may need the store */
    struct weir__delta_ledger *deltas;    /* the engine's, if a rule needs it; see ledger.h */
    uint64_t **warnings;                  /* by rule index: the rule's count of warnings; NULL: no rule warns */
    bool observed;               /* takes are followed by more than statistics: `deltas` or `warnings` is set */
    struct weir__ruleset *older; /* the next in the list of replaced rulesets */
    uint64_t checksum;           /* weir__sources_checksum of its texts */
};

/* Private flag of weir_options: files that rules name are not read, as this process evaluates no requests. */
enum { WEIR__SKIP_MAPS = 1 << 16 };

struct weir {
    struct weir__hazard_pointers hazards;                          /* publishes a struct weir__ruleset */
    struct weir__regex_scratch *regex_scratch[WEIR__HAZARD_SLOTS]; /* made with the first ruleset with regexes */
    struct weir__scratch *scratch;                                 /* one for each hazard slot */
    weir_segment *segment;
    bool own_segment;
    struct weir__rule_stats unread_stats; /* counters of rules for which the segment has no room */
    struct weir__store_options *store;    /* NULL: none, and all rules are local */
    uint64_t connection_pool; /* struct weir__connection_pool *, replaced after a fork; 0: the caller sends requests */
    enum weir__consistency default_consistency;
    weir_limit negative_cache; /* see weir__negative_cache_init */
    struct weir__delta_ledger deltas;
    char *ledger; /* its path; NULL: no ledger */
    uint64_t ledger_bytes;
    unsigned ledger_mode;
    struct weir__hot_sampler hot_sampler;
    struct weir__denial_recorder denial_recorder;
    struct weir__key_commands key_commands; /* rows 0: none */
    struct weir__load_page *load;           /* NULL: there is no load level; see table/load_page.h */
    struct weir__mapped level;              /* the mapping of `load` */
    bool watch;
    bool later;                        /* WEIR_RULES_LATER, and the rules were not read yet */
    char *path;                        /* NULL: the rules came as text and stay */
    struct weir__diagnostic_sink sink; /* of the rules, the store's options and the sidecar files */

    _Alignas(64) uint64_t next_poll_ns; /* of the rule files, on CLOCK_MONOTONIC_COARSE */
    uint64_t polls, reloads, reload_failures, regex_limited;

    /* The rest belongs to the thread that has set `reloading` to its process id: after a fork it is free again. */
    uint64_t reloading;
    struct weir__fingerprint seen; /* of the current ruleset's files, or of the last ones that were refused */
    struct weir__map_files maps;   /* that these name */
    int busy;                      /* polls in a row that found a file being written */
    bool unreadable;               /* the last poll failed for a reason that may pass, and this was reported */
    struct weir__ruleset *replaced;
};

/* ---- rules_reload.c ---- */

/* Polls the rule files if the last poll was at least a second ago. */
void weir__watch(weir *engine);
/* Activates a rule set. It belongs to the engine then; after an error it stays the caller's. */
int weir__rules_install(weir *engine, weir_rules *rules, uint64_t checksum);
/* Reports that a sidecar file could not be opened. */
void weir__report_without(const weir *engine, enum weir_severity severity, const char *file, const char *what,
                          int error);

/* weir__sources_checksum of the published rules. */
uint64_t weir__rules_checksum(weir *engine);

/* The counters of a rule for processor `cpu`. */
static inline struct weir__rule_stats_shard *weir__rule_stats_on(const struct weir__ruleset *ruleset,
                                                                 const struct weir__rule *rule, unsigned cpu)
{
    return &ruleset->rule_stats[rule->index]->shard[cpu % WEIR__RULE_STATS_SHARDS];
}

/* The enforced or the shadow rule of this name; NULL: there is none. */
const struct weir__rule *weir__rule_named(const weir_rules *rules, const char *name, bool shadow);

/* Sums the counters of a rule over all processors. */
void weir__rule_stats_sum(const struct weir__rule_stats *stats_of_rule, weir_rule_stats *stats);

/* The consistency of a rule's counters; `rule` NULL: of a limit that the request brings. */
enum weir__consistency weir__consistency_of(const weir *engine, const struct weir__ruleset *ruleset,
                                            const struct weir__rule *rule);
/* True if some rule of the published ruleset is decided by the store. */
bool weir__ruleset_is_strict(weir *engine);

/* Makes the snapshot of a rule set, which it then owns. NULL: no memory. */
struct weir__ruleset *weir__ruleset_make(weir *engine, weir_rules *rules);
void weir__ruleset_free(struct weir__ruleset *ruleset);

/* Opens or creates a load page, by convention SEGMENT.load (path, mode, owner, read_only); path NULL: anonymous. */
int weir__load_page_open(const struct weir__file_spec *where, struct weir__mapped *mapped);

#endif
