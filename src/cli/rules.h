/*
 * weir rules: rules.c has what there is and its help; rules_look.c shows, rules_publish.c puts in force and takes back,
 * rules_check.c judges files, rules_apply.c brings the service to what files say, and rules_result.c says what it did.
 */
#ifndef WEIR_CLI_RULES_H
#define WEIR_CLI_RULES_H

#include "cli/documents.h"
#include "cli/subcommand.h"

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
/* A document that is to be put in force; version 0: the current one. NULL: no memory, or not UTF-8. */
json_t *weir__rules_wanted(const char *name, const char *stage, int64_t version);
/*
 * Puts all of these (which it takes over) in force as one publication, or none. 1, 0 if all was so already, -1: the
 * answer says why not, or it was said that there is none (status 0). The answer is to be freed.
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

/* What is to be done with one document, and what was. */
struct weir__document_change {
    const struct weir__rule_document *document; /* NULL: it is in no file */
    const char *name;
    enum weir__action action;
    int64_t version; /* the current one; 0: none */
    int64_t enforced, shadow;
    char *diff;
    bool done;
    bool due;              /* is to be put in force, or taken out of it */
    const char *published; /* the stage it was put in force in */
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
/* What is going to change, for people. */
void weir__rules_show(const struct weir__changes *changes);
/* What was done. The exit code. */
int weir__rules_report(const struct weir__command_line *given, const struct weir__changes *changes,
                       const struct weir__findings *findings, bool good);

#endif
