/*
 * The SQLite storage: open and close, statements, transactions, find, list and stats. One database file with a
 * write-ahead log (WAL).
 */
#include "queue/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define BUSY_MS   5000 /* how long to wait for another writer */
#define LOOK_US   500  /* poll interval: about the time of a commit */
#define SYNC_MS   1000
#define LOG_BYTES "67108864" /* journal_size_limit */

static const char *const texts[WEIR__SQ_COUNT] = {
#define WEIR__SQ_TEXT(name, text) text,
    WEIR__SQ_STATEMENTS(WEIR__SQ_TEXT)
#undef WEIR__SQ_TEXT
};

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

static int bind(sqlite3_stmt *statement, int at, const struct weir__sq_value *value)
{
    if (value->kind == WEIR__SQ_IS_NULL)
        return sqlite3_bind_null(statement, at);
    if (value->kind == WEIR__SQ_IS_NUMBER)
        return sqlite3_bind_int64(statement, at, value->number);
    return sqlite3_bind_blob64(statement, at, value->bytes.len ? value->bytes.data : "", value->bytes.len,
                               SQLITE_STATIC);
}

bool weir__sq_next(struct weir__sq *q, enum weir__sq_statement which)
{
    int code = q->error ? SQLITE_DONE : sqlite3_step(q->statements[which]);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        q->error = error_of(q, code);
    return code == SQLITE_ROW;
}

bool weir__sq_first(struct weir__sq *q, enum weir__sq_statement which, const struct weir__sq_value *values, int count)
{
    int code = SQLITE_OK;
    if (!q->error && !q->statements[which])
        code = sqlite3_prepare_v3(q->db, texts[which], -1, SQLITE_PREPARE_PERSISTENT, &q->statements[which], NULL);
    for (int i = 0; i < count && code == SQLITE_OK && !q->error; i++)
        code = bind(q->statements[which], i + 1, &values[i]);
    if (code != SQLITE_OK)
        q->error = error_of(q, code);
    return weir__sq_next(q, which);
}

void weir__sq_done(struct weir__sq *q, enum weir__sq_statement which)
{
    if (!q->statements[which])
        return; /* not prepared, because of an error */
    sqlite3_reset(q->statements[which]);
    sqlite3_clear_bindings(q->statements[which]);
}

int64_t weir__sq_number(const struct weir__sq *q, enum weir__sq_statement which, int column)
{
    return sqlite3_column_int64(q->statements[which], column);
}

bool weir__sq_null(const struct weir__sq *q, enum weir__sq_statement which, int column)
{
    return sqlite3_column_type(q->statements[which], column) == SQLITE_NULL;
}

weir_text weir__sq_bytes(const struct weir__sq *q, enum weir__sq_statement which, int column)
{
    const void *bytes = sqlite3_column_blob(q->statements[which], column);
    int len = sqlite3_column_bytes(q->statements[which], column);
    return bytes && len > 0 ? (weir_text){bytes, (size_t)len} : (weir_text){"", 0};
}

void weir__sq_run(struct weir__sq *q, enum weir__sq_statement which, const struct weir__sq_value *values, int count)
{
    (void)weir__sq_first(q, which, values, count);
    weir__sq_done(q, which);
}

int weir__sq_numbers(struct weir__sq *q, enum weir__sq_statement which, const struct weir__sq_value *values, int count,
                     int64_t *to, int most)
{
    int found = 0;
    for (bool row = weir__sq_first(q, which, values, count); row && found < most; row = weir__sq_next(q, which))
        to[found++] = weir__sq_number(q, which, 0);
    weir__sq_done(q, which);
    return q->error ? 0 : found;
}

/* ---- Transactions ---- */

static int script(struct weir__sq *q, const char *sql)
{
    int code = sqlite3_exec(q->db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? 0 : error_of(q, code);
}

static struct weir__sq_file file_of(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 ? (struct weir__sq_file){about.st_dev, about.st_ino} : (struct weir__sq_file){0};
}

static bool is_same(struct weir__sq_file one, struct weir__sq_file other)
{
    return one.number && one.number == other.number && one.device == other.device;
}

/* A commit to an unlinked file would be acknowledged and lost. */
int weir__sq_check_file(struct weir__sq *q)
{
    errno = 0;
    if (is_same(q->file, file_of(q->path)))
        return 0;
    /* Without access to the folder, or on an I/O error, it is not known; the WAL may still be in use. */
    bool knows = errno == 0 || errno == ENOENT || errno == ENOTDIR;
    weir__queue_set_why(&q->queue, knows ? q->path : strerror(errno));
    return knows ? WEIR__QUEUE_REMOVED : WEIR__QUEUE_UNAVAILABLE;
}

int weir__sq_write(struct weir__sq *q, bool acknowledged)
{
    bool full = acknowledged && !q->queue.options.sync_second;
    q->error = weir__sq_check_file(q);
    if (!q->error && full != q->full)
        q->error = script(q, full ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
    if (!q->error)
        q->full = full;
    weir__sq_run(q, WEIR__SQ_BEGIN, NULL, 0);
    return q->error;
}

int weir__sq_end(struct weir__sq *q)
{
    char why[sizeof q->queue.why];
    weir__sq_run(q, WEIR__SQ_COMMIT, NULL, 0);
    int error = q->error;
    if (error && !sqlite3_get_autocommit(q->db)) {
        memcpy(why, q->queue.why, sizeof why);
        q->error = 0;
        weir__sq_run(q, WEIR__SQ_ROLLBACK, NULL, 0);
        memcpy(q->queue.why, why, sizeof why);
    }
    return q->error = error;
}

int weir__sq_sync(struct weir__sq *q)
{
    char name[4096];
    int64_t now_ms = weir__queue_now(&q->queue);
    if (!q->queue.options.sync_second || (now_ms >= q->synced_ms && now_ms - q->synced_ms < SYNC_MS))
        return 0;
    /* SQLite holds no POSIX locks on the WAL, which close() would release. */
    int len = snprintf(name, sizeof name, "%s-wal", q->path);
    int file = len > 0 && (size_t)len < sizeof name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
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

/* ---- Find, list, stats ---- */

void weir__sq_read(const struct weir__sq *q, enum weir__sq_statement which, struct weir__deferred *item)
{
    bool complete = sqlite3_column_count(q->statements[which]) > 15;
    static const weir_text none = {"", 0};
    *item = (struct weir__deferred){.sequence = (uint64_t)weir__sq_number(q, which, 0),
                                    .rule = weir__sq_bytes(q, which, 2),
                                    .key = weir__sq_bytes(q, which, 3),
                                    .cost = weir__sq_number(q, which, 4),
                                    .method = weir__sq_bytes(q, which, 5),
                                    .target = weir__sq_bytes(q, which, 6),
                                    .headers = complete ? weir__sq_bytes(q, which, 15) : none,
                                    .body = complete ? weir__sq_bytes(q, which, 16) : none,
                                    .accepted_ms = weir__sq_number(q, which, 7),
                                    .due_ms = weir__sq_number(q, which, 8),
                                    .expires_ms = weir__sq_number(q, which, 9),
                                    .ended_ms = weir__sq_number(q, which, 10),
                                    .attempts = (int)weir__sq_number(q, which, 11),
                                    .state = (enum weir__deferred_state)weir__sq_number(q, which, 12),
                                    .why = weir__sq_bytes(q, which, 13),
                                    .last_status = (int)weir__sq_number(q, which, 14)};
    weir__ticket_format(weir__sq_bytes(q, which, 1), item->ticket);
}

static int find(struct weir__queue *queue, const char *ticket, weir__deferred_visit *visit, void *context)
{
    struct weir__sq *q = weir__sq_of(queue);
    char bits[WEIR__TICKET_LEN / 2];
    struct weir__deferred item;
    int result = WEIR__QUEUE_GONE;
    q->error = weir__sq_check_file(q);
    if (weir__sq_first(q, WEIR__SQ_FIND, WEIR__VALUES(weir__sq_ticket(ticket, bits)))) {
        weir__sq_read(q, WEIR__SQ_FIND, &item);
        result = visit(context, &item);
    }
    weir__sq_done(q, WEIR__SQ_FIND);
    return q->error ? q->error : result;
}

static int list(struct weir__queue *queue, const struct weir__queue_filter *filter, weir__deferred_visit *visit,
                void *context)
{
    struct weir__sq *q = weir__sq_of(queue);
    struct weir__deferred item;
    bool by_rule = filter->rule.len > 0, by_state = filter->state >= 0;
    enum weir__sq_statement which = by_rule && by_state ? WEIR__SQ_LIST_BOTH
                                    : by_rule           ? WEIR__SQ_LIST_RULE
                                    : by_state          ? WEIR__SQ_LIST_STATE
                                                        : WEIR__SQ_LIST;
    struct weir__sq_value values[4] = {WEIR__V2((int64_t)filter->after, (int64_t)filter->limit)};
    int count = 2, stop = 0;
    if (by_rule)
        values[count++] = weir__sq_of_bytes(filter->rule);
    if (by_state)
        values[count++] = weir__sq_of_number(filter->state);
    q->error = weir__sq_check_file(q);
    for (bool row = weir__sq_first(q, which, values, count); row && !stop; row = !stop && weir__sq_next(q, which)) {
        weir__sq_read(q, which, &item);
        stop = visit(context, &item);
    }
    weir__sq_done(q, which);
    return q->error ? q->error : stop;
}

static int stats_read(struct weir__queue *queue, weir__queue_stats_visit *visit, void *context)
{
    struct weir__sq *q = weir__sq_of(queue);
    const enum weir__sq_statement which = WEIR__SQ_STATS;
    int stop = 0;
    q->error = weir__sq_check_file(q);
    for (bool row = weir__sq_first(q, which, NULL, 0); row && !stop; row = !stop && weir__sq_next(q, which)) {
        struct weir__queue_stats stats = {.rule = weir__sq_bytes(q, which, 0),
                                          .waiting = weir__sq_number(q, which, 1),
                                          .under_way = weir__sq_number(q, which, 2),
                                          .dead = weir__sq_number(q, which, 3),
                                          .bytes = weir__sq_number(q, which, 4),
                                          .oldest_ms = weir__sq_number(q, which, 5)};
        stop = visit(context, &stats);
    }
    weir__sq_done(q, which);
    return q->error ? q->error : stop;
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
    char folder[4096];
    const char *end = strrchr(path, '/');
    int len = end ? snprintf(folder, sizeof folder, "%.*s/", (int)(end - path), path) : snprintf(folder, 3, ".");
    int file = len > 0 && (size_t)len < sizeof folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    for (int tries = 0; file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0 && wait_for_others(NULL, tries); tries++)
        continue;
    return file;
}

static void unlock_folder(int file)
{
    if (file >= 0)
        close(file);
}

static void wal_name(const struct weir__sq *q, const char *end, char name[4096])
{
    if (snprintf(name, 4096, "%s%s", q->path, end) >= 4096)
        *name = 0;
}

/*
 * The database's file was removed, moved or replaced. Checkpoints the WAL into it, in case that it was only moved, and
 * removes the WAL, which the next database of that name would take for its own.
 */
static void abandon(struct weir__sq *q)
{
    char name[4096], kept[4096];
    int all = 0, moved = 0;
    bool complete =
        sqlite3_wal_checkpoint_v2(q->db, NULL, SQLITE_CHECKPOINT_FULL, &all, &moved) == SQLITE_OK && all == moved;
    wal_name(q, "-wal", name);
    wal_name(q, "-wal.lost", kept);
    if (is_same(q->log, file_of(name)) && (complete ? unlink(name) : rename(name, kept)) == 0 && !complete &&
        q->queue.options.set_aside)
        q->queue.options.set_aside(q->queue.options.context, kept);
    wal_name(q, "-shm", name);
    if (is_same(q->index, file_of(name)))
        (void)unlink(name);
}

static void close_handle(struct weir__queue *queue)
{
    struct weir__sq *q = weir__sq_of(queue);
    int folder = q->file.number ? lock_folder(q->path) : -1;
    for (int i = 0; i < WEIR__SQ_COUNT; i++)
        sqlite3_finalize(q->statements[i]);
    if (q->file.number && weir__sq_check_file(q) == WEIR__QUEUE_REMOVED)
        abandon(q);
    sqlite3_close(q->db);
    unlock_folder(folder);
    free(q->path);
    free(q);
}

static const struct weir__queue_calls calls = {.put = weir__sq_put,
                                               .claim = weir__sq_claim,
                                               .change = weir__sq_change,
                                               .find = find,
                                               .list = list,
                                               .expire = weir__sq_expire,
                                               .stats = stats_read,
                                               .close = close_handle};

static int pragma(struct weir__sq *q, const char *sql, int64_t *number)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(q->db, sql, -1, &statement, NULL);
    if (code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        *number = sqlite3_column_int64(statement, 0);
        code = SQLITE_OK;
    }
    int error = code == SQLITE_OK ? 0 : error_of(q, code);
    sqlite3_finalize(statement);
    return error;
}

/* Refuses a database of another application; makes an empty one a queue; migrates older versions. */
static int make_schema(struct weir__sq *q)
{
    int64_t application = 0, version = 0, tables = 0;
    int error = script(q, "BEGIN IMMEDIATE");
    if (error)
        return error;
    error = pragma(q, "PRAGMA application_id", &application);
    if (!error)
        error = pragma(q, "PRAGMA user_version", &version);
    if (!error)
        error = pragma(q, "SELECT count(*) FROM sqlite_master", &tables);
    if (!error && tables == 0 && application == 0) {
        error = script(q, WEIR__SQ_SCHEMA WEIR__SQ_MARK);
    } else if (!error && application != WEIR__SQ_APPLICATION) {
        weir__queue_set_why(&q->queue, "the file is a database of something else");
        error = WEIR__QUEUE_BROKEN;
    } else if (!error && version > WEIR__SQ_VERSION) {
        error = WEIR__QUEUE_NEWER;
    } else if (!error && version < WEIR__SQ_VERSION) {
        error = script(q, version < 2 ? WEIR__SQ_FROM_1 WEIR__SQ_FROM_2 WEIR__SQ_MARK : WEIR__SQ_FROM_2 WEIR__SQ_MARK);
    }
    q->error = error;
    return weir__sq_end(q);
}

/* Records the identity of the files. UNAVAILABLE: another file has the name already. */
static int know_files(struct weir__sq *q)
{
    char name[4096];
    int moved = 1;
    q->file = file_of(q->path);
    wal_name(q, "-wal", name);
    q->log = file_of(name);
    wal_name(q, "-shm", name);
    q->index = file_of(name);
    if (sqlite3_file_control(q->db, NULL, SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && !moved && q->file.number)
        return 0;
    q->file.number = 0;
    return WEIR__QUEUE_UNAVAILABLE;
}

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
    int error = script(q, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;"
                          "PRAGMA secure_delete = ON; PRAGMA journal_size_limit = " LOG_BYTES);
    q->full = true;
    if (!error)
        error = make_schema(q);
    if (error)
        return error;
    return know_files(q);
}

int weir__queue_sqlite(const char *path, const struct weir__queue *made, struct weir__queue **queue, char *why)
{
    struct weir__sq *q = calloc(1, sizeof *q);
    if (!q)
        return WEIR__QUEUE_MEMORY;
    q->queue = *made;
    q->queue.calls = &calls;
    q->path = strdup(path);
    int folder = lock_folder(path);
    int error = q->path ? connect(q) : WEIR__QUEUE_MEMORY;
    unlock_folder(folder);
    if (error) {
        snprintf(why, WEIR__QUEUE_SOURCE_TEXT, "%s", q->queue.why);
        close_handle(&q->queue);
        return error;
    }
    *queue = &q->queue;
    return 0;
}
