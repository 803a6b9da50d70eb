/* Non-blocking sockets. See socket.h. */
#include "remote/socket.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
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
    snprintf(to->name, sizeof(to->name), "%s", options->server_name[0] ? options->server_name : host);
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
    SSL_free(to->tls);
    if (to->fd >= 0) {
        drop_unsent(to->fd);
        close(to->fd);
    }
    *to = (struct weir__socket){.fd = -1};
}

short weir__socket_events(const struct weir__socket *from, bool output)
{
    switch (from->state) {
    case WEIR__SOCKET_CONNECTING:
        return POLLOUT;
    case WEIR__SOCKET_SHAKING:
    case WEIR__SOCKET_OPEN:
        return (short)(POLLIN | (output || (from->tls && SSL_want_write(from->tls)) ? POLLOUT : 0));
    default:
        return 0;
    }
}

/* OpenSSL's error queue belongs to the thread: what others left in it must not be taken for an error of a session. */

static void shake(struct weir__socket *with)
{
    ERR_clear_error();
    int result = weir__tls_result(with->tls, SSL_do_handshake(with->tls));

    if (result < 0)
        fail(with, result);
    else if (result > 0)
        with->state = WEIR__SOCKET_OPEN;
}

void weir__socket_ready(struct weir__socket *with, SSL_CTX *tls)
{
    int error = 0;
    socklen_t size = sizeof(error);

    if (with->state == WEIR__SOCKET_SHAKING) {
        shake(with);
        return;
    }
    if (getsockopt(with->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        try_next(with);
        return;
    }
    if (!tls) {
        with->state = WEIR__SOCKET_OPEN;
        return;
    }
    with->tls = weir__tls_new(tls, with->fd, with->name);
    if (!with->tls) {
        fail(with, WEIR_ENOMEM);
        return;
    }
    with->state = WEIR__SOCKET_SHAKING;
    shake(with);
}

long weir__socket_send(struct weir__socket *to, const char *data, size_t len)
{
    if (len == 0)
        return 0;
    ERR_clear_error();
    if (to->tls)
        return weir__tls_result(to->tls, SSL_write(to->tls, data, len < INT_MAX ? (int)len : INT_MAX));
    ssize_t sent = send(to->fd, data, len, MSG_NOSIGNAL);
    return sent >= 0 ? (long)sent : weir__would_block() ? 0 : WEIR_ESTOREDOWN;
}

long weir__socket_receive(struct weir__socket *from, char *to, size_t size)
{
    ERR_clear_error();
    if (from->tls)
        return weir__tls_result(from->tls, SSL_read(from->tls, to, (int)size));
    ssize_t got = recv(from->fd, to, size, 0);
    return got > 0 ? (long)got : got < 0 && weir__would_block() ? 0 : WEIR_ESTOREDOWN;
}
