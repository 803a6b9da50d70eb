/* Deferred requests: handlers that list, read, cancel and requeue them by the host's queue. */
#include "control/call.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>

#define SHOWN_TICKET 8

/* Where a function of the queue leaves its reply. */
struct queue_reply {
    char *json, why[WEIR__HOST_WHY];
};

/* NULL: refused. */
static const struct weir__control_queue *queue_of(struct weir__call *call)
{
    if (!call->control->host->queue)
        weir__fail(call, 501, "no_queue", "no requests are deferred here: weir.yaml has no queue");
    return weir__call_release_database(call) ? call->control->host->queue : NULL;
}

/* One deferred request, or a list of them, without the texts of keys. */
static bool reply_hidden(struct weir__call *call, const char *json)
{
    json_t *root = json_loads(json, 0, NULL), *items = json_object_get(root, "items");
    for (size_t i = 0; i < (items ? json_array_size(items) : 1); i++) {
        json_t *item = items ? json_array_get(items, i) : root, *key = json_object_get(item, "key");
        const char *digits = json_string_value(json_object_get(item, "key_hex"));
        long len = 0;
        char *bytes = digits && !key ? (char *)OPENSSL_hexstr2buf(digits, &len) : NULL; /* a key that is no UTF-8 */
        weir_text text =
            bytes ? (weir_text){bytes, (size_t)len} : (weir_text){json_string_value(key), json_string_length(key)};
        if (key || bytes)
            json_object_set_new(item, "key", weir__hidden_key(call, text));
        OPENSSL_free(bytes);
        json_object_del(item, "key_hex");
    }
    return weir__reply_json(call, 200, root);
}

static bool reply(struct weir__call *call, int error, const struct queue_reply *from)
{
    static const struct {
        int error, status;
        const char *code;
    } known[] = {{WEIR__HOST_NO_TICKET, 404, "no_ticket"},
                 {WEIR__HOST_OTHER_STATE, 409, "other_state"},
                 {WEIR__HOST_QUEUE_FULL, 409, "queue_full"},
                 {WEIR__HOST_QUEUE_UNAVAILABLE, 503, "queue_unavailable"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].error == error)
            weir__fail(call, known[i].status, known[i].code, "%s",
                       error == WEIR__HOST_NO_TICKET ? "there is no such ticket" : from->why);
    if (error || !from->json)
        weir__fail(call, 503, "failed", "%s", weir_strerror(error ? error : WEIR_ENOMEM));
    else if (weir__sees_keys(call))
        weir__reply_text(call, 200, "application/json", weir__text_of(from->json));
    else
        reply_hidden(call, from->json);
    free(from->json);
    return !call->failed;
}

bool weir__rest_queue_stats(struct weir__call *call)
{
    const struct weir__control_queue *queue = queue_of(call);
    struct queue_reply to = {0};
    return queue && reply(call, queue->stats(queue->context, &to.json, to.why), &to);
}

bool weir__rest_queue_list(struct weir__call *call)
{
    struct weir__host_deferred which = {.full_tickets = call->role >= WEIR__OPERATOR,
                                        .limit = weir__query_number(call, "limit", 1, 1000, 100),
                                        .after = weir__query_number(call, "after", 0, INT64_MAX, 0)};
    const char *state = weir__query_text(call, "state", 31),
               *rule = weir__query_text(call, "rule", WEIR__PARAM_MAX - 1);
    struct queue_reply to = {0};
    which.state = *state ? state : NULL;
    which.rule = *rule ? rule : NULL;
    if (which.state && !weir__is_one_of(state, "waiting|under_way|delivered|dead|cancelled"))
        return weir__fail(call, 400, "bad_query", "state: waiting, under_way, delivered, dead or cancelled");
    const struct weir__control_queue *queue = queue_of(call);
    return queue && reply(call, queue->list(queue->context, &which, &to.json, to.why), &to);
}

bool weir__rest_queue_get(struct weir__call *call)
{
    const struct weir__control_queue *queue = queue_of(call);
    struct queue_reply to = {0};
    return queue &&
           reply(call, queue->ticket(queue->context, call->param[0], WEIR__HOST_UNCHANGED, &to.json, to.why), &to);
}

/*
 * The audit log gets the entry first, so that a change is in it even if the process ends before the reply. Unknown
 * tickets get no entry, and entries have only the beginning of the ticket, with which it cannot be cancelled.
 */
static bool change(struct weir__call *call, const char *action, enum weir__host_change change)
{
    const struct weir__control_queue *queue = queue_of(call);
    char shown[SHOWN_TICKET + sizeof "…"];
    struct queue_reply to = {0};
    int error = queue ? queue->ticket(queue->context, call->param[0], WEIR__HOST_UNCHANGED, &to.json, to.why) : 0;
    if (!queue || error)
        return queue && reply(call, error, &to);
    free(to.json);
    to.json = NULL;
    if (!weir__work_end(call))
        return false;
    snprintf(shown, sizeof shown, "%.*s…", SHOWN_TICKET, call->param[0]);
    weir__audit(call, action, shown, NULL);
    if (!weir__call_release_database(call))
        return false;
    error = queue->ticket(queue->context, call->param[0], change, &to.json, to.why);
    return reply(call, error, &to);
}

bool weir__rest_queue_cancel(struct weir__call *call)
{
    return change(call, "queue_cancel", WEIR__HOST_CANCEL);
}

bool weir__rest_queue_requeue(struct weir__call *call)
{
    return change(call, "queue_requeue", WEIR__HOST_REQUEUE);
}
