/* The agent's threads beside the exchange with the store. See agent.h. */
#include "serve/agent.h"
#include "base/signals.h"
#include "control/control.h"
#include "queue/queue.h"
#include "overload/overload.h"
#include "serve/notifier.h"
#include "base/clock.h"

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define TICK_MS         250  /* of the history, which has one row a second */
#define INGEST_RETRY    20   /* calls of record_history between two attempts to open the queue's listener: 5 s */
#define SERVICE_POLL_MS 1000 /* between two polls of the database for revisions that other hosts published */
#define SAMPLER_NICE    (-10)
#define SERVICE_RETRY   5 /* polls between two attempts to open the admin listener: 5 s */

enum { THREADS_MAX = 8, QUERIES = 4 /* of other hosts that wait for a reply */ };

struct agent_threads {
    const struct weir__config *config;
    const struct weir__logger *log;
    struct weir__rules_poller *poller;   /* NULL: no origin */
    struct weir__host *host;             /* NULL: not open */
    struct weir__control *control;       /* NULL: no rules service, or not open yet; for its thread alone */
    struct weir__admin *admin;           /* NULL: not listening yet; for its thread alone */
    struct weir__named_rules files;      /* of the rules service, if the rules are in files */
    struct weir__fingerprint unread;     /* of rule files that are not read, as the rules are in the database */
    struct weir__ingest *ingest;         /* NULL: no queue, or not listening yet; for the thread of the history alone */
    struct weir__load_sampler *sampler;  /* NULL: no overload control */
    struct weir__dispatcher *dispatcher; /* NULL: no queue */
    struct weir__heartbeat_sender *sender; /* NULL: no other hosts */
    struct weir__notifier *notifier;       /* NULL: no `notify` */
    pthread_t threads[THREADS_MAX];
    size_t started;

    pthread_mutex_t lock;
    pthread_cond_t end;
    bool ending;

    pthread_cond_t queried; /* with the lock: there are queries, or the threads must end */
    struct weir__open_query queries[QUERIES];
    size_t queued, replied; /* counts */
};

bool weir__agent_needed(const struct weir__config *config)
{
    return config->published || config->admin.listener || config->store.url || config->hot_bytes || config->load.on ||
           config->queue.wanted || config->notify.url;
}

/* Waits `ms` of the monotonic clock. True: the threads must end. */
static bool wait_ms(struct agent_threads *threads, int64_t ms)
{
    struct timespec until = weir__deadline(ms * 1000);
    pthread_mutex_lock(&threads->lock);
    while (!threads->ending && pthread_cond_timedwait(&threads->end, &threads->lock, &until) != ETIMEDOUT)
        continue;
    bool ending = threads->ending;
    pthread_mutex_unlock(&threads->lock);
    return ending;
}

static void *poll_rules(void *context)
{
    struct agent_threads *threads = context;
    do
        (void)!weir__rules_poller_poll(threads->poller); /* it logs errors itself */
    while (!wait_ms(threads, weir__rules_poller_wait_ms(threads->poller)));
    return NULL;
}

/* Opens the rules service and its listener. An error is logged once and retried; it does not stop the other threads. */
static void start_rules_service(struct agent_threads *threads, bool first)
{
    const struct weir__config *config = threads->config;
    threads->files = (struct weir__named_rules){config->rules_path, config->rules_text, config->file};
    struct weir__control_options options = {.url = config->admin.database,
                                            .files = config->published ? NULL : &threads->files,
                                            .published_path = config->published ? config->rules_path : NULL,
                                            .session_ms = config->admin.session_ms,
                                            .login_links = weir__config_is_loopback(config->admin.listener->host),
                                            .key_texts = (enum weir__role)config->admin.key_texts,
                                            .host = &threads->host->calls};
    char why[256];
    int error = threads->control ? 0 : weir__control_open(&options, &threads->control);
    if (error)
        snprintf(why, sizeof why, "%s", weir__db_strerror(error));
    else
        threads->admin = weir__admin_start(&config->admin, threads->control, why, sizeof why);
    if (!threads->admin && first)
        weir__logf(threads->log, WEIR__LOG_ERROR, "admin listener failed to start: %s; retrying in 5 s", why);
    if (threads->admin && !first)
        weir__logf(threads->log, WEIR__LOG_INFO, "admin: listening on %s", config->admin.listener->address);
}

/* Opens the queue's listener. An error is logged once and retried. */
static void start_ingest(struct agent_threads *threads, bool first)
{
    char why[256];
    threads->ingest = weir__ingest_start(threads->config, threads->log, threads->dispatcher, why, sizeof why);
    if (!threads->ingest && first)
        weir__logf(threads->log, WEIR__LOG_ERROR, "queue listener failed to start: %s; retrying in 5 s", why);
    if (threads->ingest && !first)
        weir__logf(threads->log, WEIR__LOG_INFO, "queue: listening on %s", threads->config->queue.socket);
}

/* Thread: writes the history, and keeps the queue's listener open. Does not wait for a database. */
static void *record_history(void *context)
{
    struct agent_threads *threads = context;
    for (int round = 0; !wait_ms(threads, round ? TICK_MS : 0); round = round % INGEST_RETRY + 1) {
        if (threads->config->queue.wanted && !threads->ingest && round % INGEST_RETRY == 0)
            start_ingest(threads, round == 0);
        weir__host_tick(threads->host);
    }
    return NULL;
}

/* Logs that rule files have changed that are not read, as the rules are in the database. */
static void watch_unread(struct agent_threads *threads)
{
    const char *path = threads->config->published ? threads->config->import_path : NULL;
    if (!path)
        return;
    struct weir__fingerprint now = weir__sources_look(path), *before = &threads->unread;
    if (before->sum && (now.sum != before->sum || now.error != before->error))
        weir__logf(
            threads->log, WEIR__LOG_WARNING,
            "%s has changed and is not read: the rules are those of the rules service; to publish it: weir rules "
            "apply --publish enforced %s",
            path, path);
    *before = now;
}

/* Logs once that the database has published rules, if the rules are in files. */
static void log_unused(const struct agent_threads *threads)
{
    int64_t revision = weir__control_revision(threads->control);
    bool stated = threads->config->admin.rules;
    if (threads->config->published || !revision)
        return;
    weir__logf(threads->log, stated ? WEIR__LOG_INFO : WEIR__LOG_WARNING,
               "revision %lld of the rules database is not used: the rules are those of %s%s", (long long)revision,
               threads->files.path ? threads->files.path : threads->files.file,
               stated ? "" : "; the next start would use it: state admin: { rules: files } or { rules: database }");
}

/* Thread: the rules service. Reads changed rule files, takes over revisions that other hosts published; retries what
 * failed. May block on the database. */
static void *run_rules_service(void *context)
{
    struct agent_threads *threads = context;
    bool available = false;
    for (int round = 0; !wait_ms(threads, round ? SERVICE_POLL_MS : 0); round = round % SERVICE_RETRY + 1) {
        if (!threads->admin && round % SERVICE_RETRY == 0)
            start_rules_service(threads, round == 0);
        watch_unread(threads);
        if (!threads->control || weir__control_tick(threads->control) != 0) /* it logs errors itself */
            continue;
        if (!available)
            log_unused(threads);
        available = true;
    }
    return NULL;
}

/* Thread: samples the load. Its own, so that no request to the rules service delays the load level. */
static void *sample_load(void *context)
{
    struct agent_threads *threads = context;
    /* Of this thread alone, if permitted: an overloaded host needs the load level most. */
    (void)setpriority(PRIO_PROCESS, 0, SAMPLER_NICE);
    do
        weir__load_sampler_step(threads->sampler);
    while (!wait_ms(threads, WEIR__LOAD_SAMPLE_MS));
    return NULL;
}

/* Thread: sends heartbeats. Its own, as the store may block it. */
static void *send_heartbeats(void *context)
{
    struct agent_threads *threads = context;
    struct weir__heartbeat self;
    do {
        weir__host_heartbeat(threads->host, &self);
        weir__heartbeat_sender_run(threads->sender, &self, &threads->host->subscribers);
    } while (!wait_ms(threads, WEIR__HEARTBEAT_EVERY_MS));
    return NULL;
}

/* Thread: sends warnings. Its own, as the receiver may block it. */
static void *send_warnings(void *context)
{
    struct agent_threads *threads = context;
    do
        weir__notifier_step(threads->notifier);
    while (!wait_ms(threads, WEIR__NOTIFIER_STEP_MS));
    return NULL;
}

static bool is_ending(void *context)
{
    return wait_ms(context, 0);
}

/* False: no room. */
static bool queue_query(void *context, const struct weir__open_query *query)
{
    struct agent_threads *threads = context;
    pthread_mutex_lock(&threads->lock);
    bool room = threads->queued - threads->replied < QUERIES;
    if (room)
        threads->queries[threads->queued++ % QUERIES] = *query;
    pthread_cond_signal(&threads->queried);
    pthread_mutex_unlock(&threads->lock);
    return room;
}

/* Thread: replies to queries of other hosts. Its own, as the store may block it, and blocks of keys must not wait. */
static void *reply_to_queries(void *context)
{
    struct agent_threads *threads = context;
    pthread_mutex_lock(&threads->lock);
    while (!threads->ending) {
        if (threads->queued == threads->replied) {
            pthread_cond_wait(&threads->queried, &threads->lock);
            continue;
        }
        struct weir__open_query query = threads->queries[threads->replied++ % QUERIES];
        pthread_mutex_unlock(&threads->lock);
        weir__host_reply(threads->host, &query);
        pthread_mutex_lock(&threads->lock);
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

/* Thread: blocks and resets of keys on all hosts. Its own, as the store may block it. */
static void *exchange_keys(void *context)
{
    struct agent_threads *threads = context;
    weir__key_exchange_until(threads->host->keys, is_ending, threads);
    weir__key_exchange_queries(threads->host->keys, queue_query, threads);
    do
        (void)!weir__key_exchange_round(threads->host->keys); /* it logs refusals, and sync an unavailable store */
    while (!wait_ms(threads, WEIR__KEY_EXCHANGE_MS));
    return NULL;
}

/* Formats the heartbeat that goes along with each poll of the origin. */
static size_t format_heartbeat(void *context, char *to, size_t size)
{
    const struct agent_threads *threads = context;
    struct weir__heartbeat heartbeat;
    weir__host_heartbeat(threads->host, &heartbeat);
    heartbeat.every_ms = threads->config->origin.poll_ms;
    return weir__heartbeat_format(&heartbeat, to, size);
}

static bool start(struct agent_threads *threads)
{
    const struct weir__config *config = threads->config;
    const struct weir__logger *log = threads->log;
    weir__deadline_cond(&threads->end);
    pthread_cond_init(&threads->queried, NULL);
    pthread_mutex_init(&threads->lock, NULL);
    threads->host = weir__host_open(config, log);
    if (!threads->host)
        return false;
    if (config->origin.url)
        threads->poller = weir__rules_poller_new(config, log, format_heartbeat, threads);
    if (config->queue.wanted) /* before the queue's listener, which reports to it */
        threads->dispatcher = weir__dispatcher_start(config, threads->host->engine, log);
    if (config->load.on) /* NULL: it has logged why; limits are not scaled */
        threads->sampler = weir__load_sampler_open(config, threads->host->engine, log);
    if (weir__heartbeat_sender_wanted(config))
        threads->sender = weir__heartbeat_sender_new(config, log);
    if (config->notify.url)
        threads->notifier = weir__notifier_new(config, threads->host->engine->segment, log, is_ending, threads);
    if ((config->notify.url && !threads->notifier) || (config->origin.url && !threads->poller) ||
        (config->queue.wanted && !threads->dispatcher) || (weir__heartbeat_sender_wanted(config) && !threads->sender))
        return false;
    const struct {
        bool wanted;
        void *(*run)(void *threads);
    } list[THREADS_MAX] = {{threads->poller != NULL, poll_rules},
                           {true, record_history},
                           {config->admin.listener != NULL, run_rules_service},
                           {threads->sampler != NULL, sample_load},
                           {threads->sender != NULL, send_heartbeats},
                           {threads->notifier != NULL, send_warnings},
                           {threads->host->keys != NULL, exchange_keys},
                           {threads->host->replies != NULL, reply_to_queries}};
    for (size_t i = 0; i < THREADS_MAX; i++) {
        if (list[i].wanted && pthread_create(&threads->threads[threads->started], NULL, list[i].run, threads) != 0)
            return false;
        threads->started += list[i].wanted;
    }
    return true;
}

static void stop(struct agent_threads *threads)
{
    pthread_mutex_lock(&threads->lock);
    threads->ending = true;
    pthread_cond_broadcast(&threads->end);
    pthread_cond_signal(&threads->queried);
    pthread_mutex_unlock(&threads->lock);
    weir__dispatcher_finish(threads->dispatcher); /* before the other threads, which may wait for a database */
    for (size_t i = 0; i < threads->started; i++)
        pthread_join(threads->threads[i], NULL);
    weir__heartbeat_sender_free(threads->sender);
    weir__notifier_free(threads->notifier);
    weir__load_sampler_close(threads->sampler);
    weir__ingest_stop(threads->ingest); /* late: without it nginx rejects requests that would be deferred */
    weir__dispatcher_stop(threads->dispatcher);
    weir__admin_stop(threads->admin);
    if (threads->control)
        weir__control_close(threads->control);
    weir__host_close(threads->host);
    weir__rules_poller_free(threads->poller);
    pthread_cond_destroy(&threads->end);
    pthread_cond_destroy(&threads->queried);
    pthread_mutex_destroy(&threads->lock);
}

/* ---- The agent's main loop ---- */

bool weir__agent_run(const struct weir__config *config, const struct weir__logger *log, int signals)
{
    struct agent_threads threads = {.config = config, .log = log};
    curl_global_init(CURL_GLOBAL_DEFAULT);
    bool good = start(&threads);
    if (!good)
        weir__logf(log, WEIR__LOG_ERROR, "agent failed to start: no memory or no thread left");
    else if (config->store.url)
        good = weir__exchange_run(config, log, signals);
    else /* there is no exchange: waits for a signal that stops it */
        while (weir__signal_next(signals) != WEIR__ACTION_STOP)
            poll(&(struct pollfd){.fd = signals, .events = POLLIN}, 1, -1);
    stop(&threads);
    return good;
}
