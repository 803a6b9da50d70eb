/*
 * `weir convert`: other limiters' configurations as weir's rules. The parts are convert.c (the command line),
 * convert_write.c (writing rules), convert_descriptors.c, and for nginx nginx_conf.c (reading) and convert_nginx.c.
 */
#ifndef WEIR_CLI_CONVERT_H
#define WEIR_CLI_CONVERT_H

#include <weir/weir.h>

/* A text that grows. Zero it to begin; after a failed allocation it says so and stays as it is. */
struct weir__convert_buffer {
    char *text;
    size_t len, room;
    bool failed;
};

void weir__put(struct weir__convert_buffer *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A YAML scalar that is read as this text again: bare where that is safe, in quotes where not. */
void weir__put_scalar(struct weir__convert_buffer *to, const char *text);

/* One rule, as far as it is known. Fields are made of YAML; an empty one is left out. */
struct weir__new_rule {
    struct weir__convert_buffer name;  /* plain text; made unique and short enough */
    struct weir__convert_buffer notes; /* comments, each line of them without '#' */
    struct weir__convert_buffer match; /* "path: /x\n", one line a field */
    struct weir__convert_buffer key;   /* plain text */
    struct weir__convert_buffer more;  /* "limit: 5\n" and all others */
};

/* What is being converted. */
struct weir__convert {
    const char *file;                     /* for messages */
    struct weir__convert_buffer rules;    /* all that were made */
    struct weir__convert_buffer identity; /* "name: source\n" */
    struct weir__convert_buffer trusted;  /* networks, "a, b" */
    struct weir__convert_buffer head;     /* comments for the top */
    char **names;                         /* of the rules, to keep them apart */
    size_t name_count;
    int warnings;
    bool failed; /* out of memory, or the input cannot be read: said */
};

/* Something that cannot be said in rules, or not quite: on standard error, and as a note of `rule` (or NULL). */
void weir__convert_warn(struct weir__convert *convert, struct weir__new_rule *rule, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A line for the top of the result, once. */
void weir__convert_head(struct weir__convert *convert, const char *text);
/* Writes the rule and empties it. `kept` false: only its notes, as a comment. */
void weir__convert_rule(struct weir__convert *convert, struct weir__new_rule *rule, bool kept);
/* Makes sure that identity has the name, with a header as its source. */
void weir__convert_identity(struct weir__convert *convert, const char *name);

/* Each adds the rules of one text; what it cannot do is warned of. */
void weir__convert_descriptors(struct weir__convert *convert, const char *text, size_t len);
void weir__convert_nginx(struct weir__convert *convert, const char *text, size_t len);

#endif
