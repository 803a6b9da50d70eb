/* The names of counters in the store. */
#include "../../test.h"
#include "base/text.h"
#include "engine/store_request.h"
#include "base/sha256.h"

#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

static const struct weir__naming plain = {.prefix = "weir"}, hashed = {.prefix = "weir", .hash_keys = true};

static char got[WEIR__STORE_NAME_MAX + 1];

static bool is(const struct weir__naming *naming, weir_text rule, bool shadow, weir_text key, const char *want)
{
    size_t len = weir__store_name(naming, rule, shadow, key, got);
    if (len == strlen(want) && strcmp(got, want) == 0)
        return true;
    printf("  got %s\n", got);
    return false;
}

TEST(names_are_readable)
{
    CHECK(is(&plain, WEIR__TEXT("api"), false, WEIR__TEXT("user-42"), "weir:api:user-42"));
    CHECK(is(&plain, WEIR__TEXT("api"), true, WEIR__TEXT("user-42"), "weir:api!:user-42"));
    CHECK(is(&plain, WEIR__TEXT("api"), false, WEIR__TEXT("a:b:c"), "weir:api:a:b:c"));
    CHECK(is(&plain, WEIR__TEXT("api"), false, WEIR__TEXT("2001:db8::1"), "weir:api:2001:db8::1"));
    CHECK(is(&plain, WEIR__TEXT("api"), false, WEIR__TEXT("\xc3\xbc"), "weir:api:\xc3\xbc"));
    CHECK(is(&plain, WEIR__TEXT("api"), false, WEIR__TEXT(""), "weir:api:"));
}

TEST(ambiguous_characters_are_escaped)
{
    CHECK(is(&plain, WEIR__TEXT("a:b"), false, WEIR__TEXT("k"), "weir:a%3ab:k"));
    CHECK(is(&plain, WEIR__TEXT("a!"), false, WEIR__TEXT("k"), "weir:a%21:k"));
    CHECK(is(&plain, WEIR__TEXT("{a}"), false, WEIR__TEXT("{k}"), "weir:%7ba%7d:%7bk%7d"));
    CHECK(is(&plain, WEIR__TEXT("a b"), false, WEIR__TEXT("\r\n%\0\x7f"), "weir:a%20b:%0d%0a%25%00%7f"));
    CHECK(is(&plain, WEIR__TEXT("a"), false, WEIR__TEXT("~k!"), "weir:a:%7ek!"));
}

TEST(long_keys_are_hashed)
{
    char key[200];
    memset(key, 'x', sizeof key);
    CHECK_EQ(weir__store_name(&plain, WEIR__TEXT("r"), false, (weir_text){key, 80}, got), 5 + 2 + 80);
    CHECK(!strchr(got, '~'));
    CHECK_EQ(weir__store_name(&plain, WEIR__TEXT("r"), false, (weir_text){key, 81}, got), 5 + 2 + 40 + 33);
    CHECK_EQ(got[5 + 2 + 40], '~');
    char other[sizeof got];
    key[80] = 'y';
    weir__store_name(&plain, WEIR__TEXT("r"), false, (weir_text){key, 81}, other);
    CHECK(strcmp(got, other) != 0);
    CHECK_EQ(strncmp(got, other, 5 + 2 + 41), 0);
    /* The shortened name used as a key is another counter's. */
    weir__store_name(&plain, WEIR__TEXT("r"), false, (weir_text){other + 7, strlen(other) - 7}, got);
    CHECK(strcmp(got, other) != 0);
}

TEST(keys_are_hashed_on_demand)
{
    CHECK_EQ(weir__store_name(&hashed, WEIR__TEXT("r"), false, WEIR__TEXT("secret"), got), 5 + 2 + 33);
    CHECK(!strstr(got, "secret"));
    CHECK_EQ(strspn(got + 8, "0123456789abcdef"), 32);
    CHECK_EQ(weir__store_name(&hashed, WEIR__TEXT("r"), true, WEIR__TEXT(""), got), 5 + 3 + 33);
}

/* A caller that has only a part of the key computes the same name. */
TEST(names_of_truncated_keys)
{
    char key[200], part[sizeof got], hash[WEIR__NAME_DIGITS];
    memset(key, '{', sizeof key);
    for (int on_demand = 0; on_demand < 2; on_demand++)
        for (size_t len = 81; len < sizeof key; len++) {
            const struct weir__naming *naming = on_demand ? &hashed : &plain;
            weir__store_digits((weir_text){key, len}, hash);
            weir__store_name_cut(naming, WEIR__TEXT("r"), true, (weir_text){key, WEIR__NAME_KEY_CUT}, hash, part);
            CHECK(is(naming, WEIR__TEXT("r"), true, (weir_text){key, len}, part));
        }
}

/* A key can be found by its hash: it is the first half of SHA-256. */
TEST(hashes_are_those_of_sha256)
{
    CHECK(is(&hashed, WEIR__TEXT("api"), false, WEIR__TEXT("abc"), "weir:api:~ba7816bf8f01cfea414140de5dae2223"));
}

TEST(longest_name_fits)
{
    static char worst[70000];
    char prefix[100];
    memset(worst, '{', sizeof worst);
    memset(prefix, 'p', sizeof prefix);
    prefix[99] = 0;
    struct weir__naming naming = {.prefix = prefix};
    size_t most = 0;
    for (size_t rule = 0; rule < 300; rule++)
        for (size_t key = 0; key < 90; key++) {
            size_t len = weir__store_name(&naming, (weir_text){worst, rule}, true, (weir_text){worst, key}, got);
            CHECK(len <= WEIR__STORE_NAME_MAX && len == strlen(got));
            most = len > most ? len : most;
        }
    CHECK(most > 350);
    CHECK(weir__store_name(&naming, (weir_text){worst, 65535}, true, (weir_text){worst, 65535}, got) <= most);
}

/* Against OpenSSL, around the lengths at which SHA-256 pads into another block. */
TEST(hash_agrees_with_openssl)
{
    char text[300], digits[WEIR__NAME_DIGITS], want[3];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7 + 3);
    for (size_t len = 0; len <= sizeof text; len++) {
        unsigned char hash[SHA256_DIGEST_LENGTH];
        SHA256((const unsigned char *)text, len, hash);
        weir__store_digits((weir_text){text, len}, digits);
        for (int i = 0; i < WEIR__NAME_DIGITS / 2; i++) {
            snprintf(want, sizeof want, "%02x", hash[i]);
            CHECK(memcmp(want, digits + 2 * i, 2) == 0);
        }
        uint8_t mac[WEIR__SHA256_BYTES], mine[WEIR__SHA256_BYTES];
        size_t key_len = len < 64 ? len : 64;
        HMAC(EVP_sha256(), text, (int)key_len, (const unsigned char *)text, len, mac, NULL);
        weir__hmac_sha256(text, key_len, text, len, mine);
        CHECK(memcmp(mac, mine, sizeof mac) == 0 && weir__equal_secrets(mac, mine, sizeof mac));
        mine[len % sizeof mine] ^= 1;
        CHECK(!weir__equal_secrets(mac, mine, sizeof mac));
    }
}

TEST_MAIN
