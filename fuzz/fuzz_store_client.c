/*
 * The client of a store: any bytes in any pieces as a server's replies, with connections that open and close, time that
 * passes and owners that leave. Each request completes once, unless it was cancelled, and is not accessed after that.
 */
#include "remote/client.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define QUESTIONS 32

struct asked {
    struct weir__store_request request;
    struct weir__store_op ops[3];
    struct weir__group groups[2];
    unsigned number;
};

static struct {
    struct weir__client *client;
    bool opening[WEIR__CHANNELS], open[WEIR__CHANNELS];
    struct asked *waiting[QUESTIONS]; /* sent, and neither completed nor cancelled */
    int64_t now_us, wake_us;
} fuzz;

static void on_open(void *context, unsigned channel, const char *host, uint16_t port)
{
    (void)context;
    if (channel >= WEIR__CHANNELS || fuzz.opening[channel] || fuzz.open[channel] || host[0] == '\0')
        abort();
    (void)port;
    fuzz.opening[channel] = true;
}

static void on_close(void *context, unsigned channel)
{
    (void)context;
    if (!fuzz.opening[channel] && !fuzz.open[channel])
        abort();
    fuzz.opening[channel] = fuzz.open[channel] = false;
}

static void on_send(void *context, unsigned channel)
{
    (void)context;
    if (!fuzz.open[channel])
        abort();
}

static void on_wake(void *context, int64_t at_us)
{
    (void)context;
    fuzz.wake_us = at_us;
}

static void on_done(void *context, struct weir__store_request *request)
{
    struct asked *asked = request->owner;

    (void)context;
    if (fuzz.waiting[asked->number] != asked)
        abort();
    fuzz.waiting[asked->number] = NULL;
    if (!request->error && request->ops[0].taken && request->ops[0].cost == 3)
        weir__client_refund(fuzz.client, request, fuzz.now_us);
    free(asked); /* a later access is a use after free, which ASan reports */
}

static void on_changed(void *context, bool up, int error, const char *where)
{
    (void)context;
    if (up != !error || !where)
        abort();
}

static void op(unsigned number, uint8_t kind)
{
    static const char *const names[] = {"weir:a:1", "weir:b:2", "weir:c:3"};
    weir_params params = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .window_ns = 60 * WEIR_SECOND};
    struct asked *asked = calloc(1, sizeof(*asked));

    if (!asked || fuzz.waiting[number]) {
        free(asked);
        return;
    }
    fuzz.waiting[number] = asked;
    asked->number = number;
    asked->request = (struct weir__store_request){.ops = asked->ops,
                                                  .op_count = kind % 3 + 1u,
                                                  .groups = asked->groups,
                                                  .group_count = kind % 3 == 2 ? 2 : 1,
                                                  .owner = asked};
    asked->groups[0] = (struct weir__group){.first = 0, .count = kind % 3 == 2 ? 2 : kind % 3 + 1u};
    asked->groups[1] = (struct weir__group){.first = 2, .count = 1, .after_first = true};
    for (unsigned i = 0; i < 3; i++) {
        struct weir__store_op *one = &asked->ops[i];
        if (weir_limit_init(&one->limit, &params))
            abort();
        one->kind = (enum weir__store_op_kind)(kind / 16 % 6);
        one->cost = kind % 5;
        one->name_len = (uint16_t)strlen(names[i]);
        memcpy(one->name, names[i], one->name_len + 1u);
    }
    weir__client_submit(fuzz.client, &asked->request, fuzz.now_us);
}

static void forget(unsigned number)
{
    struct asked *asked = fuzz.waiting[number];

    if (!asked)
        return;
    fuzz.waiting[number] = NULL;
    weir__client_cancel(fuzz.client, &asked->request);
    free(asked);
}

static unsigned channel_of(uint8_t byte)
{
    return byte % 5 == 4 ? WEIR__CHANNELS - 1 : byte % 5;
}

/* One step; returns kind many bytes it used. */
static size_t step(const uint8_t *data, size_t size)
{
    unsigned channel = channel_of(data[1]);

    switch (data[0] % 8) {
    case 0:
    case 1:
        op(data[1] % QUESTIONS, size > 2 ? data[2] : 0);
        weir__client_flush(fuzz.client, fuzz.now_us);
        return 3;
    case 2:
        forget(data[1] % QUESTIONS);
        return 2;
    case 3:
        fuzz.now_us += (int64_t)data[1] * data[1] * 50;
        weir__client_tick(fuzz.client, fuzz.now_us);
        return 2;
    case 4:
        if (fuzz.opening[channel]) {
            fuzz.opening[channel] = false;
            fuzz.open[channel] = true;
            weir__client_opened(fuzz.client, channel, fuzz.now_us);
        }
        return 2;
    case 5:
        if (fuzz.opening[channel] || fuzz.open[channel]) {
            fuzz.opening[channel] = fuzz.open[channel] = false;
            weir__client_closed(fuzz.client, channel, 0, fuzz.now_us);
        }
        return 2;
    default:
        break;
    }
    size_t len = size > 3 ? data[2] : 0, left;
    len = len < size - 3 && size > 3 ? len : size > 3 ? size - 3 : 0;
    if (!fuzz.open[channel])
        return 2;
    (void)weir__client_output(fuzz.client, channel, &left);
    weir__client_sent(fuzz.client, channel, left, fuzz.now_us);
    if (fuzz.open[channel] && len > 0) {
        char *copy = malloc(len);
        if (!copy)
            return 3;
        memcpy(copy, data + 3, len);
        weir__client_received(fuzz.client, channel, copy, len, fuzz.now_us);
        free(copy);
    }
    return 3 + len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {"redis://a", "redis+sentinel://a,b/m", "redis+cluster://a,b",
                                       "redis://u:p@a/3?breaker_failures=1"};
    static const struct weir__driver driver = {.open = on_open,
                                               .close = on_close,
                                               .send = on_send,
                                               .wake = on_wake,
                                               .done = on_done,
                                               .changed = on_changed,
                                               .heartbeat_us = 30000};
    struct weir__store_options options;

    if (size < 2 || weir__store_parse(urls[data[0] % 4], &options, NULL, 0))
        return 0;
    memset(&fuzz, 0, sizeof(fuzz));
    fuzz.now_us = 1000000;
    fuzz.wake_us = INT64_MAX;
    fuzz.client = weir__client_new(&options, &driver, data[1], fuzz.now_us);
    for (size_t at = 2; at + 2 <= size;)
        at += step(data + at, size - at);
    /* Time passes: everything is done, at the latest by its deadline. */
    for (int i = 0; i < 10; i++) {
        fuzz.now_us += 20000;
        weir__client_tick(fuzz.client, fuzz.now_us);
    }
    for (unsigned i = 0; i < QUESTIONS; i++)
        if (fuzz.waiting[i])
            abort();
    weir__client_free(fuzz.client);
    for (unsigned i = 0; i < WEIR__CHANNELS; i++)
        if (fuzz.opening[i] || fuzz.open[i])
            abort();
    return 0;
}
