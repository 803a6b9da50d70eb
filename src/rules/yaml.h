/*
 * A YAML document as a tree of nodes with their places, read by libyaml. Strict: one document, no anchors, aliases,
 * merge keys or tags, no duplicate keys, at most WEIR__YAML_DEPTH levels.
 */
#ifndef WEIR_RULES_YAML_H
#define WEIR_RULES_YAML_H

#include "base/arena.h"
#include "rules/report.h"
#include "rules/address.h"

#include <stddef.h>

#define WEIR__YAML_DEPTH 32
#define WEIR__YAML_BYTES ((size_t)16 << 20) /* of one file */

enum weir__node_kind { WEIR__SCALAR, WEIR__LIST, WEIR__MAP };

struct weir__node {
    enum weir__node_kind kind;
    bool quoted; /* a quoted scalar is always text */
    bool flow;   /* a list or map in brackets */
    struct weir__place place;
    struct weir__diagnostics *report; /* of the reading of its document; not valid after it */
    struct weir__place end;           /* behind its last character; in block style, where the next node begins */
    weir_text text;                   /* of a scalar; followed by a zero byte */
    const struct weir__node *name;    /* of a member of a map */
    struct weir__node *first;         /* members of a list or map, in order */
    struct weir__node *next;          /* the next member of the list or map this one is in */
    size_t count;                     /* members */
};

/* Parses source number `source`. NULL: an error was reported. */
const struct weir__node *weir__yaml_read(uint32_t source, struct weir__arena *arena, struct weir__diagnostics *report);

/* The member of a map, or NULL. */
const struct weir__node *weir__node_get(const struct weir__node *map, const char *name);
/* The items of a list, or the node itself if it is not a list: for fields that take one value or several. */
static inline size_t weir__item_count(const struct weir__node *node)
{
    return node->kind == WEIR__LIST ? node->count : 1;
}
/* NOLINTBEGIN(bugprone-macro-parentheses): a declared name cannot be in parentheses */
#define WEIR__EACH_ITEM(item, node)                                                                                    \
    for (const struct weir__node *item = (node)->kind == WEIR__LIST ? (node)->first : (node); item;                    \
         item = (node)->kind == WEIR__LIST ? (item)->next : NULL)
/* NOLINTEND(bugprone-macro-parentheses) */

/* Frees a tree of tsearch(3), but not its keys. */
void weir__tree_free(void *root);

/* True for null: a scalar that is empty, ~ or null, without quotes. */
bool weir__node_is_null(const struct weir__node *node);
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

/* Diagnostics at the place of a node. Each returns false. */
#define weir__node_error(node, ...)   weir__report_error((node)->report, (node)->place, __VA_ARGS__)
#define weir__node_warning(node, ...) weir__report_warning((node)->report, (node)->place, __VA_ARGS__)
#define weir__node_suggest(node, suggestion, ...)                                                                      \
    weir__report_suggest((node)->report, (node)->place, suggestion, __VA_ARGS__)
#define weir__node_unknown(node, word, choices, count, ...)                                                            \
    weir__report_unknown((node)->report, (node)->place, word, choices, count, __VA_ARGS__)

/* ---- Typed readers of nodes. Each returns false after it has reported an error; `what` is the field's name ---- */

/* A text may be empty but not null. */
bool weir__field_text(const struct weir__node *node, const char *what, weir_text *value);
bool weir__field_bool(const struct weir__node *node, const char *what, bool *value);
bool weir__field_int(const struct weir__node *node, const char *what, int64_t min, int64_t max, int64_t *value);
/* One of `choices`, which end in NULL: its index. */
bool weir__field_choice(const struct weir__node *node, const char *what, const char *const *choices, int *value);
/* A network or an address; bits after the prefix are a warning. */
bool weir__field_network(const struct weir__node *node, const char *what, struct weir__network *network);
/* "10%" or 10: 0 to WEIR__PERCENT_MAX. */
#define WEIR__PERCENT_MAX 1000
bool weir__field_percent(const struct weir__node *node, const char *what, int *value);

/*
 * A window: seconds as a number (with fraction), or counts with ms, s, m, h, d, w, mo or y from the largest unit to the
 * smallest ("1h30m"). More than zero and at most 400 days.
 */
#define WEIR__WINDOW_DAYS_MAX 400
struct weir__parsed_window {
    int64_t ns;    /* months count 30 days, years 365 */
    bool calendar; /* exactly 1d, 1w, 1mo or 1y: may be aligned to the calendar */
    enum weir_calendar unit;
};
bool weir__field_window(const struct weir__node *node, const char *what, struct weir__parsed_window *value);

/* "64MiB", "512KiB", "1GiB", or bytes: at least `min`. */
bool weir__field_size(const struct weir__node *node, const char *what, int64_t min, int64_t *bytes);

/* ---- Maps with known fields, read by a table ---- */

enum weir__field_type {
    WEIR__FIELD_SKIP,    /* known, but not read here: {.name = "…"} */
    WEIR__FIELD_NODE,    /* const struct weir__node *, for the caller to read */
    WEIR__FIELD_TEXT,    /* weir_text of at most `max` bytes; 0: of any length */
    WEIR__FIELD_STRING,  /* const char *, in the memory of the node */
    WEIR__FIELD_BOOL,    /* bool */
    WEIR__FIELD_INT,     /* an integer from `min` to `max` */
    WEIR__FIELD_CHOICE,  /* an integer or enum: `min` and the index of the choice */
    WEIR__FIELD_PERCENT, /* an integer from `min` to `max` per cent; max 0: any percentage */
    WEIR__FIELD_SIZE,    /* int64_t: bytes, at least `min`; `max` of 0: no maximum */
    WEIR__FIELD_AGE,     /* int64_t: a window in milliseconds, rounded down but at least 1 */
    WEIR__FIELD_MAP,     /* a map of `fields` in the same struct */
    WEIR__FIELD_READ     /* as `read` has it */
};

struct weir__field {
    const char *name;
    enum weir__field_type type;
    size_t offset, size; /* of the value in the caller's struct: WEIR__IN */
    size_t place;        /* offset of the struct weir__place that becomes the node's place; 0: none */
    int64_t min, max;
    const char *what;           /* in messages; NULL: the name */
    const char *const *choices; /* end in NULL */
    const struct weir__field *fields;
    size_t field_count;
    bool or_null; /* null counts as absent */
    /* Writes the value to `to`, the field in the caller's struct. False after an error. */
    bool (*read)(void *context, const struct weir__node *node, const char *what, void *to);
};

#define WEIR__IN(type, member) .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)
#define WEIR__MAP_OF(table)    .fields = (table), .field_count = WEIR__COUNT(table)

/* Reports an unknown member, with one of `names` that is spelled like it or that means what it does elsewhere. */
void weir__field_unknown(const struct weir__node *name, const char *what, const char *const *names, size_t count);
/* Reports every unknown member of `map`, with a suggestion. False only if it is not a map. `what` is e.g. "a rule". */
bool weir__field_names(const struct weir__node *map, const char *what, const char *const *names, size_t count);
/* Reads one field into the struct `to`. */
bool weir__field_read(const struct weir__field *field, const struct weir__node *node, void *to, void *context);
/* Reads those of the fields that the map has, in the order of the table. False after any error. */
bool weir__fields_given(const struct weir__node *map, const struct weir__field *fields, size_t count, void *to,
                        void *context);
/* Reports unknown members of `map`, then reads those of the table in its order. False after any error. */
bool weir__fields_read(const struct weir__node *map, const char *what, const struct weir__field *fields, size_t count,
                       void *to, void *context);
/* Reads a map that may also be given as the value of its first field alone. */
bool weir__fields_or_first(const struct weir__node *node, const char *what, const struct weir__field *fields,
                           size_t count, void *to, void *context);

#endif
