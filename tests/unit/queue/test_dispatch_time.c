/*
 * The dispatcher over time: slow rules beside fast ones, and an upstream that is unavailable for a minute. Deliveries
 * are real, to a server in the test; the clock is simulated, so that a minute takes no minute.
 */
#include "../../engine.h"

#include "../../awake.h"
#include "queues.h"
#include "queue/dispatcher_internal.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#define PEERS     256
#define ITEMS     256
#define STEP_MS   50
#define PATIENCE  60 /* timeout in seconds, on a busy machine */
#define KEY_LIMIT "limit: 1000000, window: 1s"

static const char rules[] = "rules:\n"
                            "  - { name: slow, match: { path: /* }, key: ip, " KEY_LIMIT " }\n"
                            "  - { name: slow2, match: { path: /* }, key: ip, " KEY_LIMIT " }\n"
                            "  - { name: slow3, match: { path: /* }, key: ip, " KEY_LIMIT " }\n"
                            "  - { name: slow4, match: { path: /* }, key: ip, " KEY_LIMIT " }\n"
                            "  - { name: quick, match: { path: /* }, key: ip, " KEY_LIMIT " }\n";

int64_t weir__dispatcher_clock_ms(void)
{
    return clock_now;
}

/* ---- The upstream ---- */

/* One thread. Requests for /slow block as long as `holds` is set. */
static struct {
    pthread_t thread;
    int listener, port;
    int peers[PEERS];
    size_t peer_count;
    pthread_mutex_t lock; /* protects the following members */
    bool ends, holds;
    int in_flight;
} upstream = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool reads_slow(int peer)
{
    char text[2048];
    ssize_t len = recv(peer, text, sizeof text - 1, MSG_PEEK);
    text[len > 0 ? len : 0] = 0;
    return strncmp(text, "POST /slow", 10) == 0;
}

static void reply_to(int peer)
{
    static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    char request[2048];
    (void)!recv(peer, request, sizeof request, 0);
    (void)!send(peer, text, sizeof text - 1, MSG_NOSIGNAL);
    close(peer);
}

/* Replies to the requests received, or blocks them; returns the number of blocked ones. */
static int serve_peers(bool holds)
{
    int in_flight = 0;
    size_t kept = 0;
    for (size_t i = 0; i < upstream.peer_count; i++) {
        struct pollfd look = {.fd = upstream.peers[i], .events = POLLIN};
        bool readable = poll(&look, 1, 0) > 0, slow = readable && reads_slow(look.fd);
        in_flight += slow;
        if (!readable || (slow && holds))
            upstream.peers[kept++] = look.fd;
        else
            reply_to(look.fd);
    }
    upstream.peer_count = kept;
    return in_flight;
}

static void *serve(void *context)
{
    bool ends = false;
    (void)context;
    while (!ends) {
        struct pollfd look = {.fd = upstream.listener, .events = POLLIN};
        if (poll(&look, 1, 2) > 0 && upstream.peer_count < PEERS)
            upstream.peers[upstream.peer_count++] = accept(upstream.listener, NULL, NULL);
        pthread_mutex_lock(&upstream.lock);
        ends = upstream.ends;
        bool holds = upstream.holds;
        pthread_mutex_unlock(&upstream.lock);
        int in_flight = serve_peers(holds);
        pthread_mutex_lock(&upstream.lock);
        upstream.in_flight = in_flight;
        pthread_mutex_unlock(&upstream.lock);
    }
    while (upstream.peer_count > 0)
        close(upstream.peers[--upstream.peer_count]);
    return NULL;
}

static void hold(bool holds)
{
    pthread_mutex_lock(&upstream.lock);
    upstream.holds = holds;
    pthread_mutex_unlock(&upstream.lock);
}

static int in_flight(void)
{
    pthread_mutex_lock(&upstream.lock);
    int count = upstream.in_flight;
    pthread_mutex_unlock(&upstream.lock);
    return count;
}

/* Reserves a port; nothing accepts there until upstream_begin. */
static void upstream_find(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    upstream.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(bind(upstream.listener, (struct sockaddr *)&at, len), 0);
    CHECK_EQ(getsockname(upstream.listener, (struct sockaddr *)&at, &len), 0);
    upstream.port = ntohs(at.sin_port);
}

static void upstream_begin(void)
{
    upstream.ends = false;
    CHECK_EQ(listen(upstream.listener, PEERS), 0);
    CHECK_EQ(pthread_create(&upstream.thread, NULL, serve, NULL), 0);
}

static void upstream_end(void)
{
    pthread_mutex_lock(&upstream.lock);
    upstream.ends = true;
    pthread_mutex_unlock(&upstream.lock);
    pthread_join(upstream.thread, NULL);
    close(upstream.listener);
}

/* ---- The dispatcher ---- */

static struct place place;
static char url[64];
static const struct weir__logger test_log = {.file = 2};
static struct weir__config config;
static struct weir__dispatcher dispatcher;
static char tickets[ITEMS][WEIR__TICKET_LEN + 1];
static size_t ticket_count;

static void begin(bool on_redis)
{
    place_new(&place, on_redis, true);
    upstream_find();
    snprintf(url, sizeof url, "http://127.0.0.1:%d", upstream.port);
    config = (struct weir__config){.state_path = "/tmp", .queue = {.wanted = true, .database = "", .retries = 8}};
    dispatcher = (struct weir__dispatcher){.config = &config,
                                           .log = &test_log,
                                           .engine = test_engine(rules),
                                           .to = {.url = url, .timeout_ms = 60000},
                                           .lock_fd = -1,
                                           .waiting = 1,
                                           .multi = curl_multi_init()};
    dispatcher.queue = place_open(&place, (struct weir__queue_options){.name = "test"});
    ticket_count = 0;
}

static void end(void)
{
    weir__dispatcher_requeue_all(&dispatcher);
    weir__dispatcher_close(&dispatcher);
    weir_close(dispatcher.engine);
    upstream_end();
    place_end(&place);
}

/* Puts one request for each of so many keys; returns the index of the first ticket. */
static size_t put_keys(const char *rule, const char *target, int keys)
{
    size_t first = ticket_count;
    for (int i = 0; i < keys && ticket_count < ITEMS; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        struct weir__deferred item = item_of(rule, key, "");
        item.target = text_of(target);
        CHECK_EQ(put_one(dispatcher.queue, item, (struct weir__queue_bounds){0}, tickets[ticket_count++]), 0);
    }
    return first;
}

static int count_state(size_t from, size_t to, enum weir__deferred_state state)
{
    int count = 0;
    for (size_t i = from; i < to; i++)
        count += state_of(dispatcher.queue, tickets[i]) == (int)state;
    return count;
}

/* One iteration of the dispatcher's thread. */
static void dispatch_step(void)
{
    int woken;
    clock_now += STEP_MS;
    if (clock_now >= dispatcher.next_claim_ms)
        weir__dispatcher_claim(&dispatcher, clock_now);
    (void)weir__dispatcher_poll_timers(&dispatcher, clock_now);
    weir__dispatcher_receive(&dispatcher);
    (void)curl_multi_poll(dispatcher.multi, NULL, 0, 1, &woken);
}

static int in_state(enum weir__delivery_state state)
{
    int count = 0;
    for (size_t i = 0; i < WEIR__DISPATCHER_DELIVERIES; i++)
        count += dispatcher.delivery[i].state == state;
    return count;
}

/* Iterates until so many requests block at the upstream, or tickets `from` to `to` are delivered. */
static bool steps_until(int blocked, size_t from, size_t to)
{
    double until = awake_seconds() + PATIENCE;
    while (awake_seconds() < until) {
        dispatch_step();
        if (blocked >= 0 ? in_flight() == blocked : count_state(from, to, WEIR__DELIVERED) == (int)(to - from))
            return true;
    }
    return false;
}

/* ---- The tests ---- */

/* All deliveries of a rule hang, and it has more keys than fit: other rules are not affected. */
BOTH(slow_rule_leaves_room_for_others)
{
    begin(on_redis);
    upstream_begin();
    hold(true);
    put_keys("slow", "/slow", 64);
    CHECK(steps_until(WEIR__DISPATCHER_DELIVERIES / 2, 0, 0));
    for (int round = 0; round < 3; round++) {
        size_t first = put_keys("quick", "/quick", 8);
        CHECK(steps_until(-1, first, first + 8));
        CHECK_EQ(in_flight(), WEIR__DISPATCHER_DELIVERIES / 2);
        CHECK_EQ(count_state(0, 64, WEIR__DELIVERED), 0);
    }
    hold(false);
    CHECK(steps_until(-1, 0, 64));
    end();
}

/* Each slow rule takes half of the remaining room: there is some for the next. */
BOTH(several_slow_rules_leave_room_for_others)
{
    static const char *const slow[] = {"slow", "slow2", "slow3", "slow4"};
    int expected = 0;
    begin(on_redis);
    upstream_begin();
    hold(true);
    for (int i = 0; i < 4; i++) {
        expected += WEIR__DISPATCHER_DELIVERIES >> (i + 1);
        put_keys(slow[i], "/slow", 40);
        CHECK(steps_until(expected, 0, 0));
    }
    size_t first = put_keys("quick", "/quick", 8);
    CHECK(steps_until(-1, first, first + 8));
    CHECK_EQ(in_flight(), expected);
    hold(false);
    CHECK(steps_until(-1, 0, ticket_count));
    end();
}

static int most_attempts, all_attempts;

static int note_attempts(void *context, const struct weir__deferred *item)
{
    (void)context;
    most_attempts = item->attempts > most_attempts ? item->attempts : most_attempts;
    all_attempts += item->attempts;
    return 0;
}

/* Many keys, eight retries each, and an upstream that is unavailable for a minute: no retries are used up, and then
 * all are delivered. */
BOTH(minute_without_an_upstream_uses_no_retries)
{
    enum { KEYS = 60 };
    begin(on_redis);
    put_keys("slow", "/x", KEYS);
    put_keys("quick", "/x", KEYS);
    double patience = awake_seconds() + PATIENCE;
    for (int64_t until = clock_now + 60000; clock_now < until && awake_seconds() < patience;) {
        dispatch_step();
        /* Sent requests fail immediately by the test's clock. */
        while (in_state(WEIR__DELIVERY_SENT) > 0 && awake_seconds() < patience)
            weir__dispatcher_receive(&dispatcher);
    }
    CHECK_EQ(count_state(0, ticket_count, WEIR__WAITING), ticket_count);
    most_attempts = all_attempts = 0;
    for (size_t i = 0; i < ticket_count; i++)
        CHECK_EQ(weir__queue_find(dispatcher.queue, tickets[i], note_attempts, NULL), 0);
    printf("  a minute away: %d attempts for %d requests of two rules, %d at most for one\n", all_attempts, 2 * KEYS,
           most_attempts);
    CHECK(most_attempts <= 4);
    CHECK(all_attempts >= 2 * WEIR__RULE_BREAKER_FAILURES && all_attempts <= WEIR__DISPATCHER_DELIVERIES + 20);
    upstream_begin();
    CHECK(steps_until(-1, 0, ticket_count));
    end();
}

TEST_MAIN
