/* Formatting of numbers, faster than printf: each response has half a dozen of them. */
#ifndef WEIR_BASE_NUMBER_H
#define WEIR_BASE_NUMBER_H

#include "base/text.h"

#define WEIR__DIGITS_MAX   20 /* of an unsigned 64-bit number */
#define WEIR__INT_TEXT_MAX 20 /* of a signed one, with its sign */

/* The number of decimal digits. */
static inline unsigned weir__digit_count(uint64_t number)
{
    /* The least number with one digit more than the index; 0 itself has one. */
    static const uint64_t least[WEIR__DIGITS_MAX] = {0,    1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                                                     1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19};
    /* 1233 / 4096 is the logarithm of 2 to the base 10, closely enough for up to 64 bits. */
    unsigned bits = 64 - (unsigned)__builtin_clzll(number | 1), about = bits * 1233 >> 12;
    return about + (number >= least[about]);
}

/* Writes at most WEIR__DIGITS_MAX bytes; returns where they end. */
static inline char *weir__write_digits(char *to, uint64_t number)
{
    /* Two digits at a time: half the divisions. */
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142"
                                "43444546474849505152535455565758596061626364656667686970717273747576777879808182838485"
                                "8687888990919293949596979899";
    char *end = to + weir__digit_count(number), *at = end;
    for (; number > UINT32_MAX; number /= 100) {
        at -= 2;
        memcpy(at, &pairs[number % 100 * 2], 2);
    }
    /* Nearly all numbers are below 2^32, where a division costs half as much. */
    uint32_t left = (uint32_t)number;
    for (; left >= 100; left /= 100) {
        at -= 2;
        memcpy(at, &pairs[left % 100 * 2], 2);
    }
    if (left >= 10)
        memcpy(to, &pairs[left * 2], 2);
    else
        *to = (char)('0' + left);
    return end;
}

/* Writes at most WEIR__INT_TEXT_MAX bytes; returns where they end. */
static inline char *weir__write_int(char *to, int64_t number)
{
    if (number < 0)
        *to++ = '-';
    return weir__write_digits(to, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

#endif
