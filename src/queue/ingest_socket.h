/* The socket that nginx brings requests to: see ingest.h. */
#ifndef WEIR_QUEUE_INGEST_SOCKET_H
#define WEIR_QUEUE_INGEST_SOCKET_H

#include "config/config.h"

/*
 * Listens there, for this user and nginx's workers alone. What a killed agent left is replaced, in one step; one that
 * somebody listens on is not. -1, and why.
 */
int weir__ingest_listen(const struct weir__config *config, char *why, size_t why_size);

#endif
