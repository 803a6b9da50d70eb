/* A connection of the link: a socket that never blocks, with TLS or without. */
#ifndef WEIR_REMOTE_SOCKET_H
#define WEIR_REMOTE_SOCKET_H

#include "remote/tls.h"

#include <netdb.h>
#include <poll.h>

enum weir__socket_state {
    WEIR__SOCKET_NONE,
    WEIR__SOCKET_FAILED, /* could not be opened: `error` */
    WEIR__SOCKET_CONNECTING,
    WEIR__SOCKET_SHAKING, /* hands, with TLS */
    WEIR__SOCKET_OPEN
};

struct weir__socket {
    enum weir__socket_state state;
    int fd, error;
    struct weir__tls_session *tls;
    char host[256];
    struct addrinfo *addresses, *next; /* `next` is tried when this one fails */
};

/* Begins to connect. The outcome is in its state, now or after weir__socket_ready. */
void weir__socket_open(struct weir__socket *socket, const struct weir__store_options *options, const char *host,
                       uint16_t port);
void weir__socket_close(struct weir__socket *socket);
/* What to poll for; `output`: there is something to send. */
short weir__socket_events(struct weir__socket *socket, bool output);
/* Something has happened while it was connecting or shaking hands. */
void weir__socket_ready(struct weir__socket *socket, struct weir__tls_context *tls);
/* Bytes that were sent or received; 0: none now; negative: it is over, and why. */
long weir__socket_send(struct weir__socket *socket, const char *data, size_t len);
long weir__socket_receive(struct weir__socket *socket, char *to, size_t size);

#endif
