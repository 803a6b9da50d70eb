/*
 * Reloading rules while requests are decided: the files are read, compiled and checked first, then the new ruleset
 * replaces the old one by one store of a pointer. A replaced ruleset is freed when no hazard pointer names it
 * (hazard_pointers.c). rule_files.c reads the files, ruleset_snapshot.c makes the run-time state of a ruleset.
 */
#include "engine/ledger.h"
#include "base/clock.h"
#include "engine/hot_key_sampler.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* A file that was changed less than this ago may still be being written. */
#define SETTLED_NS (100 * 1000 * WEIR_MICROSECOND)
/* With so many replaced rulesets still in use, a reload waits for the next poll. */
#define REPLACED_MAX 8
/* Consecutive polls that find a file being written before it is reported. */
#define BUSY_MAX 3
/* Polls between two attempts to get a slot for the hot keys of rules without one. */
#define SEEK_POLLS 16

/* ---- Sets ---- */

/* Frees the replaced rulesets that no request uses any more. Returns the number of the others. */
static size_t free_unused(weir *engine)
{
    struct weir__ruleset **at = &engine->replaced;
    size_t used = 0;
    while (*at) {
        struct weir__ruleset *old = *at;
        if (!weir__hazard_unused(&engine->hazards, old)) {
            at = &old->older;
            used++;
            continue;
        }
        *at = old->older;
        weir__ruleset_free(old);
    }
    return used;
}

static int make_regex_scratch(weir *engine)
{
    for (int i = 0; i < WEIR__HAZARD_SLOTS; i++) {
        if (!engine->regex_scratch[i])
            engine->regex_scratch[i] = weir__regex_scratch_make();
        if (!engine->regex_scratch[i])
            return WEIR_ENOMEM;
    }
    return 0;
}

void weir__report_without(const weir *engine, enum weir_severity severity, const char *file, const char *what,
                          int error)
{
    char message[512], why[256];
    weir_diagnostic diagnostic = {.severity = severity, .file = file, .message = message};
    snprintf(message, sizeof message, "%s: %s", what, weir__mapped_why(file, error, why, sizeof why));
    if (engine->sink.diagnose)
        engine->sink.diagnose(engine->sink.context, &diagnostic);
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
        needed = ruleset->consistency[i] == WEIR__EVENTUAL || ruleset->consistency[i] == WEIR__LEASED;
    int error = 0;
    struct weir__file_spec where = {.path = engine->ledger && *engine->ledger ? engine->ledger : NULL,
                                    .bytes = engine->ledger_bytes
                                                 ? engine->ledger_bytes
                                                 : weir__delta_ledger_bytes(weir__table_bytes(&engine->segment->table)),
                                    .mode = engine->ledger_mode,
                                    .owner = engine->segment->mapped.owner};
    if (engine->ledger && !engine->deltas.ledger.entries && (needed || first))
        error = weir__delta_ledger_open(&where, &engine->deltas);
    if (error == WEIR_ENOTSEG) /* its text is about segments, and would have the user remove that one */
        error = WEIR_ELEDGER;
    ruleset->deltas = needed && engine->deltas.ledger.entries ? &engine->deltas : NULL;
    ruleset->observed |= ruleset->deltas != NULL;
    if (!error)
        return 0;
    bool fatal = first && needed;
    weir__report_without(engine, fatal ? WEIR_IS_ERROR : WEIR_IS_WARNING, engine->ledger,
                         fatal ? "the ledger of eventual rules cannot be opened"
                               : "eventual rules act as local, as the ledger cannot be opened",
                         error);
    return fatal ? error : 0;
}

int weir__rules_install(weir *engine, weir_rules *rules, uint64_t checksum)
{
    struct weir__ruleset *before = (struct weir__ruleset *)(uintptr_t)weir__load64(&engine->hazards.current);
    if (rules->has_regex && make_regex_scratch(engine) != 0)
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
    weir__store64_ordered(&engine->hazards.current, (uint64_t)(uintptr_t)ruleset);
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

/* Reads the rule files. Returns 0, or an error, which is reported and counted once while it lasts. */
static int read_sources(weir *engine, struct weir__sources *sources)
{
    weir_diagnose *diagnose = engine->unreadable ? NULL : engine->sink.diagnose;
    int error = weir__sources_read(engine->path, diagnose, engine->sink.context, sources);
    if (error == WEIR_ERULESBUSY && ++engine->busy == BUSY_MAX) {
        weir__sources_report_busy(engine->path, engine->sink.diagnose, engine->sink.context);
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

/* Compiles the files that were read and activates the set. */
static int load(weir *engine, const struct weir__sources *sources)
{
    weir_rules *rules;
    int error = weir__load_sources(sources->list, sources->count, &engine->sink, &engine->maps, &rules);
    if (error)
        return error;
    error = weir__rules_install(engine, rules, sources->fingerprint.checksum);
    if (error)
        weir_rules_free(rules);
    return error;
}

/* The reloader. Returns 1: replaced, 0: nothing to do (yet), or an error that was reported once. */
static int reload(weir *engine, bool wait_until_settled)
{
    size_t still_used = free_unused(engine);
    weir__count(&engine->polls, 1);
    if (engine->hot_sampler.mapped.memory && weir__load64(&engine->polls) % SEEK_POLLS == 0)
        weir__hot_sampler_seek(engine, (struct weir__ruleset *)(uintptr_t)weir__load64(&engine->hazards.current));
    struct weir__fingerprint print = weir__sources_look(engine->path);
    int64_t map_age_ns;
    bool maps = weir__map_files_changed(&engine->maps, &map_age_ns);
    if (same_print(&print, &engine->seen) && !engine->seen.young && !maps)
        return 0;
    if (still_used >= REPLACED_MAX)
        return WEIR_ERULESBUSY;
    int64_t age_ns = print.error || map_age_ns < print.age_ns ? map_age_ns : print.age_ns;
    if (wait_until_settled && age_ns >= 0 && age_ns < SETTLED_NS)
        return 0;

    struct weir__sources sources;
    int error = read_sources(engine, &sources);
    if (error == WEIR_ERULESPATH && !sources.passing) {
        engine->seen = sources.fingerprint.error ? sources.fingerprint : print;
        engine->seen.young = false; /* unreadable files are not compared */
    }
    if (error)
        return error; /* `seen` is unchanged otherwise: the next poll tries again */
    /* Contents, too: two changes within the resolution of file times have the same time. */
    bool same =
        same_print(&sources.fingerprint, &engine->seen) && !maps && sources.fingerprint.content == engine->seen.content;
    error = same ? 0 : load(engine, &sources);
    engine->seen = sources.fingerprint;
    if (error == WEIR_ENOMEM)
        engine->seen.sum = 0; /* the next poll tries again, and may have more */
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
