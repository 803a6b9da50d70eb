/*
 * Commands that wait for the store. Commands of a connection are carried out in order, so one that waits delays those
 * behind it; checks that follow it are sent to the store together with it.
 */
#include "ngx_stream_weir.h"

#define AHEAD_MAX 64 /* checks sent together */

static struct weir__resp_command ngx_stream_weir_next;

weir_async *ngx_stream_weir_session_async(ngx_stream_weir_session_t *session)
{
    if (session->wait == NULL && session->store)
        session->wait = ngx_weir_wait_new(session->store);
    return session->wait ? session->wait->async : NULL;
}

ngx_uint_t ngx_stream_weir_needs_store(ngx_stream_weir_call_t *call, ngx_stream_weir_check_t *check)
{
    ngx_stream_weir_session_t *session = call->session;
    check->async = ngx_stream_weir_session_async(session);
    if (session->prepared || check->async == NULL)
        return 0;
    call->needs_store = ngx_stream_weir_decide(session->engine, check, NULL) == 1;
    return call->needs_store;
}

void ngx_stream_weir_store_used(ngx_stream_weir_session_t *session)
{
    if (session->prepared)
        session->prepared--;
    if (session->wait && session->prepared == 0) {
        ngx_weir_wait_end(session->wait);
        session->wait = NULL;
    }
}

/* Prepares the check that follows. 0: it depends on the commands before it. */
static ngx_uint_t ngx_stream_weir_prepare_next(ngx_stream_weir_session_t *session)
{
    char discarded[1024];
    struct weir__resp_out out = {.at = discarded, .end = discarded + sizeof(discarded), .version = session->version};
    const struct weir__resp_command *next = &ngx_stream_weir_next;
    ngx_stream_weir_call_t call = {.session = session, .args = next->args, .count = next->count, .out = &out};
    ngx_uint_t peek = weir__resp_is(next->args[0], "weir.peek");
    ngx_stream_weir_check_t check = {.dry_run = peek, .async = session->wait->async};
    if (weir__resp_is(next->args[0], "cl.throttle"))
        return 1;
    if (!peek && !weir__resp_is(next->args[0], "weir.check"))
        return 0;
    if (!ngx_stream_weir_read_check(&call, &check))
        return 1; /* it gets an error reply, without the store */
    if (ngx_stream_weir_decide(session->engine, &check, NULL) < 0)
        return 0;
    session->prepared++;
    return 1;
}

void ngx_stream_weir_prepare_ahead(ngx_stream_weir_call_t *call, char *at, size_t len)
{
    ngx_stream_weir_session_t *session = call->session;
    char *end = at + len;
    session->prepared = 1;
    if (!weir__resp_is(call->args[0], "weir.check") && !weir__resp_is(call->args[0], "weir.peek"))
        return; /* what follows depends on it */
    /* parsing an inline command changes it, so it is parsed only once */
    while (session->prepared < AHEAD_MAX && at < end && *at == '*' &&
           weir__resp_parse(at, (size_t)(end - at), false, &ngx_stream_weir_next) == WEIR__RESP_COMMAND) {
        if (ngx_stream_weir_next.count && !ngx_stream_weir_prepare_next(session))
            break;
        at += ngx_stream_weir_next.length;
    }
}

static void ngx_stream_weir_store_replied(ngx_weir_wait_t *wait)
{
    ngx_stream_weir_session_t *session = wait->data;
    session->waiting = 0;
    ngx_stream_weir_resume(session);
}

void ngx_stream_weir_store_begin(ngx_stream_weir_session_t *session)
{
    session->wait->data = session;
    session->waiting = ngx_weir_wait_begin(session->wait, ngx_stream_weir_store_replied) == NGX_AGAIN;
}

void ngx_stream_weir_store_end(ngx_stream_weir_session_t *session)
{
    if (session->wait)
        ngx_weir_wait_end(session->wait);
    session->wait = NULL;
    session->waiting = 0;
}

/* Rewrites a parsed inline command, whose quotes are gone, as an array, so that it can be parsed again. */
size_t ngx_stream_weir_rewrite(const ngx_stream_weir_call_t *call, char *to, size_t size)
{
    u_char *at = (u_char *)to, *last = at + size;
    at = ngx_slprintf(at, last, "*%uz\r\n", call->count);
    for (size_t i = 0; i < call->count; i++) {
        ngx_str_t word = {call->args[i].len, (u_char *)call->args[i].data};
        at = ngx_slprintf(at, last, "$%uz\r\n%V\r\n", word.len, &word);
    }
    return (size_t)(at - (u_char *)to);
}
