/* Connections of the blocking client: TLS sessions in memory (tls.c), and non-blocking sockets (socket.c). */
#ifndef WEIR_REMOTE_SOCKET_H
#define WEIR_REMOTE_SOCKET_H

#include "engine/store_options.h"

#include <netdb.h>
#include <poll.h>

/* ---- TLS without sockets: ciphertext on one side, the Redis protocol on the other ---- */

struct weir__tls_context;
struct weir__tls_session;

/* NULL: CAs, certificate or key cannot be read or do not match. */
struct weir__tls_context *weir__tls_context_new(const struct weir__store_options *options);
/*
 * Reads a certificate or key file into memory, where weir__tls_context_new finds it afterwards: for a process that then
 * drops its privileges. False: cannot be read.
 */
bool weir__tls_keep(const char *path);
void weir__tls_context_free(struct weir__tls_context *context);

/* A session with `host`. The certificate must be valid for it, or for server_name of the options. NULL: no memory. */
struct weir__tls_session *weir__tls_new(const struct weir__tls_context *context, const char *host);
void weir__tls_free(struct weir__tls_session *tls);

/* Received ciphertext. False: no memory. */
bool weir__tls_feed(struct weir__tls_session *tls, const char *data, size_t len);
/*
 * 1: the handshake is complete; 0: in progress; WEIR_ESTOREAUTH: a certificate was refused; WEIR_ESTOREGARBAGE: other
 * errors.
 */
int weir__tls_shake(struct weir__tls_session *tls);
/* Bytes of plaintext read; 0: none yet; negative: why the session ended. */
long weir__tls_read(struct weir__tls_session *tls, char *to, size_t size);
/* Encrypts all of it. False: error. */
bool weir__tls_write(struct weir__tls_session *tls, const char *data, size_t len);
/* Ciphertext to send, and how much of it was sent. */
const char *weir__tls_output(struct weir__tls_session *tls, size_t *len);
void weir__tls_sent(struct weir__tls_session *tls, size_t len);

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
    struct weir__tls_session *tls;
    char host[256];
    struct addrinfo *addresses, *next; /* `next` is tried if this one fails */
};

/* Starts to connect. The result is in `state`, now or after weir__socket_ready. */
void weir__socket_open(struct weir__socket *socket, const struct weir__store_options *options, const char *host,
                       uint16_t port);
void weir__socket_close(struct weir__socket *socket);
/* Events to poll for; `output`: there are bytes to send. */
short weir__socket_events(struct weir__socket *socket, bool output);
/* Handles an event while connecting or in the TLS handshake. */
void weir__socket_ready(struct weir__socket *socket, struct weir__tls_context *tls);
/* Bytes sent or received; 0: would block; negative: error, the connection is closed. */
long weir__socket_send(struct weir__socket *socket, const char *data, size_t len);
long weir__socket_receive(struct weir__socket *socket, char *to, size_t size);

#endif
