/* Hosts that exchange with a real server. */
#ifndef WEIR_TESTS_REDIS_HOSTS_H
#define WEIR_TESTS_REDIS_HOSTS_H

#include "hosts.h"

#include "../../redis.h"

#include "remote/client.h"
#include "engine/store_options.h"

#include <time.h>

#define RULE(more) "rules: [{name: a, key: \"${client_ip}\", consistency: eventual, " more "}]\n"
#define REQUEST    "GET / ip=192.0.2.1"
#define KEY        "192.0.2.1"
#define HOSTS      3

/* The server replies in the end, even on a machine that stalls for a second. */
#define PATIENCE_US 30000000

static struct weir__store_options store_options;
static struct host hosts[HOSTS_MAX];
static struct weir__blocking_client *links[HOSTS_MAX];

static bool redis_unavailable; /* no exchange reaches the server */

static int send_request(void *context, struct weir__store_request *request)
{
    if (redis_unavailable)
        return request->error = WEIR_ESTOREDOWN;
    return weir__blocking_client_request(context, request);
}

/* Opens hosts with an empty store. False: there is no server. */
static inline bool begin(const char *rules, int count)
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
        host_make(&hosts[i], rules, send_request, links[i], weir_clock);
    }
    return true;
}

static void end(int count)
{
    for (int i = 0; i < count; i++) {
        host_free(&hosts[i]);
        weir__blocking_client_free(links[i]);
    }
}

static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline void sleep_until(double when)
{
    double left = when - seconds();
    if (left > 0)
        usleep((useconds_t)(left * 1e6));
}

/* From here on the replica receives nothing: its state is copied to another database. */
static inline void replica_is_cut_off(void)
{
    redisReply *reply = redisCommand(server.context, "EVAL %s 0",
                                     "for _, k in ipairs(redis.call('KEYS', '*')) do\n"
                                     "local value, ttl = redis.call('DUMP', k), redis.call('PTTL', k)\n"
                                     "redis.call('SELECT', 1)\n"
                                     "redis.call('RESTORE', k, ttl > 0 and ttl or 0, value, 'REPLACE')\n"
                                     "redis.call('SELECT', 0)\n"
                                     "end\n"
                                     "return 1");
    CHECK(reply && reply->type == REDIS_REPLY_INTEGER);
    freeReplyObject(reply);
}

static inline void replica_takes_over(void)
{
    server_do("FLUSHDB");
    server_do("SWAPDB 0 1");
}

/* What a new host, which has never seen the key, learns about it from the store. */
static inline int64_t left_in_store(const char *rules)
{
    struct host other;
    struct weir__blocking_client *link = weir__blocking_client_new(&store_options);
    host_make(&other, rules, send_request, link, weir_clock);
    CHECK_EQ(host_check(&other, REQUEST, 1), 1);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weir__sync_round(other.sync), 0);
    int64_t left = host_left(&other, "a", KEY) + 1;
    host_free(&other);
    weir__blocking_client_free(link);
    return left;
}

#endif
