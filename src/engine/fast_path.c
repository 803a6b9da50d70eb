/* What is told of the usual request, and how it is decided. See fast_path.h. */
#include "engine/fast_path.h"
#include "engine/ledger.h"
#include "base/digits.h"
#include "engine/hot_key_sampler.h"
#include "engine/seconds.h"

/* What is between the numbers in RateLimit's value. */
#define BETWEEN ";t="

#define POLICY_MAX (2 * WEIR_NAME_MAX + 2 + 2 * WEIR__DIGITS_MAX + 16)
#define SPOKEN_MAX (WEIR_NAME_MAX + WEIR__FEW_MAX * POLICY_MAX + POLICY_MAX + 4 * WEIR__DIGITS_MAX)
_Static_assert(SPOKEN_MAX + WEIR__KEY_MAX + 2 * WEIR__PLAN_TEXT_STEP <= WEIR__FAST_RESULT_BYTES, "all of it fits");

/* ---- Telling ---- */

/* Copies whole steps, as there is room for them at both ends: no call, and hardly ever a second one. */
static inline char *put(char *to, const char *from, size_t len)
{
    memcpy(to, from, WEIR__PLAN_TEXT_STEP);
    for (size_t i = WEIR__PLAN_TEXT_STEP; i < len; i += WEIR__PLAN_TEXT_STEP)
        memcpy(to + i, from + i, WEIR__PLAN_TEXT_STEP);
    return to + len;
}

static inline char *put_second(char *to, uint64_t number, struct weir__second *last)
{
    if (last->number != number || last->len == 0) {
        last->number = number;
        last->len = (uint64_t)(weir__write_digits(last->text, number) - last->text);
    }
    return put(to, last->text, last->len);
}

static inline const char *limit_of(const struct weir__rule_plan *plan)
{
    return plan->text + plan->name_len;
}

static inline const char *policy_of(const struct weir__rule_plan *plan)
{
    return limit_of(plan) + plan->limit_len;
}

/* True if the caller would list so many rules: one is told by itself. */
static inline bool lists_all(const weir_query *query, size_t count)
{
    return count == 1 || query->outcomes_max >= count;
}

/* What there is to tell: of all rules that let the request pass, the one that speaks and what it decided. */
struct speech {
    const struct weir__rule_plan *const *all; /* NULL: it is one */
    size_t count;
    const struct weir__rule_plan *by;
    const weir_decision *decision;
    weir_time now;
};

static inline char *put_policy(char *to, const struct weir__rule_plan *plan)
{
    return put(to, policy_of(plan), plan->policy_len);
}

static inline char *put_policies(char *to, const struct speech *speech)
{
    if (speech->count == 1)
        return put_policy(to, speech->by);
    for (size_t i = 0; i < speech->count; i++) {
        to = put_policy(to, speech->all[i]);
        *to++ = ',';
    }
    return to - 1;
}

/* Behind the key, which ends at `to`. */
__attribute__((always_inline)) static inline void tell(const struct speech *speech, char *to,
                                                       struct weir__fast_result *fast)
{
    const struct weir__rule_plan *by = speech->by;
    const weir_decision *decision = speech->decision;
    char remaining[WEIR__DIGITS_MAX + WEIR__PLAN_TEXT_STEP], *values = to, *from;
    unsigned headers = fast->headers ? by->headers : 0;
    size_t digits = 0;

    memset(fast->lens, 0, sizeof fast->lens);
    if (headers & (WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT))
        digits = (size_t)(weir__write_digits(remaining, (uint64_t)decision->remaining) - remaining);
#define VALUE(header, put) (from = to, to = (put), fast->lens[WEIR_HEADER_##header] = (uint16_t)(to - from))
    if (headers & WEIR_HEADERS_X_RATELIMIT) {
        int64_t reset = decision->reset_after_ns + (headers & WEIR_HEADERS_RESET_DELTA ? 0 : speech->now.wall_ns);
        VALUE(LIMIT, put(to, limit_of(by), by->limit_len));
        VALUE(REMAINING, put(to, remaining, digits));
        VALUE(RESET, put_second(to, (uint64_t)weir__seconds_up(reset), fast->reset));
    }
    if (headers & WEIR_HEADERS_DRAFT) {
        VALUE(POLICY, put_policies(to, speech));
        from = to;
        to = put(to, policy_of(by) + by->policy_len, by->ratelimit_len);
        to = put(to, remaining, digits);
        to = (char *)memcpy(to, BETWEEN, sizeof BETWEEN - 1) + sizeof BETWEEN - 1;
        to = weir__write_digits(to, (uint64_t)weir__seconds_up(decision->reset_after_ns));
        fast->lens[WEIR_HEADER_RATELIMIT] = (uint16_t)(to - from);
    }
#undef VALUE
    fast->rule_len = by->name_len;
    fast->key_len = (uint8_t)(values - fast->text - by->name_len);
    fast->values_len = (uint16_t)(to - values);
    fast->limit = decision->limit;
    fast->remaining = decision->remaining;
    fast->told = true;
}

/* A rule that is enforced, with its own limit, and its counter decided here or in the store; nothing else to tell. */
static bool is_brief(const struct weir__rule_eval *eval, const struct weir__rule_plan *plan)
{
    const weir_decision *decision = &eval->decision;
    return plan && eval->quota == eval->rule->quotas && eval->reason == WEIR_BY_LIMIT &&
           decision->verdict == WEIR_ALLOW && decision->limit == plan->limit && decision->remaining >= 0 &&
           decision->reset_after_ns >= 0 && eval->key_len <= WEIR_KEY_SHOWN_MAX && !eval->held && !eval->store_error;
}

bool weir__fast_result_fill(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by,
                            const weir_query *query, struct weir__fast_result *fast)
{
    const struct weir__rule_plan *all[WEIR__FEW_MAX];
    if (!by || by->decision.verdict != WEIR_ALLOW || !ctx->ruleset->plan || ctx->count > WEIR__FEW_MAX ||
        !lists_all(query, ctx->count))
        return false;
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        all[i] = eval->rule ? ctx->ruleset->plan[eval->rule->index] : NULL;
        if (!is_brief(eval, all[i]))
            return false;
    }
    const struct speech speech = {all, ctx->count, all[by - ctx->evals], &by->decision, ctx->now};
    char *key = put(fast->text, speech.by->text, speech.by->name_len);
    memcpy(key, by->key, by->key_len);
    tell(&speech, key + by->key_len, fast);
    return true;
}

/* ---- Deciding ---- */

/* Counts it, and notes it if it is its turn. */
static inline void count(const struct weir__asked *asked, const struct weir__rule_plan *plan, uint32_t rule,
                         const weir_decision *decision, weir_text key)
{
    uint64_t *sum = &plan->rule_stats->shard[asked->cpu % WEIR__RULE_STATS_SHARDS].allowed, dice;
    weir__count(sum, 1);
    struct weir__hot_rule *panel = weir__hot_sampler_due(asked->ruleset, rule, asked->now, weir__load64(sum), &dice);
    if (!panel)
        return;
    const struct weir__rule *its = asked->ruleset->rules->rules[rule];
    const struct weir__request_ctx ctx = {.engine = asked->engine, .ruleset = asked->ruleset, .now = asked->now};
    const struct weir__rule_eval eval = {.rule = its,
                                         .quota = its->quotas,
                                         .key = key.data,
                                         .key_len = (uint32_t)key.len,
                                         .cost = plan->cost,
                                         .decision = *decision};
    weir__hot_sampler_write(&ctx, &eval, panel, dice);
}

static void write_down(const struct weir__asked *asked, uint32_t rule, weir_text key, int64_t cost)
{
    const struct weir__rule *its = asked->ruleset->rules->rules[rule];
    const struct weir__delta_ledger *deltas = weir__delta_ledger_of(asked->ruleset, its);
    if (deltas)
        weir__delta_ledger_record(deltas, asked->engine->segment, its, its->quotas, key, cost);
}

/* Any key but the most usual one. */
static __attribute__((noinline)) size_t fill_key(const struct weir__asked *asked, const struct weir__rule_plan *plan,
                                                 const weir_query *query, char to[WEIR__KEY_MAX])
{
    struct weir__values values; /* not cleared as a whole: it is large */
    if (!plan->key->piece_count) {
        memcpy(to, WEIR__SHARED_KEY, sizeof WEIR__SHARED_KEY - 1);
        return sizeof WEIR__SHARED_KEY - 1;
    }
    weir__values_begin(&values, &asked->ruleset->rules->attributes, query);
    int len = weir__template_fill(plan->key, &values, plan->share, to, WEIR__KEY_MAX);
    return len < 0 || len > WEIR_KEY_SHOWN_MAX ? 0 : (size_t)len;
}

/* Writes the key of a rule. Returns its length; 0: there is none, or more than is shown. */
static inline size_t put_key(const struct weir__asked *asked, const struct weir__rule_plan *plan,
                             const weir_query *query, char to[WEIR__KEY_MAX])
{
    if (plan->address && query->peer && query->peer_len == 4)
        return weir__template_dotted(plan->key, query->peer, to);
    return fill_key(asked, plan, query, to);
}

/* The rule decides by itself, whoever is away. */
static inline bool is_there(const struct weir__asked *asked, const struct weir__rule_plan *plan, uint32_t rule)
{
    return !plan->written || !weir__delta_ledger_unavailable(asked->ruleset, asked->ruleset->rules->rules[rule]);
}

__attribute__((always_inline)) static inline bool quick_one(struct weir__asked *asked, const weir_query *query,
                                                            struct weir__fast_result *fast)
{
    uint32_t rule = asked->rules[0];
    const struct weir__rule_plan *plan = asked->ruleset->plan[rule];
    weir_decision decision;
    if (!plan || !plan->quick)
        return false;
    asked->count = 1;
    if (!is_there(asked, plan, rule))
        return false;
    char *key = put(fast->text, plan->text, plan->name_len);
    size_t key_len = put_key(asked, plan, query, key);
    if (!key_len || !weir__take_fast(asked->cpu, asked->engine->segment, plan->quick, key, key_len, plan->cost,
                                     asked->now, &decision))
        return false;
    if (plan->written)
        write_down(asked, rule, (weir_text){key, key_len}, plan->cost);
    count(asked, plan, rule, &decision, (weir_text){key, key_len});
    tell(&(struct speech){NULL, 1, plan, &decision, asked->now}, key + key_len, fast);
    return true;
}

/* ---- Deciding by several ---- */

/* A few rules and what they say. */
struct few {
    const struct weir__rule_plan *plan[WEIR__FEW_MAX];
    struct weir__share shares[WEIR__FEW_MAX];
    char keys[WEIR__FEW_MAX][WEIR__KEY_MAX];
};

/* True if two keys are alike whatever the request. */
static inline bool same_key(const struct weir__rule_plan *a, const struct weir__rule_plan *b)
{
    return a->address && b->address && weir__text_equal(a->key->pieces[0].literal, b->key->pieces[0].literal);
}

static inline bool fill_share(const struct weir__asked *asked, const weir_query *query, struct few *few, size_t i)
{
    const struct weir__rule_plan *plan = few->plan[i];
    struct weir__share *share = &few->shares[i];
    share->limit = plan->quick;
    share->cost = plan->cost;
    if (i && same_key(plan, few->plan[i - 1])) {
        share->key = share[-1].key;
        share->key_len = share[-1].key_len;
        return true;
    }
    share->key = few->keys[i];
    share->key_len = put_key(asked, plan, query, few->keys[i]);
    return share->key_len > 0;
}

/* Which of them speaks: of those that let a request pass, the tightest, as on the long way. */
static inline size_t tightest(const struct weir__share *shares, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++) {
        const weir_decision *a = &shares[i].decision, *b = &shares[best].decision;
        if (a->remaining != b->remaining ? a->remaining < b->remaining : a->reset_after_ns > b->reset_after_ns)
            best = i;
    }
    return best;
}

static void count_back(const struct weir__asked *asked, const struct few *few, size_t back)
{
    for (size_t i = 0; i < back; i++)
        weir__count(&few->plan[i]->rule_stats->shard[asked->cpu % WEIR__RULE_STATS_SHARDS].rolled_back, 1);
}

__attribute__((hot, noinline)) static bool quick_few(struct weir__asked *asked, size_t count_of,
                                                     const weir_query *query, struct weir__fast_result *fast)
{
    struct few few; /* large, and touched only as far as it is used */
    size_t back;
    if (!lists_all(query, count_of))
        return false;
    for (size_t i = 0; i < count_of; i++) {
        few.plan[i] = asked->ruleset->plan[asked->rules[i]];
        if (!few.plan[i] || !few.plan[i]->quick)
            return false;
    }
    asked->count = (uint32_t)count_of;
    for (size_t i = 0; i < count_of; i++)
        if (!is_there(asked, few.plan[i], asked->rules[i]) || !fill_share(asked, query, &few, i))
            return false;
    if (!weir__take_few(asked->cpu, asked->engine->segment, few.shares, count_of, asked->now, &back)) {
        count_back(asked, &few, back);
        return false;
    }
    for (size_t i = 0; i < count_of; i++) {
        const struct weir__share *share = &few.shares[i];
        weir_text key = {share->key, share->key_len};
        if (few.plan[i]->written)
            write_down(asked, asked->rules[i], key, share->cost);
        count(asked, few.plan[i], asked->rules[i], &share->decision, key);
    }
    size_t by = tightest(few.shares, count_of);
    const struct weir__share *its = &few.shares[by];
    const struct speech speech = {few.plan, count_of, few.plan[by], &its->decision, asked->now};
    char *key = put(fast->text, speech.by->text, speech.by->name_len);
    tell(&speech, put(key, its->key, its->key_len), fast);
    return true;
}

__attribute__((hot)) bool weir__evaluate_fast(struct weir__asked *asked, const weir_query *query,
                                              struct weir__fast_result *fast)
{
    const struct weir__ruleset *ruleset = asked->ruleset;
    if (!ruleset->plan || query->has_cost || query->dry_run || query->path.len > WEIR__PATH_MAX)
        return false;
    size_t found = weir__paths_few(ruleset->rules->paths, query->path, asked->rules, WEIR__FEW_MAX);
    return found == 1 ? quick_one(asked, query, fast) : found && quick_few(asked, found, query, fast);
}
