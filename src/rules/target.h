/* Parses and normalises request targets, query strings and cookies. */
#ifndef WEIR_RULES_TARGET_H
#define WEIR_RULES_TARGET_H

#include "base/text.h"

/*
 * The path of a raw request target as nginx makes it: drops query, fragment and an absolute form's scheme and
 * authority, decodes %XX, merges "//", resolves "." and "..". The path begins with '/', or is "*". It is cut to the
 * buffer after resolving; broken escapes stay. Returns its length. path_size is at least 1.
 */
size_t weir__target_normalise(weir_text target, char *path, size_t path_size, bool *cut);
/* The raw query of a target. */
weir_text weir__target_query(weir_text target);

/*
 * Options of a path's normal form: spellings that many servers treat as the same resource become one. `normalize` of
 * docs/reference/rules.md.
 */
enum {
    WEIR__FORM_PARAMETERS = 1, /* ";…" of each segment */
    WEIR__FORM_SLASH = 2,      /* at the end */
    WEIR__FORM_BLANKS = 4,     /* bytes up to ' ' at both ends of each segment */
    WEIR__FORM_CASE = 8,       /* upper case, ASCII */
    WEIR__FORMS = 16,
    WEIR__FORM_DEFAULT = WEIR__FORM_PARAMETERS | WEIR__FORM_SLASH | WEIR__FORM_BLANKS
};

/*
 * Writes the normal form of a decoded path to `to` (1 byte or more; may be the path itself), and resolves the empty
 * segments and dots that appear. A path that does not begin with '/' stays. Returns the length.
 */
size_t weir__path_normalise(weir_text path, unsigned form, char *to, size_t size, bool *cut);
/*
 * Normal form of a raw target whose path parameters are removed before decoding, up to the next literal '/', whatever
 * "%2F" they contain.
 */
size_t weir__target_form(weir_text target, unsigned form, char *to, size_t size, bool *cut);
/* False if the resolved path equals its normal form for every option in `form`. */
bool weir__path_is_spelled(weir_text path, unsigned form);

/* ---- For each request ---- */

typedef uint8_t weir__bytes16 __attribute__((vector_size(16)));
typedef char weir__chars16 __attribute__((vector_size(16)));
typedef uint64_t weir__words2 __attribute__((vector_size(16)));

static inline bool weir__has_odd16(weir__bytes16 bytes)
{
#ifdef __SSE2__
    return __builtin_ia32_pmovmskb128((weir__chars16)((bytes == ';') | (bytes <= ' ')));
#else
    weir__words2 odd = (weir__words2)((bytes == ';') | (bytes <= ' '));
    return odd[0] | odd[1];
#endif
}

/* True if the text has ';' or a byte up to ' '. Tests 16 bytes at a time; the last block overlaps. */
static inline bool weir__text_is_odd(weir_text text)
{
    weir__bytes16 bytes;
    size_t at = 0;
    if (text.len < 16) {
        uint64_t first, last;
        if (text.len >= 8) {
            memcpy(&first, text.data, 8);
            memcpy(&last, text.data + text.len - 8, 8);
        } else if (text.len >= 4) {
            uint32_t begins, ends;
            memcpy(&begins, text.data, 4);
            memcpy(&ends, text.data + text.len - 4, 4);
            first = last = (uint64_t)ends << 32 | begins;
        } else {
            for (; at < text.len; at++)
                if (text.data[at] == ';' || (unsigned char)text.data[at] <= ' ')
                    return true;
            return false;
        }
        return weir__has_odd16((weir__bytes16)(weir__words2){first, last});
    }
    for (; at + 16 < text.len; at += 16) {
        memcpy(&bytes, text.data + at, 16);
        if (weir__has_odd16(bytes))
            return true;
    }
    memcpy(&bytes, text.data + text.len - 16, 16);
    return weir__has_odd16(bytes);
}

/* As weir__path_is_spelled, but may return true for options that are not in `form`. `form` is not 0. */
static inline bool weir__path_may_be_spelled(weir_text path, unsigned form)
{
    return path.len > 1 && (path.data[path.len - 1] == '/' || weir__text_is_odd(path) ||
                            (form & WEIR__FORM_CASE && weir__path_is_spelled(path, WEIR__FORM_CASE)));
}

/* ---- Cookies and arguments ---- */

/*
 * The distinct values of the cookies of this name (case-sensitive) in a Cookie header, in order and unquoted. Writes at
 * most `max` (1 or more); returns their number, or max + 1 if there are more.
 */
size_t weir__cookie_find(weir_text header, weir_text name, weir_text *values, size_t max);

/*
 * The distinct values of a query argument, as weir__cookie_find. Names are decoded before comparison; values are raw,
 * and are distinct if they differ once decoded.
 */
size_t weir__argument_find(weir_text query, weir_text name, weir_text *raw, size_t max);
/* True if decoding does not change it. */
bool weir__argument_is_plain(weir_text raw);
/* Decodes %XX and '+' into `size` bytes, cutting the rest. Returns the length. */
size_t weir__argument_decode(weir_text raw, char *to, size_t size, bool *cut);

#endif
