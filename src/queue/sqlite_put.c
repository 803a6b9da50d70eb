/* Puts in SQLite, in one transaction. */
#include "queue/sqlite.h"

/* Inserts a row; returns its id. */
static int64_t insert_row(struct weir__sq *q, enum weir__sq_statement which, const struct weir__sq_value *values,
                          int count)
{
    weir__sq_run(q, which, values, count);
    return sqlite3_last_insert_rowid(q->db);
}

/* The rule's row, created if there is none; 0: the request does not fit its bounds. */
static int64_t rule_for(struct weir__sq *q, const struct weir__deferred *item, const struct weir__queue_bounds *bounds)
{
    int64_t rule = 0, count = 0, bytes = 0;
    if (weir__sq_first(q, WEIR__SQ_RULE, WEIR__VALUES(item->rule))) {
        rule = weir__sq_number(q, WEIR__SQ_RULE, 0);
        count = weir__sq_number(q, WEIR__SQ_RULE, 1);
        bytes = weir__sq_number(q, WEIR__SQ_RULE, 2);
    }
    weir__sq_done(q, WEIR__SQ_RULE);
    if (!weir__queue_fits(bounds, count, bytes, weir__deferred_bytes(item)))
        return 0;
    return rule ? rule : insert_row(q, WEIR__SQ_RULE_NEW, WEIR__VALUES(item->rule));
}

/* The lane's row, created if there is none; *head: the request will be its head. */
static int64_t lane_for(struct weir__sq *q, int64_t rule, weir_text key, bool *head)
{
    bool found = weir__sq_first(q, WEIR__SQ_LANE, WEIR__VALUES(rule, key));
    int64_t lane = found ? weir__sq_number(q, WEIR__SQ_LANE, 0) : 0;
    *head = !found || (weir__sq_number(q, WEIR__SQ_LANE, 1) == 0 && weir__sq_null(q, WEIR__SQ_LANE, 2));
    weir__sq_done(q, WEIR__SQ_LANE);
    return found ? lane : insert_row(q, WEIR__SQ_LANE_NEW, WEIR__VALUES(rule, key));
}

/* 0, or FULL. */
static int put_one(struct weir__sq *q, struct weir__deferred *item, const struct weir__queue_bounds *bounds,
                   struct weir__sq_totals *totals)
{
    int64_t bytes = weir__deferred_bytes(item), rule = 0;
    char bits[WEIR__TICKET_LEN / 2];
    bool head;
    if (weir__queue_fits(&q->queue.options.bounds, totals->live, totals->bytes, bytes))
        rule = rule_for(q, item, bounds);
    if (!rule)
        return WEIR__QUEUE_FULL;
    int64_t lane = lane_for(q, rule, item->key, &head);
    int64_t sequence =
        insert_row(q, WEIR__SQ_REQUEST_NEW,
                   WEIR__VALUES(weir__sq_ticket(item->ticket, bits), rule, lane, item->cost, bytes, item->accepted_ms,
                                item->due_ms, item->expires_ms, item->method, item->target));
    item->sequence = (uint64_t)sequence;
    weir__sq_run(q, WEIR__SQ_PAYLOAD_NEW, WEIR__VALUES(sequence, item->headers, item->body));
    if (head)
        weir__sq_run(q, WEIR__SQ_LANE_SET, WEIR__VALUES(lane, sequence, item->due_ms));
    weir__sq_run(q, WEIR__SQ_LANE_PUT, WEIR__VALUES(lane));
    weir__sq_run(q, WEIR__SQ_RULE_PUT, WEIR__VALUES(rule, bytes));
    totals->live++;
    totals->bytes += bytes;
    return 0;
}

int weir__sq_put(struct weir__queue *queue, struct weir__deferred *items, const struct weir__queue_bounds *bounds,
                 int *errors, size_t count)
{
    struct weir__sq *q = weir__sq_of(queue);
    /* first: its failure must not deny requests that are stored already */
    int error = weir__sq_sync(q);
    if (error || (error = weir__sq_write(q, true)) != 0)
        return error;
    struct weir__sq_totals totals = weir__sq_read_totals(q);
    for (size_t i = 0; i < count && !q->error; i++)
        if (!errors[i])
            errors[i] = put_one(q, &items[i], &bounds[i], &totals);
    error = weir__sq_end(q);
    if (error)
        return error;
    /* again: the file may have been removed during the commit */
    return weir__sq_check_file(q) == WEIR__QUEUE_REMOVED ? WEIR__QUEUE_REMOVED : 0;
}
