/*
 * The listening sockets of weir serve. The supervisor binds them, and nginx and the agent inherit them: so a socket
 * outlives the process that accepts its connections. Clients that connect while that process is replaced wait in the
 * socket's backlog; none is refused.
 */
#ifndef WEIR_SERVE_LISTENING_H
#define WEIR_SERVE_LISTENING_H

#include "base/log.h"
#include "config/config.h"

#include <sys/socket.h>

struct weir__listening_socket {
    int fd;
    char name[128];   /* "127.0.0.1:8080", "[::]:8080" or "unix:/path" */
    bool wanted;      /* the configuration that was opened last listens on it */
    bool nginx_knows; /* nginx's running master has inherited it */
};

struct weir__listening {
    struct weir__listening_socket sockets[2 * WEIR__LISTENERS_MAX];
    size_t count;
    struct weir__listening_socket admin; /* the agent's admin listener; name "": none */
    int queue;                           /* the queue's listener, which the first agent binds, as its user; 0: none */
};

/* ---- Binding (listening.c) ---- */

/* Tries to listen on the addresses that have no socket yet. 0, an errno, or -1: *why. */
int weir__listening_try(const struct weir__listening *listening, const struct weir__listener *listener, char *why,
                        size_t size);
/*
 * Binds the addresses of nginx's listeners in the configuration that have no socket yet, and sets `wanted` for all of
 * them and for no others. False after a logged error: no socket was added, and `wanted` is unchanged.
 */
bool weir__listening_open(struct weir__listening *listening, const struct weir__config *config,
                          const struct weir__logger *log);
/* True if nginx's running master lacks a wanted socket: only a new master can inherit it. */
bool weir__listening_is_new(const struct weir__listening *listening);
/* nginx's running master has inherited the wanted sockets. Closes the others. */
void weir__listening_settle(struct weir__listening *listening);
/* The socket of the admin listener, bound if there is none yet; 0: the configuration has none, or binding fails. */
int weir__listening_admin(struct weir__listening *listening, const struct weir__config *config);
/* The Unix socket for the queue's listener, made if there is none yet; 0: the configuration has no queue. */
int weir__listening_queue(struct weir__listening *listening, const struct weir__config *config);
/* Takes over a socket of another process. Closes one that does not listen, or for which there is no room. */
void weir__listening_adopt(struct weir__listening *listening, int fd, bool admin);
/* Closes all sockets. systemd keeps those in its store. */
void weir__listening_close(struct weir__listening *listening);
/* In a new process, before it executes nginx: lets nginx inherit the wanted sockets, by the variable NGINX. */
bool weir__listening_pass_on(const struct weir__listening *listening);

/* ---- systemd (systemd.c) ---- */

/*
 * The protocols of sd_notify(3) and sd_listen_fds(3), without libsystemd. Sockets are kept in systemd's file descriptor
 * store: they outlive this process, and its successor gets them. Without systemd nothing happens.
 */
void weir__systemd_notify(const char *state);
void weir__systemd_store(const struct weir__listening_socket *kept);
void weir__systemd_forget(const struct weir__listening_socket *kept);
/* Takes over the sockets that systemd passes: those in its store, or of a socket unit. */
void weir__systemd_sockets(struct weir__listening *listening);

#endif
