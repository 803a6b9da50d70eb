/*
 * Parses requests of the HTTP API. Everything in an item points into the JSON tree. Unknown fields are rejected: a
 * mistyped "cost" must not pass as 1.
 */
#ifndef WEIR_SERVICES_HTTP_READ_H
#define WEIR_SERVICES_HTTP_READ_H

#include <jansson.h>
#include <weir/weir.h>

#define WEIR__API_BATCH_MAX       1000
#define WEIR__API_DESCRIPTORS_MAX 256  /* of one item */
#define WEIR__API_ENTRIES_MAX     1024 /* of one item, in all its descriptors */
#define WEIR__API_KEY_MAX         1024 /* bytes of a direct item's key */
#define WEIR__API_COST_MAX        INT64_C(4294967295)

/* What is wrong with a request, and in which field. */
struct weir__api_fault {
    const char *code;
    char message[160];
    char field[96]; /* "": the body */
};

enum weir__api_kind { WEIR__API_RULES, WEIR__API_DESCRIPTORS, WEIR__API_DIRECT };

struct weir__api_item {
    enum weir__api_kind kind;
    bool dry_run;
    bool http;     /* the HTTP status reports a denial, too */
    bool has_cost; /* given by the caller */
    int64_t cost;  /* default 1 */

    const json_t *attributes, *headers; /* RULES; may be NULL */
    uint8_t peer[16];
    size_t peer_len;

    weir_text domain; /* DESCRIPTORS */
    const json_t *descriptors;

    weir_text key; /* DIRECT */
    weir_limit limit;
    int64_t quota, window_ns;
    weir_params params;
};

/* Initializes the limit of a direct item, or of a direct charge in a token. 0 or an error of the library. */
int weir__api_direct_limit(weir_params *params, weir_limit *limit);

/* Parses a JSON object; NULL, and the fault. The caller frees it by json_decref. */
json_t *weir__api_parse(weir_text body, struct weir__api_fault *fault);
/* Reads one item; `index` is its place in a batch, or -1. `more`: further allowed fields, NULL-terminated. */
bool weir__api_read_item(json_t *object, int index, const char *const *more, struct weir__api_item *item,
                         struct weir__api_fault *fault);
/* Fills in arrays of WEIR__API_DESCRIPTORS_MAX and WEIR__API_ENTRIES_MAX elements. */
size_t weir__api_descriptors(const struct weir__api_item *item, weir_descriptor *descriptors,
                             weir_descriptor_entry *entries);
/* The engine's attribute lookup in an item (weir_lookup). */
bool weir__api_lookup(void *item, enum weir_attribute_kind kind, weir_text name, weir_text *value);

/* ---- Fields ---- */

bool weir__api_only(const json_t *object, const char *const *known, int index, struct weir__api_fault *fault);
/* True if absent (*value is unchanged) or valid. */
bool weir__api_read_int(const json_t *object, const char *name, int64_t min, int64_t max, int index, int64_t *value,
                        struct weir__api_fault *fault);
bool weir__api_read_bool(const json_t *object, const char *name, int index, bool *value, struct weir__api_fault *fault);
/* Seconds, or a text such as "10m". */
bool weir__api_read_duration(const json_t *object, const char *name, int index, int64_t *ns,
                             struct weir__api_fault *fault);
/* Sets the fault. Always false. */
bool weir__api_wrong(struct weir__api_fault *fault, int index, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
