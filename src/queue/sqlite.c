/*
 * The SQLite storage: schema, open and close, statements, transactions. One database file with a write-ahead log (WAL).
 */
#include "queue/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define BUSY_MS    5000 /* how long to wait for another writer */
#define LOOK_US    500  /* poll interval: about the time of a commit */
#define SYNC_MS    1000
#define LOG_BYTES  "67108864" /* journal_size_limit */
#define PATH_BYTES 4096

/* ---- Schema ---- */

/*
 * Tables:
 *
 *   rule     one row a rule with requests, and its stats
 *   lane     one row a rule and key with requests. place: 0 nothing to claim (none waits, or one is under way),
 *            1 head not known to be due, 2 head due. So a claim reads heads only, rule by rule
 *   request  one row a request: small, because every transition rewrites it
 *   payload  its headers and body, written once
 *   aside    one row a lane and group set aside. The requests have the group as their session, are not heads, and
 *            return to the lane one by one, oldest first, from due_ms on
 *
 * state: enum weir__deferred_state. over: NULL while waiting or under way, 1 delivered or cancelled, 2 dead.
 */
#define APPLICATION 1466252625 /* "Weiq" */
#define VERSION     3
#define MARK        "PRAGMA application_id = 1466252625; PRAGMA user_version = 3;"

#define LANE_INDEXES                                                                                                   \
    "CREATE INDEX lane_later ON lane(rule, due_ms) WHERE place = 1;"                                                   \
    "CREATE INDEX lane_ready ON lane(rule, head) WHERE place = 2;"

#define ASIDE_SCHEMA                                                                                                   \
    "CREATE INDEX request_lane ON request(lane, sequence) WHERE state = 0 AND session IS NULL;"                        \
    "CREATE INDEX request_aside ON request(lane, session, sequence) WHERE state = 0 AND session IS NOT NULL;"          \
    "CREATE TABLE aside(lane INTEGER NOT NULL, grouped INTEGER NOT NULL, due_ms INTEGER NOT NULL,"                     \
    " PRIMARY KEY(lane, grouped)) WITHOUT ROWID;"                                                                      \
    "CREATE INDEX aside_due ON aside(due_ms);"

static const char schema[] =
    "CREATE TABLE rule(id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, requests INTEGER NOT NULL DEFAULT 0,"
    " waiting INTEGER NOT NULL DEFAULT 0, under_way INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0,"
    " ended INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, dead_bytes INTEGER NOT NULL DEFAULT 0);"
    "CREATE TABLE lane(id INTEGER PRIMARY KEY, rule INTEGER NOT NULL, key BLOB NOT NULL, requests INTEGER NOT NULL,"
    " busy INTEGER NOT NULL, head INTEGER, due_ms INTEGER, place INTEGER NOT NULL, UNIQUE(rule, key));" LANE_INDEXES
    "CREATE TABLE request(sequence INTEGER PRIMARY KEY AUTOINCREMENT, ticket BLOB NOT NULL UNIQUE,"
    " rule INTEGER NOT NULL, lane INTEGER NOT NULL, state INTEGER NOT NULL, over INTEGER, cost INTEGER NOT NULL,"
    " attempts INTEGER NOT NULL, status INTEGER NOT NULL, bytes INTEGER NOT NULL, accepted_ms INTEGER NOT NULL,"
    " due_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, until_ms INTEGER,"
    " name BLOB, session INTEGER, method BLOB NOT NULL, target BLOB NOT NULL, why BLOB);"
    "CREATE INDEX request_state ON request(state, rule, sequence);"
    "CREATE INDEX request_expires ON request(expires_ms) WHERE state = 0;"
    "CREATE INDEX request_until ON request(until_ms) WHERE state = 1;"
    "CREATE INDEX request_over ON request(over, ended_ms, sequence) WHERE over IS NOT NULL;"
    "CREATE TABLE payload(sequence INTEGER PRIMARY KEY, headers BLOB NOT NULL, body BLOB NOT NULL);" ASIDE_SCHEMA MARK;

/* Version 1 had the lane indexes for all rules together; version 2 set no requests aside. */
static const char from_1[] = "DROP INDEX lane_later; DROP INDEX lane_ready;" LANE_INDEXES;
static const char from_2[] = "DROP INDEX request_lane;" ASIDE_SCHEMA MARK;

/*
 * Triggers of the connection, not of the file: they update the rule's stats and the lane's head in the statement that
 * changes a request. These statements are OR ROLLBACK, as after any error the transaction is rolled back: with the
 * default, OR ABORT, SQLite would keep a journal for each statement.
 */
static const char triggers[] =
    "CREATE TEMP TRIGGER request_put AFTER INSERT ON main.request BEGIN"
    " UPDATE rule SET requests = requests + 1, waiting = waiting + 1, bytes = bytes + new.bytes WHERE id = new.rule;"
    " UPDATE lane SET requests = requests + 1 WHERE id = new.lane;"
    " UPDATE lane SET head = new.sequence, due_ms = new.due_ms, place = 1"
    " WHERE id = new.lane AND busy = 0 AND head IS NULL;"
    "END;"
    "CREATE TEMP TRIGGER request_moved AFTER UPDATE OF state, session ON main.request BEGIN"
    " UPDATE rule SET waiting = waiting + (new.state = 0) - (old.state = 0),"
    " under_way = under_way + (new.state = 1) - (old.state = 1), dead = dead + (new.state = 3) - (old.state = 3),"
    " ended = ended + (new.state IN (2, 4)) - (old.state IN (2, 4)),"
    " bytes = bytes + new.bytes * ((new.state < 2) - (old.state < 2)),"
    " dead_bytes = dead_bytes + new.bytes * ((new.state = 3) - (old.state = 3))"
    " WHERE id = new.rule AND new.state <> old.state;"
    " DELETE FROM payload WHERE sequence = new.sequence AND new.state IN (2, 4);"
    " UPDATE lane SET busy = CASE WHEN 1 IN (old.state, new.state) THEN new.state = 1 ELSE busy END, (head, due_ms, "
    "place)"
    " = (SELECT min(sequence), due_ms, min(sequence) IS NOT NULL FROM request INDEXED BY request_lane"
    " WHERE lane = new.lane AND state = 0 AND session IS NULL AND new.state <> 1 AND (old.state = 1 OR busy = 0))"
    " WHERE id = new.lane;"
    "END;"
    "CREATE TEMP TRIGGER request_removed AFTER DELETE ON main.request BEGIN"
    " DELETE FROM payload WHERE sequence = old.sequence;"
    " UPDATE lane SET requests = requests - 1 WHERE id = old.lane;"
    " DELETE FROM lane WHERE id = old.lane AND requests = 0;"
    " UPDATE rule SET requests = requests - 1, dead = dead - (old.state = 3),"
    " ended = ended - (old.state IN (2, 4)), dead_bytes = dead_bytes - old.bytes * (old.state = 3)"
    " WHERE id = old.rule;"
    "END;";

static int error_of(struct weir__sq *q, int code)
{
    if (code == SQLITE_MISUSE || !q->db)
        weir__queue_set_why(&q->queue, sqlite3_errstr(code));
    else
        weir__queue_set_why(&q->queue, sqlite3_errmsg(q->db));
    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return WEIR__QUEUE_BUSY;
    case SQLITE_FULL:
        return WEIR__QUEUE_SPACE;
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return WEIR__QUEUE_READONLY;
    case SQLITE_NOMEM:
        return WEIR__QUEUE_MEMORY;
    case SQLITE_IOERR:
        /* the file has reached RLIMIT_FSIZE or a quota */
        return code == SQLITE_IOERR_WRITE ? WEIR__QUEUE_SPACE : WEIR__QUEUE_UNAVAILABLE;
    case SQLITE_CANTOPEN:
        return WEIR__QUEUE_UNAVAILABLE;
    default:
        return WEIR__QUEUE_BROKEN;
    }
}

/* ---- Statements ---- */

static int bind(sqlite3_stmt *statement, int at, const struct weir__queue_value *value)
{
    if (value->kind == WEIR__IS_NULL)
        return sqlite3_bind_null(statement, at);
    if (value->kind == WEIR__IS_NUMBER)
        return sqlite3_bind_int64(statement, at, value->number);
    return sqlite3_bind_blob64(statement, at, value->bytes.len ? value->bytes.data : "", value->bytes.len,
                               SQLITE_STATIC);
}

sqlite3_stmt *weir__sq_next(struct weir__sq *q, sqlite3_stmt *row)
{
    int code = sqlite3_step(row);
    if (code == SQLITE_ROW)
        return row;
    if (code != SQLITE_DONE)
        q->error = error_of(q, code);
    sqlite3_reset(row);
    return NULL;
}

sqlite3_stmt *weir__sq_first(struct weir__sq *q, const char *sql, const struct weir__queue_value *values, int count)
{
    struct weir__sq_prepared *prepared = q->prepared, *last = prepared + sizeof q->prepared / sizeof *prepared - 1;
    int code = SQLITE_OK;
    if (q->error)
        return NULL;
    while (prepared < last && prepared->sql && prepared->sql != sql)
        prepared++;
    if (prepared == last)
        code = SQLITE_NOMEM;
    else if (!prepared->sql)
        code = sqlite3_prepare_v3(q->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &prepared->statement, NULL);
    if (code == SQLITE_OK)
        prepared->sql = sql;
    for (int i = 0; i < count && code == SQLITE_OK; i++)
        code = bind(prepared->statement, i + 1, &values[i]);
    if (code == SQLITE_OK)
        return weir__sq_next(q, prepared->statement);
    q->error = error_of(q, code);
    return NULL;
}

int weir__sq_run(struct weir__sq *q, const char *sql, const struct weir__queue_value *values, int count)
{
    sqlite3_reset(weir__sq_first(q, sql, values, count));
    return q->error ? 0 : sqlite3_changes(q->db);
}

bool weir__sq_numbers(struct weir__sq *q, const char *sql, const struct weir__queue_value *values, int count,
                      int64_t *to, int columns)
{
    sqlite3_stmt *row = weir__sq_first(q, sql, values, count);
    for (int i = 0; i < columns; i++)
        to[i] = row ? sqlite3_column_int64(row, i) : 0;
    sqlite3_reset(row);
    return row != NULL;
}

/* Several statements that are not kept prepared. */
static void script(struct weir__sq *q, const char *sql)
{
    int code = q->error ? SQLITE_OK : sqlite3_exec(q->db, sql, NULL, NULL, NULL);
    if (code != SQLITE_OK)
        q->error = error_of(q, code);
}

/* ---- Transactions ---- */

/* The path of the database followed by `end`. */
static void sidecar_name(const struct weir__sq *q, const char *end, char name[PATH_BYTES])
{
    if (snprintf(name, PATH_BYTES, "%s%s", q->path, end) >= PATH_BYTES)
        *name = 0;
}

/* The file that has the name now. */
static struct weir__sq_file file_of(const struct weir__sq *q, const char *end)
{
    char name[PATH_BYTES];
    struct stat about;
    sidecar_name(q, end, name);
    return stat(name, &about) == 0 ? (struct weir__sq_file){about.st_dev, about.st_ino} : (struct weir__sq_file){0};
}

static bool is_same(struct weir__sq_file one, struct weir__sq_file other)
{
    return one.number && one.number == other.number && one.device == other.device;
}

/* A commit to an unlinked file would be acknowledged and lost. */
int weir__sq_check_file(struct weir__sq *q)
{
    errno = 0;
    if (is_same(q->files[WEIR__SQ_DATABASE], file_of(q, "")))
        return q->error = 0;
    /* Without access to the folder, or on an I/O error, it is not known; the WAL may still be in use. */
    bool knows = errno == 0 || errno == ENOENT || errno == ENOTDIR;
    weir__queue_set_why(&q->queue, knows ? q->path : strerror(errno));
    return q->error = knows ? WEIR__QUEUE_REMOVED : WEIR__QUEUE_UNAVAILABLE;
}

int weir__sq_write(struct weir__sq *q, bool acknowledged)
{
    bool full = acknowledged && !q->queue.options.sync_second;
    if (weir__sq_check_file(q) == 0 && full != q->full)
        script(q, full ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
    if (!q->error)
        q->full = full;
    weir__sq_run(q, "BEGIN IMMEDIATE", NULL, 0);
    return q->error;
}

int weir__sq_end(struct weir__sq *q)
{
    weir__sq_run(q, "COMMIT", NULL, 0);
    if (q->error && !sqlite3_get_autocommit(q->db))
        sqlite3_exec(q->db, "ROLLBACK", NULL, NULL, NULL);
    return q->error;
}

int weir__sq_sync(struct weir__sq *q)
{
    char name[PATH_BYTES];
    int64_t now_ms = weir__queue_now(&q->queue);
    if (!q->queue.options.sync_second || (now_ms >= q->synced_ms && now_ms - q->synced_ms < SYNC_MS))
        return 0;
    /* SQLite holds no POSIX locks on the WAL, which close() would release. */
    sidecar_name(q, "-wal", name);
    int file = open(name, O_RDONLY | O_CLOEXEC);
    bool good = file < 0 || fdatasync(file) == 0;
    if (file >= 0)
        close(file);
    if (!good) {
        weir__queue_set_why(&q->queue, "fdatasync failed");
        return WEIR__QUEUE_SPACE;
    }
    q->synced_ms = now_ms;
    return 0;
}

/* ---- Open and close ---- */

/* Replaces SQLite's busy handler, whose growing sleeps starve one of two busy writers. */
static int wait_for_others(void *context, int tries)
{
    struct timespec wait = {0, LOOK_US * 1000};
    (void)context;
    if (tries >= BUSY_MS * 1000 / LOOK_US)
        return 0;
    nanosleep(&wait, NULL);
    return 1;
}

bool weir__sq_empty_log(struct weir__sq *q)
{
    sqlite3_busy_handler(q->db, NULL, NULL);
    int code = sqlite3_wal_checkpoint_v2(q->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    sqlite3_busy_handler(q->db, wait_for_others, NULL);
    return code == SQLITE_OK;
}

/*
 * Serializes opening, and closing after removal, by a lock on the folder: SQLite finds its files by name, so a process
 * that removes the remains of one database must not race with one that creates the next. Waits as long as a writer
 * does.
 */
static int lock_folder(const char *path)
{
    char folder[PATH_BYTES];
    const char *end = strrchr(path, '/');
    int len = end ? snprintf(folder, sizeof folder, "%.*s/", (int)(end - path), path) : snprintf(folder, 3, ".");
    int file = len > 0 && (size_t)len < sizeof folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    for (int tries = 0; file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0 && wait_for_others(NULL, tries); tries++)
        continue;
    return file;
}

/*
 * The database's file was removed, moved or replaced. Checkpoints the WAL into it, in case that it was only moved, and
 * removes the WAL, which the next database of that name would take for its own.
 */
static void abandon(struct weir__sq *q)
{
    char name[PATH_BYTES], kept[PATH_BYTES];
    int all = 0, moved = 0;
    bool complete =
        sqlite3_wal_checkpoint_v2(q->db, NULL, SQLITE_CHECKPOINT_FULL, &all, &moved) == SQLITE_OK && all == moved;
    sidecar_name(q, "-wal", name);
    sidecar_name(q, "-wal.lost", kept);
    if (is_same(q->files[WEIR__SQ_WAL], file_of(q, "-wal")) && (complete ? unlink(name) : rename(name, kept)) == 0 &&
        !complete && q->queue.options.log)
        weir__logf(q->queue.options.log, WEIR__LOG_WARNING,
                   "queue: the file was removed or moved, and its write-ahead log could not be checkpointed; the log "
                   "is kept as %s",
                   kept);
    sidecar_name(q, "-shm", name);
    if (is_same(q->files[WEIR__SQ_INDEX], file_of(q, "-shm")))
        (void)unlink(name);
}

void weir__sq_close(struct weir__queue *queue)
{
    struct weir__sq *q = weir__sq_of(queue);
    int folder = q->files[WEIR__SQ_DATABASE].number ? lock_folder(q->path) : -1;
    for (struct weir__sq_prepared *prepared = q->prepared; prepared->sql; prepared++)
        sqlite3_finalize(prepared->statement);
    if (q->files[WEIR__SQ_DATABASE].number && weir__sq_check_file(q) == WEIR__QUEUE_REMOVED)
        abandon(q);
    sqlite3_close(q->db);
    if (folder >= 0)
        close(folder);
    free(q->path);
    free(q);
}

/* Refuses a database of another application; makes an empty one a queue; migrates older versions. */
static void make_schema(struct weir__sq *q)
{
    int64_t found[3]; /* application, version, number of tables */
    script(q, "BEGIN IMMEDIATE");
    weir__sq_numbers(q,
                     "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
                     " FROM pragma_application_id, pragma_user_version",
                     NULL, 0, found, 3);
    if (found[2] == 0 && found[0] == 0) {
        script(q, schema);
    } else if (found[0] != APPLICATION) {
        weir__queue_set_why(&q->queue, "the file is a database of something else");
        q->error = WEIR__QUEUE_BROKEN;
    } else if (found[1] > VERSION) {
        q->error = WEIR__QUEUE_NEWER;
    } else if (found[1] < VERSION) {
        if (found[1] < 2)
            script(q, from_1);
        script(q, from_2);
    }
    weir__sq_end(q);
    script(q, triggers);
}

/* Records the identity of the files. UNAVAILABLE: another file has the name already. */
static void know_files(struct weir__sq *q)
{
    static const char *const ends[WEIR__SQ_FILES] = {"", "-wal", "-shm"};
    int moved = 1;
    for (int i = 0; i < WEIR__SQ_FILES; i++)
        q->files[i] = file_of(q, ends[i]);
    if (sqlite3_file_control(q->db, NULL, SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && !moved &&
        q->files[WEIR__SQ_DATABASE].number)
        return;
    q->files[WEIR__SQ_DATABASE].number = 0;
    q->error = WEIR__QUEUE_UNAVAILABLE;
}

/* Returns q->error. */
static int connect(struct weir__sq *q)
{
    /* Mode 0600, which SQLite's other files inherit. */
    int file = open(q->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0)
        close(file);
    int code = sqlite3_open_v2(q->path, &q->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK)
        return error_of(q, code);
    sqlite3_extended_result_codes(q->db, 1);
    sqlite3_busy_handler(q->db, wait_for_others, NULL);
    sqlite3_db_config(q->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(q->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    script(q, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;"
              "PRAGMA secure_delete = ON; PRAGMA journal_size_limit = " LOG_BYTES);
    q->full = true;
    make_schema(q);
    if (!q->error)
        know_files(q);
    return q->error;
}

int weir__queue_sqlite(const char *path, const struct weir__queue *made, struct weir__queue **queue, char *why)
{
    struct weir__sq *q = calloc(1, sizeof *q);
    if (!q)
        return WEIR__QUEUE_MEMORY;
    q->queue = *made;
    q->queue.calls = &weir__sq_calls;
    q->path = strdup(path);
    int folder = lock_folder(path);
    int error = q->path ? connect(q) : WEIR__QUEUE_MEMORY;
    if (folder >= 0)
        close(folder);
    if (error) {
        snprintf(why, WEIR__QUEUE_SOURCE_TEXT, "%s", q->queue.why);
        weir__sq_close(&q->queue);
        return error;
    }
    *queue = &q->queue;
    return 0;
}
