/* Puts requests that a test has as arrays. */
#ifndef WEIR_TEST_PUT_ALL_H
#define WEIR_TEST_PUT_ALL_H

#include "queue/queue.h"

/* Puts `items` with the bounds of their rules; `errors` gets theirs. Returns the error of all. */
static inline int put_all(struct weir__queue *queue, struct weir__deferred *items,
                          const struct weir__queue_bounds *bounds, int *errors, size_t count)
{
    static struct weir__queue_put puts[WEIR__QUEUE_PUT_MAX], *pointers[WEIR__QUEUE_PUT_MAX];
    for (size_t i = 0; i < count; i++) {
        puts[i] = (struct weir__queue_put){.item = items[i], .bounds = bounds[i]};
        pointers[i] = &puts[i];
    }
    int error = weir__queue_put(queue, pointers, count);
    for (size_t i = 0; i < count; i++) {
        items[i] = puts[i].item;
        errors[i] = puts[i].error;
    }
    return error;
}

#endif
