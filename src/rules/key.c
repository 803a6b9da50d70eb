/* Keys that are too long: their beginning and a hash, which is the same in every process. */
#include "rules/key.h"
#include "base/hash.h"

#define DIGITS 32 /* of the hash */

_Static_assert(sizeof(XXH3_state_t) <= WEIR__KEY_HASH, "the state of the hash fits");

static XXH3_state_t *state_of(struct weir__key *key)
{
    return (XXH3_state_t *)(void *)key->hash;
}

void weir__key_add_long(struct weir__key *key, weir_text piece)
{
    XXH3_state_t *state = state_of(key);

    if (key->len < WEIR__KEY_MAX) {
        size_t fits = WEIR__KEY_MAX - key->len;
        XXH3_128bits_reset(state);
        XXH3_128bits_update(state, key->text, key->len);
        memcpy(key->text + key->len, piece.data, fits);
        key->len = WEIR__KEY_MAX;
    }
    XXH3_128bits_update(state, piece.data, piece.len);
}

void weir__key_end_long(struct weir__key *key)
{
    XXH128_canonical_t hash;
    char *to = key->text + WEIR__KEY_MAX - DIGITS;

    XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(state_of(key)));
    to[-1] = '#';
    for (size_t i = 0; i < sizeof hash.digest; i++) {
        to[2 * i] = "0123456789abcdef"[hash.digest[i] >> 4];
        to[2 * i + 1] = "0123456789abcdef"[hash.digest[i] & 15];
    }
}
