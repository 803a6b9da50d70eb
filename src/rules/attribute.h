/*
 * Attributes of a request: those that a rule set refers to, and their values for one request, each looked up at most
 * once and on demand.
 */
#ifndef WEIR_RULES_ATTRIBUTE_H
#define WEIR_RULES_ATTRIBUTE_H

#include "rules/address.h"
#include "rules/map.h"
#include "rules/report.h"
#include "rules/target.h"

#define WEIR__ATTRIBUTES_MAX 256 /* distinct attributes of one set */

enum weir__attribute_kind {
    WEIR__ATTR_PATH,
    WEIR__ATTR_METHOD,
    WEIR__ATTR_HOST,
    WEIR__ATTR_CLIENT_IP,
    WEIR__ATTR_HEADER, /* name in lower case */
    WEIR__ATTR_COOKIE,
    WEIR__ATTR_QUERY,   /* one argument, percent-decoded */
    WEIR__ATTR_SEGMENT, /* the Nth segment of the path, from 1 */
    WEIR__ATTR_NAMED    /* given by the application, else taken from its source of `identity` */
};

struct weir__mapping {
    struct weir__map *map;
    weir_text fallback; /* the value for those that the map does not have; empty: none */
};

struct weir__attribute {
    enum weir__attribute_kind kind;
    int segment;
    uint8_t form;   /* of a path and its segments: the normal form, WEIR__FORM_… */
    int16_t source; /* of a named one: the attribute that `identity` takes it from, or -1 */
    weir_text name;
    const struct weir__mapping *mapping; /* of the source's values to its own; NULL: they are the same */
};

/* The header in which proxies send the client's address. Both are forgeable unless a trusted proxy overwrites them. */
enum weir__forwarded_header {
    WEIR__FORWARDED_EITHER, /* X-Forwarded-For, or Forwarded if that is not there */
    WEIR__FORWARDED_X,
    WEIR__FORWARDED_STANDARD
};

/* The configuration of the client's address. */
struct weir__identity {
    const struct weir__networks *trusted; /* NULL: no proxy is trusted */
    int ipv4_prefix, ipv6_prefix;         /* 32 and 64 unless set */
    enum weir__forwarded_header forwarded_header;
};

/* All attributes of a set. Rules refer to them by index. */
struct weir__attributes {
    struct weir__attribute list[WEIR__ATTRIBUTES_MAX];
    int count;
    int arguments; /* number of kind WEIR__ATTR_QUERY */
    uint8_t form;  /* normal form of paths added next: that of the rule being read */
    struct weir__identity identity;
    struct weir__place first_use[WEIR__ATTRIBUTES_MAX]; /* in a rule, of named attributes; for warnings */
};

/* The index of an attribute, added if it is new; -1 if the table is full or there is no memory. */
int weir__attribute_add(struct weir__attributes *all, struct weir__arena *arena, enum weir__attribute_kind kind,
                        weir_text name, int segment);
/*
 * Parses "client_ip", "header:X-Plan", "cookie:sid", "query:q", "path:2" or "user_id". -1: an error was reported at
 * `place`. Other bare names are named attributes; one that resembles a built-in or well-known name is an error, unless
 * `identity` defines it.
 */
#define WEIR__SEGMENT_MAX 32 /* of path:N */
int weir__attribute_parse(struct weir__attributes *all, struct weir__arena *arena, struct weir__diagnostics *report,
                          struct weir__place place, weir_text text);

/* True for the name of a named attribute: [a-z_][a-z0-9_]*. */
bool weir__attribute_is_name(weir_text text);
/* True for built-in attributes, well-known names, and those of `identity`. */
bool weir__attribute_is_known(const struct weir__attributes *all, weir_text name);

/* True for the attribute, of `index` or none (-1), that is the header Content-Length. */
bool weir__attribute_is_length(const struct weir__attributes *all, int index);

#define WEIR__PATH_MAX     4096 /* bytes of a path that are evaluated */
#define WEIR__ARGUMENT_MAX 1024 /* bytes of an argument's value; less in a set that uses more than four arguments */
#define WEIR__HOST_MAX     256  /* bytes of a host; DNS names are shorter */
#define WEIR__METHOD_MAX   32   /* bytes of a method */

/*
 * One request's values, on the stack of weir_check; begin with weir__values_begin. Do not copy. Large, but a request
 * touches only what it uses: the fields that every request needs come first.
 */
struct weir__values {
    const struct weir__attributes *all;
    const weir_query *query;
    uint64_t looked[WEIR__ATTRIBUTES_MAX / 64]; /* bit set: `value` has the value, or is empty */
    enum { WEIR__CLIENT_UNKNOWN, WEIR__CLIENT_KNOWN, WEIR__CLIENT_NONE } client_state;
    bool have_target, have_path, have_arguments, have_cookies;
    bool path_cut;     /* `path` was cut */
    bool two_readings; /* a path parameter of the target may contain %2F: spelling 1 may differ */
    uint32_t scratch_used;
    uint64_t cut[WEIR__ATTRIBUTES_MAX / 64], several[WEIR__ATTRIBUTES_MAX / 64]; /* set by weir__value_find */
    struct weir__address client;                                                 /* ungrouped */
    weir_text target;    /* WEIR_ATTR_TARGET; empty: not given */
    weir_text path;      /* as given, or the target's; empty: neither was given */
    weir_text full_path; /* `path`, not cut if it was given */
    weir_text arguments; /* the raw query string */
    weir_text cookies;   /* the Cookie header */
    char client_text[WEIR__ADDRESS_TEXT];
    weir_text value[WEIR__ATTRIBUTES_MAX];
    char method[WEIR__METHOD_MAX], host[WEIR__HOST_MAX];
    char path_room[WEIR__PATH_MAX];       /* of the target, normalised; nothing else can use it up */
    char form_room[WEIR__PATH_MAX];       /* the normal form of the path that was computed last */
    char scratch[4 * WEIR__ARGUMENT_MAX]; /* arguments that had to be decoded: an equal part for each that is used */
};

void weir__values_begin(struct weir__values *values, const struct weir__attributes *all, const weir_query *query);
/* Slow path of weir__value: looks the attribute up. */
bool weir__value_find(struct weir__values *values, int attribute, weir_text *value);

/* True if the request has the attribute, and it is not empty. */
static inline bool weir__value(struct weir__values *values, int attribute, weir_text *value)
{
    uint64_t bit = UINT64_C(1) << (attribute & 63);
    if (!(values->looked[attribute >> 6] & bit))
        return weir__value_find(values, attribute, value);
    *value = values->value[attribute];
    return value->len > 0;
}

/* True if the value that weir__value found, or missed, was cut. */
static inline bool weir__value_is_cut(const struct weir__values *values, int attribute)
{
    return values->cut[attribute >> 6] >> (attribute & 63) & 1;
}

/* True if weir__value found several cookies or arguments of one name with different values. */
static inline bool weir__value_is_several(const struct weir__values *values, int attribute)
{
    return values->several[attribute >> 6] >> (attribute & 63) & 1;
}

/*
 * The distinct values of an attribute that has several. Upstream servers take the first, the last or all of them, so
 * rules consider all.
 */
#define WEIR__SEVERAL_MAX 8 /* evaluated; a request with more is decided on the safe side */
struct weir__several {
    size_t count; /* at most WEIR__SEVERAL_MAX */
    bool more;    /* than that */
    size_t most;  /* bytes of an argument; 0: these are cookies */
    int attribute;
    const struct weir__attributes *all;
    weir_text raw[WEIR__SEVERAL_MAX];
    char room[WEIR__ARGUMENT_MAX];
};
void weir__value_several(struct weir__values *values, int attribute, struct weir__several *several);
/* One value, which may be empty; valid until the next call. */
weir_text weir__several_value(struct weir__several *several, size_t number, bool *cut);

/*
 * Describes an attribute that a request lacks, or whose value has no entry in a map or no tier, by what the client
 * sends: "header x-api-key", "header x-api-key with a known value". True if it is a credential: user_id, api_key or the
 * header Authorization or X-API-Key.
 */
bool weir__value_missing_text(struct weir__values *values, int attribute, char *text, size_t size);

/* The path; empty: neither it nor the target was given. */
weir_text weir__value_path(struct weir__values *values);

/* The path in a normal form. */
struct weir__spelling {
    weir_text text;
    bool cut;
    char room[WEIR__PATH_MAX];
};
/*
 * Number 0 is the normal form of the path. Number 1 is that of the target with its path parameters removed before
 * decoding, if that may differ: servers do either, so rules apply to both. False: there is no such spelling.
 */
enum { WEIR__SPELLINGS = 2 };
bool weir__value_spelling(struct weir__values *values, unsigned form, int number, struct weir__spelling *spelling);
/* False if the path equals its normal form for every option in `form`. */
bool weir__value_is_spelled(struct weir__values *values, unsigned form);
/*
 * The request's id: the named attribute `request_id`, or with `header` the header X-Request-ID. Empty: it has none. For
 * logs: the lookup of a header may change what the upstream gets, where it has several lines.
 */
weir_text weir__value_request_id(struct weir__values *values, bool header);
/* The client's address, ungrouped; NULL if there is none. */
const struct weir__address *weir__value_client(struct weir__values *values);
/* The network of the client, by the prefixes of `identity`. Returns the length of its prefix; 0: unknown. */
int weir__value_client_group(struct weir__values *values, struct weir__address *group);

#endif
