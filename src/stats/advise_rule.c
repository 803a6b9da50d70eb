/* Applies a recommended change to a rule and writes it as YAML. See advise.h. */
#include "stats/advise.h"
#include "config/config.h"
#include "engine/rule_files.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Changing ---- */

#define ADDED       3  /* members at most, besides those that a rule has */
#define NUMBER_TEXT 32 /* bytes */
#define TREES_BYTES ((size_t)256 << 20)

/* A copy of a rule's members, to be changed; deeper nodes are shared with the rule. */
struct copy {
    struct weir__arena *arena;
    struct weir__node *list; /* room for all members and ADDED */
    size_t count;
};

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

static void scalar(struct weir__node *node, const char *text)
{
    *node = (struct weir__node){.kind = WEIR__SCALAR, .name = node->name, .text = {text, strlen(text)}};
}

static void number(struct copy *copy, struct weir__node *node, int64_t value)
{
    char *text = weir__arena_take(copy->arena, NUMBER_TEXT);
    if (!text)
        return;
    snprintf(text, NUMBER_TEXT, "%" PRId64, value);
    scalar(node, text);
}

static struct weir__node *add(struct copy *copy, const char *name)
{
    struct weir__node *names = weir__arena_take(copy->arena, sizeof *names), *node = &copy->list[copy->count++];
    *node = (struct weir__node){.name = names};
    if (names)
        scalar(names, name);
    return node;
}

/* Multiplies each tier's limit by `factor`. */
static void change_tiers(struct copy *copy, struct weir__node *limit, double factor)
{
    struct weir__node *tiers = weir__arena_array(copy->arena, limit->count, sizeof *tiers);
    size_t count = 0;
    for (const struct weir__node *tier = limit->first; tier && tiers; tier = tier->next) {
        char *end = NULL;
        double units = tier->kind == WEIR__SCALAR ? strtod(tier->text.data, &end) : 0;
        struct weir__node *changed = &tiers[count++];
        *changed = *tier;
        if (units > 0 && end && !*end)
            number(copy, changed, (int64_t)ceil(units * factor));
        changed->next = tier->next ? &tiers[count] : NULL;
    }
    limit->first = tiers;
}

static void change_members(struct copy *copy, const struct weir__node *rule, const struct weir__rule_change *change)
{
    static const char *const other_algorithm[] = {"algorithm", "align",  "timezone",       "buckets",
                                                  "round",     "refill", "count_rejected", NULL};
    for (const struct weir__node *member = rule->first; member; member = member->next) {
        const char *name = member->name->text.data;
        if (strcmp(name, "shadow") == 0 || (change->burst && strcmp(name, "burst") == 0) ||
            (change->algorithm && (is_one_of(name, other_algorithm) || strcmp(name, "burst") == 0)))
            continue;
        struct weir__node *changed = &copy->list[copy->count++];
        *changed = *member;
        if (strcmp(name, "limit") == 0 && member->kind == WEIR__MAP && change->limit_factor > 0)
            change_tiers(copy, changed, change->limit_factor);
        else if (strcmp(name, "limit") == 0 && change->limit)
            number(copy, changed, change->limit);
    }
    if (change->algorithm)
        scalar(add(copy, "algorithm"), change->algorithm);
    if (change->burst)
        number(copy, add(copy, "burst"), change->burst);
}

/* NULL: no memory. */
static char *write_changed(const struct weir__node *rule, const struct weir__rule_change *change, bool as_file,
                           struct weir__arena *arena)
{
    struct copy copy = {arena, weir__arena_array(arena, rule->count + ADDED, sizeof *copy.list), 0};
    if (!copy.list)
        return NULL;
    change_members(&copy, rule, change);
    if (as_file)
        scalar(add(&copy, "shadow"), "true");
    for (size_t i = 0; i < copy.count; i++)
        copy.list[i].next = i + 1 < copy.count ? &copy.list[i + 1] : NULL;
    struct weir__node title = {.name = NULL}, item = {.kind = WEIR__MAP, .first = copy.list, .count = copy.count};
    struct weir__node rules = {.kind = WEIR__LIST, .first = &item, .count = 1, .name = &title};
    struct weir__node root = {.kind = WEIR__MAP, .first = &rules, .count = 1};
    scalar(&title, "rules");
    return arena->failed ? NULL : weir__yaml_write(as_file ? &root : &item, NULL);
}

/* ---- Finding ---- */

/* Finds the rule of the native dialect by its name, if it has a single limit. */
static const struct weir__node *find_rule(const struct weir__node *root, const weir_rule_info *info)
{
    const struct weir__node *rules = root && root->kind == WEIR__MAP ? weir__node_get(root, "rules") : NULL;
    for (const struct weir__node *rule = rules ? rules->first : NULL; rule; rule = rule->next) {
        const struct weir__node *name = rule->kind == WEIR__MAP ? weir__node_get(rule, "name") : NULL;
        if (name && name->kind == WEIR__SCALAR && weir__text_is(name->text, info->name) &&
            weir__node_get(rule, "limit"))
            return rule;
    }
    return NULL;
}

static char *write_rule(const struct weir__node *rule, const struct weir__rule_change *change, char **document)
{
    struct weir__arena arena = {.bytes_max = TREES_BYTES};
    weir_rules *rules = NULL;
    char *text = write_changed(rule, change, true, &arena);
    /* The recommendation must compile. */
    if (text && weir_rules_parse("advice", text, strlen(text), NULL, NULL, &rules) == 0) {
        *document = write_changed(rule, change, false, &arena);
    } else {
        free(text);
        text = NULL;
    }
    weir_rules_free(rules);
    weir__arena_free(&arena);
    return text;
}

/* ---- The files, read and parsed once for all advice ---- */

struct weir__rule_trees {
    struct weir__sources sources; /* empty if the source is a text */
    struct weir__arena arena;
    size_t count;
    const struct weir__node *roots[]; /* NULL: cannot be read */
};

static struct weir__rule_trees *trees_read(const struct weir__rule_source *source)
{
    struct weir__source text = {"rules", source->text}, *list = &text;
    struct weir__sources sources = {0};
    size_t count = 1;
    if (source->path) {
        if (weir__sources_read(source->path, NULL, NULL, &sources) != 0)
            return NULL;
        list = sources.list;
        count = sources.count;
    }
    struct weir__rule_trees *trees = calloc(1, sizeof *trees + count * sizeof(void *));
    if (!trees) {
        weir__sources_free(&sources);
        return NULL;
    }
    *trees = (struct weir__rule_trees){.sources = sources, .arena = {.bytes_max = TREES_BYTES}, .count = count};
    struct weir__diagnostics report = {.sources = list, .source_count = count};
    for (size_t i = 0; i < count; i++)
        trees->roots[i] = weir__yaml_read((uint32_t)i, &trees->arena, &report);
    return trees;
}

void weir__rule_source_free(struct weir__rule_source *source)
{
    if (!source->trees)
        return;
    weir__arena_free(&source->trees->arena);
    weir__sources_free(&source->trees->sources);
    free(source->trees);
    source->trees = NULL;
}

char *weir__advice_rule(struct weir__rule_source *source, const weir_rule_info *info,
                        const struct weir__rule_change *change, char **document)
{
    *document = NULL;
    if (!source || info->domain || info->shadow)
        return NULL;
    if (!source->trees)
        source->trees = trees_read(source);
    char *text = NULL;
    for (size_t i = 0; source->trees && i < source->trees->count && !text; i++) {
        const struct weir__node *rule = find_rule(source->trees->roots[i], info);
        if (rule)
            text = write_rule(rule, change, document);
    }
    return text;
}
