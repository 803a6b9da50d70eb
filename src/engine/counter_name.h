/* Names of counters in the store: prefix:rule:key. docs/store.md describes them. */
#ifndef WEIR_ENGINE_COUNTER_NAME_H
#define WEIR_ENGINE_COUNTER_NAME_H

#include "engine/store_request.h"

#define WEIR__NAME_KEY_MAX 80 /* bytes of a key that is used unchanged; of a longer one */
#define WEIR__NAME_KEY_CUT 40 /* its first bytes */
#define WEIR__NAME_DIGITS  32 /* and hexadecimal digits of its hash are used */

struct weir__naming {
    const char *prefix; /* "weir"; at most 64 bytes */
    bool hash_keys;
};

/* Writes the name with its zero byte to `to` (WEIR__STORE_NAME_MAX + 1 bytes); returns its length. */
size_t weir__store_name(const struct weir__naming *naming, weir_text rule, bool shadow, weir_text key, char *to);

/* For a long key of which only the first WEIR__NAME_KEY_CUT bytes and the digits of its hash are known. */
size_t weir__store_name_cut(const struct weir__naming *naming, weir_text rule, bool shadow, weir_text cut,
                            const char *digits, char *to);
/* WEIR__NAME_DIGITS digits of the key's SHA-256, without a zero byte. Cryptographic, as keys may be secrets. */
void weir__store_digits(weir_text key, char *digits);

#endif
