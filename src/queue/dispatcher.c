/* The drain of deferred requests: see dispatcher.h. */
#include "queue/dispatcher_internal.h"
#include "control/publish_file.h"
#include "queue/open.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

enum {
    DELIVER_MS = 60000, /* at most, a delivery */
    LAST_MS = 2000      /* for what is under way at the end */
};

void weir__drain_trouble(struct weir__drain *drain, int error, const char *why)
{
    drain->removed |= error == WEIR__QUEUE_REMOVED;
    if (error == drain->trouble)
        return;
    if (!error)
        weir__logf(drain->log, WEIR__LOG_INFO, "queue: deferred requests are delivered");
    else if (error == WEIR__QUEUE_STANDBY)
        weir__logf(drain->log, WEIR__LOG_INFO, "queue: %s; this one stands by", weir__queue_strerror(error));
    else
        weir__logf(drain->log, WEIR__LOG_ERROR, "queue: %s%s%s; %s", weir__queue_strerror(error),
                   why && *why ? ": " : "", why ? why : "",
                   error == WEIR__QUEUE_REMOVED ? "a new one is begun" : "it is tried again");
    drain->trouble = error;
}

/* ---- Now and then ---- */

/*
 * One agent of a host and state at a time: a file that is locked, and free again when its process ends. So no two that
 * live claim under the same name; among the hosts of a store, the queue itself sees to it.
 */
static bool has_turn(struct weir__drain *drain)
{
    char path[WEIR__DRAIN_PATH];
    if (drain->turn >= 0)
        return true;
    if (!weir__publish_folder(drain->config->queue.socket) ||
        snprintf(path, sizeof path, "%s/queue.lock", drain->config->state_path) >= (int)sizeof path)
        return true; /* opening the queue will say why */
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0 || flock(file, LOCK_EX | LOCK_NB) == 0) {
        drain->turn = file;
        return true;
    }
    close(file);
    return false;
}

static void open_queue(struct weir__drain *drain)
{
    char why[WEIR__QUEUE_SOURCE_TEXT] = "";
    int error = has_turn(drain) ? weir__queue_of(drain->config, drain->name, drain->log, &drain->queue, why)
                                : WEIR__QUEUE_STANDBY;
    if (!error)
        return;
    drain->queue = NULL;
    weir__drain_trouble(drain, error, why);
}

/* Nothing can be told to it any more: what is under way goes on, and the new one knows nothing of it. */
static void leave_removed(struct weir__drain *drain)
{
    if (!drain->removed)
        return;
    weir__queue_close(drain->queue);
    drain->queue = NULL;
    drain->removed = false;
    drain->again_ms = drain->look_ms = 0;
}

static void every_second(struct weir__drain *drain, int64_t now)
{
    if (drain->again_ms && now < drain->again_ms && now > drain->again_ms - 2 * WEIR__DRAIN_SECOND_MS)
        return;
    drain->again_ms = now + WEIR__DRAIN_SECOND_MS;
    if (!drain->queue) {
        open_queue(drain);
        if (!drain->queue)
            return;
    }
    weir__drain_settle(drain);
    if (!drain->counts.stands_by && /* one clock is enough: who stands by with a wrong one is not to end everybody's */
        weir__queue_expire(drain->queue, now) == WEIR__QUEUE_REMOVED)
        weir__drain_trouble(drain, WEIR__QUEUE_REMOVED, weir__queue_why(drain->queue));
    (void)weir__drain_figures(drain->queue, &drain->counts, now, drain->figures_path, &drain->waiting);
    if (drain->dead_untold)
        weir__logf(drain->log, WEIR__LOG_WARNING,
                   "queue: %llu deferred request%s given up (%s); weir queue list --state dead shows them",
                   (unsigned long long)drain->dead_untold, drain->dead_untold == 1 ? " was" : "s were",
                   drain->dead_why);
    drain->dead_untold = 0;
}

static bool is_ending(struct weir__drain *drain)
{
    pthread_mutex_lock(&drain->lock);
    bool ending = drain->ending;
    if (drain->woken)
        drain->look_ms = 0;
    drain->woken = false;
    drain->counts.accepted = drain->accepted;
    drain->counts.refused = drain->refused;
    pthread_mutex_unlock(&drain->lock);
    return ending;
}

static void wait_until(struct weir__drain *drain, int64_t until)
{
    int64_t now = weir__drain_clock_ms(), ms = until - now;
    int woken;
    ms = ms < 0 ? 0 : ms > WEIR__DRAIN_IDLE_MS ? WEIR__DRAIN_IDLE_MS : ms;
    (void)curl_multi_poll(drain->multi, NULL, 0, (int)ms, &woken);
}

/* What is under way may end; then it waits in the queue again. Which of both the server saw is not known. */
static void finish(struct weir__drain *drain)
{
    int64_t until = weir__drain_clock_ms() + LAST_MS;
    bool busy = true;
    while (busy && weir__drain_clock_ms() < until) {
        weir__drain_receive(drain);
        busy = false;
        for (size_t i = 0; i < WEIR__DRAIN_AT_ONCE; i++)
            busy |= drain->delivery[i].state == WEIR__DELIVERY_SENT;
        if (busy)
            wait_until(drain, weir__drain_clock_ms() + WEIR__DRAIN_BUSY_MS);
    }
    weir__drain_abandon(drain);
}

static void *run(void *context)
{
    struct weir__drain *drain = context;
    while (!is_ending(drain)) {
        leave_removed(drain);
        every_second(drain, weir__drain_clock_ms());
        int64_t now = weir__drain_clock_ms();
        if (drain->look_ms > now + WEIR__DRAIN_IDLE_MS + WEIR__DRAIN_STANDBY_MS) /* the clock was set back */
            drain->look_ms = now;
        if (drain->queue && drain->to.url && now >= drain->look_ms)
            weir__drain_claim(drain, now);
        int64_t next = weir__drain_tend(drain, weir__drain_clock_ms());
        weir__drain_receive(drain);
        wait_until(drain, drain->queue && drain->to.url && drain->look_ms < next ? drain->look_ms : next);
    }
    finish(drain);
    return NULL;
}

/* ---- Starting and stopping ---- */

/* The same after a restart, and nobody else's. */
static void name_it(struct weir__drain *drain)
{
    char host[128] = "";
    if (drain->config->queue.database) {
        snprintf(drain->name, sizeof drain->name, "agent"); /* has its turn; a container's host is another each time */
        return;
    }
    if (gethostname(host, sizeof host - 1) != 0)
        *host = 0;
    snprintf(drain->name, sizeof drain->name, "%s %.100s", *host ? host : "agent", drain->config->state_path);
}

static void aim(struct weir__drain *drain)
{
    static const char socket[] = "unix:";
    const struct weir__queue_config *queue = &drain->config->queue;
    const char *to = queue->deliver_to ? queue->deliver_to : queue->gateway;
    bool local = to && strncmp(to, socket, sizeof socket - 1) == 0;
    drain->to = (struct weir__drain_target){.url = to,
                                            .timeout_ms = DELIVER_MS,
                                            .ca = drain->config->upstream_ca,
                                            .unverified = !drain->config->upstream_verify};
    if (!to) {
        /* weir agent beside an nginx of somebody else's: there is no gateway of ours. */
        weir__logf(drain->log, WEIR__LOG_ERROR, "queue: nothing is delivered: say under deliver_to where it goes");
    } else if (local || !queue->deliver_to) {
        drain->to.url = "http://localhost";
        drain->to.socket = local ? to + sizeof socket - 1 : to;
    }
}

static bool begin(struct weir__drain *drain)
{
    drain->multi = curl_multi_init();
    if (!drain->multi)
        return false;
    curl_multi_setopt(drain->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)WEIR__DRAIN_AT_ONCE);
    curl_multi_setopt(drain->multi, CURLMOPT_MAXCONNECTS, (long)WEIR__DRAIN_AT_ONCE);
    if (pthread_create(&drain->thread, NULL, run, drain) == 0)
        return true;
    curl_multi_cleanup(drain->multi);
    return false;
}

struct weir__drain *weir__drain_start(const struct weir__config *config, weir *engine, const struct weir__logger *log)
{
    struct weir__drain *drain = calloc(1, sizeof *drain);
    if (!drain)
        return NULL;
    drain->config = config;
    drain->engine = engine;
    drain->log = log;
    drain->turn = -1;
    snprintf(drain->figures_path, sizeof drain->figures_path, "%s.queue", config->segment_path);
    name_it(drain);
    aim(drain);
    pthread_mutex_init(&drain->lock, NULL);
    if (begin(drain))
        return drain;
    pthread_mutex_destroy(&drain->lock);
    free(drain);
    return NULL;
}

void weir__drain_wake(struct weir__drain *drain)
{
    if (!drain)
        return;
    pthread_mutex_lock(&drain->lock);
    bool before = drain->woken;
    drain->woken = true;
    pthread_mutex_unlock(&drain->lock);
    if (!before)
        curl_multi_wakeup(drain->multi);
}

void weir__drain_accepted(struct weir__drain *drain, uint64_t accepted, uint64_t refused)
{
    pthread_mutex_lock(&drain->lock);
    drain->accepted = accepted;
    drain->refused = refused;
    pthread_mutex_unlock(&drain->lock);
}

void weir__drain_end(struct weir__drain *drain)
{
    if (!drain || drain->joined)
        return;
    pthread_mutex_lock(&drain->lock);
    drain->ending = true;
    pthread_mutex_unlock(&drain->lock);
    curl_multi_wakeup(drain->multi);
    pthread_join(drain->thread, NULL);
    drain->joined = true;
}

void weir__drain_close(struct weir__drain *drain)
{
    for (size_t i = 0; i < WEIR__DRAIN_AT_ONCE; i++) {
        weir__delivery_clear(&drain->delivery[i]);
        curl_easy_cleanup(drain->delivery[i].curl);
    }
    curl_multi_cleanup(drain->multi);
    weir__queue_close(drain->queue);
}

void weir__drain_stop(struct weir__drain *drain)
{
    if (!drain)
        return;
    weir__drain_end(drain);
    weir__drain_close(drain);
    if (drain->turn >= 0)
        close(drain->turn);
    (void)unlink(drain->figures_path); /* what is not there any more tells nothing */
    pthread_mutex_destroy(&drain->lock);
    free(drain);
}
