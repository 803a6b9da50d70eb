/*
 * Builds a counter's key of at most WEIR__KEY_MAX bytes. A longer one keeps its first WEIR__KEY_KEPT bytes and ends in
 * '#' and 32 hex digits of a 128-bit hash of the whole, WEIR__KEY_MAX bytes together; a key that was not cut is
 * shorter, so the two never collide.
 */
#ifndef WEIR_RULES_KEY_H
#define WEIR_RULES_KEY_H

#include "base/text.h"

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

/* Slow path of weir__key_end. */
void weir__key_end_long(struct weir__key *key);

/* Returns the key's length. */
static inline int weir__key_end(struct weir__key *key)
{
    if (key->len == WEIR__KEY_MAX)
        weir__key_end_long(key);
    return (int)key->len;
}

#endif
