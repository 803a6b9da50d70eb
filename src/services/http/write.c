/* JSON of the replies: a growing buffer, values, and decisions, with the words of `weir check --json`. */
#include "services/http/api.h"

#include <stdlib.h>
#include <string.h>

#define OUT_MAX (64u << 20) /* bytes; far above any reply */

/* ---- The buffer ---- */

void weir__out_begin(struct weir__out *out, char *buffer, size_t size)
{
    *out = (struct weir__out){.at = buffer, .size = size};
}

void weir__out_free(struct weir__out *out)
{
    if (out->own)
        free(out->at);
    *out = (struct weir__out){.failed = true};
}

static bool grow(struct weir__out *out, size_t len)
{
    size_t size = out->size * 2;
    while (size < out->len + len)
        size *= 2;
    char *more = out->failed || size > OUT_MAX ? NULL : realloc(out->own ? out->at : NULL, size);
    if (!more) {
        out->failed = true;
        return false;
    }
    if (!out->own)
        memcpy(more, out->at, out->len);
    out->at = more;
    out->size = size;
    out->own = true;
    return true;
}

char *weir__out_room(struct weir__out *out, size_t len)
{
    return len <= out->size - out->len || grow(out, len) ? out->at + out->len : NULL;
}

void weir__out_bytes(struct weir__out *out, const char *bytes, size_t len)
{
    char *to = weir__out_room(out, len);
    if (!to)
        return;
    memcpy(to, bytes, len);
    out->len += len;
}

static char *put_bytes(char *to, const char *bytes, size_t len)
{
    memcpy(to, bytes, len);
    return to + len;
}

char *weir__put_int(char *to, int64_t value)
{
    char digits[WEIR__INT_MAX];
    size_t at = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do
        digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        digits[--at] = '-';
    return put_bytes(to, digits + at, sizeof digits - at);
}

char *weir__put_seconds(char *to, int64_t ns)
{
    if (ns < 0)
        return put_bytes(to, "null", 4);
    int64_t ms = ns / 1000000 + (ns % 1000000 > 0);
    to = weir__put_int(to, ms / 1000);
    int rest = (int)(ms % 1000);
    if (!rest)
        return to;
    char decimals[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
    return put_bytes(to, decimals, rest % 10 ? 4 : rest % 100 ? 3 : 2);
}

/* Length of the UTF-8 sequence at `at`; 0: malformed. */
static size_t character(const unsigned char *at, size_t left)
{
    /* the first byte determines the length and narrows the second byte's range */
    unsigned char first = at[0], low = 0x80, high = 0xbf;
    size_t len = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (first < 0xc2 || first > 0xf4 || left < len)
        return 0;
    low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : low;
    high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : high;
    if (at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if (at[i] < 0x80 || at[i] > 0xbf)
            return 0;
    return len;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static char *put_escaped(char *to, unsigned char c)
{
    char escaped[6] = {'\\', 'u', '0', '0', "0123456789abcdef"[c >> 4], "0123456789abcdef"[c & 15]};
    if (c >= 0x80)
        return put_bytes(to, "\\ufffd", 6);
    if (c != '"' && c != '\\')
        return put_bytes(to, escaped, sizeof escaped);
    *to++ = '\\';
    *to++ = (char)c;
    return to;
}

char *weir__put_string(char *to, weir_text text)
{
    const unsigned char *at = (const unsigned char *)text.data;
    size_t i = 0, begun = 0; /* of a run of bytes copied unchanged */
    *to++ = '"';
    while (i < text.len) {
        size_t len = is_plain(at[i]) ? 1 : at[i] >= 0x80 ? character(at + i, text.len - i) : 0;
        if (len) {
            i += len;
            continue;
        }
        to = put_bytes(to, text.data + begun, i - begun);
        to = put_escaped(to, at[i]);
        begun = ++i;
    }
    to = put_bytes(to, text.data + begun, text.len - begun);
    *to++ = '"';
    return to;
}

static void moved(struct weir__out *out, const char *end)
{
    out->len = (size_t)(end - out->at);
}

void weir__out_int(struct weir__out *out, int64_t value)
{
    char *to = weir__out_room(out, WEIR__INT_MAX);
    if (to)
        moved(out, weir__put_int(to, value));
}

void weir__out_seconds(struct weir__out *out, int64_t ns)
{
    char *to = weir__out_room(out, WEIR__SECONDS_MAX);
    if (to)
        moved(out, weir__put_seconds(to, ns));
}

void weir__out_string(struct weir__out *out, weir_text text)
{
    char *to = weir__out_room(out, WEIR__STRING_MAX(text.len));
    if (to)
        moved(out, weir__put_string(to, text));
}

void weir__out_name(struct weir__out *out, const char *text)
{
    if (text[0])
        weir__out_string(out, (weir_text){text, strlen(text)});
    else
        weir__out_text(out, "null");
}

void weir__out_bool(struct weir__out *out, bool value)
{
    weir__out_bytes(out, value ? "true" : "false", value ? 4 : 5);
}

void weir__out_error(struct weir__out *out, const char *code, const char *message, const char *field)
{
    out->len = 0;
    weir__out_text(out, "{\"error\":{\"code\":");
    weir__out_name(out, code);
    weir__out_text(out, ",\"message\":");
    weir__out_name(out, message);
    weir__out_text(out, ",\"field\":");
    weir__out_name(out, field ? field : "");
    weir__out_text(out, "}}\n");
}

/* ---- Decisions ---- */

static const char *reason(const weir_outcome *by, const weir_decision *decision)
{
    switch (by->reason) {
    case WEIR_BY_NOTHING:
        return "no_rule";
    case WEIR_BY_ALLOW_LIST:
        return "allow_list";
    case WEIR_BY_BLOCK_LIST:
        return "block_list";
    case WEIR_BY_BAN:
        return "ban";
    case WEIR_BY_UNLIMITED:
        return "unlimited";
    case WEIR_BY_MISSING_KEY:
        return "missing_key";
    case WEIR_BY_FAILURE:
        return "store_failure";
    case WEIR_BY_SHED:
        return "shed";
    case WEIR_BY_LIMIT:
        break;
    }
    if (decision->verdict == WEIR_NEVER_FITS)
        return "never_fits";
    if (decision->verdict == WEIR_BLOCKED)
        return "blocked";
    return decision->flags & WEIR_OVER_SOFT ? "soft" : "limit";
}

/* Bytes of one decision at most, if every byte of rule and key is escaped. */
#define DECISION_MAX (512 + WEIR__STRING_MAX(WEIR_NAME_MAX) + WEIR__STRING_MAX(WEIR_KEY_SHOWN_MAX))

/* Copies a literal of known length: the fast path of every check has twenty of these. */
#define PUT(to, literal) (memcpy((to), (literal), sizeof(literal) - 1), (to) + sizeof(literal) - 1)

static char *put_or_null(char *to, bool known, int64_t value)
{
    return known ? weir__put_int(to, value) : PUT(to, "null");
}

static char *put_text(char *to, weir_text text)
{
    return text.len ? weir__put_string(to, text) : PUT(to, "null");
}

static char *put_name(char *to, const char *text)
{
    return put_text(to, (weir_text){text, strlen(text)});
}

static char *put_decision(char *to, const weir_outcome *by, const weir_decision *decision)
{
    bool reserve =
        by->reason == WEIR_BY_SHED && decision->limit >= 0; /* shed to protect a reserve: there is a counter */
    bool passes = weir_passes(decision), counted = by->reason == WEIR_BY_LIMIT || reserve;
    bool known = counted || by->reason == WEIR_BY_BAN;
    if (!passes)
        to = PUT(to, "\"decision\":\"deny\",\"allowed\":false,\"reason\":");
    else if (decision->verdict == WEIR_DELAY)
        to = PUT(to, "\"decision\":\"delay\",\"allowed\":true,\"reason\":");
    else
        to = PUT(to, "\"decision\":\"allow\",\"allowed\":true,\"reason\":");
    to = put_name(to, reason(by, decision));
    to = PUT(to, ",\"rule\":");
    to = put_name(to, by->rule);
    to = PUT(to, ",\"key\":");
    to = put_text(to, (weir_text){by->key, by->key_len});
    to = PUT(to, ",\"limit\":");
    to = put_or_null(to, known, decision->limit);
    to = PUT(to, ",\"remaining\":");
    to = put_or_null(to, known, decision->remaining);
    to = PUT(to, ",\"reset_s\":");
    to = weir__put_seconds(to, counted ? decision->reset_after_ns : -1);
    to = PUT(to, ",\"retry_after_s\":");
    to = weir__put_seconds(to, passes ? -1 : decision->retry_after_ns);
    to = PUT(to, ",\"delay_s\":");
    return weir__put_seconds(to, decision->verdict == WEIR_DELAY ? decision->delay_ns : 0);
}

void weir__api_write_decision(struct weir__out *out, const weir_outcome *by, const weir_decision *decision)
{
    char *to = weir__out_room(out, DECISION_MAX);
    if (to)
        out->len = (size_t)(put_decision(to, by, decision) - out->at);
}

static void write_rule(struct weir__out *out, const weir_outcome *outcome)
{
    char *to = weir__out_room(out, DECISION_MAX);
    if (!to)
        return;
    to = PUT(to, "{");
    to = put_decision(to, outcome, &outcome->decision);
    to = PUT(to, ",\"cost\":");
    to = weir__put_int(to, outcome->cost);
    to = PUT(to, ",\"quota\":");
    to = put_or_null(to, outcome->quota >= 0, outcome->quota);
    to = PUT(to, ",\"window_s\":");
    to = weir__put_seconds(to, outcome->window_ns > 0 ? outcome->window_ns : -1);
    to = outcome->shadow ? PUT(to, ",\"shadow\":true}") : PUT(to, ",\"shadow\":false}");
    out->len = (size_t)(to - out->at);
}

void weir__api_write_result(struct weir__out *out, const weir_result *result, const weir_outcome *outcomes)
{
    weir__out_text(out, "{");
    weir__api_write_decision(out, &result->decided_by, &result->decision);
    weir__out_text(out, ",\"rules\":[");
    for (size_t i = 0; i < result->outcomes; i++) {
        if (i)
            weir__out_text(out, ",");
        write_rule(out, &outcomes[i]);
    }
    weir__out_text(out, "]");
}
