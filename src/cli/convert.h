/*
 * `weir convert`: other limiters' configurations as weir's rules. The parts are convert.c (the command line),
 * convert_write.c (writing rules), convert_descriptors.c, and for nginx nginx_conf.c (reading) and convert_nginx.c.
 */
#ifndef WEIR_CLI_CONVERT_H
#define WEIR_CLI_CONVERT_H

#include "base/buffer.h"

#include <weir/weir.h>

/* A YAML scalar that is read as this text again: bare where that is safe, in quotes where not. */
void weir__put_scalar(struct weir__buffer *to, const char *text);

/* One rule, as far as it is known. Fields are made of YAML; an empty one is left out. */
struct weir__new_rule {
    struct weir__buffer name;  /* plain text; made unique and short enough */
    struct weir__buffer notes; /* comments, each line of them without '#' */
    struct weir__buffer match; /* "path: /x\n", one line a field */
    struct weir__buffer key;   /* plain text */
    struct weir__buffer more;  /* "limit: 5\n" and all others */
};

/* What is being converted. */
struct weir__convert {
    const char *file;             /* for messages */
    struct weir__buffer rules;    /* all that were made */
    struct weir__buffer identity; /* "name: source\n" */
    struct weir__buffer trusted;  /* networks, "a, b" */
    struct weir__buffer head;     /* comments for the top */
    char **names;                 /* of the rules, to keep them apart */
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

/* ---- Attributes: other limiters' names for them, and conditions on them ---- */

enum weir__name_kind {
    WEIR__NAME_CLIENT_IP,
    WEIR__NAME_PATH,
    WEIR__NAME_METHOD,
    WEIR__NAME_HOST,
    WEIR__NAME_HEADER,
    WEIR__NAME_COOKIE,
    WEIR__NAME_QUERY,
    WEIR__NAME_NAMED
};

struct weir__attribute_name {
    enum weir__name_kind kind;
    char text[64]; /* of a header, cookie, argument or named attribute */
};

/* Of a descriptor's key; `number` tells apart entries of one key, from 1. */
void weir__attribute_for_key(const char *key, int number, struct weir__attribute_name *name);
/* Of a name of nginx's without the dollar. False: nginx computes it (map, geo, set …); it is a named attribute then. */
bool weir__attribute_for_variable(const char *variable, size_t len, struct weir__attribute_name *name);

/* "${client_ip}" */
void weir__put_template(struct weir__buffer *to, const struct weir__attribute_name *name);

/* A value with '*' anywhere ("": any), but for its rivals, which count elsewhere. */
struct weir__condition_text {
    const char *value;
    const char **rivals;
    size_t rival_count;
    bool failed;
};

void weir__condition_rival(struct weir__condition_text *condition, const char *value);
void weir__condition_drop(struct weir__condition_text *condition);
/* A line of `match`, or nothing if any value will do. False if it cannot be said of this attribute. */
bool weir__put_condition(struct weir__buffer *match, const struct weir__attribute_name *name,
                         const struct weir__condition_text *condition);

/* "10.0.0.0/8" or "2001:db8::1" */
bool weir__is_network(const char *text);
/* Regular expressions: the text itself, or with '*' for any run. */
void weir__put_regex(struct weir__buffer *to, const char *text, bool stars);

#endif
