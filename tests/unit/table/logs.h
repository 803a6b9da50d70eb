/* Includes the source of the sliding log, and makes a key that has one. */
#ifndef WEIR_TEST_LOGS_H
#define WEIR_TEST_LOGS_H

#include "table/hash.h"
#include "table/sliding_log.c"

#include "../../test.h"

#define SECOND_US INT64_C(1000000)
#define START_US  (INT64_C(20000) * 86400 * SECOND_US)

struct fixture {
    void *memory;
    struct weir__table table;
    weir_limit limit;
    struct weir__key_location where;
};

/* A log of a hundred units a minute. */
static void fixture_make(struct fixture *f)
{
    struct weir__segment_spec plan = {.bytes = 1 << 20, .slab_bytes = 1 << 18, .wall_ns = START_US * 1000};
    weir_params params = {.algorithm = WEIR_SLIDING_WINDOW_LOG, .limit = 100, .window_ns = 60 * WEIR_SECOND};
    f->memory = aligned_alloc(4096, plan.bytes);
    memset(f->memory, 0, plan.bytes);
    CHECK_EQ(weir__segment_format(f->memory, &plan), 0);
    CHECK_EQ(weir__segment_attach(f->memory, plan.bytes, &f->table), 0);
    CHECK_EQ(weir_limit_init(&f->limit, &params), 0);
    weir__key_locate(&f->table, &f->limit, "k", 1, &f->where);
}

static struct weir__op at(const struct fixture *f, int64_t seconds)
{
    int64_t now_us = START_US + seconds * SECOND_US;
    return (struct weir__op){&f->table, &f->table.stats[0], now_us, now_us};
}

static weir_decision take(const struct fixture *f, int64_t cost, int64_t seconds)
{
    struct weir__op op = at(f, seconds);
    weir_decision d = {0};
    CHECK_EQ(weir__table_take(&op, &f->limit, &f->where, cost, WEIR__TAKE, &d), 0);
    return d;
}

#endif
