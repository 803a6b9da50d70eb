/* WEIR.RELEASE lease: how many slots were given back; WEIR.RENEW lease: the lease that takes its place. */
#include "ngx_stream_weir.h"

/* False after an error that was replied. */
static ngx_uint_t ngx_stream_weir_read_lease(ngx_stream_weir_call_t *call, weir_permits *permits)
{
    if (!ngx_stream_weir_has_rules(call))
        return 0;
    int error = weir_permits_from_text(call->session->engine, call->args[1], permits);
    if (error)
        ngx_stream_weir_error(call, "ERR this is no lease of this segment");
    return error == 0;
}

/* What the store is asked with; NULL: nothing of it is there. */
static weir_async *ngx_stream_weir_permits_async(ngx_stream_weir_call_t *call, const weir_permits *permits)
{
    return permits->names_len ? ngx_stream_weir_session_async(call->session) : NULL;
}

void ngx_stream_weir_release(ngx_stream_weir_call_t *call)
{
    weir_permits permits;
    ngx_stream_weir_session_t *session = call->session;
    if (!ngx_stream_weir_read_lease(call, &permits))
        return;
    weir_async *ask = ngx_stream_weir_permits_async(call, &permits);
    if (ask && !session->prepared) {
        call->needs_store = weir_permits_release_begin(session->engine, &permits, ask) == 1;
        if (call->needs_store)
            return;
    }
    int released = ask ? weir_permits_release_finish(session->engine, &permits, ask)
                       : weir_permits_release(session->engine, &permits);
    if (ask)
        ngx_stream_weir_store_used(session);
    if (released < 0)
        ngx_stream_weir_failure(call, released);
    else
        weir__resp_number(call->out, released);
}

/* Null: it is over. */
void ngx_stream_weir_renew(ngx_stream_weir_call_t *call)
{
    weir_permits permits;
    char text[WEIR_PERMITS_TEXT_MAX + 1];
    ngx_stream_weir_session_t *session = call->session;
    if (!ngx_stream_weir_read_lease(call, &permits))
        return;
    weir_async *ask = ngx_stream_weir_permits_async(call, &permits);
    if (ask && !session->prepared) {
        call->needs_store = weir_permits_renew_begin(session->engine, &permits, false, ask) == 1;
        if (call->needs_store)
            return;
    }
    int error = ask ? weir_permits_renew_finish(session->engine, &permits, false, ask)
                    : weir_permits_renew(session->engine, &permits);
    if (ask)
        ngx_stream_weir_store_used(session);
    size_t len = error ? 0 : weir_permits_to_text(session->engine, &permits, text);
    if (error)
        ngx_stream_weir_failure(call, error);
    else if (len)
        weir__resp_bulk(call->out, text, len);
    else
        weir__resp_null(call->out);
}
