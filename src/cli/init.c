/* weir init: a weir.yaml to begin with. */
#include "serve/serve.h"
#include "cli/cli.h"
#include "cli/options.h"

#include <stdio.h>

static const char usage[] = "usage: weir init [--force] [FILE]\n"
                            "Writes a starter FILE (default: weir.yaml) with comments, for weir serve.\n"
                            "\n"
                            "  --force   replace a file that is there\n";

int weir__cmd_init(int argc, char **argv)
{
    enum { FORCE, HELP };
    static const struct weir__option options[] = {{"force", 'f', false}, {"help", 'h', false}};
    struct weir__args args = {"init", options, sizeof options / sizeof *options, argv, argc, 1, 0, false, NULL};
    const char *file = NULL;
    bool force = false;
    int option;
    while ((option = weir__args_next(&args)) != WEIR__ARG_END) {
        if (option == WEIR__ARG_BAD)
            return 2;
        if (option == HELP) {
            fputs(usage, stdout);
            return 0;
        }
        force |= option == FORCE;
        if (option == WEIR__ARG_WORD && file) {
            fprintf(stderr, "weir init: one file\n%s", usage);
            return 2;
        }
        if (option == WEIR__ARG_WORD)
            file = args.value;
    }
    return weir__init(file ? file : "weir.yaml", force);
}
