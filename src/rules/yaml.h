/*
 * A YAML document as a tree of nodes with their places, read by libyaml. Strict: one document, no anchors, aliases,
 * merge keys or tags, no duplicate keys, at most WEIR__YAML_DEPTH levels.
 */
#ifndef WEIR_RULES_YAML_H
#define WEIR_RULES_YAML_H

#include "base/arena.h"
#include "rules/report.h"

#define WEIR__YAML_DEPTH 32
#define WEIR__YAML_BYTES ((size_t)16 << 20) /* of one file */

enum weir__node_kind { WEIR__SCALAR, WEIR__LIST, WEIR__MAP };

struct weir__node {
    enum weir__node_kind kind;
    bool quoted; /* a quoted scalar is always text */
    struct weir__place place;
    weir_text text;                /* of a scalar; followed by a zero byte */
    const struct weir__node *name; /* of a member of a map */
    struct weir__node *first;      /* members of a list or map, in order */
    struct weir__node *next;       /* the next member of the list or map this one is in */
    size_t count;                  /* members */
};

/* Parses source number `source`. NULL: an error was reported. */
const struct weir__node *weir__yaml_read(uint32_t source, struct weir__arena *arena, struct weir__diagnostics *report);

/* The member of a map, or NULL. */
const struct weir__node *weir__node_get(const struct weir__node *map, const char *name);
/* "a list", "a map", "a number" …: for messages. */
const char *weir__node_is(const struct weir__node *node);

/*
 * A node as JSON, for metadata. The text lives in the arena; {NULL, 0} when there is no memory. Plain scalars become
 * what YAML 1.1 takes them for (null, booleans with yes, no, on and off, decimal numbers as JSON writes them);
 * everything else is a string.
 */
weir_text weir__node_json(struct weir__arena *arena, const struct weir__node *node);

/* A map as YAML in block style, without the member `skip` (NULL: with all of them); from malloc, or NULL. */
char *weir__yaml_write(const struct weir__node *map, const char *skip);

#endif
