/*
 * Resolving names. getaddrinfo blocks, so a thread calls it, and the channel polls for its result. That way names
 * resolve as in every other program of the host (/etc/hosts, search domains), anew for each connection. At most one
 * thread per channel.
 */
#include "ngx_weir_store.h"

#include <netdb.h>
#include <pthread.h>

typedef struct {
    char host[256];
    uint16_t port;
    ngx_uint_t running;
    volatile ngx_uint_t done;       /* set by the thread */
    ngx_weir_addresses_t addresses; /* written by the thread before `done` */
} ngx_weir_lookup_t;

/* Not in the cycle's pool: a thread may outlast it. */
static ngx_weir_lookup_t ngx_weir_lookups[WEIR__CHANNELS];

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
    ngx_weir_addresses_read(lookup->host, lookup->port, AI_ADDRCONFIG, &lookup->addresses);
    ngx_memory_barrier();
    lookup->done = 1;
    return NULL;
}

static ngx_int_t ngx_weir_lookup_begin(ngx_weir_lookup_t *lookup)
{
    pthread_t thread;
    sigset_t all, before;
    /* signals are handled by nginx's thread */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, ngx_weir_lookup_run, lookup);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    lookup->running = error == 0;
    return error || pthread_detach(thread) != 0 ? NGX_ERROR : NGX_AGAIN;
}

ngx_int_t ngx_weir_lookup(unsigned channel, const char *host, uint16_t port, ngx_uint_t anew,
                          ngx_weir_addresses_t *addresses)
{
    ngx_weir_lookup_t *lookup = &ngx_weir_lookups[channel];
    if (lookup->running) {
        if (!lookup->done)
            return NGX_AGAIN;
        ngx_memory_barrier();
        lookup->running = 0;
        if (!anew && lookup->port == port && strcmp(lookup->host, host) == 0) {
            *addresses = lookup->addresses;
            return NGX_OK;
        }
    }
    (void)ngx_cpystrn((u_char *)lookup->host, (u_char *)host, sizeof(lookup->host));
    lookup->port = port;
    lookup->done = 0;
    return ngx_weir_lookup_begin(lookup);
}
