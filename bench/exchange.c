/*
 * Processor time of the agent for exchanging a key: a host with requests for random keys, and consecutive rounds of the
 * exchange with a server on this machine.
 *
 *   exchange PORT KEYS REQUESTS ROUNDS    so many requests before each round
 *
 * The time is that of the process: in rounds, and in the requests before them (check_ns_a_request). Under callgrind:
 * --toggle-collect=weir__sync_round.
 */
#include "sync/sync.h"
#include "remote/client.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "bench/exchange: %s\n", what);
    exit(1);
}

static int send_request(void *context, struct weir__store_request *question)
{
    return weir__blocking_client_request(context, question);
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void request(weir *engine, uint64_t key)
{
    char path[32];
    snprintf(path, sizeof path, "/k/%llu", (unsigned long long)key);
    weir_attribute attributes[] = {{WEIR_ATTR_METHOD, "", "GET"}, {WEIR_ATTR_TARGET, "", path}};
    weir_query query = {.attributes = attributes, .attribute_count = 2, .cost = 1, .now = weir_clock(engine->segment)};
    weir_result answer;
    if (weir_check(engine, &query, &answer) || !weir_passes(&answer.decision))
        fail("a request does not pass");
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    char url[64], why[256];
    struct weir__store_options store;
    snprintf(url, sizeof url, "redis://127.0.0.1:%s?deadline=5s", argv[1]);
    if (weir__store_parse(url, &store, why, sizeof why))
        fail(why);
    uint64_t keys = strtoull(argv[2], NULL, 10), seed = 7;
    long requests = strtol(argv[3], NULL, 10), rounds = strtol(argv[4], NULL, 10);
    /* As in bench/store.py. */
    weir_options options = {.segment = {.size = 256 << 20},
                            .rules_text = "rules: [{name: k, key: '${path:2}', limit: 100000, window: 1d, "
                                          "consistency: eventual}]\n",
                            .store = url,
                            .flags = WEIR_NO_CONNECT,
                            .ledger = "",
                            .ledger_bytes = 64 << 20};
    weir *engine;
    struct weir__blocking_client *link = weir__blocking_client_new(&store);
    if (!keys || weir_open(&options, &engine) || !link)
        fail("cannot open");
    struct weir__sync_options how = {.engine = engine,
                                     .naming = {store.prefix, false},
                                     .interval_ms = 50,
                                     .timeout_us = 5000000,
                                     .send_request = send_request,
                                     .send_context = link};
    struct weir__sync *sync = weir__sync_new(&how);
    weir_ledger_stats stats = {0};
    struct weir__client_stats wire;
    if (!sync)
        fail("cannot exchange");
    double used = 0, took = 0, asked = 0;
    for (long round = 0; round < rounds; round++) {
        double began = seconds(CLOCK_PROCESS_CPUTIME_ID);
        for (long i = 0; i < requests; i++) {
            seed = seed * 6364136223846793005U + 1442695040888963407U;
            request(engine, (seed >> 33) % keys);
        }
        double used_before = seconds(CLOCK_PROCESS_CPUTIME_ID), before = seconds(CLOCK_MONOTONIC);
        asked += used_before - began;
        if (weir__sync_round(sync))
            fail("an exchange failed");
        used += seconds(CLOCK_PROCESS_CPUTIME_ID) - used_before;
        took += seconds(CLOCK_MONOTONIC) - before;
    }
    if (weir_ledger_stats_read(engine, &stats) || !stats.ops)
        fail("nothing was exchanged");
    weir__blocking_client_stats(link, &wire);
    printf("{\"asks\": %llu, \"requests\": %ld, \"cpu_ns_an_ask\": %.0f, \"cpu_ns_a_request\": %.0f, "
           "\"took_ns_an_ask\": %.0f, \"check_ns_a_request\": %.0f, \"bytes_out\": %llu}\n",
           (unsigned long long)stats.ops, requests * rounds, used * 1e9 / (double)stats.ops,
           used * 1e9 / (double)(requests * rounds), took * 1e9 / (double)stats.ops,
           asked * 1e9 / (double)(requests * rounds), (unsigned long long)wire.bytes_out);
    weir__sync_free(sync);
    weir__blocking_client_free(link);
    weir_close(engine);
    return 0;
}
