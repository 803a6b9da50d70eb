/*
 * Splits rule files into documents: the YAML reader finds where rules, domains and settings begin and end, and their
 * text is cut out as written. Comments right above a rule belong to it, and so do those below that are indented as far
 * as it is. See control.h.
 */
#include "control/call.h"

#include <stdio.h>
#include <stdlib.h>

#define TREE_BYTES ((size_t)256 << 20)

/* Members of a file's root. The first are settings; but for the first two, a rule has such fields, too. */
static const char *const member_names[] = {"identity", "normalize", "allow",  "block",       "response",
                                           "rules",    "domains",   "domain", "descriptors", "name"};
enum { IDENTITY, NORMALIZE, ALLOW, BLOCK, RESPONSE, RULES, DOMAINS, DOMAIN, DESCRIPTORS, NAME, MEMBERS };
enum { SETTINGS = RULES };

/* The split of one file. */
struct split {
    struct weir__documents *documents;
    weir_diagnose *diagnose; /* may be NULL */
    void *context;
    const char *path;
    weir_text text; /* of the file, without a byte order mark */
    size_t *lines;  /* their offsets; one more than there are: the end */
    size_t line_count;
    size_t errors;
    size_t taken; /* lines before this one belong to documents */
    bool failed;
};

/* ---- Diagnostics ---- */

static void pass_on(void *context, const weir_diagnostic *what)
{
    struct split *s = context;
    if (what->severity == WEIR_IS_WARNING)
        return; /* warnings about single documents are shown elsewhere */
    s->errors++;
    if (s->diagnose)
        s->diagnose(s->context, what);
}

/* An error about the whole file. */
static void fail(struct split *s, const char *message)
{
    pass_on(s, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = s->path, .message = message});
    s->failed = true;
}

static void report(struct split *s, struct weir__place at, const char *message)
{
    pass_on(s, &(weir_diagnostic){.severity = WEIR_IS_ERROR,
                                  .file = s->path,
                                  .line = (int)at.line,
                                  .column = (int)at.column,
                                  .message = message,
                                  .source = s->text.data + s->lines[at.line - 1]});
    s->failed = true;
}

/* Reports the errors that weir lint finds in the file, or `otherwise` if it finds none. */
static void report_as_lint(struct split *s, const char *otherwise)
{
    weir_rules *rules = NULL;
    struct weir__source source = {s->path, s->text};
    struct weir__diagnostic_sink sink = {.diagnose = pass_on, .context = s};
    struct weir__map_files files = {.skip = true};
    if (weir__load_sources(&source, 1, &sink, &files, &rules) == 0)
        weir_rules_free(rules);
    if (!s->errors)
        fail(s, otherwise);
    s->failed = true;
}

void weir__document_diagnose(const struct weir__rule_document *document, const weir_diagnostic *what,
                             weir_diagnose *diagnose, void *context)
{
    weir_diagnostic moved = *what;
    size_t line = what->line > 0 ? (size_t)what->line - 1 : 0;
    const struct weir__origin_line *origin = &document->origins[line < document->lines ? line : document->lines - 1];
    int column = (what->column > 0 ? what->column : 1) + origin->columns;
    moved.file = origin->path;
    moved.line = (int)origin->line + 1;
    moved.column = column > 0 ? column : 1;
    moved.source = origin->text;
    if (diagnose)
        diagnose(context, &moved);
}

/* ---- Cutting ---- */

/* The byte of a place in its line. */
static size_t column_of(const struct split *s, struct weir__place at)
{
    size_t begin = s->lines[at.line - 1];
    return weir__column_offset(s->text.data + begin, s->lines[at.line] - begin, at.column);
}

/* The first character of a line behind its indentation; '\n' if it is blank. */
static char first_of(const struct split *s, size_t line, size_t *indent)
{
    size_t at = s->lines[line];
    *indent = strspn(s->text.data + at, " \t");
    at += *indent;
    return at >= s->lines[line + 1] || s->text.data[at] == '\r' ? '\n' : s->text.data[at];
}

/* The byte where a node that begins in `line` ends, with the comments that belong to it: those below that are indented
 * by `least_indent` or more. */
static size_t end_of(const struct split *s, const struct weir__node *node, size_t line, size_t least_indent)
{
    size_t last = node->end.line - 1 < s->line_count ? node->end.line - 1 : s->line_count, indent;
    size_t column = last < s->line_count ? column_of(s, node->end) : 0, at = s->lines[last] + column;
    bool within = column > 0; /* the end is within a line, not at its beginning */
    if (within && (node->flow || node->kind == WEIR__SCALAR)) {
        size_t blanks = strspn(s->text.data + at, " \t");
        return blanks > 0 && s->text.data[at + blanks] == '#' ? s->lines[last + 1] : at;
    }
    if (within && at >= s->text.len)
        last++; /* a last line without a line break */
    for (; last > line + 1; last--) {
        char first = first_of(s, last - 1, &indent);
        if (first != '\n' && (first != '#' || indent >= least_indent))
            break;
    }
    return s->lines[last];
}

/* Adds lines of the file: from `line` and the byte `column` of it on to the byte `end` of the text, after `head`. */
static void add_lines(struct split *s, struct weir__rule_document *document, size_t line, size_t column, size_t end,
                      const char *head)
{
    size_t last = line + 1;
    while (last < s->line_count && s->lines[last] < end)
        last++;
    struct weir__origin_line *origins = reallocarray(document->origins, document->lines + last - line, sizeof *origins);
    document->origins = origins ? origins : document->origins;
    for (size_t at = line; at < last && origins; at++) {
        const char *from = s->text.data + s->lines[at];
        size_t skip = at == line ? column : 0;
        while (at > line && skip < column && from[skip] == ' ')
            skip++;
        size_t len = (s->lines[at + 1] < end ? s->lines[at + 1] : end) - s->lines[at];
        while (len > skip && (from[len - 1] == '\n' || from[len - 1] == '\r'))
            len--; /* \r\n becomes \n */
        weir__buffer_printf(&document->text, "%s%.*s\n", at == line ? head : "", len > skip ? (int)(len - skip) : 0,
                            from + skip);
        /* Indentation and head are ASCII: a byte is a column. */
        int columns = (int)skip - (at == line ? (int)strlen(head) : 0);
        origins[document->lines++] = (struct weir__origin_line){s->path, from, at, columns};
    }
    s->failed |= !origins || document->text.failed;
}

/* Adds the text from `begin` to the end of a node, the comments right above it and those below (see end_of). */
static void cut(struct split *s, struct weir__rule_document *document, struct weir__place begin,
                const struct weir__node *node, size_t least_indent, const char *head)
{
    size_t line = begin.line - 1, first = line, indent = 0, end = end_of(s, node, line, least_indent);
    while (first > s->taken && first_of(s, first - 1, &indent) == '#')
        first--;
    if (first < line) {
        (void)first_of(s, first, &indent);
        add_lines(s, document, first, indent, s->lines[line], "");
    }
    add_lines(s, document, line, column_of(s, begin), end, head);
    while (s->taken < s->line_count && s->lines[s->taken] < end)
        s->taken++;
}

/* ---- Finding documents ---- */

/* A document to be filled. NULL: no memory. */
static struct weir__rule_document *add(struct split *s, enum weir__document_kind kind, const char *name)
{
    struct weir__documents *documents = s->documents;
    struct weir__rule_document *list = reallocarray(documents->list, documents->count + 1, sizeof *list);
    char *full_name = NULL;
    documents->list = list ? list : documents->list;
    if (!list || asprintf(&full_name, "%s%s", kind == WEIR__KIND_DOMAIN ? WEIR__DOMAIN_PREFIX : "", name) < 0) {
        s->failed = true;
        return NULL;
    }
    list[documents->count] = (struct weir__rule_document){.kind = kind, .name = full_name};
    return &list[documents->count++];
}

/* A rule or domain as a document. */
static void take_node(struct split *s, enum weir__document_kind kind, const char *name, const struct weir__node *node)
{
    struct weir__rule_document *document = add(s, kind, name);
    if (document)
        cut(s, document, node->place, node, column_of(s, node->place), "");
}

/* A member that is a text and not empty; NULL: none. */
static const char *text_member(const struct weir__node *map, const char *name)
{
    const struct weir__node *node = weir__node_get(map, name);
    return node && node->kind == WEIR__SCALAR && node->text.len ? node->text.data : NULL;
}

static void take_items(struct split *s, const struct weir__node *member, bool rules)
{
    if (member->kind != WEIR__LIST) {
        report(s, member->name->place, rules ? "rules is a list" : "domains is a list");
        return;
    }
    for (const struct weir__node *item = member->first; item; item = item->next) {
        const char *name = text_member(item, rules ? "name" : "domain");
        if (item->kind != WEIR__MAP) {
            report(s, item->place, rules ? "a rule is a map" : "a domain is a map");
        } else if (!name) {
            report(s, item->place, rules ? "a rule needs a name" : "a domain needs a name");
        } else {
            take_node(s, rules ? WEIR__KIND_RULE : WEIR__KIND_DOMAIN, name, item);
        }
    }
}

/* The settings of all files are one document. */
static struct weir__rule_document *settings_of(struct split *s)
{
    for (size_t i = 0; i < s->documents->count; i++)
        if (s->documents->list[i].kind == WEIR__KIND_SETTINGS)
            return &s->documents->list[i];
    return add(s, WEIR__KIND_SETTINGS, WEIR__SETTINGS_NAME);
}

static void take_setting(struct split *s, const struct weir__node *member, bool in_flow)
{
    struct weir__rule_document *settings = settings_of(s);
    char head[24] = "";
    if (!settings)
        return;
    /* In flow style the key shares its line with others: the value alone is cut out. */
    if (in_flow)
        snprintf(head, sizeof head, "%s: ", member->name->text.data);
    cut(s, settings, in_flow ? member->place : member->name->place, member, column_of(s, member->name->place) + 1,
        head);
}

static int member_number(const struct weir__node *member)
{
    int number = 0;
    while (number < MEMBERS && !weir__text_is(member->name->text, member_names[number]))
        number++;
    return number;
}

static void take_all(struct split *s, const struct weir__node *root)
{
    bool has[MEMBERS + 1] = {false}; /* the last: a member that no rule file has */
    for (const struct weir__node *member = root->kind == WEIR__MAP ? root->first : NULL; member; member = member->next)
        has[member_number(member)] = true;
    const char *name = text_member(root, "name");
    name = name ? name : text_member(root, "domain");
    bool domain = has[DOMAIN] || has[DESCRIPTORS];
    bool shared = has[IDENTITY] || has[NORMALIZE] || has[RULES] || has[DOMAINS];
    bool one_rule = has[NAME] && !domain && !shared;
    bool many = shared || (!one_rule && (has[ALLOW] || has[BLOCK] || has[RESPONSE]));
    if (root->kind != WEIR__MAP || (domain && many) || (!many && !domain && !name)) {
        report_as_lint(s, "this is no rule file, and no rule or domain alone");
    } else if (many && has[MEMBERS]) {
        report_as_lint(s, "it has a field that no rule file has");
    } else if (many) {
        for (const struct weir__node *member = root->first; member && !s->failed; member = member->next) {
            int number = member_number(member);
            if (number == NAME)
                report_as_lint(s, "a file has rules, or is one rule");
            else if (number < SETTINGS)
                take_setting(s, member, root->flow);
            else
                take_items(s, member, number == RULES);
        }
    } else if (!name) {
        report(s, root->place, "a domain needs a name");
    } else {
        take_node(s, domain ? WEIR__KIND_DOMAIN : WEIR__KIND_RULE, name, root);
    }
}

/* Finds where lines begin. A file has at least one. */
static bool find_lines(struct split *s)
{
    size_t count = 0;
    for (weir_text rest = s->text; rest.len; count++)
        weir__cut_line(&rest);
    s->line_count = count ? count : 1;
    s->lines = calloc(s->line_count + 1, sizeof *s->lines);
    if (!s->lines)
        return false;
    count = 0;
    for (weir_text rest = s->text; rest.len; weir__cut_line(&rest))
        s->lines[count++] = (size_t)(rest.data - s->text.data);
    s->lines[s->line_count] = s->text.len;
    return true;
}

static bool split_file(struct weir__documents *documents, const struct weir__source *file, weir_diagnose *diagnose,
                       void *context)
{
    struct split s = {
        .documents = documents, .diagnose = diagnose, .context = context, .path = file->name, .text = file->text};
    struct weir__arena arena = {.bytes_max = TREE_BYTES};
    (void)weir__text_skip(&s.text, "\xef\xbb\xbf");
    struct weir__source source = {s.path, s.text};
    struct weir__diagnostics silent = {.sources = &source, .source_count = 1};
    bool lines = find_lines(&s), hidden = weir__has_hidden_break(s.text);
    const struct weir__node *root = hidden || !lines ? NULL : weir__yaml_read(0, &arena, &silent);
    if (!lines)
        fail(&s, "out of memory");
    else if (hidden)
        report(&s, (struct weir__place){0, 1, 1}, WEIR__HIDDEN_BREAK);
    else if (!root)
        report_as_lint(&s, "it cannot be read as rules");
    else
        take_all(&s, root);
    weir__arena_free(&arena);
    free(s.lines);
    return !s.failed;
}

/* ---- Files ---- */

static bool out_of_memory(const char *path, weir_diagnose *diagnose, void *context)
{
    fail(&(struct split){.diagnose = diagnose, .context = context, .path = path}, "out of memory");
    return false;
}

bool weir__documents_take(struct weir__documents *documents, const char *path, char *text, size_t len,
                          weir_diagnose *diagnose, void *context)
{
    struct weir__source *file = calloc(1, sizeof *file);
    char *name = strdup(path);
    if (!file || !name) {
        free(file);
        free(name);
        free(text);
        return out_of_memory(path, diagnose, context);
    }
    *file = (struct weir__source){name, {text, len}};
    documents->files = (struct weir__sources){.list = file, .count = 1};
    return split_file(documents, file, diagnose, context);
}

bool weir__documents_read(struct weir__documents *documents, const char *path, weir_diagnose *diagnose, void *context)
{
    bool good = true;
    int error = weir__sources_load(path, diagnose, context, &documents->files);
    if (error)
        return error == WEIR_ENOMEM && out_of_memory(path, diagnose, context);
    for (size_t i = 0; i < documents->files.count; i++)
        good &= split_file(documents, &documents->files.list[i], diagnose, context);
    return good;
}

void weir__documents_free(struct weir__documents *documents)
{
    for (size_t i = 0; i < documents->count; i++) {
        free(documents->list[i].name);
        weir__buffer_free(&documents->list[i].text);
        free(documents->list[i].origins);
    }
    free(documents->list);
    weir__sources_free(&documents->files);
}
