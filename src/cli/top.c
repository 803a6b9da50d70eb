/* weir top, weir advise and weir why: their command lines. */
#include "base/duration.h"
#include "serve/serve.h"
#include "stats/stats.h"
#include "cli/service.h"

#include <string.h>

#define SINCE_MAX (400 * WEIR_DAY)

static int wrong(const struct weir__given *given, const char *what)
{
    fprintf(stderr, "weir %s: %s\n", given->command, what);
    weir__help(stderr, given->command);
    return 2;
}

int weir__cmd_top(struct weir__given *given)
{
    struct weir__findings findings = {.to = stderr, .errors_only = true};
    struct weir__top_options how = {.what = weir__argument(given, "weir.yaml"),
                                    .rules = weir__option(given, "rules"),
                                    .once = weir__option(given, "once"),
                                    .json = given->json,
                                    .keys = 10,
                                    .host = weir__option(given, "host"),
                                    .this_host = weir__option(given, "this-host")};
    const char *interval = weir__option(given, "interval"), *keys = weir__option(given, "keys");
    int64_t ns = WEIR_SECOND;
    if (interval && (!weir__parse_duration(weir__text_of(interval), 3600 * WEIR_SECOND, &ns) || ns < WEIR_SECOND / 10))
        return wrong(given, "--interval is a time from 100ms to 1h");
    if (keys && !weir__read_int(keys, 1, 256, &how.keys))
        return wrong(given, "--keys is a number from 1 to 256");
    if (how.json && !how.once)
        return wrong(given, "--json needs --once");
    if (how.host && how.this_host)
        return wrong(given, "--host and --this-host exclude each other");
    how.interval_ms = ns / 1000000;
    return weir__top_run(&how, weir__add_finding, &findings);
}

int weir__cmd_advise(struct weir__given *given)
{
    struct weir__findings findings = {.to = stderr, .errors_only = true};
    struct weir__advise_options how = {.what = weir__argument(given, "weir.yaml"),
                                       .rules = weir__option(given, "rules"),
                                       .rule = weir__option(given, "rule"),
                                       .json = given->json};
    return weir__advise_run(&how, weir__add_finding, &findings);
}

/* ---- why ---- */

static void ignore(void *context, const weir_diagnostic *diagnostic)
{
    (void)context;
    (void)diagnostic;
}

/* The deferred request that the subject is the ticket of. NULL: none; an id of a request may look like a ticket. */
static json_t *find_ticket(const struct weir__why_options *how)
{
    enum { DIGITS = 32 };
    const char *subject = how->subject;
    if (!subject || strlen(subject) != DIGITS || strspn(subject, "0123456789abcdef") != DIGITS ||
        !weir__is_weir_yaml(how->what))
        return NULL;
    struct weir__file *file = weir__file_open(how->what, WEIR__FILE_QUEUE, ignore, NULL);
    if (!file) /* there is no queue */
        return NULL;
    weir__file_close(file);
    return weir__deferred_find(how->what, subject);
}

static void print_ticket(const json_t *item)
{
    char number[32], status[32];
    const char *state = weir__member(item, "state"), *why = weir__member(item, "why"), *due = weir__member(item, "due");
    const char *attempts = weir__member_number(item, "attempts", number);
    const char *last = weir__member_number(item, "last_status", status), *ended = weir__member(item, "ended");
    bool waits = strcmp(state, "waiting") == 0, dead = strcmp(state, "dead") == 0;
    weir__print_line(stdout, "ticket %s is %s: %s %s, of key %s%s", weir__member(item, "ticket"),
                     strcmp(state, "under_way") == 0 ? "under way" : state, weir__member(item, "method"),
                     weir__member(item, "path"), weir__member(item, "key"), weir__member(item, "key_hex"));
    weir__print_line(stdout, "  rule %s denied it at %s; on_limit of the rule is queue, so it was kept for later",
                     weir__member(item, "rule"), weir__member(item, "accepted"));
    if (waits || strcmp(attempts, "0") != 0)
        weir__print_line(stdout, "  %s attempt%s to deliver it%s%s", attempts, strcmp(attempts, "1") == 0 ? "" : "s",
                         *last ? ", the last one with status " : "", last);
    if (*why)
        weir__print_line(stdout, "  it %s: %s", waits ? "still waits" : "failed", why);
    if (waits)
        weir__print_line(stdout, "  it is due at %s%s%s", *due ? due : "any moment", ", and expires at ",
                         weir__member(item, "expires"));
    else if (*ended)
        weir__print_line(stdout, "  it %s at %s", dead ? "became dead" : "ended", ended);
}

/* Explains a ticket, then the denials of its rule and key. */
static int explain_ticket(const json_t *item, struct weir__why_options *how)
{
    struct weir__findings findings = {.to = stderr, .errors_only = true};
    char *text = json_dumps(item, JSON_COMPACT);
    how->rule = weir__member(item, "rule");
    how->subject = weir__member(item, "key");
    how->ticket = weir__keep(text);
    if (!how->json) {
        print_ticket(item);
        putchar('\n');
    }
    return weir__why_run(how, weir__add_finding, &findings);
}

int weir__cmd_why(struct weir__given *given)
{
    struct weir__findings findings = {.to = stderr, .errors_only = true};
    const char *segment = weir__option(given, "segment"), *since = weir__option(given, "since");
    struct weir__why_options how = {.what = segment ? segment : "weir.yaml",
                                    .rules = weir__option(given, "rules"),
                                    .subject = weir__argument(given, NULL),
                                    .json = given->json,
                                    .host = weir__option(given, "host"),
                                    .this_host = weir__option(given, "this-host")};
    if (since && (!weir__parse_duration(weir__text_of(since), SINCE_MAX, &how.since_ns) || how.since_ns <= 0))
        return wrong(given, "--since is a time such as 10m or 1h, up to 400d");
    if (how.subject && !*how.subject)
        return wrong(given, "which client, key, request, ticket or rule? an empty argument is none of them");
    if (how.host && how.this_host)
        return wrong(given, "--host and --this-host exclude each other");
    json_t *item = find_ticket(&how);
    if (item) {
        int code = explain_ticket(item, &how);
        json_decref(item);
        return code;
    }
    return weir__why_run(&how, weir__add_finding, &findings);
}
