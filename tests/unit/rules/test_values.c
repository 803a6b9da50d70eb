/* The values of a request's attributes, from a callback and from an array. */
#include "rules/attribute.h"
#include "diagnostics_collector.h"

static weir_text text_of(const char *string)
{
    return (weir_text){string, strlen(string)};
}

static struct diags diags;
static struct weir__attributes all;
static struct weir__values values;

static void start(void)
{
    diags_begin(&diags, "", 0);
    memset(&all, 0, sizeof all);
    all.identity = (struct weir__identity){.ipv4_prefix = 32, .ipv6_prefix = 64};
}

static int index_of(const char *name)
{
    int index = weir__attribute_parse(&all, &diags.arena, &diags.report, (struct weir__place){0, 1, 1}, text_of(name));
    CHECK(index >= 0);
    return index;
}

/* NULL: missing. Reads it twice, the second time from the cache. */
static bool has(const char *name, const char *expected)
{
    int index = index_of(name);
    for (int i = 0; i < 2; i++) {
        weir_text value = {NULL, 7};
        bool found = weir__value(&values, index, &value);
        if (found ? !expected || !weir__text_is(value, expected) : expected != NULL || value.len != 0) {
            printf("  %s is \"%.*s\"\n", name, (int)value.len, value.data);
            return false;
        }
    }
    return true;
}

/* ---- A callback that counts its calls ---- */

struct request {
    const weir_attribute *attributes;
    size_t count;
    int lookups[WEIR_ATTR_NAMED + 1];
};

static bool lookup_value(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    struct request *request = context;

    request->lookups[kind]++;
    for (size_t i = 0; i < request->count; i++)
        if (request->attributes[i].kind == kind && weir__text_is(name, request->attributes[i].name)) {
            *value = text_of(request->attributes[i].value);
            return true;
        }
    return false;
}

#define BEGIN(...)                                                                                                     \
    weir_attribute given[] = {__VA_ARGS__};                                                                            \
    struct request request = {given, sizeof given / sizeof given[0], {0}};                                             \
    weir_query query = {.lookup = lookup_value, .lookup_context = &request};                                           \
    memset(&values, 0xa5, sizeof values); /* previous contents must not matter */                                      \
    weir__values_begin(&values, &all, &query)

TEST(plain_values)
{
    start();
    BEGIN({WEIR_ATTR_PATH, "", "/a/b"}, {WEIR_ATTR_METHOD, "", "GET"}, {WEIR_ATTR_HOST, "", "example.com"},
          {WEIR_ATTR_HEADER, "x-plan", "pro"}, {WEIR_ATTR_NAMED, "user_id", "42"}, {WEIR_ATTR_HEADER, "x-empty", ""});
    CHECK(has("path", "/a/b"));
    CHECK(has("method", "GET"));
    CHECK(has("host", "example.com"));
    CHECK(has("header:X-Plan", "pro"));
    CHECK(has("user_id", "42"));
    CHECK(has("header:X-Empty", NULL));
    CHECK(has("header:X-Other", NULL));
    CHECK(has("api_key", NULL));
    CHECK(has("client_ip", NULL));
    CHECK(has("query:q", NULL));
    CHECK(has("cookie:sid", NULL));
    /* Each was looked up once, whatever its value. */
    CHECK_EQ(request.lookups[WEIR_ATTR_PATH], 1);
    CHECK_EQ(request.lookups[WEIR_ATTR_METHOD], 1);
    CHECK_EQ(request.lookups[WEIR_ATTR_HEADER], 4);
    CHECK_EQ(request.lookups[WEIR_ATTR_NAMED], 2);
    CHECK_EQ(request.lookups[WEIR_ATTR_PEER], 1);
    CHECK_EQ(request.lookups[WEIR_ATTR_QUERY], 1);
    CHECK_EQ(request.lookups[WEIR_ATTR_TARGET], 1);
    diags_end(&diags);
}

TEST(white_space_around_values_is_stripped)
{
    start();
    all.list[index_of("user_id")].source = (int16_t)index_of("header:X-User");
    BEGIN({WEIR_ATTR_METHOD, "", "\tpost "}, {WEIR_ATTR_HOST, "", " Example.com:80\t"},
          {WEIR_ATTR_HEADER, "x-plan", " \tp r o\t "}, {WEIR_ATTR_HEADER, "x-blank", "\t \t"},
          {WEIR_ATTR_NAMED, "user_id", " "}, {WEIR_ATTR_HEADER, "x-user", "\t42"}, {WEIR_ATTR_PEER, "", "\t192.0.2.1 "},
          {WEIR_ATTR_PATH, "", "/a /b "}, {WEIR_ATTR_QUERY, "", "q=%20x%09"});
    CHECK(has("method", "POST"));
    CHECK(has("host", "example.com"));
    CHECK(has("header:X-Plan", "p r o"));
    CHECK(has("header:X-Blank", NULL));
    CHECK(has("user_id", "42"));
    CHECK(has("client_ip", "192.0.2.1"));
    /* White space that was encoded in a path or an argument is part of the value. */
    CHECK(has("path", "/a /b "));
    CHECK(has("path:2", "b "));
    CHECK(has("query:q", " x\t"));
    diags_end(&diags);
}

TEST(path_and_its_segments)
{
    start();
    {
        BEGIN({WEIR_ATTR_PATH, "", "/api//%41/items/"}, {WEIR_ATTR_TARGET, "", "/other?q=1"});
        CHECK(has("path", "/api//%41/items/")); /* as given */
        CHECK(has("path:1", "api"));
        CHECK(has("path:2", NULL));
        CHECK(has("path:3", "%41"));
        CHECK(has("path:4", "items"));
        CHECK(has("path:5", NULL));
        CHECK(has("path:6", NULL));
        CHECK(has("query:q", "1"));
        CHECK_EQ(request.lookups[WEIR_ATTR_PATH], 1);
        CHECK_EQ(request.lookups[WEIR_ATTR_TARGET], 1);
    }
    {
        BEGIN({WEIR_ATTR_TARGET, "", "http://h/api/./x/%41?q=a+b&r=c#f"});
        CHECK(has("path:3", "A"));
        CHECK(has("path", "/api/x/A"));
        CHECK(has("query:q", "a b"));
        CHECK(has("query:r", "c"));
        CHECK_EQ(request.lookups[WEIR_ATTR_PATH], 1);
        CHECK_EQ(request.lookups[WEIR_ATTR_TARGET], 1);
    }
    {
        BEGIN({WEIR_ATTR_TARGET, "", "/x?q=1"}, {WEIR_ATTR_QUERY, "", "q=2"});
        CHECK(has("query:q", "2"));
    }
    {
        BEGIN({WEIR_ATTR_TARGET, "", "*"});
        CHECK(has("path", "*"));
        CHECK(has("path:1", NULL));
    }
    static char huge[WEIR__PATH_MAX + 100];
    memset(huge, 'a', sizeof huge - 1);
    huge[0] = '/';
    {
        BEGIN({WEIR_ATTR_PATH, "", huge});
        weir_text value;
        CHECK(weir__value(&values, index_of("path"), &value));
        CHECK_EQ(value.len, WEIR__PATH_MAX);
        CHECK(weir__value(&values, index_of("path:1"), &value));
        CHECK_EQ(value.len, WEIR__PATH_MAX - 1);
    }
    {
        BEGIN({WEIR_ATTR_TARGET, "", huge});
        weir_text value;
        CHECK(weir__value(&values, index_of("path"), &value));
        CHECK_EQ(value.len, WEIR__PATH_MAX);
    }
    diags_end(&diags);
}

/* Independent of the other arguments and of the spelling: the same value, so the same counter. */
TEST(long_arguments_are_cut_alike)
{
    start();
    static char text[16 * WEIR__ARGUMENT_MAX], plain[3 * WEIR__ARGUMENT_MAX];
    const char *names[] = {"query:a", "query:b", "query:c", "query:d", "query:e"};
    for (int used = 1; used <= 5; used++) {
        index_of(names[used - 1]);
        size_t most = used < 5 ? WEIR__ARGUMENT_MAX : 4 * WEIR__ARGUMENT_MAX / 5;
        memset(plain, 'x', sizeof plain - 1);
        snprintf(text, sizeof text, "a=%s&b=%%78%s&c=%%41&d=+%s&e=%%42", plain, plain + 1, plain);
        BEGIN({WEIR_ATTR_QUERY, "", text}, {WEIR_ATTR_TARGET, "", "/x%41"});
        weir_text a, b;
        CHECK(weir__value(&values, index_of("query:a"), &a));
        CHECK_EQ(a.len, most);
        if (used >= 2) {
            CHECK(weir__value(&values, index_of("query:b"), &b));
            CHECK(weir__text_equal(a, b));
        }
        CHECK(used < 3 || has("query:c", "A"));
        CHECK(used < 5 || has("query:e", "B"));
        CHECK(has("path", "/xA")); /* has a buffer of its own */
    }
    diags_end(&diags);
}

/* The values, each followed by '|'; "+" for more than are examined. */
static bool all_are(const char *name, const char *expected)
{
    static struct weir__several several;
    char got[256] = "";
    weir_text first;
    bool cut;
    weir__value(&values, index_of(name), &first);
    if (!weir__value_is_several(&values, index_of(name)))
        return !expected;
    weir__value_several(&values, index_of(name), &several);
    for (size_t i = 0; i < several.count; i++) {
        weir_text text = weir__several_value(&several, i, &cut);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%.*s%s|", (int)text.len, text.data, cut ? "…" : "");
    }
    return expected && strcmp(strcat(got, several.more ? "+" : ""), expected) == 0;
}

TEST(several_of_one_name)
{
    start();
    BEGIN({WEIR_ATTR_QUERY, "", "a=1&b=%31&a=%32+&c&c=3&b=1&d=1&d=2&d=3&d=4&d=5&d=6&d=7&d=8&d=9"},
          {WEIR_ATTR_HEADER, "cookie", "a=x; b=; b=y; c=z; c=\"z\""}, {WEIR_ATTR_NAMED, "given", "g"});
    all.list[index_of("user_id")].source = (int16_t)index_of("query:a");
    all.list[index_of("api_key")].source = (int16_t)index_of("cookie:b");
    all.list[index_of("given")].source = (int16_t)index_of("query:a");
    CHECK(all_are("query:a", "1|2 |") && all_are("query:b", NULL) && has("query:b", "1"));
    CHECK(all_are("query:c", "|3|") && all_are("query:d", "1|2|3|4|5|6|7|8|+"));
    CHECK(all_are("cookie:a", NULL) && all_are("cookie:b", "|y|") && all_are("cookie:c", NULL) && has("cookie:c", "z"));
    CHECK(all_are("user_id", "1|2 |") && all_are("api_key", "|y|") && all_are("given", NULL) && has("given", "g"));
    CHECK_EQ(request.lookups[WEIR_ATTR_HEADER], 1);
    CHECK_EQ(request.lookups[WEIR_ATTR_QUERY], 1);
    diags_end(&diags);
}

static bool host_is(const char *host, const char *expected)
{
    BEGIN({WEIR_ATTR_HOST, "", host});
    return has("host", expected);
}

TEST(hosts)
{
    start();
    CHECK(host_is("example.com", "example.com"));
    CHECK(host_is("Example.COM:8080", "example.com"));
    CHECK(host_is("example.com.", "example.com"));
    CHECK(host_is("example.com.:80", "example.com"));
    CHECK(host_is("example.com:", "example.com"));
    CHECK(host_is("[2001:DB8::1]:443", "[2001:db8::1]"));
    CHECK(host_is("[::1]", "[::1]"));
    CHECK(host_is("[::1", "[::1"));
    CHECK(host_is("2001:db8::1", "2001:db8::1"));
    CHECK(host_is(":80", NULL));
    CHECK(host_is(".", NULL));
    CHECK(host_is("", NULL));
    char longest[WEIR__HOST_MAX + 2];
    memset(longest, 'A', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    CHECK(host_is(longest, longest));
    diags_end(&diags);
}

static bool method_is(const char *method, const char *expected)
{
    BEGIN({WEIR_ATTR_METHOD, "", method});
    return has("method", expected);
}

TEST(methods)
{
    start();
    CHECK(method_is("POST", "POST"));
    CHECK(method_is("post", "POST"));
    CHECK(method_is("M-Search", "M-SEARCH"));
    CHECK(method_is("", NULL));
    CHECK(method_is("a-method-without-any-known-meaning", "a-method-without-any-known-meaning"));
    diags_end(&diags);
}

TEST(cookies_and_sources)
{
    start();
    int user = index_of("user_id"), key = index_of("api_key"), tier = index_of("tier"), org = index_of("org");
    all.list[user].source = (int16_t)index_of("header:X-User");
    all.list[key].source = (int16_t)index_of("cookie:Key");
    all.list[tier].source = (int16_t)org; /* a cycle, which the reader refuses; the lookup must still end */
    all.list[org].source = (int16_t)tier;
    BEGIN({WEIR_ATTR_HEADER, "cookie", "a=1; Key=\"k 1\"; b="}, {WEIR_ATTR_HEADER, "x-user", "7"});
    CHECK(has("user_id", "7"));
    CHECK(has("header:x-user", "7"));
    CHECK_EQ(request.lookups[WEIR_ATTR_HEADER], 1);
    CHECK(has("api_key", "k 1"));
    CHECK(has("cookie:a", "1"));
    CHECK(has("cookie:b", NULL));
    CHECK(has("cookie:key", NULL));
    CHECK(has("tier", NULL));
    CHECK(has("org", NULL));
    {
        weir_attribute own[] = {{WEIR_ATTR_NAMED, "user_id", "8"}, {WEIR_ATTR_HEADER, "x-user", "7"}};
        weir_query other = {.attributes = own, .attribute_count = 2};
        weir__values_begin(&values, &all, &other);
        CHECK(has("user_id", "8")); /* the application's value wins */
        CHECK(has("header:x-user", "7"));
    }
    diags_end(&diags);
}

TEST(values_from_an_array)
{
    start();
    weir_attribute given[] = {{WEIR_ATTR_PATH, NULL, "/a"},          {WEIR_ATTR_HEADER, "X-PLAN", NULL},
                              {WEIR_ATTR_HEADER, "X-Plan", "pro"},   {WEIR_ATTR_HEADER, "x-plan", "free"},
                              {WEIR_ATTR_NAMED, "User_id", "wrong"}, {WEIR_ATTR_NAMED, "user_id", "42"},
                              {WEIR_ATTR_HEADER, NULL, "x"},         {WEIR_ATTR_METHOD, NULL, NULL}};
    weir_query query = {.attributes = given, .attribute_count = sizeof given / sizeof given[0]};
    weir__values_begin(&values, &all, &query);
    CHECK(has("path", "/a"));
    CHECK(has("header:x-Plan", "pro"));
    CHECK(has("user_id", "42"));
    CHECK(has("method", NULL));
    CHECK(has("host", NULL));
    CHECK(!weir__value_client(&values));

    weir_query nothing = {.attribute_count = 3};
    weir__values_begin(&values, &all, &nothing);
    CHECK(has("path", NULL));
    CHECK(has("header:x-plan", NULL));
    CHECK(has("path:1", NULL));
    CHECK(!weir__value_client(&values));
    diags_end(&diags);
}

/* ---- The client ---- */

static bool client_is(const weir_query *query, const char *ungrouped, const char *text)
{
    char shown[WEIR__ADDRESS_TEXT];

    weir__values_begin(&values, &all, query);
    const struct weir__address *client = weir__value_client(&values);
    if (!client)
        return !ungrouped && has("client_ip", NULL);
    size_t len = weir__address_text(client, 128, shown);
    bool same = ungrouped && weir__text_is((weir_text){shown, len}, ungrouped);
    return has("client_ip", text) && same && weir__value_client(&values) == client;
}

TEST(client_grouped)
{
    start();
    static const uint8_t four[4] = {192, 0, 2, 77}, mapped[16] = {[10] = 0xff, 0xff, 192, 0, 2, 77},
                         six[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 2, 0, 3, [15] = 9};
    weir_query q4 = {.peer = four, .peer_len = 4}, qm = {.peer = mapped, .peer_len = 16},
               q6 = {.peer = six, .peer_len = 16};
    CHECK(client_is(&q4, "192.0.2.77", "192.0.2.77"));
    CHECK(client_is(&qm, "192.0.2.77", "192.0.2.77")); /* not masked as IPv6, which would put all of IPv4 together */
    CHECK(client_is(&q6, "2001:db8:1:2:3::9", "2001:db8:1:2::/64"));
    all.identity = (struct weir__identity){.ipv4_prefix = 24, .ipv6_prefix = 128};
    CHECK(client_is(&q4, "192.0.2.77", "192.0.2.0/24"));
    CHECK(client_is(&qm, "192.0.2.77", "192.0.2.0/24"));
    CHECK(client_is(&q6, "2001:db8:1:2:3::9", "2001:db8:1:2:3::9"));

    weir_attribute text[] = {{WEIR_ATTR_PEER, NULL, "[2001:db8::5]:99"}};
    weir_query from_text = {.attributes = text, .attribute_count = 1}, odd = from_text;
    CHECK(client_is(&from_text, "2001:db8::5", "2001:db8::5"));
    odd.peer = six;
    odd.peer_len = 7;
    CHECK(client_is(&odd, "2001:db8::5", "2001:db8::5"));
    text[0].value = "unix:/run/socket";
    CHECK(client_is(&from_text, NULL, NULL));
    diags_end(&diags);
}

TEST(client_behind_proxies)
{
    start();
    struct weir__network proxy;
    bool host_bits;
    CHECK(weir__network_parse(WEIR__TEXT("10.0.0.0/8"), &proxy, &host_bits));
    all.identity.trusted = weir__networks_make(&diags.arena, &proxy, 1);
    weir_attribute given[] = {{WEIR_ATTR_HEADER, "x-forwarded-for", "203.0.113.9, 198.51.100.7"},
                              {WEIR_ATTR_PEER, "", "10.0.0.1"},
                              {WEIR_ATTR_HEADER, "forwarded", "for=198.51.100.8"}};
    struct request request = {given, 2, {0}};
    weir_query query = {.lookup = lookup_value, .lookup_context = &request};
    CHECK(client_is(&query, "198.51.100.7", "198.51.100.7"));
    CHECK_EQ(request.lookups[WEIR_ATTR_HEADER], 1);
    request.count = 3; /* a Forwarded of the client, which a proxy that writes X-Forwarded-For passes on */
    CHECK(client_is(&query, "198.51.100.7", "198.51.100.7"));
    all.identity.forwarded_header = WEIR__FORWARDED_STANDARD;
    CHECK(client_is(&query, "198.51.100.8", "198.51.100.8"));
    all.identity.forwarded_header = WEIR__FORWARDED_X;
    given[0].name = "x-other";
    CHECK(client_is(&query, "10.0.0.1", "10.0.0.1"));
    given[1].value = "192.0.2.1"; /* headers of an untrusted peer are not even looked up */
    request.lookups[WEIR_ATTR_HEADER] = 0;
    CHECK(client_is(&query, "192.0.2.1", "192.0.2.1"));
    CHECK_EQ(request.lookups[WEIR_ATTR_HEADER], 0);
    diags_end(&diags);
}

TEST_MAIN
