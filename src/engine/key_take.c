/* weir_key_take: a request whose rule and key are known, because it was deferred or the caller names them. */
#include "base/number.h"
#include "engine/denial_recorder.h"
#include "engine/permits.h"

#include <stdio.h>

/* By its full name, or by the name of a rule with several limits. */
static const struct weir__rule *enforced_named(const weir_rules *rules, const char *name)
{
    const struct weir__rule *named = weir__rule_named(rules, name, false);
    for (size_t i = 0; i < rules->count && !named; i++)
        if (!rules->rules[i]->shadow && weir__text_is(rules->rules[i]->base, name))
            named = rules->rules[i];
    return named;
}

static struct weir__rule_eval eval_of(const weir_rules *rules, const struct weir__rule *rule, const weir_taken *what,
                                      weir_text key, int64_t cost)
{
    const struct weir__quota *quota = weir__quota_taken(rule, what);
    struct weir__rule_eval eval = {.rule = rule,
                                   .quota = quota || !rule->quota_count ? quota : rule->quotas,
                                   .key = key.data,
                                   .key_len = (uint32_t)key.len,
                                   .cost = cost,
                                   .reason = weir__key_listed(rules, rule, key)};
    if (!what->tier.len && !what->quota)
        (void)weir__rule_quota_of_key(rules, rule, key, &eval.quota);
    if (eval.reason != WEIR_BY_LIMIT)
        eval.quota = NULL;
    if (eval.quota)
        eval.cost = weir__units_of(eval.quota, cost);
    return eval;
}

/* Appends the evals of the rule, and of the other limits that its author gave it. 0: too many. */
static size_t add_rule(const weir_rules *rules, const struct weir__rule *named, const weir_taken *what, weir_text key,
                       int64_t cost, struct weir__rule_eval evals[WEIR__MATCHES_MAX], size_t count)
{
    for (size_t i = 0; i < rules->count; i++) {
        const struct weir__rule *rule = rules->rules[i];
        if (rule != named && (rule->shadow || !weir__text_equal(rule->base, named->base) ||
                              !weir__text_equal(rule->domain, named->domain)))
            continue;
        if (count == WEIR__MATCHES_MAX)
            return 0;
        evals[count++] = eval_of(rules, rule, what, key, cost);
    }
    return count;
}

/* ---- The other rules of a request as a text: RULE.KEY.TIER.COST;… with all but the cost in hexadecimal ---- */

/* True if the request is charged under this rule when it is delivered: an enforced limit with a counter. */
static bool goes_along(const struct weir__rule_eval *eval)
{
    return !eval->shadow && !eval->replaced && eval->rule && eval->key_len && eval->cost > 0 &&
           (eval->reason == WEIR_BY_LIMIT || eval->reason == WEIR_BY_FAILURE);
}

/* True if an entry exists already: there is one for all limits of a rule. */
static bool was_listed(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by, size_t at)
{
    const struct weir__rule *rule = ctx->evals[at].rule;
    if (weir__text_equal(rule->base, by->rule->base))
        return true;
    for (size_t i = 0; i < at; i++)
        if (goes_along(&ctx->evals[i]) && weir__text_equal(ctx->evals[i].rule->base, rule->base))
            return true;
    return false;
}

bool weir__others_write(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by, char *buffer,
                        size_t size, weir_text *others)
{
    char *at = buffer, cost[32];
    size_t count = 0;
    size = size < WEIR_OTHERS_BYTES ? size : WEIR_OTHERS_BYTES;
    for (size_t i = 0; i < ctx->count; i++) {
        const struct weir__rule_eval *eval = &ctx->evals[i];
        if (!goes_along(eval) || was_listed(ctx, by, i))
            continue;
        weir_text tier = eval->quota ? eval->quota->tier : (weir_text){NULL, 0};
        int len = snprintf(cost, sizeof cost, ".%lld", (long long)weir__eval_base_cost(ctx, eval));
        size_t needed = 2 * (eval->rule->base.len + eval->key_len + tier.len) + 3 + (size_t)len;
        if (count++ == WEIR_OTHERS_MAX || needed > size - (size_t)(at - buffer))
            return false;
        if (count > 1)
            *at++ = ';';
        at = weir__write_hex(at, eval->rule->base.data, eval->rule->base.len);
        *at++ = '.';
        at = weir__write_hex(at, eval->key, eval->key_len);
        *at++ = '.';
        at = weir__write_hex(at, tier.data, tier.len);
        at = (char *)memcpy(at, cost, (size_t)len) + len;
    }
    *others = (weir_text){buffer, (size_t)(at - buffer)};
    return true;
}

/* Decodes the bytes up to the next '.', with a zero byte after them, to *end. False: malformed. */
static bool read_hex(weir_text *rest, char **end, weir_text *to)
{
    to->data = *end;
    for (; rest->len >= 2 && rest->data[0] != '.'; rest->data += 2, rest->len -= 2) {
        int high = weir__hex_value(rest->data[0]), low = weir__hex_value(rest->data[1]);
        if (high < 0 || low < 0 || weir__lower(rest->data[0]) != (unsigned char)rest->data[0] ||
            weir__lower(rest->data[1]) != (unsigned char)rest->data[1])
            return false; /* digits are of lower case: an entry has one form */
        *(*end)++ = (char)(high << 4 | low);
    }
    to->len = (size_t)(*end - to->data);
    *(*end)++ = 0;
    if (!rest->len || rest->data[0] != '.')
        return false;
    *rest = (weir_text){rest->data + 1, rest->len - 1};
    return true;
}

/*
 * Appends the evals of the other rules that still exist; their keys are in `texts`. Returns 0, WEIR_EINVAL (malformed)
 * or WEIR_ETOOMANY.
 */
static int add_others(const weir_rules *rules, weir_text rest, char texts[WEIR_OTHERS_BYTES],
                      struct weir__rule_eval evals[WEIR__MATCHES_MAX], size_t *count)
{
    if (rest.len > WEIR_OTHERS_BYTES)
        return WEIR_EINVAL;
    for (int i = 0; rest.len; i++) {
        weir_text rule, key, tier;
        int64_t cost;
        if (i == WEIR_OTHERS_MAX || !read_hex(&rest, &texts, &rule) || !read_hex(&rest, &texts, &key) ||
            !read_hex(&rest, &texts, &tier) || !rule.len || !key.len || key.len > WEIR__KEY_MAX)
            return WEIR_EINVAL;
        const char *end = memchr(rest.data, ';', rest.len);
        size_t len = end ? (size_t)(end - rest.data) : rest.len;
        if (!weir__parse_int((weir_text){rest.data, len}, &cost) || cost <= 0 || cost > WEIR__USED_MAX ||
            (end && len + 1 == rest.len))
            return WEIR_EINVAL;
        rest = (weir_text){rest.data + len + (end != NULL), rest.len - len - (end != NULL)};
        weir_taken what = {.rule = rule.data, .tier = tier};
        const struct weir__rule *named = enforced_named(rules, what.rule);
        if (!named || weir__text_equal(named->base, evals[0].rule->base))
            continue;
        *count = add_rule(rules, named, &what, key, cost, evals, *count);
        if (!*count)
            return WEIR_ETOOMANY;
    }
    return 0;
}

static int fault(const weir *engine, const weir_taken *what, int64_t cost, weir_time now)
{
    if (!engine || !what || !what->rule || (!what->key && what->key_len))
        return WEIR_EINVAL;
    if (!what->key_len)
        return WEIR_EKEYEMPTY;
    if (cost < 0 || cost > WEIR__USED_MAX)
        return WEIR_ECOST;
    if (now.mono_ns < 0 || now.wall_ns < 0)
        return WEIR_ETIME;
    return engine->segment->mapped.read_only ? WEIR_EREADONLY : 0;
}

int weir_key_take(weir *engine, const weir_taken *what, int64_t cost, weir_time now, weir_permits *permits,
                  weir_outcome *outcome)
{
    struct weir__request_ctx ctx;
    char text[WEIR__KEY_MAX], texts[WEIR_OTHERS_BYTES];
    int error = outcome ? fault(engine, what, cost, now) : WEIR_EINVAL;
    if (error)
        return error;
    weir__watch(engine);
    weir_text key = weir__key_counted((weir_text){what->key, what->key_len}, text);
    error = weir__ctx_begin(&ctx, engine, now);
    if (error)
        return error;
    const weir_rules *rules = ctx.ruleset->rules;
    const struct weir__rule *named = enforced_named(rules, what->rule);
    ctx.permits = permits ? permits : &ctx.scratch->permits;
    ctx.permits->count = ctx.permits->names_len = 0;
    ctx.count = named ? add_rule(rules, named, what, key, cost, ctx.evals, 0) : 0;
    error = !named       ? WEIR_ENORULE
            : !ctx.count ? WEIR_ETOOMANY
                         : add_others(rules, what->others, texts, ctx.evals, &ctx.count);
    if (!error && rules->load_aware)
        weir__overload_apply(&ctx, ctx.scratch->quotas);
    if (!error) {
        const struct weir__rule_eval *by = weir__evaluate(&ctx);
        weir__eval_outcome(by ? by : ctx.evals, outcome);
        if (ctx.warned && engine->denial_recorder.ring.rows)
            weir__denial_record(&ctx, NULL, NULL);
    }
    weir__ctx_end(&ctx);
    return error;
}
