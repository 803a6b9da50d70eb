/* Opening an engine, and keeping its rules as the disk has them. */
#define _GNU_SOURCE /* CLOCK_MONOTONIC_COARSE */
#include "engine/weir.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A file that was changed less than this ago may still be being written. */
#define SETTLED_NS (100 * 1000 * WEIR_MICROSECOND)
/* Sets that were replaced and are still in use: with more than these a reload waits for the next look. */
#define REPLACED_MAX 8

static uint64_t coarse_ns(void)
{
    struct timespec at = {0, 0};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &at);
    return (uint64_t)at.tv_sec * (uint64_t)WEIR_SECOND + (uint64_t)at.tv_nsec;
}

/* ---- Sets ---- */

static void free_unused(weir *engine)
{
    struct weir__loaded **at = &engine->replaced;
    while (*at) {
        struct weir__loaded *old = *at;
        if (!weir__pins_free(&engine->pins, old)) {
            at = &old->older;
            continue;
        }
        *at = old->older;
        weir__loaded_free(old);
    }
}

static size_t replaced_count(const weir *engine)
{
    size_t count = 0;
    for (const struct weir__loaded *old = engine->replaced; old; old = old->older)
        count++;
    return count;
}

static int make_rooms(weir *engine)
{
    for (int i = 0; i < WEIR__PINS; i++) {
        if (!engine->room[i])
            engine->room[i] = weir__regex_room_make();
        if (!engine->room[i])
            return WEIR_ENOMEM;
    }
    return 0;
}

/* Puts a set in force. It is the engine's then; after an error it is still the caller's. */
static int install(weir *engine, weir_rules *rules)
{
    struct weir__loaded *before = (struct weir__loaded *)(uintptr_t)weir__load64(&engine->pins.current);
    if (rules->has_regex && make_rooms(engine) != 0)
        return WEIR_ENOMEM;
    struct weir__loaded *loaded = weir__loaded_make(engine, rules);
    if (!loaded)
        return WEIR_ENOMEM;
    weir__pins_replace(&engine->pins, loaded);
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

/* The reloader's work. 1: swapped, 0: nothing to do (yet), or an error that was told once. */
static int reload(weir *engine, bool wait_until_settled)
{
    free_unused(engine);
    weir__count(&engine->looks, 1);
    struct weir__fingerprint print = weir__sources_look(engine->path);
    if (same_print(&print, &engine->seen) || replaced_count(engine) >= REPLACED_MAX)
        return 0;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t age = (int64_t)wall.tv_sec * WEIR_SECOND + wall.tv_nsec - print.changed_ns;
    if (wait_until_settled && !print.error && age >= 0 && age < SETTLED_NS)
        return 0;

    struct weir__sources sources;
    weir_rules *rules;
    int error = weir__sources_read(engine->path, engine->diagnose, engine->diagnose_context, &sources);
    if (error == WEIR_ERULESBUSY)
        return error; /* not seen yet, so the next look tries again */
    if (!error) {
        print = sources.fingerprint;
        error = weir__load_sources(sources.list, sources.count, engine->diagnose, engine->diagnose_context, &rules);
        weir__sources_free(&sources);
    }
    if (!error) {
        error = install(engine, rules);
        if (error)
            weir_rules_free(rules);
    }
    if (error == WEIR_ENOMEM)
        return error; /* perhaps there is more of it next time */
    engine->seen = print;
    weir__count(error ? &engine->reload_failures : &engine->reloads, 1);
    return error ? error : 1;
}

int weir_reload(weir *engine)
{
    uint64_t nobody = 0;
    if (!engine)
        return WEIR_EINVAL;
    if (!engine->path)
        return 0;
    if (!weir__cas64(&engine->reloading, &nobody, 1))
        return 0; /* somebody is at it */
    int result = reload(engine, false);
    weir__store64(&engine->reloading, 0);
    return result;
}

void weir__watch(weir *engine)
{
    if (!engine->watch)
        return;
    uint64_t now = coarse_ns(), due = weir__load64(&engine->next_look_ns), nobody = 0;
    if (now < due || !weir__cas64(&engine->next_look_ns, &due, now + (uint64_t)WEIR_SECOND))
        return;
    if (!weir__cas64(&engine->reloading, &nobody, 1))
        return;
    (void)reload(engine, true);
    weir__store64(&engine->reloading, 0);
}

/* ---- Opening ---- */

static int read_rules(weir *engine, const weir_options *options, weir_rules **rules)
{
    if (options->rules_text)
        return weir_rules_parse("rules", options->rules_text, strlen(options->rules_text), engine->diagnose,
                                engine->diagnose_context, rules);
    engine->path = strdup(options->rules_path);
    if (!engine->path)
        return WEIR_ENOMEM;
    return weir__load_path(engine->path, engine->diagnose, engine->diagnose_context, &engine->seen, rules);
}

/* Rules first: bad ones leave no segment behind. */
static int open_both(weir *engine, const weir_options *options)
{
    weir_rules *rules;
    int error = read_rules(engine, options, &rules);
    if (error)
        return error;
    if (!engine->segment) {
        error = weir_segment_open(&options->segment, &engine->segment);
        engine->own_segment = !error;
    }
    if (!error)
        error = install(engine, rules);
    if (error)
        weir_rules_free(rules);
    return error;
}

int weir_open(const weir_options *options, weir **engine)
{
    if (!options || !engine || !options->rules_path == !options->rules_text)
        return WEIR_EINVAL;
    weir *fresh = aligned_alloc(64, sizeof *fresh);
    if (!fresh)
        return WEIR_ENOMEM;
    memset(fresh, 0, sizeof *fresh);
    fresh->diagnose = options->diagnose;
    fresh->diagnose_context = options->diagnose_context;
    fresh->watch = options->rules_path && !(options->flags & WEIR_NO_WATCH);
    fresh->segment = options->attached;
    fresh->next_look_ns = coarse_ns() + (uint64_t)WEIR_SECOND;
    int error = open_both(fresh, options);
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
    weir__loaded_free((struct weir__loaded *)(uintptr_t)weir__load64(&engine->pins.current));
    while (engine->replaced) {
        struct weir__loaded *old = engine->replaced;
        engine->replaced = old->older;
        weir__loaded_free(old);
    }
    for (int i = 0; i < WEIR__PINS; i++)
        if (engine->room[i])
            weir__regex_room_free(engine->room[i]);
    if (engine->own_segment)
        weir_segment_close(engine->segment);
    free(engine->path);
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
    const struct weir__loaded *loaded = weir__pin(&engine->pins, &at);
    weir_engine_stats now = {.reloads = weir__load64(&engine->reloads),
                             .reload_failures = weir__load64(&engine->reload_failures),
                             .looks = weir__load64(&engine->looks),
                             .regex_limited = weir__load64(&engine->regex_limited),
                             .rules = loaded->rules->count,
                             .rule_bytes = loaded->rules->arena.bytes};
    weir__unpin(&engine->pins, at);
    *stats = now;
    return 0;
}
