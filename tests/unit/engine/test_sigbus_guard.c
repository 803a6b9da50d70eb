/* The file of a segment is truncated under processes that have it mapped. Each case runs in its own process. */
#include "../../engine.h"
#include "../../private_dir.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1 << 20 };

static char path[64];

static weir_segment *open_segment(void)
{
    weir_segment_options how = {.path = path, .size = SIZE, .flags = WEIR_OPEN_CREATE};
    weir_segment *segment = NULL;
    unlink(path);
    if (weir_segment_open(&how, &segment) != 0)
        _exit(99);
    return segment;
}

static weir_limit hundred_a_day(void)
{
    weir_limit limit;
    weir_params params = {.limit = 100, .window_ns = WEIR_DAY};
    if (weir_limit_init(&limit, &params) != 0)
        _exit(98);
    return limit;
}

/* Runs a case in a child. Returns its exit code, or minus the signal that ended it. */
static int in_child(int (*what)(void))
{
    private_path(path, sizeof path, "segment");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(what());
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        ;
    unlink(path);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return __LINE__ % 200 + 1;                                                                                 \
    } while (0)

static int take_unguarded(void)
{
    weir_segment *segment = open_segment();
    weir_limit limit = hundred_a_day();
    weir_decision d;
    signal(SIGBUS, SIG_DFL); /* a sanitizer's handler would end the process in its own way */
    EXPECT(weir_take(segment, &limit, "k", 1, 1, weir_clock(segment), &d) == 0);
    EXPECT(truncate(path, 0) == 0);
    return weir_take(segment, &limit, "k", 1, 1, weir_clock(segment), &d) == 0 ? 0 : 1;
}

/* The problem: without a guard the process ends. */
TEST(process_without_a_guard_ends)
{
    CHECK_EQ(in_child(take_unguarded), -SIGBUS);
}

static int every_call(void)
{
    weir_segment *segment = open_segment();
    weir_limit limit = hundred_a_day();
    weir_time now = weir_clock(segment);
    weir_decision d;
    uint8_t secret[WEIR_SECRET_BYTES];
    EXPECT(weir_segment_guard(segment) == 0 && weir_segment_guard(segment) == 0);
    EXPECT(weir_take(segment, &limit, "k", 1, 1, now, &d) == 0 && d.remaining == 99);
    EXPECT(!weir_segment_lost(segment));
    EXPECT(truncate(path, 0) == 0);
    weir_request batch[2] = {{.limit = &limit, .key = "k", .key_len = 1, .cost = 1},
                             {.limit = &limit, .key = "l", .key_len = 1, .cost = 1}};
    EXPECT(weir_take_batch(segment, batch, 2, now) == WEIR_ELOST);
    EXPECT(weir_segment_lost(segment));
    EXPECT(weir_take(segment, &limit, "k", 1, 1, now, &d) == WEIR_ELOST);
    EXPECT(weir_peek(segment, &limit, "k", 1, 1, now, &d) == WEIR_ELOST);
    EXPECT(weir_refund(segment, &limit, "k", 1, 1, now, &d) == WEIR_ELOST);
    EXPECT(weir_charge(segment, &limit, "k", 1, 1, now, &d) == WEIR_ELOST);
    EXPECT(weir_reset(segment, &limit, "k", 1, now) == WEIR_ELOST);
    EXPECT(weir_block(segment, &limit, "k", 1, WEIR_SECOND, now) == WEIR_ELOST);
    EXPECT(weir_segment_secret(segment, "test", secret) == WEIR_ELOST);
    weir_segment_close(segment);
    return 0;
}

TEST(every_call_returns_an_error)
{
    CHECK_EQ(in_child(every_call), 0);
}

/* The remaining half of the file does not count: the table is complete or lost. */
static int cut_in_half(void)
{
    weir_segment *segment = open_segment();
    weir_limit limit = hundred_a_day();
    weir_decision d;
    EXPECT(weir_segment_guard(segment) == 0);
    EXPECT(truncate(path, SIZE / 2) == 0);
    bool lost = false;
    for (uint32_t i = 0; i < 10000; i++) {
        int error = weir_take(segment, &limit, &i, sizeof i, 1, weir_clock(segment), &d);
        EXPECT(error == (lost ? WEIR_ELOST : 0) || (!lost && error == WEIR_ELOST));
        lost |= error == WEIR_ELOST;
    }
    EXPECT(lost && weir_segment_lost(segment));
    return 0;
}

TEST(truncation_to_half_loses_the_table)
{
    CHECK_EQ(in_child(cut_in_half), 0);
}

static const char rules[] =
    "rules:\n"
    "  - { name: open, match: { path: /open }, limit: 1, window: 1d, on_store_failure: open }\n"
    "  - { name: local, match: { path: /local }, limit: 1, window: 1d }\n"
    "  - { name: log, match: { path: /log }, limit: 1, window: 1d, algorithm: sliding_window_log }\n"
    "  - { name: closed, match: { path: /closed }, limit: 1, window: 1d, on_store_failure: closed }\n";

static int policies(void)
{
    weir_options how = {.attached = open_segment(), .rules_text = rules};
    weir *engine;
    EXPECT(weir_segment_guard(how.attached) == 0 && weir_open(&how, &engine) == 0);
    EXPECT(test_passes(engine, "GET /closed", 0) && !test_passes(engine, "GET /closed", 0));
    EXPECT(truncate(path, 0) == 0);
    for (int i = 0; i < 3; i++) {
        weir_result result = test_check(engine, "GET /closed", 0);
        EXPECT(!weir_passes(&result.decision) && result.decided_by.reason == WEIR_BY_FAILURE &&
               result.decided_by.error == WEIR_ELOST);
        EXPECT(test_passes(engine, "GET /open", 0) && test_passes(engine, "GET /local", 0));
        EXPECT(test_passes(engine, "GET /log", 0));
    }
    weir_close(engine);
    weir_segment_close(how.attached);
    return 0;
}

TEST(policy_of_the_rule_decides)
{
    CHECK_EQ(in_child(policies), 0);
}

static void *take_all_the_time(void *context)
{
    weir_segment *segment = context;
    weir_limit limit = hundred_a_day();
    weir_decision d;
    for (uint64_t i = 0; i < 100000000; i++)
        if (weir_take(segment, &limit, &i, sizeof i, 1, weir_clock(segment), &d) == WEIR_ELOST)
            return segment;
    return NULL;
}

static int threads(void)
{
    pthread_t thread[4];
    void *ended;
    weir_segment *segment = open_segment();
    EXPECT(weir_segment_guard(segment) == 0);
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_create(&thread[i], NULL, take_all_the_time, segment) == 0);
    usleep(20000);
    EXPECT(truncate(path, 0) == 0);
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_join(thread[i], &ended) == 0 && ended == segment);
    return 0;
}

TEST(threads_survive_truncation)
{
    CHECK_EQ(in_child(threads), 0);
}

/* ---- Foreign faults ---- */

static sigjmp_buf out;

static void theirs(int number)
{
    siglongjmp(out, number);
}

static int other_memory(void)
{
    weir_segment *segment = open_segment();
    char *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(path, O_RDWR | O_CLOEXEC), SIZE - 4096);
    struct sigaction now;
    signal(SIGBUS, theirs);
    EXPECT(other != MAP_FAILED && weir_segment_guard(segment) == 0);
    EXPECT(truncate(path, 4096) == 0);
    volatile int caught = sigsetjmp(out, 1);
    if (!caught)
        *other = 1;
    EXPECT(caught == SIGBUS && !weir_segment_lost(segment));
    if (sigsetjmp(out, 1) == 0)
        raise(SIGBUS); /* sent, not a fault */
    EXPECT(!weir_segment_lost(segment));
    weir_segment_close(segment);
    EXPECT(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler == theirs);
    return 0;
}

TEST(foreign_faults_are_passed_on)
{
    CHECK_EQ(in_child(other_memory), 0);
}

static int default_action(void)
{
    weir_segment *segment = open_segment();
    signal(SIGBUS, SIG_DFL);
    EXPECT(weir_segment_guard(segment) == 0);
    raise(SIGBUS);
    return 0;
}

TEST(sent_sigbus_ends_the_process)
{
    CHECK_EQ(in_child(default_action), -SIGBUS);
}

static int many(void)
{
    weir_segment *segments[17];
    for (int i = 0; i < 17; i++) {
        weir_segment_options how = {.size = SIZE};
        EXPECT(weir_segment_open(&how, &segments[i]) == 0);
        EXPECT(weir_segment_guard(segments[i]) == (i < 16 ? 0 : WEIR_EGUARDS));
    }
    weir_segment_close(segments[3]);
    EXPECT(weir_segment_guard(segments[16]) == 0);
    EXPECT(weir_segment_guard(NULL) == WEIR_EINVAL && !weir_segment_lost(NULL));
    return 0;
}

TEST(number_of_guards_is_bounded)
{
    CHECK_EQ(in_child(many), 0);
}

TEST_MAIN
