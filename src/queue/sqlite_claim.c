/* Claims in SQLite: the due heads of lanes, shared fairly among rules. */
#include "queue/sqlite.h"

#include <stdlib.h>

/* Ends claims: the requests wait again, with their old due_ms. */
static void release(struct weir__sq *q, const int64_t *sequences, int count)
{
    const struct weir__transition change = {.kind = WEIR__TRANSITION_RETRY};
    for (int i = 0; i < count; i++) {
        struct weir__sq_row row = weir__sq_row_at(q, sequences[i]);
        weir__sq_to_waiting(q, &row, &change);
    }
}

static void release_ended(struct weir__sq *q, int64_t now_ms)
{
    enum { MOST = WEIR__QUEUE_CLAIM_MAX };
    int64_t sequences[MOST], session = (int64_t)q->queue.session;
    int found = MOST;
    /* Earlier claims under this name; no further ones are made, so the loop ends. */
    while (!q->claimed && found == MOST) {
        found = weir__sq_numbers(q, WEIR__SQ_CLAIMS_OF, WEIR__VALUES(weir__text_of(q->queue.name), session, MOST),
                                 sequences, MOST);
        release(q, sequences, found);
    }
    found = weir__sq_numbers(q, WEIR__SQ_CLAIMS_OVER, WEIR__VALUES(now_ms, MOST), sequences, MOST);
    release(q, sequences, found);
}

static void claim_one(struct weir__sq *q, int64_t sequence, int64_t until_ms)
{
    struct weir__sq_row row = weir__sq_row_at(q, sequence);
    weir__sq_run(q, WEIR__SQ_CLAIM,
                 WEIR__VALUES(sequence, until_ms, weir__text_of(q->queue.name), (int64_t)q->queue.session));
    weir__sq_run(q, WEIR__SQ_LANE_BUSY, WEIR__VALUES(row.lane));
    weir__sq_count(q, &row, WEIR__UNDER_WAY);
}

/* ---- Fair shares ---- */

#define RULES_MAX 256 /* considered by one claim: those with the oldest heads */
#define PROMOTED  64  /* lanes of a rule promoted by one claim, or its budget if that is larger */

struct rule_share {
    int64_t rule, head; /* head 0: no further one */
    size_t in_flight;
};

/* Marks the lanes whose heads have become due. */
static void promote(struct weir__sq *q, const struct weir__claim_request *claim)
{
    int64_t rules[RULES_MAX], most = claim->room.free > PROMOTED ? (int64_t)claim->room.free : PROMOTED;
    int found = weir__sq_numbers(q, WEIR__SQ_RULES_DUE, WEIR__VALUES(claim->now_ms, claim->ahead_ms, RULES_MAX), rules,
                                 RULES_MAX);
    for (int i = 0; i < found; i++) {
        weir__sq_run(q, WEIR__SQ_PROMOTE, WEIR__VALUES(rules[i], INT64_MIN, claim->now_ms, most));
        if (claim->ahead_ms < INT64_MAX)
            weir__sq_run(q, WEIR__SQ_PROMOTE, WEIR__VALUES(rules[i], claim->ahead_ms + 1, INT64_MAX, most));
    }
}

/* ---- Groups set aside ---- */

struct aside_group {
    int64_t lane, number;
};

/*
 * Returns the group's oldest request to its lane. The group stays due, behind the other due ones; an empty group is
 * removed.
 */
static void bring_back(struct weir__sq *q, const struct aside_group *group, int64_t now_ms)
{
    int64_t sequence;
    if (weir__sq_numbers(q, WEIR__SQ_ASIDE_FIRST, WEIR__VALUES(group->lane, group->number), &sequence, 1) == 0) {
        weir__sq_run(q, WEIR__SQ_ASIDE_GONE, WEIR__VALUES(group->lane, group->number));
        return;
    }
    weir__sq_run(q, WEIR__SQ_ASIDE_BACK, WEIR__VALUES(sequence, now_ms));
    weir__sq_run(q, WEIR__SQ_ASIDE_SET, WEIR__VALUES(group->lane, group->number, now_ms));
    weir__sq_lane_head(q, group->lane);
}

static void bring_back_span(struct weir__sq *q, int64_t now_ms, int64_t from_ms, int64_t to_ms)
{
    const enum weir__sq_statement which = WEIR__SQ_ASIDES_DUE;
    struct aside_group groups[WEIR__QUEUE_GROUPS];
    int found = 0;
    for (bool row = weir__sq_first(q, which, WEIR__VALUES(from_ms, to_ms, WEIR__QUEUE_GROUPS));
         row && found < WEIR__QUEUE_GROUPS; row = weir__sq_next(q, which))
        groups[found++] = (struct aside_group){weir__sq_number(q, which, 0), weir__sq_number(q, which, 1)};
    weir__sq_done(q, which);
    for (int i = 0; i < found; i++)
        bring_back(q, &groups[i], now_ms);
}

static void bring_back_due(struct weir__sq *q, const struct weir__claim_request *claim)
{
    bring_back_span(q, claim->now_ms, INT64_MIN, claim->now_ms);
    if (claim->ahead_ms < INT64_MAX)
        bring_back_span(q, claim->now_ms, claim->ahead_ms + 1, INT64_MAX);
}

static size_t in_flight_of(const struct weir__claim_budget *room, weir_text rule)
{
    for (size_t i = 0; i < room->in_flight_count; i++)
        if (weir__text_equal(room->in_flight[i].rule, rule))
            return room->in_flight[i].count;
    return 0;
}

/* Reads the rules that have a due head; returns their number. */
static int read_shares(struct weir__sq *q, const struct weir__claim_budget *room, struct rule_share shares[RULES_MAX])
{
    const enum weir__sq_statement which = WEIR__SQ_RULES_READY;
    int found = 0;
    for (bool row = weir__sq_first(q, which, WEIR__VALUES(RULES_MAX)); row && found < RULES_MAX;
         row = weir__sq_next(q, which))
        shares[found++] = (struct rule_share){.rule = weir__sq_number(q, which, 0),
                                              .head = weir__sq_number(q, which, 2),
                                              .in_flight = in_flight_of(room, weir__sq_bytes(q, which, 1))};
    weir__sq_done(q, which);
    return found;
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
    for (size_t left = claim->room.free; left > 0 && !q->error; left--) {
        share = next_share(shares, count, claim->room.fair, left);
        if (!share)
            break;
        claim_one(q, share->head, until_ms);
        sequences[found++] = share->head;
        share->in_flight++;
        share->head = 0;
        (void)weir__sq_numbers(q, WEIR__SQ_READY, WEIR__VALUES(share->rule), &share->head, 1);
    }
    return found;
}

static int by_number(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static int claim_heads(struct weir__sq *q, const struct weir__claim_request *claim, int64_t *sequences)
{
    if (weir__sq_write(q, false))
        return q->error;
    release_ended(q, claim->now_ms);
    bring_back_due(q, claim);
    promote(q, claim);
    int found = claim_ready(q, claim, sequences);
    if (weir__sq_end(q))
        return q->error;
    q->claimed = true;
    qsort(sequences, (size_t)found, sizeof *sequences, by_number);
    return found;
}

int weir__sq_claim(struct weir__queue *queue, const struct weir__claim_request *claim, weir__deferred_visit *visit,
                   void *context)
{
    struct weir__sq *q = weir__sq_of(queue);
    int64_t sequences[WEIR__QUEUE_CLAIM_MAX], any = 1;
    q->error = weir__sq_check_file(q);
    if (q->claimed) /* a poll that finds nothing must not write */
        (void)weir__sq_numbers(q, WEIR__SQ_ANY_TO_CLAIM, WEIR__VALUES(claim->now_ms, claim->ahead_ms), &any, 1);
    if (q->error || !any)
        return q->error;
    int found = claim_heads(q, claim, sequences);
    if (q->error)
        return q->error;
    /* Claimed, so no other handle changes them; read one by one, so memory is bounded. */
    for (int i = 0; i < found; i++) {
        struct weir__deferred item;
        bool there = weir__sq_first(q, WEIR__SQ_CLAIMED, WEIR__VALUES(sequences[i]));
        if (there) {
            weir__sq_read(q, WEIR__SQ_CLAIMED, &item);
            (void)visit(context, &item);
        }
        weir__sq_done(q, WEIR__SQ_CLAIMED);
        if (!there)
            return q->error ? q->error : WEIR__QUEUE_BROKEN;
    }
    return found;
}
