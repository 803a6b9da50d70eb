/* Find, list and stats in SQLite. */
#include "queue/sqlite.h"

void weir__sq_read(const struct weir__sq *q, enum weir__sq_statement which, struct weir__deferred *item)
{
    static const char digits[] = "0123456789abcdef";
    weir_text ticket = weir__sq_bytes(q, which, 1);
    *item = (struct weir__deferred){.sequence = (uint64_t)weir__sq_number(q, which, 0),
                                    .rule = weir__sq_bytes(q, which, 2),
                                    .key = weir__sq_bytes(q, which, 3),
                                    .cost = weir__sq_number(q, which, 4),
                                    .method = weir__sq_bytes(q, which, 5),
                                    .target = weir__sq_bytes(q, which, 6),
                                    .headers = {"", 0},
                                    .body = {"", 0},
                                    .accepted_ms = weir__sq_number(q, which, 7),
                                    .due_ms = weir__sq_number(q, which, 8),
                                    .expires_ms = weir__sq_number(q, which, 9),
                                    .ended_ms = weir__sq_number(q, which, 10),
                                    .attempts = (int)weir__sq_number(q, which, 11),
                                    .state = (enum weir__deferred_state)weir__sq_number(q, which, 12),
                                    .why = weir__sq_bytes(q, which, 13),
                                    .last_status = (int)weir__sq_number(q, which, 14)};
    for (size_t i = 0; i < ticket.len && i < WEIR__TICKET_LEN / 2; i++) {
        item->ticket[2 * i] = digits[(unsigned char)ticket.data[i] >> 4];
        item->ticket[2 * i + 1] = digits[(unsigned char)ticket.data[i] & 15];
    }
}

int weir__sq_find(struct weir__queue *queue, const char *ticket, weir__deferred_visit *visit, void *context)
{
    struct weir__sq *q = weir__sq_of(queue);
    char bits[WEIR__TICKET_LEN / 2];
    struct weir__deferred item;
    int gone = weir__sq_check_file(q);
    if (gone)
        return gone;
    weir__sq_ticket(ticket, bits);
    int found = weir__sq_begin(q, WEIR__SQ_FIND, WEIR__VALUES(WEIR__BYTES(((weir_text){bits, sizeof bits}))));
    if (found > 0) {
        weir__sq_read(q, WEIR__SQ_FIND, &item);
        item.headers = weir__sq_bytes(q, WEIR__SQ_FIND, 15);
        item.body = weir__sq_bytes(q, WEIR__SQ_FIND, 16);
        found = visit(context, &item);
    } else if (found == 0) {
        found = WEIR__QUEUE_GONE;
    }
    weir__sq_done(q, WEIR__SQ_FIND);
    return found;
}

int weir__sq_list(struct weir__queue *queue, const struct weir__queue_filter *filter, weir__deferred_visit *visit,
                  void *context)
{
    struct weir__sq *q = weir__sq_of(queue);
    struct weir__deferred item;
    enum weir__sq_statement which = WEIR__SQ_LIST;
    struct weir__sq_value values[4] = {WEIR__NUMBER((int64_t)filter->after), WEIR__NUMBER((int64_t)filter->limit)};
    int count = 2, stop = 0;
    if (filter->rule.len > 0)
        values[count++] = WEIR__BYTES(filter->rule);
    if (filter->state >= 0)
        values[count++] = WEIR__NUMBER(filter->state);
    if (filter->rule.len > 0)
        which = filter->state >= 0 ? WEIR__SQ_LIST_BOTH : WEIR__SQ_LIST_RULE;
    else if (filter->state >= 0)
        which = WEIR__SQ_LIST_STATE;
    int gone = weir__sq_check_file(q), more = gone ? gone : weir__sq_begin(q, which, values, count);
    for (; more > 0 && !stop; more = stop ? more : weir__sq_next(q, which)) {
        weir__sq_read(q, which, &item);
        stop = visit(context, &item);
    }
    weir__sq_done(q, which);
    return more < 0 ? more : stop;
}

int weir__sq_stats(struct weir__queue *queue, weir__queue_stats_visit *visit, void *context)
{
    struct weir__sq *q = weir__sq_of(queue);
    const enum weir__sq_statement which = WEIR__SQ_STATS;
    int stop = 0, gone = weir__sq_check_file(q), more = gone ? gone : weir__sq_begin(q, which, NULL, 0);
    for (; more > 0 && !stop; more = stop ? more : weir__sq_next(q, which)) {
        struct weir__queue_stats stats = {.rule = weir__sq_bytes(q, which, 0),
                                          .waiting = weir__sq_number(q, which, 1),
                                          .under_way = weir__sq_number(q, which, 2),
                                          .dead = weir__sq_number(q, which, 3),
                                          .bytes = weir__sq_number(q, which, 4),
                                          .oldest_ms = weir__sq_number(q, which, 5)};
        stop = visit(context, &stats);
    }
    weir__sq_done(q, which);
    return more < 0 ? more : stop;
}
