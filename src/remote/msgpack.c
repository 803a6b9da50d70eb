#include "remote/msgpack.h"

#define MOST 9 /* bytes of a number: a mark and eight */

void weir__number_add(struct weir__buffer *to, int64_t number)
{
    uint64_t bits = (uint64_t)number;
    unsigned bytes = 8;
    unsigned char mark = 0xd3, *at = (unsigned char *)weir__buffer_room(to, MOST);
    if (!at)
        return;
    if (number >= -32 && number <= 0x7f) {
        *at = (unsigned char)bits;
        to->len++;
        return;
    }
    if (number >= 0 && number <= UINT32_MAX) {
        bytes = number <= 0xff ? 1 : number <= 0xffff ? 2 : 4;
        mark = number <= 0xff ? 0xcc : number <= 0xffff ? 0xcd : 0xce;
    }
    *at++ = mark;
    for (unsigned i = bytes; i-- > 0;)
        *at++ = (unsigned char)(bits >> 8 * i);
    to->len += 1 + bytes;
}
