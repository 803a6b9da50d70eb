/* Patterns for one text: which kind they are, and globs. */
#include "rules/pattern.h"

/* The number of stars that `text` has from `at` on. */
static size_t stars_at(weir_text text, size_t at)
{
    size_t end = at;

    while (end < text.len && text.data[end] == '*')
        end++;
    return end - at;
}

bool weir__pattern_compile(struct weir__pattern *pattern, weir_text text, bool path, bool nocase,
                           struct weir__arena *arena)
{
    char *copy = weir__arena_take(arena, text.len + 1);

    if (!copy)
        return false;
    for (size_t i = 0; i < text.len; i++)
        copy[i] = nocase ? (char)weir__lower(text.data[i]) : text.data[i];
    *pattern = (struct weir__pattern){.nocase = nocase, .path = path, .text = {copy, text.len}};

    size_t lead = path && text.len > 1 && copy[0] == '/';
    if (text.len > 0 && lead + stars_at(pattern->text, lead) == text.len)
        pattern->kind = WEIR__PATTERN_ANY;
    else
        pattern->kind = memchr(copy, '*', text.len) ? WEIR__PATTERN_GLOB : WEIR__PATTERN_EXACT;
    return true;
}

bool weir__pattern_match(const struct weir__pattern *pattern, weir_text text, bool cut, struct weir__matching *matching)
{
    weir_text own = pattern->text;
    switch (pattern->kind) {
    case WEIR__PATTERN_ANY:
        return cut || text.len > 0;
    case WEIR__PATTERN_EXACT:
        if (cut && own.len <= text.len)
            return false;
        if (cut)
            own.len = text.len;
        return pattern->nocase ? weir__text_equal_nocase(own, text) : weir__text_equal(own, text);
    case WEIR__PATTERN_GLOB:
        return cut ? weir__glob_may_match(own, text, pattern->path, pattern->nocase)
                   : weir__glob_match(own, text, pattern->path, pattern->nocase);
    case WEIR__PATTERN_REGEX:
        return weir__regex_match(pattern->regex, text, cut, matching);
    }
    return false;
}

/*
 * A star that was passed: the position after it in the pattern, and the position in the text where the rest is tried.
 */
struct star {
    bool passed;
    size_t after, at;
};

/*
 * Stars take as little as they can and more when what follows does not fit. It is enough to remember the last star of
 * each kind:
 * - A wide star ("**", and any star outside of paths) can take what those before it would have taken in addition.
 * - What a narrow star ('*' in a path) reaches ends at the next '/'. If what follows it is not found up to there, then
 *   an earlier narrow star that takes more does not help: the later one would begin further right and still end there.
 *   Nor does it help if the wide star takes more of the segment that it ends in, for the same reason: all that follows
 *   it would end in the same segments. So it goes on behind the next '/'.
 * Therefore each piece of the pattern is tried at most once at each place of the text: pattern × text steps.
 *
 * With `cut` the text goes on with bytes that are not known: a pattern that reaches its end with anything left to
 * match, or with a star that may take more, may match.
 */
static inline bool glob(weir_text pattern, weir_text text, bool path, bool nocase, bool cut)
{
    struct star narrow = {0}, wide = {0};
    size_t p = 0, t = 0;

    for (;;) {
        size_t stars = stars_at(pattern, p);
        if (stars > 0) {
            size_t after = p + stars;
            bool last = after == pattern.len;
            if (path && stars == 1 && !(last && p > 0 && pattern.data[p - 1] == '/')) {
                narrow = (struct star){true, after, t};
            } else {
                if (last)
                    return true;
                wide = (struct star){true, after, t};
                narrow.passed = false;
            }
            p = after;
        }
        if (cut && t == text.len)
            return p < pattern.len || narrow.passed || wide.passed;
        if (p == pattern.len && t == text.len)
            return true;
        if (p < pattern.len && t < text.len &&
            (pattern.data[p] == text.data[t] ||
             (nocase && weir__lower(pattern.data[p]) == weir__lower(text.data[t])))) {
            p++;
            t++;
        } else if (narrow.passed && narrow.at < text.len && text.data[narrow.at] != '/') {
            p = narrow.after;
            t = ++narrow.at;
        } else if (wide.passed && wide.at < text.len) {
            if (narrow.passed) {
                const char *slash = memchr(text.data + wide.at, '/', text.len - wide.at);
                if (!slash)
                    return cut;
                wide.at = (size_t)(slash - text.data);
                narrow.passed = false;
            }
            p = wide.after;
            t = ++wide.at;
        } else {
            return false;
        }
    }
}

bool weir__glob_match(weir_text pattern, weir_text text, bool path, bool nocase)
{
    return glob(pattern, text, path, nocase, false);
}

bool weir__glob_may_match(weir_text pattern, weir_text text, bool path, bool nocase)
{
    return glob(pattern, text, path, nocase, true);
}
