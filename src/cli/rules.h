/*
 * weir rules: rules_look.c lists, rules_publish.c publishes and rolls back, rules_check.c reads and validates files,
 * rules_apply.c applies files to the service, rules_import.c imports them into its empty database.
 */
#ifndef WEIR_CLI_RULES_H
#define WEIR_CLI_RULES_H

#include "cli/service.h"
#include "control/control.h"

/*
 * Reads a file, a directory's *.yaml and *.yml, or "-". False: errors were added to `findings`. The caller frees
 * `documents` either way.
 */
bool weir__rule_files_read(struct weir__documents *documents, const char *path, struct weir__findings *findings);

/* The rules that the weir.yaml of a service names; NULL: the service is not in this process. */
const struct weir__named_rules *weir__service_named(const struct weir__service *service);
/* Imports documents into the database of a service in this process. */
struct weir__import_result weir__service_import(const struct weir__given *given, const struct weir__named_rules *named,
                                                const struct weir__documents *documents,
                                                struct weir__findings *findings);

/* True for a stage of --publish or --stage, where `draft` is one, too. False after an error was printed. */
bool weir__rules_stage(const struct weir__given *given, const char *option, bool draft);
/*
 * Adds a document to publish to a list; version 0: the current one. For a name that is not UTF-8 the list becomes NULL,
 * which weir__rules_put reports.
 */
void weir__rules_want(json_t **documents, const char *name, const char *stage, int64_t version);
/*
 * Publishes all documents (which it takes over) in one publication, or none. 1: published; 0: unchanged; -1: the reply
 * has the error, or it was printed (status 0). Free the call.
 */
int weir__rules_put(const struct weir__given *given, json_t *documents, struct weir__service_call *call);

/* Checks all documents, each with the settings that will apply to it. False after errors were added or printed. */
bool weir__rules_check(const struct weir__given *given, const struct weir__documents *documents,
                       struct weir__findings *findings);
/* Adds errors and warnings: each is about the document that it names, or else about `document`. */
void weir__rules_problems(const struct weir__documents *documents, const struct weir__rule_document *document,
                          const json_t *problems, struct weir__findings *findings);
/* The document of this name, or NULL. */
const struct weir__rule_document *weir__rules_find(const struct weir__documents *documents, const char *name);

#endif
