/*
 * The HTTP decision API without HTTP: a method, a path and a body in, a status and a body out. nginx brings the bytes.
 * docs/service-http.md describes it from outside. Which file does what:
 *
 *   read        JSON to what is asked          out, write   what is answered, as JSON
 *   check       check and refund               route        paths, keys in them, and what they lead to
 *   token      a reservation as a text        reservations the file that lets them expire
 *   reserve     reserve, commit, cancel        openapi      the description that is served
 *   flight      requests in flight: leases, release and renew
 *   memory      of JSON, while a call lasts
 */
#ifndef WEIR_SERVICES_HTTP_API_H
#define WEIR_SERVICES_HTTP_API_H

#include "services/http/json_out.h"
#include "services/http/read.h"
#include "services/http/reservations.h"

#include <weir/store.h>

#define WEIR__API_BODY_MAX (1u << 20)

/* Room for one call at a time; made once, so that calls need none of their own. */
struct weir__api_scratch {
    struct weir__api_item items[WEIR__API_BATCH_MAX];
    weir_request requests[WEIR__API_BATCH_MAX];
    weir_descriptor descriptors[WEIR__API_DESCRIPTORS_MAX];
    weir_descriptor_entry entries[WEIR__API_ENTRIES_MAX];
    weir_outcome outcomes[WEIR__API_DESCRIPTORS_MAX]; /* rules of a check are no more either */
    weir_permits held;                                /* by the last item that was decided */
};

/* One for each process; not to be used by two threads at once. */
struct weir__api {
    weir *engine;
    struct weir__reservations *reservations; /* NULL: nothing can be reserved */
    uint8_t token_key[WEIR_SECRET_BYTES];
    struct weir__api_scratch *room;
    weir_async *ask; /* for strict rules: what the call asks the store; or NULL */
    bool answered;   /* what it says is known; else a call that needs it only adds to `ask` what it must know */
    int failure;     /* the last call could not reach a counter: why */
    char failed_rule[WEIR_NAME_MAX + 1]; /* whose; on_store_failure decided. "": nobody did */
};

/* 0 or an error of the library. */
WEIR_MUST_CHECK int weir__api_open(struct weir__api *api, weir *engine, struct weir__reservations *reservations);
void weir__api_close(struct weir__api *api);

enum weir__api_method { WEIR__GET = 1, WEIR__POST = 2, WEIR__PUT = 4, WEIR__DELETE = 8, WEIR__OTHER_METHOD = 16 };

/* What is to be done. */
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

#define WEIR__API_RULE_MAX 1024 /* bytes of a name in a path; more cannot be one */

struct weir__api_route {
    enum weir__api_action action;
    bool operator_only;
    bool takes_body;
    unsigned allowed; /* methods, with NO_METHOD */
    /* Of keys: percent-decoded. */
    char rule[WEIR__API_RULE_MAX + 1];
    char key[WEIR__API_KEY_MAX];
    size_t key_len;
};

/* `path` is as it came, without the prefix of the location (/v1/) and without the query. */
void weir__api_find_route(enum weir__api_method method, weir_text path, struct weir__api_route *route);

struct weir__api_reply {
    int status;
    bool needs_store; /* nothing was done: the store is to be asked first, and then all of it is to be run again */
    struct weir__out out;
    /* With `http` a single decision is told in headers, too. */
    bool has_result;
    weir_result answer;
    const weir_outcome *outcomes; /* answer.outcomes of them */
};

/* Does what the route says. `status_wanted`: the query said so (?status=1). The reply's `out` must have begun. */
void weir__api_run(struct weir__api *api, const struct weir__api_route *route, weir_text body, bool status_wanted,
                   struct weir__api_reply *reply);
void weir__api_fail(struct weir__api_reply *reply, int status, const char *code, const char *message,
                    const char *field);

/*
 * Gives back reservations that nobody has settled in time; a bounded number at once. Returns how many. With api->ask
 * what the store gets back is added to it, and is to be asked.
 */
size_t weir__api_expire(struct weir__api *api);

/* ---- Between the files ---- */

void weir__api_check(struct weir__api *api, weir_text body, bool refund, bool status_wanted,
                     struct weir__api_reply *reply);
/* Decides one item. Outcomes go to the room. */
int weir__api_decide(struct weir__api *api, struct weir__api_item *item, weir_time now, weir_result *answer);
/* True if the store must be asked before the item can be decided; then it is in api->ask. */
bool weir__api_needs_store(struct weir__api *api, struct weir__api_item *item);
/* The answer to a direct item. */
void weir__api_direct_result(const struct weir__api_item *item, const weir_decision *decision, weir_time now,
                             weir_result *answer);
/* Keeps in the reply what `http` asks for. */
void weir__api_set_http(struct weir__api *api, const weir_result *answer, struct weir__api_reply *reply);

void weir__api_reserve(struct weir__api *api, weir_text body, bool status_wanted, struct weir__api_reply *reply);
void weir__api_settle(struct weir__api *api, weir_text body, bool cancel, struct weir__api_reply *reply);

void weir__api_release(struct weir__api *api, weir_text body, struct weir__api_reply *reply);
void weir__api_renew(struct weir__api *api, weir_text body, struct weir__api_reply *reply);
/* Members of an object: the lease of what room->held has, if it has anything. */
void weir__api_write_lease(struct weir__api *api, struct weir__out *out);

/* The members of a decision's object, without the braces. */
void weir__api_write_decision(struct weir__out *out, const weir_outcome *by, const weir_decision *decision);
/* An answer as an object, left open at its end for more members. */
void weir__api_write_result(struct weir__out *out, const weir_result *answer, const weir_outcome *outcomes);

extern const char weir__openapi[];
size_t weir__openapi_len(void);

#endif
