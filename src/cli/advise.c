/* weir advise: what the figures say about the rules. */
#include "stats/stats.h"
#include "cli/cli.h"
#include "cli/diagnose.h"
#include "cli/options.h"

static const char usage[] =
    "usage: weir advise [--json] [--rule NAME] [--rules PATH] [FILE|SEGMENT]\n"
    "Says which rules are too strict, too loose or of the wrong algorithm, with the figures that say so\n"
    "and the changed rule, ready to be tried in shadow. FILE is a weir.yaml (the default), SEGMENT the\n"
    "path of a segment; then --rules says which rules are meant. Needs the history that weir agent writes,\n"
    "and hot_keys. Says nothing about a rule when the figures say nothing: docs/statistics.md has the bounds.\n"
    "\n"
    "  --json         as JSON\n"
    "  --rule NAME    about this rule alone\n"
    "  --rules PATH   a rule file or a folder of them\n"
    "\n"
    "Exits with 0, with advice or without, 1 if there is nothing to look at, 2 for a wrong command line.\n";

int weir__cmd_advise(int argc, char **argv)
{
    enum { JSON, RULE, RULES, HELP };
    static const struct weir__option options[] = {
        {"json", 0, false}, {"rule", 0, true}, {"rules", 0, true}, {"help", 'h', false}};
    struct weir__args args = {"advise", options, sizeof options / sizeof *options, argv, argc, 1, 0, false, NULL};
    struct weir__findings findings = {.to = stderr};
    struct weir__advise_options how = {0};
    int option;
    while ((option = weir__args_next(&args)) != WEIR__ARG_END) {
        if (option == WEIR__ARG_BAD)
            return 2;
        if (option == HELP) {
            fputs(usage, stdout);
            return 0;
        }
        if (option == WEIR__ARG_WORD && how.what) {
            fprintf(stderr, "weir advise: one file or segment\n%s", usage);
            return 2;
        }
        how.json |= option == JSON;
        if (option == RULE)
            how.rule = args.value;
        if (option == RULES)
            how.rules = args.value;
        if (option == WEIR__ARG_WORD)
            how.what = args.value;
    }
    how.what = how.what ? how.what : "weir.yaml";
    return weir__advise_run(&how, weir__find_errors, &findings);
}
