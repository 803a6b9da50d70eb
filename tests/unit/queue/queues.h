/* Private queues for tests, in SQLite and in Redis: the same test runs on both. */
#ifndef WEIR_TEST_QUEUES_H
#define WEIR_TEST_QUEUES_H

/* Redis keeps its contents when it is killed. */
#define SERVER_OPTIONS "--appendonly", "yes", "--appendfsync", "always",
#include "../../redis.h"
#include "put_all.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

/* A test on both storages: `on_redis` is the one that runs. */
#define BOTH(name)                                                                                                     \
    static void both_##name(bool on_redis);                                                                            \
    TEST(name##_sqlite)                                                                                                \
    {                                                                                                                  \
        both_##name(false);                                                                                            \
    }                                                                                                                  \
    TEST(name##_redis)                                                                                                 \
    {                                                                                                                  \
        if (server_begin())                                                                                            \
            both_##name(true);                                                                                         \
    }                                                                                                                  \
    static void both_##name(bool on_redis)

static int64_t place_wait_ms = 60000; /* for Redis: long, as a busy machine may stall for seconds */

struct place {
    char folder[64], url[160];
    bool on_redis;
};

/* `lazy`: Redis replies before the data is on disk, which is faster. */
static inline void place_new(struct place *place, bool on_redis, bool lazy)
{
    *place = (struct place){.on_redis = on_redis};
    if (on_redis) {
        snprintf(place->url, sizeof place->url, "redis+unix://%s?retry_min=5ms&retry_max=20ms&connect_timeout=30s",
                 server.socket);
        server_do("FLUSHALL");
        server_do(lazy ? "CONFIG SET appendfsync no" : "CONFIG SET appendfsync always");
        return;
    }
    snprintf(place->folder, sizeof place->folder, "%s/weir-queue-XXXXXX", private_root());
    CHECK(mkdtemp(place->folder) != NULL);
    snprintf(place->url, sizeof place->url, "sqlite:%s/queue.db", place->folder);
}

static inline void place_end(struct place *place)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", place->folder);
    if (!place->on_redis)
        CHECK_EQ(system(command), 0);
}

/* Path of the database file, for SQLite. */
static inline const char *place_file(const struct place *place)
{
    return place->url + strlen("sqlite:");
}

/* Limits the size of files: simulates a full disk. RLIM_INFINITY: there is room again. */
static inline void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static int64_t clock_now = INT64_C(1700000000000);

static inline int64_t clock_of_test(void)
{
    return clock_now;
}

static inline struct weir__queue *place_open(const struct place *place, struct weir__queue_options options)
{
    char why[WEIR__QUEUE_SOURCE_TEXT];
    struct weir__queue *queue = NULL;
    options.url = place->url;
    options.wait_ms = place_wait_ms;
    if (!options.clock_ms)
        options.clock_ms = clock_of_test;
    int error = weir__queue_open(&options, &queue, why);
    CHECK_EQ(error, 0);
    if (error) {
        printf("  %s: %s (%s)\n", place->url, weir__queue_strerror(error), why);
        exit(1);
    }
    return queue;
}

static inline weir_text text_of(const char *text)
{
    return (weir_text){text, strlen(text)};
}

static inline struct weir__deferred item_of(const char *rule, const char *key, const char *body)
{
    return (struct weir__deferred){.rule = text_of(rule),
                                   .key = text_of(key),
                                   .cost = 1,
                                   .method = text_of("POST"),
                                   .target = text_of("/orders"),
                                   .headers = text_of("Content-Type: text/plain\r\n"),
                                   .body = text_of(body)};
}

/* Puts one request and returns the error. The ticket is copied to `ticket`, if that is not NULL. */
static inline int put_one(struct weir__queue *queue, struct weir__deferred item, struct weir__queue_bounds bounds,
                          char *ticket)
{
    struct weir__queue_put put = {.item = item, .bounds = bounds}, *puts[] = {&put};
    int error = weir__queue_put(queue, puts, 1);
    if (ticket)
        memcpy(ticket, put.item.ticket, sizeof put.item.ticket);
    return error ? error : put.error;
}

/* Puts one request as soon as the server is available again. */
static inline int put_in_time(struct weir__queue *queue, const char *body, char *ticket)
{
    int error = WEIR__QUEUE_UNAVAILABLE;
    for (int i = 0; i < 500 && error; i++) {
        usleep(20000);
        error = put_one(queue, item_of("r", "k", body), (struct weir__queue_bounds){0}, ticket);
    }
    return error;
}

/* Ends the delivery of a claimed request; returns the error. */
static inline int end_one(struct weir__queue *queue, struct weir__queue_ending ending)
{
    int error = weir__queue_end(queue, &ending, 1);
    return error ? error : ending.error;
}

static inline int end_delivered(struct weir__queue *queue, const char *ticket, int status)
{
    return end_one(queue,
                   (struct weir__queue_ending){.ticket = ticket, .kind = WEIR__ENDED_DELIVERED, .status = status});
}

static inline int end_again(struct weir__queue *queue, const char *ticket, int64_t due_ms, const char *why, int status,
                            bool attempt_counts)
{
    return end_one(queue, (struct weir__queue_ending){.ticket = ticket,
                                                      .kind = WEIR__ENDED_RETRY,
                                                      .due_ms = due_ms,
                                                      .why = why,
                                                      .status = status,
                                                      .attempt_counts = attempt_counts});
}

/* Parks a request because another rule denies it: it waits in that group, aside. */
static inline int end_aside(struct weir__queue *queue, const char *ticket, int64_t due_ms, uint64_t group)
{
    return end_one(queue, (struct weir__queue_ending){
                              .ticket = ticket, .kind = WEIR__ENDED_RETRY, .due_ms = due_ms, .aside = group});
}

static inline int end_dead(struct weir__queue *queue, const char *ticket, const char *why, int status)
{
    return end_one(
        queue, (struct weir__queue_ending){.ticket = ticket, .kind = WEIR__ENDED_DEAD, .why = why, .status = status});
}

/* Visited requests, copied. */
#define SEEN_MAX 2048
struct seen {
    size_t count;
    struct weir__deferred items[SEEN_MAX];
    char text[SEEN_MAX][7][80]; /* rule, key, method, target, headers, body, why: their beginnings */
};

static inline weir_text keep(char *to, weir_text text)
{
    size_t len = text.len < 80 ? text.len : 80;
    memcpy(to, text.data, len);
    return (weir_text){to, text.len};
}

static inline int see(void *context, const struct weir__deferred *item)
{
    struct seen *seen = context;
    if (seen->count == SEEN_MAX)
        return 1;
    char(*text)[80] = seen->text[seen->count];
    struct weir__deferred *to = &seen->items[seen->count++];
    *to = *item;
    to->rule = keep(text[0], item->rule);
    to->key = keep(text[1], item->key);
    to->method = keep(text[2], item->method);
    to->target = keep(text[3], item->target);
    to->headers = keep(text[4], item->headers);
    to->body = keep(text[5], item->body);
    to->why = keep(text[6], item->why);
    return 0;
}

static inline bool text_is(weir_text text, const char *expected)
{
    return weir__text_is(text, expected);
}

/* Claims requests and copies them to `seen`; returns their number. */
static inline int claim_some(struct weir__queue *queue, size_t max, int64_t claim_ms, struct seen *seen)
{
    seen->count = 0;
    return weir__queue_claim(
        queue, &(struct weir__claim_request){.now_ms = clock_now, .claim_ms = claim_ms, .free = max}, see, seen);
}

/* The state of a ticket, or an error. */
static inline int state_of(struct weir__queue *queue, const char *ticket)
{
    static struct seen seen;
    seen.count = 0;
    int error = weir__queue_find(queue, ticket, see, &seen);
    return error ? error : (int)seen.items[0].state;
}

#define HOUR INT64_C(3600000)

/*
 * Lets time pass for claims: by the test's clock, or for Redis, which has its own, in the streams of the rule "r".
 * Waiting instead would make the test depend on the speed of the machine.
 */
static inline void pass_claims(const struct place *place, int64_t ms)
{
    clock_now += ms;
    if (!place->on_redis)
        return;
    redisReply *reply = redisCommand(server.context, "EVAL %s 1 %s %lld",
                                     "for _, p in ipairs(redis.call('XPENDING', KEYS[1], 'weir', '-', '+', 100)) do\n"
                                     "redis.call('XCLAIM', KEYS[1], 'weir', p[2], 0, p[1], 'IDLE', p[3] + ARGV[1],"
                                     " 'JUSTID')\n"
                                     "end\n"
                                     "return 1",
                                     "{weir:queue}:s:r", (long long)ms);
    CHECK(reply && reply->type == REDIS_REPLY_INTEGER);
    freeReplyObject(reply);
}

/* Sets the remaining time of the dispatcher's lease in Redis; 0 deletes it. */
static inline void leave_of_lease(int64_t ms)
{
    char command[64];
    snprintf(command, sizeof command, ms ? "PEXPIRE {weir:queue}:lease %lld" : "DEL {weir:queue}:lease", (long long)ms);
    redisReply *reply = server_reply(command);
    CHECK(reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1);
    freeReplyObject(reply);
}

#endif
