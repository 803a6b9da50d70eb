/*
 * The blocking client: drives client.h with its own sockets, TLS and poll, for callers without an event loop
 * (applications that use libweir, the agent, tests).
 *
 * One thread at a time. After a fork the child makes its own connections and leaves the parent's alone.
 *
 * Host names are resolved by getaddrinfo, which may block for longer than any deadline: use addresses where that
 * matters.
 */
#ifndef WEIR_REMOTE_BLOCKING_CLIENT_H
#define WEIR_REMOTE_BLOCKING_CLIENT_H

#include "remote/client.h"

struct weir__blocking_client;

/* NULL: no memory. `options` must outlive the client. Connects with the first request. */
struct weir__blocking_client *weir__blocking_client_new(const struct weir__store_options *options);
void weir__blocking_client_free(struct weir__blocking_client *blocking);

/* `changed` is called when the store becomes available or unavailable, from within the functions below. */
void weir__blocking_client_on_change(struct weir__blocking_client *blocking,
                                     void (*changed)(void *context, bool up, int error, const char *where),
                                     void *context);

/* Sends the request and waits until it is complete, at most until its deadline. Returns request->error. */
int weir__blocking_client_request(struct weir__blocking_client *blocking, struct weir__store_request *request);
/* Several requests, in flight together. All are complete when it returns: 0, or the first error. */
int weir__blocking_client_request_all(struct weir__blocking_client *blocking,
                                      struct weir__store_request *const *requests, size_t count);
/* Refunds what a complete request took. Sent without waiting, or with the next call. */
void weir__blocking_client_refund(struct weir__blocking_client *blocking, const struct weir__store_request *request);
/* Handles late replies, refunds and probes for at most this long. */
void weir__blocking_client_work(struct weir__blocking_client *blocking, int64_t for_us);
/* Before weir__blocking_client_free: waits for outstanding refunds, at most this long. */
void weir__blocking_client_flush_refunds(struct weir__blocking_client *blocking, int64_t most_us);
void weir__blocking_client_stats(struct weir__blocking_client *blocking, struct weir__client_stats *stats);

#endif
