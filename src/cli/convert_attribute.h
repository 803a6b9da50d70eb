/* weir convert: from other limiters' names for attributes to weir's, and conditions on them. */
#ifndef WEIR_CLI_CONVERT_ATTRIBUTE_H
#define WEIR_CLI_CONVERT_ATTRIBUTE_H

#include "cli/convert.h"

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
void weir__put_template(struct weir__convert_buffer *to, const struct weir__attribute_name *name);

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
bool weir__put_condition(struct weir__convert_buffer *match, const struct weir__attribute_name *name,
                         const struct weir__condition_text *condition);

/* "10.0.0.0/8" or "2001:db8::1" */
bool weir__is_network(const char *text);
/* Regular expressions: the text itself, or with '*' for any run. */
void weir__put_regex(struct weir__convert_buffer *to, const char *text, bool stars);

#endif
