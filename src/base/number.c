/* Parsing numbers. */
#include "base/number.h"

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
