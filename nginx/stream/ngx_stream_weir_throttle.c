/* CL.THROTTLE: those that follow each other are decided together, while the memory of the next is on its way. */
#include "ngx_stream_weir.h"
#include "services/resp/throttle.h"

enum { BATCH = 256 };

/* The worker's alone, and empty whenever a connection's step ends. */
static weir_request ngx_stream_weir_batch[BATCH];
static size_t ngx_stream_weir_batch_count;
static struct weir__throttle_limits ngx_stream_weir_limits;

void ngx_stream_weir_throttle_decide(ngx_stream_weir_call_t *call)
{
    size_t count = ngx_stream_weir_batch_count;
    if (count == 0)
        return;
    ngx_stream_weir_batch_count = 0;
    weir_segment *segment = call->session->segment;
    int result = weir_take_batch(segment, ngx_stream_weir_batch, count, weir_clock(segment));
    for (size_t i = 0; i < count; i++) {
        const weir_request *request = &ngx_stream_weir_batch[i];
        int64_t numbers[5];
        if (result < 0 || request->error) {
            ngx_stream_weir_failure(call, result < 0 ? result : request->error);
            continue;
        }
        weir__throttle_reply(&request->decision, numbers);
        weir__resp_five(call->out, numbers);
    }
}

/* The limit of a call. What is waiting uses limits that were made before, so it is decided before one is replaced. */
static int ngx_stream_weir_limit(ngx_stream_weir_call_t *call, const struct weir__throttle *throttle,
                                 const weir_limit **limit)
{
    *limit = weir__throttle_known(&ngx_stream_weir_limits, throttle);
    if (*limit)
        return 0;
    ngx_stream_weir_throttle_decide(call);
    return weir__throttle_make(&ngx_stream_weir_limits, throttle, limit);
}

void ngx_stream_weir_throttle(ngx_stream_weir_call_t *call)
{
    struct weir__throttle throttle;
    const weir_limit *limit;
    const char *wrong = weir__throttle_read(call->args, call->count, &throttle);
    if (wrong) {
        ngx_stream_weir_throttle_decide(call);
        ngx_stream_weir_error(call, "%s", wrong);
        return;
    }
    int error = ngx_stream_weir_limit(call, &throttle, &limit);
    if (error) {
        ngx_stream_weir_failure(call, error);
        return;
    }
    weir_request *request = &ngx_stream_weir_batch[ngx_stream_weir_batch_count++];
    request->limit = limit;
    request->key = throttle.key.data;
    request->key_len = throttle.key.len;
    request->cost = weir__throttle_cost(&throttle, limit);
    if (ngx_stream_weir_batch_count == BATCH)
        ngx_stream_weir_throttle_decide(call);
}

const weir_limit *ngx_stream_weir_throttle_any(void)
{
    static weir_limit any;
    static const weir_params params = {.limit = 1, .window_ns = WEIR_SECOND, .id = WEIR__THROTTLE_ID};
    return any.made || weir_limit_init(&any, &params) == 0 ? &any : NULL;
}
