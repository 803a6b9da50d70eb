/* The weir command: which commands there are, and finding the one that is meant. */
#include "cli/cli.h"
#include "cli/service.h"

#include <stdlib.h>
#include <string.h>

static int cmd_help(struct weir__given *given);

static int cmd_version(struct weir__given *given)
{
    (void)given;
    printf("weir %s\n", weir_version());
    return 0;
}

/* Options that select the rules service. */
#define SERVICE "url= token= token-file= ca= db= file= json "

/* Commands with a blank in their name are clients of the rules service, except those of `segment`. */
static const struct weir__cli_command commands[] = {
    {"init", "force,f", 0, 1, NULL, weir__cmd_init},
    {"serve", "check takeover= print-nginx demo traffic port=", 0, 1, NULL, weir__cmd_serve},
    {"agent", "once", 0, 1, NULL, weir__cmd_agent},
    {"doctor", "json", 0, 1, NULL, weir__cmd_doctor},
    {"top", "once json interval,i= keys= rules= host= this-host", 0, 1, NULL, weir__cmd_top},
    {"advise", "json rule= rules=", 0, 1, NULL, weir__cmd_advise},
    {"why", "since= segment,s= rules,r= json host= this-host", 0, 1, NULL, weir__cmd_why},
    {"demo", "", 0, 0, NULL, weir__cmd_demo},
    {"lint", "json strict all,a", 0, SIZE_MAX, NULL, weir__cmd_lint},
    {"check",
     "rules,r= segment,s= domain,d= at= repeat,n= every= cost= hits= ip,i= header,H= attribute,A= take json exit-code "
     "all,a",
     0, SIZE_MAX, NULL, weir__cmd_check},
    {"convert", "from=", 1, SIZE_MAX, "which file?", weir__cmd_convert},
    {"rules list", SERVICE "stage= kind= search=", 0, 0, NULL, weir__cmd_rules_list},
    {"rules get", SERVICE "version=", 1, 1, "which document?", weir__cmd_rules_get},
    {"rules apply", SERVICE "dry-run exit-code prune publish= reason=", 1, 1, "which file or directory?",
     weir__cmd_rules_apply},
    {"rules import", SERVICE "reason=", 0, 1, NULL, weir__cmd_rules_import},
    {"rules diff", SERVICE "from= to=", 1, 1, "which document?", weir__cmd_rules_diff},
    {"rules publish", SERVICE "stage= version= reason=", 1, SIZE_MAX, "which document?", weir__cmd_rules_publish},
    {"rules rollback", SERVICE "to= revision= publish= reason=", 0, 1, NULL, weir__cmd_rules_rollback},
    {"rules history", SERVICE, 0, 1, NULL, weir__cmd_rules_history},
    {"rules validate", SERVICE, 1, 1, "which file or directory?", weir__cmd_rules_validate},
    {"token create", SERVICE "role= expires=", 1, 1, "for whom?", weir__cmd_token_create},
    {"token link", SERVICE "role=", 1, 1, "for whom?", weir__cmd_token_link},
    {"token list", SERVICE, 0, 0, NULL, weir__cmd_token_list},
    {"token revoke", SERVICE, 1, 1, "which? 'weir token list' shows the ID", weir__cmd_token_revoke},
    {"queue stats", SERVICE, 0, 0, NULL, weir__cmd_queue_stats},
    {"queue list", SERVICE "state= rule= limit=", 0, 0, NULL, weir__cmd_queue_list},
    {"queue get", SERVICE, 1, 1, "which ticket?", weir__cmd_queue_get},
    {"queue cancel", SERVICE "all state= rule=", 0, SIZE_MAX, NULL, weir__cmd_queue_cancel},
    {"queue requeue", SERVICE "all rule=", 0, SIZE_MAX, NULL, weir__cmd_queue_requeue},
    {"key show", SERVICE "rule=", 1, 1, "which key?", weir__cmd_key_show},
    {"key list", SERVICE, 0, 0, NULL, weir__cmd_key_list},
    {"key block", SERVICE "rule= for= reason= all-hosts", 1, 1, "which key?", weir__cmd_key_block},
    {"key unblock", SERVICE "rule= reason= all-hosts", 1, 1, "which key?", weir__cmd_key_unblock},
    {"key reset", SERVICE "rule= reason= all-hosts", 1, 1, "which key?", weir__cmd_key_reset},
    {"key take", SERVICE "rule= cost= reason=", 1, 1, "which key?", weir__cmd_key_take},
    {"dump", "json all", 1, 1, NULL, weir__cmd_dump},
    {"segment convert", "quiet,q", 0, 1, NULL, weir__cmd_segment_convert},
    {"segment resize", "json", 1, 2, "to which size?", weir__cmd_segment_resize},
    {"version", NULL, 0, 0, NULL, cmd_version},
    {"help", NULL, 0, 0, NULL, cmd_help},
};

enum { COMMANDS = sizeof commands / sizeof *commands, WRONG = 2 };

/* The command that other programs call `name`, or NULL. */
static const char *called_here(const char *name)
{
    static const char *const others[][2] = {{"explain", "check"},   {"simulate", "check"}, {"test", "check"},
                                            {"validate", "lint"},   {"status", "top"},     {"stats", "top"},
                                            {"start", "serve"},     {"run", "serve"},      {"import", "convert"},
                                            {"block", "key block"}, {"ban", "key block"},  {"unblock", "key unblock"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i][0]) == 0)
            return others[i][1];
    return NULL;
}

/*
 * Finds the command `name`, or the first one of that group; with a group, the command of that group. NULL after an
 * error was printed.
 */
static const struct weir__cli_command *find(const char *group, const char *name)
{
    const char *names[COMMANDS];
    size_t count = 0, skip = *group ? strlen(group) + 1 : 0;
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strncmp(commands[i].name, group, strlen(group)) != 0)
            continue;
        const char *word = commands[i].name + skip;
        names[count] = weir__format("%.*s", (int)strcspn(word, " "), word);
        if (strcmp(names[count++], name) == 0)
            return &commands[i];
    }
    const char *likely = *group ? NULL : called_here(name);
    if (!likely)
        likely = weir__suggest(weir__text_of(name), names, count);
    fprintf(stderr, "weir%s%s: no command '%s'", *group ? " " : "", group, name);
    if (!*group && strcmp(name, "reload") == 0)
        fprintf(stderr, ": weir serve takes up a changed file by itself, and again after SIGHUP\n");
    else if (likely)
        fprintf(stderr, "; did you mean '%s'?\n", likely);
    else
        fprintf(stderr, *group ? "; 'weir %s --help' lists them\n" : "; 'weir help' lists them\n", group);
    return NULL;
}

/* Reads the command line, opens the rules service for its clients, and runs the command. Returns the exit code. */
static int run(const struct weir__cli_command *command, char **argv)
{
    size_t count = 0;
    while (argv[count])
        count++;
    struct weir__given given = {.command = command->name,
                                .arguments = weir__must(calloc(count + 1, sizeof *given.arguments))};
    int code = weir__read_options(&given, command, argv);
    if (code < 0 && strchr(command->name, ' ') && strncmp(command->name, "segment ", 8) != 0)
        given.service = weir__service_open(&given, &code);
    if (code < 0)
        code = command->run(&given);
    weir__service_close(given.service);
    free(given.options);
    free(given.arguments);
    return code;
}

/* Runs the command that argv[0] names, of a group or "". Returns the exit code. */
static int run_named(const char *group, char **argv)
{
    const struct weir__cli_command *command = find(group, argv[0]);
    if (!command)
        return WRONG;
    if (!command->options)
        return command->run(&(struct weir__given){.arguments = (const char **)(void *)(argv + 1)});
    if (*group || !strchr(command->name, ' '))
        return run(command, argv + 1);
    if (!argv[1]) {
        fprintf(stderr, "weir %s: which command?\n", argv[0]);
        weir__help(stderr, argv[0]);
        return WRONG;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        weir__help(stdout, argv[0]);
        return 0;
    }
    return run_named(argv[0], argv + 1);
}

/* `weir help COMMAND` is `weir COMMAND --help`. */
static int cmd_help(struct weir__given *given)
{
    char option[] = "--help";
    const char *name = given->arguments[0];
    char *line[] = {(char *)(uintptr_t)name, option, NULL};
    if (name && name[0] != '-' && strcmp(name, "help") != 0)
        return run_named("", line);
    weir__help(stdout, "help");
    return 0;
}

/* Flushes standard output. Returns `code`, or 1 after a report if that fails. */
static int flush(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    perror("weir: standard output");
    return 1;
}

int main(int argc, char **argv)
{
    static char help[] = "help", version[] = "version";
    if (argc < 2) {
        weir__help(stderr, help);
        return WRONG;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        argv[1] = help;
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        argv[1] = version;
    return flush(run_named("", argv + 1));
}
