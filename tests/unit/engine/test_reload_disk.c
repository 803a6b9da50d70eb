/*
 * File system effects: symbolic links that are switched, files that appear and disappear, timestamps that do not
 * change, lack of descriptors.
 */
#include "rules_folder.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- A file system with timestamps in full seconds, by wrapped functions ---- */

static bool full_seconds;

static int rounded(int result, struct stat *at)
{
    if (full_seconds)
        at->st_mtim.tv_nsec = at->st_ctim.tv_nsec = 0;
    return result;
}

int __real_stat(const char *path, struct stat *at);
int __wrap_stat(const char *path, struct stat *at);
int __wrap_stat(const char *path, struct stat *at)
{
    return rounded(__real_stat(path, at), at);
}

int __real_fstat(int file, struct stat *at);
int __wrap_fstat(int file, struct stat *at);
int __wrap_fstat(int file, struct stat *at)
{
    return rounded(__real_fstat(file, at), at);
}

static int64_t limit_of(weir *w)
{
    return test_check(w, "GET /", 0).decision.limit;
}

/* Overwrites a file in place, not atomically: the same inode, and within one clock step the same timestamps. */
static void overwrite(const char *name, const char *text)
{
    int file = open(path_of(name), O_WRONLY);
    CHECK_EQ(pwrite(file, text, strlen(text), 0), strlen(text));
    close(file);
}

TEST(change_within_one_clock_step_is_seen)
{
    start();
    full_seconds = true;
    struct reported reported = {0};
    put("a.yaml", RULE(5));
    weir *w = open_folder(&reported, WEIR_NO_WATCH);
    for (int i = 0; i < 50; i++) {
        overwrite("a.yaml", i % 2 ? RULE(5) : RULE(6));
        CHECK_EQ(weir_reload(w), 1);
        CHECK_EQ(limit_of(w), i % 2 ? 5 : 6);
        CHECK_EQ(weir_reload(w), 0);
    }
    overwrite("a.yaml", RULE(x));
    CHECK_EQ(weir_reload(w), WEIR_ERULES);
    int before = reported.count;
    for (int i = 0; i < 5; i++)
        CHECK_EQ(weir_reload(w), 0); /* reported once, however recent the file is */
    CHECK_EQ(reported.count, before);
    full_seconds = false;
    weir_close(w);
    finish();
}

TEST(timestamps_in_the_future)
{
    start();
    struct reported reported = {0};
    struct timespec future[2] = {{4000000000, 0}, {4000000000, 0}};
    put("a.yaml", RULE(5));
    CHECK_EQ(utimensat(AT_FDCWD, path_of("a.yaml"), future, 0), 0);
    weir *w = open_folder(&reported, WEIR_NO_WATCH);
    CHECK_EQ(weir_reload(w), 0);
    put("a.yaml", RULE(6));
    CHECK_EQ(utimensat(AT_FDCWD, path_of("a.yaml"), future, 0), 0);
    CHECK_EQ(weir_reload(w), 1);
    CHECK_EQ(limit_of(w), 6);
    weir_close(w);
    finish();
}

/* ---- As Kubernetes mounts a ConfigMap: a.yaml -> ..data/a.yaml, ..data -> ..N, and ..data is renamed over ---- */

static void publish(int version, const char *text)
{
    char name[64], link_to[32], fresh[160];
    snprintf(link_to, sizeof link_to, "..%d", version);
    mkdir(path_of(link_to), 0700);
    snprintf(name, sizeof name, "..%d/a.yaml", version);
    put(name, text);
    snprintf(fresh, sizeof fresh, "%s/..data_tmp", folder);
    CHECK_EQ(symlink(link_to, fresh), 0);
    CHECK_EQ(rename(fresh, path_of("..data")), 0);
}

static void unpublish(int version)
{
    char name[64];
    snprintf(name, sizeof name, "..%d/a.yaml", version);
    unlink(path_of(name));
    snprintf(name, sizeof name, "..%d", version);
    rmdir(path_of(name));
}

TEST(mounted_kubernetes_config_map)
{
    start();
    struct reported reported = {0};
    publish(1, RULE(5));
    CHECK_EQ(symlink("..data/a.yaml", path_of("a.yaml")), 0);
    weir *w = open_folder(&reported, WEIR_NO_WATCH);
    CHECK_EQ(limit_of(w), 5);
    publish(2, RULE(6));
    unpublish(1);
    CHECK_EQ(weir_reload(w), 1);
    CHECK_EQ(limit_of(w), 6);
    CHECK_EQ(weir_reload(w), 0);
    CHECK_EQ(reported.count, 0);

    /* A dangling link is reported, once. */
    unpublish(2);
    CHECK_EQ(weir_reload(w), WEIR_ERULESPATH);
    for (int i = 0; i < 6; i++)
        CHECK_EQ(weir_reload(w), 0);
    CHECK_EQ(reported.count, 1);
    CHECK(strstr(reported.last, "a.yaml") && strstr(reported.last, "leads nowhere"));
    CHECK_EQ(limit_of(w), 6);
    weir_rules *rules;
    CHECK_EQ(weir_rules_load(folder, collect_diagnostic, &reported, &rules), WEIR_ERULESPATH);
    CHECK_EQ(reported.count, 2);
    publish(3, RULE(7));
    CHECK_EQ(weir_reload(w), 1);
    CHECK_EQ(limit_of(w), 7);
    weir_engine_stats stats;
    CHECK_EQ(weir_engine_stats_read(w, &stats), 0);
    CHECK_EQ(stats.reload_failures, 1);
    weir_close(w);
    unpublish(3);
    unlink(path_of("..data"));
    finish();
}

TEST(file_becomes_a_directory_and_back)
{
    start();
    struct reported reported = {0};
    char inner[160];
    snprintf(inner, sizeof inner, "%s", path_of("a.yaml"));
    put("a.yaml", RULE(5));
    weir_options how = {.segment = {.size = 4 << 20},
                        .rules_path = inner,
                        .diagnose = collect_diagnostic,
                        .diagnose_context = &reported,
                        .flags = WEIR_NO_WATCH};
    weir *w, *of_folder = open_folder(&reported, WEIR_NO_WATCH);
    CHECK_EQ(weir_open(&how, &w), 0);
    unlink(inner);
    mkdir(inner, 0700);
    put("a.yaml/b.yml", RULE(6));
    CHECK_EQ(weir_reload(w), 1); /* for this engine it is a directory with rules */
    CHECK_EQ(limit_of(w), 6);
    CHECK_EQ(reported.count, 0);
    CHECK_EQ(weir_reload(of_folder), WEIR_ERULESPATH); /* for this one an invalid rule file */
    CHECK(strstr(reported.last, "it is a directory"));
    unlink(path_of("a.yaml/b.yml"));
    rmdir(inner);
    put("a.yaml", RULE(7));
    CHECK_EQ(weir_reload(w), 1);
    CHECK_EQ(weir_reload(of_folder), 1);
    CHECK_EQ(limit_of(w), 7);
    weir_close(w);
    weir_close(of_folder);
    finish();
}

/* ---- Temporary failures ---- */

TEST(temporary_lack_of_descriptors)
{
    start();
    struct reported reported = {0};
    struct rlimit previous_limit, none;
    put("a.yaml", RULE(5));
    char file[160];
    snprintf(file, sizeof file, "%s", path_of("a.yaml"));
    weir *engines[2] = {open_folder(&reported, WEIR_NO_WATCH), NULL};
    weir_options how = {.segment = {.size = 4 << 20},
                        .rules_path = file,
                        .diagnose = collect_diagnostic,
                        .diagnose_context = &reported,
                        .flags = WEIR_NO_WATCH};
    CHECK_EQ(weir_open(&how, &engines[1]), 0);
    put("a.yaml", RULE(6));
    getrlimit(RLIMIT_NOFILE, &previous_limit);
    none = (struct rlimit){0, previous_limit.rlim_max};
    for (int i = 0; i < 2; i++) {
        weir_engine_stats stats;
        reported.count = 0;
        setrlimit(RLIMIT_NOFILE, &none);
        CHECK_EQ(weir_reload(engines[i]), WEIR_ERULESPATH);
        CHECK_EQ(weir_reload(engines[i]), WEIR_ERULESPATH);
        CHECK_EQ(reported.count, 1);
        CHECK(strstr(reported.last, "Too many open files"));
        CHECK_EQ(limit_of(engines[i]), 5);
        setrlimit(RLIMIT_NOFILE, &previous_limit);
        CHECK_EQ(weir_reload(engines[i]), 1); /* nothing has changed on disk since, but it was never read */
        CHECK_EQ(limit_of(engines[i]), 6);
        CHECK_EQ(weir_engine_stats_read(engines[i], &stats), 0);
        CHECK_EQ(stats.reload_failures, 1);
        CHECK_EQ(stats.reloads, 1);

        setrlimit(RLIMIT_NOFILE, &none);
        (void)!weir_reload(engines[i]);
        setrlimit(RLIMIT_NOFILE, &previous_limit);
        CHECK_EQ(weir_reload(engines[i]), 0); /* and now there is nothing new */
        weir_close(engines[i]);
    }
    finish();
}

/* ---- Concurrent reloads ---- */

struct forked {
    weir *engine;
    int within;    /* result of a second reload during the first */
    int in_child;  /* and in a child that was forked at that moment */
    int64_t limit; /* and the limit there */
};

static void fork_in_the_middle(void *context, const weir_diagnostic *d)
{
    struct forked *f = context;
    if (d->severity != WEIR_IS_ERROR || f->in_child)
        return;
    f->within = weir_reload(f->engine);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        put("a.yaml", RULE(6));
        int result = weir_reload(f->engine);
        _exit(result == 1 && limit_of(f->engine) == 6 ? 42 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    f->in_child = WEXITSTATUS(status);
}

TEST(child_forked_during_a_reload_can_reload)
{
    start();
    struct forked f = {0};
    put("a.yaml", RULE(5));
    weir_options how = {.segment = {.size = 4 << 20},
                        .rules_path = folder,
                        .diagnose = fork_in_the_middle,
                        .diagnose_context = &f,
                        .flags = WEIR_NO_WATCH};
    CHECK_EQ(weir_open(&how, &f.engine), 0);
    put("a.yaml", "rules: 7\n");
    CHECK_EQ(weir_reload(f.engine), WEIR_ERULES);
    CHECK_EQ(f.within, WEIR_ERULESBUSY);
    CHECK_EQ(f.in_child, 42);
    CHECK_EQ(weir_reload(f.engine), 1); /* written by the child */
    weir_close(f.engine);
    finish();
}

TEST_MAIN
