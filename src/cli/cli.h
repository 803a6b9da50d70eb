/* The subcommands of weir, and what they share: the command line, numbers and times in it. */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include "base/buffer.h"

#include <stdio.h>
#include <weir/weir.h>

/* Each takes argv with its own name first and returns the exit code. */
int weir__cmd_agent(int argc, char **argv);
int weir__cmd_advise(int argc, char **argv);
int weir__cmd_check(int argc, char **argv);
int weir__cmd_convert(int argc, char **argv);
int weir__cmd_demo(int argc, char **argv);
int weir__cmd_dump(int argc, char **argv);
int weir__cmd_init(int argc, char **argv);
int weir__cmd_lint(int argc, char **argv);
int weir__cmd_queue(int argc, char **argv);
int weir__cmd_rules(int argc, char **argv);
int weir__cmd_serve(int argc, char **argv);
int weir__cmd_token(int argc, char **argv);
int weir__cmd_top(int argc, char **argv);

/* Returns `memory`. If it is NULL, prints "weir: out of memory" and exits with 1. */
void *weir__must(void *memory);
/* Makes room for one more element in an array of `count` elements. Returns the array. */
void *weir__grow(void *list, size_t count, size_t element_bytes);
/* The text in a buffer; "" if there is none. Exits like weir__must if the buffer had no memory. */
const char *weir__buffer_text(const struct weir__buffer *buffer);
/* Flushes standard output. Returns `code`, or 1 after a report if that fails. */
int weir__flush(int code);

/* An option, with where it goes: one of flag, value and take. */
struct weir__option {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    bool *flag;
    const char **value;                             /* if it is given several times, the last value */
    bool (*take)(void *context, const char *value); /* false: it reported an error */
};

struct weir__args {
    const char *command; /* for messages: "check" */
    const char *usage;
    const struct weir__option *options; /* --help and -h are known without being listed */
    size_t option_count;
    const char **arguments; /* those that are not options */
    size_t arguments_max, argument_count;
    void *context; /* of `take` */
};

/* Reads a command line. -1: go on; else the exit code, after an error was printed, or the usage for --help. */
int weir__args_read(struct weir__args *args, int argc, char **argv);
/* Reads the command line of a command with at most one argument, which replaces *word. */
int weir__args_read_word(const char *command, const char *usage, const struct weir__option *options,
                         size_t option_count, const char **word, int argc, char **argv);

/* Each returns true if all of the text is such a value, and only then sets it. */
bool weir__read_int(const char *text, int64_t min, int64_t max, int64_t *value);
/* Seconds since 1970, or ISO 8601 ("2026-01-02", "2026-01-02T03:04:05.5+01:00"; UTC without an offset). Up to 2199. */
bool weir__read_time(const char *text, int64_t *ns);

#endif
