/* Hashing of texts while rules are read: ids, look-alikes. Not for what comes with requests: it has no secret. */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include "base/text.h"

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

/* The 64-bit XXH3; part of what weir__rule_id promises. */
static inline uint64_t weir__hash_text(weir_text text, uint64_t seed)
{
    return XXH3_64bits_withSeed(text.data, text.len, seed);
}

#endif
