/* From rule files to a set, with everything a request needs beside it. */
#ifndef WEIR_ENGINE_COMPILE_RULES_H
#define WEIR_ENGINE_COMPILE_RULES_H

#include "engine/rule_files.h"
#include "rules/set.h"

/* Who hears of the rules' faults, and what is known about where they will be used. */
struct weir__audience {
    weir_diagnose *diagnose; /* may be NULL */
    void *context;
    bool storeless; /* there is no store, and rules that want one are told so; false: there is one, or nobody knows */
};

/* Compiles sources; as weir_rules_parse. */
int weir__load_sources(const struct weir__source *sources, size_t count, const struct weir__audience *audience,
                       weir_rules **rules);
/* Reads and compiles; waits a moment and tries again while somebody is writing. As weir_rules_load. */
int weir__load_path(const char *path, const struct weir__audience *audience, struct weir__fingerprint *print,
                    weir_rules **rules);

/* Whether the store's script computes this limit exactly, with doubles. If not, loading the rules fails. */
bool weir__store_limit_fits(const weir_limit *limit);

#endif
