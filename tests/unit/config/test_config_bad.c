/* Invalid weir.yaml files, and their diagnostics. */
#include "configs.h"

/* Loads `yaml` and expects this first diagnostic, at this position. */
static const struct {
    const char *yaml;
    int line, column;
    const char *message, *suggestion;
} bad[] = {
    {"", 0, 0, "", ""},
    {"- 1\n", 1, 1, "weir.yaml must be a map such as { log: … }, not a list", ""},
    {"gateway: [\n", 2, 1, "", ""},
    {RULES, 1, 1, "there is neither a gateway", ""},
    {GATEWAY, 1, 1, "there are no rules", ""},
    {GATEWAY RULES "gatway: 1\n", 3, 1, "weir.yaml has no field \"gatway\"", "gateway"},
    {GATEWAY RULES "redis: redis://10.0.0.5\n", 3, 1, "weir.yaml has no field \"redis\"", "store"},
    {GATEWAY RULES "listen: 8080\n", 3, 1, "weir.yaml has no field \"listen\"", "gateway"},
    {GATEWAY RULES "dashboard: 9091\n", 3, 1, "weir.yaml has no field \"dashboard\"", "admin"},
    {GATEWAY RULES "whitelist: []\n", 3, 1, "weir.yaml has no field \"whitelist\"", "allow"},
    {GATEWAY RULES "rules_db: sqlite:/a\n", 3, 1, "rules_db is for the rules service", ""},
    {GATEWAY RULES "admin: { rules_db: sqlite:/a }\n", 3, 8, "admin has no listen, such as 127.0.0.1:9091", ""},
    {GATEWAY RULES "admin: { listen: 127.0.0.1:1, rules_db: mysql://a }\n", 3, 41, "rules_db is sqlite: with", ""},
    {GATEWAY RULES "admin: { listen: 127.0.0.1:1, rules_db: sqlite:a }\n", 3, 41, "rules_db is sqlite: with", ""},
    {GATEWAY RULES "admin: { listen: 127.0.0.1:1, rules_db: sqlite:/a }\nrules_db: sqlite:/b\n", 3, 41, "given twice",
     ""},
    {GATEWAY RULES "admin: 127.0.0.1:8080\n", 3, 8, "is listened on", ""},
    {GATEWAY "admin: { listen: 127.0.0.1:1, rules: files }\n", 2, 38, "the rules are in files, but in which?", ""},
    {GATEWAY RULES "admin: { listen: 127.0.0.1:1, rules: file }\n", 3, 38, "", "files"},
    {GATEWAY "admin: 127.0.0.1:1\nrules: https://a/b\n", 3, 8, "rules come from another host or", ""},
    {GATEWAY "rules: { url: 'https://a/b', poll: 10ms }\n", 2, 36, "poll is at least 100ms", ""},
    {GATEWAY "rules: { url: 'https://a/b', token: a, token_file: b }\n", 2, 52, "give one", ""},
    {GATEWAY "rules: { url: 'https://a/b', token: 'a b' }\n", 2, 37, "token must be printable", ""},
    {GATEWAY "rules: { url: 'https://a/b', what: 1 }\n", 2, 30, "what", ""},
    {GATEWAY RULES "store: http://x\n", 3, 8, "store: ", ""},
    {GATEWAY RULES "store: redis://:secret@x:y\n", 3, 8, "store: ", ""},
    {GATEWAY RULES "store: [a]\n", 3, 8, "store", ""},
    {GATEWAY RULES "store: { prefix: a }\n", 3, 8, "store has no url", ""},
    {GATEWAY RULES "store: { url: 'redis://x', prefx: a }\n", 3, 28, "store has no field \"prefx\"", "prefix"},
    {GATEWAY RULES "store: { url: 'redis://x', deadline: 20 }\n", 3, 38, "deadline: ", ""},
    {GATEWAY RULES "store: { url: 'redis://x', verify: perhaps }\n", 3, 36, "verify: ", ""},
    {GATEWAY RULES "store: { url: 'redis://x', password: \"a\\nb\" }\n", 3, 38, "password has control characters", ""},
    {GATEWAY RULES "store: { url: 'redis://x', password: a, password_file: b }\n", 3, 56, "give one", ""},
    {GATEWAY RULES "store: { url: 'redis://x', consistency: sometimes }\n", 3, 41, "consistency must be", ""},
    {GATEWAY RULES "store: { url: 'redis://x', ca: '' }\n", 3, 32, "ca must be a path", ""},
    {GATEWAY RULES "notify: hooks.example\n", 3, 9, "notify is a URL: https://", ""},
    {GATEWAY RULES "notify: https://\n", 3, 9, "notify is a URL: https://", ""},
    {GATEWAY RULES "notify: 'https:///a'\n", 3, 9, "notify is a URL: https://", ""},
    {GATEWAY RULES "notify: file:///etc/passwd\n", 3, 9, "notify is a URL: https://", ""},
    {GATEWAY RULES "notify: 'https://a b'\n", 3, 9, "notify must be printable", ""},
    {GATEWAY RULES "notify: {}\n", 3, 9, "notify", ""},
    {GATEWAY RULES "notify: { secret_file: a }\n", 3, 9, "notify has no url", ""},
    {GATEWAY RULES "notify: { url: 'https://a', secret: a }\n", 3, 29, "notify has no field \"secret\"", ""},
    {GATEWAY RULES "notify: { url: 'https://a', secret_file: '' }\n", 3, 42, "secret_file must be a path", ""},
    {GATEWAY RULES "notify: [https://a]\n", 3, 9, "notify", ""},
    {GATEWAY RULES "denials: off\nnotify: https://a\n", 4, 9, "cannot go with denials: off", ""},
    {GATEWAY RULES "queue: off\n", 3, 8, "queue is on, or a map such as { max_age: 6h }", ""},
    {GATEWAY RULES "queue: true\n", 3, 8, "queue is on, or a map such as { max_age: 6h }", ""},
    {GATEWAY RULES "queue: [1]\n", 3, 8, "queue must be a map such as { sync: … }, not a list", ""},
    {GATEWAY RULES "queue: { sink: always }\n", 3, 10, "queue has no field \"sink\"", ""},
    {GATEWAY RULES "queue: { sync: never }\n", 3, 16, "sync must be always or second", ""},
    {GATEWAY RULES "queue: { max: 0 }\n", 3, 15, "max must be a number from 1", ""},
    {GATEWAY RULES "queue: { max_bytes: 1KiB }\n", 3, 21, "max_bytes must be at least 64KiB", ""},
    {GATEWAY RULES "queue: { max_age: 401d }\n", 3, 19, "max_age must be", ""},
    {GATEWAY RULES "queue: { body: 4MiB }\n", 3, 16, "body must be at most 3072KiB", ""},
    {GATEWAY RULES "queue: { headers: x-a }\n", 3, 19, "headers is a list of at most 64 names, not text", ""},
    {GATEWAY RULES "queue: { headers: [a, 'b c'] }\n", 3, 23, "not \"b c\"", ""},
    {GATEWAY RULES "queue: { headers: ['a*b'] }\n", 3, 20, "headers are names such as", ""},
    {GATEWAY RULES "queue: { retries: -1 }\n", 3, 19, "retries must be a number from 0", ""},
    {GATEWAY RULES "queue: { deliver_to: 'http://a/b' }\n", 3, 22, "it ends after host and port", ""},
    {RULES "store: redis://x\nqueue: {}\n", 3, 8, "there is no gateway to deliver to", ""},
    {GATEWAY RULES "queue: {}\nstate: /a234567890123456789012345678901234567890123456789012345678901234567890"
                   "1234567890123456789012345\n",
     4, 8, "too long for a socket in it: 92 bytes", ""},
    {GATEWAY RULES "metrics: 127.0.0.1:8080\n", 3, 10, "127.0.0.1:8080 is listened on at ", ""},
    {GATEWAY RULES "metrics: 0.0.0.0:8080\n", 3, 10, "0.0.0.0:8080 is listened on at ", ""},
    {"gateway: { listen: ['[::1]:1', '[::]:1'], upstreams: ['http://a'] }\n" RULES, 1, 32, "[::]:1 is listened on", ""},
    {"gateway: { listen: ['a:1', 'A:1'], upstreams: ['http://a'] }\n" RULES, 1, 28, "A:1 is listened on at ", ""},
    {GATEWAY RULES "service: { grcp: 127.0.0.1:1 }\n", 3, 12, "service", "grpc"},
    {GATEWAY RULES "service: {}\n", 3, 10, "none of grpc, http, resp and ports", ""},
    {GATEWAY RULES "service: { ports: rls }\n", 3, 19, "ports must be ratelimit", ""},
    {GATEWAY RULES "service: { http: 127.0.0.1:1, access: { tokens: [short] } }\n", 3, 50, "8 to 512 printable", ""},
    {GATEWAY RULES "service: { resp: 127.0.0.1:1, access: { password: 'with a space' } }\n", 3, 51, "without spaces",
     ""},
    {GATEWAY RULES "service: { http: 127.0.0.1:1, access: { passwort: 12345678 } }\n", 3, 41, "access", "password"},
    {GATEWAY RULES "service: { http: 127.0.0.1:1, access: { tokens: abcdefgh, open: [auth, jsn] } }\n", 3, 72,
     "open must be api, auth or json, not", "json"},
    {GATEWAY RULES "service: { http: 127.0.0.1:1, auth: forwarded }\n", 3, 37, "auth must be a map", ""},
    {GATEWAY RULES "service: { http: 127.0.0.1:1, auth: { header: forwarded } }\n", 3, 39, "auth has no field",
     "headers"},
    {GATEWAY RULES "service: { http: 127.0.0.1:1, auth: { headers: x-forwarded-uri } }\n", 3, 48,
     "headers must be forwarded or original", ""},
    {GATEWAY RULES "service: { http: 127.0.0.1:1, auth: { trusted_proxies: [10.0.0.0/33] } }\n", 3, 57,
     "trusted_proxies: expected a network such as 10.0.0.0/8 or 2001:db8::/32, not 10.0.0.0/33", ""},
    {GATEWAY RULES "service: { http: 127.0.0.1:1, auth: { trusted_proxies: proxy.example } }\n", 3, 56,
     "not proxy.example", ""},
    {GATEWAY RULES "service: { http: 127.0.0.1:1, auth: { trusted_proxies: [] } }\n", 3, 56, "is empty", ""},
    {GATEWAY RULES "service: { grpc: 127.0.0.1:1, tls: { certificate: a } }\n", 3, 36, "tls needs", ""},
    {GATEWAY RULES "service: { grpc: 127.0.0.1:1, http: 127.0.0.1:1 }\n", 3, 37, "listened on", ""},
    {GATEWAY RULES "workers: many\n", 3, 10, "workers must be a number from 1 to 1024", ""},
    {GATEWAY RULES "workers: 0\n", 3, 10, "workers must be a number from 1 to 1024, not 0", ""},
    {GATEWAY RULES "segment: /dev/shm/x\n", 3, 10, "segment must be a map such as { path: … }, not text", ""},
    {GATEWAY RULES "segment: { size: 64MB }\n", 3, 18, "size must be a size such as", "64MiB"},
    {GATEWAY RULES "segment: { size: 64 m }\n", 3, 18, "size must be a size such as", "64MiB"},
    {GATEWAY RULES "segment: { size: lots }\n", 3, 18, "not \"lots\"", ""},
    {GATEWAY RULES "segment: { size: 1KiB }\n", 3, 18, "size must be at least 64KiB", ""},
    {GATEWAY RULES "segment: { size: 9999999999GiB }\n", 3, 18, "at most", ""},
    {GATEWAY RULES "denials: 65MiB\n", 3, 10, "denials must be at most 64MiB", ""},
    {GATEWAY RULES "denials: { size: 1GiB }\n", 3, 18, "denials must be at most 64MiB", ""},
    {GATEWAY RULES "segment: { size: 99999999999999999999 }\n", 3, 18, "size must be a size", ""},
    {GATEWAY RULES "segment: { path: '' }\n", 3, 18, "path must be a path, and is empty", ""},
    {GATEWAY RULES "segment: { path: /x/$uri }\n", 3, 18, "without '$'", ""},
    {GATEWAY RULES "segment: { path: \"/x\\ny\" }\n", 3, 18, "control characters", ""},
    {GATEWAY RULES "metrics: nowhere\n", 3, 10, "it has no port", ""},
    {GATEWAY RULES "metrics: 8080\n", 3, 10, "8080 is listened on at", ""},
    {GATEWAY RULES "log: { format: xml }\n", 3, 16, "format must be text or json", ""},
    {GATEWAY RULES "log: { formt: json }\n", 3, 8, "log has no field \"formt\"", "format"},
    {GATEWAY RULES "denied_log: { rate: 0 }\n", 3, 21, "rate must be a number from 1", ""},
    {GATEWAY RULES "access_log: { path: [] }\n", 3, 21, "must be text", ""},
    {GATEWAY RULES "user: []\n", 3, 7, "user must be text", ""},
    {GATEWAY RULES "identity: { a: host }\n", 3, 1, "identity belongs beside the rules", ""},
    {GATEWAY RULES "response: { headers: [] }\n", 3, 1, "response belongs beside the rules", ""},
    {GATEWAY "admin: 127.0.0.1:1\nresponse: {}\n", 3, 1, "the rules: in the settings of the rules service", ""},
    {GATEWAY "rules: https://a/b\nidentity: {}\n", 3, 1, "the rules: in the settings of the rules service", ""},
    {GATEWAY "allow: {}\nrules: { rules: [] }\n", 2, 1, "allow belongs beside the rules", ""},
    {RULES "gateway: { upstreams: ['http://a'] }\n", 2, 10, "gateway has no listen", ""},
    {RULES "gateway: { listen: 80 }\n", 2, 10, "gateway has no upstreams", ""},
    {RULES "gateway: 8080\n", 2, 10, "gateway must be a map", ""},
    {RULES "gateway: { listen: [], upstreams: ['http://a'] }\n", 2, 20, "listen has no address", ""},
    {RULES "gateway: { listen: 80, upstreams: [] }\n", 2, 35, "there is no server in this list", ""},
    {RULES "gateway: { listen: 80, upstreams: ['http://a'], timeouts: { connect: 0 } }\n", 2, 70,
     "connect must be longer than zero", ""},
    {RULES "gateway: { listen: 80, upstreams: ['http://a'], timeouts: { read: 2d } }\n", 2, 67, "from 1ms to 1d", ""},
    {RULES "gateway: { listen: 80, upstreams: ['http://a'], health: { fail_timeout: 100ms } }\n", 2, 73,
     "in whole seconds", ""},
    {RULES "gateway: { listen: 80, upstreams: ['http://a'], max_body: big }\n", 2, 59, "max_body must be a size", ""},
    {RULES "gateway: { listen: { port: 80 }, upstreams: ['http://a'] }\n", 2, 22, "listen has no field \"port\"", ""},
    {RULES "gateway: { listen: { address: 80, tls: { certificate: c } }, upstreams: ['http://a'] }\n", 2, 40,
     "has no key", ""},
    {RULES "gateway: { listen: 80, tls: { key: c }, upstreams: ['http://a'] }\n", 2, 29, "has no certificate", ""},
    {RULES "gateway: { listen: [80, 81, 80], upstreams: ['http://a'] }\n", 2, 29, "80 is listened on at", ""},
    {RULES "gateway: { listen: 80, upstreams: ['http://a', 'https://b'] }\n", 2, 48, "all http or all https", ""},
    {RULES "gateway: { listen: 80, upstreams: ['https://a', 'https://b'] }\n", 2, 49, "different names", ""},
    {RULES "gateway: { listen: 80, upstreams: [{ path: /a }] }\n", 2, 36, "has no servers", ""},
    {RULES "gateway: { listen: 80, upstreams: [{ servers: ['http://a'] }] }\n", 2, 36, "has no path", ""},
    {RULES "gateway: { listen: 80, upstreams: [{ path: a, servers: ['http://a'] }] }\n", 2, 44, "path must be like",
     ""},
    {RULES "gateway: { listen: 80, upstreams: [{ path: /a/*/b, servers: ['http://a'] }] }\n", 2, 44,
     "path must be like", ""},
    {RULES "gateway: { listen: 80, upstreams: [{ path: //*, servers: ['http://a'] }] }\n", 2, 44, "no request has", ""},
    {RULES "gateway: { listen: 80, upstreams: [{ path: /a//b, servers: ['http://a'] }] }\n", 2, 44, "no request has",
     ""},
    {RULES "gateway: { listen: 80, upstreams: [{ path: /a/../b/*, servers: ['http://a'] }] }\n", 2, 44,
     "no request has", ""},
    {RULES "gateway: { listen: 80, upstreams: [{ path: /./a, servers: ['http://a'] }] }\n", 2, 44, "no request has",
     ""},
    {RULES "gateway: { listen: 80, upstreams: [{ path: /a/.., servers: ['http://a'] }] }\n", 2, 44, "no request has",
     ""},
    {RULES "gateway: { listen: 80, upstreams: [{ path: /a*, servers: ['http://a'] }] }\n", 2, 44, "path must be like",
     ""},
    {RULES "gateway: { listen: 80, upstreams: [{ path: /a, servers: ['http://a'] }, 'http://b'] }\n", 2, 73,
     "an upstream must be a map", ""},
    {RULES "gateway: { listen: 80, upstreams: [{ path: /a, servers: ['http://a'] }, { path: /a, servers: "
           "['http://b'] }] }\n",
     2, 81, "this path has its servers at", ""},
    {RULES "gateway: { listen: 80, upstreams: ['http://a'], upstream_tls: { verify: no } }\n", 2, 73,
     "verify must be true or false", "false"},
};

TEST(bad_files)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(load(bad[i].yaml) != 0);
        bool right = diags.count > 0 && (bad[i].line == 0 || diags_is(&diags, 0, bad[i].line, bad[i].column, "")) &&
                     strstr(diags.all[0].message, bad[i].message) &&
                     strcmp(diags.all[0].suggestion, bad[i].suggestion) == 0;
        CHECK(right);
        if (!right)
            printf("  of: %s  reported: %s [%s]\n", bad[i].yaml, diags.all[0].message, diags.all[0].suggestion);
    }
}

/* Valid files and their warning; "": none. */
static const struct {
    const char *yaml, *message;
} doubtful[] = {
    {"http: 127.0.0.1:1", ""},
    {"http: 127.0.0.1:1, access: { open: api }", "open changes nothing without tokens"},
    {"http: 0.0.0.0:1", "0.0.0.0:1: /v1/, /json is open to every client that can reach it: set access with tokens"},
    {"http: 0.0.0.0:1, access: { tokens: abcdefgh }", ""},
    {"http: 0.0.0.0:1, access: { tokens: abcdefgh, open: json }",
     "0.0.0.0:1: /json is open to every client that can reach it: access.open names it"},
    {"http: 0.0.0.0:1, access: { tokens: abcdefgh, open: [auth] }", ""},
    {"http: 0.0.0.0:1, auth: { trusted_proxies: 10.0.0.0/8 }, access: { tokens: abcdefgh, open: auth }", ""},
    {"http: 0.0.0.0:1, auth: { trusted_proxies: [10.0.0.0/8, '::/0'] }, access: { tokens: abcdefgh, open: [auth, api] "
     "}",
     "0.0.0.0:1: /v1/, /v1/auth is open to every client"},
    {"http: 0.0.0.0:1, auth: { trusted_proxies: 0.0.0.0/0 }, access: { tokens: abcdefgh, open: auth }",
     "0.0.0.0:1: /v1/auth is open to every client"},
    {"http: 127.0.0.1:1, auth: { trusted_proxies: 10.1.2.3/8 }", "10.1.2.3/8 has bits after its prefix"},
    {"http: 0.0.0.0:1, tls: { certificate: a, key: b, client_ca: c }", ""},
    {"grpc: 0.0.0.0:1, access: { tokens: abcdefgh }",
     "0.0.0.0:1 is open to every client that can reach it: gRPC has no tokens; set tls with client_ca"},
    {"resp: 0.0.0.0:1, access: { tokens: abcdefgh }", "every client that can reach it: set access with a password"},
    {"resp: 0.0.0.0:1, access: { password: abcdefgh }", ""},
};

TEST(doubtful_services_are_warned_about)
{
    for (size_t i = 0; i < sizeof doubtful / sizeof *doubtful; i++) {
        char yaml[512];
        (void)snprintf(yaml, sizeof yaml, GATEWAY RULES "service: { %s }\n", doubtful[i].yaml);
        CHECK_EQ(load(yaml), 0);
        bool right = *doubtful[i].message ? diags.count == 1 && strstr(diags.all[0].message, doubtful[i].message)
                                          : diags.count == 0;
        CHECK(right);
        if (!right)
            printf("  of: %s\n  reported: %s\n", doubtful[i].yaml, diags.count ? diags.all[0].message : "nothing");
    }
}

TEST(bad_listeners)
{
    static const char *const list[] = {"0",
                                       "65536",
                                       "-1",
                                       "a",
                                       ":80",
                                       "a:",
                                       "a:0",
                                       "a:b",
                                       "a:1:2",
                                       "::1:80",
                                       "'[::1]'",
                                       "'[::1]80'",
                                       "'[x]:1'",
                                       "'[::1:80'",
                                       "1.2.3:1",
                                       "256.1.1.1:1",
                                       "a b:80",
                                       "a;b:80",
                                       "'a\"b:80'",
                                       "-a:80",
                                       ".a:80",
                                       "''",
                                       "~",
                                       "[[1]]",
                                       "'[1.2.3.4]:1'",
                                       "'[fe80::1%eth0]:1'"};
    char yaml[256];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(yaml, sizeof yaml, RULES "gateway: { upstreams: ['http://a'], listen: %s }\n", list[i]);
        CHECK_EQ(load(yaml), WEIR_ERULES);
        CHECK(diags.count > 0);
        if (diags.count == 0)
            printf("  of: %s\n", list[i]);
    }
}

TEST(bad_servers)
{
    static const char *const list[] = {"a",          "a:80",        "ftp://a",      "http://",        "http:///x",
                                       "http://a/x", "http://a?x",  "http://u:p@a", "http://a:0",     "http://a:b",
                                       "http://::1", "http://[::1", "http://a b",   "http://a;b",     "http://1.2.3",
                                       "unix:",      "unix:x",      "unix:/a;b",    "unix:/a b",      "unix:/a:b",
                                       "HTTP://a",   "http://a\"",  "http://$host", "http://a:99999", ""};
    char yaml[256];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(yaml, sizeof yaml, RULES "gateway: { listen: 80, upstreams: ['%s'] }\n", list[i]);
        CHECK_EQ(load(yaml), WEIR_ERULES);
        bool right = diags_is(&diags, 0, 2, 36, "an upstream must be");
        CHECK(right);
        if (!right)
            printf("  of: %s\n", list[i]);
    }
}

TEST(all_errors_are_reported)
{
    CHECK_EQ(load("workers: x\nsegment: { size: y }\ngateway: { listen: z, upstreams: [w] }\nlog: 1\nmetrics: q\n"),
             WEIR_ERULES);
    CHECK_EQ(diags.count, 7);
}

TEST(missing_file_is_an_error)
{
    CHECK_EQ(load_path("/nonexistent/weir.yaml"), WEIR_ERULESPATH);
    CHECK(diags.count == 1 && strstr(diags.all[0].message, "No such file"));
}

/* A directory of the test's own: in /tmp, other tests' files come and go while it is read. */
TEST(directory_instead_of_a_file_is_an_error)
{
    CHECK_EQ(load(RULES GATEWAY), 0);
    CHECK_EQ(load_path(folder), WEIR_ERULESPATH);
    CHECK(diags.count == 1 && strstr(diags.all[0].message, "the directory has no"));
    write_file(RULES GATEWAY, strlen(RULES GATEWAY));
    CHECK_EQ(load_path(folder), WEIR_ERULESPATH);
    CHECK(diags.count == 1 && strstr(diags.all[0].message, "this is a directory; name the file in it"));
    unlink(file);
}

TEST(random_mutations_never_crash)
{
    static const char seed_text[] = "segment: { path: /x, size: 64MiB }\n" GATEWAY
                                    "metrics: 127.0.0.1:9090\nlog: { format: json }\nidentity: { a: host }\nrules:\n"
                                    "  - { name: a, limit: 1, window: 1s }\n";
    uint64_t random = 7;
    for (int64_t i = 0; i < test_scaled(3000, 300); i++) {
        char text[sizeof seed_text];
        memcpy(text, seed_text, sizeof text);
        for (uint64_t n = test_random(&random) % 4 + 1; n > 0; n--) {
            static const char bytes[] = "\n \t:[]{}'\"#-,&*!|>%@`0aZ/\xc3\xa9\xff\0";
            text[test_random(&random) % (sizeof text - 1)] = bytes[test_random(&random) % sizeof bytes];
        }
        int error = load_bytes(text, sizeof text - 1);
        CHECK((error != 0) == (diags.count > 0));
    }
}

TEST_MAIN
