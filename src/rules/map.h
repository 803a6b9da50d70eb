/*
 * A map from texts to texts, such as plans by API key: read from CSV or YAML, then searched without locks. Keys may be
 * given as their SHA-256. docs/reference/identity.md has the format.
 */
#ifndef WEIR_RULES_MAP_H
#define WEIR_RULES_MAP_H

#include "rules/report.h"

#define WEIR__MAP_ENTRIES_MAX 1000000
#define WEIR__MAP_TEXT_MAX    255                 /* bytes of a key, and of a value */
#define WEIR__MAP_BYTES_MAX   ((size_t)128 << 20) /* of a file */

struct weir__map;

/* True for the name of a file in YAML. */
bool weir__map_is_yaml(const char *name);
/*
 * Reads source 0 of `report`: YAML by its name, else CSV, whose first line may be the header `from,to`. NULL:
 * errors were reported, or, without any, there is no memory. Diagnostics do not show keys.
 */
struct weir__map *weir__map_read(struct weir__diagnostics *report, weir_text from, weir_text to);
/* A map without entries. */
struct weir__map *weir__map_none(void);
/* The value of a key; empty: there is none. */
weir_text weir__map_find(const struct weir__map *map, weir_text key);
size_t weir__map_count(const struct weir__map *map);
/* Memory that it uses. */
size_t weir__map_bytes(const struct weir__map *map);

/* A map has several holders, all of one engine, and is freed with the last. Not for concurrent callers. */
struct weir__map *weir__map_hold(struct weir__map *map);
/* NULL is allowed. */
void weir__map_release(struct weir__map *map);

#endif
