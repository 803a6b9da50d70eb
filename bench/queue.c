/*
 * The queue's storage alone, as the agent uses it: for bench/pressure.py and docs/internals/queue.md.
 *
 *   queue URL BATCH COUNT [second]    puts COUNT requests of 1 KiB by 1,000 keys, BATCH at a time; then claims and
 *                                     delivers all
 *
 * One line of JSON each: puts a second, bytes a waiting request, deliveries a second.
 */
#include "queue/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#define KEYS 1000

static struct weir__queue_put pending[WEIR__QUEUE_PUT_MAX], *put_pointers[WEIR__QUEUE_PUT_MAX];
static char keys[WEIR__QUEUE_PUT_MAX][24], body[1024];
static char claimed[WEIR__QUEUE_CLAIM_MAX][WEIR__TICKET_LEN + 1];
static struct weir__queue_ending endings[WEIR__QUEUE_CLAIM_MAX];
static size_t claimed_count;

static _Noreturn void fail(const char *what, int error)
{
    fprintf(stderr, "bench/queue: %s: %s\n", what, weir__queue_strerror(error));
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void show(const char *what, const char *storage, size_t batch, double value, const char *unit)
{
    printf("{\"bench\": \"queue\", \"case\": \"%s\", \"storage\": \"%s\", \"batch\": %zu, \"value\": %.1f, \"unit\": "
           "\"%s\"}\n",
           what, storage, batch, value, unit);
    fflush(stdout);
}

static void put_all(struct weir__queue *queue, size_t batch, size_t count)
{
    static const char headers[] = "Content-Type: application/json\r\nAuthorization: Bearer 0123456789abcdef\r\n";
    for (size_t done = 0; done < count; done += batch) {
        for (size_t i = 0; i < batch; i++) {
            int len = snprintf(keys[i], sizeof keys[i], "user:%zu", (done + i) * 7919 % KEYS);
            pending[i] = (struct weir__queue_put){.item = {.rule = WEIR__TEXT("user-api"),
                                                           .key = {keys[i], (size_t)len},
                                                           .cost = 1,
                                                           .method = WEIR__TEXT("POST"),
                                                           .target = WEIR__TEXT("/api/orders?x=1"),
                                                           .headers = WEIR__TEXT(headers),
                                                           .body = {body, sizeof body}}};
            put_pointers[i] = &pending[i];
        }
        int error = weir__queue_put(queue, put_pointers, batch);
        for (size_t i = 0; i < batch && !error; i++)
            error = pending[i].error;
        if (error)
            fail("put", error);
    }
}

static int claim(void *context, const struct weir__deferred *item)
{
    (void)context;
    memcpy(claimed[claimed_count++], item->ticket, sizeof item->ticket);
    return 0;
}

static void deliver_all(struct weir__queue *queue, size_t count)
{
    for (size_t done = 0; done < count;) {
        claimed_count = 0;
        int found = weir__queue_claim(
            queue, &(struct weir__claim_request){.now_ms = INT64_C(9000000000000), .claim_ms = 60000, .free = 64},
            claim, NULL);
        if (found <= 0)
            fail("claim", found);
        for (size_t i = 0; i < claimed_count; i++)
            endings[i] = (struct weir__queue_ending){.ticket = claimed[i], .status = 200};
        int error = weir__queue_end(queue, endings, claimed_count);
        for (size_t i = 0; i < claimed_count && !error; i++)
            error = endings[i].error;
        if (error)
            fail("delivered", error);
        done += claimed_count;
    }
}

int main(int argc, char **argv)
{
    size_t batch = argc < 4 ? 0 : strtoul(argv[2], NULL, 10);
    if (batch < 1 || batch > WEIR__QUEUE_PUT_MAX) {
        fprintf(stderr, "usage: queue URL BATCH COUNT [second]\n");
        return 2;
    }
    size_t count = strtoul(argv[3], NULL, 10) / batch * batch;
    bool file = strncmp(argv[1], "sqlite:", 7) == 0, second = argc > 4 && strcmp(argv[4], "second") == 0;
    const char *storage = !file ? "redis" : second ? "sqlite, sync: second" : "sqlite";
    struct weir__queue_options options = {.url = argv[1], .sync_second = second};
    struct weir__queue *queue = NULL;
    char why[WEIR__QUEUE_SOURCE_TEXT];
    int error = weir__queue_open(&options, &queue, why);
    if (error)
        fail(why, error);
    double begin = now();
    put_all(queue, batch, count);
    show("put", storage, batch, (double)count / (now() - begin), "requests/s");
    struct stat about, log = {0};
    char name[4096];
    snprintf(name, sizeof name, "%s-wal", argv[1] + 7);
    if (file && stat(argv[1] + 7, &about) == 0 && (stat(name, &log) == 0 || true))
        show("waiting", storage, batch, (double)(about.st_size + log.st_size) / (double)count, "bytes");
    begin = now();
    deliver_all(queue, count);
    show("claim and deliver", storage, batch, (double)count / (now() - begin), "requests/s");
    weir__queue_close(queue);
    return 0;
}
