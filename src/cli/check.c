/* weir check: plays a request, or descriptors, against rules. */
#include "cli/check.h"
#include "cli/diagnose.h"
#include "rules/set.h"
#include "serve/serve.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN_LINES = 40, SEGMENT_BYTES = 64 << 20 };

static int check_once(struct weir__check *check, int64_t number)
{
    int64_t since_ns = number * check->every_ns;
    weir_time now = {check->start.mono_ns + since_ns, check->start.wall_ns + since_ns};
    if (check->domain) {
        weir_descriptor_query query = {.domain = weir__text_of(check->domain),
                                       .descriptors = check->descriptors,
                                       .descriptor_count = check->descriptor_count,
                                       .hits = check->hits,
                                       .dry_run = check->dry,
                                       .now = now,
                                       .outcomes = check->outcomes};
        check->outcome_count = check->descriptor_count;
        return weir_check_descriptors(check->engine, &query, &check->result);
    }
    weir_query query = {.attributes = check->attributes,
                        .attribute_count = check->attribute_count,
                        .has_cost = check->has_cost,
                        .cost = check->cost,
                        .dry_run = check->dry,
                        .now = now,
                        .outcomes = check->outcomes,
                        .outcomes_max = WEIR__CHECK_OUTCOMES,
                        .text = check->text,
                        .text_size = sizeof check->text};
    int error = weir_check(check->engine, &query, &check->result);
    check->outcome_count = error ? 0 : check->result.outcomes;
    return error;
}

static void print_summary(const struct weir__check *check, int64_t allowed, const char *lines)
{
    int64_t denied = check->repeat - allowed;
    if (!check->given->json) {
        if (check->repeat > 1)
            printf("\n%" PRId64 " allowed, %" PRId64 " denied%s\n\nthe last one: ", allowed, denied,
                   check->dry ? " (dry run: all saw the same counters; --take takes)" : "");
        weir__check_print(check);
        return;
    }
    json_t *all = weir__check_json(check);
    json_object_set_new(all, "dry_run", json_boolean(check->dry));
    if (check->repeat > 1) {
        json_object_set_new(all, "allowed", json_integer(allowed));
        json_object_set_new(all, "denied", json_integer(denied));
    }
    char *text = weir__must(json_dumps(all, WEIR__JSON_FORM));
    if (check->repeat > 1) /* the requests are text already: as objects, a million of them would need gigabytes */
        printf("%.*s,\"requests\":[%s]}\n", (int)strlen(text) - 1, text, lines + 1);
    else
        puts(text);
    free(text);
    json_decref(all);
}

/*
 * Plays all requests and prints them; with --json they go to `lines`, each after a comma. Of many lines the first, the
 * last and each that differs from the one before are shown. 0, or the library's error.
 */
static int play_all(struct weir__check *check, FILE *lines, int64_t *allowed)
{
    enum weir_verdict before = WEIR_ALLOW;
    bool all = weir__option(check->given, "all") || check->repeat <= SHOWN_LINES, skipped = false;
    for (int64_t i = 0; i < check->repeat; i++) {
        int error = check_once(check, i);
        if (error)
            return error;
        enum weir_verdict verdict = check->result.decision.verdict;
        bool shown = all || i < SHOWN_LINES / 2 || i == check->repeat - 1 || verdict != before;
        *allowed += weir_passes(&check->result.decision);
        before = verdict;
        if (check->given->json) {
            json_t *line = weir__check_line_json(check);
            fputc(',', lines);
            json_dumpf(line, lines, WEIR__JSON_FORM);
            json_decref(line);
        } else if (check->repeat > 1 && shown) {
            if (skipped)
                printf("%7s\n", "...");
            weir__check_line(i + 1, i * check->every_ns, check);
        }
        skipped = !shown;
    }
    return 0;
}

/* True (which ends the visit) for a rule of the dialect, and domain, of the request. */
static int rule_applies(void *context, const weir_rule_info *rule, const weir_rule_stats *stats)
{
    const struct weir__check *check = context;
    (void)stats;
    return check->domain ? rule->domain && strcmp(rule->domain, check->domain) == 0 : !rule->domain;
}

static int play(struct weir__check *check)
{
    weir_engine_stats stats;
    char *text = NULL;
    size_t len;
    int64_t allowed = 0;
    int error = weir_engine_stats_read(check->engine, &stats);
    if (error)
        return error;
    check->rule_count = stats.rules;
    /* A misspelt domain, or the wrong dialect, looks like a request that is allowed. */
    bool pointless = weir_rules_each(check->engine, rule_applies, check) == 0;
    if (pointless && check->domain)
        fprintf(stderr, "weir check: warning: the rules have no limits of the domain '%s'\n", check->domain);
    else if (pointless && stats.rules > 0)
        fputs("weir check: warning: all rules are descriptors; --domain D KEY=VALUE plays them\n", stderr);
    FILE *lines = weir__must(open_memstream(&text, &len));
    error = play_all(check, lines, &allowed);
    if (fclose(lines) != 0)
        weir__must(NULL);
    if (!error)
        print_summary(check, allowed, text);
    free(text);
    return error;
}

/* --segment: a weir.yaml, or the segment itself. False after errors were printed. */
static bool open_host(struct weir__check *check)
{
    struct weir__findings findings = {.to = stderr, .errors_only = true};
    check->path = check->segment;
    if (weir__is_weir_yaml(check->segment)) {
        check->file = weir__file_open(check->segment, WEIR__FILE_COUNTERS, weir__add_finding, &findings);
        check->path = check->file ? check->file->segment : NULL;
    } else if (access(weir__format("%s.keys", check->segment), F_OK) == 0) { /* a host with a store has this file */
        fputs("weir check: warning: its host has a store, whose counters are not read: --segment needs the weir.yaml "
              "for them\n",
              stderr);
    }
    return check->path;
}

/* The counters: those of --segment, or fresh ones. */
static bool open_counters(struct weir__check *check)
{
    if (check->segment && !open_host(check))
        return false;
    weir_segment_options how = {.path = check->path,
                                .size = SEGMENT_BYTES,
                                .slab_bytes = SEGMENT_BYTES / 2,
                                .flags = check->dry ? WEIR_OPEN_READONLY : 0};
    int error = weir_segment_open(&how, &check->counters);
    if (error) {
        fprintf(stderr, "weir check: %s: %s (%s)\n", check->path ? check->path : "segment", weir_strerror(error),
                weir_error_name(error));
        return false;
    }
    check->start = weir_clock(check->counters);
    if (check->has_at) {
        /* The monotonic clock of a segment has another origin: shift it as far as the wall clock. */
        int64_t mono = check->segment ? check->start.mono_ns + (check->at_ns - check->start.wall_ns) : check->at_ns;
        check->start = (weir_time){mono < 0 ? 0 : mono, check->at_ns};
    }
    return true;
}

/* False after the findings were shown. */
static bool open_engine(struct weir__check *check, struct weir__findings *findings)
{
    struct weir__input input = {.findings = findings};
    bool opened = weir__input_open(&input, check->rules);
    weir_options options = {.attached = check->counters,
                            .rules_path = input.path,
                            .rules_text = input.text,
                            .diagnose = weir__input_find,
                            .diagnose_context = &input,
                            .flags = WEIR_NO_WATCH};
    if (check->file && check->file->store) {
        options.store = check->file->store_url;
        options.default_consistency = check->file->consistency;
        options.ledger = ""; /* in memory: without one, rules that are eventual would be strict */
    } else if (input.file && input.file->store) {
        options.flags |= WEIR__STORE_LEFT_OUT;
    }
    const char *load =
        check->path ? weir__format("%s.load", check->path) : NULL; /* a host's load may scale the limits */
    if (load && access(load, F_OK) == 0)
        options.load = load;
    if (opened) {
        struct weir__file_owner owner = input.file ? input.file->rules_owner : (struct weir__file_owner){0, 0};
        errno = 0;
        int error = weir__act_as_owner(&owner) ? weir_open(&options, &check->engine) : WEIR_ERULESPATH;
        weir__act_as_self(&owner);
        if (error)
            weir__find_failure(findings, input.path ? input.path : input.name, error);
        opened = error == 0;
    }
    weir__input_close(&input);
    return opened;
}

static int run(struct weir__check *check)
{
    struct weir__findings findings = {.to = stderr, .errors_only = check->given->json};
    size_t room = check->descriptor_count > WEIR__CHECK_OUTCOMES ? check->descriptor_count : WEIR__CHECK_OUTCOMES;
    int code = 1;
    check->dry = check->segment && !weir__option(check->given, "take");
    check->outcomes = weir__keep(calloc(room, sizeof *check->outcomes));
    if (open_counters(check) && open_engine(check, &findings)) {
        int error = play(check);
        code = error || (weir__option(check->given, "exit-code") && !weir_passes(&check->result.decision));
        if (error)
            fprintf(stderr, "weir check: %s (%s)\n", weir_strerror(error), weir_error_name(error));
    }
    weir_close(check->engine);
    weir_segment_close(check->counters);
    weir__file_close(check->file);
    return code;
}

int weir__cmd_check(struct weir__given *given)
{
    struct weir__check *check = weir__keep(calloc(1, sizeof *check));
    int code = weir__check_parse(check, given) ? run(check) : 2;
    free(check->attributes);
    return code;
}
