/*
 * Connections of the blocking client: non-blocking sockets (socket.c), with TLS (tls.c). nginx's connections to a store
 * share the addresses of a server, the name in its certificate, and what becomes of unsent bytes.
 */
#ifndef WEIR_REMOTE_SOCKET_H
#define WEIR_REMOTE_SOCKET_H

#include "engine/store_options.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

/* ---- TLS ---- */

/* To be freed by SSL_CTX_free. NULL: CAs, certificate or key cannot be read or do not match. */
SSL_CTX *weir__tls_context_new(const struct weir__store_options *options);
/*
 * Reads a certificate or key file into memory, where weir__tls_context_new finds it afterwards: for a process that then
 * drops its privileges. False: cannot be read.
 */
bool weir__tls_keep(const char *path);
/* Whether the server sent a certificate: with an anonymous cipher, none is verified, and the handshake succeeds. */
static inline bool weir__tls_has_certificate(const SSL *tls)
{
    return SSL_get0_peer_certificate(tls) != NULL;
}

/* Makes a session accept only a certificate for `name`, a host name or an address. False: no memory. */
bool weir__tls_expect_name(SSL *tls, const char *name);
/* A session over a connected socket, to be freed by SSL_free. The certificate must be valid for `name`. NULL: no
 * memory. */
SSL *weir__tls_new(SSL_CTX *context, int fd, const char *name);
/*
 * The result of SSL_do_handshake, SSL_read or SSL_write; 0: would block; WEIR_ESTOREAUTH: a certificate was refused;
 * WEIR_ESTOREGARBAGE: another error of the handshake; WEIR_ESTOREDOWN: the session has ended.
 */
int weir__tls_result(const SSL *tls, int result);

/* ---- Addresses ---- */

#define WEIR__ADDRESSES_MAX 16 /* of a name; more are not tried */

struct weir__addresses {
    struct sockaddr_storage list[WEIR__ADDRESSES_MAX];
    socklen_t lens[WEIR__ADDRESSES_MAX];
    unsigned count, next; /* `next` is tried if the ones before it fail */
};

/*
 * The addresses of `host`: a path (of a Unix socket), a numeric address, or with `names` a name, for which this may
 * block. False: none.
 */
bool weir__addresses_find(const char *host, uint16_t port, bool names, struct weir__addresses *addresses);

/* ---- Sockets ---- */

enum weir__socket_state {
    WEIR__SOCKET_NONE,
    WEIR__SOCKET_FAILED, /* see `error` */
    WEIR__SOCKET_CONNECTING,
    WEIR__SOCKET_SHAKING, /* TLS handshake */
    WEIR__SOCKET_OPEN
};

struct weir__socket {
    enum weir__socket_state state;
    int fd, error;
    SSL *tls;
    char name[256]; /* that a certificate must be valid for */
    struct weir__addresses addresses;
};

/* Starts to connect. The result is in `state`, now or after weir__socket_ready. */
void weir__socket_open(struct weir__socket *socket, const struct weir__store_options *options, const char *host,
                       uint16_t port);
void weir__socket_close(struct weir__socket *socket);
/*
 * Before a connection is closed: discards unsent bytes, which must not arrive after a partition has healed, when the
 * request was sent again over another connection.
 */
void weir__socket_drop_unsent(int fd);
/* Events to poll for; `output`: there are bytes to send. */
short weir__socket_events(const struct weir__socket *socket, bool output);
/* Handles an event while connecting or in the TLS handshake. `tls`: NULL without TLS. */
void weir__socket_ready(struct weir__socket *socket, SSL_CTX *tls);
/* Bytes sent or received; 0: would block; negative: error, the connection is closed. */
long weir__socket_send(struct weir__socket *socket, const char *data, size_t len);
long weir__socket_receive(struct weir__socket *socket, char *to, size_t size);

/* Whether a call on a non-blocking socket failed because it would block. */
static inline bool weir__would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

#endif
