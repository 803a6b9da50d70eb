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

/* The first result that is an error, else the last one. NULL: not all of them came in time, or there is none. */
static PGresult *take_result(struct weir__db *db)
{
    int64_t until_ms = weir__monotonic_ms() + RESULT_MS;
    PGresult *kept = NULL;
    for (int i = 0; i < RESULTS_MAX && wait_for_result(db, until_ms); i++) {
        PGresult *next = PQgetResult(db->handle);
        if (!next)
            return kept;
        bool is_error = kept && PQresultStatus(kept) == PGRES_FATAL_ERROR;
        PQclear(is_error ? next : kept);
        kept = is_error ? kept : next;
    }
    PQclear(kept);
    PQfinish(db->handle); /* a late result must not be taken for that of another statement */
    db->handle = NULL;
    db->again_ms = weir__monotonic_ms() + AGAIN_MS;
    return NULL;
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

/* ---- Statements ---- */

/* Parameters are sent as terminated texts. True: sent. */
static bool send_statement(struct weir__db *db, const char *sql, const struct weir__db_value *values, int count)
{
    char numbers[WEIR__PARAMS_MAX][24];
    const char *texts[WEIR__PARAMS_MAX] = {0};
    if (!count) /* PQsendQueryParams takes one statement only */
        return PQsendQuery(db->handle, sql) == 1;
    for (int i = 0; i < count; i++) {
        if (values[i].kind == WEIR__DB_NUMBER) {
            snprintf(numbers[i], sizeof numbers[i], "%" PRId64, values[i].number);
            texts[i] = numbers[i];
        } else if (values[i].kind == WEIR__DB_TEXT) {
            texts[i] = weir__arena_copy(&db->arena, values[i].text).data;
        }
    }
    return !db->arena.failed && PQsendQueryParams(db->handle, sql, count, NULL, texts, NULL, NULL, 0) == 1;
}

/* Sends a statement once, over the connection as it is, and takes its result. */
static int try(struct weir__db *db, const char *sql, const struct weir__db_value *values, int count)
{
    PGresult *result = send_statement(db, sql, values, count) ? take_result(db) : NULL;
    ExecStatusType status = PQresultStatus(result);
    bool good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    if (good && strcmp(sql, WEIR__DB_COMMIT) == 0) /* the reply is ROLLBACK if the transaction had failed */
        good = strcmp(PQcmdStatus(result), "COMMIT") == 0;
    int error = good ? 0 : error_of(db, result);
    if (good) {
        add_rows(db, result);
        db->changed = strtoll(PQcmdTuples(result), NULL, 10);
    }
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
    return try(db, SETTINGS, NULL, 0);
}

/* Connects again if the connection is known to be broken, but not inside of a transaction, which is lost with it. */
static int ensure_connection(struct weir__db *db)
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

/* A connection that broke, e.g. by a restart of the server, shows at the first statement after it. */
static int run(struct weir__db *db, const char *sql, const struct weir__db_value *values, int count)
{
    bool commits = strcmp(sql, WEIR__DB_COMMIT) == 0;
    bool changes_nothing = strncmp(sql, "SELECT", 6) == 0 || strcmp(sql, "BEGIN") == 0;
    int error = count <= WEIR__PARAMS_MAX ? ensure_connection(db) : WEIR__DB_BROKEN;
    if (error)
        return error;
    error = try(db, sql, values, count);
    if (error != WEIR__DB_GONE)
        return error;
    if (db->inside && !commits)
        return error; /* the server rolls the transaction back */
    if (!changes_nothing)
        return WEIR__DB_UNKNOWN; /* the server may have done it before the connection broke */
    error = ensure_connection(db);
    return error ? error : try(db, sql, values, count);
}

static void close_connection(struct weir__db *db)
{
    PQfinish(db->handle);
}

const struct weir__db_calls weir__postgres = {
    .open = connect,
    .run = run,
    .close = close_connection,
    .begin = "BEGIN",
    /* Each writing transaction takes this lock first, so that a publication sees one state of all documents. */
    .lock = "SELECT pg_advisory_xact_lock(8241737)",
    .is_postgres = true};
