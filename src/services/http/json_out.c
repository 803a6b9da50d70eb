/* json_out.h */
#include "services/http/json_out.h"

#include <stdlib.h>
#include <string.h>

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
    char *more = out->failed || size > WEIR__OUT_MAX ? NULL : realloc(out->own ? out->at : NULL, size);
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

/* How many bytes the character at `at` has; 0: it is not well-formed. */
static size_t character(const unsigned char *at, size_t left)
{
    /* The first byte says how many follow, and narrows what the second may be. */
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
    size_t i = 0, begun = 0; /* of a run of bytes that stand for themselves */
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
