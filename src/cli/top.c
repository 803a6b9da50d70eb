/* weir top, weir advise and weir why: their command lines. */
#include "base/duration.h"
#include "stats/stats.h"
#include "cli/cli.h"
#include "cli/diagnose.h"

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
                                    .keys = 10};
    const char *interval = weir__option(given, "interval"), *keys = weir__option(given, "keys");
    int64_t ns = WEIR_SECOND;
    if (interval && (!weir__parse_duration(weir__text_of(interval), 3600 * WEIR_SECOND, &ns) || ns < WEIR_SECOND / 10))
        return wrong(given, "--interval is a time from 100ms to 1h");
    if (keys && !weir__read_int(keys, 1, 256, &how.keys))
        return wrong(given, "--keys is a number from 1 to 256");
    if (how.json && !how.once)
        return wrong(given, "--json needs --once");
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

int weir__cmd_why(struct weir__given *given)
{
    struct weir__findings findings = {.to = stderr, .errors_only = true};
    const char *segment = weir__option(given, "segment"), *since = weir__option(given, "since");
    struct weir__why_options how = {.what = segment ? segment : "weir.yaml",
                                    .rules = weir__option(given, "rules"),
                                    .subject = weir__argument(given, NULL),
                                    .json = given->json};
    if (since && (!weir__parse_duration(weir__text_of(since), SINCE_MAX, &how.since_ns) || how.since_ns <= 0))
        return wrong(given, "--since is a time such as 10m or 1h, up to 400d");
    if (how.subject && !*how.subject)
        return wrong(given, "which client, key, request or rule? an empty argument is none of them");
    return weir__why_run(&how, weir__add_finding, &findings);
}
