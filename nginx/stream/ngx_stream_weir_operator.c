/* Commands of operators: WEIR.RESET rule key, WEIR.BLOCK rule key seconds; and WEIR.STATS [rule], for every client. */
#include "ngx_stream_weir.h"

#define SECONDS_MAX (INT64_C(400) * 86400)

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

static void ngx_stream_weir_done(ngx_stream_weir_call_t *call, int error)
{
    if (error)
        ngx_stream_weir_failure(call, error);
    else
        weir__resp_simple(call->out, "OK");
}

void ngx_stream_weir_reset_key(ngx_stream_weir_call_t *call)
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
    if (async && !call->session->prepared) {
        call->needs_store = weir_key_reset_begin(engine, rule, key.data, key.len, now, async) == 1;
        if (call->needs_store)
            return;
    }
    int error = async    ? weir_key_reset_finish(engine, rule, key.data, key.len, now, async)
                : engine ? weir_key_reset(engine, rule, key.data, key.len, now)
                         : WEIR_ENORULE;
    ngx_stream_weir_store_used(call->session);
    if (ngx_stream_weir_is_throttle(error, call->args[1]))
        error = weir_reset(segment, ngx_stream_weir_throttle_any(), key.data, key.len, now);
    ngx_stream_weir_done(call, error);
}

void ngx_stream_weir_block_key(ngx_stream_weir_call_t *call)
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
    if (ngx_stream_weir_is_throttle(error, call->args[1]))
        error = weir_block(segment, ngx_stream_weir_throttle_any(), key.data, key.len, seconds * WEIR_SECOND, now);
    ngx_stream_weir_done(call, error);
}

/* ---- Stats ---- */

typedef struct {
    const char *name;
    uint64_t value;
} ngx_stream_weir_stat_t;

static void ngx_stream_weir_reply_stats(struct weir__resp_out *out, const ngx_stream_weir_stat_t *stats_list,
                                        size_t count)
{
    weir__resp_map(out, count);
    for (size_t i = 0; i < count; i++)
        weir__resp_named_number(out, stats_list[i].name, (int64_t)stats_list[i].value);
}

static void ngx_stream_weir_rule_stats(ngx_stream_weir_call_t *call)
{
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
    ngx_stream_weir_stat_t stats_list[] = {{"allowed", stats.allowed},         {"delayed", stats.delayed},
                                           {"denied", stats.denied},           {"listed", stats.listed},
                                           {"missing_key", stats.missing_key}, {"failures", stats.failures},
                                           {"rolled_back", stats.rolled_back}, {"shed", stats.shed}};
    ngx_stream_weir_reply_stats(call->out, stats_list, sizeof(stats_list) / sizeof(stats_list[0]));
}

void ngx_stream_weir_stats(ngx_stream_weir_call_t *call)
{
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
    ngx_stream_weir_stat_t stats_list[] = {{"allowed", stats.allowed},
                                           {"delayed", stats.delayed},
                                           {"denied", stats.denied},
                                           {"never_fits", stats.never_fits},
                                           {"blocked", stats.blocked},
                                           {"soft", stats.soft},
                                           {"errors", stats.errors},
                                           {"created", stats.created},
                                           {"evicted_live", stats.evicted_live},
                                           {"evicted_denied", stats.evicted_denied},
                                           {"slab_full", stats.slab_full},
                                           {"auth_failures", stats.auth_failures},
                                           {"slots", stats.slots},
                                           {"bytes", stats.bytes},
                                           {"rules", rules.rules},
                                           {"reloads", rules.reloads},
                                           {"reload_failures", rules.reload_failures}};
    ngx_stream_weir_reply_stats(call->out, stats_list, sizeof(stats_list) / sizeof(stats_list[0]));
}
