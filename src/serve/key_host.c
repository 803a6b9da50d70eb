/* Keys as the rules service and weir key see them: state, blocks on all hosts, and changes. See agent.h. */
#include "serve/agent.h"
#include "base/json_writer.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define REACH_WAIT_MS 1000 /* for the agent to publish a command */

static json_t *seconds(int64_t ns)
{
    int64_t ms = ns / 1000000;
    return ns < 0 ? json_null() : json_real((double)ms / 1000);
}

static int dump(json_t *object, char **json)
{
    *json = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return *json ? 0 : WEIR_ENOMEM;
}

/* A command has no thread that reads the store. Returns the error of the last read, its own or that of the agent. */
static int read_store(const struct weir__key_host *host)
{
    if (!host->exchange)
        return 0;
    return host->reads ? weir__key_exchange_round(host->exchange) : weir__key_store_error(host->engine);
}

/* ---- Blocks on all hosts ---- */

/* Texts of the store may have any bytes. */
static json_t *text(const char *data, size_t len)
{
    char shown[4 * WEIR__KEY_MAX + 1];
    json_t *as_is = json_stringn(data, len);
    return as_is ? as_is : json_string(weir__printable((weir_text){data, len}, shown, sizeof shown));
}

static json_t *block_json(const struct weir__shared_key *entry, int64_t left_ms)
{
    return json_pack("{s:o, s:o, s:f, s:o, s:o, s:o}", "rule", text(entry->rule, strlen(entry->rule)), "key",
                     text(entry->key, entry->key_len), "left_s", (double)left_ms / 1e3, "by",
                     text(entry->by, strlen(entry->by)), "reason", text(entry->reason, strlen(entry->reason)), "host",
                     text(entry->host, strlen(entry->host)));
}

/* The block of a rule and key that is looked for; rule NULL: all of them. */
struct block_search {
    const char *rule;
    weir_text key;
    json_t *found; /* a list */
};

static void collect(void *context, const struct weir__shared_key *entry, int64_t left_ms)
{
    struct block_search *search = context;
    if (!search->rule || (strcmp(entry->rule, search->rule) == 0 &&
                          weir__text_equal(search->key, (weir_text){entry->key, entry->key_len})))
        json_array_append_new(search->found, block_json(entry, left_ms));
}

static const char *hosts_name(enum weir_reach reach)
{
    return reach == WEIR_ALL_HOSTS ? "all" : reach == WEIR_THIS_HOST ? "this" : "later";
}

static int blocks(void *context, const struct weir__host_query *query, char **json)
{
    const struct weir__key_host *host = context;
    struct block_search all = {.found = json_array()};
    (void)query;
    int error = read_store(host);
    if (host->exchange)
        weir__key_exchange_each(host->exchange, collect, &all);
    return dump(json_pack("{s:o, s:I, s:s, s:s?}", "items", all.found, "most",
                          (json_int_t)(host->exchange ? WEIR__SHARED_KEYS_MAX : 0), "hosts",
                          hosts_name(weir_key_reach(host->engine)), "why", error ? weir_strerror(error) : NULL),
                json);
}

/* ---- State ---- */

static json_t *state_json(const struct weir__key_host *host, const char *rule, weir_text key, int *error)
{
    weir_outcome outcome;
    char counted[WEIR__KEY_MAX];
    *error = weir_key_state(host->engine, rule, key.data, key.len, (weir_time){0, 0}, &outcome);
    if (*error)
        return NULL;
    const weir_decision *decision = &outcome.decision;
    const char *reason = decision->verdict == WEIR_BLOCKED ? "blocked" : "limit"; /* as in the HTTP API */
    struct block_search search = {.rule = rule, .key = weir__key_counted(key, counted), .found = json_array()};
    if (host->exchange)
        weir__key_exchange_each(host->exchange, collect, &search);
    json_t *block = json_incref(json_array_get(search.found, 0));
    json_decref(search.found);
    json_t *object =
        json_pack("{s:s, s:s, s:o, s:s, s:I, s:I, s:o, s:o, s:o, s:s}", "rule", outcome.rule, "rule_base", rule, "key",
                  text(key.data, key.len), "reason", reason, "limit", (json_int_t)decision->limit, "remaining",
                  (json_int_t)decision->remaining, "retry_after_s", seconds(decision->retry_after_ns), "reset_s",
                  seconds(decision->reset_after_ns), "block", block ? block : json_null(), "hosts",
                  hosts_name(weir_key_reach(host->engine)));
    *error = object ? 0 : WEIR_ENOMEM;
    return object;
}

static int key_state(void *context, const struct weir__host_query *query, char **json)
{
    int error;
    (void)!read_store(context);
    json_t *object = state_json(context, query->rule, query->key, &error);
    return error ? error : dump(object, json);
}

/* For the message that no rule has the key. */
static json_t *templates(weir *engine)
{
    enum { MOST = 8 };
    char found[MOST][WEIR__KEY_MAX];
    json_t *list = json_array();
    size_t count = weir__key_templates(engine, found, MOST);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, text(found[i], strlen(found[i])));
    return list;
}

static int keys(void *context, const struct weir__host_query *query, char **json)
{
    const struct weir__key_host *host = context;
    struct weir__key_rule *found = calloc(WEIR__KEY_RULES_MAX, sizeof *found);
    json_t *items = json_array();
    size_t count = found ? weir__key_rules(host->engine, query->key, found) : 0;
    (void)!read_store(host);
    for (size_t i = 0; i < count; i++) {
        int error;
        json_t *item = state_json(host, found[i].rule, (weir_text){found[i].key, found[i].key_len}, &error);
        if (error == 0) /* else the rules have changed meanwhile */
            json_array_append_new(items, item);
    }
    bool good = found != NULL;
    free(found);
    json_t *object = json_pack("{s:o, s:s, s:o*}", "items", items, "hosts", hosts_name(weir_key_reach(host->engine)),
                               "templates", count ? NULL : templates(host->engine));
    if (good)
        return dump(object, json);
    json_decref(object);
    return WEIR_ENOMEM;
}

/* ---- Changes ---- */

static int take(const struct weir__key_host *host, struct weir__host_key_change *change)
{
    weir_taken what = {.rule = change->rule, .key = change->key.data, .key_len = change->key.len};
    weir_outcome outcome;
    int error = weir_key_take(host->engine, &what, change->cost, (weir_time){0, 0}, NULL, &outcome);
    if (error)
        return error;
    change->passes = weir_passes(&outcome.decision);
    change->remaining = outcome.decision.remaining;
    change->retry_after_ns = outcome.decision.retry_after_ns;
    return 0;
}

static int key_change(void *context, struct weir__host_key_change *change)
{
    const struct weir__key_host *host = context;
    const struct weir__key_author author = {change->by, change->reason};
    uint64_t ticket = 0;
    int why = 0;
    if (change->action == WEIR__HOST_TAKE)
        return take(host, change);
    int error = change->action == WEIR__HOST_RESET
                    ? weir__key_reset_by(host->engine, change->rule, change->key, &author, &ticket)
                    : weir__key_block_by(host->engine, change->rule, change->key, change->for_ns, &author, &ticket);
    if (error)
        return error;
    change->hosts = hosts_name(weir__key_reach(host->engine, ticket, REACH_WAIT_MS, &why));
    change->why = why ? weir_strerror(why) : host->engine->store ? NULL : "there is no store";
    return 0;
}

void weir__key_host_calls(struct weir__key_host *host, struct weir__control_host *calls)
{
    calls->context = host;
    calls->key_state = key_state;
    calls->keys = keys;
    calls->blocks = blocks;
    calls->key_change = key_change;
}

/* ---- For commands ---- */

struct opened_keys {
    struct weir__control_host calls; /* must be first: the caller's pointer */
    struct weir__key_host host;
    struct weir__sidecar_log sidecar_log;
};

struct weir__control_host *weir__key_host_open(const struct weir__config *config, const struct weir__logger *log)
{
    struct opened_keys *opened = calloc(1, sizeof *opened);
    if (!opened)
        return NULL;
    opened->sidecar_log = (struct weir__sidecar_log){config->segment_path, log};
    weir_options options = {.flags = WEIR_NO_WATCH};
    if (weir__agent_engine_open(config, options, &opened->sidecar_log, &opened->host.engine) != 0) {
        free(opened);
        return NULL;
    }
    opened->host.reads = true;
    opened->host.exchange = config->store.url ? weir__key_exchange_new(config, log, NULL) : NULL;
    weir__key_host_calls(&opened->host, &opened->calls);
    return &opened->calls;
}

void weir__key_host_close(struct weir__control_host *calls)
{
    struct opened_keys *opened = (struct opened_keys *)calls;
    if (!opened)
        return;
    weir__key_exchange_free(opened->host.exchange);
    weir_close(opened->host.engine);
    free(opened);
}
