/* Binds, hands on and closes the listening sockets. See listening.h. */
#include "serve/listening.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 511, /* as nginx's */
    SOCKETS_MAX = 2 * WEIR__LISTENERS_MAX
};

/* ---- Names of addresses ---- */

/* False: an address of another family. */
static bool name_of(const struct sockaddr *address, char *name, size_t size)
{
    char host[INET6_ADDRSTRLEN];
    const void *at = address;
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *four = at;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        snprintf(name, size, "%s:%d", host, ntohs(four->sin_port));
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = at;
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
        snprintf(name, size, "[%s]:%d", host, ntohs(six->sin6_port));
    } else if (address->sa_family == AF_UNIX) {
        const struct sockaddr_un *file = at;
        snprintf(name, size, "unix:%.*s", (int)sizeof file->sun_path, file->sun_path);
    } else {
        return false;
    }
    return true;
}

static struct weir__listening_socket *find(const struct weir__listening *listening, const char *name)
{
    for (size_t i = 0; i < listening->count; i++)
        if (strcmp(listening->sockets[i].name, name) == 0)
            return (struct weir__listening_socket *)(uintptr_t)&listening->sockets[i];
    return NULL;
}

/* ---- Addresses of a configuration ---- */

struct bind_address {
    struct sockaddr_storage address;
    socklen_t len;
    bool stream; /* of nginx's stream module; else of its http module */
    const char *text;
};

struct address_list {
    struct bind_address list[SOCKETS_MAX];
    size_t count;
};

static bool add(struct address_list *to, const struct sockaddr *address, socklen_t len, bool stream, const char *text)
{
    if (to->count == sizeof to->list / sizeof *to->list)
        return false;
    struct bind_address *at = &to->list[to->count++];
    *at = (struct bind_address){.len = len, .stream = stream, .text = text};
    memcpy(&at->address, address, len);
    return true;
}

/* As nginx resolves them. */
static bool add_listener(struct address_list *to, const struct weir__listener *listener, char *why, size_t size)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV | AI_NUMERICHOST};
    struct addrinfo *found;
    bool good = true;
    hints.ai_family = listener->host ? AF_UNSPEC : AF_INET;
    int failed = getaddrinfo(listener->host, listener->port, &hints, &found);
    if (failed == EAI_NONAME) {
        hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
        failed = getaddrinfo(listener->host, listener->port, &hints, &found);
    }
    if (failed) {
        snprintf(why, size, "%s: %s", listener->address, gai_strerror(failed));
        return false;
    }
    for (const struct addrinfo *at = found; at && good; at = at->ai_next)
        good = add(to, at->ai_addr, at->ai_addrlen, listener->kind == WEIR__RESP, listener->address);
    freeaddrinfo(found);
    if (!good)
        snprintf(why, size, "%s: there are too many addresses", listener->address);
    return good;
}

static bool collect(struct address_list *to, const struct weir__config *config, char *why, size_t size)
{
    for (size_t i = 0; i < config->listener_count; i++)
        if (!add_listener(to, &config->listeners[i], why, size))
            return false;
    if (config->metrics && !add_listener(to, config->metrics, why, size))
        return false;
    struct sockaddr_un delivery = {.sun_family = AF_UNIX};
    if (!config->queue.wanted || !config->queue.gateway)
        return true;
    snprintf(delivery.sun_path, sizeof delivery.sun_path, "%s", config->queue.gateway);
    snprintf(why, size, "%s: there are too many addresses", config->queue.gateway);
    return add(to, (const struct sockaddr *)&delivery, sizeof delivery, false, config->queue.gateway);
}

/* The port of an IPv4 or IPv6 address; `all`: whether it is that of every address of the host. */
static in_port_t port_of(const struct sockaddr_storage *address, bool *all)
{
    const void *at = address;
    const struct sockaddr_in *four = at;
    const struct sockaddr_in6 *six = at;
    if (address->ss_family == AF_INET) {
        *all = four->sin_addr.s_addr == htonl(INADDR_ANY);
        return four->sin_port;
    }
    *all = address->ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr);
    return address->ss_family == AF_INET6 ? six->sin6_port : 0;
}

/* nginx listens once for a port if one of its listeners is for all addresses. */
static bool is_covered(const struct address_list *among, const struct bind_address *one)
{
    bool all, other_all;
    in_port_t port = port_of(&one->address, &all);
    for (size_t i = 0; i < among->count && !all && port; i++) {
        const struct bind_address *other = &among->list[i];
        if (other->address.ss_family == one->address.ss_family && other->stream == one->stream &&
            port_of(&other->address, &other_all) == port && other_all)
            return true;
    }
    return false;
}

/* ---- Binding ---- */

/* A socket that listens as nginx's own do, which sets neither mode nor options of one that it inherits. -1: errno has
 * the reason. */
static int bind_to(const struct bind_address *wanted)
{
    static const int on = 1;
    const struct sockaddr *address = (const struct sockaddr *)&wanted->address;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    bool file = address->sa_family == AF_UNIX, six = address->sa_family == AF_INET6;
    if (file)
        unlink(wanted->text); /* of a process that was killed; the directory is this process's */
    if ((!file && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) ||
        (six && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0) ||
        bind(fd, address, wanted->len) != 0 || (file && chmod(wanted->text, 0666) != 0) || listen(fd, BACKLOG) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* The socket for an address, bound unless there is one. NULL: errno has the reason. */
static struct weir__listening_socket *socket_for(struct weir__listening *listening, const struct bind_address *wanted)
{
    struct weir__listening_socket fresh = {.fd = -1};
    name_of((const struct sockaddr *)&wanted->address, fresh.name, sizeof fresh.name);
    struct weir__listening_socket *known = find(listening, fresh.name);
    if (known)
        return known;
    errno = E2BIG;
    if (listening->count < SOCKETS_MAX)
        fresh.fd = bind_to(wanted);
    if (fresh.fd < 0)
        return NULL;
    known = &listening->sockets[listening->count++];
    *known = fresh;
    return known;
}

int weir__listening_try(const struct weir__listening *listening, const struct weir__listener *listener, char *why,
                        size_t size)
{
    struct address_list all = {.count = 0};
    int fd = 0;
    if (!add_listener(&all, listener, why, size))
        return -1;
    for (size_t i = 0; i < all.count && fd >= 0; i++) {
        char name[sizeof listening->admin.name];
        if (name_of((const struct sockaddr *)&all.list[i].address, name, sizeof name) && find(listening, name))
            continue;
        if ((fd = bind_to(&all.list[i])) >= 0)
            close(fd);
    }
    return fd < 0 ? errno : 0;
}

bool weir__listening_open(struct weir__listening *listening, const struct weir__config *config,
                          const struct weir__logger *log)
{
    struct address_list all = {.count = 0};
    size_t before = listening->count;
    char why[512] = "";
    bool wanted[SOCKETS_MAX] = {false}, good = collect(&all, config, why, sizeof why);
    for (size_t i = 0; i < all.count && good; i++) {
        if (is_covered(&all, &all.list[i]))
            continue;
        const struct weir__listening_socket *found = socket_for(listening, &all.list[i]);
        good = found != NULL;
        if (good)
            wanted[found - listening->sockets] = true;
        else
            snprintf(why, sizeof why, "cannot listen on %s: %s", all.list[i].text, strerror(errno));
    }
    if (!good)
        weir__logf(log, WEIR__LOG_ERROR, "%s", why);
    while (!good && listening->count > before)
        close(listening->sockets[--listening->count].fd);
    for (size_t i = 0; i < listening->count && good; i++)
        listening->sockets[i].wanted = wanted[i];
    if (good) /* now, as systemd may have passed its socket among the others */
        (void)weir__listening_admin(listening, config);
    return good;
}

bool weir__listening_is_new(const struct weir__listening *listening)
{
    for (size_t i = 0; i < listening->count; i++)
        if (listening->sockets[i].wanted && !listening->sockets[i].nginx_knows)
            return true;
    return false;
}

void weir__listening_settle(struct weir__listening *listening)
{
    size_t left = 0;
    for (size_t i = 0; i < listening->count; i++) {
        struct weir__listening_socket *at = &listening->sockets[i];
        if (at->wanted) {
            if (!at->nginx_knows)
                weir__systemd_store(at);
            at->nginx_knows = true;
            listening->sockets[left++] = *at;
        } else {
            weir__systemd_forget(at);
            close(at->fd);
        }
    }
    listening->count = left;
}

int weir__listening_admin(struct weir__listening *listening, const struct weir__config *config)
{
    struct weir__listening_socket *admin = &listening->admin, fresh = {.fd = 0};
    struct address_list wanted = {.count = 0};
    char why[256];
    if (config->admin.listener && add_listener(&wanted, config->admin.listener, why, sizeof why))
        name_of((const struct sockaddr *)&wanted.list[0].address, fresh.name, sizeof fresh.name);
    if (strcmp(admin->name, fresh.name) == 0)
        return *admin->name ? admin->fd : 0;
    if (*admin->name) {
        weir__systemd_forget(admin);
        close(admin->fd);
    }
    *admin = (struct weir__listening_socket){.fd = 0};
    struct weir__listening_socket *passed = find(listening, fresh.name); /* by systemd */
    if (passed && !passed->wanted) {
        *admin = *passed;
        *passed = listening->sockets[--listening->count];
        return admin->fd;
    }
    fresh.fd = *fresh.name ? bind_to(&wanted.list[0]) : -1;
    if (fresh.fd < 0)
        return 0;
    weir__systemd_store(&fresh);
    *admin = fresh;
    return admin->fd;
}

int weir__listening_queue(struct weir__listening *listening, const struct weir__config *config)
{
    if (!config->queue.wanted && listening->queue) {
        close(listening->queue);
        listening->queue = 0;
    }
    if (config->queue.wanted && !listening->queue) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        listening->queue = fd > 0 ? fd : 0;
    }
    return listening->queue;
}

/* ---- Handing on ---- */

void weir__listening_adopt(struct weir__listening *listening, int fd, bool admin)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    struct weir__listening_socket taken = {.fd = fd};
    socklen_t len = sizeof address, size = sizeof(int);
    int listens = 0;
    bool good = getsockname(fd, (struct sockaddr *)&address, &len) == 0 &&
                getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens &&
                name_of((const struct sockaddr *)&address, taken.name, sizeof taken.name) &&
                !find(listening, taken.name) && listening->count < SOCKETS_MAX;
    if (!good) {
        close(fd);
        return;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (admin)
        listening->admin = taken;
    else
        listening->sockets[listening->count++] = taken;
}

void weir__listening_close(struct weir__listening *listening)
{
    while (listening->count)
        close(listening->sockets[--listening->count].fd);
    if (*listening->admin.name)
        close(listening->admin.fd);
    if (listening->queue)
        close(listening->queue);
    listening->admin = (struct weir__listening_socket){.fd = 0};
    listening->queue = 0;
}

bool weir__listening_pass_on(const struct weir__listening *listening)
{
    char list[SOCKETS_MAX * 12] = "";
    size_t len = 0;
    for (size_t i = 0; i < listening->count; i++) {
        const struct weir__listening_socket *at = &listening->sockets[i];
        if (!at->wanted)
            continue;
        if (fcntl(at->fd, F_SETFD, 0) != 0)
            return false;
        len += (size_t)snprintf(list + len, sizeof list - len, "%d;", at->fd);
    }
    return setenv("NGINX", list, 1) == 0;
}
