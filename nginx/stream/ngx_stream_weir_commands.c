/* CL.THROTTLE, the commands of operators, WEIR.STATS, and the dispatch of commands. */
#include "ngx_stream_weir.h"

#include <stdarg.h>

#define SECONDS_MAX (INT64_C(400) * 86400) /* of WEIR.BLOCK */

/* ---- Error replies ---- */

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

/* Adds a CL.THROTTLE to the batch. */
static void ngx_stream_weir_throttle(ngx_stream_weir_call_t *call)
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

/* A limit with the id of CL.THROTTLE's counters, for reset and block. */
static const weir_limit *ngx_stream_weir_throttle_any(void)
{
    static weir_limit any;
    static const weir_params params = {.limit = 1, .window_ns = WEIR_SECOND, .id = WEIR__THROTTLE_ID};
    return any.made || weir_limit_init(&any, &params) == 0 ? &any : NULL;
}

/* ---- WEIR.RESET rule key and WEIR.BLOCK rule key seconds, for operators; WEIR.STATS [rule], for every client ---- */

static ngx_uint_t ngx_stream_weir_may(ngx_stream_weir_call_t *call)
{
    if (!call->session->is_operator)
        ngx_stream_weir_error(call, "NOPERM this command is for operators; AUTH with the operator's password first");
    return call->session->is_operator;
}

/* Copies a rule's name; "", which no rule has, if it is too long or has a zero byte. */
static void ngx_stream_weir_rule_name(weir_text from, char name[WEIR_NAME_MAX + 1])
{
    size_t len = from.len <= WEIR_NAME_MAX && memchr(from.data, 0, from.len) == NULL ? from.len : 0;
    ngx_memcpy(name, from.data, len);
    name[len] = 0;
}

/* CL.THROTTLE's counters have no rule: the command's name stands for one. */
static ngx_uint_t ngx_stream_weir_is_throttle(int error, weir_text rule)
{
    return error == WEIR_ENORULE && weir__resp_is(rule, "cl.throttle");
}

/* `reach`: where it holds. */
static void ngx_stream_weir_done(ngx_stream_weir_call_t *call, int error, enum weir_reach reach)
{
    if (error)
        ngx_stream_weir_failure(call, error);
    else
        weir__resp_simple(call->out, reach == WEIR_ALL_HOSTS   ? "OK all hosts"
                                     : reach == WEIR_THIS_HOST ? "OK this host"
                                                               : "OK this host, all hosts later");
}

static void ngx_stream_weir_reset_key(ngx_stream_weir_call_t *call)
{
    weir *engine = call->session->engine;
    weir_segment *segment = call->session->segment;
    weir_text key = call->args[2];
    char rule[WEIR_NAME_MAX + 1];
    if (!ngx_stream_weir_may(call))
        return;
    ngx_stream_weir_rule_name(call->args[1], rule);
    weir_time now = weir_clock(segment);
    weir_async *async = ngx_stream_weir_session_async(call->session);
    call->needs_store =
        async && !call->session->prepared && weir_key_reset_begin(engine, rule, key.data, key.len, now, async) == 1;
    if (call->needs_store)
        return;
    int error = engine ? weir_key_reset_finish(engine, rule, key.data, key.len, now, async) : WEIR_ENORULE;
    ngx_stream_weir_store_used(call->session);
    ngx_uint_t throttle = ngx_stream_weir_is_throttle(error, call->args[1]);
    if (throttle)
        error = weir_reset(segment, ngx_stream_weir_throttle_any(), key.data, key.len, now);
    ngx_stream_weir_done(call, ngx_min(error, 0),
                         error > 0 || throttle || !engine ? WEIR_THIS_HOST : weir_key_reach(engine));
}

static void ngx_stream_weir_block_key(ngx_stream_weir_call_t *call)
{
    weir *engine = call->session->engine;
    weir_segment *segment = call->session->segment;
    weir_text key = call->args[2];
    char rule[WEIR_NAME_MAX + 1];
    int64_t seconds;
    if (!ngx_stream_weir_may(call))
        return;
    if (!weir__resp_integer(call->args[3], &seconds) || seconds < 0 || seconds > SECONDS_MAX) {
        ngx_stream_weir_error(call, "ERR seconds must be a whole number from 0 to %L", SECONDS_MAX);
        return;
    }
    ngx_stream_weir_rule_name(call->args[1], rule);
    weir_time now = weir_clock(segment);
    int error = engine ? weir_key_block(engine, rule, key.data, key.len, seconds * WEIR_SECOND, now) : WEIR_ENORULE;
    ngx_uint_t throttle = ngx_stream_weir_is_throttle(error, call->args[1]);
    if (throttle)
        error = weir_block(segment, ngx_stream_weir_throttle_any(), key.data, key.len, seconds * WEIR_SECOND, now);
    ngx_stream_weir_done(call, ngx_min(error, 0),
                         error > 0 || throttle || !engine ? WEIR_THIS_HOST : weir_key_reach(engine));
}

/* A counter of the statistics, by its offset. */
typedef struct {
    const char *name;
    size_t offset;
} ngx_stream_weir_stat_t;

static void ngx_stream_weir_add_stats(struct weir__resp_out *out, const ngx_stream_weir_stat_t *table, size_t count,
                                      const void *stats)
{
    for (size_t i = 0; i < count; i++)
        weir__resp_named_number(out, table[i].name, *(const int64_t *)((const char *)stats + table[i].offset));
}

static void ngx_stream_weir_rule_stats(ngx_stream_weir_call_t *call)
{
#define STAT(name) #name, offsetof(weir_rule_stats, name)
    static const ngx_stream_weir_stat_t table[] = {{STAT(allowed)},     {STAT(delayed)},     {STAT(denied)},
                                                   {STAT(listed)},      {STAT(missing_key)}, {STAT(failures)},
                                                   {STAT(rolled_back)}, {STAT(shed)},        {STAT(warnings)}};
#undef STAT
    const size_t count = sizeof(table) / sizeof(table[0]);
    char rule[WEIR_NAME_MAX + 1];
    weir_rule_stats stats;
    if (!ngx_stream_weir_has_rules(call))
        return;
    ngx_stream_weir_rule_name(call->args[1], rule);
    int error = weir_rule_stats_read(call->session->engine, rule, false, &stats);
    if (error == WEIR_ENORULE)
        error = weir_rule_stats_read(call->session->engine, rule, true, &stats);
    if (error) {
        ngx_stream_weir_failure(call, error);
        return;
    }
    weir__resp_map(call->out, count);
    ngx_stream_weir_add_stats(call->out, table, count, &stats);
}

static void ngx_stream_weir_stats(ngx_stream_weir_call_t *call)
{
#define STAT(name) #name, offsetof(weir_stats, name)
    static const ngx_stream_weir_stat_t table[] = {
        {STAT(allowed)},   {STAT(delayed)},       {STAT(denied)},  {STAT(never_fits)},   {STAT(blocked)},
        {STAT(soft)},      {STAT(errors)},        {STAT(created)}, {STAT(evicted_live)}, {STAT(evicted_denied)},
        {STAT(slab_full)}, {STAT(auth_failures)}, {STAT(slots)},   {STAT(bytes)}};
#undef STAT
    const size_t count = sizeof(table) / sizeof(table[0]);
    weir_stats stats;
    weir_engine_stats rules = {0};
    if (call->count > 2) {
        ngx_stream_weir_wrong_count(call, "weir.stats", NULL);
        return;
    }
    if (call->count == 2) {
        ngx_stream_weir_rule_stats(call);
        return;
    }
    int error = weir_stats_read(call->session->segment, &stats);
    if (!error && call->session->engine)
        error = weir_engine_stats_read(call->session->engine, &rules);
    if (error) {
        ngx_stream_weir_failure(call, error);
        return;
    }
    weir__resp_map(call->out, count + 3);
    ngx_stream_weir_add_stats(call->out, table, count, &stats);
    weir__resp_named_number(call->out, "rules", (int64_t)rules.rules);
    weir__resp_named_number(call->out, "reloads", (int64_t)rules.reloads);
    weir__resp_named_number(call->out, "reload_failures", (int64_t)rules.reload_failures);
}

/* ---- Dispatch ---- */

const ngx_stream_weir_command_t ngx_stream_weir_commands[] = {
    {"cl.throttle", -5, ngx_stream_weir_throttle, 0, 1},
    {"weir.check", -3, ngx_stream_weir_check, 0, 0},
    {"weir.peek", -3, ngx_stream_weir_check, 0, 0},
    {"weir.release", 2, ngx_stream_weir_release, 0, 0},
    {"weir.renew", 2, ngx_stream_weir_renew, 0, 0},
    {"weir.reset", 3, ngx_stream_weir_reset_key, 0, 0},
    {"weir.block", 4, ngx_stream_weir_block_key, 0, 0},
    {"weir.stats", -1, ngx_stream_weir_stats, 0, 0},
    {"ping", -1, ngx_stream_weir_ping, 0, 0},
    {"echo", 2, ngx_stream_weir_ping, 0, 0},
    {"hello", -1, ngx_stream_weir_hello, 1, 0},
    {"auth", -2, ngx_stream_weir_auth, 1, 0},
    {"quit", -1, ngx_stream_weir_quit, 1, 0},
    {"reset", 1, ngx_stream_weir_reset, 1, 0},
    {"select", 2, ngx_stream_weir_select, 0, 0},
    {"client", -2, ngx_stream_weir_client, 0, 0},
    {"command", -1, ngx_stream_weir_command, 0, 0},
    {"config", -2, ngx_stream_weir_config, 0, 0},
    {"info", -1, ngx_stream_weir_info, 0, 0},
};
const size_t ngx_stream_weir_command_count = sizeof(ngx_stream_weir_commands) / sizeof(ngx_stream_weir_commands[0]);

const ngx_stream_weir_command_t *ngx_stream_weir_find(weir_text name)
{
    for (size_t i = 0; i < ngx_stream_weir_command_count; i++)
        if (weir__resp_is(name, ngx_stream_weir_commands[i].name))
            return &ngx_stream_weir_commands[i];
    return NULL;
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
        ngx_stream_weir_error(call, "ERR unknown command '%*s'", ngx_min(call->args[0].len, 128), call->args[0].data);
    } else if (!session->authenticated && !command->before_auth) {
        ngx_stream_weir_error(call, "NOAUTH Authentication required.");
    } else if (command->arity > 0 ? call->count != (size_t)command->arity : call->count < (size_t)-command->arity) {
        ngx_stream_weir_wrong_count(call, command->name, NULL);
    } else {
        command->run(call);
    }
}
