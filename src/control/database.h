/*
 * The database of the rules service: SQLite in a file, or PostgreSQL for a fleet, behind one set of calls. Statements
 * are written once, with parameters $1, $2 …; no value ever becomes part of one.
 *
 * One connection, used by one thread at a time: the service has a lock.
 */
#ifndef WEIR_CONTROL_DATABASE_H
#define WEIR_CONTROL_DATABASE_H

#include "base/arena.h"

#include <sys/types.h>

/* Number, code and message for the client. */
#define WEIR__DB_ERRORS(X)                                                                                             \
    X(BUSY, 1, "database_busy", "the database is locked by another process; nothing was changed, try again")           \
    X(GONE, 2, "database_gone", "the database cannot be reached; nothing was changed")                                 \
    X(FULL, 3, "database_full", "the database has no space left; nothing was changed")                                 \
    X(READONLY, 4, "database_readonly", "the database cannot be written to; nothing was changed")                      \
    X(CONFLICT, 5, "conflict", "the same was created concurrently; read it, and try again")                            \
    X(UNKNOWN, 6, "outcome_unknown",                                                                                   \
      "the connection broke while the change was being committed; look whether it is there")                           \
    X(BROKEN, 7, "database_broken", "the database is damaged or of another kind")                                      \
    X(NEWER, 8, "database_newer", "the database was made by a later version of weir; use that one")                    \
    X(URL, 9, "database_url", "the database's address is wrong; use sqlite:PATH or postgresql://…")                    \
    X(MEMORY, 10, "no_memory", "out of memory; nothing was changed")

enum weir__db_error {
    WEIR__DB_OK = 0,
#define WEIR__DB_ENUM(name, number, code, text) WEIR__DB_##name = -(number),
    WEIR__DB_ERRORS(WEIR__DB_ENUM)
#undef WEIR__DB_ENUM
};

const char *weir__db_strerror(int error);
/* The error's code in a reply. */
const char *weir__db_error_code(int error);

struct weir__db_value {
    enum { WEIR__DB_NULL, WEIR__DB_NUMBER, WEIR__DB_TEXT } kind;
    int64_t number;
    weir_text text;
};

#define WEIR__N(value) ((struct weir__db_value){.kind = WEIR__DB_NUMBER, .number = (value)})
#define WEIR__T(value) ((struct weir__db_value){.kind = WEIR__DB_TEXT, .text = (value)})
#define WEIR__S(value) WEIR__T(((weir_text){(value), strlen(value)}))
/* 0 is NULL. */
#define WEIR__N_OR_NULL(value)                                                                                         \
    ((struct weir__db_value){.kind = (value) ? WEIR__DB_NUMBER : WEIR__DB_NULL, .number = (value)})
/* The values of a statement and their number: two arguments of the functions below. */
#define WEIR__DB_VALUES(...)                                                                                           \
    (struct weir__db_value[]){__VA_ARGS__},                                                                            \
        (int)(sizeof((struct weir__db_value[]){__VA_ARGS__}) / sizeof(struct weir__db_value))
#define WEIR__DB_COMMIT    "COMMIT" /* if the connection breaks while it runs, its outcome is unknown */
#define WEIR__PARAMS_MAX   12
#define WEIR__DB_WHY_BYTES 256

/* A row of a result. A cell is followed by a zero byte; NULL of SQL has no data. */
struct weir__db_row {
    struct weir__db_row *next;
    weir_text cells[];
};

struct weir__db;

struct weir__db_calls {
    int (*open)(struct weir__db *db, bool create);
    /* Runs one statement, or several without values: adds rows by weir__db_add_row, and sets db->changed. */
    int (*run)(struct weir__db *db, const char *sql, const struct weir__db_value *values, int count);
    void (*close)(struct weir__db *db);
    /* Statements that begin a transaction that may write: no other runs beside it. `lock` may be NULL. */
    const char *begin, *lock;
    bool is_postgres;
};

/*
 * Errors are sticky: after a statement has failed, the following ones do nothing and return the same error, so that a
 * series of statements needs one check at its end. Setting `error` to 0 ends that.
 */
struct weir__db {
    const struct weir__db_calls *calls;
    void *handle;                 /* sqlite3 or PGconn; NULL: not connected */
    char *address;                /* path or URL */
    bool lost;                    /* its file was removed or replaced: close it, and open another */
    int error;                    /* of the first statement that failed; 0: none */
    char why[WEIR__DB_WHY_BYTES]; /* the database's message about it: for the log, not for clients */
    bool inside;                  /* of a transaction */
    int64_t changed;              /* rows that the last statement changed */
    /* The rows that the last statement returned, and the one that weir__db_next has reached. */
    struct weir__db_row *first, **end, *row;
    struct weir__arena arena; /* their memory */
    /* SQLite: which file was opened; 0: none, but memory. */
    dev_t device;
    ino_t inode;
    int64_t again_ms; /* PostgreSQL: no attempt to connect before this time */
};

/* Opens, and brings the schema up to date; makes a new one if there is none and `create`. WEIR__DB_… ; `why`
 * (WEIR__DB_WHY_BYTES, may be NULL) gets the reason. */
int weir__db_open(const char *url, bool create, struct weir__db **db, char *why);
void weir__db_close(struct weir__db *db);

/* Runs a statement: weir__db_run(db, sql, WEIR__S(name), WEIR__N(version)). Returns db->error. */
#define weir__db_run(db, sql, ...) weir__db_run_with((db), (sql), WEIR__DB_VALUES(__VA_ARGS__))
int weir__db_run_with(struct weir__db *db, const char *sql, const struct weir__db_value *values, int count);
/* Goes to the first or next row of the last statement. False: there is none. The row is valid until the next statement.
 */
bool weir__db_next(struct weir__db *db);
/* A column of the row. NULL is "" and 0. */
weir_text weir__db_text(const struct weir__db *db, int column);
int64_t weir__db_number(const struct weir__db *db, int column);
static inline bool weir__db_is_null(const struct weir__db *db, int column)
{
    return !db->row->cells[column].data;
}
/* Runs a statement without values. The first column of its first row; 0 if there is none. */
int64_t weir__db_count(struct weir__db *db, const char *sql);

/* Must be followed by weir__db_end, also after an error. */
int weir__db_begin(struct weir__db *db);
/* Commits, but rolls back after an error or if not `keep`. Returns db->error. */
int weir__db_end(struct weir__db *db, bool keep);

/* ---- Internal ---- */

/* Records the first line of the database's message. */
void weir__db_note(struct weir__db *db, const char *why);
/* Adds a row of `columns` cells to the result; NULL: no memory. */
struct weir__db_row *weir__db_add_row(struct weir__db *db, int columns);
extern const struct weir__db_calls weir__sqlite, weir__postgres;
/* Numbered migrations, each in one transaction with its number. */
int weir__schema_update(struct weir__db *db);

#endif
