/* Writes RESP replies. */
#include "services/resp/resp.h"

#include "base/number.h"

#include <string.h>

#define NUMBER_MAX 24 /* bytes of a number line: type, sign, 64 bits in decimal, CR LF */
#define ERROR_MAX  512

static bool has_room(struct weir__resp_out *out, size_t bytes)
{
    if (!out->overflow && (size_t)(out->end - out->at) >= bytes)
        return true;
    out->overflow = true;
    return false;
}

/* The caller has checked the space. */
static char *put_number(char *to, char type, int64_t value)
{
    *to = type;
    to = weir__write_int(to + 1, value);
    *to++ = '\r';
    *to++ = '\n';
    return to;
}

static void put_header(struct weir__resp_out *out, char type, int64_t value)
{
    if (has_room(out, NUMBER_MAX))
        out->at = put_number(out->at, type, value);
}

static char *put_text(char *to, const char *text, size_t len)
{
    if (len)
        memcpy(to, text, len);
    to[len] = '\r';
    to[len + 1] = '\n';
    return to + len + 2;
}

void weir__resp_simple(struct weir__resp_out *out, const char *text)
{
    size_t len = strlen(text);
    if (!has_room(out, len + 3))
        return;
    *out->at = '+';
    out->at = put_text(out->at + 1, text, len);
}

void weir__resp_error(struct weir__resp_out *out, const char *text, size_t len)
{
    len = len < ERROR_MAX ? len : ERROR_MAX;
    if (!has_room(out, len + 3))
        return;
    *out->at++ = '-';
    for (size_t i = 0; i < len; i++)
        *out->at++ = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? ' ' : text[i];
    out->at = put_text(out->at, NULL, 0);
}

void weir__resp_number(struct weir__resp_out *out, int64_t value)
{
    put_header(out, ':', value);
}

void weir__resp_bulk(struct weir__resp_out *out, const char *text, size_t len)
{
    if (!has_room(out, NUMBER_MAX + len + 2))
        return;
    out->at = put_number(out->at, '$', (int64_t)len);
    out->at = put_text(out->at, text, len);
}

void weir__resp_verbatim(struct weir__resp_out *out, const char *text, size_t len)
{
    if (out->version < 3) {
        weir__resp_bulk(out, text, len);
        return;
    }
    if (!has_room(out, NUMBER_MAX + 4 + len + 2))
        return;
    out->at = put_number(out->at, '=', (int64_t)len + 4);
    memcpy(out->at, "txt:", 4);
    out->at = put_text(out->at + 4, text, len);
}

void weir__resp_null(struct weir__resp_out *out)
{
    if (has_room(out, 5))
        out->at = out->version < 3 ? put_text(out->at, "$-1", 3) : put_text(out->at, "_", 1);
}

void weir__resp_array(struct weir__resp_out *out, size_t count)
{
    put_header(out, '*', (int64_t)count);
}

void weir__resp_map(struct weir__resp_out *out, size_t pairs)
{
    put_header(out, out->version < 3 ? '*' : '%', (int64_t)(out->version < 3 ? pairs * 2 : pairs));
}

void weir__resp_set(struct weir__resp_out *out, size_t count)
{
    put_header(out, out->version < 3 ? '*' : '~', (int64_t)count);
}

void weir__resp_named_number(struct weir__resp_out *out, const char *name, int64_t value)
{
    weir__resp_bulk(out, name, strlen(name));
    weir__resp_number(out, value);
}

void weir__resp_named_text(struct weir__resp_out *out, const char *name, const char *value)
{
    weir__resp_bulk(out, name, strlen(name));
    weir__resp_bulk(out, value, strlen(value));
}

void weir__resp_five(struct weir__resp_out *out, const int64_t numbers[5])
{
    if (!has_room(out, 6 * (size_t)NUMBER_MAX))
        return;
    static const char head[4] = {'*', '5', '\r', '\n'}, digit[4] = {':', '0', '\r', '\n'};
    char *at = out->at;
    memcpy(at, head, sizeof head);
    at += sizeof head;
    for (int i = 0; i < 5; i++) {
        uint64_t value = (uint64_t)numbers[i];
        if (value < 10) { /* fast path: most numbers are below 100 */
            memcpy(at, digit, sizeof digit);
            at[1] = (char)('0' + value);
            at += sizeof digit;
        } else if (value < 100) {
            memcpy(at + 1, digit, sizeof digit);
            at[0] = ':';
            at[1] = (char)('0' + value / 10);
            at[2] = (char)('0' + value % 10);
            at += sizeof digit + 1;
        } else {
            at = put_number(at, ':', numbers[i]);
        }
    }
    out->at = at;
}
