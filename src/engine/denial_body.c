/* The body of a denial, as in docs/rules.md. The same for the gateway, the services and the command line. */
#include "base/text.h"
#include "base/json_writer.h"
#include "base/number.h"
#include "engine/seconds.h"

/*
 * A text that grows up to its buffer's end and always ends in a zero byte; what does not fit is left out. An attack is
 * mostly denied requests, so it is not printf that writes.
 */
struct body_writer {
    char *at;
    size_t len, size;
};

static inline void put_bytes(struct body_writer *to, const char *bytes, size_t len)
{
    if (len >= to->size - to->len)
        return;
    memcpy(to->at + to->len, bytes, len);
    to->len += len;
    to->at[to->len] = 0;
}

#define PUT(to, literal) put_bytes((to), (literal), sizeof(literal) - 1)

static inline void put_char(struct body_writer *to, char c)
{
    put_bytes(to, &c, 1);
}

static void put_number(struct body_writer *to, int64_t number)
{
    char digits[WEIR__DIGITS_MAX];
    const char *end = weir__write_int(digits, number);
    put_bytes(to, digits, (size_t)(end - digits));
}

static void put_json(struct body_writer *to, weir_text text)
{
    size_t room = to->size - to->len - 1;
    if (room < 2)
        return;
    to->len = (size_t)(weir__json_put_string(to->at + to->len, room, text) - to->at);
    to->at[to->len] = 0;
}

/* The rule's own message, or what fits the reason; `room` is where the latter is written. */
static weir_text message_of(const weir_result *result, char *room, size_t size)
{
    int64_t wait = weir__retry_seconds(result);
    if (result->message.len)
        return result->message;
    if (result->decision.verdict == WEIR_NEVER_FITS && result->decided_by.reason == WEIR_BY_LIMIT)
        return weir__text_of("This request costs more than the limit allows at once; it can never pass.");
    if (result->decided_by.reason == WEIR_BY_MISSING_KEY)
        return weir__text_of("The request lacks a header or something else that is needed here.");
    if (!wait)
        return weir__text_of("Requests of this kind are not allowed.");
    struct body_writer to = {room, 0, size};
    if (result->decided_by.reason == WEIR_BY_SHED)
        PUT(&to, "The service is busy with more important requests. Please retry after ");
    else
        PUT(&to, "Too many requests. Please retry after ");
    put_number(&to, wait);
    PUT(&to, " second");
    put_bytes(&to, "s.", wait == 1 ? 0 : 1);
    put_char(&to, '.');
    return (weir_text){room, to.len};
}

static void put_plain_json(struct body_writer *to, const weir_result *result, weir_text message)
{
    if (result->decided_by.reason == WEIR_BY_SHED)
        PUT(to, "{\"error\":\"overloaded\",\"message\":");
    else
        PUT(to, "{\"error\":\"rate_limit_exceeded\",\"message\":");
    put_json(to, message);
    if (result->decided_by.rule[0]) {
        PUT(to, ",\"rule\":");
        put_json(to, weir__text_of(result->decided_by.rule));
    }
    if (result->decided_by.reason == WEIR_BY_LIMIT) {
        PUT(to, ",\"limit\":");
        put_number(to, result->decision.limit);
        PUT(to, ",\"remaining\":");
        put_number(to, weir__at_least(result->decision.remaining, 0));
    }
    if (weir__retry_seconds(result)) {
        PUT(to, ",\"retry_after\":");
        put_number(to, weir__retry_seconds(result));
    }
    PUT(to, "}\n");
}

static void put_problem(struct body_writer *to, const weir_result *result, weir_text message)
{
    bool shed = result->decided_by.reason == WEIR_BY_SHED;
    if (shed)
        PUT(to, "{\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\","
                "\"title\":\"Temporary reduced capacity\",\"status\":");
    else
        PUT(to, "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\","
                "\"title\":\"Quota exceeded\",\"status\":");
    put_number(to, result->status);
    PUT(to, ",\"detail\":");
    put_json(to, message);
    if (shed) { /* it violated none */
        PUT(to, "}\n");
        return;
    }
    PUT(to, ",\"violated-policies\":[");
    if (result->decided_by.rule[0])
        put_json(to, weir__text_of(result->decided_by.rule));
    PUT(to, "]}\n");
}

size_t weir_result_body(const weir_result *result, bool accepts_problem, char *buffer, size_t size, const char **type)
{
    char room[128];
    struct body_writer to = {buffer, 0, size};
    if (!size)
        return 0;
    buffer[0] = 0;
    *type = "application/json";
    if (result->body == WEIR_BODY_NONE)
        return 0;
    if (result->body_text.len) {
        to.len = result->body_text.len < size ? result->body_text.len : size - 1;
        memcpy(buffer, result->body_text.data, to.len);
        buffer[to.len] = 0;
        *type = "text/plain; charset=utf-8";
        return to.len;
    }
    weir_text message = message_of(result, room, sizeof room);
    if (result->body == WEIR_BODY_PROBLEM || (result->body == WEIR_BODY_AUTO && accepts_problem)) {
        *type = "application/problem+json";
        put_problem(&to, result, message);
    } else {
        put_plain_json(&to, result, message);
    }
    return to.len;
}
