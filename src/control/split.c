/*
 * Splits rule files into documents: the YAML reader finds where rules, domains and settings begin and end, and their
 * text is cut out as written. Comments right above a rule belong to it, and so do those below that are indented as far
 * as it is. See control.h.
 */
#include "base/file.h"
#include "control/call.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define TREE_BYTES ((size_t)256 << 20)

/* Members of a file's root. The first are settings; but for the first two, a rule has such fields, too. */
static const char *const member_names[] = {"identity", "normalize", "allow",  "block",       "response",
                                           "rules",    "domains",   "domain", "descriptors", "name"};
enum { IDENTITY, NORMALIZE, ALLOW, BLOCK, RESPONSE, RULES, DOMAINS, DOMAIN, DESCRIPTORS, NAME, MEMBERS };
enum { SETTINGS = RULES };

struct split {
    struct weir__documents *documents;
    weir_diagnose *diagnose; /* may be NULL */
    void *context;
    const struct weir__rule_file *file; /* of documents->files: number `number` */
    size_t number;
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

/* An error about a whole file or folder. Returns false. */
static bool fail(struct split *s, const char *path, const char *message)
{
    pass_on(s, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = path, .message = message});
    s->failed = true;
    return false;
}

static void report(struct split *s, struct weir__place at, const char *message)
{
    pass_on(s, &(weir_diagnostic){.severity = WEIR_IS_ERROR,
                                  .file = s->file->path,
                                  .line = (int)at.line,
                                  .column = (int)at.column,
                                  .message = message,
                                  .source = s->file->text + s->file->lines[at.line - 1]});
    s->failed = true;
}

/* Reports the errors that weir lint finds in the file, or `otherwise` if it finds none. */
static void report_as_lint(struct split *s, const char *otherwise)
{
    weir_rules *rules = NULL;
    if (weir_rules_parse(s->file->path, s->file->text, s->file->len, pass_on, s, &rules) == 0)
        weir_rules_free(rules);
    if (!s->errors)
        fail(s, s->file->path, otherwise);
    s->failed = true;
}

void weir__documents_diagnose(const struct weir__documents *documents, const struct weir__rule_document *document,
                              const weir_diagnostic *what, weir_diagnose *diagnose, void *context)
{
    weir_diagnostic moved = *what;
    size_t line = what->line > 0 ? (size_t)what->line - 1 : 0;
    const struct weir__origin_line *origin = &document->origins[line < document->lines ? line : document->lines - 1];
    const struct weir__rule_file *file = &documents->files[origin->file];
    int column = (what->column > 0 ? what->column : 1) + origin->columns;
    moved.file = file->path;
    moved.line = (int)origin->line + 1;
    moved.column = column > 0 ? column : 1;
    moved.source = file->text + file->lines[origin->line];
    if (diagnose)
        diagnose(context, &moved);
}

/* ---- Cutting ---- */

/* The byte of a place in its line. */
static size_t column_of(const struct weir__rule_file *file, struct weir__place at)
{
    size_t begin = file->lines[at.line - 1];
    return weir__column_offset(file->text + begin, file->lines[at.line] - begin, at.column);
}

/* The first character of a line behind its indentation; '\n' if it is blank. */
static char first_of(const struct weir__rule_file *file, size_t line, size_t *indent)
{
    size_t at = file->lines[line];
    *indent = strspn(file->text + at, " \t");
    at += *indent;
    return at >= file->lines[line + 1] || file->text[at] == '\r' ? '\n' : file->text[at];
}

/* The byte where a node that begins in `line` ends, with the comments that belong to it: those below that are indented
 * by `least_indent` or more. */
static size_t end_of(const struct weir__rule_file *file, const struct weir__node *node, size_t line,
                     size_t least_indent)
{
    size_t last = node->end.line - 1 < file->line_count ? node->end.line - 1 : file->line_count, indent;
    size_t column = last < file->line_count ? column_of(file, node->end) : 0, at = file->lines[last] + column;
    bool within = column > 0; /* the end is within a line, not at its beginning */
    if (within && (node->flow || node->kind == WEIR__SCALAR)) {
        size_t blanks = strspn(file->text + at, " \t");
        return blanks > 0 && file->text[at + blanks] == '#' ? file->lines[last + 1] : at;
    }
    if (within && at >= file->len)
        last++; /* a last line without a line break */
    for (; last > line + 1; last--) {
        char first = first_of(file, last - 1, &indent);
        if (first != '\n' && (first != '#' || indent >= least_indent))
            break;
    }
    return file->lines[last];
}

/* Adds lines of the file: from `line` and the byte `column` of it on to the byte `end` of the text, after `head`. */
static void add_lines(struct split *s, struct weir__rule_document *document, size_t line, size_t column, size_t end,
                      const char *head)
{
    const struct weir__rule_file *file = s->file;
    size_t last = line + 1, used = document->len;
    while (last < file->line_count && file->lines[last] < end)
        last++;
    char *text = realloc(document->text, used + strlen(head) + (end - file->lines[line]) + 2);
    document->text = text ? text : document->text;
    struct weir__origin_line *origins = realloc(document->origins, (document->lines + last - line) * sizeof *origins);
    document->origins = origins ? origins : document->origins;
    if (!text || !origins) {
        s->failed = true;
        return;
    }
    memcpy(text + used, head, strlen(head));
    used += strlen(head);
    for (size_t at = line; at < last; at++) {
        const char *from = file->text + file->lines[at];
        size_t skip = at == line ? column : 0;
        while (at > line && skip < column && from[skip] == ' ')
            skip++;
        size_t len = (file->lines[at + 1] < end ? file->lines[at + 1] : end) - file->lines[at];
        while (len > skip && (from[len - 1] == '\n' || from[len - 1] == '\r'))
            len--; /* \r\n becomes \n */
        memcpy(text + used, from + skip, len > skip ? len - skip : 0);
        used += len > skip ? len - skip : 0;
        text[used++] = '\n';
        /* Indentation and head are ASCII: a byte is a column. */
        origins[document->lines++] =
            (struct weir__origin_line){s->number, at, (int)skip - (at == line ? (int)strlen(head) : 0)};
    }
    text[used] = '\0';
    document->len = used;
}

/* Adds the text from `begin` to the end of a node, the comments right above it and those below (see end_of). */
static void cut(struct split *s, struct weir__rule_document *document, struct weir__place begin,
                const struct weir__node *node, size_t least_indent, const char *head)
{
    const struct weir__rule_file *file = s->file;
    size_t line = begin.line - 1, first = line, indent = 0, end = end_of(file, node, line, least_indent);
    while (first > s->taken && first_of(file, first - 1, &indent) == '#')
        first--;
    if (first < line) {
        (void)first_of(file, first, &indent);
        add_lines(s, document, first, indent, file->lines[line], "");
    }
    add_lines(s, document, line, column_of(file, begin), end, head);
    while (s->taken < file->line_count && file->lines[s->taken] < end)
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
        cut(s, document, node->place, node, column_of(s->file, node->place), "");
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
    cut(s, settings, in_flow ? member->place : member->name->place, member, column_of(s->file, member->name->place) + 1,
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

static void split_file(struct split *s)
{
    struct weir__source source = {s->file->path, {s->file->text, s->file->len}};
    struct weir__diagnostics silent = {.sources = &source, .source_count = 1};
    struct weir__arena arena = {.bytes_max = TREE_BYTES};
    bool hidden = weir__has_hidden_break(source.text);
    const struct weir__node *root = hidden ? NULL : weir__yaml_read(0, &arena, &silent);
    if (hidden)
        report(s, (struct weir__place){0, 1, 1}, WEIR__HIDDEN_BREAK);
    else if (!root)
        report_as_lint(s, "it cannot be read as rules");
    else
        take_all(s, root);
    weir__arena_free(&arena);
}

/* ---- Files ---- */

/* Finds where lines begin. A file has at least one. */
static bool find_lines(struct weir__rule_file *file)
{
    size_t count = 0;
    for (weir_text rest = {file->text, file->len}; rest.len; count++)
        weir__cut_line(&rest);
    file->line_count = count ? count : 1;
    file->lines = calloc(file->line_count + 1, sizeof *file->lines);
    if (!file->lines)
        return false;
    count = 0;
    for (weir_text rest = {file->text, file->len}; rest.len; weir__cut_line(&rest))
        file->lines[count++] = (size_t)(rest.data - file->text);
    file->lines[file->line_count] = file->len;
    return true;
}

bool weir__documents_take(struct weir__documents *documents, const char *path, char *text, size_t len,
                          weir_diagnose *diagnose, void *context)
{
    struct split s = {
        .documents = documents, .diagnose = diagnose, .context = context, .number = documents->file_count};
    struct weir__rule_file *files = reallocarray(documents->files, s.number + 1, sizeof *files);
    if (!files) {
        free(text);
        return fail(&s, path, "out of memory");
    }
    documents->files = files;
    struct weir__rule_file *file = &files[documents->file_count++];
    *file = (struct weir__rule_file){.path = strdup(path), .text = text, .len = len};
    if (file->len >= 3 && memcmp(file->text, "\xef\xbb\xbf", 3) == 0) {
        file->len -= 3;
        memmove(file->text, file->text + 3, file->len + 1);
    }
    if (!file->path || !find_lines(file))
        return fail(&s, path, "out of memory");
    s.file = file;
    split_file(&s);
    return !s.failed;
}

static bool read_file(struct split *s, const char *path)
{
    size_t len;
    errno = 0;
    char *text = weir__file_read(path, &len);
    if (text)
        return weir__documents_take(s->documents, path, text, len, s->diagnose, s->context);
    errno = errno ? errno : EFBIG;
    return fail(s, path, errno == EFBIG ? "it is no file, or longer than 64 MiB" : strerror(errno));
}

static int is_rules(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && end && (strcmp(end, ".yaml") == 0 || strcmp(end, ".yml") == 0);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool read_folder(struct split *s, const char *folder)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_rules, by_name);
    bool good = true, slash = folder[strlen(folder) - 1] == '/';
    if (count < 0)
        return fail(s, folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s%s%s", folder, slash ? "" : "/", entries[i]->d_name) >= 0)
            good &= read_file(s, path);
        else
            good = fail(s, folder, "out of memory");
        free(path);
        free(entries[i]);
    }
    free(entries);
    return count > 0 ? good : fail(s, folder, "there is no *.yaml and no *.yml in this folder");
}

bool weir__documents_read(struct weir__documents *documents, const char *path, weir_diagnose *diagnose, void *context)
{
    struct split s = {.documents = documents, .diagnose = diagnose, .context = context};
    struct stat at;
    bool folder = stat(path, &at) == 0 && S_ISDIR(at.st_mode);
    return folder ? read_folder(&s, path) : read_file(&s, path);
}

void weir__documents_free(struct weir__documents *documents)
{
    for (size_t i = 0; i < documents->count; i++) {
        free(documents->list[i].name);
        free(documents->list[i].text);
        free(documents->list[i].origins);
    }
    for (size_t i = 0; i < documents->file_count; i++) {
        free(documents->files[i].path);
        free(documents->files[i].text);
        free(documents->files[i].lines);
    }
    free(documents->list);
    free(documents->files);
}
