/* Puts in SQLite, in one transaction. */
#include "queue/sqlite.h"

/* The rule's row, created if there is none; FULL: the request does not fit its bounds. */
static int64_t rule_for(struct weir__sq *q, const struct weir__deferred *item, const struct weir__queue_bounds *bounds)
{
    int found = weir__sq_begin(q, WEIR__SQ_RULE, WEIR__VALUES(WEIR__BYTES(item->rule)));
    int64_t rule = found > 0 ? weir__sq_number(q, WEIR__SQ_RULE, 0) : found;
    int64_t count = found > 0 ? weir__sq_number(q, WEIR__SQ_RULE, 1) : 0;
    int64_t bytes = found > 0 ? weir__sq_number(q, WEIR__SQ_RULE, 2) : 0;
    weir__sq_done(q, WEIR__SQ_RULE);
    if (found < 0)
        return found;
    if (!weir__queue_fits(bounds, count, bytes, weir__deferred_bytes(item)))
        return WEIR__QUEUE_FULL;
    if (found > 0)
        return rule;
    int error = weir__sq_run(q, WEIR__SQ_RULE_NEW, WEIR__VALUES(WEIR__BYTES(item->rule)));
    return error ? error : sqlite3_last_insert_rowid(q->db);
}

/* The lane's row, created if there is none; *head: the request will be its head. */
static int64_t lane_for(struct weir__sq *q, int64_t rule, weir_text key, bool *head)
{
    int found = weir__sq_begin(q, WEIR__SQ_LANE, WEIR__VALUES(WEIR__NUMBER(rule), WEIR__BYTES(key)));
    int64_t lane = found > 0 ? weir__sq_number(q, WEIR__SQ_LANE, 0) : found;
    *head = found <= 0 || (weir__sq_number(q, WEIR__SQ_LANE, 1) == 0 && weir__sq_null(q, WEIR__SQ_LANE, 2));
    weir__sq_done(q, WEIR__SQ_LANE);
    if (found != 0)
        return lane;
    int error = weir__sq_run(q, WEIR__SQ_LANE_NEW, WEIR__VALUES(WEIR__NUMBER(rule), WEIR__BYTES(key)));
    return error ? error : sqlite3_last_insert_rowid(q->db);
}

static int insert(struct weir__sq *q, struct weir__deferred *item, int64_t rule, int64_t lane)
{
    char bits[WEIR__TICKET_LEN / 2];
    weir__sq_ticket(item->ticket, bits);
    weir_text ticket = {bits, sizeof bits};
    int error =
        weir__sq_run(q, WEIR__SQ_REQUEST_NEW,
                     WEIR__VALUES(WEIR__BYTES(ticket), WEIR__NUMBER(rule), WEIR__NUMBER(lane), WEIR__NUMBER(item->cost),
                                  WEIR__NUMBER(weir__deferred_bytes(item)), WEIR__NUMBER(item->accepted_ms),
                                  WEIR__NUMBER(item->due_ms), WEIR__NUMBER(item->expires_ms), WEIR__BYTES(item->method),
                                  WEIR__BYTES(item->target)));
    if (error)
        return error;
    item->sequence = (uint64_t)sqlite3_last_insert_rowid(q->db);
    return weir__sq_run(
        q, WEIR__SQ_PAYLOAD_NEW,
        WEIR__VALUES(WEIR__NUMBER((int64_t)item->sequence), WEIR__BYTES(item->headers), WEIR__BYTES(item->body)));
}

/* FULL is an error of this request; any other one fails all. */
static int put_one(struct weir__sq *q, struct weir__deferred *item, const struct weir__queue_bounds *bounds,
                   struct weir__sq_totals *totals)
{
    int64_t bytes = weir__deferred_bytes(item);
    bool head;
    if (!weir__queue_fits(&q->queue.options.bounds, totals->live, totals->bytes, bytes))
        return WEIR__QUEUE_FULL;
    int64_t rule = rule_for(q, item, bounds);
    int64_t lane = rule < 0 ? rule : lane_for(q, rule, item->key, &head);
    if (lane < 0)
        return (int)lane;
    int error = insert(q, item, rule, lane);
    if (!error && head)
        error = weir__sq_run(
            q, WEIR__SQ_LANE_SET,
            WEIR__VALUES(WEIR__NUMBER(lane), WEIR__NUMBER((int64_t)item->sequence), WEIR__NUMBER(item->due_ms)));
    if (!error)
        error = weir__sq_run(q, WEIR__SQ_LANE_PUT, WEIR__VALUES(WEIR__NUMBER(lane)));
    if (!error)
        error =
            weir__sq_run(q, WEIR__SQ_RULE_PUT, WEIR__VALUES(WEIR__NUMBER(rule), WEIR__NUMBER(1), WEIR__NUMBER(bytes)));
    totals->live++;
    totals->bytes += bytes;
    return error;
}

int weir__sq_put(struct weir__queue *queue, struct weir__deferred *items, const struct weir__queue_bounds *bounds,
                 int *errors, size_t count)
{
    struct weir__sq *q = weir__sq_of(queue);
    /* first: its failure must not deny requests that are stored already */
    int error = weir__sq_sync(q);
    if (!error)
        error = weir__sq_write(q, true);
    if (error)
        return error;
    struct weir__sq_totals totals;
    error = weir__sq_read_totals(q, &totals);
    for (size_t i = 0; i < count && !error; i++) {
        if (errors[i])
            continue;
        errors[i] = put_one(q, &items[i], &bounds[i], &totals);
        if (errors[i] && errors[i] != WEIR__QUEUE_FULL)
            error = errors[i];
    }
    error = weir__sq_end(q, error);
    if (error < 0)
        return error;
    /* again: the file may have been removed during the commit */
    return weir__sq_check_file(q) == WEIR__QUEUE_REMOVED ? WEIR__QUEUE_REMOVED : 0;
}
