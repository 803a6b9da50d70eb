/* Warnings: about one field when it is read, and about rules that are duplicates or never deny when all are read. */
#include "algo/algo.h"
#include "rules/native.h"
#include "base/text.h"
#include "rules/set.h"

#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>

#define WINDOW_SHORT_US   10000
#define BURST_WINDOWS_MAX 1000
#define LOG_LARGE         10000

/* ---- Patterns that match nothing ---- */

static bool has(weir_text text, const char *part)
{
    return memmem(text.data, text.len, part, strlen(part)) != NULL;
}

static bool ends(weir_text text, const char *part)
{
    size_t len = strlen(part);
    return text.len >= len && memcmp(text.data + text.len - len, part, len) == 0;
}

static bool has_escape(weir_text text)
{
    for (size_t i = 0; i + 2 < text.len; i++)
        if (text.data[i] == '%' && weir__hex_value(text.data[i + 1]) >= 0 && weir__hex_value(text.data[i + 2]) >= 0)
            return true;
    return false;
}

void weir__lint_path(const struct weir__node *node)
{
    weir_text path = node->text;
    const char *why = NULL;
    bool begins = path.data[0] == '/' || (path.len > 1 && path.data[0] == '*' && path.data[1] == '*');
    if (!begins)
        why = path.data[0] == '*' ? "it never matches, since paths begin with / and * stops there; ** does not"
              : path.data[0] == '^' || path.data[0] == '~'
                  ? "it never matches, since paths begin with /; a regular expression is { regex: '^/…' }"
                  : "it never matches, since paths begin with /";
    else if (memchr(path.data, '?', path.len) || memchr(path.data, '#', path.len))
        why = "paths are matched without query and fragment; match.query has the arguments";
    else if (has(path, "//") || has(path, "/./") || has(path, "/../") || ends(path, "/.") || ends(path, "/.."))
        why = "it never matches, since // and dots are resolved in the request's path";
    else if (has_escape(path))
        why = "it never matches, since the request's path is decoded: write the characters themselves";
    else if (path.len > WEIR__PATH_MAX)
        why = "it is longer than the part of a path that is evaluated";
    if (why)
        weir__node_warning(node, "path %.*s: %s", (int)(path.len < 100 ? path.len : 100), path.data, why);
}

void weir__lint_spellings(const struct weir__node *node, const struct weir__pattern *pattern, unsigned form)
{
    const char *ends[] = {";x=1", "/", "%20"}; /* by option, from WEIR__FORM_PARAMETERS on */
    char spellings[3 * 110] = "";
    size_t used = 0;
    weir_text path = pattern->text;
    if (pattern->kind != WEIR__PATTERN_EXACT || path.len < 2 || path.data[0] != '/' || path.len > 100)
        return;
    if (path.data[path.len - 1] == '/') {
        path.len--;
        ends[1] = "";
    }
    for (size_t i = 0; i < WEIR__COUNT(ends); i++)
        if (!(form & 1U << i))
            used += (size_t)snprintf(spellings + used, sizeof spellings - used, "%s%.*s%s", used ? ", " : "",
                                     (int)path.len, path.data, ends[i]);
    if (used)
        weir__node_warning(node,
                           "normalize leaves spellings that many servers take for the same path, and that this does "
                           "not match: %s",
                           spellings);
}

void weir__lint_method(const struct weir__node *method)
{
    char shown[WEIR__SHOWN];
    size_t count = 0;
    for (; weir__methods[count]; count++)
        if (weir__text_equal_nocase(method->text, weir__text_of(weir__methods[count])))
            return;
    const char *meant = weir__suggest(method->text, weir__methods, count);
    if (meant)
        weir__node_warning(method, "method %s is not a standard one; was %s meant?",
                           weir__printable(method->text, shown, sizeof shown), meant);
}

void weir__lint_host(const struct weir__node *node)
{
    weir_text host = node->text;
    bool bracketed = host.len > 1 && host.data[0] == '[' && host.data[host.len - 1] == ']';
    const char *why = NULL;
    if (memchr(host.data, '/', host.len) || (memchr(host.data, ':', host.len) && !bracketed))
        why = "hosts are compared without scheme, port and path";
    else if (ends(host, "."))
        why = "hosts are compared without a dot at the end";
    for (size_t i = 0; !why && i < host.len; i++)
        if ((unsigned char)host.data[i] >= 0x80)
            why = "requests have such names in their ASCII form, xn--…";
    if (why)
        weir__node_warning(node, "host %.*s never matches: %s", (int)(host.len < 100 ? host.len : 100), host.data, why);
}

/* ---- Attributes that clients control ---- */

/* The source of a named attribute in `identity`, or the attribute itself. */
static const struct weir__attribute *source_of(const struct weir__attributes *all, int attribute)
{
    const struct weir__attribute *named = &all->list[attribute];
    return named->kind == WEIR__ATTR_NAMED && named->source >= 0 ? &all->list[named->source] : named;
}

/* Headers with the client's address, which a client can send itself. */
static bool is_forgeable(const struct weir__attribute *attribute)
{
    static const char *const headers[] = {"x-forwarded-for",     "forwarded",        "x-real-ip",
                                          "x-client-ip",         "true-client-ip",   "cf-connecting-ip",
                                          "x-cluster-client-ip", "fastly-client-ip", "x-original-forwarded-for"};
    for (size_t i = 0; attribute->kind == WEIR__ATTR_HEADER && i < WEIR__COUNT(headers); i++)
        if (weir__text_is(attribute->name, headers[i]))
            return true;
    return false;
}

/* True for the name of an attribute without ${}: "user_id", "header:X-Plan", "{{user_id}}". */
static bool is_bare_name(const struct weir__attributes *all, weir_text text)
{
    static const char *const built_in[] = {"client_ip", "path", "method", "host"};
    static const char *const kinds[] = {"header:", "cookie:", "query:", "path:"};
    while (text.len && strchr("{ ", text.data[0])) {
        text.data++;
        text.len--;
    }
    while (text.len && strchr("} ", text.data[text.len - 1]))
        text.len--;
    for (size_t i = 0; i < WEIR__COUNT(built_in); i++)
        if (weir__text_is(text, built_in[i]) ||
            (text.len > strlen(kinds[i]) && memcmp(text.data, kinds[i], strlen(kinds[i])) == 0))
            return true;
    return weir__native_known(all, text);
}

void weir__lint_key(const struct weir__attributes *all, const struct weir__node *node, const struct weir__template *key)
{
    if (key->piece_count == 1 && key->pieces[0].attribute < 0 && is_bare_name(all, key->source))
        weir__node_warning(node, "the key is this very text for every request; an attribute is written ${name}");
    for (int i = 0; i < key->piece_count; i++) {
        int attribute = key->pieces[i].attribute;
        if (attribute < 0)
            continue;
        const struct weir__attribute *source = source_of(all, attribute);
        int len = (int)source->name.len;
        if (is_forgeable(source))
            weir__node_warning(node,
                               "any client can forge the header %.*s and with it this key; use ${client_ip} with "
                               "identity's trusted_proxies",
                               len, source->name.data);
        else if (source->kind == WEIR__ATTR_NAMED && !weir__native_known(all, source->name))
            weir__node_warning(node,
                               "identity does not name %.*s: only an application that gives it is limited by this "
                               "rule",
                               len, source->name.data);
    }
}

void weir__lint_listed(const struct weir__attributes *all, const struct weir__node *node,
                       const struct weir__template *key, const struct weir__access_list *list)
{
    int last = key->piece_count ? key->pieces[key->piece_count - 1].attribute : -1;
    unsigned form = last >= 0 ? source_of(all, last)->form : 0;
    for (size_t i = 0; form && i < list->key_count; i++) {
        weir_text text = list->keys[i];
        char shown[WEIR__SHOWN];
        if ((form & WEIR__FORM_SLASH && text.len > 1 && text.data[text.len - 1] == '/') ||
            (form & WEIR__FORM_PARAMETERS && memchr(text.data, ';', text.len)))
            weir__node_warning(node, "no key is %s: a path in a key is in its normal form, see normalize",
                               weir__printable(text, shown, sizeof shown));
    }
}

void weir__lint_tier(const struct weir__attributes *all, const struct weir__node *node, int attribute)
{
    enum weir__attribute_kind kind = source_of(all, attribute)->kind;
    if (kind == WEIR__ATTR_QUERY || kind == WEIR__ATTR_COOKIE)
        weir__node_warning(node, "the client chooses its tier itself, by a %s",
                           kind == WEIR__ATTR_QUERY ? "query argument" : "cookie");
}

/* ---- Numbers ---- */

void weir__lint_limit(const struct weir__node *node, const weir_limit *limit)
{
    bool bucket = limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
    if (limit->window_us < WINDOW_SHORT_US && limit->algorithm != WEIR_CONCURRENCY)
        weir__node_warning(node, "a window under %d ms: clocks and schedulers make such a limit a matter of luck",
                           WINDOW_SHORT_US / 1000);
    if (bucket && limit->hard / BURST_WINDOWS_MAX > limit->limit)
        weir__node_warning(node,
                           "a burst of %" PRId64 " takes more than %d windows to refill: once used up, it is gone",
                           limit->hard, BURST_WINDOWS_MAX);
    if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG && limit->cap > LOG_LARGE)
        weir__node_warning(node,
                           "the log keeps a time for each request, up to %" PRId64
                           " KiB a key; sliding_window_counter needs 36 bytes",
                           limit->cap * 4 / 1024);
}

void weir__lint_cost(const struct weir__node *node, const struct weir__rule *rule)
{
    const struct weir__cost *cost = &rule->cost;
    int64_t room = 0, most = cost->fallback;
    if (cost->fallback == 0 && cost->attribute < 0 && !cost->path_count)
        weir__node_warning(node, "a cost of 0 takes nothing: the rule limits nothing");
    for (size_t i = 0; i < rule->quota_count; i++) {
        if (rule->quotas[i].kind == WEIR__UNLIMITED)
            return;
        if (rule->quotas[i].kind == WEIR__LIMITED && rule->quotas[i].limit.cap > room)
            room = rule->quotas[i].limit.cap;
    }
    for (size_t i = 0; i < cost->path_count; i++)
        most = cost->paths[i].cost > most ? cost->paths[i].cost : most;
    if (weir__node_get(node, "max") && cost->max > most)
        most = cost->max;
    if (room && most > room)
        weir__node_warning(node,
                           "a cost of %" PRId64 " never fits: \"%.*s\" holds %" PRId64
                           " at most, so such requests are always denied",
                           most, (int)rule->name.len, rule->name.data, room);
}

/* ---- Rules compared with each other ---- */

#define PEERS_MAX 16 /* earlier rules that a rule is compared with, so that the time is linear */

/* A rule, and the one before it with the same requests, key and costs. */
struct peer {
    const struct weir__rule *rule;
    const struct peer *previous;
};

#define ORDER(x, y) ((x) < (y) ? -1 : 1)

static int compare_purposes(const void *x, const void *y)
{
    const struct weir__rule *a = ((const struct peer *)x)->rule, *b = ((const struct peer *)y)->rule;
    if (a->match->written != b->match->written)
        return ORDER(a->match->written, b->match->written);
    if (a->cost.written != b->cost.written)
        return ORDER(a->cost.written, b->cost.written);
    if (a->shadow != b->shadow || a->on_missing != b->on_missing)
        return ORDER(2 * (int)a->on_missing + a->shadow, 2 * (int)b->on_missing + b->shadow);
    return weir__text_order(a->key.source, b->key.source);
}

/* True without lists and overload policy, which make exceptions. */
static bool is_plain(const struct weir__rule *rule)
{
    const struct weir__overload_policy *policy = &rule->overload;
    return !weir__overload_is_scaled(policy) && !policy->reserve && !policy->has_class &&
           weir__list_is_empty(&rule->allow) && weir__list_is_empty(&rule->block);
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

static bool same_limits(const struct weir__rule *a, const struct weir__rule *b)
{
    if (a->quota_count != b->quota_count || a->tier != b->tier)
        return false;
    for (size_t i = 0; i < a->quota_count; i++)
        if (!same_quota(&a->quotas[i], &b->quotas[i]))
            return false;
    return true;
}

/* ---- Rules that never deny ---- */

static bool is_bucket(const weir_limit *limit)
{
    return limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
}

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

/* True if `narrow` denies before `wide` ever could, for the same key and costs. */
static bool never_bites(const weir_limit *wide, const weir_limit *narrow)
{
    if (wide->count_rejected || wide->delay) /* counts requests that other rules deny; delays below its limit */
        return false;
    if (wide->algorithm == WEIR_CONCURRENCY || narrow->algorithm == WEIR_CONCURRENCY)
        return same_kind(wide, narrow) && narrow->cap <= wide->hard;
    if (same_kind(wide, narrow))
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

static bool is_single(const struct weir__rule *rule)
{
    return rule->quota_count == 1 && rule->quotas->kind == WEIR__LIMITED && !rule->shadow && is_plain(rule);
}

static bool warn_if_idle(struct weir__diagnostics *report, const struct weir__rule *wide,
                         const struct weir__rule *narrow)
{
    char where[256];
    if (!is_single(wide) || !is_single(narrow) || !never_bites(&wide->quotas->limit, &narrow->quotas->limit))
        return false;
    weir__report_warning(report, wide->place, "\"%.*s\" never denies: \"%.*s\" (%s) is stricter for the same key",
                         (int)wide->name.len, wide->name.data, (int)narrow->name.len, narrow->name.data,
                         weir__place_text(report, narrow->place, where, sizeof where));
    return true;
}

/* Compares two rules; at most one warning about a pair. */
static bool compare(struct weir__diagnostics *report, const struct weir__rule *earlier, const struct weir__rule *later)
{
    char where[256];
    if (is_plain(earlier) && is_plain(later) && same_limits(earlier, later)) {
        weir__report_warning(report, later->place, "\"%.*s\" is a duplicate of \"%.*s\" (%s)", (int)later->name.len,
                             later->name.data, (int)earlier->name.len, earlier->name.data,
                             weir__place_text(report, earlier->place, where, sizeof where));
        return true;
    }
    return warn_if_idle(report, later, earlier) || warn_if_idle(report, earlier, later);
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
    if (set->load_aware)
        warn_of_reserves(set, report);
    /* Without memory there are no warnings; the rules are valid all the same. */
    struct peer *peers = calloc(set->count + 1, sizeof *peers);
    void *purposes = NULL; /* the latest rule of each */
    for (size_t i = 0; peers && i < set->count; i++) {
        peers[i].rule = set->rules[i];
        const struct peer **latest = set->rules[i]->match ? tsearch(&peers[i], &purposes, compare_purposes) : NULL;
        if (!latest || *latest == &peers[i])
            continue;
        const struct peer *peer = peers[i].previous = *latest;
        *latest = &peers[i];
        for (int n = 0; peer && n < PEERS_MAX && !compare(report, peer->rule, set->rules[i]); n++)
            peer = peer->previous;
    }
    weir__tree_free(purposes);
    free(peers);
}
