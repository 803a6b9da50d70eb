/* Internal to src/control: the service, the context of one REST request, and helpers of the handlers. */
#ifndef WEIR_CONTROL_CALL_H
#define WEIR_CONTROL_CALL_H

#include "control/control.h"
#include "control/document.h"
#include "control/fair_lock.h"

#include <pthread.h>

/* ---- The service ---- */

#define WEIR__DIGEST_TEXT 65 /* SHA-256 in hexadecimal, and a zero byte */

/* The published set. */
struct weir__published_rules {
    int64_t revision; /* 0: nothing was ever published */
    int64_t at_ms;
    char digest[WEIR__DIGEST_TEXT];
    char known_as[WEIR__DIGEST_TEXT]; /* its digest in the database, which differs if another version of weir joined the
                                         text */
    char *text;
    size_t len;
};

#define WEIR__TOKEN_ID           24
#define WEIR__DRY_RUNS_MAX       8 /* read-only requests that compile or wait to, in total */
#define WEIR__DRY_RUNS_PER_TOKEN 2 /* per token, including its sessions */

struct weir__control {
    char *url;
    const struct weir__control_host *host;
    int64_t session_ms;        /* how long a session lasts */
    bool login_links;          /* they are made and accepted */
    enum weir__role key_texts; /* the least role that sees the texts of keys */

    struct weir__fair_lock compile_lock;  /* compiling for requests that write; taken without database_lock */
    struct weir__fair_lock dry_run_lock;  /* compiling for read-only requests, which never delay a publication */
    struct weir__fair_lock database_lock; /* protects the next fields */
    struct weir__db *db;                  /* NULL: could not be opened yet */
    int64_t tried_ms;                     /* when opening it was tried last */
    int error;                            /* why it is unavailable, which was logged; 0: it is available */
    int64_t unusable;                     /* revision of the database of which that was logged */
    bool unwritable;                      /* the file for the workers could not be written, which was logged */
    weir_segment *throttle;               /* counters of wrong tokens and of sessions */
    struct weir__files_view *files;       /* the rules are in files, and requests about rules are served from there */
    const struct weir__files_view *shows; /* this is the service in memory that such a view has */

    pthread_mutex_t published_lock; /* protects the fields below; never waits for the database */
    char dry_runs[WEIR__DRY_RUNS_MAX]
                 [WEIR__TOKEN_ID]; /* tokens whose requests hold or wait for dry_run_lock; "": free */
    struct weir__published_rules published;
    char *path;   /* of the file for the workers; NULL: none */
    bool written; /* the file has the published set */
    bool up;      /* the last access to the database succeeded */
    bool stale;   /* the database is older than the published set: it was restored from an old copy */
};

/* Records for the health check whether the database is available. */
void weir__control_note(struct weir__control *control, bool up);

/* True if the database is open; opens it if a retry is due. Clears its error. The database lock must be held. */
bool weir__control_ready(struct weir__control *control);

void weir__control_log(const struct weir__control *control, enum weir__log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Logs that the database is unavailable (an error and `why`), or available again: each change once. The database lock
 * must be held. */
void weir__control_state(struct weir__control *control, int error, const char *why);

/* ---- The published set: in memory for hosts that poll it, in a file for this host's workers ---- */

/* Loads the file, if it exists and its digest matches. */
void weir__published_load(struct weir__control *control);
/* Publishes a revision, which is `known_as` this digest in the database: takes the set's text over, and writes the
 * file.
 */
void weir__published_set(struct weir__control *control, int64_t revision, int64_t at_ms, const char *known_as,
                         struct weir__set *set);
/* Writes the file again if the last write failed. */
void weir__published_retry(struct weir__control *control);
/* Takes over the database's newest revision if it is newer than the published set. The database lock must be held. */
void weir__published_follow(struct weir__control *control);

/* ---- Rules in files (files.c) ---- */

/*
 * The documents of rule files, in a service in memory that is replaced as a whole when a file changes: its handlers
 * serve the requests. It keeps no history. If the files have errors it keeps the documents before, as the workers do.
 */
struct weir__files_view {
    const struct weir__named_rules *named;
    struct weir__control *memory;
    struct weir__fingerprint seen; /* of the files that were read last */
    bool read;                     /* they were read at least once */
    uint64_t shown;                /* a hash of the files that are shown; 0: none yet */
    /* Protected by the database lock of `memory`: */
    json_t *places; /* {file, line} of each document by name */
    json_t *errors; /* of the files as they are now; empty: the documents are theirs */
};

/* NULL: no memory. */
struct weir__files_view *weir__files_view_open(const struct weir__named_rules *named,
                                               const struct weir__control_host *host);
void weir__files_view_close(struct weir__files_view *view);
/* Reads the files again if they have changed. For one thread. */
void weir__files_view_tick(struct weir__files_view *view);
/* Adds {file, line} of a document to an object about it. */
void weir__add_place(const struct weir__control *control, const char *name, json_t *object);

/* ---- Requests ---- */

const char *weir__role_name(enum weir__role role);
/* WEIR__NOBODY if there is none of this name. */
enum weir__role weir__role_of(const char *name);

#define WEIR__PARAMS     2
#define WEIR__PARAM_MAX  1024
#define WEIR__REASON_MAX 1000
#define WEIR__WHO_MAX    128

/*
 * One request. A function that refuses it replies by weir__fail and returns false; only the first refusal counts, so
 * that a handler may read several parameters and check `failed` once. An error of the database replaces the reply at
 * the end.
 */
struct weir__call {
    struct weir__control *control;
    struct weir__db *db; /* NULL: the call does not hold the database lock */
    const struct weir__rest_request *request;
    struct weir__rest_reply *reply;
    char param[WEIR__PARAMS][WEIR__PARAM_MAX + 1]; /* of the path, decoded, without zero bytes inside */
    char who[WEIR__WHO_MAX];
    char token_id[WEIR__TOKEN_ID]; /* the token's id; "" for a local command */
    enum weir__role role;
    int64_t session_expires_ms; /* 0: not by a session */
    int64_t now_ms;
    bool failed;              /* a refusal was replied */
    struct weir__arena arena; /* texts and documents that live as long as the call */
    json_t *query;            /* parameters of the query, as texts */
    json_t *body;             /* of the request, if it was read as JSON */
    json_t *problems;         /* errors and warnings of documents */
    bool has_compute_lock;    /* holds a compute lock, between weir__work_begin and weir__work_end */
    bool only_reads;          /* the route writes nothing: it computes under dry_run_lock */
    char *dry_run;            /* its entry in control->dry_runs; NULL: none */
};

/* A call without a route, which the caller closes. It has no lock. */
struct weir__call weir__call_open(struct weir__control *control, const struct weir__rest_request *request,
                                  struct weir__rest_reply *reply);
void weir__call_close(struct weir__call *call);

/*
 * weir__call_take_database takes the database lock; false: refused.
 *
 * A request must not do slow work (parsing, compiling, comparing, store access) while it holds the database lock.
 * weir__call_release_database releases it. weir__work_begin releases it and takes a compute lock: one writing and one
 * read-only request compute at a time, so that a client with many expensive requests uses one processor and read-only
 * requests never delay a publication. weir__work_end takes the database lock again. False: refused, also earlier.
 */
WEIR_MUST_CHECK bool weir__call_take_database(struct weir__call *call);
bool weir__call_release_database(struct weir__call *call);
WEIR_MUST_CHECK bool weir__work_begin(struct weir__call *call);
WEIR_MUST_CHECK bool weir__work_end(struct weir__call *call);

/* ---- Reading the request ---- */

/* A copy that lives as long as the call; "" without memory, which refuses the request. */
const char *weir__call_copy(struct weir__call *call, weir_text text);
/* Decodes the query into call->query. Refuses values that are not UTF-8 without control characters, and long ones. */
WEIR_MUST_CHECK bool weir__query_read(struct weir__call *call);
/* A query parameter; "" if it is missing. Refuses more than `max` bytes. */
const char *weir__query_text(struct weir__call *call, const char *name, size_t max);
/* A numeric query parameter, or `otherwise` if it is missing. Refuses numbers out of bounds. */
int64_t weir__query_number(struct weir__call *call, const char *name, int64_t least, int64_t most, int64_t otherwise);
/* The reason of a change: from the body, the header or the query. Refuses a long one. */
const char *weir__call_reason(struct weir__call *call);
/* Parses a duration such as "30d"; false for anything else, and for less than 1 ms. */
WEIR_MUST_CHECK bool weir__parse_span(const char *text, int64_t *ms);
/* Reads the body as an object of JSON with only these members ("a|b|c"); an empty body is an empty object. */
WEIR_MUST_CHECK bool weir__call_json(struct weir__call *call, const char *members);
/* A member of the body that is a text; NULL: none. */
const char *weir__body_text(const struct weir__call *call, const char *member);
/* True if a word is one of a list: "a|b|c". */
bool weir__is_one_of(const char *word, const char *list);
bool weir__is_yaml(weir_text type);

/* ---- Replying ---- */

/* These return true, for handlers. */
bool weir__reply_json(struct weir__call *call, int status, json_t *body); /* takes the body over */
bool weir__reply_text(struct weir__call *call, int status, const char *type, weir_text text);
bool weir__reply_status(struct weir__call *call, int status);
void weir__reply_header(struct weir__call *call, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void weir__reply_etag(struct weir__call *call, int64_t version);
/* Refuses the request: {error: {code, message}}. Always returns false. */
bool weir__fail(struct weir__call *call, int status, const char *code, const char *message, ...)
    __attribute__((format(printf, 4, 5)));
/* Refuses with 503, and rolls back. */
bool weir__fail_memory(struct weir__call *call);
/* 422 with call->problems as error.errors. */
bool weir__fail_invalid(struct weir__call *call, const char *message);
/*
 * Replies with a page of a list, newest first. `sql` takes the number to continue below as $1, the page size as $2 and
 * `name` (may be NULL), which the reply repeats, as $3. `columns` are those of weir__row_object; the first one is the
 * number that the next page continues from. `edit` (may be NULL) changes each item.
 */
bool weir__reply_page(struct weir__call *call, const char *sql, const char *name, const char *columns,
                      void (*edit)(const struct weir__call *call, json_t *item));

json_t *weir__json_time(int64_t ms);
json_t *weir__text_json(weir_text text);
/*
 * The row as an object. `columns` has a word for each column: its kind, a colon, and the name of the member. Kinds: s
 * text, i number, b boolean, t time, j JSON; NULL is null but for texts.
 */
json_t *weir__row_object(const struct weir__db *db, const char *columns);
/* The rows that are left as an array of objects; the last one stays current. */
json_t *weir__rows_json(struct weir__db *db, const char *columns);
json_t *weir__number_or_null(int64_t number); /* 0: null */

/* Keys may be personal data: admin.key_texts has the least role that sees them. */
bool weir__sees_keys(const struct weir__call *call);
/* "~" and the hash by which hot keys are listed; "~" alone without counters. */
json_t *weir__hidden_key(const struct weir__call *call, weir_text key);

/* ---- Documents and publications ---- */

/* Adds an entry to the audit log, within a transaction. Takes `details` over. */
void weir__audit(struct weir__call *call, const char *action, const char *object, json_t *details);

struct weir__stored {
    char name[WEIR__DOCUMENT_NAME];
    enum weir__document_kind kind;
    int64_t version, enforced, shadow; /* 0: none */
    bool deleted;
};

/* Makes ASCII letters small, for searching. */
void weir__fold(char *text);
/* Refuses with 404. */
bool weir__fail_no_document(struct weir__call *call);
/* `version` is 0 if there is no such document. */
struct weir__stored weir__stored_find(struct weir__db *db, const char *name);
/* Adds a version; the document's row is made or changed with it. */
void weir__stored_add(struct weir__call *call, const struct weir__document *document, int64_t version,
                      const char *reason, bool deleted);
/* The text of a version, which lives as long as the call; NULL: there is none, or it marks a deletion. */
const char *weir__stored_text(struct weir__call *call, const char *name, int64_t version);
/* Stores the enforced and the shadow version. */
void weir__stored_set_stage(struct weir__db *db, const struct weir__stored *document);

/*
 * Publishes a new revision of the set. weir__publication_run calls `change` in a transaction: it changes stages, and
 * calls weir__publication_make; if that returns true it adds audit entries. The first attempt rolls back with
 * `unchecked`; the set is compiled without the database lock, and `change` runs again. That repeats if another
 * publication came between; the last attempt compiles within the transaction.
 */
struct weir__publication {
    struct weir__set set;
    int64_t revision;
    const char *reason;
    char digest[WEIR__DIGEST_TEXT];
    const json_t *about;             /* documents whose warnings are wanted (weir__set_compile); NULL: none */
    bool unchecked;                  /* the set must be compiled first */
    char checked[WEIR__DIGEST_TEXT]; /* digest of the last set that compiled, and its number of rules */
    size_t rules;
    bool compiled; /* the rules were compiled before, and `rules` is known */
    bool last;     /* last attempt: compile within the transaction */
    bool guarded;  /* refuse if the database is older than the published set */
};

typedef void weir__publication_step(struct weir__call *call, struct weir__publication *made, void *context);
/* True: committed, and published if there is a revision. The caller frees `made`. */
bool weir__publication_run(struct weir__call *call, weir__publication_step *change, void *context,
                           struct weir__publication *made);
/* Joins the staged documents. True: the set is known to compile; its revision was added, and which documents differ. */
bool weir__publication_make(struct weir__call *call, struct weir__publication *made);
/* The set of a revision; revision 0: of the documents as they are staged now. Not finished if it fails. */
void weir__set_of(struct weir__db *db, int64_t revision, struct weir__set *set);

/* ---- Authentication ---- */

/* Sets `who` and `role` by the request's token or cookie. False: refused. */
bool weir__authenticate(struct weir__call *call);
/* False: a page of another site sent the request, by its Origin header. */
bool weir__is_own_page(const struct weir__call *call);
/* Checks a token and sets `who` and `role`. False: it is not valid. */
bool weir__token_check(struct weir__call *call, weir_text token);
/*
 * A login link opens one session, within WEIR__LINK_MS. It is a token of its own, which nothing else accepts: its text
 * lacks the prefix of other tokens, its salt begins with WEIR__LINK_SALT, and its use empties its hash.
 */
#define WEIR__LINK_MS   INT64_C(300000)
#define WEIR__LINK_SALT "link:"
/* Uses a login link up, and sets `who` and `role`. False: it is not valid, or was used. */
bool weir__link_take(struct weir__call *call, weir_text link);
/* The value of the session's cookie; empty if there is none. */
weir_text weir__cookie_of(weir_text cookies);
/* The SHA-256 of salt and text in hexadecimal. `hash` has room for WEIR__DIGEST_TEXT. */
void weir__digest(const char *salt, const char *text, size_t len, char *hash);
/* `bytes` random bytes in hexadecimal or base64url. Refuses the request if the system has none. */
WEIR_MUST_CHECK bool weir__random_hex(struct weir__call *call, char *to, size_t bytes);
WEIR_MUST_CHECK bool weir__random_word(struct weir__call *call, char *to, size_t bytes);

/* Counts a wrong token (weir_auth_failure) and refuses with 401, or 429 while tokens of its address are delayed. */
bool weir__fail_wrong_token(struct weir__call *call, const char *message);

/* ---- Routes ---- */

/* False: refused. */
typedef bool weir__handler(struct weir__call *call);

struct weir__rest_route {
    const char *method;
    const char *path; /* with {name} for a segment, and {key} for the rest */
    enum weir__role role;
    bool no_database; /* served also without a database */
    weir__handler *run;
};

extern const struct weir__rest_route weir__routes[];
extern const size_t weir__route_count;
/* True if it is about documents and revisions: with rules in files, it is served from there, or refused. */
bool weir__route_is_of_rules(const struct weir__rest_route *route);

weir__handler weir__rest_list, weir__rest_create, weir__rest_get, weir__rest_update, weir__rest_delete,
    weir__rest_versions, weir__rest_diff, weir__rest_rollback, weir__rest_publish, weir__rest_publish_many,
    weir__rest_validate, weir__rest_published, weir__rest_revisions, weir__rest_revision, weir__rest_revision_rollback,
    weir__rest_key_state, weir__rest_key_reset, weir__rest_key_block, weir__rest_key_unblock, weir__rest_key_take,
    weir__rest_keys, weir__rest_blocks, weir__rest_tokens, weir__rest_token_create, weir__rest_token_revoke,
    weir__rest_audit, weir__rest_link_create, weir__rest_session_create, weir__rest_session_get,
    weir__rest_session_delete, weir__rest_stats, weir__rest_history, weir__rest_hot, weir__rest_advice,
    weir__rest_denied, weir__rest_hosts, weir__rest_check, weir__rest_openapi, weir__rest_health, weir__rest_queue_list,
    weir__rest_queue_stats, weir__rest_queue_get, weir__rest_queue_cancel, weir__rest_queue_requeue;

#endif
