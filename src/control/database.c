/* Shared by both databases. See database.h. */
#include "control/database.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *code, *text;
} errors[] = {{"ok", "success"},
#define DESCRIPTION(name, number, code, text) [number] = {code, text},
              WEIR__DB_ERRORS(DESCRIPTION)
#undef DESCRIPTION
};

const char *weir__db_strerror(int error)
{
    return errors[-error].text;
}

const char *weir__db_error_code(int error)
{
    return errors[-error].code;
}

void weir__db_note(struct weir__db *db, const char *why)
{
    snprintf(db->why, sizeof db->why, "%s", why ? why : "");
    db->why[strcspn(db->why, "\r\n")] = 0;
}

int weir__db_open(const char *url, bool create, struct weir__db **db, char *why)
{
    weir_text path = weir__text_of(url);
    bool sqlite = weir__text_skip(&path, "sqlite:") && path.len;
    *db = NULL;
    if (why)
        *why = 0;
    if (!sqlite && strncmp(url, "postgresql://", 13) != 0 && strncmp(url, "postgres://", 11) != 0)
        return WEIR__DB_URL;
    struct weir__db *made = calloc(1, sizeof *made);
    if (!made || !(made->address = strdup(path.data))) {
        free(made);
        return WEIR__DB_MEMORY;
    }
    made->calls = sqlite ? &weir__sqlite : &weir__postgres;
    int error = made->calls->open(made, create);
    error = error ? error : weir__schema_update(made);
    if (error && why)
        memcpy(why, made->why, WEIR__DB_WHY_BYTES);
    if (error)
        weir__db_close(made);
    else
        *db = made;
    return error;
}

void weir__db_close(struct weir__db *db)
{
    if (!db)
        return;
    db->calls->close(db);
    weir__arena_free(&db->arena);
    free(db->address);
    free(db);
}

/* ---- Statements ---- */

int weir__db_run_with(struct weir__db *db, const char *sql, const struct weir__db_value *values, int count)
{
    weir__arena_free(&db->arena);
    db->arena = (struct weir__arena){0};
    db->first = db->row = NULL;
    db->end = &db->first;
    db->changed = 0;
    if (!db->error)
        db->error = db->calls->run(db, sql, values, count);
    if (!db->error && db->arena.failed)
        db->error = WEIR__DB_MEMORY;
    return db->error;
}

struct weir__db_row *weir__db_add_row(struct weir__db *db, int columns)
{
    struct weir__db_row *row = weir__arena_take(&db->arena, sizeof *row + (size_t)columns * sizeof row->cells[0]);
    if (row)
        db->end = &(*db->end = row)->next;
    return row;
}

bool weir__db_next(struct weir__db *db)
{
    struct weir__db_row *next = db->row ? db->row->next : db->first;
    if (next && !db->error)
        db->row = next;
    return next && !db->error;
}

weir_text weir__db_text(const struct weir__db *db, int column)
{
    return weir__db_is_null(db, column) ? (weir_text){"", 0} : db->row->cells[column];
}

int64_t weir__db_number(const struct weir__db *db, int column)
{
    return strtoll(weir__db_text(db, column).data, NULL, 10);
}

int64_t weir__db_count(struct weir__db *db, const char *sql)
{
    weir__db_run_with(db, sql, NULL, 0);
    return weir__db_next(db) ? weir__db_number(db, 0) : 0;
}

/* ---- Transactions ---- */

int weir__db_begin(struct weir__db *db)
{
    weir__db_run_with(db, db->calls->begin, NULL, 0);
    db->inside = !db->error;
    if (db->calls->lock)
        weir__db_run_with(db, db->calls->lock, NULL, 0);
    return db->error;
}

int weir__db_end(struct weir__db *db, bool keep)
{
    char why[WEIR__DB_WHY_BYTES];
    if (keep)
        weir__db_run_with(db, WEIR__DB_COMMIT, NULL, 0);
    if (db->inside && (db->error || !keep)) {
        memcpy(why, db->why, sizeof why); /* of the error, not of the rollback */
        (void)db->calls->run(db, "ROLLBACK", NULL, 0);
        memcpy(db->why, why, sizeof why);
    }
    db->inside = false;
    return db->error;
}
