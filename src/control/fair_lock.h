/*
 * A fair lock: like a mutex, but waiters are served in the order of arrival, so that a client that retries at once
 * cannot starve others; a wait may have a deadline by the monotonic clock.
 */
#ifndef WEIR_CONTROL_FAIR_LOCK_H
#define WEIR_CONTROL_FAIR_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct weir__fair_lock {
    pthread_mutex_t mutex; /* protects the fields below; held briefly */
    TAILQ_HEAD(, weir__waiting) waiting;
    bool taken; /* false: there are no waiters */
};

void weir__fair_lock_init(struct weir__fair_lock *lock);
void weir__fair_lock_destroy(struct weir__fair_lock *lock);
void weir__fair_lock_acquire(struct weir__fair_lock *lock);
/* False: not acquired within `ms` milliseconds. 0 does not wait. */
bool weir__fair_lock_acquire_within(struct weir__fair_lock *lock, int64_t ms);
void weir__fair_lock_release(struct weir__fair_lock *lock);

#endif
