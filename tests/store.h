/* A simulated store: a private segment decides as the real store would, for tests of the code around it. */
#ifndef WEIR_TESTS_STORE_H
#define WEIR_TESTS_STORE_H

#include "engine.h"
#include "engine/store_request.h"

#include <weir/store.h>

struct test_store {
    weir_segment *segment;
    double s;     /* the store's own clock, in seconds */
    int error;    /* all requests fail with this */
    int op_error; /* error of ops on counters whose name ends in `failing` */
    const char *failing;
    int requests, ops; /* so far */
};

static inline void test_store_open(struct test_store *store)
{
    weir_segment_options kind = {.size = 8 << 20};
    memset(store, 0, sizeof *store);
    store->s = 5000; /* differs from the hosts' clocks */
    if (weir_segment_open(&kind, &store->segment) != 0)
        exit(1);
}

static inline bool test_store_ends(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = end ? strlen(end) : SIZE_MAX;
    return end_len <= len && strcmp(text + len - end_len, end) == 0;
}

static inline int test_store_one(struct test_store *store, struct weir__store_op *op, bool take)
{
    weir_time now = test_seconds(store->s);
    weir_segment *segment = store->segment;
    store->ops++;
    op->at_us = now.mono_ns / 1000;
    if (op->kind == WEIR__OP_RESET)
        return weir_reset(segment, &op->limit, op->name, op->name_len, now);
    if (op->kind == WEIR__OP_REFUND)
        return weir_refund(segment, &op->limit, op->name, op->name_len, op->cost, now, &op->decision);
    if (op->kind == WEIR__OP_CHARGE && op->cost >= 0)
        return weir_charge(segment, &op->limit, op->name, op->name_len, op->cost, now, &op->decision);
    if (!take)
        return weir_peek(segment, &op->limit, op->name, op->name_len, op->cost, now, &op->decision);
    int error = weir_take(segment, &op->limit, op->name, op->name_len, op->cost, now, &op->decision);
    op->taken = !error && op->kind == WEIR__OP_TAKE && weir_passes(&op->decision) && op->cost > 0;
    return error;
}

/* Executes a request as the script does. */
static inline void test_store_execute(struct test_store *store, struct weir__store_request *request)
{
    bool first_passed = true;
    store->requests++;
    request->error = store->error;
    for (uint32_t g = 0; g < request->group_count && !store->error; g++) {
        const struct weir__group *group = &request->groups[g];
        struct weir__store_op *ops = &request->ops[group->first];
        bool passes = true, fails = false;
        for (uint32_t i = 0; i < group->count; i++) {
            fails |= test_store_ends(ops[i].name, store->failing);
            ops[i].error = test_store_ends(ops[i].name, store->failing) ? store->op_error : 0;
            if (ops[i].kind == WEIR__OP_TAKE)
                CHECK_EQ(test_store_one(store, &ops[i], false), 0);
            passes &= ops[i].kind != WEIR__OP_TAKE || weir_passes(&ops[i].decision);
        }
        bool take = passes && !fails && (!group->after_first || first_passed);
        for (uint32_t i = 0; i < group->count && !fails; i++)
            if (ops[i].kind != WEIR__OP_TAKE || take)
                CHECK_EQ(test_store_one(store, &ops[i], take && ops[i].kind != WEIR__OP_PEEK), 0);
        if (g == 0)
            first_passed = passes && !fails;
    }
}

/* Refunds as the client does. */
static inline void test_store_refund(struct test_store *store, const struct weir__store_request *back)
{
    for (uint32_t i = 0; i < back->op_count; i++) {
        struct weir__store_op refund = back->ops[i];
        CHECK(refund.taken && refund.cost > 0 && refund.kind == WEIR__OP_TAKE);
        refund.kind = WEIR__OP_REFUND;
        CHECK_EQ(test_store_one(store, &refund, true), 0);
    }
}

/* An engine with a store to which it does not connect: the test executes the store requests. */
static inline weir *test_strict_engine(const char *rules, enum weir_consistency default_consistency)
{
    weir_options kind = {.segment = {.size = 8 << 20},
                         .rules_text = rules,
                         .diagnose = test_print_diagnostic,
                         .flags = WEIR_NO_CONNECT,
                         .store = "redis://127.0.0.1:1",
                         .default_consistency = default_consistency};
    weir *engine = NULL;
    int error = weir_open(&kind, &engine);
    if (error) {
        printf("  the test's rules: %s\n", weir_strerror(error));
        exit(1);
    }
    return engine;
}

#endif
