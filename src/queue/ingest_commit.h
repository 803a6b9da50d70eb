/* The one thread that asks the queue for the ingest: see ingest.h. */
#ifndef WEIR_QUEUE_INGEST_COMMIT_H
#define WEIR_QUEUE_INGEST_COMMIT_H

#include "queue/ingest.h"
#include "queue/queue.h"

#define WEIR__TICKET_JSON_MAX 2048 /* bytes of what is told of a ticket */

enum weir__ingest_job_kind { WEIR__JOB_PUT, WEIR__JOB_FIND, WEIR__JOB_CANCEL };

/* Something for the queue. The caller's until it was added, and again from `done` on. */
struct weir__ingest_job {
    struct weir__ingest_job *next;
    enum weir__ingest_job_kind kind;
    struct weir__deferred item; /* to be put; or its ticket alone */
    struct weir__queue_bounds bounds;
    int fd;                           /* of who waits for the answer; -1: not known */
    int error;                        /* the queue's */
    char json[WEIR__TICKET_JSON_MAX]; /* of a look, or a cancellation that came too late: JSON; "": nothing */
};

struct weir__committer;

/* `done` is called for each job in the committer's thread, when `error` is known. NULL: no memory. */
struct weir__committer *weir__committer_start(const struct weir__config *config, const struct weir__logger *log,
                                              void (*done)(void *context, struct weir__ingest_job *job),
                                              void (*put)(void *context), void *context);
/* False: too many wait already, or it is ending; then nothing is done with it. */
bool weir__committer_add(struct weir__committer *committer, struct weir__ingest_job *job);
/* Does what was added, and nothing more from then on. */
void weir__committer_end(struct weir__committer *committer);
void weir__committer_free(struct weir__committer *committer);
void weir__committer_counts(struct weir__committer *committer, struct weir__ingest_counts *stats);

/* What is told of a ticket, as JSON; returns 0. For weir__queue_find, with a room of WEIR__TICKET_JSON_MAX bytes. */
int weir__ticket_json(void *room, const struct weir__deferred *item);

#endif
