/*
 * The negative cache: denials of the store, kept in the segment until they end, so that a client that retries does not
 * cause store requests.
 *
 * Each is a bucket next to the counter that drains one unit a microsecond: its level is the time left. Not implemented
 * as a block, since every take checks for blocks while there are any. Entries are separate by cost, since a smaller
 * cost may fit, and by limit, since a changed limit must be decided anew.
 */
#ifndef WEIR_ENGINE_NEGATIVE_CACHE_H
#define WEIR_ENGINE_NEGATIVE_CACHE_H

#include "engine/segment.h"

/* The limit that the functions below use. */
int weir__negative_cache_init(weir_limit *negative_cache);

/* What is left of a cached denial, in nanoseconds; 0: none. */
int64_t weir__negative_cache_left(const weir_segment *segment, const weir_limit *negative_cache,
                                  const weir_request *request, weir_time now);
/* Caches a denial for so long, at most about 71 minutes; of concurrent ones the longest wins. */
void weir__negative_cache_add(weir_segment *segment, const weir_limit *negative_cache, const weir_request *request,
                              int64_t for_ns, weir_time now);
int weir__negative_cache_remove(weir_segment *segment, const weir_limit *negative_cache, const weir_request *request,
                                weir_time now);

/* Whether any key is blocked by an operator: then the request's own counter must be checked. */
bool weir__blocks_any(const weir_segment *segment, weir_time now);

#endif
