/* Claiming in SQLite: of each lane its head, if it is due. */
#include "queue/sqlite.h"

/* Requests whose claim has ended wait again; what they were due for has passed. */
static int release(struct weir__sq *q, const int64_t *sequences, int count)
{
    for (int i = 0; i < count; i++) {
        struct weir__sq_row row;
        struct weir__change change = {.kind = WEIR__CHANGE_AGAIN};
        int error = weir__sq_find_row(q, NULL, sequences[i], &row);
        if (!error)
            error = weir__sq_to_waiting(q, &row, &change);
        if (error)
            return error;
    }
    return 0;
}

static int release_ended(struct weir__sq *q, int64_t now_ms)
{
    int64_t sequences[WEIR__QUEUE_CLAIM_MAX];
    weir_text name = {q->queue.name, strlen(q->queue.name)};
    int found = WEIR__QUEUE_CLAIM_MAX, error = 0;
    /* All that were claimed under this name, and no more come to them: this ends. */
    while (!q->claimed && found == WEIR__QUEUE_CLAIM_MAX && !error) {
        found = weir__sq_numbers(q, WEIR__SQ_CLAIMS_OF,
                                 WEIR__VALUES(WEIR__BYTES(name), WEIR__NUMBER((int64_t)q->queue.session),
                                              WEIR__NUMBER(WEIR__QUEUE_CLAIM_MAX)),
                                 sequences, WEIR__QUEUE_CLAIM_MAX);
        error = found < 0 ? found : release(q, sequences, found);
    }
    if (error)
        return error;
    found = weir__sq_numbers(q, WEIR__SQ_CLAIMS_OVER,
                             WEIR__VALUES(WEIR__NUMBER(now_ms), WEIR__NUMBER(WEIR__QUEUE_CLAIM_MAX)), sequences,
                             WEIR__QUEUE_CLAIM_MAX);
    return found < 0 ? found : release(q, sequences, found);
}

static int claim_one(struct weir__sq *q, int64_t sequence, int64_t until_ms)
{
    struct weir__sq_row row;
    weir_text name = {q->queue.name, strlen(q->queue.name)};
    int error = weir__sq_find_row(q, NULL, sequence, &row);
    if (error)
        return error == WEIR__QUEUE_GONE ? WEIR__QUEUE_BROKEN : error;
    error = weir__sq_run(q, WEIR__SQ_CLAIM,
                         WEIR__VALUES(WEIR__NUMBER(sequence), WEIR__NUMBER(until_ms), WEIR__BYTES(name),
                                      WEIR__NUMBER((int64_t)q->queue.session)));
    if (!error)
        error = weir__sq_run(q, WEIR__SQ_LANE_BUSY, WEIR__VALUES(WEIR__NUMBER(row.lane)));
    if (!error)
        error = weir__sq_run(q, WEIR__SQ_RULE_MOVE,
                             WEIR__VALUES(WEIR__NUMBER(row.rule), WEIR__NUMBER(-1), WEIR__NUMBER(1), WEIR__NUMBER(0),
                                          WEIR__NUMBER(0), WEIR__NUMBER(0), WEIR__NUMBER(0)));
    return error;
}

/* How many were claimed, in `sequences`. */
static int claim_heads(struct weir__sq *q, int64_t now_ms, int64_t until_ms, int max, int64_t *sequences)
{
    int error = weir__sq_write(q, false);
    if (error)
        return error;
    error = release_ended(q, now_ms);
    if (!error)
        error = weir__sq_run(q, WEIR__SQ_PROMOTE, WEIR__VALUES(WEIR__NUMBER(now_ms)));
    int found = error ? error : weir__sq_numbers(q, WEIR__SQ_READY, WEIR__VALUES(WEIR__NUMBER(max)), sequences, max);
    for (int i = 0; i < found && !error; i++)
        error = claim_one(q, sequences[i], until_ms);
    found = weir__sq_end(q, error ? error : found);
    q->claimed |= found >= 0;
    return found;
}

/* A poll that finds nothing writes nothing. */
static int any_to_claim(struct weir__sq *q, int64_t now_ms)
{
    int64_t any = 0;
    int error = weir__sq_numbers(q, WEIR__SQ_ANY_TO_CLAIM, WEIR__VALUES(WEIR__NUMBER(now_ms)), &any, 1);
    return error < 0 ? error : any != 0;
}

int weir__sq_claim(struct weir__queue *queue, int64_t now_ms, int64_t claim_ms, size_t max, weir__deferred_visit *visit,
                   void *context)
{
    struct weir__sq *q = weir__sq_of(queue);
    int64_t sequences[WEIR__QUEUE_CLAIM_MAX];
    int64_t until_ms = claim_ms < INT64_MAX - now_ms ? now_ms + claim_ms : INT64_MAX;
    int any = q->claimed ? any_to_claim(q, now_ms) : 1;
    int found = any > 0 ? claim_heads(q, now_ms, until_ms, (int)max, sequences) : any;
    /* They are this handle's now, and nobody else touches them: one after the other is read, so memory is bounded. */
    for (int i = 0; i < found; i++) {
        struct weir__deferred item;
        int error = weir__sq_begin(q, WEIR__SQ_CLAIMED, WEIR__VALUES(WEIR__NUMBER(sequences[i])));
        if (error > 0) {
            weir__sq_read(q, WEIR__SQ_CLAIMED, &item);
            item.headers = weir__sq_bytes(q, WEIR__SQ_CLAIMED, 15);
            item.body = weir__sq_bytes(q, WEIR__SQ_CLAIMED, 16);
            (void)visit(context, &item);
        }
        weir__sq_done(q, WEIR__SQ_CLAIMED);
        if (error <= 0)
            return error < 0 ? error : WEIR__QUEUE_BROKEN;
    }
    return found;
}
