/* Texts: see text.h. */
#include "base/text.h"

#include <stdio.h>

size_t weir__utf8_decode(const char *data, size_t len, uint32_t *point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length: a smaller code point is overlong */
    unsigned char first = len ? (unsigned char)*data : 0xff;
    if (first < 0x80) {
        *point = first;
        return 1;
    }
    size_t bytes = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (bytes == 0 || bytes > len)
        return 0;
    uint32_t value = first & (0x7fU >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        unsigned char next = (unsigned char)data[i];
        if ((next & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (next & 0x3f);
    }
    if (value < least[bytes] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
        return 0;
    *point = value;
    return bytes;
}

bool weir__utf8_valid(weir_text text)
{
    uint32_t point;
    size_t len;
    for (size_t i = 0; i < text.len; i += len)
        if ((len = (unsigned char)text.data[i] < 0x80 ? 1 : weir__utf8_decode(text.data + i, text.len - i, &point)) ==
            0)
            return false;
    return true;
}

bool weir__text_sound(weir_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.data[i] < 0x20 || text.data[i] == 0x7f)
            return false;
    return weir__utf8_valid(text);
}

bool weir__text_graphic(weir_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.data[i] <= 0x20 || (unsigned char)text.data[i] >= 0x7f)
            return false;
    return true;
}

/* ---- Text from outside in messages ---- */

bool weir__is_printable(uint32_t point)
{
    return point >= 0x20 && !(point >= 0x7f && point < 0xa0) && !(point >= 0x200b && point <= 0x200f) &&
           !(point >= 0x2028 && point <= 0x202e) && !(point >= 0x2060 && point <= 0x206f) && point != 0xfeff;
}

/* The piece to write for the character at `at`, itself or its escape; returns its length, and *taken the character's.
 */
static size_t printable_piece(const char *at, size_t left, char escaped[5], const char **piece, size_t *taken)
{
    uint32_t point = 0;
    size_t length = weir__utf8_decode(at, left, &point);

    *taken = length ? length : 1;
    *piece = at;
    if (length && weir__is_printable(point))
        return length;
    *piece = escaped;
    *taken = 1; /* each byte is escaped by itself */
    if (*at == '\n' || *at == '\t')
        return (size_t)snprintf(escaped, 5, *at == '\n' ? "\\n" : "\\t");
    return (size_t)snprintf(escaped, 5, "\\x%02x", (unsigned)(unsigned char)*at);
}

const char *weir__printable(weir_text text, char *buffer, size_t size)
{
    static const char dots[] = "...";
    size_t used = 0, cut_at = 0, i = 0;

    while (i < text.len) {
        char escaped[5];
        const char *piece;
        size_t taken, length = printable_piece(text.data + i, text.len - i, escaped, &piece, &taken);
        if (used + length >= size)
            break;
        memcpy(buffer + used, piece, length);
        used += length;
        i += taken;
        if (used + sizeof dots <= size)
            cut_at = used; /* the dots fit behind it */
    }
    if (i < text.len) {
        memcpy(buffer + cut_at, dots, sizeof dots);
        return buffer;
    }
    buffer[used] = 0;
    return buffer;
}

void weir__escape_label(weir_text value, char *to, size_t size)
{
    const char *last = to + size - 1;
    for (size_t i = 0; i < value.len && last - to >= 2; i++) {
        char c = value.data[i];
        if (c == '\\' || c == '"' || c == '\n')
            *to++ = '\\';
        if (c)
            *to++ = c == '\n' ? 'n' : c;
    }
    *to = 0;
}

/* ---- Numbers ---- */

bool weir__parse_int(weir_text text, int64_t *value)
{
    bool negative = text.len > 0 && text.data[0] == '-';
    size_t i = negative;
    int64_t number = 0; /* negative all along: there is one more of these */

    if (i == text.len || (text.data[i] == '0' && text.len > i + 1))
        return false;
    for (; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_sub_overflow(number, text.data[i] - '0', &number))
            return false;
    }
    if (!negative && number == INT64_MIN)
        return false;
    *value = negative ? number : -number;
    return true;
}

char *weir__write_hex(char *to, const void *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    for (const unsigned char *byte = bytes, *end = byte + len; byte < end; byte++) {
        *to++ = digits[*byte >> 4];
        *to++ = digits[*byte & 15];
    }
    return to;
}

/* ---- Encodings ---- */

int weir__percent_decode(weir_text text, bool plus, char *to, size_t size)
{
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '%') {
            bool complete = text.len - i >= 3;
            int high = complete ? weir__hex_value(text.data[i + 1]) : -1,
                low = complete ? weir__hex_value(text.data[i + 2]) : -1;
            if (high < 0 || low < 0) {
                *to = 0;
                return WEIR__DECODE_BROKEN;
            }
            c = (char)(high << 4 | low);
            i += 2;
        } else if (plus && c == '+') {
            c = ' ';
        }
        if (len + 1 >= size) {
            *to = 0;
            return WEIR__DECODE_LONG;
        }
        to[len++] = c;
    }
    to[len] = 0;
    return (int)len;
}

/* Of base64url (RFC 4648). */
static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

size_t weir__write_base64url(char *to, const void *bytes, size_t len)
{
    const uint8_t *from = bytes;
    size_t written = 0;
    for (size_t i = 0; i < len; i += 3) {
        size_t some = len - i < 3 ? len - i : 3;
        uint32_t word =
            (uint32_t)from[i] << 16 | (some > 1 ? (uint32_t)from[i + 1] << 8 : 0) | (some > 2 ? from[i + 2] : 0);
        for (size_t j = 0; j <= some; j++)
            to[written++] = alphabet[word >> (18 - 6 * j) & 63];
    }
    to[written] = 0;
    return written;
}

size_t weir__read_base64url(weir_text text, uint8_t *bytes, size_t max)
{
    size_t to = 0;
    uint32_t word = 0;
    if (text.len % 4 == 1 || text.len / 4 * 3 + (text.len % 4 ? text.len % 4 - 1 : 0) > max)
        return 0;
    for (size_t i = 0; i < text.len; i++) {
        const char *found = text.data[i] ? strchr(alphabet, text.data[i]) : NULL;
        if (!found)
            return 0;
        word = word << 6 | (uint32_t)(found - alphabet);
        if (i % 4)
            bytes[to++] = (uint8_t)(word >> (6 - 2 * (i % 4)));
    }
    return to;
}

/* ---- Suggestions ---- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t weir__edit_distance(weir_text a, weir_text b, size_t max)
{
    size_t rows[3][WEIR__SUGGEST_MAX + 1];

    if (a.len > WEIR__SUGGEST_MAX || b.len > WEIR__SUGGEST_MAX || a.len > b.len + max || b.len > a.len + max)
        return max + 1;
    for (size_t j = 0; j <= b.len; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            unsigned char x = weir__lower(a.data[i - 1]), y = weir__lower(b.data[j - 1]);
            row[j] = least(above[j - 1] + (x != y), least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && x == weir__lower(b.data[j - 2]) && weir__lower(a.data[i - 2]) == y)
                row[j] = least(row[j], two_above[j - 2] + 1);
        }
    }
    return least(rows[a.len % 3][b.len], max + 1);
}

const char *weir__suggest(weir_text word, const char *const *candidates, size_t count)
{
    const char *nearest = NULL;
    size_t bound = word.len < 6 ? 1 : word.len / 3;

    for (size_t i = 0; i < count; i++) {
        size_t distance = weir__edit_distance(word, (weir_text){candidates[i], strlen(candidates[i])}, bound);
        if (distance > bound || distance >= word.len)
            continue;
        nearest = candidates[i];
        if (distance == 0)
            break;
        bound = distance - 1; /* only a nearer one is better */
    }
    return nearest;
}
