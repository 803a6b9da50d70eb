/*
 * What there is to see of a host: the rules' tallies in the segment and, as far as they are there, the files beside it:
 * hot keys (.hot), the history (.history), the ledger (.ledger) and the load level (.load). All of it is only looked
 * at.
 */
#ifndef WEIR_STATS_SNAPSHOT_H
#define WEIR_STATS_SNAPSHOT_H

#include "engine/ledger.h"
#include "engine/hot_key_sampler.h"
#include "table/history.h"

struct weir__saved_totals;

struct weir__snapshot {
    weir *engine;                        /* the caller's */
    char *segment;                       /* the segment's path */
    weir_time now;                       /* of the last weir__snapshot_refresh */
    const char *host_name;               /* the caller's; NULL: as the system has it */
    bool unnamed;                        /* tallies without a rule are told, too, under names of their own */
    struct weir__saved_totals *previous; /* by weir__snapshot_save_totals */
    size_t previous_count;
    weir_time previous_at;
    struct weir__mapped hot_file, history_file, ledger_file, load_file; /* no memory: not there, or refused */
    struct weir__hot hot;                                               /* `panels` 0: there is none */
    struct weir__history history;                                       /* `rows` 0: the same */
    struct weir__delta_ledger deltas;                                   /* `ledger.entries` 0: the same */
    const struct weir__load_page *load;                                 /* NULL: the same */
};

/* 0 or WEIR_ENOMEM. */
int weir__snapshot_open(struct weir__snapshot *snapshot, weir *engine, const char *segment_path);
/* Reads the clock, and attaches anew to what was made or replaced meanwhile. */
void weir__snapshot_refresh(struct weir__snapshot *snapshot);
void weir__snapshot_close(struct weir__snapshot *snapshot);

/* A rule, with what was counted under it. */
struct weir__rule_snapshot {
    weir_rule_info info; /* its texts live as long as `rules` of the engine */
    weir_rule_stats stats;
    uint64_t id;
};

struct weir__saved_totals {
    uint64_t id;
    weir_rule_stats stats;
};

/* Calls for each rule in force, until it returns non-zero, which is returned. */
int weir__snapshot_each_rule(const struct weir__snapshot *snapshot,
                             int (*visit)(void *context, const struct weir__rule_snapshot *rule), void *context);

/* True if an agent has exchanged by the ledger: without an eventual rule none does. */
bool weir__snapshot_has_ledger(const struct weir__snapshot *snapshot);

/* The rule's panel, or NULL. */
const struct weir__hot_rule *weir__snapshot_hot_keys(const struct weir__snapshot *snapshot, uint64_t rule);
/* The clock of hot keys. */
uint32_t weir__snapshot_minute(const struct weir__snapshot *snapshot);

/* How loaded the host is. False: there is nothing that says so, or nobody has lately, and it is neutral. */
bool weir__snapshot_load(const struct weir__snapshot *snapshot, struct weir__load_view *view,
                         struct weir__upstream_sums *sums);

/* What this host is called. */
#define WEIR__HOST_NAME 256
void weir__snapshot_host_name(const struct weir__snapshot *snapshot, char name[WEIR__HOST_NAME]);

struct weir__rates {
    double allowed, delayed, denied, shed; /* a second */
    bool known;
};
/*
 * Over the last `seconds` that the history has, which ended no longer than a few seconds ago; without one, since
 * weir__snapshot_save_totals.
 */
struct weir__rates weir__snapshot_rates(const struct weir__snapshot *snapshot, const struct weir__rule_snapshot *rule,
                                        size_t seconds);
/* Adds what went on under a rule to a sum over the enforced ones, as far as it is known. */
void weir__rates_add(struct weir__rates *sum, const struct weir__rule_snapshot *rule, const struct weir__rates *rates);
/* Keeps what was counted until now, for who has no history. Without memory: nothing. */
void weir__snapshot_save_totals(struct weir__snapshot *snapshot);

/* The second of the history's clock. */
static inline uint64_t weir__snapshot_second(weir_time now)
{
    return (uint64_t)(now.mono_ns / WEIR_SECOND);
}

#endif
