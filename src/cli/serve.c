/* weir serve and weir agent: their command lines. */
#include "serve/serve.h"
#include "cli/cli.h"
#include "cli/diagnose.h"

#include <string.h>

int weir__cmd_serve(struct weir__given *given)
{
    struct weir__findings findings = {.to = stderr};
    bool check = weir__option(given, "check"), print = weir__option(given, "print-nginx");
    bool demo = weir__option(given, "demo");
    const char *wrong = NULL;
    if (check + print + demo > 1)
        wrong = "one of --check, --print-nginx and --demo";
    else if (!demo && (weir__option(given, "port") || weir__option(given, "traffic")))
        wrong = "--port and --traffic are for --demo";
    else if (demo && given->argument_count)
        wrong = "--demo has a weir.yaml of its own";
    if (wrong) {
        fprintf(stderr, "weir serve: %s\n", wrong);
        weir__help(stderr, "serve");
        return 2;
    }
    if (demo)
        return weir__serve_demo(given);
    const char *takeover = weir__option(given, "takeover");
    if (takeover && strcmp(takeover, WEIR__TAKEOVER_FORMAT) != 0) {
        fprintf(stderr, "weir serve: this version cannot take over from the one that runs; restart it\n");
        return 2;
    }
    enum weir__serve_mode mode = check ? WEIR__SERVE_CHECK : print ? WEIR__SERVE_PRINT : WEIR__SERVE_RUN;
    return weir__serve(weir__argument(given, "weir.yaml"), mode, weir__add_finding, &findings);
}

int weir__cmd_agent(struct weir__given *given)
{
    struct weir__findings findings = {.to = stderr};
    return weir__agent(weir__argument(given, "weir.yaml"), weir__option(given, "once"), weir__add_finding, &findings);
}
