/* The control plane's slow part: see keeper.h. */
#include "agent/keeper.h"
#include "agent/accept.h"
#include "agent/admin.h"
#include "agent/drain.h"
#include "agent/host.h"
#include "agent/publish.h"
#include "agent/retrieve.h"
#include "agent/sensor.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 250 /* figures are by seconds; what others publish is looked for once in a second */
#define SECOND  4   /* ticks */
#define AGAIN   20  /* ticks between two attempts to listen */

struct weir__keeper {
    const struct weir__config *config;
    const struct weir__journal *journal;
    struct weir__retriever *retriever; /* NULL: the rules are this host's own */
    struct weir__host *host;           /* NULL: nobody asks about this one */
    struct weir__control *control;     /* NULL: no rules service here, or not yet; the ticking thread's, as admin is */
    struct weir__admin *admin;         /* the same */
    struct weir__acceptor *acceptor;   /* NULL: no queue, or not yet; the ticking thread's, too */
    struct weir__sensor *sensor;       /* NULL: there is no load level */
    struct weir__drain *drain;         /* NULL: there is no queue */
    pthread_t retrieving, ticking, sensing;
    bool retrieves, ticks, senses; /* those run */

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
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
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
                                            .host = weir__host_calls(keeper->host)};
    char why[256];
    int error = keeper->control ? 0 : weir__control_open(&options, &keeper->control);
    if (error)
        snprintf(why, sizeof why, "%s", weir__db_strerror(error));
    else
        keeper->admin = weir__admin_start(config->admin.listener, keeper->control, why, sizeof why);
    if (!keeper->admin && first)
        weir__say(keeper->journal, WEIR__ERROR, "admin: %s; it is tried again", why);
    if (keeper->admin && !first)
        weir__say(keeper->journal, WEIR__INFO, "admin: listens on %s now", config->admin.listener->address);
}

static void wake_drain(void *context)
{
    weir__drain_wake(context);
}

/* Whoever brings requests for the queue. The same holds for what goes wrong. */
static void accept_for_queue(struct weir__keeper *keeper, bool first)
{
    char why[256];
    keeper->acceptor =
        weir__acceptor_start(keeper->config, keeper->journal, wake_drain, keeper->drain, why, sizeof why);
    if (!keeper->acceptor && first)
        weir__say(keeper->journal, WEIR__ERROR, "queue: %s; it is tried again", why);
    if (keeper->acceptor && !first)
        weir__say(keeper->journal, WEIR__INFO, "queue: listens on %s now", keeper->config->queue.socket);
}

/* What has to be done again and again for the rules service and for those who watch. */
static void *tick(void *context)
{
    struct weir__keeper *keeper = context;
    int failed = 0;
    for (int rounds = 0; !wait_ms(keeper, rounds ? TICK_MS : 0); rounds = rounds % AGAIN + 1) {
        if (keeper->config->queue.wanted && !keeper->acceptor && rounds % AGAIN == 0)
            accept_for_queue(keeper, rounds == 0);
        weir__host_look(keeper->host);
        if (keeper->config->admin.listener && !keeper->admin && rounds % AGAIN == 0)
            serve(keeper, rounds == 0);
        if (keeper->control && rounds % SECOND == 0) {
            int error = weir__control_tick(keeper->control);
            if (error && error != failed)
                weir__say(keeper->journal, WEIR__WARNING, "rules service: %s", weir__db_strerror(error));
            failed = error;
        }
    }
    return NULL;
}

/* In a thread of its own: nobody who asks the rules service for much makes the level old. */
static void *sense(void *context)
{
    struct weir__keeper *keeper = context;
    do
        weir__sensor_turn(keeper->sensor);
    while (!wait_ms(keeper, WEIR__SENSOR_MS));
    return NULL;
}

static bool start_sensing(struct weir__keeper *keeper)
{
    if (!keeper->config->load.on)
        return true;
    keeper->sensor = weir__sensor_open(keeper->config, weir__host_engine(keeper->host), keeper->journal);
    if (!keeper->sensor)
        return true; /* it was told: limits are as they are written */
    keeper->senses = pthread_create(&keeper->sensing, NULL, sense, keeper) == 0;
    return keeper->senses;
}

static bool start_draining(struct weir__keeper *keeper)
{
    if (!keeper->config->queue.wanted)
        return true;
    keeper->drain = weir__drain_start(keeper->config, weir__host_engine(keeper->host), keeper->journal);
    return keeper->drain != NULL;
}

static bool start(struct weir__keeper *keeper)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&keeper->end, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&keeper->lock, NULL);
    if (keeper->config->origin.url) {
        keeper->retriever = weir__retriever_new(keeper->config, keeper->journal);
        keeper->retrieves = keeper->retriever && pthread_create(&keeper->retrieving, NULL, retrieve, keeper) == 0;
        if (!keeper->retrieves)
            return false;
    }
    keeper->host = weir__host_open(keeper->config, keeper->journal);
    if (!keeper->host)
        return false;
    if (!start_draining(keeper)) /* before the one that accepts, which wakes it */
        return false;
    keeper->ticks = pthread_create(&keeper->ticking, NULL, tick, keeper) == 0;
    return keeper->ticks && start_sensing(keeper);
}

struct weir__keeper *weir__keeper_start(const struct weir__config *config, const struct weir__journal *journal)
{
    struct weir__keeper *keeper = calloc(1, sizeof *keeper);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (!keeper)
        return NULL;
    keeper->config = config;
    keeper->journal = journal;
    if (start(keeper))
        return keeper;
    weir__say(journal, WEIR__ERROR, "the agent cannot begin");
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
    if (keeper->senses)
        pthread_join(keeper->sensing, NULL);
    weir__sensor_close(keeper->sensor);
    weir__acceptor_stop(keeper->acceptor);
    weir__drain_stop(keeper->drain);
    weir__admin_stop(keeper->admin);
    if (keeper->control)
        weir__control_close(keeper->control);
    weir__host_close(keeper->host);
    weir__retriever_free(keeper->retriever);
    pthread_cond_destroy(&keeper->end);
    pthread_mutex_destroy(&keeper->lock);
    free(keeper);
}

/* ---- Before anything runs ---- */

static void retrieve_first(const struct weir__config *config, const struct weir__journal *journal)
{
    struct weir__retriever *retriever = weir__retriever_new(config, journal);
    if (retriever)
        (void)!weir__retriever_look(retriever);
    weir__retriever_free(retriever);
}

/* Brings what weir.yaml names into an empty database, all in force. */
static void import_first(const struct weir__config *config, const char *path, const struct weir__journal *journal)
{
    struct weir__control_options options = {.url = config->admin.database, .published_path = config->rules_path};
    struct weir__control *control = NULL;
    size_t documents = 0;
    int error = weir__control_open(&options, &control);
    if (!error)
        error = weir__control_import(control, path, "weir.yaml", weir__say_diagnostic, (void *)(uintptr_t)journal,
                                     &documents);
    if (!error)
        error = weir__control_tick(control); /* the database may have been full already: then that is in force */
    if (control)
        weir__control_close(control);
    if (error)
        weir__say(journal, WEIR__WARNING, "rules service: %s",
                  error < WEIR__IMPORT_WRONG ? weir_strerror(error - WEIR__IMPORT_WRONG) : weir__db_strerror(error));
    else if (documents)
        weir__say(journal, WEIR__INFO,
                  "the rules of %s are in the rules service now: from here on they are changed there", path);
}

/* What is in force at the very first start. */
static void publish_first(const struct weir__config *config, const struct weir__journal *journal)
{
    char path[4200];
    if (!config->import_path && config->import_text.len) {
        snprintf(path, sizeof path, "%s/imported.yaml", config->state_path);
        if (!weir__publish(path, config->import_text.data, config->import_text.len)) {
            weir__say(journal, WEIR__ERROR, "%s cannot be written: %s", path, strerror(errno));
            return;
        }
        import_first(config, path, journal);
    } else if (config->import_path && weir__publish_folder(config->rules_path)) {
        import_first(config, config->import_path, journal);
    }
}

static const char none[] = "# No rules are known yet.\nrules: []\n";

/* There are rules in force: a file that is not `none`, which an earlier start without any left. */
static bool any_known(const char *path)
{
    char begin[sizeof none] = "";
    FILE *file = fopen(path, "re");
    if (!file)
        return access(path, F_OK) == 0;
    size_t len = fread(begin, 1, sizeof begin, file);
    fclose(file);
    return len != sizeof none - 1 || memcmp(begin, none, len) != 0;
}

bool weir__keeper_prepare(const struct weir__config *config, const struct weir__journal *journal)
{
    if (!config->published)
        return true;
    if (any_known(config->rules_path)) {
        if (config->import_path || config->import_text.len)
            weir__say(journal, WEIR__INFO,
                      "the rules that %s names are not read any more: the rules service has its own, and weir rules "
                      "apply changes them",
                      config->file);
        return true;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (config->origin.url)
        retrieve_first(config, journal);
    else
        publish_first(config, journal);
    if (any_known(config->rules_path))
        return true;
    weir__say(journal, WEIR__WARNING, "no rules are known yet: everything passes until there are some");
    if (weir__publish(config->rules_path, none, sizeof none - 1))
        return true;
    weir__say(journal, WEIR__ERROR, "%s cannot be written: %s; choose another folder under state", config->rules_path,
              strerror(errno));
    return false;
}
