/* Hashing of keys. Inline: it is a third of the cost of a decision. */
#ifndef WEIR_TABLE_HASH_H
#define WEIR_TABLE_HASH_H

#include "base/hash.h"
#include "table/table.h"

/* Not inlined, to keep registers free in the callers. */
static __attribute__((noinline)) uint64_t weir__hash_long(const void *key, size_t key_len, const uint8_t *secret)
{
    return XXH3_64bits_withSecret(key, key_len, secret, WEIR__SECRET_BYTES);
}

/*
 * XXH3_64bits_withSecret. Compilers do not inline it because of the part for long keys. For short keys, the common
 * case, the header's internal functions are called directly: a dozen instructions, no call.
 */
static inline uint64_t weir__hash(const void *key, size_t key_len, const uint8_t *secret)
{
    if (key_len - 4 <= 8 - 4)
        return XXH3_len_4to8_64b(key, key_len, secret, 0);
    if (key_len - 9 <= 16 - 9)
        return XXH3_len_9to16_64b(key, key_len, secret, 0);
    return weir__hash_long(key, key_len, secret);
}

/*
 * The primary bucket of a key under a limit. The limit's id and algorithm are mixed in by its salt; the hash is keyed
 * by a secret, so the salt may be public.
 */
static inline void weir__key_primary(const struct weir__table *table, const weir_limit *limit, const void *key,
                                     size_t key_len, struct weir__key_location *where)
{
    weir__locate_primary(table, weir__hash(key, key_len, table->header->secret) ^ limit->salt, where);
}

/* Both buckets of a key under a limit. */
static inline void weir__key_locate(const struct weir__table *table, const weir_limit *limit, const void *key,
                                    size_t key_len, struct weir__key_location *where)
{
    weir__key_primary(table, limit, key, key_len, where);
    weir__locate_alternate(table, where);
}

#endif
