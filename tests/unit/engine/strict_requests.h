/* Requests under strict rules, with a simulated store: begin, store request, check, rollback. */
#ifndef WEIR_TESTS_STRICT_REQUESTS_H
#define WEIR_TESTS_STRICT_REQUESTS_H

#include "../../store.h"

enum { OUTCOMES = 8 };

/* The results of one request. */
struct result {
    int prepared;
    weir_result checked;
    weir_outcome outcomes[OUTCOMES];
    uint32_t back; /* counters rolled back */
    bool passes;
};

static struct test_store store;

/* Changes a request between its steps. */
struct moment {
    void (*before_check)(weir *engine); /* called after the store request, before the check */
    int64_t cost;                       /* 0: as the rules have it */
    bool look;                          /* a cost of 0 */
    bool dry_run;
};

static inline struct result run(weir *engine, const char *line, double s, struct moment moment)
{
    struct result result = {0};
    struct test_request r;
    weir_async *async = NULL;
    CHECK_EQ(weir_async_new(engine, &async), 0);
    test_request(&r, line);
    r.query.now = test_seconds(s);
    r.query.async = async;
    r.query.outcomes = result.outcomes;
    r.query.outcomes_max = OUTCOMES;
    r.query.has_cost = moment.cost != 0 || moment.look;
    r.query.cost = moment.cost;
    r.query.dry_run = moment.dry_run;
    result.prepared = weir_check_begin(engine, &r.query);
    if (result.prepared == 1)
        test_store_execute(&store, weir_async_request(async));
    if (moment.before_check)
        moment.before_check(engine);
    CHECK_EQ(weir_check(engine, &r.query, &result.checked), 0);
    result.passes = weir_passes(&result.checked.decision);
    struct weir__store_request *back = weir_async_rollback(async);
    if (back) {
        result.back = back->op_count;
        test_store_refund(&store, back);
    }
    CHECK(weir_async_rollback(async) == back);
    weir_async_free(async);
    return result;
}

static inline struct result async(weir *engine, const char *line, double s)
{
    return run(engine, line, s, (struct moment){0});
}

static inline int passing(weir *engine, const char *line, double s, int count)
{
    int passed = 0;
    for (int i = 0; i < count; i++)
        passed += async(engine, line, s).passes;
    return passed;
}

static const char one[] = "rules:\n"
                          "  - { name: api, match: { path: /api }, key: \"u:${user_id}\", limit: 5, window: 1m,\n"
                          "      consistency: strict }\n"
                          "  - { name: near, match: { path: /near }, limit: 5, window: 1m }\n";

#endif
