/*
 * The client address behind trusted proxies, walking back from the last hop. 10/8 and 2001:db8:ffff::/48 are trusted.
 */
#include "rules/address.h"
#include "../../test.h"

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

static struct weir__arena arena = {.bytes_max = 1 << 20};

static const struct weir__networks *ours(void)
{
    static const struct weir__networks *set;
    struct weir__network list[2];
    bool host_bits;

    if (!set) {
        CHECK(weir__network_parse(WEIR__TEXT("10.0.0.0/8"), &list[0], &host_bits));
        CHECK(weir__network_parse(WEIR__TEXT("2001:db8:ffff::/48"), &list[1], &host_bits));
        set = weir__networks_make(&arena, list, 2);
    }
    return set;
}

/* Whether this is the client of a request from our proxy 10.0.0.1. */
static bool client_is(const char *x_forwarded_for, const char *forwarded, const char *expected)
{
    struct weir__address from = address("10.0.0.1"), client;
    char shown[WEIR__ADDRESS_TEXT];

    weir__client_address(&from, ours(), text_of(x_forwarded_for), text_of(forwarded), &client);
    size_t len = weir__address_text(&client, 128, shown);
    bool same = len == strlen(expected) && memcmp(shown, expected, len) == 0;
    if (!same)
        printf("  \"%s\" \"%s\": %.*s instead of %s\n", x_forwarded_for, forwarded, (int)len, shown, expected);
    return same;
}

#define X(header, expected) CHECK(client_is(header, "", expected))
#define F(header, expected) CHECK(client_is("", header, expected))

TEST(x_forwarded_for_from_the_right)
{
    X("", "10.0.0.1");
    X("198.51.100.7", "198.51.100.7");
    X("203.0.113.9, 198.51.100.7", "198.51.100.7");
    X("203.0.113.9, 198.51.100.7, 10.2.3.4", "198.51.100.7");
    X("203.0.113.9 ,198.51.100.7\t,10.2.3.4,2001:db8:ffff::5", "198.51.100.7");
    X("203.0.113.9, [2001:db8::7]:1234, 10.2.3.4:80", "2001:db8::7");
    X("10.5.5.5, 10.2.3.4", "10.5.5.5"); /* all hops are trusted: the first of them is the client */
    X("::ffff:198.51.100.7, ::ffff:10.1.1.1", "198.51.100.7");
    X(", 198.51.100.7, , 10.2.3.4,, ", "198.51.100.7");
    X(" , ,", "10.0.0.1");
}

TEST(x_forwarded_for_ends_at_garbage)
{
    X("unknown", "10.0.0.1");
    X("198.51.100.7, unknown", "10.0.0.1");
    X("198.51.100.7, unknown, 10.2.3.4", "10.2.3.4");
    X("198.51.100.7 10.2.3.4", "10.0.0.1");
    X("198.51.100.7, 10.2.3.4x", "10.0.0.1");
    X("198.51.100.7, <script>, 10.2.3.4", "10.2.3.4");
}

TEST(forwarded_from_the_right)
{
    F("for=198.51.100.7", "198.51.100.7");
    F("For=\"198.51.100.7:4711\";proto=http;by=203.0.113.43", "198.51.100.7");
    F("for=203.0.113.9, for=198.51.100.7;proto=https, FOR=10.2.3.4", "198.51.100.7");
    F("for=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17");
    F("proto=http;for=\"[2001:db8:cafe::17]\" , for=10.2.3.4", "2001:db8:cafe::17");
    F("for=\"\\[2001:db8\\:cafe::17\\]\"", "2001:db8:cafe::17");
    F("for=198.51.100.7;ext=\"a, for=1.2.3.4; \\\" , \\\\\", for=10.2.3.4", "198.51.100.7");
    F("for=\"198.51.100.7:_port\"", "198.51.100.7"); /* RFC 7239 lets ports hide */
    F("for=\"[2001:db8:cafe::17]:_port\"", "2001:db8:cafe::17");
    F(" ; for=198.51.100.7 ; ,, for=10.2.3.4,", "198.51.100.7");
}

TEST(forwarded_ends_at_an_obfuscated_hop)
{
    F("for=_hidden", "10.0.0.1");
    F("for=unknown, for=10.2.3.4", "10.2.3.4");
    F("for=198.51.100.7, proto=https, for=10.2.3.4", "10.2.3.4"); /* a hop without for= */
    F("for=198.51.100.7, for=10.3.3.3;for=10.4.4.4, for=10.2.3.4", "10.2.3.4");
    F("for=198.51.100.7, for=\"10.3.3.3", "10.0.0.1");
    F("for=198.51.100.7, for=10.3.3.3\"", "10.0.0.1");
    F("for=198.51.100.7, for=\"10.3.3.3\"x", "10.0.0.1");
    F("for=, for=10.2.3.4", "10.2.3.4");
    F("\"\"", "10.0.0.1");
    F("\"for=198.51.100.7\"", "10.0.0.1");
    F("for = 198.51.100.7", "10.0.0.1");
    F("\\\"", "10.0.0.1");
}

/* A value that the client puts in front cannot swallow the hops that our proxies append. */
TEST(unbalanced_quote_of_the_client_does_not_hide_hops)
{
    F("for=\"x, for=198.51.100.7, for=10.2.3.4", "198.51.100.7");
    F("for=\\\", for=198.51.100.7;host=\"a,b\", for=10.2.3.4", "198.51.100.7");
    F("\\, for=\"198.51.100.7\", for=10.2.3.4", "198.51.100.7");
}

TEST(x_forwarded_for_wins_over_forwarded)
{
    CHECK(client_is("198.51.100.7", "for=203.0.113.9", "198.51.100.7"));
    CHECK(client_is("unknown", "for=203.0.113.9", "10.0.0.1"));
}

TEST(cost_of_the_walk_is_bounded)
{
    char list[64 * 16 + 64] = "198.51.100.7";
    size_t len = strlen(list);

    for (int hop = 0; hop < WEIR__HOPS_MAX - 1; hop++)
        len += (size_t)snprintf(list + len, sizeof list - len, ",10.9.0.%d", hop);
    X(list, "198.51.100.7");
    (void)snprintf(list + len, sizeof list - len, ",10.9.0.250");
    X(list, "10.9.0.0");

    /* Megabytes of commas, quotes or one long word cost one scan of the right end, or one pass. */
    size_t size = 4 << 20;
    char *huge = malloc(size);
    CHECK(huge != NULL);
    struct weir__address from = address("10.0.0.1"), client;
    for (const char *fill = ",\"\\ a"; huge && *fill; fill++) {
        memset(huge, *fill, size);
        weir__client_address(&from, ours(), (weir_text){huge, size}, text_of(""), &client);
        CHECK(memcmp(&client, &from, sizeof from) == 0);
        weir__client_address(&from, ours(), text_of(""), (weir_text){huge, size}, &client);
        CHECK(memcmp(&client, &from, sizeof from) == 0);
    }
    free(huge);
}

TEST_MAIN
