/* The control plane's slow part: see agent_threads.h. */
#include "serve/agent_threads.h"
#include "base/signals.h"
#include "queue/ingest.h"
#include "control/admin_listener.h"
#include "queue/dispatcher.h"
#include "control/bootstrap.h"
#include "stats/heartbeat_sender.h"
#include "serve/admin_host.h"
#include "control/rules_poller.h"
#include "overload/sampler.h"
#include "base/clock.h"

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define WATCH_MS     500  /* between two looks whether the configuration has changed */
#define TICK_MS      250  /* figures are by seconds */
#define ACCEPT_AGAIN 20   /* ticks between two attempts to listen for the queue */
#define FOLLOW_MS    1000 /* between two looks at what others publish */
#define SENSING_NICE (-10)
#define AGAIN        5 /* such looks between two attempts to listen */

struct weir__agent_threads {
    const struct weir__config *config;
    const struct weir__logger *log;
    struct weir__rules_poller *retriever; /* NULL: the rules are this host's own */
    struct weir__host *host;              /* NULL: nobody asks about this one */
    struct weir__control *control;      /* NULL: no rules service here, or not yet; the serving thread's, as admin is */
    struct weir__admin *admin;          /* the same */
    int socket;                         /* of the admin listener, bound before the start; 0: none, or used up */
    struct weir__ingest *acceptor;      /* NULL: no queue, or not yet; the ticking thread's */
    struct weir__load_sampler *sampler; /* NULL: there is no load level */
    struct weir__dispatcher *drain;     /* NULL: there is no queue */
    struct weir__heartbeat_sender *teller; /* NULL: there is nobody to hear of */
    pthread_t retrieving, ticking, serving, sensing, telling;
    bool retrieves, ticks, serves, senses, tells; /* those run */

    pthread_mutex_t lock;
    pthread_cond_t end;
    bool ending;
};

bool weir__agent_needed(const struct weir__config *config)
{
    return config->published || config->store.url || config->hot_bytes || config->load.on || config->queue.wanted;
}

/* Waits, on the monotonic clock. True: it is time to end. */
static bool wait_ms(struct weir__agent_threads *threads, int64_t ms)
{
    struct timespec until = weir__deadline(ms * 1000);
    pthread_mutex_lock(&threads->lock);
    while (!threads->ending && pthread_cond_timedwait(&threads->end, &threads->lock, &until) != ETIMEDOUT)
        continue;
    bool ending = threads->ending;
    pthread_mutex_unlock(&threads->lock);
    return ending;
}

static void *retrieve(void *context)
{
    struct weir__agent_threads *threads = context;
    do
        (void)!weir__rules_poller_poll(threads->retriever); /* it was told */
    while (!wait_ms(threads, weir__rules_poller_wait_ms(threads->retriever)));
    return NULL;
}

/*
 * The rules service, and who listens for it. What goes wrong is told once and tried again later: whoever needs the
 * exchange with the store need not care for it.
 */
static void serve(struct weir__agent_threads *threads, bool first)
{
    const struct weir__config *config = threads->config;
    struct weir__control_options options = {.url = config->admin.database,
                                            .published_path = config->rules_path,
                                            .session_ms = config->admin.session_ms,
                                            .key_texts = (enum weir__role)config->admin.key_texts,
                                            .host = weir__host_calls(threads->host)};
    char why[256];
    int error = threads->control ? 0 : weir__control_open(&options, &threads->control);
    if (error)
        snprintf(why, sizeof why, "%s", weir__db_strerror(error));
    else
        threads->admin = weir__admin_start(&config->admin, &threads->socket, threads->control, why, sizeof why);
    if (!threads->admin && first)
        weir__logf(threads->log, WEIR__LOG_ERROR, "admin: %s; it is tried again", why);
    if (threads->admin && !first)
        weir__logf(threads->log, WEIR__LOG_INFO, "admin: listens on %s now", config->admin.listener->address);
}

static void wake_drain(void *context)
{
    weir__dispatcher_wake(context);
}

/* Whoever brings requests for the queue. The same holds for what goes wrong. */
static void accept_for_queue(struct weir__agent_threads *threads, bool first)
{
    char why[256];
    threads->acceptor = weir__ingest_start(threads->config, threads->log, wake_drain, threads->drain, why, sizeof why);
    if (!threads->acceptor && first)
        weir__logf(threads->log, WEIR__LOG_ERROR, "queue: %s; it is tried again", why);
    if (threads->acceptor && !first)
        weir__logf(threads->log, WEIR__LOG_INFO, "queue: listens on %s now", threads->config->queue.socket);
}

/* For those who watch, and for the queue. It waits for no database. */
static void *tick(void *context)
{
    struct weir__agent_threads *threads = context;
    for (int round = 0; !wait_ms(threads, round ? TICK_MS : 0); round = round % ACCEPT_AGAIN + 1) {
        if (threads->config->queue.wanted && !threads->acceptor && round % ACCEPT_AGAIN == 0)
            accept_for_queue(threads, round == 0);
        weir__host_look(threads->host);
        if (threads->acceptor) {
            struct weir__ingest_counts figures;
            weir__ingest_counts(threads->acceptor, &figures);
            weir__dispatcher_set_ingested(threads->drain, figures.accepted, figures.refused);
        }
    }
    return NULL;
}

/* The rules of weir.yaml, as soon as there is a database to take them. False: nothing is left to be done. */
static bool import(struct weir__agent_threads *threads)
{
    if (weir__control_revision(threads->control))
        return false; /* it had rules of its own */
    int error = weir__bootstrap_import(threads->config, threads->control, threads->log);
    return error && error >= WEIR__IMPORT_WRONG;
}

/* The rules service: what others publish, and what could not be done before. The database may let it wait. */
static void *follow(void *context)
{
    struct weir__agent_threads *threads = context;
    int failed = 0;
    bool imports = weir__bootstrap_is_due(threads->config);
    for (int round = 0; !wait_ms(threads, round ? FOLLOW_MS : 0); round = round % AGAIN + 1) {
        if (!threads->admin && round % AGAIN == 0)
            serve(threads, round == 0);
        if (!threads->control)
            continue;
        int error = weir__control_tick(threads->control);
        if (error && error != failed)
            weir__logf(threads->log, WEIR__LOG_WARNING, "rules service: %s", weir__db_strerror(error));
        failed = error;
        if (!error && imports)
            imports = import(threads);
    }
    return NULL;
}

/* In a thread of its own: nobody who asks the rules service for much makes the level old. */
static void *sense(void *context)
{
    struct weir__agent_threads *threads = context;
    /* Of this thread alone, and where it may: on a host without time to spare the level is needed most. */
    (void)setpriority(PRIO_PROCESS, 0, SENSING_NICE);
    do
        weir__load_sampler_step(threads->sampler);
    while (!wait_ms(threads, WEIR__LOAD_SAMPLE_MS));
    return NULL;
}

static bool start_sensing(struct weir__agent_threads *threads)
{
    if (!threads->config->load.on)
        return true;
    threads->sampler = weir__load_sampler_open(threads->config, weir__host_engine(threads->host), threads->log);
    if (!threads->sampler)
        return true; /* it was told: limits are as they are written */
    threads->senses = pthread_create(&threads->sensing, NULL, sense, threads) == 0;
    return threads->senses;
}

/* In a thread of its own, as the store may let it wait. */
static void *tell(void *context)
{
    struct weir__agent_threads *threads = context;
    do
        weir__heartbeat_sender_run(threads->teller);
    while (!wait_ms(threads, WEIR__HEARTBEAT_EVERY_MS));
    return NULL;
}

static bool start_telling(struct weir__agent_threads *threads)
{
    if (!weir__heartbeat_sender_wanted(threads->config))
        return true;
    threads->teller = weir__heartbeat_sender_new(threads->config, threads->host, threads->log);
    threads->tells = threads->teller && pthread_create(&threads->telling, NULL, tell, threads) == 0;
    return threads->tells;
}

/* What goes along when the rules are asked for. */
static size_t tell_origin(void *context, char *to, size_t size)
{
    const struct weir__agent_threads *threads = context;
    struct weir__heartbeat told;
    weir__host_tell(threads->host, &told);
    told.every_ms = threads->config->origin.poll_ms;
    return weir__heartbeat_format(&told, to, size);
}

static bool start_retrieving(struct weir__agent_threads *threads)
{
    if (!threads->config->origin.url)
        return true;
    threads->retriever = weir__rules_poller_new(threads->config, threads->log);
    if (!threads->retriever)
        return false;
    weir__rules_poller_set_heartbeat(threads->retriever, tell_origin, threads);
    threads->retrieves = pthread_create(&threads->retrieving, NULL, retrieve, threads) == 0;
    return threads->retrieves;
}

static bool start_draining(struct weir__agent_threads *threads)
{
    if (!threads->config->queue.wanted)
        return true;
    threads->drain = weir__dispatcher_start(threads->config, weir__host_engine(threads->host), threads->log);
    return threads->drain != NULL;
}

static bool start(struct weir__agent_threads *threads)
{
    weir__deadline_cond(&threads->end);
    pthread_mutex_init(&threads->lock, NULL);
    threads->host = weir__host_open(threads->config, threads->log);
    if (!threads->host || !start_retrieving(threads))
        return false;
    if (!start_draining(threads)) /* before the one that accepts, which wakes it */
        return false;
    threads->ticks = pthread_create(&threads->ticking, NULL, tick, threads) == 0;
    if (threads->ticks && threads->config->admin.listener)
        threads->serves = pthread_create(&threads->serving, NULL, follow, threads) == 0;
    return threads->ticks && (threads->serves || !threads->config->admin.listener) && start_sensing(threads) &&
           start_telling(threads);
}

struct weir__agent_threads *weir__agent_threads_start(const struct weir__config *config, const struct weir__logger *log)
{
    struct weir__agent_threads *threads = calloc(1, sizeof *threads);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (!threads)
        return NULL;
    threads->config = config;
    threads->log = log;
    threads->socket = config->admin.socket;
    if (start(threads))
        return threads;
    weir__logf(log, WEIR__LOG_ERROR, "the agent cannot begin");
    weir__agent_threads_stop(threads);
    return NULL;
}

void weir__agent_threads_stop(struct weir__agent_threads *threads)
{
    if (!threads)
        return;
    pthread_mutex_lock(&threads->lock);
    threads->ending = true;
    pthread_cond_broadcast(&threads->end);
    pthread_mutex_unlock(&threads->lock);
    if (threads->retrieves)
        pthread_join(threads->retrieving, NULL);
    if (threads->ticks)
        pthread_join(threads->ticking, NULL);
    if (threads->serves)
        pthread_join(threads->serving, NULL);
    if (threads->senses)
        pthread_join(threads->sensing, NULL);
    if (threads->tells)
        pthread_join(threads->telling, NULL);
    weir__heartbeat_sender_free(threads->teller);
    weir__load_sampler_close(threads->sampler);
    weir__dispatcher_finish(threads->drain);
    weir__ingest_stop(threads->acceptor); /* as late as that: without it requests are denied */
    weir__dispatcher_stop(threads->drain);
    weir__admin_stop(threads->admin);
    if (threads->control)
        weir__control_close(threads->control);
    weir__host_close(threads->host);
    weir__rules_poller_free(threads->retriever);
    pthread_cond_destroy(&threads->end);
    pthread_mutex_destroy(&threads->lock);
    free(threads);
}

/* ---- The agent's main loop ---- */

/* Without a store there is nothing to do here but to wait for the end. */
static enum weir__exchange_end wait_for_end(int signals, const struct weir__exchange_watch *watch)
{
    for (;;) {
        struct pollfd wait = {.fd = signals, .events = POLLIN};
        bool requested = false;
        poll(&wait, 1, WATCH_MS);
        for (enum weir__signal_action action; (action = weir__signal_next(signals)) != WEIR__ACTION_NONE;) {
            if (action == WEIR__ACTION_STOP)
                return WEIR__EXCHANGE_STOPPED;
            requested = true;
        }
        if (watch && watch->changed(watch->context, requested))
            return WEIR__EXCHANGE_CHANGED;
    }
}

enum weir__exchange_end weir__agent_run(const struct weir__config *config, const struct weir__logger *log, int signals,
                                        const struct weir__exchange_watch *watch)
{
    struct weir__agent_threads *threads = weir__agent_threads_start(config, log);
    if (!threads)
        return WEIR__EXCHANGE_FAILED;
    enum weir__exchange_end end =
        config->store.url ? weir__exchange_run(config, log, signals, watch) : wait_for_end(signals, watch);
    weir__agent_threads_stop(threads);
    return end;
}
