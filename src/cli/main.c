/* The weir command. */
#include "base/text.h"
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static int cmd_help(int argc, char **argv);

static int cmd_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("weir %s\n", weir_version());
    return 0;
}

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"init", weir__cmd_init, "write a starter weir.yaml: weir init [FILE]"},
    {"serve", weir__cmd_serve, "run gateway and service: weir serve [FILE]; --check, --print-nginx"},
    {"agent", weir__cmd_agent, "store exchange and rules service beside an nginx of your own: weir agent [FILE]"},
    {"top", weir__cmd_top, "watch a host: rates, rules, keys, store, hosts: weir top [FILE|SEGMENT]; --once, --json"},
    {"advise", weir__cmd_advise, "suggest changes to rules from statistics: weir advise [FILE|SEGMENT]; --json"},
    {"demo", weir__cmd_demo, "play a burst against each algorithm, drawn as a timeline"},
    {"lint", weir__cmd_lint, "check rules and list them: weir lint [FILE|DIR...]"},
    {"check", weir__cmd_check, "play a request against rules: weir check [--rules FILE] METHOD URL"},
    {"convert", weir__cmd_convert, "turn Envoy's descriptors or nginx's limit_req into rules: weir convert FILE..."},
    {"rules", weir__cmd_rules, "rules of a rules service: weir rules list|get|apply|diff|publish|rollback …"},
    {"token", weir__cmd_token, "tokens of a rules service: weir token create|list|revoke"},
    {"queue", weir__cmd_queue, "requests that wait for their limit: weir queue stats|list|get|cancel|requeue"},
    {"dump", weir__cmd_dump, "show what is in a segment: weir dump [--json] [--all] SEGMENT|FILE"},
    {"version", cmd_version, "print the version"},
    {"help", cmd_help, "print this, or what a command takes: weir help COMMAND"},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *to)
{
    fprintf(to, "weir: may this request pass now?\n\nusage: weir COMMAND [OPTIONS]\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].summary);
}

/* The command that other programs call `name`, or NULL. */
static const char *called_here(const char *name)
{
    static const char *const others[][2] = {{"explain", "check"}, {"simulate", "check"}, {"test", "check"},
                                            {"validate", "lint"}, {"status", "top"},     {"stats", "top"},
                                            {"start", "serve"},   {"run", "serve"},      {"import", "convert"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i][0]) == 0)
            return others[i][1];
    return NULL;
}

/* Runs a command by its name; returns 2 if there is none. */
static int run(const char *name, int argc, char **argv)
{
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc, argv);
        names[i] = commands[i].name;
    }
    const char *likely = called_here(name);
    if (!likely)
        likely = weir__suggest(weir__text_of(name), names, COMMANDS);
    fprintf(stderr, "weir: no command '%s'", name);
    if (strcmp(name, "reload") == 0)
        fprintf(stderr, ": weir serve takes up a changed file by itself, and again after SIGHUP\n");
    else if (likely)
        fprintf(stderr, "; did you mean '%s'?\n", likely);
    else
        fprintf(stderr, "; 'weir help' lists them\n");
    return 2;
}

/* `weir help COMMAND` is `weir COMMAND --help`. */
static int cmd_help(int argc, char **argv)
{
    char option[] = "--help";
    char *wanted[] = {argc > 1 ? argv[1] : NULL, option, NULL};
    if (argc > 1 && argv[1][0] != '-' && strcmp(argv[1], "help") != 0)
        return run(argv[1], 2, wanted);
    usage(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    return run(name, argc - 1, argv + 1);
}
