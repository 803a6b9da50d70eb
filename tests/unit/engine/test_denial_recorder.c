/* Denials as checks record them: which are recorded, with which fields, and with which are hidden. */
#include "../../engine.h"
#include "../../private_dir.h"

#include "engine/denial_recorder.h"
#include "engine/hot_key_sampler.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char RULES[] = "block: { networks: [198.51.100.0/24, \"2001:db8::/32\"] }\n"
                            "rules:\n"
                            "  - name: api\n"
                            "    match: { path: /api/* }\n"
                            "    key: user:${user_id}\n"
                            "    limit: { free: 2, default: 1000 }\n"
                            "    window: 1h\n"
                            "    algorithm: fixed_window\n"
                            "    tier: header:x-plan\n"
                            "    block: { keys: [\"user:mallory\"] }\n"
                            "    on_missing_key: deny\n"
                            "  - name: all\n"
                            "    match: { path: /api/* }\n"
                            "    limit: 100000\n"
                            "    window: 1h\n"
                            "  - name: banned\n"
                            "    match: { path: /never }\n"
                            "    limit: 0\n"
                            "    window: 1h\n"
                            "  - name: costly\n"
                            "    match: { path: /costly }\n"
                            "    limit: 10\n"
                            "    window: 1h\n"
                            "    cost: 50\n"
                            "  - name: flight\n"
                            "    match: { path: /flight }\n"
                            "    algorithm: concurrency\n"
                            "    limit: 1\n"
                            "  - name: trial\n"
                            "    match: { path: /shadow }\n"
                            "    key: ip:${client_ip}\n"
                            "    limit: 1\n"
                            "    window: 1h\n"
                            "    shadow: true\n";

static weir *opened(const char *ring, int flags)
{
    weir_options how = {.segment = {.size = 8 << 20},
                        .rules_text = RULES,
                        .diagnose = test_print_diagnostic,
                        .denial_ring = ring,
                        .flags = flags};
    weir *engine = NULL;
    CHECK_EQ(weir_open(&how, &engine), 0);
    return engine;
}

static weir *opened_with_descriptors(void)
{
    weir_options how = {.segment = {.size = 8 << 20},
                        .rules_text = "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: { unit: hour, "
                                      "requests_per_unit: 1 }\n",
                        .diagnose = test_print_diagnostic,
                        .denial_ring = ""};
    weir *engine = NULL;
    CHECK_EQ(weir_open(&how, &engine), 0);
    return engine;
}

static size_t entries(const weir *engine, struct weir__denial *list, size_t max)
{
    const struct weir__denial_ring *ring = &engine->denial_recorder.ring;
    struct weir__denial entry;
    size_t count = 0;
    for (uint32_t i = 0; i < ring->rows; i++)
        if (weir__denial_read(ring, i, &entry) && count < max)
            list[count++] = entry;
    return count;
}

static bool text_is(const struct weir__denial *entry, enum weir__denial_text which, const char *wanted)
{
    weir_text text = weir__denial_text(entry, which);
    return text.len == strlen(wanted) && memcmp(text.data, wanted, text.len) == 0;
}

TEST(a_denial_has_all_fields)
{
    weir *engine = opened("", 0);
    struct weir__denial entry, list[2];
    for (int i = 0; i < 5; i++)
        test_check(engine, "GET /api/x ip=192.0.2.7 user_id=42 @x-plan=free @x-request-id=r-1", i);
    CHECK_EQ(entries(engine, list, 2), 1);
    entry = list[0];
    CHECK_EQ(entry.count, 3);
    CHECK_EQ(entry.first_ms, (uint64_t)test_seconds(2).wall_ns / 1000000);
    CHECK_EQ(entry.last_ms, (uint64_t)test_seconds(4).wall_ns / 1000000);
    CHECK(text_is(&entry, WEIR__DENIAL_RULE, "api") && text_is(&entry, WEIR__DENIAL_KEY, "user:42"));
    CHECK(text_is(&entry, WEIR__DENIAL_TIER, "free") && text_is(&entry, WEIR__DENIAL_CLIENT, "192.0.2.7"));
    CHECK(text_is(&entry, WEIR__DENIAL_REQUEST, "r-1") && text_is(&entry, WEIR__DENIAL_PATH, "/api/x"));
    CHECK(entry.limit == 2 && entry.capacity == 2 && entry.remaining == 0 && entry.cost == 1);
    CHECK(entry.window_ns == 3600 * WEIR_SECOND && entry.retry_after_ns > 0);
    CHECK(entry.reason == WEIR_BY_LIMIT && entry.verdict == WEIR_DENY && !entry.flags);
    CHECK_EQ(entry.key, weir__hot_sampler_hash(engine->segment, "user:42", 7));
    CHECK_EQ(entry.recent[2].client, weir__hot_sampler_hash(engine->segment, "192.0.2.7", 9));
    CHECK_EQ(entry.recent[2].id, weir__hot_sampler_hash(engine->segment, "r-1", 3));
    struct weir__denial_other other;
    weir_text name;
    size_t at = 0;
    CHECK(weir__denial_next_other(&entry, &at, &other, &name) && weir__text_is(name, "all"));
    CHECK(other.verdict == WEIR_ALLOW && other.capacity == 100000 && !other.shadow);
    CHECK(!weir__denial_next_other(&entry, &at, &other, &name));
    weir_close(engine);
}

TEST(each_reason_is_recorded)
{
    static const struct {
        const char *line, *rule;
        enum weir_reason reason;
        enum weir_verdict verdict;
    } denied[] = {
        {"GET /api/x user_id=mallory", "api", WEIR_BY_BLOCK_LIST, WEIR_BLOCKED},
        {"GET /api/x", "api", WEIR_BY_MISSING_KEY, WEIR_DENY},
        {"GET /never", "banned", WEIR_BY_BAN, WEIR_NEVER_FITS},
        {"GET /costly", "costly", WEIR_BY_LIMIT, WEIR_NEVER_FITS},
        {"GET /api/x ip=198.51.100.9 user_id=7", "", WEIR_BY_BLOCK_LIST, WEIR_BLOCKED},
        {"GET /flight", "flight", WEIR_BY_LIMIT, WEIR_DENY},
    };
    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++) {
        weir *engine = opened("", 0);
        struct weir__denial list[3];
        if (strcmp(denied[i].rule, "flight") == 0)
            CHECK(test_passes(engine, denied[i].line, 0));
        CHECK(!test_passes(engine, denied[i].line, 0));
        CHECK_EQ(entries(engine, list, 3), 1);
        CHECK(text_is(&list[0], WEIR__DENIAL_RULE, denied[i].rule));
        CHECK_EQ(list[0].reason, denied[i].reason);
        CHECK_EQ(list[0].verdict, denied[i].verdict);
        CHECK_EQ(list[0].flags, strcmp(denied[i].rule, "flight") == 0 ? WEIR__DENIAL_CONCURRENCY : 0);
        weir_close(engine);
    }
}

TEST(a_block_by_an_operator_is_recorded)
{
    weir *engine = opened("", 0);
    struct weir__denial list[2];
    CHECK_EQ(weir_key_block(engine, "api", "user:9", 6, 60 * WEIR_SECOND, test_seconds(0)), 0);
    CHECK(!test_passes(engine, "GET /api/x user_id=9", 1));
    CHECK_EQ(entries(engine, list, 2), 1);
    CHECK(list[0].reason == WEIR_BY_LIMIT && list[0].verdict == WEIR_BLOCKED);
    weir_close(engine);
}

TEST(shadow_rules_are_recorded_and_passing_requests_are_not)
{
    weir *engine = opened("", 0);
    struct weir__denial list[2];
    CHECK(test_passes(engine, "GET /shadow ip=192.0.2.1", 0));
    CHECK_EQ(entries(engine, list, 2), 0);
    CHECK(test_passes(engine, "GET /shadow ip=192.0.2.1 request_id=named", 0));
    CHECK(test_passes(engine, "GET /shadow ip=192.0.2.1 @x-request-id=later", 0));
    CHECK_EQ(entries(engine, list, 2), 1);
    CHECK(text_is(&list[0], WEIR__DENIAL_RULE, "trial") && text_is(&list[0], WEIR__DENIAL_KEY, "ip:192.0.2.1"));
    CHECK(text_is(&list[0], WEIR__DENIAL_REQUEST, "named"));
    CHECK(list[0].flags == WEIR__DENIAL_SHADOW && list[0].count == 2);
    weir_close(engine);
}

TEST(dry_runs_peeks_and_refunds_are_not_recorded)
{
    weir *engine = opened("", 0);
    struct weir__denial list[2];
    struct test_request r;
    weir_result result;
    test_request(&r, "GET /never");
    r.query.now = test_seconds(0);
    r.query.dry_run = true;
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    CHECK(!weir_passes(&result.decision));
    r.query.dry_run = false;
    r.query.has_cost = true;
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    r.query.cost = -1;
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    CHECK_EQ(entries(engine, list, 2), 0);
    weir_close(engine);
}

TEST(hidden_keys_have_no_texts)
{
    weir *engine = opened("", WEIR_HIDE_KEYS);
    struct weir__denial list[2];
    for (int i = 0; i < 3; i++)
        test_check(engine, "GET /api/x ip=192.0.2.7 user_id=42 @x-plan=free", 0);
    CHECK_EQ(entries(engine, list, 2), 1);
    CHECK(text_is(&list[0], WEIR__DENIAL_KEY, "") && text_is(&list[0], WEIR__DENIAL_CLIENT, ""));
    CHECK(text_is(&list[0], WEIR__DENIAL_RULE, "api") && list[0].flags == WEIR__DENIAL_HIDDEN);
    CHECK_EQ(list[0].key, weir__hot_sampler_hash(engine->segment, "user:42", 7));
    CHECK(!memmem(&list[0], sizeof list[0], "user:42", 7) && !memmem(&list[0], sizeof list[0], "192.0.2.7", 9));
    weir_close(engine);
}

TEST(hostile_bytes_are_kept_within_bounds)
{
    weir *engine = opened("", 0);
    struct weir__denial list[2];
    char line[1024], value[301], path[201];
    memset(value, 0xff, 300);
    memcpy(value, "\x1b[2J\n\"", 6);
    value[300] = 0;
    memset(path, '%', 200);
    path[200] = 0;
    snprintf(line, sizeof line, "GET /api/%s user_id=%s @x-plan=free @x-request-id=%.200s", path, value, value);
    for (int i = 0; i < 3; i++)
        test_check(engine, line, 0);
    CHECK_EQ(entries(engine, list, 2), 1);
    CHECK_EQ(weir__denial_text(&list[0], WEIR__DENIAL_KEY).len, 128);
    CHECK_EQ(weir__denial_text(&list[0], WEIR__DENIAL_REQUEST).len, 64);
    CHECK_EQ(weir__denial_text(&list[0], WEIR__DENIAL_PATH).len, 128);
    CHECK_EQ(list[0].flags, WEIR__DENIAL_KEY_CUT);
    weir_close(engine);
}

/* weir why names what was missing also where rule, client, id and path fill the entry. */
TEST(a_missing_attribute_has_room_before_the_path)
{
    char rules[512], line[512], name[96], header[96], path[201];
    struct weir__denial list[2];
    memset(name, 'n', 95);
    memset(header, 'h', 80);
    memset(path, 'p', 200);
    name[95] = header[80] = path[200] = 0;
    snprintf(rules, sizeof rules,
             "rules:\n  - { name: %s, key: \"${header:%s}\", limit: 1, window: 1h, on_missing_key: deny }\n", name,
             header);
    weir_options how = {.segment = {.size = 8 << 20}, .rules_text = rules, .denial_ring = ""};
    weir *engine = NULL;
    CHECK_EQ(weir_open(&how, &engine), 0);
    snprintf(line, sizeof line, "GET /%s ip=2001:db8:1111:2222:3333:4444:5555:6666 @x-request-id=%.64s", path, path);
    CHECK(!test_passes(engine, line, 0));
    CHECK_EQ(entries(engine, list, 2), 1);
    weir_text missing = weir__denial_text(&list[0], WEIR__DENIAL_MISSING);
    CHECK(missing.len > 80 && memmem(missing.data, missing.len, header, 80) != NULL);
    CHECK(weir__denial_text(&list[0], WEIR__DENIAL_PATH).len > 0);
    weir_close(engine);
}

TEST(descriptors_are_recorded)
{
    weir *engine = opened_with_descriptors();
    weir_descriptor_entry entry = {{"user", 4}, {"42", 2}};
    weir_descriptor descriptor = {.entries = &entry, .entry_count = 1};
    weir_outcome outcome;
    weir_descriptor_query query = {
        .domain = {"edge", 4}, .descriptors = &descriptor, .descriptor_count = 1, .outcomes = &outcome};
    weir_result result;
    struct weir__denial list[2];
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weir_check_descriptors(engine, &query, &result), 0);
    CHECK_EQ(entries(engine, list, 2), 1);
    CHECK(list[0].count == 2 && list[0].rule && weir__denial_text(&list[0], WEIR__DENIAL_KEY).len);
    weir_close(engine);
}

/* Limits that the requests bring have no rule: each key has an entry of its own. */
TEST(limits_of_requests_are_recorded_by_key)
{
    static const char *const users[] = {"alice", "bob"};
    weir *engine = opened_with_descriptors();
    struct weir__denial list[3];
    for (int i = 0; i < 6; i++) {
        weir_descriptor_entry entry = {{"user", 4}, {users[i % 2], strlen(users[i % 2])}};
        weir_descriptor descriptor = {
            .entries = &entry, .entry_count = 1, .override_limit = 1, .override_window_ns = 3600 * WEIR_SECOND};
        weir_outcome outcome;
        weir_descriptor_query query = {
            .domain = {"edge", 4}, .descriptors = &descriptor, .descriptor_count = 1, .outcomes = &outcome};
        weir_result result;
        CHECK_EQ(weir_check_descriptors(engine, &query, &result), 0);
    }
    CHECK_EQ(entries(engine, list, 3), 2);
    CHECK(list[0].count == 2 && list[1].count == 2 && list[0].key != list[1].key);
    weir_close(engine);
}

/* A client has a whole network of IPv6: its addresses share an entry, and do not replace those of others. */
TEST(blocked_clients_are_recorded_by_network)
{
    weir *engine = opened("", 0);
    struct weir__denial list[3];
    char line[80];
    for (int i = 0; i < 20; i++) {
        snprintf(line, sizeof line, "GET /x ip=2001:db8:0:%d::%x", i % 2, i + 1);
        CHECK(!test_passes(engine, line, 0));
    }
    CHECK_EQ(entries(engine, list, 3), 2);
    CHECK(list[0].count == 10 && list[1].count == 10);
    weir_close(engine);
}

TEST(a_file_outlives_its_engine_and_a_broken_one_is_replaced)
{
    char path[80];
    struct weir__denial list[2];
    struct stat what;
    private_path(path, sizeof path, "segment.denials");
    weir *engine = opened(path, 0);
    CHECK(!test_passes(engine, "GET /never", 0));
    weir_close(engine);
    engine = opened(path, 0);
    CHECK_EQ(entries(engine, list, 2), 1);
    weir_close(engine);
    CHECK(stat(path, &what) == 0 && what.st_size == WEIR__DENIAL_BYTES && (what.st_mode & 0777) == 0600);
    CHECK_EQ(truncate(path, 1000), 0);
    engine = opened(path, 0);
    CHECK(entries(engine, list, 2) == 0 && engine->denial_recorder.ring.rows == 1587);
    CHECK(!test_passes(engine, "GET /never", 0));
    CHECK_EQ(entries(engine, list, 2), 1);
    weir_close(engine);
    unlink(path);
}

TEST_MAIN
