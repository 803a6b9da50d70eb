/*
 * kill -9 of processes that add to a ledger and of the agent that sends its batches to the store, at random moments.
 * The store is a thread that executes each batch number once, as the real one does. In the end it has what was added:
 * nothing is lost, nothing is counted twice, and at most one amount per death was added without having been recorded.
 */
#include "stress.h"
#include "table/ledger.h"

#include <poll.h>
#include <sys/socket.h>

enum { WORKERS = 2, KEYS = 300, OPS = 200 };

struct board {
    int64_t added[KEYS];
    int64_t store[KEYS];
    uint64_t batch; /* the last batch that the store executed */
    uint64_t wrong;
};

struct message {
    uint64_t batch, count, serial;
    struct {
        uint32_t key;
        int32_t amount;
    } op[OPS];
};

static struct weir__ledger ledger;
static struct board *board;
static int pair[2];

static uint64_t identity_of(uint64_t key)
{
    return (key + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static void add_forever(uint64_t seed)
{
    for (;;) {
        uint64_t key = test_random(&seed) % KEYS;
        int64_t amount = 1 + (int64_t)(test_random(&seed) % 3);
        struct weir__ledger_text text = {.rule = key, .key_len = 4};
        memcpy(text.key, "text", 4);
        if (weir__ledger_add(&ledger, identity_of(key), amount) ||
            weir__ledger_add_entry(&ledger, identity_of(key), &text, amount))
            __atomic_fetch_add(&board->added[key], amount, __ATOMIC_RELAXED);
    }
}

/* ---- The agent ---- */

static bool exchange(uint64_t *seed)
{
    struct message request = {
        .batch = ledger.header->batch, .count = ledger.header->in_flight, .serial = test_random(seed)};
    uint64_t acked = 0;
    for (uint64_t i = 0; i < request.count; i++) {
        request.op[i].amount = (int32_t)ledger.note[i].amount;
        for (uint32_t key = 0; key < KEYS; key++)
            if (identity_of(key) == ledger.note[i].identity)
                request.op[i].key = key;
    }
    if (send(pair[0], &request, sizeof request, 0) != (ssize_t)sizeof request)
        return false;
    while (acked != request.serial) { /* other replies are for a previous agent */
        if (poll(&(struct pollfd){.fd = pair[0], .events = POLLIN}, 1, 60000) != 1)
            return false;
        if (recv(pair[0], &acked, sizeof acked, 0) != (ssize_t)sizeof acked)
            return false;
    }
    for (uint64_t i = 0; i < request.count; i++)
        weir__ledger_ack(&ledger, ledger.note[i].index, ledger.note[i].identity, ledger.note[i].amount, request.batch);
    weir__store64(&ledger.header->in_flight, 0);
    return true;
}

static uint64_t collect(void)
{
    uint64_t count = 0, batch = ledger.header->batch + 1;
    weir__store64(&ledger.header->batch, batch);
    for (uint64_t index = 0; index < ledger.entries && count < OPS; index++) {
        struct weir__ledger_entry entry;
        weir__ledger_read(&ledger, index, &entry);
        if (!entry.identity || (!entry.ready && !entry.amount))
            continue;
        if (!entry.ready)
            __atomic_fetch_add(&board->wrong, 1, __ATOMIC_RELAXED);
        if (!entry.amount) {
            weir__ledger_free(&ledger, index, entry.identity);
            continue;
        }
        if (entry.identity != identity_of(entry.text.rule))
            __atomic_fetch_add(&board->wrong, 1, __ATOMIC_RELAXED);
        if (weir__ledger_begin_batch(&ledger, index, entry.identity, batch))
            ledger.note[count++] = (struct weir__ledger_in_flight){entry.identity, entry.amount, 0, index};
    }
    weir__store64(&ledger.header->in_flight, count);
    return count;
}

static void send_forever(uint64_t seed)
{
    for (;;)
        if ((ledger.header->in_flight || collect()) && !exchange(&seed))
            __atomic_fetch_add(&board->wrong, 1, __ATOMIC_RELAXED);
}

static void *store_thread(void *unused)
{
    struct message request;
    (void)unused;
    while (recv(pair[1], &request, sizeof request, 0) == (ssize_t)sizeof request && request.count <= OPS) {
        for (uint64_t i = 0; i < request.count && request.batch > board->batch; i++)
            board->store[request.op[i].key] += request.op[i].amount;
        board->batch = request.batch;
        if (send(pair[1], &request.serial, sizeof request.serial, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN)
            break;
    }
    return NULL;
}

static pid_t start(int number, uint64_t seed)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (number == WORKERS)
            send_forever(seed);
        add_forever(seed);
    }
    return child;
}

static void end(pid_t child, uint64_t *seed)
{
    if (test_random(seed) % 2) {
        kill(child, SIGSTOP);
        usleep((useconds_t)(test_random(seed) % 300));
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static bool too_little_done(void)
{
    int64_t sum = 0;
    for (int key = 0; key < KEYS; key++)
        sum += __atomic_load_n(&board->added[key], __ATOMIC_RELAXED);
    return sum <= 2000 || __atomic_load_n(&board->batch, __ATOMIC_RELAXED) <= 20;
}

TEST(kills_lose_nothing_and_count_nothing_twice)
{
    uint64_t seed = 11;
    void *memory = stress_shared(WEIR__LEDGER_BYTES_MIN);
    pid_t child[WORKERS + 1];
    pthread_t store;
    board = stress_shared(sizeof *board);
    CHECK_EQ(weir__ledger_format(memory, WEIR__LEDGER_BYTES_MIN, "sender"), 0);
    CHECK_EQ(weir__ledger_attach(memory, WEIR__LEDGER_BYTES_MIN, &ledger), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    for (int i = 0; i <= WORKERS; i++)
        child[i] = start(i, test_random(&seed));
    pthread_create(&store, NULL, store_thread, NULL);
    int64_t deaths = test_scaled(600, 60), died = 0, agents = 0;
    /* On a busy machine processes are killed before they have done anything: more kills, until there was something to
     * lose. */
    for (int64_t i = 0; i < deaths || (too_little_done() && i < 100 * deaths); i++) {
        usleep((useconds_t)(200 + test_random(&seed) % 3000));
        int which = (int)(test_random(&seed) % (WORKERS + 1));
        end(child[which], &seed);
        died += which < WORKERS;
        agents += which == WORKERS;
        child[which] = start(which, test_random(&seed));
    }
    for (int i = 0; i <= WORKERS; i++)
        end(child[i], &seed);
    died += WORKERS;
    for (int i = 0; i < 100 && (ledger.header->in_flight || collect()); i++)
        CHECK(exchange(&seed));
    shutdown(pair[0], SHUT_RDWR);
    pthread_join(store, NULL);

    int64_t unwritten = 0, sum = 0;
    for (int key = 0; key < KEYS; key++) {
        CHECK(board->store[key] >= board->added[key]);
        unwritten += board->store[key] - board->added[key];
        sum += board->store[key];
    }
    CHECK(agents > 0 && sum > 1000 && board->batch > 10);
    CHECK(unwritten <= 3 * died);
    CHECK_EQ(board->wrong, 0);
    CHECK_EQ(ledger.header->full, 0);
    close(pair[0]);
    close(pair[1]);
    munmap(board, sizeof *board);
    munmap(memory, WEIR__LEDGER_BYTES_MIN);
}

TEST_MAIN
