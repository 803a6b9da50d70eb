/*
 * Key templates: "endpoint:${path}:${user_id}". Filled in, two different sets of values never give the same key,
 * because a value can be told from what follows it:
 * - Before literal text, '%' and that text's first character are escaped in a value as %XX. So the value ends where
 *   that character first comes outside of an escape.
 * - Literal text behind a value that itself begins with '%' is written with two of them, which no escape looks like.
 *   The same "%%" is put between two values that stand side by side (and the author is warned).
 * - The value that ends a template needs no end: only a '%' it begins with is escaped, so that it cannot be taken for
 *   WEIR__MISSING_VALUE or WEIR__SEVERAL_VALUE, which are unlike every escape because 'm' and 's' are no hex digits.
 */
#ifndef WEIR_RULES_TEMPLATE_H
#define WEIR_RULES_TEMPLATE_H

#include "rules/attribute.h"
#include "rules/key.h"

#define WEIR__TEMPLATE_PIECES 16   /* literals and attributes of one template */
#define WEIR__TEMPLATE_MAX    1024 /* bytes of one; more literal text would only be cut off */

struct weir__template_piece {
    weir_text literal; /* precedes the attribute; may be empty */
    int16_t attribute; /* follows the literal; -1: none, the template ends here */
    char stop;         /* escaped in the value like '%'; 0: the value ends the template */
};

struct weir__template {
    weir_text source; /* as written */
    const struct weir__template_piece *pieces;
    int piece_count;
};

/* False after reported errors. Warns about two adjacent values. "$$" is a dollar. */
bool weir__template_compile(struct weir__template *tmpl, struct weir__attributes *all, struct weir__arena *arena,
                            struct weir__diagnostics *report, struct weir__place place, weir_text text);

/* Replaces a missing value under on_missing_key: share. No value can equal it. */
#define WEIR__MISSING_VALUE "%missing"

/*
 * Replaces several cookies or arguments of one name with different values: such requests share one key, so that a value
 * next to the one the upstream takes does not select another counter.
 */
#define WEIR__SEVERAL_VALUE "%several"

/*
 * Builds the key. Returns its length (at most WEIR__KEY_MAX), or -1 if an attribute is missing and `share` is false, or
 * if `size` is less than WEIR__KEY_MAX.
 */
int weir__template_fill(const struct weir__template *tmpl, struct weir__values *values, bool share, char *key,
                        size_t size);

/*
 * After weir__template_fill: the number of keys that WEIR__SEVERAL_VALUE stands for (WEIR__KEYS_MAX + 1 or more: too
 * many), or 0 if it is not in the key.
 */
#define WEIR__KEYS_MAX 16
size_t weir__template_keys(const struct weir__template *tmpl, struct weir__values *values);
/* One of those keys, by its number from 0. Returns as weir__template_fill does. */
int weir__template_fill_one(const struct weir__template *tmpl, struct weir__values *values, bool share, size_t number,
                            char key[WEIR__KEY_MAX]);

/*
 * Fast path for the most common key: a literal and the address of a client without proxy and prefix group. An IPv4
 * address needs no escaping and is formatted directly.
 */
bool weir__template_is_address(const struct weir__template *tmpl, const struct weir__attributes *all);
static inline size_t weir__template_dotted(const struct weir__template *tmpl, const uint8_t address[4],
                                           char key[WEIR__KEY_MAX])
{
    weir_text literal = tmpl->pieces[0].literal;
    memcpy(key, literal.data, literal.len);
    return literal.len + weir__address_dotted(address, key + literal.len);
}

#endif
