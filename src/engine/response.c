/*
 * The response to the client, as in docs/reference/responses.md, for the gateway, the services and the command line:
 * headers, and the body of a denial.
 *
 * Headers are written for every limited request: one after the other into one buffer with room for the longest of each,
 * so that no length needs a check.
 */
#include "engine/response.h"
#include "base/duration.h"
#include "base/json_writer.h"
#include "base/number.h"
#include "base/text.h"
#include "engine/fast_result.h"

static int64_t at_least(int64_t value, int64_t least)
{
    return value < least ? least : value;
}

/* Seconds until a retry makes sense; 0: never. */
static int64_t retry_seconds(const weir_result *result)
{
    int64_t wait = result->decision.retry_after_ns;
    return wait < 0 ? 0 : at_least(weir__seconds_up(wait), 1);
}

static enum weir__denial_kind kind_of(const weir_result *result)
{
    return weir__denial_kind_of(result->decided_by.reason, result->decided_by.decision.verdict);
}

/* ---- Headers ---- */

#define IN_FLIGHT    ";qu=\"concurrent-requests\""
#define NAME_ROOM    (2 * WEIR_NAME_MAX + 2) /* quoted, every character escaped */
#define POLICY_ROOM  (NAME_ROOM + 2 * WEIR__DIGITS_MAX + sizeof ",;q=" IN_FLIGHT ";w=") /* of one rule */
#define LIMIT_ROOM   (NAME_ROOM + 2 * WEIR__DIGITS_MAX + sizeof ",;r=;t=")              /* of one rule, in RateLimit */
#define POLICIES_MAX 2048                                                               /* of all rules */
#define LIMITS_MAX   1024
#define ALL_ROOM     (5 * WEIR__DIGITS_MAX + POLICIES_MAX + LIMITS_MAX + sizeof "no-store")

_Static_assert(ALL_ROOM <= WEIR_HEADER_ROOM, "the public constant promises that everything fits");
_Static_assert(2 * POLICY_ROOM <= POLICIES_MAX && 2 * LIMIT_ROOM <= LIMITS_MAX, "the reported rule always fits");
_Static_assert(POLICIES_MAX <= UINT16_MAX, "lengths have 16 bits");

#define PUT(to, literal) ((char *)memcpy((to), (literal), sizeof(literal) - 1) + sizeof(literal) - 1)

static char *put_number(char *to, int64_t number)
{
    return weir__write_int(to, at_least(number, 0));
}

/* Never more than the limit, and 0 in soft or in debt. */
static char *put_remaining(char *to, const weir_decision *decision)
{
    return put_number(to, decision->remaining < decision->limit ? decision->remaining : decision->limit);
}

/* A structured field's string holds printable ASCII; names of rules may be anything else. */
static char *put_name(char *to, const char *name)
{
    *to++ = '"';
    for (; *name; name++) {
        if (*name == '"' || *name == '\\')
            *to++ = '\\';
        *to++ = *name >= 0x20 && *name < 0x7f ? *name : '?';
    }
    *to++ = '"';
    return to;
}

/* True if the rule has limited the request, so that it has figures to report. */
static bool limits(const weir_outcome *outcome)
{
    /* What a blocked key has left means nothing. */
    bool counted = (outcome->reason == WEIR_BY_LIMIT && outcome->decision.verdict != WEIR_BLOCKED) ||
                   outcome->reason == WEIR_BY_BAN ||
                   (outcome->reason == WEIR_BY_SHED && outcome->decision.limit >= 0); /* for the sake of a reserve */
    return counted && !outcome->shadow;
}

/* An item of RateLimit-Policy. */
static char *put_policy(char *to, const weir_outcome *outcome)
{
    bool known = outcome->decision.limit >= 0;
    to = put_name(to, outcome->rule);
    to = PUT(to, ";q=");
    to = put_number(to, known ? outcome->decision.limit : outcome->capacity);
    if (outcome->unit == WEIR_UNIT_CONCURRENT_REQUESTS)
        to = PUT(to, IN_FLIGHT);
    else if (outcome->unit == WEIR_UNIT_CONTENT_BYTES)
        to = PUT(to, ";qu=\"content-bytes\"");
    if (outcome->policy_window_ns <= 0)
        return to;
    to = PUT(to, ";w=");
    return weir__write_int(to, weir__seconds_up(outcome->policy_window_ns));
}

/* An item of RateLimit. Of a denial, t is its Retry-After. */
static char *put_limit(char *to, const weir_outcome *outcome)
{
    const weir_decision *decision = &outcome->decision;
    int64_t window = outcome->effective_window_ns;
    to = put_name(to, outcome->rule);
    to = PUT(to, ";r=");
    to = put_remaining(to, decision);
    if (!weir_passes(decision) && decision->retry_after_ns >= 0)
        window = at_least(decision->retry_after_ns, 1);
    if (window < 0)
        return to;
    to = PUT(to, ";t=");
    return weir__write_int(to, weir__seconds_up(window));
}

/* The header whose items `put` writes, of at most `item` bytes each, and `max` in all. */
struct list {
    char *(*put)(char *to, const weir_outcome *outcome);
    size_t item, max;
    bool known; /* only of rules whose figures are known: the store was not asked about a request that was denied */
};

/*
 * Lists the rules that limited the request, in their order. Where not all have room, or are not among the outcomes, the
 * reported one has.
 */
static char *put_list(char *to, const struct list *list, const weir_result *result, const weir_outcome *outcomes)
{
    char *begin = to;
    bool reported = false;
    for (size_t i = 0; outcomes && i < result->outcomes; i++) {
        const weir_outcome *one = &outcomes[i];
        bool is_reported = !one->shadow && strcmp(one->rule, result->decided_by.rule) == 0;
        size_t room = reported || is_reported ? list->item : 2 * list->item;
        if (!limits(one) || (list->known && one->decision.limit < 0) || (size_t)(to - begin) + room > list->max)
            continue;
        if (to > begin)
            *to++ = ',';
        to = list->put(to, one);
        reported |= is_reported;
    }
    if (reported || !limits(&result->decided_by))
        return to;
    if (to > begin)
        *to++ = ',';
    return list->put(to, &result->decided_by);
}

size_t weir_result_header_values(const weir_result *result, const weir_outcome *outcomes, char values[WEIR_HEADER_ROOM],
                                 uint16_t lens[WEIR_HEADER_COUNT])
{
    const weir_decision *decision = &result->decision;
    static const struct list policies = {put_policy, POLICY_ROOM, POLICIES_MAX, false};
    static const struct list service_limits = {put_limit, LIMIT_ROOM, LIMITS_MAX, true};
    bool denied = !weir_passes(decision), limited = limits(&result->decided_by);
    const weir_outcome *listed = result->headers & WEIR_HEADERS_LIST_ALL ? outcomes : NULL;
    int64_t retry = denied ? retry_seconds(result) : 0;
    char *to = values, *from = values;

    memset(lens, 0, WEIR_HEADER_COUNT * sizeof *lens);
#define VALUE(header, put) (from = to, to = (put), lens[WEIR_HEADER_##header] = (uint16_t)(to - from))
    if (limited && result->headers & WEIR_HEADERS_X_RATELIMIT) {
        int64_t reset = decision->reset_after_ns;
        reset += result->headers & WEIR_HEADERS_RESET_DELTA ? 0 : result->now.wall_ns;
        VALUE(LIMIT, put_number(to, decision->limit));
        VALUE(REMAINING, put_remaining(to, decision));
        if (decision->reset_after_ns >= 0)
            VALUE(RESET, weir__write_int(to, weir__seconds_up(reset)));
        if (retry)
            VALUE(X_RETRY_AFTER, weir__write_int(to, retry));
    }
    if (limited && result->headers & WEIR_HEADERS_DRAFT) {
        VALUE(POLICY, put_list(to, &policies, result, outcomes));
        VALUE(RATELIMIT, put_list(to, &service_limits, result, listed));
    }
    if (retry && result->headers & WEIR_HEADERS_RETRY_AFTER)
        VALUE(RETRY_AFTER, weir__write_int(to, retry));
    if (denied)
        VALUE(CACHE_CONTROL, PUT(to, "no-store"));
#undef VALUE
    return (size_t)(to - values);
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

void weir_result_headers(const weir_result *result, const weir_outcome *outcomes, weir_emit_header *emit, void *context)
{
    char values[WEIR_HEADER_ROOM + 1], *at = values;
    uint16_t lens[WEIR_HEADER_COUNT];
    weir_result_header_values(result, outcomes, values, lens);
    for (int i = 0; i < WEIR_HEADER_COUNT; i++) {
        if (!lens[i])
            continue;
        char next = at[lens[i]]; /* replaced by the promised zero byte during the call */
        at[lens[i]] = 0;
        emit(context, (enum weir_header)i, at, lens[i]);
        at += lens[i];
        *at = next;
    }
}

/* ---- The body of a denial ---- */

/*
 * A text that grows up to the end of its buffer and always ends in a zero byte; parts that do not fit are left out. Not
 * by printf: in an attack most requests are denied.
 */
struct body_writer {
    char *at;
    size_t len, size;
};

static inline void add_bytes(struct body_writer *to, const char *bytes, size_t len)
{
    if (len >= to->size - to->len)
        return;
    memcpy(to->at + to->len, bytes, len);
    to->len += len;
    to->at[to->len] = 0;
}

#define ADD(to, literal) add_bytes((to), (literal), sizeof(literal) - 1)

static void add_number(struct body_writer *to, int64_t number)
{
    char digits[WEIR__DIGITS_MAX];
    const char *end = weir__write_int(digits, number);
    add_bytes(to, digits, (size_t)(end - digits));
}

static void add_json(struct body_writer *to, weir_text text)
{
    size_t left = to->size - to->len - 1;
    if (left < 2)
        return;
    to->len = (size_t)(weir__json_put_string(to->at + to->len, left, text) - to->at);
    to->at[to->len] = 0;
}

/* The end of a block, in UTC and whole seconds; empty: it has none, or nothing is blocked. */
static weir_text end_of_block(const weir_result *result, char text[WEIR__TIME_TEXT])
{
    int64_t wait = result->decided_by.decision.retry_after_ns, end;
    if (kind_of(result) != WEIR__DENIED_BY_BLOCK || wait < 0 || __builtin_add_overflow(result->now.wall_ns, wait, &end))
        return (weir_text){NULL, 0};
    weir__time_text(weir__seconds_up(end) * 1000, text);
    size_t len = strcspn(text, ".");
    memcpy(text + len, "Z", sizeof "Z");
    return (weir_text){text, len + 1};
}

/* The rule's own message, or one for the reason, which is written into `buffer`. */
static weir_text message_of(const weir_result *result, weir_text until, char *buffer, size_t size)
{
    int64_t wait = retry_seconds(result);
    struct body_writer to = {buffer, 0, size};
    enum weir__denial_kind kind = kind_of(result);
    if (result->message.len)
        return result->message;
    if (result->decision.verdict == WEIR_NEVER_FITS && kind == WEIR__DENIED_BY_LIMIT)
        return weir__text_of("This request costs more than the limit allows at once; it can never pass.");
    if (kind == WEIR__DENIED_FAILURE)
        return weir__text_of("The limit of this request cannot be checked now. Please retry later.");
    if (kind == WEIR__DENIED_BY_BLOCK && result->decided_by.reason != WEIR_BY_BAN && !until.len)
        return weir__text_of("Access is blocked.");
    if (until.len) {
        ADD(&to, "Access is blocked until ");
        add_bytes(&to, until.data, until.len);
        ADD(&to, ".");
        return (weir_text){buffer, to.len};
    }
    if (kind == WEIR__DENIED_MISSING && !result->missing[0])
        return weir__text_of("The request lacks a header or something else that is needed here.");
    if (kind == WEIR__DENIED_MISSING) {
        ADD(&to, "The request lacks the ");
        add_bytes(&to, result->missing, strlen(result->missing));
        ADD(&to, ".");
        return (weir_text){buffer, to.len};
    }
    if (!wait)
        return weir__text_of("Requests of this kind are not allowed.");
    if (kind == WEIR__DENIED_SHED)
        ADD(&to, "The service is busy with more important requests. Please retry after ");
    else
        ADD(&to, "Too many requests. Please retry after ");
    add_number(&to, wait);
    if (wait == 1)
        ADD(&to, " second.");
    else
        ADD(&to, " seconds.");
    return (weir_text){buffer, to.len};
}

weir_text weir__result_message(const weir_result *result, char text[WEIR__MESSAGE_ROOM])
{
    char end_text[WEIR__TIME_TEXT];
    return message_of(result, end_of_block(result, end_text), text, WEIR__MESSAGE_ROOM);
}

/* Members that only some kinds of denials have. */
static void add_details(struct body_writer *to, const weir_result *result, weir_text until)
{
    if (until.len) {
        ADD(to, ",\"until\":");
        add_json(to, until);
    }
    if (result->missing[0]) {
        ADD(to, ",\"missing\":");
        add_json(to, weir__text_of(result->missing));
    }
}

static void add_plain_json(struct body_writer *to, const weir_result *result, weir_text message, weir_text until)
{
    static const char *const errors[] = {[WEIR__DENIED_BY_LIMIT] = "rate_limit_exceeded",
                                         [WEIR__DENIED_BY_BLOCK] = "blocked",
                                         [WEIR__DENIED_MISSING] = "missing_attribute",
                                         [WEIR__DENIED_FAILURE] = "unavailable",
                                         [WEIR__DENIED_SHED] = "overloaded"};
    const char *error = errors[kind_of(result)];
    ADD(to, "{\"error\":\"");
    add_bytes(to, error, strlen(error));
    ADD(to, "\",\"message\":");
    add_json(to, message);
    if (result->decided_by.rule[0]) {
        ADD(to, ",\"rule\":");
        add_json(to, weir__text_of(result->decided_by.rule));
    }
    add_details(to, result, until);
    if (kind_of(result) == WEIR__DENIED_BY_LIMIT) {
        ADD(to, ",\"limit\":");
        add_number(to, result->decision.limit);
        ADD(to, ",\"remaining\":");
        add_number(to, at_least(result->decision.remaining, 0));
    }
    if (retry_seconds(result)) {
        ADD(to, ",\"retry_after\":");
        add_number(to, retry_seconds(result));
    }
    ADD(to, "}\n");
}

#define IANA_PROBLEM "https://iana.org/assignments/http-problem-types#"
#define REDUCED      IANA_PROBLEM "temporary-reduced-capacity\",\"title\":\"Temporary reduced capacity"

static void add_problem(struct body_writer *to, const weir_result *result, weir_text message, weir_text until)
{
    static const char *const types[] = {
        [WEIR__DENIED_BY_LIMIT] = IANA_PROBLEM "quota-exceeded\",\"title\":\"Quota exceeded",
        [WEIR__DENIED_BY_BLOCK] = "urn:problem-type:weir:blocked\",\"title\":\"Blocked",
        [WEIR__DENIED_MISSING] = "urn:problem-type:weir:missing-attribute\",\"title\":\"Missing attribute",
        [WEIR__DENIED_FAILURE] = REDUCED,
        [WEIR__DENIED_SHED] = REDUCED};
    enum weir__denial_kind kind = kind_of(result);
    ADD(to, "{\"type\":\"");
    add_bytes(to, types[kind], strlen(types[kind]));
    ADD(to, "\",\"status\":");
    add_number(to, result->status);
    ADD(to, ",\"detail\":");
    add_json(to, message);
    add_details(to, result, until);
    if (kind != WEIR__DENIED_BY_LIMIT) { /* no policy was violated */
        ADD(to, "}\n");
        return;
    }
    ADD(to, ",\"violated-policies\":[");
    if (result->decided_by.rule[0])
        add_json(to, weir__text_of(result->decided_by.rule));
    ADD(to, "]}\n");
}

size_t weir_result_body(const weir_result *result, bool accepts_problem, char *buffer, size_t size, const char **type)
{
    char own_text[WEIR__MESSAGE_ROOM], end_text[WEIR__TIME_TEXT];
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
    weir_text until = end_of_block(result, end_text);
    weir_text message = message_of(result, until, own_text, sizeof own_text);
    if (result->body == WEIR_BODY_PROBLEM || (result->body == WEIR_BODY_AUTO && accepts_problem)) {
        *type = "application/problem+json";
        add_problem(&to, result, message, until);
    } else {
        add_plain_json(&to, result, message, until);
    }
    return to.len;
}

/* Clients that send no credentials in Authorization send them in a header of their own: there is no scheme for that. */
const char *weir_result_challenge(const weir_result *result)
{
    if (result->status != 401 || weir_passes(&result->decision))
        return NULL;
    return strncmp(result->missing, "header ", 7) == 0 && strcmp(result->missing, "header authorization") != 0
               ? "Key"
               : "Bearer";
}
