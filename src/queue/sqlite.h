/*
 * What the files of the SQLite storage share: schema and statements, sqlite.c (open, transactions, find, list,
 * stats), sqlite_put.c, sqlite_claim.c, sqlite_change.c (transitions, expiry).
 */
#ifndef WEIR_QUEUE_SQLITE_H
#define WEIR_QUEUE_SQLITE_H

#include "queue/queue_internal.h"

#include <sqlite3.h>
#include <sys/stat.h>

/* ---- Schema and statements ---- */

/*
 * Tables:
 *
 *   rule     one row a rule with requests, and its stats, updated by every transaction that changes a request
 *   lane     one row a rule and key with requests. place: 0 nothing to claim (none waits, or one is under way),
 *            1 head not known to be due, 2 head due. So a claim reads heads only, rule by rule
 *   request  one row a request: small, because every transition rewrites it
 *   payload  its headers and body, written once
 *   aside    one row a lane and group set aside. The requests have the group as their session, are not heads, and
 *            return to the lane one by one, oldest first, from due_ms on
 *
 * state: enum weir__deferred_state. over: NULL while waiting or under way, 1 delivered or cancelled, 2 dead.
 */
#define WEIR__SQ_APPLICATION 1466252625 /* "Weiq" */
#define WEIR__SQ_VERSION     3
#define WEIR__SQ_QUOTED(x)   #x
#define WEIR__SQ_QUOTE(x)    WEIR__SQ_QUOTED(x)
#define WEIR__SQ_MARK                                                                                                  \
    "PRAGMA application_id = " WEIR__SQ_QUOTE(WEIR__SQ_APPLICATION) ";"                                                \
                                                                    "PRAGMA user_version = " WEIR__SQ_QUOTE(           \
                                                                        WEIR__SQ_VERSION) ";"

#define WEIR__SQ_LANE_INDEXES                                                                                          \
    "CREATE INDEX lane_later ON lane(rule, due_ms) WHERE place = 1;"                                                   \
    "CREATE INDEX lane_ready ON lane(rule, head) WHERE place = 2;"

/* version 1 had these for all rules together */
#define WEIR__SQ_FROM_1 "DROP INDEX lane_later; DROP INDEX lane_ready;" WEIR__SQ_LANE_INDEXES

#define WEIR__SQ_ASIDE_SCHEMA                                                                                          \
    "CREATE INDEX request_lane ON request(lane, sequence) WHERE state = 0 AND session IS NULL;"                        \
    "CREATE INDEX request_aside ON request(lane, session, sequence) WHERE state = 0 AND session IS NOT NULL;"          \
    "CREATE TABLE aside(lane INTEGER NOT NULL, grouped INTEGER NOT NULL, due_ms INTEGER NOT NULL,"                     \
    " PRIMARY KEY(lane, grouped)) WITHOUT ROWID;"                                                                      \
    "CREATE INDEX aside_due ON aside(due_ms);"

/* version 2 set no requests aside */
#define WEIR__SQ_FROM_2 "DROP INDEX request_lane;" WEIR__SQ_ASIDE_SCHEMA

#define WEIR__SQ_SCHEMA                                                                                                \
    "CREATE TABLE rule(id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, requests INTEGER NOT NULL DEFAULT 0,"        \
    " waiting INTEGER NOT NULL DEFAULT 0, under_way INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0,"      \
    " ended INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, dead_bytes INTEGER NOT NULL DEFAULT 0);"     \
    "CREATE TABLE lane(id INTEGER PRIMARY KEY, rule INTEGER NOT NULL, key BLOB NOT NULL, requests INTEGER NOT NULL,"   \
    " busy INTEGER NOT NULL, head INTEGER, due_ms INTEGER, place INTEGER NOT NULL, UNIQUE(rule, "                      \
    "key));" WEIR__SQ_LANE_INDEXES                                                                                     \
    "CREATE TABLE request(sequence INTEGER PRIMARY KEY AUTOINCREMENT, ticket BLOB NOT NULL UNIQUE,"                    \
    " rule INTEGER NOT NULL, lane INTEGER NOT NULL, state INTEGER NOT NULL, over INTEGER, cost INTEGER NOT NULL,"      \
    " attempts INTEGER NOT NULL, status INTEGER NOT NULL, bytes INTEGER NOT NULL, accepted_ms INTEGER NOT NULL,"       \
    " due_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, until_ms INTEGER,"              \
    " name BLOB, session INTEGER, method BLOB NOT NULL, target BLOB NOT NULL, why BLOB);"                              \
    "CREATE INDEX request_state ON request(state, rule, sequence);"                                                    \
    "CREATE INDEX request_expires ON request(expires_ms) WHERE state = 0;"                                             \
    "CREATE INDEX request_until ON request(until_ms) WHERE state = 1;"                                                 \
    "CREATE INDEX request_over ON request(over, ended_ms, sequence) WHERE over IS NOT NULL;"                           \
    "CREATE TABLE payload(sequence INTEGER PRIMARY KEY, headers BLOB NOT NULL, body BLOB NOT "                         \
    "NULL);" WEIR__SQ_ASIDE_SCHEMA

#define WEIR__SQ_COLUMNS                                                                                               \
    "r.sequence, r.ticket, u.name, l.key, r.cost, r.method, r.target, r.accepted_ms, r.due_ms, r.expires_ms,"          \
    " r.ended_ms, r.attempts, r.state, r.why, r.status"
#define WEIR__SQ_FROM " FROM request r JOIN lane l ON l.id = r.lane JOIN rule u ON u.id = r.rule"
#define WEIR__SQ_LISTED                                                                                                \
    "SELECT " WEIR__SQ_COLUMNS " FROM request r CROSS JOIN lane l ON l.id = r.lane CROSS JOIN rule u ON u.id = r.rule" \
    " WHERE r.sequence > ?1"

/* A rule has a lane whose head is due, or due beyond ?2: the clock was set back. */
#define WEIR__SQ_DUE                                                                                                   \
    "(EXISTS(SELECT 1 FROM lane INDEXED BY lane_later WHERE place = 1 AND rule = rule.id AND due_ms <= ?1) OR"         \
    " EXISTS(SELECT 1 FROM lane INDEXED BY lane_later WHERE place = 1 AND rule = rule.id AND due_ms > ?2))"
#define WEIR__SQ_HEAD "SELECT head FROM lane INDEXED BY lane_ready WHERE place = 2 AND rule = "

#define WEIR__SQ_STATEMENTS(X)                                                                                         \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                                        \
    X(COMMIT, "COMMIT")                                                                                                \
    X(ROLLBACK, "ROLLBACK")                                                                                            \
    /* Put */                                                                                                          \
    X(ALL, "SELECT total(waiting + under_way), total(bytes), total(dead), total(dead_bytes), total(ended) FROM rule")  \
    X(RULE, "SELECT id, waiting + under_way, bytes FROM rule WHERE name = ?1")                                         \
    X(RULE_NEW, "INSERT INTO rule(name) VALUES (?1)")                                                                  \
    X(RULE_PUT, "UPDATE rule SET requests = requests + 1, waiting = waiting + 1, bytes = bytes + ?2 WHERE id = ?1")    \
    X(LANE, "SELECT id, busy, head FROM lane WHERE rule = ?1 AND key = ?2")                                            \
    X(LANE_NEW, "INSERT INTO lane(rule, key, requests, busy, place) VALUES (?1, ?2, 0, 0, 0)")                         \
    X(LANE_PUT, "UPDATE lane SET requests = requests + 1 WHERE id = ?1")                                               \
    X(REQUEST_NEW,                                                                                                     \
      "INSERT INTO request(ticket, rule, lane, state, cost, attempts, status, bytes, accepted_ms, due_ms, expires_ms," \
      " ended_ms, method, target) VALUES (?1, ?2, ?3, 0, ?4, 0, 0, ?5, ?6, ?7, ?8, 0, ?9, ?10)")                       \
    X(PAYLOAD_NEW, "INSERT INTO payload(sequence, headers, body) VALUES (?1, ?2, ?3)")                                 \
    /* Claim */                                                                                                        \
    X(ANY_TO_CLAIM,                                                                                                    \
      "SELECT EXISTS(SELECT 1 FROM lane INDEXED BY lane_ready WHERE place = 2) OR EXISTS(SELECT 1 FROM rule "          \
      "WHERE " WEIR__SQ_DUE ") OR EXISTS(SELECT 1 FROM request WHERE state = 1 AND until_ms <= ?1) OR"                 \
      " EXISTS(SELECT 1 FROM aside WHERE due_ms <= ?1) OR EXISTS(SELECT 1 FROM aside WHERE due_ms > ?2)")              \
    X(CLAIMS_OF, "SELECT sequence FROM request WHERE state = 1 AND name = ?1 AND session <> ?2 LIMIT ?3")              \
    X(CLAIMS_OVER, "SELECT sequence FROM request WHERE state = 1 AND until_ms <= ?1 LIMIT ?2")                         \
    X(RULES_DUE, "SELECT id FROM rule WHERE " WEIR__SQ_DUE " LIMIT ?3")                                                \
    X(PROMOTE, "UPDATE lane SET place = 2 WHERE id IN (SELECT id FROM lane INDEXED BY lane_later WHERE place = 1"      \
               " AND rule = ?1 AND due_ms >= ?2 AND due_ms <= ?3 ORDER BY due_ms LIMIT ?4)")                           \
    X(RULES_READY, "SELECT id, name, oldest FROM (SELECT id, name, (" WEIR__SQ_HEAD "u.id ORDER BY head LIMIT 1)"      \
                   " AS oldest FROM rule u) WHERE oldest IS NOT NULL ORDER BY oldest LIMIT ?1")                        \
    X(READY, WEIR__SQ_HEAD "?1 ORDER BY head LIMIT 1")                                                                 \
    X(CLAIM, "UPDATE request SET state = 1, until_ms = ?2, name = ?3, session = ?4 WHERE sequence = ?1")               \
    X(LANE_BUSY, "UPDATE lane SET busy = 1, head = NULL, due_ms = NULL, place = 0 WHERE id = ?1")                      \
    X(LANE_FREE, "UPDATE lane SET busy = 0 WHERE id = ?1")                                                             \
    X(LANE_HEAD, "SELECT sequence, due_ms FROM request INDEXED BY request_lane WHERE lane = ?1 AND state = 0 AND"      \
                 " session IS NULL ORDER BY sequence LIMIT 1")                                                         \
    X(LANE_SET, "UPDATE lane SET head = ?2, due_ms = ?3, place = CASE WHEN ?2 IS NULL THEN 0 ELSE 1 END"               \
                " WHERE id = ?1 AND busy = 0")                                                                         \
    X(ASIDES_DUE, "SELECT lane, grouped FROM aside WHERE due_ms >= ?1 AND due_ms <= ?2 ORDER BY due_ms LIMIT ?3")      \
    X(ASIDE_FIRST, "SELECT sequence FROM request INDEXED BY request_aside WHERE lane = ?1 AND session = ?2 AND"        \
                   " state = 0 ORDER BY sequence LIMIT 1")                                                             \
    X(ASIDE_BACK, "UPDATE request SET session = NULL, due_ms = min(due_ms, ?2) WHERE sequence = ?1")                   \
    X(ASIDE_GONE, "DELETE FROM aside WHERE lane = ?1 AND grouped = ?2")                                                \
    X(CLAIMED, "SELECT " WEIR__SQ_COLUMNS ", p.headers, p.body" WEIR__SQ_FROM                                          \
               " JOIN payload p ON p.sequence = r.sequence WHERE r.sequence = ?1")                                     \
    /* Transitions */                                                                                                  \
    X(ROW, "SELECT sequence, rule, lane, state, bytes, accepted_ms, expires_ms, name, session FROM request"            \
           " WHERE ticket = ?1")                                                                                       \
    X(ROW_AT, "SELECT sequence, rule, lane, state, bytes, accepted_ms, expires_ms, name, session FROM request"         \
              " WHERE sequence = ?1")                                                                                  \
    X(END, "UPDATE request SET state = ?2, over = ?3, ended_ms = ?4, attempts = attempts + ?5, status ="               \
           " CASE WHEN ?6 THEN ?6 ELSE status END, why = CASE WHEN ?2 = 2 THEN ?7 ELSE coalesce(?7, why) END,"         \
           " until_ms = NULL, name = NULL, session = NULL WHERE sequence = ?1")                                        \
    X(WAIT, "UPDATE request SET state = 0, over = NULL, ended_ms = 0, due_ms = coalesce(?2, due_ms),"                  \
            " attempts = attempts + ?3, status = CASE WHEN ?4 THEN ?4 ELSE status END, why = coalesce(?5, why),"       \
            " until_ms = NULL, name = NULL, session = NULL WHERE sequence = ?1")                                       \
    X(ASIDE, "UPDATE request SET session = ?2 WHERE sequence = ?1")                                                    \
    X(ASIDE_SET, "INSERT INTO aside(lane, grouped, due_ms) VALUES (?1, ?2, ?3)"                                        \
                 " ON CONFLICT(lane, grouped) DO UPDATE SET due_ms = ?3")                                              \
    X(REQUEUE, "UPDATE request SET state = 0, over = NULL, ended_ms = 0, due_ms = ?2, expires_ms = ?3, attempts = 0"   \
               " WHERE sequence = ?1")                                                                                 \
    X(PAYLOAD_GONE, "DELETE FROM payload WHERE sequence = ?1")                                                         \
    X(RULE_MOVE,                                                                                                       \
      "UPDATE rule SET waiting = waiting + ?2, under_way = under_way + ?3, dead = dead + ?4, ended = ended + ?5,"      \
      " bytes = bytes + ?6, dead_bytes = dead_bytes + ?7 WHERE id = ?1")                                               \
    /* Expiry */                                                                                                       \
    X(EXPIRED, "SELECT sequence FROM request WHERE state = 0 AND expires_ms <= ?1 ORDER BY expires_ms LIMIT ?2")       \
    X(OVER, "SELECT sequence FROM request WHERE over = ?1 AND ended_ms <= ?2 ORDER BY ended_ms, sequence LIMIT ?3")    \
    X(REQUEST_GONE, "DELETE FROM request WHERE sequence = ?1")                                                         \
    X(LANE_LESS, "UPDATE lane SET requests = requests - 1 WHERE id = ?1")                                              \
    X(LANE_GONE, "DELETE FROM lane WHERE id = ?1 AND requests = 0")                                                    \
    X(RULE_LESS, "UPDATE rule SET requests = requests - 1 WHERE id = ?1")                                              \
    X(RULES_GONE, "DELETE FROM rule WHERE requests = 0")                                                               \
    /* Find, list, stats */                                                                                            \
    X(FIND, "SELECT " WEIR__SQ_COLUMNS ", p.headers, p.body" WEIR__SQ_FROM                                             \
            " LEFT JOIN payload p ON p.sequence = r.sequence WHERE r.ticket = ?1")                                     \
    X(LIST, WEIR__SQ_LISTED " ORDER BY r.sequence LIMIT ?2")                                                           \
    X(LIST_STATE, WEIR__SQ_LISTED " AND r.state = ?3 ORDER BY r.sequence LIMIT ?2")                                    \
    X(LIST_RULE, WEIR__SQ_LISTED " AND u.name = ?3 ORDER BY r.sequence LIMIT ?2")                                      \
    X(LIST_BOTH, WEIR__SQ_LISTED " AND r.rule = (SELECT id FROM rule WHERE name = ?3) AND r.state = ?4"                \
                                 " ORDER BY r.sequence LIMIT ?2")                                                      \
    X(STATS, "SELECT name, waiting, under_way, dead, bytes, (SELECT accepted_ms FROM request WHERE sequence ="         \
             " (SELECT min(sequence) FROM request WHERE state = 0 AND rule = rule.id) OR sequence ="                   \
             " (SELECT min(sequence) FROM request WHERE state = 1 AND rule = rule.id) ORDER BY sequence LIMIT 1)"      \
             " FROM rule WHERE waiting + under_way + dead > 0 ORDER BY name")

enum weir__sq_statement {
#define WEIR__SQ_ENUM(name, text) WEIR__SQ_##name,
    WEIR__SQ_STATEMENTS(WEIR__SQ_ENUM)
#undef WEIR__SQ_ENUM
        WEIR__SQ_COUNT
};

/* ---- The handle ---- */

/* Identity of a file: another one may get its name later. */
struct weir__sq_file {
    dev_t device;
    ino_t number; /* 0: none */
};

struct weir__sq {
    struct weir__queue queue;
    sqlite3 *db;
    sqlite3_stmt *statements[WEIR__SQ_COUNT];
    char *path;
    struct weir__sq_file file, log, index; /* the database, its WAL and its shared-memory index */
    bool full;                             /* PRAGMA synchronous is FULL now */
    bool claimed;                          /* this handle has claimed: earlier claims under its name have ended */
    int64_t synced_ms, emptied_ms;
    int error; /* the first of the present call; 0: none */
};

/* A bound parameter: a number, bytes or NULL. */
struct weir__sq_value {
    enum { WEIR__SQ_IS_NULL, WEIR__SQ_IS_NUMBER, WEIR__SQ_IS_BYTES } kind;
    int64_t number;
    weir_text bytes;
};

static inline struct weir__sq_value weir__sq_of_number(int64_t number)
{
    return (struct weir__sq_value){.kind = WEIR__SQ_IS_NUMBER, .number = number};
}

static inline struct weir__sq_value weir__sq_of_bytes(weir_text bytes)
{
    return (struct weir__sq_value){.kind = WEIR__SQ_IS_BYTES, .bytes = bytes};
}

static inline struct weir__sq_value weir__sq_of_value(struct weir__sq_value value)
{
    return value;
}

/* The parameters of a statement, 1 to 10 of them: integers, weir_text and struct weir__sq_value. */
#define WEIR__VALUES(...)                                                                                              \
    (const struct weir__sq_value[]){WEIR__V_PICK(__VA_ARGS__, WEIR__V10, WEIR__V9, WEIR__V8, WEIR__V7, WEIR__V6,       \
                                                 WEIR__V5, WEIR__V4, WEIR__V3, WEIR__V2, WEIR__V1, )(__VA_ARGS__)},    \
        WEIR__V_PICK(__VA_ARGS__, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, )
#define WEIR__V_PICK(a, b, c, d, e, f, g, h, i, j, which, ...) which
#define WEIR__V1(x)                                                                                                    \
    _Generic((x), weir_text                                                                                            \
             : weir__sq_of_bytes, struct weir__sq_value                                                                \
             : weir__sq_of_value, default                                                                              \
             : weir__sq_of_number)(x)
#define WEIR__V2(x, ...)  WEIR__V1(x), WEIR__V1(__VA_ARGS__)
#define WEIR__V3(x, ...)  WEIR__V1(x), WEIR__V2(__VA_ARGS__)
#define WEIR__V4(x, ...)  WEIR__V1(x), WEIR__V3(__VA_ARGS__)
#define WEIR__V5(x, ...)  WEIR__V1(x), WEIR__V4(__VA_ARGS__)
#define WEIR__V6(x, ...)  WEIR__V1(x), WEIR__V5(__VA_ARGS__)
#define WEIR__V7(x, ...)  WEIR__V1(x), WEIR__V6(__VA_ARGS__)
#define WEIR__V8(x, ...)  WEIR__V1(x), WEIR__V7(__VA_ARGS__)
#define WEIR__V9(x, ...)  WEIR__V1(x), WEIR__V8(__VA_ARGS__)
#define WEIR__V10(x, ...) WEIR__V1(x), WEIR__V9(__VA_ARGS__)

/*
 * Statements. The first error of a transaction or a call stays in q->error, and the statements after it do nothing, so
 * that only the end of the call checks it.
 */

/* Steps a statement. True: there is a row. Then weir__sq_next; weir__sq_done must follow. */
bool weir__sq_first(struct weir__sq *q, enum weir__sq_statement which, const struct weir__sq_value *values, int count);
bool weir__sq_next(struct weir__sq *q, enum weir__sq_statement which);
void weir__sq_done(struct weir__sq *q, enum weir__sq_statement which);
int64_t weir__sq_number(const struct weir__sq *q, enum weir__sq_statement which, int column);
bool weir__sq_null(const struct weir__sq *q, enum weir__sq_statement which, int column);
/* Valid until weir__sq_next or weir__sq_done. */
weir_text weir__sq_bytes(const struct weir__sq *q, enum weir__sq_statement which, int column);
/* Runs a statement and ignores its rows. */
void weir__sq_run(struct weir__sq *q, enum weir__sq_statement which, const struct weir__sq_value *values, int count);
/* Reads the first column of the rows into `to`; returns how many. */
int weir__sq_numbers(struct weir__sq *q, enum weir__sq_statement which, const struct weir__sq_value *values, int count,
                     int64_t *to, int most);

/* 0, REMOVED (the file was unlinked or replaced), or UNAVAILABLE (unknown). */
int weir__sq_check_file(struct weir__sq *q);
/* Begins a write transaction; returns q->error. acknowledged: its commit syncs, unless the options defer that. */
int weir__sq_write(struct weir__sq *q, bool acknowledged);
/* Commits, or rolls back after an error. Returns q->error. */
int weir__sq_end(struct weir__sq *q);
/* Checkpoints and truncates the WAL. False: another connection uses it; does not wait. */
bool weir__sq_empty_log(struct weir__sq *q);
/* Syncs the WAL if sync_second is set and a second has passed. */
int weir__sq_sync(struct weir__sq *q);

/* A row of `request`. */
struct weir__sq_row {
    int64_t sequence, rule, lane, bytes, accepted_ms, expires_ms;
    int state;
    bool mine; /* claimed by this handle */
};

/* The row of a sequence that was read in the same transaction. */
struct weir__sq_row weir__sq_row_at(struct weir__sq *q, int64_t sequence);
/* Finds the lane's head anew. */
void weir__sq_lane_head(struct weir__sq *q, int64_t lane);
/* Totals of all rules. */
struct weir__sq_totals {
    int64_t live, bytes; /* waiting or under way */
    int64_t dead, dead_bytes, ended;
};
struct weir__sq_totals weir__sq_read_totals(struct weir__sq *q);
/* Updates the stats of the row's rule: the request changes from row->state to this one, or to WEIR__SQ_REMOVED. */
#define WEIR__SQ_REMOVED WEIR__DEFERRED_STATES
void weir__sq_count(struct weir__sq *q, const struct weir__sq_row *row, int state);
/* Changes the state, with the stats. */
void weir__sq_to_waiting(struct weir__sq *q, const struct weir__sq_row *row, const struct weir__transition *change);

/* Reads WEIR__SQ_COLUMNS, and headers and body if the statement selects them. */
void weir__sq_read(const struct weir__sq *q, enum weir__sq_statement which, struct weir__deferred *item);
/* The bytes of a ticket, in `bits`. */
weir_text weir__sq_ticket(const char *ticket, char bits[WEIR__TICKET_LEN / 2]);

/* The calls. */
int weir__sq_put(struct weir__queue *queue, struct weir__deferred *items, const struct weir__queue_bounds *bounds,
                 int *errors, size_t count);
int weir__sq_claim(struct weir__queue *queue, const struct weir__claim_request *claim, weir__deferred_visit *visit,
                   void *context);
int weir__sq_change(struct weir__queue *queue, struct weir__transition *changes, size_t count);
int weir__sq_expire(struct weir__queue *queue, int64_t now_ms);

static inline struct weir__sq *weir__sq_of(struct weir__queue *queue)
{
    return (struct weir__sq *)(void *)queue;
}

#endif
