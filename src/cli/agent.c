/* weir agent: the exchange with the store, and the rules service. */
#include "serve/serve.h"
#include "cli/cli.h"
#include "cli/diagnose.h"
#include "cli/options.h"

static const char usage[] =
    "usage: weir agent [--once] [FILE]\n"
    "Tells the store that FILE (default: weir.yaml) names what this host lets pass under rules of\n"
    "consistency eventual, and applies what other hosts let pass (docs/store.md). It is the rules service\n"
    "with its dashboard, too (admin), takes rules from another host (rules: https://…), and records\n"
    "what weir top and weir advise show. weir serve runs it by itself; this is for an nginx or an\n"
    "application that others operate.\n"
    "\n"
    "  --once   one exchange with the store, and end\n"
    "\n"
    "Of FILE it needs segment, rules, and what it is to do: store, admin, hot_keys, queue. A changed FILE\n"
    "or SIGHUP reloads; a broken one is reported, and what ran before goes on. SIGTERM and SIGINT (Ctrl-C) end it\n"
    "after a last exchange. What could not be sent stays in the ledger beside the segment, for the next one.\n"
    "\n"
    "Exits with 0 after a stop, 1 if FILE is bad, another agent runs, or --once reaches no store, 2 for\n"
    "a wrong command line.\n";

int weir__cmd_agent(int argc, char **argv)
{
    enum { ONCE, HELP };
    static const struct weir__option options[] = {{"once", 0, false}, {"help", 'h', false}};
    struct weir__args args = {"agent", options, sizeof options / sizeof *options, argv, argc, 1, 0, false, NULL};
    struct weir__findings findings = {.to = stderr};
    const char *file = NULL;
    bool once = false;
    int option;
    while ((option = weir__args_next(&args)) != WEIR__ARG_END) {
        if (option == WEIR__ARG_BAD)
            return 2;
        if (option == HELP) {
            fputs(usage, stdout);
            return 0;
        }
        if (option == WEIR__ARG_WORD && file) {
            fprintf(stderr, "weir agent: one file\n%s", usage);
            return 2;
        }
        once |= option == ONCE;
        if (option == WEIR__ARG_WORD)
            file = args.value;
    }
    return weir__agent(file ? file : "weir.yaml", once, weir__add_finding, &findings);
}
