/* Opening an engine, and reloading its rules when their files change. */
#include "engine/ledger.h"
#include "engine/evaluation.h"
#include "base/clock.h"
#include "engine/strict.h"
#include "engine/hot_key_sampler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A file that was changed less than this ago may still be being written. */
#define SETTLED_NS (100 * 1000 * WEIR_MICROSECOND)
/* Replaced rule sets still in use: with more than these, a reload waits for the next poll. */
#define REPLACED_MAX 8
/* Consecutive polls that find a file being written before it is reported. */
#define BUSY_MAX 3
/* Polls between two attempts to get a slot for the hot keys of rules without one. */
#define SEEK_POLLS 16

/* ---- Sets ---- */

static void free_unused(weir *engine)
{
    struct weir__ruleset **at = &engine->replaced;
    while (*at) {
        struct weir__ruleset *old = *at;
        if (!weir__hazard_unused(&engine->hazards, old)) {
            at = &old->older;
            continue;
        }
        *at = old->older;
        weir__ruleset_free(old);
    }
}

static size_t replaced_count(const weir *engine)
{
    size_t count = 0;
    for (const struct weir__ruleset *old = engine->replaced; old; old = old->older)
        count++;
    return count;
}

static int make_rooms(weir *engine)
{
    for (int i = 0; i < WEIR__HAZARD_SLOTS; i++) {
        if (!engine->room[i])
            engine->room[i] = weir__regex_room_make();
        if (!engine->room[i])
            return WEIR_ENOMEM;
    }
    return 0;
}

/* Reports that a sidecar file could not be opened. */
static void report_without(const weir *engine, enum weir_severity severity, const char *file, const char *what,
                           int error)
{
    char message[512], why[256];
    weir_diagnostic diagnostic = {.severity = severity, .file = file, .message = message};
    snprintf(message, sizeof message, "%s: %s", what, weir__mapped_why(file, error, why, sizeof why));
    if (engine->diagnose)
        engine->diagnose(engine->diagnose_context, &diagnostic);
}

/*
 * The ledger is made with the engine, even if no rule is eventual yet: later each process would make its own, or a
 * worker of another user would make one that the agent has to refuse. An engine that starts with an eventual rule needs
 * it; rules that are reloaded are accepted without it, and act as local.
 */
static int open_ledger(weir *engine, struct weir__ruleset *ruleset, bool first)
{
    bool needed = false;
    for (size_t i = 0; i < ruleset->rules->count && !needed; i++)
        needed = ruleset->consistency[i] == WEIR__EVENTUAL;
    int error = 0;
    struct weir__making where = {.path = engine->ledger && *engine->ledger ? engine->ledger : NULL,
                                 .bytes = engine->ledger_bytes ? engine->ledger_bytes
                                                               : weir__delta_ledger_bytes(engine->segment->bytes),
                                 .mode = engine->ledger_mode,
                                 .owner = engine->segment->owner};
    if (engine->ledger && !engine->deltas && (needed || first))
        error = weir__delta_ledger_open(&where, &engine->deltas);
    if (error == WEIR_ENOTSEG) /* its text is about segments, and would have the user remove that one */
        error = WEIR_ELEDGER;
    ruleset->deltas = needed ? engine->deltas : NULL;
    if (!error)
        return 0;
    bool fatal = first && needed;
    report_without(engine, fatal ? WEIR_IS_ERROR : WEIR_IS_WARNING, engine->ledger,
                   fatal ? "the ledger of eventual rules cannot be opened"
                         : "eventual rules act as local, as the ledger cannot be opened",
                   error);
    return fatal ? error : 0;
}

/* Activates a rule set. It belongs to the engine then; after an error it stays the caller's. */
static int install(weir *engine, weir_rules *rules, uint64_t checksum)
{
    struct weir__ruleset *before = (struct weir__ruleset *)(uintptr_t)weir__load64(&engine->hazards.current);
    if (rules->has_regex && make_rooms(engine) != 0)
        return WEIR_ENOMEM;
    struct weir__ruleset *ruleset = weir__ruleset_make(engine, rules);
    if (!ruleset)
        return WEIR_ENOMEM;
    ruleset->checksum = checksum;
    int error = open_ledger(engine, ruleset, !before);
    if (error) {
        ruleset->rules = NULL;
        weir__ruleset_free(ruleset);
        return error;
    }
    weir__hazard_publish(&engine->hazards, ruleset);
    if (before) {
        before->older = engine->replaced;
        engine->replaced = before;
    }
    return 0;
}

/* ---- Reloading ---- */

static bool same_print(const struct weir__fingerprint *a, const struct weir__fingerprint *b)
{
    return a->sum == b->sum && a->error == b->error;
}

/* The same files, times and contents: two changes within the resolution of file times have the same time. */
static bool same_content(const struct weir__fingerprint *a, const struct weir__fingerprint *b)
{
    return same_print(a, b) && a->content == b->content;
}

/* Reads the rule files. Returns 0, or an error, which is reported and counted once while it lasts. */
static int read_sources(weir *engine, struct weir__sources *sources)
{
    weir_diagnose *diagnose = engine->unreadable ? NULL : engine->diagnose;
    int error = weir__sources_read(engine->path, diagnose, engine->diagnose_context, sources);
    if (error == WEIR_ERULESBUSY && ++engine->busy == BUSY_MAX) {
        weir__sources_report_busy(engine->path, engine->diagnose, engine->diagnose_context);
        weir__count(&engine->reload_failures, 1);
    }
    if (error != WEIR_ERULESBUSY)
        engine->busy = 0;
    bool again = error == WEIR_ERULESPATH && sources->passing;
    if (error == WEIR_ERULESPATH && !engine->unreadable)
        weir__count(&engine->reload_failures, 1);
    engine->unreadable = again;
    return error;
}

static struct weir__audience audience_of(const weir *engine)
{
    return (struct weir__audience){engine->diagnose, engine->diagnose_context, !engine->store};
}

/* Compiles the files that were read and activates the set. */
static int load(weir *engine, const struct weir__sources *sources)
{
    weir_rules *rules;
    struct weir__audience audience = audience_of(engine);
    int error = weir__load_sources(sources->list, sources->count, &audience, &rules);
    if (error)
        return error;
    error = install(engine, rules, sources->fingerprint.checksum);
    if (error)
        weir_rules_free(rules);
    return error;
}

/* The reloader. Returns 1: replaced, 0: nothing to do (yet), or an error that was reported once. */
static int reload(weir *engine, bool wait_until_settled)
{
    free_unused(engine);
    weir__count(&engine->polls, 1);
    if (engine->hot_sampler && weir__load64(&engine->polls) % SEEK_POLLS == 0)
        weir__hot_sampler_seek(engine, (struct weir__ruleset *)(uintptr_t)weir__load64(&engine->hazards.current));
    struct weir__fingerprint print = weir__sources_look(engine->path);
    if (same_print(&print, &engine->seen) && !engine->seen.young)
        return 0;
    if (replaced_count(engine) >= REPLACED_MAX)
        return WEIR_ERULESBUSY;
    if (wait_until_settled && !print.error && print.age_ns >= 0 && print.age_ns < SETTLED_NS)
        return 0;

    struct weir__sources sources;
    int error = read_sources(engine, &sources);
    if (error == WEIR_ERULESPATH && !sources.passing) {
        engine->seen = sources.fingerprint.error ? sources.fingerprint : print;
        engine->seen.young = false; /* unreadable files are not compared */
    }
    if (error)
        return error; /* `seen` is unchanged otherwise: the next poll tries again */
    bool same = same_content(&sources.fingerprint, &engine->seen);
    error = same ? 0 : load(engine, &sources);
    if (error != WEIR_ENOMEM) /* the next poll may have more */
        engine->seen = sources.fingerprint;
    weir__sources_free(&sources);
    if (same || error == WEIR_ENOMEM)
        return error;
    if (error || !engine->later) /* the first load of WEIR_RULES_LATER is not a reload */
        weir__count(error ? &engine->reload_failures : &engine->reloads, 1);
    engine->later &= error != 0;
    return error ? error : 1;
}

/* One reload at a time; does not wait. */
static int reload_alone(weir *engine, bool wait_until_settled)
{
    uint64_t me = (uint64_t)getpid(), holder = 0;
    /* A holder with another process id was a thread at the time of a fork, which does not exist in this process. */
    if (!weir__cas64(&engine->reloading, &holder, me) &&
        (holder == me || !weir__cas64(&engine->reloading, &holder, me)))
        return WEIR_ERULESBUSY;
    int result = reload(engine, wait_until_settled);
    weir__store64(&engine->reloading, 0);
    return result;
}

int weir_reload(weir *engine)
{
    if (!engine)
        return WEIR_EINVAL;
    return engine->path ? reload_alone(engine, false) : 0;
}

void weir__watch(weir *engine)
{
    if (!engine->watch)
        return;
    uint64_t now = (uint64_t)weir__clock_ns(CLOCK_MONOTONIC_COARSE), due = weir__load64(&engine->next_poll_ns);
    if (now >= due && weir__cas64(&engine->next_poll_ns, &due, now + (uint64_t)WEIR_SECOND))
        (void)reload_alone(engine, true);
}

/* ---- Opening ---- */

static int read_rules(weir *engine, const weir_options *options, weir_rules **rules)
{
    struct weir__audience audience = audience_of(engine);
    if (options->rules_text) {
        struct weir__source source = {"rules", {options->rules_text, strlen(options->rules_text)}};
        engine->seen.checksum = weir__sources_checksum(&source, 1);
        return weir__load_sources(&source, 1, &audience, rules);
    }
    engine->path = strdup(options->rules_path);
    if (!engine->path)
        return WEIR_ENOMEM;
    if (options->flags & WEIR_RULES_LATER) {
        struct weir__source none = {"rules", {"rules: []", 9}};
        engine->later = true;
        return weir__load_sources(&none, 1, &audience, rules);
    }
    return weir__load_path(engine->path, &audience, &engine->seen, rules);
}

static int read_store(weir *engine, const weir_options *options)
{
    char why[256];
    int error = weir__negative_cache_init(&engine->negative_cache);
    if (error || !options->store)
        return error;
    engine->store = calloc(1, sizeof *engine->store);
    if (!engine->store)
        return WEIR_ENOMEM;
    error = weir__store_parse(options->store, engine->store, why, sizeof why);
    if (!error && !(options->flags & WEIR_NO_CONNECT) && !weir__store_ops()) {
        error = WEIR_ESTORELIB;
        snprintf(why, sizeof why, "%s", weir_strerror(error));
    }
    if (error && engine->diagnose)
        engine->diagnose(engine->diagnose_context,
                         &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = "store", .message = why});
    if (error || (options->flags & WEIR_NO_CONNECT))
        return error;
    engine->connection_pool = (uint64_t)(uintptr_t)weir__connection_pool_new();
    return engine->connection_pool ? 0 : WEIR_ENOMEM;
}

/* Statistics: a failure does not prevent the start. */
static void open_hot_sampler(weir *engine, const weir_options *options)
{
    if (!options->hot || engine->segment->read_only)
        return;
    struct weir__making where = {.path = *options->hot ? options->hot : NULL,
                                 .bytes = options->hot_bytes,
                                 .mode = options->segment.mode,
                                 .owner = engine->segment->owner};
    int error = weir__hot_sampler_open(&where, &engine->hot_sampler);
    if (error)
        report_without(engine, WEIR_IS_WARNING, where.path ? where.path : "hot", "hot keys are not sampled", error);
    else
        engine->hot_sampler->hide = options->flags & WEIR_HIDE_KEYS;
}

/* The load level: without it limits are not scaled and nothing is shed. */
static void open_level(weir *engine, const weir_options *options)
{
    bool read_only = engine->segment->read_only; /* then no file is made */
    if (!options->load || (read_only && !*options->load))
        return;
    struct weir__making where = {.path = *options->load ? options->load : NULL,
                                 .mode = options->segment.mode,
                                 .read_only = read_only,
                                 .owner = engine->segment->owner};
    int error = weir__load_page_open(&where, &engine->level);
    if (read_only && error == WEIR_ENOENT)
        return;
    if (error)
        report_without(engine, WEIR_IS_WARNING, where.path ? where.path : "load", "the load level is not known", error);
    else
        engine->load = engine->level.memory;
}

/* Rules first: faulty ones must not leave a segment behind. */
static int open_both(weir *engine, const weir_options *options)
{
    weir_rules *rules;
    engine->scratch = calloc(WEIR__HAZARD_SLOTS, sizeof *engine->scratch); /* large: most of it is never touched */
    int error = engine->scratch ? read_store(engine, options) : WEIR_ENOMEM;
    if (!error)
        error = read_rules(engine, options, &rules);
    if (error)
        return error;
    if (!engine->segment) {
        error = weir_segment_open(&options->segment, &engine->segment);
        engine->own_segment = !error;
    }
    if (!error) {
        open_hot_sampler(engine, options);
        open_level(engine, options);
        error = install(engine, rules, engine->seen.checksum);
    }
    if (error)
        weir_rules_free(rules);
    return error;
}

int weir_open(const weir_options *options, weir **engine)
{
    if (!options || !engine || !options->rules_path == !options->rules_text ||
        options->default_consistency > WEIR_STRICT)
        return WEIR_EINVAL;
    weir *fresh = aligned_alloc(64, sizeof *fresh);
    if (!fresh)
        return WEIR_ENOMEM;
    memset(fresh, 0, sizeof *fresh);
    fresh->diagnose = options->diagnose;
    fresh->diagnose_context = options->diagnose_context;
    fresh->watch = options->rules_path && !(options->flags & WEIR_NO_WATCH);
    fresh->segment = options->attached;
    fresh->default_consistency = (enum weir__consistency)options->default_consistency;
    fresh->ledger_bytes = options->ledger_bytes;
    fresh->ledger_mode = options->segment.mode;
    fresh->next_poll_ns = (uint64_t)weir__clock_ns(CLOCK_MONOTONIC_COARSE) + (uint64_t)WEIR_SECOND;
    fresh->ledger = options->ledger ? strdup(options->ledger) : NULL;
    int error = options->ledger && !fresh->ledger ? WEIR_ENOMEM : open_both(fresh, options);
    if (error) {
        weir_close(fresh);
        return error;
    }
    *engine = fresh;
    return 0;
}

void weir_close(weir *engine)
{
    if (!engine)
        return;
    weir__ruleset_free((struct weir__ruleset *)(uintptr_t)weir__load64(&engine->hazards.current));
    while (engine->replaced) {
        struct weir__ruleset *old = engine->replaced;
        engine->replaced = old->older;
        weir__ruleset_free(old);
    }
    for (int i = 0; i < WEIR__HAZARD_SLOTS; i++)
        if (engine->room[i])
            weir__regex_room_free(engine->room[i]);
    free(engine->scratch);
    weir__connection_pool_free((struct weir__connection_pool *)(uintptr_t)weir__load64(&engine->connection_pool));
    weir__hot_sampler_close(engine->hot_sampler);
    weir__mapped_close(&engine->level);
    if (engine->own_segment)
        weir_segment_close(engine->segment);
    weir__delta_ledger_close(engine->deltas);
    free(engine->ledger);
    free(engine->path);
    free(engine->store);
    free(engine);
}

weir_segment *weir_engine_segment(weir *engine)
{
    return engine->segment;
}

int weir_engine_stats_read(weir *engine, weir_engine_stats *stats)
{
    if (!engine || !stats)
        return WEIR_EINVAL;
    int at;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    weir_engine_stats now = {.reloads = weir__load64(&engine->reloads),
                             .reload_failures = weir__load64(&engine->reload_failures),
                             .polls = weir__load64(&engine->polls),
                             .regex_limited = weir__load64(&engine->regex_limited),
                             .rules = ruleset->rules->count,
                             .rule_bytes = ruleset->rules->arena.bytes};
    weir__hazard_release(&engine->hazards, at);
    if (engine->connection_pool)
        weir__connection_pool_stats(engine, &now.store);
    *stats = now;
    return 0;
}
