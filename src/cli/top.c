/* weir top and weir advise: their command lines. */
#include "base/duration.h"
#include "stats/stats.h"
#include "cli/cli.h"
#include "cli/diagnose.h"

static const char top_usage[] =
    "usage: weir top [--once [--json]] [--interval TIME] [--keys N] [--rules PATH] [FILE|SEGMENT]\n"
    "Shows the decisions of this host: rates, rules, the heaviest keys, the segment and the store; and the\n"
    "other hosts: those that share its store, and those that take their rules from it. FILE is a weir.yaml\n"
    "(the default), SEGMENT the path of a segment, for which --rules names the rules. Only reads;\n"
    "docs/statistics.md explains the numbers.\n"
    "\n"
    "  --once            print once, as text, COLUMNS wide (default 80)\n"
    "  --json            the same as JSON, for scripts\n"
    "  --interval TIME   between two updates (default 1s)\n"
    "  --keys N          of each rule, in JSON (default 10)\n"
    "  --rules PATH      a rule file or a folder of them\n"
    "\n"
    "Keys: q quits; o switches between hosts and rules; j and k, or the arrows, select the rule whose keys are\n"
    "shown; h cycles denied, admitted, near their limit; n a d e y s sort by name, allowed, denied, shed, delayed\n"
    "and share, hosts also l by load level and t by last contact; space pauses.\n"
    "\n"
    "Exits with 0, 1 if there are no statistics, 2 for a wrong command line.\n";

static int wrong(const char *what)
{
    fprintf(stderr, "weir top: %s\n%s", what, top_usage);
    return 2;
}

int weir__cmd_top(int argc, char **argv)
{
    struct weir__findings findings = {.to = stderr};
    struct weir__top_options how = {.what = "weir.yaml", .keys = 10};
    const char *interval = "1s", *keys = NULL;
    const struct weir__option options[] = {{"once", .flag = &how.once},
                                           {"json", .flag = &how.json},
                                           {"interval", 'i', .value = &interval},
                                           {"keys", .value = &keys},
                                           {"rules", .value = &how.rules}};
    int64_t ns = 0;
    int code = weir__args_read_word("top", top_usage, options, 5, &how.what, argc, argv);
    if (code >= 0)
        return code;
    if (!weir__parse_duration(weir__text_of(interval), 3600 * WEIR_SECOND, &ns) || ns < WEIR_SECOND / 10)
        return wrong("--interval is a time from 100ms to 1h");
    if (keys && !weir__read_int(keys, 1, 256, &how.keys))
        return wrong("--keys is a number from 1 to 256");
    if (how.json && !how.once)
        return wrong("--json needs --once");
    how.interval_ms = ns / 1000000;
    return weir__top_run(&how, weir__find_errors, &findings);
}

static const char advise_usage[] =
    "usage: weir advise [--json] [--rule NAME] [--rules PATH] [FILE|SEGMENT]\n"
    "Reports rules that are too strict, too loose or of the wrong algorithm, with the statistics that show it\n"
    "and the changed rule, ready to be tried in shadow. FILE is a weir.yaml (the default), SEGMENT the path\n"
    "of a segment, for which --rules names the rules. Needs the history that weir agent writes, and hot_keys.\n"
    "A rule without enough data is not mentioned: docs/statistics.md has the bounds.\n"
    "\n"
    "  --json         as JSON\n"
    "  --rule NAME    only this rule\n"
    "  --rules PATH   a rule file or a folder of them\n"
    "\n"
    "Exits with 0, with advice or without, 1 if there are no statistics, 2 for a wrong command line.\n";

int weir__cmd_advise(int argc, char **argv)
{
    struct weir__findings findings = {.to = stderr};
    struct weir__advise_options how = {.what = "weir.yaml"};
    const struct weir__option options[] = {
        {"json", .flag = &how.json}, {"rule", .value = &how.rule}, {"rules", .value = &how.rules}};
    int code = weir__args_read_word("advise", advise_usage, options, 3, &how.what, argc, argv);
    return code >= 0 ? code : weir__advise_run(&how, weir__find_errors, &findings);
}
