/* Sidecar files of a segment: their owners, foreign files under their names, and truncation. */
#include "../../engine.h"
#include "../../private_dir.h"

#include "engine/ledger.h"
#include "engine/hot_key_sampler.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <weir/load.h>

enum { STRANGER = 65534, SIZE = 1 << 20 };

static const char eventual[] = "rules: [{name: a, limit: 5, window: 1m, consistency: eventual}]\n";
static const char local[] = "rules: [{name: a, limit: 5, window: 1m}]\n";

enum { FILES = 4 };
static char folder[64], paths[FILES][80]; /* of hot keys, load level, ledger, denials */
static char diagnostics[4096];
static int warnings, errors;

static void collect_diagnostic(void *context, const weir_diagnostic *diagnostic)
{
    (void)context;
    size_t len = strlen(diagnostics);
    snprintf(diagnostics + len, sizeof diagnostics - len, "%s: %s\n", diagnostic->file ? diagnostic->file : "",
             diagnostic->message);
    warnings += diagnostic->severity == WEIR_IS_WARNING;
    errors += diagnostic->severity == WEIR_IS_ERROR;
}

static void begin(void)
{
    static const char *const endings[] = {"hot", "load", "ledger", "denials"};
    private_path(folder, sizeof folder, "open");
    CHECK_EQ(mkdir(folder, 0700), 0);
    CHECK_EQ(chmod(folder, 01777), 0);
    for (int i = 0; i < FILES; i++)
        snprintf(paths[i], sizeof paths[i], "%s/segment.%s", folder, endings[i]);
}

static void end(void)
{
    for (int i = 0; i < FILES; i++)
        unlink(paths[i]);
    CHECK_EQ(rmdir(folder), 0);
}

static int open_engine(const char *rules, weir **engine)
{
    weir_options how = {.segment = {.size = SIZE},
                        .rules_text = rules,
                        .store = "redis://127.0.0.1:1",
                        .flags = WEIR_NO_CONNECT,
                        .diagnose = collect_diagnostic,
                        .hot = paths[0],
                        .hot_bytes = 1 << 20,
                        .load = paths[1],
                        .ledger = paths[2],
                        .ledger_bytes = 1 << 20,
                        .denial_ring = paths[3]};
    diagnostics[0] = 0;
    warnings = errors = 0;
    *engine = NULL;
    return weir_open(&how, engine);
}

/* Creates all files, owned by this user. */
static void make_files(void)
{
    weir *engine;
    CHECK_EQ(open_engine(eventual, &engine), 0);
    CHECK(engine->hot_sampler.mapped.memory && engine->load && engine->deltas.mapped.memory &&
          engine->denial_recorder.ring.rows);
    weir_close(engine);
}

static bool was_reported(const char *path, const char *what)
{
    const char *line = strstr(diagnostics, path);
    return line && strstr(line, what) && strstr(line, what) < strchr(line, '\n');
}

/* Checks that the engine opens without hot keys and the load level, but not without a ledger if a rule is eventual. */
static void check_refused(const char *why)
{
    weir *engine;
    CHECK_EQ(open_engine(local, &engine), 0);
    CHECK(!engine->hot_sampler.mapped.memory && !engine->load && !engine->deltas.mapped.memory &&
          !engine->denial_recorder.ring.rows);
    CHECK(warnings == FILES && errors == 0);
    for (int i = 0; i < FILES; i++)
        CHECK(was_reported(paths[i], why) && was_reported(paths[i], "remove"));
    CHECK(test_passes(engine, "GET /", 0));
    weir_close(engine);
    CHECK(open_engine(eventual, &engine) < 0 && errors == 1);
    CHECK(was_reported(paths[2], why));
}

TEST(files_of_another_user_are_refused)
{
    if (geteuid() != 0)
        return;
    begin();
    make_files();
    for (int i = 0; i < FILES; i++)
        CHECK_EQ(chown(paths[i], STRANGER, (gid_t)-1), 0);
    check_refused("uid 65534");
    weir *engine;
    CHECK_EQ(open_engine(eventual, &engine), WEIR_EOWNER);
    /* They are refused, not replaced: root has to examine them. */
    struct stat what;
    CHECK(stat(paths[0], &what) == 0 && what.st_uid == STRANGER);

    CHECK_EQ(chmod(folder, 0755), 0); /* where only root creates files, root has put them there */
    CHECK_EQ(open_engine(eventual, &engine), 0);
    CHECK(engine->hot_sampler.mapped.memory && engine->load && engine->deltas.mapped.memory &&
          engine->denial_recorder.ring.rows && warnings == 0);
    weir_close(engine);
    CHECK_EQ(chmod(folder, 0777), 0); /* without the sticky bit other users may replace them at any time */
    CHECK_EQ(open_engine(eventual, &engine), WEIR_EOWNER);
    CHECK_EQ(chown(folder, STRANGER, (gid_t)-1), 0); /* the directory's owner may do all that anyway */
    CHECK_EQ(open_engine(eventual, &engine), 0);
    weir_close(engine);
    end();
}

/* A process that shares another user's segment shares its sidecar files. */
TEST(files_of_the_segments_owner_are_used)
{
    char segment[96];
    weir *engine = NULL;
    if (geteuid() != 0)
        return;
    begin();
    make_files();
    snprintf(segment, sizeof segment, "%s/segment", folder);
    for (int round = 0; round < 2; round++) {
        weir_options how = {.segment = {.path = segment, .size = SIZE, .flags = WEIR_OPEN_CREATE},
                            .rules_text = local,
                            .hot = paths[0]};
        CHECK_EQ(weir_open(&how, &engine), 0);
        CHECK(engine->hot_sampler.mapped.memory);
        weir_close(engine);
        CHECK(chown(segment, STRANGER, (gid_t)-1) == 0 && chown(paths[0], STRANGER, (gid_t)-1) == 0);
    }
    unlink(segment);
    end();
}

TEST(special_files_are_refused_without_blocking)
{
    begin();
    for (int i = 0; i < FILES; i++)
        CHECK_EQ(mkfifo(paths[i], 0600), 0);
    check_refused("not a regular file");
    for (int i = 0; i < FILES; i++)
        CHECK(unlink(paths[i]) == 0 && mkdir(paths[i], 0700) == 0);
    check_refused("not a regular file");
    for (int i = 0; i < FILES; i++)
        CHECK_EQ(rmdir(paths[i]), 0);
    end();
}

TEST(links_are_not_followed)
{
    char other[FILES][80];
    begin();
    make_files();
    for (int i = 0; i < FILES; i++) {
        snprintf(other[i], sizeof other[i], "%s/other.%d", folder, i);
        CHECK(rename(paths[i], other[i]) == 0 && symlink(other[i], paths[i]) == 0);
    }
    check_refused("symbolic link");
    for (int i = 0; i < FILES; i++)
        CHECK(unlink(paths[i]) == 0 && link(other[i], paths[i]) == 0);
    check_refused("hard links");
    for (int i = 0; i < FILES; i++)
        unlink(other[i]);
    weir *engine;
    CHECK_EQ(open_engine(eventual, &engine), 0);
    weir_close(engine);
    end();
}

/* A truncated file is created anew by the next engine, whatever is left of it. */
TEST(truncated_file_is_replaced)
{
    static const off_t left[] = {0, 1, 8, 100, 4096, SIZE / 2};
    begin();
    make_files();
    for (size_t k = 0; k < sizeof left / sizeof *left; k++) {
        weir *engine;
        for (int i = 0; i < FILES; i++)
            CHECK_EQ(truncate(paths[i], left[k]), 0);
        CHECK_EQ(open_engine(eventual, &engine), 0);
        CHECK(engine->hot_sampler.mapped.memory && engine->load && engine->deltas.mapped.memory &&
              engine->denial_recorder.ring.rows && !warnings);
        weir_close(engine);
    }
    end();
}

static int fill_with_zeros(void *memory, uint64_t bytes, const void *plan)
{
    (void)plan;
    memset(memory, 0, bytes);
    return 0;
}

/* As if another process removed the file just when it was found to be damaged. */
static int remove_damaged(void *memory, uint64_t bytes, const void *plan)
{
    (void)memory;
    (void)bytes;
    (void)plan;
    CHECK_EQ(unlink(paths[0]), 0);
    return WEIR_EDAMAGED;
}

/* A damaged file that vanishes before it is locked is made anew, as one that never existed. */
TEST(damaged_file_that_vanishes_is_made)
{
    struct weir__mapped mapped = {0};
    begin();
    make_files();
    struct weir__file_spec how = {.path = paths[0], .bytes = SIZE, .format = fill_with_zeros, .check = remove_damaged};
    CHECK_EQ(weir__mapped_open(&how, &mapped), 0);
    CHECK(mapped.memory && mapped.bytes == SIZE && access(paths[0], F_OK) == 0);
    weir__mapped_close(&mapped);
    end();
}

enum { ENGINES = 12 };

/* More files than one engine has: the agent maps a dozen. */
static int use_all(void)
{
    weir_segment_options anonymous = {.size = SIZE};
    weir_options how = {.rules_text = local};
    weir *engine[ENGINES];
    char path[ENGINES][128];
    if (weir_segment_open(&anonymous, &how.attached) != 0 || weir_segment_guard(how.attached) != 0)
        return 2;
    for (int i = 0; i < ENGINES; i++) {
        snprintf(path[i], sizeof path[i], "%s/%d.hot", folder, i);
        how.hot = path[i];
        how.hot_bytes = SIZE;
        if (weir_open(&how, &engine[i]) != 0 || !engine[i]->hot_sampler.mapped.memory)
            return 3;
    }
    for (int i = 0; i < ENGINES; i++)
        if (truncate(path[i], 0) != 0)
            return 4;
    int lost = 0, reported = 0;
    for (int i = 0; i < ENGINES; i++) {
        engine[i]->hot_sampler.hot.header->seconds++; /* as the agent that ages them does */
        test_passes(engine[i], "GET /", 0);
        lost += engine[i]->hot_sampler.mapped.lost != 0;
    }
    while (weir__sidecar_lost())
        reported++;
    for (int i = 0; i < ENGINES; i++) {
        weir_close(engine[i]);
        unlink(path[i]);
    }
    weir_segment_close(how.attached);
    return lost == ENGINES && reported == ENGINES ? 0 : 5;
}

TEST(every_file_is_guarded)
{
    begin();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(use_all());
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    end();
}

/* The number of guarded mappings is bounded: a further file is refused rather than left without a guard. */
TEST(number_of_guarded_mappings_is_bounded)
{
    enum { MOST = 256 };
    static struct weir__mapped mapped[MOST + 1];
    begin();
    make_files();
    struct weir__file_spec how = {.path = paths[1], .read_only = true};
    for (int i = 0; i <= MOST; i++)
        CHECK_EQ(weir__mapped_open(&how, &mapped[i]), i < MOST ? 0 : WEIR_EGUARDS);
    CHECK(!mapped[MOST].memory);
    weir__mapped_close(&mapped[7]);
    CHECK_EQ(weir__mapped_open(&how, &mapped[MOST]), 0);
    for (int i = 0; i <= MOST; i++)
        weir__mapped_close(&mapped[i]);
    end();
}

TEST(locks_of_another_user_are_refused)
{
    char path[96];
    begin();
    snprintf(path, sizeof path, "%s/segment.lock", folder);
    int lock = weir__lock_open(path, 0);
    CHECK(lock >= 0);
    close(lock);
    if (geteuid() == 0) {
        CHECK_EQ(chown(path, STRANGER, (gid_t)-1), 0);
        CHECK_EQ(weir__lock_open(path, 0), -1);
        lock = weir__lock_open(path, STRANGER);
        CHECK(lock >= 0);
        close(lock);
    }
    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    CHECK_EQ(weir__lock_open(path, 0), -1);
    unlink(path);
    end();
}

TEST_MAIN
