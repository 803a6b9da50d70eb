/* One at a time, in the order of coming. */
#include "control/fair_lock.h"
#include "../../test.h"

#include <pthread.h>
#include <time.h>

enum { WAITING = 6 };

static struct weir__fair_lock lock;
static int order[WAITING + 1], served;
static int begun, gone; /* who waits, and who did and came to nothing */

struct one {
    pthread_t thread;
    int number;
    int64_t ms; /* 0: for ever */
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
    order[served++] = me->number; /* it is its turn: nobody else writes */
    weir__fair_lock_release(&lock);
    return NULL;
}

static int waiting(void)
{
    int count = 0;
    pthread_mutex_lock(&lock.mutex);
    for (struct weir__waiting **at = &lock.first; at != lock.end; at = (struct weir__waiting **)*at)
        count++; /* the pointer to the next one comes first */
    pthread_mutex_unlock(&lock.mutex);
    return count;
}

/* All that have begun wait, but for those whose time was over. */
static void until_all_wait(void)
{
    while (waiting() != begun - __atomic_load_n(&gone, __ATOMIC_RELAXED))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* Begins them one after the other, while the turn is taken. On a slow machine the first may be gone before the last. */
static void begin(struct one *them, int count)
{
    for (int i = 0; i < count; i++) {
        CHECK_EQ(pthread_create(&them[i].thread, NULL, wait_and_serve, &them[i]), 0);
        begun++;
        until_all_wait();
    }
}

TEST(in_the_order_of_coming)
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
    weir__fair_lock_acquire(&lock); /* who gives and asks again comes after those who wait */
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

/* The first, one in the middle and the last go away; whoever comes then is behind those that stayed. */
TEST(who_waits_no_longer_is_left_out)
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
