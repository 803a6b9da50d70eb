/*
 * The response headers, as in docs/rules.md. The same for the gateway, the services and the command line. Seconds are
 * rounded up, so that a client that waits as told is not early.
 *
 * They are written for every request that is limited: one behind the other into one buffer that has room for the
 * longest of each, so that nothing needs to be looked at on the way.
 */
#include "base/number.h"
#include "engine/seconds.h"

#define NAME_ROOM   (2 * WEIR_NAME_MAX + 2)                               /* quoted, every character escaped */
#define POLICY_ROOM (NAME_ROOM + 2 * WEIR__DIGITS_MAX + sizeof ",;q=;w=") /* of one rule */
#define LIST_MAX    2048                                                  /* of all of them */
#define LINE_ROOM   (NAME_ROOM + 2 * WEIR__DIGITS_MAX + sizeof ";r=;t=")  /* of RateLimit */
#define ALL_ROOM    (5 * WEIR__DIGITS_MAX + LIST_MAX + LINE_ROOM + sizeof "no-store")

_Static_assert(ALL_ROOM <= WEIR_HEADER_ROOM, "the public constant promises that everything fits");
_Static_assert(LIST_MAX <= UINT16_MAX, "lengths are told in 16 bits");

#define PUT(to, literal) ((char *)memcpy((to), (literal), sizeof(literal) - 1) + sizeof(literal) - 1)

/* A number that is told more than once. */
struct number_text {
    char text[WEIR__DIGITS_MAX];
    size_t len;
};

static void set_number(struct number_text *number, int64_t value)
{
    number->len = (size_t)(weir__write_digits(number->text, (uint64_t)weir__at_least(value, 0)) - number->text);
}

/* There is always room for the longest number, so a fixed amount is copied. */
static inline char *put_again(char *to, const struct number_text *number)
{
    memcpy(to, number->text, sizeof number->text);
    return to + number->len;
}

/* An answer, and those of its numbers. */
struct context {
    const weir_result *result;
    struct number_text limit, remaining;
};

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

static bool counts(const weir_outcome *outcome)
{
    bool counted = outcome->reason == WEIR_BY_LIMIT ||
                   (outcome->reason == WEIR_BY_SHED && outcome->decision.limit >= 0); /* for the sake of a reserve */
    return counted && !outcome->shadow;
}

/* One policy of the list that began at `list`; nothing, if it might not fit. */
static char *put_policy(char *to, const char *list, const struct context *context, const weir_outcome *outcome)
{
    if (!counts(outcome) || (size_t)(to - list) > LIST_MAX - POLICY_ROOM)
        return to;
    if (to > list)
        *to++ = ',';
    to = put_name(to, outcome->rule);
    to = PUT(to, ";q=");
    to = outcome->effective_limit == context->result->decision.limit ? put_again(to, &context->limit)
                                                                     : weir__write_int(to, outcome->effective_limit);
    if (outcome->decision.reset_after_ns < 0) /* requests in flight have no window */
        return to;
    to = PUT(to, ";w=");
    return weir__write_int(to, weir__at_least(weir__seconds_up(outcome->window_ns), 1));
}

/* True if the rule that RateLimit speaks of is not among those that the caller had room for. */
static bool speaks_apart(const weir_result *result, const weir_outcome *outcomes)
{
    if (result->outcomes >= result->matched)
        return false;
    for (size_t i = 0; i < result->outcomes; i++)
        if (!outcomes[i].shadow && strcmp(outcomes[i].rule, result->decided_by.rule) == 0)
            return false;
    return true;
}

static char *put_policies(char *to, const struct context *context, const weir_outcome *outcomes)
{
    const weir_result *result = context->result;
    const char *list = to;
    if (!outcomes || speaks_apart(result, outcomes)) /* first: there may not be room for all */
        to = put_policy(to, list, context, &result->decided_by);
    for (size_t i = 0; outcomes && i < result->outcomes; i++)
        to = put_policy(to, list, context, &outcomes[i]);
    return to;
}

static char *put_ratelimit(char *to, const struct context *context)
{
    const weir_decision *decision = &context->result->decision;
    to = put_name(to, context->result->decided_by.rule);
    to = PUT(to, ";r=");
    to = put_again(to, &context->remaining);
    /* t is when more is to be had: for a denial, when it would fit; else when all of it is back, if that is known. */
    bool complete = weir_passes(decision) || decision->retry_after_ns < 0;
    if (complete && decision->reset_after_ns < 0)
        return to;
    to = PUT(to, ";t=");
    return weir__write_int(to, complete ? weir__seconds_up(decision->reset_after_ns)
                                        : weir__retry_seconds(context->result));
}

size_t weir_result_header_values(const weir_result *result, const weir_outcome *outcomes, char values[WEIR_HEADER_ROOM],
                                 uint16_t lens[WEIR_HEADER_COUNT])
{
    const weir_decision *decision = &result->decision;
    bool denied = !weir_passes(decision),
         limited = counts(&result->decided_by) || result->decided_by.reason == WEIR_BY_BAN;
    int64_t retry = denied ? weir__retry_seconds(result) : 0;
    struct context context = {.result = result};
    char *to = values, *from = values;

    memset(lens, 0, WEIR_HEADER_COUNT * sizeof *lens);
    if (limited) {
        set_number(&context.limit, decision->limit);
        set_number(&context.remaining, decision->remaining);
    }
#define VALUE(header, put) (from = to, to = (put), lens[WEIR_HEADER_##header] = (uint16_t)(to - from))
    if (limited && result->headers & WEIR_HEADERS_X_RATELIMIT) {
        int64_t reset = decision->reset_after_ns;
        reset += result->headers & WEIR_HEADERS_RESET_DELTA ? 0 : result->now.wall_ns;
        VALUE(LIMIT, put_again(to, &context.limit));
        VALUE(REMAINING, put_again(to, &context.remaining));
        if (decision->reset_after_ns >= 0)
            VALUE(RESET, weir__write_int(to, weir__seconds_up(reset)));
        if (retry)
            VALUE(X_RETRY_AFTER, weir__write_int(to, retry));
    }
    if (limited && result->headers & WEIR_HEADERS_DRAFT) {
        VALUE(POLICY, put_policies(to, &context, outcomes));
        VALUE(RATELIMIT, put_ratelimit(to, &context));
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
        char next = at[lens[i]]; /* the zero byte that is promised stands there during the call */
        at[lens[i]] = 0;
        emit(context, (enum weir_header)i, at, lens[i]);
        at += lens[i];
        *at = next;
    }
}
