/* Units admitted under eventual rules are recorded in the ledger, all of them and nothing else. */
#include "base/clock.h"
#include "engine/ledger.h"
#include "engine/fast_result.h"
#include "engine/segment.h"
#include "engine/store_request.h"

#include "../../engine.h"

#include <sys/stat.h>
#include <unistd.h>

static const char rules[] =
    "rules:\n"
    "  - {name: a, key: \"${client_ip}\", limit: 5, window: 1m, consistency: eventual}\n"
    "  - {name: b, match: {path: /b}, key: \"${client_ip}\", limit: 3, window: 1m}\n"
    "  - {name: c, match: {path: /c}, key: \"${client_ip}\", limit: 2, window: 1m, consistency: eventual}\n"
    "  - name: tiered\n"
    "    match: {path: /t}\n"
    "    key: \"${user_id}\"\n"
    "    limit: {default: 3, pro: 30}\n"
    "    window: 1m\n"
    "    consistency: eventual\n";

static weir *open_with(const char *text, const char *ledger, uint64_t bytes)
{
    weir_options how = {.segment = {.size = 1 << 20},
                        .rules_text = text,
                        .diagnose = test_print_diagnostic,
                        .store = "redis://127.0.0.1:1",
                        .flags = WEIR_NO_CONNECT,
                        .ledger = ledger,
                        .ledger_bytes = bytes};
    weir *engine = NULL;
    int error = weir_open(&how, &engine);
    if (error) {
        printf("  %s\n", weir_strerror(error));
        exit(1);
    }
    return engine;
}

/* The recorded amount of a rule; of all keys, or of one. */
static int64_t recorded(weir *engine, const char *rule, const char *key)
{
    int64_t sum = 0;
    uint64_t id = weir__rule_id((weir_text){rule, strlen(rule)}, false);
    for (uint64_t i = 0; i < engine->deltas.ledger.entries; i++) {
        struct weir__ledger_entry entry;
        weir__ledger_read(&engine->deltas.ledger, i, &entry);
        if (!entry.identity)
            continue;
        CHECK(entry.ready);
        if (!entry.ready || entry.text.rule != id)
            continue;
        if (!key || (strlen(key) == entry.text.key_len && memcmp(key, entry.text.key, entry.text.key_len) == 0))
            sum += entry.amount;
    }
    return sum;
}

TEST(admitted_units_are_recorded)
{
    weir *engine = open_with(rules, "", 1 << 20);
    CHECK_EQ(test_passing(engine, "GET /x ip=192.0.2.1", 0, 7), 5);
    CHECK_EQ(recorded(engine, "a", "192.0.2.1"), 5);
    CHECK_EQ(test_passing(engine, "GET /x ip=192.0.2.2", 0, 2), 2);
    CHECK_EQ(recorded(engine, "a", "192.0.2.2"), 2);
    CHECK_EQ(recorded(engine, "a", NULL), 7);
    weir_close(engine);
}

/* Also on the fast path of a gateway. */
TEST(admitted_units_are_recorded_on_the_fast_path)
{
    weir *engine = open_with(rules, "", 1 << 20);
    char text[WEIR__FAST_RESULT_BYTES];
    struct weir__second reset = {0};
    for (int i = 0; i < 7; i++) {
        const uint8_t peer[4] = {192, 0, 2, 1};
        struct weir__fast_result fast = {.reset = &reset, .text = text, .headers = true};
        weir_query query = {.peer = peer, .peer_len = 4, .path = {"/x", 2}, .now = test_seconds(0)};
        weir_result result;
        CHECK_EQ(weir__check_fast(engine, &query, &result, &fast), 0);
        CHECK_EQ(fast.filled, i < 5);
        CHECK_EQ(recorded(engine, "a", "192.0.2.1"), i < 5 ? i + 1 : 5);
    }
    weir_close(engine);
}

TEST(units_denied_by_another_rule_are_not_recorded)
{
    weir *engine = open_with(rules, "", 1 << 20);
    CHECK_EQ(test_passing(engine, "GET /b ip=192.0.2.1", 0, 5), 3);
    CHECK_EQ(recorded(engine, "a", NULL), 3);
    CHECK_EQ(recorded(engine, "b", NULL), 0); /* local */
    CHECK_EQ(test_passing(engine, "GET /c ip=192.0.2.1", 0, 5), 2);
    CHECK_EQ(recorded(engine, "a", NULL), 5);
    CHECK_EQ(recorded(engine, "c", NULL), 2);
    weir_close(engine);
}

TEST(nothing_is_recorded_without_a_ledger_or_an_eventual_rule)
{
    weir *engine = open_with(rules, NULL, 0);
    CHECK(test_passes(engine, "GET /x ip=192.0.2.1", 0));
    CHECK(!engine->deltas.mapped.memory);
    weir_close(engine);

    char folder[] = "/tmp/weir-deltas-XXXXXX", path[64];
    struct stat what;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/ledger", folder);
    engine = open_with("rules: [{name: a, key: \"${client_ip}\", limit: 5, window: 1m}]\n", path, 1 << 20);
    CHECK(test_passes(engine, "GET /x ip=192.0.2.1", 0));
    /* The file is created with the engine nevertheless: a worker of another user could not create it later. */
    CHECK(weir_ledger_stats_read(engine, &(weir_ledger_stats){0}) == WEIR_ENOENT && stat(path, &what) == 0);
    weir_close(engine);
    engine = open_with(rules, path, 1 << 20);
    CHECK(engine->deltas.mapped.memory && stat(path, &what) == 0 && what.st_size == 1 << 20 &&
          (what.st_mode & 0777) == 0600);
    CHECK(test_passes(engine, "GET /x ip=192.0.2.1", 0));
    weir_close(engine);

    /* It outlives its engine; a damaged one is replaced; a foreign file is left alone. */
    engine = open_with(rules, path, 1 << 22);
    CHECK_EQ(recorded(engine, "a", NULL), 1);
    engine->deltas.ledger.header->entries++;
    weir_close(engine);
    engine = open_with(rules, path, 1 << 22);
    CHECK_EQ(recorded(engine, "a", NULL), 0);
    CHECK_EQ(engine->deltas.mapped.bytes, 1 << 22);
    weir_close(engine);
    FILE *other = fopen(path, "w");
    fputs("something that is not ours, and somewhat longer than the header of a ledger", other);
    for (int i = 0; i < 100; i++)
        fputs("0123456789", other);
    fclose(other);
    weir_options how = {.segment = {.size = 1 << 20},
                        .rules_text = rules,
                        .ledger = path,
                        .store = "redis://127.0.0.1:1",
                        .flags = WEIR_NO_CONNECT};
    CHECK_EQ(weir_open(&how, &engine), WEIR_ELEDGER);
    how.ledger_bytes = 4096;
    unlink(path);
    CHECK_EQ(weir_open(&how, &engine), WEIR_ESIZE);
    CHECK(stat(path, &what) != 0);
    rmdir(folder);
}

/* The file of a segment that has shrunk is longer than the segment. */
TEST(default_size_follows_that_of_the_segment)
{
    char folder[] = "/tmp/weir-deltas-XXXXXX", path[64], segment[64];
    weir_options how = {.segment = {.path = segment, .size = 8 << 20, .flags = WEIR_OPEN_CREATE},
                        .rules_text = rules,
                        .store = "redis://127.0.0.1:1",
                        .flags = WEIR_NO_CONNECT,
                        .ledger = path};
    weir_resize result;
    weir *engine = NULL;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/ledger", folder);
    snprintf(segment, sizeof segment, "%s/segment", folder);
    CHECK_EQ(weir_open(&how, &engine), 0);
    for (uint64_t size = 16 << 20; size >= 8 << 20; size /= 2) {
        CHECK_EQ(weir_segment_resize(segment, size, &result), 0);
        weir_close(engine);
        unlink(path);
        CHECK_EQ(weir_open(&how, &engine), 0);
        CHECK_EQ(engine->deltas.mapped.bytes, size / 4);
    }
    weir_close(engine);
    unlink(path);
    unlink(segment);
    rmdir(folder);
}

TEST(refunds_settlements_and_resets_are_recorded)
{
    weir *engine = open_with(rules, "", 1 << 20);
    struct test_request r;
    weir_result result;
    test_request(&r, "GET /x ip=192.0.2.1");
    r.query.now = test_seconds(0);
    r.query.has_cost = true;
    r.query.cost = 4;
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    CHECK_EQ(recorded(engine, "a", NULL), 4);
    r.query.cost = -1;
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    CHECK_EQ(recorded(engine, "a", NULL), 3);
    r.query.cost = -100; /* only units that are in use are refunded */
    CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    CHECK_EQ(recorded(engine, "a", NULL), 0);

    weir_taken taken = {.rule = "a", .key = "192.0.2.1", .key_len = 9, .quota = 5, .window_ns = 60 * WEIR_SECOND};
    weir_decision d;
    CHECK_EQ(weir_key_settle(engine, &taken, 9, test_seconds(0), &d), 0);
    CHECK_EQ(recorded(engine, "a", NULL), 9);
    CHECK_EQ(weir_key_settle(engine, &taken, -2, test_seconds(0), &d), 0);
    CHECK_EQ(recorded(engine, "a", NULL), 7);
    /* After a time in which 5 were refilled. */
    CHECK_EQ(weir_key_settle(engine, &taken, 0, test_seconds(60), &d), 0);
    CHECK_EQ(weir_key_reset(engine, "a", "192.0.2.1", 9, test_seconds(60)), 0);
    CHECK_EQ(recorded(engine, "a", NULL), 5);
    weir_close(engine);
}

TEST(tiers_and_long_keys)
{
    weir *engine = open_with(rules, "", 1 << 20);
    CHECK(test_passes(engine, "GET /t user_id=7", 0));
    CHECK(test_passes(engine, "GET /t user_id=7 tier=pro", 0));
    CHECK_EQ(recorded(engine, "tiered", "7"), 2);
    const struct weir__ledger *ledger = &engine->deltas.ledger;
    uint64_t tiers = 0;
    struct weir__ledger_entry entry;
    for (uint64_t i = 0; i < ledger->entries; i++) {
        weir__ledger_read(ledger, i, &entry);
        tiers += entry.ready && entry.text.tier;
    }
    CHECK_EQ(tiers, 1);

    char line[256], key[101], digits[WEIR__NAME_DIGITS];
    memset(key, 'k', 100);
    key[100] = 0;
    snprintf(line, sizeof line, "GET /t user_id=%s", key);
    CHECK(test_passes(engine, line, 0));
    weir__store_digits((weir_text){key, 100}, digits);
    int found = 0;
    for (uint64_t i = 0; i < ledger->entries; i++) {
        weir__ledger_read(ledger, i, &entry);
        if (!entry.ready || !entry.text.cut)
            continue;
        found++;
        CHECK_EQ(entry.text.key_len, WEIR__NAME_KEY_CUT + WEIR__NAME_DIGITS);
        CHECK(memcmp(entry.text.key, key, WEIR__NAME_KEY_CUT) == 0);
        CHECK(memcmp(entry.text.key + WEIR__NAME_KEY_CUT, digits, sizeof digits) == 0);
        /* The counter is found without the key. */
        weir_params params = {.limit = 3, .window_ns = 60 * WEIR_SECOND};
        weir_limit limit;
        weir_decision d;
        CHECK_EQ(weir_limit_init(&limit, &params), 0);
        CHECK_EQ(weir__counter_move(engine->segment, &limit, entry.identity, 0, test_seconds(0), &d), 0);
        CHECK_EQ(d.remaining, 2);
        CHECK_EQ(weir__counter_move(engine->segment, &limit, entry.identity, 7, test_seconds(0), &d), 0);
        CHECK_EQ(d.remaining, -5);
        CHECK_EQ(weir__counter_move(engine->segment, &limit, entry.identity, -4, test_seconds(0), &d), 0);
        CHECK_EQ(d.remaining, -1);
    }
    CHECK_EQ(found, 1);
    weir_close(engine);
}

TEST(full_ledger_disturbs_no_request)
{
    weir *engine = open_with(rules, "", WEIR__LEDGER_BYTES_MIN);
    char line[64];
    for (int i = 0; i < 3000; i++) {
        snprintf(line, sizeof line, "GET /x ip=10.0.%d.%d", i / 250, i % 250);
        CHECK(test_passes(engine, line, 0));
    }
    CHECK(engine->deltas.ledger.header->full > 1000);
    weir_close(engine);
}

TEST(truncated_ledger_crashes_no_process)
{
    char folder[] = "/tmp/weir-deltas-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/ledger", folder);
    weir *engine = open_with(rules, path, 1 << 20);
    CHECK_EQ(weir_segment_guard(engine->segment), 0);
    CHECK_EQ(test_passing(engine, "GET /x ip=192.0.2.1", 0, 2), 2);
    CHECK_EQ(truncate(path, 0), 0);
    CHECK_EQ(test_passing(engine, "GET /x ip=192.0.2.1", 0, 9), 3);
    CHECK_EQ(test_passing(engine, "GET /x ip=192.0.2.2", 0, 9), 5);
    CHECK(engine->deltas.mapped.lost && !weir_segment_lost(engine->segment));
    weir_close(engine);
    engine = open_with(rules, path, 1 << 20); /* created anew */
    CHECK_EQ(test_passing(engine, "GET /x ip=192.0.2.1", 0, 9), 5);
    CHECK_EQ(recorded(engine, "a", NULL), 5);
    weir_close(engine);
    unlink(path);
    rmdir(folder);
}

/* ---- Unavailable store ---- */

static const char policies[] =
    "rules:\n"
    "  - {name: o, match: {path: /o}, key: \"${client_ip}\", limit: 1, window: 1m, consistency: eventual, "
    "on_store_failure: "
    "open}\n"
    "  - {name: c, match: {path: /c}, key: \"${client_ip}\", limit: 9, window: 1m, consistency: eventual, "
    "on_store_failure: "
    "closed}\n"
    "  - {name: l, match: {path: /l}, key: \"${client_ip}\", limit: 1, window: 1m, consistency: eventual}\n";

static void check_policies(weir *engine, bool unavailable)
{
    weir_result result = test_check(engine, "GET /c ip=192.0.2.1", 0);
    CHECK_EQ(weir_passes(&result.decision), !unavailable);
    CHECK_EQ(result.decided_by.reason, unavailable ? WEIR_BY_FAILURE : WEIR_BY_LIMIT);
    CHECK_EQ(result.decided_by.error, unavailable ? WEIR_ESTOREBREAKER : 0);
    CHECK_EQ(test_passing(engine, "GET /o ip=192.0.2.1", 0, 3), unavailable ? 3 : 0);
    CHECK_EQ(test_passing(engine, "GET /l ip=192.0.2.1", 0, 3), 0);
}

TEST(policies_when_the_store_is_unavailable)
{
    weir *engine = open_with(policies, "", 1 << 20);
    struct weir__ledger_header *header = engine->deltas.ledger.header;
    CHECK_EQ(test_passing(engine, "GET /o ip=192.0.2.1", 0, 3), 1);
    CHECK_EQ(test_passing(engine, "GET /l ip=192.0.2.1", 0, 3), 1);
    check_policies(engine, false); /* the agent is still starting */
    engine->deltas.opened_ms -= WEIR__DELTA_LEDGER_SILENT_MS + 100;
    check_policies(engine, true); /* it never started */
    weir__store64(&header->heartbeat_ms, weir__coarse_ms());
    check_policies(engine, false); /* it runs */
    weir__store64(&header->state, WEIR__LEDGER_DOWN);
    check_policies(engine, true);
    weir__store64(&header->state, WEIR__LEDGER_UP);
    check_policies(engine, false);
    weir__store64(&header->heartbeat_ms, weir__coarse_ms() - WEIR__DELTA_LEDGER_SILENT_MS - 100);
    check_policies(engine, true); /* it is silent */
    weir__store64(&header->heartbeat_ms, weir__coarse_ms() + 100000);
    check_policies(engine, true); /* its state is of an earlier boot */
    weir_close(engine);
}

TEST_MAIN
