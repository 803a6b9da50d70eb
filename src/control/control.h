/*
 * The rules service without HTTP: rules as versioned documents in a database, published as one set. docs/control.md
 * describes the API.
 *
 *   database, sqlite, postgres, schema   storage
 *   document, emit   one document's text; a tree as YAML
 *   set              documents joined to one text; its errors mapped back to their lines
 *   split*, import   rule files split into documents; into an empty database
 *   stored, stage    document versions; their stage: draft, shadow, enforced
 *   publish          revisions of the set
 *   published        the published set, in memory and in a file that outlives the database
 *   token, login_throttle   authentication, and the limit on wrong tokens
 *   rest*            (method, path, headers, body) to (status, headers, body)
 */
#ifndef WEIR_CONTROL_CONTROL_H
#define WEIR_CONTROL_CONTROL_H

#include "control/database.h"
#include "control/host.h"
#include "control/fair_lock.h"

#include <pthread.h>

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

enum weir__role { WEIR__NOBODY = 0, WEIR__VIEWER, WEIR__EDITOR, WEIR__OPERATOR };

struct weir__login_throttle;

#define WEIR__TOKEN_ID           24
#define WEIR__DRY_RUNS_MAX       8 /* read-only requests that compile or wait to, in total */
#define WEIR__DRY_RUNS_PER_TOKEN 2 /* per token, including its sessions */

struct weir__control {
    char *url;
    const struct weir__control_host *host; /* may be NULL */
    int64_t session_ms;                    /* how long a session lasts */
    enum weir__role key_texts;             /* the least role that sees the texts of keys */

    struct weir__fair_lock compile_lock;  /* compiling for requests that write; taken without database_lock */
    struct weir__fair_lock dry_run_lock;  /* compiling for read-only requests, which never delay a publication */
    struct weir__fair_lock database_lock; /* for what follows */
    struct weir__db *db;                  /* NULL: could not be opened yet */
    int64_t tried_ms;                     /* when opening it was tried last */
    int error;                            /* why it failed */
    struct weir__login_throttle *throttle;

    pthread_mutex_t published_lock; /* for what follows; never waits for the database */
    char dry_runs[WEIR__DRY_RUNS_MAX]
                 [WEIR__TOKEN_ID]; /* tokens whose requests hold or wait for dry_run_lock; "": free */
    struct weir__published_rules published;
    char *path;   /* of the file for the workers; NULL: none */
    bool written; /* the file says what `force` says */
    bool up;      /* the database answered the last time */
    bool stale;   /* the database is older than the published set: it was restored from an old copy */
};

struct weir__control_options {
    const char *url;                       /* sqlite:PATH or postgresql://… */
    const char *published_path;            /* the file that workers read, or NULL */
    int64_t session_ms;                    /* 0: 12 hours */
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
 * Call it about once a second: takes over revisions that other hosts published in the same database, retries a failed
 * write of the file, deletes expired sessions. 0, or WEIR__DB_….
 */
int weir__control_tick(struct weir__control *control);

/*
 * Imports rules from a file or directory into an empty database and publishes them: one document a rule, as written; a
 * rule with `shadow: true` goes to the shadow stage. Errors go to `diagnose`. *documents: how many there are now; 0:
 * the database was not empty, and nothing changed. 0, WEIR__DB_…, or a library error such as WEIR_ERULES, less than
 * WEIR__IMPORT_WRONG.
 */
#define WEIR__IMPORT_WRONG (-1000)
int weir__control_import(struct weir__control *control, const char *path, const char *who, weir_diagnose *diagnose,
                         void *context, size_t *documents);

/* The published revision; 0: none. */
int64_t weir__control_revision(struct weir__control *control);

/* Records for the health check whether the database answered. */
void weir__control_note(struct weir__control *control, bool up);

/* True if the database is open; opens it if a retry is due. The database lock must be held. */
bool weir__control_ready(struct weir__control *control);

void weir__control_log(const struct weir__control *control, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
