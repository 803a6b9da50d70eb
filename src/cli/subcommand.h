/* Commands with subcommands: weir rules, weir token, weir queue. They are clients of the rules service. */
#ifndef WEIR_CLI_SUBCOMMAND_H
#define WEIR_CLI_SUBCOMMAND_H

#include "cli/service.h"
#include "cli/text.h"

/* All options. The first ones select the service, and are options of every subcommand. */
#define WEIR__SERVICE_OPTIONS(X)                                                                                       \
    X(URL, "url", true)                                                                                                \
    X(TOKEN, "token", true)                                                                                            \
    X(TOKEN_FILE, "token-file", true)                                                                                  \
    X(CA, "ca", true)                                                                                                  \
    X(DB, "db", true)                                                                                                  \
    X(FILE, "file", true)                                                                                              \
    X(JSON, "json", false)
#define WEIR__OWN_OPTIONS(X)                                                                                           \
    X(STAGE, "stage", true)                                                                                            \
    X(KIND, "kind", true)                                                                                              \
    X(SEARCH, "search", true)                                                                                          \
    X(VERSION, "version", true)                                                                                        \
    X(FROM, "from", true)                                                                                              \
    X(TO, "to", true)                                                                                                  \
    X(REVISION, "revision", true)                                                                                      \
    X(REASON, "reason", true)                                                                                          \
    X(DRY_RUN, "dry-run", false)                                                                                       \
    X(PRUNE, "prune", false)                                                                                           \
    X(PUBLISH, "publish", true)                                                                                        \
    X(ROLE, "role", true)                                                                                              \
    X(EXPIRES, "expires", true)                                                                                        \
    X(STATE, "state", true)                                                                                            \
    X(RULE, "rule", true)                                                                                              \
    X(LIMIT, "limit", true)                                                                                            \
    X(ALL, "all", false)

enum weir__with {
#define WEIR__WITH_ENUM(name, word, value) WEIR__WITH_##name,
    WEIR__SERVICE_OPTIONS(WEIR__WITH_ENUM) WEIR__OWN_OPTIONS(WEIR__WITH_ENUM)
#undef WEIR__WITH_ENUM
        WEIR__WITH_COUNT
};

#define WEIR__WITH(name) (UINT32_C(1) << WEIR__WITH_##name)

/* A command line, read. */
struct weir__command_line {
    const char *command; /* "rules apply" */
    const char *value[WEIR__WITH_COUNT];
    bool is[WEIR__WITH_COUNT];
    const char **arguments;
    size_t argument_count;
    bool json;
    struct weir__service *service;
};

struct weir__subcommand {
    const char *name;
    uint32_t options; /* WEIR__WITH(…) besides the service's */
    size_t least, most;
    const char *lacks; /* the message if there are too few arguments */
    int (*run)(struct weir__command_line *given);
    const char *help;
};

/* Finds the subcommand, reads its options, opens the service and runs it. Returns the exit code. */
int weir__subcommand_run(const char *command, const char *help, const struct weir__subcommand *list, size_t count,
                         int argc, char **argv);

/* A version or revision; 0 if the option is not given, -1 after an error was printed. */
int64_t weir__given_number(const struct weir__command_line *given, enum weir__with option);

/* Requests to the service. False after an error was printed; free the reply either way. */
bool weir__given_get(const struct weir__command_line *given, const char *path, const char *about,
                     struct weir__service_reply *reply);
/* Sends a body of JSON, which it takes over. */
bool weir__given_post(const struct weir__command_line *given, const char *path, json_t *body, const char *about,
                      struct weir__service_reply *reply);
/* The list in a reply's `items`; NULL after an error was printed. */
json_t *weir__service_reply_items(const struct weir__command_line *given, const struct weir__service_reply *reply);
/* All pages of a list; NULL after an error was printed. */
json_t *weir__given_list(const struct weir__command_line *given, const char *path);
/* Prints a value as one line of JSON, and takes it over. False after an error. */
bool weir__print_json(json_t *value);

/* Members of an object as text; "" if there is none. `buffer` has 32 bytes. */
const char *weir__member(const json_t *object, const char *name);
const char *weir__member_number(const json_t *object, const char *name, char *buffer);
/* "2026-11-15 10:15" */
const char *weir__member_time(const json_t *object, const char *name, char *buffer);

/* A column of a table of objects. */
struct weir__item_column {
    struct weir__column column;
    const char *member;
    /* Formats the member into a buffer of WEIR__ITEM_CELL bytes, or returns another text. NULL: the member is text. */
    const char *(*format)(const json_t *item, const char *member, char *buffer);
};
enum { WEIR__ITEM_CELL = 256 };
/* Prints a table of objects, or the line `none` if there are none. */
void weir__print_items(const json_t *items, const struct weir__item_column *columns, size_t count, const char *none);

#define WEIR__SERVICE_HELP                                                                                             \
    "\n"                                                                                                               \
    "Which rules service:\n"                                                                                           \
    "  --url URL            https://host:9091, also by WEIR_URL; with --ca FILE, and\n"                                \
    "                       --token-file FILE or WEIR_TOKEN\n"                                                         \
    "  --db sqlite:/PATH    its database, or postgresql://…: no token; a user who\n"                                 \
    "                       may open it is an operator\n"                                                              \
    "  --file weir.yaml     the database that this file names; weir.yaml is used\n"                                    \
    "                       without any of these\n"                                                                    \
    "  --json               for scripts\n"                                                                             \
    "\n"                                                                                                               \
    "Exits with 0, 1 if a request was refused or failed, 2 for a wrong command line.\n"

#endif
