/* weir serve and weir agent: their command lines. */
#include "serve/serve.h"
#include "cli/cli.h"
#include "cli/diagnose.h"

static const char serve_usage[] =
    "usage: weir serve [--check | --print-nginx] [FILE]\n"
    "Runs the gateway that FILE (default: weir.yaml) describes: writes an nginx configuration into a\n"
    "runtime directory, starts nginx with it, and supervises it. docs/serve.md describes FILE; weir init\n"
    "writes a starter.\n"
    "\n"
    "  --check         only check whether it would run\n"
    "  --print-nginx   only print the nginx configuration\n"
    "\n"
    "SIGHUP or a changed FILE reloads; an invalid FILE is reported, and the configuration before it stays\n"
    "active. SIGTERM and SIGINT (Ctrl-C) stop after the requests in flight have ended; a second signal stops\n"
    "at once.\n"
    "WEIR_NGINX is the nginx to use, WEIR_MODULES the folder of ngx_http_weir_module.so.\n"
    "\n"
    "Exits with 0 after a stop, 1 if FILE is bad or nginx ends, 2 for a wrong command line.\n";

int weir__cmd_serve(int argc, char **argv)
{
    bool check = false, print = false;
    const struct weir__option options[] = {{"check", .flag = &check}, {"print-nginx", .flag = &print}};
    struct weir__findings findings = {.to = stderr};
    const char *file = "weir.yaml";
    int code = weir__args_read_word("serve", serve_usage, options, 2, &file, argc, argv);
    if (code >= 0)
        return code;
    if (check && print) {
        fprintf(stderr, "weir serve: one of --check and --print-nginx\n%s", serve_usage);
        return 2;
    }
    enum weir__serve_mode mode = check ? WEIR__SERVE_CHECK : print ? WEIR__SERVE_PRINT : WEIR__SERVE_RUN;
    return weir__serve(file, mode, weir__add_finding, &findings);
}

static const char agent_usage[] =
    "usage: weir agent [--once] [FILE]\n"
    "Sends what this host admits under rules of consistency eventual to the store that FILE (default:\n"
    "weir.yaml) names, and applies what other hosts admit (docs/store.md). It also runs the rules service\n"
    "with its dashboard (admin), takes rules from another host (rules: https://…), and records the data\n"
    "of weir top and weir advise. weir serve runs an agent itself; this command is for an nginx or an\n"
    "application that is operated separately.\n"
    "\n"
    "  --once   exchange with the store once, and exit\n"
    "\n"
    "FILE needs segment, rules, and the agent's tasks: store, admin, hot_keys, queue. A changed FILE or\n"
    "SIGHUP reloads; an invalid FILE is reported, and the configuration before it stays active. SIGTERM and\n"
    "SIGINT (Ctrl-C) stop the agent after a last exchange. Data that could not be sent stays in the ledger beside the "
    "segment\n"
    "for the next agent.\n"
    "\n"
    "Exits with 0 after a stop, 1 if FILE is bad, another agent runs, or --once reaches no store, 2 for\n"
    "a wrong command line.\n";

int weir__cmd_agent(int argc, char **argv)
{
    bool once = false;
    const struct weir__option options[] = {{"once", .flag = &once}};
    struct weir__findings findings = {.to = stderr};
    const char *file = "weir.yaml";
    int code = weir__args_read_word("agent", agent_usage, options, 1, &file, argc, argv);
    return code >= 0 ? code : weir__agent(file, once, weir__add_finding, &findings);
}
