/* Hot keys as checks sample them: which keys are listed, which are not, and damaged files. */
#include "../../engine.h"
#include "../../private_dir.h"

#include "engine/hot_key_sampler.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const char RULES[] = "rules:\n"
                            "  - name: api\n"
                            "    key: user:${user_id}\n"
                            "    limit: 1000\n"
                            "    window: 1h\n"
                            "  - name: banned\n"
                            "    match: { path: /never }\n"
                            "    limit: 0\n"
                            "    window: 1h\n";

static weir *opened(const char *hot, int flags, uint64_t bytes)
{
    weir_options how = {.segment = {.size = 8 << 20},
                        .rules_text = RULES,
                        .diagnose = test_print_diagnostic,
                        .hot = hot,
                        .hot_bytes = bytes,
                        .flags = flags};
    weir *engine = NULL;
    CHECK_EQ(weir_open(&how, &engine), 0);
    return engine;
}

static const struct weir__hot_rule *sketch_of(const weir *engine, const char *rule)
{
    return weir__hot_lookup(&engine->hot_sampler.hot, weir__rule_id((weir_text){rule, strlen(rule)}, false));
}

static size_t top(const weir *engine, enum weir__hot_kind kind, struct weir__hot_key *keys, size_t max)
{
    return weir__hot_top(sketch_of(engine, "api"), kind, weir__hot_sampler_hash, engine->segment, keys, max);
}

static bool is_key(const struct weir__hot_key *key, const char *text)
{
    return key->len == strlen(text) && key->shown == key->len && memcmp(key->text, text, key->len) == 0;
}

/* Requests of a user at one moment: the admitted and denied ones add up within the error of the sample. */
TEST(heavy_keys_are_found)
{
    weir *engine = opened("", 0, 0);
    struct weir__hot_key keys[8];
    for (int i = 0; i < 20000; i++) {
        char line[64];
        snprintf(line, sizeof line, "GET / user_id=%s", i % 4 ? "heavy" : i % 8 ? "middle" : "light");
        if (i % 16 == 0)
            snprintf(line, sizeof line, "GET / user_id=u%d", i);
        test_check(engine, line, (double)i / 1e6);
    }
    /* 15,000 of heavy: 1,000 are admitted, 14,000 denied; 2,500 of middle: 1,000 and 1,500. */
    size_t count = top(engine, WEIR__HOT_DENIED, keys, 8);
    CHECK(count >= 2 && is_key(&keys[0], "user:heavy") && is_key(&keys[1], "user:middle"));
    CHECK(keys[0].weight > 12000 && keys[0].weight < 16000);
    CHECK(keys[1].weight > 800 && keys[1].weight < 2300);
    count = top(engine, WEIR__HOT_ADMITTED, keys, 8);
    CHECK(count >= 3);
    for (int i = 0; i < 3; i++)
        CHECK(is_key(&keys[i], "user:heavy") || is_key(&keys[i], "user:middle") || is_key(&keys[i], "user:light"));
    count = weir__hot_nearest(sketch_of(engine, "api"), (uint32_t)(test_seconds(0).mono_ns / (60 * WEIR_SECOND)), 5,
                              weir__hot_sampler_hash, engine->segment, keys, 8);
    CHECK(count >= 2 && keys[0].weight == 1000);
    weir_close(engine);
}

/* The sampling must not correlate with any pattern of the requests, whether the clock stands or advances evenly. */
TEST(sample_is_fair)
{
    for (int step = 0; step < 3; step++) {
        weir *engine = opened("", 0, 0);
        struct weir__hot_key keys[16];
        const double per_request[] = {0, 1e-6, 16e-6};
        for (int i = 0; i < 64000; i++) {
            char line[64];
            snprintf(line, sizeof line, "GET / user_id=%d", i % 16);
            test_check(engine, line, per_request[step] * i);
        }
        size_t admitted = top(engine, WEIR__HOT_ADMITTED, keys, 16);
        CHECK_EQ(admitted, 16);
        for (size_t i = 0; i < admitted; i++) /* 1,000 each: 62 samples of 16, 5 standard errors are 640 */
            CHECK(keys[i].weight > 360 && keys[i].weight < 1640);
        CHECK_EQ(top(engine, WEIR__HOT_DENIED, keys, 16), 16);
        weir_close(engine);
    }
}

/* A request that takes nothing or has no counter is not sampled. */
TEST(requests_that_take_nothing_are_not_sampled)
{
    weir *engine = opened("", 0, 0);
    struct test_request r;
    weir_result result;
    struct weir__hot_key keys[4];
    for (int i = 0; i < 1000; i++) {
        test_request(&r, "GET / user_id=7");
        r.query.dry_run = i % 2;
        r.query.has_cost = !r.query.dry_run;
        r.query.now = test_seconds(i);
        CHECK_EQ(weir_check(engine, &r.query, &result), 0);
        test_check(engine, "GET /never", i);
    }
    CHECK_EQ(top(engine, WEIR__HOT_ADMITTED, keys, 4), 0);
    CHECK_EQ(
        weir__hot_top(sketch_of(engine, "banned"), WEIR__HOT_DENIED, weir__hot_sampler_hash, engine->segment, keys, 4),
        0);
    weir_close(engine);
}

static char path[64];

__attribute__((constructor)) static void choose_path(void)
{
    private_path(path, sizeof path, "hot");
}

static bool file_has(const char *text)
{
    static char bytes[1 << 20];
    int file = open(path, O_RDONLY);
    ssize_t len = read(file, bytes, sizeof bytes);
    close(file);
    return len > 0 && memmem(bytes, (size_t)len, text, strlen(text)) != NULL;
}

static void use(weir *engine)
{
    for (int i = 0; i < 2000; i++)
        test_check(engine, "GET / user_id=confidential", i / 1e6);
}

TEST(hidden_keys)
{
    struct weir__hot_key keys[4];
    for (int hide = 0; hide < 2; hide++) {
        unlink(path);
        weir *engine = opened(path, hide ? WEIR_HIDE_KEYS : 0, 1 << 20);
        use(engine);
        CHECK_EQ(top(engine, WEIR__HOT_ADMITTED, keys, 4), 1);
        CHECK(keys[0].weight > 500 && (keys[0].len == 0) == (hide == 1));
        CHECK_EQ(file_has("confidential"), !hide);
        weir_close(engine);
    }
    unlink(path);
}

/* XXH3 of 4 to 8 bytes before its last steps, which can be undone without the secret: text XOR a secret word. */
static uint64_t undo(uint64_t hash, size_t len)
{
    static const uint64_t inverse = UINT64_C(0x02ab9c720d1024ad); /* of 0x9fb21c651e98df25, modulo 2^64 */
    uint64_t x = hash ^ hash >> 28 ^ hash >> 56;
    x = x * inverse;
    x ^= (x >> 35) + len;
    return x * inverse;
}

static uint64_t linear(uint64_t x)
{
    return x ^ (x << 49 | x >> 15) ^ (x << 24 | x >> 40);
}

static uint64_t text_of(const char *key, size_t len)
{
    uint32_t first, last;
    memcpy(&first, key, 4);
    memcpy(&last, key + len - 4, 4);
    return last + ((uint64_t)first << 32);
}

/* A client that knows its own key and its hash must not find out another key by that key's hash. */
TEST(shown_hashes_cannot_be_inverted)
{
    static const char mine[] = "my-key", other[] = "secret";
    weir_segment *segment[2];
    weir_segment_options options = {.size = 1 << 20};
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weir_segment_open(&options, &segment[i]), 0);
    uint64_t table[2] = {weir__hot_sampler_hash(segment[0], mine, 6), weir__hot_sampler_hash(segment[0], other, 6)};
    uint64_t difference = linear(text_of(mine, 6) ^ text_of(other, 6));
    CHECK((undo(table[0], 6) ^ undo(table[1], 6)) == difference); /* the attack, on the table's own hashes */
    uint64_t shown[2] = {weir__pseudonym(segment[0], table[0]), weir__pseudonym(segment[0], table[1])};
    CHECK((undo(shown[0], 6) ^ undo(shown[1], 6)) != difference);
    CHECK(shown[0] != shown[1] && shown[0] && shown[1] && shown[0] != table[0] && shown[1] != table[1]);
    CHECK(weir__pseudonym(segment[0], table[0]) == shown[0]);
    CHECK(weir__pseudonym(segment[1], table[0]) != shown[0]); /* each segment has its own secret */
    for (int i = 0; i < 2; i++)
        weir_segment_close(segment[i]);
}

/* The samples outlive the engine; another size, damage and a file that cannot be created do not keep it from opening.
 */
TEST(sample_files_are_kept_or_replaced)
{
    struct weir__hot_sampler look = {0};
    unlink(path);
    CHECK_EQ(weir__hot_sampler_attach(path, 0, &look), WEIR_ENOENT);
    weir *engine = opened(path, 0, 1 << 20);
    use(engine);
    weir_close(engine);
    CHECK_EQ(weir__hot_sampler_attach(path, 0, &look), 0);
    uint64_t api = weir__rule_id((weir_text){"api", 3}, false);
    CHECK(look.mapped.bytes == 1 << 20 && weir__hot_lookup(&look.hot, api)->sketch[0].total > 500);
    weir__mapped_close(&look.mapped);

    int file = open(path, O_WRONLY);
    CHECK(pwrite(file, "damaged!", 8, 0) == 8);
    close(file);
    CHECK_EQ(weir__hot_sampler_attach(path, 0, &look), WEIR_EDAMAGED);
    engine = opened(path, 0, 2 << 20);
    CHECK(engine->hot_sampler.mapped.memory && engine->hot_sampler.mapped.bytes == 2 << 20);
    use(engine);
    weir_close(engine);
    unlink(path);

    engine = opened("/nowhere/at/all.hot", 0, 0);
    CHECK(engine && !engine->hot_sampler.mapped.memory);
    use(engine);
    weir_close(engine);
    engine = opened("", 0, 1000); /* too small for one sketch */
    CHECK(engine && !engine->hot_sampler.mapped.memory);
    weir_close(engine);
}

/* Rules without a sketch are counted, and decided as always. */
TEST(more_rules_than_sketches)
{
    weir *engine = opened("", 0, weir__row_file_bytes(&weir__hot_format, 1));
    CHECK_EQ(engine->hot_sampler.hot.rule_slots, 1);
    CHECK_EQ(engine->hot_sampler.hot.header->without, 1);
    use(engine);
    weir_close(engine);
}

/* Threads that check while one reads and ages the samples: the list is valid at any moment, and at the end. */
struct load {
    weir *engine;
    int number;
};

static void *check_much(void *context)
{
    const struct load *load = context;
    for (int i = 0; i < 4000; i++) {
        char line[64];
        snprintf(line, sizeof line, "GET / user_id=%d", i % 4 ? 7 : load->number * 100000 + i);
        test_check(load->engine, line, i / 1e6);
    }
    return NULL;
}

TEST(threads_sample_concurrently)
{
    weir *engine = opened("", 0, 0);
    struct load load[4];
    pthread_t thread[4];
    struct weir__hot_key keys[8];
    for (int i = 0; i < 4; i++) {
        load[i] = (struct load){engine, i + 1};
        CHECK_EQ(pthread_create(&thread[i], NULL, check_much, &load[i]), 0);
    }
    for (int i = 0; i < 50; i++) {
        size_t count = top(engine, WEIR__HOT_DENIED, keys, 8);
        for (size_t k = 0; k < count; k++)
            CHECK(keys[k].len == 0 || memcmp(keys[k].text, "user:", 5) == 0);
        if (i % 25 == 24)
            weir__hot_age(weir__hot_find(&engine->hot_sampler.hot, weir__rule_id((weir_text){"api", 3}, false), 1));
    }
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    CHECK(top(engine, WEIR__HOT_DENIED, keys, 8) >= 1 && is_key(&keys[0], "user:7"));
    weir_close(engine);
}

static int cut_short(void)
{
    weir_options how = {.rules_text = RULES, .hot = path, .hot_bytes = 1 << 20};
    weir_segment_options anonymous = {.size = 8 << 20};
    weir *engine = NULL;
    if (weir_segment_open(&anonymous, &how.attached) != 0 || weir_segment_guard(how.attached) != 0 ||
        weir_open(&how, &engine) != 0)
        return 2;
    use(engine);
    if (truncate(path, 0) != 0)
        return 3;
    use(engine);
    bool lost = weir_segment_lost(how.attached);
    weir_close(engine);
    weir_segment_close(how.attached);
    return lost ? 4 : 0;
}

TEST(truncated_file_is_handled)
{
    unlink(path);
    pid_t child = fork();
    if (child == 0)
        _exit(cut_short());
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    unlink(path);
}

/* Removed rules: new ones get their sketches, once nothing is sampled there any more. */
TEST(sketches_of_removed_rules_are_reused)
{
    char folder[] = "/tmp/weir-hot_sampler-XXXXXX", file_path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(file_path, sizeof file_path, "%s/rules.yaml", folder);
    static const char *const texts[] = {"rules: [ { name: old, limit: 1000, window: 1h } ]\n",
                                        "rules: [ { name: new, limit: 1000, window: 1h } ]\n"};
    weir *engine = NULL;
    for (int round = 0; round < 2; round++) {
        FILE *file = fopen(file_path, "w");
        fputs(texts[round], file);
        fclose(file);
        weir_options how = {.segment = {.size = 8 << 20},
                            .rules_path = file_path,
                            .hot = "",
                            .hot_bytes = weir__row_file_bytes(&weir__hot_format, 1)};
        if (round == 0)
            CHECK_EQ(weir_open(&how, &engine), 0);
        else
            CHECK_EQ(weir_reload(engine), 1);
    }
    struct weir__hot_rule *hot_rule = engine->hot_sampler.hot.rule_slot;
    CHECK(sketch_of(engine, "old") == hot_rule && !sketch_of(engine, "new")); /* not at once */
    for (int i = 0; i < 64; i++)
        test_check(engine, "GET /", 1);
    CHECK_EQ(hot_rule->sketch[WEIR__HOT_ADMITTED].total, 0); /* and nothing of the new one is sampled there */
    hot_rule->peak = 0;                                      /* an hour ago */
    for (int i = 0; i < 16; i++)
        CHECK_EQ(weir_reload(engine), 0);
    CHECK(sketch_of(engine, "new") == hot_rule && !sketch_of(engine, "old"));
    for (int i = 0; i < 640; i++)
        test_check(engine, "GET /", 1);
    CHECK(hot_rule->sketch[WEIR__HOT_ADMITTED].total > 0);
    /* Owned by another rule by now: it is left alone. */
    hot_rule->rule = 77;
    uint64_t before = hot_rule->sketch[WEIR__HOT_ADMITTED].total;
    for (int i = 0; i < 640; i++)
        test_check(engine, "GET /", 1);
    CHECK_EQ(hot_rule->sketch[WEIR__HOT_ADMITTED].total, before);
    weir_close(engine);
    unlink(file_path);
    rmdir(folder);
}

TEST_MAIN
