/*
 * The one thread that asks the queue for the acceptor. Whatever was added while it was busy with one transaction goes
 * into the next: the more there is to do, the more of it shares the wait for the disk.
 */
#define _GNU_SOURCE /* POLLRDHUP */
#include "queue/ingest_commit.h"
#include "queue/open.h"
#include "base/clock.h"

#include <poll.h>
#include <stdlib.h>

enum {
    PUTS_MAX = 1024, /* in one transaction */
    LOOKS_MAX = 64,  /* between two of them */
    WAITING_MAX = 8192,
    OPEN_AGAIN_MS = 1000,
    TELL_AGAIN_MS = 60000, /* between two lines about the same */
    WITHDRAW_MS = 100      /* between two attempts to withdraw what may have been put without an answer */
};

struct list {
    struct weir__errand *first, **last;
    size_t count;
};

struct weir__committer {
    const struct weir__config *config;
    const struct weir__logger *log;
    void (*done)(void *context, struct weir__errand *errand);
    void (*put)(void *context);
    void *context;
    pthread_t thread;
    bool runs;

    struct weir__queue *queue; /* the thread's; NULL: not open */
    int64_t opened_ms;         /* the last attempt */
    int told;                  /* the error that was told last; 0: all is well */
    int64_t refused_ms;        /* when it was told that some were refused */
    bool unsure;               /* some may have been put without an answer: they are to be withdrawn */
    struct weir__deferred items[PUTS_MAX];
    struct weir__queue_bounds bounds[PUTS_MAX];
    int errors[PUTS_MAX];
    struct pollfd waiting[PUTS_MAX];

    pthread_mutex_t lock;
    pthread_cond_t more;
    struct list puts, looks;
    bool ending;
    struct weir__acceptor_figures figures;
};

/* ---- Lists ---- */

static void append(struct list *list, struct weir__errand *errand)
{
    errand->next = NULL;
    if (!list->count++)
        list->last = &list->first;
    *list->last = errand;
    list->last = &errand->next;
}

/* Cuts off the first `max` of a list. */
static struct list cut(struct list *list, size_t max)
{
    struct list head = {0};
    while (list->count && head.count < max) {
        struct weir__errand *errand = list->first;
        list->first = errand->next;
        list->count--;
        append(&head, errand);
    }
    return head;
}

/* ---- In the thread ---- */

static void tell_error(const struct weir__committer *committer, int error, const char *why)
{
    weir__logf(committer->log, WEIR__LOG_WARNING, "queue: %s%s%s; requests are denied instead of kept",
               weir__queue_strerror(error), *why ? ": " : "", why);
}

/* What goes wrong with all of them is told when it begins, and when it is over. */
static void tell(struct weir__committer *committer, int error)
{
    if (error && error != committer->told)
        tell_error(committer, error, weir__queue_why(committer->queue));
    else if (!error && committer->told)
        weir__logf(committer->log, WEIR__LOG_INFO, "queue: requests are kept again");
    committer->told = error;
}

/* What goes wrong with some, such as a full queue, comes and goes: it is told once in a while. */
static void tell_refused(struct weir__committer *committer, int error)
{
    int64_t now = weir__monotonic_ms();
    if (!error || (committer->refused_ms && now - committer->refused_ms < TELL_AGAIN_MS))
        return;
    committer->refused_ms = now;
    tell_error(committer, error, "");
}

static int open_queue(struct weir__committer *committer)
{
    char why[WEIR__QUEUE_SOURCE_TEXT];
    int64_t now = weir__monotonic_ms();
    if (committer->queue)
        return 0;
    if (committer->opened_ms && now - committer->opened_ms < OPEN_AGAIN_MS)
        return WEIR__QUEUE_AWAY;
    committer->opened_ms = now;
    int error = weir__queue_of(committer->config, "acceptor", committer->log, &committer->queue, why);
    if (error && committer->told != error)
        tell_error(committer, error, why);
    committer->told = error ? error : committer->told;
    return error;
}

/* Its file is gone, and what was in it; who delivers tells that. What comes now goes into another. */
static int open_anew(struct weir__committer *committer)
{
    weir__queue_close(committer->queue);
    committer->queue = NULL;
    committer->opened_ms = 0;
    return open_queue(committer);
}

/*
 * Finds out who has left: whom nobody tells that his request is kept, as it was denied meanwhile or its client is gone,
 * should not find it carried out if that can be helped.
 */
static void look_who_waits(struct weir__committer *committer, const struct list *list)
{
    nfds_t count = 0;
    for (const struct weir__errand *errand = list->first; errand; errand = errand->next)
        committer->waiting[count++] = (struct pollfd){.fd = errand->fd, .events = POLLRDHUP};
    bool any = poll(committer->waiting, count, 0) > 0;
    count = 0;
    for (struct weir__errand *errand = list->first; errand; errand = errand->next, count++)
        errand->error = any && committer->waiting[count].revents ? WEIR__QUEUE_GONE : 0;
}

/* All of them in one transaction. */
static void put_all(struct weir__committer *committer, const struct list *list)
{
    size_t count = 0, accepted = 0;
    look_who_waits(committer, list);
    for (const struct weir__errand *errand = list->first; errand; errand = errand->next) {
        if (errand->error)
            continue;
        committer->items[count] = errand->item;
        committer->bounds[count++] = errand->bounds;
    }
    int opened = open_queue(committer);
    int error = opened;
    if (!opened && count)
        error = weir__queue_put(committer->queue, committer->items, committer->bounds, committer->errors, count);
    if (error == WEIR__QUEUE_REMOVED && (error = opened = open_anew(committer)) == 0)
        error = weir__queue_put(committer->queue, committer->items, committer->bounds, committer->errors, count);
    int refused = 0;
    count = 0;
    for (struct weir__errand *errand = list->first; errand; errand = errand->next) {
        if (errand->error)
            continue;
        errand->error = error ? error : committer->errors[count];
        memcpy(errand->item.ticket, committer->items[count++].ticket, sizeof errand->item.ticket);
        accepted += errand->error == 0;
        committer->unsure |= errand->error == WEIR__QUEUE_UNKNOWN;
        refused = errand->error ? errand->error : refused;
    }
    if (!opened && count) {
        tell(committer, error);
        tell_refused(committer, error ? 0 : refused);
    }
    pthread_mutex_lock(&committer->lock);
    committer->figures.accepted += accepted;
    committer->figures.refused += list->count - accepted;
    committer->figures.commits += accepted > 0;
    pthread_mutex_unlock(&committer->lock);
    if (accepted && committer->put)
        committer->put(committer->context);
}

static int look_once(struct weir__committer *committer, struct weir__errand *errand)
{
    const char *ticket = errand->item.ticket;
    int error = errand->kind == WEIR__ERRAND_CANCEL ? weir__queue_cancel(committer->queue, ticket) : 0;
    if (!error || error == WEIR__QUEUE_STATE) {
        int found = weir__queue_find(committer->queue, ticket, weir__ticket_tell, errand->told);
        error = error ? error : found;
    }
    return error;
}

static void look(struct weir__committer *committer, struct weir__errand *errand)
{
    errand->told[0] = 0;
    errand->error = open_queue(committer);
    if (!errand->error)
        errand->error = look_once(committer, errand);
    if (errand->error == WEIR__QUEUE_REMOVED && (errand->error = open_anew(committer)) == 0)
        errand->error = look_once(committer, errand);
}

/* Afterwards they are the caller's: each may be gone at once. */
static void give_back(struct weir__committer *committer, struct list *list)
{
    for (struct weir__errand *errand = list->first, *next; errand; errand = next) {
        next = errand->next;
        committer->done(committer->context, errand);
    }
}

/* Waits for something to do, and not for long if something is to be withdrawn. False: there will be nothing more. */
static bool next_round(struct weir__committer *committer, struct list *puts, struct list *looks)
{
    struct timespec until = weir__deadline(WITHDRAW_MS * 1000);
    int late = 0;
    pthread_mutex_lock(&committer->lock);
    while (!committer->puts.count && !committer->looks.count && !committer->ending && !late)
        late = committer->unsure ? pthread_cond_timedwait(&committer->more, &committer->lock, &until)
                                 : pthread_cond_wait(&committer->more, &committer->lock);
    *puts = cut(&committer->puts, PUTS_MAX);
    *looks = cut(&committer->looks, LOOKS_MAX);
    pthread_mutex_unlock(&committer->lock);
    return puts->count || looks->count || late;
}

static void *run(void *context)
{
    struct weir__committer *committer = context;
    struct list puts, looks;
    (void)!open_queue(committer); /* so that the first request finds it open; else it was told */
    while (next_round(committer, &puts, &looks)) {
        if (puts.count)
            put_all(committer, &puts);
        give_back(committer, &puts);
        for (struct weir__errand *errand = looks.first; errand; errand = errand->next)
            look(committer, errand);
        give_back(committer, &looks);
        if (committer->unsure && committer->queue)
            committer->unsure = weir__queue_withdraw(committer->queue) > 0;
    }
    return NULL;
}

/* ---- From outside ---- */

struct weir__committer *weir__committer_start(const struct weir__config *config, const struct weir__logger *log,
                                              void (*done)(void *context, struct weir__errand *errand),
                                              void (*put)(void *context), void *context)
{
    struct weir__committer *committer = calloc(1, sizeof *committer);
    if (!committer)
        return NULL;
    committer->config = config;
    committer->log = log;
    committer->done = done;
    committer->put = put;
    committer->context = context;
    pthread_mutex_init(&committer->lock, NULL);
    weir__deadline_cond(&committer->more);
    committer->runs = pthread_create(&committer->thread, NULL, run, committer) == 0;
    if (committer->runs)
        return committer;
    weir__committer_free(committer);
    return NULL;
}

bool weir__committer_add(struct weir__committer *committer, struct weir__errand *errand)
{
    struct list *list = errand->kind == WEIR__ERRAND_PUT ? &committer->puts : &committer->looks;
    pthread_mutex_lock(&committer->lock);
    bool room = !committer->ending && list->count < WAITING_MAX;
    bool idle = !committer->puts.count && !committer->looks.count;
    if (room)
        append(list, errand);
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
    if (committer->queue)
        weir__queue_close(committer->queue);
    pthread_cond_destroy(&committer->more);
    pthread_mutex_destroy(&committer->lock);
    free(committer);
}

void weir__committer_figures(struct weir__committer *committer, struct weir__acceptor_figures *figures)
{
    pthread_mutex_lock(&committer->lock);
    *figures = committer->figures;
    pthread_mutex_unlock(&committer->lock);
}
