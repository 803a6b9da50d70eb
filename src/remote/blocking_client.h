/*
 * A blocking way to the store, for whoever has no event loop: an application that uses libweir, the agent, the tests.
 * It drives the client of store/client.h with sockets of its own, TLS, and poll.
 *
 * One thread at a time. After a fork the child makes connections of its own; the parent's are left alone.
 *
 * Addresses are taken as numbers where they are ones; names are looked up by the system's resolver, which may block for
 * longer than any deadline: use addresses where that matters.
 */
#ifndef WEIR_REMOTE_BLOCKING_CLIENT_H
#define WEIR_REMOTE_BLOCKING_CLIENT_H

#include "remote/client.h"

struct weir__blocking_client;

/* NULL: no memory. The options must stay as they are. Nothing is connected yet: without a store this works, too. */
struct weir__blocking_client *weir__blocking_client_new(const struct weir__store_options *options);
void weir__blocking_client_free(struct weir__blocking_client *link);

/* Is told when the store goes away and comes back: for a log. Called from within the functions below. */
void weir__blocking_client_on_change(struct weir__blocking_client *link,
                                     void (*changed)(void *context, bool up, int error, const char *where),
                                     void *context);

/* Asks and waits until the request is done, at its deadline at the latest. Returns request->error. */
int weir__blocking_client_request(struct weir__blocking_client *link, struct weir__store_request *request);
/* The same with several at once: on their way together. All are done when it returns; 0, or the first's error. */
int weir__blocking_client_request_all(struct weir__blocking_client *link, struct weir__store_request *const *requests,
                                      size_t count);
/* Gives back what a request that is done has taken. Sends it if that goes without waiting, or with the next call. */
void weir__blocking_client_refund(struct weir__blocking_client *link, const struct weir__store_request *request);
/* Lets the client work for at most this long: late answers, what is to be given back, looking whether the store is
 * back. */
void weir__blocking_client_work(struct weir__blocking_client *link, int64_t for_us);
/* Before it is freed: lets what must not stay taken get back, for at most this long. At once if there is no such thing.
 */
void weir__blocking_client_flush_refunds(struct weir__blocking_client *link, int64_t most_us);
void weir__blocking_client_stats(struct weir__blocking_client *link, struct weir__client_stats *stats);

#endif
