/*
 * Warnings that take all rules: duplicates, rules that never deny or are never reached, headers that contradict each
 * other; and, where the host is known (struct weir__rules_host), attributes that nothing sets and memory.
 */
#include "algo/algo.h"
#include "base/duration.h"
#include "base/text.h"
#include "rules/set.h"

#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>

#define PEERS_MAX 16 /* rules that a rule is compared with for one warning, so that the time is linear */
/*
 * Steps that rules are compared with each other in, for one kind of warning; after them there are no further ones of
 * the kind. Every process that loads the rules takes the time, and who publishes them chooses the lengths of lists.
 */
#define STEPS_MAX 4000000

struct lint {
    const weir_rules *set;
    struct weir__diagnostics *report;
    uint64_t left; /* of STEPS_MAX */
};

/* False: too few are left, and nothing is to be compared any more. */
static bool spend(struct lint *lint, size_t steps)
{
    lint->left = steps < lint->left ? lint->left - steps : 0;
    return lint->left > 0;
}

static bool is_bucket(const weir_limit *limit)
{
    return limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
}

/* A tier of the rule that is counted, or NULL. They differ only in their units. */
static const struct weir__quota *counted(const struct weir__rule *rule)
{
    for (size_t i = 0; i < rule->quota_count; i++)
        if (rule->quotas[i].kind == WEIR__LIMITED)
            return &rule->quotas[i];
    return NULL;
}

/* True without lists and overload policy, which make exceptions. */
static bool is_plain(const struct weir__rule *rule)
{
    const struct weir__overload_policy *policy = &rule->overload;
    return !weir__overload_is_scaled(policy) && !policy->reserve && !policy->has_class &&
           weir__list_is_empty(&rule->allow) && weir__list_is_empty(&rule->block);
}

/* ---- Which requests a rule matches ---- */

#define PAIRS_MAX 4096 /* pairs of index entries that are compared */

/* Spends what it takes to match two texts: globs try each piece of one at each place of the other. */
static bool spend_match(struct lint *lint, const struct weir__pattern *a, weir_text text)
{
    size_t bytes = a->kind == WEIR__PATTERN_GLOB ? a->text.len * text.len : text.len;
    return spend(lint, 1 + bytes / 64);
}

/* True if `a` is a prefix with any text behind it, whose length is then *len. */
static bool is_prefix(const struct weir__pattern *a, size_t *len)
{
    const char *star = memchr(a->text.data, '*', a->text.len);
    if (a->kind != WEIR__PATTERN_GLOB || !star)
        return false;
    *len = (size_t)(star - a->text.data);
    size_t stars = a->text.len - *len;
    return stars == 1 ? !a->path || (*len && star[-1] == '/') : stars == 2 && star[1] == '*';
}

/* True if `a` surely matches every text that `b` matches. NULL matches any. */
static bool pattern_covers(struct lint *lint, const struct weir__pattern *a, const struct weir__pattern *b)
{
    size_t len;
    if (!a)
        return true;
    if (!spend_match(lint, a, b ? b->text : a->text) || !b || a->nocase != b->nocase ||
        a->kind == WEIR__PATTERN_REGEX || b->kind == WEIR__PATTERN_REGEX)
        return false;
    if (a->kind == b->kind && weir__text_equal(a->text, b->text))
        return true;
    if (b->kind == WEIR__PATTERN_EXACT)
        return weir__pattern_match(a, b->text, false, NULL);
    return b->kind == WEIR__PATTERN_GLOB && is_prefix(a, &len) && b->text.len > len &&
           memcmp(a->text.data, b->text.data, len) == 0;
}

static bool same_condition(struct lint *lint, const struct weir__condition *a, const struct weir__condition *b)
{
    bool same = spend(lint, 1) && a->attribute == b->attribute && a->negate == b->negate && a->absent == b->absent &&
                a->pattern_count == b->pattern_count;
    for (size_t i = 0; same && i < a->pattern_count; i++)
        same = spend(lint, 1 + a->patterns[i].text.len / 64) && a->patterns[i].kind == b->patterns[i].kind &&
               a->patterns[i].nocase == b->patterns[i].nocase &&
               weir__text_equal(a->patterns[i].text, b->patterns[i].text);
    return same;
}

/* True for `path: { not: … }` with exact paths of which `match` has none. */
static bool is_elsewhere(struct lint *lint, const struct weir__condition *condition, const struct weir__match *match)
{
    if (condition->attribute != WEIR__AT_PATH || !condition->negate)
        return false;
    for (size_t i = 0; i < condition->pattern_count; i++) {
        const struct weir__pattern *sent = &condition->patterns[i];
        weir_text normal = condition->normal ? condition->normal[i].text : sent->text;
        if (sent->kind != WEIR__PATTERN_EXACT)
            return false;
        for (size_t k = 0; k < match->entry_count; k++) {
            const struct weir__pattern *path = match->entries[k].path;
            if (!path || !spend_match(lint, path, sent->text) || weir__pattern_match(path, sent->text, false, NULL) ||
                weir__pattern_match(path, normal, false, NULL))
                return false;
        }
    }
    return true;
}

/* True if every request that matches `b` surely matches `a`. */
static bool match_covers(struct lint *lint, const struct weir__match *a, const struct weir__match *b)
{
    if (a->written == b->written)
        return true;
    if (!spend(lint, 1) || b->methods & ~a->methods || a->form != b->form ||
        a->entry_count * b->entry_count > PAIRS_MAX)
        return false;
    if (a->networks && (a->networks_negate || b->networks_negate || !b->networks ||
                        !weir__networks_within(b->networks, a->networks, &lint->left)))
        return false;
    for (size_t i = 0; i < a->condition_count; i++) {
        bool implied = is_elsewhere(lint, &a->conditions[i], b);
        for (size_t k = 0; !implied && k < b->condition_count; k++)
            implied = same_condition(lint, &a->conditions[i], &b->conditions[k]);
        if (!implied)
            return false;
    }
    for (size_t k = 0; k < b->entry_count; k++) {
        bool covered = false;
        for (size_t i = 0; !covered && i < a->entry_count; i++)
            covered = pattern_covers(lint, a->entries[i].host, b->entries[k].host) &&
                      pattern_covers(lint, a->entries[i].path, b->entries[k].path);
        if (!covered)
            return false;
    }
    return true;
}

/* ---- Rules compared with each other ---- */

/* A rule, and the one before it with the same key, costs and policy; `previous_same` also has the same match. */
struct peer {
    const struct weir__rule *rule;
    struct peer *previous, *previous_same;
    bool warned; /* that it never denies */
};

#define ORDER(x, y) ((x) < (y) ? -1 : 1)

/* Rules with different numbers count different requests, or those of other hosts: neither makes the other redundant. */
static int policy_number(const struct weir__rule *rule)
{
    int requests = 2 * (int)rule->on_missing + rule->shadow;
    int hosts = 2 * (int)rule->consistency + rule->consistency_given;
    return (requests << 8) + (hosts << 4) + (int)rule->on_failure;
}

static int compare_counters(const void *x, const void *y)
{
    const struct weir__rule *a = ((const struct peer *)x)->rule, *b = ((const struct peer *)y)->rule;
    if (a->cost.written != b->cost.written)
        return ORDER(a->cost.written, b->cost.written);
    if (policy_number(a) != policy_number(b))
        return ORDER(policy_number(a), policy_number(b));
    return weir__text_order(a->key.source, b->key.source);
}

static int compare_purposes(const void *x, const void *y)
{
    const struct weir__rule *a = ((const struct peer *)x)->rule, *b = ((const struct peer *)y)->rule;
    if (a->match->written != b->match->written)
        return ORDER(a->match->written, b->match->written);
    return compare_counters(x, y);
}

/* ---- Duplicates ---- */

static bool same_kind(const weir_limit *a, const weir_limit *b)
{
    return a->algorithm == b->algorithm && a->refill == b->refill && a->align == b->align &&
           a->calendar == b->calendar && a->round_up == b->round_up && a->count_rejected == b->count_rejected &&
           a->delay == b->delay && a->buckets == b->buckets && a->window_us == b->window_us && a->zone == b->zone;
}

static bool same_quota(const struct weir__quota *a, const struct weir__quota *b)
{
    if (a->kind != b->kind || !weir__text_equal(a->tier, b->tier))
        return false;
    return a->kind != WEIR__LIMITED ||
           (same_kind(&a->limit, &b->limit) && a->limit.limit == b->limit.limit && a->limit.hard == b->limit.hard &&
            a->limit.cap == b->limit.cap && a->limit.max_delay_us == b->limit.max_delay_us);
}

static bool same_limits(struct lint *lint, const struct weir__rule *a, const struct weir__rule *b)
{
    if (a->quota_count != b->quota_count || a->tier != b->tier || !spend(lint, a->quota_count))
        return false;
    for (size_t i = 0; i < a->quota_count; i++)
        if (!same_quota(&a->quotas[i], &b->quotas[i]))
            return false;
    return true;
}

/* ---- Rules that never deny ---- */

/*
 * In any interval t a limit admits at most at_once + rate × t: the burst of a bucket, or the windows that the interval
 * covers in part.
 */
static weir__u128 at_once(const weir_limit *limit)
{
    weir__u128 cap = (weir__u128)(uint64_t)limit->cap;
    if (is_bucket(limit))
        return limit->refill == WEIR_REFILL_INTERVAL ? cap + (weir__u128)(uint64_t)limit->limit : cap;
    return limit->algorithm == WEIR_SLIDING_WINDOW_LOG ? cap : 2 * cap;
}

static weir__u128 per_window(const weir_limit *limit)
{
    return (weir__u128)(uint64_t)(is_bucket(limit) ? limit->limit : limit->cap);
}

/* The bound above for an interval of t_us, rounded up. Tighter where windows nest. */
static weir__u128 admits(const weir_limit *limit, int64_t t_us, bool nested)
{
    weir__u128 t = (weir__u128)(uint64_t)t_us, window = (weir__u128)(uint64_t)limit->window_us;
    if (nested)
        return t / window * (weir__u128)(uint64_t)limit->cap;
    if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG)
        return (t + window - 1) / window * (weir__u128)(uint64_t)limit->cap;
    return at_once(limit) + (per_window(limit) * t + window - 1) / window;
}

/* How long a window is at the most; calendars have days of 25 hours. */
static int64_t longest_us(const weir_limit *limit)
{
    static const int64_t hours[] = {25, 7 * 24 + 1, 31 * 24 + 1, 366 * 24 + 1};
    return limit->align == WEIR_ALIGN_CALENDAR ? hours[limit->calendar] * 3600000000 : limit->window_us;
}

/*
 * True if `narrow` denies before `wide` ever could, for the same key and costs, and for the same requests or, without
 * `same`, for more.
 */
static bool never_bites(const weir_limit *wide, const weir_limit *narrow, bool same)
{
    /* Windows and refills that begin with a request begin with different ones. */
    bool shifted = !same && (wide->align == WEIR_ALIGN_FIRST_REQUEST || wide->refill == WEIR_REFILL_INTERVAL);
    if (wide->count_rejected || wide->delay) /* counts requests that other rules deny; delays below its limit */
        return false;
    if (wide->algorithm == WEIR_CONCURRENCY || narrow->algorithm == WEIR_CONCURRENCY)
        return same_kind(wide, narrow) && narrow->cap <= wide->hard;
    if (same_kind(wide, narrow) && !shifted)
        return narrow->limit <= wide->limit && narrow->cap <= wide->hard;
    if (narrow->align == WEIR_ALIGN_CALENDAR || (is_bucket(wide) && wide->refill == WEIR_REFILL_INTERVAL))
        return false;
    if (is_bucket(wide)) /* as full and as fast at any time */
        return at_once(narrow) <= (weir__u128)(uint64_t)wide->hard &&
               per_window(narrow) * (weir__u128)(uint64_t)wide->window_us <=
                   per_window(wide) * (weir__u128)(uint64_t)narrow->window_us;

    bool nested = wide->algorithm == WEIR_FIXED_WINDOW && narrow->algorithm == WEIR_FIXED_WINDOW &&
                  wide->align == WEIR_ALIGN_CLOCK && narrow->align == WEIR_ALIGN_CLOCK &&
                  wide->window_us % narrow->window_us == 0;
    /* The sliding counter also weighs the window before. */
    int64_t t_us = longest_us(wide) * (wide->algorithm == WEIR_SLIDING_WINDOW_COUNTER ? 2 : 1);
    return admits(narrow, t_us, nested) <= (weir__u128)(uint64_t)wide->hard;
}

/* ---- Comparing ---- */

/* The above for one tier. */
static bool never_bites_tier(const struct weir__rule *wide, const struct weir__rule *narrow, weir_text tier, bool same)
{
    const struct weir__quota *w = weir__rule_quota_of(wide, tier), *n = weir__rule_quota_of(narrow, tier);
    if (!w || w->kind == WEIR__UNLIMITED)
        return true;
    if (!n || n->kind != WEIR__LIMITED)
        return n && n->kind == WEIR__BANNED;
    return w->kind == WEIR__LIMITED && never_bites(&w->limit, &n->limit, same);
}

static bool never_denies(struct lint *lint, const struct weir__rule *wide, const struct weir__rule *narrow, bool same)
{
    if (!spend(lint, wide->quota_count + narrow->quota_count) || wide->shadow || narrow->shadow || !is_plain(wide) ||
        !is_plain(narrow) || !counted(wide) || (wide->tier >= 0 && narrow->tier >= 0 && wide->tier != narrow->tier))
        return false;
    bool never = never_bites_tier(wide, narrow, (weir_text){"", 0}, same);
    for (size_t i = 0; never && i < wide->quota_count; i++)
        never = never_bites_tier(wide, narrow, wide->quotas[i].tier, same);
    for (size_t i = 0; never && i < narrow->quota_count; i++)
        never = never_bites_tier(wide, narrow, narrow->quotas[i].tier, same);
    return never;
}

static bool warn_if_idle(struct lint *lint, struct peer *one, const struct weir__rule *narrow)
{
    char where[256];
    const struct weir__rule *wide = one->rule;
    bool same = wide->match->written == narrow->match->written;
    if (one->warned || !never_denies(lint, wide, narrow, same) || !match_covers(lint, narrow->match, wide->match))
        return false;
    one->warned = true;
    weir__report_warning(lint->report, wide->place,
                         "\"%.*s\" never denies: \"%.*s\" (%s) is stricter for the same key%s", (int)wide->name.len,
                         wide->name.data, (int)narrow->name.len, narrow->name.data,
                         weir__place_text(lint->report, narrow->place, where, sizeof where),
                         same ? "" : " and also counts all of its requests; remove it, or lower its limit");
    return true;
}

/* Compares two rules; at most one warning about a pair. */
static bool compare(struct lint *lint, struct peer *one, struct peer *other)
{
    char where[256];
    const struct weir__rule *earlier = one->rule, *later = other->rule;
    if (earlier->match->written == later->match->written && is_plain(earlier) && is_plain(later) &&
        same_limits(lint, earlier, later)) {
        weir__report_warning(lint->report, later->place, "\"%.*s\" is a duplicate of \"%.*s\" (%s)",
                             (int)later->name.len, later->name.data, (int)earlier->name.len, earlier->name.data,
                             weir__place_text(lint->report, earlier->place, where, sizeof where));
        return true;
    }
    return warn_if_idle(lint, other, earlier) || warn_if_idle(lint, one, later);
}

/* The peer before this one in a tree, of which this becomes the latest. NULL: there is none. */
static struct peer *latest_before(struct peer *peer, void **tree, int (*order)(const void *, const void *))
{
    struct peer **latest = tsearch(peer, tree, order);
    if (!latest || *latest == peer)
        return NULL;
    struct peer *before = *latest;
    *latest = peer;
    return before;
}

/* Without memory there are no warnings; the rules are valid all the same. */
static void warn_of_redundant(struct lint *lint)
{
    const weir_rules *set = lint->set;
    struct peer *peers = calloc(set->count + 1, sizeof *peers);
    void *purposes = NULL, *counters = NULL; /* the latest rule of each */
    for (size_t i = 0; peers && i < set->count && lint->left; i++) {
        struct peer *own = &peers[i];
        own->rule = set->rules[i];
        if (!own->rule->match)
            continue;
        own->previous_same = latest_before(own, &purposes, compare_purposes);
        own->previous = latest_before(own, &counters, compare_counters);
        bool found = false; /* one warning is enough */
        struct peer *peer = own->previous_same;
        for (int n = 0; peer && n < PEERS_MAX && !found; n++, peer = peer->previous_same)
            found = compare(lint, peer, own);
        peer = own->previous;
        for (int n = 0; peer && n < PEERS_MAX && !found; n++, peer = peer->previous)
            found = peer->rule->match->written != own->rule->match->written && compare(lint, peer, own);
    }
    weir__tree_free(purposes);
    weir__tree_free(counters);
    free(peers);
}

/* ---- Rules that no request reaches ---- */

static bool has_attribute(const struct weir__template *key)
{
    for (int i = 0; i < key->piece_count; i++)
        if (key->pieces[i].attribute >= 0)
            return true;
    return false;
}

/* True if the rule denies every request that it matches. */
static bool denies_all(const weir_rules *set, const struct weir__rule *rule)
{
    bool banned = rule->match && !rule->shadow && is_plain(rule) && rule->has_default;
    for (size_t i = 0; banned && i < rule->quota_count; i++)
        banned = rule->quotas[i].kind == WEIR__BANNED;
    bool every_key = !has_attribute(&rule->key) ||
                     (rule->on_missing != WEIR__MISSING_SKIP && !set->allow.key_count && !set->allow.glob_count);
    return banned && every_key;
}

/* The list at the top that decides all requests of the networks that the rule matches, or NULL. */
static const char *decided_before(struct lint *lint, const struct weir__match *match)
{
    const weir_rules *set = lint->set;
    if (!match->networks || match->networks_negate)
        return NULL;
    if (set->block.networks && weir__networks_within(match->networks, set->block.networks, &lint->left))
        return "block";
    return set->allow.networks && weir__networks_within(match->networks, set->allow.networks, &lint->left) ? "allow"
                                                                                                           : NULL;
}

static void warn_of_unreachable(struct lint *lint)
{
    const weir_rules *set = lint->set;
    struct weir__diagnostics *report = lint->report;
    const struct weir__rule *bans[PEERS_MAX];
    size_t ban_count = 0;
    char where[256];
    for (size_t i = 0; i < set->count && ban_count < PEERS_MAX; i++)
        if (denies_all(set, set->rules[i]))
            bans[ban_count++] = set->rules[i];
    for (size_t i = 0; i < set->count && lint->left; i++) {
        const struct weir__rule *rule = set->rules[i];
        if (!rule->match || rule->shadow || !counted(rule))
            continue;
        const char *list = decided_before(lint, rule->match);
        if (list)
            weir__report_warning(report, rule->place,
                                 "\"%.*s\" has no effect: its networks are in %s at the top, which decides before any "
                                 "rule; remove the rule, or take them from there",
                                 (int)rule->name.len, rule->name.data, list);
        for (size_t k = 0; !list && k < ban_count; k++) {
            if (!match_covers(lint, bans[k]->match, rule->match))
                continue;
            weir__report_warning(
                report, rule->place,
                "\"%.*s\" has no effect: \"%.*s\" (%s) denies all of its requests; remove the rule, or "
                "leave its requests out there",
                (int)rule->name.len, rule->name.data, (int)bans[k]->name.len, bans[k]->name.data,
                weir__place_text(report, bans[k]->place, where, sizeof where));
            break;
        }
    }
}

/* ---- Headers that contradict each other ---- */

enum { FAMILIES = WEIR_HEADERS_X_RATELIMIT | WEIR_HEADERS_DRAFT, STYLES = 16 };

/* What a rule sends to a client whose request passes: WEIR_HEADERS_… of the families, and the form of the reset. */
static unsigned style_of(const struct weir__rule *rule)
{
    unsigned reset = rule->response.headers & WEIR_HEADERS_X_RATELIMIT ? WEIR_HEADERS_RESET_DELTA : 0;
    return rule->response.headers & (FAMILIES | reset);
}

static const char *style_text(unsigned style)
{
    static const char *const texts[] = {"none", "x-ratelimit", "draft", "x-ratelimit and draft"};
    static const char *const by_delta[] = {"", "x-ratelimit with reset: delta", "",
                                           "x-ratelimit with reset: delta, and draft"};
    return (style & WEIR_HEADERS_RESET_DELTA ? by_delta : texts)[style & FAMILIES];
}

/* True if `report` names one rule for both, whose headers a client then gets. */
static bool reports_same(const struct weir__rule *a, const struct weir__rule *b)
{
    return a->response.report.len && weir__text_equal(a->response.report, b->response.report);
}

/* Rules that send none leave the headers to others: that is no contradiction. */
static void warn_of_headers(struct lint *lint)
{
    const weir_rules *set = lint->set;
    struct weir__diagnostics *report = lint->report;
    const struct weir__rule *seen[STYLES][PEERS_MAX];
    size_t seen_count[STYLES] = {0};
    char where[256];
    for (size_t i = 0; i < set->count && lint->left; i++) {
        const struct weir__rule *rule = set->rules[i], *other = NULL;
        unsigned style = style_of(rule);
        if (!rule->match || rule->shadow || !counted(rule) || !(style & FAMILIES))
            continue;
        for (unsigned k = 0; k < STYLES; k++)
            for (size_t n = 0; k != style && !other && n < seen_count[k] && n < PEERS_MAX; n++)
                if (!reports_same(seen[k][n], rule) && (match_covers(lint, seen[k][n]->match, rule->match) ||
                                                        match_covers(lint, rule->match, seen[k][n]->match)))
                    other = seen[k][n];
        seen[style][seen_count[style]++ % PEERS_MAX] = rule;
        if (other)
            weir__report_warning(
                report, rule->place,
                "\"%.*s\" sends the headers %s, but \"%.*s\" (%s), for the same requests, %s: a client "
                "gets those of the rule with the smaller share left; give both the same response",
                (int)rule->name.len, rule->name.data, style_text(style), (int)other->name.len, other->name.data,
                weir__place_text(report, other->place, where, sizeof where), style_text(style_of(other)));
    }
}

/* ---- Attributes that nothing sets ---- */

/* What follows for a rule if an attribute that it uses is always missing; NULL: the rule does not use it. */
static const char *effect_of_missing(const struct weir__rule *rule, int attribute)
{
    for (size_t i = 0; rule->match && i < rule->match->condition_count; i++) {
        const struct weir__condition *condition = &rule->match->conditions[i];
        if (condition->attribute == attribute)
            return condition->absent || condition->negate ? "its condition always holds in" : "nothing matches";
    }
    for (int i = 0; i < rule->key.piece_count; i++)
        if (rule->key.pieces[i].attribute == attribute)
            return rule->on_missing == WEIR__MISSING_SKIP   ? "no request is limited by"
                   : rule->on_missing == WEIR__MISSING_DENY ? "every request is denied by"
                                                            : "all requests share one counter of";
    if (rule->cost.attribute == attribute)
        return "every request has the default cost of";
    if (rule->tier == attribute)
        return rule->has_default ? "every request has the default limit of" : "no request is limited by";
    return NULL;
}

static bool names_sources(const struct weir__attributes *all)
{
    for (int i = 0; i < all->count; i++)
        if (all->list[i].kind == WEIR__ATTR_NAMED && all->list[i].source >= 0)
            return true;
    return false;
}

/*
 * Whether another caller passes an attribute is known for a gateway alone. Rule files without sources are for callers
 * that pass the well-known attributes.
 */
static void warn_of_unset(const weir_rules *set, struct weir__diagnostics *report)
{
    static const char *const unless[] = {[WEIR__CALLERS_UNKNOWN] =
                                             "unless the application, or weir_attribute in nginx, passes it, ",
                                         [WEIR__CALLERS_SERVICE] = "unless a caller of the service passes it, ",
                                         [WEIR__CALLERS_NONE] = ""};
    const struct weir__attributes *all = &set->attributes;
    bool all_named = report->host->callers != WEIR__CALLERS_UNKNOWN || names_sources(all);
    for (int i = 0; i < all->count; i++) {
        const struct weir__attribute *one = &all->list[i];
        const struct weir__rule *first = NULL;
        const char *effect = NULL;
        size_t others = 0;
        if (one->kind != WEIR__ATTR_NAMED || one->source >= 0 ||
            (!all_named && weir__attribute_is_known(all, one->name)))
            continue;
        for (size_t k = 0; k < set->count; k++) {
            const char *its = effect_of_missing(set->rules[k], i);
            others += its && first && !weir__text_equal(first->base, set->rules[k]->base);
            first = its && !first ? set->rules[k] : first;
            effect = effect ? effect : its;
        }
        char more[64] = "";
        if (others)
            snprintf(more, sizeof more, " (and %zu more rule%s)", others, others == 1 ? "" : "s");
        if (first)
            weir__report_warning(report, all->first_use[i],
                                 "identity has no source of %.*s: %s%s \"%.*s\"%s; name one, such as %.*s: header:…",
                                 (int)one->name.len, one->name.data, unless[report->host->callers], effect,
                                 (int)first->base.len, first->base.data, more, (int)one->name.len, one->name.data);
    }
}

/* ---- Memory ---- */

#define KEYS_FEW 1000 /* keys that every segment should hold under a rule with a key */

/* Warns of records in the slab, which is a small part of the segment, that are so large that few fit. */
static void warn_of_memory(const weir_rules *set, struct weir__diagnostics *report)
{
    char segment[WEIR__DURATION_TEXT], record[WEIR__DURATION_TEXT], larger[WEIR__DURATION_TEXT];
    double bytes = (double)report->host->segment_bytes;
    for (size_t i = 0; i < set->count; i++) {
        const struct weir__rule *rule = set->rules[i];
        struct weir__footprint of = weir__rule_footprint(rule);
        double each = weir__footprint_segment(of), wanted = has_attribute(&rule->key) || !rule->match ? KEYS_FEW : 1;
        enum weir__consistency consistency =
            weir__rule_consistency(rule, (enum weir__consistency)report->host->consistency);
        bool in_store = (report->host->has_store || rule->consistency_given) &&
                        (consistency == WEIR__STRICT || consistency == WEIR__LEASED);
        if (of.slab == 0 || in_store || each * wanted <= bytes)
            continue;
        int algorithm = counted(rule)->limit.algorithm;
        bool pass = rule->on_failure == WEIR__FAIL_OPEN || algorithm == WEIR_CONCURRENCY;
        weir__report_warning(
            report, rule->place,
            "a segment of %s holds %.0f keys of \"%.*s\" at their limit, of %s each in its slab; more keys are %s; use "
            "%s, or segment.size: %s",
            weir__size_text(bytes, segment), (double)(int64_t)(bytes / each), (int)rule->name.len, rule->name.data,
            weir__bytes_text(of.slab, record),
            rule->on_failure == WEIR__FAIL_CLOSED ? "denied"
            : pass                                ? "not limited"
                                                  : "counted approximately",
            algorithm == WEIR_CONCURRENCY              ? "a lower limit"
            : algorithm == WEIR_SLIDING_WINDOW_COUNTER ? "buckets: 2"
                                                       : "sliding_window_counter, which needs 20 to 40 bytes a key",
            weir__size_text(each * wanted, larger));
    }
}

/* ---- Leases ---- */

/* A host has no units for denied calls: see weir__eval_counts_denied. */
static void warn_of_leases(const weir_rules *set, struct weir__diagnostics *report)
{
    for (size_t i = 0; i < set->count && report->host->counts_denied; i++) {
        const struct weir__rule *rule = set->rules[i];
        const struct weir__quota *quota = counted(rule);
        if (!rule->domain.len || !quota || quota->limit.algorithm != WEIR_FIXED_WINDOW ||
            !(report->host->has_store || rule->consistency_given) ||
            weir__rule_consistency(rule, (enum weir__consistency)report->host->consistency) != WEIR__LEASED)
            continue;
        weir__report_warning(report, rule->place,
                             "fixed windows of Envoy's service, as \"%.*s\", are not leased but strict, since denied "
                             "calls count; set service.envoy.count_denied: false, or use a token_bucket",
                             (int)rule->name.len, rule->name.data);
        return;
    }
}

/* ---- Reserves ---- */

/* A reserve that no request may use only lowers the limit. */
static void warn_of_reserves(const weir_rules *set, struct weir__diagnostics *report)
{
    bool critical = false;
    for (size_t i = 0; i < set->count && !critical; i++) {
        const struct weir__overload_policy *policy = &set->rules[i]->overload;
        critical = !set->rules[i]->shadow && policy->has_class && policy->class == WEIR_CRITICAL;
    }
    for (size_t i = 0; i < set->count && !critical; i++)
        if (set->rules[i]->overload.reserve)
            weir__report_warning(report, set->rules[i]->place,
                                 "\"%.*s\" keeps a reserve, but no rule has priority: critical: no request may use it",
                                 (int)set->rules[i]->name.len, set->rules[i]->name.data);
}

void weir__rules_lint(const weir_rules *set, struct weir__diagnostics *report)
{
    static void (*const comparing[])(struct lint * lint) = {warn_of_unreachable, warn_of_headers, warn_of_redundant};
    if (!report->diagnose)
        return;
    if (set->load_aware)
        warn_of_reserves(set, report);
    if (report->host) {
        warn_of_unset(set, report);
        warn_of_memory(set, report);
        warn_of_leases(set, report);
    }
    for (size_t i = 0; i < WEIR__COUNT(comparing); i++)
        comparing[i](&(struct lint){.set = set, .report = report, .left = STEPS_MAX});
}
