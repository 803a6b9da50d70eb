/* The Redis storage: open and close, and calls of its scripts through the store's client. */
#include "queue/redis.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define CALLS 64

/* ---- Commands ---- */

void weir__rq_text(struct weir__rq_call *call, weir_text text)
{
    char length[32];
    int len = snprintf(length, sizeof length, "$%zu\r\n", text.len);
    weir__buffer_add(&call->command, length, (size_t)len);
    if (text.len > 0)
        weir__buffer_add(&call->command, text.data, text.len);
    weir__buffer_add(&call->command, "\r\n", 2);
}

void weir__rq_word(struct weir__rq_call *call, const char *word)
{
    weir__rq_text(call, (weir_text){word, strlen(word)});
}

void weir__rq_number(struct weir__rq_call *call, int64_t number)
{
    char text[24];
    int len = snprintf(text, sizeof text, "%lld", (long long)number);
    weir__rq_text(call, (weir_text){text, (size_t)len});
}

void weir__rq_begin(struct weir__rq *q, struct weir__rq_call *call, enum weir__rq_which which, size_t arguments)
{
    char head[32];
    const struct weir__rq_script *script = &weir__rq_scripts[which];
    *call = (struct weir__rq_call){.raw = {.slot = q->base, .script = script->text}};
    int len = snprintf(head, sizeof head, "*%zu\r\n", arguments + 4);
    weir__buffer_add(&call->command, head, (size_t)len);
    weir__rq_word(call, "EVALSHA");
    weir__rq_word(call, script->sha);
    weir__rq_word(call, "1");
    weir__rq_word(call, q->base);
}

/* ---- Replies ---- */

static int error_of(struct weir__rq *q, const struct weir__rq_call *call)
{
    int error = call->request.error;
    weir__queue_set_why(&q->queue, call->raw.why[0] ? call->raw.why : weir_strerror(error));
    switch (error) {
    case WEIR_ENOMEM:
        return call->raw.in_doubt ? WEIR__QUEUE_UNKNOWN : WEIR__QUEUE_MEMORY;
    case WEIR_ESTOREOOM:
        return WEIR__QUEUE_SPACE;
    case WEIR_ESTOREREADONLY:
    case WEIR_ESTOREDISK:
        return WEIR__QUEUE_READONLY;
    case WEIR_ESTOREWRONGTYPE:
        return WEIR__QUEUE_BROKEN;
    case WEIR_ESTOREERROR:
        return call->raw.in_doubt ? WEIR__QUEUE_UNKNOWN : WEIR__QUEUE_BROKEN;
    default:
        return call->raw.in_doubt ? WEIR__QUEUE_UNKNOWN : WEIR__QUEUE_UNAVAILABLE;
    }
}

void weir__rq_call_scripts(struct weir__rq *q, struct weir__rq_call *calls, int *errors, size_t count,
                           weir__rq_read *read)
{
    struct weir__store_request *requests[CALLS];
    for (size_t at = 0, some; at < count; at += some) {
        size_t sent = 0;
        some = count - at < CALLS ? count - at : CALLS;
        for (size_t i = at; i < at + some; i++) {
            struct weir__rq_call *call = &calls[i];
            call->raw.command = call->command.data;
            call->raw.command_len = call->command.len;
            call->raw.read = read;
            call->request = (struct weir__store_request){
                .raw = &call->raw, .owner = call, .deadline_us = weir__monotonic_us() + q->store.deadline_us};
            if (call->command.failed)
                call->request.error = WEIR_ENOMEM;
            else
                requests[sent++] = &call->request;
        }
        (void)weir__blocking_client_request_all(q->link, requests, sent);
        for (size_t i = at; i < at + some; i++)
            errors[i] = calls[i].request.error ? error_of(q, &calls[i]) : 0;
    }
    for (size_t i = 0; i < count; i++)
        weir__buffer_free(&calls[i].command);
}

int weir__rq_call_script(struct weir__rq *q, struct weir__rq_call *call, weir__rq_read *read, void *context)
{
    int error;
    call->context = context;
    weir__rq_call_scripts(q, call, &error, 1, read);
    return error;
}

/* ---- Open and close ---- */

static void close_handle(struct weir__queue *queue)
{
    struct weir__rq *q = weir__rq_of(queue);
    if (q->drains)
        weir__rq_release_lease(q);
    weir__blocking_client_free(q->link);
    pthread_mutex_destroy(&q->own.lock);
    free(q);
}

static const struct weir__queue_calls calls = {.put = weir__rq_put,
                                               .claim = weir__rq_claim,
                                               .change = weir__rq_change,
                                               .find = weir__rq_find,
                                               .list = weir__rq_list,
                                               .expire = weir__rq_expire,
                                               .cancel_in_doubt = weir__rq_cancel_in_doubt,
                                               .stats = weir__rq_stats,
                                               .close = close_handle};

int weir__queue_redis(const char *url, const struct weir__queue *made, struct weir__queue **queue, char *why)
{
    struct weir__rq *q = calloc(1, sizeof *q);
    if (!q)
        return WEIR__QUEUE_MEMORY;
    q->queue = *made;
    q->queue.calls = &calls;
    pthread_mutex_init(&q->own.lock, NULL);
    q->in_doubt = made->options.in_doubt ? made->options.in_doubt : &q->own;
    int error = weir__store_parse(url, &q->store, why, WEIR__QUEUE_SOURCE_TEXT) ? WEIR__QUEUE_URL : 0;
    if (!error) {
        /* The store's deadline is for gateway requests; the client drops a connection after ten times this. */
        q->store.deadline_us = made->options.wait_ms * 1000;
        snprintf(q->base, sizeof q->base, "{%s:queue}", q->store.prefix);
        q->link = weir__blocking_client_new(&q->store);
        error = q->link ? 0 : WEIR__QUEUE_MEMORY;
    }
    if (error) {
        pthread_mutex_destroy(&q->own.lock);
        free(q);
        return error;
    }
    *queue = &q->queue;
    return 0;
}
