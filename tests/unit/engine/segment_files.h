/* Segments as files, in a directory of the test's own. */
#ifndef WEIR_TEST_SEGMENT_FILES_H
#define WEIR_TEST_SEGMENT_FILES_H

#include <weir/weir.h>

#include "../../test.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE      (256 << 10)
#define NOW       ((weir_time){WEIR_DAY * 20000, WEIR_DAY * 20000})
#define UNTOUCHED ((weir_segment *)(uintptr_t)0x5a5a)

/* ---- A private directory ---- */

static char directory[256];

static inline const char *at(const char *name)
{
    static char path[4][512];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", directory, name);
    return path[next];
}

static inline void directory_make(void)
{
    const char *base = getenv("TMPDIR");
    if (access("/dev/shm", W_OK) == 0)
        base = "/dev/shm"; /* where segments live, and the fastest */
    snprintf(directory, sizeof directory, "%s/weir-test-XXXXXX", base ? base : "/tmp");
    CHECK(mkdtemp(directory));
    umask(022);
}

/* Entries in it; with `clean` they are removed. */
static inline int entries(bool clean)
{
    int count = 0;
    DIR *dir = opendir(directory);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        count++;
        if (clean)
            unlink(at(e->d_name));
    }
    if (dir)
        closedir(dir);
    return count;
}

static inline void directory_remove(void)
{
    entries(true);
    CHECK_EQ(rmdir(directory), 0);
}

/* Runs `body` in a forked child; its failures count as the test's. */
static inline void in_child(void (*body)(void))
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        test_failures = 0;
        body();
        fflush(stdout);
        _exit(test_failures ? 1 : 0);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline int open_with(const char *path, uint64_t size, int flags, weir_segment **segment)
{
    weir_segment_options options = {.path = path, .size = size, .flags = flags};
    return weir_segment_open(&options, segment);
}

/* Checks that an open fails with `error`, and neither sets the handle nor leaves a file. */
static inline void check_refused(weir_segment_options options, int error)
{
    weir_segment *segment = UNTOUCHED;
    int before = entries(false), got = weir_segment_open(&options, &segment);
    CHECK_EQ(got, error);
    CHECK(segment == UNTOUCHED);
    CHECK_EQ(entries(false), before);
    if (got == 0)
        weir_segment_close(segment);
}

/* Takes `cost` of ten a day for a key; true if it passed. */
static inline bool take(weir_segment *segment, const char *key, int64_t cost)
{
    weir_limit limit;
    weir_decision d = {.verdict = WEIR_DENY};
    CHECK_EQ(weir_limit_init(&limit, &(weir_params){.limit = 10, .window_ns = WEIR_DAY}), 0);
    CHECK_EQ(weir_take(segment, &limit, key, strlen(key), cost, NOW, &d), 0);
    return weir_passes(&d);
}

#endif
