/*
 * Processes that reserve, commit, cancel and expire reservations are killed at any instruction. Nothing is refunded
 * twice, and the reservations of killed processes expire: in the end the consumption is the sum of the commits, plus
 * at most one estimate for each kill.
 */
#include "api.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define PROCESSES 3
#define ESTIMATE  10
#define ACTUAL    3
#define LIMIT     4000000000

#define BODY "\"key\":\"k\",\"limit\":4000000000,\"window\":\"300d\",\"algorithm\":\"fixed_window\""

struct shared {
    uint64_t committed, reserved, expired;
};

static weir_options options;
static char file[64], segment[48];

static struct test_api *attach(void)
{
    struct test_api *t = calloc(1, sizeof *t);
    CHECK_EQ(weir_open(&options, &t->engine), 0);
    CHECK_EQ(test_reservations_open(file, 512, &t->reservations), 0);
    CHECK_EQ(weir__api_open(&t->api, t->engine, t->reservations), 0);
    return t;
}

/* Reserves in an endless loop; of four reservations two are committed, one is cancelled and one is left to expire. */
static void work(struct shared *shared)
{
    struct test_api *t = attach();
    char body[1600];
    for (unsigned i = 0;; i++) {
        test_post(t, "reserve", "{" BODY ",\"cost\":10,\"expires_s\":1}");
        const char *token = strstr(t->response, "\"reservation\":\"");
        if (t->status == 200 && token && i % 4 < 3) {
            __atomic_add_fetch(&shared->reserved, 1, __ATOMIC_RELAXED);
            snprintf(body, sizeof body,
                     i % 4 < 2 ? "{\"reservation\":\"%.*s\",\"cost\":3}" : "{\"reservation\":\"%.*s\"}",
                     (int)strcspn(token + 15, "\""), token + 15);
            test_post(t, i % 4 < 2 ? "commit" : "cancel", body);
            if (t->status == 200 && i % 4 < 2)
                __atomic_add_fetch(&shared->committed, 1, __ATOMIC_RELAXED);
        }
        __atomic_add_fetch(&shared->expired, weir__api_expire(&t->api), __ATOMIC_RELAXED);
    }
}

static pid_t start(struct shared *shared)
{
    pid_t pid = fork();
    if (pid == 0)
        work(shared);
    return pid;
}

TEST(killed_at_any_instruction)
{
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int kills = (int)test_scaled(200, 40);
    pid_t pids[PROCESSES];
    private_path(segment, sizeof segment, "segment");
    snprintf(file, sizeof file, "%s.reservations", segment);
    options = (weir_options){.segment = {.path = segment, .size = 16 << 20, .flags = WEIR_OPEN_CREATE},
                             .rules_text = "rules:\n  - { name: a, limit: 1, window: 1s }\n"};
    struct test_api *t = attach();
    fflush(stdout);
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = start(shared);
    for (int i = 0; i < kills; i++) {
        usleep((useconds_t)(5000 + (unsigned)i * 7919 % 10000));
        /* On a busy machine: the first kill waits until a process has left a reservation to expire, after two commits.
         */
        for (int k = 0; k < 60000 && __atomic_load_n(&shared->committed, __ATOMIC_RELAXED) <= 2 * PROCESSES; k++)
            usleep(1000);
        pid_t *one = &pids[i % PROCESSES];
        kill(*one, SIGKILL);
        waitpid(*one, NULL, 0);
        *one = i < kills - PROCESSES ? start(shared) : 0;
    }
    for (int i = 0; i < PROCESSES; i++)
        CHECK_EQ(pids[i], 0);

    usleep(1100000);
    uint64_t expired = 0, more;
    while ((more = weir__api_expire(&t->api)) > 0)
        expired += more;
    test_post(t, "check", "{" BODY ",\"cost\":0}");
    int64_t consumed = LIMIT - test_number(t, "remaining"), committed = (int64_t)shared->committed * ACTUAL;
    CHECK(shared->committed > 0 && shared->expired + expired > 0);
    CHECK(consumed >= committed);
    CHECK(consumed <= committed + (int64_t)kills * ESTIMATE);
    if (consumed < committed || consumed > committed + (int64_t)kills * ESTIMATE)
        printf("  consumed %" PRId64 ", committed %" PRId64 ", %d kills\n", consumed, committed, kills);

    /* All slots are free again. */
    for (int i = 0; i < 512; i++) {
        test_post(t, "reserve", "{" BODY "}");
        CHECK_EQ(t->status, 200);
    }
    munmap(shared, sizeof *shared);
    memcpy(t->path, file, sizeof file);
    test_api_close(t);
    unlink(segment);
}

TEST_MAIN
