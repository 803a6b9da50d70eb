/* weir.yaml: what is taken, what is said about what is not, and rules that stand in it. */
#define _GNU_SOURCE /* mkdtemp */
#include "../rules/told.h"

#include "agent/config.h"

#include <unistd.h>

static struct told told;
static struct weir__config config;
static char folder[64], file[96];

/* Reads a file with this text. */
static int load_bytes(const char *yaml, size_t len)
{
    if (!*folder) {
        strcpy(folder, "/tmp/weir-test-XXXXXX");
        if (!mkdtemp(folder))
            exit(1);
        snprintf(file, sizeof file, "%s/weir.yaml", folder);
    }
    FILE *to = fopen(file, "w");
    if (!to || fwrite(yaml, 1, len, to) != len || fclose(to) != 0)
        exit(1);
    weir__config_free(&config);
    told_end(&told);
    told_begin(&told, "", 0);
    int error = weir__config_load(&config, file, told_hear, &told);
    unlink(file);
    return error;
}

static int load(const char *yaml)
{
    return load_bytes(yaml, strlen(yaml));
}

__attribute__((destructor)) static void clean(void)
{
    if (*folder)
        rmdir(folder);
    weir__config_free(&config);
}

/* ---- What is taken ---- */

#define GATEWAY "gateway: { listen: 8080, upstreams: ['http://127.0.0.1:9000'] }\n"
#define RULES   "rules: rules.d\n"

TEST(listeners_beside_each_other)
{
    CHECK_EQ(load("gateway: { listen: [8080, '[::]:8080', '[::]:8081', 127.0.0.1:8082, 127.0.0.2:8082, '*:8083'], "
                  "upstreams: ['http://a'] }\nmetrics: 127.0.0.3:8082\n" RULES),
             0);
    CHECK_EQ(told.count, 0);
    weir__config_free(&config);
}

static const char *setting(const char *name)
{
    for (size_t i = 0; i < config.store.setting_count; i++)
        if (strcmp(config.store.settings[i].name, name) == 0)
            return config.store.settings[i].value;
    return "";
}

TEST(stores)
{
    char path[128];
    CHECK_EQ(load(GATEWAY RULES), 0);
    CHECK(!config.store.url);
    CHECK_EQ(load(GATEWAY RULES "store: redis://me:secret@10.0.0.5/2\n"), 0);
    CHECK(strcmp(config.store.url, "redis://me:secret@10.0.0.5/2") == 0);
    CHECK(!strstr(config.store.shown, "secret"));
    CHECK_EQ(config.store.place.line, 3);
    CHECK_EQ(config.store.setting_count, 0);

    CHECK_EQ(load(GATEWAY RULES "store:\n  url: rediss://a\n  deadline: 5ms\n  hash_keys: true\n  ca: ca.pem\n"
                                "  password_file: /etc/weir/secret\n  consistency: strict\n  breaker_failures: 3\n"),
             0);
    CHECK_EQ(told.count, 0);
    CHECK_EQ(config.store.setting_count, 6);
    CHECK(strcmp(setting("deadline"), "5ms") == 0);
    CHECK(strcmp(setting("consistency"), "strict") == 0);
    CHECK(strcmp(setting("password_file"), "/etc/weir/secret") == 0);
    snprintf(path, sizeof path, "%s/ca.pem", folder);
    CHECK(strcmp(setting("ca"), path) == 0);
    weir__config_free(&config);
}

TEST(hot_keys)
{
    static const char *const bad[] = {"hot_keys: on\n",
                                      "hot_keys: 100\n",
                                      "hot_keys: [8MiB]\n",
                                      "hot_keys: -1\n",
                                      "hot_keys: { bytes: 8MiB }\n",
                                      "hot_keys: { hash_keys: perhaps }\n"};
    char yaml[512];
    CHECK_EQ(load(GATEWAY RULES), 0);
    CHECK_EQ(config.hot_bytes, 0);
    CHECK_EQ(load(GATEWAY RULES "hot_keys: 1MiB\n"), 0);
    CHECK(config.hot_bytes == 1 << 20 && !config.hot_hash);
    CHECK_EQ(load(GATEWAY RULES "hot_keys: off\n"), 0);
    CHECK_EQ(config.hot_bytes, 0);
    CHECK_EQ(load(GATEWAY RULES "hot_keys: { hash_keys: true }\n"), 0);
    CHECK(config.hot_bytes == 8 << 20 && config.hot_hash);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(yaml, sizeof yaml, GATEWAY RULES "%s", bad[i]);
        CHECK_EQ(load(yaml), WEIR_ERULES);
        CHECK_EQ(told.count, 1);
    }
    weir__config_free(&config);
}

TEST(paths_with_dots)
{
    static const char *const paths[] = {"/",      "/*",      "/a/", "/.well-known/*", "/..a", "/a../b",
                                        "/.../x", "/a.b/c.", "/x."};
    char yaml[256];
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        snprintf(yaml, sizeof yaml, RULES "gateway: { listen: 80, upstreams: [{ path: %s, servers: ['http://a'] }] }\n",
                 paths[i]);
        CHECK_EQ(load(yaml), 0);
        CHECK_EQ(told.count, 0);
        weir__config_free(&config);
    }
}

TEST(defaults)
{
    CHECK_EQ(load(GATEWAY RULES), 0);
    CHECK_EQ(told.count, 0);
    char expected[96];
    snprintf(expected, sizeof expected, "/dev/shm/weir-%u", (unsigned)geteuid());
    CHECK(strcmp(config.segment_path, expected) == 0);
    CHECK(config.segment_is_ours);
    CHECK_EQ(config.segment_bytes, 64 << 20);
    CHECK_EQ(config.workers, 0);
    CHECK_EQ(config.listener_count, 1);
    CHECK(strcmp(config.listeners[0].address, "8080") == 0);
    CHECK(config.listeners[0].host == NULL);
    CHECK(!config.listeners[0].http2);
    CHECK_EQ(config.route_count, 1);
    CHECK_EQ(config.routes[0].kind, WEIR__ROUTE_ALL);
    CHECK(config.metrics == NULL);
    CHECK_EQ(config.access_log, WEIR__LOG_OFF);
    CHECK(!config.denied_log);
    CHECK_EQ(config.body_bytes, 10 << 20);
    CHECK(config.upstream_verify);
    snprintf(expected, sizeof expected, "%s/rules.d", folder);
    CHECK(strcmp(config.rules_path, expected) == 0);
}

TEST(everything)
{
    CHECK_EQ(load("segment: { path: /dev/shm/x, size: 512KiB }\n"
                  "workers: 3\n"
                  "user: nobody\n"
                  "gateway:\n"
                  "  listen:\n"
                  "    - 127.0.0.1:8080\n"
                  "    - { address: '[::1]:8443', tls: { certificate: c.pem, key: /k.pem } }\n"
                  "    - { address: '*:8081', http2: true }\n"
                  "    - { address: localhost:8444, tls: { certificate: c.pem, key: k.pem }, http2: false }\n"
                  "  upstreams:\n"
                  "    - { path: /api/*, servers: [http://a:1, 'http://[::1]:2/'] }\n"
                  "    - { path: /one, servers: 'unix:/run/one.sock' }\n"
                  "    - { path: '*', servers: [https://b.example.com] }\n"
                  "  upstream_tls: { verify: false, name: c.example.com }\n"
                  "  timeouts: { connect: 250ms, read: 1m, send: 5 }\n"
                  "  health: { max_fails: 7, fail_timeout: 30s }\n"
                  "  keepalive: 0\n"
                  "  max_body: unlimited\n"
                  "metrics: 127.0.0.1:9090\n"
                  "log: { path: weir.log, format: json }\n"
                  "access_log: { path: access.log }\n"
                  "denied_log: { rate: 5, hash_keys: true }\n"
                  "rules: /etc/weir/rules.yaml\n"),
             0);
    CHECK_EQ(told.count, 0);
    CHECK(strcmp(config.segment_path, "/dev/shm/x") == 0 && !config.segment_is_ours);
    CHECK_EQ(config.segment_bytes, 512 << 10);
    CHECK_EQ(config.workers, 3);
    CHECK(strcmp(config.user, "nobody") == 0);
    CHECK_EQ(config.listener_count, 4);
    const struct weir__listener *l = config.listeners;
    CHECK(l[0].tls.certificate == NULL && !l[0].http2 && strcmp(l[0].host, "127.0.0.1") == 0);
    CHECK(l[1].http2 && strcmp(l[1].host, "::1") == 0 && strcmp(l[1].port, "8443") == 0);
    CHECK(strcmp(l[1].tls.key, "/k.pem") == 0 && strncmp(l[1].tls.certificate, folder, strlen(folder)) == 0);
    CHECK(l[2].http2 && l[2].host == NULL && strcmp(l[2].address, "8081") == 0);
    CHECK(!l[3].http2 && l[3].tls.certificate && strcmp(l[3].host, "localhost") == 0);
    const struct weir__route *r = config.routes;
    CHECK_EQ(config.route_count, 3);
    CHECK(r[0].kind == WEIR__ROUTE_PREFIX && strcmp(r[0].path, "/api/") == 0 && r[0].server_count == 2);
    CHECK(strcmp(r[0].servers[0].address, "a:1") == 0 && strcmp(r[0].servers[1].address, "[::1]:2") == 0);
    CHECK(r[1].kind == WEIR__ROUTE_EXACT && strcmp(r[1].servers[0].address, "unix:/run/one.sock") == 0);
    CHECK(r[2].kind == WEIR__ROUTE_ALL && r[2].servers[0].https);
    CHECK(strcmp(r[2].servers[0].address, "b.example.com:443") == 0);
    CHECK(!config.upstream_verify && strcmp(config.upstream_name, "c.example.com") == 0);
    CHECK_EQ(config.connect_ms, 250);
    CHECK_EQ(config.read_ms, 60000);
    CHECK_EQ(config.send_ms, 5000);
    CHECK(config.max_fails == 7 && config.fail_ms == 30000 && config.keepalive == 0 && config.body_bytes == 0);
    CHECK(config.metrics && strcmp(config.metrics->address, "127.0.0.1:9090") == 0);
    CHECK(config.log_json && config.log_path && config.log_path[0] == '/');
    CHECK_EQ(config.access_log, WEIR__LOG_JSON);
    CHECK(config.denied_log && config.denied_path == NULL && config.denied_rate == 5 && config.denied_hash);
    CHECK(strcmp(config.rules_path, "/etc/weir/rules.yaml") == 0);
}

TEST(queues)
{
    const struct weir__queue_config *queue = &config.queue;
    CHECK_EQ(load(GATEWAY RULES), 0);
    CHECK(!queue->wanted && !queue->socket);
    CHECK_EQ(load(GATEWAY RULES "state: /s\nqueue: on\n"), 0);
    CHECK_EQ(told.count, 0);
    CHECK(queue->wanted && !queue->sync_second && queue->deliver_to == NULL);
    CHECK_EQ(queue->max, 100000);
    CHECK_EQ(queue->max_bytes, 1 << 30);
    CHECK_EQ(queue->max_age_ms, 86400000);
    CHECK_EQ(queue->body_bytes, 1 << 20);
    CHECK_EQ(queue->retries, 8);
    CHECK_EQ(queue->header_count, 9);
    CHECK(strcmp(queue->socket, "/s/queue.sock") == 0 && strcmp(queue->database, "sqlite:/s/queue.db") == 0);
    CHECK_EQ(load(GATEWAY RULES "state: /s\nstore: redis://x\n"
                                "queue: { sync: second, max: 5, max_bytes: 1MiB, max_age: 30d, body: 0, retries: 0,\n"
                                "  headers: [Content-Type, X-*], deliver_to: 'https://a/' }\n"),
             0);
    CHECK_EQ(told.count, 0);
    CHECK(queue->sync_second && queue->max == 5 && queue->max_bytes == 1 << 20 && queue->body_bytes == 0);
    CHECK_EQ(queue->max_age_ms, INT64_C(30) * 86400000);
    CHECK_EQ(queue->retries, 0);
    CHECK_EQ(queue->header_count, 2);
    CHECK(strcmp(queue->headers[0], "content-type") == 0 && strcmp(queue->headers[1], "x-*") == 0);
    CHECK(strcmp(queue->deliver_to, "https://a:443") == 0 && queue->database == NULL);
}

/* ---- What is not ---- */

/* `yaml` is read, and this is the first that is told, at this place. */
static const struct {
    const char *yaml;
    int line, column;
    const char *message, *suggestion;
} bad[] = {
    {"", 0, 0, "", ""},
    {"- 1\n", 1, 1, "weir.yaml must be a map, not a list", ""},
    {"gateway: [\n", 2, 1, "", ""},
    {RULES, 1, 1, "there is neither a gateway", ""},
    {GATEWAY, 1, 1, "there are no rules", ""},
    {GATEWAY RULES "gatway: 1\n", 3, 1, "weir.yaml has no field \"gatway\"", "gateway"},
    {GATEWAY RULES "rules_db: sqlite:/a\n", 3, 1, "rules_db is for the rules service", ""},
    {GATEWAY RULES "admin: { rules_db: sqlite:/a }\n", 3, 8, "admin has no listen, such as 127.0.0.1:9091", ""},
    {GATEWAY RULES "admin: { listen: 127.0.0.1:1, rules_db: mysql://a }\n", 3, 41, "rules_db is sqlite: with", ""},
    {GATEWAY RULES "admin: { listen: 127.0.0.1:1, rules_db: sqlite:a }\n", 3, 41, "rules_db is sqlite: with", ""},
    {GATEWAY RULES "admin: { listen: 127.0.0.1:1, rules_db: sqlite:/a }\nrules_db: sqlite:/b\n", 3, 41, "given twice",
     ""},
    {GATEWAY RULES "admin: 127.0.0.1:8080\n", 3, 8, "is listened on", ""},
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
    {GATEWAY RULES "queue: off\n", 3, 8, "queue must be a map", ""},
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
    {GATEWAY RULES "service: { grpc: 127.0.0.1:1, tls: { certificate: a } }\n", 3, 36, "tls needs", ""},
    {GATEWAY RULES "service: { grpc: 127.0.0.1:1, http: 127.0.0.1:1 }\n", 3, 37, "listened on", ""},
    {GATEWAY RULES "workers: many\n", 3, 10, "workers must be a number from 1 to 1024", ""},
    {GATEWAY RULES "workers: 0\n", 3, 10, "workers must be a number from 1 to 1024, not 0", ""},
    {GATEWAY RULES "segment: /dev/shm/x\n", 3, 10, "segment must be a map, not text", ""},
    {GATEWAY RULES "segment: { size: 64MB }\n", 3, 18, "size must be a size such as", "64MiB"},
    {GATEWAY RULES "segment: { size: 64 m }\n", 3, 18, "size must be a size such as", "64MiB"},
    {GATEWAY RULES "segment: { size: lots }\n", 3, 18, "not \"lots\"", ""},
    {GATEWAY RULES "segment: { size: 1KiB }\n", 3, 18, "size must be at least 64KiB", ""},
    {GATEWAY RULES "segment: { size: 9999999999GiB }\n", 3, 18, "at most", ""},
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
    {GATEWAY RULES "identity: { a: host }\n", 3, 1, "identity stands beside the rules it is for", ""},
    {GATEWAY "allow: {}\nrules: { rules: [] }\n", 2, 1, "allow stands beside the rules it is for", ""},
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

TEST(rules_of_another_host)
{
    CHECK_EQ(
        load(GATEWAY "state: /tmp/there\nrules: { url: 'https://a:9091/v1/rules/published', token: t, poll: 5s }\n"),
        0);
    CHECK(config.published && config.origin.poll_ms == 5000 && !config.admin.listener);
    CHECK(strcmp(config.origin.url, "https://a:9091/v1/rules/published") == 0);
    CHECK(strcmp(config.origin.token, "t") == 0);
    CHECK(strcmp(config.rules_path, "/tmp/there/retrieved.yaml") == 0);
    CHECK(!config.import_path && !config.import_text.len);
}

TEST(rules_service)
{
    CHECK_EQ(load(GATEWAY RULES "state: /tmp/there\nadmin: 127.0.0.1:9091\n"), 0);
    CHECK(config.published && config.admin.listener && strcmp(config.admin.listener->port, "9091") == 0);
    CHECK(strcmp(config.admin.database, "sqlite:/tmp/there/rules.db") == 0);
    CHECK_EQ(config.admin.session_ms, 12 * 3600 * 1000);
    CHECK(strcmp(config.rules_path, "/tmp/there/published.yaml") == 0);
    CHECK(config.import_path != NULL);
    /* Without rules to begin with, too. */
    CHECK_EQ(load(GATEWAY "admin: { listen: 127.0.0.1:9091, rules_db: 'postgresql://u@h/d', session: 1h }\n"), 0);
    CHECK(config.published && !config.import_path && !config.import_text.len);
    CHECK(strcmp(config.admin.database, "postgresql://u@h/d") == 0);
    CHECK_EQ(config.admin.session_ms, 3600 * 1000);
}

TEST(ports_of_ratelimit)
{
    CHECK_EQ(load(RULES "service: { ports: ratelimit, resp: 127.0.0.1:7 }\n"), 0);
    CHECK_EQ(config.listener_count, 3);
    CHECK(config.listeners[0].kind == WEIR__GRPC && strcmp(config.listeners[0].address, "127.0.0.1:8081") == 0);
    CHECK(config.listeners[1].kind == WEIR__HTTP_API && strcmp(config.listeners[1].address, "127.0.0.1:8080") == 0);
    CHECK(config.listeners[2].kind == WEIR__RESP && strcmp(config.listeners[2].address, "127.0.0.1:7") == 0);
    CHECK_EQ(load(RULES "service: { ports: ratelimit, http: 127.0.0.1:6 }\n"), 0);
    CHECK_EQ(config.listener_count, 2);
    CHECK(strcmp(config.listeners[1].address, "127.0.0.1:6") == 0);
}

TEST(bad_files)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(load(bad[i].yaml) != 0);
        bool right = told.count > 0 && (bad[i].line == 0 || told_is(&told, 0, bad[i].line, bad[i].column, "")) &&
                     strstr(told.all[0].message, bad[i].message) &&
                     strcmp(told.all[0].suggestion, bad[i].suggestion) == 0;
        CHECK(right);
        if (!right)
            printf("  of: %s  told: %s [%s]\n", bad[i].yaml, told.all[0].message, told.all[0].suggestion);
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
        CHECK(told.count > 0);
        if (told.count == 0)
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
        bool right = told_is(&told, 0, 2, 36, "an upstream must be");
        CHECK(right);
        if (!right)
            printf("  of: %s\n", list[i]);
    }
}

TEST(all_errors_are_told)
{
    CHECK_EQ(load("workers: x\nsegment: { size: y }\ngateway: { listen: z, upstreams: [w] }\nlog: 1\nmetrics: q\n"),
             WEIR_ERULES);
    CHECK_EQ(told.count, 7);
}

TEST(no_file)
{
    weir__config_free(&config);
    told_begin(&told, "", 0);
    CHECK_EQ(weir__config_load(&config, "/nonexistent/weir.yaml", told_hear, &told), WEIR_ERULESPATH);
    CHECK(told.count == 1 && strstr(told.all[0].message, "No such file"));
    weir__config_free(&config);
    told_begin(&told, "", 0);
    CHECK(weir__config_load(&config, "/tmp", told_hear, &told) != 0);
    CHECK(told.count >= 1);
}

/* ---- Rules in the file ---- */

/* Everything in `rules_text` stands where it stands in the file, and everything else is blank. */
static void check_cut(const char *yaml, const char *expected)
{
    CHECK_EQ(load(yaml), 0);
    bool same = config.rules_text.len == strlen(expected) &&
                memcmp(config.rules_text.data, expected, config.rules_text.len) == 0;
    CHECK(same);
    CHECK(config.rules_path == NULL);
    if (!same)
        printf("  got:\n%.*s\n  not:\n%s\n", (int)config.rules_text.len, config.rules_text.data, expected);
}

TEST(rules_are_cut_out)
{
    check_cut("workers: 1\nrules:\n  - name: a\n" GATEWAY, "          \nrules:\n  - name: a\n");
    check_cut(GATEWAY "identity: { x: host }\nworkers: 1\n# é\nrules: [] # end\n",
              "                                                               \nidentity: { x: host }\n          \n   "
              "\nrules: [] # end\n");
    check_cut("rules:\n  domain: d\n  descriptors: []\n" GATEWAY, "      \n  domain: d\n  descriptors: []\n");
    check_cut("---\nrules: { domain: d }\n" GATEWAY, "   \n       { domain: d }\n");
    check_cut("\xef\xbb\xbfrules: []\r\n" GATEWAY, "rules: []\r\n");
    check_cut("# \xe2\x80\xa8# second\n" GATEWAY "rules: []\n",
              "  \xe2\x80\xa8        \n                                                               \nrules: []\n");
}

TEST(rules_keep_their_places)
{
    CHECK_EQ(load("workers: 1\n" GATEWAY "rules:\n  - name: a\n    limit: 1\n    windo: 1s\nmetrics: 9090\n"), 0);
    weir_rules *rules = NULL;
    CHECK_EQ(weir_rules_parse("weir.yaml", config.rules_text.data, config.rules_text.len, told_hear, &told, &rules),
             WEIR_ERULES);
    CHECK(told.count >= 1 && told_is(&told, 0, 6, 5, "windo"));
    CHECK(strcmp(told.all[0].suggestion, "window") == 0);
}

TEST(rules_need_lines_of_their_own)
{
    CHECK_EQ(load("{ gateway: { listen: 1, upstreams: ['http://a'] }, rules: [] }\n"), WEIR_ERULES);
    CHECK(told_is(&told, 0, 1, 3, "must begin a line"));
    CHECK_EQ(load("{ gateway: { listen: 1, upstreams: ['http://a'] }, rules: rules.d }\n"), 0);
}

/* ---- Anything ---- */

TEST(mutations)
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
        CHECK((error != 0) == (told.count > 0));
    }
}

TEST_MAIN
