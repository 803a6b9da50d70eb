/*
 * Queue admin: stats, lists and changes of the queue as JSON, for the admin REST service. Fills in struct
 * weir__control_queue.
 */
#include "base/clock.h"
#include "queue/queue_internal.h"
#include "base/duration.h"
#include "base/host_calls.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SHOWN_TICKET 8 /* digits shown to callers that may not cancel it */

struct queue_admin {
    struct weir__control_queue calls;
    const struct weir__config *config;
    const struct weir__logger *log;
    pthread_mutex_t lock;
    struct weir__queue *queue; /* NULL: not open */
};

/* ---- Access ---- */

/* Locks, and opens the queue. Returns the queue's error. leave must follow. */
static int enter(struct queue_admin *admin)
{
    char detail[WEIR__QUEUE_SOURCE_TEXT] = "";
    pthread_mutex_lock(&admin->lock);
    return admin->queue ? 0 : weir__queue_open_configured(admin->config, "admin", admin->log, &admin->queue, detail);
}

/* Unlocks. Returns the service's error for the queue's; or 0, with the object in *json. Frees the object. */
static int leave(struct queue_admin *admin, int error, json_t *object, char **json, char *why)
{
    if (error == WEIR__QUEUE_REMOVED) {
        weir__queue_close(admin->queue);
        admin->queue = NULL; /* the next call opens the queue that has its path then */
    }
    pthread_mutex_unlock(&admin->lock);
    *json = error >= 0 && object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (error < 0)
        snprintf(why, WEIR__HOST_WHY, "%s", weir__queue_strerror(error));
    return error >= 0                    ? (*json ? 0 : WEIR_ENOMEM)
           : error == WEIR__QUEUE_GONE   ? WEIR__HOST_NO_TICKET
           : error == WEIR__QUEUE_STATE  ? WEIR__HOST_OTHER_STATE
           : error == WEIR__QUEUE_FULL   ? WEIR__HOST_QUEUE_FULL
           : error == WEIR__QUEUE_MEMORY ? WEIR_ENOMEM
                                         : WEIR__HOST_QUEUE_UNAVAILABLE;
}

/* ---- One request ---- */

json_t *weir__time_json(int64_t ms)
{
    char text[WEIR__TIME_TEXT];
    weir__time_text(ms, text);
    return ms > 0 ? json_string(text) : NULL;
}

/* Texts from clients may hold any bytes: invalid UTF-8 is escaped. */
static json_t *shown(weir_text text)
{
    char room[1024];
    return weir__text_sound(text) ? json_stringn(text.data, text.len)
                                  : json_string(weir__printable(text, room, sizeof room));
}

static json_t *in_hex(weir_text text)
{
    char hex[1024];
    size_t len = text.len < sizeof hex / 2 - 1 ? text.len : sizeof hex / 2 - 1;
    *weir__write_hex(hex, text.data, len) = 0;
    return json_string(hex);
}

static json_t *deferred_json(const struct weir__deferred *item, bool full_ticket)
{
    char ticket[WEIR__TICKET_LEN + sizeof "…"];
    snprintf(ticket, sizeof ticket, full_ticket ? "%.*s" : "%.*s…", full_ticket ? WEIR__TICKET_LEN : SHOWN_TICKET,
             item->ticket);
    weir_text target = item->target;
    bool text = weir__text_sound(item->key);
    bool waits = item->state == WEIR__WAITING;
    bool shows_why = item->why.len && item->state != WEIR__DELIVERED && item->state != WEIR__CANCELLED;
    return json_pack("{s:s, s:I, s:o, s:o, s:I, s:o, s:o, s:s, s:i, s:o?, s:o?, s:o?, s:o?, s:o?, s:o?}", "ticket",
                     ticket, "sequence", (json_int_t)item->sequence, "rule", shown(item->rule),
                     text ? "key" : "key_hex", text ? shown(item->key) : in_hex(item->key), "cost",
                     (json_int_t)item->cost, "method", shown(item->method), "path", shown(weir__text_cut(&target, '?')),
                     "state", weir__deferred_state_name(item->state), "attempts", item->attempts, "last_status",
                     item->last_status ? json_integer(item->last_status) : NULL, "why",
                     shows_why ? shown(item->why) : NULL, "accepted", weir__time_json(item->accepted_ms), "due",
                     weir__time_json(waits ? item->due_ms : 0), "expires", weir__time_json(item->expires_ms), "ended",
                     weir__time_json(item->ended_ms));
}

/* Names only: values are often secrets. */
static json_t *header_names(weir_text headers)
{
    json_t *names = json_array();
    while (names && headers.len) {
        weir_text line = weir__text_cut(&headers, '\n');
        if (line.len && memchr(line.data, ':', line.len))
            json_array_append_new(names, shown(weir__text_cut(&line, ':')));
    }
    return names;
}

static int take_one(void *context, const struct weir__deferred *item)
{
    json_t **object = context;
    *object = deferred_json(item, true);
    if (*object) {
        json_object_set_new(*object, "headers", header_names(item->headers));
        json_object_set_new(*object, "body_bytes", json_integer((json_int_t)item->body.len));
    }
    return 0;
}

/* Both under one lock. */
static int change_and_read(void *context, const char *ticket, enum weir__host_change change, char **json, char *why)
{
    struct queue_admin *admin = context;
    json_t *object = NULL;
    if (!weir__is_ticket(ticket))
        return WEIR__HOST_NO_TICKET;
    int error = enter(admin);
    if (!error && change)
        error = weir__queue_change(admin->queue, ticket,
                                   change == WEIR__HOST_CANCEL ? WEIR__ENDED_CANCELLED : WEIR__ENDED_REQUEUED);
    if (!error)
        error = weir__queue_find(admin->queue, ticket, take_one, &object);
    return leave(admin, error, object, json, why);
}

/* ---- Lists ---- */

struct json_listing {
    json_t *items;
    bool full_tickets;
    uint64_t last;
};

static int add_one(void *context, const struct weir__deferred *item)
{
    struct json_listing *listing = context;
    listing->last = item->sequence;
    return json_array_append_new(listing->items, deferred_json(item, listing->full_tickets)) ? 1 : 0;
}

static int state_of(const char *name)
{
    for (int state = 0; name && state < WEIR__DEFERRED_STATES; state++)
        if (strcmp(weir__deferred_state_name((enum weir__deferred_state)state), name) == 0)
            return state;
    return -1;
}

static int list(void *context, const struct weir__host_deferred *which, char **json, char *why)
{
    struct queue_admin *admin = context;
    struct json_listing listing = {.items = json_array(), .full_tickets = which->full_tickets};
    struct weir__queue_filter filter = {.state = state_of(which->state),
                                        .rule = {which->rule ? which->rule : "", which->rule ? strlen(which->rule) : 0},
                                        .after = (uint64_t)which->after,
                                        .limit = (size_t)which->limit};
    int error = enter(admin);
    if (!error)
        error = weir__queue_list(admin->queue, &filter, add_one, &listing);
    bool more = json_array_size(listing.items) == filter.limit;
    return leave(
        admin, error,
        json_pack("{s:o, s:o?}", "items", listing.items, "next", more ? json_integer((json_int_t)listing.last) : NULL),
        json, why);
}

/* ---- Stats ---- */

struct counting {
    json_t *rules;
    int64_t now_ms, waiting, under_way, dead, bytes, oldest_ms;
};

/* In seconds; NULL: none. */
static json_t *age(int64_t now_ms, int64_t since_ms)
{
    int64_t ms = now_ms > since_ms ? now_ms - since_ms : 0;
    return since_ms ? json_real((double)ms / 1000) : NULL;
}

static int add_rule(void *context, const struct weir__queue_stats *stats)
{
    struct counting *all = context;
    all->waiting += stats->waiting;
    all->under_way += stats->under_way;
    all->dead += stats->dead;
    all->bytes += stats->bytes;
    if (stats->oldest_ms && (!all->oldest_ms || stats->oldest_ms < all->oldest_ms))
        all->oldest_ms = stats->oldest_ms;
    json_t *object =
        json_pack("{s:o, s:I, s:I, s:I, s:I, s:o?}", "rule", shown(stats->rule), "waiting", (json_int_t)stats->waiting,
                  "under_way", (json_int_t)stats->under_way, "dead", (json_int_t)stats->dead, "bytes",
                  (json_int_t)stats->bytes, "oldest_s", age(all->now_ms, stats->oldest_ms));
    return json_array_append_new(all->rules, object) ? 1 : 0;
}

static int stats(void *context, char **json, char *why)
{
    struct queue_admin *admin = context;
    struct counting all = {.rules = json_array(), .now_ms = weir__wall_ms()};
    int error = enter(admin);
    if (!error)
        error = weir__queue_stats(admin->queue, add_rule, &all);
    json_t *object = json_pack("{s:I, s:I, s:I, s:I, s:o?, s:o}", "waiting", (json_int_t)all.waiting, "under_way",
                               (json_int_t)all.under_way, "dead", (json_int_t)all.dead, "bytes", (json_int_t)all.bytes,
                               "oldest_s", age(all.now_ms, all.oldest_ms), "rules", all.rules);
    return leave(admin, error, object, json, why);
}

/* ---- Open and close ---- */

struct weir__control_queue *weir__queue_admin_open(const struct weir__config *config, const struct weir__logger *log)
{
    struct queue_admin *admin = calloc(1, sizeof *admin);
    if (!admin)
        return NULL;
    *admin = (struct queue_admin){{admin, stats, list, change_and_read}, .config = config, .log = log};
    pthread_mutex_init(&admin->lock, NULL);
    return &admin->calls;
}

void weir__queue_admin_close(struct weir__control_queue *calls)
{
    struct queue_admin *admin = calls ? calls->context : NULL;
    if (!admin)
        return;
    weir__queue_close(admin->queue);
    pthread_mutex_destroy(&admin->lock);
    free(admin);
}
