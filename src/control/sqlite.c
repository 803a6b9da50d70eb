/* SQLite: one file, a write-ahead log beside it, and every commit on the disk before it is acknowledged. */
#include "control/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUSY_MS 5000 /* how long to wait for another process that writes */

static int error_of(struct weir__db *db, int code)
{
    weir__db_note(db, sqlite3_errmsg(db->handle));
    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return WEIR__DB_BUSY;
    case SQLITE_FULL:
        return WEIR__DB_FULL;
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return WEIR__DB_READONLY;
    case SQLITE_CONSTRAINT:
        return WEIR__DB_CONFLICT;
    case SQLITE_NOMEM:
        return WEIR__DB_MEMORY;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        return WEIR__DB_GONE;
    default:
        return WEIR__DB_BROKEN;
    }
}

/* A commit to a file that was unlinked would be acknowledged and lost. */
static bool is_lost(struct weir__db *db)
{
    struct stat now;
    if (!db->inode || !sqlite3_get_autocommit(db->handle))
        return false;
    db->lost = stat(db->address, &now) != 0 || now.st_ino != db->inode || now.st_dev != db->device;
    if (db->lost)
        weir__db_note(db, "the file was removed or replaced");
    return db->lost;
}

static int bind(sqlite3_stmt *statement, int at, const struct weir__db_value *value)
{
    char name[16];
    snprintf(name, sizeof name, "$%d", at);
    int index = sqlite3_bind_parameter_index(statement, name);
    if (value->kind == WEIR__DB_NULL)
        return sqlite3_bind_null(statement, index);
    if (value->kind == WEIR__DB_NUMBER)
        return sqlite3_bind_int64(statement, index, value->number);
    return sqlite3_bind_text64(statement, index, value->text.len ? value->text.data : "", value->text.len,
                               SQLITE_STATIC, SQLITE_UTF8);
}

static void add_row(struct weir__db *db, sqlite3_stmt *statement)
{
    int columns = sqlite3_column_count(statement);
    struct weir__db_row *row = weir__db_add_row(db, columns);
    for (int i = 0; row && i < columns; i++) {
        if (sqlite3_column_type(statement, i) == SQLITE_NULL)
            continue;
        const char *text = (const char *)sqlite3_column_text(statement, i);
        db->arena.failed |= !text;
        if (text)
            row->cells[i] = weir__arena_copy(&db->arena, (weir_text){text, (size_t)sqlite3_column_bytes(statement, i)});
    }
}

static int run(struct weir__db *db, const char *sql, const struct weir__db_value *values, int count)
{
    int error = is_lost(db) ? WEIR__DB_GONE : 0;
    while (!error && *sql) {
        sqlite3_stmt *statement = NULL;
        int code = sqlite3_prepare_v2(db->handle, sql, -1, &statement, &sql);
        for (int i = 0; i < count && code == SQLITE_OK; i++)
            code = bind(statement, i + 1, &values[i]);
        while ((code == SQLITE_OK || code == SQLITE_ROW) && (code = sqlite3_step(statement)) == SQLITE_ROW)
            add_row(db, statement);
        error = code == SQLITE_DONE ? 0 : error_of(db, code);
        db->changed = sqlite3_changes(db->handle);
        sqlite3_finalize(statement);
    }
    return error;
}

static void close_handle(struct weir__db *db)
{
    sqlite3_close(db->handle);
}

/* Creates the file for its owner alone. SQLite gives its other files the same mode. */
static void make_private(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0)
        close(file);
}

static int open_file(struct weir__db *db, bool create)
{
    struct stat about = {0};
    sqlite3 *handle = NULL;
    bool memory = strcmp(db->address, ":memory:") == 0;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX | (create ? SQLITE_OPEN_CREATE : 0);
    if (create && !memory)
        make_private(db->address);
    int code = sqlite3_open_v2(db->address, &handle, flags, NULL);
    db->handle = handle;
    if (code != SQLITE_OK || !handle)
        return handle ? error_of(db, code) : WEIR__DB_MEMORY;
    sqlite3_extended_result_codes(handle, 1);
    sqlite3_busy_timeout(handle, BUSY_MS);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    if (!memory && stat(db->address, &about) != 0)
        return WEIR__DB_GONE;
    db->device = about.st_dev;
    db->inode = about.st_ino;
    static const char settings[] = "PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA journal_mode = WAL";
    return weir__db_run_with(db, settings, NULL, 0);
}

const struct weir__db_calls weir__sqlite = {
    .open = open_file, .run = run, .close = close_handle, .begin = "BEGIN IMMEDIATE"};
