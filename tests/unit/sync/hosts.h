/* Several hosts in one process, each with its own segment, ledger and exchange; and a simulated store. */
#ifndef WEIR_TESTS_HOSTS_H
#define WEIR_TESTS_HOSTS_H

#include "sync/sync.h"
#include "sync/sync_internal.h"

#include "../../engine.h"

#define HOSTS_MAX 10

/* The common simulated time of all hosts, in seconds. */
static double hosts_time;
static bool hosts_of_cluster;    /* whether the store is a cluster */
static int64_t hosts_timeout_us; /* timeout of an exchange; 0: the default */

static inline weir_time hosts_now(const weir_segment *segment)
{
    (void)segment;
    return test_seconds(hosts_time);
}

/* ---- A store that does what the script does, on a segment ---- */

enum fate { REPLIES, REFUSES, LOSES_REPLY, UNAVAILABLE };

struct fake_store {
    weir_segment *counters;
    char sender[HOSTS_MAX][WEIR__LEDGER_SENDER + 1];
    uint64_t batch[HOSTS_MAX];
    enum fate fate;
    int64_t taken;          /* of all counters */
    uint64_t requests, ops; /* received */
    uint64_t doubts;        /* ops with `reseed` */
    int64_t missed;         /* number of missed batches that it reports to the sender */
    int8_t other_window;    /* reported for windows */
    int error;              /* reported for each counter */
    double ahead;           /* offset of its clock, in seconds */
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
    if (d->reset_after_ns == 0) { /* the counter does not exist in the store */
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
    request->error = store->fate == REFUSES ? WEIR_ESTOREDOWN : store->fate == LOSES_REPLY ? WEIR_ESTORESLOW : 0;
    if (store->fate == UNAVAILABLE) /* the breaker is open: no request is sent */
        request->error = WEIR_ESTOREBREAKER;
    if (store->fate == REFUSES || store->fate == UNAVAILABLE)
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

/* Sends so many requests of one unit; returns how many passed. */
static inline int host_check(struct host *host, const char *line, int count)
{
    int passed = 0;
    for (int i = 0; i < count; i++) {
        struct test_request r;
        weir_result result;
        test_request(&r, line);
        r.query.now = host->now(host->engine->segment);
        CHECK_EQ(weir_check(host->engine, &r.query, &result), 0);
        passed += weir_passes(&result.decision);
    }
    host->admitted += passed;
    return passed;
}

/* The remaining units of a key under a rule, as the host knows them. */
static inline int64_t host_left(struct host *host, const char *rule, const char *key)
{
    weir_outcome outcome;
    CHECK_EQ(weir_key_state(host->engine, rule, key, strlen(key), host->now(host->engine->segment), &outcome), 0);
    return outcome.decision.remaining;
}

/* Whether the data plane considers the store unavailable. */
static inline bool is_down(const struct host *host)
{
    return weir__load64(&host->engine->deltas.ledger.header->state) == WEIR__LEDGER_DOWN;
}

/* The sum of all deltas that are not acknowledged yet. */
static inline int64_t host_unsent(const struct host *host)
{
    int64_t sum = 0;
    for (uint64_t i = 0; i < host->engine->deltas.ledger.entries; i++) {
        struct weir__ledger_entry entry;
        weir__ledger_read(&host->engine->deltas.ledger, i, &entry);
        sum += entry.amount;
    }
    return sum;
}

/* One round. If the machine stalled in it, that must not count as a host that cannot keep up, which would follow fewer
 * keys from then on. */
static inline int host_round(const struct host *host)
{
    int error = weir__sync_round(host->sync);
    host->sync->behind = false;
    return error;
}

/* All hosts send, then all hosts receive. */
static inline void hosts_sync(struct host *hosts, int count)
{
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < count; i++)
            CHECK_EQ(host_round(&hosts[i]), 0);
}

#endif
