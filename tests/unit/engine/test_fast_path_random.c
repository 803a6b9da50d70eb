/*
 * The quick way against the long one: random rules and random requests, asked of two engines on segments that began
 * alike to the byte. Afterwards these, the hot keys and the ledgers must still be alike, and so must all that was told.
 */
#define _GNU_SOURCE /* sched_setaffinity */
#include "base/clock.h"
#include "fast_path_rules.h"

#include "../../engine.h"

#include "engine/evaluation.h"
#include "engine/ledger.h"
#include "engine/fast_result.h"
#include "table/load_page.h"
#include "engine/hot_key_sampler.h"

#include <sched.h>

/* ---- How often it is taken ---- */

static int64_t quick,
    by_several; /* requests that were decided on the quick way, and those of them under several rules */

static const weir *slow_engine; /* which takes the slow path only */

bool __real_weir__take_all_fast(const struct weir__request_ctx *ctx);
bool __wrap_weir__take_all_fast(const struct weir__request_ctx *ctx);

bool __wrap_weir__take_all_fast(const struct weir__request_ctx *ctx)
{
    if (ctx->engine == slow_engine)
        return false;
    bool taken = __real_weir__take_all_fast(ctx);
    quick += taken;
    by_several += taken && ctx->count > 1;
    return taken;
}

/* ---- Twins ---- */

struct twins {
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

/* What they count in is the same to the byte from the beginning, secrets and all. */
static bool open_twins(const char *rules, struct twins *twins)
{
    twins->model = open_one(rules);
    twins->engine = twins->model ? open_one(rules) : NULL;
    slow_engine = twins->model;
    if (!twins->engine)
        return false;
    memcpy(twins->engine->segment->memory, twins->model->segment->memory, twins->model->segment->bytes);
    return true;
}

static void close_twins(struct twins *twins)
{
    weir_close(twins->model);
    weir_close(twins->engine);
}

static bool same_memory(const struct weir__mapped *a, const struct weir__mapped *b)
{
    return a->bytes == b->bytes && memcmp(a->memory, b->memory, a->bytes) == 0;
}

/* Where the two ledgers, which look at a clock, differ in what was written down. */
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

static void compare_twins(const struct twins *twins)
{
    const weir *a = twins->model, *b = twins->engine;
    CHECK_EQ(memcmp(a->segment->memory, b->segment->memory, a->segment->bytes), 0);
    CHECK(same_memory(&a->hot_sampler->mapped, &b->hot_sampler->mapped));
    CHECK(same_ledgers(&a->deltas->ledger, &b->deltas->ledger));
    CHECK(memcmp(&a->untold, &b->untold, sizeof a->untold) == 0);
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

/* A path in memory of its own, so that nobody reads beyond it unseen. To be freed. */
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

/* ---- What is told ---- */

#define OUTCOMES 16

static bool same_outcomes(const weir_outcome *a, const weir_outcome *b)
{
    const weir_decision *x = &a->decision, *y = &b->decision;
    return x->verdict == y->verdict && x->flags == y->flags && x->limit == y->limit && x->remaining == y->remaining &&
           x->reset_after_ns == y->reset_after_ns && x->retry_after_ns == y->retry_after_ns &&
           x->delay_ns == y->delay_ns && a->reason == b->reason && a->error == b->error && a->shadow == b->shadow &&
           a->key_cut == b->key_cut && a->cost == b->cost && a->quota == b->quota &&
           a->effective_limit == b->effective_limit && a->window_ns == b->window_ns && strcmp(a->rule, b->rule) == 0 &&
           strcmp(a->key, b->key) == 0;
}

static void compare_answers(const weir_result *a, const weir_outcome *of_a, const weir_result *b,
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

/* What a gateway keeps of either. */
static void compare_brief(const weir_result *answer, const weir_outcome *outcomes, const struct weir__fast_result *fast)
{
    char values[WEIR_HEADER_ROOM];
    uint16_t lens[WEIR_HEADER_COUNT] = {0};
    size_t len = fast->headers ? weir_result_header_values(answer, outcomes, values, lens) : 0;
    const char *key = fast->text + fast->rule_len, *told = key + fast->key_len;
    CHECK_EQ(answer->decision.verdict, WEIR_ALLOW);
    CHECK_EQ(answer->decision.retry_after_ns, 0);
    CHECK(answer->decided_by.reason == WEIR_BY_LIMIT && answer->decided_by.error == 0);
    CHECK_EQ(fast->limit, answer->decision.limit);
    CHECK_EQ(fast->remaining, answer->decision.remaining);
    CHECK_EQ(answer->outcomes, answer->matched);
    CHECK_EQ(fast->rule_len, strlen(answer->decided_by.rule));
    CHECK(memcmp(fast->text, answer->decided_by.rule, fast->rule_len) == 0);
    CHECK_EQ(fast->key_len, answer->decided_by.key_len);
    CHECK(memcmp(key, answer->decided_by.key, fast->key_len) == 0);
    CHECK_EQ(fast->values_len, len);
    CHECK(memcmp(fast->lens, lens, sizeof lens) == 0);
    CHECK(fast->values_len == len && memcmp(told, values, len) == 0);
}

/* ---- One after the other ---- */

struct contest {
    struct twins twins;
    uint64_t *seed;
    struct weir__second reset;
    weir_time now;
    int64_t told;
    char rule[WEIR_NAME_MAX + 1], key[WEIR_KEY_SHOWN_MAX + 1]; /* of the last that a rule decided */
};

static void end_held(const struct contest *c, weir_permits *its, weir_permits *held)
{
    CHECK_EQ(its->count, held->count);
    if (test_random(c->seed) % 2)
        CHECK_EQ(weir_permits_release(c->twins.model, its), weir_permits_release(c->twins.engine, held));
}

/* However slow the machine is, no agent falls silent between the two. */
static void beat(const struct twins *twins)
{
    uint64_t now = weir__coarse_ms();
    weir__store64(&twins->model->deltas->ledger.header->heartbeat_ms, now);
    weir__store64(&twins->engine->deltas->ledger.header->heartbeat_ms, now);
}

static void ask_both(struct contest *c, weir_query *query)
{
    static weir_outcome expected_of[OUTCOMES], of[OUTCOMES];
    static char text[2][8704];
    weir_permits its = {.count = 0}, held = {.count = 0};
    weir_result expected, answer;
    struct weir__fast_result fast = {.reset = &c->reset, .headers = test_random(c->seed) % 8 != 0};
    fast.text = malloc(WEIR__FAST_RESULT_BYTES);
    query->outcomes_max = OUTCOMES;
    query->text_size = sizeof text[0];

    beat(&c->twins);
    query->permits = &its;
    query->outcomes = expected_of;
    query->text = text[0];
    int error = weir_check(c->twins.model, query, &expected);
    query->permits = &held;
    query->outcomes = of;
    query->text = text[1];
    CHECK_EQ(weir__check_fast(c->twins.engine, query, &answer, &fast), error);
    if (!error && fast.filled)
        compare_brief(&expected, expected_of, &fast);
    else if (!error)
        compare_answers(&expected, expected_of, &answer, of);
    c->told += fast.filled;
    if (!error && expected.decided_by.reason == WEIR_BY_LIMIT) {
        memcpy(c->rule, expected.decided_by.rule, sizeof c->rule);
        memcpy(c->key, expected.decided_by.key, sizeof c->key);
    }
    end_held(c, &its, &held);
    free(fast.text);
}

/* What an operator, the load, the store's state or a segment that is cut short do between two requests. */
static void interfere(struct contest *c)
{
    struct rules_text to = {.seed = c->seed};
    weir *both[] = {c->twins.model, c->twins.engine};
    struct weir__load_view view = weir__load_view_neutral();
    view.level = (uint32_t)dice(&to, 1200);
    view.throttle = (uint32_t)dice(&to, 1001);
    view.shed[WEIR_LOW] = (uint32_t)dice(&to, 1001);
    uint64_t kind = dice(&to, 5), lasts = dice(&to, 3) * (uint64_t)WEIR_SECOND, down = dice(&to, 2);
    for (size_t i = 0; i < 2; i++) {
        struct weir__ledger_header *header = both[i]->deltas->ledger.header;
        if (kind == 0) /* rules of several limits have another name here */
            (void)!weir_key_block(both[i], c->rule, c->key, strlen(c->key), (int64_t)lasts, c->now);
        if (kind == 3)
            (void)!weir_key_reset(both[i], c->rule, c->key, strlen(c->key), c->now);
        if (kind == 1)
            weir__load_page_write(both[i]->load, c->now.mono_ns, &view);
        weir__store32(&both[i]->segment->lost, kind == 4); /* until the next */
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
    ask_both(c, &query);
    free(path);
    free(peer);
}

/* Both run on one processor: what is counted by processor is compared, too. */
static void stay_here(void)
{
    cpu_set_t here;
    int cpu = sched_getcpu();
    CPU_ZERO(&here);
    CPU_SET(cpu < 0 ? 0U : (unsigned)cpu, &here);
    CHECK_EQ(sched_setaffinity(0, sizeof here, &here), 0);
}

TEST(both_ways_are_one)
{
    uint64_t seed = 20261115;
    static struct rules_text rules;
    int64_t sets = test_scaled(800, 60), each = 500, refused = 0, asked = 0, told = 0;
    rules.seed = &seed;
    stay_here();
    for (int64_t i = 0; i < sets; i++) {
        struct contest c = {.seed = &seed, .now = test_seconds(0)};
        int before = test_failures;
        make_rules(&rules);
        if (!open_twins(rules.text, &c.twins)) {
            refused++; /* some words do not go together */
            continue;
        }
        for (int64_t k = 0; k < each; k++)
            one_request(&c);
        compare_twins(&c.twins);
        close_twins(&c.twins);
        asked += each;
        told += c.told;
        if (test_failures != before) {
            printf("  under these rules:\n%s", rules.text);
            break;
        }
    }
    if (getenv("WEIR_TEST_TELL"))
        printf("  %lld sets, %lld refused; %lld asked, %lld told briefly, %lld decided on the quick way, %lld by "
               "several\n",
               (long long)sets, (long long)refused, (long long)asked, (long long)told, (long long)quick,
               (long long)by_several);
    CHECK(refused < sets / 2);
    CHECK(quick > asked / 10);
    CHECK(by_several > asked / 40);
    CHECK(told > quick + asked / 50);
}

TEST_MAIN
