/*
 * One at a time, as a mutex has it; but who waits is served in the order of coming, so that nobody who asks again and
 * again keeps the others waiting, and one may wait until a deadline only, by the monotonic clock.
 */
#ifndef WEIR_CONTROL_FAIR_LOCK_H
#define WEIR_CONTROL_FAIR_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct weir__fair_lock {
    pthread_mutex_t mutex; /* held for moments */
    struct weir__waiting *first, **end;
    bool taken; /* if not, nobody waits */
};

void weir__fair_lock_init(struct weir__fair_lock *lock);
void weir__fair_lock_destroy(struct weir__fair_lock *lock);
void weir__fair_lock_acquire(struct weir__fair_lock *lock);
/* False: it did not come within so many milliseconds. 0 does not wait. */
bool weir__fair_lock_acquire_within(struct weir__fair_lock *lock, int64_t ms);
void weir__fair_lock_release(struct weir__fair_lock *lock);

#endif
