/* The table of commands, and what a command goes through before it runs. */
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
        ngx_weir_complain(call->session->stream->connection->log, error, "a command failed", "");
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
