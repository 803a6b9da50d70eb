/* Commands with subcommands: weir rules, weir token, weir queue. All use the rules service. */
#ifndef WEIR_CLI_SUBCOMMAND_H
#define WEIR_CLI_SUBCOMMAND_H

#include "cli/service.h"

/* Every option there is. The first ones say where the service is, and go with all. */
#define WEIR__SERVICE_OPTIONS(X)                                                                                       \
    X(URL, "url", true)                                                                                                \
    X(TOKEN, "token", true)                                                                                            \
    X(TOKEN_FILE, "token-file", true)                                                                                  \
    X(CA, "ca", true)                                                                                                  \
    X(DB, "db", true)                                                                                                  \
    X(FILE, "file", true)                                                                                              \
    X(JSON, "json", false)                                                                                             \
    X(HELP, "help", false)
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
    char **arguments;
    size_t argument_count;
    bool json;
    struct weir__service *service;
};

struct weir__subcommand {
    const char *name;
    uint32_t options; /* WEIR__WITH(…) besides the service's */
    size_t least, most;
    const char *lacks; /* what to ask for if there are too few words */
    int (*run)(struct weir__command_line *given);
    const char *help;
};

/* Finds the subcommand, reads its options, opens the service and runs it. The exit code. */
int weir__subcommand_run(const char *command, const char *help, const struct weir__subcommand *list, size_t count,
                         int argc, char **argv);

/* A version or revision of an option; 0 if it is not given, -1 after it was said that it is none. */
int64_t weir__given_number(const struct weir__command_line *given, enum weir__with option);

/* Asks without a body. False: told. */
bool weir__given_get(const struct weir__command_line *given, const char *path, const char *about,
                     struct weir__service_reply *reply);
/* Asks with a body of JSON, which it takes over. False: told. */
bool weir__given_post(const struct weir__command_line *given, const char *path, json_t *body, const char *about,
                      struct weir__service_reply *reply);
/* The list that an answer has as `items`; NULL after it was said that there is none. */
json_t *weir__service_reply_items(const struct weir__command_line *given, const struct weir__service_reply *reply);
/* All pages of a list. NULL: told. */
json_t *weir__given_list(const struct weir__command_line *given, const char *path);
/* A value as one line of JSON on standard output. The exit code. */
int weir__print_json(const json_t *value);

/* Members of an object as text: "" if it is not there. `buffer` has 32 bytes. */
const char *weir__member(const json_t *object, const char *name);
const char *weir__member_number(const json_t *object, const char *name, char *buffer);
/* "2026-11-15 10:15" of a time as the service writes it. */
const char *weir__member_time(const json_t *object, const char *name, char *buffer);

#define WEIR__SERVICE_HELP                                                                                             \
    "\n"                                                                                                               \
    "Which rules service:\n"                                                                                           \
    "  --url URL            https://host:9091, also by WEIR_URL; with --ca FILE, and\n"                                \
    "                       --token-file FILE or WEIR_TOKEN\n"                                                         \
    "  --db sqlite:/PATH    its database, or postgresql://…: no token, who may open\n"                               \
    "                       it is an operator\n"                                                                       \
    "  --file weir.yaml     the database that this file names; weir.yaml is used\n"                                    \
    "                       without any of these\n"                                                                    \
    "  --json               for scripts\n"                                                                             \
    "\n"                                                                                                               \
    "Exits with 0, 1 if it was refused or failed, 2 for a wrong command line.\n"

#endif
