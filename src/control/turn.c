/* One at a time: see turn.h. */
#include "control/turn.h"
#include "engine/deadline.h"

void weir__turn_make(struct weir__turn *turn)
{
    weir__deadline_cond(&turn->given);
    pthread_mutex_init(&turn->lock, NULL);
    turn->taken = false;
}

void weir__turn_end(struct weir__turn *turn)
{
    pthread_cond_destroy(&turn->given);
    pthread_mutex_destroy(&turn->lock);
}

void weir__turn_take(struct weir__turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    while (turn->taken)
        pthread_cond_wait(&turn->given, &turn->lock);
    turn->taken = true;
    pthread_mutex_unlock(&turn->lock);
}

bool weir__turn_take_within(struct weir__turn *turn, int64_t ms)
{
    struct timespec until = weir__deadline(ms * 1000);
    pthread_mutex_lock(&turn->lock);
    while (turn->taken && pthread_cond_timedwait(&turn->given, &turn->lock, &until) == 0)
        continue;
    bool mine = !turn->taken;
    turn->taken = true;
    pthread_mutex_unlock(&turn->lock);
    return mine;
}

void weir__turn_give(struct weir__turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    turn->taken = false;
    pthread_cond_signal(&turn->given);
    pthread_mutex_unlock(&turn->lock);
}
