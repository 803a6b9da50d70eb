/* weir why: the command, and denials of this host and others as sentences. why.c reads the records. */
#include "base/clock.h"
#include "base/duration.h"
#include "stats/host_queries.h"
#include "stats/open_host.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SHOWN_MAX 20 /* keys that are printed */

/* ---- Values of an entry, which has the form of host_replies.c; of other hosts it is untrusted ---- */

static const char *text_in(const json_t *entry, const char *name)
{
    const char *text = json_string_value(json_object_get(entry, name));
    return text ? text : "";
}

static int64_t number_in(const json_t *entry, const char *name)
{
    return (int64_t)json_number_value(json_object_get(entry, name));
}

static bool is_set(const json_t *entry, const char *name)
{
    return json_is_true(json_object_get(entry, name));
}

/* Prints a member's text with what comes before it; nothing if it is empty. */
static bool print_text(const json_t *entry, const char *name, const char *before)
{
    char shown[512];
    weir_text text = weir__text_of(text_in(entry, name));
    if (text.len)
        printf("%s%s", before, weir__printable(text, shown, sizeof shown));
    return text.len;
}

/* Seconds as nanoseconds; -1: none. */
static int64_t span_in(const json_t *entry, const char *name)
{
    double seconds = json_number_value(json_object_get(entry, name));
    return json_is_number(json_object_get(entry, name)) && seconds >= 0
               ? (int64_t)(fmin(seconds, 4e9) * WEIR_SECOND + 0.5)
               : -1;
}

static bool is_warning(const json_t *entry)
{
    return strcmp(text_in(entry, "reason"), "warning") == 0;
}

/* "2026-11-15T10:15:49Z" of a time with a fraction. */
static void print_time(const char *before, const char *time)
{
    char shown[64];
    printf("%s%sZ", before, weir__printable((weir_text){time, strcspn(time, ".Z")}, shown, sizeof shown));
}

/* ---- Sentences ---- */

/* The reason as the end of a sentence. */
static void print_reason(const json_t *entry)
{
    char window[WEIR__DURATION_TEXT];
    const char *reason = text_in(entry, "reason");
    int64_t used = number_in(entry, "used"), capacity = number_in(entry, "capacity"), span = span_in(entry, "window");
    if (strcmp(reason, "block_list") == 0)
        printf("it is on a block list");
    else if (strcmp(reason, "ban") == 0)
        printf("the rule's limit is 0");
    else if (strcmp(reason, "missing_key") == 0) {
        print_text(entry, "missing", "the request lacked the ");
        printf(", and on_missing_key of the rule is deny");
    } else if (strcmp(reason, "store_failure") == 0) {
        print_text(entry, "error", "its counter could not be read (");
        printf("), and on_store_failure of the rule is closed");
    } else if (strcmp(reason, "shed") == 0)
        printf("the host was overloaded, or the rest of the limit was reserved; more important requests came first");
    else if (strcmp(reason, "blocked") == 0)
        printf("an operator had blocked the key");
    else if (strcmp(reason, "never_fits") == 0)
        printf("the request cost %" PRId64 ", and the rule never admits more than %" PRId64 " at once",
               number_in(entry, "cost"), capacity);
    else if (strcmp(reason, "concurrency") == 0)
        printf("%" PRId64 " of its requests were in flight, and the limit is %" PRId64, used, capacity);
    else {
        printf("%" PRId64 " of %" PRId64 " were used; the limit is %" PRId64 "%s%s", used, capacity,
               number_in(entry, "limit"), span > 0 ? " in " : "", span > 0 ? weir__window_text(span, window) : "");
        if (is_warning(entry))
            printf(", and warn_at is %" PRId64 "%%", number_in(entry, "warn_at"));
    }
    putchar('\n');
}

static void print_others(const json_t *entry)
{
    const json_t *other;
    size_t i;
    json_array_foreach(json_object_get(entry, "others"), i, other)
    {
        bool shadow = is_set(other, "shadow"), passed = is_set(other, "passed");
        print_text(other, "rule", "  rule ");
        printf("%s %s", shadow ? " (shadow)" : "",
               shadow   ? passed ? "would have allowed it" : "would have denied it"
               : passed ? "allowed it"
                        : "denied it, too");
        if (number_in(other, "limit") > 0)
            printf(": %" PRId64 " of %" PRId64 " left", number_in(other, "remaining"), number_in(other, "limit"));
        putchar('\n');
    }
}

static void print_request(const json_t *entry)
{
    static const char *const texts[][2] = {
        {"path", "path "}, {"client", "client "}, {"request_id", "request "}, {"tier", "tier "}};
    const char *before = "  the first had ";
    int64_t cost = number_in(entry, "cost");
    for (size_t i = 0; i < WEIR__COUNT(texts); i++) {
        if (!*text_in(entry, texts[i][0]))
            continue;
        fputs(before, stdout);
        print_text(entry, texts[i][0], texts[i][1]);
        before = ", ";
    }
    if (cost != 1)
        printf("%scost %" PRId64, before, cost);
    if (cost != 1 || *before == ',')
        putchar('\n');
}

/* When it would pass; `several`: hosts have counters of their own. */
static void print_next(const json_t *entry, int64_t now_ms, bool several)
{
    char text[WEIR__DURATION_TEXT], at[WEIR__TIME_TEXT];
    int64_t wait_ns = span_in(entry, "retry_after");
    if (is_set(entry, "in_store")) {
        fputs("  whether it would pass now is decided in the store: weir key show ", stdout);
        if (is_set(entry, "hidden") || is_set(entry, "cut") || !print_text(entry, "key", ""))
            fputs("KEY", stdout);
        putchar('\n');
        return;
    }
    if (!json_is_boolean(json_object_get(entry, "passes")))
        return;
    if (is_set(entry, "passes"))
        printf("  it would pass now");
    else if (wait_ns >= 0) {
        weir__time_text(now_ms + wait_ns / 1000000 + 1, at);
        if (wait_ns > 10 * WEIR_SECOND) /* a person does not need more digits */
            wait_ns = (wait_ns / WEIR_SECOND + 1) * WEIR_SECOND;
        printf("  it would pass in %s s, at ", weir__wait_text(wait_ns, text));
        print_time("", at);
    } else
        printf(strcmp(text_in(entry, "reason"), "never_fits") == 0 ? "  such a request never passes"
                                                                   : "  it would not pass now");
    if (is_set(entry, "by_tier") && !print_text(entry, "tier", ", if its tier is still "))
        printf(", if its limit is still the default");
    if (several && is_set(entry, "here"))
        printf(", by the counters of this host");
    else if (several)
        print_text(entry, "host", ", by the counters of ");
    putchar('\n');
}

static void print_entry(const json_t *entry, int64_t now_ms, bool several, bool named)
{
    char ago[WEIR__DURATION_TEXT];
    bool shadow = is_set(entry, "shadow");
    int64_t count = number_in(entry, "count");
    weir__seconds_text(span_in(entry, "ago") / WEIR_SECOND * WEIR_SECOND, ago);
    if (named && print_text(entry, "host", ""))
        fputs(": ", stdout);
    if (print_text(entry, "rule", "rule "))
        fputs(shadow ? " (shadow) " : " ", stdout);
    else
        fputs(strcmp(text_in(entry, "reason"), "block_list") == 0 ? "the block list of all rules "
                                                                  : "a limit of the request's own ",
              stdout);
    fputs(is_warning(entry) ? "warned of " : shadow ? "would have denied " : "denied ", stdout);
    if (!print_text(entry, "key", ""))
        fputs("a request", stdout);
    if (count != 1) {
        printf(" %" PRId64 " times", count);
        print_time(" from ", text_in(entry, "first"));
    }
    print_time(count == 1 ? " at " : " to ", text_in(entry, "last"));
    printf(", %s s ago:\n  ", ago);
    print_reason(entry);
    print_request(entry);
    print_others(entry);
    if (!is_warning(entry))
        print_next(entry, now_ms, several);
}

/* Prints denials and warnings, both lists the newest first. Returns how many there are. */
static size_t print_entries(const json_t *found, bool several)
{
    const json_t *lists[] = {json_object_get(found, "denials"), json_object_get(found, "warnings")};
    const json_t *coverage = json_object_get(found, "coverage");
    size_t next[2] = {0}, count = json_array_size(lists[0]) + json_array_size(lists[1]);
    bool named = json_array_size(json_object_get(coverage, "hosts")) > 1 ||
                 json_array_size(json_object_get(coverage, "missing")) > 0;
    for (size_t i = 0; i < count && i < SHOWN_MAX; i++) {
        const json_t *one = json_array_get(lists[0], next[0]), *other = json_array_get(lists[1], next[1]);
        bool later = !one || (other && strcmp(text_in(other, "last"), text_in(one, "last")) > 0);
        if (i)
            putchar('\n');
        print_entry(later ? other : one, weir__wall_ms(), several, named);
        next[later]++;
    }
    int64_t more = number_in(found, "more") + (count > SHOWN_MAX ? (int64_t)(count - SHOWN_MAX) : 0);
    if (more)
        printf("\n%" PRId64 " more; --json has all of them\n", more);
    return count;
}

static void print_found(const json_t *found, const struct weir__why_options *options, bool several)
{
    char subject[256], span[WEIR__DURATION_TEXT], coverage[1024];
    const json_t *covered = json_object_get(found, "coverage");
    const char *oldest = text_in(found, "oldest");
    if (!print_entries(found, several)) {
        printf("no denial%s%s", options->subject ? " of " : "",
               options->subject ? weir__printable(weir__text_of(options->subject), subject, sizeof subject) : "");
        if (options->since_ns)
            printf(" in the last %s", weir__window_text(options->since_ns, span));
        if (*oldest) {
            int64_t keys = number_in(found, "denied_keys");
            printf("; the records have %" PRId64 " denied key%s and begin at ", keys, keys == 1 ? "" : "s");
            print_time("", oldest);
            putchar('\n');
        } else
            puts("; nothing was denied since the records began");
    }
    if (json_array_size(json_object_get(covered, "hosts")) > 1 ||
        json_array_size(json_object_get(covered, "missing")) || *text_in(covered, "why"))
        printf("\nfrom %s\n", weir__coverage_text(found, coverage, sizeof coverage));
}

/* ---- The command ---- */

static int report_error(const struct weir__opened_host *host, const struct weir__why_options *options, int error)
{
    char path[4200], why[256];
    snprintf(path, sizeof path, "%s.denials", host->snapshot.segment);
    if (error == WEIR__HOST_UNKNOWN)
        fprintf(stderr, "weir why: no host is called '%s'; weir top --once lists them\n", options->host);
    else if (error == WEIR__HOST_NO_REPLY)
        fprintf(stderr, "weir why: no reply from %s: it is silent, or the store is unavailable\n", options->host);
    else if (error == WEIR_ENOENT)
        fprintf(stderr,
                "weir why: %s does not exist: no denials are recorded (denials in weir.yaml, weir_denials in nginx)\n",
                path);
    else
        fprintf(stderr, "weir why: %s: %s\n", path, weir__mapped_why(path, error, why, sizeof why));
    return 1;
}

static int run(struct weir__opened_host *host, struct weir__host_queries *queries,
               const struct weir__why_options *options)
{
    const struct weir__host_query query = {.rule = options->rule,
                                           .key = weir__text_of(options->subject ? options->subject : ""),
                                           .seconds = (options->since_ns + WEIR_SECOND - 1) / WEIR_SECOND,
                                           .host = options->host,
                                           .this_host = options->this_host};
    char *own = NULL, *json = NULL;
    weir__membership_refresh(&host->membership, &host->snapshot);
    struct weir__gather *gather = weir__gather_begin(&host->membership, WEIR__QUERY_DENIED, &query);
    if (gather)
        weir__gather_send(gather, queries);
    int error = gather ? weir__stats_json_denied(&host->snapshot, &query, &own) : WEIR_ENOMEM;
    error = gather ? weir__gather_all(gather, own, error, &json) : error;
    json_t *found = json ? json_loads(json, 0, NULL) : NULL;
    free(json);
    if (!found)
        return report_error(host, options, error ? error : WEIR_ENOMEM);
    if (options->ticket)
        json_object_set_new(found, "ticket", json_loads(options->ticket, 0, NULL));
    size_t count =
        json_array_size(json_object_get(found, "denials")) + json_array_size(json_object_get(found, "warnings"));
    if (options->json) {
        json_dumpf(found, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
        putchar('\n');
    } else
        print_found(found, options, host->config.store.url != NULL);
    json_decref(found);
    return (!count && !options->ticket) || fflush(stdout) != 0;
}

int weir__why_run(const struct weir__why_options *options, weir_diagnose *diagnose, void *context)
{
    struct weir__opened_host host;
    int code = 1;
    if (weir__open_host(&host, options->what, options->rules, diagnose, context)) {
        struct weir__host_queries *queries = options->this_host ? NULL : weir__host_queries_new(&host.config);
        code = run(&host, queries, options);
        weir__host_queries_free(queries);
    }
    weir__close_host(&host);
    return code;
}
