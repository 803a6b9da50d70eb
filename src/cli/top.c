/* weir top and weir advise: their command lines. */
#include "base/duration.h"
#include "stats/stats.h"
#include "cli/cli.h"
#include "cli/diagnose.h"

static int wrong(const char *what)
{
    fprintf(stderr, "weir top: %s\n", what);
    weir__help(stderr, "top");
    return 2;
}

int weir__cmd_top(struct weir__given *given)
{
    struct weir__findings findings = {.to = stderr};
    struct weir__top_options how = {.what = weir__argument(given, "weir.yaml"),
                                    .rules = weir__option(given, "rules"),
                                    .once = weir__option(given, "once"),
                                    .json = given->json,
                                    .keys = 10};
    const char *interval = weir__option(given, "interval"), *keys = weir__option(given, "keys");
    int64_t ns = WEIR_SECOND;
    if (interval && (!weir__parse_duration(weir__text_of(interval), 3600 * WEIR_SECOND, &ns) || ns < WEIR_SECOND / 10))
        return wrong("--interval is a time from 100ms to 1h");
    if (keys && !weir__read_int(keys, 1, 256, &how.keys))
        return wrong("--keys is a number from 1 to 256");
    if (how.json && !how.once)
        return wrong("--json needs --once");
    how.interval_ms = ns / 1000000;
    return weir__top_run(&how, weir__find_errors, &findings);
}

int weir__cmd_advise(struct weir__given *given)
{
    struct weir__findings findings = {.to = stderr};
    struct weir__advise_options how = {.what = weir__argument(given, "weir.yaml"),
                                       .rules = weir__option(given, "rules"),
                                       .rule = weir__option(given, "rule"),
                                       .json = given->json};
    return weir__advise_run(&how, weir__find_errors, &findings);
}
