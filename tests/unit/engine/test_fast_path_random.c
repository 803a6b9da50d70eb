/*
 * The fast path against the slow path: random rules and random requests to two engines on segments that are initially
 * equal to the byte. Afterwards these, the hot keys and the ledgers must still be equal, and so must all results.
 */
#include "base/clock.h"
#include "fast_path_rules.h"

#include "../../engine.h"

#include "engine/evaluation.h"
#include "engine/ledger.h"
#include "engine/fast_result.h"
#include "table/load_page.h"
#include "engine/hot_key_sampler.h"

#include <sched.h>

/* ---- Coverage ---- */

static int64_t fast_decided, by_several; /* requests decided on the fast path, and those of them under several rules */

static const weir *slow_engine; /* the one that takes the slow path only */

bool __real_weir__take_all_fast(const struct weir__request_ctx *ctx);
bool __wrap_weir__take_all_fast(const struct weir__request_ctx *ctx);

bool __wrap_weir__take_all_fast(const struct weir__request_ctx *ctx)
{
    if (ctx->engine == slow_engine)
        return false;
    bool taken = __real_weir__take_all_fast(ctx);
    fast_decided += taken;
    by_several += taken && ctx->count > 1;
    return taken;
}

/* ---- Pairs of engines ---- */

struct pair {
    weir *model, *engine;
};

static weir *open_one(const char *rules)
{
    weir_options how = {.segment = {.size = 1 << 18},
                        .rules_text = rules,
                        .flags = WEIR_NO_CONNECT,
                        .store = "redis://127.0.0.1:1",
                        .ledger = "",
                        .ledger_bytes = 1 << 18,
                        .hot = "",
                        .hot_bytes = 1 << 18,
                        .load = ""};
    weir *engine = NULL;
    return weir_open(&how, &engine) == 0 ? engine : NULL;
}

/* Their segments are equal to the byte initially, including the secrets. */
static bool open_pair(const char *rules, struct pair *pair)
{
    pair->model = open_one(rules);
    pair->engine = pair->model ? open_one(rules) : NULL;
    slow_engine = pair->model;
    if (!pair->engine)
        return false;
    memcpy(pair->engine->segment->mapped.memory, pair->model->segment->mapped.memory,
           pair->model->segment->mapped.bytes);
    return true;
}

static void close_pair(struct pair *pair)
{
    weir_close(pair->model);
    weir_close(pair->engine);
}

static bool same_memory(const struct weir__mapped *a, const struct weir__mapped *b)
{
    return a->bytes == b->bytes && memcmp(a->memory, b->memory, a->bytes) == 0;
}

/* Whether the two ledgers, which depend on the clock, have the same amounts. */
static bool same_ledgers(const struct weir__ledger *a, const struct weir__ledger *b)
{
    bool same = a->entries == b->entries;
    for (uint64_t i = 0; i < a->entries && same; i++) {
        struct weir__ledger_entry left, right;
        memset(&left, 0, sizeof left);
        memset(&right, 0, sizeof right);
        weir__ledger_read(a, i, &left);
        weir__ledger_read(b, i, &right);
        same = left.identity == right.identity && left.amount == right.amount && left.ready == right.ready &&
               (!left.ready || (left.text.rule == right.text.rule && left.text.tier == right.text.tier &&
                                left.text.key_len == right.text.key_len &&
                                memcmp(left.text.key, right.text.key, left.text.key_len) == 0));
    }
    return same;
}

static void compare_pair(const struct pair *pair)
{
    const weir *a = pair->model, *b = pair->engine;
    CHECK_EQ(memcmp(a->segment->mapped.memory, b->segment->mapped.memory, a->segment->mapped.bytes), 0);
    CHECK(same_memory(&a->hot_sampler.mapped, &b->hot_sampler.mapped));
    CHECK(same_ledgers(&a->deltas.ledger, &b->deltas.ledger));
    CHECK(memcmp(&a->unread_stats, &b->unread_stats, sizeof a->unread_stats) == 0);
    CHECK_EQ(a->regex_limited, b->regex_limited);
}

/* ---- Requests ---- */

struct request {
    const char *method, *host, *header, *query, *forwarded, *tier;
};

static bool lookup(void *context, enum weir_attribute_kind kind, weir_text name, weir_text *value)
{
    const struct request *r = context;
    const char *text = NULL;
    if (kind == WEIR_ATTR_METHOD)
        text = r->method;
    else if (kind == WEIR_ATTR_HOST)
        text = r->host;
    else if (kind == WEIR_ATTR_QUERY)
        text = r->query;
    else if (kind == WEIR_ATTR_HEADER)
        text = name.len == 3 ? r->header : name.len == 15 ? r->forwarded : NULL;
    else if (kind == WEIR_ATTR_NAMED)
        text = name.len == 4 ? r->tier : NULL;
    if (!text)
        return false;
    *value = (weir_text){text, strlen(text)};
    return true;
}

#define ONE_OF(seed, ...)                                                                                              \
    ((const char *const[]){__VA_ARGS__}[test_random(seed) % COUNT_OF(((const char *const[]){__VA_ARGS__}))])

/* A path in a separate allocation, so that a sanitizer detects an overrun. To be freed. */
static char *make_path(uint64_t *seed, size_t *len)
{
    static char text[8192];
    if (test_random(seed) % 2) {
        snprintf(text, sizeof text, "%s", ONE_OF(seed, "/a/b", "/api/items", "/x", "/y/1/2"));
    } else if (test_random(seed) % 2) {
        snprintf(text, sizeof text, "%s",
                 ONE_OF(seed, "/a/b", "/a/b/c", "/a", "/a/", "/api/items", "/api/items/7", "/api/", "/api", "/x", "/x/",
                        "/", "/y/1/2", "/longer-labels-than-one-step/z", "/a//", "/a//b", "//a", "/%41/x", "/%41"));
    } else if (test_random(seed) % 8 == 0) {
        snprintf(text, sizeof text, "%s", ONE_OF(seed, "", "*", "a", "a/b", "/a.php", "/A/b", "/a?b"));
    } else if (test_random(seed) % 8 == 0) {
        memset(text, 'p', sizeof text);
        memcpy(text, "/a/", 3);
        text[4094 + test_random(seed) % 5] = 0;
    } else {
        text[0] = 0;
        for (uint64_t i = test_random(seed) % 6; i > 0; i--) {
            size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "/%s",
                     ONE_OF(seed, "a", "b", "c", "api", "items", "x", "xyz", "", "y", "q.php"));
        }
    }
    *len = strlen(text);
    char *path = malloc(*len ? *len : 1);
    memcpy(path, text, *len);
    return path;
}

/* 4 bytes, the same as an IPv6 address, another IPv6 address, or none. To be freed. */
static uint8_t *make_peer(uint64_t *seed, size_t *len)
{
    uint8_t four[4] = {10, 0, 0, (uint8_t)(test_random(seed) % 6)}, six[16] = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 7};
    uint64_t kind = test_random(seed) % 32;
    if (kind == 0)
        return NULL;
    if (four[3] == 5)
        memset(four, (int)(255 - test_random(seed) % 2 * 155), sizeof four);
    if (kind < 3) {
        memset(six, 0, 10);
        six[10] = six[11] = 0xff;
        memcpy(six + 12, four, 4);
    }
    *len = kind < 4 ? 16 : 4;
    uint8_t *peer = malloc(*len);
    memcpy(peer, kind < 4 ? six : four, *len);
    return peer;
}

static weir_time move_on(uint64_t *seed, weir_time now)
{
    uint64_t kind = test_random(seed) % 64;
    int64_t step = kind == 0   ? (int64_t)(test_random(seed) % (uint64_t)WEIR_DAY)
                   : kind < 2  ? -(int64_t)(test_random(seed) % (uint64_t)WEIR_SECOND / 4)
                   : kind < 24 ? 0
                               : (int64_t)(test_random(seed) % (200 * 1000 * (uint64_t)WEIR_MICROSECOND));
    return (weir_time){now.mono_ns + step, now.wall_ns + step};
}

/* ---- Results ---- */

#define OUTCOMES 16

static bool same_outcomes(const weir_outcome *a, const weir_outcome *b)
{
    const weir_decision *x = &a->decision, *y = &b->decision;
    return x->verdict == y->verdict && x->flags == y->flags && x->limit == y->limit && x->remaining == y->remaining &&
           x->reset_after_ns == y->reset_after_ns && x->retry_after_ns == y->retry_after_ns &&
           x->delay_ns == y->delay_ns && a->reason == b->reason && a->error == b->error && a->shadow == b->shadow &&
           a->key_cut == b->key_cut && a->cost == b->cost && a->quota == b->quota &&
           a->effective_limit == b->effective_limit && a->window_ns == b->window_ns && a->unit == b->unit &&
           a->capacity == b->capacity && a->policy_window_ns == b->policy_window_ns &&
           a->effective_window_ns == b->effective_window_ns && strcmp(a->rule, b->rule) == 0 &&
           strcmp(a->key, b->key) == 0;
}

static void compare_results(const weir_result *a, const weir_outcome *of_a, const weir_result *b,
                            const weir_outcome *of_b)
{
    char left[WEIR_HEADER_ROOM], right[WEIR_HEADER_ROOM];
    uint16_t left_lens[WEIR_HEADER_COUNT], right_lens[WEIR_HEADER_COUNT];
    CHECK_EQ(a->decision.verdict, b->decision.verdict);
    CHECK_EQ(a->decision.delay_ns, b->decision.delay_ns);
    CHECK(same_outcomes(&a->decided_by, &b->decided_by));
    CHECK(a->matched == b->matched && a->outcomes == b->outcomes && a->shadow_denied == b->shadow_denied);
    CHECK(a->priority == b->priority && a->status == b->status && a->headers == b->headers && a->body == b->body);
    CHECK(a->on_limit == b->on_limit && a->message.len == b->message.len && a->body_text.len == b->body_text.len);
    for (size_t i = 0; i < a->outcomes && i < b->outcomes; i++)
        CHECK(same_outcomes(&of_a[i], &of_b[i]));
    size_t len = weir_result_header_values(a, of_a, left, left_lens);
    CHECK_EQ(weir_result_header_values(b, of_b, right, right_lens), len);
    CHECK(memcmp(left_lens, right_lens, sizeof left_lens) == 0 && memcmp(left, right, len) == 0);
}

/* Compares what a gateway keeps of either result. */
static void compare_fast(const weir_result *result, const weir_outcome *outcomes, const struct weir__fast_result *fast)
{
    char values[WEIR_HEADER_ROOM];
    uint16_t lens[WEIR_HEADER_COUNT] = {0};
    size_t len = fast->headers ? weir_result_header_values(result, outcomes, values, lens) : 0;
    const char *key = fast->text + fast->rule_len, *header_text = key + fast->key_len;
    CHECK_EQ(result->decision.verdict, WEIR_ALLOW);
    CHECK_EQ(result->decision.retry_after_ns, 0);
    CHECK(result->decided_by.reason == WEIR_BY_LIMIT && result->decided_by.error == 0);
    CHECK_EQ(fast->limit, result->decision.limit);
    CHECK_EQ(fast->remaining, result->decision.remaining);
    CHECK_EQ(result->outcomes, result->matched);
    CHECK_EQ(fast->rule_len, strlen(result->decided_by.rule));
    CHECK(memcmp(fast->text, result->decided_by.rule, fast->rule_len) == 0);
    CHECK_EQ(fast->key_len, result->decided_by.key_len);
    CHECK(memcmp(key, result->decided_by.key, fast->key_len) == 0);
    CHECK_EQ(fast->values_len, len);
    CHECK(memcmp(fast->lens, lens, sizeof lens) == 0);
    CHECK(fast->values_len == len && memcmp(header_text, values, len) == 0);
}

/* ---- Sequences of requests ---- */

struct contest {
    struct pair pair;
    uint64_t *seed;
    struct weir__second reset;
    weir_time now;
    int64_t fast_results;
    char rule[WEIR_NAME_MAX + 1], key[WEIR_KEY_SHOWN_MAX + 1]; /* of the last request that a rule decided */
};

static void end_permits(const struct contest *c, weir_permits *its, weir_permits *permits)
{
    CHECK_EQ(its->count, permits->count);
    if (test_random(c->seed) % 2)
        CHECK_EQ(weir_permits_release(c->pair.model, its), weir_permits_release(c->pair.engine, permits));
}

/* Sends heartbeats, so that no agent counts as silent, however slow the machine is. */
static void beat(const struct pair *pair)
{
    uint64_t now = weir__coarse_ms();
    weir__store64(&pair->model->deltas.ledger.header->heartbeat_ms, now);
    weir__store64(&pair->engine->deltas.ledger.header->heartbeat_ms, now);
}

static void check_both(struct contest *c, weir_query *query)
{
    static weir_outcome expected_of[OUTCOMES], of[OUTCOMES];
    static char text[2][8704];
    weir_permits its = {.count = 0}, permits = {.count = 0};
    weir_result expected, result;
    struct weir__fast_result fast = {.reset = &c->reset, .headers = test_random(c->seed) % 8 != 0};
    fast.text = malloc(WEIR__FAST_RESULT_BYTES);
    query->outcomes_max = OUTCOMES;
    query->text_size = sizeof text[0];

    beat(&c->pair);
    query->permits = &its;
    query->outcomes = expected_of;
    query->text = text[0];
    int error = weir_check(c->pair.model, query, &expected);
    query->permits = &permits;
    query->outcomes = of;
    query->text = text[1];
    CHECK_EQ(weir__check_fast(c->pair.engine, query, &result, &fast), error);
    if (!error && fast.filled)
        compare_fast(&expected, expected_of, &fast);
    else if (!error)
        compare_results(&expected, expected_of, &result, of);
    c->fast_results += fast.filled;
    if (!error && expected.decided_by.reason == WEIR_BY_LIMIT) {
        memcpy(c->rule, expected.decided_by.rule, sizeof c->rule);
        memcpy(c->key, expected.decided_by.key, sizeof c->key);
    }
    end_permits(c, &its, &permits);
    free(fast.text);
}

/* Changes by an operator, of the load, of the store's state, or a truncated segment, between two requests. */
static void interfere(struct contest *c)
{
    struct rules_text to = {.seed = c->seed};
    weir *both[] = {c->pair.model, c->pair.engine};
    struct weir__load_view view = weir__load_view_neutral();
    view.level = (uint32_t)draw(&to, 1200);
    view.throttle = (uint32_t)draw(&to, 1001);
    view.shed[WEIR_LOW] = (uint32_t)draw(&to, 1001);
    uint64_t kind = draw(&to, 5), lasts = draw(&to, 3) * (uint64_t)WEIR_SECOND, down = draw(&to, 2);
    for (size_t i = 0; i < 2; i++) {
        struct weir__ledger_header *header = both[i]->deltas.ledger.header;
        if (kind == 0) /* rules of several limits have another name here */
            (void)!weir_key_block(both[i], c->rule, c->key, strlen(c->key), (int64_t)lasts, c->now);
        if (kind == 3)
            (void)!weir_key_reset(both[i], c->rule, c->key, strlen(c->key), c->now);
        if (kind == 1)
            weir__load_page_write(both[i]->load, c->now.mono_ns, &view);
        weir__store32(&both[i]->segment->mapped.lost, kind == 4); /* until the next change */
        if (kind == 2)
            weir__store64(&header->state, down ? WEIR__LEDGER_DOWN : WEIR__LEDGER_UP);
    }
}

static void one_request(struct contest *c)
{
    uint64_t *seed = c->seed;
    size_t path_len, peer_len = 0;
    char *path = make_path(seed, &path_len);
    uint8_t *peer = make_peer(seed, &peer_len);
    struct request r = {.method = ONE_OF(seed, "GET", "POST", "get", NULL),
                        .host = ONE_OF(seed, "h.example", "other", NULL),
                        .header = ONE_OF(seed, "b", "3", "a%b", NULL),
                        .query = ONE_OF(seed, "q=1", "q=a%00b", "q=%25", "q=%0ax&r", NULL),
                        .forwarded = ONE_OF(seed, "192.0.2.1", "192.0.2.1, 10.0.0.2", "x", NULL),
                        .tier = ONE_OF(seed, "a", "b", NULL)};
    c->now = move_on(seed, c->now);
    weir_query query = {.lookup = lookup,
                        .lookup_context = &r,
                        .peer = peer,
                        .peer_len = peer_len,
                        .path = {path, path_len},
                        .now = c->now};
    query.has_cost = test_random(seed) % 24 == 0;
    query.cost = (int64_t)(test_random(seed) % 6) - 1;
    query.dry_run = test_random(seed) % 48 == 0;
    if (test_random(seed) % 128 == 0)
        interfere(c);
    check_both(c, &query);
    free(path);
    free(peer);
}

/* Both run on one processor: per-processor counters are compared, too. */
static void bind_to_one_processor(void)
{
    cpu_set_t here;
    int cpu = sched_getcpu();
    CPU_ZERO(&here);
    CPU_SET(cpu < 0 ? 0U : (unsigned)cpu, &here);
    CHECK_EQ(sched_setaffinity(0, sizeof here, &here), 0);
}

TEST(fast_and_slow_path_agree)
{
    uint64_t seed = 20261115;
    static struct rules_text rules;
    int64_t sets = test_scaled(800, 60), each = 500, refused = 0, checks = 0, fast_results = 0;
    rules.seed = &seed;
    bind_to_one_processor();
    for (int64_t i = 0; i < sets; i++) {
        struct contest c = {.seed = &seed, .now = test_seconds(0)};
        int before = test_failures;
        make_rules(&rules);
        if (!open_pair(rules.text, &c.pair)) {
            refused++; /* some combinations are invalid */
            continue;
        }
        for (int64_t k = 0; k < each; k++)
            one_request(&c);
        compare_pair(&c.pair);
        close_pair(&c.pair);
        checks += each;
        fast_results += c.fast_results;
        if (test_failures != before) {
            printf("  under these rules:\n%s", rules.text);
            break;
        }
    }
    if (getenv("WEIR_TEST_PRINT"))
        printf("  %lld sets, %lld refused; %lld checks, %lld fast results, %lld decided on the fast path, %lld by "
               "several\n",
               (long long)sets, (long long)refused, (long long)checks, (long long)fast_results, (long long)fast_decided,
               (long long)by_several);
    CHECK(refused < sets / 2);
    CHECK(fast_decided > checks / 10);
    CHECK(by_several > checks / 40);
    CHECK(fast_results > fast_decided + checks / 50);
}

TEST_MAIN
