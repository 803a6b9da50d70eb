/* What is told of the usual request, and how it is decided. See brief.h. */
#include "engine/brief.h"
#include "engine/book.h"
#include "engine/digits.h"
#include "engine/noting.h"
#include "engine/seconds.h"

/* What RateLimit's value ends in when both numbers are 0, and what is between them. */
#define NUMBERS "0;t=0"
#define BETWEEN ";t="

#define SPOKEN_MAX (2 * (2 * WEIR_NAME_MAX + 2) + WEIR_NAME_MAX + 4 * WEIR__DIGITS_MAX + 64)
_Static_assert(SPOKEN_MAX + WEIR_SHOWN_MAX + 3 * WEIR__DIGITS_MAX + 2 * WEIR__SPOKEN_STEP <= WEIR__BRIEF_ROOM,
               "all of it fits");

/* ---- With the rules ---- */

static struct weir__spoken *make(struct weir__arena *memory, const struct weir__rule *rule)
{
    const struct weir__quota *quota = rule->quotas;
    const struct weir__hit hit = {
        .rule = rule, .quota = quota, .decision = {.verdict = WEIR_ALLOW, .limit = quota->limit.hard}};
    weir_answer answer = {.decision = hit.decision, .headers = WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT};
    char values[WEIR_HEADER_ROOM];
    uint16_t lens[WEIR_HEADER_COUNT];
    weir__hit_tell(&hit, &answer.by);
    (void)weir_answer_values(&answer, NULL, values, lens);
    size_t said = (size_t)lens[WEIR_HEADER_POLICY] + lens[WEIR_HEADER_RATELIMIT] - (sizeof NUMBERS - 1);
    size_t len = rule->name.len + lens[WEIR_HEADER_LIMIT] + said;
    struct weir__spoken *spoken = weir__arena_take(memory, sizeof *spoken + len + WEIR__SPOKEN_STEP);
    if (!spoken)
        return NULL;
    const char *policy = values + lens[WEIR_HEADER_LIMIT] + lens[WEIR_HEADER_REMAINING] + lens[WEIR_HEADER_RESET];
    *spoken = (struct weir__spoken){.limit = quota->limit.hard,
                                    .headers = rule->response.headers,
                                    .name_len = (uint8_t)rule->name.len,
                                    .limit_len = (uint8_t)lens[WEIR_HEADER_LIMIT],
                                    .policy_len = lens[WEIR_HEADER_POLICY],
                                    .ratelimit_len = (uint16_t)(lens[WEIR_HEADER_RATELIMIT] - (sizeof NUMBERS - 1))};
    char *to = spoken->text;
    to = (char *)memcpy(to, rule->name.data, rule->name.len) + rule->name.len;
    to = (char *)memcpy(to, values, spoken->limit_len) + spoken->limit_len;
    memcpy(to, policy, said);
    return spoken;
}

/* True if nothing but the rule's own counter in the segment has a say. */
static bool is_quick(const struct weir__loaded *loaded, const struct weir__rule *rule)
{
    const weir_rules *rules = loaded->rules;
    return rules->gates[rule->index].open && !rules->pressed && !loaded->strict &&
           loaded->consistency[rule->index] != WEIR__STRICT && rule->quotas[0].limit.usual && rule->cost.usual > 0 &&
           weir__template_is_address(&rule->key, &rules->attributes) &&
           rule->key.parts[0].literal.len + WEIR__ADDRESS4_ROOM <= WEIR_SHOWN_MAX;
}

void weir__spoken_prepare(struct weir__loaded *loaded, bool read_only)
{
    const weir_rules *rules = loaded->rules;
    struct weir__arena *memory = &loaded->spoken_memory;
    loaded->spoken = weir__arena_array(memory, rules->count, sizeof(struct weir__spoken *));
    for (size_t i = 0; i < rules->count && loaded->spoken; i++) {
        const struct weir__rule *rule = rules->rules[i];
        struct weir__spoken *spoken = loaded->spoken[i] = rules->gates[i].plain ? make(memory, rule) : NULL;
        if (!spoken || read_only || !is_quick(loaded, rule))
            continue;
        spoken->quick = &rule->quotas[0].limit;
        spoken->key = &rule->key;
        spoken->tally = loaded->tally[i];
        spoken->cost = rule->cost.usual;
        spoken->written = loaded->consistency[i] == WEIR__EVENTUAL;
    }
}

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

/* Behind the key, which ends at `to`. */
__attribute__((always_inline)) static inline void tell(const struct weir__spoken *spoken, const weir_decision *decision,
                                                       weir_time now, char *to, struct weir__brief *brief)
{
    const char *limit = spoken->text + spoken->name_len, *policy = limit + spoken->limit_len;
    char remaining[WEIR__DIGITS_MAX + WEIR__SPOKEN_STEP], *values = to, *from;
    unsigned headers = brief->headers ? spoken->headers : 0;
    size_t digits = 0;

    memset(brief->lens, 0, sizeof brief->lens);
    if (headers & (WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT))
        digits = (size_t)(weir__put_digits(remaining, (uint64_t)decision->remaining) - remaining);
#define VALUE(header, put) (from = to, to = (put), brief->lens[WEIR_HEADER_##header] = (uint16_t)(to - from))
    if (headers & WEIR_HEADERS_X_RATELIMIT) {
        int64_t reset = decision->reset_after_ns + (headers & WEIR_HEADERS_RESET_DELTA ? 0 : now.wall_ns);
        VALUE(LIMIT, put(to, limit, spoken->limit_len));
        VALUE(REMAINING, put(to, remaining, digits));
        VALUE(RESET, put_second(to, (uint64_t)weir__seconds_up(reset), brief->reset));
    }
    if (headers & WEIR_HEADERS_DRAFT) {
        VALUE(POLICY, put(to, policy, spoken->policy_len));
        from = to;
        to = put(to, policy + spoken->policy_len, spoken->ratelimit_len);
        to = put(to, remaining, digits);
        to = (char *)memcpy(to, BETWEEN, sizeof BETWEEN - 1) + sizeof BETWEEN - 1;
        to = weir__put_digits(to, (uint64_t)weir__seconds_up(decision->reset_after_ns));
        brief->lens[WEIR_HEADER_RATELIMIT] = (uint16_t)(to - from);
    }
#undef VALUE
    brief->rule_len = spoken->name_len;
    brief->key_len = (uint8_t)(values - brief->text - spoken->name_len);
    brief->values_len = (uint16_t)(to - values);
    brief->limit = decision->limit;
    brief->remaining = decision->remaining;
    brief->told = true;
}

/* One rule, enforced, with its own limit, and its counter decided here or in the store; and nothing else to tell. */
static bool is_brief(const struct weir__trial *trial, const struct weir__hit *by, const struct weir__spoken *spoken)
{
    const weir_decision *decision = &by->decision;
    return trial->count == 1 && spoken && by->quota == by->rule->quotas && by->reason == WEIR_BY_LIMIT &&
           decision->verdict == WEIR_ALLOW && decision->limit == spoken->limit && decision->remaining >= 0 &&
           decision->reset_after_ns >= 0 && by->key_len <= WEIR_SHOWN_MAX && !by->held && !by->store_error;
}

bool weir__brief_tell(const struct weir__trial *trial, const struct weir__hit *by, struct weir__brief *brief)
{
    const struct weir__spoken *spoken =
        by && by->rule && trial->loaded->spoken ? trial->loaded->spoken[by->rule->index] : NULL;
    if (!spoken || !is_brief(trial, by, spoken))
        return false;
    char *key = put(brief->text, spoken->text, spoken->name_len);
    memcpy(key, by->key, by->key_len);
    tell(spoken, &by->decision, trial->now, key + by->key_len, brief);
    return true;
}

/* ---- Deciding ---- */

/* Counts it, and notes it if it is its turn. */
static inline void count(const struct weir__asked *asked, const struct weir__spoken *spoken, uint32_t rule,
                         const weir_decision *decision, weir_text key)
{
    uint64_t *sum = &spoken->tally->stripe[asked->cpu % WEIR__TALLY_STRIPES].allowed, dice;
    weir__count(sum, 1);
    struct weir__hot_panel *panel = weir__noting_turn(asked->loaded, rule, asked->now, weir__load64(sum), &dice);
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

__attribute__((hot)) bool weir__quick(struct weir__asked *asked, const weir_query *query, struct weir__brief *brief)
{
    const struct weir__loaded *loaded = asked->loaded;
    weir_decision decision;
    uint32_t rule;
    if (!loaded->spoken || query->has_cost || query->dry_run || !query->peer || query->peer_len != 4 ||
        query->path.len > WEIR__PATH_MAX || !weir__paths_only(loaded->rules->paths, query->path, &rule))
        return false;
    const struct weir__spoken *spoken = loaded->spoken[rule];
    if (!spoken || !spoken->quick)
        return false;
    asked->only = 1 + rule;
    if (spoken->written && weir__book_away(loaded, loaded->rules->rules[rule]))
        return false;
    char *key = put(brief->text, spoken->text, spoken->name_len);
    size_t key_len = weir__template_dotted(spoken->key, query->peer, key);
    if (!weir__take_usual(asked->cpu, asked->engine->segment, spoken->quick, key, key_len, spoken->cost, asked->now,
                          &decision))
        return false;
    if (spoken->written)
        write_down(asked, rule, (weir_text){key, key_len}, spoken->cost);
    count(asked, spoken, rule, &decision, (weir_text){key, key_len});
    tell(spoken, &decision, asked->now, key + key_len, brief);
    return true;
}
