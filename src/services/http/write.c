/* Decisions and errors as JSON, in the words of `weir check --json`. */
#include "services/http/api.h"
#include "base/number.h"

#include <string.h>

void weir__api_write_error(struct weir__buffer *out, const char *code, const char *message, const char *field)
{
    out->len = 0;
    weir__json_add(out, "{\"error\":{\"code\":%s,\"message\":%s,\"field\":%s}}\n", code, message, field);
}

bool weir__api_fail(struct weir__api_reply *reply, int status, const char *code, const char *message, const char *field)
{
    reply->status = status;
    weir__api_write_error(&reply->out, code, message, field);
    return false;
}

/* ---- Decisions ---- */

/* Bytes of one decision at most, if every byte of rule and key is escaped. */
#define DECISION_MAX (512 + WEIR__JSON_STRING_MAX(WEIR_NAME_MAX) + WEIR__JSON_STRING_MAX(WEIR_KEY_SHOWN_MAX))

/* Copies a literal of known length: the fast path of every check has twenty of these. */
#define PUT(to, literal) (memcpy((to), (literal), sizeof(literal) - 1), (to) + sizeof(literal) - 1)

static char *put_or_null(char *to, bool known, int64_t value)
{
    return known ? weir__write_int(to, value) : PUT(to, "null");
}

static char *put_text(char *to, weir_text text)
{
    return text.len ? weir__json_put_string(to, WEIR__JSON_STRING_MAX(text.len), text) : PUT(to, "null");
}

/* `operator`: with the counter of a blocked key, which the client does not get. */
static char *put_decision(char *to, const weir_outcome *by, const weir_decision *decision, bool operator)
{
    bool reserve =
        by->reason == WEIR_BY_SHED && decision->limit >= 0; /* shed to protect a reserve: there is a counter */
    bool passes = weir_passes(decision);
    bool counted = (by->reason == WEIR_BY_LIMIT && (operator|| decision->verdict != WEIR_BLOCKED)) || reserve;
    bool known = counted || by->reason == WEIR_BY_BAN;
    if (!passes)
        to = PUT(to, "\"decision\":\"deny\",\"allowed\":false,\"reason\":");
    else if (decision->verdict == WEIR_DELAY)
        to = PUT(to, "\"decision\":\"delay\",\"allowed\":true,\"reason\":");
    else
        to = PUT(to, "\"decision\":\"allow\",\"allowed\":true,\"reason\":");
    to = put_text(to, weir__text_of(weir_outcome_reason(by)));
    to = PUT(to, ",\"rule\":");
    to = put_text(to, weir__text_of(by->rule));
    to = PUT(to, ",\"key\":");
    to = put_text(to, (weir_text){by->key, by->key_len});
    to = PUT(to, ",\"limit\":");
    to = put_or_null(to, known, decision->limit);
    to = PUT(to, ",\"remaining\":");
    to = put_or_null(to, known, decision->remaining);
    to = PUT(to, ",\"reset_s\":");
    to = weir__json_put_seconds(to, counted ? decision->reset_after_ns : -1);
    to = PUT(to, ",\"retry_after_s\":");
    to = weir__json_put_seconds(to, passes ? -1 : decision->retry_after_ns);
    to = PUT(to, ",\"delay_s\":");
    return weir__json_put_seconds(to, decision->verdict == WEIR_DELAY ? decision->delay_ns : 0);
}

void weir__api_write_decision(struct weir__buffer *out, const weir_outcome *by, const weir_decision *decision)
{
    char *to = weir__buffer_room(out, DECISION_MAX);
    if (to)
        out->len = (size_t)(put_decision(to, by, decision, true) - out->data);
}

static void write_rule(struct weir__buffer *out, const weir_outcome *outcome)
{
    char *to = weir__buffer_room(out, DECISION_MAX);
    if (!to)
        return;
    to = PUT(to, "{");
    to = put_decision(to, outcome, &outcome->decision, false);
    to = PUT(to, ",\"cost\":");
    to = weir__write_int(to, outcome->cost);
    to = PUT(to, ",\"quota\":");
    to = put_or_null(to, outcome->quota >= 0, outcome->quota);
    to = PUT(to, ",\"window_s\":");
    to = weir__json_put_seconds(to, outcome->window_ns > 0 ? outcome->window_ns : -1);
    to = outcome->shadow ? PUT(to, ",\"shadow\":true}") : PUT(to, ",\"shadow\":false}");
    out->len = (size_t)(to - out->data);
}

void weir__api_write_lease(struct weir__api *api, struct weir__buffer *out)
{
    char text[WEIR_PERMITS_TEXT_MAX + 1];
    const weir_permits *permits = &api->scratch->permits;
    size_t len = permits->count ? weir_permits_to_text(api->engine, permits, text) : 0;
    if (len)
        weir__json_add(out, ",\"lease\":%t,\"lease_s\":%n", (weir_text){text, len}, permits->lease_ns);
}

void weir__api_write_result(struct weir__api *api, struct weir__buffer *out, const weir_result *result)
{
    weir__buffer_add_literal(out, "{");
    char *to = weir__buffer_room(out, DECISION_MAX);
    if (to)
        out->len = (size_t)(put_decision(to, &result->decided_by, &result->decision, false) - out->data);
    if (result->missing[0])
        weir__json_add(out, ",\"missing\":%s", result->missing);
    weir__buffer_add_literal(out, ",\"rules\":[");
    for (size_t i = 0; i < result->outcomes; i++) {
        if (i)
            weir__buffer_add_literal(out, ",");
        write_rule(out, &api->scratch->outcomes[i]);
    }
    weir__buffer_add_literal(out, "]");
    weir__api_write_lease(api, out);
}
