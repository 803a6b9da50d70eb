/* Opening and closing an engine. rules_reload.c replaces its rules when their files change. */
#include "engine/denial_recorder.h"
#include "engine/ledger.h"
#include "base/clock.h"
#include "engine/strict.h"
#include "engine/hot_key_sampler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Opening ---- */

static int read_rules(weir *engine, const weir_options *options, weir_rules **rules)
{
    if (options->rules_text) {
        struct weir__source source = {"rules", {options->rules_text, strlen(options->rules_text)}};
        engine->seen.checksum = weir__sources_checksum(&source, 1);
        engine->maps.text = true;
        return weir__load_sources(&source, 1, &engine->sink, &engine->maps, rules);
    }
    engine->path = strdup(options->rules_path);
    if (!engine->path)
        return WEIR_ENOMEM;
    if (options->flags & WEIR_RULES_LATER) {
        struct weir__source none = {"rules", {"rules: []", 9}};
        struct weir__diagnostic_sink silent = {0}; /* that there are none yet is no warning */
        engine->later = true;
        return weir__load_sources(&none, 1, &silent, &engine->maps, rules);
    }
    return weir__load_path(engine->path, &engine->sink, &engine->maps, &engine->seen, rules);
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
    if (error && engine->sink.diagnose)
        engine->sink.diagnose(engine->sink.context,
                              &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = "store", .message = why});
    if (error || (options->flags & WEIR_NO_CONNECT))
        return error;
    engine->connection_pool = (uint64_t)(uintptr_t)weir__connection_pool_new();
    return engine->connection_pool ? 0 : WEIR_ENOMEM;
}

/*
 * Opens the files of hot keys, denials and the load level. Without the first two nothing is sampled and recorded;
 * without the last limits are not scaled and nothing is shed. A failure does not prevent the start.
 */
static void open_sidecars(weir *engine, const weir_options *options)
{
    const char *hot = options->hot, *ring = options->denial_ring, *load = options->load;
    bool read_only = engine->segment->mapped.read_only; /* then no file is made */
    struct weir__file_spec spec = {
        .mode = options->segment.mode, .read_only = read_only, .owner = engine->segment->mapped.owner};
    int error = 0;
    if (hot && !read_only) {
        spec.path = *hot ? hot : NULL;
        spec.bytes = options->hot_bytes;
        error = weir__hot_sampler_open(&spec, &engine->hot_sampler);
    }
    if (error)
        weir__report_without(engine, WEIR_IS_WARNING, *hot ? hot : "hot", "hot keys are not sampled", error);
    engine->hot_sampler.hide = engine->denial_recorder.hide = options->flags & WEIR_HIDE_KEYS;
    error = 0;
    if (ring && !read_only) {
        spec.path = *ring ? ring : NULL;
        spec.bytes = options->denial_bytes;
        error = weir__denial_recorder_open(&spec, &engine->denial_recorder);
    }
    if (error)
        weir__report_without(engine, WEIR_IS_WARNING, *ring ? ring : "denials", "denials are not recorded", error);
    error = 0;
    if (options->key_commands && engine->store && !read_only) {
        spec.path = *options->key_commands ? options->key_commands : NULL;
        error = weir__key_commands_open(&spec, &engine->key_commands);
    }
    if (error)
        weir__report_without(engine, WEIR_IS_WARNING, options->key_commands, "blocks of keys stay on this host", error);
    if (!load || (read_only && !*load))
        return;
    spec.path = *load ? load : NULL;
    error = weir__load_page_open(&spec, &engine->level);
    if (!error)
        engine->load = engine->level.memory;
    else if (!read_only || error != WEIR_ENOENT)
        weir__report_without(engine, WEIR_IS_WARNING, *load ? load : "load", "the load level is not known", error);
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
        open_sidecars(engine, options);
        error = weir__rules_install(engine, rules, engine->seen.checksum);
    }
    if (error)
        weir_rules_free(rules);
    return error;
}

int weir_open(const weir_options *options, weir **engine)
{
    if (!options || !engine || !options->rules_path == !options->rules_text ||
        options->default_consistency > WEIR_PER_ALGORITHM)
        return WEIR_EINVAL;
    weir *fresh = aligned_alloc(64, sizeof *fresh);
    if (!fresh)
        return WEIR_ENOMEM;
    memset(fresh, 0, sizeof *fresh);
    fresh->sink =
        (struct weir__diagnostic_sink){.diagnose = options->diagnose,
                                       .context = options->diagnose_context,
                                       .storeless = !options->store && !(options->flags & WEIR__STORE_LEFT_OUT)};
    fresh->watch = options->rules_path && !(options->flags & WEIR_NO_WATCH);
    fresh->maps.skip = options->flags & WEIR__SKIP_MAPS;
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
        if (engine->regex_scratch[i])
            weir__regex_scratch_free(engine->regex_scratch[i]);
    free(engine->scratch);
    weir__connection_pool_free((struct weir__connection_pool *)(uintptr_t)weir__load64(&engine->connection_pool));
    weir__mapped_close(&engine->hot_sampler.mapped);
    weir__mapped_close(&engine->denial_recorder.mapped);
    weir__key_commands_close(&engine->key_commands);
    weir__mapped_close(&engine->level);
    if (engine->own_segment)
        weir_segment_close(engine->segment);
    weir__mapped_close(&engine->deltas.mapped);
    weir__map_files_free(&engine->maps);
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
                             .rule_bytes = weir__rules_bytes(ruleset->rules)};
    weir__hazard_release(&engine->hazards, at);
    if (engine->connection_pool)
        weir__connection_pool_stats(engine, &now.store);
    *stats = now;
    return 0;
}
