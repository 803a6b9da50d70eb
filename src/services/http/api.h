/*
 * The HTTP decision API without HTTP. docs/reference/http.md describes it for its users. The way of a call:
 *
 *   nginx/http/ngx_http_weir_api.c   authenticates the caller, reads the body
 *     weir__api_find_route           route.c: method and path to an action (and rule and key)
 *     weir__api_run                  route.c: runs it
 *       read.c                       parses the JSON body into items, from an arena
 *       check.c                      check, refund: one item or a batch; release, renew of leases
 *       reserve.c                    reserve, commit, cancel; reservations.c: tokens and their file
 *       route.c                      state, reset, block of one key
 *       write.c                      the reply as JSON
 *   ngx_http_weir_api.c              sends status, headers and body
 *
 * Strict rules: if the store must reply first, the call only collects the requests in api->async and sets
 * reply->needs_store. nginx sends them and, when the replies are there, runs the same call again (store_replied).
 * A timer of nginx calls weir__api_expire for reservations that were never settled.
 */
#ifndef WEIR_SERVICES_HTTP_API_H
#define WEIR_SERVICES_HTTP_API_H

#include "base/json_writer.h"

#include "services/http/reservations.h"

#include <jansson.h>
#include <weir/store.h>

/* ---- Requests (read.c) ---- */

#define WEIR__API_BODY_MAX        (1u << 20)
#define WEIR__API_BATCH_MAX       1000
#define WEIR__API_DESCRIPTORS_MAX 256  /* of one item */
#define WEIR__API_ENTRIES_MAX     1024 /* of one item, in all its descriptors */
#define WEIR__API_KEY_MAX         1024 /* bytes of a direct item's key */
#define WEIR__API_COST_MAX        INT64_C(4294967295)

/* Kinds of bodies: which fields they have. */
enum weir__api_kind {
    WEIR__API_RULES = 1, /* kinds of items */
    WEIR__API_DESCRIPTORS = 2,
    WEIR__API_DIRECT = 4,
    WEIR__API_ANY_ITEM = 7,
    WEIR__API_TO_RESERVE = 8, /* in addition to the kind of an item */
    WEIR__API_BATCH = 16,
    WEIR__API_LEASE = 32,
    WEIR__API_TO_COMMIT = 64,
    WEIR__API_TO_CANCEL = 128,
    WEIR__API_TO_BLOCK = 256
};

/* A body, or an item of a batch; its texts point into the JSON tree. */
struct weir__api_item {
    enum weir__api_kind kind;
    bool dry_run;
    bool http;     /* the HTTP status reports a denial, too */
    bool has_cost; /* given by the caller */
    int64_t cost;  /* default 1 */

    json_t *attributes;    /* RULES; may be NULL */
    const json_t *headers; /* of the attributes; may be NULL */
    uint8_t peer[16];
    size_t peer_len;

    weir_text domain;   /* DESCRIPTORS */
    const json_t *list; /* descriptors; BATCH: items */

    weir_text text; /* DIRECT: the key; LEASE, TO_COMMIT, TO_CANCEL: the token */
    weir_limit limit;
    weir_params params; /* of the limit */

    int64_t expires_s; /* TO_RESERVE */
    int64_t for_ns;    /* TO_BLOCK */
};

/* Initializes the limit of a direct item, or of a direct charge in a token. 0 or an error of the library. */
int weir__api_direct_limit(weir_params *params, weir_limit *limit);

struct weir__api_reply;
/* Parses a JSON object; NULL: the reply has the error. The caller frees it by json_decref. */
json_t *weir__api_parse(weir_text body, struct weir__api_reply *reply);
/*
 * Reads the fields of these kinds (enum weir__api_kind). Rejects others, as a mistyped "cost" must not pass as 1.
 * False: the reply has the error.
 */
bool weir__api_read(json_t *object, unsigned kinds, struct weir__api_item *item, struct weir__api_reply *reply);
/* Reads an item whose kind is found by its fields; `more`: WEIR__API_TO_RESERVE or 0. False: the reply has the error.
 */
bool weir__api_read_item(json_t *object, unsigned more, struct weir__api_item *item, struct weir__api_reply *reply);
/* Fills in arrays of WEIR__API_DESCRIPTORS_MAX and WEIR__API_ENTRIES_MAX elements. */
size_t weir__api_descriptors(const struct weir__api_item *item, weir_descriptor *descriptors,
                             weir_descriptor_entry *entries);
/* The engine's attribute lookup in an item (weir_lookup). */
bool weir__api_lookup(void *item, enum weir_attribute_kind kind, weir_text name, weir_text *value);

/* Replies 400: a field of the body, or of the item at reply->index, is wrong. Always false. */
bool weir__api_wrong(struct weir__api_reply *reply, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- Replies (write.c) ---- */

/* Replaces the content by {"error":{"code","message","field"}}; `field` may be NULL. */
void weir__api_write_error(struct weir__buffer *out, const char *code, const char *message, const char *field);
/* Replies with an error. Always false. */
bool weir__api_fail(struct weir__api_reply *reply, int status, const char *code, const char *message,
                    const char *field);

/* ---- The API ---- */

/* Memory of one call at a time, allocated once. */
struct weir__api_scratch {
    struct weir__api_item items[WEIR__API_BATCH_MAX];
    weir_request requests[WEIR__API_BATCH_MAX];
    weir_descriptor descriptors[WEIR__API_DESCRIPTORS_MAX];
    weir_descriptor_entry entries[WEIR__API_ENTRIES_MAX];
    weir_outcome outcomes[WEIR__API_DESCRIPTORS_MAX]; /* a check has no more rules either */
    weir_permits permits;                             /* of the last item that was decided */
};

/* One for each process; not thread-safe. */
struct weir__api {
    weir *engine;
    struct weir__reservations *reservations; /* NULL: reservations are off */
    uint8_t token_key[WEIR_SECRET_BYTES];
    struct weir__api_scratch *scratch;
    const struct weir__api_route *route; /* of the call */
    json_t *body;                        /* parsed; NULL: the action takes none */
    bool status_wanted;                  /* as of weir__api_run */
    weir_async *async;                   /* requests to the store, for strict rules; or NULL */
    bool store_replied;                  /* their replies are in `async` */
    int failure;                         /* error of the last call's unavailable counter, for the log */
    char failed_rule[WEIR_NAME_MAX + 1]; /* its rule, for which on_store_failure decided; "": the call is undecided */
};

/* 0 or an error of the library. */
WEIR_MUST_CHECK int weir__api_open(struct weir__api *api, weir *engine, struct weir__reservations *reservations);

enum weir__api_method { WEIR__GET = 1, WEIR__POST = 2, WEIR__PUT = 4, WEIR__DELETE = 8, WEIR__OTHER_METHOD = 16 };

enum weir__api_action {
    WEIR__API_CHECK,
    WEIR__API_REFUND,
    WEIR__API_RESERVE,
    WEIR__API_COMMIT,
    WEIR__API_CANCEL,
    WEIR__API_RELEASE,
    WEIR__API_RENEW,
    WEIR__API_OPENAPI,
    WEIR__API_STATE,
    WEIR__API_RESET,
    WEIR__API_BLOCK,
    WEIR__API_UNBLOCK,
    WEIR__API_NO_PATH,  /* 404 */
    WEIR__API_NO_METHOD /* 405 */
};

#define WEIR__API_RULE_MAX 1024 /* bytes; longer names cannot be a rule's */

struct weir__api_route {
    enum weir__api_action action;
    bool operator_only;
    bool takes_body;
    unsigned allowed; /* methods, for NO_METHOD */
    /* Of actions on a key; percent-decoded. */
    char rule[WEIR__API_RULE_MAX + 1];
    char key[WEIR__API_KEY_MAX + 1];
    size_t key_len;
};

/* `path`: unparsed, without the location's prefix (/v1/) and the query. */
void weir__api_find_route(enum weir__api_method method, weir_text path, struct weir__api_route *route);

struct weir__api_reply {
    int status;
    bool needs_store; /* nothing was done: send api->async to the store, then run the call again */
    int index;        /* of the item that is read, in the batch; -1: there is no batch */
    struct weir__buffer out;
    /* With `http`: the decision, for the headers. */
    bool has_result;
    weir_result result;
    const weir_outcome *outcomes; /* result.outcomes of them */
};

/* Runs the action. `status_wanted`: ?status=1, as `http` in the body. reply->out must have begun. */
void weir__api_run(struct weir__api *api, const struct weir__api_route *route, weir_text body, bool status_wanted,
                   struct weir__api_reply *reply);

/*
 * Decides one request by the rules, as a check with `dry_run` does: takes and counts nothing. Besides, the reply has
 * `shadow_denied`, and the `status` that the gateway would send. Thread-safe, without weir__api_open. The store's
 * replies are waited for. reply->out must have begun.
 */
void weir__api_try(weir *engine, weir_text body, struct weir__api_reply *reply);

/*
 * Refunds expired reservations, a bounded number at once; returns how many. Refunds in the store are added to
 * api->async, which the caller sends.
 */
size_t weir__api_expire(struct weir__api *api);

/* ---- The arena of JSON (read.c) ---- */

/* Makes jansson allocate from here, in all of the process; only one thread may be between begin and end. */
void weir__api_memory_use(void);
/* Between these, allocations come from a static arena, then from malloc. What is allocated must be freed between them.
 */
void weir__api_memory_begin(void);
void weir__api_memory_end(void);

/* ---- Actions on api->route and api->body ---- */

void weir__api_check(struct weir__api *api, struct weir__api_reply *reply); /* and refund */
void weir__api_lease(struct weir__api *api, struct weir__api_reply *reply); /* release, renew */
void weir__api_reserve(struct weir__api *api, struct weir__api_reply *reply);
void weir__api_settle(struct weir__api *api, struct weir__api_reply *reply); /* commit, cancel */

/* True if requests to the store are to be collected in api->async. */
static inline bool weir__api_collects(const struct weir__api *api)
{
    return api->async && !api->store_replied;
}
/* True if the store must reply before the item can be decided; the request is in api->async. */
bool weir__api_needs_store(struct weir__api *api, struct weir__api_item *item);
/* Decides one item; the outcomes are in the scratch memory. */
int weir__api_decide(struct weir__api *api, struct weir__api_item *item, weir_time now, weir_result *result);
/* Sets status and decision of the reply, for `http`. */
void weir__api_set_http(struct weir__api *api, const weir_result *result, struct weir__api_reply *reply);

/* The members of a decision's object, without the braces: for an operator, with the figures of a blocked key. */
void weir__api_write_decision(struct weir__buffer *out, const weir_outcome *by, const weir_decision *decision);
/* An object of the decision, its rules, and its lease if there is one; left open for more members. */
void weir__api_write_result(struct weir__api *api, struct weir__buffer *out, const weir_result *result);
/* The members "lease" and "lease_s", if scratch->permits has any. */
void weir__api_write_lease(struct weir__api *api, struct weir__buffer *out);

#endif
