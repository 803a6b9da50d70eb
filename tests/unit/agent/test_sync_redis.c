/*
 * The exchange with a real server: the worked examples on three hosts, and what must hold when the server is flushed,
 * stopped or killed, and when agents are killed under load.
 */
#define _GNU_SOURCE /* mkdtemp */
#include "hosts.h"

#include "engine/link.h"
#include "store/options.h"

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RULE(more) "rules: [{name: a, key: \"${client_ip}\", consistency: eventual, " more "}]\n"
#define REQUEST    "GET / ip=192.0.2.1"
#define KEY        "192.0.2.1"
#define HOSTS      3

/* ---- A server ---- */

static char folder[64], socket_path[96], url[128];
static pid_t server;
static redisContext *redis;
static struct weir__store_options store_options;

static void server_run(void)
{
    server = fork();
    if (server == 0) {
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket_path, "--save", "", "--dir",
               folder, "--logfile", "/dev/null", (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 200; i++) {
        usleep(20000);
        redis = redisConnectUnix(socket_path);
        if (redis && !redis->err)
            return;
        redisFree(redis);
        redis = NULL;
    }
}

static void server_kill(void)
{
    if (redis)
        redisFree(redis);
    redis = NULL;
    if (server > 0) {
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
        unlink(socket_path);
    }
    server = 0;
}

static void server_end(void)
{
    server_kill();
    rmdir(folder);
}

/* False, loudly: there is none on this machine. */
static bool server_begin(void)
{
    char why[256];
    if (redis)
        return true;
    if (system("command -v redis-server >/dev/null 2>&1") != 0) {
        printf("  SKIPPED: redis-server is not installed (./dev test installs it)\n");
        return false;
    }
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "/tmp/weir-sync-XXXXXX");
        CHECK(mkdtemp(folder) != NULL);
        snprintf(socket_path, sizeof socket_path, "%s/socket", folder);
        snprintf(url, sizeof url, "redis+unix://%s", socket_path);
        CHECK_EQ(weir__store_parse(url, &store_options, why, sizeof why), 0);
        store_options.deadline_us = 500000;
        atexit(server_end);
    }
    server_run();
    CHECK(redis != NULL);
    return redis != NULL;
}

static void server_do(const char *command)
{
    redisReply *reply = redisCommand(redis, command);
    CHECK(reply && reply->type != REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}

/* ---- Hosts ---- */

static struct host hosts[HOSTS_MAX];
static struct weir__link *links[HOSTS_MAX];

static int bring(void *context, struct weir__question *question)
{
    return weir__link_ask(context, question);
}

static bool begin(const char *rules, int count)
{
    if (!server_begin())
        return false;
    server_do("FLUSHALL");
    for (int i = 0; i < count; i++) {
        links[i] = weir__link_new(&store_options);
        host_make(&hosts[i], rules, bring, links[i], weir_clock);
    }
    return true;
}

static void end(int count)
{
    for (int i = 0; i < count; i++) {
        host_free(&hosts[i]);
        weir__link_free(links[i]);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void sleep_until(double when)
{
    double left = when - seconds();
    if (left > 0)
        usleep((useconds_t)(left * 1e6));
}

/* What one more host, which has never seen the key, hears of it. */
static int64_t left_in_store(const char *rules)
{
    struct host other;
    struct weir__link *link = weir__link_new(&store_options);
    host_make(&other, rules, bring, link, weir_clock);
    CHECK_EQ(host_ask(&other, REQUEST, 1), 1);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weir__sync_round(other.sync), 0);
    int64_t left = host_left(&other, "a", KEY) + 1;
    host_free(&other);
    weir__link_free(link);
    return left;
}

/* ---- "several_hosts" of the worked examples ---- */

TEST(four_a_second_on_three_hosts_spread)
{
    if (!begin(RULE("limit: 4, window: 1s"), HOSTS))
        return;
    CHECK_EQ(host_ask(&hosts[0], REQUEST, 1), 1);
    CHECK_EQ(host_ask(&hosts[2], REQUEST, 1), 1);
    CHECK_EQ(host_ask(&hosts[1], REQUEST, 2), 2);
    hosts_sync(hosts, HOSTS);
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_left(&hosts[i], "a", KEY), 0);
    end(HOSTS);
}

TEST(twelve_at_once_then_repaid)
{
    if (!begin(RULE("limit: 4, window: 1s"), HOSTS))
        return;
    double start = seconds();
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_ask(&hosts[i], REQUEST, 4), 4);
    hosts_sync(hosts, HOSTS);
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_left(&hosts[i], "a", KEY), -8);
    sleep_until(start + 1.9);
    CHECK_EQ(host_ask(&hosts[0], REQUEST, 1), 0);
    sleep_until(start + 2.3);
    CHECK_EQ(host_ask(&hosts[1], REQUEST, 1), 1);
    end(HOSTS);
}

/* ---- Every algorithm ---- */

TEST(every_algorithm_agrees_over_hosts)
{
    static const char *const rules[] = {
        RULE("limit: 30, window: 1h"),
        RULE("limit: 30, window: 1h, refill: interval"),
        RULE("limit: 30, window: 1h, algorithm: leaky_bucket"),
        RULE("limit: 30, window: 365d, algorithm: fixed_window"),
        RULE("limit: 30, window: 1y, algorithm: fixed_window, timezone: UTC"),
        RULE("limit: 30, window: 1h, algorithm: fixed_window, align: first_request"),
        RULE("limit: 30, window: 100d, algorithm: sliding_window_counter"),
        RULE("limit: 30, window: 100d, algorithm: sliding_window_counter, buckets: 6"),
        RULE("limit: 30, window: 1h, algorithm: sliding_window_log"),
    };
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        int before = test_failures;
        if (!begin(rules[k], HOSTS))
            return;
        for (int i = 0; i < HOSTS; i++)
            CHECK_EQ(host_ask(&hosts[i], REQUEST, i + 1), i + 1);
        hosts_sync(hosts, HOSTS);
        for (int i = 0; i < HOSTS; i++)
            CHECK_EQ(host_left(&hosts[i], "a", KEY), 24);
        /* Beyond the limit, by all at once: in debt. */
        for (int i = 0; i < HOSTS; i++)
            CHECK_EQ(host_ask(&hosts[i], REQUEST, 40), 24);
        hosts_sync(hosts, HOSTS);
        for (int i = 0; i < HOSTS; i++)
            CHECK(host_left(&hosts[i], "a", KEY) <= 0 && host_ask(&hosts[i], REQUEST, 5) == 0);
        if (test_failures != before)
            printf("  with %s", rules[k]);
        end(HOSTS);
    }
}

/* ---- Faults ---- */

TEST(a_flush_and_a_lost_server)
{
    static const char rules[] = RULE("limit: 1000, window: 1d");
    if (!begin(rules, HOSTS))
        return;
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_ask(&hosts[i], REQUEST, 10), 10);
    hosts_sync(hosts, HOSTS);
    server_do("FLUSHALL");
    server_do("SCRIPT FLUSH");
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_ask(&hosts[i], REQUEST, 10), 10);
    hosts_sync(hosts, HOSTS);
    CHECK_EQ(left_in_store(rules), 1000 - 60);

    /* Gone, and everything goes on; back, and it knows all of it again. */
    server_kill();
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_ask(&hosts[i], REQUEST, 10), 10);
    for (int round = 0; round < 8; round++)
        for (int i = 0; i < HOSTS; i++)
            CHECK(weir__sync_round(hosts[i].sync) != 0);
    for (int i = 0; i < HOSTS; i++)
        CHECK(weir__sync_is_down(hosts[i].sync));
    CHECK(server_begin());
    double back = seconds();
    for (int i = 0; i < HOSTS; i++)
        while (weir__sync_round(hosts[i].sync) != 0 && seconds() < back + 5)
            usleep(50000);
    CHECK(seconds() - back < 2);
    for (int i = 0; i < HOSTS; i++)
        CHECK(!weir__sync_is_down(hosts[i].sync));
    hosts_sync(hosts, HOSTS);
    CHECK_EQ(host_left(&hosts[0], "a", KEY), 1000 - 90); /* what left_in_store took, nobody else had heard of */
    end(HOSTS);
}

TEST(a_stopped_server_is_told_later_and_once)
{
    static const char rules[] = RULE("limit: 1000, window: 1d");
    if (!begin(rules, 1))
        return;
    CHECK_EQ(host_ask(&hosts[0], REQUEST, 10), 10);
    CHECK_EQ(weir__sync_round(hosts[0].sync), 0);
    kill(server, SIGSTOP);
    CHECK_EQ(host_ask(&hosts[0], REQUEST, 10), 10);
    CHECK(weir__sync_round(hosts[0].sync) != 0); /* it is on its way, and will be carried out */
    CHECK_EQ(host_ask(&hosts[0], REQUEST, 10), 10);
    kill(server, SIGCONT);
    double back = seconds();
    while (weir__sync_round(hosts[0].sync) != 0 && seconds() < back + 5)
        usleep(50000);
    CHECK(seconds() - back < 2);
    CHECK_EQ(weir__sync_round(hosts[0].sync), 0);
    CHECK_EQ(left_in_store(rules), 1000 - 30);
    end(1);
}

/* ---- A store that is set back ---- */

/* From here on the replica gets nothing more: all that there is, in another database. */
static void replica_is_cut_off(void)
{
    freeReplyObject(redisCommand(
        redis, "EVAL %s 0", "for _, k in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', k, k, 'DB', 1) end"));
}

static void replica_takes_over(void)
{
    server_do("FLUSHDB");
    server_do("SWAPDB 0 1");
}

/* One exchange after the other, with some use between them, on hosts [first, last]. */
static void use(int first, int last, int rounds)
{
    for (int round = 0; round < rounds; round++)
        for (int i = first; i <= last; i++) {
            CHECK_EQ(host_ask(&hosts[i], REQUEST, 2 + i), 2 + i);
            CHECK_EQ(weir__sync_round(hosts[i].sync), 0);
        }
}

static void check_all_is_known(const char *rules, int64_t limit)
{
    int64_t admitted = 0;
    for (int i = 0; i < HOSTS; i++)
        admitted += hosts[i].admitted;
    for (int i = 0; i < 4; i++)
        hosts_sync(hosts, HOSTS);
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_untold(&hosts[i]), 0);
    CHECK_EQ(left_in_store(rules), limit - admitted);
}

static const char *const kept_for_a_day[] = {
    RULE("limit: 1000, window: 30d"),
    RULE("limit: 1000, window: 365d, algorithm: fixed_window"),
    RULE("limit: 1000, window: 1d, algorithm: sliding_window_log"),
    RULE("limit: 1000, window: 400d, algorithm: sliding_window_counter"),
};

/* What the old master acknowledged after its replica was cut off is told to the new one: all of it, once. */
TEST(what_a_new_master_never_got_is_told_again)
{
    for (size_t k = 0; k < sizeof kept_for_a_day / sizeof *kept_for_a_day; k++) {
        if (!begin(kept_for_a_day[k], HOSTS))
            return;
        use(0, HOSTS - 1, 10);
        replica_is_cut_off();
        use(0, HOSTS - 1, 7);
        replica_takes_over();
        use(0, HOSTS - 1, 3);
        check_all_is_known(kept_for_a_day[k], 1000); /* takes one */
        use(0, HOSTS - 1, 10);
        replica_is_cut_off(); /* and once more, with what was told again before */
        use(0, HOSTS - 1, 4);
        replica_takes_over();
        check_all_is_known(kept_for_a_day[k], 1000 - 1);
        end(HOSTS);
    }
}

/* Two masters for a time: one host has found the new one already, the others go on with the old one. */
TEST(hosts_that_follow_one_after_the_other)
{
    static const char rules[] = RULE("limit: 1000, window: 365d, algorithm: fixed_window");
    if (!begin(rules, HOSTS))
        return;
    use(0, HOSTS - 1, 10);
    replica_is_cut_off();
    use(1, HOSTS - 1, 5);
    server_do("SWAPDB 0 1"); /* the new one */
    use(0, 0, 10);
    server_do("SWAPDB 0 1");
    use(1, HOSTS - 1, 5);
    replica_takes_over();
    check_all_is_known(rules, 1000);
    end(HOSTS);
}

/*
 * Who was forgotten with everything brings back what it knows. No more is lost than what hosts told between the last
 * exchange of the first that comes back and the end of the store; here the first was the last, and it is nothing.
 */
TEST(what_everybody_knew_of_an_empty_store)
{
    for (size_t k = 0; k < sizeof kept_for_a_day / sizeof *kept_for_a_day; k++) {
        if (!begin(kept_for_a_day[k], HOSTS))
            return;
        use(0, HOSTS - 1, 10);
        int64_t last_round = 2 + 3 + 4;
        server_do("FLUSHALL");
        use(0, HOSTS - 1, 3); /* the first has not heard of what the others told in the last round */
        int64_t admitted = hosts[0].admitted + hosts[1].admitted + hosts[2].admitted;
        for (int i = 0; i < 4; i++)
            hosts_sync(hosts, HOSTS);
        int64_t lost = left_in_store(kept_for_a_day[k]) - (1000 - admitted);
        CHECK(lost >= 0 && lost <= last_round);
        end(HOSTS);

        CHECK(begin(kept_for_a_day[k], HOSTS));
        use(0, HOSTS - 1, 10);
        hosts_sync(hosts, HOSTS);
        server_do("FLUSHALL");
        check_all_is_known(kept_for_a_day[k], 1000);
        end(HOSTS);
    }
}

/* ---- Agents killed -9 under load ---- */

struct shared {
    uint64_t stop;
    int64_t admitted[HOSTS];
};

static void be_an_agent(struct host *host)
{
    host->bring_context = weir__link_new(&store_options);
    weir__sync_free(host->sync);
    host_start_sync(host);
    for (;;) {
        (void)!weir__sync_round(host->sync);
        usleep(5000);
    }
}

static void be_a_gateway(struct host *host, struct shared *shared, int number)
{
    while (!__atomic_load_n(&shared->stop, __ATOMIC_SEQ_CST)) {
        shared->admitted[number] += host_ask(host, REQUEST, 20);
        usleep(200);
    }
    _exit(0);
}

TEST(agents_killed_under_load_tell_everything_once)
{
    static const char rules[] = RULE("limit: 4000000, window: 30d");
    if (!begin(rules, HOSTS))
        return;
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t gateway[HOSTS], agent[HOSTS];
    uint64_t seed = 7;
    fflush(stdout);
    for (int i = 0; i < HOSTS; i++) {
        if ((gateway[i] = fork()) == 0)
            be_a_gateway(&hosts[i], shared, i);
        if ((agent[i] = fork()) == 0)
            be_an_agent(&hosts[i]);
    }
    int64_t kills = test_scaled(100, 20);
    for (int64_t k = 0; k < kills; k++) {
        usleep((useconds_t)(5000 + test_random(&seed) % 30000));
        int i = (int)(test_random(&seed) % HOSTS);
        kill(agent[i], SIGKILL);
        waitpid(agent[i], NULL, 0);
        if ((agent[i] = fork()) == 0)
            be_an_agent(&hosts[i]);
    }
    __atomic_store_n(&shared->stop, 1, __ATOMIC_SEQ_CST);
    int64_t admitted = 0;
    for (int i = 0; i < HOSTS; i++) {
        waitpid(gateway[i], NULL, 0);
        kill(agent[i], SIGKILL);
        waitpid(agent[i], NULL, 0);
        admitted += shared->admitted[i];
    }
    hosts_sync(hosts, HOSTS);
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_untold(&hosts[i]), 0);
    CHECK(admitted > 10000);
    /* Less than two units come back a second. */
    int64_t missing = 4000000 - left_in_store(rules) - admitted;
    CHECK(missing <= 0 && missing >= -100);
    printf("  %" PRId64 " admitted, %" PRId64 " agents killed, difference %" PRId64 " (refill included)\n", admitted,
           kills, missing);
    munmap(shared, sizeof *shared);
    end(HOSTS);
}

/* ---- The long run ---- */

struct load {
    struct host *host;
    double from, until; /* what passes in between is counted */
    int64_t admitted;
};

static void *hammer(void *context)
{
    struct load *load = context;
    double next = 0;
    while (seconds() < load->until) {
        int passed = host_ask(load->host, REQUEST, 5);
        load->admitted += seconds() >= load->from ? passed : 0;
        if (seconds() >= next) {
            CHECK_EQ(weir__sync_round(load->host->sync), 0);
            next = seconds() + 0.05;
        }
        usleep(1000);
    }
    return NULL;
}

TEST(in_the_long_run_the_limit_holds)
{
    enum { LIMIT = 600 };
    if (!begin(RULE("limit: 600, window: 1s, burst: 60"), HOSTS))
        return;
    pthread_t thread[HOSTS];
    struct load load[HOSTS];
    double lasts = (double)test_scaled(10, 3), start = seconds() + 1; /* by then what was full at first is repaid */
    for (int i = 0; i < HOSTS; i++) {
        load[i] = (struct load){.host = &hosts[i], .from = start, .until = start + lasts};
        pthread_create(&thread[i], NULL, hammer, &load[i]);
    }
    int64_t admitted = 0;
    for (int i = 0; i < HOSTS; i++) {
        pthread_join(thread[i], NULL);
        admitted += load[i].admitted;
    }
    double entitled = LIMIT * lasts, others = (HOSTS - 1) * LIMIT * 0.05;
    printf("  %.4f of the limit over %.0f s\n", (double)admitted / entitled, lasts);
    /* Both ends may fall anywhere between being ahead and having repaid. */
    CHECK((double)admitted > entitled * 0.99 - others && (double)admitted < entitled * 1.01 + others);
    end(HOSTS);
}

TEST_MAIN
