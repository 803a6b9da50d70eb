/* Claims in SQLite: the due heads of lanes, shared fairly among rules. */
#include "queue/sqlite.h"

#include <stdlib.h>

/* Ends claims: the requests wait again, with their old due_ms. */
static int release(struct weir__sq *q, const int64_t *sequences, int count)
{
    for (int i = 0; i < count; i++) {
        struct weir__sq_row row;
        struct weir__transition change = {.kind = WEIR__TRANSITION_RETRY};
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
    weir_text name = weir__text_of(q->queue.name);
    int found = WEIR__QUEUE_CLAIM_MAX, error = 0;
    /* Earlier claims under this name; no further ones are made, so the loop ends. */
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
    weir_text name = weir__text_of(q->queue.name);
    int error = weir__sq_find_row(q, NULL, sequence, &row);
    if (error)
        return error == WEIR__QUEUE_GONE ? WEIR__QUEUE_BROKEN : error;
    error = weir__sq_run(q, WEIR__SQ_CLAIM,
                         WEIR__VALUES(WEIR__NUMBER(sequence), WEIR__NUMBER(until_ms), WEIR__BYTES(name),
                                      WEIR__NUMBER((int64_t)q->queue.session)));
    if (!error)
        error = weir__sq_run(q, WEIR__SQ_LANE_BUSY, WEIR__VALUES(WEIR__NUMBER(row.lane)));
    if (!error)
        error = weir__sq_count(q, &row, WEIR__UNDER_WAY);
    return error;
}

/* ---- Fair shares ---- */

#define RULES_MAX 256 /* considered by one claim: those with the oldest heads */
#define PROMOTED  64  /* lanes of a rule promoted by one claim, or its budget if that is larger */

struct rule_share {
    int64_t rule, head; /* head 0: no further one */
    size_t in_flight;
};

static int promote_span(struct weir__sq *q, const struct weir__claim_request *claim, int64_t rule, int64_t from_ms,
                        int64_t to_ms)
{
    int64_t most = claim->room.free > PROMOTED ? (int64_t)claim->room.free : PROMOTED;
    return weir__sq_run(
        q, WEIR__SQ_PROMOTE,
        WEIR__VALUES(WEIR__NUMBER(rule), WEIR__NUMBER(from_ms), WEIR__NUMBER(to_ms), WEIR__NUMBER(most)));
}

/* Marks the lanes whose heads have become due. */
static int promote(struct weir__sq *q, const struct weir__claim_request *claim)
{
    int64_t rules[RULES_MAX];
    int found = weir__sq_numbers(
        q, WEIR__SQ_RULES_DUE,
        WEIR__VALUES(WEIR__NUMBER(claim->now_ms), WEIR__NUMBER(claim->ahead_ms), WEIR__NUMBER(RULES_MAX)), rules,
        RULES_MAX);
    int error = found < 0 ? found : 0;
    for (int i = 0; i < found && !error; i++) {
        error = promote_span(q, claim, rules[i], INT64_MIN, claim->now_ms);
        if (!error && claim->ahead_ms < INT64_MAX)
            error = promote_span(q, claim, rules[i], claim->ahead_ms + 1, INT64_MAX);
    }
    return error;
}

/* ---- Groups set aside ---- */

struct aside_group {
    int64_t lane, number;
};

/*
 * Returns the group's oldest request to its lane. The group stays due, behind the other due ones; an empty group is
 * removed.
 */
static int bring_back(struct weir__sq *q, const struct aside_group *group, int64_t now_ms)
{
    struct weir__sq_value lane = WEIR__NUMBER(group->lane), number = WEIR__NUMBER(group->number);
    int64_t sequence;
    int found = weir__sq_numbers(q, WEIR__SQ_ASIDE_FIRST, WEIR__VALUES(lane, number), &sequence, 1);
    if (found < 0)
        return found;
    if (found == 0)
        return weir__sq_run(q, WEIR__SQ_ASIDE_GONE, WEIR__VALUES(lane, number));
    int error = weir__sq_run(q, WEIR__SQ_ASIDE_BACK, WEIR__VALUES(WEIR__NUMBER(sequence), WEIR__NUMBER(now_ms)));
    if (!error)
        error = weir__sq_run(q, WEIR__SQ_ASIDE_SET, WEIR__VALUES(lane, number, WEIR__NUMBER(now_ms)));
    return error ? error : weir__sq_lane_head(q, group->lane);
}

static int bring_back_span(struct weir__sq *q, int64_t now_ms, int64_t from_ms, int64_t to_ms)
{
    const enum weir__sq_statement which = WEIR__SQ_ASIDES_DUE;
    struct aside_group groups[WEIR__QUEUE_GROUPS];
    int found = 0, error = 0,
        more = weir__sq_begin(
            q, which, WEIR__VALUES(WEIR__NUMBER(from_ms), WEIR__NUMBER(to_ms), WEIR__NUMBER(WEIR__QUEUE_GROUPS)));
    for (; more > 0 && found < WEIR__QUEUE_GROUPS; more = weir__sq_next(q, which))
        groups[found++] = (struct aside_group){weir__sq_number(q, which, 0), weir__sq_number(q, which, 1)};
    weir__sq_done(q, which);
    for (int i = 0; i < found && more >= 0 && !error; i++)
        error = bring_back(q, &groups[i], now_ms);
    return more < 0 ? more : error;
}

static int bring_back_due(struct weir__sq *q, const struct weir__claim_request *claim)
{
    int error = bring_back_span(q, claim->now_ms, INT64_MIN, claim->now_ms);
    return error || claim->ahead_ms == INT64_MAX ? error
                                                 : bring_back_span(q, claim->now_ms, claim->ahead_ms + 1, INT64_MAX);
}

static size_t in_flight_of(const struct weir__claim_budget *room, weir_text rule)
{
    for (size_t i = 0; i < room->in_flight_count; i++)
        if (weir__text_equal(room->in_flight[i].rule, rule))
            return room->in_flight[i].count;
    return 0;
}

/* Reads the rules that have a due head; returns their number, or an error. */
static int read_shares(struct weir__sq *q, const struct weir__claim_budget *room, struct rule_share shares[RULES_MAX])
{
    const enum weir__sq_statement which = WEIR__SQ_RULES_READY;
    int found = 0, more = weir__sq_begin(q, which, WEIR__VALUES(WEIR__NUMBER(RULES_MAX)));
    for (; more > 0 && found < RULES_MAX; more = weir__sq_next(q, which))
        shares[found++] = (struct rule_share){.rule = weir__sq_number(q, which, 0),
                                              .head = weir__sq_number(q, which, 2),
                                              .in_flight = in_flight_of(room, weir__sq_bytes(q, which, 1))};
    weir__sq_done(q, which);
    return more < 0 ? more : found;
}

/* The rule with the fewest under way, then with the oldest head. NULL: no rule may get more. */
static struct rule_share *next_share(struct rule_share *shares, int count, bool fair, size_t left)
{
    struct rule_share *next = NULL;
    for (struct rule_share *share = shares; share < shares + count; share++) {
        if (!share->head || (fair && share->in_flight >= left))
            continue;
        if (!next || share->in_flight < next->in_flight ||
            (share->in_flight == next->in_flight && share->head < next->head))
            next = share;
    }
    return next;
}

/* Claims into `sequences`; returns how many. */
static int claim_ready(struct weir__sq *q, const struct weir__claim_request *claim, int64_t *sequences)
{
    struct rule_share shares[RULES_MAX], *share;
    int64_t until_ms = claim->claim_ms < INT64_MAX - claim->now_ms ? claim->now_ms + claim->claim_ms : INT64_MAX;
    int found = 0, count = read_shares(q, &claim->room, shares);
    for (size_t left = claim->room.free;
         left > 0 && count > 0 && (share = next_share(shares, count, claim->room.fair, left)) != NULL; left--) {
        int error = claim_one(q, share->head, until_ms);
        sequences[found++] = share->head;
        share->in_flight++;
        share->head = 0;
        int more = error
                       ? error
                       : weir__sq_numbers(q, WEIR__SQ_READY, WEIR__VALUES(WEIR__NUMBER(share->rule)), &share->head, 1);
        if (more < 0)
            return more;
    }
    return count < 0 ? count : found;
}

static int by_number(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static int claim_heads(struct weir__sq *q, const struct weir__claim_request *claim, int64_t *sequences)
{
    int error = weir__sq_write(q, false);
    if (error)
        return error;
    error = release_ended(q, claim->now_ms);
    if (!error)
        error = bring_back_due(q, claim);
    if (!error)
        error = promote(q, claim);
    int found = weir__sq_end(q, error ? error : claim_ready(q, claim, sequences));
    q->claimed |= found >= 0;
    if (found > 0)
        qsort(sequences, (size_t)found, sizeof *sequences, by_number);
    return found;
}

/* A poll that finds nothing must not write. */
static int any_to_claim(struct weir__sq *q, const struct weir__claim_request *claim)
{
    int64_t any = 0;
    int error = weir__sq_numbers(q, WEIR__SQ_ANY_TO_CLAIM,
                                 WEIR__VALUES(WEIR__NUMBER(claim->now_ms), WEIR__NUMBER(claim->ahead_ms)), &any, 1);
    return error < 0 ? error : any != 0;
}

int weir__sq_claim(struct weir__queue *queue, const struct weir__claim_request *claim, weir__deferred_visit *visit,
                   void *context)
{
    struct weir__sq *q = weir__sq_of(queue);
    int64_t sequences[WEIR__QUEUE_CLAIM_MAX];
    int gone = weir__sq_check_file(q);
    int any = gone ? gone : q->claimed ? any_to_claim(q, claim) : 1;
    int found = any > 0 ? claim_heads(q, claim, sequences) : any;
    /* Claimed, so no other handle changes them; read one by one, so memory is bounded. */
    for (int i = 0; i < found; i++) {
        struct weir__deferred item;
        int error = weir__sq_begin(q, WEIR__SQ_CLAIMED, WEIR__VALUES(WEIR__NUMBER(sequences[i])));
        if (error > 0) {
            weir__sq_read(q, WEIR__SQ_CLAIMED, &item);
            (void)visit(context, &item);
        }
        weir__sq_done(q, WEIR__SQ_CLAIMED);
        if (error <= 0)
            return error < 0 ? error : WEIR__QUEUE_BROKEN;
    }
    return found;
}
