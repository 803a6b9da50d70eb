/* weir convert: the places of nginx's configuration, servers and locations, as hosts and paths of rules. */
#ifndef WEIR_CLI_NGINX_PLACES_H
#define WEIR_CLI_NGINX_PLACES_H

#include "cli/convert.h"
#include "cli/nginx_conf.h"

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
