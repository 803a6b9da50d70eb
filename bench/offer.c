/*
 * An open-loop load generator: requests of several streams are sent at random times (Poisson) at the rate of the phase,
 * independent of the replies. A client without a reply within the deadline disconnects. Latency is counted from the
 * time at which the request was due, so that a late client does not look fast.
 *
 *     offer PORT DEADLINE_MS PHASE[,PHASE ...] STREAM [STREAM ...]
 *
 * PHASE: seconds x factor ("30x5"). STREAM: name:class:path:rate, where the rate, in requests a second, is multiplied
 * by the phase's factor unless it begins with '=' (then it is the same in all phases). Prints a line of JSON for each
 * second and stream: how many requests were sent, and of those: ok (200 in time), late, denied (429), shed (503),
 * failed, behind; and the latency of each of the ok, in microseconds.
 *
 * Behind: this program was so late that it did not send the request at all. Otherwise a program that is late by the
 * deadline would only open and close connections for ever; if there are any, the machine is too slow for the
 * measurement.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
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

enum { STREAMS = 16, PHASES = 32, SECONDS = 1200, FILES_MAX = 65536, EVENTS = 512, ROOM = 4096, AT_ONCE = 64 };

struct second {
    uint32_t sent, ok, late, denied, shed, failed, behind;
    uint32_t *took_us;
};

struct stream {
    const char *name, *class;
    char request[256];
    size_t len;
    double rate;
    bool fixed;
    double due_s; /* the next one */
    struct second second[SECONDS];
};

static struct {
    int stream; /* -1: idle, -2: closed */
    double due_s;
    size_t len;
    uint64_t order; /* which request of its connection: the entry of the waiting list that is meant */
    char data[ROOM];
} * connection[FILES_MAX];

static struct stream stream[STREAMS];
static int streams, phases, poller;
static struct {
    double seconds, factor;
} phase[PHASES];
static int idle[FILES_MAX], idles;
/* In the order of sending: the request that has waited longest is checked first. */
static struct {
    int file;
    uint64_t order;
} waiting[1 << 20];
static uint64_t waiting_first, waiting_last, orders;
static struct sockaddr_in server;
static double deadline_s, begun_s;
static uint64_t seed = 88172645463325252u;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "offer: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9 - begun_s;
}

static double apart(double rate)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return -log(((double)(seed >> 11) + 1) / 9007199254740993.0) / rate;
}

/* The rate at a moment; 0: it is over. */
static double rate_at(const struct stream *one, double at_s)
{
    double end_s = 0;
    for (int i = 0; i < phases; i++) {
        end_s += phase[i].seconds;
        if (at_s < end_s)
            return one->fixed ? one->rate : one->rate * phase[i].factor;
    }
    return 0;
}

static struct second *second_at(struct stream *one, double due_s)
{
    int at = (int)due_s;
    return &one->second[at < SECONDS ? at : SECONDS - 1];
}

static struct second *second_of(int file)
{
    return second_at(&stream[connection[file]->stream], connection[file]->due_s);
}

static void note_ok(struct second *second, double took_s)
{
    if (second->ok % 64 == 0)
        second->took_us = realloc(second->took_us, (second->ok + 64) * sizeof *second->took_us);
    if (!second->took_us)
        fail("memory");
    second->took_us[second->ok++] = (uint32_t)(took_s * 1e6);
}

/* With a reset: so many ports that wait for their time to be over are not to be had. */
static void drop(int file)
{
    struct linger at_once = {1, 0};
    setsockopt(file, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    connection[file]->stream = -2;
    close(file);
}

static int connect_one(void)
{
    int file = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    if (file < 0 || file >= FILES_MAX)
        return -1;
    setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(file, (struct sockaddr *)&server, sizeof server) && errno != EINPROGRESS) {
        close(file);
        return -1;
    }
    if (!connection[file])
        connection[file] = calloc(1, sizeof **connection);
    if (!connection[file])
        fail("memory");
    connection[file]->stream = -1;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = file};
    epoll_ctl(poller, EPOLL_CTL_ADD, file, &event);
    return file;
}

static void say(int file)
{
    const struct stream *one = &stream[connection[file]->stream];
    if (send(file, one->request, one->len, MSG_NOSIGNAL) != (ssize_t)one->len && errno != EAGAIN && errno != ENOTCONN) {
        second_of(file)->failed++;
        drop(file);
    }
}

static void begin(int which, double due_s)
{
    struct second *second = second_at(&stream[which], due_s);
    bool fresh = idles == 0;
    int file = fresh ? connect_one() : idle[--idles];
    second->sent++;
    if (file < 0) {
        second->failed++;
        return;
    }
    connection[file]->stream = which;
    connection[file]->due_s = due_s;
    connection[file]->len = 0;
    connection[file]->order = ++orders;
    waiting[waiting_last % (1 << 20)].file = file;
    waiting[waiting_last++ % (1 << 20)].order = orders;
    if (!fresh) /* a new connection reports it when it is established */
        say(file);
}

/* The length of the complete reply in the buffer, or 0. */
static size_t answer_len(const char *data)
{
    const char *end = strstr(data, "\r\n\r\n"), *length = strcasestr(data, "\r\ncontent-length:");
    if (!end)
        return 0;
    return (size_t)(end + 4 - data) + (length && length < end ? strtoull(length + 17, NULL, 10) : 0);
}

static void answered(int file, bool keep)
{
    struct second *second = second_of(file);
    int status = (int)strtol(connection[file]->data + 9, NULL, 10);
    double took_s = now_s() - connection[file]->due_s;
    if (status == 200 && took_s <= deadline_s)
        note_ok(second, took_s);
    else if (status == 200)
        second->late++;
    else if (status == 429)
        second->denied++;
    else if (status == 503)
        second->shed++;
    else
        second->failed++;
    if (!keep) {
        drop(file);
        return;
    }
    connection[file]->stream = -1;
    idle[idles++] = file;
}

static void forget_idle(int file)
{
    for (int i = 0; i < idles; i++)
        if (idle[i] == file)
            idle[i--] = idle[--idles];
    drop(file);
}

static void hear(int file)
{
    ssize_t got;
    do {
        got = recv(file, connection[file]->data + connection[file]->len, ROOM - 1 - connection[file]->len, 0);
        if (got > 0)
            connection[file]->len += (size_t)got;
    } while (got > 0 && connection[file]->len < ROOM - 1);
    bool gone = got == 0 || (got < 0 && errno != EAGAIN);
    connection[file]->data[connection[file]->len] = 0;
    if (connection[file]->stream < 0) {
        if (gone)
            forget_idle(file);
        return;
    }
    size_t whole = answer_len(connection[file]->data);
    if (whole && connection[file]->len >= whole)
        answered(file, !gone && !strcasestr(connection[file]->data, "connection: close"));
    else if (gone) {
        second_of(file)->failed++;
        drop(file);
    }
}

static void expire(double now)
{
    for (; waiting_first < waiting_last; waiting_first++) {
        int file = waiting[waiting_first % (1 << 20)].file;
        bool meant =
            connection[file]->stream >= 0 && connection[file]->order == waiting[waiting_first % (1 << 20)].order;
        if (meant && now - connection[file]->due_s <= deadline_s)
            return;
        if (meant) {
            second_of(file)->late++;
            drop(file);
        }
    }
}

static void send_due(double now)
{
    for (int i = 0; i < streams; i++) {
        for (int begun = 0; stream[i].due_s <= now && begun < AT_ONCE;) { /* then replies are read */
            double rate = rate_at(&stream[i], stream[i].due_s);
            if (rate <= 0) {
                stream[i].due_s = 1e18;
                break;
            }
            if (now - stream[i].due_s > deadline_s / 2) {
                second_at(&stream[i], stream[i].due_s)->sent++;
                second_at(&stream[i], stream[i].due_s)->behind++;
            } else {
                begin(i, stream[i].due_s);
                begun++;
            }
            /* By the rate of now: a phase that ends does not leave a long pause of its own behind. */
            stream[i].due_s += apart(rate);
        }
    }
}

static void run(double all_s)
{
    struct epoll_event events[EVENTS];
    for (;;) {
        double now = now_s();
        if (now > all_s + deadline_s + 0.1)
            return;
        send_due(now);
        expire(now);
        double next = now + 0.002;
        for (int i = 0; i < streams; i++)
            next = stream[i].due_s < next ? stream[i].due_s : next;
        double left = next - now_s();
        struct timespec wait = {0, left > 0 ? (long)(left * 1e9) : 0};
        int count = epoll_pwait2(poller, events, EVENTS, &wait, NULL);
        for (int i = 0; i < count; i++) {
            int file = events[i].data.fd;
            if (events[i].events & EPOLLOUT && connection[file]->stream >= 0 && connection[file]->len == 0 &&
                !(events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)))
                say(file);
            if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
                hear(file);
        }
    }
}

static void report(double all_s)
{
    for (int at = 0; at < (int)all_s; at++) {
        for (int i = 0; i < streams; i++) {
            const struct second *s = &stream[i].second[at];
            printf("{\"second\":%d,\"name\":\"%s\",\"class\":\"%s\",\"sent\":%u,\"ok\":%u,\"late\":%u,\"denied\":%u,"
                   "\"shed\":%u,\"failed\":%u,\"behind\":%u,\"took_us\":[",
                   at, stream[i].name, stream[i].class, s->sent, s->ok, s->late, s->denied, s->shed, s->failed,
                   s->behind);
            for (uint32_t j = 0; j < s->ok; j++)
                printf("%s%u", j ? "," : "", s->took_us[j]);
            puts("]}");
        }
    }
}

static void stream_read(char *text, int port)
{
    struct stream *one = &stream[streams++];
    one->name = strsep(&text, ":");
    one->class = strsep(&text, ":");
    const char *path = strsep(&text, ":");
    if (!text || !path)
        fail("a stream is name:class:path:rate");
    one->fixed = *text == '=';
    one->rate = strtod(text + one->fixed, NULL);
    one->len = (size_t)snprintf(one->request, sizeof one->request,
                                "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Tenant: %s\r\n\r\n", path, port, one->name);
    one->due_s = apart(one->rate > 0 ? one->rate : 1);
}

int main(int argc, char **argv)
{
    if (argc < 5 || argc > 4 + STREAMS)
        return fprintf(stderr, "usage: offer PORT DEADLINE_MS PHASES STREAM...\n"), 2;
    struct rlimit files = {FILES_MAX, FILES_MAX};
    setrlimit(RLIMIT_NOFILE, &files);
    server = (struct sockaddr_in){.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)strtol(argv[1], NULL, 10)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    deadline_s = strtod(argv[2], NULL) / 1000;
    double all_s = 0;
    for (char *text = argv[3]; text && phases < PHASES; phases++) {
        const char *one = strsep(&text, ",");
        phase[phases].seconds = strtod(one, NULL);
        phase[phases].factor = strchr(one, 'x') ? strtod(strchr(one, 'x') + 1, NULL) : 1;
        all_s += phase[phases].seconds;
    }
    for (int i = 4; i < argc; i++)
        stream_read(argv[i], (int)strtol(argv[1], NULL, 10));
    poller = epoll_create1(0);
    if (poller < 0 || all_s >= SECONDS)
        fail("cannot begin");
    begun_s = now_s();
    run(all_s);
    report(all_s);
    return 0;
}
