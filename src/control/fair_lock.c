/* A fair lock: see fair_lock.h. */
#include "control/fair_lock.h"
#include "base/clock.h"

/* On the stack of a waiting thread. */
struct weir__waiting {
    TAILQ_ENTRY(weir__waiting) link;
    pthread_cond_t called;
    bool mine; /* the lock was handed over */
};

void weir__fair_lock_init(struct weir__fair_lock *lock)
{
    pthread_mutex_init(&lock->mutex, NULL);
    TAILQ_INIT(&lock->waiting);
    lock->taken = false;
}

void weir__fair_lock_destroy(struct weir__fair_lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

/* Waits behind all earlier waiters. lock->mutex is held; `until` may be NULL. */
static bool wait_for(struct weir__fair_lock *lock, const struct timespec *until)
{
    struct weir__waiting me = {.mine = false};
    int error = 0;
    weir__deadline_cond(&me.called);
    TAILQ_INSERT_TAIL(&lock->waiting, &me, link);
    while (!me.mine && error == 0)
        error = until ? pthread_cond_timedwait(&me.called, &lock->mutex, until)
                      : pthread_cond_wait(&me.called, &lock->mutex);
    if (!me.mine)
        TAILQ_REMOVE(&lock->waiting, &me, link);
    pthread_cond_destroy(&me.called);
    return me.mine;
}

void weir__fair_lock_acquire(struct weir__fair_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
    if (lock->taken)
        (void)wait_for(lock, NULL);
    lock->taken = true;
    pthread_mutex_unlock(&lock->mutex);
}

bool weir__fair_lock_acquire_within(struct weir__fair_lock *lock, int64_t ms)
{
    struct timespec until = weir__deadline(ms * 1000);
    pthread_mutex_lock(&lock->mutex);
    bool mine = !lock->taken || (ms > 0 && wait_for(lock, &until));
    lock->taken = true;
    pthread_mutex_unlock(&lock->mutex);
    return mine;
}

void weir__fair_lock_release(struct weir__fair_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
    struct weir__waiting *next = TAILQ_FIRST(&lock->waiting);
    lock->taken = next != NULL;
    if (next) {
        TAILQ_REMOVE(&lock->waiting, next, link);
        next->mine = true;
        pthread_cond_signal(&next->called);
    }
    pthread_mutex_unlock(&lock->mutex);
}
