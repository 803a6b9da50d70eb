/* The fair lock: one holder at a time, in the order of arrival. */
#include "control/fair_lock.h"
#include "../../test.h"

#include <pthread.h>
#include <time.h>

enum { WAITING = 6 };

static struct weir__fair_lock lock;
static int order[WAITING + 1], served;
static int begun, gone; /* threads that wait, and threads that timed out */

struct one {
    pthread_t thread;
    int number;
    int64_t ms; /* 0: no timeout */
    bool got;
};

static void *wait_and_serve(void *context)
{
    struct one *me = context;
    if (me->ms)
        me->got = weir__fair_lock_acquire_within(&lock, me->ms);
    else
        weir__fair_lock_acquire(&lock);
    me->got |= me->ms == 0;
    if (!me->got) {
        __atomic_add_fetch(&gone, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    order[served++] = me->number; /* holds the lock: no other thread writes */
    weir__fair_lock_release(&lock);
    return NULL;
}

static int waiting(void)
{
    int count = 0;
    pthread_mutex_lock(&lock.mutex);
    for (void **at = (void **)lock.waiting.tqh_first; at; at = *at) /* the link is the first member of a waiter */
        count++; /* the pointer to the next waiter is the first member */
    pthread_mutex_unlock(&lock.mutex);
    return count;
}

/* Returns once all started threads wait, except for those that timed out. */
static void until_all_wait(void)
{
    while (waiting() != begun - __atomic_load_n(&gone, __ATOMIC_RELAXED))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* Starts them one after the other, while the lock is held. On a slow machine the first may have timed out before the
 * last starts. */
static void begin(struct one *them, int count)
{
    for (int i = 0; i < count; i++) {
        CHECK_EQ(pthread_create(&them[i].thread, NULL, wait_and_serve, &them[i]), 0);
        begun++;
        until_all_wait();
    }
}

TEST(lock_is_granted_in_order_of_arrival)
{
    struct one them[WAITING];
    weir__fair_lock_init(&lock);
    served = begun = gone = 0;
    CHECK(weir__fair_lock_acquire_within(&lock, 0));
    for (int i = 0; i < WAITING; i++)
        them[i] = (struct one){.number = i, .ms = i % 2 ? 600000 : 0};
    begin(them, WAITING);
    CHECK(!weir__fair_lock_acquire_within(&lock, 0));
    weir__fair_lock_release(&lock);
    weir__fair_lock_acquire(&lock); /* releasing and acquiring again queues behind the waiters */
    CHECK_EQ(served, WAITING);
    for (int i = 0; i < WAITING; i++) {
        pthread_join(them[i].thread, NULL);
        CHECK(them[i].got);
        CHECK_EQ(order[i], i);
    }
    weir__fair_lock_release(&lock);
    CHECK(weir__fair_lock_acquire_within(&lock, 0));
    weir__fair_lock_release(&lock);
    weir__fair_lock_destroy(&lock);
}

/* The first, one in the middle and the last waiter time out; a new waiter queues behind the remaining ones. */
TEST(timed_out_waiters_are_skipped)
{
    struct one them[WAITING];
    weir__fair_lock_init(&lock);
    served = begun = gone = 0;
    weir__fair_lock_acquire(&lock);
    for (int i = 0; i < WAITING - 1; i++)
        them[i] = (struct one){.number = i, .ms = i % 2 ? 0 : 3000};
    begin(them, WAITING - 1);
    for (int i = 0; i < WAITING - 1; i += 2) {
        pthread_join(them[i].thread, NULL);
        CHECK(!them[i].got);
    }
    CHECK_EQ(waiting(), 2);
    them[WAITING - 1] = (struct one){.number = WAITING - 1};
    begin(&them[WAITING - 1], 1);
    weir__fair_lock_release(&lock);
    for (int i = 1; i < WAITING; i += 2)
        pthread_join(them[i].thread, NULL);
    CHECK_EQ(served, 3);
    for (int i = 0; i < served; i++)
        CHECK_EQ(order[i], 2 * i + 1);
    CHECK(weir__fair_lock_acquire_within(&lock, 0));
    weir__fair_lock_destroy(&lock);
}

TEST_MAIN
