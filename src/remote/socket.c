/* Non-blocking sockets. See socket.h. */
#include "remote/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <linux/sockios.h> /* SIOCOUTQ */
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <weir/weir.h>

static void fail(struct weir__socket *to, int error)
{
    weir__socket_close(to);
    to->state = WEIR__SOCKET_FAILED;
    to->error = error;
}

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Tries the remaining addresses until one connects or is in progress. */
static void try_next(struct weir__socket *to)
{
    while (to->next) {
        const struct addrinfo *address = to->next;
        int on = 1;
        to->next = address->ai_next;
        if (to->fd >= 0)
            close(to->fd);
        to->fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (to->fd < 0)
            continue;
        (void)setsockopt(to->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        (void)setsockopt(to->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
        if (connect(to->fd, address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS) {
            to->state = WEIR__SOCKET_CONNECTING;
            return;
        }
    }
    fail(to, WEIR_ESTOREDOWN);
}

static void open_unix(struct weir__socket *to, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof(address.sun_path)) {
        fail(to, WEIR_ESTOREDOWN);
        return;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    to->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* A unix socket connects at once, or fails when the backlog is full. */
    if (to->fd < 0 || connect(to->fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
        fail(to, WEIR_ESTOREDOWN);
    else
        to->state = WEIR__SOCKET_CONNECTING;
}

void weir__socket_open(struct weir__socket *to, const struct weir__store_options *options, const char *host,
                       uint16_t port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    char service[8];

    *to = (struct weir__socket){.fd = -1};
    snprintf(to->host, sizeof(to->host), "%s", host);
    if (options->unix_socket) {
        open_unix(to, host);
        return;
    }
    snprintf(service, sizeof(service), "%u", (unsigned)port);
    if (getaddrinfo(host, service, &hints, &to->addresses) != 0) {
        hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
        to->addresses = NULL;
        if (getaddrinfo(host, service, &hints, &to->addresses) != 0) {
            to->addresses = NULL;
            fail(to, WEIR_ESTOREDOWN);
            return;
        }
    }
    to->next = to->addresses;
    try_next(to);
}

/*
 * Discards unsent bytes: they must not arrive after a partition has healed, when the request was sent again over
 * another connection.
 */
static void drop_unsent(int fd)
{
    int unsent = 0;
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    if (ioctl(fd, SIOCOUTQ, &unsent) == 0 && unsent > 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

void weir__socket_close(struct weir__socket *to)
{
    if (to->addresses)
        freeaddrinfo(to->addresses);
    weir__tls_free(to->tls);
    if (to->fd >= 0) {
        drop_unsent(to->fd);
        close(to->fd);
    }
    *to = (struct weir__socket){.fd = -1};
}

short weir__socket_events(struct weir__socket *from, bool output)
{
    size_t pending = 0;

    switch (from->state) {
    case WEIR__SOCKET_CONNECTING:
        return POLLOUT;
    case WEIR__SOCKET_SHAKING:
    case WEIR__SOCKET_OPEN:
        if (from->tls)
            (void)weir__tls_output(from->tls, &pending);
        return (short)(POLLIN | (output || pending > 0 ? POLLOUT : 0));
    default:
        return 0;
    }
}

/* Sends pending TLS records. */
static bool push(struct weir__socket *to)
{
    size_t len;
    const char *data;

    while ((data = weir__tls_output(to->tls, &len)), len > 0) {
        ssize_t sent = send(to->fd, data, len, MSG_NOSIGNAL);
        if (sent < 0)
            return would_block();
        weir__tls_sent(to->tls, (size_t)sent);
    }
    return true;
}

/* Feeds received bytes to TLS: 1; 0: would block; negative: error. */
static int pull(struct weir__socket *from)
{
    char data[16384];
    ssize_t got = recv(from->fd, data, sizeof(data), 0);

    if (got < 0)
        return would_block() ? 0 : WEIR_ESTOREDOWN;
    if (got == 0)
        return WEIR_ESTOREDOWN;
    return weir__tls_feed(from->tls, data, (size_t)got) ? 1 : WEIR_ENOMEM;
}

static void shake(struct weir__socket *with)
{
    int got = pull(with), shaken = weir__tls_shake(with->tls);

    if (!push(with) || shaken < 0 || (got < 0 && shaken == 0))
        fail(with, shaken < 0 ? shaken : WEIR_ESTOREDOWN);
    else if (shaken == 1)
        with->state = WEIR__SOCKET_OPEN;
}

void weir__socket_ready(struct weir__socket *with, struct weir__tls_context *tls)
{
    int error = 0;
    socklen_t size = sizeof(error);

    if (with->state == WEIR__SOCKET_SHAKING) {
        shake(with);
        return;
    }
    if (with->state != WEIR__SOCKET_CONNECTING)
        return;
    if (getsockopt(with->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        try_next(with);
        return;
    }
    if (!tls) {
        with->state = WEIR__SOCKET_OPEN;
        return;
    }
    with->tls = weir__tls_new(tls, with->host);
    if (!with->tls) {
        fail(with, WEIR_ENOMEM);
        return;
    }
    with->state = WEIR__SOCKET_SHAKING;
    shake(with);
}

long weir__socket_send(struct weir__socket *to, const char *data, size_t len)
{
    size_t pending;

    if (!to->tls) {
        ssize_t sent = len > 0 ? send(to->fd, data, len, MSG_NOSIGNAL) : 0;
        return sent >= 0 ? (long)sent : would_block() ? 0 : WEIR_ESTOREDOWN;
    }
    /* Accepts no more while the socket is full, which bounds what TLS buffers. */
    if (!push(to))
        return WEIR_ESTOREDOWN;
    (void)weir__tls_output(to->tls, &pending);
    if (pending > 0 || len == 0)
        return 0;
    len = len > 262144 ? 262144 : len;
    if (!weir__tls_write(to->tls, data, len) || !push(to))
        return WEIR_ESTOREDOWN;
    return (long)len;
}

long weir__socket_receive(struct weir__socket *from, char *to, size_t size)
{
    if (!from->tls) {
        ssize_t got = recv(from->fd, to, size, 0);
        return got > 0 ? (long)got : got < 0 && would_block() ? 0 : WEIR_ESTOREDOWN;
    }
    long read = weir__tls_read(from->tls, to, size);
    if (read != 0)
        return read;
    int got = pull(from);
    return got <= 0 ? got : weir__tls_read(from->tls, to, size);
}
