/*
 * Regular expressions, by PCRE2. The size of an expression and the steps and memory of a match are bounded. A match
 * that reaches its bound counts as matching.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "rules/pattern.h"

#include <pcre2.h>
#include <stdlib.h>

enum {
    PATTERN_MAX = 1000, /* bytes */
    NESTING_MAX = 50,
    STEPS_MAX = 10000,          /* from one place of the text */
    STEPS_MAX_OVERALL = 200000, /* from all places where an expression that is not anchored is tried */
    DEPTH_MAX = 2000,
    HEAP_KIB = 128,
};

struct weir__regex {
    pcre2_code *code;
    bool anchored; /* is tried at the beginning only */
};

/*
 * PCRE2 keeps the frames of its backtracking in one piece of memory, and moves them to a larger one when they need it:
 * there are never more than two. So two fixed pieces of the largest size that it may ask for are all it gets, and no
 * match allocates.
 */
struct weir__regex_scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    bool ready; /* allocations from now on are for match frames */
    bool taken[2];
    _Alignas(16) unsigned char frames[2][HEAP_KIB * 1024];
};

static void *scratch_malloc(size_t bytes, void *memory)
{
    struct weir__regex_scratch *scratch = memory;

    if (!scratch->ready)
        return malloc(bytes);
    for (int i = 0; i < 2; i++) {
        if (!scratch->taken[i] && bytes <= sizeof scratch->frames[i]) {
            scratch->taken[i] = true;
            return scratch->frames[i];
        }
    }
    return NULL;
}

static void scratch_free(void *block, void *memory)
{
    struct weir__regex_scratch *scratch = memory;

    for (int i = 0; i < 2; i++) {
        if (block == scratch->frames[i]) {
            scratch->taken[i] = false;
            return;
        }
    }
    free(block);
}

struct weir__regex_scratch *weir__regex_scratch_make(void)
{
    /* Not zeroed, so that frames that are never used are never touched. */
    struct weir__regex_scratch *scratch = malloc(sizeof *scratch);

    if (!scratch)
        return NULL;
    scratch->ready = scratch->taken[0] = scratch->taken[1] = false;
    scratch->data = NULL;
    scratch->context = NULL;
    pcre2_general_context *memory = pcre2_general_context_create(scratch_malloc, scratch_free, scratch);
    if (memory) {
        scratch->data = pcre2_match_data_create(1, memory);
        scratch->context = pcre2_match_context_create(memory);
        pcre2_general_context_free(memory);
    }
    if (!scratch->data || !scratch->context) {
        weir__regex_scratch_free(scratch);
        return NULL;
    }
    pcre2_set_depth_limit(scratch->context, DEPTH_MAX);
    pcre2_set_heap_limit(scratch->context, HEAP_KIB);
    scratch->ready = true;
    return scratch;
}

void weir__regex_scratch_free(struct weir__regex_scratch *scratch)
{
    if (!scratch)
        return;
    pcre2_match_data_free(scratch->data);
    pcre2_match_context_free(scratch->context);
    free(scratch);
}

static pcre2_code *compile(weir_text text, bool nocase, int *error, size_t *offset)
{
    /*
     * Texts are bytes on one line: '.' matches a line break and '$' only the end, so that a line break does not evade
     * an expression.
     */
    uint32_t options = PCRE2_DOLLAR_ENDONLY | PCRE2_DOTALL | PCRE2_NEVER_BACKSLASH_C | PCRE2_NEVER_UTF |
                       PCRE2_NEVER_UCP | (nocase ? PCRE2_CASELESS : 0);
    pcre2_compile_context *bounds = pcre2_compile_context_create(NULL);

    *error = PCRE2_ERROR_NOMEMORY;
    *offset = 0;
    if (!bounds)
        return NULL;
    pcre2_set_max_pattern_length(bounds, PATTERN_MAX);
    pcre2_set_parens_nest_limit(bounds, NESTING_MAX);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)(text.len ? text.data : ""), text.len, options, error, offset, bounds);
    pcre2_compile_context_free(bounds);
    return code;
}

const struct weir__regex *weir__regex_compile(weir_text text, bool nocase, struct weir__arena *arena,
                                              struct weir__diagnostics *report, struct weir__place place)
{
    int error;
    size_t offset;
    struct weir__regex *regex = weir__arena_take(arena, sizeof *regex);

    if (!regex) {
        weir__report_error(report, place, "regular expression: no memory");
        return NULL;
    }
    regex->code = compile(text, nocase, &error, &offset);
    if (!regex->code && (error == PCRE2_ERROR_NOMEMORY || error == PCRE2_ERROR_HEAP_FAILED)) {
        arena->failed = true; /* not an error of the rules */
        return NULL;
    }
    if (!regex->code) {
        char message[256] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof message);
        if (place.column)
            place.column += (uint32_t)(offset < text.len ? offset : text.len);
        weir__report_error(report, place, "regular expression: %s", message);
        return NULL;
    }
    uint32_t options = 0;
    pcre2_pattern_info(regex->code, PCRE2_INFO_ALLOPTIONS, &options);
    regex->anchored = options & PCRE2_ANCHORED;
    return regex;
}

void weir__regex_free(const struct weir__regex *regex)
{
    if (regex)
        pcre2_code_free(regex->code);
}

/* PCRE2's result; an error other than PCRE2_ERROR_NOMATCH if it is not known. */
static int run(const struct weir__regex *regex, weir_text text, uint32_t options, struct weir__regex_scratch *scratch)
{
    if (!scratch)
        return PCRE2_ERROR_NOMEMORY;
    /* PCRE2 counts steps anew at each place where it begins: the more of them, the fewer each may take. */
    size_t steps = regex->anchored ? STEPS_MAX : STEPS_MAX_OVERALL / (text.len + 1);
    pcre2_set_match_limit(scratch->context, (uint32_t)(steps < STEPS_MAX ? steps : STEPS_MAX));
    return pcre2_match(regex->code, (PCRE2_SPTR)(text.len ? text.data : ""), text.len, 0, options, scratch->data,
                       scratch->context);
}

bool weir__regex_match(const struct weir__regex *regex, weir_text text, bool cut, struct weir__matching *matching)
{
    if (text.len > WEIR__REGEX_SUBJECT_MAX) {
        text.len = WEIR__REGEX_SUBJECT_MAX;
        cut = true;
    }
    /* With this option a match that depends on the end of the text is a partial one. */
    int found = run(regex, text, cut ? PCRE2_PARTIAL_HARD : 0, matching->regex_scratch);
    if (found >= 0)
        return true;
    if (found == PCRE2_ERROR_NOMATCH && (!cut || regex->anchored))
        return false;
    matching->limited++;
    return true;
}
