/* What time does to the requests in SQLite: too old ones die, what is over is forgotten. */
#include "queue/sqlite.h"

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
    bool dead = !error && row.state == WEIR__DEAD;
    if (!error)
        error = weir__sq_run(q, WEIR__SQ_REQUEST_GONE, WEIR__VALUES(WEIR__NUMBER(sequence)));
    if (!error)
        error = weir__sq_run(q, WEIR__SQ_PAYLOAD_GONE, WEIR__VALUES(WEIR__NUMBER(sequence)));
    for (int i = 0; i < 2 && !error; i++)
        error = weir__sq_run(q, of_lane[i], WEIR__VALUES(WEIR__NUMBER(row.lane)));
    if (!error)
        error =
            weir__sq_run(q, WEIR__SQ_RULE_MOVE,
                         WEIR__VALUES(WEIR__NUMBER(row.rule), WEIR__NUMBER(0), WEIR__NUMBER(0), WEIR__NUMBER(-dead),
                                      WEIR__NUMBER(dead - 1), WEIR__NUMBER(0), WEIR__NUMBER(dead ? -row.bytes : 0)));
    return error ? error : weir__sq_run(q, WEIR__SQ_RULE_LESS, WEIR__VALUES(WEIR__NUMBER(row.rule)));
}

/* The oldest `most` of a kind that ended at `until_ms` or before. */
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

struct totals {
    int64_t dead, dead_bytes, ended;
};

static int read_totals(struct weir__sq *q, struct totals *totals)
{
    int found = weir__sq_begin(q, WEIR__SQ_ALL, NULL, 0);
    if (found > 0)
        *totals = (struct totals){weir__sq_number(q, WEIR__SQ_ALL, 2), weir__sq_number(q, WEIR__SQ_ALL, 3),
                                  weir__sq_number(q, WEIR__SQ_ALL, 4)};
    weir__sq_done(q, WEIR__SQ_ALL);
    return found < 0 ? found : 0;
}

static int forget_surplus(struct weir__sq *q)
{
    const struct weir__queue_options *options = &q->queue.options;
    struct totals totals = {0};
    int error = read_totals(q, &totals), forgotten = 0;
    if (error)
        return error;
    int some = forget_oldest(q, 1, INT64_MAX, totals.ended - options->keep_max);
    forgotten = some;
    if (some >= 0)
        some = forget_oldest(q, 2, INT64_MAX, totals.dead - options->dead_max);
    forgotten += some;
    /* One by one: nobody knows which of them is large. */
    for (int i = 0; i < MOST && some >= 0 && options->bounds.max_bytes > 0; i++) {
        some = read_totals(q, &totals);
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

/* What is over is overwritten with zeros, but a log that is not full stays: with what was there, and with the zeros. */
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
