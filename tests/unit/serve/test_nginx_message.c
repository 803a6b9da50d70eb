/* Messages of nginx: parsed, and reworded for weir.yaml. */
#include "../../test.h"

#include "serve/nginx.h"

static const char conf[] = "daemon off;\n"
                           "http {\n"
                           "    server a:1; # weir.yaml:7:15\n"
                           "    ssl_certificate \"/a # b.pem\"; # my # weir.yaml:9:2\n"
                           "}\n";

static const struct {
    const char *line;
    enum weir__nginx_level level;
    const char *expected;
} lines[] = {
    {"2026/11/15 06:41:31 [emerg] 12#12: bind() to 127.0.0.1:80 failed (98: Address already in use)", WEIR__NGINX_FATAL,
     "127.0.0.1:80 is in use already; ss -ltnp 'sport = :80' shows by which process"},
    {"nginx: [emerg] bind() to [::]:80 failed (13: Permission denied)", WEIR__NGINX_FATAL,
     "no permission to listen on [::]:80; ports below 1024 are for root: choose another"},
    {"nginx: [emerg] bind() to 10.9.9.9:80 failed (99: Cannot assign requested address)", WEIR__NGINX_FATAL,
     "this machine has no address 10.9.9.9:80"},
    {"nginx: [emerg] host not found in upstream \"a:1\" in /tmp/weir-serve-x/next-nginx.conf:3", WEIR__NGINX_FATAL,
     "weir.yaml:7:15: no host is known by the name of the upstream a:1"},
    {"nginx: [emerg] cannot load in /tmp/x/nginx.conf:4", WEIR__NGINX_FATAL, "weir.yaml:9:2: nginx: cannot load"},
    {"nginx: [emerg] cannot load certificate \"/a # b.pem\": no", WEIR__NGINX_FATAL,
     "weir.yaml:9:2: nginx: cannot load certificate \"/a # b.pem\": no"},
    {"nginx: [emerg] cannot load certificate \"/else.pem\": no", WEIR__NGINX_FATAL,
     "nginx: cannot load certificate \"/else.pem\": no"},
    {"nginx: [error] 1#1: *1 odd, request: \"/a # b.pem\"", WEIR__NGINX_ERROR,
     "nginx: 1#1: *1 odd, request: \"/a # b.pem\""},
    {"nginx: [emerg] odd in /tmp/x/nginx.conf:1", WEIR__NGINX_FATAL, "nginx: odd"},
    {"nginx: [emerg] odd in /tmp/x/nginx.conf:999", WEIR__NGINX_FATAL, "nginx: odd"},
    {"nginx: [emerg] odd in /tmp/x/nginx.conf:-1", WEIR__NGINX_FATAL, "nginx: odd in /tmp/x/nginx.conf:-1"},
    {"2026/11/15 06:41:31 [error] 12#12: *3 refused, client: 192.0.2.1, referrer: \"here in /x/nginx.conf:3\"",
     WEIR__NGINX_ERROR, "nginx: refused, client: 192.0.2.1, referrer: \"here in /x/nginx.conf:3\""},
    {"nginx: [emerg] module \"/m.so\" is not binary compatible in /x/nginx.conf:1", WEIR__NGINX_FATAL,
     "the module /m.so was built for another nginx; build it again with make nginx"},
    {"2026/11/15 06:41:31 [error] 12#12: *345 connect() failed (111: Connection refused)", WEIR__NGINX_ERROR,
     "nginx: connect() failed (111: Connection refused)"},
    {"2026/11/15 06:41:31 [warn] 12#12: careful", WEIR__NGINX_WARNING, "nginx: careful"},
    {"2026/11/15 06:41:31 [error] 12#12: weir: store a unavailable", WEIR__NGINX_ERROR, "store a unavailable"},
    {"2026/11/15 06:41:31 [notice] 12#12: weir: store a available again", WEIR__NGINX_NOTICE,
     "store a available again"},
    {"nginx: [emerg] weir: bad in /tmp/x/nginx.conf:3", WEIR__NGINX_FATAL, "weir.yaml:7:15: bad"},
    {"2026/11/15 06:41:31 [notice] 12#12: start worker processes", WEIR__NGINX_NOTICE, "nginx: start worker processes"},
    {"nginx: configuration file x test failed", WEIR__NGINX_NOTICE, "nginx: configuration file x test failed"},
};

TEST(nginx_messages_are_reworded)
{
    char expected[WEIR__LOG_MESSAGE_MAX];
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct weir__nginx_message line = weir__nginx_message_parse((weir_text){lines[i].line, strlen(lines[i].line)});
        CHECK_EQ(line.level, lines[i].level);
        weir__nginx_message_format(line.message, conf, expected, sizeof expected);
        CHECK(strcmp(expected, lines[i].expected) == 0);
        if (strcmp(expected, lines[i].expected) != 0)
            printf("  told: %s\n", expected);
    }
}

/* After an upgrade of weir serve the running nginx.conf is unknown until the first reload. */
TEST(nginx_messages_without_a_conf)
{
    char formatted[WEIR__LOG_MESSAGE_MAX];
    weir__nginx_message_format(weir__text_of("cannot load certificate \"/a.pem\": no"), NULL, formatted,
                               sizeof formatted);
    CHECK(strcmp(formatted, "nginx: cannot load certificate \"/a.pem\": no") == 0);
    weir__nginx_message_format(weir__text_of("odd in /tmp/x/nginx.conf:3"), NULL, formatted, sizeof formatted);
    CHECK(strcmp(formatted, "nginx: odd") == 0);
}

TEST(other_log_lines_are_unchanged)
{
    static const char *const others[] = {"",
                                         "{\"time\":1}",
                                         "127.0.0.1 [2026] \"GET /\" 200",
                                         "2026/11/15 no level",
                                         "2026/11/15 06:41:31 [",
                                         "2026/11/15 06:41:31 [what] 1#1: x",
                                         "[error] x"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct weir__nginx_message line = weir__nginx_message_parse((weir_text){others[i], strlen(others[i])});
        CHECK_EQ(line.level, WEIR__NGINX_OTHER);
    }
}

/* Messages contain text from clients. */
TEST(random_messages_are_harmless)
{
    uint64_t random = 3;
    for (int64_t i = 0; i < test_scaled(20000, 1000); i++) {
        static const char *const pieces[] = {"nginx: ",     "[emerg] ",   "2026/11/15 06:41:31 ",
                                             "1#1: ",       "*1 ",        " in ",
                                             "nginx.conf:", "bind() to ", " failed",
                                             ":",           "(98:",       "dlopen() \"",
                                             "\"",          "\1\xff",     "7"};
        char text[256] = "", expected[64];
        for (uint64_t n = test_random(&random) % 10; n > 0; n--)
            strcat(text, pieces[test_random(&random) % (sizeof pieces / sizeof *pieces)]);
        size_t len = strlen(text);
        char *exact = malloc(len ? len : 1); /* not null-terminated */
        memcpy(exact, text, len);
        struct weir__nginx_message line = weir__nginx_message_parse((weir_text){exact, len});
        CHECK(line.message.len <= len);
        weir__nginx_message_format(line.message, conf, expected, sizeof expected);
        CHECK(strlen(expected) < sizeof expected);
        free(exact);
    }
}

TEST_MAIN
