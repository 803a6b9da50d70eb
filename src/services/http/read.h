/*
 * Requests of the HTTP API: from JSON to what is asked. Everything in an item points into the tree that it was read
 * from. Fields that are not known are refused: a mistyped "cost" must not pass as 1.
 */
#ifndef WEIR_SERVICES_HTTP_READ_H
#define WEIR_SERVICES_HTTP_READ_H

#include <jansson.h>
#include <weir/weir.h>

#define WEIR__API_BATCH_MAX       1000
#define WEIR__API_DESCRIPTORS_MAX 256  /* of one item */
#define WEIR__API_ENTRIES_MAX     1024 /* of one item, in all its descriptors */
#define WEIR__API_KEY_MAX         1024 /* bytes of a key that is given directly */
#define WEIR__API_COST_MAX        INT64_C(4294967295)

/* What is wrong with a request, and where. */
struct weir__api_fault {
    const char *code;
    char message[160];
    char field[96]; /* "" if it is the whole */
};

enum weir__api_kind { WEIR__API_RULES, WEIR__API_DESCRIPTORS, WEIR__API_DIRECT };

struct weir__api_item {
    enum weir__api_kind kind;
    bool dry_run;
    bool http;     /* a denial is to be the status, too */
    bool has_cost; /* said by the caller */
    int64_t cost;  /* 1 unless said */

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

/* The limit of a direct item; also for those that were kept in a token. 0 or an error of the library. */
int weir__api_direct_limit(weir_params *params, weir_limit *limit);

/* Parses; NULL and the fault if it is no JSON object. The caller has to json_decref it. */
json_t *weir__api_parse(weir_text body, struct weir__api_fault *fault);
/* Reads one item; `index` is its place in a batch, or -1. `more`: fields, ended by NULL, that are allowed besides. */
bool weir__api_read_item(json_t *object, int index, const char *const *more, struct weir__api_item *item,
                         struct weir__api_fault *fault);
/* Fills in arrays of WEIR__API_DESCRIPTORS_MAX and WEIR__API_ENTRIES_MAX elements from an item that was read. */
size_t weir__api_descriptors(const struct weir__api_item *item, weir_descriptor *descriptors,
                             weir_descriptor_entry *entries);
/* The engine's questions to an item of attributes. */
bool weir__api_lookup(void *item, enum weir_attribute_kind kind, weir_text name, weir_text *value);

/* ---- Pieces that other requests use ---- */

bool weir__api_only(const json_t *object, const char *const *known, int index, struct weir__api_fault *fault);
/* True if absent (and *value untouched) or good. */
bool weir__api_read_int(const json_t *object, const char *name, int64_t min, int64_t max, int index, int64_t *value,
                        struct weir__api_fault *fault);
bool weir__api_read_bool(const json_t *object, const char *name, int index, bool *value, struct weir__api_fault *fault);
/* Seconds, or a text such as "10m". */
bool weir__api_read_duration(const json_t *object, const char *name, int index, int64_t *ns,
                             struct weir__api_fault *fault);
/* Always false. */
bool weir__api_wrong(struct weir__api_fault *fault, int index, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
