/* Rules that change on disk: valid ones become active, broken ones never do, counters stay. */
#include "rules_folder.h"

#include "engine/engine.h"

#include <pthread.h>
#include <time.h>

TEST(changed_limit_keeps_consumed_units)
{
    start();
    struct reported reported = {0};
    put("a.yaml", RULE(10));
    weir *w = open_folder(&reported, WEIR_NO_WATCH);
    CHECK_EQ(test_passing(w, "GET /", 0, 4), 4);
    CHECK_EQ(weir_reload(w), 0);
    put("a.yaml", RULE(6));
    CHECK_EQ(weir_reload(w), 1);
    CHECK_EQ(test_passing(w, "GET /", 0, 9), 2);
    put("a.yaml", "rules: [ { name: other, limit: 9, window: 1s } ]\n");
    CHECK_EQ(weir_reload(w), 1);
    CHECK_EQ(test_check(w, "GET /", 0).matched, 1);
    put("a.yaml", RULE(20));
    CHECK_EQ(weir_reload(w), 1);
    CHECK_EQ(test_passing(w, "GET /", 0, 30), 14); /* removed and re-added: six are still consumed */
    CHECK_EQ(reported.count, 0);
    weir_close(w);
    finish();
}

TEST(broken_files_change_nothing_and_are_reported_once)
{
    start();
    struct reported reported = {0};
    put("a.yaml", RULE(5));
    weir *w = open_folder(&reported, WEIR_NO_WATCH);
    put("a.yaml", "rules:\n  - { name: a, limt: 5, window: 1h }\n");
    CHECK_EQ(weir_reload(w), WEIR_ERULES);
    CHECK(reported.count >= 1);
    CHECK(strstr(reported.last, "a.yaml:2:"));
    int before = reported.count;
    CHECK_EQ(weir_reload(w), 0);
    CHECK_EQ(reported.count, before);
    CHECK_EQ(test_passing(w, "GET /", 0, 9), 5);

    put("a.yaml", "");
    CHECK_EQ(weir_reload(w), WEIR_ERULES);
    CHECK_EQ(test_check(w, "GET /", 0).matched, 1);
    unlink(path_of("a.yaml"));
    CHECK_EQ(weir_reload(w), WEIR_ERULESPATH); /* a folder without rules */
    CHECK_EQ(weir_reload(w), 0);
    rmdir(folder);
    CHECK_EQ(weir_reload(w), WEIR_ERULESPATH);
    CHECK(strstr(reported.last, "No such file"));
    CHECK_EQ(test_check(w, "GET /", 0).matched, 1);

    mkdir(folder, 0700);
    put("b.yml", RULE(7));
    put("x.txt", "not rules");
    CHECK_EQ(weir_reload(w), 1);
    CHECK_EQ(test_passing(w, "GET /", 0, 9), 2);
    weir_engine_stats stats;
    CHECK_EQ(weir_engine_stats_read(w, &stats), 0);
    CHECK_EQ(stats.reloads, 1);
    CHECK_EQ(stats.reload_failures, 4);
    CHECK_EQ(stats.rules, 1);
    weir_close(w);
    finish();
}

TEST(hosts_can_compare_rules_by_their_hash)
{
    start();
    struct reported reported = {0};
    put("a.yaml", RULE(5));
    weir *w = open_folder(&reported, WEIR_NO_WATCH);
    uint64_t five = weir__rules_checksum(w);
    CHECK(five != 0);
    put("a.yaml", "# weir: published revision 7\n\n" RULE(5) "   # and a comment\n");
    CHECK_EQ(weir_reload(w), 1);
    CHECK(weir__rules_checksum(w) == five);
    put("a.yaml", RULE(6));
    CHECK_EQ(weir_reload(w), 1);
    uint64_t six = weir__rules_checksum(w);
    CHECK(six != five);
    put("a.yaml", "rules: [ broken\n"); /* is not active, and so does not change the hash */
    CHECK_EQ(weir_reload(w), WEIR_ERULES);
    CHECK(weir__rules_checksum(w) == six);
    weir_close(w);
    /* The same rules as a text, and in a file of another name. */
    w = test_engine("\n\n" RULE(5));
    CHECK(weir__rules_checksum(w) == five);
    weir_close(w);
    unlink(path_of("a.yaml"));
    put("b.yml", RULE(6));
    w = open_folder(&reported, WEIR_NO_WATCH);
    CHECK(weir__rules_checksum(w) == six);
    weir_close(w);
    struct weir__source sources[] = {{"x", {"ab c", 4}}, {"y", {"", 0}}},
                        other[] = {{"x", {"a bc", 4}}, {"y", {"", 0}}};
    CHECK(weir__sources_checksum(sources, 1) != weir__sources_checksum(other, 1));
    CHECK(weir__sources_checksum(sources, 1) != weir__sources_checksum(sources, 2));
    CHECK(weir__sources_checksum(sources, 0) != 0);
    finish();
}

TEST(rules_can_be_set_after_weir_open)
{
    start();
    struct reported reported = {0};
    weir_engine_stats stats;
    put("a.yaml", "no rules at all");
    weir *w = open_folder(&reported, WEIR_NO_WATCH | WEIR_RULES_LATER);
    CHECK_EQ(reported.count, 0);
    CHECK_EQ(test_check(w, "GET /", 0).matched, 0);
    CHECK_EQ(weir_reload(w), WEIR_ERULES);
    CHECK(reported.count > 0);
    weir_close(w);

    put("a.yaml", RULE(5));
    w = open_folder(&reported, WEIR_NO_WATCH | WEIR_RULES_LATER);
    CHECK_EQ(test_check(w, "GET /", 0).matched, 0);
    CHECK_EQ(weir_reload(w), 1);
    CHECK_EQ(test_passing(w, "GET /", 0, 9), 5);
    CHECK_EQ(weir_engine_stats_read(w, &stats), 0);
    CHECK_EQ(stats.reloads, 0); /* the first is no change */
    put("a.yaml", RULE(7));
    CHECK_EQ(weir_reload(w), 1);
    CHECK_EQ(weir_engine_stats_read(w, &stats), 0);
    CHECK_EQ(stats.reloads, 1);
    weir_close(w);
    finish();
}

TEST(duplicates_across_files_show_both_positions)
{
    start();
    struct reported reported = {0};
    put("a.yaml", RULE(5));
    put("b.yml", "# one line more\n" RULE(5));
    weir_rules *rules;
    CHECK_EQ(weir_rules_load(folder, collect_diagnostic, &reported, &rules), WEIR_ERULES);
    CHECK_EQ(reported.count, 1);
    CHECK(strstr(reported.last, "b.yml:2") && strstr(reported.last, "a.yaml:1"));
    finish();
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

TEST(changes_are_active_within_two_seconds)
{
    start();
    struct reported reported = {0};
    put("a.yaml", RULE(5));
    weir *w = open_folder(&reported, 0);
    usleep(150000);
    double began = seconds();
    put("a.yaml", RULE(3));
    int64_t limit = 0;
    for (int i = 0; i < 40 && limit != 3; i++) {
        usleep(50000);
        limit = test_check(w, "GET /", 0).decision.limit;
    }
    CHECK_EQ(limit, 3);
    weir_engine_stats stats;
    CHECK_EQ(weir_engine_stats_read(w, &stats), 0);
    CHECK((double)stats.polls <= seconds() - began + 2); /* at most once a second */
    weir_close(w);
    finish();
}

TEST(files_that_cannot_be_rules_are_refused)
{
    struct reported reported = {0};
    weir_rules *rules;
    CHECK_EQ(weir_rules_load("/nonexistent/x", collect_diagnostic, &reported, &rules), WEIR_ERULESPATH);
    CHECK_EQ(weir_rules_load("/dev/null", collect_diagnostic, &reported, &rules), WEIR_ERULESPATH);
    CHECK(strstr(reported.last, "neither a file nor a directory"));
    start();
    mkfifo(path_of("a.yaml"), 0600); /* must not block */
    CHECK_EQ(weir_rules_load(folder, collect_diagnostic, &reported, &rules), WEIR_ERULESPATH);
    finish();
    start();
    put("a.yaml", RULE(1));
    weir *watching = open_folder(&reported, WEIR_NO_WATCH);
    CHECK_EQ(symlink("nowhere", path_of("b.yaml")), 0);
    CHECK_EQ(weir_rules_load(folder, collect_diagnostic, &reported, &rules), WEIR_ERULESPATH);
    CHECK(strstr(reported.last, "the link leads nowhere"));
    CHECK_EQ(weir_reload(watching), WEIR_ERULESPATH); /* not "being written" forever */
    CHECK_EQ(test_check(watching, "GET /", 0).decision.limit, 1);
    CHECK_EQ(unlink(path_of("b.yaml")), 0);
    put("a.yaml", RULE(2));
    CHECK_EQ(weir_reload(watching), 1);
    weir_close(watching);
    finish();
    if (geteuid() != 0) {
        start();
        put("a.yaml", RULE(1));
        chmod(path_of("a.yaml"), 0);
        CHECK_EQ(weir_rules_load(folder, collect_diagnostic, &reported, &rules), WEIR_ERULESPATH);
        CHECK(strstr(reported.last, "Permission denied"));
        finish();
    }
    weir *w;
    CHECK_EQ(weir_open(&(weir_options){.rules_path = "/nonexistent"}, &w), WEIR_ERULESPATH);
    CHECK_EQ(weir_open(&(weir_options){0}, &w), WEIR_EINVAL);
}

static void *rewrite(void *stop)
{
    for (int i = 0; !__atomic_load_n((int *)stop, __ATOMIC_ACQUIRE); i++) {
        FILE *file = fopen(path_of("a.yaml"), "w"); /* in place, in two steps, not atomically */
        fprintf(file, "rules:\n  - { name: a, key: k, limit: 5, ");
        fflush(file);
        fprintf(file, "window: 1h }\n  - { name: b%d, limit: 7, window: 1h }\n", i);
        fclose(file);
        usleep(500);
    }
    return NULL;
}

/* A file that changes while it is read: the loaded rules were completely on disk at one moment, or an error is
 * reported. */
TEST(file_written_while_it_is_read)
{
    start();
    put("a.yaml", RULE(5));
    struct reported reported = {0};
    weir *w = open_folder(&reported, WEIR_NO_WATCH);
    int stop = 0, swapped = 0;
    pthread_t writer;
    CHECK_EQ(pthread_create(&writer, NULL, rewrite, &stop), 0);
    int64_t rounds = test_scaled(2000, 300);
    for (int64_t i = 0; i < rounds || (!swapped && i < 100 * rounds); i++) { /* on a busy machine the writer is late */
        int result = weir_reload(w);
        CHECK(result >= 0 || result == WEIR_ERULES || result == WEIR_ERULESBUSY || result == WEIR_ERULESPATH);
        swapped += result == 1;
        CHECK(test_check(w, "GET /", 0).matched >= 1);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(writer, NULL);
    CHECK(swapped > 0);
    weir_close(w);
    finish();
}

TEST_MAIN
