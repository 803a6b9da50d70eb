/* The names of attributes and their table. */
#include "rules/attribute.h"
#include "diagnostics_collector.h"

static weir_text text_of(const char *string)
{
    return (weir_text){string, strlen(string)};
}

static struct diags diags;
static struct weir__attributes all;

static void start(void)
{
    diags_begin(&diags, "", 0);
    memset(&all, 0, sizeof all);
}

static int parse(const char *text)
{
    return weir__attribute_parse(&all, &diags.arena, &diags.report, (struct weir__place){0, 3, 7}, text_of(text));
}

static bool is(int index, enum weir__attribute_kind kind, const char *name, int segment)
{
    if (index < 0 || index >= all.count)
        return false;
    const struct weir__attribute *a = &all.list[index];
    return a->kind == kind && weir__text_is(a->name, name) && a->segment == segment && a->source == -1;
}

/* Whether the name is refused at its position, with a message that contains `part` and exactly this suggestion. */
static bool refused(const char *text, const char *part, const char *suggestion)
{
    diags.count = 0;
    int count = all.count;
    if (parse(text) != -1 || all.count != count) {
        printf("  accepted: %s\n", text);
        return false;
    }
    if (diags.count != 1 || !diags_is(&diags, 0, 3, 7, part))
        return false;
    if (strcmp(diags.all[0].suggestion, suggestion) == 0)
        return true;
    printf("  \"%s\": suggests \"%s\" instead of \"%s\"\n", text, diags.all[0].suggestion, suggestion);
    return false;
}

TEST(valid_names_are_parsed)
{
    start();
    CHECK(is(parse("client_ip"), WEIR__ATTR_CLIENT_IP, "", 0));
    CHECK(is(parse("path"), WEIR__ATTR_PATH, "", 0));
    CHECK(is(parse("method"), WEIR__ATTR_METHOD, "", 0));
    CHECK(is(parse("host"), WEIR__ATTR_HOST, "", 0));
    CHECK(is(parse("header:X-Plan"), WEIR__ATTR_HEADER, "x-plan", 0));
    CHECK(is(parse("header:!#$%&'*+.^_`|~0-"), WEIR__ATTR_HEADER, "!#$%&'*+.^_`|~0-", 0));
    CHECK(is(parse("cookie:Sid"), WEIR__ATTR_COOKIE, "Sid", 0));
    CHECK(is(parse("query:user[id]"), WEIR__ATTR_QUERY, "user[id]", 0));
    CHECK(is(parse("query:a:b c"), WEIR__ATTR_QUERY, "a:b c", 0));
    CHECK(is(parse("path:1"), WEIR__ATTR_SEGMENT, "", 1));
    CHECK(is(parse("path:32"), WEIR__ATTR_SEGMENT, "", 32));
    CHECK(is(parse("user_id"), WEIR__ATTR_NAMED, "user_id", 0));
    CHECK(is(parse("api_key"), WEIR__ATTR_NAMED, "api_key", 0));
    CHECK(is(parse("tier"), WEIR__ATTR_NAMED, "tier", 0));
    CHECK(is(parse("_tenant2"), WEIR__ATTR_NAMED, "_tenant2", 0));
    CHECK(is(parse("organisation"), WEIR__ATTR_NAMED, "organisation", 0));
    CHECK_EQ(diags.count, 0);
    CHECK_EQ(all.count, 16);
    diags_end(&diags);
}

TEST(names_similar_to_keywords_are_valid)
{
    start();
    static const char *const names[] = {"cost", "post", "plan", "role", "org", "user", "account", "region", "client"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        CHECK(is(parse(names[i]), WEIR__ATTR_NAMED, names[i], 0));
    CHECK_EQ(diags.count, 0);
    diags_end(&diags);
}

TEST(misspelt_names_get_a_suggestion)
{
    start();
    CHECK(refused("clientip", "unknown attribute \"clientip\"", "client_ip"));
    CHECK(refused("client-ip", "unknown", "client_ip"));
    CHECK(refused("Client_IP", "unknown", "client_ip"));
    CHECK(refused("ip", "unknown", "client_ip"));
    CHECK(refused("remote_addr", "unknown", "client_ip"));
    CHECK(refused("userid", "unknown", "user_id"));
    CHECK(refused("user-id", "unknown", "user_id"));
    CHECK(refused("UserID", "unknown", "user_id"));
    CHECK(refused("apikey", "unknown", "api_key"));
    CHECK(refused("methd", "unknown", "method"));
    CHECK(refused("mehtod", "unknown", "method"));
    CHECK(refused("hots", "unknown", "host"));
    CHECK(refused("paths", "unknown", "path"));
    CHECK(refused("teir", "unknown", "tier"));
    CHECK(refused("uri", "unknown", "path"));
    CHECK(refused(" path", "unknown", "path"));
    CHECK(refused("headers:X", "unknown attribute \"headers:X\"", "header:X"));
    CHECK(refused("Header:X-Plan", "unknown", "header:X-Plan"));
    CHECK(refused("cokie:sid", "unknown", "cookie:sid"));
    CHECK(refused("arg:q", "unknown", "query:q"));
    CHECK(refused("paths:2", "unknown", "path:2"));
    CHECK(refused("body:x", "unknown", ""));
    CHECK(refused(":x", "unknown", ""));
    diags_end(&diags);
}

TEST(invalid_names_are_refused)
{
    start();
    CHECK(refused("", "missing", ""));
    CHECK(refused("header", "colon", ""));
    CHECK(refused("query", "colon", ""));
    CHECK(refused("header:", "after the colon", ""));
    CHECK(refused("header:X Plan", "characters", ""));
    CHECK(refused("header:X:Y", "characters", ""));
    CHECK(refused("header:\xc3\xa4", "characters", ""));
    CHECK(refused("cookie:a=b", "characters", ""));
    CHECK(refused("query:", "after the colon", ""));
    CHECK(refused("query:a\nb", "characters", ""));
    CHECK(refused("path:", "1 to 32", ""));
    CHECK(refused("path:0", "1 to 32", ""));
    CHECK(refused("path:33", "1 to 32", ""));
    CHECK(refused("path:01", "1 to 32", ""));
    CHECK(refused("path:-1", "1 to 32", ""));
    CHECK(refused("path:1x", "1 to 32", ""));
    CHECK(refused("path:4294967297", "1 to 32", ""));
    CHECK(refused("9lives", "small letters", ""));
    CHECK(refused("Tenant", "small letters", ""));
    CHECK(refused("a b", "small letters", ""));
    CHECK(refused("a.b", "small letters", ""));
    diags.count = 0;
    CHECK_EQ(weir__attribute_parse(&all, &diags.arena, &diags.report, (struct weir__place){0, 3, 7},
                                   (weir_text){"header:a\0b", 10}),
             -1);
    CHECK(diags_is(&diags, 0, 3, 7, "characters"));
    CHECK_EQ(all.count, 0);
    diags_end(&diags);
}

/* A name that `identity` declares is accepted, even if it resembles another. */
TEST(declared_name_is_not_taken_for_a_typo)
{
    start();
    CHECK(refused("app_key", "unknown", "api_key"));
    int index = weir__attribute_add(&all, &diags.arena, WEIR__ATTR_NAMED, text_of("app_key"), 0);
    CHECK_EQ(index, 0);
    diags.count = 0;
    CHECK_EQ(parse("app_key"), index);
    CHECK_EQ(diags.count, 0);
    diags_end(&diags);
}

TEST(each_attribute_is_in_the_table_once)
{
    start();
    int header = parse("header:X-Plan"), cookie = parse("cookie:X-Plan");
    CHECK(header >= 0 && cookie >= 0 && header != cookie);
    CHECK_EQ(parse("header:x-pLAN"), header);
    CHECK_EQ(parse("cookie:X-Plan"), cookie);
    CHECK(parse("cookie:x-plan") != cookie);
    CHECK(parse("path:1") != parse("path:2"));
    CHECK_EQ(parse("path:1"), parse("path:1"));
    CHECK(parse("path") != parse("path:1"));
    CHECK_EQ(all.count, 6);
    diags_end(&diags);
}

TEST(full_table_is_an_error)
{
    start();
    char name[32];
    for (int i = 0; i < WEIR__ATTRIBUTES_MAX; i++) {
        (void)snprintf(name, sizeof name, "header:x-%d", i);
        CHECK_EQ(parse(name), i);
    }
    CHECK_EQ(diags.count, 0);
    CHECK(refused("header:x-256", "256 different attributes", ""));
    CHECK_EQ(parse("header:x-255"), 255);
    diags_end(&diags);

    start();
    diags.arena.bytes_max = 1;
    CHECK_EQ(parse("header:x"), -1);
    CHECK(diags.arena.failed);
    CHECK_EQ(all.count, 0);
    diags_end(&diags);
}

TEST_MAIN
