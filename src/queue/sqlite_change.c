/* What becomes of a request in SQLite: every change moves the stats with it, in the same transaction. */
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

/* ---- Moving ---- */

/* Takes it out of what its state counts (sign -1), or puts it in (1). */
static int count(struct weir__sq *q, const struct weir__sq_row *row, int state, int sign)
{
    bool lives = state == WEIR__WAITING || state == WEIR__UNDER_WAY, dead = state == WEIR__DEAD;
    return weir__sq_run(q, WEIR__SQ_RULE_MOVE,
                        WEIR__VALUES(WEIR__NUMBER(row->rule), WEIR__NUMBER(state == WEIR__WAITING ? sign : 0),
                                     WEIR__NUMBER(state == WEIR__UNDER_WAY ? sign : 0), WEIR__NUMBER(dead ? sign : 0),
                                     WEIR__NUMBER(!lives && !dead ? sign : 0),
                                     WEIR__NUMBER(lives ? sign * row->bytes : 0),
                                     WEIR__NUMBER(dead ? sign * row->bytes : 0)));
}

static int move(struct weir__sq *q, const struct weir__sq_row *row, int state)
{
    int error = count(q, row, row->state, -1);
    if (!error)
        error = count(q, row, state, 1);
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

/* ---- Back from the dead ---- */

static int has_room(struct weir__sq *q, int64_t bytes)
{
    const struct weir__queue_bounds *bounds = &q->queue.options.bounds;
    int found = weir__sq_begin(q, WEIR__SQ_ALL, NULL, 0);
    bool fits = found > 0 && (bounds->max <= 0 || weir__sq_number(q, WEIR__SQ_ALL, 0) < bounds->max) &&
                (bounds->max_bytes <= 0 || weir__sq_number(q, WEIR__SQ_ALL, 1) <= bounds->max_bytes - bytes);
    weir__sq_done(q, WEIR__SQ_ALL);
    return found < 0 ? found : fits ? 0 : WEIR__QUEUE_FULL;
}

static int requeue(struct weir__sq *q, const struct weir__sq_row *row, const struct weir__transition *change)
{
    int64_t age_ms = row->expires_ms - row->accepted_ms;
    int64_t expires_ms = row->expires_ms == INT64_MAX ? INT64_MAX : change->now_ms + age_ms;
    int error = has_room(q, row->bytes);
    if (!error)
        error = weir__sq_run(
            q, WEIR__SQ_REQUEUE,
            WEIR__VALUES(WEIR__NUMBER(row->sequence), WEIR__NUMBER(change->now_ms), WEIR__NUMBER(expires_ms)));
    return error ? error : move(q, row, WEIR__WAITING);
}

/* ---- Changes ---- */

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

/* These are of one request alone, and were found before anything of it was changed. */
static bool is_own(int error)
{
    return error == 0 || error == WEIR__QUEUE_GONE || error == WEIR__QUEUE_STATE || error == WEIR__QUEUE_LOST ||
           error == WEIR__QUEUE_FULL;
}

int weir__sq_change(struct weir__queue *queue, struct weir__transition *changes, size_t count)
{
    struct weir__sq *q = weir__sq_of(queue);
    /* What is forgotten of a delivery by a power failure is delivered once more, which is allowed. */
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
