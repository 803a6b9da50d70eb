/* The store's URL and its options. */
#include "../../test.h"
#include "engine/store_options.h"

#include <weir/weir.h>

static struct weir__store_options options;
static char why[256];

static int parse(const char *url)
{
    why[0] = '\0';
    return weir__store_parse(url, &options, why, sizeof(why));
}

static const char *shown(void)
{
    static char text[1024];
    weir__store_shown(&options, text, sizeof(text));
    return text;
}

TEST(only_the_host_is_required)
{
    CHECK_EQ(parse("redis://cache"), 0);
    CHECK_EQ(options.kind, WEIR__SINGLE);
    CHECK(!options.tls && !options.unix_socket && !options.hash_keys && !options.no_verify);
    CHECK_EQ(options.seed_count, 1);
    CHECK(strcmp(options.seeds[0].name, "cache") == 0);
    CHECK_EQ(options.seeds[0].port, 6379);
    CHECK(strcmp(options.prefix, "weir") == 0);
    CHECK_EQ(options.deadline_us, 20000);
    CHECK_EQ(options.connect_us, 1000000);
    CHECK_EQ(options.sync_interval_us, 50000);
    CHECK_EQ(options.breaker_failures, 5);
    CHECK_EQ(options.retry_min_us, 50000);
    CHECK_EQ(options.retry_max_us, 1000000);
    CHECK_EQ(options.heartbeat_us, 5000000);
    CHECK(strcmp(shown(), "redis://cache:6379") == 0);
}

TEST(every_option_can_be_in_the_url)
{
    CHECK_EQ(parse("rediss://al%40ice:s%3ae%2fc@[2001:db8::1]:7000/3?deadline=5ms&prefix=app&hash_keys=true&verify=no&"
                   "ca=/etc/ca.pem&certificate=/c&key=/k&server_name=redis.example&breaker_failures=9&"
                   "retry_min=10ms&retry_max=2s&heartbeat=1s&connect_timeout=200ms&sync_interval=100ms"),
             0);
    CHECK(options.tls);
    CHECK(strcmp(options.user, "al@ice") == 0);
    CHECK(strcmp(options.password, "s:e/c") == 0);
    CHECK(strcmp(options.seeds[0].name, "2001:db8::1") == 0);
    CHECK_EQ(options.seeds[0].port, 7000);
    CHECK_EQ(options.database, 3);
    CHECK_EQ(options.deadline_us, 5000);
    CHECK(strcmp(options.prefix, "app") == 0);
    CHECK(options.hash_keys && options.no_verify);
    CHECK(strcmp(options.ca, "/etc/ca.pem") == 0);
    CHECK(strcmp(options.server_name, "redis.example") == 0);
    CHECK_EQ(options.breaker_failures, 9);
    CHECK_EQ(options.retry_min_us, 10000);
    CHECK_EQ(options.retry_max_us, 2000000);
    CHECK_EQ(options.heartbeat_us, 1000000);
    CHECK_EQ(options.connect_us, 200000);
    CHECK_EQ(options.sync_interval_us, 100000);
    CHECK(strcmp(shown(), "rediss://al@ice@[2001:db8::1]:7000/3") == 0);
}

TEST(cluster_and_sentinel_urls)
{
    CHECK_EQ(parse("redis+sentinel://:pw@a,b:1,[::1]:2/my%2Fmaster/4?sentinel_password=x"), 0);
    CHECK_EQ(options.kind, WEIR__SENTINEL);
    CHECK_EQ(options.seed_count, 3);
    CHECK_EQ(options.seeds[0].port, 26379);
    CHECK_EQ(options.seeds[1].port, 1);
    CHECK(strcmp(options.seeds[2].name, "::1") == 0);
    CHECK(strcmp(options.master, "my/master") == 0);
    CHECK_EQ(options.database, 4);
    CHECK(strcmp(options.password, "pw") == 0 && options.user[0] == '\0');
    CHECK(strcmp(options.sentinel_password, "x") == 0);

    CHECK_EQ(parse("valkeys+cluster://a:1,b:2"), 0);
    CHECK_EQ(options.kind, WEIR__CLUSTER);
    CHECK(options.tls);
    CHECK_EQ(options.seed_count, 2);
    CHECK(strcmp(shown(), "rediss+cluster://a:1,b:2") == 0);

    CHECK_EQ(parse("redis+unix:///run/redis.sock?database=2"), 0);
    CHECK(options.unix_socket);
    CHECK(strcmp(options.seeds[0].name, "/run/redis.sock") == 0);
    CHECK_EQ(options.database, 2);
    CHECK(strcmp(shown(), "redis+unix:///run/redis.sock?database=2") == 0);
    CHECK_EQ(parse("valkey://h/"), 0);
    CHECK_EQ(parse("redis+unix:///s?user=u&password=p"), 0);
    CHECK(strcmp(options.user, "u") == 0);
}

TEST(errors_are_described)
{
    static const char *const bad[] = {"",
                                      "redis",
                                      "redis:",
                                      "http://a",
                                      "redis://",
                                      "redis+x://a",
                                      "rediss+unix:///a",
                                      "redis://a:0",
                                      "redis://a:65536",
                                      "redis://a:x",
                                      "redis://a:",
                                      "redis://a,b",
                                      "redis://[::1",
                                      "redis://[::1]x",
                                      "redis://a/x",
                                      "redis://a/-1",
                                      "redis://a/65536",
                                      "redis+cluster://a/1",
                                      "redis+sentinel://a",
                                      "redis+sentinel://a/",
                                      "redis+sentinel://,b/m",
                                      "redis+unix://",
                                      "redis+unix://a",
                                      "redis://a?x=1",
                                      "redis://a?deadline",
                                      "redis://a?deadline=",
                                      "redis://a?deadline=0ms",
                                      "redis://a?deadline=2h",
                                      "redis://a?deadline=5",
                                      "redis://a?hash_keys=maybe",
                                      "redis://a?verify=",
                                      "redis://a?prefix=",
                                      "redis://a?prefix=a%7b",
                                      "redis://a?prefix=a%20b",
                                      "redis://a?breaker_failures=0",
                                      "redis://a?retry_min=2s",
                                      "redis://a?certificate=/x",
                                      "redis://u@a",
                                      "redis://u:%zz@a",
                                      "redis://u:%4@a",
                                      "redis://%00",
                                      "redis://a?=b",
                                      "redis+sentinel://a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a/m"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        int error = parse(bad[i]);
        if (error != WEIR_ESTOREURL || why[0] == '\0')
            printf("  taken: %s\n", bad[i]);
        CHECK_EQ(error, WEIR_ESTOREURL);
        CHECK(why[0] != '\0');
    }
}

TEST(too_long_values_are_refused_not_cut)
{
    char url[2048] = "redis://";
    memset(url + 8, 'h', 255);
    CHECK_EQ(parse(url), 0);
    url[8 + 255] = 'h';
    CHECK_EQ(parse(url), WEIR_ESTOREURL);
    strcpy(url, "redis://u:");
    memset(url + 10, 'p', 512);
    strcpy(url + 10 + 512, "@a");
    CHECK_EQ(parse(url), WEIR_ESTOREURL);
    CHECK(strstr(why, "ppp") == NULL);
    strcpy(url, "redis+unix:///");
    memset(url + 14, 's', 106);
    url[14 + 106] = '\0';
    CHECK_EQ(parse(url), 0);
    strcat(url, "s");
    CHECK_EQ(parse(url), WEIR_ESTOREURL);
    char small[4];
    parse("redis://cache");
    weir__store_shown(&options, small, sizeof(small));
    CHECK(strcmp(small, "red") == 0);
}

TEST(secrets_are_never_in_messages)
{
    parse("redis://user:hunter2@a?password=hunter2x&deadline=no");
    CHECK(strstr(why, "hunter2") == NULL);
    CHECK_EQ(parse("redis://user:hunter2@a?sentinel_password=hunter2"), 0);
    CHECK(strstr(shown(), "hunter2") == NULL);
    /* An unescaped delimiter in a password ends a part of the URL: the rest of it is neither host nor port. */
    static const char *const stray[] = {"redis://user:a@hunter2@b",      "redis://user:hunter2/a@b",
                                        "redis://user:hunter2?a@b",      "rediss://:a/hunter2@b",
                                        "redis+cluster://u:a@hunter2@b", "redis+sentinel://u:a@hunter2@b/m"};
    for (size_t i = 0; i < sizeof(stray) / sizeof(*stray); i++) {
        CHECK_EQ(parse(stray[i]), WEIR_ESTOREURL);
        CHECK(strstr(why, "hunter2") == NULL);
    }
    CHECK_EQ(parse("redis+sentinel://a/m@ster?password=a@b"), 0);
}

TEST(option_is_set_by_name)
{
    CHECK_EQ(parse("redis://a"), 0);
    CHECK_EQ(weir__store_option(&options, "deadline", "7ms", why, sizeof(why)), 0);
    CHECK_EQ(options.deadline_us, 7000);
    CHECK_EQ(weir__store_option(&options, "deadline", "soon", why, sizeof(why)), WEIR_ESTOREURL);
    CHECK_EQ(options.deadline_us, 7000);
    CHECK_EQ(weir__store_option(&options, "colour", "red", NULL, 0), WEIR_ESTOREURL);
}

TEST(combinations_are_checked_for_later_options)
{
    static const char *const halves[][2] = {
        {"user", "u"}, {"sentinel_user", "u"}, {"retry_min", "2s"}, {"retry_max", "1ms"}, {"certificate", "/c"}};
    for (size_t i = 0; i < sizeof(halves) / sizeof(*halves); i++) {
        CHECK_EQ(parse("rediss://a"), 0);
        CHECK_EQ(weir__store_fits(&options, why, sizeof(why)), 0);
        CHECK_EQ(weir__store_option(&options, halves[i][0], halves[i][1], why, sizeof(why)), 0);
        CHECK_EQ(weir__store_fits(&options, why, sizeof(why)), WEIR_ESTOREURL);
        CHECK(why[0] != '\0');
    }
}

TEST_MAIN
