/* The blocking way to the store. */
#define _GNU_SOURCE /* ppoll */
#include "remote/blocking_client.h"
#include "base/clock.h"
#include "remote/socket.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define CHUNKS_MAX 64 /* pieces read from a connection before others have their poll_once */

struct weir__blocking_client {
    const struct weir__store_options *options;
    struct weir__client *client;
    struct weir__tls_context *tls;
    bool tls_doubted; /* a certificate was refused: the files may be others by now */
    pid_t pid;
    int64_t wake_us;
    int64_t worked_us; /* when the last poll_once ended */
    int64_t looked_us; /* when somebody last waited for a probe */
    size_t waiting;    /* requests that somebody waits for */
    void (*changed)(void *context, bool up, int error, const char *where);
    void *changed_context;
    struct weir__socket sockets[WEIR__CHANNELS];
    bool output[WEIR__CHANNELS];
    uint64_t opens[WEIR__CHANNELS]; /* how often: what was polled may be another connection by now */
    char data[65536];
};

/* Certificates are renewed while programs run. Tried anew for each connection while there is none: the files may come
 * later than we. */
static void read_certificates(struct weir__blocking_client *link)
{
    if (!link->options->tls || (link->tls && !link->tls_doubted))
        return;
    struct weir__tls_context *read = weir__tls_context_new(link->options);
    if (!read)
        return;
    weir__tls_context_free(link->tls);
    link->tls = read;
    link->tls_doubted = false;
}

/* ---- What the client calls ---- */

static void on_open(void *context, unsigned channel, const char *host, uint16_t port)
{
    struct weir__blocking_client *link = context;
    struct weir__socket *opened = &link->sockets[channel];

    link->output[channel] = false;
    link->opens[channel]++;
    read_certificates(link);
    if (link->options->tls && !link->tls)
        *opened = (struct weir__socket){.state = WEIR__SOCKET_FAILED, .fd = -1, .error = WEIR_ESTOREAUTH};
    else
        weir__socket_open(opened, link->options, host, port);
    /* If that failed, the client is told in the next poll_once: it must not be called from here. */
}

static void on_close(void *context, unsigned channel)
{
    struct weir__blocking_client *link = context;

    weir__socket_close(&link->sockets[channel]);
}

static void on_send(void *context, unsigned channel)
{
    struct weir__blocking_client *link = context;

    link->output[channel] = true;
}

static void on_wake(void *context, int64_t at_us)
{
    struct weir__blocking_client *link = context;

    link->wake_us = at_us;
}

static void on_done(void *context, struct weir__store_request *request)
{
    struct weir__blocking_client *link = context;

    (void)request;
    link->waiting--;
}

static void on_changed(void *context, bool up, int error, const char *where)
{
    struct weir__blocking_client *link = context;

    if (link->changed)
        link->changed(link->changed_context, up, error, where);
}

/* ---- Beginning and end ---- */

static bool begin(struct weir__blocking_client *link)
{
    const struct weir__driver driver = {.context = link,
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
        link->sockets[i] = (struct weir__socket){.fd = -1};
    link->pid = getpid();
    link->wake_us = INT64_MAX;
    link->worked_us = weir__monotonic_us();
    link->looked_us = 0;
    link->waiting = 0;
    link->client = weir__client_new(link->options, &driver, seed, weir__monotonic_us());
    return link->client != NULL;
}

struct weir__blocking_client *weir__blocking_client_new(const struct weir__store_options *options)
{
    struct weir__blocking_client *link = calloc(1, sizeof(*link));

    if (!link)
        return NULL;
    link->options = options;
    if (!begin(link)) {
        free(link);
        return NULL;
    }
    return link;
}

void weir__blocking_client_free(struct weir__blocking_client *link)
{
    if (!link)
        return;
    weir__client_free(link->client);
    for (unsigned i = 0; i < WEIR__CHANNELS; i++)
        weir__socket_close(&link->sockets[i]);
    weir__tls_context_free(link->tls);
    free(link);
}

void weir__blocking_client_on_change(struct weir__blocking_client *link,
                                     void (*changed)(void *context, bool up, int error, const char *where),
                                     void *context)
{
    link->changed = changed;
    link->changed_context = context;
}

/* The connections of a parent are the parent's: the child only closes its copies. False: no memory. */
static bool belongs_here(struct weir__blocking_client *link)
{
    if (link->client && link->pid == getpid())
        return true;
    weir__client_free(link->client);
    link->client = NULL;
    for (unsigned i = 0; i < WEIR__CHANNELS; i++)
        weir__socket_close(&link->sockets[i]);
    return begin(link);
}

/* ---- Turns ---- */

static void over(struct weir__blocking_client *link, unsigned channel, int error)
{
    weir__socket_close(&link->sockets[channel]);
    link->tls_doubted |= error == WEIR_ESTOREAUTH;
    weir__client_closed(link->client, channel, error, weir__monotonic_us());
}

static void send_some(struct weir__blocking_client *link, unsigned channel)
{
    struct weir__socket *to = &link->sockets[channel];

    for (int poll_once = 0; poll_once < CHUNKS_MAX && to->state == WEIR__SOCKET_OPEN; poll_once++) {
        size_t len;
        const char *data = weir__client_output(link->client, channel, &len);
        long sent = weir__socket_send(to, data, len);
        if (sent < 0) {
            over(link, channel, (int)sent);
            return;
        }
        if (len == 0)
            link->output[channel] = false;
        if (sent == 0)
            return;
        weir__client_sent(link->client, channel, (size_t)sent, weir__monotonic_us());
    }
}

static void receive_some(struct weir__blocking_client *link, unsigned channel)
{
    struct weir__socket *from = &link->sockets[channel];

    for (int poll_once = 0; poll_once < CHUNKS_MAX && from->state == WEIR__SOCKET_OPEN; poll_once++) {
        long got = weir__socket_receive(from, link->data, sizeof(link->data));
        if (got < 0)
            over(link, channel, (int)got);
        if (got <= 0)
            return;
        weir__client_received(link->client, channel, link->data, (size_t)got, weir__monotonic_us());
        if ((size_t)got < sizeof(link->data) && !from->tls)
            return;
    }
}

static void handle(struct weir__blocking_client *link, unsigned channel, short events)
{
    struct weir__socket *with = &link->sockets[channel];

    if (with->state == WEIR__SOCKET_CONNECTING || with->state == WEIR__SOCKET_SHAKING) {
        if (events)
            weir__socket_ready(with, link->tls);
        if (with->state == WEIR__SOCKET_OPEN) {
            weir__client_opened(link->client, channel, weir__monotonic_us());
            receive_some(link, channel); /* TLS may have taken in more than the handshake */
            send_some(link, channel);
            return;
        }
    }
    if (with->state == WEIR__SOCKET_FAILED) {
        over(link, channel, with->error);
        return;
    }
    if (events & (POLLIN | POLLHUP | POLLERR))
        receive_some(link, channel);
    if (events & POLLOUT || link->output[channel])
        send_some(link, channel);
}

/* One poll, and what it brings. Waits until `until_us` at the latest. */
static void poll_once(struct weir__blocking_client *link, int64_t until_us)
{
    struct pollfd polled[WEIR__CHANNELS];
    unsigned channels[WEIR__CHANNELS];
    uint64_t opens[WEIR__CHANNELS];
    nfds_t count = 0;
    int64_t now_us = weir__monotonic_us(), rested_us = now_us - link->worked_us;

    until_us = link->wake_us < until_us ? link->wake_us : until_us;
    for (unsigned i = 0; i < WEIR__CHANNELS; i++) {
        struct weir__socket *with = &link->sockets[i];
        if (with->state == WEIR__SOCKET_NONE)
            continue;
        if (with->state == WEIR__SOCKET_FAILED)
            until_us = 0;
        polled[count] = (struct pollfd){.fd = with->fd, .events = weir__socket_events(with, link->output[i])};
        opens[count] = link->opens[i];
        channels[count++] = i;
    }
    int64_t wait_us = until_us > now_us ? until_us - now_us : 0;
    /* Not longer than a minute at once: nobody misses it, and the numbers stay small. */
    wait_us = wait_us > 60000000 ? 60000000 : wait_us;
    struct timespec wait = {.tv_sec = (time_t)(wait_us / 1000000), .tv_nsec = (long)(wait_us % 1000000) * 1000};
    if (ppoll(polled, count, &wait, NULL) < 0)
        for (nfds_t i = 0; i < count; i++)
            polled[i].revents = 0;
    for (nfds_t i = 0; i < count; i++) {
        if (polled[i].revents && link->opens[channels[i]] == opens[i])
            weir__client_paused(link->client, channels[i], rested_us);
        if (link->opens[channels[i]] == opens[i])
            handle(link, channels[i], polled[i].revents);
    }
    now_us = weir__monotonic_us();
    if (now_us >= link->wake_us)
        weir__client_tick(link->client, now_us);
    link->worked_us = weir__monotonic_us();
}

/*
 * Between the calls nobody works here. So whoever comes while the store is away, and a probe has just begun, waits for
 * it as it would for an answer; but not one after the other: who ops often finds what came of it the next time.
 */
static void wait_for_probe(struct weir__blocking_client *link, const struct weir__store_request *request)
{
    int64_t now_us = weir__monotonic_us(), until_us = now_us + link->options->deadline_us;

    if (request->deadline_us > 0 && request->deadline_us < until_us)
        until_us = request->deadline_us;
    if (now_us - link->looked_us < link->options->retry_max_us || !weir__client_probing(link->client, request))
        return;
    while (weir__monotonic_us() < until_us && weir__client_probing(link->client, request))
        poll_once(link, until_us);
    link->looked_us = weir__monotonic_us();
}

/* Sends what can be sent without waiting, before anything is polled. */
static void flush(struct weir__blocking_client *link)
{
    weir__client_flush(link->client, weir__monotonic_us());
    for (unsigned i = 0; i < WEIR__CHANNELS; i++)
        if (link->output[i])
            send_some(link, i);
}

int weir__blocking_client_request_all(struct weir__blocking_client *link, struct weir__store_request *const *requests,
                                      size_t count)
{
    int error = 0;

    if (!belongs_here(link)) {
        for (size_t i = 0; i < count; i++)
            requests[i]->error = WEIR_ENOMEM;
        return count > 0 ? WEIR_ENOMEM : 0;
    }
    /* What has happened since the last call: a server that closed an idle connection must not get the request. */
    poll_once(link, 0);
    for (size_t i = 0; i < count; i++) {
        wait_for_probe(link, requests[i]);
        link->waiting++;
        weir__client_submit(link->client, requests[i], weir__monotonic_us());
    }
    flush(link);
    while (link->waiting > 0)
        poll_once(link, INT64_MAX);
    for (size_t i = 0; i < count && !error; i++)
        error = requests[i]->error;
    return error;
}

int weir__blocking_client_request(struct weir__blocking_client *link, struct weir__store_request *request)
{
    return weir__blocking_client_request_all(link, &request, 1);
}

void weir__blocking_client_refund(struct weir__blocking_client *link, const struct weir__store_request *request)
{
    if (!belongs_here(link))
        return;
    weir__client_refund(link->client, request, weir__monotonic_us());
    flush(link);
}

void weir__blocking_client_work(struct weir__blocking_client *link, int64_t for_us)
{
    int64_t until_us = weir__monotonic_us() + for_us;

    if (!belongs_here(link))
        return;
    do
        poll_once(link, until_us);
    while (weir__monotonic_us() < until_us);
}

void weir__blocking_client_flush_refunds(struct weir__blocking_client *link, int64_t most_us)
{
    int64_t until_us = weir__monotonic_us() + most_us;

    if (!belongs_here(link))
        return;
    while (weir__client_owes_refunds(link->client) && weir__monotonic_us() < until_us)
        poll_once(link, until_us);
}

void weir__blocking_client_stats(struct weir__blocking_client *link, struct weir__client_stats *stats)
{
    if (belongs_here(link))
        weir__client_stats_read(link->client, stats);
    else
        *stats = (struct weir__client_stats){.state = WEIR__STORE_DOWN, .last_error = WEIR_ENOMEM};
}
