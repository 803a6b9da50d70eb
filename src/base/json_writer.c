/* Writing JSON. See json_writer.h. */
#include "base/json_writer.h"
#include "base/text.h"
#include "base/number.h"

#include <inttypes.h>

/* ---- Strings ---- */

/* Length of the run at the beginning of the text that a JSON string contains as it is. */
static size_t unescaped(const char *data, size_t len)
{
    size_t i = 0;
    while (i < len) {
        uint32_t point;
        unsigned char c = (unsigned char)data[i];
        size_t bytes = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
        if (c >= 0x80)
            bytes = weir__utf8_decode(data + i, len - i, &point);
        if (bytes == 0)
            break;
        i += bytes;
    }
    return i;
}

/* The escape of a byte at which a run of unescaped ones ends; returns its length. */
static size_t escape(unsigned char c, char escaped[6])
{
    if (c == '"' || c == '\\') {
        escaped[0] = '\\';
        escaped[1] = (char)c;
        return 2;
    }
    memcpy(escaped, c < 0x80 ? "\\u00" : "\\ufffd", c < 0x80 ? 4 : 6);
    if (c < 0x80)
        weir__write_hex(escaped + 4, &c, 1);
    return 6;
}

char *weir__json_put_string(char *to, size_t room, weir_text text)
{
    size_t left = room - 2;
    *to++ = '"';
    for (size_t i = 0; i < text.len; i++) {
        char escaped[6];
        size_t run = unescaped(text.data + i, text.len - i);
        bool cut = run > left;
        for (run = cut ? left : run; cut && run && ((unsigned char)text.data[i + run] & 0xc0) == 0x80;)
            run--;
        memcpy(to, text.data + i, run);
        to += run;
        left -= run;
        i += run;
        if (cut || i == text.len)
            break;
        size_t bytes = escape((unsigned char)text.data[i], escaped);
        if (bytes > left)
            break;
        memcpy(to, escaped, bytes);
        to += bytes;
        left -= bytes;
    }
    *to++ = '"';
    return to;
}

/* ---- Into memory and buffers ---- */

char *weir__json_put_seconds(char *to, int64_t ns)
{
    if (ns < 0) {
        memcpy(to, "null", sizeof "null"); /* the caller's bound includes the zero byte */
        return to + 4;
    }
    int64_t ms = ns / 1000000 + (ns % 1000000 > 0);
    to = weir__write_digits(to, (uint64_t)ms / 1000);
    int rest = (int)(ms % 1000);
    if (!rest)
        return to;
    char decimals[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
    size_t len = rest % 10 ? 4 : rest % 100 ? 3 : 2;
    memcpy(to, decimals, len);
    return to + len;
}

void weir__json_add_string(struct weir__buffer *to, weir_text text)
{
    size_t max = WEIR__JSON_STRING_MAX(text.len);
    char *at = weir__buffer_room(to, max);
    if (at)
        to->len = (size_t)(weir__json_put_string(at, max, text) - to->data);
}

static void add_string_or_null(struct weir__buffer *to, const char *text)
{
    if (text && *text)
        weir__json_add_string(to, weir__text_of(text));
    else
        weir__buffer_add_literal(to, "null");
}

static void add_seconds(struct weir__buffer *to, int64_t ns)
{
    char *at = weir__buffer_room(to, WEIR__JSON_SECONDS_MAX);
    if (at)
        to->len = (size_t)(weir__json_put_seconds(at, ns) - to->data);
}

void weir__json_add(struct weir__buffer *to, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    for (const char *at = format; *at;) {
        size_t literal = strcspn(at, "%");
        weir__buffer_add(to, at, literal);
        at += literal;
        if (!*at)
            break;
        switch (at[1]) {
        case 't':
            weir__json_add_string(to, va_arg(values, weir_text));
            break;
        case 's':
            add_string_or_null(to, va_arg(values, const char *));
            break;
        case 'd':
            weir__buffer_printf(to, "%" PRId64, va_arg(values, int64_t));
            break;
        case 'b':
            weir__buffer_printf(to, "%s", va_arg(values, int) ? "true" : "false");
            break;
        default: /* 'n' */
            add_seconds(to, va_arg(values, int64_t));
        }
        at += 2;
    }
    va_end(values);
}
