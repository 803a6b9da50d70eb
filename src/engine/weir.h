/* What an engine is: a segment, the rules in force, and those that were. */
#ifndef WEIR_ENGINE_WEIR_H
#define WEIR_ENGINE_WEIR_H

#include "engine/load.h"
#include "engine/pins.h"

#define WEIR__COUNTER_STRIPES 4

/* What happened under one rule. Each processor has a line of its own, more or less. */
struct weir__rule_counts {
    uint64_t allowed, delayed, denied, listed, missing_key, failures, gave_back, pad;
};

/* Shared by the sets, one after another, that have the rule. */
struct weir__rule_counters {
    _Alignas(64) struct weir__rule_counts stripe[WEIR__COUNTER_STRIPES];
    uint64_t id;   /* the rule's */
    uint64_t sets; /* that use it; changed by the reloader alone */
    uint64_t pad[6];
};

/* A set in use: what a pin protects. */
struct weir__loaded {
    weir_rules *rules;
    struct weir__rule_counters **counters; /* by rule index */
    struct weir__loaded *older;            /* in the list of those that were replaced */
};

struct weir {
    struct weir__pins pins; /* the current struct weir__loaded */
    struct weir__regex_room
        *room[WEIR__PINS]; /* each its pin holder's alone; made with the first set that needs them */

    weir_segment *segment;
    bool own_segment;
    bool watch;
    char *path; /* NULL: the rules came as text and stay */
    weir_diagnose *diagnose;
    void *diagnose_context;

    _Alignas(64) uint64_t next_look_ns; /* on CLOCK_MONOTONIC_COARSE */
    uint64_t looks, reloads, reload_failures, regex_limited;

    /* The reloader's alone: who has set `reloading` from 0 to 1. */
    uint64_t reloading;
    struct weir__fingerprint seen; /* what the current set was made of, or the last one that was no good */
    struct weir__loaded *replaced; /* not yet free */
};

/* Looks at the disk if a second has passed since anybody did. */
void weir__watch(weir *engine);

/* The counters of a rule for this processor. */
struct weir__rule_counts *weir__rule_count(const struct weir__loaded *loaded, const struct weir__rule *rule);

/* Makes what goes with a set, which it then owns; counters of rules that `before` has go on. NULL: no memory. */
struct weir__loaded *weir__loaded_make(weir_rules *rules, const struct weir__loaded *before);
void weir__loaded_free(struct weir__loaded *loaded);

#endif
