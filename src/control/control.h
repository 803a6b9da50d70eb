/*
 * The rules service without HTTP: rules as documents with versions in a database, published as one set. docs/control.md
 * describes it from outside. Which file does what:
 *
 *   database, sqlite, postgres, schema   where everything is kept
 *   document    one document's text      set         documents to one text, and its errors back to their lines
 *   emit        a tree to YAML           import      rule files into an empty database
 *   split*      rule files to documents
 *   stored      reading and adding       stage       where a document is: draft, shadow, enforced
 *   publish     revisions of the set
 *   in_force    the set that is in force, in memory and in a file that survives all of this
 *   token       who may do what          guess       how often a token may be wrong
 *   rest*       (method, path, headers, body) to (status, headers, body)
 */
#ifndef WEIR_CONTROL_CONTROL_H
#define WEIR_CONTROL_CONTROL_H

#include "control/database.h"
#include "control/host.h"
#include "control/fair_lock.h"

#include <pthread.h>

#define WEIR__DIGEST_TEXT 65 /* SHA-256 in hexadecimal, and a zero byte */

/* The published set that is in force. */
struct weir__published_rules {
    int64_t revision; /* 0: nothing was ever published */
    int64_t at_ms;
    char digest[WEIR__DIGEST_TEXT];
    char known_as[WEIR__DIGEST_TEXT]; /* in the database: another if another version of weir put the text together */
    char *text;
    size_t len;
};

enum weir__role { WEIR__NOBODY = 0, WEIR__VIEWER, WEIR__EDITOR, WEIR__OPERATOR };

struct weir__login_throttle;

#define WEIR__TOKEN_ID           24
#define WEIR__DRY_RUNS_MAX       8 /* requests that compile without writing, or wait to, in all */
#define WEIR__DRY_RUNS_PER_TOKEN 2 /* of one token, its sessions included */

struct weir__control {
    char *url;
    const struct weir__control_host *host; /* may be NULL */
    int64_t session_ms;                    /* how long a session lasts */
    enum weir__role key_texts;             /* the least role that sees the texts of keys */

    struct weir__fair_lock compile_lock;  /* for parsing and compiling what will be written, without the turn below */
    struct weir__fair_lock dry_run_lock;  /* for parsing and compiling what will not: it never delays a publication */
    struct weir__fair_lock database_lock; /* for what follows */
    struct weir__db *db;                  /* NULL: could not be opened yet */
    int64_t tried_ms;                     /* when opening it was tried last */
    int error;                            /* why it failed */
    struct weir__login_throttle *throttle;

    pthread_mutex_t published_lock;                    /* for what follows; never waits for the database */
    char dry_runs[WEIR__DRY_RUNS_MAX][WEIR__TOKEN_ID]; /* whose requests have or wait for the turn `trial`; "": free */
    struct weir__published_rules published;
    char *path;   /* of the file for the workers; NULL: none */
    bool written; /* the file says what `force` says */
    bool up;      /* the database answered the last time */
    bool stale;   /* the database is older than what is in force: it was restored from an old copy */
};

struct weir__control_options {
    const char *url;                       /* sqlite:PATH or postgresql://… */
    const char *published_path;            /* the file that workers read, or NULL */
    int64_t session_ms;                    /* 0: 12 hours */
    enum weir__role key_texts;             /* the least role that sees the texts of keys; 0: operator */
    const struct weir__control_host *host; /* lives as long as the service; may be NULL */
};

/*
 * Opens the service. It also opens when the database cannot be reached: what is in force stays so, requests are told
 * 503, and it is tried again later. WEIR__DB_MEMORY, WEIR__DB_URL.
 */
WEIR_MUST_CHECK int weir__control_open(const struct weir__control_options *options, struct weir__control **control);
void weir__control_close(struct weir__control *control);

/*
 * To be called about once a second: takes over what another host has published in the same database, writes the file if
 * that failed before, forgets old sessions. 0, or WEIR__DB_… .
 */
int weir__control_tick(struct weir__control *control);

/*
 * Puts rules from a file or a directory, as weir_rules_load reads them, into an empty database, all in force: one
 * document a rule, as it was written; a rule with `shadow: true` is in shadow, without saying so itself. What is wrong
 * with them is told to `diagnose`. *documents: how many there are now; 0: the database was not empty, and nothing was
 * done. 0, WEIR__DB_…, or WEIR_ERULES, WEIR_ERULESPATH … of the library, which are less than WEIR__IMPORT_WRONG.
 */
#define WEIR__IMPORT_WRONG (-1000)
int weir__control_import(struct weir__control *control, const char *path, const char *who, weir_diagnose *diagnose,
                         void *context, size_t *documents);

/* The revision that is in force; 0: none. */
int64_t weir__control_revision(struct weir__control *control);

/* For whoever asks whether the service is well: the database has answered, or not. */
void weir__control_note(struct weir__control *control, bool up);

/* True with the database open, which may be tried now. The lock must be held. */
bool weir__control_ready(struct weir__control *control);

void weir__control_log(const struct weir__control *control, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
