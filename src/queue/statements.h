/*
 * The queue's tables in SQLite, and everything that is said to them.
 *
 *   rule     one row a rule that has requests, with its stats: kept by every transaction that changes a request
 *   lane     one row a rule and key that has requests. Its place: 0 nothing to claim (nobody waits, or one is under
 *            way), 1 its head is not known to be due, 2 it is. With that a claim looks at heads alone, rule by rule
 *   request  one row a request, small, as it is written with every change
 *   payload  its headers and body, written once
 *   aside    one row a lane and group of it that waits aside: those requests have the group as their session, are no
 *            heads, and come back one by one, oldest first, from due_ms on
 *
 * state: enum weir__deferred_state. over: NULL as long as it waits or is under way, 1 delivered or cancelled, 2 dead.
 */
#ifndef WEIR_QUEUE_STATEMENTS_H
#define WEIR_QUEUE_STATEMENTS_H

#define WEIR__SQ_APPLICATION 1466252625 /* "Weiq" */
#define WEIR__SQ_VERSION     3
#define WEIR__SQ_QUOTED(x)   #x
#define WEIR__SQ_QUOTE(x)    WEIR__SQ_QUOTED(x)
#define WEIR__SQ_MARK                                                                                                  \
    "PRAGMA application_id = " WEIR__SQ_QUOTE(WEIR__SQ_APPLICATION) ";"                                                \
                                                                    "PRAGMA user_version = " WEIR__SQ_QUOTE(           \
                                                                        WEIR__SQ_VERSION) ";"

#define WEIR__SQ_LANE_INDEXES                                                                                          \
    "CREATE INDEX lane_later ON lane(rule, due_ms) WHERE place = 1;"                                                   \
    "CREATE INDEX lane_ready ON lane(rule, head) WHERE place = 2;"

/* In version 1 these were of all rules together. */
#define WEIR__SQ_FROM_1 "DROP INDEX lane_later; DROP INDEX lane_ready;" WEIR__SQ_LANE_INDEXES

#define WEIR__SQ_ASIDE_SCHEMA                                                                                          \
    "CREATE INDEX request_lane ON request(lane, sequence) WHERE state = 0 AND session IS NULL;"                        \
    "CREATE INDEX request_aside ON request(lane, session, sequence) WHERE state = 0 AND session IS NOT NULL;"          \
    "CREATE TABLE aside(lane INTEGER NOT NULL, grouped INTEGER NOT NULL, due_ms INTEGER NOT NULL,"                     \
    " PRIMARY KEY(lane, grouped)) WITHOUT ROWID;"                                                                      \
    "CREATE INDEX aside_due ON aside(due_ms);"

/* In version 2 nothing waited aside. */
#define WEIR__SQ_FROM_2 "DROP INDEX request_lane;" WEIR__SQ_ASIDE_SCHEMA

#define WEIR__SQ_SCHEMA                                                                                                \
    "CREATE TABLE rule(id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, requests INTEGER NOT NULL DEFAULT 0,"        \
    " waiting INTEGER NOT NULL DEFAULT 0, under_way INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0,"      \
    " ended INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, dead_bytes INTEGER NOT NULL DEFAULT 0);"     \
    "CREATE TABLE lane(id INTEGER PRIMARY KEY, rule INTEGER NOT NULL, key BLOB NOT NULL, requests INTEGER NOT NULL,"   \
    " busy INTEGER NOT NULL, head INTEGER, due_ms INTEGER, place INTEGER NOT NULL, UNIQUE(rule, "                      \
    "key));" WEIR__SQ_LANE_INDEXES                                                                                     \
    "CREATE TABLE request(sequence INTEGER PRIMARY KEY AUTOINCREMENT, ticket BLOB NOT NULL UNIQUE,"                    \
    " rule INTEGER NOT NULL, lane INTEGER NOT NULL, state INTEGER NOT NULL, over INTEGER, cost INTEGER NOT NULL,"      \
    " attempts INTEGER NOT NULL, status INTEGER NOT NULL, bytes INTEGER NOT NULL, accepted_ms INTEGER NOT NULL,"       \
    " due_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, until_ms INTEGER,"              \
    " name BLOB, session INTEGER, method BLOB NOT NULL, target BLOB NOT NULL, why BLOB);"                              \
    "CREATE INDEX request_state ON request(state, rule, sequence);"                                                    \
    "CREATE INDEX request_expires ON request(expires_ms) WHERE state = 0;"                                             \
    "CREATE INDEX request_until ON request(until_ms) WHERE state = 1;"                                                 \
    "CREATE INDEX request_over ON request(over, ended_ms, sequence) WHERE over IS NOT NULL;"                           \
    "CREATE TABLE payload(sequence INTEGER PRIMARY KEY, headers BLOB NOT NULL, body BLOB NOT "                         \
    "NULL);" WEIR__SQ_ASIDE_SCHEMA

#define WEIR__SQ_COLUMNS                                                                                               \
    "r.sequence, r.ticket, u.name, l.key, r.cost, r.method, r.target, r.accepted_ms, r.due_ms, r.expires_ms,"          \
    " r.ended_ms, r.attempts, r.state, r.why, r.status"
#define WEIR__SQ_FROM " FROM request r JOIN lane l ON l.id = r.lane JOIN rule u ON u.id = r.rule"
#define WEIR__SQ_LISTED                                                                                                \
    "SELECT " WEIR__SQ_COLUMNS " FROM request r CROSS JOIN lane l ON l.id = r.lane CROSS JOIN rule u ON u.id = r.rule" \
    " WHERE r.sequence > ?1"

/* Of a rule: a lane whose head is due, or due so late that the clock must have been set back (?2). */
#define WEIR__SQ_DUE                                                                                                   \
    "(EXISTS(SELECT 1 FROM lane INDEXED BY lane_later WHERE place = 1 AND rule = rule.id AND due_ms <= ?1) OR"         \
    " EXISTS(SELECT 1 FROM lane INDEXED BY lane_later WHERE place = 1 AND rule = rule.id AND due_ms > ?2))"
#define WEIR__SQ_HEAD "SELECT head FROM lane INDEXED BY lane_ready WHERE place = 2 AND rule = "

#define WEIR__SQ_STATEMENTS(X)                                                                                         \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                                        \
    X(COMMIT, "COMMIT")                                                                                                \
    X(ROLLBACK, "ROLLBACK")                                                                                            \
    /* Putting */                                                                                                      \
    X(ALL, "SELECT total(waiting + under_way), total(bytes), total(dead), total(dead_bytes), total(ended) FROM rule")  \
    X(RULE, "SELECT id, waiting + under_way, bytes FROM rule WHERE name = ?1")                                         \
    X(RULE_NEW, "INSERT INTO rule(name) VALUES (?1)")                                                                  \
    X(RULE_PUT, "UPDATE rule SET requests = requests + ?2, waiting = waiting + ?2, bytes = bytes + ?3 WHERE id = ?1")  \
    X(LANE, "SELECT id, busy, head FROM lane WHERE rule = ?1 AND key = ?2")                                            \
    X(LANE_NEW, "INSERT INTO lane(rule, key, requests, busy, place) VALUES (?1, ?2, 0, 0, 0)")                         \
    X(LANE_PUT, "UPDATE lane SET requests = requests + 1 WHERE id = ?1")                                               \
    X(REQUEST_NEW,                                                                                                     \
      "INSERT INTO request(ticket, rule, lane, state, cost, attempts, status, bytes, accepted_ms, due_ms, expires_ms," \
      " ended_ms, method, target) VALUES (?1, ?2, ?3, 0, ?4, 0, 0, ?5, ?6, ?7, ?8, 0, ?9, ?10)")                       \
    X(PAYLOAD_NEW, "INSERT INTO payload(sequence, headers, body) VALUES (?1, ?2, ?3)")                                 \
    /* Claiming */                                                                                                     \
    X(ANY_TO_CLAIM,                                                                                                    \
      "SELECT EXISTS(SELECT 1 FROM lane INDEXED BY lane_ready WHERE place = 2) OR EXISTS(SELECT 1 FROM rule "          \
      "WHERE " WEIR__SQ_DUE ") OR EXISTS(SELECT 1 FROM request WHERE state = 1 AND until_ms <= ?1) OR"                 \
      " EXISTS(SELECT 1 FROM aside WHERE due_ms <= ?1) OR EXISTS(SELECT 1 FROM aside WHERE due_ms > ?2)")              \
    X(CLAIMS_OF, "SELECT sequence FROM request WHERE state = 1 AND name = ?1 AND session <> ?2 LIMIT ?3")              \
    X(CLAIMS_OVER, "SELECT sequence FROM request WHERE state = 1 AND until_ms <= ?1 LIMIT ?2")                         \
    X(RULES_DUE, "SELECT id FROM rule WHERE " WEIR__SQ_DUE " LIMIT ?3")                                                \
    X(PROMOTE, "UPDATE lane SET place = 2 WHERE id IN (SELECT id FROM lane INDEXED BY lane_later WHERE place = 1"      \
               " AND rule = ?1 AND due_ms >= ?2 AND due_ms <= ?3 ORDER BY due_ms LIMIT ?4)")                           \
    X(RULES_READY, "SELECT id, name, oldest FROM (SELECT id, name, (" WEIR__SQ_HEAD "u.id ORDER BY head LIMIT 1)"      \
                   " AS oldest FROM rule u) WHERE oldest IS NOT NULL ORDER BY oldest LIMIT ?1")                        \
    X(READY, WEIR__SQ_HEAD "?1 ORDER BY head LIMIT 1")                                                                 \
    X(CLAIM, "UPDATE request SET state = 1, until_ms = ?2, name = ?3, session = ?4 WHERE sequence = ?1")               \
    X(LANE_BUSY, "UPDATE lane SET busy = 1, head = NULL, due_ms = NULL, place = 0 WHERE id = ?1")                      \
    X(LANE_FREE, "UPDATE lane SET busy = 0 WHERE id = ?1")                                                             \
    X(LANE_HEAD, "SELECT sequence, due_ms FROM request INDEXED BY request_lane WHERE lane = ?1 AND state = 0 AND"      \
                 " session IS NULL ORDER BY sequence LIMIT 1")                                                         \
    X(LANE_SET, "UPDATE lane SET head = ?2, due_ms = ?3, place = CASE WHEN ?2 IS NULL THEN 0 ELSE 1 END"               \
                " WHERE id = ?1 AND busy = 0")                                                                         \
    X(ASIDES_DUE, "SELECT lane, grouped FROM aside WHERE due_ms >= ?1 AND due_ms <= ?2 ORDER BY due_ms LIMIT ?3")      \
    X(ASIDE_FIRST, "SELECT sequence FROM request INDEXED BY request_aside WHERE lane = ?1 AND session = ?2 AND"        \
                   " state = 0 ORDER BY sequence LIMIT 1")                                                             \
    X(ASIDE_BACK, "UPDATE request SET session = NULL, due_ms = min(due_ms, ?2) WHERE sequence = ?1")                   \
    X(ASIDE_GONE, "DELETE FROM aside WHERE lane = ?1 AND grouped = ?2")                                                \
    X(CLAIMED, "SELECT " WEIR__SQ_COLUMNS ", p.headers, p.body" WEIR__SQ_FROM                                          \
               " JOIN payload p ON p.sequence = r.sequence WHERE r.sequence = ?1")                                     \
    /* Changing */                                                                                                     \
    X(ROW, "SELECT sequence, rule, lane, state, bytes, accepted_ms, expires_ms, name, session FROM request"            \
           " WHERE ticket = ?1")                                                                                       \
    X(ROW_AT, "SELECT sequence, rule, lane, state, bytes, accepted_ms, expires_ms, name, session FROM request"         \
              " WHERE sequence = ?1")                                                                                  \
    X(END, "UPDATE request SET state = ?2, over = ?3, ended_ms = ?4, attempts = attempts + ?5, status ="               \
           " CASE WHEN ?6 THEN ?6 ELSE status END, why = CASE WHEN ?2 = 2 THEN ?7 ELSE coalesce(?7, why) END,"         \
           " until_ms = NULL, name = NULL, session = NULL WHERE sequence = ?1")                                        \
    X(WAIT, "UPDATE request SET state = 0, over = NULL, ended_ms = 0, due_ms = coalesce(?2, due_ms),"                  \
            " attempts = attempts + ?3, status = CASE WHEN ?4 THEN ?4 ELSE status END, why = coalesce(?5, why),"       \
            " until_ms = NULL, name = NULL, session = NULL WHERE sequence = ?1")                                       \
    X(ASIDE, "UPDATE request SET session = ?2 WHERE sequence = ?1")                                                    \
    X(ASIDE_SET, "INSERT INTO aside(lane, grouped, due_ms) VALUES (?1, ?2, ?3)"                                        \
                 " ON CONFLICT(lane, grouped) DO UPDATE SET due_ms = ?3")                                              \
    X(REQUEUE, "UPDATE request SET state = 0, over = NULL, ended_ms = 0, due_ms = ?2, expires_ms = ?3, attempts = 0"   \
               " WHERE sequence = ?1")                                                                                 \
    X(PAYLOAD_GONE, "DELETE FROM payload WHERE sequence = ?1")                                                         \
    X(RULE_MOVE,                                                                                                       \
      "UPDATE rule SET waiting = waiting + ?2, under_way = under_way + ?3, dead = dead + ?4, ended = ended + ?5,"      \
      " bytes = bytes + ?6, dead_bytes = dead_bytes + ?7 WHERE id = ?1")                                               \
    /* Age */                                                                                                          \
    X(EXPIRED, "SELECT sequence FROM request WHERE state = 0 AND expires_ms <= ?1 ORDER BY expires_ms LIMIT ?2")       \
    X(OVER, "SELECT sequence FROM request WHERE over = ?1 AND ended_ms <= ?2 ORDER BY ended_ms, sequence LIMIT ?3")    \
    X(REQUEST_GONE, "DELETE FROM request WHERE sequence = ?1")                                                         \
    X(LANE_LESS, "UPDATE lane SET requests = requests - 1 WHERE id = ?1")                                              \
    X(LANE_GONE, "DELETE FROM lane WHERE id = ?1 AND requests = 0")                                                    \
    X(RULE_LESS, "UPDATE rule SET requests = requests - 1 WHERE id = ?1")                                              \
    X(RULES_GONE, "DELETE FROM rule WHERE requests = 0")                                                               \
    /* Looking */                                                                                                      \
    X(FIND, "SELECT " WEIR__SQ_COLUMNS ", p.headers, p.body" WEIR__SQ_FROM                                             \
            " LEFT JOIN payload p ON p.sequence = r.sequence WHERE r.ticket = ?1")                                     \
    X(LIST, WEIR__SQ_LISTED " ORDER BY r.sequence LIMIT ?2")                                                           \
    X(LIST_STATE, WEIR__SQ_LISTED " AND r.state = ?3 ORDER BY r.sequence LIMIT ?2")                                    \
    X(LIST_RULE, WEIR__SQ_LISTED " AND u.name = ?3 ORDER BY r.sequence LIMIT ?2")                                      \
    X(LIST_BOTH, WEIR__SQ_LISTED " AND r.rule = (SELECT id FROM rule WHERE name = ?3) AND r.state = ?4"                \
                                 " ORDER BY r.sequence LIMIT ?2")                                                      \
    X(STATS, "SELECT name, waiting, under_way, dead, bytes, (SELECT accepted_ms FROM request WHERE sequence ="         \
             " (SELECT min(sequence) FROM request WHERE state = 0 AND rule = rule.id) OR sequence ="                   \
             " (SELECT min(sequence) FROM request WHERE state = 1 AND rule = rule.id) ORDER BY sequence LIMIT 1)"      \
             " FROM rule WHERE waiting + under_way + dead > 0 ORDER BY name")

enum weir__sq_statement {
#define WEIR__SQ_ENUM(name, text) WEIR__SQ_##name,
    WEIR__SQ_STATEMENTS(WEIR__SQ_ENUM)
#undef WEIR__SQ_ENUM
        WEIR__SQ_COUNT
};

#endif
