/* Internal to src/control: documents of rule files, added to a service. */
#ifndef WEIR_CONTROL_IMPORT_H
#define WEIR_CONTROL_IMPORT_H

#include "control/call.h"

struct weir__import {
    const char *name;            /* what is imported: a path */
    struct weir__documents from; /* of the caller */
    const char *reason;          /* of the revision */
    weir_diagnose *diagnose;     /* may be NULL */
    void *context;
    size_t count; /* documents that were added */
    /* Of a view of files (files.c): the documents are shown where they are, and were compiled before. */
    struct weir__control *before; /* the view that this one replaces: a text keeps its version; NULL: none */
    json_t *places;               /* gets {file, line} of each document; NULL: no view */
    size_t rules;
};

/* Adds all documents to an empty database, and publishes them. */
struct weir__import_result weir__import_run(struct weir__control *control, struct weir__import *import,
                                            const char *who);

#endif
