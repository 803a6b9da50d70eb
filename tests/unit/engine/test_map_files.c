/* Files that `identity` maps attributes by: found beside the rules, reloaded, and never replaced by broken ones. */
#include "rules_folder.h"

#include "engine/engine.h"

#include <fcntl.h>
#include <time.h>

#define PLANS(file)                                                                                                    \
    "identity: { api_key: header:X-API-Key, tier: { from: api_key, file: " file ", default: free } }\n"                \
    "rules: [ { name: a, key: '${api_key}', limit: { free: 1, pro: 3, default: 2 }, window: 1h } ]\n"

static struct reported reported;

static weir *begin(const char *plans)
{
    start();
    reported = (struct reported){0};
    put("a.yaml", PLANS("plans.csv"));
    put("plans.csv", plans);
    return open_folder(&reported, WEIR_NO_WATCH);
}

static void end(weir *w)
{
    weir_close(w);
    unlink(path_of("plans.csv"));
    finish();
}

/* The limit of a request with this key. */
static int64_t limit_of(weir *w, const char *key)
{
    char line[128];
    snprintf(line, sizeof line, "GET / @x-api-key=%s", key);
    return test_check(w, line, 0).decision.limit;
}

TEST(changed_file_is_reloaded)
{
    weir *w = begin("a,pro\n");
    weir_engine_stats stats;
    CHECK(limit_of(w, "a") == 3 && limit_of(w, "b") == 1);
    CHECK_EQ(weir_reload(w), 0);
    put("plans.csv", "b,pro\nc,other\n");
    CHECK_EQ(weir_reload(w), 1);
    CHECK(limit_of(w, "a") == 1 && limit_of(w, "b") == 3 && limit_of(w, "c") == 2);
    CHECK_EQ(weir_reload(w), 0);
    put("plans.csv", "b,pro\nc,other\n"); /* written again, with the same content */
    CHECK_EQ(weir_reload(w), 1);
    put("a.yaml", "# changed\n" PLANS("plans.csv"));
    CHECK_EQ(weir_reload(w), 1);
    CHECK(limit_of(w, "b") == 3);
    CHECK_EQ(weir_engine_stats_read(w, &stats), 0);
    CHECK_EQ(stats.reload_failures, 0);
    CHECK_EQ(reported.count, 0);
    end(w);
}

/* A key that names its tier by the map is shown, and charged, under that tier's limit. */
TEST(state_of_a_key_has_the_limit_of_its_tier)
{
    weir *w = begin("a,pro\nz,other\n");
    weir_outcome outcome;
    static const struct {
        const char *key;
        int64_t limit;
    } keys[] = {{"a", 3}, {"b", 1}, {"z", 2}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        CHECK_EQ(weir_key_state(w, "a", keys[i].key, 1, test_seconds(0), &outcome), 0);
        CHECK_EQ(outcome.decision.limit, keys[i].limit);
        weir_taken what = {.rule = "a", .key = keys[i].key, .key_len = 1};
        CHECK_EQ(weir_key_take(w, &what, 1, test_seconds(0), NULL, &outcome), 0);
        CHECK_EQ(outcome.decision.limit, keys[i].limit);
        CHECK_EQ(outcome.decision.remaining, keys[i].limit - 1);
    }
    put("plans.csv", "b,pro\n");
    CHECK_EQ(weir_reload(w), 1);
    CHECK_EQ(weir_key_state(w, "a", "b", 1, test_seconds(0), &outcome), 0);
    CHECK(outcome.decision.limit == 3 && outcome.decision.remaining == 2);
    end(w);
}

TEST(broken_file_changes_nothing_and_is_reported_once)
{
    weir *w = begin("a,pro\n");
    put("plans.csv", "a,free\nb;pro\n");
    CHECK_EQ(weir_reload(w), WEIR_ERULES);
    CHECK(strstr(reported.last, "plans.csv:2: expected a key and a value with a comma between them"));
    CHECK_EQ(reported.count, 1);
    CHECK_EQ(weir_reload(w), 0);
    CHECK_EQ(reported.count, 1);
    CHECK(limit_of(w, "a") == 3);
    put("plans.csv", ""); /* as a writer that was interrupted leaves it */
    CHECK_EQ(weir_reload(w), WEIR_ERULES);
    CHECK(strstr(reported.last, "plans.csv:0: the file is empty"));
    unlink(path_of("plans.csv"));
    CHECK_EQ(weir_reload(w), WEIR_ERULES);
    CHECK(strstr(reported.last, "a.yaml:1: ") && strstr(reported.last, "plans.csv cannot be read: No such file"));
    CHECK_EQ(weir_reload(w), 0);
    CHECK(limit_of(w, "a") == 3);
    put("plans.csv", "a,none\n");
    CHECK_EQ(weir_reload(w), 1);
    CHECK(limit_of(w, "a") == 2);
    /* Rules that name another file, which comes later. */
    put("a.yaml", PLANS("x.csv"));
    CHECK_EQ(weir_reload(w), WEIR_ERULES);
    CHECK_EQ(weir_reload(w), 0);
    put("x.csv", "a,pro\n");
    CHECK_EQ(weir_reload(w), 1);
    CHECK(limit_of(w, "a") == 3);
    unlink(path_of("x.csv"));
    weir_engine_stats stats;
    CHECK_EQ(weir_engine_stats_read(w, &stats), 0);
    CHECK_EQ(stats.reload_failures, 4);
    CHECK_EQ(stats.reloads, 2);
    end(w);
}

TEST(unchanged_file_is_not_read_again)
{
    weir *w = begin("a,pro\n");
    struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    CHECK_EQ(utimensat(AT_FDCWD, path_of("plans.csv"), old, 0), 0);
    (void)!weir_reload(w);
    const struct weir__map *before = w->maps.list[0].map;
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL); /* its time is not of the current tick any more */
    CHECK_EQ(weir_reload(w), 0);
    put("a.yaml", "# changed\n" PLANS("plans.csv"));
    CHECK_EQ(weir_reload(w), 1);
    CHECK(w->maps.count == 1 && w->maps.list[0].map == before);
    put("plans.csv", "a,free\n");
    CHECK_EQ(weir_reload(w), 1);
    CHECK(limit_of(w, "a") == 1);
    end(w);
}

TEST(paths_are_relative_to_the_rule_file)
{
    char text[512], rules[256];
    start();
    reported = (struct reported){0};
    mkdir(path_of("rules.d"), 0700);
    put("rules.d/a.yaml", PLANS("../x.csv"));
    put("x.csv", "a,pro\n");
    snprintf(rules, sizeof rules, "%s", path_of("rules.d/a.yaml"));
    weir_options how = {.segment = {.size = 4 << 20},
                        .rules_path = rules,
                        .diagnose = collect_diagnostic,
                        .diagnose_context = &reported};
    weir *w = NULL;
    CHECK_EQ(weir_open(&how, &w), 0);
    CHECK(w && limit_of(w, "a") == 3);
    weir_close(w);

    /* Rules in memory have no folder. */
    weir_rules *set = NULL;
    CHECK_EQ(weir_rules_parse("f", PLANS("x.csv"), strlen(PLANS("x.csv")), collect_diagnostic, &reported, &set),
             WEIR_ERULES);
    CHECK(strstr(reported.last, "f:1: x.csv is relative to a rule file, and these rules are not in one"));
    snprintf(text, sizeof text, PLANS("'%s'"), path_of("x.csv"));
    CHECK_EQ(weir_rules_parse("f", text, strlen(text), collect_diagnostic, &reported, &set), 0);
    weir_rules_free(set);
    w = test_engine(text);
    CHECK(limit_of(w, "a") == 3);
    weir_close(w);

    /* Those of a rules service have no files at all. */
    set = NULL;
    CHECK_EQ(weir__rules_parse_published("f", text, strlen(text), collect_diagnostic, &reported, &set), WEIR_ERULES);
    CHECK(strstr(reported.last, "rules of a rules service cannot name files"));

    /* A process that evaluates no requests needs none. */
    unlink(path_of("x.csv"));
    how.flags = WEIR__SKIP_MAPS;
    CHECK_EQ(weir_open(&how, &w), 0);
    CHECK(limit_of(w, "a") == 1 && w->maps.count == 0);
    weir_close(w);
    how.flags = 0;
    CHECK_EQ(weir_open(&how, &w), WEIR_ERULES);
    CHECK(strstr(reported.last, "rules.d/../x.csv cannot be read: No such file or directory"));
    unlink(path_of("rules.d/a.yaml"));
    rmdir(path_of("rules.d"));
    finish();
}

TEST(files_that_cannot_be_maps)
{
    start();
    reported = (struct reported){0};
    weir_rules *set = NULL;
    mkdir(path_of("plans.csv"), 0700);
    put("a.yaml", PLANS("plans.csv"));
    CHECK_EQ(weir_rules_load(folder, collect_diagnostic, &reported, &set), WEIR_ERULES);
    CHECK(strstr(reported.last, "plans.csv cannot be read: it is a directory"));
    rmdir(path_of("plans.csv"));
    int file = open(path_of("plans.csv"), O_CREAT | O_WRONLY, 0600);
    CHECK_EQ(ftruncate(file, (128 << 20) + 1), 0);
    CHECK_EQ(weir_rules_load(folder, collect_diagnostic, &reported, &set), WEIR_ERULES);
    CHECK(strstr(reported.last, "plans.csv cannot be read: it is longer than 128 MiB"));
    close(file);
    unlink(path_of("plans.csv"));
    CHECK_EQ(mkfifo(path_of("plans.csv"), 0600), 0);
    CHECK_EQ(weir_rules_load(folder, collect_diagnostic, &reported, &set), WEIR_ERULES);
    CHECK(strstr(reported.last, "neither a file nor a directory"));
    unlink(path_of("plans.csv"));
    finish();
}

TEST_MAIN
