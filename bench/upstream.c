/*
 * An API server of a known capacity: SLOTS requests are processed concurrently, each for SERVICE milliseconds; up to
 * QUEUE others wait in order, and further ones get 503. As in most servers, a request whose client has disconnected is
 * processed nevertheless.
 *
 *     upstream PORT SLOTS SERVICE_MS QUEUE
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FILES_MAX = 65536, REQUESTS_MAX = 65536, EVENTS = 256, ROOM = 4096 };

/* The connection of a request; `number` detects that it was reused. */
struct request {
    int file;
    uint32_t number;
    int64_t until_ns; /* when it is done, once it is worked on */
};

static struct {
    uint32_t number; /* 0: closed */
    size_t len;
    char data[ROOM];
} * connection[FILES_MAX];

/* A ring: [first, busy) are worked on, [busy, last) wait. All take the same time, so they end in their order. */
static struct request ring[REQUESTS_MAX];
static uint64_t first, busy, last;
static uint64_t slots, queue;
static int64_t service_ns;
static int poller;
static uint32_t numbers;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "upstream: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static void answer(int file, const char *status)
{
    char text[256];
    int len = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: 3\r\n\r\nok\n", status);
    (void)!send(file, text, (size_t)len, MSG_NOSIGNAL);
}

static void work(int64_t now)
{
    while (first < busy && ring[first % REQUESTS_MAX].until_ns <= now) {
        const struct request *done = &ring[first++ % REQUESTS_MAX];
        if (connection[done->file] && connection[done->file]->number == done->number)
            answer(done->file, "200 OK");
    }
    for (; busy < last && busy - first < slots; busy++)
        ring[busy % REQUESTS_MAX].until_ns = now + service_ns;
}

static void take(int file)
{
    if (last - busy >= queue || last - first >= REQUESTS_MAX) {
        answer(file, "503 Service Unavailable");
        return;
    }
    ring[last++ % REQUESTS_MAX] = (struct request){file, connection[file]->number, 0};
}

static void leave(int file)
{
    connection[file]->number = 0;
    close(file);
}

static void hear(int file)
{
    ssize_t got = recv(file, connection[file]->data + connection[file]->len, ROOM - 1 - connection[file]->len, 0);
    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR))
            leave(file);
        return;
    }
    connection[file]->len += (size_t)got;
    connection[file]->data[connection[file]->len] = 0;
    char *end;
    while ((end = strstr(connection[file]->data, "\r\n\r\n"))) {
        size_t taken = (size_t)(end + 4 - connection[file]->data);
        connection[file]->len -= taken;
        memmove(connection[file]->data, end + 4, connection[file]->len + 1);
        take(file);
    }
    if (connection[file]->len == ROOM - 1)
        leave(file);
}

static void welcome(int listener)
{
    int file = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (file < 0)
        return;
    if (file < FILES_MAX && !connection[file])
        connection[file] = calloc(1, sizeof **connection);
    if (file >= FILES_MAX || !connection[file]) {
        close(file);
        return;
    }
    connection[file]->number = ++numbers;
    connection[file]->len = 0;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = file};
    epoll_ctl(poller, EPOLL_CTL_ADD, file, &event);
}

static int listen_on(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 4096))
        fail("cannot listen");
    return listener;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return fprintf(stderr, "usage: upstream PORT SLOTS SERVICE_MS QUEUE\n"), 2;
    struct rlimit files = {FILES_MAX, FILES_MAX};
    setrlimit(RLIMIT_NOFILE, &files);
    slots = strtoull(argv[2], NULL, 10);
    service_ns = strtoll(argv[3], NULL, 10) * 1000000;
    queue = strtoull(argv[4], NULL, 10);
    int listener = listen_on((uint16_t)strtol(argv[1], NULL, 10));
    poller = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS];
    if (poller < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event))
        fail("epoll");
    for (;;) {
        struct timespec wait = {1, 0};
        if (first < busy) {
            int64_t left = ring[first % REQUESTS_MAX].until_ns - now_ns();
            left = left < 0 ? 0 : left;
            wait = (struct timespec){left / 1000000000, left % 1000000000};
        }
        int count = epoll_pwait2(poller, events, EVENTS, &wait, NULL);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == listener)
                welcome(listener);
            else
                hear(events[i].data.fd);
        }
        work(now_ns());
    }
}
