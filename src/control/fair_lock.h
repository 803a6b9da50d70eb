/*
 * One at a time, as a mutex has it; but who waits is served in the order of coming, so that nobody who asks again and
 * again keeps the others waiting, and one may wait until a deadline only, by the monotonic clock.
 */
#ifndef WEIR_CONTROL_FAIR_LOCK_H
#define WEIR_CONTROL_FAIR_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct weir__turn {
    pthread_mutex_t lock; /* held for moments */
    struct weir__waiting *first, **end;
    bool taken; /* if not, nobody waits */
};

void weir__turn_make(struct weir__turn *turn);
void weir__turn_end(struct weir__turn *turn);
void weir__turn_take(struct weir__turn *turn);
/* False: it did not come within so many milliseconds. 0 does not wait. */
bool weir__turn_take_within(struct weir__turn *turn, int64_t ms);
void weir__turn_give(struct weir__turn *turn);

#endif
