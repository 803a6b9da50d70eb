/* Patterns for one text: exact, glob or regular expression. */
#ifndef WEIR_RULES_PATTERN_H
#define WEIR_RULES_PATTERN_H

#include "base/arena.h"
#include "rules/report.h"

enum weir__pattern_kind {
    WEIR__PATTERN_ANY, /* "*": any value that is not empty */
    WEIR__PATTERN_EXACT,
    WEIR__PATTERN_GLOB, /* '*' any run of characters; in paths of other characters than '/', unless it is "**" */
    WEIR__PATTERN_REGEX
};

struct weir__regex; /* a compiled expression and its bounds */

struct weir__pattern {
    enum weir__pattern_kind kind;
    bool nocase; /* hosts */
    bool path;   /* '*' stops at '/'; a last "/" + "*" does not */
    weir_text text;
    const struct weir__regex *regex;
};

/*
 * Classifies a text by its stars and copies it to the arena, in lower case with `nocase`. Stars alone are
 * WEIR__PATTERN_ANY, for paths also after a '/'. False: no memory.
 */
bool weir__pattern_compile(struct weir__pattern *pattern, weir_text text, bool path, bool nocase,
                           struct weir__arena *arena);

/* Scratch memory of a regular expression, from a pool of the engine, so that no request allocates. */
struct weir__regex_scratch;
struct weir__regex_scratch *weir__regex_scratch_make(void); /* NULL: no memory */
void weir__regex_scratch_free(struct weir__regex_scratch *scratch);

/* The state of matching one request. */
struct weir__matching {
    struct weir__regex_scratch *regex_scratch; /* NULL: regular expressions count as limited */
    uint64_t limited; /* expressions that reached their bound, which count as matching, the safe side */
};

/*
 * `cut`: the text is the beginning of a longer one; false if no such text matches. A regular expression that may match
 * then counts as limited unless it matches before the cut. `matching` may be NULL if the pattern is no regular
 * expression.
 */
bool weir__pattern_match(const struct weir__pattern *pattern, weir_text text, bool cut,
                         struct weir__matching *matching);
/* Globs; O(pattern × text), without recursion. */
bool weir__glob_match(weir_text pattern, weir_text text, bool path, bool nocase);
bool weir__glob_may_match(weir_text pattern, weir_text text, bool path, bool nocase); /* of a text that was cut */

/* Compiles a regular expression (PCRE2 syntax; unanchored, as everybody expects). NULL after an error, reported. */
const struct weir__regex *weir__regex_compile(weir_text text, bool nocase, struct weir__arena *arena,
                                              struct weir__diagnostics *report, struct weir__place place);
/* `cut`: as for weir__pattern_match. A longer text is cut. */
#define WEIR__REGEX_SUBJECT_MAX 4096
bool weir__regex_match(const struct weir__regex *regex, weir_text text, bool cut, struct weir__matching *matching);
/* Compiled expressions are not in the arena: the set frees each. */
void weir__regex_free(const struct weir__regex *regex);

#endif
