/* From rule files to a set, with everything a request needs beside it. */
#ifndef WEIR_ENGINE_LOAD_H
#define WEIR_ENGINE_LOAD_H

#include "engine/sources.h"
#include "rules/set.h"

/* Compiles sources; as weir_rules_parse. */
int weir__load_sources(const struct weir__source *sources, size_t count, weir_diagnose *diagnose, void *context,
                       weir_rules **rules);
/* Reads and compiles; waits a moment and tries again while somebody is writing. As weir_rules_load. */
int weir__load_path(const char *path, weir_diagnose *diagnose, void *context, struct weir__fingerprint *print,
                    weir_rules **rules);

#endif
