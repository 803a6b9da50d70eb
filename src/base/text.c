/* UTF-8, and text from outside in messages. */
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
    for (size_t i = 0; i < text.len;) {
        uint32_t point;
        size_t len = weir__utf8_decode(text.data + i, text.len - i, &point);
        if (!len || point < 0x20 || point == 0x7f)
            return false;
        i += len;
    }
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
