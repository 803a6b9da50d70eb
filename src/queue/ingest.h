/*
 * Accepting requests for the queue: what nginx brings to STATE/queue.sock is kept, and answered with its ticket. In
 * reading order:
 *
 *   accept_request   what nginx says of a request, and which of its headers are kept
 *   accept_commit    the one thread that asks the queue: all that wait go into one transaction
 *   accept_ticket    what is told of a ticket
 *   accept_socket    the socket, and who may connect to it
 *   accept           the listener: HTTP by libmicrohttpd, in one thread, with requests that wait suspended
 */
#ifndef WEIR_QUEUE_INGEST_H
#define WEIR_QUEUE_INGEST_H

#include "config/config.h"
#include "base/log.h"

struct weir__ingest;

struct weir__ingest_counts {
    uint64_t accepted, refused; /* refused: full, too large, faulty; the gateway denied them */
    uint64_t commits;           /* transactions that the accepted ones took */
};

/*
 * Listens and answers, for a configuration that has a queue. `put` (may be NULL) is called when something was put into
 * it, from the ingest's thread. NULL, and why. The configuration and the log must stay.
 */
struct weir__ingest *weir__ingest_start(const struct weir__config *config, const struct weir__logger *log,
                                        void (*put)(void *context), void *context, char *why, size_t why_size);
/* What is being put is answered first. NULL is allowed. */
void weir__ingest_stop(struct weir__ingest *ingest);
void weir__ingest_counts(struct weir__ingest *ingest, struct weir__ingest_counts *stats);

#endif
