/* A rule with a change, written as a shadow to try. See advise.h. */
#define _GNU_SOURCE /* open_memstream */
#include "agent/advise.h"
#include "engine/sources.h"
#include "rules/yaml.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Writing ---- */

static void put_scalar(FILE *to, const struct weir__node *node)
{
    if (!node->quoted && !memchr(node->text.data, '\n', node->text.len)) {
        fwrite(node->text.data, 1, node->text.len, to);
        return;
    }
    fputc('"', to);
    for (size_t i = 0; i < node->text.len; i++) {
        unsigned char c = (unsigned char)node->text.data[i];
        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(to, "\\x%02x", c);
        else
            fputc(c, to);
    }
    fputc('"', to);
}

/* In flow style from the second level on, as most write rules. The depth of a tree is bounded by its reader. */
static void put_flow(FILE *to, const struct weir__node *node)
{
    bool map = node->kind == WEIR__MAP;
    if (node->kind == WEIR__SCALAR) {
        /* What is plain in a block may end early in a flow. */
        struct weir__node copy = *node;
        copy.quoted |= node->text.len && (node->text.data[0] == '?' || node->text.data[0] == '-');
        for (size_t i = 0; i < node->text.len; i++)
            copy.quoted |= strchr(",[]{}", node->text.data[i]) != NULL;
        put_scalar(to, &copy);
        return;
    }
    fputs(map ? "{ " : "[", to);
    for (const struct weir__node *member = node->first; member; member = member->next) {
        if (map) {
            put_scalar(to, member->name);
            fputs(": ", to);
        }
        put_flow(to, member);
        fputs(member->next ? ", " : "", to);
    }
    fputs(map ? " }" : "]", to);
}

static void put_member(FILE *to, const char **before, const char *name)
{
    fprintf(to, "%s%s: ", *before, name);
    *before = "    ";
}

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

/* A limit with tiers: each times the same. */
static void put_tiers(FILE *to, const struct weir__node *limit, double factor)
{
    fputs("{ ", to);
    for (const struct weir__node *tier = limit->first; tier; tier = tier->next) {
        char *end;
        double units = strtod(tier->text.data, &end);
        put_scalar(to, tier->name);
        fputs(": ", to);
        if (tier->kind == WEIR__SCALAR && !*end && units > 0)
            fprintf(to, "%.0f", ceil(units * factor));
        else
            put_flow(to, tier);
        fputs(tier->next ? ", " : "", to);
    }
    fputs(" }", to);
}

static void put_changed(FILE *to, const struct weir__node *rule, const struct weir__change *change)
{
    static const char *const other_algorithm[] = {"algorithm", "align",  "timezone",       "buckets",
                                                  "round",     "refill", "count_rejected", NULL};
    const char *before = "  - ";
    fputs("rules:\n", to);
    for (const struct weir__node *member = rule->first; member; member = member->next) {
        const char *name = member->name->text.data;
        if (strcmp(name, "shadow") == 0 || (change->burst && strcmp(name, "burst") == 0) ||
            (change->algorithm && (is_one_of(name, other_algorithm) || strcmp(name, "burst") == 0)))
            continue;
        put_member(to, &before, name);
        if (strcmp(name, "limit") == 0 && member->kind == WEIR__MAP && change->limit_factor > 0)
            put_tiers(to, member, change->limit_factor);
        else if (strcmp(name, "limit") == 0 && change->limit)
            fprintf(to, "%" PRId64, change->limit);
        else
            put_flow(to, member);
        fputc('\n', to);
    }
    if (change->algorithm) {
        put_member(to, &before, "algorithm");
        fprintf(to, "%s\n", change->algorithm);
    }
    if (change->burst) {
        put_member(to, &before, "burst");
        fprintf(to, "%" PRId64 "\n", change->burst);
    }
    put_member(to, &before, "shadow");
    fputs("true\n", to);
}

/* ---- Finding ---- */

/* The rule of the own dialect that begins on this line, with one limit. */
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

static char *write_rule(const struct weir__node *rule, const struct weir__change *change)
{
    char *text = NULL;
    size_t len = 0;
    weir_rules *rules = NULL;
    FILE *to = open_memstream(&text, &len);
    if (!to)
        return NULL;
    put_changed(to, rule, change);
    /* What is recommended has to be a rule. */
    if (fclose(to) != 0 || weir_rules_parse("advice", text, len, NULL, NULL, &rules) != 0) {
        free(text);
        return NULL;
    }
    weir_rules_free(rules);
    return text;
}

static char *from_sources(const struct weir__source *list, size_t count, const weir_rule_info *info,
                          const struct weir__change *change)
{
    char *text = NULL;
    for (size_t i = 0; i < count && !text; i++) {
        struct weir__report report = {.sources = list, .source_count = count};
        struct weir__arena arena = {.bytes_max = (size_t)64 << 20};
        const struct weir__node *rule = find_rule(weir__yaml_read((uint32_t)i, &arena, &report), info);
        if (rule)
            text = write_rule(rule, change);
        weir__arena_free(&arena);
    }
    return text;
}

char *weir__advice_rule(const struct weir__rule_source *source, const weir_rule_info *info,
                        const struct weir__change *change)
{
    struct weir__sources sources;
    if (!source || info->domain || info->shadow)
        return NULL;
    if (!source->path) {
        struct weir__source one = {"rules", source->text};
        return from_sources(&one, 1, info, change);
    }
    if (weir__sources_read(source->path, NULL, NULL, &sources) != 0)
        return NULL;
    char *text = from_sources(sources.list, sources.count, info, change);
    weir__sources_free(&sources);
    return text;
}
