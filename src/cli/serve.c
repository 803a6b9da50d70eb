/* weir serve: the gateway in one command. */
#include "serve/serve.h"
#include "cli/cli.h"
#include "cli/diagnose.h"
#include "cli/options.h"

static const char usage[] =
    "usage: weir serve [--check | --print-nginx] [FILE]\n"
    "Runs the gateway that FILE (default: weir.yaml) describes: writes an nginx configuration into a\n"
    "private folder, starts nginx with it, and looks after it. docs/serve.md describes the file, and\n"
    "weir init writes one to begin with.\n"
    "\n"
    "  --check         only say whether it would run\n"
    "  --print-nginx   only show the nginx configuration\n"
    "\n"
    "SIGHUP or a changed FILE reloads; a broken one is reported, and what ran before goes on. SIGTERM and\n"
    "SIGINT (Ctrl-C) stop: requests under way may end, a second one ends them at once.\n"
    "WEIR_NGINX is the nginx to use, WEIR_MODULES the folder of ngx_http_weir_module.so.\n"
    "\n"
    "Exits with 0 after a stop, 1 if FILE is bad or nginx ends, 2 for a wrong command line.\n";

int weir__cmd_serve(int argc, char **argv)
{
    enum { CHECK, PRINT, HELP };
    static const struct weir__option options[] = {{"check", 0, false}, {"print-nginx", 0, false}, {"help", 'h', false}};
    struct weir__args args = {"serve", options, sizeof options / sizeof *options, argv, argc, 1, 0, false, NULL};
    struct weir__findings findings = {.to = stderr};
    const char *file = NULL;
    enum weir__serve_mode mode = WEIR__SERVE_RUN;
    int option;
    while ((option = weir__args_next(&args)) != WEIR__ARG_END) {
        enum weir__serve_mode wanted = option == CHECK ? WEIR__SERVE_CHECK : option == PRINT ? WEIR__SERVE_PRINT : mode;
        if (option == WEIR__ARG_BAD)
            return 2;
        if (option == HELP) {
            fputs(usage, stdout);
            return 0;
        }
        if ((option == WEIR__ARG_WORD && file) || (mode != WEIR__SERVE_RUN && wanted != mode)) {
            fprintf(stderr, "weir serve: one file, and one of --check and --print-nginx\n%s", usage);
            return 2;
        }
        mode = wanted;
        if (option == WEIR__ARG_WORD)
            file = args.value;
    }
    return weir__serve(file ? file : "weir.yaml", mode, weir__add_finding, &findings);
}
