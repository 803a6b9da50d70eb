/* The exchange with other regions: election, batches, and what a region's store turns out to be. See regions.h. */
#include "sync/regions.h"
#include "base/clock.h"
#include "base/number.h"
#include "engine/ledger.h"
#include "remote/client.h"
#include "remote/script.h"
#include "sync/sync_internal.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define OWN_US       INT64_C(500000)           /* for a call of the script in the own store */
#define OTHER_US     INT64_C(1000000)          /* for one in another region's, at least */
#define TIMEOUTS_MAX 8                         /* of these, for a batch that was late before */
#define MEET_MS      2000                      /* between two checks of another region's store, together with a batch */
#define MET_MS       6000                      /* the same, alone: that store remembers a check for 10 s */
#define OWNER        26                        /* digits of rule and tier in the name of a ledger's counter */
#define HEAD         (OWNER + 16)              /* and of the end of its window */
#define LATE_US      INT64_C(5000000000000000) /* above any end of a window: plus when a late delta began */
#define WORD         64                        /* bytes of identities, terms and senders, with a zero byte */
#define DOWN_AFTER   3                         /* failures in a row, and the region's state is DOWN */
#define ARGUMENTS    10                        /* of a call, but those of `done` */

/* A counter of a batch. */
struct taken {
    char field[HEAD + WEIR__STORE_NAME_MAX + 1];
    size_t len;
    int64_t units;
    bool known, dropped; /* there is a rule for it; there has been none for long */
};

/* The exchange with one region, by one thread at a time. */
struct link {
    struct weir__regions *regions;
    const struct weir__other_region *other;
    struct weir__ledger_region *stats; /* NULL: the ledger has no room for them */
    struct weir__blocking_client *own, *client;
    struct weir__store_options store; /* with longer deadlines */
    enum weir_region_state state;
    unsigned failed; /* in a row */
    bool met;
    int64_t met_ms;
    int64_t timeout_us;
    char term[WORD]; /* in which it took batches */
    int64_t number;  /* of the last one */

    /* The batch. */
    char sender[WORD];
    int64_t batch, age_us, clock_us;
    struct weir__unknown_rules unknown;
    size_t count, kept; /* kept: of these, those that return to the ledger */
    bool more;          /* counters may wait for the next batch */
    struct taken *taken;
    struct weir__store_op *ops;
    struct weir__group *groups;
};

struct weir__regions {
    struct weir__regions_options with;
    char agent[17], spare_identity[17], root[96];
    struct weir__store_options own; /* with longer deadlines */
    struct weir__blocking_client *client;
    struct link links[WEIR__REGIONS_MAX];
    struct weir__ledger_header *header; /* NULL: no ledger */
    uint64_t until_us;                  /* calls end then; 0: by their own deadlines */

    pthread_mutex_t lock; /* of the following */
    bool elected;
    char term[WORD], identity[WORD];

    /* Of the election's thread. */
    char leader[WEIR__LOG_MESSAGE_MAX / 4];
    bool foreign; /* it was logged that the own store is another region's */
};

/* ---- Creation ---- */

static void link_free(struct link *link)
{
    if (link->own)
        weir__blocking_client_free(link->own);
    if (link->client)
        weir__blocking_client_free(link->client);
    free(link->taken);
    free(link->ops);
    free(link->groups);
}

void weir__regions_free(struct weir__regions *regions)
{
    if (!regions)
        return;
    for (size_t i = 0; i < regions->with.other_count; i++)
        link_free(&regions->links[i]);
    if (regions->client)
        weir__blocking_client_free(regions->client);
    pthread_mutex_destroy(&regions->lock);
    explicit_bzero(regions, sizeof *regions); /* passwords */
    free(regions);
}

static bool link_make(struct weir__regions *regions, size_t index)
{
    struct link *link = &regions->links[index];
    link->regions = regions;
    link->other = &regions->with.others[index];
    link->store = *link->other->store;
    link->store.deadline_us = link->store.deadline_us > OTHER_US ? link->store.deadline_us : OTHER_US;
    link->timeout_us = link->store.deadline_us;
    link->own = weir__blocking_client_new(&regions->own);
    link->client = weir__blocking_client_new(&link->store);
    link->taken = calloc(WEIR__REGION_BATCH_MAX, sizeof *link->taken);
    link->ops = calloc(WEIR__REGION_BATCH_MAX, sizeof *link->ops);
    link->groups = calloc(WEIR__REGION_BATCH_MAX, sizeof *link->groups);
    if (link->own && link->client) {
        weir__blocking_client_until(link->own, &regions->until_us);
        weir__blocking_client_until(link->client, &regions->until_us);
    }
    if (!link->own || !link->client || !link->taken || !link->ops || !link->groups)
        return false;
    for (uint32_t i = 0; i < WEIR__REGION_BATCH_MAX; i++)
        link->groups[i] = (struct weir__group){.first = i, .count = 1};
    if (regions->header) {
        link->stats = &regions->header->regions[index];
        memset(link->stats->name, 0, sizeof link->stats->name);
        memcpy(link->stats->name, link->other->name, strnlen(link->other->name, WEIR__REGION_NAME));
    }
    return true;
}

void weir__regions_clear(weir *engine)
{
    struct weir__ledger_header *header = engine->deltas.ledger.header;
    if (!header)
        return;
    weir__store64(&header->region_leader, 0);
    for (size_t i = 0; i < WEIR__LEDGER_REGIONS; i++)
        memset(header->regions[i].name, 0, sizeof header->regions[i].name);
}

struct weir__regions *weir__regions_new(const struct weir__regions_options *options)
{
    struct weir__regions *regions = calloc(1, sizeof *regions);
    unsigned char random[2][8];
    if (!regions)
        return NULL;
    pthread_mutex_init(&regions->lock, NULL);
    regions->with = *options;
    regions->own = *options->own;
    regions->own.deadline_us = regions->own.deadline_us > OWN_US ? regions->own.deadline_us : OWN_US;
    snprintf(regions->root, sizeof regions->root, "%s::{regions}", regions->own.prefix);
    regions->header = options->engine->deltas.ledger.header;
    regions->client = weir__blocking_client_new(&regions->own);
    bool good = regions->client && weir__random_fill(random, sizeof random) == 0;
    if (good) {
        weir__blocking_client_until(regions->client, &regions->until_us);
        *weir__write_hex(regions->agent, random[0], 8) = 0;
        *weir__write_hex(regions->spare_identity, random[1], 8) = 0;
    }
    weir__regions_clear(options->engine);
    for (size_t i = 0; i < options->other_count && good; i++)
        good = link_make(regions, i);
    if (good)
        return regions;
    weir__regions_free(regions);
    return NULL;
}

/* ---- Calls of lua/regions.lua ---- */

typedef int read_reply(struct weir__store_request *request, const redisReply *reply);

struct region_call {
    struct weir__store_request request;
    struct weir__raw_command raw;
    struct weir__buffer command;
};

/* Begins a call; `more` arguments follow. */
static void begin_call(struct region_call *call, const char *root, const char *const *arguments, size_t count,
                       size_t more)
{
    struct weir__buffer *to = &call->command;
    *call = (struct region_call){.raw = {.slot = root, .script = weir__regions_script}};
    weir__redis_add_length(to, '*', 4 + count + more);
    weir__redis_add_text(to, "EVALSHA", 7);
    weir__redis_add_text(to, weir__regions_script_sha, 40);
    weir__redis_add_text(to, "1", 1);
    weir__redis_add_text(to, root, strlen(root));
    for (size_t i = 0; i < count; i++)
        weir__redis_add_text(to, arguments[i], strlen(arguments[i]));
}

/* Completes the request of a call. False: no memory. */
static bool complete_call(struct region_call *call, int64_t timeout_us, read_reply *read, void *owner)
{
    call->raw.command = call->command.data;
    call->raw.command_len = call->command.len;
    call->raw.read = read;
    call->request = (struct weir__store_request){
        .raw = &call->raw, .owner = owner, .deadline_us = weir__monotonic_us() + timeout_us};
    return !call->command.failed;
}

/* Sends the call, and frees its buffer. */
static int finish_call(struct weir__blocking_client *client, struct region_call *call, int64_t timeout_us,
                       read_reply *read, void *owner)
{
    bool good = complete_call(call, timeout_us, read, owner);
    int error = good ? weir__blocking_client_request(client, &call->request) : WEIR_ENOMEM;
    weir__buffer_free(&call->command);
    return error;
}

static int run_call(struct weir__blocking_client *client, const char *root, const char *const *arguments, size_t count,
                    int64_t timeout_us, read_reply *read, void *owner)
{
    struct region_call call;
    begin_call(&call, root, arguments, count, 0);
    return finish_call(client, &call, timeout_us, read, owner);
}

static bool text_of(const redisReply *reply, char *to, size_t size)
{
    if (reply->type != REDIS_REPLY_STRING || reply->len >= size || memchr(reply->str, 0, reply->len))
        return false;
    memcpy(to, reply->str, reply->len);
    to[reply->len] = 0;
    return true;
}

static bool number_of(const redisReply *reply, int64_t *number)
{
    weir_text text = {reply->str, reply->len};
    *number = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
    return reply->type == REDIS_REPLY_INTEGER || (reply->type == REDIS_REPLY_STRING && weir__parse_int(text, number));
}

/* ---- Election ---- */

struct election {
    struct weir__regions *regions;
    int64_t outcome;
    char term[WORD], identity[WORD], leader[WEIR__LOG_MESSAGE_MAX / 4];
};

static int read_election(struct weir__store_request *request, const redisReply *reply)
{
    struct election *to = request->owner;
    size_t others = to->regions->with.other_count;
    int64_t waiting, lag_us, dropped;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 4 || !number_of(reply->element[0], &to->outcome) ||
        !text_of(reply->element[2], to->identity, sizeof to->identity) ||
        !text_of(reply->element[3], to->leader, sizeof to->leader))
        return WEIR_ESTOREGARBAGE;
    if (to->outcome < 0)
        return 0;
    if (reply->elements != 4 + (to->outcome ? 3 * others : 0) || !text_of(reply->element[1], to->term, sizeof to->term))
        return WEIR_ESTOREGARBAGE;
    for (size_t i = 0; i < others; i++) {
        redisReply *const *element = reply->element + 4 + 3 * i;
        struct weir__ledger_region *stats = to->regions->links[i].stats;
        waiting = lag_us = dropped = 0;
        if (to->outcome &&
            (!number_of(element[0], &waiting) || !number_of(element[1], &lag_us) || !number_of(element[2], &dropped)))
            return WEIR_ESTOREGARBAGE;
        if (!stats)
            continue;
        weir__store64(&stats->waiting, (uint64_t)waiting);
        weir__store64(&stats->lag_us, (uint64_t)lag_us);
        weir__store64(&stats->units_dropped, (uint64_t)dropped);
    }
    return 0;
}

static void log_election(struct weir__regions *regions, const struct election *election)
{
    bool foreign = election->outcome < 0;
    if (foreign && !regions->foreign)
        weir__logf(regions->with.log, WEIR__LOG_ERROR,
                   "the store of this region, %s, is that of region %s: rules of scope: global count in this region "
                   "alone until one of them gets another store",
                   regions->with.region, election->leader);
    if (!foreign && strcmp(regions->leader, election->leader) != 0)
        weir__logf(regions->with.log, WEIR__LOG_INFO, "region %s: the agent of host %s exchanges with other regions",
                   regions->with.region, election->leader);
    regions->foreign = foreign;
    snprintf(regions->leader, sizeof regions->leader, "%s", foreign ? "" : election->leader);
}

int weir__regions_elect(struct weir__regions *regions)
{
    char others[WEIR__REGIONS_MAX * (WEIR__REGION_NAME + 1) + 1] = "", interval[24];
    struct election election = {.regions = regions};
    for (size_t i = 0, len = 0; i < regions->with.other_count; i++)
        len += (size_t)snprintf(others + len, sizeof others - len, "%s%s", i ? " " : "", regions->with.others[i].name);
    snprintf(interval, sizeof interval, "%" PRId64, regions->with.interval_us);
    const char *arguments[] = {"elect", regions->agent, regions->with.host,      regions->with.region,
                               others,  interval,       regions->spare_identity, *regions->term ? regions->term : "0"};
    int error = run_call(regions->client, regions->root, arguments, WEIR__COUNT(arguments), regions->own.deadline_us,
                         read_election, &election);
    bool elected = !error && election.outcome == 1;
    if (!error)
        log_election(regions, &election);
    pthread_mutex_lock(&regions->lock);
    regions->elected = elected;
    if (!error && election.outcome >= 0) {
        memcpy(regions->term, election.term, sizeof regions->term);
        memcpy(regions->identity, election.identity, sizeof regions->identity);
    }
    pthread_mutex_unlock(&regions->lock);
    if (regions->header)
        weir__store64(&regions->header->region_leader, elected);
    return error ? error : elected;
}

static int read_nothing(struct weir__store_request *request, const redisReply *reply)
{
    (void)request;
    (void)reply;
    return 0;
}

void weir__regions_end(struct weir__regions *regions, int64_t within_us)
{
    weir__store64(&regions->until_us, (uint64_t)(weir__monotonic_us() + within_us));
}

void weir__regions_leave(struct weir__regions *regions)
{
    const char *arguments[] = {"leave", regions->agent};
    weir__store64(&regions->until_us, (uint64_t)(weir__monotonic_us() + OWN_US));
    (void)!run_call(regions->client, regions->root, arguments, WEIR__COUNT(arguments), OWN_US, read_nothing, NULL);
    weir__store64(&regions->until_us, 0);
    pthread_mutex_lock(&regions->lock);
    regions->elected = false;
    pthread_mutex_unlock(&regions->lock);
    if (regions->header)
        weir__store64(&regions->header->region_leader, 0);
}

/* ---- Meeting another region's store ---- */

struct meeting {
    int64_t outcome;
    char name[WORD];
};

static int read_meeting(struct weir__store_request *request, const redisReply *reply)
{
    struct meeting *to = request->owner;
    bool good = reply->type == REDIS_REPLY_ARRAY && reply->elements >= 1 && number_of(reply->element[0], &to->outcome);
    if (good && reply->elements > 1)
        good = text_of(reply->element[1], to->name, sizeof to->name);
    return good ? 0 : WEIR_ESTOREGARBAGE;
}

/* Logs a change of the state. */
static void set_state(struct link *link, enum weir_region_state state, int error, const char *name)
{
    const struct weir__regions *regions = link->regions;
    const struct weir__logger *log = regions->with.log;
    if (link->stats) {
        weir__store64(&link->stats->state, (uint64_t)state);
        if (error)
            weir__store64(&link->stats->last_error, (uint64_t)-error);
    }
    if (state == link->state)
        return;
    link->state = state;
    switch (state) {
    case WEIR_REGION_UP:
        weir__logf(log, WEIR__LOG_INFO, "region %s available; exchanging", link->other->name);
        break;
    case WEIR_REGION_DOWN:
        weir__logf(log, WEIR__LOG_WARNING,
                   "region %s unavailable (%s); this region keeps its counts and sends them later", link->other->name,
                   weir_strerror(error));
        break;
    case WEIR_REGION_SILENT:
        weir__logf(log, WEIR__LOG_WARNING,
                   "region %s: no agent of it runs; this region keeps its counts and sends them later",
                   link->other->name);
        break;
    case WEIR_REGION_WRONG:
        weir__logf(log, WEIR__LOG_ERROR, "region %s: its store in weir.yaml is that of region %s; nothing is sent",
                   link->other->name, name);
        break;
    case WEIR_REGION_DOUBLE:
        weir__logf(log, WEIR__LOG_ERROR, "region %s: another region named %s sends to it; nothing is sent",
                   link->other->name, regions->with.region);
        break;
    case WEIR_REGION_UNKNOWN:
        break;
    }
}

static void begin_meeting(const struct link *link, const char *identity, struct region_call *call)
{
    const struct weir__regions *regions = link->regions;
    const char *arguments[] = {"meet", link->other->name, regions->with.region, identity};
    begin_call(call, regions->root, arguments, WEIR__COUNT(arguments), 0);
}

static void end_meeting(struct link *link, const struct meeting *meeting)
{
    set_state(link,
              meeting->outcome > 0    ? WEIR_REGION_UP
              : meeting->outcome == 0 ? WEIR_REGION_SILENT
              : meeting->outcome < -1 ? WEIR_REGION_DOUBLE
                                      : WEIR_REGION_WRONG,
              0, meeting->name);
    link->met = meeting->outcome > 0;
    link->met_ms = weir__monotonic_ms();
}

/* Finds out whether the store is the region's. 1: it is; 0: nothing may be sent; or an error. */
static int meet(struct link *link, const char *identity)
{
    struct region_call call;
    struct meeting meeting = {0};
    if (link->met && weir__monotonic_ms() - link->met_ms < MET_MS)
        return 1;
    link->met = false;
    begin_meeting(link, identity, &call);
    int error = finish_call(link->client, &call, link->timeout_us, read_meeting, &meeting);
    if (error)
        return error;
    end_meeting(link, &meeting);
    return link->met;
}

/* ---- Taking a batch ---- */

/* False: not a counter's name in a ledger. */
static bool read_counter(const redisReply *field, const redisReply *units, struct taken *to)
{
    if (!text_of(field, to->field, sizeof to->field) || field->len <= HEAD || !number_of(units, &to->units))
        return false;
    to->len = field->len;
    for (size_t i = 0; i < HEAD; i++)
        if (!weir__is_digit(to->field[i]) && (i >= OWNER || to->field[i] < 'a' || to->field[i] > 'f'))
            return false;
    return to->units <= INT64_C(1) << 50 && to->units >= -(INT64_C(1) << 50);
}

static int read_batch(struct weir__store_request *request, const redisReply *reply)
{
    enum { FIRST = 6 };
    struct link *link = request->owner;
    char term[WORD];
    int64_t more = 0;
    link->count = 0;
    link->more = false;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 1 || !text_of(reply->element[0], term, sizeof term))
        return WEIR_ESTOREGARBAGE;
    if (reply->elements == 1) /* not elected */
        return 0;
    if (reply->elements < 3 || !number_of(reply->element[1], &more))
        return WEIR_ESTOREGARBAGE;
    link->more = more;
    if (reply->elements == 3) /* nothing is to be sent */
        return 0;
    if (reply->elements < FIRST || (reply->elements - FIRST) % 2 ||
        reply->elements > FIRST + 2 * WEIR__REGION_BATCH_MAX || !number_of(reply->element[2], &link->batch) ||
        link->batch < 1 || !text_of(reply->element[3], link->sender, sizeof link->sender) ||
        !number_of(reply->element[4], &link->age_us) || !number_of(reply->element[5], &link->clock_us))
        return WEIR_ESTOREGARBAGE;
    for (size_t i = FIRST; i < reply->elements; i += 2)
        if (!read_counter(reply->element[i], reply->element[i + 1], &link->taken[link->count++]))
            return WEIR_ESTOREGARBAGE;
    return 0;
}

static int take(struct link *link, const char *term, bool all)
{
    char number[24], most[24];
    const struct weir__regions *regions = link->regions;
    if (strcmp(link->term, term) != 0) {
        snprintf(link->term, sizeof link->term, "%s", term);
        link->number = 0;
    }
    snprintf(number, sizeof number, "%" PRId64, link->number);
    snprintf(most, sizeof most, "%d", WEIR__REGION_BATCH_MAX);
    const char *arguments[] = {"take", regions->agent, term, link->other->name, most, all ? "1" : "0", number};
    int error = run_call(link->own, regions->root, arguments, WEIR__COUNT(arguments), regions->own.deadline_us,
                         read_batch, link);
    const char *sent_in = strchr(link->sender, '-');
    /* A batch of the agent before has the number of another term. */
    if (!error && link->count && sent_in && strcmp(sent_in + 1, term) == 0)
        link->number = link->batch;
    return error;
}

/* ---- Sending it ---- */

static const struct weir__rule *rule_of(const weir_rules *rules, uint64_t id)
{
    for (size_t i = 0; i < rules->count; i++)
        if (rules->rules[i]->global && (rules->rules[i]->id & WEIR__SCOPE_BITS) == id)
            return rules->rules[i];
    return NULL;
}

bool weir__unknown_rules_look(struct weir__unknown_rules *unknown, uint64_t rule, bool known, int64_t now_ms)
{
    struct weir__unknown_rule *found = NULL, *spare = &unknown->rules[0];
    for (size_t i = 0; i < WEIR__UNKNOWN_RULES && !found; i++) {
        struct weir__unknown_rule *one = &unknown->rules[i];
        if (one->seen_ms && one->rule == rule)
            found = one;
        if (one->seen_ms < spare->seen_ms)
            spare = one;
    }
    if (known) {
        if (found)
            found->seen_ms = 0;
        return false;
    }
    if (!found || now_ms - found->seen_ms > WEIR__UNKNOWN_FORGET_MS) {
        found = found ? found : spare;
        found->rule = rule;
        found->since_ms = now_ms;
    }
    found->seen_ms = now_ms;
    return now_ms - found->since_ms >= WEIR__UNKNOWN_DROP_MS;
}

static const struct weir__quota *quota_of(const struct weir__rule *rule, uint64_t tier)
{
    const struct weir__quota *first = NULL;
    for (size_t i = 0; rule && i < rule->quota_count; i++) {
        if (rule->quotas[i].kind != WEIR__LIMITED)
            continue;
        if ((weir__delta_ledger_tier(&rule->quotas[i]) & WEIR__SCOPE_BITS) == tier)
            return &rule->quotas[i];
        first = first ? first : &rule->quotas[i];
    }
    return first;
}

/* An age below which a batch counts as punctual: it waited for its turn, and for those before it. */
static int64_t punctual_us(const struct link *link)
{
    return 4 * link->regions->with.interval_us + WEIR__SYNC_LATE_MS * INT64_C(1000);
}

/* For how long the units of a counter waited, at the host and here; 0: they are punctual. `at_us`: of its field. */
static int64_t age_of(const struct link *link, int64_t at_us)
{
    int64_t batch_us = link->age_us > punctual_us(link) ? link->age_us : 0;
    int64_t delta_us = at_us >= LATE_US ? link->clock_us - (at_us - LATE_US) : 0;
    return delta_us > batch_us ? delta_us : batch_us;
}

static void fill_op(struct link *link, const weir_rules *rules, int64_t wall_us, size_t place)
{
    struct taken *taken = &link->taken[place];
    struct weir__store_op *op = &link->ops[place];
    char digits[14] = {0};
    memcpy(digits, taken->field, 13);
    uint64_t rule = strtoull(digits, NULL, 16);
    memcpy(digits, taken->field + 13, 13);
    const struct weir__quota *quota = quota_of(rule_of(rules, rule), strtoull(digits, NULL, 16));
    taken->known = quota != NULL;
    taken->dropped = weir__unknown_rules_look(&link->unknown, rule, taken->known, weir__monotonic_ms());
    if (!quota) {
        const struct weir__naming naming = {link->store.prefix, link->store.hash_keys};
        weir__sync_fill_nothing(&naming, op);
        return;
    }
    memset(op, 0, offsetof(struct weir__store_op, name));
    op->limit = quota->limit;
    op->kind = WEIR__OP_EXCHANGE;
    op->cost = taken->units;
    op->level = quota->limit.hard;
    op->own_delta = true;
    op->scope.kind = WEIR__SCOPE_OTHER;
    char time[HEAD - OWNER + 1] = {0};
    memcpy(time, taken->field + OWNER, sizeof time - 1);
    int64_t at_us = strtoll(time, NULL, 10);
    if (op->limit.algorithm == WEIR_FIXED_WINDOW)
        op->left_us = at_us > link->clock_us && at_us < LATE_US ? at_us - link->clock_us : -2;
    else
        op->left_us = age_of(link, at_us);
    if (weir__on_wall(&op->limit) && op->limit.align == WEIR_ALIGN_CALENDAR)
        weir__sync_bounds(&op->limit, wall_us, op->bounds_us);
    op->limit.zone = NULL;
    op->name_len = (uint16_t)(taken->len - HEAD);
    memcpy(op->name, taken->field + HEAD, op->name_len + 1U);
}

/* Sends the batch, and now and then checks the store together with it, which costs no round trip. */
static int send_batch(struct link *link, const char *identity)
{
    int at;
    struct region_call call = {.command = {0}};
    struct meeting meeting = {0};
    weir *engine = link->regions->with.engine;
    weir__watch(engine);
    const struct weir__ruleset *ruleset = weir__hazard_acquire(&engine->hazards, &at);
    int64_t wall_us = weir_clock(engine->segment).wall_ns / 1000;
    for (size_t i = 0; i < link->count; i++)
        fill_op(link, ruleset->rules, wall_us, i);
    weir__hazard_release(&engine->hazards, at);
    struct weir__store_request request = {.ops = link->ops,
                                          .op_count = (uint32_t)link->count,
                                          .groups = link->groups,
                                          .group_count = (uint32_t)link->count,
                                          .sender = link->sender,
                                          .batch = (uint64_t)link->batch,
                                          .deadline_us = weir__monotonic_us() + link->timeout_us};
    struct weir__store_request *const both[] = {&request, &call.request};
    bool meets = weir__monotonic_ms() - link->met_ms >= MEET_MS;
    if (meets)
        begin_meeting(link, identity, &call);
    meets = meets && complete_call(&call, link->timeout_us, read_meeting, &meeting);
    int error = weir__blocking_client_request_all(link->client, both, meets ? 2 : 1);
    if (!error && meets)
        end_meeting(link, &meeting);
    error = request.error;
    weir__buffer_free(&call.command);
    int64_t least = link->store.deadline_us;
    if (error == WEIR_ESTORESLOW)
        link->timeout_us = link->timeout_us < TIMEOUTS_MAX * least ? 2 * link->timeout_us : link->timeout_us;
    else if (!error)
        link->timeout_us = least;
    return error;
}

/* ---- Reporting it done ---- */

static int read_done(struct weir__store_request *request, const redisReply *reply)
{
    int64_t *outcome = request->owner;
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 && number_of(reply->element[0], outcome)
               ? 0
               : WEIR_ESTOREGARBAGE;
}

/* What becomes of the units of an op that took nothing; NULL: it took them. */
static const char *fate_of(const struct link *link, size_t place)
{
    const struct weir__store_op *op = &link->ops[place];
    if (link->taken[place].known)
        return op->error || op->other_window > 0 ? "keep" : NULL;
    return link->taken[place].dropped ? "drop" : "keep";
}

static int64_t missed_by(const struct link *link)
{
    for (size_t i = 0; i < link->count && i < WEIR__BATCH_GROUPS && link->batch > 1; i++)
        if (link->ops[i].kind == WEIR__OP_EXCHANGE && link->ops[i].missed > 0)
            return link->ops[i].missed;
    return 0;
}

static int report_done(struct link *link, const char *term)
{
    const struct weir__regions *regions = link->regions;
    struct region_call call;
    char number[24], missed[24];
    size_t returned = 0;
    int64_t outcome = 0, units = 0;
    for (size_t i = 0; i < link->count; i++) {
        const char *fate = fate_of(link, i);
        returned += fate != NULL;
        link->kept += fate && *fate == 'k';
        units += fate || link->taken[i].units < 0 ? 0 : link->taken[i].units;
    }
    snprintf(number, sizeof number, "%" PRId64, link->batch);
    snprintf(missed, sizeof missed, "%" PRId64, missed_by(link));
    const char *arguments[] = {"done", regions->agent, term, link->other->name, number, missed};
    begin_call(&call, regions->root, arguments, WEIR__COUNT(arguments), 2 * returned);
    for (size_t i = 0; i < link->count; i++) {
        const char *fate = fate_of(link, i);
        if (!fate)
            continue;
        weir__redis_add_text(&call.command, fate, 4);
        weir__redis_add_text(&call.command, link->taken[i].field, link->taken[i].len);
    }
    int error = finish_call(link->own, &call, regions->own.deadline_us, read_done, &outcome);
    if (!error && outcome && link->stats) {
        weir__count(&link->stats->batches, 1);
        weir__count(&link->stats->units_sent, (uint64_t)units);
    }
    return error;
}

static void publish_bytes(struct link *link)
{
    struct weir__client_stats stats;
    if (!link->stats)
        return;
    weir__blocking_client_stats(link->client, &stats);
    weir__store64(&link->stats->bytes_out, stats.bytes_out);
    weir__store64(&link->stats->bytes_in, stats.bytes_in);
}

int weir__regions_exchange(struct weir__regions *regions, size_t index, bool all, bool *more)
{
    *more = false;
    struct link *link = &regions->links[index];
    char term[WORD], identity[WORD];
    pthread_mutex_lock(&regions->lock);
    bool elected = regions->elected;
    memcpy(term, regions->term, sizeof term);
    memcpy(identity, regions->identity, sizeof identity);
    pthread_mutex_unlock(&regions->lock);
    if (!elected) {
        link->state = WEIR_REGION_UNKNOWN;
        link->met = false;
        return 0;
    }
    int met = meet(link, identity), error = met < 0 ? met : 0;
    if (met == 1) {
        int own = take(link, term, all);
        if (own) /* sync logs that the own store is unavailable */
            return own;
        link->kept = 0;
        error = link->count ? send_batch(link, identity) : 0;
        own = link->count && !error ? report_done(link, term) : 0;
        publish_bytes(link);
        if (own)
            return own;
    }
    if (error) {
        if (++link->failed >= DOWN_AFTER)
            set_state(link, WEIR_REGION_DOWN, error, "");
        if (link->stats)
            weir__count(&link->stats->failures, 1);
        link->met = false;
        return error;
    }
    link->failed = 0;
    size_t left = met ? link->count - link->kept : 0;
    *more = met && link->more && (left || !link->count);
    return (int)left;
}
