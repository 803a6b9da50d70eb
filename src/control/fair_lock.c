/* One at a time: see fair_lock.h. */
#include "control/fair_lock.h"
#include "base/clock.h"

/* On the stack of who waits. */
struct weir__waiting {
    struct weir__waiting *next;
    pthread_cond_t called;
    bool mine; /* the turn was handed over */
};

void weir__turn_make(struct weir__turn *turn)
{
    pthread_mutex_init(&turn->lock, NULL);
    turn->first = NULL;
    turn->end = &turn->first;
    turn->taken = false;
}

void weir__turn_end(struct weir__turn *turn)
{
    pthread_mutex_destroy(&turn->lock);
}

static void leave(struct weir__turn *turn, const struct weir__waiting *me)
{
    struct weir__waiting **at = &turn->first;
    while (*at != me)
        at = &(*at)->next;
    *at = me->next;
    if (!*at)
        turn->end = at;
}

/* Behind all that wait already, while the lock is held. `until` may be NULL. */
static bool wait_for(struct weir__turn *turn, const struct timespec *until)
{
    struct weir__waiting me = {.next = NULL};
    int error = 0;
    weir__deadline_cond(&me.called);
    *turn->end = &me;
    turn->end = &me.next;
    while (!me.mine && error == 0)
        error =
            until ? pthread_cond_timedwait(&me.called, &turn->lock, until) : pthread_cond_wait(&me.called, &turn->lock);
    if (!me.mine)
        leave(turn, &me);
    pthread_cond_destroy(&me.called);
    return me.mine;
}

void weir__turn_take(struct weir__turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    if (turn->taken)
        (void)wait_for(turn, NULL);
    turn->taken = true;
    pthread_mutex_unlock(&turn->lock);
}

bool weir__turn_take_within(struct weir__turn *turn, int64_t ms)
{
    struct timespec until = weir__deadline(ms * 1000);
    pthread_mutex_lock(&turn->lock);
    bool mine = !turn->taken || (ms > 0 && wait_for(turn, &until));
    turn->taken = true;
    pthread_mutex_unlock(&turn->lock);
    return mine;
}

void weir__turn_give(struct weir__turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    struct weir__waiting *next = turn->first;
    turn->taken = next != NULL;
    if (next) {
        turn->first = next->next;
        if (!turn->first)
            turn->end = &turn->first;
        next->mine = true;
        pthread_cond_signal(&next->called);
    }
    pthread_mutex_unlock(&turn->lock);
}
