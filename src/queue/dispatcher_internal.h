/* What the files of the dispatcher share: dispatcher.c (thread), dispatch.c (one round), dispatcher_stats.c. */
#ifndef WEIR_QUEUE_DISPATCHER_INTERNAL_H
#define WEIR_QUEUE_DISPATCHER_INTERNAL_H

#include "queue/agent.h"
#include "queue/retry_policy.h"
#include "queue/delivery.h"

#include <pthread.h>

enum {
    /* Concurrent deliveries, each on its own connection. One rule gets at most half: docs/queue.md, Delivery. */
    WEIR__DISPATCHER_DELIVERIES = 64,
    WEIR__DISPATCHER_IDLE_MS = 500,     /* claim interval while the queue is empty; a put wakes the thread */
    WEIR__DISPATCHER_BUSY_MS = 100,     /* claim interval while requests wait */
    WEIR__DISPATCHER_SECOND_MS = 1000,  /* interval of stats, expiry and retries of failed queue calls */
    WEIR__DISPATCHER_STANDBY_MS = 1000, /* claim interval on standby, or while the queue is unavailable */
    WEIR__DISPATCHER_PATH_MAX = 4200,
    WEIR__DISPATCHER_ASIDE_GROUPS = 256 /* direct-mapped: a new group replaces the one in its place */
};

/* A group of requests set aside because a rule other than the one they wait for denied the first of them. */
struct weir__aside_group {
    uint64_t group;
    int64_t until_ms; /* none of the group is evaluated before, so that none overtakes another */
};

/* Since the agent's start. */
struct weir__dispatcher_counts {
    uint64_t accepted, refused; /* ingest's */
    uint64_t delivered, attempts;
    uint64_t failed;   /* attempts without a final status */
    uint64_t dead;     /* dead-lettered after an attempt; expired requests do not count */
    uint64_t requeued; /* claimed, but denied by a rule */
    bool active;       /* this agent dispatches */
    bool standby;      /* another agent does */
};

struct weir__dispatcher {
    const struct weir__config *config;
    const struct weir__logger *log;
    weir *engine;
    struct weir__delivery_target to;
    char name[WEIR__QUEUE_SOURCE_TEXT]; /* of its claims */
    char stats_path[WEIR__DISPATCHER_PATH_MAX];
    int lock_fd;               /* locked file: one dispatcher a host and state folder; -1: another one has it */
    struct weir__queue *queue; /* NULL: not open */
    CURLM *multi;
    pthread_t thread;
    pthread_mutex_t lock; /* for the next five */
    bool ending, woken;
    bool joined;
    uint64_t accepted, refused;

    /* The thread's own. */
    struct weir__delivery delivery[WEIR__DISPATCHER_DELIVERIES];
    bool ended; /* some delivery has ended since the last commit */
    struct weir__rule_breakers breakers;
    struct weir__aside_group aside_groups[WEIR__DISPATCHER_ASIDE_GROUPS];
    struct weir__dispatcher_counts counts;
    int64_t next_claim_ms;
    int64_t next_second_ms; /* of the work that is done once a second */
    int64_t waiting;
    int last_error;         /* of the queue, logged */
    bool removed;           /* the queue's file was removed: reopen */
    uint64_t dead_unlogged; /* dead letters since the last log line */
    char dead_why[WEIR__QUEUE_WHY_MAX + 1];
};

/* Wall clock; a test defines its own (the definition in dispatcher.c is weak). */
int64_t weir__dispatcher_clock_ms(void);
/* Logs a change of the queue's error; 0: it works. */
void weir__dispatcher_report(struct weir__dispatcher *dispatcher, int error, const char *why);

/* Claims requests into the free deliveries and evaluates their rules. */
void weir__dispatcher_claim(struct weir__dispatcher *dispatcher, int64_t now_ms);
/* Sends delayed deliveries that are due and renews permits. Returns the time of the next timer. */
int64_t weir__dispatcher_poll_timers(struct weir__dispatcher *dispatcher, int64_t now_ms);
/* Drives all transfers and handles those that ended. */
void weir__dispatcher_receive(struct weir__dispatcher *dispatcher);
/* Commits the outcomes of ended deliveries to the queue. */
void weir__dispatcher_commit(struct weir__dispatcher *dispatcher);
/* Aborts all deliveries; their requests wait again. */
void weir__dispatcher_requeue_all(struct weir__dispatcher *dispatcher);
/* Closes connections and queue. */
void weir__dispatcher_close(struct weir__dispatcher *dispatcher);

/*
 * Writes the lines for /metrics to a sidecar file of the segment, from which nginx's workers serve them. 0, a queue
 * error, or 1: the file could not be written. *waiting: the total of waiting requests.
 */
int weir__dispatcher_write_stats(struct weir__queue *queue, const struct weir__dispatcher_counts *counts,
                                 int64_t now_ms, const char *path, int64_t *waiting);

#endif
