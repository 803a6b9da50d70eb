/*
 * `weir convert`: other limiters' configurations as rules of weir. convert.c has the command line and writes rules;
 * convert_descriptors.c and convert_nginx.c translate; convert_attribute.c writes attributes and conditions;
 * nginx_conf.c parses nginx's configuration.
 */
#ifndef WEIR_CLI_CONVERT_H
#define WEIR_CLI_CONVERT_H

#include "cli/cli.h"

#include <jansson.h>

/* A YAML scalar that is read as this text again: bare where that is safe, else in quotes. */
const char *weir__scalar(const char *text);

/* A rule under construction. Fields are YAML; an empty one is left out. */
struct weir__new_rule {
    struct weir__buffer name;  /* plain text; made unique and short enough */
    struct weir__buffer notes; /* comments, each line of them without '#' */
    struct weir__buffer match; /* "path: /x\n", one line a field */
    struct weir__buffer key;   /* plain text */
    struct weir__buffer more;  /* "limit: 5\n" and all others */
};

/* The state of a conversion. */
struct weir__convert {
    const char *file;            /* for messages */
    struct weir__buffer rules;   /* all that were made */
    json_t *identity;            /* names and their sources */
    struct weir__buffer trusted; /* networks, "a, b" */
    struct weir__buffer head;    /* comments for the top */
    json_t *names;               /* of the rules, to keep them apart */
    int warnings;
    bool failed; /* the input cannot be read: reported */
};

/* Reports what rules cannot express exactly: on standard error, and in the notes of `rule` (or NULL). */
void weir__convert_warn(struct weir__convert *convert, struct weir__new_rule *rule, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A line for the top of the result, once. */
void weir__convert_head(struct weir__convert *convert, const char *text);
/* Writes the rule and empties it. `kept` false: only its notes, as a comment. */
void weir__convert_rule(struct weir__convert *convert, struct weir__new_rule *rule, bool kept);
/* Adds the name to identity, with a header as its source, if it is not there. */
void weir__convert_identity(struct weir__convert *convert, const char *name);

/* Checks rules by the library; errors_only: without its warnings. False after errors were printed. */
bool weir__convert_check(const char *name, const char *text, size_t len, bool errors_only);

/* Each adds the rules of one text, and warns of what it cannot convert. */
void weir__convert_descriptors(struct weir__convert *convert, const char *text, size_t len);
void weir__convert_nginx(struct weir__convert *convert, const char *text, size_t len);

/*
 * ---- Attributes, as the text between "${" and "}": client_ip, path, method, host, header:NAME, cookie:NAME,
 * query:NAME, or a name that the application gives; and conditions on them ----
 */

/* The attribute for a descriptor's key; `number` counts the entries of one key, from 1. */
const char *weir__attribute_for_key(const char *key, int number);
/* The attribute for a variable of nginx, without the dollar. *known false: nginx computes it (map, geo, set …). */
const char *weir__attribute_for_variable(const char *variable, size_t len, bool *known);
/* True for those that every request has. */
bool weir__attribute_is_always(const char *attribute);
/* True for a name that the application gives. */
bool weir__attribute_is_named(const char *attribute);

/*
 * Writes a line of `match`: a value with '*' anywhere ("": any), except its rivals, which other rules count. Nothing if
 * any value matches. False if this attribute cannot have the condition.
 */
bool weir__put_condition(struct weir__buffer *match, const char *attribute, const char *value,
                         const char *const *rivals, size_t rival_count);

/* "10.0.0.0/8" or "2001:db8::1" */
bool weir__is_network(const char *text);
/* A regular expression for the text itself, or with '*' for any run. */
const char *weir__regex(const char *text, bool stars);

/* ---- The configuration of nginx as a tree of directives ---- */

enum { WEIR__NGINX_ARGUMENTS = 32, WEIR__NGINX_DEPTH = 64 };

struct weir__directive {
    const char *arguments[WEIR__NGINX_ARGUMENTS]; /* the name first; more than these are left out */
    int count;
    int line;
    struct weir__directive *parent, *first, *next;
};

/* Reads a configuration: the members of `root` are the top of the file. False after an error was printed. */
bool weir__nginx_read(struct weir__directive *root, const char *file, const char *text, size_t len);

/* The next directive of the tree after `at`, in the order of the file; NULL at the end. */
const struct weir__directive *weir__nginx_next(const struct weir__directive *at);
/* True if it has this name. */
bool weir__directive_is(const struct weir__directive *directive, const char *name);
/* The value of a word "name=value", or NULL. */
const char *weir__directive_value(const struct weir__directive *directive, const char *name);
bool weir__directive_has(const struct weir__directive *directive, const char *word);

#endif
