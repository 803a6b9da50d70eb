/*
 * Resolving names. getaddrinfo blocks, so a thread calls it and signals an event descriptor. That way names resolve as
 * in every other program of the host (/etc/hosts, search domains), anew for each connection. At most one thread per
 * name.
 */
#include "ngx_weir_store.h"

#include <netdb.h>
#include <pthread.h>
#include <sys/eventfd.h>

#define LOOKUPS     16 /* names at once */
#define OWNERS      64 /* of one name */
#define THREAD_ROOM (256 * 1024)

typedef struct {
    char host[256];
    uint16_t port;
    int event_fd;
    ngx_weir_addresses_t addresses; /* written by the thread until it signals */

    ngx_connection_t *connection; /* NULL: free */
    struct {
        void *owner; /* NULL: cancelled */
        ngx_weir_found_pt *found;
    } owners[OWNERS];
    ngx_uint_t owner_count;
} ngx_weir_lookup_t;

static ngx_weir_lookup_t ngx_weir_lookups[LOOKUPS];

static void ngx_weir_addresses_read(const char *host, uint16_t port, int flags, ngx_weir_addresses_t *addresses)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV}, *list = NULL;
    char service[8];
    addresses->count = 0;
    (void)snprintf(service, sizeof(service), "%u", (unsigned)port);
    if (getaddrinfo(host, service, &hints, &list) != 0)
        return;
    for (struct addrinfo *each = list; each && addresses->count < NGX_WEIR_ADDRESSES; each = each->ai_next) {
        if (each->ai_addrlen > sizeof(struct sockaddr_storage))
            continue;
        ngx_memcpy(&addresses->list[addresses->count], each->ai_addr, each->ai_addrlen);
        addresses->lens[addresses->count++] = each->ai_addrlen;
    }
    freeaddrinfo(list);
}

ngx_uint_t ngx_weir_literal(const char *host, uint16_t port, ngx_weir_addresses_t *addresses)
{
    ngx_weir_addresses_read(host, port, AI_NUMERICHOST, addresses);
    return addresses->count > 0;
}

/* Runs in the thread. */
static void *ngx_weir_lookup_run(void *data)
{
    ngx_weir_lookup_t *lookup = data;
    uint64_t one = 1;
    ngx_weir_addresses_read(lookup->host, lookup->port, AI_ADDRCONFIG, &lookup->addresses);
    (void)!write(lookup->event_fd, &one, sizeof(one));
    return NULL;
}

/* Runs in the worker. */
static void ngx_weir_lookup_done(ngx_event_t *event)
{
    ngx_connection_t *c = event->data;
    ngx_weir_lookup_t *lookup = c->data;
    uint64_t count;
    if (read(c->fd, &count, sizeof(count)) != (ssize_t)sizeof(count))
        return; /* not yet */
    ngx_weir_addresses_t addresses = lookup->addresses;
    ngx_uint_t owners = lookup->owner_count;
    lookup->connection = NULL;
    ngx_close_connection(c);
    for (ngx_uint_t i = 0; i < owners; i++)
        if (lookup->owners[i].owner)
            lookup->owners[i].found(lookup->owners[i].owner, &addresses);
}

static ngx_weir_lookup_t *ngx_weir_lookup_find(const char *host, uint16_t port)
{
    ngx_weir_lookup_t *unused = NULL;
    for (ngx_uint_t i = 0; i < LOOKUPS; i++) {
        ngx_weir_lookup_t *each = &ngx_weir_lookups[i];
        if (each->connection && each->port == port && strcmp(each->host, host) == 0)
            return each;
        unused = each->connection ? unused : each;
    }
    return unused;
}

static ngx_int_t ngx_weir_lookup_thread(ngx_weir_lookup_t *lookup)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0)
        return NGX_ERROR;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attributes, THREAD_ROOM);
    /* signals are handled by nginx's thread */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &attributes, ngx_weir_lookup_run, lookup);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return error ? NGX_ERROR : NGX_OK;
}

static ngx_int_t ngx_weir_lookup_begin(ngx_weir_lookup_t *lookup, const char *host, uint16_t port, ngx_log_t *log)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ngx_connection_t *c = fd < 0 ? NULL : ngx_get_connection(fd, log);
    if (c == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return NGX_ERROR;
    }
    c->data = lookup;
    c->read->handler = ngx_weir_lookup_done;
    c->read->log = c->write->log = log;
    c->read->resolver = 1; /* so that a worker that shuts down does not report it as an open connection */
    (void)ngx_cpystrn((u_char *)lookup->host, (u_char *)host, sizeof(lookup->host));
    lookup->port = port;
    lookup->event_fd = fd;
    lookup->owner_count = 0;
    if (ngx_add_event(c->read, NGX_READ_EVENT, NGX_LEVEL_EVENT) != NGX_OK || ngx_weir_lookup_thread(lookup) != NGX_OK) {
        ngx_close_connection(c);
        return NGX_ERROR;
    }
    lookup->connection = c;
    return NGX_OK;
}

ngx_int_t ngx_weir_lookup(const char *host, uint16_t port, ngx_weir_found_pt *found, void *owner, ngx_log_t *log)
{
    ngx_weir_lookup_t *lookup = ngx_weir_lookup_find(host, port);
    if (lookup == NULL || (!lookup->connection && ngx_weir_lookup_begin(lookup, host, port, log) != NGX_OK))
        return NGX_ERROR;
    ngx_uint_t at = 0;
    while (at < lookup->owner_count && lookup->owners[at].owner)
        at++;
    if (at == OWNERS)
        return NGX_ERROR;
    lookup->owners[at].owner = owner;
    lookup->owners[at].found = found;
    lookup->owner_count = ngx_max(lookup->owner_count, at + 1);
    return NGX_OK;
}

void ngx_weir_lookup_forget(void *owner)
{
    for (ngx_uint_t i = 0; i < LOOKUPS; i++)
        for (ngx_uint_t j = 0; j < ngx_weir_lookups[i].owner_count; j++)
            if (ngx_weir_lookups[i].owners[j].owner == owner)
                ngx_weir_lookups[i].owners[j].owner = NULL;
}
