/* The dispatcher's thread: opens the queue, claims and delivers in rounds (dispatch_round.c), expires, writes metrics.
 */
#include "queue/dispatcher_internal.h"
#include "base/atomic.h"
#include "base/file.h"
#include "queue/queue_internal.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/sidecar.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>
#include <inttypes.h>

enum {
    DELIVER_MS = 60000, /* timeout of a delivery */
    LAST_MS = 2000      /* at the end, for deliveries in progress */
};

/* Weak: a test replaces it, so that an hour of its clock need not last one. */
__attribute__((weak)) int64_t weir__dispatcher_clock_ms(void)
{
    return weir__wall_ms();
}

void weir__dispatcher_report(struct weir__dispatcher *dispatcher, int error, const char *why)
{
    dispatcher->removed |= error == WEIR__QUEUE_REMOVED;
    if (error == dispatcher->last_error)
        return;
    if (!error)
        weir__logf(dispatcher->log, WEIR__LOG_INFO, "queue: delivering deferred requests");
    else if (error == WEIR__QUEUE_STANDBY)
        weir__logf(dispatcher->log, WEIR__LOG_INFO, "queue: %s; this agent is on standby", weir__queue_strerror(error));
    else
        weir__logf(dispatcher->log, WEIR__LOG_ERROR, "queue: %s%s%s; %s", weir__queue_strerror(error),
                   why && *why ? ": " : "", why ? why : "",
                   error == WEIR__QUEUE_REMOVED ? "opening a new one" : "retrying");
    dispatcher->last_error = error;
}

/* ---- Metrics, in a sidecar file of the segment from which nginx's workers serve them ---- */

enum { WAITING, UNDER_WAY, DEAD, BYTES, OLDEST, GAUGES };

/* The gauges have a line for each rule. The lines of a metric must be adjacent, so each has its own buffer. */
struct gauge_text {
    struct weir__buffer to[GAUGES];
    int64_t now_ms, waiting;
};

static int add_rule(void *context, const struct weir__queue_stats *stats)
{
    static const char *const names[GAUGES] = {"waiting", "under_way", "dead", "bytes", "oldest_seconds"};
    struct gauge_text *text = context;
    int64_t oldest = stats->oldest_ms ? text->now_ms - stats->oldest_ms : 0;
    const int64_t values[GAUGES] = {stats->waiting, stats->under_way, stats->dead, stats->bytes,
                                    oldest < 0 ? 0 : oldest / 1000};
    char rule[2 * WEIR_NAME_MAX + 1];
    weir__escape_label(stats->rule, rule, sizeof rule);
    for (int i = 0; i < GAUGES; i++)
        weir__buffer_printf(&text->to[i], "weir_queue_%s{rule=\"%s\"} %" PRId64 "\n", names[i], rule, values[i]);
    text->waiting += stats->waiting;
    return 0;
}

static void write_metrics(struct weir__dispatcher *dispatcher, int64_t now_ms)
{
    const struct weir__dispatcher_counts *counts = &dispatcher->counts;
    struct gauge_text text = {.now_ms = now_ms};
    struct weir__buffer all = {0};
    int error = weir__queue_stats(dispatcher->queue, add_rule, &text);
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } metrics[] = {
        {"waiting", "gauge", "Deferred requests waiting.", 0},
        {"under_way", "gauge", "Deferred requests being delivered.", 0},
        {"dead", "gauge", "Deferred requests in the dead-letter state.", 0},
        {"bytes", "gauge", "Bytes of waiting and under-way requests.", 0},
        {"oldest_seconds", "gauge", "Age of the oldest waiting or under-way request.", 0},
        {"dispatching", "gauge", "1: this host's agent delivers; 0: it is on standby, or the queue is unavailable.",
         counts->active},
        {"standby", "gauge", "1: another host's agent delivers.", counts->standby},
        {"accepted_total", "counter", "Requests enqueued.", weir__load64(&dispatcher->accepted)},
        {"refused_total", "counter",
         "Requests denied instead of enqueued: queue full or unavailable, or request not accepted.",
         weir__load64(&dispatcher->refused)},
        {"delivered_total", "counter", "Deferred requests delivered.", counts->delivered},
        {"attempts_total", "counter", "Delivery attempts.", counts->attempts},
        {"failed_attempts_total", "counter", "Delivery attempts without a final status.", counts->failed},
        {"dead_letters_total", "counter", "Deferred requests dead-lettered after a delivery attempt.", counts->dead},
        {"requeued_total", "counter", "Claimed requests requeued because a rule denied them.", counts->requeued},
    };
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
        const char *name = metrics[i].name;
        if (i < GAUGES && !text.to[i].len)
            continue;
        weir__buffer_printf(&all, "# HELP weir_queue_%s %s\n# TYPE weir_queue_%s %s\n", name, metrics[i].help, name,
                            metrics[i].type);
        if (i < GAUGES)
            weir__buffer_add(&all, text.to[i].data, text.to[i].len);
        else
            weir__buffer_printf(&all, "weir_queue_%s %" PRIu64 "\n", name, metrics[i].value);
    }
    for (int i = 0; i < GAUGES; i++) {
        all.failed |= text.to[i].failed;
        weir__buffer_free(&text.to[i]);
    }
    if (!error && !all.failed)
        (void)weir__sidecar_write(dispatcher->stats_path, all.data, all.len);
    weir__buffer_free(&all);
    dispatcher->waiting = text.waiting;
}

/* ---- Once a second ---- */

/*
 * Locks STATE/queue.lock, which the kernel unlocks when the process ends. So no two live dispatchers of a host claim
 * under the same name. Between hosts, the lease in Redis decides.
 */
static bool takes_lock(struct weir__dispatcher *dispatcher)
{
    char path[WEIR__DISPATCHER_PATH_MAX];
    if (dispatcher->lock_fd >= 0)
        return true;
    if (!weir__file_make_folder(dispatcher->config->queue.socket) ||
        snprintf(path, sizeof path, "%s/queue.lock", dispatcher->config->state_path) >= (int)sizeof path)
        return true; /* opening the queue will report why */
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0 || flock(file, LOCK_EX | LOCK_NB) == 0) {
        dispatcher->lock_fd = file;
        return true;
    }
    close(file);
    return false;
}

static void open_queue(struct weir__dispatcher *dispatcher)
{
    char why[WEIR__QUEUE_SOURCE_TEXT] = "";
    int error = takes_lock(dispatcher) ? weir__queue_open_configured(dispatcher->config, dispatcher->name,
                                                                     dispatcher->log, &dispatcher->queue, why)
                                       : WEIR__QUEUE_STANDBY;
    if (error)
        weir__dispatcher_report(dispatcher, error, why);
}

/* Closes a queue whose file was removed. Deliveries in progress continue; the new queue does not know them. */
static void close_removed(struct weir__dispatcher *dispatcher)
{
    if (!dispatcher->removed)
        return;
    weir__queue_close(dispatcher->queue);
    dispatcher->queue = NULL;
    dispatcher->removed = false;
    dispatcher->next_second_ms = dispatcher->next_claim_ms = 0;
}

static void every_second(struct weir__dispatcher *dispatcher, int64_t now)
{
    if (dispatcher->next_second_ms && now < dispatcher->next_second_ms &&
        now > dispatcher->next_second_ms - 2 * WEIR__DISPATCHER_SECOND_MS)
        return;
    dispatcher->next_second_ms = now + WEIR__DISPATCHER_SECOND_MS;
    if (!dispatcher->queue)
        open_queue(dispatcher);
    if (!dispatcher->queue)
        return;
    weir__dispatcher_commit(dispatcher);
    /* One clock is enough: a standby agent with a wrong one must not expire requests. */
    if (!dispatcher->counts.standby && weir__queue_expire(dispatcher->queue, now) == WEIR__QUEUE_REMOVED)
        weir__dispatcher_report(dispatcher, WEIR__QUEUE_REMOVED, weir__queue_why(dispatcher->queue));
    write_metrics(dispatcher, now);
    if (dispatcher->dead_unlogged)
        weir__logf(dispatcher->log, WEIR__LOG_WARNING,
                   "queue: %llu deferred request%s became dead (%s); list them with: weir queue list --state dead",
                   (unsigned long long)dispatcher->dead_unlogged, dispatcher->dead_unlogged == 1 ? "" : "s",
                   dispatcher->dead_why);
    dispatcher->dead_unlogged = 0;
}

static void wait_until(struct weir__dispatcher *dispatcher, int64_t until)
{
    int64_t ms = until - weir__dispatcher_clock_ms();
    ms = ms < 0 ? 0 : ms > WEIR__DISPATCHER_IDLE_MS ? WEIR__DISPATCHER_IDLE_MS : ms;
    (void)curl_multi_poll(dispatcher->multi, NULL, 0, (int)ms, NULL);
}

/* Waits for deliveries in progress, then requeues the rest: the upstream may have processed those. */
static void finish(struct weir__dispatcher *dispatcher)
{
    int64_t until = weir__dispatcher_clock_ms() + LAST_MS;
    bool busy = true;
    while (busy && weir__dispatcher_clock_ms() < until) {
        weir__dispatcher_receive(dispatcher);
        busy = false;
        for (size_t i = 0; i < WEIR__DISPATCHER_DELIVERIES; i++)
            busy |= dispatcher->delivery[i].state == WEIR__DELIVERY_SENT;
        if (busy)
            wait_until(dispatcher, weir__dispatcher_clock_ms() + WEIR__DISPATCHER_BUSY_MS);
    }
    weir__dispatcher_requeue_all(dispatcher);
}

static void *run(void *context)
{
    struct weir__dispatcher *dispatcher = context;
    while (!weir__load64(&dispatcher->ending)) {
        if (weir__take64(&dispatcher->woken))
            dispatcher->next_claim_ms = 0;
        close_removed(dispatcher);
        every_second(dispatcher, weir__dispatcher_clock_ms());
        int64_t now = weir__dispatcher_clock_ms();
        if (dispatcher->next_claim_ms >
            now + WEIR__DISPATCHER_IDLE_MS + WEIR__DISPATCHER_STANDBY_MS) /* the clock was set back */
            dispatcher->next_claim_ms = now;
        bool claims = dispatcher->queue && dispatcher->to.url;
        if (claims && now >= dispatcher->next_claim_ms)
            weir__dispatcher_claim(dispatcher, now);
        int64_t next = weir__dispatcher_poll_timers(dispatcher, weir__dispatcher_clock_ms());
        weir__dispatcher_receive(dispatcher);
        wait_until(dispatcher, claims && dispatcher->next_claim_ms < next ? dispatcher->next_claim_ms : next);
    }
    finish(dispatcher);
    return NULL;
}

/* ---- Starting and stopping ---- */

/* The name of this agent's claims: stable across restarts and unique. */
static void set_claim_name(struct weir__dispatcher *dispatcher)
{
    char host[128] = "";
    if (dispatcher->config->queue.database) {
        snprintf(dispatcher->name, sizeof dispatcher->name,
                 "agent"); /* the lock file makes it unique; a container's host name changes with each start */
        return;
    }
    if (gethostname(host, sizeof host - 1) != 0)
        *host = 0;
    snprintf(dispatcher->name, sizeof dispatcher->name, "%s %.100s", *host ? host : "agent",
             dispatcher->config->state_path);
}

static void set_target(struct weir__dispatcher *dispatcher)
{
    static const char socket[] = "unix:";
    const struct weir__queue_config *queue = &dispatcher->config->queue;
    const char *to = queue->deliver_to ? queue->deliver_to : queue->gateway;
    bool local = to && strncmp(to, socket, sizeof socket - 1) == 0;
    dispatcher->to = (struct weir__delivery_target){.url = to,
                                                    .timeout_ms = DELIVER_MS,
                                                    .ca = dispatcher->config->upstream_ca,
                                                    .unverified = !dispatcher->config->upstream_verify};
    if (!to) {
        /* weir agent with an nginx that it does not manage: there is no gateway to deliver to */
        weir__logf(dispatcher->log, WEIR__LOG_ERROR,
                   "queue: nothing is delivered: set queue.deliver_to to the upstream's address");
    } else if (local || !queue->deliver_to) {
        dispatcher->to.url = "http://localhost";
        dispatcher->to.socket = local ? to + sizeof socket - 1 : to;
    }
}

struct weir__dispatcher *weir__dispatcher_start(const struct weir__config *config, weir *engine,
                                                const struct weir__logger *log)
{
    struct weir__dispatcher *dispatcher = calloc(1, sizeof *dispatcher);
    if (!dispatcher)
        return NULL;
    dispatcher->config = config;
    dispatcher->engine = engine;
    dispatcher->log = log;
    dispatcher->lock_fd = -1;
    snprintf(dispatcher->stats_path, sizeof dispatcher->stats_path, "%s.queue", config->segment_path);
    set_claim_name(dispatcher);
    set_target(dispatcher);
    dispatcher->multi = curl_multi_init();
    curl_multi_setopt(dispatcher->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)WEIR__DISPATCHER_DELIVERIES);
    curl_multi_setopt(dispatcher->multi, CURLMOPT_MAXCONNECTS, (long)WEIR__DISPATCHER_DELIVERIES);
    if (dispatcher->multi && pthread_create(&dispatcher->thread, NULL, run, dispatcher) == 0)
        return dispatcher;
    curl_multi_cleanup(dispatcher->multi);
    free(dispatcher);
    return NULL;
}

void weir__dispatcher_ingested(struct weir__dispatcher *dispatcher, uint64_t accepted, uint64_t refused)
{
    if (!dispatcher)
        return;
    weir__add64(&dispatcher->accepted, accepted);
    weir__add64(&dispatcher->refused, refused);
    if (!accepted)
        return;
    weir__store64_ordered(&dispatcher->woken, 1);
    curl_multi_wakeup(dispatcher->multi);
}

void weir__dispatcher_finish(struct weir__dispatcher *dispatcher)
{
    if (!dispatcher || dispatcher->joined)
        return;
    weir__store64_ordered(&dispatcher->ending, 1);
    curl_multi_wakeup(dispatcher->multi);
    pthread_join(dispatcher->thread, NULL);
    dispatcher->joined = true;
}

void weir__dispatcher_close(struct weir__dispatcher *dispatcher)
{
    for (size_t i = 0; i < WEIR__DISPATCHER_DELIVERIES; i++) {
        weir__delivery_clear(&dispatcher->delivery[i]);
        curl_easy_cleanup(dispatcher->delivery[i].curl);
    }
    curl_multi_cleanup(dispatcher->multi);
    weir__queue_close(dispatcher->queue);
}

void weir__dispatcher_stop(struct weir__dispatcher *dispatcher)
{
    if (!dispatcher)
        return;
    weir__dispatcher_finish(dispatcher);
    weir__dispatcher_close(dispatcher);
    if (dispatcher->lock_fd >= 0)
        close(dispatcher->lock_fd);
    (void)unlink(dispatcher->stats_path); /* so that no stale metrics are served */
    free(dispatcher);
}
