/* State transitions in SQLite, with the stats in the same transaction; and expiry. */
#include "queue/sqlite.h"

static void read_row(const struct weir__sq *q, enum weir__sq_statement which, struct weir__sq_row *row)
{
    weir_text name = weir__sq_bytes(q, which, 7);
    *row = (struct weir__sq_row){.sequence = weir__sq_number(q, which, 0),
                                 .rule = weir__sq_number(q, which, 1),
                                 .lane = weir__sq_number(q, which, 2),
                                 .state = (int)weir__sq_number(q, which, 3),
                                 .bytes = weir__sq_number(q, which, 4),
                                 .accepted_ms = weir__sq_number(q, which, 5),
                                 .expires_ms = weir__sq_number(q, which, 6)};
    row->mine = weir__text_is(name, q->queue.name) && weir__sq_number(q, which, 8) == (int64_t)q->queue.session;
}

weir_text weir__sq_ticket(const char *ticket, char bits[WEIR__TICKET_LEN / 2])
{
    for (int i = 0; i < WEIR__TICKET_LEN / 2; i++) {
        int high = (unsigned char)ticket[2 * i], low = (unsigned char)ticket[2 * i + 1];
        high = high <= '9' ? high - '0' : high - 'a' + 10;
        low = low <= '9' ? low - '0' : low - 'a' + 10;
        bits[i] = (char)(high << 4 | low);
    }
    return (weir_text){bits, WEIR__TICKET_LEN / 2};
}

static bool find_row(struct weir__sq *q, enum weir__sq_statement which, struct weir__sq_value value,
                     struct weir__sq_row *row)
{
    bool found = weir__sq_first(q, which, &value, 1);
    *row = (struct weir__sq_row){0};
    if (found)
        read_row(q, which, row);
    weir__sq_done(q, which);
    if (row->state < 0 || row->state >= WEIR__DEFERRED_STATES) {
        q->error = WEIR__QUEUE_BROKEN;
        row->state = 0;
    }
    return found && !q->error;
}

struct weir__sq_row weir__sq_row_at(struct weir__sq *q, int64_t sequence)
{
    struct weir__sq_row row;
    if (!find_row(q, WEIR__SQ_ROW_AT, weir__sq_of_number(sequence), &row) && !q->error)
        q->error = WEIR__QUEUE_BROKEN;
    return row;
}

void weir__sq_lane_head(struct weir__sq *q, int64_t lane)
{
    struct weir__sq_value head = {0}, due = {0};
    if (weir__sq_first(q, WEIR__SQ_LANE_HEAD, WEIR__VALUES(lane))) {
        head = weir__sq_of_number(weir__sq_number(q, WEIR__SQ_LANE_HEAD, 0));
        due = weir__sq_of_number(weir__sq_number(q, WEIR__SQ_LANE_HEAD, 1));
    }
    weir__sq_done(q, WEIR__SQ_LANE_HEAD);
    weir__sq_run(q, WEIR__SQ_LANE_SET, WEIR__VALUES(lane, head, due));
}

/* ---- Transitions ---- */

void weir__sq_count(struct weir__sq *q, const struct weir__sq_row *row, int state)
{
    int64_t change[WEIR__SQ_REMOVED + 1] = {0};
    change[row->state]--;
    change[state]++;
    int64_t live = change[WEIR__WAITING] + change[WEIR__UNDER_WAY], dead = change[WEIR__DEAD];
    weir__sq_run(q, WEIR__SQ_RULE_MOVE,
                 WEIR__VALUES(row->rule, change[WEIR__WAITING], change[WEIR__UNDER_WAY], dead,
                              change[WEIR__DELIVERED] + change[WEIR__CANCELLED], live * row->bytes, dead * row->bytes));
}

static void move(struct weir__sq *q, const struct weir__sq_row *row, int state)
{
    weir__sq_count(q, row, state);
    if (row->state == WEIR__UNDER_WAY)
        weir__sq_run(q, WEIR__SQ_LANE_FREE, WEIR__VALUES(row->lane));
    weir__sq_lane_head(q, row->lane);
}

static struct weir__sq_value why_of(const struct weir__transition *change)
{
    return change->why.len ? weir__sq_of_bytes(change->why) : (struct weir__sq_value){0};
}

void weir__sq_to_waiting(struct weir__sq *q, const struct weir__sq_row *row, const struct weir__transition *change)
{
    struct weir__sq_value due = {0};
    if (change->due_ms)
        due = weir__sq_of_number(change->due_ms);
    weir__sq_run(q, WEIR__SQ_WAIT, WEIR__VALUES(row->sequence, due, change->counts, change->status, why_of(change)));
    if (change->aside) {
        int64_t group = (int64_t)change->aside;
        weir__sq_run(q, WEIR__SQ_ASIDE, WEIR__VALUES(row->sequence, group));
        weir__sq_run(q, WEIR__SQ_ASIDE_SET, WEIR__VALUES(row->lane, group, change->due_ms));
    }
    move(q, row, WEIR__WAITING);
}

static void to_over(struct weir__sq *q, const struct weir__sq_row *row, const struct weir__transition *change,
                    enum weir__deferred_state state)
{
    int over = state == WEIR__DEAD ? 2 : 1;
    weir__sq_run(
        q, WEIR__SQ_END,
        WEIR__VALUES(row->sequence, (int)state, over, change->now_ms, change->counts, change->status, why_of(change)));
    if (state != WEIR__DEAD)
        weir__sq_run(q, WEIR__SQ_PAYLOAD_GONE, WEIR__VALUES(row->sequence));
    move(q, row, (int)state);
}

struct weir__sq_totals weir__sq_read_totals(struct weir__sq *q)
{
    struct weir__sq_totals totals = {0};
    if (weir__sq_first(q, WEIR__SQ_ALL, NULL, 0))
        totals = (struct weir__sq_totals){.live = weir__sq_number(q, WEIR__SQ_ALL, 0),
                                          .bytes = weir__sq_number(q, WEIR__SQ_ALL, 1),
                                          .dead = weir__sq_number(q, WEIR__SQ_ALL, 2),
                                          .dead_bytes = weir__sq_number(q, WEIR__SQ_ALL, 3),
                                          .ended = weir__sq_number(q, WEIR__SQ_ALL, 4)};
    weir__sq_done(q, WEIR__SQ_ALL);
    return totals;
}

static int requeue(struct weir__sq *q, const struct weir__sq_row *row, const struct weir__transition *change)
{
    int64_t age_ms = row->expires_ms - row->accepted_ms;
    int64_t expires_ms = row->expires_ms == INT64_MAX ? INT64_MAX : change->now_ms + age_ms;
    struct weir__sq_totals totals = weir__sq_read_totals(q);
    if (!weir__queue_fits(&q->queue.options.bounds, totals.live, totals.bytes, row->bytes))
        return WEIR__QUEUE_FULL;
    weir__sq_run(q, WEIR__SQ_REQUEUE, WEIR__VALUES(row->sequence, change->now_ms, expires_ms));
    move(q, row, WEIR__WAITING);
    return 0;
}

/* 0, or an error of this request alone. */
static int apply(struct weir__sq *q, const struct weir__sq_row *row, const struct weir__transition *change)
{
    switch (change->kind) {
    case WEIR__TRANSITION_CANCEL:
        if (row->state != WEIR__WAITING && row->state != WEIR__DEAD)
            return WEIR__QUEUE_STATE;
        to_over(q, row, change, WEIR__CANCELLED);
        return 0;
    case WEIR__TRANSITION_REQUEUE:
        return row->state == WEIR__DEAD ? requeue(q, row, change) : WEIR__QUEUE_STATE;
    default:
        break;
    }
    if (row->state != WEIR__UNDER_WAY || !row->mine)
        return WEIR__QUEUE_LOST;
    if (change->kind == WEIR__TRANSITION_RETRY)
        weir__sq_to_waiting(q, row, change);
    else
        to_over(q, row, change, change->kind == WEIR__TRANSITION_DEAD ? WEIR__DEAD : WEIR__DELIVERED);
    return 0;
}

int weir__sq_change(struct weir__queue *queue, struct weir__transition *changes, size_t count)
{
    struct weir__sq *q = weir__sq_of(queue);
    /* A power failure may undo the record of a delivery: it is then delivered once more (at-least-once). */
    if (weir__sq_write(q, changes[0].kind >= WEIR__TRANSITION_CANCEL))
        return q->error;
    for (size_t i = 0; i < count && !q->error; i++) {
        struct weir__sq_row row;
        char bits[WEIR__TICKET_LEN / 2];
        weir_text ticket = weir__sq_ticket(changes[i].ticket, bits);
        bool found = find_row(q, WEIR__SQ_ROW, weir__sq_of_bytes(ticket), &row);
        changes[i].error = found ? apply(q, &row, &changes[i]) : WEIR__QUEUE_GONE;
    }
    return weir__sq_end(q);
}

/* ---- Expiry and retention ---- */

#define MOST         WEIR__QUEUE_EXPIRE_MAX
#define OVERWRITE_MS 60000

static int expire_waiting(struct weir__sq *q, int64_t now_ms)
{
    int64_t sequences[MOST];
    struct weir__transition change = {.now_ms = now_ms, .why = WEIR__TEXT("expired")};
    int found = weir__sq_numbers(q, WEIR__SQ_EXPIRED, WEIR__VALUES(now_ms, MOST), sequences, MOST);
    for (int i = 0; i < found; i++) {
        struct weir__sq_row row = weir__sq_row_at(q, sequences[i]);
        to_over(q, &row, &change, WEIR__DEAD);
    }
    return found;
}

static void forget(struct weir__sq *q, int64_t sequence)
{
    struct weir__sq_row row = weir__sq_row_at(q, sequence);
    weir__sq_run(q, WEIR__SQ_REQUEST_GONE, WEIR__VALUES(sequence));
    weir__sq_run(q, WEIR__SQ_PAYLOAD_GONE, WEIR__VALUES(sequence));
    weir__sq_run(q, WEIR__SQ_LANE_LESS, WEIR__VALUES(row.lane));
    weir__sq_run(q, WEIR__SQ_LANE_GONE, WEIR__VALUES(row.lane));
    weir__sq_count(q, &row, WEIR__SQ_REMOVED);
    weir__sq_run(q, WEIR__SQ_RULE_LESS, WEIR__VALUES(row.rule));
}

/* Removes the oldest `most` of a kind that ended at `until_ms` or before; returns how many. */
static int forget_oldest(struct weir__sq *q, int kind, int64_t until_ms, int64_t most)
{
    int64_t sequences[MOST];
    most = most < 0 ? 0 : most < MOST ? most : MOST;
    int found = weir__sq_numbers(q, WEIR__SQ_OVER, WEIR__VALUES(kind, until_ms, most), sequences, (int)most);
    for (int i = 0; i < found; i++)
        forget(q, sequences[i]);
    return found;
}

static int forget_surplus(struct weir__sq *q)
{
    const struct weir__queue_options *options = &q->queue.options;
    struct weir__sq_totals totals = weir__sq_read_totals(q);
    int forgotten = forget_oldest(q, 1, INT64_MAX, totals.ended - options->keep_max);
    forgotten += forget_oldest(q, 2, INT64_MAX, totals.dead - options->dead_max);
    /* one by one, as sizes differ */
    for (int i = 0; i < MOST && !q->error && options->bounds.max_bytes > 0; i++) {
        if (weir__sq_read_totals(q).dead_bytes <= options->bounds.max_bytes)
            break;
        forgotten += forget_oldest(q, 2, INT64_MAX, 1);
    }
    return forgotten;
}

int weir__sq_expire(struct weir__queue *queue, int64_t now_ms)
{
    struct weir__sq *q = weir__sq_of(queue);
    const struct weir__queue_options *options = &queue->options;
    int error = weir__sq_sync(q);
    if (error || (error = weir__sq_write(q, false)) != 0)
        return error;
    int done = expire_waiting(q, now_ms);
    done += forget_oldest(q, 1, now_ms - options->keep_ms, MOST);
    done += forget_oldest(q, 2, now_ms - options->dead_ms, MOST);
    done += forget_surplus(q);
    weir__sq_run(q, WEIR__SQ_RULES_GONE, NULL, 0);
    if (weir__sq_end(q))
        return q->error;
    /* secure_delete overwrites removed requests with zeros, but the WAL keeps old pages until it is truncated. */
    bool early = now_ms >= q->emptied_ms && now_ms - q->emptied_ms < OVERWRITE_MS;
    if (!early && weir__sq_empty_log(q))
        q->emptied_ms = now_ms;
    return done;
}
