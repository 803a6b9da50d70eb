/* One document: its text, kind, name and summary, and the field at a place. See document.h. */
#include "control/control.h"
#include "control/document.h"

#include <stdio.h>
#include <stdlib.h>

/* Members of the settings. */
static const char *const settings[] = {"identity", "allow", "block", "response", "normalize"};
#define SETTINGS   (sizeof settings / sizeof *settings)
#define TREE_BYTES ((size_t)64 << 20) /* of a document's tree */

const char *weir__kind_name(enum weir__document_kind kind)
{
    static const char *const names[] = {"settings", "rule", "domain"};
    return names[kind];
}

/* ---- Diagnostics ---- */

void weir__add_problem(json_t *problems, const char *document, const char *field, const weir_diagnostic *what)
{
    json_t *problem =
        json_pack("{s:s, s:s?, s:i, s:i, s:s, s:s?}", "severity", what->severity == WEIR_IS_ERROR ? "error" : "warning",
                  "field", field && *field ? field : NULL, "line", what->line, "column", what->column, "message",
                  what->message, "suggestion", what->suggestion);
    if (problem && document)
        json_object_set_new(problem, "document", json_string(document));
    json_array_append_new(problems, problem);
}

static void collect_problem(void *context, const weir_diagnostic *what)
{
    weir__add_problem(context, NULL, NULL, what);
}

/* Adds an error, and returns false. */
static bool fail_at(json_t *errors, struct weir__place place, const char *field, const char *message)
{
    weir_diagnostic what = {WEIR_IS_ERROR, "", (int)place.line, (int)place.column, message, NULL, NULL};
    weir__add_problem(errors, NULL, field, &what);
    return false;
}

/* ---- Places ---- */

size_t weir__column_offset(const char *line, size_t len, uint32_t column)
{
    size_t at = 0;
    for (uint32_t i = 1; i < column && at < len; i++)
        do
            at++;
        while (at < len && ((unsigned char)line[at] & 0xc0) == 0x80);
    return at;
}

void weir__document_field(const struct weir__node *root, uint32_t line, uint32_t column, char *field, size_t size)
{
    size_t used = 0;
    *field = 0;
    /* One step per level; the reader bounds their number. */
    for (const struct weir__node *node = root, *found; node && node->first; node = found) {
        size_t number = 0, at = 0;
        found = NULL;
        for (const struct weir__node *member = node->first; member; member = member->next, number++) {
            struct weir__place begin = member->name ? member->name->place : member->place;
            if (begin.line > line || (begin.line == line && begin.column > column))
                break;
            found = member;
            at = number;
        }
        if (!found)
            return;
        char shown[WEIR__SHOWN];
        int len = found->name ? snprintf(field + used, size - used, "%s%s", used ? "." : "",
                                         weir__printable(found->name->text, shown, sizeof shown))
                              : snprintf(field + used, size - used, "[%zu]", at);
        used += (size_t)len;
        if (used >= size)
            return;
    }
}

/* ---- The text ---- */

weir_text weir__cut_line(weir_text *text)
{
    size_t len = 0;
    while (len < text->len && text->data[len] != '\n' && text->data[len] != '\r')
        len++;
    weir_text line = {text->data, len};
    bool both = text->len - len >= 2 && text->data[len] == '\r' && text->data[len + 1] == '\n';
    len += both ? 2 : len < text->len;
    *text = (weir_text){text->data + len, text->len - len};
    return line;
}

static bool is_marker(weir_text line, const char *marker)
{
    return weir__text_skip(&line, marker) && (!line.len || *line.data == ' ' || *line.data == '\t');
}

bool weir__has_hidden_break(weir_text text)
{
    for (size_t i = 0; i + 1 < text.len; i++) {
        const unsigned char *at = (const unsigned char *)text.data + i;
        if ((at[0] == 0xc2 && at[1] == 0x85) ||
            (at[0] == 0xe2 && at[1] == 0x80 && i + 2 < text.len && (at[2] | 1) == 0xa9))
            return true;
    }
    return false;
}

/*
 * Copies the text with uniform line breaks, one at its end, and without document markers: "---" before anything else,
 * and "..." at the end.
 */
static bool copy_text(struct weir__arena *arena, weir_text text, struct weir__document *d, json_t *errors)
{
    bool begun = false, ended = false; /* something has been written; "..." has been seen */
    char *copy = weir__arena_take(arena, text.len + 2);
    size_t used = 0;
    (void)weir__text_skip(&text, "\xef\xbb\xbf");
    for (struct weir__place place = {0, 1, 1}; copy && text.len; place.line++) {
        weir_text line = weir__cut_line(&text), content = weir__text_trim(line);
        bool first = is_marker(line, "---"), last = is_marker(line, "...");
        bool empty = !content.len || *content.data == '#', directive = line.len && *line.data == '%' && !begun;
        if (first || last ? line.len > 3 || (first && begun) || ended : directive || (ended && !empty))
            return fail_at(errors, place, NULL, "this is one document: without \"---\", \"...\" and directives");
        begun |= first || last || !empty;
        ended |= last;
        if (first || last)
            continue;
        memcpy(copy + used, line.data, line.len);
        used += line.len;
        copy[used++] = '\n';
    }
    d->text = (weir_text){copy, used};
    return copy != NULL;
}

/* ---- Kind, name and summary ---- */

static const char *scalar(const struct weir__node *root, const char *name)
{
    const struct weir__node *node = weir__node_get(root, name);
    return node && node->kind == WEIR__SCALAR ? node->text.data : NULL;
}

static void summarise(struct weir__document *d)
{
    char raw[2 * WEIR__DOCUMENT_SUMMARY] = "";
    const struct weir__node *limits = weir__node_get(d->root, "limits"), *limit = weir__node_get(d->root, "limit");
    const char *window = scalar(d->root, "window"), *key = scalar(d->root, "key"), *path = NULL;
    const struct weir__node *match = weir__node_get(d->root, "match");
    if (match && match->kind == WEIR__MAP)
        path = scalar(match, "path");
    if (d->kind == WEIR__KIND_DOMAIN) {
        const struct weir__node *descriptors = weir__node_get(d->root, "descriptors");
        snprintf(raw, sizeof raw, "%zu descriptors", descriptors ? descriptors->count : 0);
    } else if (d->kind == WEIR__KIND_SETTINGS) {
        size_t used = 0;
        for (size_t i = 0; i < SETTINGS; i++)
            if (weir__node_get(d->root, settings[i]))
                used += (size_t)snprintf(raw + used, sizeof raw - used, "%s%s", used ? ", " : "", settings[i]);
    } else {
        const char *often = limits                                 ? "several limits"
                            : limit && limit->kind == WEIR__SCALAR ? limit->text.data
                                                                   : "by tier";
        snprintf(raw, sizeof raw, "%s%s%s%s%s%s%s", often, window ? " per " : "", window ? window : "",
                 key ? " by " : "", key ? key : "", path ? " on " : "", path ? path : "");
    }
    weir__printable((weir_text){raw, strlen(raw)}, d->summary, sizeof d->summary);
}

/* Names of other documents or paths of the service. */
static bool is_reserved(const char *name)
{
    return strcmp(name, WEIR__SETTINGS_NAME) == 0 || strcmp(name, "published") == 0 || strcmp(name, ".") == 0 ||
           strcmp(name, "..") == 0 || strncmp(name, WEIR__DOMAIN_PREFIX, sizeof WEIR__DOMAIN_PREFIX - 1) == 0;
}

static bool name_it(struct weir__document *d, json_t *errors)
{
    bool domain = d->kind == WEIR__KIND_DOMAIN;
    const char *field = domain ? "domain" : "name";
    const struct weir__node *node = weir__node_get(d->root, field);
    if (d->kind == WEIR__KIND_SETTINGS) {
        snprintf(d->name, sizeof d->name, WEIR__SETTINGS_NAME);
        return true;
    }
    if (!node || node->kind != WEIR__SCALAR || !node->text.len)
        return fail_at(errors, node ? node->place : d->root->place, field,
                       domain ? "a domain needs a name" : "a rule needs a name");
    if (node->text.len > WEIR_NAME_MAX || memchr(node->text.data, 0, node->text.len))
        return fail_at(errors, node->place, field, "the name is longer than 95 bytes, or has a zero byte in it");
    if (!weir__text_sound(node->text))
        return fail_at(errors, node->place, field, "the name has control characters");
    if (!domain && is_reserved(node->text.data))
        return fail_at(errors, node->place, field, "this name is the rules service's own; choose another");
    snprintf(d->name, sizeof d->name, "%s%s", domain ? WEIR__DOMAIN_PREFIX : "", node->text.data);
    return true;
}

static bool classify(struct weir__document *d, json_t *errors)
{
    const struct weir__node *root = d->root;
    bool has_settings = false;
    if (root->kind != WEIR__MAP)
        return fail_at(errors, root->place, NULL, "a document is a map: a rule, a domain or the settings");
    const struct weir__node *rules = weir__node_get(root, "rules");
    rules = rules ? rules : weir__node_get(root, "domains");
    if (rules)
        return fail_at(errors, rules->name->place, rules->name->text.data,
                       "a document is one rule: send its map alone, or let weir rules apply take the file apart");
    for (size_t i = 0; i < SETTINGS; i++)
        has_settings |= weir__node_get(root, settings[i]) != NULL;
    bool is_rule = weir__node_get(root, "name") || weir__node_get(root, "limit") || weir__node_get(root, "limits");
    d->kind = weir__node_get(root, "domain") || weir__node_get(root, "descriptors") ? WEIR__KIND_DOMAIN
              : has_settings && !is_rule                                            ? WEIR__KIND_SETTINGS
                                                                                    : WEIR__KIND_RULE;
    return name_it(d, errors);
}

/* Settings become members of the set's root: they must be in block style from the first column on. */
static bool lay_out_settings(struct weir__arena *arena, struct weir__document *d)
{
    bool flow = d->root->place.column != 1 || d->text.data[0] == '{' || strstr(d->text.data, "\n{");
    if (!flow)
        return true;
    char *text = weir__yaml_write(d->root, NULL);
    d->text = text ? weir__arena_copy(arena, weir__text_of(text)) : (weir_text){NULL, 0};
    free(text);
    return d->text.data != NULL;
}

bool weir__document_read(struct weir__arena *arena, weir_text text, struct weir__document *d, json_t *errors)
{
    struct weir__place begin = {0, 0, 0};
    *d = (struct weir__document){.kind = WEIR__KIND_RULE};
    arena->bytes_max = arena->bytes + TREE_BYTES;
    if (text.len > WEIR__DOCUMENT_MAX)
        return fail_at(errors, begin, NULL, "the document is longer than 1 MiB");
    if (weir__has_hidden_break(text))
        return fail_at(errors, begin, NULL, WEIR__HIDDEN_BREAK);
    if (!copy_text(arena, text, d, errors))
        return false;
    struct weir__source source = {"document", d->text};
    struct weir__diagnostics report = {
        .diagnose = collect_problem, .context = errors, .sources = &source, .source_count = 1};
    d->root = weir__yaml_read(0, arena, &report);
    if (!d->root || !classify(d, errors))
        return false;
    summarise(d);
    return d->kind != WEIR__KIND_SETTINGS || lay_out_settings(arena, d);
}
