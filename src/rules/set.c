/* Compiles a rule set from its sources: the builder that both dialects add to, and freeing. */
#include "rules/descriptors.h"
#include "algo/algo.h"
#include "base/buffer.h"
#include "base/hash.h"

#include <search.h>
#include <stdlib.h>

struct weir__regex_list {
    const struct weir__regex *regex;
    struct weir__regex_list *next;
};

struct weir__zone_list {
    weir_text name;
    weir_zone *zone;
    struct weir__zone_list *next;
};

uint64_t weir__rule_id(weir_text name, bool shadow)
{
    return weir__hash_text(name, shadow ? 1 : 0);
}

/* ---- The builder ---- */

static int compare_rules(const void *x, const void *y)
{
    const struct weir__rule *a = x, *b = y;
    return a->shadow == b->shadow ? weir__text_order(a->name, b->name) : a->shadow - b->shadow;
}

/* Room for one more rule. False: no memory. */
static bool rules_grow(struct weir__builder *builder)
{
    weir_rules *set = builder->set;
    if (set->count < builder->rule_room)
        return true;
    size_t room = builder->rule_room ? builder->rule_room * 2 : 64;
    struct weir__rule **rules = weir__arena_array(&set->arena, room, sizeof(struct weir__rule *));
    if (!rules)
        return false;
    if (set->count)
        memcpy(rules, set->rules, set->count * sizeof(struct weir__rule *));
    set->rules = rules;
    builder->rule_room = room;
    return true;
}

bool weir__builder_add(struct weir__builder *builder, const struct weir__rule *rule)
{
    weir_rules *set = builder->set;
    if (set->count == WEIR__RULES_MAX) {
        if (!builder->full)
            weir__report_error(builder->report, rule->place, "more than %d rules in one set", WEIR__RULES_MAX);
        builder->full = true;
        return false;
    }
    struct weir__rule *copy = weir__arena_lines(&set->arena, sizeof *copy);
    if (!copy || !rules_grow(builder))
        return false;
    *copy = *rule;
    copy->index = (uint32_t)set->count;
    copy->id = weir__rule_id(rule->name, rule->shadow);

    const struct weir__rule *const *first = tsearch(copy, &builder->names, compare_rules);
    if (!first) {
        set->arena.failed = true;
        return false;
    }
    if (*first != copy) {
        char where[256];
        return weir__report_error(builder->report, rule->place, "the name \"%s\" is taken by the %srule at %s",
                                  rule->name.data, rule->shadow ? "shadow " : "",
                                  weir__place_text(builder->report, (*first)->place, where, sizeof where));
    }
    set->rules[set->count++] = copy;
    set->own_count += copy->match != NULL;
    set->load_aware |= weir__overload_is_scaled(&copy->overload) || copy->overload.reserve || copy->overload.has_class;
    set->warns |= copy->warn_at > 0;
    return true;
}

const struct weir__regex *weir__builder_regex(struct weir__builder *builder, const struct weir__node *node,
                                              weir_text text, bool nocase)
{
    weir_rules *set = builder->set;
    if (builder->regex_count == WEIR__REGEXES_MAX) {
        weir__node_error(node, "more than %d regular expressions in one set", WEIR__REGEXES_MAX);
        return NULL;
    }
    struct weir__regex_list *link = weir__arena_take(&set->arena, sizeof *link);
    if (!link || !(link->regex = weir__regex_compile(text, nocase, &set->arena, node->report, node->place)))
        return NULL;
    link->next = set->regexes;
    set->regexes = link;
    set->has_regex = true;
    builder->regex_count++;
    return link->regex;
}

const weir_zone *weir__builder_zone(struct weir__builder *builder, const struct weir__node *node, weir_text name)
{
    weir_rules *set = builder->set;
    for (const struct weir__zone_list *known = set->zones; known; known = known->next)
        if (weir__text_equal(known->name, name))
            return known->zone;

    struct weir__zone_list *link = weir__arena_take(&set->arena, sizeof *link);
    if (!link)
        return NULL;
    const struct weir__surroundings *around = builder->around;
    int error = around && around->open_zone ? around->open_zone(name.data, &link->zone) : WEIR_EZONE;
    if (error && error != WEIR_EZONE) {
        weir__node_error(node, "there is no memory or no file descriptor left for the time zone");
        set->arena.failed = true; /* not an error of the rules */
        return NULL;
    }
    if (error) {
        weir__node_error(node, "there is no time zone \"%s\" in this system's database", name.data);
        return NULL;
    }
    link->name = name;
    link->next = set->zones;
    set->zones = link;
    return link->zone;
}

/* ---- Compiling ---- */

static bool has_domain(const struct weir__node *root)
{
    return weir__node_get(root, "domain") || weir__node_get(root, "descriptors");
}

const struct weir__node *weir__rules_weir_yaml(const struct weir__node *root)
{
    static const char *const names[] = {"gateway", "service", "segment", "admin", "store", "metrics", "workers"};
    if (root->kind != WEIR__MAP)
        return NULL;
    for (const struct weir__node *member = root->first; member; member = member->next)
        for (size_t i = 0; i < WEIR__COUNT(names); i++)
            if (weir__text_is(member->name->text, names[i]))
                return member;
    return NULL;
}

/* Reports a weir.yaml that was given as a rule file. */
static bool is_weir_yaml(const struct weir__node *root)
{
    const struct weir__node *member = weir__rules_weir_yaml(root);
    if (member)
        weir__node_error(member->name,
                         "this is a weir.yaml, which has %s, and not a rule file: weir serve --check checks it, and "
                         "the rules that it names",
                         member->name->text.data);
    return member != NULL;
}

/* Reports a root that is no map or of another kind of file (then false), words that are of neither dialect, and a
 * mixture of the two. */
static bool check_root(const struct weir__node *root)
{
    static const char *const names[] = {"rules",     "identity", "allow",  "block",      "response",
                                        "normalize", "domains",  "domain", "descriptors"};
    enum { OWN = 7 };
    if (root->kind != WEIR__MAP)
        return weir__node_error(root, "a rule file is a map with rules or with a domain, not %s", weir__node_is(root));
    bool domain = has_domain(root);
    if (!domain && is_weir_yaml(root))
        return false;
    weir__field_names(root, domain ? "a file of descriptors" : "a rule file", WEIR__LIST_OF(names));
    for (size_t i = 0; i < OWN; i++) {
        const struct weir__node *own = weir__node_get(root, names[i]);
        if (own && domain)
            weir__node_error(own->name, "%s is of the native dialect, but this file has a domain: use two files",
                             names[i]);
    }
    return true;
}

/* A set in one text, as the rules service publishes it, has its domains in a list. */
static void read_domains(struct weir__builder *builder, const struct weir__node *root)
{
    const struct weir__node *domains = weir__node_get(root, "domains");
    if (domains && domains->kind != WEIR__LIST) {
        weir__node_error(domains, "domains is a list of files of descriptors, not %s", weir__node_is(domains));
        return;
    }
    for (const struct weir__node *domain = domains ? domains->first : NULL; domain; domain = domain->next)
        if (check_root(domain))
            weir__descriptors_read(builder, domain);
}

/* Reads every source: first the settings that rules of any file may refer to. */
static void read_all(struct weir__builder *builder)
{
    struct weir__diagnostics *report = builder->report;
    const struct weir__node **roots =
        weir__arena_array(&builder->set->arena, report->source_count, sizeof(struct weir__node *));
    if (!roots)
        return;
    for (uint32_t i = 0; i < report->source_count; i++) {
        const struct weir__node *root = weir__yaml_read(i, &builder->set->arena, report);
        if (!root || !check_root(root))
            continue;
        roots[i] = root;
        weir__native_form(builder, root);
    }
    for (uint32_t i = 0; i < report->source_count; i++)
        if (roots[i])
            weir__native_basis(builder, roots[i]);
    for (uint32_t i = 0; i < report->source_count; i++) {
        if (!roots[i])
            continue;
        if (has_domain(roots[i])) {
            weir__descriptors_read(builder, roots[i]);
        } else {
            weir__native_read(builder, roots[i]);
            read_domains(builder, roots[i]);
        }
    }
}

static bool make_gates(weir_rules *set)
{
    struct weir__gate *gates = weir__arena_array(&set->arena, set->count + 1, sizeof *gates);
    if (!gates)
        return false;
    for (size_t i = 0; i < set->count; i++) {
        const struct weir__match *match = set->rules[i]->match;
        bool more = match && (match->condition_count || match->networks);
        if (match)
            gates[i] = (struct weir__gate){.methods = (uint16_t)match->methods,
                                           .more = more,
                                           .open = match->methods == WEIR__METHOD_ANY && !more,
                                           .form = match->entries[0].path ? match->form : 0,
                                           .plain = weir__rule_is_plain(set, set->rules[i])};
    }
    set->gates = gates;
    return true;
}

/* True for a pattern that a path may match with the part after its first WEIR__PATH_MAX bytes. */
static bool has_open_end(const struct weir__pattern *path)
{
    if (!path || path->kind != WEIR__PATTERN_GLOB)
        return path && path->text.len > WEIR__PATH_MAX;
    const char *star = memchr(path->text.data, '*', path->text.len);
    size_t before = (size_t)(star - path->text.data), left = path->text.len - before;
    bool last = left == 1 || (left == 2 && star[1] == '*');
    return !last || before == 0 || star[-1] != '/';
}

/* The index from host and path to the rules of the native dialect. False: no memory. */
static bool index_paths(weir_rules *set)
{
    size_t count = 0, open_ends = 0;
    for (size_t i = 0; i < set->count; i++) {
        const struct weir__match *match = set->rules[i]->match;
        for (size_t k = 0; match && k < match->entry_count; k++, count++)
            open_ends += has_open_end(match->entries[k].path);
    }
    struct weir__path_entry *entries = calloc(count + 1, sizeof *entries), *at = entries;
    struct weir__path_entry *kept = weir__arena_array(&set->arena, open_ends + 1, sizeof *kept);
    for (size_t i = 0; entries && kept && i < set->count; i++) {
        const struct weir__match *match = set->rules[i]->match;
        for (size_t k = 0; match && k < match->entry_count; k++, at++) {
            *at = match->entries[k];
            at->rule = (uint32_t)i;
            at->form = match->form;
            set->by_host |= at->host != NULL;
            set->by_path |= at->path != NULL;
            set->odd |= at->path ? at->form : 0;
            set->forms |= (uint16_t)(at->path && at->form ? 1 << at->form : 0);
            if (has_open_end(at->path))
                kept[set->open_end_count++] = *at;
        }
    }
    set->open_ends = kept;
    set->paths = entries && kept ? weir__paths_make(&set->arena, entries, count) : NULL;
    free(entries);
    return set->paths != NULL;
}

static bool set_begin(weir_rules *set, const struct weir__diagnostics *report)
{
    struct weir__attributes *all = &set->attributes;
    set->arena.bytes_max = WEIR__SET_BYTES_MAX;
    all->identity.ipv4_prefix = 32;
    all->identity.ipv6_prefix = 64;
    set->response = WEIR__RESPONSE_DEFAULT;

    weir_text none = {"", 0};
    if (weir__attribute_add(all, &set->arena, WEIR__ATTR_PATH, none, 0) != WEIR__AT_PATH ||
        weir__attribute_add(all, &set->arena, WEIR__ATTR_HOST, none, 0) != WEIR__AT_HOST ||
        weir__attribute_add(all, &set->arena, WEIR__ATTR_METHOD, none, 0) != WEIR__AT_METHOD)
        return false;
    set->form = all->form = WEIR__FORM_DEFAULT;
    const char **names = weir__arena_array(&set->arena, report->source_count + 1, sizeof *names);
    if (!names)
        return false;
    for (size_t i = 0; i < report->source_count; i++) {
        const char *name = report->sources[i].name ? report->sources[i].name : "";
        names[i] = weir__arena_copy(&set->arena, (weir_text){name, strlen(name)}).data;
    }
    set->source_names = names;
    return !set->arena.failed;
}

int weir__rules_compile(struct weir__diagnostics *report, const struct weir__surroundings *around, weir_rules **set)
{
    struct weir__place nowhere = {0, 0, 0};
    weir_rules *made = calloc(1, sizeof *made);
    if (!made || !set_begin(made, report)) {
        weir__report_error(report, nowhere, "out of memory");
        weir_rules_free(made);
        return WEIR_ENOMEM;
    }
    struct weir__builder builder = {.set = made, .report = report, .around = around};
    made->close_zone = around ? around->close_zone : NULL;

    read_all(&builder);
    weir__native_check_reports(&builder);
    weir__tree_free(builder.names);
    weir__tree_free(builder.descriptor_names);
    if (!report->errors && !made->arena.failed && !made->count && !made->domains &&
        !builder.sections[WEIR__ALLOW].line && !builder.sections[WEIR__BLOCK].line) {
        /* An empty list is intended, e.g. by a rules service whose last rule was withdrawn. */
        if (builder.none_place.line)
            weir__report_warning(report, builder.none_place, "there are no rules: everything passes");
        else
            weir__report_error(report, nowhere, "there are no rules");
    }
    bool fits = !made->arena.failed && (report->errors || (index_paths(made) && make_gates(made)));
    if (!fits && made->arena.full)
        weir__report_error(report, nowhere, "the rules need more than %d MiB", (int)(WEIR__SET_BYTES_MAX >> 20));
    else if (!fits)
        weir__report_error(report, nowhere, "out of memory");
    if (report->errors) {
        int error = fits || made->arena.full ? WEIR_ERULES : WEIR_ENOMEM;
        weir_rules_free(made);
        return error;
    }
    weir__rules_lint(made, report);
    *set = made;
    return 0;
}

void weir_rules_free(weir_rules *set)
{
    if (!set)
        return;
    for (const struct weir__regex_list *r = set->regexes; r; r = r->next)
        weir__regex_free(r->regex);
    for (const struct weir__zone_list *z = set->zones; z; z = z->next)
        if (set->close_zone)
            set->close_zone(z->zone);
    for (int i = 0; i < set->attributes.count; i++)
        if (set->attributes.list[i].mapping)
            weir__map_release(set->attributes.list[i].mapping->map);
    weir__arena_free(&set->arena);
    free(set);
}

/* ---- Information about a set ---- */

size_t weir__rules_bytes(const weir_rules *set)
{
    size_t bytes = set->arena.bytes;
    for (int i = 0; i < set->attributes.count; i++)
        if (set->attributes.list[i].mapping)
            bytes += weir__map_bytes(set->attributes.list[i].mapping->map);
    return bytes;
}

size_t weir_rules_count(const weir_rules *rules)
{
    return rules->count;
}

/*
 * Bytes of a record in the slab: chunks of 32 bytes with 4 more for the lease, 1 to 8 of them, then 4 sizes a doubling.
 */
static int64_t record_bytes(int64_t bytes)
{
    int64_t chunks = (bytes + 31) / 32, step = 1;
    while (chunks > 8 * step)
        step *= 2;
    return (chunks + step - 1) / step * step * 36;
}

/*
 * The memory of a key that has used its limit (docs/internals/table.md): a slot of 16 bytes, or two for a two-bucket
 * counter whose counts do not fit one, or a slot and a record with a head of 16 bytes and 8 a bucket or request in
 * flight, or 4 a logged unit.
 */
static struct weir__footprint quota_footprint(const struct weir__quota *quota)
{
    const weir_limit *limit = quota->ceiling ? quota->ceiling : &quota->limit;
    struct weir__footprint one = {16, 0};
    if (quota->kind != WEIR__LIMITED)
        return (struct weir__footprint){0, 0};
    if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG)
        one.slab = (double)record_bytes(16 + 4 * limit->cap);
    else if (limit->algorithm == WEIR_CONCURRENCY)
        one.slab = (double)record_bytes(16 + 8 * (limit->cap + (limit->cap + 31) / 32));
    else if (limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && limit->buckets > 2)
        one.slab = (double)record_bytes(16 + 8 * limit->buckets);
    else if (limit->algorithm == WEIR_SLIDING_WINDOW_COUNTER && !weir__is_packed(limit))
        one.slots *= 2;
    return one;
}

/* The tier whose keys need most memory; tiers differ only in their units. */
static const struct weir__quota *largest_quota(const struct weir__rule *rule)
{
    const struct weir__quota *largest = &rule->quotas[0];
    for (size_t i = 1; i < rule->quota_count; i++)
        if (weir__footprint_segment(quota_footprint(&rule->quotas[i])) >
            weir__footprint_segment(quota_footprint(largest)))
            largest = &rule->quotas[i];
    return largest;
}

struct weir__footprint weir__rule_footprint(const struct weir__rule *rule)
{
    return quota_footprint(largest_quota(rule));
}

/* Parts of a segment (engine/segment.c, table/segment.c), and how full slots and slab may be. */
#define FILL       0.9
#define SLAB_SHARE (1.0 / 16)
#define SLOT_SHARE (1 - SLAB_SHARE - 1.0 / 128) /* the rest is for statistics of rules */
#define SLAB_MAX   (36.0 * (1 << 26))

double weir__footprint_segment(struct weir__footprint footprint)
{
    double slots = footprint.slots / FILL / SLOT_SHARE, slab = footprint.slab / FILL / SLAB_SHARE;
    return slots > slab ? slots : slab;
}

bool weir__footprint_is_possible(struct weir__footprint footprint)
{
    return footprint.slab <= FILL * SLAB_MAX;
}

double weir__footprint_keys(struct weir__footprint each, double segment_bytes)
{
    double keys = segment_bytes / weir__footprint_segment(each), most = FILL * SLAB_MAX / each.slab;
    if (each.slab > 0 && most < keys)
        keys = most;
    return keys < 1e15 ? (double)(int64_t)keys : keys; /* whole keys; floor() would need libm */
}

void weir_rules_info(const weir_rules *rules, size_t index, weir_rule_info *info)
{
    const struct weir__rule *rule = rules->rules[index];
    const struct weir__quota *quota = &rule->quotas[0], *largest = largest_quota(rule);
    bool calendar = largest->kind == WEIR__LIMITED && largest->limit.align == WEIR_ALIGN_CALENDAR;

    *info = (weir_rule_info){
        .name = rule->name.data,
        .domain = rule->domain.len ? rule->domain.data : NULL,
        .key = rule->key.source.len ? rule->key.source.data : "",
        .file = rules->source_names[rule->place.source],
        .line = (int)rule->place.line,
        .algorithm = (enum weir_algorithm)largest->limit.algorithm,
        .limit = quota->kind == WEIR__LIMITED  ? quota->units
                 : quota->kind == WEIR__BANNED ? 0
                                               : -1,
        .window_ns = calendar ? 0 : quota->window_ns,
        .by_tier = rule->quota_count > 1 || !rule->has_default,
        .shadow = rule->shadow,
        .bytes_per_key = (int64_t)(weir__footprint_segment(quota_footprint(largest)) + 0.999),
    };
}

/* ---- Several hosts ---- */

const char *weir__rule_lease_obstacle(const struct weir__rule *rule)
{
    const weir_limit *limit = &largest_quota(rule)->limit;
    if (limit->algorithm == WEIR_CONCURRENCY)
        return "concurrency cannot be leased: a permit is released, not recovered; use strict, or local";
    if (limit->algorithm == WEIR_SLIDING_WINDOW_LOG)
        return "sliding_window_log cannot be leased: it keeps the time of each unit, and a leased unit is spent later "
               "than it was charged; use sliding_window_counter, or strict";
    if (limit->delay)
        return "on_limit: delay cannot be leased: the departure times of all hosts are one queue; use strict";
    if (weir__overload_is_scaled(&rule->overload) || rule->overload.reserve)
        return "a limit that is elastic, adaptive or has a reserve cannot be leased: it may be lower when the units "
               "are "
               "spent; use strict";
    return NULL;
}

enum weir__consistency weir__rule_consistency(const struct weir__rule *rule, enum weir__consistency fallback)
{
    const struct weir__quota *quota = largest_quota(rule);
    bool bucket = quota->limit.algorithm == WEIR_TOKEN_BUCKET || quota->limit.algorithm == WEIR_LEAKY_BUCKET;
    if (quota->kind != WEIR__LIMITED)
        return WEIR__LOCAL; /* nothing is counted */
    if (rule->consistency_given)
        return rule->consistency;
    if (fallback == WEIR__PER_ALGORITHM)
        return bucket ? WEIR__EVENTUAL : WEIR__STRICT;
    if (fallback == WEIR__LEASED)
        return weir__rule_lease_obstacle(rule) ? WEIR__STRICT : WEIR__LEASED;
    return fallback == WEIR__EVENTUAL && quota->limit.algorithm == WEIR_CONCURRENCY ? WEIR__STRICT : fallback;
}

void weir__rules_hosts(const weir_rules *rules, enum weir__consistency fallback, int64_t interval_us, size_t names_max,
                       struct weir__buffer *to)
{
    char name[4 * WEIR_NAME_MAX + 1];
    for (int which = WEIR__LEASED; which >= WEIR__LOCAL; which--) {
        size_t begin = 0, listed = 0, more = 0;
        for (size_t i = 0; i < rules->count; i++) {
            const struct weir__rule *rule = rules->rules[i];
            if (largest_quota(rule)->kind != WEIR__LIMITED || (int)weir__rule_consistency(rule, fallback) != which)
                continue;
            if (!listed && which == WEIR__EVENTUAL)
                weir__buffer_printf(to, "counts over all hosts, exchanged every %g ms: ", (double)interval_us / 1000);
            else if (!listed)
                weir__buffer_printf(to, "counts %s: ",
                                    which == WEIR__LOCAL    ? "on each host"
                                    : which == WEIR__LEASED ? "over all hosts, exact, by leased units"
                                                            : "over all hosts, exact");
            if (!listed)
                begin = to->len;
            if (to->len - begin < names_max)
                weir__buffer_printf(to, "%s%s%s", listed++ ? ", " : "", weir__printable(rule->name, name, sizeof name),
                                    rule->shadow ? " (shadow)" : "");
            else
                more++;
        }
        if (more)
            weir__buffer_printf(to, " and %zu more", more);
        if (listed)
            weir__buffer_printf(to, "\n");
    }
}
