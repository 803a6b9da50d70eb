/* The exchange with a real server under load: killed agents, and the long-run rate. */
#include "redis_hosts.h"

#include <pthread.h>
#include <sys/mman.h>

/* ---- Agents killed with SIGKILL under load ---- */

struct shared {
    uint64_t stop;
    int64_t admitted[HOSTS];
};

static void agent_process(struct host *host)
{
    host->send_context = weir__blocking_client_new(&store_options);
    weir__sync_free(host->sync);
    host_start_sync(host);
    for (;;) {
        (void)!weir__sync_round(host->sync);
        usleep(5000);
    }
}

static void gateway_process(struct host *host, struct shared *shared, int number)
{
    while (!__atomic_load_n(&shared->stop, __ATOMIC_SEQ_CST)) {
        shared->admitted[number] += host_check(host, REQUEST, 20);
        usleep(200);
    }
    _exit(0);
}

static int64_t requests_sent(struct shared *shared)
{
    int64_t sum = 0;
    for (int i = 0; i < HOSTS; i++)
        sum += __atomic_load_n(&shared->admitted[i], __ATOMIC_RELAXED);
    return sum;
}

TEST(agents_killed_under_load_send_everything_once)
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
            gateway_process(&hosts[i], shared, i);
        if ((agent[i] = fork()) == 0)
            agent_process(&hosts[i]);
    }
    int64_t kills = test_scaled(100, 20);
    /* On a busy machine the gateways are late: more kills, until there was some load. */
    for (int64_t k = 0; k < kills || (requests_sent(shared) <= 10000 && k < 100 * kills); k++) {
        usleep((useconds_t)(5000 + test_random(&seed) % 30000));
        int i = (int)(test_random(&seed) % HOSTS);
        kill(agent[i], SIGKILL);
        waitpid(agent[i], NULL, 0);
        if ((agent[i] = fork()) == 0)
            agent_process(&hosts[i]);
    }
    __atomic_store_n(&shared->stop, 1, __ATOMIC_SEQ_CST);
    int64_t admitted = 0;
    for (int i = 0; i < HOSTS; i++) {
        waitpid(gateway[i], NULL, 0);
        kill(agent[i], SIGKILL);
        waitpid(agent[i], NULL, 0);
        admitted += shared->admitted[i];
        weir__sync_free(hosts[i].sync); /* an agent that follows a killed one is a new one */
        host_start_sync(&hosts[i]);
    }
    hosts_sync(hosts, HOSTS);
    for (int i = 0; i < HOSTS; i++)
        CHECK_EQ(host_unsent(&hosts[i]), 0);
    CHECK(admitted > 10000);
    /*
     * Less than two units are refilled a second. The store creates the counter with the remaining units of the first
     * host that exchanges: a gateway that stalls between taking and recording at that moment has one unit counted
     * twice.
     */
    int64_t missing = 4000000 - left_in_store(rules) - admitted;
    CHECK(missing <= 1 && missing >= -100);
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
    double stood; /* seconds without requests, as the machine was busy */
};

static void *hammer(void *context)
{
    struct load *load = context;
    double next = 0, last = load->from - 1; /* when all were started */
    for (;;) {
        double pause = seconds() - last;
        load->stood += pause > 0.05 ? pause : 0; /* the last one, too */
        last = seconds();
        if (last >= load->until)
            return NULL;
        int passed = host_check(load->host, REQUEST, 5);
        load->admitted += seconds() >= load->from ? passed : 0;
        if (seconds() >= next) {
            CHECK_EQ(weir__sync_round(load->host->sync), 0);
            next = seconds() + 0.05;
        }
        usleep(1000);
    }
}

TEST(limit_holds_in_the_long_run)
{
    const double limit = 600;
    if (!begin(RULE("limit: 600, window: 1s, burst: 60"), HOSTS))
        return;
    pthread_t thread[HOSTS];
    struct load load[HOSTS];
    double lasts = (double)test_scaled(10, 3), start = seconds() + 1; /* by then the initial excess is repaid */
    for (int i = 0; i < HOSTS; i++) {
        load[i] = (struct load){.host = &hosts[i], .from = start, .until = start + lasts};
        pthread_create(&thread[i], NULL, hammer, &load[i]);
    }
    int64_t admitted = 0;
    double stood = 0;
    for (int i = 0; i < HOSTS; i++) {
        pthread_join(thread[i], NULL);
        admitted += load[i].admitted;
        stood += load[i].stood;
    }
    double entitled = limit * lasts, others = (HOSTS - 1) * limit * 0.05 + limit * stood;
    printf("  %.4f of the limit over %.0f s, of which hosts stood still for %.2f s\n", (double)admitted / entitled,
           lasts, stood);
    /* Both ends may fall anywhere between excess and repayment. */
    CHECK((double)admitted > entitled * 0.99 - others && (double)admitted < entitled * 1.01 + others);
    end(HOSTS);
}

TEST_MAIN
