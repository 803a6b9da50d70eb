/* A text that grows, and JSON in it. Written by hand rather than through a tree: answers are flat and every check has
 * one. */
#ifndef WEIR_SERVICES_HTTP_JSON_OUT_H
#define WEIR_SERVICES_HTTP_JSON_OUT_H

#include <weir/weir.h>

#define WEIR__OUT_MAX (64u << 20) /* no answer comes near it */

struct weir__out {
    char *at;
    size_t len, size;
    bool own;    /* `at` is from malloc */
    bool failed; /* no memory: what is written is worth nothing */
};

/* Begins in a buffer of the caller's; more comes from malloc, which weir__out_free gives back. */
void weir__out_begin(struct weir__out *out, char *buffer, size_t size);
void weir__out_free(struct weir__out *out);

/* Room for so many bytes more at its end, or NULL. What is put there counts when `len` is moved on. */
char *weir__out_room(struct weir__out *out, size_t len);

/* Each puts what it says at `to`, where there must be room, and returns its end. */
#define WEIR__INT_MAX         20
#define WEIR__SECONDS_MAX     24
#define WEIR__STRING_MAX(len) (6 * (len) + 2)
char *weir__put_int(char *to, int64_t value);
/* Seconds with at most three decimals, rounded up; null if negative. */
char *weir__put_seconds(char *to, int64_t ns);
/* A string of JSON; what is not UTF-8 becomes U+FFFD. */
char *weir__put_string(char *to, weir_text text);

/* The same at the end of the text. */
void weir__out_bytes(struct weir__out *out, const char *bytes, size_t len);
#define weir__out_text(out, literal) weir__out_bytes((out), (literal), sizeof(literal) - 1)
void weir__out_int(struct weir__out *out, int64_t value);
void weir__out_seconds(struct weir__out *out, int64_t ns);
void weir__out_string(struct weir__out *out, weir_text text);
/* A string, or null if it is empty. */
void weir__out_name(struct weir__out *out, const char *text);
void weir__out_bool(struct weir__out *out, bool value);

/* An error of the API: {"error":{"code","message","field"}}; `field` may be NULL. Replaces what was written before. */
void weir__out_error(struct weir__out *out, const char *code, const char *message, const char *field);

#endif
