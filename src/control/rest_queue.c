/* Deferred requests: handlers that list, read, cancel and requeue them by the host's queue. */
#include "control/call.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>

#define SHOWN_TICKET 8

/* NULL: replied. */
static const struct weir__control_queue *queue_of(struct weir__call *call)
{
    const struct weir__control_host *host = call->control->host;
    if (host && host->queue)
        return host->queue;
    weir__fail(call, 501, "no_queue", "no requests are deferred here: weir.yaml has no queue", NULL);
    return NULL;
}

/* One deferred request, or a list of them, without the texts of keys. */
static void reply_hidden(struct weir__call *call, const char *json)
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
    weir__reply_json(call, 200, root);
}

static int reply(struct weir__call *call, int error, char **json, const char *why)
{
    static const struct {
        int error, status;
        const char *code;
    } known[] = {{WEIR__HOST_NO_TICKET, 404, "no_ticket"},
                 {WEIR__HOST_OTHER_STATE, 409, "other_state"},
                 {WEIR__HOST_QUEUE_FULL, 409, "queue_full"},
                 {WEIR__HOST_QUEUE_UNAVAILABLE, 503, "queue_away"}};
    size_t i = 0, count = sizeof known / sizeof *known;
    while (i < count && known[i].error != error)
        i++;
    if (!error && *json && !weir__sees_keys(call))
        reply_hidden(call, *json);
    else if (!error && *json)
        weir__reply_text(call, 200, "application/json", *json, strlen(*json));
    else if (i < count)
        weir__fail(call, known[i].status, known[i].code,
                   error == WEIR__HOST_NO_TICKET ? "there is no such ticket" : why, NULL);
    else
        weir__fail(call, 503, "failed", weir_strerror(error ? error : WEIR_ENOMEM), NULL);
    free(*json);
    return 0;
}

int weir__rest_queue_stats(struct weir__call *call)
{
    const struct weir__control_queue *queue = queue_of(call);
    char *json = NULL, why[WEIR__HOST_WHY] = "";
    weir__call_release_database(call);
    return queue ? reply(call, queue->stats(queue->context, &json, why), &json, why) : 0;
}

static bool is_state(const char *word)
{
    static const char *const states[] = {"waiting", "under_way", "delivered", "dead", "cancelled"};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(states[i], word) == 0)
            return true;
    return false;
}

int weir__rest_queue_list(struct weir__call *call)
{
    char state[32], rule[WEIR__PARAM_MAX], *json = NULL, why[WEIR__HOST_WHY] = "";
    struct weir__host_deferred which = {.full_tickets = call->role >= WEIR__OPERATOR};
    if (!weir__query_number(call, "limit", 1, 1000, 100, &which.limit) ||
        !weir__query_number(call, "after", 0, INT64_MAX, 0, &which.after) ||
        !weir__query_text(call, "state", state, sizeof state) || !weir__query_text(call, "rule", rule, sizeof rule))
        return 0;
    which.state = *state ? state : NULL;
    which.rule = *rule ? rule : NULL;
    if (which.state && !is_state(state))
        return weir__fail(call, 400, "bad_query", "state: waiting, under_way, delivered, dead or cancelled", NULL);
    const struct weir__control_queue *queue = queue_of(call);
    weir__call_release_database(call);
    return queue ? reply(call, queue->list(queue->context, &which, &json, why), &json, why) : 0;
}

int weir__rest_queue_get(struct weir__call *call)
{
    const struct weir__control_queue *queue = queue_of(call);
    char *json = NULL, why[WEIR__HOST_WHY] = "";
    weir__call_release_database(call);
    return queue ? reply(call, queue->get(queue->context, call->param[0], &json, why), &json, why) : 0;
}

/*
 * The audit log gets the entry first, so that a change is in it even if the process ends before the reply. Unknown
 * tickets get no entry, and entries have only the beginning of the ticket, with which it cannot be cancelled.
 */
static int change(struct weir__call *call, const char *action)
{
    const struct weir__control_queue *queue = queue_of(call);
    bool back = strcmp(action, "queue_requeue") == 0;
    char shown[SHOWN_TICKET + sizeof "…"];
    char *json = NULL, why[WEIR__HOST_WHY] = "";
    if (!queue)
        return 0;
    weir__call_release_database(call);
    int error = queue->get(queue->context, call->param[0], &json, why);
    if (error)
        return reply(call, error, &json, why);
    free(json);
    if (!weir__work_end(call))
        return 0;
    json = NULL;
    snprintf(shown, sizeof shown, "%.*s…", SHOWN_TICKET, call->param[0]);
    error = weir__audit(call, action, shown, NULL);
    if (error)
        return error;
    weir__call_release_database(call);
    error = (back ? queue->requeue : queue->cancel)(queue->context, call->param[0], &json, why);
    return reply(call, error, &json, why);
}

int weir__rest_queue_cancel(struct weir__call *call)
{
    return change(call, "queue_cancel");
}

int weir__rest_queue_requeue(struct weir__call *call)
{
    return change(call, "queue_requeue");
}
