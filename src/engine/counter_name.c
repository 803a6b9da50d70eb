/* Names of counters in the store. */
#include "engine/store_request.h"
#include "base/sha256.h"
#include "base/text.h"

#include <string.h>

#define KEY_MAX    WEIR__NAME_KEY_MAX
#define KEY_SHOWN  WEIR__NAME_KEY_CUT
#define RULE_MAX   72 /* bytes of a rule's name after escaping */
#define RULE_SHOWN 13
#define PREFIX_MAX 64
#define HASH_LEN   (1 + WEIR__NAME_DIGITS) /* `~` and the digits */

_Static_assert(PREFIX_MAX + 1 + RULE_MAX + 1 + 1 + 3 * KEY_MAX <= WEIR__STORE_NAME_MAX, "every name has room");
_Static_assert(3 * RULE_SHOWN + HASH_LEN <= RULE_MAX, "a long rule's name, too");
_Static_assert(3 * KEY_SHOWN + HASH_LEN <= 3 * KEY_MAX, "and a long key");

/*
 * `~` begins a hash and `!` marks a shadow rule's counter. Both are escaped in texts, so that no key can be chosen to
 * equal another counter's name.
 */
enum { IN_KEY = 1, IN_RULE = 2, IN_BOTH = IN_KEY | IN_RULE };

/* Bytes that are escaped, besides those below 0x21. */
static const unsigned char special[256] = {
    ['%'] = IN_BOTH,  ['{'] = IN_BOTH, ['}'] = IN_BOTH, ['~'] = IN_BOTH,
    [0x7f] = IN_BOTH, [':'] = IN_RULE, ['!'] = IN_RULE,
};

static bool is_escaped(unsigned char c, unsigned where)
{
    return c < 0x21 || special[c] & where;
}

static size_t escaped_len(weir_text text, unsigned where)
{
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++)
        len += is_escaped((unsigned char)text.data[i], where) ? 3 : 1;
    return len;
}

static char *add_escaped(char *to, weir_text text, unsigned where)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (is_escaped(c, where)) {
            *to++ = '%';
            to = weir__write_hex(to, &c, 1);
        } else {
            *to++ = (char)c;
        }
    }
    return to;
}

void weir__store_digits(weir_text key, char *to)
{
    uint8_t hash[WEIR__SHA256_BYTES];
    weir__sha256(key.data, key.len, hash);
    weir__write_hex(to, hash, WEIR__NAME_DIGITS / 2);
}

/* `hash`: its digits if they are known, or NULL. */
static char *add_hash(char *to, weir_text text, const char *hash)
{
    *to++ = '~';
    if (hash)
        memcpy(to, hash, WEIR__NAME_DIGITS);
    else
        weir__store_digits(text, to);
    return to + WEIR__NAME_DIGITS;
}

/* prefix:rule: */
static char *add_beginning(char *at, const struct weir__naming *naming, weir_text rule, bool shadow)
{
    size_t prefix = strnlen(naming->prefix, PREFIX_MAX);
    memcpy(at, naming->prefix, prefix);
    at += prefix;
    *at++ = ':';
    if (escaped_len(rule, IN_RULE) <= RULE_MAX) {
        at = add_escaped(at, rule, IN_RULE);
    } else {
        at = add_escaped(at, (weir_text){rule.data, RULE_SHOWN}, IN_RULE);
        at = add_hash(at, rule, NULL);
    }
    if (shadow)
        *at++ = '!';
    *at++ = ':';
    return at;
}

size_t weir__store_name_cut(const struct weir__naming *naming, weir_text rule, bool shadow, weir_text cut,
                            const char *hash, char *to)
{
    char *at = add_beginning(to, naming, rule, shadow);
    if (!naming->hash_keys)
        at = add_escaped(at, cut, IN_KEY);
    if (hash)
        at = add_hash(at, cut, hash);
    *at = 0;
    return (size_t)(at - to);
}

size_t weir__store_name(const struct weir__naming *naming, weir_text rule, bool shadow, weir_text key, char *to)
{
    char digits[WEIR__NAME_DIGITS];
    bool cut = key.len > KEY_MAX, hashed = cut || naming->hash_keys;
    if (hashed)
        weir__store_digits(key, digits);
    return weir__store_name_cut(naming, rule, shadow, (weir_text){key.data, cut ? KEY_SHOWN : key.len},
                                hashed ? digits : NULL, to);
}
