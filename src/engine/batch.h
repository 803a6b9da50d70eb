/* A batch on its way. batch.c has the whole of it, batch_wide.c a faster way for some. */
#ifndef WEIR_ENGINE_BATCH_H
#define WEIR_ENGINE_BATCH_H

#include "engine/arguments.h" /* define _GNU_SOURCE */

struct weir__batch {
    struct weir__op op;
    weir_time now;
    weir_request *request; /* the first that has not set out, and how many there are */
    size_t left;
    bool usual; /* no key is blocked */
    int failed;
    struct weir__stats_shard sum;
};

/* Decides one request that may be usual; `slot` may be any. */
void weir__batch_decide(struct weir__batch *b, weir_request *r, weir__cell *slot, uint64_t wanted,
                        struct weir__bucket *home);

/* ---- batch_wide.c ---- */

/* Decides the first ones, as many as suit it, maybe none. */
void weir__wide_take(struct weir__batch *b);
/* Whether this processor can do that at all. */
bool weir__wide_can(void);
/* For tests: decides none. */
extern bool weir__wide_forbidden;

#endif
