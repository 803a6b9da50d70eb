/* The control plane's slow part: see agent_threads.h. */
#include "serve/agent_threads.h"
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
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define TICK_MS      250  /* figures are by seconds */
#define ACCEPT_AGAIN 20   /* ticks between two attempts to listen for the queue */
#define FOLLOW_MS    1000 /* between two looks at what others publish */
#define SENSING_NICE (-10)
#define AGAIN        5 /* such looks between two attempts to listen */

struct weir__keeper {
    const struct weir__config *config;
    const struct weir__logger *log;
    struct weir__retriever *retriever;  /* NULL: the rules are this host's own */
    struct weir__host *host;            /* NULL: nobody asks about this one */
    struct weir__control *control;      /* NULL: no rules service here, or not yet; the serving thread's, as admin is */
    struct weir__admin *admin;          /* the same */
    int socket;                         /* of the admin listener, bound before the start; 0: none, or used up */
    struct weir__ingest *acceptor;      /* NULL: no queue, or not yet; the ticking thread's */
    struct weir__load_sampler *sampler; /* NULL: there is no load level */
    struct weir__dispatcher *drain;     /* NULL: there is no queue */
    struct weir__fleet_teller *teller;  /* NULL: there is nobody to hear of */
    pthread_t retrieving, ticking, serving, sensing, telling;
    bool retrieves, ticks, serves, senses, tells; /* those run */

    pthread_mutex_t lock;
    pthread_cond_t end;
    bool ending;
};

bool weir__keeper_needed(const struct weir__config *config)
{
    return config->published || config->store.url || config->hot_bytes || config->load.on || config->queue.wanted;
}

/* Waits, on the monotonic clock. True: it is time to end. */
static bool wait_ms(struct weir__keeper *keeper, int64_t ms)
{
    struct timespec until = weir__deadline(ms * 1000);
    pthread_mutex_lock(&keeper->lock);
    while (!keeper->ending && pthread_cond_timedwait(&keeper->end, &keeper->lock, &until) != ETIMEDOUT)
        continue;
    bool ending = keeper->ending;
    pthread_mutex_unlock(&keeper->lock);
    return ending;
}

static void *retrieve(void *context)
{
    struct weir__keeper *keeper = context;
    do
        (void)!weir__retriever_look(keeper->retriever); /* it was told */
    while (!wait_ms(keeper, weir__retriever_wait_ms(keeper->retriever)));
    return NULL;
}

/*
 * The rules service, and who listens for it. What goes wrong is told once and tried again later: whoever needs the
 * exchange with the store need not care for it.
 */
static void serve(struct weir__keeper *keeper, bool first)
{
    const struct weir__config *config = keeper->config;
    struct weir__control_options options = {.url = config->admin.database,
                                            .published_path = config->rules_path,
                                            .session_ms = config->admin.session_ms,
                                            .key_texts = (enum weir__role)config->admin.key_texts,
                                            .host = weir__host_calls(keeper->host)};
    char why[256];
    int error = keeper->control ? 0 : weir__control_open(&options, &keeper->control);
    if (error)
        snprintf(why, sizeof why, "%s", weir__db_strerror(error));
    else
        keeper->admin = weir__admin_start(&config->admin, &keeper->socket, keeper->control, why, sizeof why);
    if (!keeper->admin && first)
        weir__logf(keeper->log, WEIR__LOG_ERROR, "admin: %s; it is tried again", why);
    if (keeper->admin && !first)
        weir__logf(keeper->log, WEIR__LOG_INFO, "admin: listens on %s now", config->admin.listener->address);
}

static void wake_drain(void *context)
{
    weir__dispatcher_wake(context);
}

/* Whoever brings requests for the queue. The same holds for what goes wrong. */
static void accept_for_queue(struct weir__keeper *keeper, bool first)
{
    char why[256];
    keeper->acceptor = weir__ingest_start(keeper->config, keeper->log, wake_drain, keeper->drain, why, sizeof why);
    if (!keeper->acceptor && first)
        weir__logf(keeper->log, WEIR__LOG_ERROR, "queue: %s; it is tried again", why);
    if (keeper->acceptor && !first)
        weir__logf(keeper->log, WEIR__LOG_INFO, "queue: listens on %s now", keeper->config->queue.socket);
}

/* For those who watch, and for the queue. It waits for no database. */
static void *tick(void *context)
{
    struct weir__keeper *keeper = context;
    for (int round = 0; !wait_ms(keeper, round ? TICK_MS : 0); round = round % ACCEPT_AGAIN + 1) {
        if (keeper->config->queue.wanted && !keeper->acceptor && round % ACCEPT_AGAIN == 0)
            accept_for_queue(keeper, round == 0);
        weir__host_look(keeper->host);
        if (keeper->acceptor) {
            struct weir__ingest_counts figures;
            weir__ingest_counts(keeper->acceptor, &figures);
            weir__dispatcher_set_ingested(keeper->drain, figures.accepted, figures.refused);
        }
    }
    return NULL;
}

/* The rules of weir.yaml, as soon as there is a database to take them. False: nothing is left to be done. */
static bool import(struct weir__keeper *keeper)
{
    if (weir__control_revision(keeper->control))
        return false; /* it had rules of its own */
    int error = weir__first_import(keeper->config, keeper->control, keeper->log);
    return error && error >= WEIR__IMPORT_WRONG;
}

/* The rules service: what others publish, and what could not be done before. The database may let it wait. */
static void *follow(void *context)
{
    struct weir__keeper *keeper = context;
    int failed = 0;
    bool imports = weir__first_is_due(keeper->config);
    for (int round = 0; !wait_ms(keeper, round ? FOLLOW_MS : 0); round = round % AGAIN + 1) {
        if (!keeper->admin && round % AGAIN == 0)
            serve(keeper, round == 0);
        if (!keeper->control)
            continue;
        int error = weir__control_tick(keeper->control);
        if (error && error != failed)
            weir__logf(keeper->log, WEIR__LOG_WARNING, "rules service: %s", weir__db_strerror(error));
        failed = error;
        if (!error && imports)
            imports = import(keeper);
    }
    return NULL;
}

/* In a thread of its own: nobody who asks the rules service for much makes the level old. */
static void *sense(void *context)
{
    struct weir__keeper *keeper = context;
    /* Of this thread alone, and where it may: on a host without time to spare the level is needed most. */
    (void)setpriority(PRIO_PROCESS, 0, SENSING_NICE);
    do
        weir__load_sampler_step(keeper->sampler);
    while (!wait_ms(keeper, WEIR__LOAD_SAMPLE_MS));
    return NULL;
}

static bool start_sensing(struct weir__keeper *keeper)
{
    if (!keeper->config->load.on)
        return true;
    keeper->sampler = weir__load_sampler_open(keeper->config, weir__host_engine(keeper->host), keeper->log);
    if (!keeper->sampler)
        return true; /* it was told: limits are as they are written */
    keeper->senses = pthread_create(&keeper->sensing, NULL, sense, keeper) == 0;
    return keeper->senses;
}

/* In a thread of its own, as the store may let it wait. */
static void *tell(void *context)
{
    struct weir__keeper *keeper = context;
    do
        weir__fleet_teller_turn(keeper->teller);
    while (!wait_ms(keeper, WEIR__FLEET_EVERY_MS));
    return NULL;
}

static bool start_telling(struct weir__keeper *keeper)
{
    if (!weir__fleet_wanted(keeper->config))
        return true;
    keeper->teller = weir__fleet_teller_new(keeper->config, keeper->host, keeper->log);
    keeper->tells = keeper->teller && pthread_create(&keeper->telling, NULL, tell, keeper) == 0;
    return keeper->tells;
}

/* What goes along when the rules are asked for. */
static size_t tell_origin(void *context, char *to, size_t size)
{
    const struct weir__keeper *keeper = context;
    struct weir__told told;
    weir__host_tell(keeper->host, &told);
    told.every_ms = keeper->config->origin.poll_ms;
    return weir__told_write(&told, to, size);
}

static bool start_retrieving(struct weir__keeper *keeper)
{
    if (!keeper->config->origin.url)
        return true;
    keeper->retriever = weir__retriever_new(keeper->config, keeper->log);
    if (!keeper->retriever)
        return false;
    weir__retriever_tell(keeper->retriever, tell_origin, keeper);
    keeper->retrieves = pthread_create(&keeper->retrieving, NULL, retrieve, keeper) == 0;
    return keeper->retrieves;
}

static bool start_draining(struct weir__keeper *keeper)
{
    if (!keeper->config->queue.wanted)
        return true;
    keeper->drain = weir__dispatcher_start(keeper->config, weir__host_engine(keeper->host), keeper->log);
    return keeper->drain != NULL;
}

static bool start(struct weir__keeper *keeper)
{
    weir__deadline_cond(&keeper->end);
    pthread_mutex_init(&keeper->lock, NULL);
    keeper->host = weir__host_open(keeper->config, keeper->log);
    if (!keeper->host || !start_retrieving(keeper))
        return false;
    if (!start_draining(keeper)) /* before the one that accepts, which wakes it */
        return false;
    keeper->ticks = pthread_create(&keeper->ticking, NULL, tick, keeper) == 0;
    if (keeper->ticks && keeper->config->admin.listener)
        keeper->serves = pthread_create(&keeper->serving, NULL, follow, keeper) == 0;
    return keeper->ticks && (keeper->serves || !keeper->config->admin.listener) && start_sensing(keeper) &&
           start_telling(keeper);
}

struct weir__keeper *weir__keeper_start(const struct weir__config *config, const struct weir__logger *log)
{
    struct weir__keeper *keeper = calloc(1, sizeof *keeper);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (!keeper)
        return NULL;
    keeper->config = config;
    keeper->log = log;
    keeper->socket = config->admin.socket;
    if (start(keeper))
        return keeper;
    weir__logf(log, WEIR__LOG_ERROR, "the agent cannot begin");
    weir__keeper_stop(keeper);
    return NULL;
}

void weir__keeper_stop(struct weir__keeper *keeper)
{
    if (!keeper)
        return;
    pthread_mutex_lock(&keeper->lock);
    keeper->ending = true;
    pthread_cond_broadcast(&keeper->end);
    pthread_mutex_unlock(&keeper->lock);
    if (keeper->retrieves)
        pthread_join(keeper->retrieving, NULL);
    if (keeper->ticks)
        pthread_join(keeper->ticking, NULL);
    if (keeper->serves)
        pthread_join(keeper->serving, NULL);
    if (keeper->senses)
        pthread_join(keeper->sensing, NULL);
    if (keeper->tells)
        pthread_join(keeper->telling, NULL);
    weir__fleet_teller_free(keeper->teller);
    weir__load_sampler_close(keeper->sampler);
    weir__dispatcher_finish(keeper->drain);
    weir__ingest_stop(keeper->acceptor); /* as late as that: without it requests are denied */
    weir__dispatcher_stop(keeper->drain);
    weir__admin_stop(keeper->admin);
    if (keeper->control)
        weir__control_close(keeper->control);
    weir__host_close(keeper->host);
    weir__retriever_free(keeper->retriever);
    pthread_cond_destroy(&keeper->end);
    pthread_mutex_destroy(&keeper->lock);
    free(keeper);
}
