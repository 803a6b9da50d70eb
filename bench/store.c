/*
 * Strict decisions as a worker makes them: the client of the store on one socket, with a number of requests in flight,
 * each under a key of its own.
 *
 *   store HOST PORT IN_FLIGHT KEYS SECONDS    decisions a second, and their latency: for bench/store.py
 *   store HOST PORT IN_FLIGHT KEYS fill       each key twice, under a limit from which no key recovers meanwhile
 */
#include "remote/client.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define IN_FLIGHT_MAX 1024
#define TIMES         100000 /* a counter for each microsecond of latency */

struct slot {
    struct weir__store_request request;
    struct weir__group group;
    struct weir__store_op ask;
    int64_t asked_us;
};

static struct weir__client *client;
static int sockets[WEIR__CHANNELS];
static bool wants_out[WEIR__CHANNELS], is_open[WEIR__CHANNELS];
static int64_t wake_us = INT64_MAX, end_us;
static struct slot slots[IN_FLIGHT_MAX];
static weir_limit limit;
static uint64_t keys, drawn, done_count, failed, denied, to_fill;
static int last_error;
static uint32_t times[TIMES];

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "bench/store: %s\n", what);
    exit(1);
}

static void ask(struct slot *slot, int64_t now)
{
    if (to_fill ? drawn == to_fill : now >= end_us)
        return;
    /* As redis-benchmark draws them: any of them, or one after the other when they are filled in. */
    static uint64_t seed = 7;
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    uint64_t key = to_fill ? drawn % keys : (seed >> 33) % keys;
    drawn++;
    struct weir__store_op *one = &slot->ask;
    *one = (struct weir__store_op){.limit = limit, .kind = WEIR__OP_TAKE, .cost = 1};
    one->name_len = (uint16_t)snprintf(one->name, sizeof one->name, "weir:api:%012llu", (unsigned long long)key);
    slot->group = (struct weir__group){.first = 0, .count = 1};
    slot->request = (struct weir__store_request){
        .ops = one, .op_count = 1, .groups = &slot->group, .group_count = 1, .owner = slot};
    slot->asked_us = now;
    weir__client_submit(client, &slot->request, now);
}

static void on_done(void *context, struct weir__store_request *request)
{
    (void)context;
    struct slot *slot = request->owner;
    int64_t now = now_us(), took = now - slot->asked_us;
    times[took < TIMES ? took : TIMES - 1]++;
    done_count++;
    if (request->error || slot->ask.error) {
        failed++;
        last_error = request->error ? request->error : slot->ask.error;
    } else {
        denied += slot->ask.decision.verdict != WEIR_ALLOW;
    }
    ask(slot, now);
}

static void on_open(void *context, unsigned channel, const char *host, uint16_t port)
{
    (void)context;
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;
    if (getaddrinfo(host, service, &hints, &found))
        fail("no address");
    int s = socket(found->ai_family, SOCK_STREAM, 0), one = 1;
    if (s < 0 || connect(s, found->ai_addr, found->ai_addrlen) || fcntl(s, F_SETFL, O_NONBLOCK) ||
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
        fail("cannot connect");
    freeaddrinfo(found);
    sockets[channel] = s;
    is_open[channel] = false; /* reported by the loop, not from within the client */
}

static void on_close(void *context, unsigned channel)
{
    (void)context;
    close(sockets[channel]);
    sockets[channel] = -1;
}

static void on_send(void *context, unsigned channel)
{
    (void)context;
    wants_out[channel] = true;
}

static void on_wake(void *context, int64_t at_us)
{
    (void)context;
    wake_us = at_us;
}

static void on_changed(void *context, bool up, int error, const char *where)
{
    (void)context;
    if (!up)
        fprintf(stderr, "bench/store: %s is unavailable: %s\n", where, weir_strerror(error));
}

static void send_out(unsigned channel)
{
    size_t len;
    const char *data;
    while (sockets[channel] >= 0 && (data = weir__client_output(client, channel, &len)) && len > 0) {
        ssize_t sent = send(sockets[channel], data, len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return;
        if (sent <= 0)
            fail("the connection has ended");
        weir__client_sent(client, channel, (size_t)sent, now_us());
    }
    wants_out[channel] = false;
}

static void turn(void)
{
    static char buffer[1 << 18];
    struct pollfd polled[WEIR__CHANNELS];
    for (unsigned i = 0; i < WEIR__CHANNELS; i++) {
        if (sockets[i] >= 0 && !is_open[i]) {
            is_open[i] = true;
            weir__client_opened(client, i, now_us());
        }
        if (sockets[i] >= 0 && wants_out[i])
            send_out(i);
        polled[i] = (struct pollfd){.fd = sockets[i], .events = (short)(POLLIN | (wants_out[i] ? POLLOUT : 0))};
    }
    int64_t left = wake_us == INT64_MAX ? 100000 : wake_us - now_us();
    if (poll(polled, WEIR__CHANNELS, left <= 0 ? 0 : (int)(left / 1000 + 1)) < 0)
        fail("poll");
    for (unsigned i = 0; i < WEIR__CHANNELS; i++)
        if (polled[i].fd >= 0 && (polled[i].revents & POLLIN) && polled[i].fd == sockets[i]) {
            ssize_t got = recv(sockets[i], buffer, sizeof buffer, 0);
            if (got <= 0 && errno != EAGAIN)
                fail("the connection has ended");
            if (got > 0)
                weir__client_received(client, i, buffer, (size_t)got, now_us());
        }
    if (now_us() >= wake_us) {
        wake_us = INT64_MAX;
        weir__client_tick(client, now_us());
    }
    weir__client_flush(client, now_us());
}

static unsigned quantile(double part)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < TIMES; i++)
        if ((double)(seen += times[i]) >= part * (double)done_count)
            return i;
    return TIMES;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    struct weir__store_options options;
    char url[256], why[256];
    snprintf(url, sizeof url, "redis://%s:%s?deadline=5s", argv[1], argv[2]);
    if (weir__store_parse(url, &options, why, sizeof why))
        fail(why);
    /* 10 a second, 10,000 at once, as the Lua script is called. */
    weir_params params = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .window_ns = 1000000000, .burst = 10000};
    bool fill = strcmp(argv[5], "fill") == 0;
    if (fill)
        params.window_ns *= 3600;
    if (weir_limit_init(&limit, &params))
        fail("the limit");
    unsigned in_flight = (unsigned)atoi(argv[3]);
    keys = strtoull(argv[4], NULL, 10);
    if (!in_flight || in_flight > IN_FLIGHT_MAX || !keys)
        return 2;
    for (unsigned i = 0; i < WEIR__CHANNELS; i++)
        sockets[i] = -1;
    struct weir__driver driver = {NULL, on_open, on_close, on_send, on_wake, on_done, on_changed, .heartbeat_us = 0};
    int64_t begun = now_us();
    client = weir__client_new(&options, &driver, 1, begun);
    if (!client)
        fail("no memory");
    to_fill = fill ? 2 * keys : 0;
    end_us = begun + (int64_t)(atof(argv[5]) * 1e6);
    for (unsigned i = 0; i < in_flight; i++)
        ask(&slots[i], begun);
    weir__client_flush(client, begun);
    while (done_count < drawn)
        turn();
    double seconds = (double)(now_us() - begun) / 1e6;
    if (failed)
        fprintf(stderr, "bench/store: %llu failed: %s\n", (unsigned long long)failed, weir_strerror(last_error));
    struct weir__client_stats stats;
    weir__client_stats_read(client, &stats);
    printf("{\"rate\": %.0f, \"p50\": %u, \"p99\": %u, \"failed\": %llu, \"denied\": %llu, \"commands\": %llu, "
           "\"bytes\": %llu}\n",
           (double)done_count / seconds, quantile(0.5), quantile(0.99), (unsigned long long)failed,
           (unsigned long long)denied, (unsigned long long)stats.commands,
           (unsigned long long)(stats.bytes_in + stats.bytes_out));
    weir__client_free(client);
    return failed != 0;
}
