/* Patterns for one text: exact, glob or regular expression. */
#ifndef WEIR_RULES_PATTERN_H
#define WEIR_RULES_PATTERN_H

#include "base/arena.h"
#include "rules/report.h"

enum weir__pattern_kind {
    WEIR__PATTERN_ANY, /* "*": present and not empty */
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
 * Decides what kind of pattern a text is, by its stars; a copy of the text goes to the arena, in lower case with
 * `nocase`. Stars alone are WEIR__PATTERN_ANY, and for paths also after a '/'. False: no memory.
 */
bool weir__pattern_compile(struct weir__pattern *pattern, weir_text text, bool path, bool nocase,
                           struct weir__arena *arena);

/* What a regular expression needs to run; from a pool of the engine's, so that no request allocates. */
struct weir__regex_room;
struct weir__regex_room *weir__regex_room_make(void); /* NULL: no memory */
void weir__regex_room_free(struct weir__regex_room *room);

/* Who matches, and what it met. */
struct weir__matching {
    struct weir__regex_room *room; /* NULL: regular expressions count as limited */
    uint64_t limited;              /* reached their bound: counted as matching, which is the safe side */
};

/* `matching` may be NULL if the pattern is no regular expression. */
bool weir__pattern_match(const struct weir__pattern *pattern, weir_text text, struct weir__matching *matching);
/*
 * For a text that was cut: false if nothing that begins with `text` and is longer matches. A regular expression that
 * may match is counted as limited unless it matches before the cut.
 */
bool weir__pattern_may_match(const struct weir__pattern *pattern, weir_text text, struct weir__matching *matching);
/* The globs alone; linear in pattern × text, no recursion. */
bool weir__glob_match(weir_text pattern, weir_text text, bool path, bool nocase);
bool weir__glob_may_match(weir_text pattern, weir_text text, bool path, bool nocase);

/* Compiles a regular expression (PCRE2 syntax; unanchored, as everybody expects). NULL after an error, reported. */
const struct weir__regex *weir__regex_compile(weir_text text, bool nocase, struct weir__arena *arena,
                                              struct weir__diagnostics *report, struct weir__place place);
/* A longer text is cut, and decided by weir__regex_may_match. */
#define WEIR__REGEX_SUBJECT_MAX 4096
bool weir__regex_match(const struct weir__regex *regex, weir_text text, struct weir__matching *matching);
bool weir__regex_may_match(const struct weir__regex *regex, weir_text text, struct weir__matching *matching);
/* Compiled expressions are not the arena's: the set gives each back. */
void weir__regex_free(const struct weir__regex *regex);

#endif
