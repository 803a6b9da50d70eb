/* The table of commands, their dispatch, and CL.THROTTLE. */
#include "ngx_stream_weir.h"

#include <stdarg.h>

const ngx_stream_weir_command_t ngx_stream_weir_commands[] = {
    {"cl.throttle", -5, ngx_stream_weir_throttle, 0, 1},
    {"weir.check", -3, ngx_stream_weir_check, 0, 0},
    {"weir.peek", -3, ngx_stream_weir_peek, 0, 0},
    {"weir.release", 2, ngx_stream_weir_release, 0, 0},
    {"weir.renew", 2, ngx_stream_weir_renew, 0, 0},
    {"weir.reset", 3, ngx_stream_weir_reset_key, 0, 0},
    {"weir.block", 4, ngx_stream_weir_block_key, 0, 0},
    {"weir.stats", -1, ngx_stream_weir_stats, 0, 0},
    {"ping", -1, ngx_stream_weir_ping, 0, 0},
    {"echo", 2, ngx_stream_weir_echo, 0, 0},
    {"hello", -1, ngx_stream_weir_hello, 1, 0},
    {"auth", -2, ngx_stream_weir_auth, 1, 0},
    {"quit", -1, ngx_stream_weir_quit, 1, 0},
    {"reset", 1, ngx_stream_weir_reset, 1, 0},
    {"select", 2, ngx_stream_weir_select, 0, 0},
    {"client", -2, ngx_stream_weir_client, 0, 0},
    {"command", -1, ngx_stream_weir_command, 0, 0},
    {"config", -2, ngx_stream_weir_config, 0, 0},
    {"info", -1, ngx_stream_weir_info, 0, 0},
    {NULL, 0, NULL, 0, 0},
};

void ngx_stream_weir_error(ngx_stream_weir_call_t *call, const char *format, ...)
{
    u_char text[512];
    va_list args;
    va_start(args, format);
    u_char *end = ngx_vslprintf(text, text + sizeof(text), format, args);
    va_end(args);
    weir__resp_error(call->out, (const char *)text, (size_t)(end - text));
}

void ngx_stream_weir_failure(ngx_stream_weir_call_t *call, int error)
{
    if (error == WEIR_EBUSY || error == WEIR_EFULL || error == WEIR_EREADONLY)
        ngx_weir_log_limited(call->session->stream->connection->log, error, "a command failed", "");
    ngx_stream_weir_error(call, "ERR %s (%s)", weir_strerror(error), weir_error_name(error));
}

void ngx_stream_weir_wrong_count(ngx_stream_weir_call_t *call, const char *name, const char *sub)
{
    ngx_stream_weir_error(call, "ERR wrong number of arguments for '%s%s%s' command", name, sub ? "|" : "",
                          sub ? sub : "");
}

ngx_uint_t ngx_stream_weir_has_rules(ngx_stream_weir_call_t *call)
{
    if (call->session->engine == NULL)
        ngx_stream_weir_error(call, "ERR no rules are configured");
    return call->session->engine != NULL;
}

static const ngx_stream_weir_command_t *ngx_stream_weir_find(weir_text name)
{
    const ngx_stream_weir_command_t *command = ngx_stream_weir_commands;
    while (command->name && !weir__resp_is(name, command->name))
        command++;
    return command->name ? command : NULL;
}

void ngx_stream_weir_run(ngx_stream_weir_call_t *call)
{
    const ngx_stream_weir_command_t *command = ngx_stream_weir_find(call->args[0]);
    ngx_stream_weir_session_t *session = call->session;
    if (command && command->run == ngx_stream_weir_throttle && session->authenticated) {
        ngx_stream_weir_throttle(call);
        return;
    }
    ngx_stream_weir_throttle_decide(call);
    if (command == NULL) {
        ngx_str_t name = {ngx_min(call->args[0].len, 128), (u_char *)call->args[0].data};
        ngx_stream_weir_error(call, "ERR unknown command '%V'", &name);
    } else if (!session->authenticated && !command->before_auth) {
        ngx_stream_weir_error(call, "NOAUTH Authentication required.");
    } else if (command->arity > 0 ? call->count != (size_t)command->arity : call->count < (size_t)-command->arity) {
        ngx_stream_weir_wrong_count(call, command->name, NULL);
    } else {
        command->run(call);
    }
}

/* ---- CL.THROTTLE: consecutive ones are decided as one batch, so that the memory of the next is prefetched ---- */

enum { BATCH = 256 };

/* the worker's; empty after each ngx_stream_weir_process */
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

/* The limit of a call. The batch uses cached limits, so it is decided before one is replaced. */
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
