/*
 * Sends requests to a store by the library's blocking client, for test_store_client.py: a line in, a line of JSON out.
 *
 *   take LIMIT COST NAME…   one group of token buckets of LIMIT an hour
 *   refund                  refunds what the last request took
 *   work MS                 polls the client for so long: late replies, refunds, probes
 *   fork                    continues in a child process
 *   hammer MS LIMIT KEYS    takes of 1 from KEYS counters, round robin; every third request has a group of two
 *   stats                   statistics of the client
 */
#include "base/clock.h"
#include "../unit/remote/test_request.h"
#include "remote/client.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct request_storage storage;
static struct weir__store_options options;

static void begin(void)
{
    request_begin(&storage);
    request_add_group(&storage, false);
}

static void take(struct weir__blocking_client *link, char *words)
{
    weir_limit limit = token_bucket(strtoll(words, &words, 10), 3600);
    int64_t cost = strtoll(words, &words, 10), begun_us = weir__monotonic_us();
    bool passes = true, taken = false;
    int op_error = 0;

    begin();
    for (char *name = strtok(words, " \n"); name; name = strtok(NULL, " \n"))
        request_add_op(&storage, name, WEIR__OP_TAKE, cost, limit);
    int error = weir__blocking_client_request(link, &storage.request);
    for (uint32_t i = 0; i < storage.request.op_count && !error; i++) {
        passes &= !storage.ops[i].error && weir_passes(&storage.ops[i].decision);
        taken |= storage.ops[i].taken;
        op_error = storage.ops[i].error ? storage.ops[i].error : op_error;
    }
    printf("{\"error\": \"%s\", \"op_error\": \"%s\", \"passes\": %s, \"taken\": %s, \"us\": %" PRId64 "}\n",
           error ? weir_error_name(error) : "", op_error ? weir_error_name(op_error) : "",
           !error && passes ? "true" : "false", taken ? "true" : "false", weir__monotonic_us() - begun_us);
}

/* Errors by name, in the order of their codes. */
static void print_errors(const uint64_t *errors, int count)
{
    bool any = false;

    printf("\"errors\": {");
    for (int i = 0; i < count; i++)
        if (errors[i] > 0) {
            printf("%s\"%s\": %" PRIu64, any ? ", " : "", weir_error_name(-i), errors[i]);
            any = true;
        }
    printf("}");
}

static void hammer(struct weir__blocking_client *link, char *words)
{
    enum { CODES = 64, KEYS = 2000 };
    static uint64_t errors[CODES], passed[KEYS];
    int64_t end_us = weir__monotonic_us() + strtoll(words, &words, 10) * 1000;
    weir_limit limit = token_bucket(strtoll(words, &words, 10), 86400); /* nothing is refilled during a test */
    long keys = strtol(words, &words, 10);
    uint64_t count = 0;
    int64_t longest_us = 0, last_error_us = 0, begun_us = weir__monotonic_us();

    memset(errors, 0, sizeof(errors));
    memset(passed, 0, sizeof(passed));
    while (weir__monotonic_us() < end_us) {
        int64_t sent_us = weir__monotonic_us();
        long names[2] = {(long)(count % (uint64_t)keys), (long)((count * 7 + 1) % (uint64_t)keys)};
        bool both = count % 3 == 0 && names[0] != names[1];
        char name[64];
        begin();
        for (int i = 0; i < 1 + both; i++) {
            snprintf(name, sizeof(name), "weir:hammer:%ld", names[i]);
            request_add_op(&storage, name, WEIR__OP_TAKE, 1, limit);
        }
        int error = weir__blocking_client_request(link, &storage.request);
        if (!error)
            error = storage.ops[0].error ? storage.ops[0].error : both ? storage.ops[1].error : 0;
        int64_t now_us = weir__monotonic_us();
        longest_us = now_us - sent_us > longest_us ? now_us - sent_us : longest_us;
        count++;
        if (error) {
            errors[-error]++;
            last_error_us = now_us - begun_us;
            usleep(200);
            continue;
        }
        for (int i = 0; i < 1 + both; i++)
            passed[names[i]] += storage.ops[i].taken;
    }
    printf("{\"count\": %" PRIu64 ", \"longest_us\": %" PRId64 ", \"last_error_us\": %" PRId64 ", ", count, longest_us,
           last_error_us);
    print_errors(errors, CODES);
    printf(", \"passed\": [");
    for (long i = 0; i < keys; i++)
        printf("%s%" PRIu64, i > 0 ? ", " : "", passed[i]);
    printf("]}\n");
}

static void print_stats(struct weir__blocking_client *link)
{
    struct weir__client_stats stats;

    weir__blocking_client_stats(link, &stats);
    printf("{\"state\": %d, \"connects\": %" PRIu64 ", \"script_loads\": %" PRIu64 ", \"redirects\": %" PRIu64
           ", \"refunds\": %" PRIu64 ", \"opened\": %" PRIu64 ", \"last_error\": \"%s\"}\n",
           (int)stats.state, stats.connects, stats.script_loads, stats.redirects, stats.refunds, stats.opened,
           weir_error_name(stats.last_error));
}

int main(int argc, char **argv)
{
    char why[256], line[4096];

    if (argc != 2 || weir__store_parse(argv[1], &options, why, sizeof(why))) {
        fprintf(stderr, "%s\n", argc == 2 ? why : "ask URL");
        return 2;
    }
    struct weir__blocking_client *link = weir__blocking_client_new(&options);
    while (link && fgets(line, sizeof(line), stdin)) {
        int status = 0;
        if (strncmp(line, "take ", 5) == 0) {
            take(link, line + 5);
        } else if (strncmp(line, "hammer ", 7) == 0) {
            hammer(link, line + 7);
        } else if (strncmp(line, "work ", 5) == 0) {
            weir__blocking_client_work(link, strtoll(line + 5, NULL, 10) * 1000);
            printf("{}\n");
        } else if (strcmp(line, "refund\n") == 0) {
            weir__blocking_client_refund(link, &storage.request);
            weir__blocking_client_work(link, 20000);
            printf("{}\n");
        } else if (strcmp(line, "fork\n") == 0) {
            pid_t child = fork();
            if (child > 0) {
                waitpid(child, &status, 0);
                weir__blocking_client_free(link);
                return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
            }
            printf("{}\n");
        } else {
            print_stats(link);
        }
        fflush(stdout);
    }
    weir__blocking_client_free(link);
    return 0;
}
