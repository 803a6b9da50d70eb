/* weir convert: nginx's configuration as a tree of directives. */
#ifndef WEIR_CLI_NGINX_CONF_H
#define WEIR_CLI_NGINX_CONF_H

#include <stdbool.h>
#include <stddef.h>

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

#endif
