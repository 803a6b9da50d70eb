/*
 * Sends requests to several hosts, each to one at random, as a load balancer would, and records the outcome of each.
 *
 *   spread OUT CLIENTS SECONDS COUNT RATE KEYS SEED PREFIX[,PREFIX…] ADDRESS:PORT…
 *
 * A path is a prefix and a key. COUNT requests go through the keys in turn, and then through them again with the next
 * prefix, so that each path is requested equally often; if COUNT is 0, paths are drawn at random until SECONDS have
 * passed, or SIGTERM comes. RATE is the number of requests sent a second (0: a closed loop, each client sends its next
 * request at once); the latency of each then counts from when it was due, not from when a client was free for it, which
 * avoids coordinated omission. OUT gets a record for each request.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define HOSTS      32
#define PREFIXES   16
#define TIMEOUT_US 10000000 /* of a response; a busy machine may stall for some seconds */

struct record {
    uint64_t begun_us; /* CLOCK_MONOTONIC */
    uint32_t took_us;
    uint32_t key;
    uint16_t status; /* 0: no response */
    uint16_t host;
    uint16_t prefix;
    uint16_t padding;
};

/* A client: one request at a time, over one connection to each host. */
struct client {
    int sockets[HOSTS];
    bool busy;
    unsigned host;
    uint64_t sent_us;
    struct record record;
    size_t have, want; /* bytes of the response; want 0: its headers are not complete */
    char buffer[8192];
};

static struct sockaddr_in hosts[HOSTS];
static unsigned host_count;
static const char *prefixes[PREFIXES];
static unsigned prefix_count;
static uint64_t seed;
static int poller;
static FILE *out;
static uint32_t keys;
static uint64_t failed;
static volatile sig_atomic_t stopping;

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)((seed >> 33) % below);
}

static void finish(struct client *c, unsigned status)
{
    c->record.took_us = (uint32_t)(now_us() - c->record.begun_us);
    c->record.status = (uint16_t)status;
    fwrite(&c->record, sizeof c->record, 1, out);
    c->busy = false;
    failed += !status;
    if (!status || strcasestr(c->buffer, "\r\nconnection: close")) {
        close(c->sockets[c->host]);
        c->sockets[c->host] = -1;
    }
}

static int connected(struct client *c, unsigned at, unsigned host)
{
    if (c->sockets[host] >= 0)
        return c->sockets[host];
    int s = socket(AF_INET, SOCK_STREAM, 0);
    int one = 1;
    if (s < 0 || connect(s, (struct sockaddr *)&hosts[host], sizeof hosts[host]) < 0 ||
        fcntl(s, F_SETFL, O_NONBLOCK) < 0 || setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0) {
        if (s >= 0)
            close(s);
        return -1;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)at << 8 | host};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, s, &event) < 0) {
        close(s);
        return -1;
    }
    return c->sockets[host] = s;
}

static void begin(struct client *clients, unsigned at, uint32_t key, unsigned prefix, uint64_t due_us)
{
    struct client *c = &clients[at];
    c->host = draw(host_count);
    c->busy = true;
    c->have = c->want = 0;
    c->buffer[0] = 0;
    c->sent_us = now_us();
    c->record = (struct record){.begun_us = due_us, .key = key, .host = (uint16_t)c->host};
    c->record.prefix = (uint16_t)prefix;
    char text[512];
    int len = snprintf(text, sizeof text, "GET %s%u HTTP/1.1\r\nHost: x\r\n\r\n", prefixes[c->record.prefix], key);
    int s = connected(c, at, c->host);
    if (s < 0 || send(s, text, (size_t)len, MSG_NOSIGNAL) != len)
        finish(c, 0);
}

/* Length of the response in the buffer, with its headers; 0: not known yet. */
static size_t response_len(const char *text, size_t len)
{
    const char *end = memmem(text, len, "\r\n\r\n", 4);
    if (!end)
        return 0;
    const char *length = strcasestr(text, "\r\ncontent-length:");
    size_t body = length && length < end ? (size_t)strtoul(length + 17, NULL, 10) : 0;
    return (size_t)(end - text) + 4 + body;
}

static void receive(struct client *c, unsigned host)
{
    if (!c->busy || host != c->host) { /* closed while idle: the next request opens another connection */
        char byte;
        if (read(c->sockets[host], &byte, 1) <= 0 && errno != EAGAIN) {
            close(c->sockets[host]);
            c->sockets[host] = -1;
        }
        return;
    }
    ssize_t got = read(c->sockets[host], c->buffer + c->have, sizeof c->buffer - 1 - c->have);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        finish(c, 0);
        return;
    }
    c->have += (size_t)got;
    c->buffer[c->have] = 0;
    if (!c->want)
        c->want = response_len(c->buffer, c->have);
    if (c->want && c->have >= c->want)
        finish(c, (unsigned)strtoul(c->buffer + 9, NULL, 10));
    else if (c->have == sizeof c->buffer - 1)
        finish(c, 0);
}

static void add_host(char *text)
{
    char *colon = strchr(text, ':');
    if (!colon || host_count == HOSTS)
        exit(2);
    *colon = 0;
    hosts[host_count].sin_family = AF_INET;
    hosts[host_count].sin_port = htons((uint16_t)atoi(colon + 1));
    if (inet_pton(AF_INET, text, &hosts[host_count++].sin_addr) != 1)
        exit(2);
}

struct plan {
    uint64_t begun_us, end_us, count, rate, begun;
    unsigned clients;
};

/* Sends the requests that are due by free clients; returns how many clients are busy then. */
static unsigned begin_due(struct client *clients, struct plan *plan)
{
    unsigned busy = 0;
    for (unsigned i = 0; i < plan->clients; i++) {
        struct client *c = &clients[i];
        uint64_t now = now_us();
        if (c->busy && now - c->sent_us > TIMEOUT_US)
            finish(c, 0);
        bool more = plan->count ? plan->begun < plan->count : now < plan->end_us;
        uint64_t due = plan->rate ? plan->begun_us + plan->begun * 1000000 / plan->rate : now;
        if (!c->busy && more && due <= now) {
            uint64_t number = plan->begun++;
            if (plan->count)
                begin(clients, i, (uint32_t)(number % keys), (unsigned)(number / keys % prefix_count), due);
            else
                begin(clients, i, draw(keys), draw(prefix_count), due);
        }
        busy += c->busy;
    }
    return busy;
}

static void on_sigterm(int number)
{
    (void)number;
    stopping = 1;
}

int main(int argc, char **argv)
{
    if (argc < 10)
        return 2;
    out = fopen(argv[1], "wb");
    struct plan plan = {.clients = (unsigned)atoi(argv[2]), .count = strtoull(argv[4], NULL, 10)};
    plan.rate = strtoull(argv[5], NULL, 10);
    keys = (uint32_t)atoi(argv[6]);
    seed = strtoull(argv[7], NULL, 10);
    for (char *one = strtok(argv[8], ","); one && prefix_count < PREFIXES; one = strtok(NULL, ","))
        prefixes[prefix_count++] = one;
    for (int i = 9; i < argc; i++)
        add_host(argv[i]);
    struct client *clients = calloc(plan.clients, sizeof *clients);
    poller = epoll_create1(0);
    if (!out || !clients || poller < 0 || !keys || !prefix_count)
        return 2;
    for (unsigned i = 0; i < plan.clients; i++)
        memset(clients[i].sockets, -1, sizeof clients[i].sockets);
    signal(SIGTERM, on_sigterm);
    plan.begun_us = now_us();
    plan.end_us = plan.begun_us + (uint64_t)(atof(argv[3]) * 1e6);
    unsigned busy;
    while ((busy = begin_due(clients, &plan)) > 0 || (plan.count ? plan.begun < plan.count : now_us() < plan.end_us)) {
        struct epoll_event events[64];
        plan.end_us = stopping ? 0 : plan.end_us;
        int got = epoll_wait(poller, events, 64, plan.rate || busy < plan.clients ? 1 : 100);
        for (int i = 0; i < got; i++)
            receive(&clients[events[i].data.u64 >> 8], (unsigned)(events[i].data.u64 & 255));
    }
    fclose(out);
    printf("%llu requests, %llu without a response\n", (unsigned long long)plan.begun, (unsigned long long)failed);
    return 0;
}
