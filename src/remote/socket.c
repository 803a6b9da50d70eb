/* Non-blocking sockets. See socket.h. */
#include "remote/socket.h"

#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
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

/* ---- Addresses ---- */

static bool find_path(const char *path, struct weir__addresses *addresses)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof(address.sun_path))
        return false;
    memcpy(address.sun_path, path, strlen(path) + 1);
    memcpy(&addresses->list[0], &address, sizeof(address));
    addresses->lens[0] = sizeof(address);
    addresses->count = 1;
    return true;
}

bool weir__addresses_find(const char *host, uint16_t port, bool names, struct weir__addresses *addresses)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *found = NULL;
    char service[8];

    addresses->count = addresses->next = 0;
    if (host[0] == '/')
        return find_path(host, addresses);
    snprintf(service, sizeof(service), "%u", (unsigned)port);
    int error = getaddrinfo(host, service, &hints, &found);
    hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
    if (error && names)
        error = getaddrinfo(host, service, &hints, &found);
    if (error)
        return false;
    for (const struct addrinfo *one = found; one && addresses->count < WEIR__ADDRESSES_MAX; one = one->ai_next) {
        memcpy(&addresses->list[addresses->count], one->ai_addr, one->ai_addrlen);
        addresses->lens[addresses->count++] = one->ai_addrlen;
    }
    freeaddrinfo(found);
    return addresses->count > 0;
}

/* ---- Connecting and closing ---- */

/* Tries the remaining addresses until one connects or is in progress. */
static void try_next(struct weir__socket *to)
{
    while (to->addresses.next < to->addresses.count) {
        unsigned at = to->addresses.next++;
        const struct sockaddr *address = (const struct sockaddr *)&to->addresses.list[at];
        int on = 1;
        if (to->fd >= 0)
            close(to->fd);
        to->fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (to->fd < 0)
            continue;
        (void)setsockopt(to->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        (void)setsockopt(to->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
        /* A unix socket connects at once, or fails when the backlog is full. */
        if (connect(to->fd, address, to->addresses.lens[at]) == 0 || errno == EINPROGRESS) {
            to->state = WEIR__SOCKET_CONNECTING;
            return;
        }
    }
    fail(to, WEIR_ESTOREDOWN);
}

void weir__socket_open(struct weir__socket *to, const struct weir__store_options *options, const char *host,
                       uint16_t port)
{
    *to = (struct weir__socket){.fd = -1};
    snprintf(to->name, sizeof(to->name), "%s", options->server_name[0] ? options->server_name : host);
    (void)weir__addresses_find(host, port, true, &to->addresses);
    try_next(to);
}

void weir__socket_drop_unsent(int fd)
{
    int unsent = 0;
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    if (ioctl(fd, SIOCOUTQ, &unsent) == 0 && unsent > 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

void weir__socket_close(struct weir__socket *to)
{
    SSL_free(to->tls);
    if (to->fd >= 0) {
        weir__socket_drop_unsent(to->fd);
        close(to->fd);
    }
    *to = (struct weir__socket){.fd = -1};
}

short weir__socket_events(const struct weir__socket *from, bool output)
{
    if (from->state <= WEIR__SOCKET_CONNECTING)
        return from->state == WEIR__SOCKET_CONNECTING ? POLLOUT : 0;
    return (short)(POLLIN | (output || (from->tls && SSL_want_write(from->tls)) ? POLLOUT : 0));
}

/* ---- Sending and receiving ---- */

/* OpenSSL's error queue belongs to the thread: what others left in it must not be taken for an error of a session. */

static void shake(struct weir__socket *with)
{
    ERR_clear_error();
    int result = weir__tls_result(with->tls, SSL_do_handshake(with->tls));

    if (result < 0)
        fail(with, result);
    else if (result > 0 && SSL_get_verify_mode(with->tls) != SSL_VERIFY_NONE && !weir__tls_has_certificate(with->tls))
        fail(with, WEIR_ESTOREAUTH);
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
