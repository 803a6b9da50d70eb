/*
 * What the files of the SQLite storage share: sqlite.c (schema, open and close, statements, transactions) and
 * sqlite_requests.c (the calls of a storage).
 */
#ifndef WEIR_QUEUE_SQLITE_H
#define WEIR_QUEUE_SQLITE_H

#include "queue/queue_internal.h"

#include <sqlite3.h>
#include <sys/stat.h>

/* Identity of a file: another one may get its name later. */
struct weir__sq_file {
    dev_t device;
    ino_t number; /* 0: none */
};

enum { WEIR__SQ_DATABASE, WEIR__SQ_WAL, WEIR__SQ_INDEX, WEIR__SQ_FILES }; /* the index of the WAL is shared memory */

struct weir__sq_prepared {
    const char *sql; /* NULL: unused */
    sqlite3_stmt *statement;
};

struct weir__sq {
    struct weir__queue queue;
    sqlite3 *db;
    struct weir__sq_prepared prepared[64]; /* more than there are texts */
    char *path;
    struct weir__sq_file files[WEIR__SQ_FILES];
    bool full;    /* PRAGMA synchronous is FULL now */
    bool claimed; /* this handle has claimed: earlier claims under its name have ended */
    int64_t synced_ms, emptied_ms;
    int error; /* the first of the present call; 0: none */
};

static inline struct weir__sq *weir__sq_of(struct weir__queue *queue)
{
    return (struct weir__sq *)(void *)queue;
}

/*
 * ---- Statements ----
 *
 * The first error of a call stays in q->error, and the statements after it do nothing, so that only the end of the call
 * checks it. The text of a statement must be a literal: it is prepared once, and found again by its address.
 */

/* The first row; NULL: none, or an error. Valid until weir__sq_next; a loop that ends early calls sqlite3_reset. */
sqlite3_stmt *weir__sq_first(struct weir__sq *q, const char *sql, const struct weir__queue_value *values, int count);
sqlite3_stmt *weir__sq_next(struct weir__sq *q, sqlite3_stmt *row);
/* Runs a statement that has no rows; returns how many rows it changed, without those changed by triggers. */
int weir__sq_run(struct weir__sq *q, const char *sql, const struct weir__queue_value *values, int count);
/* Reads `columns` numbers of the first row; false: there is none, and they are 0. */
bool weir__sq_numbers(struct weir__sq *q, const char *sql, const struct weir__queue_value *values, int count,
                      int64_t *to, int columns);

/* ---- Transactions ---- */

/* Sets q->error: 0, REMOVED (the file was unlinked or replaced), or UNAVAILABLE (unknown). Begins a call. */
int weir__sq_check_file(struct weir__sq *q);
/* Begins a write transaction; returns q->error. acknowledged: its commit syncs, unless the options defer that. */
int weir__sq_write(struct weir__sq *q, bool acknowledged);
/* Commits, or rolls back after an error. Returns q->error. */
int weir__sq_end(struct weir__sq *q);
/* Checkpoints and truncates the WAL. False: another connection uses it; does not wait. */
bool weir__sq_empty_log(struct weir__sq *q);
/* Syncs the WAL if sync_second is set and a second has passed. */
int weir__sq_sync(struct weir__sq *q);
void weir__sq_close(struct weir__queue *queue);

extern const struct weir__queue_calls weir__sq_calls; /* sqlite_requests.c */

#endif
