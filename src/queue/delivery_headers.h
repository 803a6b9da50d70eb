/* A deferred request as it is sent: which of its headers go along, and what is added. */
#ifndef WEIR_QUEUE_DELIVERY_HEADERS_H
#define WEIR_QUEUE_DELIVERY_HEADERS_H

#include "queue/queue.h"

struct curl_slist;

/* True if method and target can be put into a request line as they are. */
bool weir__delivery_is_sendable(const struct weir__deferred *item);
/*
 * Its headers for libcurl: without those of a connection (RFC 9110, 7.6.1, also those that Connection names), without
 * lengths and expectations, which libcurl sets itself, and without lines that are none. Added: Idempotency-Key with the
 * ticket, unless there is one, and X-Weir-Attempt; and words that keep libcurl from adding any of its own. NULL: no
 * memory.
 */
struct curl_slist *weir__delivery_headers(const struct weir__deferred *item, int attempt);

#endif
