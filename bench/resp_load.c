/*
 * A load generator for the Redis protocol that needs far less processor time than any server needs for a command, so
 * that the server is measured and not the client: pipelines are formatted beforehand, replies are counted by their
 * lines, and it never sleeps. All servers are measured the same way.
 *
 *     resp_load PORT CONNECTIONS PIPELINE SECONDS KEYS LINES COMMAND [ARGUMENT …]
 *
 * LINES: of one reply. An argument "@name" is one of KEYS keys, name:00000042, drawn for each command. Each connection
 * has one pipeline in flight. Prints commands a second, and the 50th, 99th and 99.9th percentile of a pipeline's
 * latency, in microseconds.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* PIPELINES made beforehand: COMMANDS of them in all, so that keys repeat no sooner than that. */
enum { CONNECTIONS_MAX = 1024, COMMANDS = 1 << 18, REPLIES_ROOM = 1 << 18, SLOTS = 64 * 32 };

struct text {
    char *data;
    size_t len, room;
};

struct connection {
    int socket;
    size_t sent, len; /* of the pipeline under way */
    const char *data;
    uint64_t lines; /* of its replies that have not come */
    int64_t since_ns;
};

static struct {
    size_t connections, pipeline, keys, lines, pipelines, next;
    struct text text;
    size_t *start; /* of each pipeline, and the end of the last */
    struct connection connection[CONNECTIONS_MAX];
    uint64_t commands;
    uint64_t took[SLOTS]; /* pipelines, by how long they took: 32 slots from each power of two to the next */
} load;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "resp_load: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static uint64_t next_random(void)
{
    static uint64_t state = 88172645463325252;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* ---- What is sent ---- */

static void append(struct text *text, const char *data, size_t len)
{
    if (text->room - text->len < len) {
        text->room = 2 * (text->room + len);
        text->data = realloc(text->data, text->room);
        if (!text->data)
            fail("no memory");
    }
    memcpy(text->data + text->len, data, len);
    text->len += len;
}

static void append_word(struct text *text, const char *word)
{
    char head[32], key[32];
    if (word[0] == '@') {
        snprintf(key, sizeof key, "%.16s:%08u", word + 1, (unsigned)(next_random() % load.keys));
        word = key;
    }
    append(text, head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", strlen(word)));
    append(text, word, strlen(word));
    append(text, "\r\n", 2);
}

static void make_pipelines(char **words, int count)
{
    char head[32];
    load.pipelines = COMMANDS / load.pipeline;
    load.start = calloc(load.pipelines + 1, sizeof *load.start);
    if (!load.start)
        fail("no memory");
    for (size_t i = 0; i < load.pipelines; i++) {
        for (size_t command = 0; command < load.pipeline; command++) {
            append(&load.text, head, (size_t)snprintf(head, sizeof head, "*%d\r\n", count));
            for (int word = 0; word < count; word++)
                append_word(&load.text, words[word]);
        }
        load.start[i + 1] = load.text.len;
    }
}

/* ---- Latencies ---- */

static size_t slot_of(int64_t ns)
{
    uint64_t value = ns > 32 ? (uint64_t)ns : 32;
    unsigned power = 63U - (unsigned)__builtin_clzll(value);
    return (size_t)power * 32 + (size_t)(value >> (power - 5) & 31);
}

/* The upper end of the slot that the part of all pipelines falls into. */
static double quantile_us(double part)
{
    uint64_t all = 0, seen = 0;
    for (size_t i = 0; i < SLOTS; i++)
        all += load.took[i];
    for (size_t i = 0; i < SLOTS; i++) {
        seen += load.took[i];
        if (seen && (double)seen >= part * (double)all)
            return (double)((uint64_t)(33 + i % 32) << (i / 32 - 5)) / 1000;
    }
    return 0;
}

/* ---- A connection ---- */

static void flush(struct connection *c)
{
    while (c->sent < c->len) {
        ssize_t n = send(c->socket, c->data + c->sent, c->len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            fail("cannot send");
        c->sent += (size_t)n;
    }
}

static void begin(struct connection *c, int64_t now)
{
    size_t at = load.next++ % load.pipelines;
    c->data = load.text.data + load.start[at];
    c->len = load.start[at + 1] - load.start[at];
    c->sent = 0;
    c->lines = load.pipeline * load.lines;
    c->since_ns = now;
    flush(c);
}

/* Lines that end in `data`. An error, a line that begins with '-', ends the measurement: what is measured must work. */
static uint64_t count_lines(const char *data, size_t len)
{
    uint64_t lines = 0, errors = data[0] == '-';
    for (size_t i = 0; i < len; i++)
        lines += data[i] == '\n';
    for (size_t i = 1; i < len; i++)
        errors += (data[i] == '-') & (data[i - 1] == '\n');
    errno = 0;
    if (errors)
        fail("the server replied with an error");
    return lines;
}

/* Returns whether there may be more. */
static bool receive(struct connection *c, bool counts)
{
    static char replies[REPLIES_ROOM];
    ssize_t n = recv(c->socket, replies, sizeof replies, 0);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0)
        fail("the server closed a connection");
    uint64_t lines = count_lines(replies, (size_t)n);
    if (lines > c->lines)
        fail("more lines of replies than expected");
    c->lines -= lines;
    if (c->lines)
        return n == sizeof replies;
    int64_t now = now_ns();
    if (counts) {
        load.commands += load.pipeline;
        load.took[slot_of(now - c->since_ns)]++;
    }
    begin(c, now);
    return false;
}

static void open_connections(int epoll, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    for (size_t i = 0; i < load.connections; i++) {
        struct connection *c = &load.connection[i];
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
        c->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (c->socket < 0 || connect(c->socket, (struct sockaddr *)&to, sizeof to) < 0)
            fail("cannot connect");
        setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (fcntl(c->socket, F_SETFL, O_NONBLOCK) < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, c->socket, &event) < 0)
            fail("cannot watch a connection");
    }
}

int main(int argc, char **argv)
{
    if (argc < 8)
        fail("PORT CONNECTIONS PIPELINE SECONDS KEYS LINES COMMAND [ARGUMENT …]");
    load.connections = strtoul(argv[2], NULL, 10);
    load.pipeline = strtoul(argv[3], NULL, 10);
    load.keys = strtoul(argv[5], NULL, 10);
    load.lines = strtoul(argv[6], NULL, 10);
    if (!load.connections || load.connections > CONNECTIONS_MAX || !load.pipeline || load.pipeline > COMMANDS ||
        !load.keys || !load.lines)
        fail("a number is out of range");
    make_pipelines(argv + 7, argc - 7);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    open_connections(epoll, (uint16_t)strtoul(argv[1], NULL, 10));

    int64_t begun = now_ns(), warm = begun + 100000000, end = warm + (int64_t)(strtod(argv[4], NULL) * 1e9), now;
    for (size_t i = 0; i < load.connections; i++)
        begin(&load.connection[i], begun);
    while ((now = now_ns()) < end) {
        struct epoll_event events[256];
        int count = epoll_wait(epoll, events, 256, 0);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT)
                flush(c);
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                while (receive(c, now >= warm))
                    ;
        }
    }
    printf("%.0f %.1f %.1f %.1f\n", (double)load.commands / ((double)(now - warm) / 1e9), quantile_us(0.5),
           quantile_us(0.99), quantile_us(0.999));
    return 0;
}
