/*
 * A connection to a server of the store. The client calls these functions and is not re-entrant: work that calls the
 * client is deferred to a posted event of the same iteration of the event loop.
 */
#include "ngx_weir_store.h"

#include "base/clock.h"
#include "remote/socket.h"

#include <ngx_event_connect.h>
#include <pthread.h>

#define READ_BYTES 65536
#define READ_TURNS 16 /* reads before other events are handled */
#define LOOKUP_MS  5  /* until the channel polls again for the addresses of a name */

typedef enum { CLOSED, OPENING, RESOLVING, CONNECTING, HANDSHAKE, OPEN } ngx_weir_channel_state_t;

struct ngx_weir_channel_s {
    ngx_weir_store_t *store;
    unsigned number;
    ngx_weir_channel_state_t state;
    char host[256];
    uint16_t port;
    struct weir__addresses addresses;
    ngx_peer_connection_t peer;
    ngx_event_t step; /* work posted by a call of the client, and the timer that polls for addresses */
};

static void ngx_weir_channel_connect(ngx_weir_channel_t *channel);

/* ---- Closing ---- */

static void ngx_weir_channel_drop(ngx_weir_channel_t *channel)
{
    ngx_connection_t *c = channel->peer.connection;
    channel->peer.connection = NULL;
    if (c == NULL)
        return;
    if (c->ssl) {
        c->ssl->no_wait_shutdown = 1;
        c->ssl->no_send_shutdown = 1;
        (void)ngx_ssl_shutdown(c);
    }
    if (c->pool)
        ngx_destroy_pool(c->pool);
    weir__socket_drop_unsent(c->fd);
    ngx_close_connection(c);
}

void ngx_weir_channel_close(void *context, unsigned number)
{
    ngx_weir_store_t *store = context;
    ngx_weir_channel_t *channel = &store->channels[number];
    if (channel->step.timer_set)
        ngx_del_timer(&channel->step);
    if (channel->step.posted) {
        ngx_delete_posted_event(&channel->step);
    }
    channel->state = CLOSED;
    ngx_weir_channel_drop(channel);
}

/* The server closed the connection, or connecting failed. */
static void ngx_weir_channel_lost(ngx_weir_channel_t *channel)
{
    ngx_weir_store_t *store = channel->store;
    ngx_weir_channel_close(store, channel->number);
    weir__client_closed(store->client, channel->number, WEIR_ESTOREDOWN, weir__monotonic_us());
    ngx_weir_store_stats_publish(store);
}

/* ---- Writing and reading ---- */

static void ngx_weir_channel_write(ngx_weir_channel_t *channel)
{
    ngx_weir_store_t *store = channel->store;
    while (channel->state == OPEN) {
        ngx_connection_t *c = channel->peer.connection;
        size_t len;
        const char *data = weir__client_output(store->client, channel->number, &len);
        if (len == 0)
            return;
        ssize_t sent = c->send(c, (u_char *)data, len);
        if (sent == NGX_AGAIN) {
            if (ngx_handle_write_event(c->write, 0) != NGX_OK)
                ngx_weir_channel_lost(channel);
            return;
        }
        if (sent <= 0) {
            ngx_weir_channel_lost(channel);
            return;
        }
        weir__client_sent(store->client, channel->number, (size_t)sent, weir__monotonic_us());
    }
}

static void ngx_weir_channel_write_event(ngx_event_t *event)
{
    ngx_connection_t *c = event->data;
    ngx_weir_channel_write(c->data);
}

static void ngx_weir_channel_read_event(ngx_event_t *event)
{
    static u_char room[READ_BYTES];
    ngx_connection_t *c = event->data;
    ngx_weir_channel_t *channel = c->data;
    ngx_weir_store_t *store = channel->store;
    for (ngx_uint_t i = 0; i < READ_TURNS; i++) {
        ssize_t got = c->recv(c, room, sizeof(room));
        if (got == NGX_AGAIN) {
            ngx_weir_store_update_cancelable(store);
            ngx_weir_store_stats_publish(store);
            if (ngx_handle_read_event(event, 0) != NGX_OK)
                ngx_weir_channel_lost(channel);
            return;
        }
        if (got <= 0) {
            ngx_weir_channel_lost(channel);
            return;
        }
        weir__client_received(store->client, channel->number, (const char *)room, (size_t)got, weir__monotonic_us());
        if (channel->peer.connection != c) { /* the client has closed it */
            ngx_weir_store_stats_publish(store);
            return;
        }
    }
    ngx_post_event(event, &ngx_posted_next_events);
}

static void ngx_weir_channel_begin(ngx_weir_channel_t *channel)
{
    ngx_connection_t *c = channel->peer.connection;
    channel->state = OPEN;
    c->read->handler = ngx_weir_channel_read_event;
    c->write->handler = ngx_weir_channel_write_event;
    weir__client_opened(channel->store->client, channel->number, weir__monotonic_us());
    if (channel->peer.connection != c)
        return;
    if (c->read->ready) { /* TLS may have read more than the handshake */
        ngx_post_event(c->read, &ngx_posted_events);
    } else if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        ngx_weir_channel_lost(channel);
    }
}

/* ---- TLS ---- */

static const char *ngx_weir_channel_name(const ngx_weir_channel_t *channel)
{
    const char *given = channel->store->options.server_name;
    return *given ? given : channel->host;
}

/* Whether the certificate is valid. nginx leaves it to its caller to check that. */
static ngx_uint_t ngx_weir_channel_verified(ngx_weir_channel_t *channel)
{
    ngx_connection_t *c = channel->peer.connection;
    const char *name = ngx_weir_channel_name(channel);
    long result = SSL_get_verify_result(c->ssl->connection);
    bool sent = weir__tls_has_certificate(c->ssl->connection); /* without one, the result is X509_V_OK */
    if (channel->store->options.no_verify || (result == X509_V_OK && sent))
        return 1;
    if (result == X509_V_ERR_HOSTNAME_MISMATCH || result == X509_V_ERR_IP_ADDRESS_MISMATCH) {
        ngx_log_error(NGX_LOG_ERR, c->log, 0, "the certificate is not for %s; server_name= names another", name);
    } else {
        ngx_log_error(NGX_LOG_ERR, c->log, 0, "the certificate of %s is not valid: %s", name,
                      sent ? X509_verify_cert_error_string(result) : "there is none");
    }
    return 0;
}

static void ngx_weir_channel_handshaken(ngx_connection_t *c)
{
    ngx_weir_channel_t *channel = c->data;
    if (c->ssl->handshaked)
        *channel->store->detail = '\0';
    if (c->ssl->handshaked && ngx_weir_channel_verified(channel))
        ngx_weir_channel_begin(channel);
    else
        ngx_weir_channel_lost(channel);
}

static void ngx_weir_channel_secure(ngx_weir_channel_t *channel)
{
    ngx_connection_t *c = channel->peer.connection;
    channel->state = HANDSHAKE;
    c->pool = ngx_create_pool(512, c->log);
    if (c->pool == NULL || ngx_ssl_create_connection(channel->store->ssl, c, NGX_SSL_CLIENT) != NGX_OK ||
        (!weir__tls_expect_name(c->ssl->connection, ngx_weir_channel_name(channel)) &&
         !channel->store->options.no_verify)) {
        ngx_weir_channel_lost(channel);
        return;
    }
    ngx_int_t rc = ngx_ssl_handshake(c);
    if (rc != NGX_AGAIN) {
        ngx_weir_channel_handshaken(c);
        return;
    }
    c->ssl->handler = ngx_weir_channel_handshaken;
    /*
     * Logged if the store becomes unavailable meanwhile: a server without TLS waits for more bytes and sends nothing.
     */
    ngx_log_error(NGX_LOG_ERR, c->log, 0, "the TLS handshake has no answer so far; is it a server without TLS?");
}

/* ---- Connecting ---- */

static void ngx_weir_channel_connected(ngx_weir_channel_t *channel)
{
    ngx_connection_t *c = channel->peer.connection;
    if (c->tcp_nodelay == NGX_TCP_NODELAY_UNSET)
        (void)ngx_tcp_nodelay(c);
    if (channel->store->ssl)
        ngx_weir_channel_secure(channel);
    else
        ngx_weir_channel_begin(channel);
}

static void ngx_weir_channel_connect_event(ngx_event_t *event)
{
    ngx_connection_t *c = event->data;
    ngx_weir_channel_t *channel = c->data;
    int error = 0;
    socklen_t len = sizeof(error);
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) == -1)
        error = ngx_socket_errno;
    if (error) {
        ngx_log_error(NGX_LOG_ERR, c->log, error, "connect() to %s failed", channel->host);
        ngx_weir_channel_drop(channel);
        ngx_weir_channel_connect(channel);
        return;
    }
    if (c->write->ready)
        ngx_weir_channel_connected(channel);
}

/* Connects to the next address: a name may have several, and of localhost's often only one is listened on. */
static void ngx_weir_channel_connect(ngx_weir_channel_t *channel)
{
    ngx_weir_store_t *store = channel->store;
    ngx_str_t name = {ngx_strlen(channel->host), (u_char *)channel->host};
    while (channel->addresses.next < channel->addresses.count) {
        ngx_uint_t at = channel->addresses.next++;
        channel->state = CONNECTING;
        channel->peer = (ngx_peer_connection_t){.sockaddr = (struct sockaddr *)&channel->addresses.list[at],
                                                .socklen = channel->addresses.lens[at],
                                                .name = &name,
                                                .get = ngx_event_get_peer,
                                                .log = &store->quiet,
                                                .log_error = NGX_ERROR_ERR};
        ngx_int_t rc = ngx_event_connect_peer(&channel->peer);
        ngx_connection_t *c = channel->peer.connection;
        if (rc != NGX_OK && rc != NGX_AGAIN) {
            ngx_weir_channel_drop(channel);
            continue;
        }
        c->data = channel;
        c->read->handler = c->write->handler = ngx_weir_channel_connect_event;
        if (rc == NGX_OK)
            ngx_weir_channel_connected(channel);
        return;
    }
    ngx_weir_channel_lost(channel);
}

/*
 * ---- Resolving names ----
 *
 * getaddrinfo blocks, so a thread calls it, and the channel polls for its result. That way names resolve as in every
 * other program of the host (/etc/hosts, search domains), anew for each connection. At most one thread per channel.
 */

typedef struct {
    char host[256];
    uint16_t port;
    ngx_uint_t running;
    volatile ngx_uint_t done;         /* set by the thread */
    struct weir__addresses addresses; /* written by the thread before `done` */
} ngx_weir_lookup_t;

/* Not in the cycle's pool: a thread may outlast it. */
static ngx_weir_lookup_t ngx_weir_lookups[WEIR__CHANNELS];

/* Runs in the thread. */
static void *ngx_weir_lookup_run(void *data)
{
    ngx_weir_lookup_t *lookup = data;
    (void)weir__addresses_find(lookup->host, lookup->port, true, &lookup->addresses);
    ngx_memory_barrier();
    lookup->done = 1;
    return NULL;
}

static ngx_int_t ngx_weir_lookup_begin(ngx_weir_lookup_t *lookup)
{
    pthread_t thread;
    sigset_t all, before;
    /* signals are handled by nginx's thread */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, ngx_weir_lookup_run, lookup);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    lookup->running = error == 0;
    return error || pthread_detach(thread) != 0 ? NGX_ERROR : NGX_AGAIN;
}

/*
 * NGX_AGAIN: call again later; NGX_OK: resolved, perhaps to no address; NGX_ERROR: not possible now. `begins`: a result
 * that is there already is outdated.
 */
static ngx_int_t ngx_weir_lookup(ngx_weir_channel_t *channel, ngx_uint_t begins)
{
    ngx_weir_lookup_t *lookup = &ngx_weir_lookups[channel->number];
    if (lookup->running) {
        if (!lookup->done)
            return NGX_AGAIN;
        ngx_memory_barrier();
        lookup->running = 0;
        if (!begins && lookup->port == channel->port && strcmp(lookup->host, channel->host) == 0) {
            channel->addresses = lookup->addresses;
            return NGX_OK;
        }
    }
    (void)ngx_cpystrn((u_char *)lookup->host, (u_char *)channel->host, sizeof(lookup->host));
    lookup->port = channel->port;
    lookup->done = 0;
    return ngx_weir_lookup_begin(lookup);
}

/* Resolves the name of the server. `begins`: with this call; it is called again while RESOLVING. */
static void ngx_weir_channel_resolve(ngx_weir_channel_t *channel, ngx_uint_t begins)
{
    channel->state = RESOLVING;
    ngx_int_t rc = ngx_weir_lookup(channel, begins);
    if (rc == NGX_AGAIN) {
        ngx_add_timer(&channel->step, LOOKUP_MS);
        return;
    }
    if (rc == NGX_OK && channel->addresses.count == 0)
        ngx_log_error(NGX_LOG_ERR, &channel->store->quiet, 0, "there is no address of %s", channel->host);
    ngx_weir_channel_connect(channel);
}

/* ---- Functions of the driver ---- */

static void ngx_weir_channel_step(ngx_event_t *event)
{
    ngx_weir_channel_t *channel = event->data;
    switch (channel->state) {
    case OPEN:
        ngx_weir_channel_write(channel);
        break;
    case OPENING:
        if (weir__addresses_find(channel->host, channel->port, false, &channel->addresses) || channel->host[0] == '/')
            ngx_weir_channel_connect(channel); /* without an address, to a path that is too long: fails */
        else
            ngx_weir_channel_resolve(channel, 1);
        break;
    case RESOLVING:
        ngx_weir_channel_resolve(channel, 0);
        break;
    default:
        break;
    }
}

void ngx_weir_channel_open(void *context, unsigned number, const char *host, uint16_t port)
{
    ngx_weir_store_t *store = context;
    ngx_weir_channel_t *channel = &store->channels[number];
    ngx_weir_channel_close(store, number);
    channel->store = store;
    channel->number = number;
    channel->step = (ngx_event_t){.handler = ngx_weir_channel_step,
                                  .data = channel,
                                  .log = ngx_cycle->log,
                                  .cancelable = 1}; /* does not delay the worker's shutdown */
    (void)ngx_cpystrn((u_char *)channel->host, (u_char *)host, sizeof(channel->host));
    channel->port = port;
    channel->state = OPENING;
    ngx_post_event(&channel->step, &ngx_posted_events);
}

void ngx_weir_channel_send(void *context, unsigned number)
{
    ngx_weir_store_t *store = context;
    ngx_weir_channel_t *channel = &store->channels[number];
    if (channel->state == OPEN && !channel->step.posted) {
        ngx_post_event(&channel->step, &ngx_posted_events);
    }
}

ngx_int_t ngx_weir_channels_make(ngx_weir_store_t *store, ngx_cycle_t *cycle)
{
    store->channels = ngx_pcalloc(cycle->pool, WEIR__CHANNELS * sizeof(ngx_weir_channel_t));
    return store->channels ? NGX_OK : NGX_ERROR;
}
