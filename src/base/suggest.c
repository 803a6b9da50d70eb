/* Words that look alike: the optimal string alignment distance over three rows of its table. */
#include "base/suggest.h"

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
