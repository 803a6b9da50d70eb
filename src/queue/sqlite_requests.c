/*
 * The calls of the SQLite storage: put, claim, changes, expiry, find, list, stats. Rules' stats and lanes' heads follow
 * by the triggers in sqlite.c.
 */
#include "queue/sqlite.h"

#include <stdlib.h>

static struct weir__queue_value number_or_null(int64_t value)
{
    return value ? WEIR__V(value) : (struct weir__queue_value){0};
}

/* The claimer's name, and the session that identifies its claims. */
#define CLAIMER(q) WEIR__V(weir__text_of((q)->queue.name)), WEIR__V((int64_t)(q)->queue.session)

/* The 16 bytes of a ticket, in `bits`. */
static struct weir__queue_value ticket_bits(const char *ticket, char bits[WEIR__TICKET_LEN / 2])
{
    for (int i = 0; i < WEIR__TICKET_LEN / 2; i++)
        bits[i] = (char)(weir__hex_value(ticket[2 * i]) * 16 + weir__hex_value(ticket[2 * i + 1]));
    return weir__of_bytes((weir_text){bits, WEIR__TICKET_LEN / 2});
}

/* Sums of all rules; live requests are waiting or under way. */
enum { LIVE, LIVE_BYTES, DEAD, DEAD_BYTES, ENDED, TOTALS };

static void read_totals(struct weir__sq *q, int64_t totals[TOTALS])
{
    weir__sq_numbers(q,
                     "SELECT total(waiting + under_way), total(bytes), total(dead), total(dead_bytes), total(ended)"
                     " FROM rule",
                     NULL, 0, totals, TOTALS);
}

/* ---- Put ---- */

/* Returns the id of the new row. */
static int64_t insert_row(struct weir__sq *q, const char *sql, const struct weir__queue_value *values, int count)
{
    weir__sq_run(q, sql, values, count);
    return sqlite3_last_insert_rowid(q->db);
}

/* 0, or FULL. */
static int put_one(struct weir__sq *q, struct weir__queue_put *put, int64_t totals[TOTALS])
{
    struct weir__deferred *item = &put->item;
    int64_t size = weir__deferred_bytes(item), rule[3]; /* id, requests, bytes */
    char bits[WEIR__TICKET_LEN / 2];
    weir__sq_numbers(q, "SELECT id, waiting + under_way, bytes FROM rule WHERE name = ?1",
                     WEIR__VALUES(WEIR__V(item->rule)), rule, 3);
    if (!weir__queue_fits(&q->queue.options.bounds, totals[LIVE], totals[LIVE_BYTES], size) ||
        !weir__queue_fits(&put->bounds, rule[1], rule[2], size))
        return WEIR__QUEUE_FULL;
    if (!rule[0])
        rule[0] = insert_row(q, "INSERT INTO rule(name) VALUES (?1)", WEIR__VALUES(WEIR__V(item->rule)));
    int64_t lane = 0;
    if (!weir__sq_numbers(q, "SELECT id FROM lane WHERE rule = ?1 AND key = ?2",
                          WEIR__VALUES(WEIR__V(rule[0]), WEIR__V(item->key)), &lane, 1))
        lane = insert_row(q, "INSERT INTO lane(rule, key, requests, busy, place) VALUES (?1, ?2, 0, 0, 0)",
                          WEIR__VALUES(WEIR__V(rule[0]), WEIR__V(item->key)));
    int64_t sequence = insert_row(
        q,
        "INSERT OR ROLLBACK INTO request(ticket, rule, lane, state, cost, attempts, status, bytes, accepted_ms, due_ms,"
        " expires_ms, ended_ms, method, target) VALUES (?1, ?2, ?3, 0, ?4, 0, 0, ?5, ?6, ?7, ?8, 0, ?9, ?10)",
        WEIR__VALUES(ticket_bits(item->ticket, bits), WEIR__V(rule[0]), WEIR__V(lane), WEIR__V(item->cost),
                     WEIR__V(size), WEIR__V(item->accepted_ms), WEIR__V(item->due_ms), WEIR__V(item->expires_ms),
                     WEIR__V(item->method), WEIR__V(item->target)));
    item->sequence = (uint64_t)sequence;
    weir__sq_run(q, "INSERT INTO payload(sequence, headers, body) VALUES (?1, ?2, ?3)",
                 WEIR__VALUES(WEIR__V(sequence), WEIR__V(item->headers), WEIR__V(item->body)));
    totals[LIVE]++;
    totals[LIVE_BYTES] += size;
    return 0;
}

static int put(struct weir__queue *queue, struct weir__queue_put **puts, size_t count)
{
    struct weir__sq *q = weir__sq_of(queue);
    /* first: its failure must not deny requests that are stored already */
    int error = weir__sq_sync(q);
    if (error || (error = weir__sq_write(q, true)) != 0)
        return error;
    int64_t totals[TOTALS];
    read_totals(q, totals);
    for (size_t i = 0; i < count && !q->error; i++)
        puts[i]->error = put_one(q, puts[i], totals);
    if (weir__sq_end(q))
        return q->error;
    /* again: the file may have been removed during the commit */
    return weir__sq_check_file(q) == WEIR__QUEUE_REMOVED ? WEIR__QUEUE_REMOVED : 0;
}

/* ---- Reading requests ---- */

#define COLUMNS                                                                                                        \
    "SELECT r.sequence, lower(hex(r.ticket)), u.name, l.key, r.cost, r.method, r.target, r.accepted_ms, r.due_ms,"     \
    " r.expires_ms, r.ended_ms, r.attempts, r.state, r.why, r.status, "
#define WITH_PAYLOAD                                                                                                   \
    COLUMNS "p.headers, p.body FROM request r JOIN lane l ON l.id = r.lane JOIN rule u ON u.id = r.rule"               \
            " LEFT JOIN payload p ON p.sequence = r.sequence WHERE "

static weir_text text_at(sqlite3_stmt *row, int column)
{
    const void *data = sqlite3_column_blob(row, column);
    int len = sqlite3_column_bytes(row, column);
    return data && len > 0 ? (weir_text){data, (size_t)len} : (weir_text){"", 0};
}

/* Calls `visit` with a row of COLUMNS and payload. */
static int visit_row(sqlite3_stmt *row, weir__deferred_visit *visit, void *context)
{
    struct weir__deferred item = {.sequence = (uint64_t)sqlite3_column_int64(row, 0),
                                  .rule = text_at(row, 2),
                                  .key = text_at(row, 3),
                                  .cost = sqlite3_column_int64(row, 4),
                                  .method = text_at(row, 5),
                                  .target = text_at(row, 6),
                                  .accepted_ms = sqlite3_column_int64(row, 7),
                                  .due_ms = sqlite3_column_int64(row, 8),
                                  .expires_ms = sqlite3_column_int64(row, 9),
                                  .ended_ms = sqlite3_column_int64(row, 10),
                                  .attempts = sqlite3_column_int(row, 11),
                                  .state = (enum weir__deferred_state)sqlite3_column_int(row, 12),
                                  .why = text_at(row, 13),
                                  .last_status = sqlite3_column_int(row, 14),
                                  .headers = text_at(row, 15),
                                  .body = text_at(row, 16)};
    weir_text ticket = text_at(row, 1);
    memcpy(item.ticket, ticket.data, ticket.len < WEIR__TICKET_LEN ? ticket.len : WEIR__TICKET_LEN);
    return visit(context, &item);
}

static int find(struct weir__queue *queue, const char *ticket, weir__deferred_visit *visit, void *context)
{
    struct weir__sq *q = weir__sq_of(queue);
    char bits[WEIR__TICKET_LEN / 2];
    weir__sq_check_file(q);
    sqlite3_stmt *row = weir__sq_first(q, WITH_PAYLOAD "r.ticket = ?1", WEIR__VALUES(ticket_bits(ticket, bits)));
    int result = row ? visit_row(row, visit, context) : WEIR__QUEUE_GONE;
    sqlite3_reset(row);
    return q->error ? q->error : result;
}

/* CROSS JOIN: reads requests in order, and their lanes and rules by id. ?3 is the state or -1, ?4 the rule or empty. */
#define LISTED                                                                                                         \
    COLUMNS "NULL, NULL FROM request r CROSS JOIN lane l ON l.id = r.lane CROSS JOIN rule u ON u.id = r.rule"          \
            " WHERE r.sequence > ?1 AND "
#define ONE_STATE "r.state = ?3 AND "
#define ANY_STATE "?3 < 0 AND "
#define ONE_RULE  "r.rule = (SELECT id FROM rule WHERE name = ?4) ORDER BY r.sequence LIMIT ?2"
#define ANY_RULE  "length(?4) = 0 ORDER BY r.sequence LIMIT ?2"

static int list(struct weir__queue *queue, const struct weir__queue_filter *filter, weir__deferred_visit *visit,
                void *context)
{
    static const char *const texts[2][2] = {{LISTED ANY_STATE ANY_RULE, LISTED ANY_STATE ONE_RULE},
                                            {LISTED ONE_STATE ANY_RULE, LISTED ONE_STATE ONE_RULE}};
    struct weir__sq *q = weir__sq_of(queue);
    int stop = 0;
    weir__sq_check_file(q);
    sqlite3_stmt *row = weir__sq_first(q, texts[filter->state >= 0][filter->rule.len > 0],
                                       WEIR__VALUES(WEIR__V((int64_t)filter->after), WEIR__V((int64_t)filter->limit),
                                                    WEIR__V(filter->state), WEIR__V(filter->rule)));
    while (row && (stop = visit_row(row, visit, context)) == 0)
        row = weir__sq_next(q, row);
    sqlite3_reset(row);
    return q->error ? q->error : stop;
}

static int stats(struct weir__queue *queue, weir__queue_stats_visit *visit, void *context)
{
    struct weir__sq *q = weir__sq_of(queue);
    int stop = 0;
    weir__sq_check_file(q);
    sqlite3_stmt *row = weir__sq_first(
        q,
        "SELECT name, waiting, under_way, dead, bytes, (SELECT accepted_ms FROM request WHERE sequence ="
        " (SELECT min(sequence) FROM request WHERE state = 0 AND rule = rule.id) OR sequence ="
        " (SELECT min(sequence) FROM request WHERE state = 1 AND rule = rule.id) ORDER BY sequence LIMIT 1)"
        " FROM rule WHERE waiting + under_way + dead > 0 ORDER BY name",
        NULL, 0);
    while (row && !stop) {
        stop = visit(context, &(struct weir__queue_stats){.rule = text_at(row, 0),
                                                          .waiting = sqlite3_column_int64(row, 1),
                                                          .under_way = sqlite3_column_int64(row, 2),
                                                          .dead = sqlite3_column_int64(row, 3),
                                                          .bytes = sqlite3_column_int64(row, 4),
                                                          .oldest_ms = sqlite3_column_int64(row, 5)});
        row = stop ? row : weir__sq_next(q, row);
    }
    sqlite3_reset(row);
    return q->error ? q->error : stop;
}

/* ---- Claims: the due heads of lanes, shared fairly among rules ---- */

#define RULES_MAX 256 /* considered by one claim: those with the oldest heads */
#define PROMOTED  128 /* lanes of a rule promoted by one claim */

#define RELEASE                                                                                                        \
    "UPDATE OR ROLLBACK request SET state = 0, until_ms = NULL, name = NULL, session = NULL WHERE state = 1 AND "

/* Claims that have ended: their requests wait again, with their old due_ms. */
static void release_ended(struct weir__sq *q, int64_t now_ms)
{
    if (!q->claimed) /* earlier claims under this name */
        weir__sq_run(q, RELEASE "name = ?1 AND session <> ?2", WEIR__VALUES(CLAIMER(q)));
    weir__sq_run(q, RELEASE "until_ms <= ?1", WEIR__VALUES(WEIR__V(now_ms)));
}

/* Due groups: those due the longest come first. */
#define DUE_GROUPS "(SELECT lane, grouped FROM aside WHERE due_ms BETWEEN ?1 AND ?2 ORDER BY due_ms LIMIT ?3)"
#define OLDEST_OF_GROUP                                                                                                \
    "(SELECT sequence FROM request INDEXED BY request_aside WHERE lane = aside.lane AND session = aside.grouped"       \
    " AND state = 0 ORDER BY sequence LIMIT 1)"

/*
 * Returns the oldest request of each due group to its lane. The group stays due, behind the other due ones; an empty
 * one is removed.
 */
static void bring_back(struct weir__sq *q, int64_t now_ms, int64_t from_ms, int64_t to_ms)
{
    const struct weir__queue_value values[] = {WEIR__V(from_ms), WEIR__V(to_ms), WEIR__V(WEIR__QUEUE_GROUPS),
                                               WEIR__V(now_ms)};
    weir__sq_run(q, "DELETE FROM aside WHERE (lane, grouped) IN " DUE_GROUPS " AND NOT EXISTS " OLDEST_OF_GROUP, values,
                 3);
    weir__sq_run(q,
                 "UPDATE OR ROLLBACK request SET session = NULL, due_ms = min(due_ms, ?4) WHERE sequence IN"
                 " (SELECT " OLDEST_OF_GROUP " FROM " DUE_GROUPS " AS aside)",
                 values, 4);
    weir__sq_run(q, "UPDATE aside SET due_ms = ?4 WHERE (lane, grouped) IN " DUE_GROUPS, values, 4);
}

/* A rule has a lane whose head is due, or due beyond ?2: the clock was set back. */
#define DUE                                                                                                            \
    "(EXISTS(SELECT 1 FROM lane INDEXED BY lane_later WHERE place = 1 AND rule = rule.id AND due_ms <= ?1) OR"         \
    " EXISTS(SELECT 1 FROM lane INDEXED BY lane_later WHERE place = 1 AND rule = rule.id AND due_ms > ?2))"
#define PROMOTE                                                                                                        \
    "UPDATE lane SET place = 2 WHERE id IN (SELECT id FROM lane INDEXED BY lane_later WHERE place = 1 AND rule = ?1"   \
    " AND due_ms "

/* Marks the lanes whose heads have become due. */
static void promote(struct weir__sq *q, const struct weir__claim_request *claim)
{
    int64_t rules[RULES_MAX];
    int found = 0;
    for (sqlite3_stmt *row =
             weir__sq_first(q, "SELECT id FROM rule WHERE " DUE " LIMIT ?3",
                            WEIR__VALUES(WEIR__V(claim->now_ms), WEIR__V(claim->ahead_ms), WEIR__V(RULES_MAX)));
         row; row = weir__sq_next(q, row))
        rules[found++] = sqlite3_column_int64(row, 0);
    for (int i = 0; i < found; i++) {
        weir__sq_run(q, PROMOTE "<= ?2 ORDER BY due_ms LIMIT ?3)",
                     WEIR__VALUES(WEIR__V(rules[i]), WEIR__V(claim->now_ms), WEIR__V(PROMOTED)));
        weir__sq_run(q, PROMOTE "> ?2 ORDER BY due_ms LIMIT ?3)",
                     WEIR__VALUES(WEIR__V(rules[i]), WEIR__V(claim->ahead_ms), WEIR__V(PROMOTED)));
    }
}

struct rule_share {
    int64_t rule, head; /* head 0: no further one */
    size_t in_flight;   /* of this handle */
};

#define HEAD "SELECT head FROM lane INDEXED BY lane_ready WHERE place = 2 AND rule = "

/* Reads the rules that have a due head; returns their number. */
static int read_shares(struct weir__sq *q, struct rule_share shares[RULES_MAX])
{
    int found = 0;
    for (sqlite3_stmt *row = weir__sq_first(
             q,
             "SELECT id, oldest, (SELECT count(*) FROM request WHERE state = 1 AND rule = id AND session = ?2)"
             " FROM (SELECT id, (" HEAD "u.id ORDER BY head LIMIT 1) AS oldest FROM rule u)"
             " WHERE oldest IS NOT NULL ORDER BY oldest LIMIT ?1",
             WEIR__VALUES(WEIR__V(RULES_MAX), WEIR__V((int64_t)q->queue.session)));
         row; row = weir__sq_next(q, row))
        shares[found++] = (struct rule_share){sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1),
                                              (size_t)sqlite3_column_int64(row, 2)};
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
    int found = 0, count = read_shares(q, shares);
    for (size_t left = claim->free; left > 0 && !q->error; left--) {
        share = next_share(shares, count, claim->fair, left);
        if (!share)
            break;
        if (weir__sq_run(q,
                         "UPDATE OR ROLLBACK request SET state = 1, name = ?1, session = ?2, until_ms = ?3"
                         " WHERE sequence = ?4 AND state = 0",
                         WEIR__VALUES(CLAIMER(q), WEIR__V(until_ms), WEIR__V(share->head))) != 1)
            q->error = q->error ? q->error : WEIR__QUEUE_BROKEN; /* the lane's head does not wait */
        sequences[found++] = share->head;
        share->in_flight++;
        (void)weir__sq_numbers(q, HEAD "?1 ORDER BY head LIMIT 1", WEIR__VALUES(WEIR__V(share->rule)), &share->head, 1);
    }
    return found;
}

static int by_number(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static int claim(struct weir__queue *queue, const struct weir__claim_request *claim, weir__deferred_visit *visit,
                 void *context)
{
    struct weir__sq *q = weir__sq_of(queue);
    int64_t sequences[WEIR__QUEUE_CLAIM_MAX], any = 1;
    weir__sq_check_file(q);
    if (q->claimed) /* a poll that finds nothing must not write */
        weir__sq_numbers(
            q,
            "SELECT EXISTS(SELECT 1 FROM lane INDEXED BY lane_ready WHERE place = 2) OR"
            " EXISTS(SELECT 1 FROM rule WHERE " DUE ") OR"
            " EXISTS(SELECT 1 FROM request WHERE state = 1 AND until_ms <= ?1) OR"
            " EXISTS(SELECT 1 FROM aside WHERE due_ms <= ?1) OR EXISTS(SELECT 1 FROM aside WHERE due_ms > ?2)",
            WEIR__VALUES(WEIR__V(claim->now_ms), WEIR__V(claim->ahead_ms)), &any, 1);
    if (q->error || !any || weir__sq_write(q, false))
        return q->error;
    release_ended(q, claim->now_ms);
    bring_back(q, claim->now_ms, INT64_MIN, claim->now_ms);
    if (claim->ahead_ms < INT64_MAX)
        bring_back(q, claim->now_ms, claim->ahead_ms + 1, INT64_MAX);
    promote(q, claim);
    int found = claim_ready(q, claim, sequences);
    if (weir__sq_end(q))
        return q->error;
    q->claimed = true;
    qsort(sequences, (size_t)found, sizeof *sequences, by_number);
    /* Claimed, so no other handle changes them; read one by one, so memory is bounded. */
    for (int i = 0; i < found; i++) {
        sqlite3_stmt *row = weir__sq_first(q, WITH_PAYLOAD "r.sequence = ?1 AND p.sequence IS NOT NULL",
                                           WEIR__VALUES(WEIR__V(sequences[i])));
        if (!row)
            return q->error ? q->error : WEIR__QUEUE_BROKEN;
        (void)visit_row(row, visit, context);
        sqlite3_reset(row);
    }
    return found;
}

/* ---- Changes ---- */

static int requeue(struct weir__sq *q, int64_t sequence, int64_t size, int64_t now_ms)
{
    int64_t totals[TOTALS];
    read_totals(q, totals);
    if (!weir__queue_fits(&q->queue.options.bounds, totals[LIVE], totals[LIVE_BYTES], size))
        return WEIR__QUEUE_FULL;
    weir__sq_run(
        q,
        "UPDATE OR ROLLBACK request SET state = 0, over = NULL, ended_ms = 0, due_ms = ?2, attempts = 0, expires_ms ="
        " CASE WHEN expires_ms < ?3 THEN ?2 + (expires_ms - accepted_ms) ELSE ?3 END WHERE sequence = ?1",
        WEIR__VALUES(WEIR__V(sequence), WEIR__V(now_ms), WEIR__V(INT64_MAX)));
    return 0;
}

/* 0, or an error of this request alone. */
static int change_one(struct weir__sq *q, const struct weir__queue_ending *ending, int64_t now_ms)
{
    enum { SEQUENCE, STATE, MINE, BYTES, ROW };
    int64_t row[ROW];
    char bits[WEIR__TICKET_LEN / 2];
    if (!weir__is_ticket(ending->ticket) ||
        !weir__sq_numbers(q, "SELECT sequence, state, name = ?1 AND session = ?2, bytes FROM request WHERE ticket = ?3",
                          WEIR__VALUES(CLAIMER(q), ticket_bits(ending->ticket, bits)), row, ROW))
        return WEIR__QUEUE_GONE;
    if (ending->kind == WEIR__ENDED_REQUEUED)
        return row[STATE] == WEIR__DEAD ? requeue(q, row[SEQUENCE], row[BYTES], now_ms) : WEIR__QUEUE_STATE;
    if (ending->kind == WEIR__ENDED_CANCELLED && row[STATE] != WEIR__WAITING && row[STATE] != WEIR__DEAD)
        return WEIR__QUEUE_STATE;
    if (ending->kind < WEIR__ENDED_CANCELLED && (row[STATE] != WEIR__UNDER_WAY || !row[MINE]))
        return WEIR__QUEUE_LOST;
    int over = ending->kind == WEIR__ENDED_DEAD ? 2 : ending->kind != WEIR__ENDED_RETRY;
    weir_text why = weir__ending_why(ending);
    weir__sq_run(q,
                 "UPDATE OR ROLLBACK request SET state = ?2, over = ?3, ended_ms = ?4, due_ms = coalesce(?5, due_ms),"
                 " attempts = attempts + ?6, status = coalesce(?7, status), why = CASE WHEN ?2 = 2 THEN ?8"
                 " ELSE coalesce(?8, why) END, until_ms = NULL, name = NULL, session = ?9 WHERE sequence = ?1",
                 WEIR__VALUES(WEIR__V(row[SEQUENCE]), WEIR__V(ending->kind), number_or_null(over),
                              WEIR__V(over ? now_ms : 0), number_or_null(ending->due_ms),
                              WEIR__V(ending->attempt_counts), number_or_null(ending->status),
                              why.len ? WEIR__V(why) : number_or_null(0), number_or_null((int64_t)ending->aside)));
    if (ending->aside)
        weir__sq_run(q,
                     "INSERT INTO aside(lane, grouped, due_ms) SELECT lane, ?2, ?3 FROM request WHERE sequence = ?1"
                     " ON CONFLICT(lane, grouped) DO UPDATE SET due_ms = ?3",
                     WEIR__VALUES(WEIR__V(row[SEQUENCE]), WEIR__V((int64_t)ending->aside), WEIR__V(ending->due_ms)));
    return 0;
}

static int change(struct weir__queue *queue, struct weir__queue_ending *endings, size_t count, int64_t now_ms)
{
    struct weir__sq *q = weir__sq_of(queue);
    /* A power failure may undo the record of a delivery: it is then delivered once more (at-least-once). */
    if (weir__sq_write(q, endings[0].kind >= WEIR__ENDED_CANCELLED))
        return q->error;
    for (size_t i = 0; i < count && !q->error; i++)
        endings[i].error = change_one(q, &endings[i], now_ms);
    return weir__sq_end(q);
}

/* ---- Expiry and retention ---- */

#define MOST         WEIR__QUEUE_EXPIRE_MAX
#define OVERWRITE_MS 60000

/* Removes the oldest `most` of a kind (request.over) that ended at `until_ms` or before; returns how many. */
static int forget_oldest(struct weir__sq *q, int kind, int64_t until_ms, int64_t most)
{
    return most <= 0 ? 0
                     : weir__sq_run(q,
                                    "DELETE FROM request WHERE sequence IN (SELECT sequence FROM request"
                                    " WHERE over = ?1 AND ended_ms <= ?2 ORDER BY ended_ms, sequence LIMIT ?3)",
                                    WEIR__VALUES(WEIR__V(kind), WEIR__V(until_ms), WEIR__V(most < MOST ? most : MOST)));
}

static int expire(struct weir__queue *queue, int64_t now_ms)
{
    struct weir__sq *q = weir__sq_of(queue);
    const struct weir__queue_options *options = &queue->options;
    int error = weir__sq_sync(q);
    if (error || (error = weir__sq_write(q, false)) != 0)
        return error;
    int done =
        weir__sq_run(q,
                     "UPDATE OR ROLLBACK request SET state = 3, over = 2, ended_ms = ?1, why = ?2, session = NULL"
                     " WHERE sequence IN (SELECT sequence FROM request INDEXED BY request_expires WHERE state = 0 AND "
                     "expires_ms <= ?1"
                     " ORDER BY expires_ms LIMIT ?3)",
                     WEIR__VALUES(WEIR__V(now_ms), WEIR__V(WEIR__TEXT("expired")), WEIR__V(MOST)));
    done += forget_oldest(q, 1, now_ms - options->keep_ms, MOST);
    done += forget_oldest(q, 2, now_ms - options->dead_ms, MOST);
    int64_t totals[TOTALS];
    read_totals(q, totals);
    done += forget_oldest(q, 1, INT64_MAX, totals[ENDED] - options->keep_max);
    done += forget_oldest(q, 2, INT64_MAX, totals[DEAD] - options->dead_max);
    /* one by one, as sizes differ */
    for (int i = 0; i < MOST && !q->error && options->bounds.max_bytes > 0; i++) {
        read_totals(q, totals);
        if (totals[DEAD_BYTES] <= options->bounds.max_bytes)
            break;
        done += forget_oldest(q, 2, INT64_MAX, 1);
    }
    weir__sq_run(q, "DELETE FROM rule WHERE requests = 0", NULL, 0);
    if (weir__sq_end(q))
        return q->error;
    /* secure_delete overwrites removed requests with zeros, but the WAL keeps old pages until it is truncated. */
    bool early = now_ms >= q->emptied_ms && now_ms - q->emptied_ms < OVERWRITE_MS;
    if (!early && weir__sq_empty_log(q))
        q->emptied_ms = now_ms;
    return done;
}

const struct weir__queue_calls weir__sq_calls = {.put = put,
                                                 .claim = claim,
                                                 .change = change,
                                                 .find = find,
                                                 .list = list,
                                                 .expire = expire,
                                                 .stats = stats,
                                                 .close = weir__sq_close};
