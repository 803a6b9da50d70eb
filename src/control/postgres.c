/*
 * PostgreSQL by libpq. A connection that was lost is made again before the next statement; one that is lost inside of a
 * transaction fails that transaction.
 */
#include "control/database.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>

/* Who writes takes this lock first, for the length of the transaction: publishing sees one state of things. */
#define WRITERS_LOCK "SELECT pg_advisory_xact_lock(8241737)"
#define SETTINGS                                                                                                       \
    "SET lock_timeout = '5s'; SET statement_timeout = '15s'; SET idle_in_transaction_session_timeout = '60s'"

struct postgres_db {
    struct weir__db db;
    PGconn *connection;
    bool inside; /* of a transaction */
};

static struct postgres_db *own(struct weir__db *db)
{
    return (struct postgres_db *)(void *)db;
}

static int error_of(struct postgres_db *p, const PGresult *result)
{
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    weir__db_note(&p->db, result && state ? PQresultErrorMessage(result) : PQerrorMessage(p->connection));
    if (!state || PQstatus(p->connection) == CONNECTION_BAD)
        return WEIR__DB_GONE;
    static const struct {
        const char *prefix;
        int error;
    } known[] = {{"08", WEIR__DB_GONE},       {"57P", WEIR__DB_GONE},    {"55P03", WEIR__DB_BUSY},
                 {"57014", WEIR__DB_BUSY},    {"40", WEIR__DB_BUSY},     {"53100", WEIR__DB_FULL},
                 {"53", WEIR__DB_GONE},       {"23", WEIR__DB_CONFLICT}, {"25006", WEIR__DB_READONLY},
                 {"42501", WEIR__DB_READONLY}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(state, known[i].prefix, strlen(known[i].prefix)) == 0)
            return known[i].error;
    return WEIR__DB_BROKEN;
}

static int script(struct weir__db *db, const char *sql)
{
    struct postgres_db *p = own(db);
    PGresult *result = PQexec(p->connection, sql);
    ExecStatusType status = PQresultStatus(result);
    int error = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ? 0 : error_of(p, result);
    PQclear(result);
    return error;
}

/* A connection that works as far as we know. */
static int connected(struct postgres_db *p)
{
    if (PQstatus(p->connection) == CONNECTION_OK)
        return 0;
    if (p->inside)
        return WEIR__DB_GONE;
    PQreset(p->connection);
    if (PQstatus(p->connection) != CONNECTION_OK)
        return error_of(p, NULL);
    return script(&p->db, SETTINGS);
}

static weir_text column_text(const struct weir__db_row *row, int column)
{
    const PGresult *result = row->from;
    return (weir_text){PQgetvalue(result, row->at, column), (size_t)PQgetlength(result, row->at, column)};
}

static bool column_null(const struct weir__db_row *row, int column)
{
    return PQgetisnull(row->from, row->at, column);
}

/* Parameters go as texts with a zero byte; the copies of texts are in one piece of memory. */
static PGresult *send(struct postgres_db *p, const char *sql, const struct weir__db_value *values, int count)
{
    char numbers[WEIR__PARAMS_MAX][24];
    const char *texts[WEIR__PARAMS_MAX] = {0};
    size_t bytes = 1;
    for (int i = 0; i < count; i++)
        bytes += values[i].kind == WEIR__DB_TEXT ? values[i].text.len + 1 : 0;
    char *copies = malloc(bytes), *at = copies;
    if (!copies)
        return NULL;
    for (int i = 0; i < count; i++) {
        if (values[i].kind == WEIR__DB_NUMBER) {
            snprintf(numbers[i], sizeof numbers[i], "%" PRId64, values[i].number);
            texts[i] = numbers[i];
        } else if (values[i].kind == WEIR__DB_TEXT) {
            texts[i] = at;
            if (values[i].text.len)
                memcpy(at, values[i].text.data, values[i].text.len);
            at[values[i].text.len] = 0;
            at += values[i].text.len + 1;
        }
    }
    PGresult *result = PQexecParams(p->connection, sql, count, NULL, texts, NULL, NULL, 0);
    free(copies);
    return result;
}

static int run(struct weir__db *db, const char *sql, const struct weir__db_value *values, int count,
               weir__db_visit *visit, void *context, int64_t *changed)
{
    struct postgres_db *p = own(db);
    PGresult *result = NULL;
    int error = count <= WEIR__PARAMS_MAX ? connected(p) : WEIR__DB_BROKEN;
    /* The first statement after the server went away tells us that it did; outside of a transaction it is sent again
     * only if it reads: a change may have been made. */
    for (int attempt = 0; attempt < 2 && !error; attempt++) {
        result = send(p, sql, values, count);
        ExecStatusType status = PQresultStatus(result);
        if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
            break;
        error = error_of(p, result);
        PQclear(result);
        result = NULL;
        bool again = attempt == 0 && error == WEIR__DB_GONE && !p->inside && strncmp(sql, "SELECT", 6) == 0;
        if (again)
            error = connected(p);
    }
    struct weir__db_row row = {.from = result, .text = column_text, .null = column_null};
    for (int rows = PQntuples(result); !error && visit && row.at < rows; row.at++)
        error = visit(context, &row);
    if (!error && changed)
        *changed = strtoll(PQcmdTuples(result), NULL, 10);
    PQclear(result);
    return error;
}

static void rollback(struct weir__db *db)
{
    struct postgres_db *p = own(db);
    if (p->inside && PQstatus(p->connection) == CONNECTION_OK)
        (void)script(db, "ROLLBACK");
    p->inside = false;
}

static int begin(struct weir__db *db)
{
    struct postgres_db *p = own(db);
    int error = connected(p);
    for (int attempt = 0; attempt < 2 && !error; attempt++) {
        error = script(db, "BEGIN");
        if (error != WEIR__DB_GONE)
            break;
        error = connected(p); /* nothing has been changed yet: again, on a new connection */
    }
    p->inside = !error;
    if (!error)
        error = script(db, WRITERS_LOCK);
    if (error)
        rollback(db);
    return error;
}

static int commit(struct weir__db *db)
{
    struct postgres_db *p = own(db);
    bool lost = PQstatus(p->connection) != CONNECTION_OK; /* before, so that nothing can have been committed */
    PGresult *result = PQexec(p->connection, "COMMIT");
    /* A transaction that had failed answers its COMMIT with ROLLBACK. */
    bool good = PQresultStatus(result) == PGRES_COMMAND_OK && strcmp(PQcmdStatus(result), "COMMIT") == 0;
    int error = good ? 0 : error_of(p, result);
    if (error == WEIR__DB_GONE && !lost)
        error = WEIR__DB_UNKNOWN;
    PQclear(result);
    p->inside = false;
    return error;
}

static void close_connection(struct weir__db *db)
{
    PQfinish(own(db)->connection);
    free(db);
}

static const struct weir__db_calls calls = {.run = run,
                                            .begin = begin,
                                            .commit = commit,
                                            .rollback = rollback,
                                            .script = script,
                                            .close = close_connection,
                                            .is_postgres = true};

static void say_nothing(void *context, const char *message)
{
    (void)context;
    (void)message;
}

int weir__postgres_open(const char *url, struct weir__db **db, char *why)
{
    /* What the URL does not say. Its own options win. */
    static const char *const names[] = {"connect_timeout",
                                        "application_name",
                                        "client_encoding",
                                        "keepalives_idle",
                                        "tcp_user_timeout",
                                        "dbname",
                                        NULL};
    const char *const values[] = {"5", "weir", "UTF8", "10", "10000", url, NULL};
    struct postgres_db *made = calloc(1, sizeof *made);
    if (!made)
        return WEIR__DB_MEMORY;
    made->db.calls = &calls;
    made->connection = PQconnectdbParams(names, values, 1);
    int error = made->connection ? 0 : WEIR__DB_MEMORY;
    if (!error && PQstatus(made->connection) != CONNECTION_OK)
        error = error_of(made, NULL);
    if (!error) {
        PQsetNoticeProcessor(made->connection, say_nothing, NULL);
        error = script(&made->db, SETTINGS);
    }
    if (error) {
        snprintf(why, WEIR__DB_WHY_BYTES, "%s", made->db.why);
        close_connection(&made->db);
        return error;
    }
    *db = &made->db;
    return 0;
}
