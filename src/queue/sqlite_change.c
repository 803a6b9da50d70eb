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

void weir__sq_ticket(const char *ticket, char bits[WEIR__TICKET_LEN / 2])
{
    for (int i = 0; i < WEIR__TICKET_LEN / 2; i++) {
        int high = (unsigned char)ticket[2 * i], low = (unsigned char)ticket[2 * i + 1];
        high = high <= '9' ? high - '0' : high - 'a' + 10;
        low = low <= '9' ? low - '0' : low - 'a' + 10;
        bits[i] = (char)(high << 4 | low);
    }
}

int weir__sq_find_row(struct weir__sq *q, const char *ticket, int64_t sequence, struct weir__sq_row *row)
{
    char bits[WEIR__TICKET_LEN / 2];
    enum weir__sq_statement which = ticket ? WEIR__SQ_ROW : WEIR__SQ_ROW_AT;
    struct weir__sq_value value = WEIR__NUMBER(sequence);
    if (ticket) {
        weir__sq_ticket(ticket, bits);
        value = WEIR__BYTES(((weir_text){bits, sizeof bits}));
    }
    int found = weir__sq_begin(q, which, &value, 1);
    if (found > 0)
        read_row(q, which, row);
    weir__sq_done(q, which);
    if (found > 0 && (row->state < 0 || row->state >= WEIR__DEFERRED_STATES))
        return WEIR__QUEUE_BROKEN;
    return found > 0 ? 0 : found < 0 ? found : WEIR__QUEUE_GONE;
}

int weir__sq_lane_head(struct weir__sq *q, int64_t lane)
{
    int found = weir__sq_begin(q, WEIR__SQ_LANE_HEAD, WEIR__VALUES(WEIR__NUMBER(lane)));
    struct weir__sq_value head = WEIR__NONE, due = WEIR__NONE;
    if (found > 0) {
        head = WEIR__NUMBER(weir__sq_number(q, WEIR__SQ_LANE_HEAD, 0));
        due = WEIR__NUMBER(weir__sq_number(q, WEIR__SQ_LANE_HEAD, 1));
    }
    weir__sq_done(q, WEIR__SQ_LANE_HEAD);
    return found < 0 ? found : weir__sq_run(q, WEIR__SQ_LANE_SET, WEIR__VALUES(WEIR__NUMBER(lane), head, due));
}

/* ---- Transitions ---- */

int weir__sq_count(struct weir__sq *q, const struct weir__sq_row *row, int state)
{
    int64_t change[WEIR__SQ_REMOVED + 1] = {0};
    change[row->state]--;
    change[state]++;
    int64_t live = change[WEIR__WAITING] + change[WEIR__UNDER_WAY], dead = change[WEIR__DEAD];
    return weir__sq_run(q, WEIR__SQ_RULE_MOVE,
                        WEIR__VALUES(WEIR__NUMBER(row->rule), WEIR__NUMBER(change[WEIR__WAITING]),
                                     WEIR__NUMBER(change[WEIR__UNDER_WAY]), WEIR__NUMBER(dead),
                                     WEIR__NUMBER(change[WEIR__DELIVERED] + change[WEIR__CANCELLED]),
                                     WEIR__NUMBER(live * row->bytes), WEIR__NUMBER(dead * row->bytes)));
}

static int move(struct weir__sq *q, const struct weir__sq_row *row, int state)
{
    int error = weir__sq_count(q, row, state);
    if (!error && row->state == WEIR__UNDER_WAY)
        error = weir__sq_run(q, WEIR__SQ_LANE_FREE, WEIR__VALUES(WEIR__NUMBER(row->lane)));
    return error ? error : weir__sq_lane_head(q, row->lane);
}

static struct weir__sq_value why_of(const struct weir__transition *change)
{
    return change->why.len ? WEIR__BYTES(change->why) : WEIR__NONE;
}

int weir__sq_to_waiting(struct weir__sq *q, const struct weir__sq_row *row, const struct weir__transition *change)
{
    int error = weir__sq_run(q, WEIR__SQ_WAIT,
                             WEIR__VALUES(WEIR__NUMBER(row->sequence),
                                          change->due_ms ? WEIR__NUMBER(change->due_ms) : WEIR__NONE,
                                          WEIR__NUMBER(change->counts), WEIR__NUMBER(change->status), why_of(change)));
    struct weir__sq_value group = WEIR__NUMBER((int64_t)change->aside);
    if (!error && change->aside)
        error = weir__sq_run(q, WEIR__SQ_ASIDE, WEIR__VALUES(WEIR__NUMBER(row->sequence), group));
    if (!error && change->aside)
        error = weir__sq_run(q, WEIR__SQ_ASIDE_SET,
                             WEIR__VALUES(WEIR__NUMBER(row->lane), group, WEIR__NUMBER(change->due_ms)));
    return error ? error : move(q, row, WEIR__WAITING);
}

int weir__sq_to_over(struct weir__sq *q, const struct weir__sq_row *row, const struct weir__transition *change,
                     enum weir__deferred_state state)
{
    int error = weir__sq_run(q, WEIR__SQ_END,
                             WEIR__VALUES(WEIR__NUMBER(row->sequence), WEIR__NUMBER((int64_t)state),
                                          WEIR__NUMBER(state == WEIR__DEAD ? 2 : 1), WEIR__NUMBER(change->now_ms),
                                          WEIR__NUMBER(change->counts), WEIR__NUMBER(change->status), why_of(change)));
    if (!error && state != WEIR__DEAD)
        error = weir__sq_run(q, WEIR__SQ_PAYLOAD_GONE, WEIR__VALUES(WEIR__NUMBER(row->sequence)));
    return error ? error : move(q, row, (int)state);
}

/* ---- Requeue ---- */

int weir__sq_read_totals(struct weir__sq *q, struct weir__sq_totals *totals)
{
    int found = weir__sq_begin(q, WEIR__SQ_ALL, NULL, 0);
    *totals = (struct weir__sq_totals){0};
    if (found > 0)
        *totals = (struct weir__sq_totals){.live = weir__sq_number(q, WEIR__SQ_ALL, 0),
                                           .bytes = weir__sq_number(q, WEIR__SQ_ALL, 1),
                                           .dead = weir__sq_number(q, WEIR__SQ_ALL, 2),
                                           .dead_bytes = weir__sq_number(q, WEIR__SQ_ALL, 3),
                                           .ended = weir__sq_number(q, WEIR__SQ_ALL, 4)};
    weir__sq_done(q, WEIR__SQ_ALL);
    return found < 0 ? found : 0;
}

static int requeue(struct weir__sq *q, const struct weir__sq_row *row, const struct weir__transition *change)
{
    int64_t age_ms = row->expires_ms - row->accepted_ms;
    int64_t expires_ms = row->expires_ms == INT64_MAX ? INT64_MAX : change->now_ms + age_ms;
    struct weir__sq_totals totals;
    int error = weir__sq_read_totals(q, &totals);
    if (!error && !weir__queue_fits(&q->queue.options.bounds, totals.live, totals.bytes, row->bytes))
        error = WEIR__QUEUE_FULL;
    if (!error)
        error = weir__sq_run(
            q, WEIR__SQ_REQUEUE,
            WEIR__VALUES(WEIR__NUMBER(row->sequence), WEIR__NUMBER(change->now_ms), WEIR__NUMBER(expires_ms)));
    return error ? error : move(q, row, WEIR__WAITING);
}

/* ---- Transition calls ---- */

static int apply(struct weir__sq *q, const struct weir__sq_row *row, const struct weir__transition *change)
{
    switch (change->kind) {
    case WEIR__TRANSITION_CANCEL:
        if (row->state != WEIR__WAITING && row->state != WEIR__DEAD)
            return WEIR__QUEUE_STATE;
        return weir__sq_to_over(q, row, change, WEIR__CANCELLED);
    case WEIR__TRANSITION_REQUEUE:
        return row->state == WEIR__DEAD ? requeue(q, row, change) : WEIR__QUEUE_STATE;
    default:
        break;
    }
    if (row->state != WEIR__UNDER_WAY || !row->mine)
        return WEIR__QUEUE_LOST;
    if (change->kind == WEIR__TRANSITION_RETRY)
        return weir__sq_to_waiting(q, row, change);
    return weir__sq_to_over(q, row, change, change->kind == WEIR__TRANSITION_DEAD ? WEIR__DEAD : WEIR__DELIVERED);
}

/* Errors of one request, found before anything was changed. */
static bool is_own(int error)
{
    return error == 0 || error == WEIR__QUEUE_GONE || error == WEIR__QUEUE_STATE || error == WEIR__QUEUE_LOST ||
           error == WEIR__QUEUE_FULL;
}

int weir__sq_change(struct weir__queue *queue, struct weir__transition *changes, size_t count)
{
    struct weir__sq *q = weir__sq_of(queue);
    /* A power failure may undo the record of a delivery: it is then delivered once more (at-least-once). */
    int error = weir__sq_write(q, changes[0].kind >= WEIR__TRANSITION_CANCEL);
    if (error)
        return error;
    for (size_t i = 0; i < count && !error; i++) {
        struct weir__sq_row row;
        int found = weir__sq_find_row(q, changes[i].ticket, 0, &row);
        changes[i].error = found ? found : apply(q, &row, &changes[i]);
        error = is_own(changes[i].error) ? 0 : changes[i].error;
    }
    return weir__sq_end(q, error);
}

/* ---- Expiry and retention ---- */

#define MOST         WEIR__QUEUE_EXPIRE_MAX
#define OVERWRITE_MS 60000

static int expire_waiting(struct weir__sq *q, int64_t now_ms)
{
    int64_t sequences[MOST];
    struct weir__transition change = {.now_ms = now_ms, .why = WEIR__TEXT("expired")};
    int found =
        weir__sq_numbers(q, WEIR__SQ_EXPIRED, WEIR__VALUES(WEIR__NUMBER(now_ms), WEIR__NUMBER(MOST)), sequences, MOST);
    for (int i = 0; i < found; i++) {
        struct weir__sq_row row;
        int error = weir__sq_find_row(q, NULL, sequences[i], &row);
        if (!error)
            error = weir__sq_to_over(q, &row, &change, WEIR__DEAD);
        if (error)
            return error;
    }
    return found;
}

static int forget(struct weir__sq *q, int64_t sequence)
{
    static const enum weir__sq_statement of_lane[] = {WEIR__SQ_LANE_LESS, WEIR__SQ_LANE_GONE};
    struct weir__sq_row row;
    int error = weir__sq_find_row(q, NULL, sequence, &row);
    if (!error)
        error = weir__sq_run(q, WEIR__SQ_REQUEST_GONE, WEIR__VALUES(WEIR__NUMBER(sequence)));
    if (!error)
        error = weir__sq_run(q, WEIR__SQ_PAYLOAD_GONE, WEIR__VALUES(WEIR__NUMBER(sequence)));
    for (int i = 0; i < 2 && !error; i++)
        error = weir__sq_run(q, of_lane[i], WEIR__VALUES(WEIR__NUMBER(row.lane)));
    if (!error)
        error = weir__sq_count(q, &row, WEIR__SQ_REMOVED);
    return error ? error : weir__sq_run(q, WEIR__SQ_RULE_LESS, WEIR__VALUES(WEIR__NUMBER(row.rule)));
}

/* Removes the oldest `most` of a kind that ended at `until_ms` or before. */
static int forget_oldest(struct weir__sq *q, int kind, int64_t until_ms, int64_t most)
{
    int64_t sequences[MOST];
    most = most < MOST ? most : MOST;
    int found = most <= 0
                    ? 0
                    : weir__sq_numbers(q, WEIR__SQ_OVER,
                                       WEIR__VALUES(WEIR__NUMBER(kind), WEIR__NUMBER(until_ms), WEIR__NUMBER(most)),
                                       sequences, (int)most);
    for (int i = 0; i < found; i++) {
        int error = forget(q, sequences[i]);
        if (error)
            return error;
    }
    return found;
}

static int forget_surplus(struct weir__sq *q)
{
    const struct weir__queue_options *options = &q->queue.options;
    struct weir__sq_totals totals;
    int error = weir__sq_read_totals(q, &totals), forgotten = 0;
    if (error)
        return error;
    int some = forget_oldest(q, 1, INT64_MAX, totals.ended - options->keep_max);
    forgotten = some;
    if (some >= 0)
        some = forget_oldest(q, 2, INT64_MAX, totals.dead - options->dead_max);
    forgotten += some;
    /* one by one, as sizes differ */
    for (int i = 0; i < MOST && some >= 0 && options->bounds.max_bytes > 0; i++) {
        some = weir__sq_read_totals(q, &totals);
        if (some < 0 || totals.dead_bytes <= options->bounds.max_bytes)
            break;
        some = forget_oldest(q, 2, INT64_MAX, 1);
        forgotten += some;
    }
    return some < 0 ? some : forgotten;
}

static int expire_all(struct weir__sq *q, int64_t now_ms)
{
    const struct weir__queue_options *options = &q->queue.options;
    int some[4];
    some[0] = expire_waiting(q, now_ms);
    some[1] = some[0] < 0 ? some[0] : forget_oldest(q, 1, now_ms - options->keep_ms, MOST);
    some[2] = some[1] < 0 ? some[1] : forget_oldest(q, 2, now_ms - options->dead_ms, MOST);
    some[3] = some[2] < 0 ? some[2] : forget_surplus(q);
    if (some[3] < 0)
        return some[3];
    int error = weir__sq_run(q, WEIR__SQ_RULES_GONE, NULL, 0);
    return error ? error : some[0] + some[1] + some[2] + some[3];
}

/* secure_delete overwrites removed requests with zeros, but the WAL keeps old pages until it is truncated. */
static void overwrite(struct weir__sq *q, int64_t now_ms)
{
    bool early = now_ms >= q->emptied_ms && now_ms - q->emptied_ms < OVERWRITE_MS;
    if (!early && weir__sq_empty_log(q))
        q->emptied_ms = now_ms;
}

int weir__sq_expire(struct weir__queue *queue, int64_t now_ms)
{
    struct weir__sq *q = weir__sq_of(queue);
    int error = weir__sq_sync(q);
    if (!error)
        error = weir__sq_write(q, false);
    int done = error ? error : weir__sq_end(q, expire_all(q, now_ms));
    if (done >= 0)
        overwrite(q, now_ms);
    return done;
}
