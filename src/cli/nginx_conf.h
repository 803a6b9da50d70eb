/* weir convert: nginx's configuration as a tree of directives. */
#ifndef WEIR_CLI_NGINX_CONF_H
#define WEIR_CLI_NGINX_CONF_H

#include "cli/convert.h"

enum { WEIR__NGINX_ARGUMENTS = 32, WEIR__NGINX_DEPTH = 64 };

struct weir__directive {
    char *arguments[WEIR__NGINX_ARGUMENTS]; /* the name first; more than these are left out */
    int count;
    int line;
    struct weir__directive *parent, *first, *next;
    struct weir__directive *older; /* of all that were made, to free them */
};

struct weir__nginx_conf {
    struct weir__directive root; /* its members are the top of the file */
    struct weir__directive *newest;
    const char *error; /* what is wrong, or NULL */
    int error_line;
};

/* False if it is no such configuration: error and error_line say why. Drop it in any case. */
bool weir__nginx_read(struct weir__nginx_conf *conf, const char *text, size_t len);
void weir__nginx_drop(struct weir__nginx_conf *conf);

/* The next directive of the tree after `at`, in the order of the file; NULL at the end. */
const struct weir__directive *weir__nginx_next(const struct weir__nginx_conf *conf, const struct weir__directive *at);
/* True if it has this name. */
bool weir__directive_is(const struct weir__directive *directive, const char *name);
/* The value of a word "name=value", or NULL. */
const char *weir__directive_value(const struct weir__directive *directive, const char *name);
bool weir__directive_has(const struct weir__directive *directive, const char *word);

/* ---- Servers and locations as hosts and paths of rules ---- */

enum weir__place_kind {
    WEIR__PLACE_ALL, /* a server, or its location "/" */
    WEIR__PLACE_PREFIX,
    WEIR__PLACE_EXACT,
    WEIR__PLACE_REGEX,
    WEIR__PLACE_NAMED /* "@name": no request comes here by itself */
};

struct weir__place_text {
    const struct weir__directive *block;
    enum weir__place_kind kind;
    const char *path; /* or the expression */
    bool nocase;      /* of the expression */
    char *hosts;      /* as YAML; "" for any */
    bool chosen;      /* the rule in the making is for this place */
};

struct weir__places {
    struct weir__place_text *list;
    size_t count;
};

/* False: no memory. */
bool weir__places_find(struct weir__places *places, const struct weir__nginx_conf *conf);
void weir__places_drop(struct weir__places *places);

/* The `path` of a rule for the chosen places, without the others of the same hosts. False: there is nothing to match.
 */
bool weir__put_places(struct weir__convert *convert, struct weir__new_rule *rule, const struct weir__places *places,
                      const char *hosts, int line);

#endif
