/*
 * Builds a counter's key of at most WEIR__KEY_MAX bytes. A longer one keeps its first WEIR__KEY_KEPT bytes and ends in
 * '#' and 32 hex digits of a 128-bit hash of the whole, WEIR__KEY_MAX bytes together; a key that was not cut is
 * shorter, so the two never collide.
 */
#ifndef WEIR_RULES_KEY_H
#define WEIR_RULES_KEY_H

#include "base/text.h"
#include "rules/attribute.h"

#define WEIR__KEY_MAX  256
#define WEIR__KEY_KEPT (WEIR__KEY_MAX - 33) /* bytes kept of a key that is too long */
#define WEIR__KEY_HASH 640                  /* bytes for the hash state; touched only by long keys */

struct weir__key {
    char *text; /* WEIR__KEY_MAX bytes of the caller's */
    size_t len; /* bytes written; WEIR__KEY_MAX: full, and the rest only goes into the hash */
    _Alignas(64) char hash[WEIR__KEY_HASH];
};

static inline void weir__key_begin(struct weir__key *key, char *text)
{
    key->text = text;
    key->len = 0;
}

/* Slow path of weir__key_add. */
void weir__key_add_long(struct weir__key *key, weir_text piece);

static inline void weir__key_add(struct weir__key *key, weir_text piece)
{
    if (piece.len < WEIR__KEY_MAX - key->len) {
        memcpy(key->text + key->len, piece.data, piece.len);
        key->len += piece.len;
    } else if (piece.len > 0) {
        weir__key_add_long(key, piece);
    }
}

/* Adds a text in which '%' and `stop` are written as %XX. */
void weir__key_add_escaped(struct weir__key *key, weir_text text, char stop);

/* Slow path of weir__key_end. */
void weir__key_end_long(struct weir__key *key);

/* Returns the key's length. */
static inline int weir__key_end(struct weir__key *key)
{
    if (key->len == WEIR__KEY_MAX)
        weir__key_end_long(key);
    return (int)key->len;
}

/* ---- Templates ---- */

/*
 * Key templates: "endpoint:${path}:${user_id}". The mapping from values to keys is injective: the end of each value can
 * be found in the key.
 * - In a value before literal text, '%' and the first character of that text are escaped as %XX. So the value ends at
 *   the first such character outside of an escape.
 * - Literal text after a value that begins with '%' gets a second '%': "%%" is not an escape. Two adjacent values are
 *   separated by "%%" (with a warning).
 * - The last value needs no end. Only a leading '%' is escaped, so that it cannot equal WEIR__MISSING_VALUE or
 *   WEIR__SEVERAL_VALUE, which are no escapes because 'm' and 's' are no hexadecimal digits.
 */

#define WEIR__TEMPLATE_PIECES 16   /* literals and attributes of one template */
#define WEIR__TEMPLATE_MAX    1024 /* bytes of one; more literal text would only be cut off */

struct weir__template_piece {
    weir_text literal; /* precedes the attribute; may be empty */
    int16_t attribute; /* follows the literal; -1: none, the template ends here */
    char stop;         /* escaped in the value like '%'; 0: the value ends the template */
};

struct weir__template {
    const struct weir__template_piece *pieces;
    int piece_count;
    weir_text source; /* as written */
};

/* False after reported errors. Warns about two adjacent values. "$$" is a dollar. */
bool weir__template_compile(struct weir__template *tmpl, struct weir__attributes *all, struct weir__arena *arena,
                            struct weir__diagnostics *report, struct weir__place place, weir_text text);

/* Replaces a missing value under on_missing_key: share. No value can equal it. */
#define WEIR__MISSING_VALUE "%missing"

/*
 * Replaces several cookies or arguments of one name with different values: such requests share one key, so that a
 * client cannot choose its counter by a value that the upstream ignores.
 */
#define WEIR__SEVERAL_VALUE "%several"

/* Builds the key. Returns its length (at most WEIR__KEY_MAX), or -1 if an attribute is missing and not `share`. */
int weir__template_fill(const struct weir__template *tmpl, struct weir__values *values, bool share,
                        char key[WEIR__KEY_MAX]);

/* After weir__template_fill returned -1: the first attribute that is missing; -1: none. */
int weir__template_missing(const struct weir__template *tmpl, struct weir__values *values);

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
 * True if the template can yield this key. Of a key that was cut only the beginning is compared. `values` gets the
 * value of each attribute, as it is in the key, in order; NULL: not wanted.
 */
bool weir__template_matches(const struct weir__template *tmpl, weir_text key, weir_text values[WEIR__TEMPLATE_PIECES]);
/* The key of a template with one attribute that has this value; false: it has none or several, or the value is empty.
 */
bool weir__template_fill_value(const struct weir__template *tmpl, weir_text value, char key[WEIR__KEY_MAX],
                               size_t *len);

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
