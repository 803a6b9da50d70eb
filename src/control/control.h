/*
 * The rules service: rules as versioned documents in a database, published as one set; its REST API, its HTTP listener,
 * and the poller of other hosts. docs/reference/rest.md describes the API.
 *
 *   database, sqlite, postgres, schema   storage
 *   document, diff      one document's text; how two of them differ
 *   set                 documents joined to one text; its errors mapped back to their lines
 *   split*              rule files split into documents
 *   stored, stage       document versions; their stage: draft, shadow, enforced
 *   publish             revisions of the set
 *   published           the published set, in memory and in a file that outlives the database
 *   token                   authentication, and the delay of wrong tokens
 *   rest*, call         (method, path, headers, body) to (status, headers, body)
 *   admin_listener      that over HTTP, and the dashboard
 *   import              rule files imported into an empty database
 *   files               the documents of rule files, for a service that only shows them
 *   bootstrap           the first rules of a host
 *   rules_poller        another host's published rules
 */
#ifndef WEIR_CONTROL_CONTROL_H
#define WEIR_CONTROL_CONTROL_H

#include "base/buffer.h"
#include "base/host_calls.h"
#include "base/log.h"
#include "config/config.h"
#include "control/database.h"

#include <jansson.h>

/* ---- The service ---- */

struct weir__control;

enum weir__role { WEIR__NOBODY = 0, WEIR__VIEWER, WEIR__EDITOR, WEIR__OPERATOR };

/* The rules that `rules` of a weir.yaml names. */
struct weir__named_rules {
    const char *path; /* a file or a directory; NULL: they are inside of weir.yaml: */
    weir_text text;   /* weir.yaml with everything else blanked out */
    const char *file; /* weir.yaml */
};

struct weir__control_options {
    const char *url; /* sqlite:PATH or postgresql://… */
    /* The rules are in files: the service shows them, and changes none. NULL: they are in the database. */
    const struct weir__named_rules *files; /* lives as long as the service */
    const char *published_path;            /* the file that workers read, or NULL */
    int64_t session_ms;                    /* 0: 12 hours */
    bool login_links;                      /* they are accepted: only this host can reach the listener */
    enum weir__role key_texts;             /* the least role that sees the texts of keys; 0: operator */
    const struct weir__control_host *host; /* lives as long as the service; may be NULL */
};

/*
 * Opens the service, also while the database is unavailable: the published set stays, requests get 503, and opening is
 * retried. WEIR__DB_MEMORY, WEIR__DB_URL.
 */
WEIR_MUST_CHECK int weir__control_open(const struct weir__control_options *options, struct weir__control **control);
void weir__control_close(struct weir__control *control);

/*
 * Call it about once a second: reads changed rule files, takes over revisions that other hosts published in the same
 * database, retries a failed write of the file. 0, or WEIR__DB_….
 */
int weir__control_tick(struct weir__control *control);

/*
 * Reads and compiles rules as documents, and counts them. Those of a database cannot name files. 0, or an error of the
 * library's; errors in the rules go to `diagnose`. The caller frees `documents` in any case.
 */
struct weir__documents;
WEIR_MUST_CHECK int weir__named_rules_read(const struct weir__named_rules *named, bool may_name_files,
                                           weir_diagnose *diagnose, void *context, struct weir__documents *documents,
                                           size_t *rules);

struct weir__import_result {
    int rules_error;  /* WEIR_E…: the rules cannot be used, and importing them again would fail, too; 0: they can */
    bool no_database; /* it is unavailable, which was logged: try again */
    size_t documents; /* that were imported; 0: the database was not empty, or one of the above; nothing changed */
};

/*
 * Imports documents, which were read from `named`, into an empty database and publishes them: one a rule, as written; a
 * rule with `shadow: true` goes to the shadow stage. Errors go to `diagnose`.
 */
struct weir__import_result weir__control_import(struct weir__control *control, const struct weir__named_rules *named,
                                                const struct weir__documents *documents, const char *who,
                                                const char *reason, weir_diagnose *diagnose, void *context);

/* The revision that the database has published; 0: none. */
int64_t weir__control_revision(struct weir__control *control);

/* ---- The REST API without HTTP: a request in, a reply out. Thread-safe. ---- */

#define WEIR__REST_BODY_MAX  ((size_t)1 << 20)
#define WEIR__SESSION_COOKIE "weir_session"

/* Headers that a request does not have are empty. */
struct weir__rest_request {
    weir_text method;
    weir_text path;  /* as it came: not decoded, without the query */
    weir_text query; /* as it came, without '?' */
    weir_text authorization, cookie, content_type, accept, if_match, if_none_match, origin, host;
    weir_text reason;    /* X-Weir-Reason */
    weir_text heartbeat; /* X-Weir-Host: the heartbeat of a host that polls its rules from here */
    weir_text body;
    const char *address;    /* client's address as text */
    bool tls;               /* cookies are for TLS only */
    const char *local_user; /* not NULL: a local command, with all rights, under this name */
};

#define WEIR__REST_HEADERS 6

struct weir__rest_reply {
    int status;
    struct {
        const char *name;
        char value[512];
    } headers[WEIR__REST_HEADERS];
    size_t header_count;
    char *body; /* from malloc; NULL: none */
    size_t len;
    bool right_token; /* or session */
    bool wrong_token;
    bool last; /* close the connection afterwards */
};

/*
 * Delay before weir__rest_run, at most 2 s (weir_auth_delay): for a request with a token or session while too many
 * wrong ones come from its address or in total; else 0. A connection that has shown a valid one is exempt.
 */
int64_t weir__rest_delay_ms(const struct weir__control *control, const struct weir__rest_request *request);
void weir__rest_run(struct weir__control *control, const struct weir__rest_request *request,
                    struct weir__rest_reply *reply);
void weir__rest_free(struct weir__rest_reply *reply);

/* The value of a header of the reply, or NULL. */
const char *weir__rest_header(const struct weir__rest_reply *reply, const char *name);

/* ---- Rule files as documents ---- */

/*
 * Rule files are split into the documents of the service: each rule, each domain of descriptors, and the settings
 * (identity, normalize, allow, block, response). A document is the original text with its comments, unindented;
 * diagnostics map back to the file.
 */
#define WEIR__SETTINGS_NAME "settings"
#define WEIR__DOMAIN_PREFIX "domain:"

/* The line of a file that a line of a document was cut out of. */
struct weir__origin_line {
    const char *path;
    const char *text; /* from its begin on */
    size_t line;      /* from 0 */
    int columns;      /* what the file has before the document's first column; below 0: less */
};

enum weir__document_kind { WEIR__KIND_SETTINGS, WEIR__KIND_RULE, WEIR__KIND_DOMAIN };

struct weir__rule_document {
    enum weir__document_kind kind;
    char *name; /* as the service calls it */
    struct weir__buffer text;
    size_t lines;
    struct weir__origin_line *origins; /* of each line */
};

struct weir__documents {
    struct weir__sources files;
    struct weir__rule_document *list; /* as in the files */
    size_t count;
};

/*
 * Reads a file, or a folder's *.yaml and *.yml in order of name. False: errors went to `diagnose` (may be NULL). Zero
 * `documents` first, and free it in any case.
 */
bool weir__documents_read(struct weir__documents *documents, const char *path, weir_diagnose *diagnose, void *context);
/* Splits a terminated text from malloc, which it takes over; `path` is its name in messages. */
bool weir__documents_take(struct weir__documents *documents, const char *path, char *text, size_t len,
                          weir_diagnose *diagnose, void *context);
void weir__documents_free(struct weir__documents *documents);

/* Reports a diagnostic about a document (line and column from 1; line 0: all of it) at its place in the file. */
void weir__document_diagnose(const struct weir__rule_document *document, const weir_diagnostic *what,
                             weir_diagnose *diagnose, void *context);

/*
 * Compiles a document alone with the settings (NULL: none), which can name files if the rules are in files. `problems`
 * gets errors and the document's warnings as objects {severity, document, field, line, column, message, suggestion}. 0,
 * or an error of the library's (WEIR_ERULES: see problems).
 */
int weir__document_compile(const char *settings, const char *name, enum weir__document_kind kind, weir_text text,
                           bool may_name_files, json_t *problems);

/* Unified diff of two texts with their labels, from malloc; NULL: no memory. */
char *weir__diff(const char *from, const char *to, const char *from_label, const char *to_label);

/* ---- The admin listener: the REST API and the dashboard's files over HTTP, by libmicrohttpd ---- */

struct weir__admin;

/* Starts listening, in its own threads, on config->socket or a socket of its own. NULL on failure: *why. */
struct weir__admin *weir__admin_start(const struct weir__admin_config *config, struct weir__control *control, char *why,
                                      size_t why_size);
/* A socket bound to the address, not listening yet; -1, and why. */
int weir__admin_bind(const struct weir__listener *listener, char *why, size_t why_size);
/* False: weir was built without npm, and the listener has one page in place of the dashboard, which explains that. */
bool weir__dashboard_is_built(void);
/* Finishes requests in flight first. NULL is allowed. */
void weir__admin_stop(struct weir__admin *admin);

/* ---- The rules poller: fetches another host's published rules and keeps the last good set on disk ---- */

/*
 * The gateway reads only the file that the poller writes, so it starts and runs without the other host. New rules are
 * checked as weir lint does before they replace the file.
 */
struct weir__rules_poller;

/* Formats the heartbeat that is sent with each poll: one line, or length 0 for none. */
typedef size_t weir__format_heartbeat(void *context, char *to, size_t size);

/* NULL: no memory. The configuration and the log must outlive it. `format_heartbeat` may be NULL. */
struct weir__rules_poller *weir__rules_poller_new(const struct weir__config *config, const struct weir__logger *log,
                                                  weir__format_heartbeat *format_heartbeat, void *context);
/*
 * Polls once, for some seconds at most. 1: new rules are on disk; 0: unchanged; -1: no reply, or bad rules; the file is
 * unchanged. Logs each change of that state once.
 */
int weir__rules_poller_poll(struct weir__rules_poller *poller);
/* Milliseconds until the next poll: the interval with jitter, longer after failures. */
int64_t weir__rules_poller_wait_ms(struct weir__rules_poller *poller);
void weir__rules_poller_free(struct weir__rules_poller *poller);

/* ---- Bootstrap: the first rules of a host ---- */

/*
 * Before nginx starts: ensures that there is a file with active rules. Reads them from the database or from another
 * host; if that fails the last good rules stay; without any those that weir.yaml names, until the database or the other
 * host has some. If weir.yaml names rules and does not state where they are, there is such a file afterwards only if
 * the database has published rules. False after a logged error: the file cannot be written.
 */
bool weir__bootstrap(const struct weir__config *config, const struct weir__logger *log);

#endif
