/*
 * One rule file taken apart: libyaml says where things begin and end, and their text is cut out as it stands. Comments
 * right above a rule are its own, and so are those below that are indented as far as it is.
 */
#define _GNU_SOURCE /* memmem */
#include "control/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* Members of a file's root. The first are settings; but for the first two, a rule has such fields, too. */
static const char *const member_names[] = {"identity", "normalize", "allow",  "block",       "response",
                                           "rules",    "domains",   "domain", "descriptors", "name"};
enum { IDENTITY, NORMALIZE, ALLOW, BLOCK, RESPONSE, RULES, DOMAINS, DOMAIN, DESCRIPTORS, NAME, MEMBERS };
enum { SETTINGS = RULES };

/* Something to be cut out. */
struct piece {
    size_t line, column;         /* where it begins: lines from 0, bytes from 0 */
    size_t end_line, end_column; /* behind its end; for block style, where the next thing begins */
    bool flow;                   /* ends where it ends, not with its line */
    bool is_map, is_list;
    char *name; /* of a rule or domain; NULL: it has none */
};

struct member {
    int which;
    struct piece key, value;
    size_t first_item, item_count; /* of rules and domains */
};

struct split {
    struct weir__documents *documents;
    size_t file;
    weir_diagnose *diagnose; /* may be NULL */
    void *context;
    size_t errors; /* errors */

    int depth;
    bool wants_value[4]; /* a map at this depth has had its key */
    int member;          /* whose value is being read */
    bool is_name;        /* the value that comes next is the item's or the root's name */
    struct piece root;
    bool unknown; /* there is a member that no rule file has */
    bool twice;   /* a member is there more than once */
    struct member members[MEMBERS];
    size_t member_count;
    struct piece *items;
    size_t item_count, item_room;
    size_t taken; /* lines before this one belong to documents */
    bool failed;  /* told */
};

static const struct weir__rule_file *file_of(const struct split *s)
{
    return &s->documents->files[s->file];
}

/* ---- Telling ---- */

static void pass_on(void *context, const weir_diagnostic *what)
{
    struct split *s = context;
    if (what->severity == WEIR_IS_WARNING)
        return; /* warnings about single documents are shown elsewhere */
    s->errors++;
    if (s->diagnose)
        s->diagnose(s->context, what);
}

/* Columns are counted in characters, as everywhere. */
static size_t characters(const char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

static void report(struct split *s, const struct piece *at, const char *message)
{
    const struct weir__rule_file *file = file_of(s);
    const char *line = file->text + file->lines[at->line];
    weir_diagnostic what = {.severity = WEIR_IS_ERROR,
                            .file = file->path,
                            .line = (int)at->line + 1,
                            .column = (int)characters(line, at->column) + 1,
                            .message = message,
                            .source = line};
    pass_on(s, &what);
    s->failed = true;
}

/* YAML errors are reported as by weir lint. */
static void blame(struct split *s, const char *otherwise)
{
    const struct weir__rule_file *file = file_of(s);
    weir_rules *rules = NULL;
    if (weir_rules_parse(file->path, file->text, file->len, pass_on, s, &rules) == 0)
        weir_rules_free(rules);
    if (!s->errors)
        pass_on(s, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = file->path, .message = otherwise});
    s->failed = true;
}

/* ---- Reading ---- */

/* libyaml counts characters. */
static size_t byte_of(const struct weir__rule_file *file, size_t line, size_t character)
{
    size_t begin = file->lines[line], at = begin, end = file->lines[line + 1];
    for (; character > 0 && at < end; character--)
        do
            at++;
        while (at < end && ((unsigned char)file->text[at] & 0xc0) == 0x80);
    return at - begin;
}

static void place(const struct split *s, yaml_mark_t mark, size_t *line, size_t *column)
{
    const struct weir__rule_file *file = file_of(s);
    *line = mark.line < file->line_count ? mark.line : file->line_count;
    *column = *line < file->line_count ? byte_of(file, *line, mark.column) : 0;
}

static struct piece begin_piece(const struct split *s, const yaml_event_t *event)
{
    struct piece piece = {.flow = true};
    piece.is_map = event->type == YAML_MAPPING_START_EVENT;
    piece.is_list = event->type == YAML_SEQUENCE_START_EVENT;
    if (piece.is_map)
        piece.flow = event->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE;
    else if (piece.is_list)
        piece.flow = event->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE;
    place(s, event->start_mark, &piece.line, &piece.column);
    return piece;
}

static char *name_of(struct split *s, const yaml_event_t *event)
{
    size_t len = event->type == YAML_SCALAR_EVENT ? event->data.scalar.length : 0;
    if (len == 0 || memchr(event->data.scalar.value, 0, len))
        return NULL;
    char *name = malloc(len + 1);
    if (!name) {
        s->failed = true;
        return NULL;
    }
    memcpy(name, event->data.scalar.value, len);
    name[len] = '\0';
    return name;
}

static bool has(const struct split *s, int from, int to)
{
    for (size_t i = 0; i < s->member_count; i++)
        if (s->members[i].which >= from && s->members[i].which < to)
            return true;
    return false;
}

static void begin_member(struct split *s, const yaml_event_t *event)
{
    const char *name = event->type == YAML_SCALAR_EVENT ? (const char *)event->data.scalar.value : "";
    int which = 0;
    while (which < MEMBERS && strcmp(name, member_names[which]) != 0)
        which++;
    s->member = -1;
    s->is_name = which == NAME || which == DOMAIN;
    if (which == MEMBERS) { /* of a rule that is alone in its file, or wrong: see take_all */
        s->unknown = true;
        return;
    }
    s->twice |= has(s, which, which + 1);
    if (s->twice)
        return;
    s->member = (int)s->member_count++;
    s->members[s->member] = (struct member){.which = which, .key = begin_piece(s, event), .first_item = s->item_count};
}

static void begin_item(struct split *s, const yaml_event_t *event)
{
    if (s->item_count == s->item_room) {
        size_t room = s->item_room ? 2 * s->item_room : 64;
        struct piece *items = realloc(s->items, room * sizeof *items);
        if (!items) {
            s->failed = true;
            return;
        }
        s->items = items;
        s->item_room = room;
    }
    s->items[s->item_count++] = begin_piece(s, event);
    s->members[s->member].item_count++;
}

/* True inside of a rule or domain of a list, at its own members. */
static bool in_item(const struct split *s)
{
    return s->depth == 3 && s->member >= 0 && s->members[s->member].item_count > 0 &&
           s->members[s->member].value.is_list && s->items[s->item_count - 1].is_map;
}

/* A scalar, or the beginning of a list or map. */
static void begin_node(struct split *s, const yaml_event_t *event)
{
    if (s->depth == 0) {
        s->root = begin_piece(s, event);
    } else if (s->depth == 1 && s->root.is_map && !s->wants_value[1]) {
        begin_member(s, event);
    } else if (s->depth == 1 && s->root.is_map) {
        if (s->member >= 0)
            s->members[s->member].value = begin_piece(s, event);
        if (s->is_name && !s->root.name)
            s->root.name = name_of(s, event);
    } else if (s->depth == 2 && s->member >= 0 && s->members[s->member].value.is_list &&
               (s->members[s->member].which == RULES || s->members[s->member].which == DOMAINS)) {
        begin_item(s, event);
    } else if (in_item(s)) {
        struct piece *item = &s->items[s->item_count - 1];
        const char *wanted = s->members[s->member].which == RULES ? "name" : "domain";
        if (!s->wants_value[3])
            s->is_name =
                event->type == YAML_SCALAR_EVENT && strcmp((const char *)event->data.scalar.value, wanted) == 0;
        else if (s->is_name && !item->name)
            item->name = name_of(s, event);
    }
}

static void end_node(struct split *s, const yaml_event_t *event)
{
    struct piece *piece = NULL;
    if (s->depth == 0)
        piece = &s->root;
    else if (s->depth == 1 && s->member >= 0 && s->wants_value[1])
        piece = &s->members[s->member].value;
    else if (s->depth == 2 && s->member >= 0 && s->members[s->member].item_count > 0)
        piece = &s->items[s->item_count - 1];
    if (piece)
        place(s, event->end_mark, &piece->end_line, &piece->end_column);
    if (s->depth < 4)
        s->wants_value[s->depth] = !s->wants_value[s->depth];
}

/* One event; false at the end, or if there is something that rules have not. */
static bool read_event(struct split *s, const yaml_event_t *event, int *documents)
{
    switch (event->type) {
    case YAML_STREAM_END_EVENT:
        return false;
    case YAML_DOCUMENT_START_EVENT:
        return ++*documents < 2;
    case YAML_ALIAS_EVENT:
        *documents = 2;
        return false;
    case YAML_SCALAR_EVENT:
        begin_node(s, event);
        end_node(s, event);
        return true;
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        begin_node(s, event);
        if (++s->depth < 4)
            s->wants_value[s->depth] = false;
        return true;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        s->depth--;
        end_node(s, event);
        return true;
    default:
        return true;
    }
}

static bool read_events(struct split *s)
{
    const struct weir__rule_file *file = file_of(s);
    yaml_parser_t parser;
    int documents = 0;
    bool good = true, more = true;
    if (!yaml_parser_initialize(&parser))
        return false;
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)file->text, file->len);
    while (good && more && !s->failed) { /* the text is bounded, and each event takes some of it */
        yaml_event_t event;
        good = yaml_parser_parse(&parser, &event) != 0;
        if (!good)
            break;
        more = read_event(s, &event, &documents);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return good && documents == 1 && !s->failed;
}

/* ---- Cutting ---- */

static bool is_blank(const struct weir__rule_file *file, size_t line, size_t *indent, bool *comment)
{
    size_t at = file->lines[line], end = file->lines[line + 1];
    *indent = strspn(file->text + at, " \t");
    at += *indent;
    *comment = at < end && file->text[at] == '#';
    return at >= end || *comment || file->text[at] == '\r' || file->text[at] == '\n';
}

/* The byte where a piece ends, comments that belong to it included. */
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
        last++; /* a last line without its end */
    while (last > piece->line + 1 && is_blank(file, last - 1, &indent, &comment) && (!comment || indent < column))
        last--;
    return file->lines[last];
}

/* Adds a piece and the comments right above it. Comments below that are indented less are not its own. */
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
        good = weir__documents_stretch(s->documents, document, s->file, first, indent, file->lines[piece->line], "");
    }
    good = good && weir__documents_stretch(s->documents, document, s->file, piece->line, piece->column, end, head);
    s->failed |= !good;
    while (s->taken < file->line_count && file->lines[s->taken] < end)
        s->taken++;
}

/* ---- What is in it ---- */

static struct weir__rule_document *add(struct split *s, enum weir__kind kind, const char *name)
{
    struct weir__rule_document *document = weir__documents_add(s->documents, kind, name, strlen(name));
    s->failed |= !document;
    return document;
}

static void take_items(struct split *s, const struct member *member)
{
    bool rules = member->which == RULES;
    if (!member->value.is_list) {
        report(s, &member->key, rules ? "rules is a list" : "domains is a list");
        return;
    }
    for (size_t i = 0; i < member->item_count; i++) {
        const struct piece *item = &s->items[member->first_item + i];
        if (!item->is_map) {
            report(s, item, rules ? "a rule is a map" : "a domain is a map");
        } else if (!item->name) {
            report(s, item, rules ? "a rule needs a name" : "a domain needs a name");
        } else {
            struct weir__rule_document *document = add(s, rules ? WEIR__KIND_RULE : WEIR__KIND_DOMAIN, item->name);
            if (document)
                cut(s, document, item, item->column, "");
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

static void take_setting(struct split *s, const struct member *member)
{
    struct weir__rule_document *settings = settings_of(s);
    char head[24] = "";
    if (!settings)
        return;
    /* The value alone if its key shares the line with others; else the lines of both. */
    struct piece piece = member->value;
    if (s->root.flow) {
        snprintf(head, sizeof head, "%s: ", member_names[member->which]);
    } else {
        piece.line = member->key.line;
        piece.column = member->key.column;
    }
    cut(s, settings, &piece, member->key.column + 1, head);
}

static void take_all(struct split *s)
{
    bool domain = has(s, DOMAIN, NAME), shared = has(s, IDENTITY, ALLOW) || has(s, RULES, DOMAIN);
    bool one_rule = has(s, NAME, MEMBERS) && !domain && !shared, many = shared || (!one_rule && has(s, ALLOW, RULES));
    if (!s->root.is_map || s->twice || (domain && many) || (!many && !domain && !s->root.name)) {
        blame(s, "this is no rule file, and no rule or domain alone");
    } else if (many && s->unknown) {
        blame(s, "it has a field that no rule file has");
    } else if (many) {
        for (size_t i = 0; i < s->member_count && !s->failed; i++) {
            const struct member *member = &s->members[i];
            if (member->which == NAME)
                blame(s, "a file has rules, or is one rule");
            else if (member->which < SETTINGS)
                take_setting(s, member);
            else
                take_items(s, member);
        }
    } else if (!s->root.name) {
        report(s, &s->root, "a domain needs a name");
    } else {
        struct weir__rule_document *document = add(s, domain ? WEIR__KIND_DOMAIN : WEIR__KIND_RULE, s->root.name);
        if (document)
            cut(s, document, &s->root, s->root.column, "");
    }
}

/* To YAML they end a line, to every editor they do not: places would not be what they seem. */
static bool has_hidden_break(const struct weir__rule_file *file)
{
    static const char *const breaks[] = {"\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};
    for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++)
        if (memmem(file->text, file->len, breaks[i], strlen(breaks[i])))
            return true;
    return false;
}

bool weir__documents_split(struct weir__documents *documents, size_t file, weir_diagnose *diagnose, void *context)
{
    struct split s = {.documents = documents, .file = file, .diagnose = diagnose, .context = context, .member = -1};
    if (has_hidden_break(file_of(&s)))
        report(&s, &s.root,
               "the text has line breaks (U+0085, U+2028, U+2029) that are not seen; write them as escapes");
    else if (!read_events(&s))
        blame(&s, "it cannot be read as rules");
    else
        take_all(&s);
    free(s.root.name);
    for (size_t i = 0; i < s.item_count; i++)
        free(s.items[i].name);
    free(s.items);
    return !s.failed;
}
