/* Several hosts in one process, each with a segment, a ledger and an exchange of its own; and a store to play with. */
#ifndef WEIR_TESTS_HOSTS_H
#define WEIR_TESTS_HOSTS_H

#include "sync/sync.h"
#include "sync/sync_internal.h"

#include "../../engine.h"

#define HOSTS_MAX 10

/* The time that everybody goes by, in seconds. */
static double hosts_time;
static bool hosts_of_cluster;    /* they are told that their store is one */
static int64_t hosts_timeout_us; /* with an exchange; 0: as ever */

static inline weir_time hosts_now(const weir_segment *segment)
{
    (void)segment;
    return test_seconds(hosts_time);
}

/* ---- A store that does what the script does, on a segment ---- */

enum fate { ANSWERS, REFUSES, LOSES_ANSWER, IS_AWAY };

struct fake_store {
    weir_segment *counters;
    char sender[HOSTS_MAX][WEIR__LEDGER_SENDER + 1];
    uint64_t batch[HOSTS_MAX];
    enum fate fate;
    int64_t taken;          /* of all counters */
    uint64_t requests, ops; /* that came */
    uint64_t doubts;        /* ops that were in reseed */
    int64_t missed;         /* batches of the present sender that it does not know of */
    int8_t other_window;    /* what it says of windows */
    int error;              /* what it says of each counter */
    double ahead;           /* of its clock */
};

static inline void fake_store_make(struct fake_store *store)
{
    weir_segment_options how = {.size = 8 << 20};
    memset(store, 0, sizeof *store);
    if (weir_segment_open(&how, &store->counters) != 0)
        exit(1);
}

static inline void fake_store_free(struct fake_store *store)
{
    weir_segment_close(store->counters);
}

/* FLUSHALL. */
static inline void fake_store_flush(struct fake_store *store)
{
    weir_segment_options how = {.size = 8 << 20};
    weir_segment_close(store->counters);
    memset(store->sender, 0, sizeof store->sender);
    if (weir_segment_open(&how, &store->counters) != 0)
        exit(1);
}

static inline bool is_repeated(struct fake_store *store, const struct weir__store_request *request)
{
    for (int i = 0; request->sender && i < HOSTS_MAX; i++) {
        if (store->sender[i][0] && strcmp(store->sender[i], request->sender) != 0)
            continue;
        bool repeated = store->sender[i][0] && store->batch[i] == request->batch;
        CHECK(!store->sender[i][0] || store->batch[i] <= request->batch);
        if (!repeated && (!store->sender[i][0] || store->batch[i] + 1 != request->batch))
            store->missed = store->sender[i][0] ? (int64_t)(request->batch - 1 - store->batch[i]) : WEIR__MISSED_ALL;
        snprintf(store->sender[i], sizeof store->sender[i], "%s", request->sender);
        store->batch[i] = request->batch;
        return repeated;
    }
    return false;
}

static inline void fake_exchange(struct fake_store *store, struct weir__store_op *op, bool repeated)
{
    weir_decision *d = &op->decision;
    weir_time now = test_seconds(hosts_time + store->ahead);
    op->other_window = store->other_window;
    op->missed = store->missed;
    store->doubts += op->reseed;
    if (op->limit.algorithm == WEIR_FIXED_WINDOW && op->left_us < 0 && !op->other_window)
        op->other_window = -1;
    op->error = store->error;
    if (op->other_window || op->error)
        return;
    CHECK_EQ(weir_peek(store->counters, &op->limit, op->name, op->name_len, 0, now, d), 0);
    int64_t cost = repeated ? 0 : op->cost, owed = op->limit.hard - op->level;
    if (d->reset_after_ns == 0) { /* it does not know the counter */
        bool send_request = !op->own_delta && (!store->missed || store->missed == WEIR__MISSED_ALL);
        cost = send_request && owed > cost ? owed : cost;
        cost = cost > 0 ? cost : 0;
    }
    if (cost >= 0)
        CHECK_EQ(weir_charge(store->counters, &op->limit, op->name, op->name_len, cost, now, d), 0);
    else
        CHECK_EQ(weir_refund(store->counters, &op->limit, op->name, op->name_len, -cost, now, d), 0);
    if (op->reseed && d->remaining > op->level)
        CHECK_EQ(weir_charge(store->counters, &op->limit, op->name, op->name_len, d->remaining - op->level, now, d), 0);
    store->taken += repeated ? 0 : op->cost;
}

static inline int fake_send(void *context, struct weir__store_request *request)
{
    struct fake_store *store = context;
    store->requests++;
    store->ops += request->op_count;
    request->error = store->fate == REFUSES ? WEIR_ESTOREDOWN : store->fate == LOSES_ANSWER ? WEIR_ESTORESLOW : 0;
    if (store->fate == IS_AWAY) /* the breaker's word, without asking */
        request->error = WEIR_ESTOREBREAKER;
    if (store->fate == REFUSES || store->fate == IS_AWAY)
        return request->error;
    store->missed = 0;
    bool repeated = is_repeated(store, request);
    for (uint32_t i = 0; i < request->op_count; i++)
        if (request->ops[i].kind == WEIR__OP_EXCHANGE)
            fake_exchange(store, &request->ops[i], repeated);
    return request->error;
}

/* ---- Hosts ---- */

struct host {
    weir *engine;
    struct weir__sync *sync;
    int64_t admitted;
    weir__sync_send *send_request;
    void *send_context;
    weir_time (*now)(const weir_segment *segment);
};

static inline void host_start_sync(struct host *host)
{
    struct weir__sync_options options = {.engine = host->engine,
                                         .naming = {"weir", false},
                                         .interval_ms = 50,
                                         .timeout_us = hosts_timeout_us,
                                         .cluster = hosts_of_cluster,
                                         .send_request = host->send_request,
                                         .send_context = host->send_context,
                                         .now = host->now};
    host->sync = weir__sync_new(&options);
    CHECK(host->sync != NULL);
}

static inline void host_make(struct host *host, const char *rules, weir__sync_send *send_request, void *context,
                             weir_time (*now)(const weir_segment *segment))
{
    weir_options how = {.segment = {.size = 1 << 20},
                        .rules_text = rules,
                        .diagnose = test_print_diagnostic,
                        .store = "redis://127.0.0.1:1",
                        .flags = WEIR_NO_CONNECT,
                        .ledger = "",
                        .ledger_bytes = 1 << 20,
                        .load = ""};
    *host = (struct host){.send_request = send_request, .send_context = context, .now = now};
    int error = weir_open(&how, &host->engine);
    if (error) {
        printf("  %s\n", weir_strerror(error));
        exit(1);
    }
    host_start_sync(host);
}

static inline void host_free(struct host *host)
{
    weir__sync_free(host->sync);
    weir_close(host->engine);
}

/* So many requests of one unit; returns kind many passed. */
static inline int host_ask(struct host *host, const char *line, int count)
{
    int passed = 0;
    for (int i = 0; i < count; i++) {
        struct test_request r;
        weir_result answer;
        test_request(&r, line);
        r.query.now = host->now(host->engine->segment);
        CHECK_EQ(weir_check(host->engine, &r.query, &answer), 0);
        passed += weir_passes(&answer.decision);
    }
    host->admitted += passed;
    return passed;
}

/* What the host believes to be left of a key under a rule. */
static inline int64_t host_left(struct host *host, const char *rule, const char *key)
{
    weir_outcome outcome;
    CHECK_EQ(weir_key_state(host->engine, rule, key, strlen(key), host->now(host->engine->segment), &outcome), 0);
    return outcome.decision.remaining;
}

/* True if the data plane is told that the store is away. */
static inline bool is_down(const struct host *host)
{
    return weir__load64(&host->engine->deltas->ledger.header->state) == WEIR__LEDGER_DOWN;
}

/* The sum of what is not told yet. */
static inline int64_t host_untold(const struct host *host)
{
    int64_t sum = 0;
    for (uint64_t i = 0; i < host->engine->deltas->ledger.entries; i++) {
        struct weir__ledger_entry entry;
        weir__ledger_read(&host->engine->deltas->ledger, i, &entry);
        sum += entry.amount;
    }
    return sum;
}

/* A round. If the machine stood still in it, the host is not one that cannot keep up and follows less from then on. */
static inline int host_round(const struct host *host)
{
    int error = weir__sync_round(host->sync);
    host->sync->behind = false;
    return error;
}

/* Everybody tells, then everybody hears. */
static inline void hosts_sync(struct host *hosts, int count)
{
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < count; i++)
            CHECK_EQ(host_round(&hosts[i]), 0);
}

#endif
