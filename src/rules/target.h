/* Request targets, query strings and cookies: finding and decoding what rules ask about. */
#ifndef WEIR_RULES_TARGET_H
#define WEIR_RULES_TARGET_H

#include "base/text.h"

/*
 * A raw request target into a path and a query: the query is cut off (and a fragment), "%xx" decoded, an absolute
 * form's scheme and authority dropped, "//" merged, "." and ".." resolved, as nginx does. The path begins with '/', or
 * is "*". One that is too long for the buffer is cut, after it was resolved; what does not decode stays as it is.
 * Returns the path's length. path_size is at least 1; `query` and `cut` may be NULL.
 */
size_t weir__target_normalise(weir_text target, char *path, size_t path_size, weir_text *query, bool *cut);
/* Only the raw query. */
weir_text weir__target_query(weir_text target);

/*
 * The normal form of a path: what is taken off, so that spellings that many servers take for the same resource become
 * one. Options, as in `normalize` of docs/rules.md.
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
 * A decoded path in a normal form; empty segments and dots that appear are resolved. `to` has `size` bytes, 1 or more,
 * and may be the path's own. One that does not begin with '/' stays as it is. Returns the length.
 */
size_t weir__path_normalise(weir_text path, unsigned form, char *to, size_t size, bool *cut);
/*
 * The same of a raw target, whose parameters are taken off before it is decoded: up to the next '/' as it was sent,
 * whatever "%2F" are among them.
 */
size_t weir__target_form(weir_text target, unsigned form, char *to, size_t size, bool *cut);
/* False if the normal forms with any of the options in `form` are the path itself, provided that it is resolved. */
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

/* True if the text has a ';' or a byte up to ' ': 16 bytes at once, the last of them twice. */
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

/* As weir__path_is_spelled, or true where one of the options is not asked for. `form` is not 0. */
static inline bool weir__path_may_be_spelled(weir_text path, unsigned form)
{
    return path.len > 1 && (path.data[path.len - 1] == '/' || weir__text_is_odd(path) ||
                            (form & WEIR__FORM_CASE && weir__path_is_spelled(path, WEIR__FORM_CASE)));
}

/* ---- Cookies and arguments ---- */

/*
 * The different values of the cookies of this name (letters in this case) in a Cookie header, in their order, without
 * quotes around them. Returns their number, or max + 1 if there are more than the `max` that are written. `max` is at
 * least 1.
 */
size_t weir__cookie_find(weir_text header, weir_text name, weir_text *values, size_t max);

/*
 * The same of arguments, whose names may be encoded in the query. Values are given as they stand there, and differ if
 * they do when decoded.
 */
size_t weir__argument_find(weir_text query, weir_text name, weir_text *raw, size_t max);
/* True if decoding would not change it. */
bool weir__argument_is_plain(weir_text raw);
/* Decodes "%xx" and '+' into a buffer of `size` bytes; what does not fit is cut off. Returns the length. */
size_t weir__argument_decode(weir_text raw, char *to, size_t size, bool *cut);

#endif
