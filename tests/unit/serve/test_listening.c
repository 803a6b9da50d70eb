/* Listening sockets of weir serve: binding, inheriting, systemd's protocol, and what a takeover refuses. */
#include "serve/takeover.h"

#include "../../test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct weir__logger quiet;

static struct weir__config config_of(struct weir__listener *listeners, size_t count)
{
    quiet = (struct weir__logger){.file = open("/dev/null", O_WRONLY | O_CLOEXEC)};
    return (struct weir__config){.listeners = listeners, .listener_count = count};
}

/* An unused port, as text. */
static const char *free_port(char text[8])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(fd, (struct sockaddr *)&at, len) == 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    close(fd);
    snprintf(text, 8, "%d", ntohs(at.sin_port));
    return text;
}

static bool connects(const char *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)strtol(port, NULL, 10))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool good = connect(fd, (struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    return good;
}

TEST(all_addresses_of_a_port_are_one_socket_as_nginx_binds_them)
{
    static struct weir__listening listening;
    char port[8], other[8];
    free_port(port);
    struct weir__listener listeners[] = {
        {.address = "a", .host = "127.0.0.1", .port = port},
        {.address = "b", .host = NULL, .port = port},
        {.address = "c", .host = "127.0.0.1", .port = port},
        {.kind = WEIR__RESP, .address = "d", .host = "127.0.0.1", .port = free_port(other)},
        {.kind = WEIR__RESP, .address = "d", .host = "127.0.0.1", .port = other},
    };
    struct weir__config config = config_of(listeners, 5);
    CHECK(weir__listening_open(&listening, &config, &quiet));
    CHECK_EQ(listening.count, 2);
    CHECK(weir__listening_is_new(&listening) && connects(port) && connects(other));
    CHECK(fcntl(listening.sockets[0].fd, F_GETFL) & O_NONBLOCK); /* nginx does not set it */
    CHECK_EQ(fcntl(listening.sockets[0].fd, F_GETFD), FD_CLOEXEC);

    /* One that is taken over is the same, and no other is bound. */
    static struct weir__listening next;
    weir__listening_adopt(&next, dup(listening.sockets[0].fd), false);
    weir__listening_adopt(&next, dup(listening.sockets[0].fd), false); /* twice */
    weir__listening_adopt(&next, dup(listening.sockets[1].fd), false);
    CHECK(next.count == 2 && weir__listening_open(&next, &config, &quiet) && next.count == 2);
    weir__listening_close(&listening);
    CHECK(connects(port));

    /* What is not wanted any more is closed, but only once the next configuration runs. */
    config.listener_count = 1;
    listeners[0].host = NULL;
    CHECK(weir__listening_open(&next, &config, &quiet) && connects(other));
    weir__listening_settle(&next);
    CHECK(next.count == 1 && connects(port) && !connects(other) && !weir__listening_is_new(&next));
    weir__listening_close(&next);
    CHECK(!connects(port));
}

TEST(an_address_that_is_taken_leaves_everything_as_it_is)
{
    static struct weir__listening listening, holder;
    char port[8], taken[8], third[8];
    struct weir__listener listeners[] = {{.address = "a", .host = "127.0.0.1", .port = free_port(port)},
                                         {.address = "b", .host = "127.0.0.1", .port = free_port(third)},
                                         {.address = "c", .host = "127.0.0.1", .port = free_port(taken)}};
    struct weir__config config = config_of(listeners, 1), other = config_of(listeners + 2, 1);
    CHECK(weir__listening_open(&holder, &other, &quiet) && weir__listening_open(&listening, &config, &quiet));
    weir__listening_settle(&listening);
    config.listener_count = 3;
    CHECK(!weir__listening_open(&listening, &config, &quiet));
    CHECK(listening.count == 1 && listening.sockets[0].wanted && !connects(third));
    weir__listening_close(&listening);
    weir__listening_close(&holder);
}

TEST(what_is_passed_to_nginx)
{
    static struct weir__listening listening;
    char port[8], expected[32];
    struct weir__listener listeners[] = {{.address = "a", .host = "127.0.0.1", .port = free_port(port)}};
    struct weir__config config = config_of(listeners, 1);
    CHECK(weir__listening_open(&listening, &config, &quiet) && weir__listening_pass_on(&listening));
    snprintf(expected, sizeof expected, "%d;", listening.sockets[0].fd);
    CHECK(strcmp(getenv("NGINX"), expected) == 0 && fcntl(listening.sockets[0].fd, F_GETFD) == 0);
    weir__listening_close(&listening);
    unsetenv("NGINX");
}

TEST(descriptors_that_do_not_listen_are_closed)
{
    static struct weir__listening listening;
    int ends[2], unbound = socket(AF_INET, SOCK_STREAM, 0), datagram = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK_EQ(pipe(ends), 0);
    const int given[] = {ends[0], ends[1], unbound, datagram, 9999};
    for (size_t i = 0; i < 5; i++) {
        weir__listening_adopt(&listening, given[i], false);
        CHECK(fcntl(given[i], F_GETFD) < 0 && errno == EBADF);
    }
    CHECK_EQ(listening.count, 0);
}

TEST(the_protocol_of_systemd)
{
    static struct weir__listening listening, next;
    char port[8], path[] = "/tmp/weir-notify-XXXXXX", text[256] = "", expected[128];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    CHECK(mkdtemp(path) != NULL);
    snprintf(at.sun_path, sizeof at.sun_path, "%s/socket", path);
    int manager = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK_EQ(bind(manager, (struct sockaddr *)&at, sizeof at), 0);
    setenv("NOTIFY_SOCKET", at.sun_path, 1);
    weir__systemd_notify("READY=1");
    CHECK(recv(manager, text, sizeof text, MSG_DONTWAIT) == 7 && memcmp(text, "READY=1", 7) == 0);

    struct weir__listener listeners[] = {{.address = "a", .host = "127.0.0.1", .port = free_port(port)}};
    struct weir__config config = config_of(listeners, 1);
    CHECK(weir__listening_open(&listening, &config, &quiet));
    weir__listening_settle(&listening);
    union {
        char bytes[256];
        struct cmsghdr aligned;
    } control;
    struct iovec data = {.iov_base = text, .iov_len = sizeof text - 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t got = recvmsg(manager, &message, MSG_DONTWAIT);
    CHECK(got > 0);
    text[got] = 0;
    snprintf(expected, sizeof expected, "FDSTORE=1\nFDNAME=127.0.0.1_%s", port);
    CHECK(strcmp(text, expected) == 0);
    const struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    CHECK(part && part->cmsg_type == SCM_RIGHTS && part->cmsg_len == CMSG_LEN(sizeof(int)));
    int kept;
    memcpy(&kept, CMSG_DATA(part), sizeof kept);
    weir__listening_settle(&listening); /* it is stored once */
    CHECK(recv(manager, text, sizeof text, MSG_DONTWAIT) < 0);
    weir__listening_close(&listening); /* and stays there at the end */
    CHECK(recv(manager, text, sizeof text, MSG_DONTWAIT) < 0 && connects(port));

    weir__listening_adopt(&next, kept, false);
    weir__listening_settle(&next); /* which no configuration wants */
    got = recv(manager, text, sizeof text - 1, MSG_DONTWAIT);
    text[got > 0 ? got : 0] = 0;
    snprintf(expected, sizeof expected, "FDSTOREREMOVE=1\nFDNAME=127.0.0.1_%s", port);
    CHECK(strcmp(text, expected) == 0 && !connects(port));

    /* Sockets for another process are not taken. */
    setenv("LISTEN_PID", "1", 1);
    setenv("LISTEN_FDS", "3", 1);
    weir__systemd_sockets(&next);
    CHECK(next.count == 0 && !getenv("LISTEN_FDS"));
    unsetenv("NOTIFY_SOCKET");
    close(manager);
    unlink(at.sun_path);
    rmdir(path);
}

TEST(a_takeover_without_a_predecessor_is_refused)
{
    static struct weir__takeover takeover;
    static struct weir__serving serving;
    char own[256];
    snprintf(own, sizeof own, "{\"pid\": %d, \"format\": \"" WEIR__TAKEOVER_FORMAT "\", \"master\": 1}", (int)getpid());
    const char *const texts[] = {"", "{", "[]", "null", "{}", "{\"pid\": 1}", own};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        setenv("WEIR_TAKEOVER", texts[i], 1);
        serving.log = quiet;
        CHECK(weir__takeover_pending() && !weir__takeover_receive(&takeover, &serving));
        CHECK(!weir__takeover_pending());
    }
}

TEST_MAIN
