/* Edit distance, and the most similar name. */
#include "base/text.h"
#include "../../test.h"

/* The textbook algorithm with the full table. */
static size_t naive_distance(weir_text a, weir_text b)
{
    size_t table[32][32];
    for (size_t i = 0; i <= a.len; i++) {
        for (size_t j = 0; j <= b.len; j++) {
            if (i == 0 || j == 0) {
                table[i][j] = i + j;
                continue;
            }
            size_t best = table[i - 1][j] + 1;
            if (table[i][j - 1] + 1 < best)
                best = table[i][j - 1] + 1;
            if (table[i - 1][j - 1] + (a.data[i - 1] != b.data[j - 1]) < best)
                best = table[i - 1][j - 1] + (a.data[i - 1] != b.data[j - 1]);
            if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] && a.data[i - 2] == b.data[j - 1] &&
                table[i - 2][j - 2] + 1 < best)
                best = table[i - 2][j - 2] + 1;
            table[i][j] = best;
        }
    }
    return table[a.len][b.len];
}

TEST(distance_agrees_with_the_textbook_algorithm)
{
    uint64_t seed = 11;
    for (int64_t run = test_scaled(200000, 1000); run > 0; run--) {
        char text[2][12], upper[12];
        weir_text candidates[2];
        for (int w = 0; w < 2; w++) {
            candidates[w] = (weir_text){text[w], test_random(&seed) % sizeof *text};
            for (size_t i = 0; i < candidates[w].len; i++)
                text[w][i] = (char)('a' + test_random(&seed) % 3);
        }
        size_t expected = naive_distance(candidates[0], candidates[1]), max = test_random(&seed) % 12;
        for (size_t i = 0; i < candidates[0].len; i++)
            upper[i] = (char)(text[0][i] - (i % 2 ? 'a' - 'A' : 0));
        CHECK_EQ(weir__edit_distance(candidates[0], candidates[1], 99), expected);
        CHECK_EQ(weir__edit_distance((weir_text){upper, candidates[0].len}, candidates[1], max),
                 expected > max ? max + 1 : expected);
    }
}

TEST(nearest_name)
{
    static const char *const candidates[] = {"limit", "limits", "window", "algorithm", "on_missing_key", "s", "key"};
    static const struct {
        const char *word, *expected;
    } cases[] = {
        {"limt", "limit"},
        {"imit", "limit"},
        {"limtis", "limits"},
        {"Limit", "limit"},
        {"widnow", "window"},
        {"windwo", "window"},
        {"algoritm", "algorithm"},
        {"algoritmh", "algorithm"},
        {"onmissingkey", "on_missing_key"},
        {"kye", "key"},
        {"kex", "key"},
        {"kxx", NULL},
        {"x", NULL}, /* a single letter is not similar to every other letter */
        {"", NULL},
        {"entirely", NULL},
        {"wnidwo", "window"},
        {"wxxxow", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_text word = {cases[i].word, strlen(cases[i].word)};
        const char *nearest = weir__suggest(word, candidates, sizeof candidates / sizeof *candidates);
        CHECK(nearest ? cases[i].expected && strcmp(nearest, cases[i].expected) == 0 : !cases[i].expected);
    }
    char longest[WEIR__SUGGEST_MAX + 2];
    memset(longest, 'a', sizeof longest);
    CHECK(!weir__suggest((weir_text){longest, sizeof longest}, candidates, 7));
    CHECK(!weir__suggest(WEIR__TEXT("limit"), candidates, 0));
}

TEST_MAIN
