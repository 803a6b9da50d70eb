/* Options and values of the command line. What is wrong is said on standard error, with what was perhaps meant. */
#ifndef WEIR_CLI_OPTIONS_H
#define WEIR_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weir__option {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    bool has_value;
};

enum { WEIR__ARG_END = -1, WEIR__ARG_WORD = -2, WEIR__ARG_BAD = -3 };

/* A walk over argv. Set the first four; `at` begins at 1. */
struct weir__args {
    const char *command; /* for messages: "check" */
    const struct weir__option *options;
    size_t option_count;
    char **argv;
    int argc, at;
    int letter_at;     /* within a group of letters, "-ab"; 0: none */
    bool no_options;   /* "--" has been seen */
    const char *value; /* of the option, or the word */
};

/* The index of the next option, or one of WEIR__ARG_…; BAD has been said on standard error. */
int weir__args_next(struct weir__args *args);

/* Each is true if all of the text is such a value, and only then sets it. */
bool weir__read_int(const char *text, int64_t min, int64_t max, int64_t *value);
/* Seconds since 1970, or ISO 8601 ("2026-01-02", "2026-01-02T03:04:05.5+01:00"; UTC unless it says). Up to 2199. */
bool weir__read_time(const char *text, int64_t *ns);

#endif
