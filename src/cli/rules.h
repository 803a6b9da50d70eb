/*
 * weir rules: rules.c has the subcommands and their help; rules_look.c lists, rules_publish.c publishes and rolls back,
 * rules_check.c reads and validates files, rules_apply.c applies files to the service, rules_result.c prints the
 * outcome.
 */
#ifndef WEIR_CLI_RULES_H
#define WEIR_CLI_RULES_H

#include "cli/subcommand.h"
#include "control/control.h"

/*
 * Reads a file, a folder's *.yaml and *.yml, or "-". False: what is wrong was told to `findings`. To be freed either
 * way.
 */
bool weir__rule_files_read(struct weir__documents *documents, const char *path, struct weir__findings *findings);

int weir__rules_list(struct weir__command_line *given);
int weir__rules_get(struct weir__command_line *given);
int weir__rules_diff(struct weir__command_line *given);
int weir__rules_history(struct weir__command_line *given);
int weir__rules_publish(struct weir__command_line *given);
int weir__rules_rollback(struct weir__command_line *given);
int weir__rules_validate(struct weir__command_line *given);
int weir__rules_apply(struct weir__command_line *given);

/* True for a stage that --publish and --stage know; `draft` is one for --stage. Otherwise it was said. */
bool weir__rules_stage(const struct weir__command_line *given, enum weir__with option, bool draft);
/* A document to publish; version 0: the current one. NULL: no memory, or not UTF-8. */
json_t *weir__rules_wanted(const char *name, const char *stage, int64_t version);
/*
 * Publishes all documents (which it takes over) in one publication, or none. 1; 0: unchanged; -1: the reply says why,
 * or the error was printed (status 0). Free the reply.
 */
int weir__rules_put(const struct weir__command_line *given, json_t *documents, struct weir__service_reply *reply);

/* Judges all documents, each with the settings that will hold for it. False: findings say why, or it was said. */
bool weir__rules_check(const struct weir__command_line *given, const struct weir__documents *documents,
                       struct weir__findings *findings);
/* Tells what the service says of a document that was sent to it. False: there was nothing of that kind. */
bool weir__rules_problems(const struct weir__documents *documents, const struct weir__rule_document *document,
                          const json_t *problems, struct weir__findings *findings);
/* What was found, as a list of JSON. */
json_t *weir__rules_findings(const struct weir__findings *findings, enum weir_severity severity);

enum weir__action { WEIR__KEEP, WEIR__CREATE, WEIR__UPDATE, WEIR__DELETE };

/* The planned change of one document, and its outcome. */
struct weir__document_change {
    const struct weir__rule_document *document; /* NULL: it is in no file */
    const char *name;
    enum weir__action action;
    int64_t version; /* the current one; 0: none */
    int64_t enforced, shadow;
    char *diff;
    bool done;
    bool due;              /* to be published or withdrawn */
    const char *published; /* the stage it was published in */
    char *error;
};

struct weir__changes {
    struct weir__document_change *list;
    size_t count;
    bool dry_run;
    bool begun;       /* all was good so far: it was written, or would have been */
    int64_t revision; /* the last that was made; 0: none */
};

/* How a document changes, as a unified diff. From malloc, or NULL. */
char *weir__rules_unified(const struct weir__document_change *change, const struct weir__documents *documents,
                          const char *before);
/* Prints the planned changes. */
void weir__rules_show(const struct weir__changes *changes);
/* Prints the outcome. Returns the exit code. */
int weir__rules_report(const struct weir__command_line *given, const struct weir__changes *changes,
                       const struct weir__findings *findings, bool good);

#endif
