/* The blocking client: see client.h. */
#include "remote/client.h"
#include "base/clock.h"
#include "remote/socket.h"
#include "engine/store_request.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <weir/store.h>

#define CHUNKS_MAX 64 /* chunks read from one connection before the others are served */

struct weir__blocking_client {
    const struct weir__store_options *options;
    struct weir__client *client;
    SSL_CTX *tls;
    bool tls_doubted; /* a certificate was refused: read the files again */
    pid_t pid;
    int64_t wake_us;
    int64_t worked_us; /* end of the last poll_once */
    int64_t looked_us; /* when a caller last waited for a probe */
    size_t waiting;    /* requests in flight */
    void (*changed)(void *context, bool up, int error, const char *where);
    void *changed_context;
    struct weir__socket sockets[WEIR__CHANNELS];
    bool output[WEIR__CHANNELS];
    uint64_t opens[WEIR__CHANNELS]; /* how often each was opened: distinguishes a reopened channel from the one that was
                                       polled */
    char data[65536];
};

/*
 * Reads certificates and keys, again for each connection until that succeeds, and after a certificate was refused (they
 * are renewed while programs run).
 */
static void read_certificates(struct weir__blocking_client *blocking)
{
    if (!blocking->options->tls || (blocking->tls && !blocking->tls_doubted))
        return;
    SSL_CTX *read = weir__tls_context_new(blocking->options);
    if (!read)
        return;
    SSL_CTX_free(blocking->tls);
    blocking->tls = read;
    blocking->tls_doubted = false;
}

/* ---- The driver ---- */

static void on_open(void *context, unsigned channel, const char *host, uint16_t port)
{
    struct weir__blocking_client *blocking = context;
    struct weir__socket *opened = &blocking->sockets[channel];

    blocking->output[channel] = false;
    blocking->opens[channel]++;
    read_certificates(blocking);
    if (blocking->options->tls && !blocking->tls)
        *opened = (struct weir__socket){.state = WEIR__SOCKET_FAILED, .fd = -1, .error = WEIR_ESTOREAUTH};
    else
        weir__socket_open(opened, blocking->options, host, port);
    /* A failure is reported by the next poll_once: the driver must not call the client from here. */
}

static void on_close(void *context, unsigned channel)
{
    struct weir__blocking_client *blocking = context;

    weir__socket_close(&blocking->sockets[channel]);
}

static void on_send(void *context, unsigned channel)
{
    struct weir__blocking_client *blocking = context;

    blocking->output[channel] = true;
}

static void on_wake(void *context, int64_t at_us)
{
    struct weir__blocking_client *blocking = context;

    blocking->wake_us = at_us;
}

static void on_done(void *context, struct weir__store_request *request)
{
    struct weir__blocking_client *blocking = context;

    (void)request;
    blocking->waiting--;
}

static void on_changed(void *context, bool up, int error, const char *where)
{
    struct weir__blocking_client *blocking = context;

    if (blocking->changed)
        blocking->changed(blocking->changed_context, up, error, where);
}

/* ---- Creation ---- */

static bool begin(struct weir__blocking_client *blocking)
{
    const struct weir__driver driver = {.context = blocking,
                                        .open = on_open,
                                        .close = on_close,
                                        .send = on_send,
                                        .wake = on_wake,
                                        .done = on_done,
                                        .changed = on_changed};
    uint64_t seed = 0;

    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
        seed = (uint64_t)weir__monotonic_us() ^ (uint64_t)getpid() << 32;
    for (unsigned i = 0; i < WEIR__CHANNELS; i++)
        blocking->sockets[i] = (struct weir__socket){.fd = -1};
    blocking->pid = getpid();
    blocking->wake_us = INT64_MAX;
    blocking->worked_us = weir__monotonic_us();
    blocking->looked_us = 0;
    blocking->waiting = 0;
    blocking->client = weir__client_new(blocking->options, &driver, seed, weir__monotonic_us());
    return blocking->client != NULL;
}

struct weir__blocking_client *weir__blocking_client_new(const struct weir__store_options *options)
{
    struct weir__blocking_client *blocking = calloc(1, sizeof(*blocking));

    if (!blocking)
        return NULL;
    blocking->options = options;
    if (!begin(blocking)) {
        free(blocking);
        return NULL;
    }
    return blocking;
}

void weir__blocking_client_free(struct weir__blocking_client *blocking)
{
    if (!blocking)
        return;
    weir__client_free(blocking->client);
    SSL_CTX_free(blocking->tls);
    free(blocking);
}

void weir__blocking_client_on_change(struct weir__blocking_client *blocking,
                                     void (*changed)(void *context, bool up, int error, const char *where),
                                     void *context)
{
    blocking->changed = changed;
    blocking->changed_context = context;
}

/* After a fork: closes the copies of the parent's sockets, with its client, and starts anew. False: no memory. */
static bool belongs_here(struct weir__blocking_client *blocking)
{
    if (blocking->client && blocking->pid == getpid())
        return true;
    weir__client_free(blocking->client);
    return begin(blocking);
}

/* ---- Polling ---- */

static void over(struct weir__blocking_client *blocking, unsigned channel, int error)
{
    weir__socket_close(&blocking->sockets[channel]);
    blocking->tls_doubted |= error == WEIR_ESTOREAUTH;
    weir__client_closed(blocking->client, channel, error, weir__monotonic_us());
}

static void send_some(struct weir__blocking_client *blocking, unsigned channel)
{
    struct weir__socket *to = &blocking->sockets[channel];

    for (int i = 0; i < CHUNKS_MAX && to->state == WEIR__SOCKET_OPEN; i++) {
        size_t len;
        const char *data = weir__client_output(blocking->client, channel, &len);
        long sent = weir__socket_send(to, data, len);
        if (sent < 0) {
            over(blocking, channel, (int)sent);
            return;
        }
        if (len == 0)
            blocking->output[channel] = false;
        if (sent == 0)
            return;
        weir__client_sent(blocking->client, channel, (size_t)sent, weir__monotonic_us());
    }
}

static void receive_some(struct weir__blocking_client *blocking, unsigned channel)
{
    struct weir__socket *from = &blocking->sockets[channel];

    for (int i = 0; i < CHUNKS_MAX && from->state == WEIR__SOCKET_OPEN; i++) {
        long got = weir__socket_receive(from, blocking->data, sizeof(blocking->data));
        if (got < 0)
            over(blocking, channel, (int)got);
        if (got <= 0)
            return;
        weir__client_received(blocking->client, channel, blocking->data, (size_t)got, weir__monotonic_us());
        if ((size_t)got < sizeof(blocking->data) && !from->tls)
            return;
    }
}

static void handle(struct weir__blocking_client *blocking, unsigned channel, short events)
{
    struct weir__socket *with = &blocking->sockets[channel];

    if (with->state == WEIR__SOCKET_CONNECTING || with->state == WEIR__SOCKET_SHAKING) {
        if (events)
            weir__socket_ready(with, blocking->tls);
        if (with->state == WEIR__SOCKET_OPEN) {
            weir__client_opened(blocking->client, channel, weir__monotonic_us());
            receive_some(blocking, channel); /* the TLS handshake may have read application data */
            send_some(blocking, channel);
            return;
        }
    }
    if (with->state == WEIR__SOCKET_FAILED) {
        over(blocking, channel, with->error);
        return;
    }
    /* TLS may have to write before it can read. */
    if (events & (POLLIN | POLLHUP | POLLERR) || (events && with->tls))
        receive_some(blocking, channel);
    if (events & POLLOUT || blocking->output[channel])
        send_some(blocking, channel);
}

/* Polls until `until_us` at most, and handles what happened. */
static void poll_once(struct weir__blocking_client *blocking, int64_t until_us)
{
    struct pollfd polled[WEIR__CHANNELS]; /* poll ignores those without a socket: their fd is -1 */
    uint64_t opens[WEIR__CHANNELS];
    unsigned count = 0; /* up to the last with a socket: poll refuses more than the limit of open files */
    int64_t now_us = weir__monotonic_us(), rested_us = now_us - blocking->worked_us;

    until_us = blocking->wake_us < until_us ? blocking->wake_us : until_us;
    for (unsigned i = 0; i < WEIR__CHANNELS; i++) {
        const struct weir__socket *with = &blocking->sockets[i];
        if (with->state == WEIR__SOCKET_FAILED)
            until_us = 0;
        polled[i] = (struct pollfd){.fd = with->fd, .events = weir__socket_events(with, blocking->output[i])};
        opens[i] = blocking->opens[i];
        count = with->fd >= 0 ? i + 1 : count;
    }
    int64_t wait_us = until_us > now_us ? until_us - now_us : 0;
    /* at most a minute, which keeps the arithmetic in range */
    wait_us = wait_us > 60000000 ? 60000000 : wait_us;
    struct timespec wait = {.tv_sec = (time_t)(wait_us / 1000000), .tv_nsec = (long)(wait_us % 1000000) * 1000};
    bool failed = ppoll(polled, count, &wait, NULL) < 0;
    for (unsigned i = 0; i < WEIR__CHANNELS; i++) {
        short events = failed ? 0 : polled[i].revents;
        if (blocking->opens[i] != opens[i])
            continue;
        if (events)
            weir__client_paused(blocking->client, i, rested_us);
        handle(blocking, i, events);
    }
    now_us = weir__monotonic_us();
    if (now_us >= blocking->wake_us)
        weir__client_tick(blocking->client, now_us);
    blocking->worked_us = weir__monotonic_us();
}

/*
 * Nothing polls between calls, so a probe that is in flight is not noticed to have succeeded. The caller waits for it,
 * at most for the deadline and once in retry_max.
 */
static void wait_for_probe(struct weir__blocking_client *blocking, const struct weir__store_request *request)
{
    int64_t now_us = weir__monotonic_us(), until_us = now_us + blocking->options->deadline_us;

    if (request->deadline_us > 0 && request->deadline_us < until_us)
        until_us = request->deadline_us;
    if (now_us - blocking->looked_us < blocking->options->retry_max_us ||
        !weir__client_probing(blocking->client, request))
        return;
    while (weir__monotonic_us() < until_us && weir__client_probing(blocking->client, request))
        poll_once(blocking, until_us);
    blocking->looked_us = weir__monotonic_us();
}

/* Sends what can be sent without blocking. */
static void flush(struct weir__blocking_client *blocking)
{
    weir__client_flush(blocking->client, weir__monotonic_us());
    for (unsigned i = 0; i < WEIR__CHANNELS; i++)
        if (blocking->output[i])
            send_some(blocking, i);
}

int weir__blocking_client_request_all(struct weir__blocking_client *blocking,
                                      struct weir__store_request *const *requests, size_t count)
{
    int error = 0;

    if (!belongs_here(blocking)) {
        for (size_t i = 0; i < count; i++)
            requests[i]->error = WEIR_ENOMEM;
        return count > 0 ? WEIR_ENOMEM : 0;
    }
    /* Handles events since the last call first: the request must not go to a connection that the server has closed. */
    poll_once(blocking, 0);
    for (size_t i = 0; i < count; i++) {
        wait_for_probe(blocking, requests[i]);
        blocking->waiting++;
        weir__client_submit(blocking->client, requests[i], weir__monotonic_us());
    }
    flush(blocking);
    while (blocking->waiting > 0)
        poll_once(blocking, INT64_MAX);
    for (size_t i = 0; i < count && !error; i++)
        error = requests[i]->error;
    return error;
}

int weir__blocking_client_request(struct weir__blocking_client *blocking, struct weir__store_request *request)
{
    return weir__blocking_client_request_all(blocking, &request, 1);
}

void weir__blocking_client_refund(struct weir__blocking_client *blocking, const struct weir__store_request *request)
{
    if (!belongs_here(blocking))
        return;
    weir__client_refund(blocking->client, request, weir__monotonic_us());
    flush(blocking);
}

void weir__blocking_client_work(struct weir__blocking_client *blocking, int64_t for_us)
{
    int64_t until_us = weir__monotonic_us() + for_us;

    if (!belongs_here(blocking))
        return;
    do
        poll_once(blocking, until_us);
    while (weir__monotonic_us() < until_us);
}

void weir__blocking_client_flush_refunds(struct weir__blocking_client *blocking, int64_t most_us)
{
    int64_t until_us = weir__monotonic_us() + most_us;

    if (!belongs_here(blocking))
        return;
    while (weir__client_owes_refunds(blocking->client) && weir__monotonic_us() < until_us)
        poll_once(blocking, until_us);
}

void weir__blocking_client_stats(struct weir__blocking_client *blocking, struct weir__client_stats *stats)
{
    if (belongs_here(blocking))
        weir__client_stats_read(blocking->client, stats);
    else
        *stats = (struct weir__client_stats){.state = WEIR__STORE_DOWN, .last_error = WEIR_ENOMEM};
}

/* ---- Registration with the engine ---- */

int weir_store_use(void)
{
    static const struct weir__store_ops ops = {.version = WEIR_VERSION,
                                               .open = weir__blocking_client_new,
                                               .close = weir__blocking_client_free,
                                               .request = weir__blocking_client_request,
                                               .refund = weir__blocking_client_refund,
                                               .flush_refunds = weir__blocking_client_flush_refunds,
                                               .stats = weir__blocking_client_stats};
    return weir_store_register(&ops);
}
