/* The one thread that asks the queue for the acceptor: see ingest.h. */
#ifndef WEIR_QUEUE_INGEST_COMMIT_H
#define WEIR_QUEUE_INGEST_COMMIT_H

#include "queue/ingest.h"
#include "queue/queue.h"

#define WEIR__TICKET_TEXT 2048 /* bytes of what is told of a ticket */

enum weir__errand_kind { WEIR__ERRAND_PUT, WEIR__ERRAND_LOOK, WEIR__ERRAND_CANCEL };

/* Something for the queue. The caller's until it was added, and again from `done` on. */
struct weir__errand {
    struct weir__errand *next;
    enum weir__errand_kind kind;
    struct weir__deferred item; /* to be put; or its ticket alone */
    struct weir__queue_bounds bounds;
    int fd;                       /* of who waits for the answer; -1: not known */
    int error;                    /* the queue's */
    char told[WEIR__TICKET_TEXT]; /* of a look, or a cancellation that came too late: JSON; "": nothing */
};

struct weir__committer;

/* `done` is called for each errand in the committer's thread, when `error` is known. NULL: no memory. */
struct weir__committer *weir__committer_start(const struct weir__config *config, const struct weir__logger *log,
                                              void (*done)(void *context, struct weir__errand *errand),
                                              void (*put)(void *context), void *context);
/* False: too many wait already, or it is ending; then nothing is done with it. */
bool weir__committer_add(struct weir__committer *committer, struct weir__errand *errand);
/* Does what was added, and nothing more from then on. */
void weir__committer_end(struct weir__committer *committer);
void weir__committer_free(struct weir__committer *committer);
void weir__committer_figures(struct weir__committer *committer, struct weir__acceptor_figures *figures);

/* What is told of a ticket, as JSON; returns 0. For weir__queue_find, with a room of WEIR__TICKET_TEXT bytes. */
int weir__ticket_tell(void *room, const struct weir__deferred *item);

#endif
