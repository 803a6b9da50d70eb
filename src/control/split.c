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
    size_t file;
    weir_diagnose *diagnose; /* may be NULL */
    void *context;
    size_t errors;
    size_t taken; /* lines before this one belong to documents */
    bool failed;
};

static const struct weir__rule_file *file_of(const struct split *s)
{
    return &s->documents->files[s->file];
}

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

static void report(struct split *s, struct weir__place at, const char *message)
{
    const struct weir__rule_file *file = file_of(s);
    pass_on(s, &(weir_diagnostic){.severity = WEIR_IS_ERROR,
                                  .file = file->path,
                                  .line = (int)at.line,
                                  .column = (int)at.column,
                                  .message = message,
                                  .source = file->text + file->lines[at.line - 1]});
    s->failed = true;
}

/* Reports the errors that weir lint finds in the file, or `otherwise` if it finds none. */
static void report_as_lint(struct split *s, const char *otherwise)
{
    const struct weir__rule_file *file = file_of(s);
    weir_rules *rules = NULL;
    if (weir_rules_parse(file->path, file->text, file->len, pass_on, s, &rules) == 0)
        weir_rules_free(rules);
    if (!s->errors)
        pass_on(s, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = file->path, .message = otherwise});
    s->failed = true;
}

/* Blanks at the beginning of a line, up to `most`: the indentation that the document leaves out. */
static size_t indent_of(const struct weir__rule_file *file, size_t line, size_t most)
{
    size_t begin = file->lines[line], left = file->lines[line + 1] - begin, blanks = 0;
    while (blanks < most && blanks < left && file->text[begin + blanks] == ' ')
        blanks++;
    return blanks;
}

void weir__documents_diagnose(const struct weir__documents *documents, const struct weir__rule_document *document,
                              const weir_diagnostic *what, weir_diagnose *diagnose, void *context)
{
    weir_diagnostic moved = *what;
    const struct weir__stretch *stretch = &document->stretches[0];
    size_t line = what->line > 0 ? (size_t)what->line - 1 : 0;
    for (size_t i = 0; i < document->stretch_count; i++)
        if (document->stretches[i].document_line <= line)
            stretch = &document->stretches[i];
    const struct weir__rule_file *file = &documents->files[stretch->file];
    line -= stretch->document_line;
    if (line >= stretch->count)
        line = stretch->count - 1; /* at the end of the document */
    size_t at = stretch->file_line + line;
    /* Indentation and head are ASCII: a byte is a column. */
    size_t moved_by = line == 0 ? stretch->column : indent_of(file, at, stretch->column);
    size_t head = line == 0 ? stretch->head : 0, column = what->column > 0 ? (size_t)what->column : 1;
    moved.file = file->path;
    moved.line = (int)at + 1;
    moved.column = (int)(column + moved_by > head ? column + moved_by - head : 1);
    moved.source = file->text + file->lines[at];
    if (diagnose)
        diagnose(context, &moved);
}

/* ---- Documents ---- */

/* A document to be filled. NULL: no memory. */
static struct weir__rule_document *documents_add(struct weir__documents *documents, enum weir__kind kind,
                                                 const char *name)
{
    if (documents->count == documents->room) {
        size_t room = documents->room ? 2 * documents->room : 16;
        struct weir__rule_document *list = realloc(documents->list, room * sizeof *list);
        if (!list)
            return NULL;
        documents->list = list;
        documents->room = room;
    }
    const char *prefix = kind == WEIR__KIND_DOMAIN ? WEIR__DOMAIN_PREFIX : "";
    size_t size = strlen(prefix) + strlen(name) + 1;
    char *full_name = malloc(size);
    if (!full_name)
        return NULL;
    snprintf(full_name, size, "%s%s", prefix, name);
    struct weir__rule_document *document = &documents->list[documents->count++];
    *document = (struct weir__rule_document){.kind = kind, .name = full_name};
    return document;
}

/* Copies a line; \r\n becomes \n. */
static size_t put_line(char *to, const char *from, size_t len)
{
    while (len > 0 && (from[len - 1] == '\n' || from[len - 1] == '\r'))
        len--;
    memcpy(to, from, len);
    to[len] = '\n';
    return len + 1;
}

/* Adds lines of a file: from `line` and the byte `column` of it on to the byte `end` of the text, after `head`. */
static bool add_stretch(struct weir__documents *documents, struct weir__rule_document *document, size_t file,
                        size_t line, size_t column, size_t end, const char *head)
{
    const struct weir__rule_file *of = &documents->files[file];
    struct weir__stretch *stretches = realloc(document->stretches, (document->stretch_count + 1) * sizeof *stretches);
    if (!stretches)
        return false;
    document->stretches = stretches;
    size_t begin = of->lines[line] + column;
    char *text = realloc(document->text, document->len + strlen(head) + (end - begin) + 2);
    if (!text)
        return false;
    document->text = text;
    memcpy(text + document->len, head, strlen(head));
    size_t used = document->len + strlen(head), at = line;
    for (; at < of->line_count && (at == line || of->lines[at] < end); at++) {
        size_t from = at == line ? begin : of->lines[at] + indent_of(of, at, column);
        size_t to = of->lines[at + 1] < end ? of->lines[at + 1] : end;
        used += put_line(text + used, of->text + from, to > from ? to - from : 0);
    }
    text[used] = '\0';
    document->len = used;
    stretches[document->stretch_count++] = (struct weir__stretch){.file = file,
                                                                  .document_line = document->lines,
                                                                  .file_line = line,
                                                                  .count = at - line,
                                                                  .column = column,
                                                                  .head = strlen(head)};
    document->lines += at - line;
    return true;
}

/* ---- Cutting ---- */

/* The text of a node: lines from 0, columns in bytes from 0. */
struct piece {
    size_t line, column;
    size_t end_line, end_column; /* behind its end; in block style, where the next node begins */
    bool flow;                   /* ends with its last character, not with its line */
};

/* Converts a place, whose column is in characters. */
static void place(const struct weir__rule_file *file, struct weir__place at, size_t *line, size_t *column)
{
    *line = at.line - 1 < file->line_count ? at.line - 1 : file->line_count;
    *column = 0;
    if (*line == file->line_count)
        return;
    size_t begin = file->lines[*line], byte = begin, end = file->lines[*line + 1];
    for (uint32_t left = at.column - 1; left > 0 && byte < end; left--)
        do
            byte++;
        while (byte < end && ((unsigned char)file->text[byte] & 0xc0) == 0x80);
    *column = byte - begin;
}

static struct piece piece_of(const struct weir__rule_file *file, const struct weir__node *node)
{
    struct piece piece = {.flow = node->flow || node->kind == WEIR__SCALAR};
    place(file, node->place, &piece.line, &piece.column);
    place(file, node->end, &piece.end_line, &piece.end_column);
    return piece;
}

static bool is_blank(const struct weir__rule_file *file, size_t line, size_t *indent, bool *comment)
{
    size_t at = file->lines[line], end = file->lines[line + 1];
    *indent = strspn(file->text + at, " \t");
    at += *indent;
    *comment = at < end && file->text[at] == '#';
    return at >= end || *comment || file->text[at] == '\r' || file->text[at] == '\n';
}

/* The byte where a piece ends, with the comments that belong to it. */
static size_t end_of(const struct weir__rule_file *file, const struct piece *piece, size_t column)
{
    size_t indent;
    bool comment;
    if (piece->flow && piece->end_line < file->line_count && piece->end_column > 0) {
        size_t at = file->lines[piece->end_line] + piece->end_column;
        size_t blanks = strspn(file->text + at, " \t");
        return blanks > 0 && file->text[at + blanks] == '#' ? file->lines[piece->end_line + 1] : at;
    }
    size_t last = piece->end_line;
    if (last < file->line_count && piece->end_column > 0 && piece->end_line == file->line_count - 1 &&
        file->lines[last] + piece->end_column >= file->len)
        last++; /* a last line without a line break */
    while (last > piece->line + 1 && is_blank(file, last - 1, &indent, &comment) && (!comment || indent < column))
        last--;
    return file->lines[last];
}

/* Adds a piece and the comments right above it; of those below, the ones indented by `least_indent` or more. */
static void cut(struct split *s, struct weir__rule_document *document, const struct piece *piece, size_t least_indent,
                const char *head)
{
    const struct weir__rule_file *file = file_of(s);
    size_t first = piece->line, indent = 0, end = end_of(file, piece, least_indent);
    bool comment = false, good = true;
    while (first > s->taken && is_blank(file, first - 1, &indent, &comment) && comment)
        first--;
    if (first < piece->line) {
        is_blank(file, first, &indent, &comment);
        good = add_stretch(s->documents, document, s->file, first, indent, file->lines[piece->line], "");
    }
    good = good && add_stretch(s->documents, document, s->file, piece->line, piece->column, end, head);
    s->failed |= !good;
    while (s->taken < file->line_count && file->lines[s->taken] < end)
        s->taken++;
}

/* ---- Finding documents ---- */

static struct weir__rule_document *add(struct split *s, enum weir__kind kind, const char *name)
{
    struct weir__rule_document *document = documents_add(s->documents, kind, name);
    s->failed |= !document;
    return document;
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
            struct weir__rule_document *document = add(s, rules ? WEIR__KIND_RULE : WEIR__KIND_DOMAIN, name);
            struct piece piece = piece_of(file_of(s), item);
            if (document)
                cut(s, document, &piece, piece.column, "");
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
    struct piece key = piece_of(file_of(s), member->name), piece = piece_of(file_of(s), member);
    /* In flow style the key shares its line with others: the value alone is cut out. */
    if (in_flow) {
        snprintf(head, sizeof head, "%s: ", member->name->text.data);
    } else {
        piece.line = key.line;
        piece.column = key.column;
    }
    cut(s, settings, &piece, key.column + 1, head);
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
        struct weir__rule_document *document = add(s, domain ? WEIR__KIND_DOMAIN : WEIR__KIND_RULE, name);
        struct piece piece = piece_of(file_of(s), root);
        if (document)
            cut(s, document, &piece, piece.column, "");
    }
}

static bool split_file(struct weir__documents *documents, size_t number, weir_diagnose *diagnose, void *context)
{
    struct split s = {.documents = documents, .file = number, .diagnose = diagnose, .context = context};
    const struct weir__rule_file *file = file_of(&s);
    struct weir__source source = {file->path, {file->text, file->len}};
    struct weir__diagnostics silent = {.sources = &source, .source_count = 1};
    struct weir__arena arena = {.bytes_max = TREE_BYTES};
    bool hidden = weir__has_hidden_break(source.text);
    const struct weir__node *root = hidden ? NULL : weir__yaml_read(0, &arena, &silent);
    if (hidden)
        report(&s, (struct weir__place){0, 1, 1}, WEIR__HIDDEN_BREAK);
    else if (!root)
        report_as_lint(&s, "it cannot be read as rules");
    else
        take_all(&s, root);
    weir__arena_free(&arena);
    return !s.failed;
}

/* ---- Files ---- */

static bool diagnose_failure(const char *path, const char *message, weir_diagnose *diagnose, void *context)
{
    if (diagnose)
        diagnose(context, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = path, .message = message});
    return false;
}

/* Finds where lines begin, as YAML counts them. */
static bool find_lines(struct weir__rule_file *file)
{
    size_t count = 1;
    for (size_t i = 0; i < file->len; i++)
        count += file->text[i] == '\n' || file->text[i] == '\r';
    file->lines = malloc((count + 1) * sizeof *file->lines);
    if (!file->lines)
        return false;
    count = 0;
    file->lines[count++] = 0;
    for (size_t i = 0; i < file->len; i++) {
        if (file->text[i] == '\r' && file->text[i + 1] == '\n')
            i++;
        if (file->text[i] == '\n' || file->text[i] == '\r')
            file->lines[count++] = i + 1;
    }
    file->line_count = file->lines[count - 1] == file->len && count > 1 ? count - 1 : count;
    file->lines[file->line_count] = file->len;
    return true;
}

bool weir__documents_take(struct weir__documents *documents, const char *path, char *text, size_t len,
                          weir_diagnose *diagnose, void *context)
{
    struct weir__rule_file *files = realloc(documents->files, (documents->file_count + 1) * sizeof *files);
    if (!files) {
        free(text);
        return diagnose_failure(path, "out of memory", diagnose, context);
    }
    documents->files = files;
    struct weir__rule_file *file = &files[documents->file_count++];
    *file = (struct weir__rule_file){.path = strdup(path), .text = text, .len = len};
    if (file->len >= 3 && memcmp(file->text, "\xef\xbb\xbf", 3) == 0) {
        file->len -= 3;
        memmove(file->text, file->text + 3, file->len + 1);
    }
    if (!file->path || !find_lines(file))
        return diagnose_failure(path, "out of memory", diagnose, context);
    return split_file(documents, documents->file_count - 1, diagnose, context);
}

static bool read_file(struct weir__documents *documents, const char *path, weir_diagnose *diagnose, void *context)
{
    size_t len;
    errno = 0;
    char *text = weir__file_read(path, &len);
    if (text)
        return weir__documents_take(documents, path, text, len, diagnose, context);
    errno = errno ? errno : EFBIG;
    return diagnose_failure(path, errno == EFBIG ? "it is no file, or longer than 64 MiB" : strerror(errno), diagnose,
                            context);
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

static bool read_folder(struct weir__documents *documents, const char *folder, weir_diagnose *diagnose, void *context)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_rules, by_name);
    bool good = true;
    if (count < 0)
        return diagnose_failure(folder, strerror(errno), diagnose, context);
    for (int i = 0; i < count; i++) {
        size_t size = strlen(folder) + strlen(entries[i]->d_name) + 2;
        char *path = malloc(size);
        if (path) {
            snprintf(path, size, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", entries[i]->d_name);
            good &= read_file(documents, path, diagnose, context);
        } else {
            good = diagnose_failure(folder, "out of memory", diagnose, context);
        }
        free(path);
        free(entries[i]);
    }
    free(entries);
    return count > 0 ? good
                     : diagnose_failure(folder, "there is no *.yaml and no *.yml in this folder", diagnose, context);
}

bool weir__documents_read(struct weir__documents *documents, const char *path, weir_diagnose *diagnose, void *context)
{
    struct stat at;
    bool folder = stat(path, &at) == 0 && S_ISDIR(at.st_mode);
    return folder ? read_folder(documents, path, diagnose, context) : read_file(documents, path, diagnose, context);
}

void weir__documents_free(struct weir__documents *documents)
{
    for (size_t i = 0; i < documents->count; i++) {
        free(documents->list[i].name);
        free(documents->list[i].text);
        free(documents->list[i].stretches);
    }
    for (size_t i = 0; i < documents->file_count; i++) {
        free(documents->files[i].path);
        free(documents->files[i].text);
        free(documents->files[i].lines);
    }
    free(documents->list);
    free(documents->files);
}
