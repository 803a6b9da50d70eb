/*
 * What the client is told: headers and body, as in docs/rules.md. The same for the gateway, the services and the
 * command line. Seconds are rounded up, so that a client that waits as told is not early.
 */
#include <weir/weir.h>

#include <string.h>

/*
 * A text that grows up to its buffer's end and always ends in a zero byte; what does not fit is left out. Written by
 * hand rather than by printf: a denied request is told ten numbers, and an attack is mostly denied requests.
 */
struct writer {
    char *at;
    size_t len, size;
};

static inline void put_bytes(struct writer *to, const char *bytes, size_t len)
{
    if (len >= to->size - to->len)
        return;
    memcpy(to->at + to->len, bytes, len);
    to->len += len;
    to->at[to->len] = 0;
}

#define PUT(to, literal) put_bytes((to), (literal), sizeof(literal) - 1)

static inline void put_char(struct writer *to, char c)
{
    put_bytes(to, &c, 1);
}

/* Two digits at a time: half the divisions. */
static const char pairs[] = "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243"
                            "4445464748495051525354555657585960616263646566676869707172737475767778798081828384858687"
                            "888990919293949596979899";

static void put_number(struct writer *to, int64_t number)
{
    char digits[20];
    size_t at = sizeof digits;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    while (rest >= 100) {
        at -= 2;
        memcpy(digits + at, &pairs[rest % 100 * 2], 2);
        rest /= 100;
    }
    if (rest >= 10)
        digits[--at] = (char)('0' + rest % 10);
    digits[--at] = (char)('0' + (rest >= 10 ? rest / 10 : rest));
    if (number < 0)
        digits[--at] = '-';
    put_bytes(to, digits + at, sizeof digits - at);
}

static int64_t seconds_up(int64_t ns)
{
    return ns <= 0 ? 0 : (ns - 1) / WEIR_SECOND + 1;
}

static int64_t at_least(int64_t value, int64_t least)
{
    return value < least ? least : value;
}

/* Whole seconds until a retry makes sense; 0: never. */
static int64_t retry_seconds(const weir_answer *answer)
{
    return answer->decision.retry_after_ns < 0 ? 0 : at_least(seconds_up(answer->decision.retry_after_ns), 1);
}

/* A structured field's string holds printable ASCII; names of rules may be anything else. */
static void put_sf_string(struct writer *to, const char *text)
{
    put_char(to, '"');
    for (size_t plain = 0;; plain++) {
        if (text[plain] >= 0x20 && text[plain] < 0x7f && text[plain] != '"' && text[plain] != '\\')
            continue;
        put_bytes(to, text, plain);
        text += plain;
        if (!*text)
            break;
        if (*text == '"' || *text == '\\')
            put_char(to, '\\');
        put_char(to, *text >= 0x20 && *text < 0x7f ? *text : '?');
        text++;
        plain = (size_t)-1;
    }
    put_char(to, '"');
}

static bool counts(const weir_outcome *outcome)
{
    return outcome->reason == WEIR_BY_LIMIT && !outcome->shadow;
}

static void put_policy(struct writer *to, const weir_outcome *outcome)
{
    /* In the worst case every character of the name is escaped; two numbers fit into the rest. */
    if (!counts(outcome) || to->len + 2 * strlen(outcome->rule) + 64 > to->size)
        return;
    if (to->len)
        put_char(to, ',');
    put_sf_string(to, outcome->rule);
    PUT(to, ";q=");
    put_number(to, outcome->quota);
    PUT(to, ";w=");
    put_number(to, at_least(seconds_up(outcome->window_ns), 1));
}

static void emit_draft(const weir_answer *answer, const weir_outcome *outcomes, weir_emit_header *emit, void *context)
{
    char text[2048];
    text[0] = 0;
    struct writer to = {text, 0, sizeof text};
    if (outcomes)
        for (size_t i = 0; i < answer->outcomes; i++)
            put_policy(&to, &outcomes[i]);
    else
        put_policy(&to, &answer->by);
    if (to.len)
        emit(context, WEIR_HEADER_POLICY, text, to.len);
    to.len = 0;
    put_sf_string(&to, answer->by.rule);
    /* t is when more is to be had: for a denial, when it would fit; else when all of it is back. */
    int64_t t = weir_passes(&answer->decision) || answer->decision.retry_after_ns < 0
                    ? seconds_up(answer->decision.reset_after_ns)
                    : retry_seconds(answer);
    PUT(&to, ";r=");
    put_number(&to, at_least(answer->decision.remaining, 0));
    PUT(&to, ";t=");
    put_number(&to, t);
    emit(context, WEIR_HEADER_RATELIMIT, text, to.len);
}

static void emit_number(weir_emit_header *emit, void *context, enum weir_header header, int64_t number)
{
    char text[24];
    struct writer to = {text, 0, sizeof text};
    put_number(&to, number);
    emit(context, header, text, to.len);
}

static void emit_x_ratelimit(const weir_answer *answer, weir_emit_header *emit, void *context)
{
    int64_t reset = answer->decision.reset_after_ns;
    emit_number(emit, context, WEIR_HEADER_LIMIT, at_least(answer->decision.limit, 0));
    emit_number(emit, context, WEIR_HEADER_REMAINING, at_least(answer->decision.remaining, 0));
    emit_number(emit, context, WEIR_HEADER_RESET,
                seconds_up(answer->headers & WEIR_HEADERS_RESET_DELTA ? reset : answer->now.wall_ns + reset));
    if (!weir_passes(&answer->decision) && retry_seconds(answer))
        emit_number(emit, context, WEIR_HEADER_X_RETRY_AFTER, retry_seconds(answer));
}

const char *weir_header_name(enum weir_header header)
{
    static const char *const names[] = {
#define NAME(name, text) text,
        WEIR_HEADERS(NAME)
#undef NAME
    };
    return (size_t)header < sizeof names / sizeof *names ? names[header] : NULL;
}

void weir_answer_headers(const weir_answer *answer, const weir_outcome *outcomes, weir_emit_header *emit, void *context)
{
    bool denied = !weir_passes(&answer->decision);
    if (counts(&answer->by) || answer->by.reason == WEIR_BY_BAN) {
        if (answer->headers & WEIR_HEADERS_X_RATELIMIT)
            emit_x_ratelimit(answer, emit, context);
        if (answer->headers & WEIR_HEADERS_DRAFT)
            emit_draft(answer, outcomes, emit, context);
    }
    if (!denied)
        return;
    if (answer->headers & WEIR_HEADERS_RETRY_AFTER && retry_seconds(answer))
        emit_number(emit, context, WEIR_HEADER_RETRY_AFTER, retry_seconds(answer));
    emit(context, WEIR_HEADER_CACHE_CONTROL, "no-store", 8);
}

/* ---- The body of a denial ---- */

static void put_json(struct writer *to, weir_text text)
{
    size_t plain = 0; /* where a run of bytes began that stand for themselves */
    put_char(to, '"');
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        put_bytes(to, text.data + plain, i - plain);
        plain = i + 1;
        PUT(to, "\\u00");
        put_char(to, "0123456789abcdef"[c >> 4]);
        put_char(to, "0123456789abcdef"[c & 15]);
    }
    put_bytes(to, text.data + plain, text.len - plain);
    put_char(to, '"');
}

static weir_text text_of(const char *text)
{
    return (weir_text){text, strlen(text)};
}

/* The rule's own message, or what fits the reason; `room` is where the latter is written. */
static weir_text message_of(const weir_answer *answer, char *room, size_t size)
{
    int64_t wait = retry_seconds(answer);
    if (answer->message.len)
        return answer->message;
    if (answer->decision.verdict == WEIR_NEVER_FITS && answer->by.reason == WEIR_BY_LIMIT)
        return text_of("This request costs more than the limit allows at once; it can never pass.");
    if (!wait)
        return text_of("Requests of this kind are not allowed.");
    struct writer to = {room, 0, size};
    PUT(&to, "Too many requests. Please retry after ");
    put_number(&to, wait);
    PUT(&to, " second");
    put_bytes(&to, "s.", wait == 1 ? 0 : 1);
    put_char(&to, '.');
    return (weir_text){room, to.len};
}

static void put_plain_json(struct writer *to, const weir_answer *answer, weir_text message)
{
    PUT(to, "{\"error\":\"rate_limit_exceeded\",\"message\":");
    put_json(to, message);
    if (answer->by.rule[0]) {
        PUT(to, ",\"rule\":");
        put_json(to, text_of(answer->by.rule));
    }
    if (answer->by.reason == WEIR_BY_LIMIT) {
        PUT(to, ",\"limit\":");
        put_number(to, answer->decision.limit);
        PUT(to, ",\"remaining\":");
        put_number(to, at_least(answer->decision.remaining, 0));
    }
    if (retry_seconds(answer)) {
        PUT(to, ",\"retry_after\":");
        put_number(to, retry_seconds(answer));
    }
    PUT(to, "}\n");
}

static void put_problem(struct writer *to, const weir_answer *answer, weir_text message)
{
    PUT(to, "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"title\":\"Quota exceeded\","
            "\"status\":");
    put_number(to, answer->status);
    PUT(to, ",\"detail\":");
    put_json(to, message);
    PUT(to, ",\"violated-policies\":[");
    if (answer->by.rule[0])
        put_json(to, text_of(answer->by.rule));
    PUT(to, "]}\n");
}

size_t weir_answer_body(const weir_answer *answer, bool accepts_problem, char *buffer, size_t size, const char **type)
{
    char room[128];
    struct writer to = {buffer, 0, size};
    if (!size)
        return 0;
    buffer[0] = 0;
    *type = "application/json";
    if (answer->body == WEIR_BODY_NONE)
        return 0;
    if (answer->body_text.len) {
        to.len = answer->body_text.len < size ? answer->body_text.len : size - 1;
        memcpy(buffer, answer->body_text.data, to.len);
        buffer[to.len] = 0;
        *type = "text/plain; charset=utf-8";
        return to.len;
    }
    weir_text message = message_of(answer, room, sizeof room);
    if (answer->body == WEIR_BODY_PROBLEM || (answer->body == WEIR_BODY_AUTO && accepts_problem)) {
        *type = "application/problem+json";
        put_problem(&to, answer, message);
    } else {
        put_plain_json(&to, answer, message);
    }
    return to.len;
}
