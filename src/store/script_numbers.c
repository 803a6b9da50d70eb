#include "store/script_numbers.h"

static void add_bytes(struct weir__buffer *to, unsigned char mark, uint64_t bits, unsigned bytes)
{
    unsigned char text[9] = {mark};
    for (unsigned i = 0; i < bytes; i++)
        text[1 + i] = (unsigned char)(bits >> 8 * (bytes - 1 - i));
    weir__buffer_add(to, text, 1 + bytes);
}

void weir__number_add(struct weir__buffer *to, int64_t number)
{
    uint64_t bits = (uint64_t)number;
    if (number >= -32 && number <= 0x7f)
        add_bytes(to, (unsigned char)bits, 0, 0);
    else if (number >= 0 && number <= 0xff)
        add_bytes(to, 0xcc, bits, 1);
    else if (number >= 0 && number <= 0xffff)
        add_bytes(to, 0xcd, bits, 2);
    else if (number >= 0 && number <= UINT32_MAX)
        add_bytes(to, 0xce, bits, 4);
    else
        add_bytes(to, 0xd3, bits, 8);
}

/* `bytes` of them as an unsigned number. */
static uint64_t take_bytes(struct weir__numbers *from, unsigned bytes)
{
    uint64_t bits = 0;
    if ((size_t)(from->end - from->at) < bytes) {
        from->broken = true;
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++)
        bits = bits << 8 | *from->at++;
    return bits;
}

uint32_t weir__numbers_begin(struct weir__numbers *from)
{
    uint64_t mark = take_bytes(from, 1);
    if (mark >= 0x90 && mark <= 0x9f)
        return (uint32_t)(mark & 0xf);
    if (mark == 0xdc)
        return (uint32_t)take_bytes(from, 2);
    if (mark == 0xdd)
        return (uint32_t)take_bytes(from, 4);
    from->broken = true;
    return 0;
}

int64_t weir__number_read(struct weir__numbers *from, int64_t least, int64_t most)
{
    if (from->broken)
        return 0;
    uint64_t mark = take_bytes(from, 1);
    int64_t number = 0;
    if (mark <= 0x7f) {
        number = (int64_t)mark;
    } else if (mark >= 0xe0) {
        number = (int8_t)mark;
    } else if (mark >= 0xcc && mark <= 0xcf) {
        uint64_t bits = take_bytes(from, 1U << (mark - 0xcc));
        from->broken |= bits > INT64_MAX;
        number = (int64_t)bits;
    } else if (mark >= 0xd0 && mark <= 0xd3) {
        unsigned bytes = 1U << (mark - 0xd0), shift = 64 - 8 * bytes;
        number = (int64_t)(take_bytes(from, bytes) << shift) >> shift;
    } else {
        from->broken = true;
    }
    if (number < least || number > most)
        from->broken = true;
    return from->broken ? 0 : number;
}
