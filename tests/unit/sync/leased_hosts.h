/* Hosts with rules of `consistency: leased`, and a real server. */
#ifndef WEIR_TESTS_LEASED_HOSTS_H
#define WEIR_TESTS_LEASED_HOSTS_H

#include "redis_hosts.h"

#include "../../private_dir.h"

#include "table/leased.h"

#include <weir/store.h>

#define LEASED(more) "rules: [{name: a, key: \"${client_ip}\", consistency: leased, " more "}]\n"

/* A window long enough that none ends in a test, of each algorithm. */
static const char *const rules_of_all[] = {
    LEASED("limit: 300, window: 10h"),
    LEASED("limit: 300, window: 10h, refill: interval"),
    LEASED("limit: 300, window: 10h, algorithm: leaky_bucket"),
    LEASED("limit: 300, window: 365d, algorithm: fixed_window"),
    LEASED("limit: 300, window: 1y, algorithm: fixed_window, timezone: UTC"),
    LEASED("limit: 300, window: 1h, algorithm: fixed_window, align: first_request"),
    LEASED("limit: 300, window: 100d, algorithm: sliding_window_counter"),
    LEASED("limit: 300, window: 100d, algorithm: sliding_window_counter, buckets: 6"),
    LEASED("limit: 4000, burst: 300, window: 400d"),
};

enum { RULES_OF_ALL = sizeof rules_of_all / sizeof *rules_of_all, OF_WINDOW = 3 };

static char rules_file[64]; /* of the hosts; empty: their rules are a text */

static inline void write_rules(const char *rules)
{
    private_path(rules_file, sizeof rules_file, "rules.yaml");
    FILE *file = fopen(rules_file, "w");
    CHECK(file && fputs(rules, file) >= 0 && fclose(file) == 0);
}

/* As host_make, but the engine sends strict takes itself. */
static inline void leased_make(struct host *host, const char *rules, struct weir__blocking_client *link)
{
    char url[160];
    snprintf(url, sizeof url, "redis+unix://%s?deadline=10s&connect_timeout=30s", server.socket);
    weir_options how = {.segment = {.size = 1 << 20},
                        .rules_text = *rules_file ? NULL : rules,
                        .rules_path = *rules_file ? rules_file : NULL,
                        .flags = WEIR_NO_WATCH,
                        .diagnose = test_print_diagnostic,
                        .store = url,
                        .ledger = "",
                        .ledger_bytes = 1 << 20};
    *host = (struct host){.send_request = send_request, .send_context = link, .now = weir_clock};
    CHECK_EQ(weir_store_use(), 0);
    int error = weir_open(&how, &host->engine);
    if (error) {
        printf("  %s\n", weir_strerror(error));
        exit(1);
    }
    host_start_sync(host);
}

/* Opens hosts with an empty store. False: there is no server. */
static inline bool leased_begin(const char *rules, int count)
{
    if (!server_begin())
        return false;
    char url[160], why[256];
    snprintf(url, sizeof url, "redis+unix://%s?connect_timeout=30s", server.socket);
    CHECK_EQ(weir__store_parse(url, &store_options, why, sizeof why), 0);
    store_options.deadline_us = hosts_timeout_us = PATIENCE_US;
    server_do("FLUSHALL");
    for (int i = 0; i < count; i++) {
        links[i] = weir__blocking_client_new(&store_options);
        leased_make(&hosts[i], rules, links[i]);
    }
    return true;
}

static inline struct weir__leased leased_units(const struct host *host)
{
    weir_segment *segment = host->engine->segment;
    struct weir__op op = weir__operation(segment, weir__stats_shard_here(segment), weir_clock(segment));
    struct weir__key_location where;
    struct weir__leased leased = {0};
    int at;
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&host->engine->hazards, &at);
    const weir_limit *limit = &ruleset->rules->rules[0]->quotas[0].limit;
    weir__leased_locate(&op, weir__counter_hash(segment, limit, KEY, strlen(KEY)), &where);
    CHECK_EQ(weir__leased_read(&op, &where, &leased), 0);
    weir__hazard_release(&host->engine->hazards, at);
    return leased;
}

/* Requests to all hosts, most of them to the first, and an exchange after those of each. Returns how many passed. */
static inline int64_t use_leases(const char *line, int count, int rounds)
{
    int64_t admitted = 0;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++) {
            admitted += host_check(&hosts[i], line, i == 0 ? 8 : 2);
            CHECK_EQ(host_round(&hosts[i]), 0);
        }
    return admitted;
}

static inline weir_ledger_stats leased_stats(const struct host *host)
{
    weir_ledger_stats stats;
    CHECK_EQ(weir_ledger_stats_read(host->engine, &stats), 0);
    return stats;
}

#endif
