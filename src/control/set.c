/* Joins documents to one text, and compiles it. See document.h. */
#include "control/document.h"
#include "engine/rule_files.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define SOURCE     "published" /* name of the set in messages */
#define INDENT     4
#define SHADOW     "shadow: true"
#define SET_MAX    (2 * WEIR__YAML_BYTES) /* a text that is longer than YAML may be cannot be read anyway */
#define TREE_BYTES ((size_t)256 << 20)

/* ---- Writing ---- */

static void put_line(struct weir__set *set, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put_line(struct weir__set *set, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    weir__buffer_vprintf(&set->text, format, arguments);
    va_end(arguments);
    weir__buffer_printf(&set->text, "\n");
    set->lines++;
    set->failed |= set->text.failed || set->text.len > SET_MAX;
}

/* The edit that makes a rule a shadow rule: cuts `cut` bytes and inserts `text`. */
struct change {
    uint32_t line, column; /* line 0: a new line at the end */
    size_t cut;
    const char *text;
    uint32_t indent;
};

/* False: the document cannot be read, which was reported when it was written. */
static bool find_shadow(weir_text text, struct change *change)
{
    struct weir__source source = {"document", text};
    struct weir__diagnostics report = {.sources = &source, .source_count = 1};
    struct weir__arena arena = {.bytes_max = (size_t)64 << 20};
    const struct weir__node *root = weir__yaml_read(0, &arena, &report), *own;
    weir_text rest;
    bool good = root && root->kind == WEIR__MAP && weir__place_find(&report, root->place, &rest);
    *change = (struct change){.text = SHADOW};
    if (good) {
        own = weir__node_get(root, "shadow");
        size_t at = weir__column_offset(rest.data, rest.len, root->place.column);
        if (own && own->kind == WEIR__SCALAR && !own->quoted)
            *change = (struct change){own->place.line, own->place.column, own->text.len, "true", 0};
        else if (at < rest.len && rest.data[at] == '{')
            *change = (struct change){root->place.line, root->place.column + 1, 0, SHADOW ", ", 0};
        else
            change->indent = root->place.column - 1;
    }
    weir__arena_free(&arena);
    return good;
}

static void put_document(struct weir__set *set, weir_text text, struct weir__set_piece *piece,
                         const struct change *change)
{
    uint32_t line = 1;
    for (size_t i = 0; i < text.len && !set->failed; line++) {
        const char *at = text.data + i, *end = memchr(at, '\n', text.len - i);
        int len = (int)(end ? (size_t)(end - at) : text.len - i), columns = len ? (int)piece->columns : 0;
        i += (size_t)len + 1;
        if (!change || change->line != line) {
            put_line(set, "%*s%.*s", columns, "", len, at);
            continue;
        }
        int before = (int)weir__column_offset(at, (size_t)len, change->column);
        int after = before + (int)change->cut < len ? before + (int)change->cut : len;
        put_line(set, "%*s%.*s%s%.*s", columns, "", before, at, change->text, len - after, at + after);
        piece->added.line = line;
        piece->added.column = change->column;
        piece->added.len = change->cut ? 0 : (uint32_t)strlen(change->text);
    }
    if (change && !change->line)
        put_line(set, "%*s%s", (int)(piece->columns + change->indent), "", SHADOW);
    piece->lines = set->lines + 1 - piece->first_line;
}

void weir__set_add(struct weir__set *set, const char *name, enum weir__document_kind kind, weir_text text, bool shadow)
{
    struct change change;
    struct weir__set_piece *piece = weir__arena_take(&set->arena, sizeof *piece);
    if (!piece || (shadow && !find_shadow(text, &change))) {
        set->failed = true;
        return;
    }
    bool *has = kind == WEIR__KIND_RULE ? &set->has_rules : &set->has_domains;
    if (kind != WEIR__KIND_SETTINGS) {
        if (!*has)
            put_line(set, kind == WEIR__KIND_RULE ? "rules:" : "domains:");
        *has = true;
        put_line(set, "  -");
        piece->columns = INDENT;
    }
    piece->first_line = set->lines + 1;
    snprintf(piece->name, sizeof piece->name, "%s", name);
    put_document(set, text, piece, shadow ? &change : NULL);
    piece->before = set->last;
    set->last = piece;
}

bool weir__set_finish(struct weir__set *set)
{
    /* A published set may be empty: an empty list makes the text valid. Settings are in block style. */
    const char *text = set->text.data ? set->text.data : "";
    bool allows = strncmp(text, "allow:", 6) == 0 || strstr(text, "\nallow:");
    if (!set->has_rules && !set->has_domains && !allows)
        put_line(set, "allow: { networks: [] }");
    return !set->failed;
}

void weir__set_free(struct weir__set *set)
{
    weir__buffer_free(&set->text);
    weir__arena_free(&set->arena);
    *set = (struct weir__set){0};
}

/* ---- Compiling ---- */

struct compiling {
    const struct weir__set *set;
    const json_t *about;
    json_t *problems;
    struct weir__arena arena;
    const struct weir__node *root; /* the set as a tree, once a problem was found */
    bool read;
};

static const struct weir__set_piece *piece_of(const struct weir__set *set, uint32_t line)
{
    const struct weir__set_piece *piece = set->last;
    while (piece && piece->first_line > line)
        piece = piece->before;
    return piece && line < piece->first_line + piece->lines ? piece : NULL;
}

/* Messages may name a second place by its line in the set: it becomes the line in its document. */
static void translate(const struct weir__set *set, const char *message, char *to, size_t size)
{
    size_t used = 0;
    while (*message && used + 1 < size) {
        char *end;
        const char *number = message + sizeof SOURCE;
        if (strncmp(message, SOURCE ":", sizeof SOURCE) == 0 && isdigit((unsigned char)*number)) {
            unsigned long line = strtoul(number, &end, 10);
            const struct weir__set_piece *piece = piece_of(set, (uint32_t)line);
            int len = piece ? snprintf(to + used, size - used, "%s:%lu", piece->name, line - piece->first_line + 1)
                            : snprintf(to + used, size - used, "the set");
            used = used + (size_t)len < size ? used + (size_t)len : size - 1;
            message = end;
        } else {
            to[used++] = *message++;
        }
    }
    to[used] = 0;
}

/* The field at a place of the set; NULL: unknown. A rule is rules[N] there, a domain domains[N]: that is left out. */
static const char *field_at(struct compiling *c, const struct weir__set_piece *piece, uint32_t line, uint32_t column,
                            char *field, size_t size)
{
    if (!c->read) {
        struct weir__source source = {SOURCE, {c->set->text.data, c->set->text.len}};
        struct weir__diagnostics silent = {.sources = &source, .source_count = 1};
        c->read = true;
        c->root = weir__yaml_read(0, &c->arena, &silent);
    }
    if (!c->root)
        return NULL;
    weir__document_field(c->root, line, column, field, size);
    const char *item = piece->columns ? strchr(field, ']') : NULL;
    return !piece->columns ? field : item ? item + 1 + (item[1] == '.') : NULL;
}

static void report(void *context, const weir_diagnostic *what)
{
    struct compiling *c = context;
    char message[WEIR__MESSAGE_MAX + WEIR__DOCUMENT_NAME], field[280];
    uint32_t line = (uint32_t)what->line, column = (uint32_t)what->column;
    const struct weir__set_piece *piece = line ? piece_of(c->set, line) : NULL;
    bool wanted = piece && json_object_get(c->about, piece->name);
    if (what->severity == WEIR_IS_WARNING && !wanted)
        return;
    translate(c->set, what->message, message, sizeof message);
    weir_diagnostic own = {.severity = what->severity, .message = message, .suggestion = what->suggestion};
    if (piece) {
        uint32_t own_line = line - piece->first_line + 1;
        uint32_t own_column = column > piece->columns ? column - piece->columns : 1;
        if (piece->added.line == own_line && own_column >= piece->added.column + piece->added.len)
            own_column -= piece->added.len;
        own.line = (int)own_line;
        own.column = (int)own_column;
    }
    weir__add_problem(c->problems, piece ? piece->name : NULL,
                      piece ? field_at(c, piece, line, column, field, sizeof field) : NULL, &own);
}

int weir__set_compile(const struct weir__set *set, const json_t *about, json_t *problems, size_t *rules)
{
    struct compiling context = {.set = set, .about = about, .problems = problems, .arena = {.bytes_max = TREE_BYTES}};
    weir_rules *compiled = NULL;
    struct weir__source source = {SOURCE, {set->text.data, set->text.len}};
    struct weir__diagnostic_sink sink = {.diagnose = report, .context = &context};
    struct weir__map_files files = {.text = true, .skip = true};
    int error = weir__load_sources(&source, 1, &sink, set->may_name_files ? &files : NULL, &compiled);
    weir__map_files_free(&files);
    *rules = compiled ? weir_rules_count(compiled) : 0;
    weir_rules_free(compiled);
    weir__arena_free(&context.arena);
    return error;
}

int weir__document_compile(const char *settings, const char *name, enum weir__document_kind kind, weir_text text,
                           bool may_name_files, json_t *problems)
{
    struct weir__set set = {.may_name_files = may_name_files};
    size_t rules;
    json_t *about = json_pack("{s:b}", name, 1);
    if (settings && kind != WEIR__KIND_SETTINGS)
        weir__set_add(&set, WEIR__SETTINGS_NAME, WEIR__KIND_SETTINGS, weir__text_of(settings), false);
    weir__set_add(&set, name, kind, text, false);
    int error = weir__set_finish(&set) ? weir__set_compile(&set, about, problems, &rules) : WEIR_ENOMEM;
    weir__set_free(&set);
    json_decref(about);
    return error;
}
