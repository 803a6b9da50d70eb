/* WEIR.RELEASE lease: how many slots were given back; WEIR.RENEW lease: the lease that takes its place. */
#include "ngx_stream_weir.h"

/* False after an error that was replied. */
static ngx_uint_t ngx_stream_weir_read_lease(ngx_stream_weir_call_t *call, weir_held *held)
{
    if (!ngx_stream_weir_has_rules(call))
        return 0;
    int error = weir_held_from_text(call->session->engine, call->args[1], held);
    if (error)
        ngx_stream_weir_error(call, "ERR this is no lease of this segment");
    return error == 0;
}

void ngx_stream_weir_release(ngx_stream_weir_call_t *call)
{
    weir_held held;
    if (!ngx_stream_weir_read_lease(call, &held))
        return;
    int released = weir_held_release(call->session->engine, &held);
    if (released < 0)
        ngx_stream_weir_failure(call, released);
    else
        weir__resp_number(call->out, released);
}

/* Null: it is over. */
void ngx_stream_weir_renew(ngx_stream_weir_call_t *call)
{
    weir_held held;
    char text[WEIR_HELD_TEXT_MAX + 1];
    if (!ngx_stream_weir_read_lease(call, &held))
        return;
    int error = weir_held_renew(call->session->engine, &held);
    size_t len = error ? 0 : weir_held_to_text(call->session->engine, &held, text);
    if (error)
        ngx_stream_weir_failure(call, error);
    else if (len)
        weir__resp_bulk(call->out, text, len);
    else
        weir__resp_null(call->out);
}
