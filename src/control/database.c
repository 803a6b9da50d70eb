/* Shared by both databases. See database.h. */
#include "control/database.h"

#include <stdio.h>
#include <stdlib.h>

const char *weir__db_strerror(int error)
{
    switch (error) {
#define TEXT_OF(name, number, text)                                                                                    \
    case WEIR__DB_##name:                                                                                              \
        return text;
        WEIR__DB_ERRORS(TEXT_OF)
#undef TEXT_OF
    default:
        return "success";
    }
}

int64_t weir__row_number(const struct weir__db_row *row, int column)
{
    return strtoll(row->text(row, column).data, NULL, 10);
}

void weir__db_note(struct weir__db *db, const char *why)
{
    snprintf(db->why, sizeof db->why, "%s", why ? why : "");
    db->why[strcspn(db->why, "\r\n")] = 0;
}

int weir__db_open(const char *url, bool create, struct weir__db **db, char *why)
{
    static const char sqlite[] = "sqlite:";
    char unused[WEIR__DB_WHY_BYTES];
    int error;
    why = why ? why : unused;
    *why = 0;
    *db = NULL;
    if (strncmp(url, sqlite, sizeof sqlite - 1) == 0 && url[sizeof sqlite - 1])
        error = weir__sqlite_open(url + sizeof sqlite - 1, create, db);
    else if (strncmp(url, "postgresql://", 13) == 0 || strncmp(url, "postgres://", 11) == 0)
        error = weir__postgres_open(url, db);
    else
        return WEIR__DB_URL;
    if (!error)
        error = weir__schema_update(*db);
    if (error && *db) {
        memcpy(why, (*db)->why, WEIR__DB_WHY_BYTES);
        weir__db_close(*db);
        *db = NULL;
    }
    return error;
}

void weir__db_close(struct weir__db *db)
{
    if (db)
        db->calls->close(db);
}

int weir__db_run(struct weir__db *db, const char *sql, const struct weir__db_value *values, int count,
                 weir__db_visit *visit, void *context)
{
    return db->calls->run(db, sql, values, count, visit, context, NULL);
}

int weir__db_change(struct weir__db *db, const char *sql, const struct weir__db_value *values, int count,
                    int64_t *changed)
{
    return db->calls->run(db, sql, values, count, NULL, NULL, changed);
}

static int keep_number(void *context, const struct weir__db_row *row)
{
    if (!row->null(row, 0))
        *(int64_t *)context = weir__row_number(row, 0);
    return 0;
}

int weir__db_number(struct weir__db *db, const char *sql, const struct weir__db_value *values, int count,
                    int64_t otherwise, int64_t *number)
{
    *number = otherwise;
    return weir__db_run(db, sql, values, count, keep_number, number);
}

int weir__db_begin(struct weir__db *db)
{
    return db->calls->begin(db);
}

int weir__db_end(struct weir__db *db, int error)
{
    char why[WEIR__DB_WHY_BYTES];
    if (!error && !(error = db->calls->commit(db)))
        return 0;
    memcpy(why, db->why, sizeof why); /* of the error, not of the rollback */
    db->calls->rollback(db);
    memcpy(db->why, why, sizeof why);
    return error;
}
