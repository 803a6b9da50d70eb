/*
 * A read-only view of a host: the rules' statistics in the segment and, where they exist, the sidecar files with hot
 * keys (.hot), history (.history), delta ledger (.ledger) and load level (.load).
 */
#ifndef WEIR_STATS_SNAPSHOT_H
#define WEIR_STATS_SNAPSHOT_H

#include "base/arena.h"
#include "engine/ledger.h"
#include "engine/hot_key_sampler.h"
#include "table/history.h"

/* A rule with its statistics. */
struct weir__rule_snapshot {
    weir_rule_info info; /* `name` and `domain` are copies; `key` and `file` are "" */
    weir_rule_stats stats;
    uint64_t id;
    struct weir__rule_snapshot *next;
};

struct weir__rule_list {
    struct weir__rule_snapshot *first, *last;
    size_t count;
    struct weir__arena arena;
};

struct weir__snapshot {
    weir *engine;                    /* the caller's */
    char segment[4096];              /* the segment's path */
    weir_time now;                   /* as of the last weir__snapshot_refresh */
    const char *host_name;           /* the caller's; NULL: gethostname */
    bool unnamed;                    /* rule statistics are listed by id, as the rules are unknown */
    struct weir__rule_list rules;    /* the active rules, in order; without memory some are missing */
    struct weir__rule_list previous; /* saved by weir__snapshot_save_totals */
    weir_time previous_at;
    struct weir__mapped hot_file, history_file, ledger_file, load_file; /* `memory` NULL: missing or refused */
    struct weir__hot hot;                                               /* `rule_slots` 0: there is none */
    struct weir__history history;                                       /* `rows` 0: there is none */
    struct weir__delta_ledger deltas;                                   /* `ledger.entries` 0: there is none */
    const struct weir__load_page *load;                                 /* NULL: there is none */
};

void weir__snapshot_open(struct weir__snapshot *snapshot, weir *engine, const char *segment_path);
/* Reads the clock and the rules' statistics, and maps files that were created or replaced since. */
void weir__snapshot_refresh(struct weir__snapshot *snapshot);
/* Also for a zeroed one that was never opened. */
void weir__snapshot_close(struct weir__snapshot *snapshot);

/* True if an agent has used the ledger, which takes an eventual rule. */
bool weir__snapshot_has_ledger(const struct weir__snapshot *snapshot);

/* The rule's hot-key sketches, or NULL. */
const struct weir__hot_rule *weir__snapshot_hot_keys(const struct weir__snapshot *snapshot, uint64_t rule);
/* A list of the rule's hot keys, at most `max`; returns how many. */
enum weir__key_list { WEIR__KEYS_DENIED, WEIR__KEYS_ADMITTED, WEIR__KEYS_NEAR, WEIR__KEY_LISTS };
#define WEIR__HOT_KEYS_MINUTES 10 /* recent use that the list of keys near their limit covers */
size_t weir__snapshot_keys(const struct weir__snapshot *snapshot, const struct weir__hot_rule *rule_slot,
                           enum weir__key_list list, struct weir__hot_key *keys, size_t max);
/* The number of keys in recent use, and how many use each tenth of their limit. */
uint64_t weir__snapshot_uses(const struct weir__snapshot *snapshot, const struct weir__hot_rule *rule_slot,
                             uint64_t tenths[WEIR__HOT_USES]);
/* The minute by the clock of the hot-key sketches. */
uint32_t weir__snapshot_minute(const struct weir__snapshot *snapshot);

/* The host's load. False: unknown or stale, and the view is neutral. */
bool weir__snapshot_load(const struct weir__snapshot *snapshot, struct weir__load_view *view,
                         struct weir__upstream_sums *sums);

/* This host's name. */
#define WEIR__HOST_NAME 256
void weir__snapshot_host_name(const struct weir__snapshot *snapshot, char name[WEIR__HOST_NAME]);

/* What is counted of a rule: totals, or rates a second. */
struct weir__rates {
    union {
        struct {
            double allowed, delayed, denied, shed;
        };
        double of[4];
    };
    bool known;
};
extern const char *const weir__rate_names[4];
/* The totals of a rule. */
struct weir__rates weir__snapshot_totals(const struct weir__rule_snapshot *rule);
/*
 * Rates over the last `seconds` of the history, if it ended a few seconds ago at most; without a history, since
 * weir__snapshot_save_totals.
 */
struct weir__rates weir__snapshot_rates(const struct weir__snapshot *snapshot, const struct weir__rule_snapshot *rule,
                                        size_t seconds);
/* Adds rates to a sum. */
void weir__rates_add(struct weir__rates *sum, const struct weir__rates *rates);
/*
 * Saves the totals of the last refresh, from which rates are computed where there is no history. Refresh the snapshot
 * afterwards: it has no rules until then.
 */
void weir__snapshot_save_totals(struct weir__snapshot *snapshot);

/* The second by the history's clock. */
static inline uint64_t weir__snapshot_second(weir_time now)
{
    return (uint64_t)(now.mono_ns / WEIR_SECOND);
}

#endif
