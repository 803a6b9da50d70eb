/*
 * Key templates: "endpoint:${path}:${user_id}". Filled in, two different sets of values never give the same key: in
 * a value that is followed by a literal, '%' and that literal's first character are escaped as %XX.
 */
#ifndef WEIR_RULES_TEMPLATE_H
#define WEIR_RULES_TEMPLATE_H

#include "rules/attribute.h"

#define WEIR__TEMPLATE_PARTS 16 /* literals and attributes of one template */
#define WEIR__KEY_MAX        256 /* bytes; a longer key keeps its beginning and ends in "#" and a 128-bit hash of all of it \
                                  */

struct weir__template_part {
    weir_text literal; /* comes first; may be empty */
    int16_t attribute; /* comes after it; -1: none, the template ends here */
    char stop;         /* to be escaped in the value besides '%'; 0: escape nothing */
};

struct weir__template {
    weir_text source; /* as written */
    const struct weir__template_part *parts;
    int part_count;
};

/* False after an error, which was reported. Warns of two values side by side. "$$" is a dollar. */
bool weir__template_compile(struct weir__template *tmpl, struct weir__attributes *all, struct weir__arena *arena,
                            struct weir__report *report, struct weir__place place, weir_text text);

/* What on_missing_key: share puts in the place of a missing value. No value can be the same: it is escaped. */
#define WEIR__MISSING_VALUE "%missing"

/*
 * Fills it in. Returns the key's length (at most size; size is at least WEIR__KEY_MAX), or -1 if an attribute is
 * missing and `share` is false. With share, the missing value is WEIR__MISSING_VALUE.
 */
int weir__template_fill(const struct weir__template *tmpl, struct weir__values *values, bool share, char *key,
                        size_t size);

#endif
