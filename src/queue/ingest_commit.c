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
    PUTS_MAX = 1024,      /* of one transaction */
    TICKET_JOBS_MAX = 64, /* between two transactions */
    WAITING_MAX = 8192,
    OPEN_AGAIN_MS = 1000,
    LOG_AGAIN_MS = 60000, /* interval of repeated log lines */
    IN_DOUBT_MS = 100     /* interval of attempts to cancel in-doubt puts */
};

struct list {
    struct weir__ingest_job *first, **last;
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
    struct weir__deferred items[PUTS_MAX];
    struct weir__queue_bounds bounds[PUTS_MAX];
    int errors[PUTS_MAX];
    struct pollfd waiting[PUTS_MAX];

    pthread_mutex_t lock;
    pthread_cond_t more;
    struct list puts, ticket_jobs;
    bool ending;
};

/* ---- Lists ---- */

static void append(struct list *list, struct weir__ingest_job *job)
{
    job->next = NULL;
    if (!list->count++)
        list->last = &list->first;
    *list->last = job;
    list->last = &job->next;
}

/* Removes and returns the first `max` of a list. */
static struct list cut(struct list *list, size_t max)
{
    struct list head = {0};
    while (list->count && head.count < max) {
        struct weir__ingest_job *job = list->first;
        list->first = job->next;
        list->count--;
        append(&head, job);
    }
    return head;
}

/* ---- In the thread ---- */

static void log_error(const struct weir__committer *committer, int error, const char *why)
{
    weir__logf(committer->log, WEIR__LOG_WARNING, "queue: %s%s%s; requests are denied instead of deferred",
               weir__queue_strerror(error), *why ? ": " : "", why);
}

/* Logs an error of the whole queue when it begins and when it ends. */
static void log_state(struct weir__committer *committer, int error)
{
    if (error && error != committer->last_error)
        log_error(committer, error, weir__queue_why(committer->queue));
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
    if (error && committer->last_error != error)
        log_error(committer, error, why);
    committer->last_error = error ? error : committer->last_error;
    return error;
}

/* The queue's file was removed, which the dispatcher logs if it had it open: opens the one that now has its path. */
static int open_anew(struct weir__committer *committer)
{
    weir__queue_close(committer->queue);
    committer->queue = NULL;
    committer->opened_ms = 0;
    return open_queue(committer);
}

/*
 * Marks puts whose client has disconnected: a request that was denied meanwhile, or whose client never gets the ticket,
 * should not be enqueued if that can be avoided.
 */
static void mark_disconnected(struct weir__committer *committer, const struct list *list)
{
    nfds_t count = 0;
    for (const struct weir__ingest_job *job = list->first; job; job = job->next)
        committer->waiting[count++] = (struct pollfd){.fd = job->fd, .events = POLLRDHUP};
    bool any = poll(committer->waiting, count, 0) > 0;
    count = 0;
    for (struct weir__ingest_job *job = list->first; job; job = job->next, count++)
        job->error = any && committer->waiting[count].revents ? WEIR__QUEUE_GONE : 0;
}

/* Puts all jobs of the list in one transaction. */
static void put_all(struct weir__committer *committer, const struct list *list)
{
    size_t count = 0, accepted = 0;
    mark_disconnected(committer, list);
    for (const struct weir__ingest_job *job = list->first; job; job = job->next) {
        if (job->error)
            continue;
        committer->items[count] = job->item;
        committer->bounds[count++] = job->bounds;
    }
    int opened = open_queue(committer);
    int error = opened;
    if (!opened && count)
        error = weir__queue_put(committer->queue, committer->items, committer->bounds, committer->errors, count);
    if (error == WEIR__QUEUE_REMOVED && (error = opened = open_anew(committer)) == 0)
        error = weir__queue_put(committer->queue, committer->items, committer->bounds, committer->errors, count);
    int refused = 0;
    count = 0;
    for (struct weir__ingest_job *job = list->first; job; job = job->next) {
        if (job->error)
            continue;
        job->error = error ? error : committer->errors[count];
        memcpy(job->item.ticket, committer->items[count++].ticket, sizeof job->item.ticket);
        accepted += job->error == 0;
        committer->in_doubt |= job->error == WEIR__QUEUE_UNKNOWN;
        refused = job->error ? job->error : refused;
    }
    if (!opened && count) {
        log_state(committer, error);
        log_refused(committer, error ? 0 : refused);
    }
    weir__dispatcher_ingested(committer->dispatcher, accepted, list->count - accepted);
}

static int run_ticket_job(struct weir__committer *committer, struct weir__ingest_job *job)
{
    const char *ticket = job->item.ticket;
    int error = job->kind == WEIR__JOB_CANCEL ? weir__queue_cancel(committer->queue, ticket) : 0;
    if (!error || error == WEIR__QUEUE_STATE) {
        int found = weir__queue_find(committer->queue, ticket, weir__ticket_json, job->json);
        error = error ? error : found;
    }
    return error;
}

static void run_ticket(struct weir__committer *committer, struct weir__ingest_job *job)
{
    job->json[0] = 0;
    job->error = open_queue(committer);
    if (!job->error)
        job->error = run_ticket_job(committer, job);
    if (job->error == WEIR__QUEUE_REMOVED && (job->error = open_anew(committer)) == 0)
        job->error = run_ticket_job(committer, job);
}

/* Returns the jobs to their owner, which may free them at once. */
static void complete(struct weir__committer *committer, struct list *list)
{
    for (struct weir__ingest_job *job = list->first, *next; job; job = next) {
        next = job->next;
        committer->done(job);
    }
}

/* Waits for jobs, at most IN_DOUBT_MS if a put is in doubt. False: no more will come. */
static bool next_round(struct weir__committer *committer, struct list *puts, struct list *ticket_jobs)
{
    struct timespec until = weir__deadline(IN_DOUBT_MS * 1000);
    int late = 0;
    pthread_mutex_lock(&committer->lock);
    while (!committer->puts.count && !committer->ticket_jobs.count && !committer->ending && !late)
        late = committer->in_doubt ? pthread_cond_timedwait(&committer->more, &committer->lock, &until)
                                   : pthread_cond_wait(&committer->more, &committer->lock);
    *puts = cut(&committer->puts, PUTS_MAX);
    *ticket_jobs = cut(&committer->ticket_jobs, TICKET_JOBS_MAX);
    pthread_mutex_unlock(&committer->lock);
    return puts->count || ticket_jobs->count || late;
}

static void *run(void *context)
{
    struct weir__committer *committer = context;
    struct list puts, ticket_jobs;
    (void)!open_queue(committer); /* so that the first request finds it open */
    while (next_round(committer, &puts, &ticket_jobs)) {
        if (puts.count)
            put_all(committer, &puts);
        complete(committer, &puts);
        for (struct weir__ingest_job *job = ticket_jobs.first; job; job = job->next)
            run_ticket(committer, job);
        complete(committer, &ticket_jobs);
        if (committer->in_doubt && committer->queue)
            committer->in_doubt = weir__queue_cancel_in_doubt(committer->queue) > 0;
    }
    return NULL;
}

/* ---- A ticket as JSON ---- */

static void set_time(json_t *to, const char *name, int64_t ms)
{
    char text[WEIR__TIME_TEXT];
    if (!ms)
        return;
    weir__time_text(ms, text);
    json_object_set_new(to, name, json_string(text));
}

/* The reason up to its first colon: what follows may name internal addresses, which are for operators. */
static weir_text what_of(weir_text why)
{
    const char *more = why.len ? memchr(why.data, ':', why.len) : NULL;
    return (weir_text){why.data, more ? (size_t)(more - why.data) : why.len};
}

int weir__ticket_json(void *room, const struct weir__deferred *item)
{
    bool over = item->state != WEIR__WAITING && item->state != WEIR__UNDER_WAY;
    json_t *object = json_object();
    json_object_set_new(object, "ticket", json_string(item->ticket));
    json_object_set_new(object, "state", json_string(weir__deferred_state_name(item->state)));
    json_object_set_new(object, "rule", json_stringn(item->rule.data, item->rule.len));
    set_time(object, "accepted", item->accepted_ms);
    set_time(object, "expires", over ? 0 : item->expires_ms);
    set_time(object, "ended", item->ended_ms);
    json_object_set_new(object, "attempts", json_integer(item->attempts));
    if (item->last_status)
        json_object_set_new(object, "last_status", json_integer(item->last_status));
    weir_text why = what_of(item->why);
    if (why.len)
        json_object_set_new(object, "why", json_stringn(why.data, why.len));
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
    struct list *list = job->kind == WEIR__JOB_PUT ? &committer->puts : &committer->ticket_jobs;
    pthread_mutex_lock(&committer->lock);
    bool room = !committer->ending && list->count < WAITING_MAX;
    bool idle = !committer->puts.count && !committer->ticket_jobs.count;
    if (room)
        append(list, job);
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
