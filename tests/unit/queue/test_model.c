/* The queue against a naive list: random operations in random order have the same results. */
#include "queues.h"

#define RULES    3
#define KEYS     4
#define GROUPS   3
#define MOST     20000
#define CLAIM_MS (10000 * HOUR) /* no claim ends, as the clock is simulated */

struct entry {
    char ticket[WEIR__TICKET_LEN + 1];
    int rule, key, attempts, status, body;
    int64_t bytes, accepted, due, expires, ended;
    uint64_t sequence;
    enum weir__deferred_state state;
    bool gone;
    int group; /* the group it waits in, aside; 0: none */
};

static struct entry entries[MOST];
static size_t entry_count;
static int64_t group_due[RULES][KEYS][GROUPS + 1];
static struct seen seen;
static struct weir__queue_options options = {.bounds = {.max = 24, .max_bytes = 20 * 1024, .max_age_ms = 50000},
                                             .keep_ms = 20000,
                                             .keep_max = 10,
                                             .dead_ms = 30000,
                                             .dead_max = 8};
static const struct weir__queue_bounds rule_bounds[RULES] = {
    {.max = 10, .max_bytes = 8192, .max_age_ms = 10000}, {.max = 12}, {.max_age_ms = 90000}};
static const char *const rule_names[RULES] = {"one", "two", "three"};
/* A careless concatenation of rule and key would make some of them equal. */
static const char *const key_names[KEYS] = {"", "a", "a:b", "e"};
static char body[1024];

static bool is_pending(const struct entry *e)
{
    return !e->gone && (e->state == WEIR__WAITING || e->state == WEIR__UNDER_WAY);
}

static void totals(int rule, int64_t *count, int64_t *bytes)
{
    *count = *bytes = 0;
    for (size_t i = 0; i < entry_count; i++)
        if (is_pending(&entries[i]) && (rule < 0 || entries[i].rule == rule)) {
            ++*count;
            *bytes += entries[i].bytes;
        }
}

static bool fits(const struct weir__queue_bounds *bounds, int rule, int64_t more)
{
    int64_t count, bytes;
    totals(rule, &count, &bytes);
    return (bounds->max == 0 || count + 1 <= bounds->max) &&
           (bounds->max_bytes == 0 || bytes + more <= bounds->max_bytes);
}

/* ---- Steps ---- */

static void put_some(struct weir__queue *queue, uint64_t *random)
{
    struct weir__deferred items[6];
    struct weir__queue_bounds bounds[6];
    int rules[6], keys[6], bodies[6], errors[6];
    size_t count = 1 + test_random(random) % 6;
    for (size_t i = 0; i < count; i++) {
        rules[i] = (int)(test_random(random) % RULES);
        keys[i] = (int)(test_random(random) % KEYS);
        bodies[i] = (int)(test_random(random) % 900);
        items[i] = item_of(rule_names[rules[i]], key_names[keys[i]], "");
        items[i].body = (weir_text){body, (size_t)bodies[i]};
        items[i].cost = (int64_t)(test_random(random) % 5);
        items[i].due_ms = test_random(random) % 3 == 0 ? clock_now + (int64_t)(test_random(random) % 4000) : 0;
        bounds[i] = rule_bounds[rules[i]];
    }
    CHECK_EQ(put_all(queue, items, bounds, errors, count), 0);
    for (size_t i = 0; i < count; i++) {
        int64_t bytes = weir__deferred_bytes(&items[i]);
        bool fit = fits(&options.bounds, -1, bytes) && fits(&rule_bounds[rules[i]], rules[i], bytes);
        CHECK_EQ(errors[i], fit ? 0 : WEIR__QUEUE_FULL);
        if (!fit || entry_count == MOST)
            continue;
        int64_t age = rule_bounds[rules[i]].max_age_ms;
        age = age && age < options.bounds.max_age_ms ? age : options.bounds.max_age_ms;
        struct entry *e = &entries[entry_count++];
        *e = (struct entry){.rule = rules[i],
                            .key = keys[i],
                            .body = bodies[i],
                            .bytes = bytes,
                            .accepted = clock_now,
                            .due = items[i].due_ms,
                            .expires = clock_now + age,
                            .sequence = items[i].sequence};
        memcpy(e->ticket, items[i].ticket, sizeof e->ticket);
        CHECK_EQ(items[i].expires_ms, e->expires);
        CHECK(entry_count < 2 || e->sequence > e[-1].sequence);
    }
}

/* The request that can be claimed of a rule and key; NULL: none. */
static struct entry *head_of(int rule, int key)
{
    struct entry *head = NULL;
    for (size_t i = 0; i < entry_count; i++) {
        struct entry *e = &entries[i];
        if (e->gone || e->rule != rule || e->key != key)
            continue;
        if (e->state == WEIR__UNDER_WAY)
            return NULL;
        if (e->state == WEIR__WAITING && !e->group && !head)
            head = e;
    }
    /* So far in the future that it was set by a clock that has been set back since. */
    return head && (head->due <= clock_now || head->due > clock_now + WEIR__QUEUE_AHEAD_MS) ? head : NULL;
}

/* The oldest request of each group that is due, or due by a clock that has been set back, is no longer aside. */
static void end_aside_groups(void)
{
    for (int rule = 0; rule < RULES; rule++)
        for (int key = 0; key < KEYS; key++)
            for (int group = 1; group <= GROUPS; group++) {
                int64_t *due = &group_due[rule][key][group];
                if (*due > clock_now && *due <= clock_now + WEIR__QUEUE_AHEAD_MS)
                    continue;
                struct entry *e = entries, *end = entries + entry_count;
                while (e < end &&
                       (e->gone || e->state != WEIR__WAITING || e->rule != rule || e->key != key || e->group != group))
                    e++;
                if (e == end)
                    continue;
                e->group = 0;
                e->due = e->due < clock_now ? e->due : clock_now;
                *due = clock_now;
            }
}

/* The next to be claimed: the oldest head of the rule that has the fewest in flight; NULL: none. */
static struct entry *next_head(const size_t *has, bool fair, size_t left, const bool *taken)
{
    struct entry *next = NULL;
    for (size_t i = 0; i < entry_count; i++) {
        struct entry *e = &entries[i];
        if (e->gone || taken[i] || head_of(e->rule, e->key) != e || (fair && has[e->rule] >= left))
            continue;
        if (!next || has[e->rule] < has[next->rule])
            next = e;
    }
    return next;
}

/* The requests that a claim gets, in order of acceptance. */
static size_t share_out(const struct weir__claim_request *room, struct entry **heads)
{
    static bool taken[MOST];
    struct entry *next;
    size_t count = 0, has[RULES] = {0};
    for (size_t i = 0; i < entry_count; i++)
        has[entries[i].rule] += !entries[i].gone && entries[i].state == WEIR__UNDER_WAY;
    memset(taken, 0, sizeof taken);
    for (size_t left = room->free; left > 0 && (next = next_head(has, room->fair, left, taken)) != NULL; left--) {
        taken[next - entries] = true;
        has[next->rule]++;
    }
    for (size_t i = 0; i < entry_count; i++)
        if (taken[i])
            heads[count++] = &entries[i];
    return count;
}

static void claim(struct weir__queue *queue, uint64_t *random)
{
    struct entry *heads[RULES * KEYS];
    struct weir__claim_request room = {.now_ms = clock_now,
                                       .claim_ms = CLAIM_MS,
                                       .free = 1 + test_random(random) % 8,
                                       .fair = test_random(random) % 2 == 0};
    end_aside_groups();
    size_t count = share_out(&room, heads);
    seen.count = 0;
    CHECK_EQ(weir__queue_claim(queue, &room, see, &seen), count);
    CHECK_EQ(seen.count, count);
    for (size_t i = 0; i < count && i < seen.count; i++) {
        struct weir__deferred *item = &seen.items[i];
        CHECK(strcmp(item->ticket, heads[i]->ticket) == 0);
        CHECK_EQ(item->state, WEIR__UNDER_WAY);
        CHECK_EQ(item->body.len, heads[i]->body);
        CHECK(text_is(item->headers, "Content-Type: text/plain\r\n"));
        CHECK(text_is(item->key, key_names[heads[i]->key]));
        heads[i]->state = WEIR__UNDER_WAY;
    }
}

static struct entry *any(uint64_t *random, enum weir__deferred_state wanted)
{
    struct entry *found = NULL;
    size_t first = entry_count > 300 ? entry_count - 300 : 0;
    for (int tries = 0; tries < 40 && entry_count > 0 && !(found && found->state == wanted && !found->gone); tries++)
        found = &entries[first + test_random(random) % (entry_count - first)];
    return found;
}

static void end(struct entry *e, enum weir__deferred_state state)
{
    e->state = state;
    e->ended = clock_now;
    e->group = 0;
}

/* Delivered, retried or dead; occasionally for a request that is not claimed. */
static void finish(struct weir__queue *queue, uint64_t *random)
{
    struct entry *e = any(random, WEIR__UNDER_WAY);
    if (!e)
        return;
    int expected = e->gone ? WEIR__QUEUE_GONE : e->state != WEIR__UNDER_WAY ? WEIR__QUEUE_LOST : 0;
    int64_t due = clock_now + (int64_t)(test_random(random) % 3000);
    bool counts = test_random(random) % 2 == 0;
    int group = 1 + (int)(test_random(random) % GROUPS);
    switch (test_random(random) % 4) {
    case 3:
        CHECK_EQ(end_aside(queue, e->ticket, due, (uint64_t)group << 62 | 1), expected);
        if (!expected) {
            e->state = WEIR__WAITING;
            e->due = group_due[e->rule][e->key][group] = due;
            e->group = group;
        }
        break;
    case 0:
        CHECK_EQ(end_delivered(queue, e->ticket, 200), expected);
        if (!expected) {
            e->attempts++;
            e->status = 200;
            end(e, WEIR__DELIVERED);
        }
        break;
    case 1:
        CHECK_EQ(end_again(queue, e->ticket, due, "busy", 503, counts), expected);
        if (!expected) {
            e->state = WEIR__WAITING;
            e->due = due;
            e->attempts += counts;
            e->status = 503;
        }
        break;
    default:
        CHECK_EQ(end_dead(queue, e->ticket, "tired", 0), expected);
        if (!expected) {
            e->attempts++;
            end(e, WEIR__DEAD);
        }
    }
}

static void cancel(struct weir__queue *queue, uint64_t *random)
{
    struct entry *e = any(random, WEIR__WAITING);
    if (!e)
        return;
    bool can = e->state == WEIR__WAITING || e->state == WEIR__DEAD;
    CHECK_EQ(weir__queue_change(queue, e->ticket, WEIR__ENDED_CANCELLED), e->gone ? WEIR__QUEUE_GONE
                                                                          : can   ? 0
                                                                                  : WEIR__QUEUE_STATE);
    if (!e->gone && can)
        end(e, WEIR__CANCELLED);
}

static void requeue(struct weir__queue *queue, uint64_t *random)
{
    struct entry *e = any(random, WEIR__DEAD);
    if (!e)
        return;
    int expected = e->gone                                ? WEIR__QUEUE_GONE
                   : e->state != WEIR__DEAD               ? WEIR__QUEUE_STATE
                   : !fits(&options.bounds, -1, e->bytes) ? WEIR__QUEUE_FULL
                                                          : 0;
    CHECK_EQ(weir__queue_change(queue, e->ticket, WEIR__ENDED_REQUEUED), expected);
    if (expected)
        return;
    e->expires = clock_now + (e->expires - e->accepted);
    e->state = WEIR__WAITING;
    e->due = clock_now;
    e->ended = 0;
    e->attempts = 0;
}

/* The oldest finished request is removed first; those that ended together in the order of acceptance. */
static struct entry *oldest(bool dead)
{
    struct entry *found = NULL;
    for (size_t i = 0; i < entry_count; i++) {
        struct entry *e = &entries[i];
        if (!e->gone && !is_pending(e) && (e->state == WEIR__DEAD) == dead && (!found || e->ended < found->ended))
            found = e;
    }
    return found;
}

static void forget(bool dead, int64_t keep_ms, int64_t keep_max, int64_t keep_bytes)
{
    for (;;) {
        int64_t count = 0, bytes = 0;
        for (size_t i = 0; i < entry_count; i++)
            if (!entries[i].gone && !is_pending(&entries[i]) && (entries[i].state == WEIR__DEAD) == dead) {
                count++;
                bytes += entries[i].bytes;
            }
        struct entry *e = oldest(dead);
        if (!e || (e->ended > clock_now - keep_ms && count <= keep_max && bytes <= keep_bytes))
            return;
        e->gone = true;
    }
}

static void expire(struct weir__queue *queue)
{
    CHECK(weir__queue_expire(queue, clock_now) >= 0);
    for (size_t i = 0; i < entry_count; i++)
        if (!entries[i].gone && entries[i].state == WEIR__WAITING && entries[i].expires <= clock_now)
            end(&entries[i], WEIR__DEAD);
    forget(false, options.keep_ms, options.keep_max, INT64_MAX);
    forget(true, options.dead_ms, options.dead_max, options.bounds.max_bytes);
}

/* ---- Comparing ---- */

static int stats_of(void *context, const struct weir__queue_stats *stats)
{
    struct weir__queue_stats *all = context;
    for (int i = 0; i < RULES; i++)
        if (text_is(stats->rule, rule_names[i]))
            all[i] = *stats;
    return 0;
}

static void compare_stats(struct weir__queue *queue)
{
    struct weir__queue_stats got[RULES] = {0}, expected[RULES] = {0};
    CHECK_EQ(weir__queue_stats(queue, stats_of, got), 0);
    for (size_t i = 0; i < entry_count; i++) {
        const struct entry *e = &entries[i];
        if (e->gone)
            continue;
        struct weir__queue_stats *f = &expected[e->rule];
        f->waiting += e->state == WEIR__WAITING;
        f->under_way += e->state == WEIR__UNDER_WAY;
        f->dead += e->state == WEIR__DEAD;
        f->bytes += is_pending(e) ? e->bytes : 0;
        if (is_pending(e) && f->oldest_ms == 0)
            f->oldest_ms = e->accepted;
    }
    for (int i = 0; i < RULES; i++) {
        CHECK_EQ(got[i].waiting, expected[i].waiting);
        CHECK_EQ(got[i].under_way, expected[i].under_way);
        CHECK_EQ(got[i].dead, expected[i].dead);
        CHECK_EQ(got[i].bytes, expected[i].bytes);
        CHECK_EQ(got[i].oldest_ms, expected[i].oldest_ms);
    }
}

static void compare_list(struct weir__queue *queue, uint64_t *random)
{
    int rule = (int)(test_random(random) % (RULES + 1)) - 1;
    struct weir__queue_filter filter = {.state = (int)(test_random(random) % 6) - 1,
                                        .limit = 1 + test_random(random) % 40};
    filter.rule = rule < 0 ? (weir_text){0} : text_of(rule_names[rule]);
    size_t from = entry_count > 60 ? entry_count - test_random(random) % 60 - 1 : 0;
    filter.after = entry_count > 0 ? entries[from].sequence : 0;
    seen.count = 0;
    CHECK_EQ(weir__queue_list(queue, &filter, see, &seen), 0);
    size_t at = 0;
    for (size_t i = 0; i < entry_count && at < filter.limit; i++) {
        const struct entry *e = &entries[i];
        if (e->gone || e->sequence <= filter.after || (rule >= 0 && e->rule != rule) ||
            (filter.state >= 0 && (int)e->state != filter.state))
            continue;
        const struct weir__deferred *item = &seen.items[at];
        CHECK(at < seen.count);
        if (at++ >= seen.count)
            break;
        CHECK_EQ(item->sequence, e->sequence);
        CHECK_EQ(item->state, e->state);
        CHECK_EQ(item->attempts, e->attempts);
        CHECK_EQ(item->last_status, e->status);
        CHECK_EQ(item->accepted_ms, e->accepted);
        CHECK_EQ(item->due_ms, e->due);
        CHECK_EQ(item->expires_ms, e->expires);
        CHECK_EQ(item->ended_ms, e->ended);
        CHECK(text_is(item->rule, rule_names[e->rule]) && text_is(item->key, key_names[e->key]));
        CHECK(text_is(item->target, "/orders") && item->body.len == 0);
    }
    CHECK_EQ(seen.count, at);
}

/* A new handle under the same name: at its first claim, the claimed requests wait again. */
static void restart(const struct place *place, struct weir__queue **queue, uint64_t *random)
{
    weir__queue_close(*queue);
    *queue = place_open(place, options);
    for (size_t i = 0; i < entry_count; i++)
        if (!entries[i].gone && entries[i].state == WEIR__UNDER_WAY)
            entries[i].state = WEIR__WAITING;
    claim(*queue, random);
}

static void step(const struct place *place, struct weir__queue **queue, uint64_t *random)
{
    clock_now += 1 + (int64_t)(test_random(random) % 400);
    switch (test_random(random) % 16) {
    case 0:
    case 1:
    case 2:
        put_some(*queue, random);
        break;
    case 3:
    case 4:
    case 5:
        claim(*queue, random);
        break;
    case 6:
    case 7:
    case 8:
    case 9:
        finish(*queue, random);
        break;
    case 10:
        cancel(*queue, random);
        break;
    case 11:
        requeue(*queue, random);
        break;
    case 12:
        expire(*queue);
        break;
    case 13:
        compare_stats(*queue);
        break;
    case 14:
        compare_list(*queue, random);
        break;
    default:
        if (test_random(random) % 10 == 0)
            restart(place, queue, random);
        else if (test_random(random) % 10 == 0)
            clock_now += (test_random(random) % 2 ? HOUR : -HOUR);
    }
}

BOTH(random_operations_agree_with_the_model)
{
    int64_t rounds = test_scaled(6, 1), steps = test_scaled(3000, 300);
    for (uint64_t round = 0; round < (uint64_t)rounds && test_failures == 0; round++) {
        struct place place;
        uint64_t random = round * 977 + 5;
        place_new(&place, on_redis, true);
        struct weir__queue *queue = place_open(&place, options);
        entry_count = 0;
        for (int64_t i = 0; i < steps && test_failures == 0; i++)
            step(&place, &queue, &random);
        expire(queue);
        compare_stats(queue);
        weir__queue_close(queue);
        place_end(&place);
        if (test_failures)
            printf("  round %d of the model failed\n", (int)round);
    }
}

TEST_MAIN
