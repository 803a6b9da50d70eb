/* Several agents on one queue, each killed occasionally; and a cluster. */
#include "queues.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define AGENTS   3
#define KEYS     5
#define EACH     40
#define CLAIM_MS 200

static const struct weir__queue_bounds unbounded;

/* Shared between the processes: the newest delivered request of each key; which were delivered, and how many. */
struct shared {
    uint64_t last[KEYS], arrived[KEYS * EACH + 1], delivered, twice, late, wrong, drained[AGENTS];
};

static struct shared *shared;

static int64_t real_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void add_one(uint64_t *to)
{
    __atomic_add_fetch(to, 1, __ATOMIC_SEQ_CST);
}

static int64_t steady_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * An upstream that records the order of requests. The order is not guaranteed for an agent that stalled so long that
 * its claim ended before it got here, as happens on a busy machine; its claim time is checked last.
 */
static void deliver(const struct weir__deferred *item, int agent, int64_t claimed_ms)
{
    uint64_t *last = &shared->last[item->key.data[0] - 'a'], before = __atomic_load_n(last, __ATOMIC_SEQ_CST);
    while (before < item->sequence &&
           !__atomic_compare_exchange_n(last, &before, item->sequence, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    if (before > item->sequence)
        add_one(steady_ms() - claimed_ms < CLAIM_MS ? &shared->wrong : &shared->late);
    bool again =
        item->sequence > KEYS * EACH || __atomic_exchange_n(&shared->arrived[item->sequence], 1, __ATOMIC_SEQ_CST) != 0;
    add_one(again ? &shared->twice : &shared->delivered);
    add_one(&shared->drained[agent]);
}

static _Noreturn void dispatcher(const struct place *place, int agent)
{
    static struct seen seen;
    char name[16];
    snprintf(name, sizeof name, "agent %d", agent);
    struct weir__queue *queue =
        place_open(place, (struct weir__queue_options){.name = name, .lease_ms = 100, .clock_ms = real_clock});
    for (;;) {
        seen.count = 0;
        int64_t claimed_ms = steady_ms();
        (void)weir__queue_claim(
            queue, &(struct weir__claim_request){.now_ms = real_clock(), .claim_ms = CLAIM_MS, .free = 3}, see, &seen);
        for (size_t i = 0; i < seen.count; i++) {
            deliver(&seen.items[i], agent, claimed_ms);
            (void)end_delivered(queue, seen.items[i].ticket, 200);
        }
        usleep(2000);
    }
}

static pid_t begin(const struct place *place, int agent)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        dispatcher(place, agent);
    return child;
}

static void stop(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* The dispatching agent is killed and restarted: the requests of each key arrive in order, none is lost. */
BOTH(order_with_several_agents)
{
    struct place place;
    pid_t agents[AGENTS];
    uint64_t random = 12;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    place_new(&place, on_redis, true);
    struct weir__queue *queue = place_open(&place, (struct weir__queue_options){.clock_ms = real_clock});
    for (int i = 0; i < AGENTS; i++)
        agents[i] = begin(&place, i);
    for (int i = 0; i < KEYS * EACH; i++) {
        const char *key = (const char *[]){"a", "b", "c", "d", "e"}[i % KEYS];
        CHECK_EQ(put_one(queue, item_of("r", key, "x"), unbounded, NULL), 0);
        if (i % 10 == 9) {
            int one = (int)(test_random(&random) % AGENTS);
            stop(agents[one]);
            usleep(150000); /* the lease ends, and another agent dispatches */
            agents[one] = begin(&place, one);
        }
    }
    for (int i = 0; i < 3000 && __atomic_load_n(&shared->delivered, __ATOMIC_SEQ_CST) < KEYS * EACH; i++)
        usleep(20000);
    for (int i = 0; i < AGENTS; i++)
        stop(agents[i]);
    CHECK_EQ(shared->delivered, KEYS * EACH);
    CHECK_EQ(shared->wrong, 0);
    printf("  %d delivered, %d twice, %d late; by each agent %d, %d, %d\n", (int)shared->delivered, (int)shared->twice,
           (int)shared->late, (int)shared->drained[0], (int)shared->drained[1], (int)shared->drained[2]);
    weir__queue_close(queue);
    place_end(&place);
    munmap(shared, sizeof *shared);
}

/* ---- A cluster ---- */

static bool is_free(unsigned port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    int file = socket(AF_INET, SOCK_STREAM, 0);
    bool good = bind(file, (struct sockaddr *)&address, sizeof address) == 0;
    close(file);
    return good;
}

/*
 * A free port, with the one 10,000 above it, the cluster bus, free too. Not in the range of ephemeral ports: one of
 * them might be taken before the server binds it.
 */
static unsigned free_port(int try)
{
    unsigned port = 11000 + ((unsigned)getpid() * 7 + (unsigned)try * 131) % 11000;
    return is_free(port) && is_free(port + 10000) ? port : 0;
}

/* Assigns all slots; servers before version 7 do not support ranges. */
static redisReply *add_slots(redisContext *context)
{
    static char args[16384 + 2][16] = {"CLUSTER", "ADDSLOTS"};
    static const char *arguments[16384 + 2] = {args[0], args[1]};
    for (int i = 0; i < 16384; i++) {
        snprintf(args[i + 2], sizeof args[i + 2], "%d", i);
        arguments[i + 2] = args[i + 2];
    }
    return redisCommandArgv(context, 16384 + 2, arguments, NULL);
}

/* Whether the server there is the child, and has all slots. */
static bool is_ready(redisContext *context, pid_t child)
{
    char process[32];
    snprintf(process, sizeof process, "process_id:%d\r", (int)child);
    redisReply *reply = redisCommand(context, "INFO server");
    bool ready = reply && reply->str && strstr(reply->str, process);
    freeReplyObject(reply);
    if (!ready)
        return false;
    freeReplyObject(add_slots(context));
    reply = redisCommand(context, "CLUSTER INFO");
    ready = reply && reply->str && strstr(reply->str, "cluster_state:ok");
    freeReplyObject(reply);
    return ready;
}

/* 0: it ended, because another process took the port first. */
static pid_t cluster_begin(const char *folder, unsigned port)
{
    char number[8];
    snprintf(number, sizeof number, "%u", port);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execlp(server_program(), "redis-server", "--port", number, "--bind", "127.0.0.1", "--cluster-enabled", "yes",
               "--save", "", "--dir", folder, "--logfile", "/dev/null", (char *)NULL);
        _exit(127);
    }
    bool ready = false;
    for (int i = 0; i < 3000 && !ready; i++) {
        usleep(20000);
        if (waitpid(child, NULL, WNOHANG) == child)
            return 0;
        redisContext *context = redisConnect("127.0.0.1", (int)port);
        ready = context && !context->err && is_ready(context, child);
        if (context)
            redisFree(context);
    }
    CHECK(ready);
    return child;
}

static int count_rules(void *context, const struct weir__queue_stats *stats)
{
    *(int64_t *)context += stats->waiting + stats->dead;
    return 0;
}

/* Each script uses keys of one slot only, whatever the rules and keys are. */
TEST(scripts_use_one_slot_in_a_cluster)
{
    static struct seen seen;
    struct place place = {.on_redis = false}; /* its directory is removed at the end */
    unsigned port = 0;
    pid_t child = 0;
    if (!server_begin())
        return;
    snprintf(place.folder, sizeof place.folder, "%s/weir-queue-XXXXXX", private_root());
    CHECK(mkdtemp(place.folder) != NULL);
    for (int i = 0; i < 100 && child == 0; i++) {
        port = free_port(i);
        child = port ? cluster_begin(place.folder, port) : 0;
    }
    CHECK(child > 0);
    snprintf(place.url, sizeof place.url, "redis+cluster://127.0.0.1:%u?connect_timeout=30s", port);
    struct weir__queue *queue =
        place_open(&place, (struct weir__queue_options){.bounds = {.max = 100, .max_age_ms = 1000}});
    for (int i = 0; i < 20; i++) {
        const char *rule = (const char *[]){"r", "{s}", "t}{", "u"}[i % 4];
        CHECK_EQ(put_one(queue, item_of(rule, i % 3 ? "{k" : "l}", "x"), unbounded, NULL), 0);
    }
    CHECK_EQ(claim_some(queue, 100, HOUR, &seen), 8);
    CHECK_EQ(end_delivered(queue, seen.items[0].ticket, 200), 0);
    CHECK_EQ(end_again(queue, seen.items[1].ticket, 0, "x", 0, true), 0);
    CHECK_EQ(end_dead(queue, seen.items[2].ticket, "x", 0), 0);
    CHECK_EQ(weir__queue_change(queue, seen.items[2].ticket, WEIR__ENDED_REQUEUED), 0);
    CHECK_EQ(weir__queue_change(queue, seen.items[2].ticket, WEIR__ENDED_CANCELLED), 0);
    seen.count = 0;
    CHECK_EQ(weir__queue_list(queue, &(struct weir__queue_filter){.state = -1, .limit = 100}, see, &seen), 0);
    CHECK_EQ(seen.count, 20);
    CHECK_EQ(weir__queue_expire(queue, clock_now + 1001), 13);
    int64_t there = 0;
    CHECK_EQ(weir__queue_stats(queue, count_rules, &there), 0);
    CHECK_EQ(there, 13);
    weir__queue_close(queue);
    stop(child);
    place_end(&place);
}

TEST_MAIN
