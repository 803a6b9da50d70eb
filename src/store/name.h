/* What counters are called in the store. docs/store.md describes it. */
#ifndef WEIR_STORE_NAME_H
#define WEIR_STORE_NAME_H

#include "store/question.h"

struct weir__naming {
    const char *prefix; /* "weir"; at most 64 bytes */
    bool hash_keys;
};

/* Writes prefix:rule:key with its zero byte into `to` (WEIR__STORE_NAME_MAX + 1 bytes); returns its length. */
size_t weir__store_name(const struct weir__naming *naming, weir_text rule, bool shadow, weir_text key, char *to);

#endif
