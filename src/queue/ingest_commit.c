/*
 * The committer: the one thread of ingest that calls the queue. Group commit: all puts that arrive during a transaction
 * go into the next one, so that they share an fsync.
 */
#include "queue/ingest_internal.h"
#include "queue/queue_internal.h"
#include "base/clock.h"
#include "base/duration.h"

#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TICKET_JOBS_MAX = 64, /* between two transactions */
    WAITING_MAX = 8192,
    OPEN_AGAIN_MS = 1000,
    LOG_AGAIN_MS = 60000, /* interval of repeated log lines */
    IN_DOUBT_MS = 100     /* interval of attempts to cancel in-doubt puts */
};

/* Jobs in the order in which they came. */
struct jobs {
    struct weir__ingest_job *job[WAITING_MAX];
    size_t count;
};

struct weir__committer {
    const struct weir__config *config;
    const struct weir__logger *log;
    void (*done)(struct weir__ingest_job *job);
    struct weir__dispatcher *dispatcher; /* may be NULL */
    pthread_t thread;
    bool runs;

    struct weir__queue *queue; /* the thread's; NULL: not open */
    int64_t opened_ms;         /* of the last attempt */
    int last_error;            /* logged; 0: the queue works */
    int64_t refused_ms;        /* of the last log line about refused requests */
    bool in_doubt;             /* some puts are in doubt: to be cancelled */
    struct weir__queue_put *transaction[WEIR__QUEUE_PUT_MAX];
    size_t transaction_count;

    pthread_mutex_t lock;
    pthread_cond_t more;
    struct jobs puts, ticket_jobs;
    bool ending;
};

/* Moves the first `max` jobs of a list; returns how many. */
static size_t take(struct jobs *from, struct weir__ingest_job **to, size_t max)
{
    size_t count = from->count < max ? from->count : max;
    memcpy(to, from->job, count * sizeof(struct weir__ingest_job *));
    from->count -= count;
    memmove(from->job, from->job + count, from->count * sizeof(struct weir__ingest_job *));
    return count;
}

/* ---- In the thread ---- */

static void log_error(const struct weir__committer *committer, int error, const char *why)
{
    weir__logf(committer->log, WEIR__LOG_WARNING, "queue: %s%s%s; requests are denied instead of deferred",
               weir__queue_strerror(error), *why ? ": " : "", why);
}

/* Logs an error of the whole queue when it begins and when it ends. */
static void log_state(struct weir__committer *committer, int error, const char *why)
{
    if (error && error != committer->last_error)
        log_error(committer, error, why);
    else if (!error && committer->last_error)
        weir__logf(committer->log, WEIR__LOG_INFO, "queue: available again; requests are deferred");
    committer->last_error = error;
}

/* Logs errors of single requests, such as a full queue, at most once in LOG_AGAIN_MS. */
static void log_refused(struct weir__committer *committer, int error)
{
    int64_t now = weir__monotonic_ms();
    if (!error || (committer->refused_ms && now - committer->refused_ms < LOG_AGAIN_MS))
        return;
    committer->refused_ms = now;
    log_error(committer, error, "");
}

static int open_queue(struct weir__committer *committer)
{
    char why[WEIR__QUEUE_SOURCE_TEXT];
    int64_t now = weir__monotonic_ms();
    if (committer->queue)
        return 0;
    if (committer->opened_ms && now - committer->opened_ms < OPEN_AGAIN_MS)
        return WEIR__QUEUE_UNAVAILABLE;
    committer->opened_ms = now;
    int error = weir__queue_open_configured(committer->config, "ingest", committer->log, &committer->queue, why);
    if (error)
        log_state(committer, error, why);
    return error;
}

/*
 * Opens the queue and calls it. If its file was removed, which the dispatcher logs if it had it open, opens the one
 * that now has its path, and calls that.
 */
static int call_queue(struct weir__committer *committer,
                      int (*call)(struct weir__committer *committer, struct weir__ingest_job *job),
                      struct weir__ingest_job *job)
{
    int error = open_queue(committer);
    error = error ? error : call(committer, job);
    if (error != WEIR__QUEUE_REMOVED)
        return error;
    weir__queue_close(committer->queue);
    committer->queue = NULL;
    committer->opened_ms = 0;
    error = open_queue(committer);
    return error ? error : call(committer, job);
}

/*
 * Leaves out puts whose client has disconnected: a request that was denied meanwhile, or whose client never gets the
 * ticket, should not be enqueued if that can be avoided.
 */
static bool is_disconnected(const struct weir__ingest_job *job)
{
    struct pollfd client = {.fd = job->fd, .events = POLLRDHUP};
    return poll(&client, 1, 0) > 0;
}

static int put_transaction(struct weir__committer *committer, struct weir__ingest_job *unused)
{
    (void)unused;
    int error = weir__queue_put(committer->queue, committer->transaction, committer->transaction_count);
    if (error != WEIR__QUEUE_REMOVED)
        log_state(committer, error, weir__queue_why(committer->queue));
    return error;
}

/* Puts all jobs in one transaction. */
static void put_all(struct weir__committer *committer, struct weir__ingest_job **jobs, size_t count)
{
    size_t accepted = 0;
    int refused = 0;
    committer->transaction_count = 0;
    for (size_t i = 0; i < count; i++) {
        jobs[i]->put.error = is_disconnected(jobs[i]) ? WEIR__QUEUE_GONE : 0;
        if (!jobs[i]->put.error)
            committer->transaction[committer->transaction_count++] = &jobs[i]->put;
    }
    int error = committer->transaction_count ? call_queue(committer, put_transaction, NULL) : 0;
    for (size_t i = 0; i < committer->transaction_count; i++) {
        struct weir__queue_put *put = committer->transaction[i];
        put->error = error ? error : put->error;
        accepted += put->error == 0;
        committer->in_doubt |= put->error == WEIR__QUEUE_UNKNOWN;
        refused = put->error ? put->error : refused;
    }
    log_refused(committer, error ? 0 : refused);
    weir__dispatcher_ingested(committer->dispatcher, accepted, count - accepted);
}

static int run_ticket(struct weir__committer *committer, struct weir__ingest_job *job)
{
    const char *ticket = job->put.item.ticket;
    int error = job->kind == WEIR__JOB_CANCEL ? weir__queue_change(committer->queue, ticket, WEIR__ENDED_CANCELLED) : 0;
    if (!error || error == WEIR__QUEUE_STATE) {
        int found = weir__queue_find(committer->queue, ticket, weir__ticket_json, job->json);
        error = error ? error : found;
    }
    return error;
}

static void *run(void *context)
{
    struct weir__committer *committer = context;
    struct weir__ingest_job *puts[WEIR__QUEUE_PUT_MAX], *ticket_jobs[TICKET_JOBS_MAX];
    (void)!open_queue(committer); /* so that the first request finds it open */
    for (;;) {
        /* Waits for jobs, at most IN_DOUBT_MS if a put is in doubt. */
        struct timespec until = weir__deadline(IN_DOUBT_MS * 1000);
        int late = 0;
        pthread_mutex_lock(&committer->lock);
        while (!committer->puts.count && !committer->ticket_jobs.count && !committer->ending && !late)
            late = committer->in_doubt ? pthread_cond_timedwait(&committer->more, &committer->lock, &until)
                                       : pthread_cond_wait(&committer->more, &committer->lock);
        size_t put_count = take(&committer->puts, puts, WEIR__QUEUE_PUT_MAX);
        size_t ticket_count = take(&committer->ticket_jobs, ticket_jobs, TICKET_JOBS_MAX);
        pthread_mutex_unlock(&committer->lock);
        if (!put_count && !ticket_count && !late)
            return NULL; /* ending, and no more will come */
        if (put_count)
            put_all(committer, puts, put_count);
        for (size_t i = 0; i < put_count; i++)
            committer->done(puts[i]); /* its owner may free it at once */
        for (size_t i = 0; i < ticket_count; i++) {
            ticket_jobs[i]->put.error = call_queue(committer, run_ticket, ticket_jobs[i]);
            committer->done(ticket_jobs[i]);
        }
        if (committer->in_doubt && committer->queue)
            committer->in_doubt = weir__queue_cancel_in_doubt(committer->queue) > 0;
    }
}

/* ---- A ticket as JSON ---- */

int weir__ticket_json(void *room, const struct weir__deferred *item)
{
    bool over = item->state != WEIR__WAITING && item->state != WEIR__UNDER_WAY;
    /* The reason up to its first colon: what follows may name internal addresses, which are for operators. */
    weir_text rest = item->why, why = weir__text_cut(&rest, ':');
    json_t *object =
        json_pack("{s:s, s:s, s:o*, s:o*, s:o*, s:o*, s:i, s:o*, s:o*}", "ticket", item->ticket, "state",
                  weir__deferred_state_name(item->state), "rule", json_stringn(item->rule.data, item->rule.len),
                  "accepted", weir__time_json(item->accepted_ms), "expires",
                  weir__time_json(over ? 0 : item->expires_ms), "ended", weir__time_json(item->ended_ms), "attempts",
                  item->attempts, "last_status", item->last_status ? json_integer(item->last_status) : NULL, "why",
                  why.len ? json_stringn(why.data, why.len) : NULL);
    size_t len = object ? json_dumpb(object, room, WEIR__TICKET_JSON_MAX - 1, JSON_COMPACT) : 0;
    ((char *)room)[len < WEIR__TICKET_JSON_MAX ? len : 0] = 0;
    json_decref(object);
    return 0;
}

/* ---- Interface ---- */

struct weir__committer *weir__committer_start(const struct weir__config *config, const struct weir__logger *log,
                                              void (*done)(struct weir__ingest_job *job),
                                              struct weir__dispatcher *dispatcher)
{
    struct weir__committer *committer = calloc(1, sizeof *committer);
    if (!committer)
        return NULL;
    committer->config = config;
    committer->log = log;
    committer->done = done;
    committer->dispatcher = dispatcher;
    pthread_mutex_init(&committer->lock, NULL);
    weir__deadline_cond(&committer->more);
    committer->runs = pthread_create(&committer->thread, NULL, run, committer) == 0;
    if (committer->runs)
        return committer;
    weir__committer_free(committer);
    return NULL;
}

bool weir__committer_add(struct weir__committer *committer, struct weir__ingest_job *job)
{
    struct jobs *jobs = job->kind == WEIR__JOB_PUT ? &committer->puts : &committer->ticket_jobs;
    pthread_mutex_lock(&committer->lock);
    bool room = !committer->ending && jobs->count < WAITING_MAX;
    bool idle = !committer->puts.count && !committer->ticket_jobs.count;
    if (room)
        jobs->job[jobs->count++] = job;
    if (room && idle)
        pthread_cond_signal(&committer->more);
    pthread_mutex_unlock(&committer->lock);
    return room;
}

void weir__committer_end(struct weir__committer *committer)
{
    pthread_mutex_lock(&committer->lock);
    committer->ending = true;
    pthread_cond_signal(&committer->more);
    pthread_mutex_unlock(&committer->lock);
    if (committer->runs)
        pthread_join(committer->thread, NULL);
    committer->runs = false;
}

void weir__committer_free(struct weir__committer *committer)
{
    if (!committer)
        return;
    weir__committer_end(committer);
    weir__queue_close(committer->queue);
    pthread_cond_destroy(&committer->more);
    pthread_mutex_destroy(&committer->lock);
    free(committer);
}
