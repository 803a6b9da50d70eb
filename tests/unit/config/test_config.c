/* Valid weir.yaml files, and rules inside them. */
#include "configs.h"

#include "config/config.h"

#include <sys/stat.h>

TEST(several_listeners)
{
    CHECK_EQ(load("gateway: { listen: [8080, '[::]:8080', '[::]:8081', 127.0.0.1:8082, 127.0.0.2:8082, '*:8083'], "
                  "upstreams: ['http://a'] }\nmetrics: 127.0.0.3:8082\n" RULES),
             0);
    CHECK_EQ(diags.count, 0);
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
    CHECK_EQ(config.store.consistency, WEIR_PER_ALGORITHM);
    CHECK_EQ(config.store.sync_interval_us, 50000);
    CHECK_EQ(load(GATEWAY RULES "store: redis://a?sync_interval=20ms\n"), 0);
    CHECK_EQ(config.store.sync_interval_us, 20000);
    CHECK_EQ(load(GATEWAY RULES "store: { url: redis://a, sync_interval: 30ms, consistency: local }\n"), 0);
    CHECK_EQ(config.store.sync_interval_us, 30000);
    CHECK_EQ(config.store.consistency, WEIR_LOCAL);
    CHECK_EQ(load(GATEWAY RULES "store: { url: redis://a, consistency: leased }\n"), 0);
    CHECK_EQ(config.store.consistency, WEIR_LEASED);

    CHECK_EQ(load(GATEWAY RULES "store:\n  url: rediss://a\n  deadline: 5ms\n  hash_keys: true\n  ca: ca.pem\n"
                                "  password_file: /etc/weir/secret\n  consistency: strict\n  breaker_failures: 3\n"),
             0);
    CHECK_EQ(diags.count, 0);
    CHECK_EQ(config.store.setting_count, 6);
    CHECK(strcmp(setting("deadline"), "5ms") == 0);
    CHECK(strcmp(setting("consistency"), "strict") == 0);
    CHECK(strcmp(setting("password_file"), "/etc/weir/secret") == 0);
    snprintf(path, sizeof path, "%s/ca.pem", folder);
    CHECK(strcmp(setting("ca"), path) == 0);
    weir__config_free(&config);
}

TEST(password_is_not_truncated)
{
    char path[128], url[2048], why[256], password[600];
    struct weir__store store = {
        .url = "redis://a", .settings = {{.name = "password_file", .value = path}}, .setting_count = 1};
    memset(password, 'p', sizeof password);
    snprintf(path, sizeof path, "%s/password", folder);
    for (int cut = 0; cut < 2; cut++) {
        FILE *to = fopen(path, "w");
        fprintf(to, "%.*s\n", cut ? 512 : 511, password);
        fclose(to);
        CHECK_EQ(weir__store_url(&store, url, sizeof url, why, sizeof why), !cut);
    }
    CHECK(strstr(why, "longer than 511 bytes") != NULL);
    unlink(path);
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
        CHECK_EQ(diags.count, 1);
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
        CHECK_EQ(diags.count, 0);
        weir__config_free(&config);
    }
}

TEST(defaults)
{
    CHECK_EQ(load(GATEWAY RULES), 0);
    CHECK_EQ(diags.count, 0);
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

TEST(every_option)
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
    CHECK_EQ(diags.count, 0);
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

TEST(forward_auth)
{
    CHECK_EQ(load(GATEWAY RULES "service: { http: 127.0.0.1:1 }\n"), 0);
    CHECK(!config.auth.headers && config.auth.proxy_count == 0 && !config.access.open[WEIR__ENDPOINT_AUTH]);
    CHECK_EQ(load(GATEWAY RULES
                  "service: { http: 127.0.0.1:1, access: { tokens: abcdefgh, open: [auth] }, auth: { headers: "
                  "original, trusted_proxies: [10.0.0.0/8, '::ffff:192.0.2.1', '2001:DB8:0::/32', '::/0'] } }\n"),
             0);
    CHECK_EQ(diags.count, 0);
    CHECK(strcmp(weir__auth_headers[config.auth.headers - 1], "original") == 0 &&
          config.access.open[WEIR__ENDPOINT_AUTH] && !config.access.open[WEIR__ENDPOINT_API] &&
          !config.access.open[WEIR__ENDPOINT_JSON]);
    static const char *const networks[] = {"10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "::/0", "0.0.0.0/0"};
    CHECK_EQ(config.auth.proxy_count, 5);
    for (size_t i = 0; i < config.auth.proxy_count && i < 5; i++)
        CHECK(strcmp(config.auth.proxy[i], networks[i]) == 0);
}

TEST(queues)
{
    const struct weir__queue_config *queue = &config.queue;
    CHECK_EQ(load(GATEWAY RULES), 0);
    CHECK(!queue->wanted && !queue->socket);
    CHECK_EQ(load(GATEWAY RULES "state: /s\nqueue: on\n"), 0);
    CHECK_EQ(diags.count, 0);
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
    CHECK_EQ(diags.count, 0);
    CHECK(queue->sync_second && queue->max == 5 && queue->max_bytes == 1 << 20 && queue->body_bytes == 0);
    CHECK_EQ(queue->max_age_ms, INT64_C(30) * 86400000);
    CHECK_EQ(queue->retries, 0);
    CHECK_EQ(queue->header_count, 2);
    CHECK(strcmp(queue->headers[0], "content-type") == 0 && strcmp(queue->headers[1], "x-*") == 0);
    CHECK(strcmp(queue->deliver_to, "https://a:443") == 0 && queue->database == NULL);
}

TEST(rules_from_another_host)
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

TEST(the_secrets_of_an_origin_are_not_shown)
{
    static const struct {
        const char *url, *shown;
        int warnings;
    } cases[] = {{"https://a:9091/v1/rules/published", "https://a:9091/v1/rules/published", 0},
                 {"https://me:pass@a/x?token=t#f", "https://a/x", 0},
                 {"https://me:p@ss@a?token=t", "https://a", 0},
                 {"https://a/x@y", "https://a/x@y", 0},
                 {"http://127.0.0.1:1/x", "http://127.0.0.1:1/x", 0},
                 {"http://me:pass@localhost/x", "http://localhost/x", 0},
                 {"http://me:pass@a/x", "http://a/x", 1}};
    char yaml[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(yaml, sizeof yaml, GATEWAY "state: /tmp/there\nrules: { url: '%s' }\n", cases[i].url);
        CHECK_EQ(load(yaml), 0);
        CHECK(strcmp(config.origin.url, cases[i].url) == 0 && strcmp(config.origin.shown, cases[i].shown) == 0);
        CHECK_EQ(diags.count, cases[i].warnings);
    }
}

TEST(secrets_are_not_quoted)
{
    /* Each file is good but for what follows on the line of its secret. */
    static const char *const files[] = {
        GATEWAY RULES
        "service: { http: 1, access: { tokens: [hunter22, 'hunter23'], password: \"hunter\\x32\\x34\" }, x: 1 }\n",
        GATEWAY RULES
        "service: { http: 1, access: { operator_tokens: hunter22, operator_password: 'it''s-hunter2' }, x: 1 }\n",
        GATEWAY RULES "service:\n  http: 1\n  access:\n    tokens:\n    - hunter2\n",
        GATEWAY RULES "store: { url: 'redis://me:hunter2@a', password: hunter2, x: 1 }\n",
        GATEWAY RULES "store: { url: 'redis://a?password=hunter2&x=1', x: 1 }\n",
        GATEWAY RULES "admin: { listen: 1, rules_db: 'postgresql://me:hunter2@a/b', x: 1 }\n",
        GATEWAY "state: /tmp/there\nrules: { url: 'https://me:hunter2@a', token: hunter2, x: 1 }\n",
        GATEWAY RULES "service: { http: 1, access: { tokns: [hunter2], Pasword: hunter2 } }\n",
        GATEWAY RULES "store: { url: 'redis://a', passwd: hunter2 }\n",
        GATEWAY RULES "store: { url: 'redis://a', password: \"a\n  hunter2\", x: 1 }\n",
        GATEWAY RULES "notify: { url: 'https://hooks.example/services/hunter2?x=hunter3', x: 1 }\n",
        GATEWAY RULES "notify: { url: 'https://hooks.example?hunter2', x: 1 }\n",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CHECK_EQ(load(files[i]), WEIR_ERULES);
        CHECK(diags.count > 0);
        for (int k = 0; k < diags.count; k++) {
            CHECK(strstr(diags.all[k].source, "hunter") == NULL && strstr(diags.all[k].message, "hunter") == NULL);
            CHECK(strstr(diags.all[k].source, "x32") == NULL);
        }
    }
    CHECK_EQ(load(GATEWAY RULES "store: { url: 'redis://a', password_file: /etc/hunter2, x: 1 }\n"), WEIR_ERULES);
    CHECK(strstr(diags.all[0].source, "/etc/hunter2") != NULL);
    CHECK_EQ(load(GATEWAY RULES "notify: { url: 'http://hooks.example/hunter2', ca: /etc/ca }\n"), 0);
    CHECK(strstr(diags.all[0].source, "http://hooks.example*") && strstr(diags.all[0].source, ", ca: /etc/ca"));
    /* Rules are read from the text as it is. */
    CHECK_EQ(load(GATEWAY "rules: [{ name: a, match: { token: hunter2 }, limit: 1, window: 1s }]\n"), 0);
    CHECK(strstr(config.rules_text.data, "hunter2") != NULL);
}

/* A line break of Unicode inside a hidden secret stays one: the lines below it are found and quoted as they are. */
TEST(hidden_secrets_keep_their_lines)
{
    static const char *const breaks[] = {"\n", "\r\n", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};
    char yaml[512];
    for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
        snprintf(yaml, sizeof yaml,
                 "first: 1\n" GATEWAY RULES "store: { url: 'redis://a', password: \"a%s  hunter2\" }\nlast: 1\n",
                 breaks[i]);
        CHECK_EQ(load(yaml), WEIR_ERULES);
        CHECK(diags_is(&diags, 0, 1, 1, "first") && diags_is(&diags, 1, 6, 1, "last"));
        CHECK(strncmp(diags.all[1].source, "last: 1", strlen("last: 1")) == 0);
    }
}

/* Only the host itself is reached without encryption, and not a name that begins like one of its own. */
TEST(origins_of_other_hosts)
{
    static const struct {
        const char *url;
        bool warned;
    } cases[] = {
        {"http://localhost:1/", false},         {"http://127.0.0.9/x", false},    {"http://[::1]:1/", false},
        {"http://a:b@localhost/", false},       {"https://example.com/", false},  {"http://example.com/", true},
        {"http://localhost.example.com", true}, {"http://127.example.com", true}, {"http://[::12]/", true},
        {"http://localhost@example.com/", true}};
    char yaml[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(yaml, sizeof yaml, GATEWAY "state: /tmp/there\nrules: '%s'\n", cases[i].url);
        CHECK_EQ(load(yaml), 0);
        CHECK_EQ(diags.count, cases[i].warned);
        CHECK(!cases[i].warned || strstr(diags.all[0].message, "unencrypted"));
    }
}

TEST(rules_service)
{
    CHECK_EQ(load(GATEWAY RULES "state: /tmp/there\nadmin: { listen: 127.0.0.1:9091, rules: database }\n"), 0);
    CHECK_EQ(diags.count, 0);
    CHECK(config.published && config.admin.listener && strcmp(config.admin.listener->port, "9091") == 0);
    CHECK(strcmp(config.admin.database, "sqlite:/tmp/there/rules.db") == 0);
    CHECK_EQ(config.admin.session_ms, 12 * 3600 * 1000);
    CHECK_EQ(config.admin.key_texts, 3);
    CHECK(strcmp(config.rules_path, "/tmp/there/published.yaml") == 0);
    CHECK(config.import_path != NULL);
    /* Also without rules to bootstrap with. */
    CHECK_EQ(load(GATEWAY "admin: { listen: 127.0.0.1:9091, key_texts: viewer }\n"), 0);
    CHECK_EQ(config.admin.key_texts, 1);
    weir__config_free(&config);
    CHECK(load(GATEWAY "admin: { listen: 127.0.0.1:9091, key_texts: everybody }\n") != 0);
    weir__config_free(&config);
    CHECK_EQ(load(GATEWAY "admin: { listen: 127.0.0.1:9091, rules_db: 'postgresql://u@h/d', session: 1h }\n"), 0);
    CHECK(config.published && !config.import_path && !config.import_text.len);
    CHECK(strcmp(config.admin.database, "postgresql://u@h/d") == 0);
    CHECK_EQ(config.admin.session_ms, 3600 * 1000);
}

/* Where the rules of a host with a rules service are: stated, or found out. */
TEST(rules_in_files_or_in_the_database)
{
    static const struct {
        const char *admin, *rules, *published;
        bool database, warned;
    } cases[] = {
        {"127.0.0.1:1", RULES, NULL, false, false},
        {"{ listen: 127.0.0.1:1 }", "rules: [{ name: a, limit: 1, window: 1s }]\n", NULL, false, false},
        {"127.0.0.1:1", "", NULL, true, false},
        {"{ listen: 127.0.0.1:1, rules: files }", RULES, NULL, false, false},
        {"{ listen: 127.0.0.1:1, rules: database }", RULES, NULL, true, false},
        {"{ listen: 127.0.0.1:1, rules: database }", "", NULL, true, false},
        /* The database was in use before. */
        {"127.0.0.1:1", RULES, WEIR__PUBLISHED_HEAD "1, 2, sha256 3\n", true, true},
        {"127.0.0.1:1", "", WEIR__PUBLISHED_HEAD "1, 2, sha256 3\n", true, false},
        {"{ listen: 127.0.0.1:1, rules: files }", RULES, WEIR__PUBLISHED_HEAD "1, 2, sha256 3\n", false, false},
        {"{ listen: 127.0.0.1:1, rules: database }", RULES, WEIR__PUBLISHED_HEAD "1, 2, sha256 3\n", true, false},
        /* Written before a database was reached, or by another. */
        {"127.0.0.1:1", RULES, "# The rules of weir.yaml, until the rules service has published some.\n", false, false},
        {"127.0.0.1:1", RULES, "# weir", false, false},
        {"127.0.0.1:1", RULES, "", false, false},
    };
    char yaml[512], state[64] = "/tmp/weir-state-XXXXXX", path[128];
    CHECK(mkdtemp(state) != NULL);
    snprintf(path, sizeof path, "%s/published.yaml", state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unlink(path);
        if (cases[i].published) {
            FILE *to = fopen(path, "w");
            fputs(cases[i].published, to);
            fclose(to);
        }
        snprintf(yaml, sizeof yaml, GATEWAY "%sstate: %s\nadmin: %s\n", cases[i].rules, state, cases[i].admin);
        CHECK_EQ(load(yaml), 0);
        if (config.published != cases[i].database || diags.count != cases[i].warned)
            printf("  case %zu: %d %d\n", i, config.published, diags.count);
        CHECK_EQ(config.published, cases[i].database);
        CHECK_EQ(diags.count, cases[i].warned);
        CHECK(!cases[i].warned || (strstr(diags.all[0].message, "rules: files") && diags.all[0].line == 2));
        CHECK(!cases[i].database || strcmp(config.rules_path, path) == 0);
        CHECK((config.import_path || config.import_text.len) == (cases[i].database && *cases[i].rules));
        CHECK(cases[i].database || config.rules_path || config.rules_text.len);
        CHECK(config.admin.database && strstr(config.admin.database, "rules.db")); /* tokens, the audit log */
    }
    /* A link may lead anywhere, and a pipe would block. */
    unlink(path);
    CHECK_EQ(symlink("/dev/zero", path), 0);
    snprintf(yaml, sizeof yaml, GATEWAY RULES "state: %s\nadmin: 127.0.0.1:1\n", state);
    CHECK_EQ(load(yaml), 0);
    CHECK(!config.published);
    unlink(path);
    CHECK_EQ(mkfifo(path, 0600), 0);
    CHECK_EQ(load(yaml), 0);
    CHECK(!config.published);
    unlink(path);
    /* The database was read meanwhile: it has published rules. */
    FILE *to = fopen(path, "w");
    fputs(WEIR__PUBLISHED_HEAD "1, 2, sha256 3\n", to);
    fclose(to);
    CHECK(weir__config_publish(&config));
    CHECK(config.published && config.import_path && strcmp(config.rules_path, path) == 0);
    CHECK(!weir__config_publish(&config));
    unlink(path);
    rmdir(state);
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

/* ---- Rules in the file ---- */

/* rules_text has the rules at their positions in the file, and blanks elsewhere. */
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

TEST(rules_are_extracted)
{
    check_cut("workers: 1\nrules:\n  - name: a\n" GATEWAY, "          \nrules:\n  - name: a\n");
    check_cut(GATEWAY "identity: { x: host }\nworkers: 1\n# é\nrules: [] # end\n",
              "                                                               \nidentity: { x: host }\n          \n   "
              "\nrules: [] # end\n");
    check_cut(
        "response: { headers: [] }\n" GATEWAY "rules: []\n",
        "response: { headers: [] }\n                                                               \nrules: []\n");
    check_cut("rules:\n  domain: d\n  descriptors: []\n" GATEWAY, "      \n  domain: d\n  descriptors: []\n");
    check_cut("---\nrules: { domain: d }\n" GATEWAY, "   \n       { domain: d }\n");
    check_cut("\xef\xbb\xbfrules: []\r\n" GATEWAY, "rules: []\r\n");
    check_cut("# \xe2\x80\xa8# second\n" GATEWAY "rules: []\n",
              "  \xe2\x80\xa8        \n                                                               \nrules: []\n");
}

TEST(files_of_extracted_rules_are_absolute)
{
    char expected[512];
    snprintf(
        expected, sizeof expected,
        "identity:\n  tier: { from: host, file: '%s/plans.csv', default: x }\n  t: { file: '/a''b.csv', from: host "
        "}\nrules: []\n",
        folder);
    check_cut("identity:\n  tier: { from: host, file: plans.csv, default: x }\n  t: { file: \"/a'b.csv\", from: host "
              "}\nrules: []\n" GATEWAY,
              expected);
    snprintf(expected, sizeof expected,
             "      \n  identity:\n    tier:\n      file: '%s/plans.csv'\n      from: host\n  rules: []\n", folder);
    check_cut("rules:\n  identity:\n    tier:\n      file: plans.csv\n      from: host\n  rules: []\n" GATEWAY,
              expected);
    CHECK_EQ(load("identity: { tier: { from: host, file: '' } }\nrules: []\n" GATEWAY), WEIR_ERULES);
    CHECK(diags_is(&diags, 0, 1, 39, "file must be a path, and is empty"));
}

TEST(extracted_rules_keep_their_positions)
{
    CHECK_EQ(load("workers: 1\n" GATEWAY "rules:\n  - name: a\n    limit: 1\n    windo: 1s\nmetrics: 9090\n"), 0);
    weir_rules *rules = NULL;
    CHECK_EQ(
        weir_rules_parse("weir.yaml", config.rules_text.data, config.rules_text.len, diags_collect, &diags, &rules),
        WEIR_ERULES);
    CHECK(diags.count >= 1 && diags_is(&diags, 0, 6, 5, "windo"));
    CHECK(strcmp(diags.all[0].suggestion, "window") == 0);
}

TEST(rules_on_the_same_line_are_refused)
{
    CHECK_EQ(load("{ gateway: { listen: 1, upstreams: ['http://a'] }, rules: [] }\n"), WEIR_ERULES);
    CHECK(diags_is(&diags, 0, 1, 3, "must begin a line"));
    CHECK_EQ(load("{ gateway: { listen: 1, upstreams: ['http://a'] }, rules: rules.d }\n"), 0);
}

TEST_MAIN
