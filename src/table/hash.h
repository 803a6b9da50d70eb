/* From a key to its place. Inline: it is a third of the work of a decision. */
#ifndef WEIR_TABLE_HASH_H
#define WEIR_TABLE_HASH_H

#include "table/table.h"

/* The distribution's header, inlined: no call, and no library to load. */
#define XXH_INLINE_ALL
/* By memcpy: its own way with gcc reads what was written as another type, and then it may not be written yet. */
#define XXH_FORCE_MEMORY_ACCESS 0
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wcast-align"
#include <xxhash.h>
#pragma GCC diagnostic pop

/* Not inlined: it would take the registers of all that is around it. */
static __attribute__((noinline)) uint64_t weir__hash_long(const void *key, size_t key_len, const uint8_t *secret)
{
    return XXH3_64bits_withSecret(key, key_len, secret, WEIR__SECRET_BYTES);
}

/*
 * XXH3_64bits_withSecret. Compilers find it too long to inline, and most of that is for long keys. Most keys are short;
 * for those the header's own parts are called by name: a dozen instructions and no call.
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
 * Where the key of a request is at home. The limit's id and algorithm are part of it (limit->spread, made from them):
 * the hash is secret, so mixing them in openly gives nothing away.
 */
static inline void weir__key_primary(const struct weir__table *table, const weir_limit *limit, const void *key,
                                     size_t key_len, struct weir__key_location *where)
{
    weir__locate_primary(table, weir__hash(key, key_len, table->header->secret) ^ limit->spread, where);
}

/* The same, and where else. */
static inline void weir__key_locate(const struct weir__table *table, const weir_limit *limit, const void *key,
                                    size_t key_len, struct weir__key_location *where)
{
    weir__key_primary(table, limit, key, key_len, where);
    weir__locate_alternate(table, where);
}

#endif
