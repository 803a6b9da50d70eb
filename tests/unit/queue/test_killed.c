/*
 * A child process puts, claims, finishes and cancels requests, reports each operation to its parent after it was
 * acknowledged, and is killed with SIGKILL at any moment; so is Redis. At the end every acknowledged ticket is
 * accounted for, and the order per key is kept.
 */
#include "queues.h"

#include <poll.h>

#define KEYS    7
#define TICKETS 200000

static const struct weir__queue_bounds bounds = {.max = 300, .max_bytes = 400000};

enum what { PUT, CLAIMED, DELIVERED, DEAD, CANCELLED };

struct event {
    enum what what;
    int key;
    uint64_t sequence;
    char ticket[WEIR__TICKET_LEN + 1];
};

static int64_t real_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct weir__queue *open_here(const struct place *place)
{
    return place_open(place, (struct weir__queue_options){.clock_ms = real_clock, .name = "child"});
}

/* ---- The child ---- */

static int report_to;

static void report(enum what what, const struct weir__deferred *item)
{
    struct event event = {.what = what, .sequence = item->sequence};
    event.key = item->key.len ? item->key.data[0] - 'a' : 0;
    memcpy(event.ticket, item->ticket, sizeof event.ticket);
    if (write(report_to, &event, sizeof event) != sizeof event)
        _exit(3);
}

static void put_some(struct weir__queue *queue, uint64_t *random)
{
    static const char body[200];
    struct weir__deferred items[8];
    struct weir__queue_bounds each[8];
    int errors[8];
    size_t count = 1 + test_random(random) % 8;
    for (size_t i = 0; i < count; i++) {
        items[i] = item_of("r", "", "");
        items[i].key = (weir_text){&"abcdefg"[test_random(random) % KEYS], 1};
        items[i].body = (weir_text){body, test_random(random) % sizeof body};
        each[i] = bounds;
    }
    if (put_all(queue, items, each, errors, count) != 0)
        return;
    for (size_t i = 0; i < count; i++)
        if (!errors[i])
            report(PUT, &items[i]);
}

static void dispatch_some(struct weir__queue *queue, uint64_t *random)
{
    static struct seen seen;
    seen.count = 0;
    if (weir__queue_claim(queue, &(struct weir__claim_request){.now_ms = real_clock(), .claim_ms = HOUR, .free = 4},
                          see, &seen) < 0)
        return;
    for (size_t i = 0; i < seen.count; i++) {
        struct weir__deferred *item = &seen.items[i];
        report(CLAIMED, item);
        int error, chance = (int)(test_random(random) % 8);
        if (chance == 0) {
            error = end_again(queue, item->ticket, real_clock(), "no", 503, true);
        } else if (chance == 1) {
            error = end_dead(queue, item->ticket, "enough", 500);
            if (!error)
                report(DEAD, item);
        } else {
            error = end_delivered(queue, item->ticket, 200);
            if (!error)
                report(DELIVERED, item);
        }
        if (error && error != WEIR__QUEUE_UNKNOWN && error != WEIR__QUEUE_UNAVAILABLE && error != WEIR__QUEUE_LOST)
            _exit(4);
    }
}

static int first_waiting(void *context, const struct weir__deferred *item)
{
    *(struct weir__deferred *)context = *item;
    return 1;
}

static void work(const struct place *place, int to, uint64_t seed)
{
    struct weir__queue *queue = open_here(place);
    uint64_t random = seed;
    report_to = to;
    for (;;) {
        uint64_t chance = test_random(&random) % 16;
        struct weir__deferred item = {.sequence = 0};
        struct weir__queue_filter filter = {.state = WEIR__WAITING, .limit = 1};
        if (chance < 8) {
            put_some(queue, &random);
        } else if (chance < 15) {
            dispatch_some(queue, &random);
        } else if (weir__queue_list(queue, &filter, first_waiting, &item) == 1) {
            item.key = (weir_text){"", 0};
            if (weir__queue_change(queue, item.ticket, WEIR__ENDED_CANCELLED) == 0)
                report(CANCELLED, &item);
        }
    }
}

/* ---- The parent ---- */

static struct event *all;
static size_t all_count;
static uint64_t done_up_to[KEYS]; /* of each key, the newest request that was delivered or dead-lettered */

static void record_event(const struct event *event)
{
    if (event->what == PUT && all_count < TICKETS)
        all[all_count++] = *event;
    /* No request is claimed that is older than a finished one: only a requeue could cause that, and there is none. */
    if (event->what == CLAIMED)
        CHECK(event->sequence > done_up_to[event->key]);
    if (event->what == DELIVERED || event->what == DEAD)
        done_up_to[event->key] = event->sequence;
}

/*
 * As an administrator would, see docs/internals/queue.md: if Redis was killed while it appended a script's commands, it
 * cuts off only the last command at the restart, and appends after the others. After the next restart those count,
 * without the one that was cut off.
 */
static void repair_log(void)
{
    char command[400];
    snprintf(command, sizeof command,
             "for log in %s/appendonlydir/*.manifest %s/appendonly.aof; do"
             " [ ! -f $log ] || yes | redis-check-aof --fix $log || exit 1; done >/dev/null 2>&1",
             server.folder, server.folder);
    CHECK_EQ(system(command), 0);
}

/* Lets the child do some dozens of operations, however fast the machine is, and returns in the middle of one. */
static void let_work(int from, uint64_t *random)
{
    struct event event;
    struct pollfd readable = {.fd = from, .events = POLLIN};
    for (uint64_t left = 1 + test_random(random) % 64; left > 0 && poll(&readable, 1, 1000) == 1; left--)
        if (read(from, &event, sizeof event) == sizeof event)
            record_event(&event);
    usleep((useconds_t)(test_random(random) % 1000));
}

static void kill_once(const struct place *place, uint64_t *random, bool kill_server)
{
    int pipes[2];
    CHECK_EQ(pipe(pipes), 0);
    fcntl(pipes[1], F_SETPIPE_SZ, 1 << 20);
    fflush(stdout);
    uint64_t seed = test_random(random);
    pid_t child = fork();
    if (child == 0) {
        close(pipes[0]);
        work(place, pipes[1], seed);
    }
    close(pipes[1]);
    let_work(pipes[0], random);
    if (kill_server) {
        server_kill();
        repair_log();
        /* The child continues while Redis is restarted. */
        CHECK(server_begin());
        let_work(pipes[0], random);
    }
    kill(child, SIGKILL);
    struct event event;
    while (read(pipes[0], &event, sizeof event) == sizeof event)
        record_event(&event);
    close(pipes[0]);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

struct tallied {
    int64_t waiting, under_way, dead, bytes, rows, row_bytes, row_dead;
    uint64_t after;
};

static int count_stats(void *context, const struct weir__queue_stats *stats)
{
    struct tallied *t = context;
    t->waiting += stats->waiting;
    t->under_way += stats->under_way;
    t->dead += stats->dead;
    t->bytes += stats->bytes;
    return 0;
}

static int count_row(void *context, const struct weir__deferred *item)
{
    struct tallied *t = context;
    t->after = item->sequence;
    t->rows += item->state <= WEIR__UNDER_WAY;
    t->row_dead += item->state == WEIR__DEAD;
    return 0;
}

/* The statistics match the stored requests, and the bounds hold. */
static void check_stats(struct weir__queue *queue)
{
    struct tallied t = {0};
    CHECK_EQ(weir__queue_stats(queue, count_stats, &t), 0);
    CHECK(t.waiting + t.under_way <= bounds.max && t.bytes <= bounds.max_bytes);
    for (uint64_t before = UINT64_MAX; t.after != before;) {
        before = t.after;
        CHECK_EQ(weir__queue_list(queue, &(struct weir__queue_filter){.state = -1, .after = t.after, .limit = 1000},
                                  count_row, &t),
                 0);
    }
    CHECK_EQ(t.rows, t.waiting + t.under_way);
    CHECK_EQ(t.row_dead, t.dead);
}

/* Every ticket is there; and all waiting requests are delivered in order, until none is left. */
static void account(const struct place *place)
{
    static struct seen seen;
    struct weir__queue *queue = open_here(place);
    int64_t states[WEIR__DEFERRED_STATES] = {0};
    for (size_t i = 0; i < all_count; i++) {
        int state = state_of(queue, all[i].ticket);
        CHECK(state >= 0);
        if (state >= 0)
            states[state]++;
    }
    check_stats(queue);
    printf("  %zu acknowledged: %d waiting, %d under way, %d delivered, %d dead, %d cancelled\n", all_count,
           (int)states[0], (int)states[1], (int)states[2], (int)states[3], (int)states[4]);
    CHECK(states[WEIR__DELIVERED] + states[WEIR__DEAD] > 0);
    for (int turns = 0; turns < 1000; turns++) {
        seen.count = 0;
        if (weir__queue_claim(
                queue, &(struct weir__claim_request){.now_ms = real_clock() + 1000, .claim_ms = HOUR, .free = 100}, see,
                &seen) <= 0)
            break;
        for (size_t i = 0; i < seen.count; i++) {
            int key = seen.items[i].key.data[0] - 'a';
            CHECK(seen.items[i].sequence > done_up_to[key]);
            done_up_to[key] = seen.items[i].sequence;
            CHECK_EQ(end_delivered(queue, seen.items[i].ticket, 200), 0);
        }
    }
    struct tallied t = {0};
    CHECK_EQ(weir__queue_stats(queue, count_stats, &t), 0);
    CHECK_EQ(t.waiting + t.under_way + t.bytes, 0);
    weir__queue_close(queue);
}

BOTH(killed_at_any_moment_loses_nothing)
{
    struct place place;
    uint64_t random = 4711;
    int64_t kills = test_scaled(200, 20);
    all = calloc(TICKETS, sizeof *all);
    all_count = 0;
    memset(done_up_to, 0, sizeof done_up_to);
    place_new(&place, on_redis, false);
    for (int64_t i = 0; i < kills && all; i++)
        kill_once(&place, &random, on_redis && i % 4 == 3);
    account(&place);
    free(all);
    place_end(&place);
}

TEST_MAIN
