/* Sends queries of all hosts to the store, gathers the replies, and replies to other hosts. See host_queries.h. */
#include "stats/host_queries.h"
#include "base/clock.h"
#include "remote/client.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define VERSION     1               /* of queries: hosts ignore those of another one */
#define PATIENCE_US INT64_C(500000) /* time-out of a reply of the store */
#define PROBE_US    INT64_C(100000) /* time for reconnecting after an error */
#define OPEN_MS     "3000"          /* that a query is open, and replies are kept: longer than a host waits */
#define OPEN_MAX    "16"            /* open queries of all hosts */
#define OWN_MAX     4               /* of this process, so that it leaves some to others; further ones wait */
#define WAIT_MS     2000            /* for the hosts with a recent heartbeat */
#define WAIT_ANY_MS 700             /* for others, if it is not known which hosts run */
#define PAGE        8               /* replies that are read at once: 4 MiB; the client refuses more than 8 MiB */
#define ID          WEIR__HOST_ID
#define TEXT_MAX    1023 /* bytes of what denials are about */
#define DENIED_MAX  1000 /* denials in a reply */
#define SECONDS_MAX (400 * INT64_C(86400))

static const char *const kind_names[WEIR__QUERY_KINDS] = {"stats", "history", "hot_keys", "denials"};

/* ---- Texts ---- */

char *weir__query_format(const struct weir__query *query, bool hash_keys)
{
    const struct weir__host_query *what = &query->what;
    char digest[WEIR__SUBJECT_DIGEST] = "";
    const char *about = query->kind == WEIR__QUERY_DENIED && what->key.len ? what->key.data : NULL;
    if (about && hash_keys)
        weir__subject_digest(about, digest);
    json_t *tree = json_pack(
        "{s:i,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:b,s:b,s:b,s:s*,s:s*,s:s*}", "v", VERSION, "kind", kind_names[query->kind],
        "from", query->from, "to", query->to, "bytes", (json_int_t)query->bytes, "seconds", (json_int_t)what->seconds,
        "step", (json_int_t)what->step, "n", (json_int_t)what->n, "denied", what->denied, "near", what->near, "hide",
        what->hide, "rule", what->rule, "about", hash_keys ? NULL : about, "digest", *digest ? digest : NULL);
    char *text = json_dumps(tree, JSON_COMPACT);
    json_decref(tree);
    if (text && strlen(text) <= WEIR__QUERY_MAX)
        return text;
    free(text);
    return NULL;
}

/* A member's text up to a length; NULL: it has none. */
static const char *text_of(const json_t *object, const char *name, size_t max)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text && strlen(text) <= max ? text : NULL;
}

static int64_t number_of(const json_t *object, const char *name, int64_t max)
{
    json_int_t number = json_integer_value(json_object_get(object, name));
    return number < 0 ? 0 : number > max ? max : number;
}

bool weir__query_parse(const char *text, size_t len, struct weir__query *query)
{
    json_t *tree = len <= WEIR__QUERY_MAX ? json_loadb(text, len, 0, NULL) : NULL;
    const char *kind = text_of(tree, "kind", WEIR_NAME_MAX), *about = text_of(tree, "about", TEXT_MAX);
    *query = (struct weir__query){.kind = WEIR__QUERY_KINDS,
                                  .from = text_of(tree, "from", ID),
                                  .to = text_of(tree, "to", ID),
                                  .bytes = (size_t)number_of(tree, "bytes", WEIR__QUERY_REPLY_MAX),
                                  .tree = tree};
    for (int i = 0; i < WEIR__QUERY_KINDS && kind; i++)
        if (strcmp(kind, kind_names[i]) == 0)
            query->kind = (enum weir__query_kind)i;
    query->what = (struct weir__host_query){.rule = text_of(tree, "rule", WEIR_NAME_MAX),
                                            .key = weir__text_of(about ? about : ""),
                                            .about = text_of(tree, "digest", WEIR__SUBJECT_DIGEST - 1),
                                            .seconds = number_of(tree, "seconds", SECONDS_MAX),
                                            .step = number_of(tree, "step", 3600),
                                            .n = number_of(tree, "n", DENIED_MAX),
                                            .denied = json_is_true(json_object_get(tree, "denied")),
                                            .near = json_is_true(json_object_get(tree, "near")),
                                            .hide = json_is_true(json_object_get(tree, "hide"))};
    if (query->kind == WEIR__QUERY_DENIED && !query->what.n)
        query->what.n = DENIED_MAX;
    if (query->bytes && query->bytes < WEIR__QUERY_REPLY_MIN) /* no host asks for less: it would cost many attempts */
        query->bytes = WEIR__QUERY_REPLY_MIN;
    if (number_of(tree, "v", VERSION + 1) == VERSION && query->kind < WEIR__QUERY_KINDS && query->from && query->to &&
        query->bytes && (query->kind != WEIR__QUERY_HOT_KEYS || query->what.rule))
        return true;
    weir__query_free(query);
    return false;
}

void weir__query_free(struct weir__query *query)
{
    json_decref(query->tree);
    *query = (struct weir__query){0};
}

/* ---- The store ---- */

struct weir__host_queries {
    pthread_mutex_t lock;
    struct weir__store_options options;
    struct weir__blocking_client *client; /* NULL: the options are wrong */
    char why[WEIR__HOSTS_WHY];            /* in which way */
    char queries_key[96];
    sem_t room; /* for further open queries */
};

struct weir__host_queries *weir__host_queries_new(const struct weir__config *config)
{
    char url[8192];
    struct weir__host_queries *queries = config->store.url ? calloc(1, sizeof *queries) : NULL;
    if (!queries)
        return NULL;
    pthread_mutex_init(&queries->lock, NULL);
    sem_init(&queries->room, 0, OWN_MAX);
    if (weir__store_url(&config->store, url, sizeof url, queries->why, sizeof queries->why) &&
        weir__store_parse(url, &queries->options, queries->why, sizeof queries->why) == 0) {
        queries->options.deadline_us = PATIENCE_US; /* not the deadline of a client's request */
        snprintf(queries->queries_key, sizeof queries->queries_key, "%s::{keys}:queries", queries->options.prefix);
        queries->client = weir__blocking_client_new(&queries->options);
    }
    return queries;
}

void weir__host_queries_free(struct weir__host_queries *queries)
{
    if (!queries)
        return;
    if (queries->client)
        weir__blocking_client_free(queries->client);
    pthread_mutex_destroy(&queries->lock);
    sem_destroy(&queries->room);
    free(queries);
}

/* One call of the script. */
struct query_call {
    struct weir__store_request request;
    struct weir__raw_command raw;
    int64_t number;              /* its reply, */
    struct weir__gather *gather; /* or where the replies of hosts go */
};

static int read_number(struct weir__store_request *request, const redisReply *reply)
{
    struct query_call *call = request->owner;
    call->number = reply->integer;
    return reply->type == REDIS_REPLY_INTEGER ? 0 : WEIR_ESTOREGARBAGE;
}

static int read_replies(struct weir__store_request *request, const redisReply *reply);

/* Runs the script for a query; `why` gets the reason of an error. */
static int run(struct weir__host_queries *queries, struct query_call *call, const char *id,
               const char *const arguments[5], char why[WEIR__HOSTS_WHY])
{
    char replies_key[128], *command = NULL;
    snprintf(replies_key, sizeof replies_key, "%s::{keys}:replies:%s", queries->options.prefix, id);
    const char *all[] = {"EVALSHA",    weir__queries_script_sha,
                         "2",          queries->queries_key,
                         replies_key,  arguments[0],
                         arguments[1], arguments[2],
                         arguments[3], arguments[4]};
    long long len = queries->client ? redisFormatCommandArgv(&command, sizeof all / sizeof *all, all, NULL) : 0;
    snprintf(why, WEIR__HOSTS_WHY, "%s", queries->why);
    if (len <= 0)
        return queries->client ? WEIR_ENOMEM : WEIR_ESTOREURL;
    call->raw = (struct weir__raw_command){.slot = queries->queries_key,
                                           .command = command,
                                           .command_len = (size_t)len,
                                           .script = weir__queries_script,
                                           .read = call->gather ? read_replies : read_number};
    call->request = (struct weir__store_request){
        .raw = &call->raw, .owner = call, .deadline_us = weir__monotonic_us() + PATIENCE_US};
    pthread_mutex_lock(&queries->lock);
    int error = weir__blocking_client_request(queries->client, &call->request);
    if (error) /* queries are too rare for the client to reconnect between two of them */
        weir__blocking_client_work(queries->client, PROBE_US);
    pthread_mutex_unlock(&queries->lock);
    redisFreeCommand(command);
    if (error) /* the server's message may have any bytes */
        weir__printable(weir__text_of(*call->raw.why ? call->raw.why : weir_strerror(error)), why, WEIR__HOSTS_WHY);
    return error;
}

/* ---- Replying ---- */

static int read_host(const struct weir__snapshot *snapshot, const struct weir__query *query, char **json)
{
    switch (query->kind) {
    case WEIR__QUERY_HISTORY:
        return weir__stats_json_history(snapshot, &query->what, json);
    case WEIR__QUERY_HOT_KEYS:
        return weir__stats_json_hot_keys(snapshot, &query->what, json);
    case WEIR__QUERY_DENIED:
        return weir__stats_json_denied(snapshot, &query->what, json);
    default:
        return weir__stats_json_current(snapshot, &query->what, json);
    }
}

/* A reply that fits, from malloc; lists are cut until it does. NULL: no memory. */
static char *reply_text(const struct weir__snapshot *snapshot, struct weir__query *query, const char *id)
{
    char name[WEIR__HOST_NAME], shown[WEIR__HEARTBEAT_NAME_MAX + 1];
    weir__snapshot_host_name(snapshot, name);
    weir__printable(weir__text_of(name), shown, sizeof shown);
    int64_t least = query->kind == WEIR__QUERY_DENIED; /* 0 denials: all */
    for (bool last = false;;
         last = query->what.n <= least, query->what.n = query->what.n / 4 > least ? query->what.n / 4 : least) {
        char *json = NULL;
        int error = last ? 0 : read_host(snapshot, query, &json);
        json_t *tree = json ? json_loads(json, 0, NULL) : NULL;
        json_t *reply = json_pack("{s:s,s:s,s:o*,s:s*}", "id", id, "name", shown, "reply", tree, "error",
                                  last    ? "its reply is too large"
                                  : error ? weir_strerror(error)
                                          : NULL);
        char *text = json_dumps(reply, JSON_COMPACT | JSON_REAL_PRECISION(12));
        json_decref(reply);
        free(json);
        if (!text || last || error || strlen(text) <= query->bytes)
            return text;
        free(text);
    }
}

char *weir__host_queries_text(const struct weir__host_queries *queries, const struct weir__snapshot *snapshot,
                              weir_text text)
{
    struct weir__query query;
    char self[ID + 1];
    if (!weir__query_parse(text.data, text.len, &query))
        return NULL;
    weir__host_id(snapshot->engine->segment, self);
    query.what.digest = queries->options.hash_keys;
    query.what.hide |= queries->options.hash_keys;
    bool wanted = strcmp(query.from, self) != 0 && (!*query.to || strcmp(query.to, self) == 0);
    char *reply = wanted ? reply_text(snapshot, &query, self) : NULL;
    weir__query_free(&query);
    return reply;
}

int weir__host_queries_reply(struct weir__host_queries *queries, const char *id, const char *reply,
                             char why[WEIR__HOSTS_WHY])
{
    struct query_call call = {0};
    char most[24];
    snprintf(most, sizeof most, "%d", WEIR__HOSTS_MAX);
    return run(queries, &call, id, (const char *const[]){"reply", id, reply, OPEN_MS, most}, why);
}

/* ---- Gathering ---- */

struct gathered_host {
    char id[ID + 1], name[WEIR__HEARTBEAT_NAME_MAX + 1];
    bool waited;     /* its heartbeat is recent */
    bool replied;    /* further replies of it are ignored */
    const char *why; /* why there is no reply; NULL: there is */
    char error[64];
    char *text; /* of the reply, until it is merged: as JSON trees, those of a large fleet would take 200 MB */
    size_t len;
};

struct weir__gather {
    struct weir__host_queries *queries; /* NULL: none is open */
    enum weir__query_kind kind;
    struct weir__host_query query;
    bool hash_keys;
    bool wants_self;
    bool known; /* a host of this name exists */
    char id[ID + 1];
    struct gathered_host *hosts; /* the first is this one */
    size_t count, room;
    size_t waiting; /* hosts with a recent heartbeat that have not replied */
    bool counted;   /* that is known */
    int64_t until_ms;
    size_t bytes; /* maximum of a reply */
    size_t taken; /* bytes of the replies that were parsed */
    int64_t read; /* number of replies that were read */
    char why[WEIR__HOSTS_WHY];
};

static bool is_wanted(const struct weir__gather *gather, const char *id, const char *name)
{
    const char *host = gather->query.host;
    return !gather->query.this_host && (!host || strcmp(host, id) == 0 || strcmp(host, name) == 0);
}

struct weir__gather *weir__gather_begin(const struct weir__membership *membership, enum weir__query_kind kind,
                                        const struct weir__host_query *query)
{
    struct weir__gather *gather = calloc(1, sizeof *gather);
    size_t room = membership->count + WEIR__HOSTS_MAX;
    struct gathered_host *hosts = gather ? calloc(room + 1, sizeof *hosts) : NULL;
    if (!hosts || !membership->count) {
        free(gather);
        free(hosts);
        return NULL;
    }
    *gather = (struct weir__gather){
        .kind = kind, .query = *query, .hosts = hosts, .count = 1, .room = room, .counted = membership->agent};
    for (size_t i = 0; i < membership->count; i++) {
        const struct weir__host_status *known = &membership->hosts[i];
        bool wanted = is_wanted(gather, known->heartbeat.id, known->heartbeat.name);
        struct gathered_host *host = i && wanted ? &hosts[gather->count++] : &hosts[0];
        gather->wants_self |= !i && (wanted || query->this_host);
        if (i && !wanted)
            continue;
        memcpy(host->id, known->heartbeat.id, sizeof host->id);
        memcpy(host->name, known->heartbeat.name, sizeof host->name);
        host->waited = i && !known->silent && known->via == WEIR__HOST_VIA_STORE;
        host->why = known->silent ? "silent" : host->waited ? "no reply" : "shares no store with this host";
        gather->waiting += host->waited;
    }
    gather->known = gather->wants_self || gather->count > 1;
    size_t share = WEIR__QUERY_REPLIES / (gather->count + 1);
    gather->bytes = share > WEIR__QUERY_REPLY_MAX   ? WEIR__QUERY_REPLY_MAX
                    : share < WEIR__QUERY_REPLY_MIN ? WEIR__QUERY_REPLY_MIN
                                                    : share;
    return gather;
}

/* Waits for room for another open query. False: there is none in time. */
static bool wait_for_room(struct weir__host_queries *queries)
{
    const struct timespec until = weir__deadline(WAIT_MS * 1000);
    int failed;
    do
        failed = sem_clockwait(&queries->room, CLOCK_MONOTONIC, &until);
    while (failed && errno == EINTR);
    return !failed;
}

void weir__gather_send(struct weir__gather *gather, struct weir__host_queries *queries)
{
    struct query_call call = {0};
    uint64_t random = 0;
    if (!queries || gather->query.this_host || (gather->counted && !gather->waiting))
        return;
    gather->hash_keys = queries->options.hash_keys;
    bool room = wait_for_room(queries);
    gather->until_ms = weir__monotonic_ms() + (gather->counted ? WAIT_MS : WAIT_ANY_MS);
    (void)!getrandom(&random, sizeof random, 0);
    snprintf(gather->id, sizeof gather->id, "%016" PRIx64, random);
    struct weir__query query = {.kind = gather->kind,
                                .what = gather->query,
                                .from = gather->hosts[0].id,
                                .to = gather->query.host && gather->count == 2 ? gather->hosts[1].id : "",
                                .bytes = gather->bytes};
    char *text = weir__query_format(&query, gather->hash_keys);
    const char *const arguments[] = {"send", gather->id, text, OPEN_MS, OPEN_MAX};
    if (!text)
        snprintf(gather->why, sizeof gather->why, "the query is too long, or not UTF-8");
    else if (!room || (run(queries, &call, gather->id, arguments, gather->why) == 0 && !call.number))
        snprintf(gather->why, sizeof gather->why, "too many queries are open; try again");
    else if (call.number)
        gather->queries = queries;
    if (room && !gather->queries)
        sem_post(&queries->room);
    free(text);
}

/*
 * Whether a text has no more objects and lists than a reply of its length: one takes up to 230 bytes of memory, and its
 * text {} only two. A host's reply has one in 30 bytes or more.
 */
static bool is_sparse(const char *text, size_t len)
{
    size_t count = 0;
    bool quoted = false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"')
            quoted = !quoted;
        else if (quoted)
            i += text[i] == '\\';
        else
            count += text[i] == '{' || text[i] == '[';
    }
    return count <= len / 16 + 16;
}

void weir__gather_take(struct weir__gather *gather, const char *text, size_t len)
{
    if (len > gather->bytes || len > WEIR__QUERY_REPLIES - gather->taken)
        return;
    gather->taken += len;
    json_t *tree = is_sparse(text, len) ? json_loadb(text, len, 0, NULL) : NULL;
    const char *id = text_of(tree, "id", ID), *name = text_of(tree, "name", WEIR__HEARTBEAT_NAME_MAX);
    const char *error = text_of(tree, "error", sizeof gather->hosts->error - 1);
    struct gathered_host *host = NULL;
    for (size_t i = 1; id && i < gather->count && !host; i++)
        if (strcmp(gather->hosts[i].id, id) == 0)
            host = &gather->hosts[i];
    /* One that has just started is not in the list of hosts yet. */
    if (!host && id && name && gather->count < gather->room && strcmp(id, gather->hosts[0].id) != 0 &&
        is_wanted(gather, id, name)) {
        host = &gather->hosts[gather->count++];
        snprintf(host->id, sizeof host->id, "%s", id);
        snprintf(host->name, sizeof host->name, "%s", name);
        gather->known = true;
    }
    if (host && !host->replied) {
        host->replied = true;
        gather->waiting -= host->waited;
        snprintf(host->error, sizeof host->error, "%s", error && *error ? error : "its reply is malformed");
        host->why = host->error;
        host->text = error ? NULL : malloc(len);
        host->len = len;
        if (host->text)
            memcpy(host->text, text, len);
    }
    json_decref(tree);
}

static int read_replies(struct weir__store_request *request, const redisReply *reply)
{
    struct query_call *call = request->owner;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements > PAGE)
        return WEIR_ESTOREGARBAGE;
    for (size_t i = 0; i < reply->elements; i++)
        if (reply->element[i]->type == REDIS_REPLY_STRING)
            weir__gather_take(call->gather, reply->element[i]->str, reply->element[i]->len);
    call->number = (int64_t)reply->elements;
    return 0;
}

bool weir__gather_step(struct weir__gather *gather)
{
    struct query_call call = {.gather = gather};
    do {
        char from[24], most[24];
        snprintf(from, sizeof from, "%" PRId64, gather->read);
        snprintf(most, sizeof most, "%d", PAGE);
        const char *const arguments[] = {"read", from, most, "", ""};
        if (!gather->queries || run(gather->queries, &call, gather->id, arguments, gather->why) != 0)
            return true;
        gather->read += call.number;
    } while (call.number == PAGE && gather->read < WEIR__HOSTS_MAX && weir__monotonic_ms() < gather->until_ms);
    return (gather->counted && !gather->waiting) || weir__monotonic_ms() >= gather->until_ms;
}

static void gather_free(struct weir__gather *gather)
{
    struct query_call call = {0};
    char why[WEIR__HOSTS_WHY];
    const char *const arguments[] = {"end", gather->id, "", "", ""};
    if (gather->queries) {
        (void)!run(gather->queries, &call, gather->id, arguments, why);
        sem_post(&gather->queries->room);
    }
    for (size_t i = 0; i < gather->count; i++)
        free(gather->hosts[i].text);
    free(gather->hosts);
    free(gather);
}

static int by_name(const void *a, const void *b)
{
    const struct gathered_host *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order ? order : strcmp(left->id, right->id);
}

/* Who said what: names of the hosts whose replies were merged, and of the others with the reason. */
static json_t *coverage_json(const struct weir__gather *gather)
{
    json_t *hosts = json_array(), *missing = json_array();
    for (size_t i = gather->wants_self ? 0 : 1; i < gather->count; i++) {
        const struct gathered_host *host = &gather->hosts[i];
        if (host->why)
            json_array_append_new(missing, json_pack("{s:s,s:s}", "name", host->name, "why", host->why));
        else
            json_array_append_new(hosts, json_string(host->name));
    }
    return json_pack("{s:o,s:o,s:s?}", "hosts", hosts, "missing", missing, "why", *gather->why ? gather->why : NULL);
}

/* Merges a reply, if it has its form and there is memory for it. */
static void merge_reply(struct weir__merge *merge, struct gathered_host *host, const json_t *given, bool here)
{
    json_t *reply = weir__reply_form(merge->kind, given, here ? SIZE_MAX : host->len);
    if (!reply)
        return;
    weir__reply_name(merge->kind, reply, host->name, here);
    host->why = weir__merge_add(merge, reply) ? NULL : "the replies of all hosts are too large";
    json_decref(reply);
}

int weir__gather_finish(struct weir__gather *gather, char *own, int error, json_t **merged)
{
    struct weir__merge merge = {.kind = gather->kind, .query = &gather->query, .hash_keys = gather->hash_keys};
    struct gathered_host *self = &gather->hosts[0];
    json_t *tree = own && gather->wants_self ? json_loads(own, 0, NULL) : NULL;
    free(own);
    self->why = error ? weir_strerror(error) : "no memory";
    merge_reply(&merge, self, tree, true);
    json_decref(tree);
    qsort(gather->hosts + 1, gather->count - 1, sizeof *gather->hosts, by_name);
    for (size_t i = 1; i < gather->count; i++) {
        struct gathered_host *host = &gather->hosts[i];
        tree = host->text ? json_loadb(host->text, host->len, 0, NULL) : NULL;
        free(host->text);
        host->text = NULL;
        merge_reply(&merge, host, json_object_get(tree, "reply"), false);
        json_decref(tree);
    }
    *merged = weir__merge_finish(&merge);
    if (*merged)
        json_object_set_new(*merged, "coverage", coverage_json(gather));
    int result = *merged                       ? 0
                 : !gather->known              ? WEIR__HOST_UNKNOWN
                 : gather->wants_self && error ? error
                                               : WEIR__HOST_NO_REPLY;
    gather_free(gather);
    return result;
}

int weir__gather_all(struct weir__gather *gather, char *own, int error, char **json)
{
    json_t *merged;
    while (!weir__gather_step(gather))
        nanosleep(&(struct timespec){.tv_nsec = WEIR__GATHER_POLL_MS * 1000000}, NULL);
    error = weir__gather_finish(gather, own, error, &merged);
    *json = error ? NULL : json_dumps(merged, JSON_COMPACT | JSON_REAL_PRECISION(12));
    json_decref(merged);
    return error ? error : *json ? 0 : WEIR_ENOMEM;
}

const char *weir__coverage_text(const json_t *merged, char *text, size_t size)
{
    enum { SHOWN = 10 };
    const json_t *coverage = json_object_get(merged, "coverage"), *hosts = json_object_get(coverage, "hosts");
    const json_t *missing = json_object_get(coverage, "missing");
    const char *why = json_string_value(json_object_get(coverage, "why"));
    size_t len = 0, count = json_array_size(hosts), i;
    char name[4 * WEIR__HEARTBEAT_NAME_MAX + 1], reason[128];
    const json_t *one;
#define ADD(...) len += len < size ? (size_t)snprintf(text + len, size - len, __VA_ARGS__) : 0
    ADD("%zu host%s: ", count, count == 1 ? "" : "s");
    json_array_foreach(hosts, i, one)
    {
        if (i < SHOWN)
            ADD("%s%s", i ? ", " : "", weir__printable(weir__text_of(json_string_value(one)), name, sizeof name));
    }
    if (count > SHOWN)
        ADD(" and %zu more", count - SHOWN);
    json_array_foreach(missing, i, one)
    {
        if (i < SHOWN)
            ADD("%s%s (%s)", i ? ", " : "; not included: ",
                weir__printable(weir__text_of(json_string_value(json_object_get(one, "name"))), name, sizeof name),
                weir__printable(weir__text_of(json_string_value(json_object_get(one, "why"))), reason, sizeof reason));
    }
    if (json_array_size(missing) > SHOWN)
        ADD(" and %zu more", json_array_size(missing) - SHOWN);
    if (why)
        ADD("; the store: %s", weir__printable(weir__text_of(why), reason, sizeof reason));
#undef ADD
    return text;
}
