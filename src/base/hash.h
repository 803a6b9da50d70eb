/* xxHash, and hashes of texts without a secret: for rules and files, not for keys of requests (table/hash.h). */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include "base/text.h"

/* As a header: no call, no library to load. */
#define XXH_INLINE_ALL
/* Access by memcpy: the default with gcc violates strict aliasing, and the compiler may reorder the write of the key.
 */
#define XXH_FORCE_MEMORY_ACCESS 0
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wcast-align"
#include <xxhash.h>
#pragma GCC diagnostic pop

/* The 64-bit XXH3; part of what weir__rule_id promises. */
static inline uint64_t weir__hash_text(weir_text text, uint64_t seed)
{
    return XXH3_64bits_withSeed(text.data, text.len, seed);
}

#endif
