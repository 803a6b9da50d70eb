/*
 * PostgreSQL by libpq. A lost connection is reopened before the next statement; one lost inside of a transaction fails
 * that transaction. All waits are bounded: the server ends slow statements, and if it does not reply in time, the
 * connection is closed.
 */
#include "control/database.h"
#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Each writing transaction takes this lock first, so that a publication sees one state of all documents. */
#define WRITERS_LOCK "SELECT pg_advisory_xact_lock(8241737)"
#define SETTINGS                                                                                                       \
    "SET lock_timeout = '5s'; SET statement_timeout = '6s'; SET idle_in_transaction_session_timeout = '60s'"
#define CONNECT_S   "5"  /* for a connection */
#define RESULT_MS   8000 /* for all results of the statements sent at once */
#define SLOW_MS     1000 /* an attempt to connect that fails after this time is followed by a pause: */
#define AGAIN_MS    2000 /* until the next attempt, so that not every request waits for one */
#define RESULTS_MAX 1000

struct postgres_db {
    struct weir__db db;
    PGconn *connection; /* NULL: closed after a time-out */
    char *url;
    int64_t again_ms; /* no attempt to connect before this time */
    bool inside;      /* of a transaction */
};

static struct postgres_db *own(struct weir__db *db)
{
    return (struct postgres_db *)(void *)db;
}

static int error_of(struct postgres_db *p, const PGresult *result)
{
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    weir__db_note(&p->db, !p->connection    ? "no reply in time"
                          : result && state ? PQresultErrorMessage(result)
                                            : PQerrorMessage(p->connection));
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

/* ---- Results ---- */

static void abandon(struct postgres_db *p)
{
    PQfinish(p->connection);
    p->connection = NULL;
    p->again_ms = weir__monotonic_ms() + AGAIN_MS;
}

/* True when the next result, or the error of a broken connection, can be read without waiting. */
static bool wait_for_result(struct postgres_db *p, int64_t until_ms)
{
    int unsent;
    while ((unsent = PQflush(p->connection)) > 0 || PQisBusy(p->connection)) {
        int64_t left = until_ms - weir__monotonic_ms();
        struct pollfd wait = {.fd = PQsocket(p->connection), .events = (short)(unsent > 0 ? POLLIN | POLLOUT : POLLIN)};
        if (left <= 0 || wait.fd < 0)
            return false;
        int ready = poll(&wait, 1, (int)left);
        if (ready < 0 && errno != EINTR)
            return false;
        if (ready > 0 && (wait.revents & ~POLLOUT) && !PQconsumeInput(p->connection))
            return true;
    }
    return true;
}

/* The first result that is an error, else the last one. NULL: there is none. */
static PGresult *take_result(struct postgres_db *p, bool sent)
{
    int64_t until_ms = weir__monotonic_ms() + RESULT_MS;
    PGresult *kept = NULL;
    for (int i = 0; sent && i < RESULTS_MAX && wait_for_result(p, until_ms); i++) {
        PGresult *next = PQgetResult(p->connection);
        if (!next)
            return kept;
        if (PQresultStatus(kept) == PGRES_FATAL_ERROR && kept) {
            PQclear(next);
        } else {
            PQclear(kept);
            kept = next;
        }
    }
    if (sent)
        abandon(p); /* a late result must not be taken for that of another statement */
    PQclear(kept);
    return NULL;
}

static int script(struct weir__db *db, const char *sql)
{
    struct postgres_db *p = own(db);
    PGresult *result = take_result(p, PQsendQuery(p->connection, sql) == 1);
    ExecStatusType status = PQresultStatus(result);
    int error = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ? 0 : error_of(p, result);
    PQclear(result);
    return error;
}

/* ---- Connecting ---- */

static void discard_notice(void *context, const char *message)
{
    (void)context;
    (void)message;
}

static int connect(struct postgres_db *p)
{
    /* Defaults; options of the URL win. */
    static const char *const names[] = {"connect_timeout",
                                        "application_name",
                                        "client_encoding",
                                        "keepalives_idle",
                                        "tcp_user_timeout",
                                        "dbname",
                                        NULL};
    const char *const values[] = {CONNECT_S, "weir", "UTF8", "10", "10000", p->url, NULL};
    int64_t begin_ms = weir__monotonic_ms();
    PQfinish(p->connection);
    p->connection = PQconnectdbParams(names, values, 1);
    if (!p->connection)
        return WEIR__DB_MEMORY;
    if (PQstatus(p->connection) != CONNECTION_OK) {
        int error = error_of(p, NULL);
        if (weir__monotonic_ms() - begin_ms >= SLOW_MS)
            p->again_ms = weir__monotonic_ms() + AGAIN_MS;
        return error;
    }
    PQsetNoticeProcessor(p->connection, discard_notice, NULL);
    PQsetnonblocking(p->connection, 1);
    return script(&p->db, SETTINGS);
}

/* Ensures a connection that is not known to be broken. */
static int connected(struct postgres_db *p)
{
    if (PQstatus(p->connection) == CONNECTION_OK)
        return 0;
    if (p->inside)
        return WEIR__DB_GONE;
    if (weir__monotonic_ms() < p->again_ms) {
        weir__db_note(&p->db, "it did not reply a moment ago");
        return WEIR__DB_GONE;
    }
    return connect(p);
}

/* ---- Statements ---- */

/* Parameters are sent as terminated texts. */
static PGresult *send(struct postgres_db *p, const char *sql, const struct weir__db_value *values, int count)
{
    char numbers[WEIR__PARAMS_MAX][24];
    const char *texts[WEIR__PARAMS_MAX] = {0};
    for (int i = 0; i < count; i++) {
        if (values[i].kind == WEIR__DB_NUMBER) {
            snprintf(numbers[i], sizeof numbers[i], "%" PRId64, values[i].number);
            texts[i] = numbers[i];
        } else if (values[i].kind == WEIR__DB_TEXT) {
            texts[i] = weir__arena_copy(&p->db.arena, values[i].text).data;
        }
    }
    bool good = !p->db.arena.failed;
    return take_result(p, good && PQsendQueryParams(p->connection, sql, count, NULL, texts, NULL, NULL, 0) == 1);
}

static void add_rows(struct weir__db *db, const PGresult *result)
{
    int columns = PQnfields(result);
    for (int i = 0; i < PQntuples(result); i++) {
        struct weir__db_row *row = weir__db_add_row(db, columns);
        for (int k = 0; row && k < columns; k++)
            if (!PQgetisnull(result, i, k))
                row->cells[k] = weir__arena_copy(
                    &db->arena, (weir_text){PQgetvalue(result, i, k), (size_t)PQgetlength(result, i, k)});
    }
}

static int run(struct weir__db *db, const char *sql, const struct weir__db_value *values, int count)
{
    struct postgres_db *p = own(db);
    PGresult *result = NULL;
    int error = count <= WEIR__PARAMS_MAX ? connected(p) : WEIR__DB_BROKEN;
    /* A restart of the server shows at the first statement after it. Outside of a transaction the statement is sent
     * again only if it changes nothing: a change may have been made. */
    bool repeatable = strncmp(sql, "SELECT", 6) == 0 || strcmp(sql, "BEGIN") == 0;
    for (int attempt = 0; attempt < 2 && !error; attempt++) {
        result = send(p, sql, values, count);
        ExecStatusType status = PQresultStatus(result);
        if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
            break;
        error = error_of(p, result);
        PQclear(result);
        result = NULL;
        if (error == WEIR__DB_GONE && !p->inside && !repeatable)
            error = WEIR__DB_UNKNOWN;
        else if (error == WEIR__DB_GONE && !p->inside && attempt == 0)
            error = connected(p);
    }
    if (!error) {
        add_rows(db, result);
        db->changed = strtoll(PQcmdTuples(result), NULL, 10);
    }
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
    int error = run(db, "BEGIN", NULL, 0);
    own(db)->inside = !error;
    if (!error)
        error = script(db, WRITERS_LOCK);
    if (error)
        rollback(db);
    return error;
}

static int commit(struct weir__db *db)
{
    struct postgres_db *p = own(db);
    bool lost = PQstatus(p->connection) != CONNECTION_OK; /* lost before COMMIT: nothing was committed */
    PGresult *result = take_result(p, !lost && PQsendQuery(p->connection, "COMMIT") == 1);
    /* The reply to COMMIT is ROLLBACK if the transaction had failed. */
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
    free(own(db)->url);
    free(db);
}

static const struct weir__db_calls calls = {.run = run,
                                            .begin = begin,
                                            .commit = commit,
                                            .rollback = rollback,
                                            .script = script,
                                            .close = close_connection,
                                            .is_postgres = true};

int weir__postgres_open(const char *url, struct weir__db **db)
{
    struct postgres_db *made = calloc(1, sizeof *made);
    if (!made)
        return WEIR__DB_MEMORY;
    made->db.calls = &calls;
    made->url = strdup(url);
    *db = &made->db;
    return made->url ? connect(made) : WEIR__DB_MEMORY;
}
