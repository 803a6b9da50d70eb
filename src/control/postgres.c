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

static int error_of(struct weir__db *db, const PGresult *result)
{
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    weir__db_note(db, !db->handle       ? "no reply in time"
                      : result && state ? PQresultErrorMessage(result)
                                        : PQerrorMessage(db->handle));
    if (!state || PQstatus(db->handle) == CONNECTION_BAD)
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

static void abandon(struct weir__db *db)
{
    PQfinish(db->handle);
    db->handle = NULL;
    db->again_ms = weir__monotonic_ms() + AGAIN_MS;
}

/* True when the next result, or the error of a broken connection, can be read without waiting. */
static bool wait_for_result(struct weir__db *db, int64_t until_ms)
{
    int unsent;
    while ((unsent = PQflush(db->handle)) > 0 || PQisBusy(db->handle)) {
        int64_t left = until_ms - weir__monotonic_ms();
        struct pollfd wait = {.fd = PQsocket(db->handle), .events = (short)(unsent > 0 ? POLLIN | POLLOUT : POLLIN)};
        if (left <= 0 || wait.fd < 0)
            return false;
        int ready = poll(&wait, 1, (int)left);
        if (ready < 0 && errno != EINTR)
            return false;
        if (ready > 0 && (wait.revents & ~POLLOUT) && !PQconsumeInput(db->handle))
            return true;
    }
    return true;
}

/* The first result that is an error, else the last one. NULL: there is none. */
static PGresult *take_result(struct weir__db *db, bool sent)
{
    int64_t until_ms = weir__monotonic_ms() + RESULT_MS;
    PGresult *kept = NULL;
    for (int i = 0; sent && i < RESULTS_MAX && wait_for_result(db, until_ms); i++) {
        PGresult *next = PQgetResult(db->handle);
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
        abandon(db); /* a late result must not be taken for that of another statement */
    PQclear(kept);
    return NULL;
}

static int script(struct weir__db *db, const char *sql)
{
    PGresult *result = take_result(db, PQsendQuery(db->handle, sql) == 1);
    ExecStatusType status = PQresultStatus(result);
    int error = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ? 0 : error_of(db, result);
    PQclear(result);
    return error;
}

/* ---- Connecting ---- */

static void discard_notice(void *context, const char *message)
{
    (void)context;
    (void)message;
}

/* A database of PostgreSQL exists: `create` has no meaning here. */
static int connect(struct weir__db *db, bool create)
{
    (void)create;
    /* Defaults; options of the URL win. */
    static const char *const names[] = {"connect_timeout",
                                        "application_name",
                                        "client_encoding",
                                        "keepalives_idle",
                                        "tcp_user_timeout",
                                        "dbname",
                                        NULL};
    const char *const values[] = {CONNECT_S, "weir", "UTF8", "10", "10000", db->address, NULL};
    int64_t begin_ms = weir__monotonic_ms();
    PQfinish(db->handle);
    db->handle = PQconnectdbParams(names, values, 1);
    if (!db->handle)
        return WEIR__DB_MEMORY;
    if (PQstatus(db->handle) != CONNECTION_OK) {
        int error = error_of(db, NULL);
        if (weir__monotonic_ms() - begin_ms >= SLOW_MS)
            db->again_ms = weir__monotonic_ms() + AGAIN_MS;
        return error;
    }
    PQsetNoticeProcessor(db->handle, discard_notice, NULL);
    PQsetnonblocking(db->handle, 1);
    return script(db, SETTINGS);
}

/* Ensures a connection that is not known to be broken. */
static int connected(struct weir__db *db)
{
    if (PQstatus(db->handle) == CONNECTION_OK)
        return 0;
    if (db->inside)
        return WEIR__DB_GONE;
    if (weir__monotonic_ms() < db->again_ms) {
        weir__db_note(db, "it did not reply a moment ago");
        return WEIR__DB_GONE;
    }
    return connect(db, false);
}

/* ---- Statements ---- */

/* Parameters are sent as terminated texts. */
static PGresult *send(struct weir__db *db, const char *sql, const struct weir__db_value *values, int count)
{
    char numbers[WEIR__PARAMS_MAX][24];
    const char *texts[WEIR__PARAMS_MAX] = {0};
    for (int i = 0; i < count; i++) {
        if (values[i].kind == WEIR__DB_NUMBER) {
            snprintf(numbers[i], sizeof numbers[i], "%" PRId64, values[i].number);
            texts[i] = numbers[i];
        } else if (values[i].kind == WEIR__DB_TEXT) {
            texts[i] = weir__arena_copy(&db->arena, values[i].text).data;
        }
    }
    bool good = !db->arena.failed;
    return take_result(db, good && PQsendQueryParams(db->handle, sql, count, NULL, texts, NULL, NULL, 0) == 1);
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
    PGresult *result = NULL;
    int error = count <= WEIR__PARAMS_MAX ? connected(db) : WEIR__DB_BROKEN;
    /* A restart of the server shows at the first statement after it. Outside of a transaction the statement is sent
     * again only if it changes nothing: a change may have been made. */
    bool repeatable = strncmp(sql, "SELECT", 6) == 0 || strcmp(sql, "BEGIN") == 0;
    for (int attempt = 0; attempt < 2 && !error; attempt++) {
        result = send(db, sql, values, count);
        ExecStatusType status = PQresultStatus(result);
        if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
            break;
        error = error_of(db, result);
        PQclear(result);
        result = NULL;
        if (error == WEIR__DB_GONE && !db->inside && !repeatable)
            error = WEIR__DB_UNKNOWN;
        else if (error == WEIR__DB_GONE && !db->inside && attempt == 0)
            error = connected(db);
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
    if (db->inside && PQstatus(db->handle) == CONNECTION_OK)
        (void)script(db, "ROLLBACK");
    db->inside = false;
}

static int begin(struct weir__db *db)
{
    int error = run(db, "BEGIN", NULL, 0);
    db->inside = !error;
    if (!error)
        error = script(db, WRITERS_LOCK);
    if (error)
        rollback(db);
    return error;
}

static int commit(struct weir__db *db)
{
    bool lost = PQstatus(db->handle) != CONNECTION_OK; /* lost before COMMIT: nothing was committed */
    PGresult *result = take_result(db, !lost && PQsendQuery(db->handle, "COMMIT") == 1);
    /* The reply to COMMIT is ROLLBACK if the transaction had failed. */
    bool good = PQresultStatus(result) == PGRES_COMMAND_OK && strcmp(PQcmdStatus(result), "COMMIT") == 0;
    int error = good ? 0 : error_of(db, result);
    if (error == WEIR__DB_GONE && !lost)
        error = WEIR__DB_UNKNOWN;
    PQclear(result);
    db->inside = false;
    return error;
}

static void close_connection(struct weir__db *db)
{
    PQfinish(db->handle);
}

const struct weir__db_calls weir__postgres = {.open = connect,
                                              .run = run,
                                              .begin = begin,
                                              .commit = commit,
                                              .rollback = rollback,
                                              .script = script,
                                              .close = close_connection,
                                              .is_postgres = true};
