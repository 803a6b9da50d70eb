/* The weir command: its subcommands, their command lines, and memory that lives as long as the command. */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include "base/buffer.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <weir/weir.h>

/* ---- The command line ---- */

/* A command line, read. */
struct weir__given {
    const char *command; /* for messages: "check", "rules apply" */
    struct weir__given_option {
        weir_text name;
        const char *value; /* "" for a flag */
    } * options;           /* in the order in which they were given */
    size_t option_count;
    const char **arguments; /* those that are not options */
    size_t argument_count;
    bool json;                     /* --json */
    struct weir__service *service; /* of weir rules, weir token and weir queue; else NULL */
};

/* Runs a command. Returns the exit code. */
typedef int weir__cli_run(struct weir__given *given);

struct weir__cli_command {
    const char *name;
    /* "rules,r= json": the name, perhaps a letter, '=' if it takes a value. NULL: the command reads its arguments. */
    const char *options;
    size_t least, most; /* arguments */
    const char *lacks;  /* the message if there are too few; NULL: only the help text */
    weir__cli_run *run;
};

/* Reads a command line. -1: go on; else the exit code, after an error was printed, or the help text for --help. */
int weir__read_options(struct weir__given *given, const struct weir__cli_command *command, char **argv);
/* The value of an option; of several, the last. NULL: it is not given. */
const char *weir__option(const struct weir__given *given, const char *name);
/* The value of an option that is a number of at least 1; 0 if it is not given, -1 after an error was printed. */
int64_t weir__option_number(const struct weir__given *given, const char *name);
/* The first argument, or `otherwise`. */
const char *weir__argument(const struct weir__given *given, const char *otherwise);
/* Prints a help text of help.txt. */
void weir__help(FILE *to, const char *name);

/* Each returns true if all of the text is such a value, and only then sets it. */
bool weir__read_int(const char *text, int64_t min, int64_t max, int64_t *value);
/* Seconds since 1970, or ISO 8601 ("2026-01-02", "2026-01-02T03:04:05.5+01:00"; UTC without an offset). Up to 2199. */
bool weir__read_time(const char *text, int64_t *ns);

weir__cli_run weir__cmd_agent, weir__cmd_advise, weir__cmd_check, weir__cmd_convert, weir__cmd_demo, weir__cmd_doctor,
    weir__cmd_dump, weir__cmd_init, weir__cmd_lint, weir__cmd_serve, weir__serve_demo, weir__cmd_top, weir__cmd_why,
    weir__cmd_rules_list, weir__cmd_rules_get, weir__cmd_rules_diff, weir__cmd_rules_history, weir__cmd_rules_publish,
    weir__cmd_rules_rollback, weir__cmd_rules_validate, weir__cmd_rules_apply, weir__cmd_rules_import,
    weir__cmd_token_create, weir__cmd_token_link, weir__cmd_token_list, weir__cmd_token_revoke, weir__cmd_key_show,
    weir__cmd_key_list, weir__cmd_key_block, weir__cmd_key_unblock, weir__cmd_key_reset, weir__cmd_key_take,
    weir__cmd_queue_stats, weir__cmd_queue_list, weir__cmd_queue_get, weir__cmd_queue_cancel, weir__cmd_queue_requeue,
    weir__cmd_segment_convert, weir__cmd_segment_resize;

/* ---- Memory ---- */

/* Returns `memory`. If it is NULL, prints "weir: out of memory" and exits with 1. */
void *weir__must(void *memory);
/* Makes room for one more element in an array of `count` elements. Returns the array. */
void *weir__grow(void *list, size_t count, size_t element_bytes);
/* Keeps memory from malloc until the command ends. Returns it; exits like weir__must. */
void *weir__keep(void *memory);
/* Formatted text that is kept until the command ends. */
char *weir__format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Formats a kept text from the arguments of a function like printf. */
char *weir__vformat(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));
/* Makes the text in a buffer, "" if there is none, kept text, and empties the buffer. */
char *weir__buffer_keep(struct weir__buffer *buffer);
/* The text in a buffer; "" if there is none. Exits like weir__must if the buffer had no memory. */
const char *weir__buffer_text(const struct weir__buffer *buffer);

#endif
