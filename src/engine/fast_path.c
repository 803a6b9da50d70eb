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
_Static_assert(SPOKEN_MAX + WEIR__KEY_MAX + 2 * WEIR__SPOKEN_STEP <= WEIR__BRIEF_ROOM, "all of it fits");

/* ---- Telling ---- */

/* Copies whole steps, as there is room for them at both ends: no call, and hardly ever a second one. */
static inline char *put(char *to, const char *from, size_t len)
{
    memcpy(to, from, WEIR__SPOKEN_STEP);
    for (size_t i = WEIR__SPOKEN_STEP; i < len; i += WEIR__SPOKEN_STEP)
        memcpy(to + i, from + i, WEIR__SPOKEN_STEP);
    return to + len;
}

static inline char *put_second(char *to, uint64_t number, struct weir__second *last)
{
    if (last->number != number || last->len == 0) {
        last->number = number;
        last->len = (uint64_t)(weir__put_digits(last->text, number) - last->text);
    }
    return put(to, last->text, last->len);
}

static inline const char *limit_of(const struct weir__spoken *spoken)
{
    return spoken->text + spoken->name_len;
}

static inline const char *policy_of(const struct weir__spoken *spoken)
{
    return limit_of(spoken) + spoken->limit_len;
}

/* True if the caller would list so many rules: one is told by itself. */
static inline bool lists_all(const weir_query *query, size_t count)
{
    return count == 1 || query->outcomes_max >= count;
}

/* What there is to tell: of all rules that let the request pass, the one that speaks and what it decided. */
struct speech {
    const struct weir__spoken *const *all; /* NULL: it is one */
    size_t count;
    const struct weir__spoken *by;
    const weir_decision *decision;
    weir_time now;
};

static inline char *put_policy(char *to, const struct weir__spoken *spoken)
{
    return put(to, policy_of(spoken), spoken->policy_len);
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
__attribute__((always_inline)) static inline void tell(const struct speech *speech, char *to, struct weir__brief *brief)
{
    const struct weir__spoken *by = speech->by;
    const weir_decision *decision = speech->decision;
    char remaining[WEIR__DIGITS_MAX + WEIR__SPOKEN_STEP], *values = to, *from;
    unsigned headers = brief->headers ? by->headers : 0;
    size_t digits = 0;

    memset(brief->lens, 0, sizeof brief->lens);
    if (headers & (WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT))
        digits = (size_t)(weir__put_digits(remaining, (uint64_t)decision->remaining) - remaining);
#define VALUE(header, put) (from = to, to = (put), brief->lens[WEIR_HEADER_##header] = (uint16_t)(to - from))
    if (headers & WEIR_HEADERS_X_RATELIMIT) {
        int64_t reset = decision->reset_after_ns + (headers & WEIR_HEADERS_RESET_DELTA ? 0 : speech->now.wall_ns);
        VALUE(LIMIT, put(to, limit_of(by), by->limit_len));
        VALUE(REMAINING, put(to, remaining, digits));
        VALUE(RESET, put_second(to, (uint64_t)weir__seconds_up(reset), brief->reset));
    }
    if (headers & WEIR_HEADERS_DRAFT) {
        VALUE(POLICY, put_policies(to, speech));
        from = to;
        to = put(to, policy_of(by) + by->policy_len, by->ratelimit_len);
        to = put(to, remaining, digits);
        to = (char *)memcpy(to, BETWEEN, sizeof BETWEEN - 1) + sizeof BETWEEN - 1;
        to = weir__put_digits(to, (uint64_t)weir__seconds_up(decision->reset_after_ns));
        brief->lens[WEIR_HEADER_RATELIMIT] = (uint16_t)(to - from);
    }
#undef VALUE
    brief->rule_len = by->name_len;
    brief->key_len = (uint8_t)(values - brief->text - by->name_len);
    brief->values_len = (uint16_t)(to - values);
    brief->limit = decision->limit;
    brief->remaining = decision->remaining;
    brief->told = true;
}

/* A rule that is enforced, with its own limit, and its counter decided here or in the store; nothing else to tell. */
static bool is_brief(const struct weir__hit *hit, const struct weir__spoken *spoken)
{
    const weir_decision *decision = &hit->decision;
    return spoken && hit->quota == hit->rule->quotas && hit->reason == WEIR_BY_LIMIT &&
           decision->verdict == WEIR_ALLOW && decision->limit == spoken->limit && decision->remaining >= 0 &&
           decision->reset_after_ns >= 0 && hit->key_len <= WEIR_SHOWN_MAX && !hit->held && !hit->store_error;
}

bool weir__brief_tell(const struct weir__trial *trial, const struct weir__hit *by, const weir_query *query,
                      struct weir__brief *brief)
{
    const struct weir__spoken *all[WEIR__FEW_MAX];
    if (!by || by->decision.verdict != WEIR_ALLOW || !trial->loaded->spoken || trial->count > WEIR__FEW_MAX ||
        !lists_all(query, trial->count))
        return false;
    for (size_t i = 0; i < trial->count; i++) {
        const struct weir__hit *hit = &trial->hits[i];
        all[i] = hit->rule ? trial->loaded->spoken[hit->rule->index] : NULL;
        if (!is_brief(hit, all[i]))
            return false;
    }
    const struct speech speech = {all, trial->count, all[by - trial->hits], &by->decision, trial->now};
    char *key = put(brief->text, speech.by->text, speech.by->name_len);
    memcpy(key, by->key, by->key_len);
    tell(&speech, key + by->key_len, brief);
    return true;
}

/* ---- Deciding ---- */

/* Counts it, and notes it if it is its turn. */
static inline void count(const struct weir__asked *asked, const struct weir__spoken *spoken, uint32_t rule,
                         const weir_decision *decision, weir_text key)
{
    uint64_t *sum = &spoken->tally->stripe[asked->cpu % WEIR__RULE_STATS_SHARDS].allowed, dice;
    weir__count(sum, 1);
    struct weir__hot_rule *panel = weir__noting_turn(asked->loaded, rule, asked->now, weir__load64(sum), &dice);
    if (!panel)
        return;
    const struct weir__rule *its = asked->loaded->rules->rules[rule];
    const struct weir__trial trial = {.engine = asked->engine, .loaded = asked->loaded, .now = asked->now};
    const struct weir__hit hit = {.rule = its,
                                  .quota = its->quotas,
                                  .key = key.data,
                                  .key_len = (uint32_t)key.len,
                                  .cost = spoken->cost,
                                  .decision = *decision};
    weir__noting_write(&trial, &hit, panel, dice);
}

static void write_down(const struct weir__asked *asked, uint32_t rule, weir_text key, int64_t cost)
{
    const struct weir__rule *its = asked->loaded->rules->rules[rule];
    const struct weir__book *book = weir__book_of(asked->loaded, its);
    if (book)
        weir__book_add(book, asked->engine->segment, its, its->quotas, key, cost);
}

/* Any key but the most usual one. */
static __attribute__((noinline)) size_t fill_key(const struct weir__asked *asked, const struct weir__spoken *spoken,
                                                 const weir_query *query, char to[WEIR__KEY_MAX])
{
    struct weir__values values; /* not cleared as a whole: it is large */
    if (!spoken->key->part_count) {
        memcpy(to, WEIR__SHARED_KEY, sizeof WEIR__SHARED_KEY - 1);
        return sizeof WEIR__SHARED_KEY - 1;
    }
    weir__values_begin(&values, &asked->loaded->rules->attributes, query);
    int len = weir__template_fill(spoken->key, &values, spoken->share, to, WEIR__KEY_MAX);
    return len < 0 || len > WEIR_SHOWN_MAX ? 0 : (size_t)len;
}

/* Writes the key of a rule. Returns its length; 0: there is none, or more than is shown. */
static inline size_t put_key(const struct weir__asked *asked, const struct weir__spoken *spoken,
                             const weir_query *query, char to[WEIR__KEY_MAX])
{
    if (spoken->address && query->peer && query->peer_len == 4)
        return weir__template_dotted(spoken->key, query->peer, to);
    return fill_key(asked, spoken, query, to);
}

/* The rule decides by itself, whoever is away. */
static inline bool is_there(const struct weir__asked *asked, const struct weir__spoken *spoken, uint32_t rule)
{
    return !spoken->written || !weir__book_away(asked->loaded, asked->loaded->rules->rules[rule]);
}

__attribute__((always_inline)) static inline bool quick_one(struct weir__asked *asked, const weir_query *query,
                                                            struct weir__brief *brief)
{
    uint32_t rule = asked->rules[0];
    const struct weir__spoken *spoken = asked->loaded->spoken[rule];
    weir_decision decision;
    if (!spoken || !spoken->quick)
        return false;
    asked->count = 1;
    if (!is_there(asked, spoken, rule))
        return false;
    char *key = put(brief->text, spoken->text, spoken->name_len);
    size_t key_len = put_key(asked, spoken, query, key);
    if (!key_len || !weir__take_usual(asked->cpu, asked->engine->segment, spoken->quick, key, key_len, spoken->cost,
                                      asked->now, &decision))
        return false;
    if (spoken->written)
        write_down(asked, rule, (weir_text){key, key_len}, spoken->cost);
    count(asked, spoken, rule, &decision, (weir_text){key, key_len});
    tell(&(struct speech){NULL, 1, spoken, &decision, asked->now}, key + key_len, brief);
    return true;
}

/* ---- Deciding by several ---- */

/* A few rules and what they say. */
struct few {
    const struct weir__spoken *spoken[WEIR__FEW_MAX];
    struct weir__share shares[WEIR__FEW_MAX];
    char keys[WEIR__FEW_MAX][WEIR__KEY_MAX];
};

/* True if two keys are alike whatever the request. */
static inline bool same_key(const struct weir__spoken *a, const struct weir__spoken *b)
{
    return a->address && b->address && weir__text_equal(a->key->parts[0].literal, b->key->parts[0].literal);
}

static inline bool fill_share(const struct weir__asked *asked, const weir_query *query, struct few *few, size_t i)
{
    const struct weir__spoken *spoken = few->spoken[i];
    struct weir__share *share = &few->shares[i];
    share->limit = spoken->quick;
    share->cost = spoken->cost;
    if (i && same_key(spoken, few->spoken[i - 1])) {
        share->key = share[-1].key;
        share->key_len = share[-1].key_len;
        return true;
    }
    share->key = few->keys[i];
    share->key_len = put_key(asked, spoken, query, few->keys[i]);
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
        weir__count(&few->spoken[i]->tally->stripe[asked->cpu % WEIR__RULE_STATS_SHARDS].gave_back, 1);
}

__attribute__((hot, noinline)) static bool quick_few(struct weir__asked *asked, size_t count_of,
                                                     const weir_query *query, struct weir__brief *brief)
{
    struct few few; /* large, and touched only as far as it is used */
    size_t back;
    if (!lists_all(query, count_of))
        return false;
    for (size_t i = 0; i < count_of; i++) {
        few.spoken[i] = asked->loaded->spoken[asked->rules[i]];
        if (!few.spoken[i] || !few.spoken[i]->quick)
            return false;
    }
    asked->count = (uint32_t)count_of;
    for (size_t i = 0; i < count_of; i++)
        if (!is_there(asked, few.spoken[i], asked->rules[i]) || !fill_share(asked, query, &few, i))
            return false;
    if (!weir__take_few(asked->cpu, asked->engine->segment, few.shares, count_of, asked->now, &back)) {
        count_back(asked, &few, back);
        return false;
    }
    for (size_t i = 0; i < count_of; i++) {
        const struct weir__share *share = &few.shares[i];
        weir_text key = {share->key, share->key_len};
        if (few.spoken[i]->written)
            write_down(asked, asked->rules[i], key, share->cost);
        count(asked, few.spoken[i], asked->rules[i], &share->decision, key);
    }
    size_t by = tightest(few.shares, count_of);
    const struct weir__share *its = &few.shares[by];
    const struct speech speech = {few.spoken, count_of, few.spoken[by], &its->decision, asked->now};
    char *key = put(brief->text, speech.by->text, speech.by->name_len);
    tell(&speech, put(key, its->key, its->key_len), brief);
    return true;
}

__attribute__((hot)) bool weir__quick(struct weir__asked *asked, const weir_query *query, struct weir__brief *brief)
{
    const struct weir__loaded *loaded = asked->loaded;
    if (!loaded->spoken || query->has_cost || query->dry_run || query->path.len > WEIR__PATH_MAX)
        return false;
    size_t found = weir__paths_few(loaded->rules->paths, query->path, asked->rules, WEIR__FEW_MAX);
    return found == 1 ? quick_one(asked, query, brief) : found && quick_few(asked, found, query, brief);
}
