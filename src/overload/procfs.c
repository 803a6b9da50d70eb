/* Parsers of the load figures in /proc: see overload.h. */
#include "overload/overload.h"

#include <string.h>

static bool skip(weir_text *text, const char *what)
{
    size_t len = strlen(what);
    if (text->len < len || memcmp(text->data, what, len) != 0)
        return false;
    *text = (weir_text){text->data + len, text->len - len};
    return true;
}

static void skip_blanks(weir_text *text)
{
    while (skip(text, " "))
        continue;
}

/* Decimal digits; false if there are none or the value overflows. */
static bool number(weir_text *text, uint64_t *value)
{
    uint64_t sum = 0;
    size_t len = 0;
    for (; len < text->len && text->data[len] >= '0' && text->data[len] <= '9'; len++)
        if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_add_overflow(sum, text->data[len] - '0', &sum))
            return false;
    *text = (weir_text){text->data + len, text->len - len};
    *value = sum;
    return len > 0;
}

/* Splits off the next line. */
static bool line(weir_text *text, weir_text *one)
{
    if (!text->len)
        return false;
    const char *end = memchr(text->data, '\n', text->len);
    one->data = text->data;
    one->len = end ? (size_t)(end - text->data) : text->len;
    size_t taken = one->len + (end != NULL);
    *text = (weir_text){text->data + taken, text->len - taken};
    return true;
}

bool weir__procfs_stalled(weir_text text, uint64_t *total_us)
{
    weir_text one;
    while (line(&text, &one)) {
        if (!skip(&one, "some "))
            continue;
        for (; one.len; one = (weir_text){one.data + 1, one.len - 1})
            if (skip(&one, "total="))
                return number(&one, total_us);
    }
    return false;
}

bool weir__procfs_busy(weir_text text, uint64_t *busy, uint64_t *all)
{
    enum { USER, NICE, SYSTEM, IDLE, IO_WAIT, IRQ, SOFT_IRQ, STEAL, KINDS }; /* guests are in user already */
    weir_text one;
    while (line(&text, &one)) {
        uint64_t idle = 0, sum = 0, ticks;
        int kind = 0;
        if (!skip(&one, "cpu "))
            continue;
        for (skip_blanks(&one); kind < KINDS && number(&one, &ticks); kind++, skip_blanks(&one)) {
            if (__builtin_add_overflow(sum, ticks, &sum))
                return false;
            idle += kind == IDLE || kind == IO_WAIT ? ticks : 0;
        }
        *all = sum;
        *busy = sum - idle;
        return kind > IDLE;
    }
    return false;
}

bool weir__procfs_running(weir_text text, uint64_t *running)
{
    weir_text one;
    uint64_t total;
    if (!line(&text, &one))
        return false;
    for (int averages = 0; averages < 3; averages++) {
        const char *blank = memchr(one.data, ' ', one.len);
        if (!blank)
            return false;
        one = (weir_text){blank + 1, one.len - (size_t)(blank + 1 - one.data)};
    }
    return number(&one, running) && skip(&one, "/") && number(&one, &total);
}
