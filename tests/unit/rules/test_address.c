/* Addresses and networks: text to bytes and back, and sets of networks against a plain list. */
#include "rules/address.h"
#include "../../test.h"

#include <arpa/inet.h>

static weir_text text_of(const char *string)
{
    return (weir_text){string, strlen(string)};
}

static struct weir__address address(const char *string)
{
    struct weir__address a = {{0}};
    CHECK(weir__address_parse(text_of(string), &a));
    return a;
}

static bool shows(const struct weir__address *a, int group, const char *expected)
{
    char text[WEIR__ADDRESS_TEXT];
    size_t len = weir__address_text(a, group, text);
    bool same = len == strlen(expected) && memcmp(text, expected, len) == 0;
    if (!same)
        printf("  %.*s instead of %s\n", (int)len, text, expected);
    return same;
}

/* Whether `from` parses and is formatted as `to`. */
static bool reads(const char *from, const char *to)
{
    struct weir__address a;
    bool good = weir__address_parse(text_of(from), &a);
    if (!good)
        printf("  does not parse: %s\n", from);
    return good && shows(&a, 128, to);
}

static bool refused(const char *from)
{
    struct weir__address a;
    bool good = weir__address_parse(text_of(from), &a);
    if (good)
        printf("  parses: %s\n", from);
    return !good;
}

TEST(address_from_bytes)
{
    struct weir__address a;
    uint8_t four[4] = {192, 0, 2, 7}, sixteen[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 1};

    CHECK(weir__address_from(four, 4, &a));
    CHECK(weir__address_is4(&a));
    CHECK(shows(&a, 128, "192.0.2.7"));
    CHECK(weir__address_from(sixteen, 16, &a));
    CHECK(!weir__address_is4(&a));
    CHECK(shows(&a, 128, "2001:db8::1"));
    CHECK(!weir__address_from(sixteen, 0, &a));
    CHECK(!weir__address_from(sixteen, 5, &a));
    CHECK(!weir__address_from(sixteen, 15, &a));
}

TEST(address_forms)
{
    CHECK(reads("0.0.0.0", "0.0.0.0"));
    CHECK(reads("255.255.255.255", "255.255.255.255"));
    CHECK(reads("10.20.30.4", "10.20.30.4"));
    CHECK(reads(" \t10.0.0.1 ", "10.0.0.1"));
    CHECK(reads("10.0.0.1:1", "10.0.0.1"));
    CHECK(reads("10.0.0.1:65535", "10.0.0.1"));
    CHECK(reads("::", "::"));
    CHECK(reads("[::1]", "::1"));
    CHECK(reads("[2001:DB8::A]:443", "2001:db8::a"));
    CHECK(reads("fe80::1%eth0", "fe80::1"));
    CHECK(reads("[fe80::1%25eth0.1]:80", "fe80::1"));
    CHECK(reads("::ffff:192.0.2.1", "192.0.2.1"));
    CHECK(reads("::ffff:c000:201", "192.0.2.1"));
    CHECK(reads("[::FFFF:192.0.2.1]:80", "192.0.2.1"));
    CHECK(reads("2001:db8::1:80", "2001:db8::1:80")); /* without brackets there is no port */
}

TEST(address_is_formatted_by_rfc_5952)
{
    CHECK(reads("2001:0db8:0000:0000:0000:0000:0002:0001", "2001:db8::2:1"));
    CHECK(reads("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1")); /* one group alone is not shortened */
    CHECK(reads("2001:0:0:1:0:0:0:1", "2001:0:0:1::1"));          /* the longest run */
    CHECK(reads("2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"));    /* the first of equal ones */
    CHECK(reads("1:0:0:0:0:0:0:0", "1::"));
    CHECK(reads("0:0:1::", "0:0:1::"));
    CHECK(reads("::1:0:0:0:0", "0:0:0:1::")); /* the longer run is at the end */
    CHECK(reads("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
    struct weir__address a = address("2001:db8:1:2:3::");
    weir__address_mask(&a, 64);
    CHECK(shows(&a, 64, "2001:db8:1:2::/64"));
    a = address("192.0.2.77");
    weir__address_mask(&a, 96 + 24);
    CHECK(shows(&a, 96 + 24, "192.0.2.0/24"));
    weir__address_mask(&a, 96);
    CHECK(shows(&a, 96, "0.0.0.0/0"));
    a = address("1111:2222:3333:4444:5555:6666:7777:8888");
    CHECK(shows(&a, 127, "1111:2222:3333:4444:5555:6666:7777:8888/127"));
}

TEST(invalid_addresses_are_refused)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "1.2.3",
                                      "1.2.3.4.5",
                                      "1.2.3.256",
                                      "01.2.3.4",
                                      "1.2.3.04",
                                      "1.2.3.",
                                      "1.2.3.4:",
                                      "1.2.3.4:x",
                                      "1.2.3.4:1x",
                                      "1.2.3.4:123456",
                                      "1.2.3.4 5",
                                      "1..2.3",
                                      "1.2.3.4/8",
                                      "1.2.3.1000",
                                      "+1.2.3.4",
                                      "0x1.2.3.4",
                                      "1.2.3.4%eth0",
                                      "1. 2.3.4",
                                      "[1.2.3.4]",
                                      "[",
                                      "[]",
                                      "[::1",
                                      "[::1]x",
                                      "[::1]:",
                                      "[::1]80",
                                      "[::1]:x",
                                      "[ ::1]",
                                      "::1]",
                                      ":",
                                      ":::",
                                      "1::2::3",
                                      "12345::",
                                      "g::",
                                      "1:2:3:4:5:6:7",
                                      "1:2:3:4:5:6:7:8:9",
                                      "::1.2.3.400",
                                      "fe80::1%",
                                      "[fe80::1%]",
                                      "fe80::1%a b",
                                      "unknown",
                                      "_hidden",
                                      "localhost",
                                      "unix:/run/x",
                                      "::ffff:1.2.3.4:80",
                                      "1.2.3.4,5.6.7.8"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(refused(bad[i]));
    /* A zero byte ends a C string, but not a text: an address with bytes after one must be refused. */
    struct weir__address a;
    CHECK(!weir__address_parse((weir_text){"::1\0x", 5}, &a));
    CHECK(!weir__address_parse((weir_text){"1.2.3.4\0", 8}, &a));
    CHECK(!weir__address_parse((weir_text){NULL, 0}, &a));
}

TEST(address_round_trips)
{
    uint64_t seed = 1;

    for (int64_t i = 0; i < test_scaled(200000, 1000); i++) {
        struct weir__address a, again, known;
        uint64_t zeros = test_random(&seed);
        for (int j = 0; j < 16; j++)
            a.bytes[j] = zeros >> (2 * (j / 2)) & 3 ? 0 : (uint8_t)test_random(&seed); /* many runs of zeros */
        char text[WEIR__ADDRESS_TEXT], copy[WEIR__ADDRESS_TEXT];
        size_t len = weir__address_text(&a, 128, text);
        CHECK(weir__address_parse((weir_text){text, len}, &again));
        CHECK(memcmp(&a, &again, sizeof a) == 0);
        memcpy(copy, text, len);
        copy[len] = '\0';
        if (!weir__address_is4(&a)) {
            CHECK(inet_pton(AF_INET6, copy, known.bytes) == 1);
            CHECK(memcmp(&a, &known, sizeof a) == 0);
        }
    }
}

TEST(mask_clears_the_bits_after_the_prefix)
{
    struct weir__address ones, a;
    memset(&ones, 0xff, sizeof ones);

    for (int length = 0; length <= 128; length++) {
        a = ones;
        weir__address_mask(&a, length);
        for (int bit = 0; bit < 128; bit++)
            CHECK_EQ(a.bytes[bit / 8] >> (7 - bit % 8) & 1, bit < length);
    }
}

/* ---- Networks ---- */

static struct weir__network network(const char *string)
{
    struct weir__network n = {.length = 0};
    bool host_bits;
    CHECK(weir__network_parse(text_of(string), &n, &host_bits));
    return n;
}

TEST(network_forms)
{
    struct weir__network n;
    bool host_bits;

    n = network("10.0.0.0/8");
    CHECK_EQ(n.length, 104);
    CHECK(shows(&n.address, n.length, "10.0.0.0/8"));
    CHECK(weir__network_parse(text_of("10.1.2.3/8"), &n, &host_bits) && host_bits);
    CHECK(shows(&n.address, n.length, "10.0.0.0/8"));
    CHECK(weir__network_parse(text_of("10.1.2.3"), &n, &host_bits) && !host_bits);
    CHECK_EQ(n.length, 128);
    n = network("::ffff:10.0.0.0/104");
    CHECK_EQ(n.length, 104);
    CHECK(shows(&n.address, n.length, "10.0.0.0/8"));
    n = network("0.0.0.0/0");
    CHECK_EQ(n.length, 96);
    n = network("::/0");
    CHECK_EQ(n.length, 0);
    n = network(" 2001:db8::/32 ");
    CHECK_EQ(n.length, 32);
    CHECK(weir__network_parse(text_of("2001:db8::1/32"), &n, &host_bits) && host_bits);
    n = network("2001:db8::1");
    CHECK_EQ(n.length, 128);

    static const char *const bad[] = {"",
                                      "/",
                                      "/8",
                                      "10.0.0.0/",
                                      "10.0.0.0/33",
                                      "10.0.0.0/08",
                                      "10.0/8",
                                      "10.0.0.0/x",
                                      "10.0.0.0/8 x",
                                      "10.0.0.0/-1",
                                      "::/129",
                                      "::/1000",
                                      "[::]/0",
                                      "fe80::%eth0/64",
                                      "10.0.0.0:80/8",
                                      "10.0.0.0/8/8",
                                      "10.0.0.0 /8",
                                      "10.0.0.0/255.0.0.0",
                                      "example.com",
                                      "::/00"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (weir__network_parse(text_of(bad[i]), &n, &host_bits)) {
            printf("  parses: %s\n", bad[i]);
            CHECK(false);
        }
}

static bool contains(const struct weir__network *list, size_t count, const char *what)
{
    struct weir__arena arena = {.bytes_max = 1 << 20};
    struct weir__address a = address(what);
    const struct weir__networks *set = weir__networks_make(&arena, list, count);
    CHECK(set != NULL);
    bool inside = set && weir__networks_contain(set, &a);
    weir__arena_free(&arena);
    return inside;
}

TEST(first_and_last_address_of_a_network)
{
    struct weir__network all4 = network("0.0.0.0/0"), all = network("::/0"), one = network("192.0.2.1"),
                         last = network("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");

    CHECK(!contains(NULL, 0, "10.0.0.1"));
    CHECK(contains(&all4, 1, "10.0.0.1"));
    CHECK(!contains(&all4, 1, "::1"));
    CHECK(!contains(&all4, 1, "ffff::"));
    CHECK(contains(&all, 1, "10.0.0.1"));
    CHECK(contains(&all, 1, "::"));
    CHECK(contains(&all, 1, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
    CHECK(contains(&one, 1, "192.0.2.1"));
    CHECK(contains(&one, 1, "::ffff:192.0.2.1"));
    CHECK(!contains(&one, 1, "192.0.2.0"));
    CHECK(!contains(&one, 1, "192.0.2.2"));
    CHECK(contains(&last, 1, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
    CHECK(!contains(&last, 1, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"));
    struct weir__network nested[] = {network("10.1.2.0/24"), network("10.0.0.0/8"), network("10.1.0.0/16"), last, last};
    CHECK(contains(nested, 5, "10.255.255.255"));
    CHECK(contains(nested, 5, "10.1.2.3"));
    CHECK(!contains(nested, 5, "11.0.0.0"));
    CHECK(!contains(nested, 5, "9.255.255.255"));
}

static bool is_within(const char *inner, const char *other_inner, const char *outer, const char *other_outer)
{
    struct weir__arena arena = {.bytes_max = 1 << 20};
    struct weir__network in[] = {network(inner), network(other_inner)}, out[] = {network(outer), network(other_outer)};
    const struct weir__networks *a = weir__networks_make(&arena, in, 2), *b = weir__networks_make(&arena, out, 2);
    bool within = a && b && weir__networks_within(a, b, &(uint64_t){2});
    weir__arena_free(&arena);
    return within;
}

TEST(networks_within_others)
{
    CHECK(is_within("10.1.0.0/16", "10.2.0.0/16", "10.0.0.0/8", "2001:db8::/32"));
    CHECK(is_within("10.1.0.0/16", "2001:db8::1", "10.0.0.0/8", "2001:db8::/32"));
    CHECK(is_within("10.0.0.0/8", "10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9"));
    CHECK(is_within("10.0.0.0/8", "2001:db8::/32", "::/0", "10.0.0.1"));
    CHECK(!is_within("10.0.0.0/8", "10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/10"));
    CHECK(!is_within("10.1.0.0/16", "11.0.0.0/16", "10.0.0.0/8", "12.0.0.0/8"));
    CHECK(!is_within("9.255.0.0/16", "10.0.0.0/16", "10.0.0.0/8", "12.0.0.0/8"));
    struct weir__arena arena = {.bytes_max = 1 << 20};
    struct weir__network one = network("10.0.0.1");
    const struct weir__networks *none = weir__networks_make(&arena, NULL, 0),
                                *some = weir__networks_make(&arena, &one, 1);
    uint64_t lookups = 2;
    CHECK(none && some && weir__networks_within(none, some, &lookups) && lookups == 2);
    CHECK(!weir__networks_within(some, none, &lookups) && lookups == 1);
    CHECK(weir__networks_within(some, some, &lookups) && lookups == 0);
    CHECK(!weir__networks_within(some, some, &lookups) && lookups == 0);
    weir__arena_free(&arena);
}

static bool naive(const struct weir__network *list, size_t count, const struct weir__address *a)
{
    for (size_t i = 0; i < count; i++) {
        struct weir__address masked = *a;
        weir__address_mask(&masked, list[i].length);
        if (memcmp(&masked, &list[i].address, sizeof masked) == 0)
            return true;
    }
    return false;
}

/* Of few different bits, so that networks overlap and contain the addresses. */
static struct weir__address random_address(uint64_t *seed)
{
    struct weir__address a = {{0}};
    uint64_t bits = test_random(seed);

    if (bits & 1) {
        a.bytes[10] = a.bytes[11] = 0xff;
        a.bytes[12] = 10;
        a.bytes[13] = (uint8_t)(bits >> 8 & 3);
    } else {
        a.bytes[0] = 0x20;
        a.bytes[1] = (uint8_t)(bits >> 8 & 3);
        a.bytes[9] = (uint8_t)(bits >> 16 & 7);
    }
    a.bytes[14] = (uint8_t)(bits >> 24 & 0x83);
    a.bytes[15] = (uint8_t)(bits >> 32);
    return a;
}

TEST(networks_agree_with_a_linear_search)
{
    static struct weir__network list[300];
    uint64_t seed = 7;

    for (int64_t round = 0; round < test_scaled(300, 20); round++) {
        size_t count = test_random(&seed) % (round % 2 ? 300 : 8), hits = 0;
        for (size_t i = 0; i < count; i++) {
            list[i].address = random_address(&seed);
            /* Occasionally a short prefix; mostly long ones, which an address can miss. */
            uint64_t least = test_random(&seed) % 50 ? 110 : 0;
            list[i].length = (uint8_t)(least + test_random(&seed) % (129 - least));
            weir__address_mask(&list[i].address, list[i].length);
        }
        struct weir__arena arena = {.bytes_max = 1 << 20};
        const struct weir__networks *set = weir__networks_make(&arena, list, count);
        CHECK(set != NULL);
        for (int i = 0; set && i < 500; i++) {
            struct weir__address a = random_address(&seed);
            if (count > 0 && i % 5 == 0) { /* right before and after one of them */
                a = list[test_random(&seed) % count].address;
                a.bytes[15] = (uint8_t)(a.bytes[15] + i % 3 - 1);
            }
            bool expected = naive(list, count, &a);
            hits += expected;
            CHECK_EQ(weir__networks_contain(set, &a), expected);
        }
        CHECK(count == 0 || hits > 0);
        weir__arena_free(&arena);
    }
}

TEST(allocation_failure_of_networks_is_an_error)
{
    struct weir__network list[2] = {network("10.0.0.0/8"), network("192.0.2.0/24")};
    struct weir__arena arena = {.bytes_max = 16};
    CHECK(!weir__networks_make(&arena, list, 2));
    CHECK(arena.failed);
    weir__arena_free(&arena);
}

TEST_MAIN
