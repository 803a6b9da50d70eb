/* What counters are called in the store. docs/store.md describes it. */
#ifndef WEIR_REMOTE_COUNTER_NAME_H
#define WEIR_REMOTE_COUNTER_NAME_H

#include "remote/request.h"

#define WEIR__NAME_KEY_MAX 80 /* bytes of a key that is shown whole; of a longer one: */
#define WEIR__NAME_KEY_CUT 40 /* so many of its first, */
#define WEIR__NAME_DIGITS  32 /* and so many digits of its hash */

struct weir__naming {
    const char *prefix; /* "weir"; at most 64 bytes */
    bool hash_keys;
};

/* Writes prefix:rule:key with its zero byte into `to` (WEIR__STORE_NAME_MAX + 1 bytes); returns its length. */
size_t weir__store_name(const struct weir__naming *naming, weir_text rule, bool shadow, weir_text key, char *to);

/* The same for who has only a part of a long key: its first WEIR__NAME_KEY_CUT bytes, and its digits. */
size_t weir__store_name_cut(const struct weir__naming *naming, weir_text rule, bool shadow, weir_text cut,
                            const char *digits, char *to);
/* The digits of a key's hash, without a zero byte. SHA-256, as keys may be secrets: nothing leads back from it. */
void weir__store_digits(weir_text key, char *digits);

#endif
