/* Texts: a pointer and a length, without a zero byte. Parsing, UTF-8, escaping, suggestions for misspelt words. */
#ifndef WEIR_BASE_TEXT_H
#define WEIR_BASE_TEXT_H

#include <stdint.h>
#include <string.h>

#include <weir/weir.h>

#define WEIR__COUNT(array)   (sizeof(array) / sizeof *(array))
#define WEIR__LIST_OF(array) (array), WEIR__COUNT(array) /* an array and its size, as arguments */

#define WEIR__TEXT(literal) ((weir_text){(literal), sizeof(literal) - 1})

static inline weir_text weir__text_of(const char *text)
{
    return (weir_text){text, strlen(text)};
}

static inline bool weir__text_equal(weir_text a, weir_text b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* An order of texts, for searching: by length, then bytes. */
static inline int weir__text_order(weir_text a, weir_text b)
{
    if (a.len != b.len)
        return a.len < b.len ? -1 : 1;
    return a.len ? memcmp(a.data, b.data, a.len) : 0;
}

/* weir__text_order for qsort, bsearch and tsearch, of texts and of structs that begin with one. */
static inline int weir__text_compare(const void *a, const void *b)
{
    return weir__text_order(*(const weir_text *)a, *(const weir_text *)b);
}

static inline bool weir__text_is(weir_text a, const char *b)
{
    return a.len == strlen(b) && memcmp(a.data, b, a.len) == 0;
}

static inline unsigned char weir__lower(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

#define WEIR__DECIMALS "0123456789" /* for strspn */

static inline bool weir__is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* An ASCII letter. */
static inline bool weir__is_letter(char c)
{
    return weir__lower(c) >= 'a' && weir__lower(c) <= 'z';
}

/* The value of a hexadecimal digit; -1: not one. */
static inline int weir__hex_value(char c)
{
    unsigned char lower = weir__lower(c);
    return weir__is_digit(c) ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* A character of a token of HTTP (RFC 9110): names of headers and cookies, methods. */
static inline bool weir__is_token(char c)
{
    return weir__is_letter(c) || weir__is_digit(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* Removes `start` from the beginning of a text. False: the text does not begin with it. */
static inline bool weir__text_skip(weir_text *text, const char *start)
{
    size_t len = strlen(start);
    if (text->len < len || memcmp(text->data, start, len) != 0)
        return false;
    *text = (weir_text){text->data + len, text->len - len};
    return true;
}

/* Splits a text at the first `separator`: returns the part before it, or all of it; `text` becomes the rest. */
static inline weir_text weir__text_cut(weir_text *text, char separator)
{
    const char *end = text->len ? memchr(text->data, separator, text->len) : NULL;
    weir_text first = {text->data, end ? (size_t)(end - text->data) : text->len};
    size_t used = first.len + (end != NULL);
    *text = (weir_text){used ? text->data + used : text->data, text->len - used};
    return first;
}

/* ASCII letters in any case: header names, hosts, methods. */
static inline bool weir__text_equal_nocase(weir_text a, weir_text b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (weir__lower(a.data[i]) != weir__lower(b.data[i]))
            return false;
    return true;
}

/* Without the blanks around it. */
static inline weir_text weir__text_trim(weir_text text)
{
    while (text.len > 0 && (text.data[0] == ' ' || text.data[0] == '\t')) {
        text.data++;
        text.len--;
    }
    while (text.len > 0 && (text.data[text.len - 1] == ' ' || text.data[text.len - 1] == '\t'))
        text.len--;
    return text;
}

/* True if one of the words of a list such as "close, X-Hop" is this one, in any case. */
static inline bool weir__text_listed(weir_text list, weir_text word)
{
    while (list.len > 0)
        if (weir__text_equal_nocase(weir__text_trim(weir__text_cut(&list, ',')), word))
            return true;
    return false;
}

/* ---- UTF-8 (text.c) ---- */

/* Decodes the first character. Returns its length in bytes; 0 if the text is empty or does not begin with valid UTF-8.
 */
size_t weir__utf8_decode(const char *data, size_t len, uint32_t *point);
bool weir__utf8_valid(weir_text text);
/* True for UTF-8 without control characters. */
bool weir__text_sound(weir_text text);
/* True for printable ASCII without blanks, and for an empty text. */
bool weir__text_graphic(weir_text text);

/* False for control characters and for those that hide text or change its direction. */
bool weir__is_printable(uint32_t point);
/*
 * Escapes text from outside for a message: bytes that are not printable UTF-8 become \\n, \\t or \\xHH. Text that does
 * not fit is cut and ends in "...". `size` is at least 8. Returns the buffer.
 */
const char *weir__printable(weir_text text, char *buffer, size_t size);
#define WEIR__SHOWN 64 /* size of a buffer for a word or a value */

/* Escapes a value of a Prometheus label; cuts what does not fit into `size` bytes with the zero byte. */
void weir__escape_label(weir_text value, char *to, size_t size);

/* ---- Numbers ---- */

/*
 * Parses a decimal integer: an optional minus sign, then digits without leading zeros, and nothing else. False if the
 * text is not one or does not fit.
 */
bool weir__parse_int(weir_text text, int64_t *value);
/* Writes two hexadecimal digits for each byte; returns their end. */
char *weir__write_hex(char *to, const void *bytes, size_t len);

/* ---- Encodings ---- */

/*
 * Decodes %XX into `to` (one byte or more), always terminated; empty after an error. Returns the length or one of these
 * errors. `plus`: '+' is a blank.
 */
enum { WEIR__DECODE_BROKEN = -1, WEIR__DECODE_LONG = -2 };
WEIR_MUST_CHECK int weir__percent_decode(weir_text text, bool plus, char *to, size_t size);

/* base64url without padding. */
#define WEIR__BASE64URL_MAX(bytes) (((bytes) + 2) / 3 * 4)
/* Writes at most WEIR__BASE64URL_MAX(len) characters and a zero byte; returns their number. */
size_t weir__write_base64url(char *to, const void *bytes, size_t len);
/* Returns the number of bytes; 0: the text is malformed, or has more than `max`. */
size_t weir__read_base64url(weir_text text, uint8_t *bytes, size_t max);

/* Defines `name` as the text of a file, followed by a zero byte; the assembler includes it. */
#define WEIR__EMBED(name, path)                                                                                        \
    extern const char(name)[] __attribute__((visibility("hidden")));                                                   \
    __asm__(".pushsection .rodata\n" #name ":\n.incbin \"" path "\"\n.byte 0\n.popsection\n")

/* ---- Suggestions ---- */

#define WEIR__SUGGEST_MAX 64 /* bytes of the longest word that is compared */

/*
 * The optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours that make b of a,
 * ignoring case. Larger than `max`: max + 1.
 */
size_t weir__edit_distance(weir_text a, weir_text b, size_t max);
/* The nearest candidate, if at most a third of its letters (but at least one) differ; or NULL. */
const char *weir__suggest(weir_text word, const char *const *candidates, size_t count);

#endif
