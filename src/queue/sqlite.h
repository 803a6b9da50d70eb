/*
 * What the files of the SQLite storage share. Read them in this order: statements.h, sqlite.c (opening, statements,
 * transactions), sqlite_put.c, sqlite_claim.c, sqlite_change.c, sqlite_expire.c, sqlite_list.c.
 */
#ifndef WEIR_QUEUE_SQLITE_H
#define WEIR_QUEUE_SQLITE_H

#include "queue/queue_internal.h"
#include "queue/statements.h"

#include <sqlite3.h>
#include <sys/stat.h>

/* Which file it is that has a name: another one may have it later. */
struct weir__sq_file {
    dev_t device;
    ino_t number; /* 0: none */
};

struct weir__sq {
    struct weir__queue queue;
    sqlite3 *db;
    sqlite3_stmt *statements[WEIR__SQ_COUNT];
    char *path;
    struct weir__sq_file file, log, index; /* the database, and what SQLite has beside it */
    bool full;                             /* every commit is synced just now */
    bool claimed;                          /* this handle has: claims of its name before it have ended */
    int64_t synced_ms, emptied_ms;
};

struct weir__sq_value {
    enum { WEIR__SQ_IS_NULL, WEIR__SQ_IS_NUMBER, WEIR__SQ_IS_BYTES } kind;
    int64_t number;
    weir_text bytes;
};

#define WEIR__NUMBER(value) ((struct weir__sq_value){.kind = WEIR__SQ_IS_NUMBER, .number = (value)})
#define WEIR__BYTES(value)  ((struct weir__sq_value){.kind = WEIR__SQ_IS_BYTES, .bytes = (value)})
#define WEIR__NONE          ((struct weir__sq_value){.kind = WEIR__SQ_IS_NULL})
#define WEIR__VALUES(...)                                                                                              \
    (const struct weir__sq_value[]){__VA_ARGS__},                                                                      \
        (int)(sizeof((const struct weir__sq_value[]){__VA_ARGS__}) / sizeof(struct weir__sq_value))

/* Begins a statement: 1 there is a row, 0 there is none, or an error. weir__sq_next goes on; weir__sq_done must follow.
 */
int weir__sq_begin(struct weir__sq *q, enum weir__sq_statement which, const struct weir__sq_value *values, int count);
int weir__sq_next(struct weir__sq *q, enum weir__sq_statement which);
void weir__sq_done(struct weir__sq *q, enum weir__sq_statement which);
int64_t weir__sq_number(const struct weir__sq *q, enum weir__sq_statement which, int column);
bool weir__sq_null(const struct weir__sq *q, enum weir__sq_statement which, int column);
/* Valid until weir__sq_next or weir__sq_done. */
weir_text weir__sq_bytes(const struct weir__sq *q, enum weir__sq_statement which, int column);
/* A statement whose rows nobody wants. */
int weir__sq_run(struct weir__sq *q, enum weir__sq_statement which, const struct weir__sq_value *values, int count);
/* The first column of the rows into `to`; how many, or an error. */
int weir__sq_numbers(struct weir__sq *q, enum weir__sq_statement which, const struct weir__sq_value *values, int count,
                     int64_t *to, int most);

/* REMOVED if its file has no name any more, or another one has it: what is in it is lost, or not current.
 * AWAY: nobody can say. */
int weir__sq_check_file(struct weir__sq *q);
/* A transaction that writes; `acknowledged`: it is on the disk, by the options, before its commit returns. */
int weir__sq_write(struct weir__sq *q, bool acknowledged);
/* Commits if `error` is not negative, else rolls back. Returns `error`, or the commit's. */
int weir__sq_end(struct weir__sq *q, int error);
/* Writes what the log has to the database, and cuts it off. False: somebody is in the way; nobody is waited for. */
bool weir__sq_empty_log(struct weir__sq *q);
/* Syncs what is not yet, if it is time for that. */
int weir__sq_sync(struct weir__sq *q);

/* A row of `request`. */
struct weir__sq_row {
    int64_t sequence, rule, lane, bytes, accepted_ms, expires_ms;
    int state;
    bool mine; /* claimed by this handle */
};

/* By ticket or, if that is NULL, by sequence: GONE if there is none. */
int weir__sq_find_row(struct weir__sq *q, const char *ticket, int64_t sequence, struct weir__sq_row *row);
/* Looks up who is the lane's head now. */
int weir__sq_lane_head(struct weir__sq *q, int64_t lane);
/* Moves it to another state, with all that is counted. */
int weir__sq_to_waiting(struct weir__sq *q, const struct weir__sq_row *row, const struct weir__transition *change);
int weir__sq_to_over(struct weir__sq *q, const struct weir__sq_row *row, const struct weir__transition *change,
                     enum weir__deferred_state state);

void weir__sq_read(const struct weir__sq *q, enum weir__sq_statement which, struct weir__deferred *item);
void weir__sq_ticket(const char *ticket, char bits[WEIR__TICKET_LEN / 2]);

/* The calls. */
int weir__sq_put(struct weir__queue *queue, struct weir__deferred *items, const struct weir__queue_bounds *bounds,
                 int *errors, size_t count);
int weir__sq_claim(struct weir__queue *queue, const struct weir__slot_claim *claim, weir__deferred_visit *visit,
                   void *context);
int weir__sq_change(struct weir__queue *queue, struct weir__transition *changes, size_t count);
int weir__sq_expire(struct weir__queue *queue, int64_t now_ms);
int weir__sq_find(struct weir__queue *queue, const char *ticket, weir__deferred_visit *visit, void *context);
int weir__sq_list(struct weir__queue *queue, const struct weir__queue_filter *filter, weir__deferred_visit *visit,
                  void *context);
int weir__sq_stats(struct weir__queue *queue, weir__queue_stats_visit *visit, void *context);

static inline struct weir__sq *weir__sq_of(struct weir__queue *queue)
{
    return (struct weir__sq *)(void *)queue;
}

#endif
