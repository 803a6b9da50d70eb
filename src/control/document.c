/* One document: its text, kind, name and summary, and the field at a place. See document.h. */
#include "control/control.h"
#include "control/document.h"

#include <stdio.h>
#include <stdlib.h>

const char *weir__kind_name(enum weir__document_kind kind)
{
    return kind == WEIR__RULE_DOCUMENT ? "rule" : kind == WEIR__DOMAIN_DOCUMENT ? "domain" : "settings";
}

/* ---- Diagnostics ---- */

json_t *weir__add_problem(json_t *problems, const char *document, const char *field, const weir_diagnostic *what)
{
    json_t *problem =
        json_pack("{s:s, s:s?, s:i, s:i, s:s, s:s?}", "severity", what->severity == WEIR_IS_ERROR ? "error" : "warning",
                  "field", field && *field ? field : NULL, "line", what->line, "column", what->column, "message",
                  what->message, "suggestion", what->suggestion);
    if (problem && document)
        json_object_set_new(problem, "document", json_string(document));
    return json_array_append_new(problems, problem) == 0 ? problem : NULL;
}

static void collect_problem(void *context, const weir_diagnostic *what)
{
    weir__add_problem(context, NULL, NULL, what);
}

static void add_problem_at(json_t *errors, struct weir__place place, const char *field, const char *message)
{
    weir_diagnostic what = {WEIR_IS_ERROR, "", (int)place.line, (int)place.column, message, NULL, NULL};
    weir__add_problem(errors, NULL, field, &what);
}

/* ---- Places ---- */

static bool is_before(struct weir__place a, uint32_t line, uint32_t column)
{
    return a.line < line || (a.line == line && a.column <= column);
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
            if (!is_before(member->name ? member->name->place : member->place, line, column))
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

/* Document markers, which are left out: "---" before anything else, "..." at the end. */
struct markers {
    bool begun, ended; /* something has been written; "..." has been seen */
};

enum line_kind { KEPT, LEFT_OUT, WRONG };

static enum line_kind line_kind(struct markers *markers, const char *line, size_t len)
{
    size_t blanks = 0;
    while (blanks < len && (line[blanks] == ' ' || line[blanks] == '\t'))
        blanks++;
    bool first = len >= 3 && memcmp(line, "---", 3) == 0, last = len >= 3 && memcmp(line, "...", 3) == 0;
    if ((first || last) && (len == 3 || line[3] == ' ' || line[3] == '\t')) {
        bool misplaced = len > 3 || (first && markers->begun) || markers->ended;
        markers->begun = true;
        markers->ended |= last;
        return misplaced ? WRONG : LEFT_OUT;
    }
    if (len && line[0] == '%' && !markers->begun)
        return WRONG;
    if (blanks == len || line[blanks] == '#')
        return KEPT;
    markers->begun = true;
    return markers->ended ? WRONG : KEPT;
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
 * Copies the text with uniform line breaks, one at its end, and without document markers. NULL: an error was reported,
 * or no memory.
 */
static char *copy_text(weir_text text, size_t *len, json_t *errors)
{
    struct weir__place place = {0, 1, 1};
    struct markers markers = {false, false};
    char *copy = malloc(text.len + 2);
    size_t used = 0, line = 0;
    if (text.len >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0)
        text = (weir_text){text.data + 3, text.len - 3};
    for (size_t i = 0; copy && i <= text.len; i++) {
        bool end = i == text.len, cr = !end && text.data[i] == '\r';
        if (!end && !cr && text.data[i] != '\n') {
            copy[used++] = text.data[i];
            continue;
        }
        if (cr && i + 1 < text.len && text.data[i + 1] == '\n')
            i++;
        enum line_kind kind = line_kind(&markers, copy + line, used - line);
        if (kind == WRONG) {
            add_problem_at(errors, place, NULL, "this is one document: without \"---\", \"...\" and directives");
            free(copy);
            return NULL;
        }
        used = kind == LEFT_OUT ? line : used;
        if (!end || used > line)
            copy[used++] = '\n';
        line = used;
        place.line++;
    }
    if (copy)
        copy[used] = 0;
    *len = used;
    return copy;
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
    if (d->kind == WEIR__DOMAIN_DOCUMENT) {
        const struct weir__node *descriptors = weir__node_get(d->root, "descriptors");
        snprintf(raw, sizeof raw, "%zu descriptors", descriptors ? descriptors->count : 0);
    } else if (d->kind == WEIR__SETTINGS_DOCUMENT) {
        size_t used = 0;
        static const char *const settings[] = {"identity", "allow", "block", "response", "normalize"};
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
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
    const char *field = d->kind == WEIR__DOMAIN_DOCUMENT ? "domain" : "name";
    const struct weir__node *node = weir__node_get(d->root, field);
    if (d->kind == WEIR__SETTINGS_DOCUMENT) {
        snprintf(d->name, sizeof d->name, WEIR__SETTINGS_NAME);
        return true;
    }
    if (!node || node->kind != WEIR__SCALAR || !node->text.len) {
        add_problem_at(errors, node ? node->place : d->root->place, field,
                       d->kind == WEIR__DOMAIN_DOCUMENT ? "a domain needs a name" : "a rule needs a name");
        return false;
    }
    bool domain = d->kind == WEIR__DOMAIN_DOCUMENT;
    if (node->text.len > WEIR_NAME_MAX || memchr(node->text.data, 0, node->text.len)) {
        add_problem_at(errors, node->place, field, "the name is longer than 95 bytes, or has a zero byte in it");
        return false;
    }
    for (size_t i = 0; i < node->text.len; i++) {
        if ((unsigned char)node->text.data[i] >= 0x20 && node->text.data[i] != 0x7f)
            continue;
        add_problem_at(errors, node->place, field, "the name has control characters");
        return false;
    }
    if (!domain && is_reserved(node->text.data)) {
        add_problem_at(errors, node->place, field, "this name is the rules service's own; choose another");
        return false;
    }
    snprintf(d->name, sizeof d->name, "%s%s", domain ? WEIR__DOMAIN_PREFIX : "", node->text.data);
    return true;
}

static bool classify(struct weir__document *d, json_t *errors)
{
    const struct weir__node *root = d->root, *rules;
    if (root->kind != WEIR__MAP) {
        add_problem_at(errors, root->place, NULL, "a document is a map: a rule, a domain or the settings");
        return false;
    }
    rules = weir__node_get(root, "rules") ? weir__node_get(root, "rules") : weir__node_get(root, "domains");
    if (rules) {
        add_problem_at(errors, rules->name->place, rules->name->text.data,
                       "a document is one rule: send its map alone, or let weir rules apply take the file apart");
        return false;
    }
    bool named = weir__node_get(root, "name") != NULL;
    bool settings = weir__node_get(root, "identity") || weir__node_get(root, "allow") ||
                    weir__node_get(root, "block") || weir__node_get(root, "response") ||
                    weir__node_get(root, "normalize");
    d->kind = WEIR__RULE_DOCUMENT;
    if (weir__node_get(root, "domain") || weir__node_get(root, "descriptors"))
        d->kind = WEIR__DOMAIN_DOCUMENT;
    else if (!named && settings && !weir__node_get(root, "limit") && !weir__node_get(root, "limits"))
        d->kind = WEIR__SETTINGS_DOCUMENT;
    return name_it(d, errors);
}

/* Settings become members of the set's root: they must be in block style from the first column on. */
static bool lay_out_settings(struct weir__document *d)
{
    bool block = d->root->place.column == 1 && d->text.data[0] != '{';
    for (size_t i = 0; block && i < d->text.len; i++)
        if (d->text.data[i] == '{' && (i == 0 || d->text.data[i - 1] == '\n'))
            block = false;
    if (block)
        return true;
    char *text = weir__yaml_write(d->root, NULL);
    if (!text)
        return false;
    free(d->own);
    d->own = text;
    d->text = (weir_text){text, strlen(text)};
    return true;
}

bool weir__document_read(weir_text text, struct weir__document *d, json_t *errors)
{
    struct weir__place begin = {0, 0, 0};
    *d = (struct weir__document){.arena = {.bytes_max = (size_t)64 << 20}};
    if (text.len > WEIR__DOCUMENT_MAX || weir__has_hidden_break(text)) {
        add_problem_at(errors, begin, NULL,
                       text.len > WEIR__DOCUMENT_MAX ? "the document is longer than 1 MiB" : WEIR__HIDDEN_BREAK);
        return false;
    }
    d->own = copy_text(text, &d->text.len, errors);
    d->text.data = d->own;
    if (!d->own)
        return false;
    struct weir__source source = {"document", d->text};
    struct weir__diagnostics report = {collect_problem, errors, &source, 1, 0, 0, {0, 0, 0}};
    d->root = weir__yaml_read(0, &d->arena, &report);
    if (!d->root || !classify(d, errors))
        return false;
    summarise(d);
    return d->kind != WEIR__SETTINGS_DOCUMENT || lay_out_settings(d);
}

void weir__document_close(struct weir__document *document)
{
    weir__arena_free(&document->arena);
    free(document->own);
    document->own = NULL;
}
