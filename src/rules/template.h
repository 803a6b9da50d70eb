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
    weir_text literal; /* comes first, as it stands in keys; may be empty */
    int16_t attribute; /* comes after it; -1: none, the template ends here */
    char stop;         /* to be escaped in the value besides '%'; 0: the value ends the template */
};

struct weir__template {
    weir_text source; /* as written */
    const struct weir__template_piece *pieces;
    int piece_count;
};

/* False after an error (all are reported). Warns of two values side by side. "$$" is a dollar. */
bool weir__template_compile(struct weir__template *tmpl, struct weir__attributes *all, struct weir__arena *arena,
                            struct weir__diagnostics *report, struct weir__place place, weir_text text);

/* What on_missing_key: share puts in the place of a missing value. No value can be the same. */
#define WEIR__MISSING_VALUE "%missing"

/*
 * Stands for several cookies or arguments of one name with different values: all requests with such have one key, so
 * that a value beside the one that the upstream takes is no other counter.
 */
#define WEIR__SEVERAL_VALUE "%several"

/*
 * Fills it in. Returns the key's length (at most WEIR__KEY_MAX), or -1 if an attribute is missing and `share` is false.
 * With share, the missing value is WEIR__MISSING_VALUE. `size` is at least WEIR__KEY_MAX, or else there is no key (-1).
 */
int weir__template_fill(const struct weir__template *tmpl, struct weir__values *values, bool share, char *key,
                        size_t size);

/*
 * After weir__template_fill: 0 if WEIR__SEVERAL_VALUE is not in the key. Else the number of keys that it stands for, or
 * more than WEIR__KEYS_MAX.
 */
#define WEIR__KEYS_MAX 16
size_t weir__template_keys(const struct weir__template *tmpl, struct weir__values *values);
/* One of those keys, by its number from 0. Returns as weir__template_fill does. */
int weir__template_fill_one(const struct weir__template *tmpl, struct weir__values *values, bool share, size_t number,
                            char key[WEIR__KEY_MAX]);

/*
 * By far most keys: some text, and the address of a client who is behind no proxy and in no group. It holds nothing to
 * be escaped, and is written without a look at anything else if it has four bytes.
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
