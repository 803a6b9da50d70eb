/* This host as the rules service sees it. See agent.h. */
#include "serve/agent.h"
#include "base/clock.h"
#include "stats/host_queries.h"
#include "queue/queue.h"
#include "services/http/api.h"
#include "engine/hot_key_sampler.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t key_hash(void *context, weir_text key)
{
    const struct weir__host *host = context;
    const weir_segment *segment = host->engine->segment;
    return weir__pseudonym(segment, weir__hot_sampler_hash(segment, key.data, key.len));
}

static void log_line(void *context, enum weir__log_level level, const char *message)
{
    struct weir__host *host = context;
    weir__logf(host->log, level, "rules service: %s", message);
}

/* Workers poll once a second; this process reloads at once. */
static void published(void *context, int64_t revision)
{
    struct weir__host *host = context;
    (void)!weir_reload(host->engine);
    weir__logf(host->log, WEIR__LOG_INFO, "revision %" PRId64 " of the rules is active", revision);
}

/* ---- Statistics ---- */

static struct weir__snapshot *lock_snapshot(struct weir__host *host)
{
    pthread_mutex_lock(&host->lock);
    weir__snapshot_refresh(&host->snapshot);
    return &host->snapshot;
}

static int unlock(struct weir__host *host, int error)
{
    pthread_mutex_unlock(&host->lock);
    return error;
}

typedef int read_self(const struct weir__snapshot *snapshot, const struct weir__host_query *query, char **json);

/* Reads this host and those that share its store, or the one that the query names. */
static int read_all(struct weir__host *host, enum weir__query_kind kind, read_self *read,
                    const struct weir__host_query *query, char **json)
{
    char *own = NULL;
    const struct weir__snapshot *snapshot = lock_snapshot(host);
    weir__membership_refresh(&host->membership, snapshot);
    struct weir__gather *gather = weir__gather_begin(&host->membership, kind, query);
    int error = gather ? read(snapshot, query, &own) : WEIR_ENOMEM;
    (void)unlock(host, 0);
    if (!gather)
        return error;
    weir__gather_send(gather, host->queries);
    return weir__gather_all(gather, own, error, json);
}

static int stats(void *context, const struct weir__host_query *query, char **json)
{
    return read_all(context, WEIR__QUERY_STATS, weir__stats_json_current, query, json);
}

static int history(void *context, const struct weir__host_query *query, char **json)
{
    return read_all(context, WEIR__QUERY_HISTORY, weir__stats_json_history, query, json);
}

static int hot(void *context, const struct weir__host_query *query, char **json)
{
    return read_all(context, WEIR__QUERY_HOT_KEYS, weir__stats_json_hot_keys, query, json);
}

static int denied(void *context, const struct weir__host_query *query, char **json)
{
    return read_all(context, WEIR__QUERY_DENIED, weir__stats_json_denied, query, json);
}

void weir__host_reply(void *context, const struct weir__open_query *query)
{
    struct weir__host *host = context;
    char why[WEIR__HOSTS_WHY];
    char *reply = weir__host_queries_text(host->replies, lock_snapshot(host), (weir_text){query->text, query->len});
    (void)unlock(host, 0);
    int error = reply ? weir__host_queries_reply(host->replies, query->id, reply, why) : 0;
    if (error && !host->refused)
        weir__logf(host->log, WEIR__LOG_WARNING, "other hosts get no statistics of this one: the store: %s", why);
    host->refused = reply ? error != 0 : host->refused;
    free(reply);
}

static int advice(void *context, const struct weir__host_query *query, char **json)
{
    struct weir__host *host = context;
    struct weir__rule_source source = {.path = host->config->rules_path, .text = host->config->rules_text};
    int error = unlock(host, weir__stats_json_advice(lock_snapshot(host), query->rule, &source, json));
    weir__rule_source_free(&source);
    return error;
}

static int hosts(void *context, const struct weir__host_query *query, char **json)
{
    struct weir__host *host = context;
    (void)query;
    weir__membership_refresh(&host->membership, lock_snapshot(host));
    return unlock(host, weir__stats_json_hosts(&host->membership, json));
}

static int check(void *context, weir_text body, int *status, char **json)
{
    struct weir__host *host = context;
    struct weir__api_reply reply = {0};
    weir__api_try(host->engine, body, &reply);
    weir__buffer_add(&reply.out, "", 1);
    *status = reply.status;
    *json = reply.out.failed ? NULL : strdup(reply.out.data);
    weir__buffer_free(&reply.out);
    return *json ? 0 : WEIR_ENOMEM;
}

static void shown(void *context, weir_text set)
{
    struct weir__host *host = context;
    weir__store64(&host->shown, weir__sources_checksum(&(struct weir__source){.name = "", .text = set}, 1));
}

static void record_heartbeat(void *context, weir_text text)
{
    struct weir__host *host = context;
    struct weir__heartbeat heartbeat;
    if (!weir__heartbeat_parse(text.data, text.len, &heartbeat))
        return;
    if (heartbeat.rules && heartbeat.rules == weir__load64(&host->shown)) /* the same rules as here */
        heartbeat.rules = weir__rules_checksum(host->engine);
    weir__subscribers_record(&host->subscribers, &heartbeat, (int64_t)weir__coarse_ms());
}

void weir__host_heartbeat(struct weir__host *host, struct weir__heartbeat *heartbeat)
{
    weir__watch(host->engine);
    weir__heartbeat_of_self(heartbeat, lock_snapshot(host), host->config->store.url != NULL);
    (void)unlock(host, 0);
}

static void log_history_error(const struct weir__host *host, int error, const char *ending)
{
    char path[4200], why[256];
    snprintf(path, sizeof path, "%s%s", host->config->segment_path, ending);
    if (error == WEIR_ELOST)
        weir__logf(host->log, WEIR__LOG_WARNING, "%s was truncated; created again, empty", path);
    else
        weir__logf(host->log, WEIR__LOG_WARNING, "no history is recorded: cannot open %s: %s", path,
                   weir__mapped_why(path, error, why, sizeof why));
}

void weir__host_tick(struct weir__host *host)
{
    weir__watch(host->engine);
    int error = host->observer ? weir__history_writer_tick(host->observer) : 0;
    if (error && error != host->tick_error)
        log_history_error(host, error, ".history");
    host->tick_error = error;
    for (const char *disabled; (disabled = weir__sidecar_lost()) != NULL;)
        weir__logf(host->log, WEIR__LOG_ERROR, "a sidecar file of %s was truncated; %s until the agent restarts",
                   host->config->segment_path, disabled);
    if (!host->lost && weir_segment_lost(host->engine->segment)) {
        host->lost = true;
        weir__logf(host->log, WEIR__LOG_ERROR, "%s was truncated; the agent has no counters until it restarts",
                   host->config->segment_path);
    }
}

/* ---- Opening ---- */

/* An error is logged; the agent runs without a history. */
static void observe(struct weir__host *host)
{
    const char *ending;
    int error = weir__history_writer_open(host->engine, host->config->segment_path, &host->observer, &ending);
    if (error && error != WEIR_EBUSY)
        log_history_error(host, error, ending);
}

struct weir__host *weir__host_open(const struct weir__config *config, const struct weir__logger *log)
{
    struct weir__host *host = calloc(1, sizeof *host);
    if (!host)
        return NULL;
    host->config = config;
    host->log = log;
    host->sidecar_log = (struct weir__sidecar_log){config->segment_path, log};
    host->calls = (struct weir__control_host){.context = host,
                                              .key_hash = key_hash,
                                              .stats = stats,
                                              .history = history,
                                              .hot = hot,
                                              .advice = advice,
                                              .denied = denied,
                                              .hosts = hosts,
                                              .check = check,
                                              .record_heartbeat = record_heartbeat,
                                              .published = published,
                                              .shown = shown,
                                              .log = log_line};
    weir__key_host_calls(&host->key_host, &host->calls);
    host->lock = host->subscribers.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    weir__membership_open(&host->membership, config->segment_path, config->store.url != NULL);
    host->calls.queue = config->queue.wanted ? weir__queue_admin_open(config, log) : NULL;
    bool good = host->calls.queue || !config->queue.wanted;
    /* With a dashboard over files: it shows what is wrong with files that cannot be read or have errors. */
    bool later = config->admin.listener && !config->published && config->rules_path;
    weir_options options = {.segment.flags = WEIR_OPEN_CREATE, .flags = later ? WEIR_RULES_LATER : 0};
    if (good && weir__agent_engine_open(config, options, &host->sidecar_log, &host->engine) == 0) {
        if (later)
            (void)!weir_reload(host->engine);
        weir__snapshot_open(&host->snapshot, host->engine, config->segment_path);
        host->snapshot.host_name = config->host_name;
        host->keys = config->store.url ? weir__key_exchange_new(config, log, host->engine) : NULL;
        host->queries = weir__host_queries_new(config);
        host->replies = weir__host_queries_new(config);
        host->key_host = (struct weir__key_host){.engine = host->engine, .exchange = host->keys};
        observe(host);
        return host;
    }
    weir__host_close(host);
    return NULL;
}

void weir__host_close(struct weir__host *host)
{
    if (!host)
        return;
    weir__key_exchange_free(host->keys);
    weir__host_queries_free(host->queries);
    weir__host_queries_free(host->replies);
    weir__history_writer_close(host->observer);
    weir__snapshot_close(&host->snapshot);
    weir__queue_admin_close(host->calls.queue);
    weir__membership_close(&host->membership);
    weir_close(host->engine);
    free(host);
}
