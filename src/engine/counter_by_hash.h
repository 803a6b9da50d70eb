/* One counter of the segment by its hash: for who does not have the key, as the agent of a long one. */
#ifndef WEIR_ENGINE_COUNTER_BY_HASH_H
#define WEIR_ENGINE_COUNTER_BY_HASH_H

#include "engine/segment.h"

/* The hash by which the segment finds the counter of a key under a limit. */
uint64_t weir__counter_hash(const weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len);
/* Asks for the line in which such a counter most likely is: for who looks at several. */
void weir__counter_expect(const weir_segment *segment, uint64_t hash);
/* Takes `amount` whether it fits or not; a negative one gives back; 0 only looks. Counted as nobody's request. */
int weir__counter_move(weir_segment *segment, const weir_limit *limit, uint64_t hash, int64_t amount, weir_time now,
                       weir_decision *decision);

#endif
