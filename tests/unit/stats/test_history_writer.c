/* The history and hot keys that the agent writes, and the statistics that readers get of them. */
#include "../../engine.h"
#include "../../private_dir.h"
#include "../../frozen_clock.h"

#include "stats/advise.h"
#include "stats/stats.h"

#include <inttypes.h>
#include <jansson.h>
#include <sys/wait.h>
#include <unistd.h>

static const char RULES[] = "rules:\n"
                            "  - name: api\n"
                            "    key: user:${user_id}\n"
                            "    limit: 1000\n"
                            "    window: 1h\n"
                            "  - name: api\n"
                            "    key: user:${user_id}\n"
                            "    limit: 10\n"
                            "    window: 1h\n"
                            "    shadow: true\n"
                            "  - { name: other, match: { path: /other }, limit: 10, window: 1h }\n";

static const char *ending;
static char segment[64], hot[80];

__attribute__((constructor)) static void choose_paths(void)
{
    private_path(segment, sizeof segment, "segment");
    snprintf(hot, sizeof hot, "%s.hot", segment);
}

static void remove_all(void)
{
    static const char *const endings[] = {"", ".hot", ".history", ".observer", ".ledger"};
    char path[128];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(path, sizeof path, "%s%s", segment, endings[i]);
        unlink(path);
    }
}

static weir *opened(bool with_hot)
{
    weir_options how = {.segment = {.path = segment, .size = 8 << 20, .flags = WEIR_OPEN_CREATE},
                        .rules_text = RULES,
                        .diagnose = test_print_diagnostic,
                        .hot = with_hot ? hot : NULL,
                        .hot_bytes = 1 << 20};
    weir *engine = NULL;
    CHECK_EQ(weir_open(&how, &engine), 0);
    return engine;
}

/* At the real time, not at the test's: the history writer reads the clock itself. */
static void use(weir *engine, int count)
{
    for (int i = 0; i < count; i++) {
        struct test_request r;
        weir_result result;
        test_request(&r, i % 2 ? "GET / user_id=a" : "GET / user_id=b");
        CHECK_EQ(weir_check(engine, &r.query, &result), 0);
    }
}

static void next_second(struct weir__history_writer *writer)
{
    frozen_ns += WEIR_SECOND;
    CHECK_EQ(weir__history_writer_tick(writer), 0);
}

static json_t *parsed(int error, char **json)
{
    json_error_t wrong;
    CHECK_EQ(error, 0);
    json_t *root = error ? NULL : json_loads(*json, 0, &wrong);
    CHECK(root != NULL);
    if (!error)
        free(*json);
    return root;
}

static double value(json_t *root, const char *one, const char *two, const char *three)
{
    json_t *at = json_object_get(root, one);
    at = two ? json_object_get(at, two) : at;
    at = three ? json_object_get(at, three) : at;
    return json_is_number(at) ? json_number_value(at) : -1;
}

static double sum_of(json_t *root, const char *name)
{
    double sum = 0;
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(root, name), i, one) sum += json_number_value(one);
    return sum;
}

TEST(seconds_are_written_and_reported)
{
    remove_all();
    weir *engine = opened(true);
    struct weir__history_writer *writer = NULL, *second = NULL;
    struct weir__snapshot snapshot;
    char *json = NULL;
    CHECK_EQ(weir__history_writer_open(engine, segment, &writer, &ending), 0);
    CHECK_EQ(weir__history_writer_open(engine, segment, &second, &ending), WEIR_EBUSY);
    next_second(writer);
    use(engine, 3000);
    next_second(writer);
    weir__snapshot_open(&snapshot, engine, segment);

    json_t *root = parsed(weir__stats_json_current(&snapshot, &(struct weir__host_query){0}, &json), &json);
    json_t *rules = json_object_get(root, "rules");
    CHECK_EQ(json_array_size(rules), 3);
    json_t *api = json_array_get(rules, 0), *shadow = json_array_get(rules, 1);
    CHECK_EQ((int)value(api, "totals", "allowed", NULL), 2000);
    CHECK_EQ((int)value(api, "totals", "denied", NULL), 1000);
    CHECK_EQ((int)value(shadow, "totals", "denied", NULL), 2980);
    CHECK(json_is_true(json_object_get(shadow, "shadow")));
    CHECK_EQ((int)value(api, "rates", "1s", "allowed"), 2000);
    CHECK(value(root, "rates", "10s", "denied") > 300); /* there are both seconds */
    CHECK(strcmp(json_string_value(json_object_get(json_array_get(rules, 2), "name")), "other") == 0);
    CHECK(json_is_null(json_object_get(root, "store")));
    CHECK(value(root, "segment", "slots", NULL) > 0 && value(root, "host", "processors", NULL) >= 1);
    json_decref(root);

    root = parsed(
        weir__stats_json_history(&snapshot, &(struct weir__host_query){.rule = "api", .seconds = 60, .step = 1}, &json),
        &json);
    CHECK_EQ(json_array_size(json_object_get(root, "allowed")), 60);
    CHECK_EQ((int)sum_of(root, "allowed"), 2000);
    CHECK_EQ((int)sum_of(root, "denied"), 1000);
    CHECK_EQ((int)sum_of(root, "shadow_denied"), 2980);
    json_decref(root);
    root = parsed(weir__stats_json_history(&snapshot, &(struct weir__host_query){.seconds = 100000, .step = 60}, &json),
                  &json);
    CHECK_EQ(json_array_size(json_object_get(root, "allowed")), 59);
    json_decref(root);
    CHECK_EQ(weir__stats_json_history(&snapshot, &(struct weir__host_query){.rule = "gone", .seconds = 60, .step = 1},
                                      &json),
             WEIR_ENORULE);

    struct weir__host_query what = {.rule = "api", .denied = true, .n = 5};
    root = parsed(weir__stats_json_hot_keys(&snapshot, &what, &json), &json);
    CHECK_EQ(json_array_size(json_object_get(root, "keys")), 2);
    CHECK(sum_of(root, "keys") >= 0 && value(root, "seconds", NULL, NULL) >= 1);
    what.hide = true; /* the same keys by their pseudonyms, not by the table's hashes */
    json_t *hidden = parsed(weir__stats_json_hot_keys(&snapshot, &what, &json), &json);
    for (size_t i = 0; i < json_array_size(json_object_get(root, "keys")); i++) {
        char expected[32];
        const char *key = json_string_value(json_object_get(json_array_get(json_object_get(root, "keys"), i), "key"));
        uint64_t hash = weir__hot_sampler_hash(engine->segment, key, strlen(key));
        snprintf(expected, sizeof expected, "~%016" PRIx64, weir__pseudonym(engine->segment, hash));
        key = json_string_value(json_object_get(json_array_get(json_object_get(hidden, "keys"), i), "key"));
        CHECK(key && strcmp(key, expected) == 0);
    }
    json_decref(hidden);
    what.hide = false;
    json_decref(root);
    what.near = true;
    root = parsed(weir__stats_json_hot_keys(&snapshot, &what, &json), &json);
    /* Two; but occasionally their hashes share a counter of the sketch or of the sample. */
    CHECK(json_array_size(json_object_get(root, "keys")) >= 1 && json_array_size(json_object_get(root, "keys")) <= 2);
    CHECK(value(root, "uses", "keys", NULL) >= 1 && value(root, "uses", "keys", NULL) <= 2);
    json_decref(root);
    what.rule = "gone";
    CHECK_EQ(weir__stats_json_hot_keys(&snapshot, &what, &json), WEIR_ENORULE);

    root = parsed(weir__stats_json_advice(&snapshot, NULL, NULL, &json), &json);
    CHECK_EQ(json_array_size(json_object_get(root, "advice")), 0); /* two seconds are too little for advice */
    json_decref(root);
    CHECK_EQ(weir__stats_json_advice(&snapshot, "gone", NULL, &json), WEIR_ENORULE);

    weir__snapshot_close(&snapshot);
    weir__history_writer_close(writer);
    weir_close(engine);
}

/* Weights are halved after ten minutes; counts from before the first recorded second are dropped. */
TEST(hot_keys_age)
{
    remove_all();
    weir *engine = opened(true);
    struct weir__history_writer *writer = NULL;
    const struct weir__hot_rule *hot_rule =
        weir__hot_lookup(&engine->hot_sampler.hot, weir__rule_id((weir_text){"api", 3}, false));
    uint64_t *seconds = &engine->hot_sampler.hot.header->seconds;
    use(engine, 2000);
    CHECK(hot_rule->sketch[0].total > 500);
    CHECK_EQ(weir__history_writer_open(engine, segment, &writer, &ending), 0);
    CHECK_EQ(weir__history_writer_tick(writer), 0);
    CHECK_EQ(*seconds, 1);
    CHECK(hot_rule->sketch[0].total < 2);
    for (int i = 0; i < 50; i++)
        use(engine, 1000);
    uint64_t before = hot_rule->sketch[WEIR__HOT_DENIED].total;
    *seconds = 599;
    next_second(writer);
    CHECK_EQ(*seconds, 300);
    CHECK(hot_rule->sketch[WEIR__HOT_DENIED].total <= before / 2 + 1 && before > 30000);
    weir__history_writer_close(writer);
    weir_close(engine);
}

/* Half an hour in which forty users sent twice their limit, as it would be in the files. */
static void write_strict_past(weir *engine)
{
    char path[128], key[32];
    struct weir__mapped mapped;
    struct weir__history history;
    struct weir__rule_stats_shard sums = {0};
    uint64_t id = weir__rule_id((weir_text){"api", 3}, false), now = weir__snapshot_second(weir_clock(engine->segment));
    snprintf(path, sizeof path, "%s.history", segment);
    CHECK_EQ(weir__mapped_open(&(struct weir__file_spec){.path = path}, &mapped), 0);
    CHECK(weir__history_attach(mapped.memory, mapped.bytes, &history));
    for (uint64_t s = now - 1800; s <= now; s++) {
        sums.allowed += 12;
        sums.denied += 12;
        weir__history_begin(&history, s);
        weir__history_add(&history, s, id, &sums, WEIR__HISTORY_UNSEEN);
        weir__history_end(&history, s);
    }
    weir__mapped_close(&mapped);
    struct weir__hot_rule *hot_rule = weir__hot_find(&engine->hot_sampler.hot, id, 1);
    for (int user = 0; user < 40; user++) {
        snprintf(key, sizeof key, "user:%d", user);
        struct weir__hot_sample note = {.hash = weir__hot_sampler_hash(engine->segment, key, strlen(key)),
                                        .key = key,
                                        .key_len = strlen(key),
                                        .random = UINT64_C(0x8000000000000000),
                                        .per_mille = 1000,
                                        .minute = (uint32_t)(now / 60)};
        for (int kind = 0; kind < 2; kind++) { /* 166 in ten minutes are 1,000 an hour */
            note.kind = (enum weir__hot_kind)kind;
            note.weight = 166;
            weir__hot_sample(hot_rule, &note);
        }
    }
    engine->hot_sampler.hot.header->seconds = 600;
}

TEST(advice_from_the_recorded_history)
{
    remove_all();
    weir *engine = opened(true);
    struct weir__history_writer *writer = NULL;
    struct weir__snapshot snapshot;
    struct weir__rule_source source = {.text = {RULES, sizeof RULES - 1}};
    char *json = NULL;
    CHECK_EQ(weir__history_writer_open(engine, segment, &writer, &ending), 0);
    weir__history_writer_close(writer);
    write_strict_past(engine);
    weir__snapshot_open(&snapshot, engine, segment);
    json_t *root = parsed(weir__stats_json_advice(&snapshot, NULL, &source, &json), &json);
    json_t *list = json_object_get(root, "advice"), *first = json_array_get(list, 0);
    CHECK_EQ(json_array_size(list), 1);
    const char *kind = json_string_value(json_object_get(first, "kind"));
    const char *changed = json_string_value(json_object_get(first, "changed"));
    CHECK(kind && strcmp(kind, "too_strict") == 0);
    CHECK(changed && strstr(changed, "limit: 2200\n") && strstr(changed, "shadow: true\n"));
    CHECK_EQ((int)value(first, "figures", "denied_keys", NULL), 40);
    json_decref(root);
    weir__rule_source_free(&source);
    weir__snapshot_close(&snapshot);
    weir_close(engine);
    remove_all();
}

/* Without hot keys and history there are still totals. A missing, deleted or invalid file is handled. */
TEST(missing_files_leave_the_totals)
{
    remove_all();
    weir *engine = opened(false);
    struct weir__snapshot snapshot;
    struct weir__history_writer *writer = NULL;
    char *json = NULL, path[128];
    use(engine, 10);
    weir__snapshot_open(&snapshot, engine, segment);
    CHECK(!snapshot.hot.rule_slots && !snapshot.history.rows);
    json_t *root = parsed(weir__stats_json_current(&snapshot, &(struct weir__host_query){0}, &json), &json);
    CHECK(json_is_false(json_object_get(root, "history")) && json_is_false(json_object_get(root, "hot")));
    CHECK(json_is_null(
        json_object_get(json_object_get(json_array_get(json_object_get(root, "rules"), 0), "rates"), "1s")));
    json_decref(root);
    root =
        parsed(weir__stats_json_history(&snapshot, &(struct weir__host_query){.seconds = 10, .step = 1}, &json), &json);
    CHECK(json_is_false(json_object_get(root, "known")));
    json_decref(root);
    struct weir__host_query what = {.rule = "api", .n = 5};
    root = parsed(weir__stats_json_hot_keys(&snapshot, &what, &json), &json);
    CHECK(json_is_false(json_object_get(root, "known")));
    json_decref(root);

    FILE *file = fopen(hot, "w");
    fputs("this is no such file", file);
    fclose(file);
    CHECK_EQ(weir__history_writer_open(engine, segment, &writer, &ending), 0);
    CHECK_EQ(weir__history_writer_tick(writer), 0);
    weir__snapshot_refresh(&snapshot);
    CHECK(!snapshot.hot.rule_slots && snapshot.history.rows);
    weir__history_writer_close(writer);
    snprintf(path, sizeof path, "%s.history", segment);
    unlink(path);
    unlink(hot);
    weir__snapshot_refresh(&snapshot);
    CHECK(!snapshot.history.rows);
    weir__snapshot_close(&snapshot);
    weir_close(engine);
    remove_all();
}

static int cut_history(void)
{
    char path[128];
    weir *engine = opened(true);
    struct weir__history_writer *writer = NULL;
    struct weir__snapshot snapshot;
    snprintf(path, sizeof path, "%s.history", segment);
    if (weir_segment_guard(engine->segment) != 0 || weir__history_writer_open(engine, segment, &writer, &ending) != 0)
        return 2;
    weir__snapshot_open(&snapshot, engine, segment);
    for (int round = 0; round < 2; round++) {
        use(engine, 100);
        next_second(writer);
        if (truncate(path, 0) != 0 || truncate(hot, 0) != 0)
            return 3;
        frozen_ns += WEIR_SECOND;
        (void)weir__history_writer_tick(writer); /* finds it truncated, and writes into private memory */
        frozen_ns += WEIR_SECOND;
        if (weir__history_writer_tick(writer) != WEIR_ELOST)
            return 4;
        use(engine, 100);
        next_second(writer);
        (void)weir__snapshot_hot_keys(&snapshot, 1); /* reads the file, which is replaced by private memory */
        weir__snapshot_refresh(&snapshot);
        if (!snapshot.history.rows || snapshot.hot.rule_slots)
            return 5;
    }
    weir__snapshot_close(&snapshot);
    weir__history_writer_close(writer);
    weir_close(engine);
    return test_failures ? 6 : 0;
}

/* The agent's files are truncated under it: the history is recreated, and no process crashes. */
TEST(truncated_history_is_recreated)
{
    remove_all();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(cut_history());
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    remove_all();
}

TEST_MAIN
