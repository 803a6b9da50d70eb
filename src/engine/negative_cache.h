/*
 * Denials of the store, remembered in the segment until they end, so that who keeps asking costs the store nothing.
 *
 * Each is a bucket beside the counter that drains one unit a microsecond: what is in it is what is left of the denial.
 * It is not a block: while any key is blocked, every take looks for blocks. Apart for each cost, since what is denied
 * at one may fit at a smaller one; and for each size of the limit, since a changed limit deserves a new request.
 */
#ifndef WEIR_ENGINE_NEGATIVE_CACHE_H
#define WEIR_ENGINE_NEGATIVE_CACHE_H

#include "engine/segment.h"

/* What the functions below need, made once. */
int weir__negative_cache_init(weir_limit *negative_cache);

/* What is left of a denial, in nanoseconds; 0: none is remembered. */
int64_t weir__negative_cache_left(const weir_segment *segment, const weir_limit *negative_cache,
                                  const weir_request *request, weir_time now);
/* Remembers one for so long, at most some 71 minutes; of several at once, the longest counts. */
void weir__negative_cache_add(weir_segment *segment, const weir_limit *negative_cache, const weir_request *request,
                              int64_t for_ns, weir_time now);
int weir__negative_cache_remove(weir_segment *segment, const weir_limit *negative_cache, const weir_request *request,
                                weir_time now);

/* Is any key blocked by an operator? Then the request's own counter must be looked at. */
bool weir__blocks_any(const weir_segment *segment, weir_time now);

#endif
