/* From a key to its place. Inline: it is a third of the work of a decision. */
#ifndef WEIR_TABLE_HASH_H
#define WEIR_TABLE_HASH_H

#include "table/table.h"

/* The distribution's header, inlined: no call, and no library to load. */
#define XXH_INLINE_ALL
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wcast-align"
#include <xxhash.h>
#pragma GCC diagnostic pop

/*
 * Where the key of a request is at home. The limit's id and algorithm are part of it (limit->spread, made from them):
 * the hash is secret, so mixing them in openly gives nothing away.
 */
static inline void weir__key_home(const struct weir__table *table, const weir_limit *limit, const void *key,
                                  size_t key_len, struct weir__where *where)
{
    uint64_t hash = XXH3_64bits_withSecret(key, key_len, table->header->secret, WEIR__SECRET_BYTES);
    weir__locate_home(table, hash ^ limit->spread, where);
}

/* The same, and where else. */
static inline void weir__key_locate(const struct weir__table *table, const weir_limit *limit, const void *key,
                                    size_t key_len, struct weir__where *where)
{
    weir__key_home(table, limit, key, key_len, where);
    weir__locate_other(table, where);
}

#endif
