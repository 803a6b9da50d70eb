/* weir top: what a host does, live. */
#include "base/text.h"
#include "base/duration.h"
#include "stats/stats.h"
#include "cli/cli.h"
#include "cli/diagnose.h"
#include "cli/options.h"

static const char usage[] =
    "usage: weir top [--once [--json]] [--interval TIME] [--keys N] [--rules PATH] [FILE|SEGMENT]\n"
    "Shows what this host decides: rates, rules, the heaviest keys, the segment and the store; and which other\n"
    "hosts there are: those that share its store, and those that take their rules from it. FILE is a\n"
    "weir.yaml (the default), SEGMENT the path of a segment; then --rules says what the rules are called.\n"
    "Only reads. docs/statistics.md says what the numbers are.\n"
    "\n"
    "  --once            one look, as text, as wide as COLUMNS says (default 80)\n"
    "  --json            the same as JSON, for scripts\n"
    "  --interval TIME   between two looks (default 1s)\n"
    "  --keys N          of each rule, in JSON (default 10)\n"
    "  --rules PATH      a rule file or a folder of them\n"
    "\n"
    "Keys: q quit; o hosts instead of rules, and back; j and k, or the arrows, choose the rule whose keys are\n"
    "shown; h denied, admitted, near their limit; n a d e y s sort by name, allowed, denied, shed, delayed and\n"
    "share, hosts also l by load level and t by when they were seen; space holds still.\n"
    "\n"
    "Exits with 0, 1 if there is nothing to look at, 2 for a wrong command line.\n";

static int wrong(const char *what)
{
    fprintf(stderr, "weir top: %s\n%s", what, usage);
    return 2;
}

int weir__cmd_top(int argc, char **argv)
{
    enum { ONCE, JSON, INTERVAL, KEYS, RULES, HELP };
    static const struct weir__option options[] = {{"once", 0, false}, {"json", 0, false}, {"interval", 'i', true},
                                                  {"keys", 0, true},  {"rules", 0, true}, {"help", 'h', false}};
    struct weir__args args = {"top", options, sizeof options / sizeof *options, argv, argc, 1, 0, false, NULL};
    struct weir__findings findings = {.to = stderr};
    struct weir__top_options how = {.interval_ms = 1000, .keys = 10};
    int64_t ns = WEIR_SECOND;
    int option;
    while ((option = weir__args_next(&args)) != WEIR__ARG_END) {
        if (option == WEIR__ARG_BAD)
            return 2;
        if (option == HELP) {
            fputs(usage, stdout);
            return 0;
        }
        if (option == WEIR__ARG_WORD && how.what)
            return wrong("one file or segment");
        if (option == INTERVAL &&
            (!weir__parse_duration(weir__text_of(args.value), 3600 * WEIR_SECOND, &ns) || ns < WEIR_SECOND / 10))
            return wrong("--interval is a time from 100ms to 1h");
        if (option == KEYS && !weir__read_int(args.value, 1, 256, &how.keys))
            return wrong("--keys is a number from 1 to 256");
        how.once |= option == ONCE;
        how.json |= option == JSON;
        if (option == RULES)
            how.rules = args.value;
        if (option == WEIR__ARG_WORD)
            how.what = args.value;
    }
    if (how.json && !how.once)
        return wrong("--json needs --once");
    how.interval_ms = ns / 1000000;
    how.what = how.what ? how.what : "weir.yaml";
    return weir__top_run(&how, weir__find_errors, &findings);
}
