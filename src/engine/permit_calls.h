/* Requests in flight, for the files of the engine. */
#ifndef WEIR_ENGINE_PERMIT_CALLS_H
#define WEIR_ENGINE_PERMIT_CALLS_H

#include "engine/segment.h"

/* weir_acquire on a segment that may be written to, for those who know their processor already. */
int weir__acquire_on(unsigned cpu, weir_segment *segment, const weir_limit *limit, const void *key, size_t key_len,
                     weir_time now, weir_lease *lease, weir_decision *decision);

#endif
