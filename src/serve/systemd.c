/* What weir serve and systemd tell each other. See listening.h. */
#include "serve/listening.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

/* Sends a message to the service manager, with a descriptor unless `fd` is -1. Best effort, and without blocking. */
static void send_to_manager(const char *text, int fd)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (len < 2 || len >= sizeof to.sun_path || (*path != '/' && *path != '@'))
        return;
    memcpy(to.sun_path, path, len);
    if (*path == '@') /* an abstract socket */
        to.sun_path[0] = 0;
    int by = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (by < 0)
        return;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control = {{0}};
    struct iovec data = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    struct msghdr message = {.msg_name = &to,
                             .msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len),
                             .msg_iov = &data,
                             .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *part = CMSG_FIRSTHDR(&message);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(part), &fd, sizeof fd);
    }
    (void)!sendmsg(by, &message, MSG_NOSIGNAL);
    close(by);
}

/* The socket's name, in which systemd accepts no colon. */
static void send_named(const char *verb, const struct weir__listening_socket *kept, int fd)
{
    char text[sizeof kept->name + 64];
    int from = snprintf(text, sizeof text, "%s\nFDNAME=", verb);
    snprintf(text + from, sizeof text - (size_t)from, "%s", kept->name);
    for (char *at = text + from; (at = strchr(at, ':'));)
        *at = '_';
    send_to_manager(text, fd);
}

void weir__systemd_notify(const char *state)
{
    send_to_manager(state, -1);
}

void weir__systemd_store(const struct weir__listening_socket *kept)
{
    if (strncmp(kept->name, "unix:", 5) != 0) /* its path is in the runtime directory, which the next one has not */
        send_named("FDSTORE=1", kept, kept->fd);
}

void weir__systemd_forget(const struct weir__listening_socket *kept)
{
    send_named("FDSTOREREMOVE=1", kept, -1);
}

void weir__systemd_sockets(struct weir__listening *listening)
{
    enum { FIRST = 3 }; /* SD_LISTEN_FDS_START */
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    long number = pid && count && strtol(pid, NULL, 10) == (long)getpid() ? strtol(count, NULL, 10) : 0;
    for (int fd = FIRST; number <= 1024 && fd < FIRST + number; fd++)
        weir__listening_adopt(listening, fd, false);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
}
