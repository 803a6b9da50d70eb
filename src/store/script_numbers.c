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
