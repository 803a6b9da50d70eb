/* Warnings about one field, when it is read. lint_set.c has those that take all rules. */
#include "base/text.h"
#include "rules/native.h"

#include <inttypes.h>
#include <stdio.h>

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
    if (weir__method_bit(method->text) != WEIR__METHOD_OTHER)
        return;
    const char *meant = weir__suggest(method->text, weir__methods, WEIR__METHODS);
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

/* The source of a named attribute in `identity`, or the attribute itself, also if a file has its values. */
static const struct weir__attribute *source_of(const struct weir__attributes *all, int attribute)
{
    const struct weir__attribute *named = &all->list[attribute];
    return named->kind == WEIR__ATTR_NAMED && named->source >= 0 && !named->mapping ? &all->list[named->source] : named;
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
    static const char *const kinds[] = {"header:", "cookie:", "query:", "path:"};
    while (text.len && strchr("{ ", text.data[0])) {
        text.data++;
        text.len--;
    }
    while (text.len && strchr("} ", text.data[text.len - 1]))
        text.len--;
    for (size_t i = 0; i < WEIR__COUNT(kinds); i++)
        if (text.len > strlen(kinds[i]) && memcmp(text.data, kinds[i], strlen(kinds[i])) == 0)
            return true;
    return weir__attribute_is_known(all, text);
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
        else if (source->kind == WEIR__ATTR_NAMED && !node->report->host && /* else lint_set.c knows more */
                 !weir__attribute_is_known(all, source->name))
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
    if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG && limit->cap > LOG_LARGE && !node->report->host)
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
