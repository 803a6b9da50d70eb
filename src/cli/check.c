/* weir check: plays a request, or descriptors, against rules. */
#include "cli/check.h"
#include "cli/diagnose.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN_LINES = 40, SEGMENT_BYTES = 64 << 20 };

/* One play: the engine, its time, and where the results go. */
struct play {
    const struct weir__check *check;
    weir *engine;
    weir_segment *segment;
    const char *path; /* of the segment; NULL: fresh counters */
    bool dry;
    weir_time start;
    struct weir__check_result result;
    char text[WEIR__CHECK_TEXT];
    int64_t allowed, denied;
    bool skipped; /* lines were left out since the last one shown */
    char *lines;  /* of --json: all requests, each after a comma */
    size_t lines_len;
};

static int check_once(struct play *play, int64_t number)
{
    const struct weir__check *check = play->check;
    struct weir__check_result *result = &play->result;
    int64_t since_ns = number * check->every_ns;
    weir_time now = {play->start.mono_ns + since_ns, play->start.wall_ns + since_ns};
    if (check->domain) {
        weir_descriptor_query query = {.domain = {check->domain, strlen(check->domain)},
                                       .descriptors = check->descriptors,
                                       .descriptor_count = check->descriptor_count,
                                       .hits = check->hits,
                                       .dry_run = play->dry,
                                       .now = now,
                                       .outcomes = result->outcomes};
        result->outcome_count = check->descriptor_count;
        return weir_check_descriptors(play->engine, &query, &result->result);
    }
    weir_query query = {.attributes = check->attributes,
                        .attribute_count = check->attribute_count,
                        .has_cost = check->has_cost,
                        .cost = check->cost,
                        .dry_run = play->dry,
                        .now = now,
                        .outcomes = result->outcomes,
                        .outcomes_max = WEIR__CHECK_OUTCOMES,
                        .text = play->text,
                        .text_size = sizeof play->text};
    int error = weir_check(play->engine, &query, &result->result);
    result->outcome_count = error ? 0 : result->result.outcomes;
    return error;
}

/* A line of --repeat. Of many, the first, the last and each that differs from the one before are shown. */
static void show_line(struct play *play, int64_t number, bool changed)
{
    const struct weir__check *check = play->check;
    if (weir__option(check->given, "all") || number < SHOWN_LINES / 2 || number == check->repeat - 1 || changed ||
        check->repeat <= SHOWN_LINES) {
        if (play->skipped)
            printf("%7s\n", "...");
        play->skipped = false;
        weir__check_line(stdout, number + 1, number * check->every_ns, &play->result);
    } else {
        play->skipped = true;
    }
}

/* Plays all; 0, or the library's error. */
static int play_all(struct play *play, FILE *lines)
{
    const struct weir__check *check = play->check;
    enum weir_verdict before = WEIR_ALLOW;
    for (int64_t i = 0; i < check->repeat; i++) {
        int error = check_once(play, i);
        if (error)
            return error;
        enum weir_verdict verdict = play->result.result.decision.verdict;
        if (weir_passes(&play->result.result.decision))
            play->allowed++;
        else
            play->denied++;
        if (check->given->json) {
            json_t *line = weir__check_line_json(&play->result);
            fputc(',', lines);
            json_dumpf(line, lines, WEIR__JSON_FORM);
            json_decref(line);
        } else if (check->repeat > 1) {
            show_line(play, i, i == 0 || verdict != before);
        }
        before = verdict;
    }
    return 0;
}

static void print_summary(struct play *play)
{
    const struct weir__check *check = play->check;
    if (!check->given->json) {
        if (check->repeat > 1) {
            printf("\n%" PRId64 " allowed, %" PRId64 " denied", play->allowed, play->denied);
            printf("%s\n\nthe last one: ", play->dry ? " (dry run: all saw the same counters; --take takes)" : "");
        }
        weir__check_print(stdout, check, &play->result);
        return;
    }
    json_t *all = weir__check_json(check, &play->result);
    json_object_set_new(all, "dry_run", json_boolean(play->dry));
    if (check->repeat > 1) {
        json_object_set_new(all, "allowed", json_integer(play->allowed));
        json_object_set_new(all, "denied", json_integer(play->denied));
    }
    char *text = weir__must(json_dumps(all, WEIR__JSON_FORM));
    if (check->repeat > 1) /* the requests are text already: as objects, a million of them would need gigabytes */
        printf("%.*s,\"requests\":[%s]}\n", (int)strlen(text) - 1, text, play->lines + 1);
    else
        puts(text);
    free(text);
    json_decref(all);
}

/* True (which ends the visit) for a rule of the dialect, and domain, of the request. */
static int rule_applies(void *context, const weir_rule_info *rule, const weir_rule_stats *stats)
{
    const struct weir__check *check = context;
    (void)stats;
    return check->domain ? rule->domain && strcmp(rule->domain, check->domain) == 0 : !rule->domain;
}

/* A misspelt domain, or the wrong dialect, looks like a request that is allowed. */
static void warn_if_pointless(const struct play *play)
{
    const struct weir__check *check = play->check;
    if (weir_rules_each(play->engine, rule_applies, (void *)(uintptr_t)check) != 0)
        return;
    if (check->domain)
        fprintf(stderr, "weir check: warning: the rules have no limits of the domain '%s'\n", check->domain);
    else if (play->result.rules > 0)
        fputs("weir check: warning: all rules are descriptors; --domain D KEY=VALUE plays them\n", stderr);
}

static int run_checks(struct play *play)
{
    weir_engine_stats stats;
    int error = weir_engine_stats_read(play->engine, &stats);
    if (error)
        return error;
    play->result.rules = stats.rules;
    warn_if_pointless(play);
    FILE *lines = weir__must(open_memstream(&play->lines, &play->lines_len));
    error = play_all(play, lines);
    if (fclose(lines) != 0)
        weir__must(NULL);
    if (!error)
        print_summary(play);
    return error;
}

/* The counters: those of --segment, or fresh ones. */
static int open_segment(struct play *play, struct weir__findings *findings)
{
    const struct weir__check *check = play->check;
    if (check->segment && !(play->path = weir__input_segment(check->segment, findings)))
        return WEIR_ERULES;
    weir_segment_options how = {.path = play->path,
                                .size = SEGMENT_BYTES,
                                .slab_bytes = SEGMENT_BYTES / 2,
                                .flags = play->dry ? WEIR_OPEN_READONLY : 0};
    int error = weir_segment_open(&how, &play->segment);
    if (error) {
        fprintf(stderr, "weir check: %s: %s (%s)\n", play->path ? play->path : "segment", weir_strerror(error),
                weir_error_name(error));
        return error;
    }
    play->start = weir_clock(play->segment);
    if (check->has_at) {
        /* The monotonic clock of a segment has another origin: shift it as far as the wall clock. */
        int64_t mono = check->segment ? play->start.mono_ns + (check->at_ns - play->start.wall_ns) : check->at_ns;
        play->start = (weir_time){mono < 0 ? 0 : mono, check->at_ns};
    }
    return 0;
}

/* False after the findings were shown. */
static bool open_engine(struct play *play, struct weir__findings *findings)
{
    struct weir__input input = {.findings = findings, .errors_only = play->check->given->json};
    bool opened = weir__input_open(&input, play->check->rules);
    weir_options options = {.attached = play->segment,
                            .rules_path = input.path,
                            .rules_text = input.text,
                            .diagnose = weir__input_find,
                            .diagnose_context = &input,
                            .flags = WEIR_NO_WATCH};
    const char *load = play->path ? weir__text("%s.load", play->path) : NULL; /* a host's load may scale the limits */
    if (load && access(load, F_OK) == 0)
        options.load = load;
    if (opened) {
        errno = 0;
        int error = weir_open(&options, &play->engine);
        if (error)
            weir__find_failure(findings, input.path ? input.path : input.name, error);
        opened = error == 0;
    }
    weir__input_close(&input);
    return opened;
}

static int run(const struct weir__check *check)
{
    struct weir__findings findings = {.to = stderr};
    struct play play = {.check = check, .dry = check->segment && !weir__option(check->given, "take")};
    size_t room = check->descriptor_count > WEIR__CHECK_OUTCOMES ? check->descriptor_count : WEIR__CHECK_OUTCOMES;
    int code = 1;
    play.result.outcomes = weir__keep(calloc(room, sizeof *play.result.outcomes));
    int error = 0;
    if (open_segment(&play, &findings) == 0 && open_engine(&play, &findings)) {
        error = run_checks(&play);
        code = error                                                                                   ? 1
               : weir__option(check->given, "exit-code") && !weir_passes(&play.result.result.decision) ? 1
                                                                                                       : 0;
    }
    if (error)
        fprintf(stderr, "weir check: %s (%s)\n", weir_strerror(error), weir_error_name(error));
    weir_close(play.engine);
    weir_segment_close(play.segment);
    weir__findings_free(&findings);
    free(play.lines);
    return code;
}

int weir__cmd_check(struct weir__given *given)
{
    struct weir__check check;
    int code = weir__check_parse(&check, given) ? run(&check) : 2;
    free(check.attributes);
    return code;
}
