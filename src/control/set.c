/* Joins documents to one text, and compiles it. See document.h. */
#include "control/document.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define SOURCE          "published" /* name of the set in messages */
#define INDENT          4
#define SHADOW          "shadow: true"
#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* ---- Writing ---- */

static void put(struct weir__set *set, const char *data, size_t len)
{
    if (set->failed)
        return;
    if (set->len + len + 1 > set->room) {
        size_t room = (set->len + len + 1) * 2;
        char *text = room <= 4 * WEIR__YAML_BYTES ? realloc(set->text, room) : NULL;
        if (!text) {
            set->failed = true;
            return;
        }
        set->text = text;
        set->room = room;
    }
    memcpy(set->text + set->len, data, len);
    set->len += len;
    set->text[set->len] = 0;
    for (size_t i = 0; i < len; i++)
        set->line += data[i] == '\n';
}

static void put_line(struct weir__set *set, const char *line)
{
    put(set, line, strlen(line));
    put(set, "\n", 1);
}

static struct weir__set_piece *new_piece(struct weir__set *set, const char *name, bool shadow, uint32_t columns)
{
    if (set->count == set->piece_room) {
        size_t room = set->piece_room ? set->piece_room * 2 : 64;
        struct weir__set_piece *pieces = realloc(set->pieces, room * sizeof *pieces);
        if (!pieces) {
            set->failed = true;
            return NULL;
        }
        set->pieces = pieces;
        set->piece_room = room;
    }
    struct weir__set_piece *piece = &set->pieces[set->count++];
    *piece =
        (struct weir__set_piece){.first_line = set->line + 1, .columns = columns, .offset = set->len, .shadow = shadow};
    snprintf(piece->name, sizeof piece->name, "%s", name);
    return piece;
}

/* The byte where a column, counted in characters, begins. */
static size_t column_offset(const char *line, size_t len, uint32_t column)
{
    size_t at = 0;
    for (uint32_t i = 1; i < column && at < len; i++)
        do
            at++;
        while (at < len && ((unsigned char)line[at] & 0xc0) == 0x80);
    return at;
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
    struct weir__diagnostics report = {NULL, NULL, &source, 1, 0, 0, {0, 0, 0}};
    struct weir__arena arena = {.bytes_max = (size_t)64 << 20};
    const struct weir__node *root = weir__yaml_read(0, &arena, &report), *own;
    weir_text rest;
    bool good = root && root->kind == WEIR__MAP && weir__place_find(&report, root->place, &rest);
    *change = (struct change){.text = SHADOW};
    if (good) {
        own = weir__node_get(root, "shadow");
        size_t at = column_offset(rest.data, rest.len, root->place.column);
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
    for (size_t i = 0; i < text.len; line++) {
        const char *at = text.data + i, *end = memchr(at, '\n', text.len - i);
        size_t len = end ? (size_t)(end - at) : text.len - i;
        i += len + 1;
        if (len)
            put(set, "                ", piece->columns);
        if (change && change->line == line) {
            size_t before = column_offset(at, len, change->column);
            size_t after = before + change->cut < len ? before + change->cut : len;
            put(set, at, before);
            put(set, change->text, strlen(change->text));
            put(set, at + after, len - after);
            piece->added.line = line;
            piece->added.column = change->column;
            piece->added.len = change->cut ? 0 : (uint32_t)strlen(change->text);
        } else {
            put(set, at, len);
        }
        put(set, "\n", 1);
    }
    piece->lines = line - 1;
    if (change && !change->line) {
        put(set, "                ", piece->columns);
        for (uint32_t i = 0; i < change->indent; i++)
            put(set, " ", 1);
        put_line(set, SHADOW);
        piece->lines++;
    }
}

void weir__set_add(struct weir__set *set, const char *name, enum weir__document_kind kind, weir_text text, bool shadow)
{
    struct change change;
    if (shadow && !find_shadow(text, &change)) {
        set->failed = true;
        return;
    }
    if (kind == WEIR__RULE_DOCUMENT && !set->has_rules)
        put_line(set, "rules:");
    if (kind == WEIR__DOMAIN_DOCUMENT && !set->has_domains)
        put_line(set, "domains:");
    set->has_rules |= kind == WEIR__RULE_DOCUMENT;
    set->has_domains |= kind == WEIR__DOMAIN_DOCUMENT;
    if (kind != WEIR__SETTINGS_DOCUMENT)
        put_line(set, "  -");
    struct weir__set_piece *piece = new_piece(set, name, shadow, kind == WEIR__SETTINGS_DOCUMENT ? 0 : INDENT);
    if (piece)
        put_document(set, text, piece, shadow ? &change : NULL);
    set->complete |= kind != WEIR__SETTINGS_DOCUMENT;
}

/* True if the text has this member at its root, in block style. */
static bool has_member(const struct weir__set *set, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = set->text; at && *at;) {
        if (strncmp(at, name, len) == 0)
            return true;
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    return false;
}

bool weir__set_finish(struct weir__set *set)
{
    /* A published set may be empty: an empty list makes the text valid. */
    if (!set->complete && !has_member(set, "allow:"))
        put_line(set, "allow: { networks: [] }");
    return !set->failed;
}

void weir__set_free(struct weir__set *set)
{
    free(set->text);
    free(set->pieces);
    *set = (struct weir__set){0};
}

/* ---- Compiling ---- */

/* A problem whose field is to be named, once all problems are known. */
struct unnamed {
    const struct weir__set_piece *piece; /* NULL: done */
    json_t *problem;                     /* borrowed */
    uint32_t line, column;               /* in the piece, as the set has it */
};

struct compiling {
    const struct weir__set *set;
    const json_t *about;
    json_t *problems;
    struct unnamed unnamed[2 * (WEIR__ERRORS_MAX + 1)]; /* as many as one load reports: errors and warnings */
    size_t count;
};

static const struct weir__set_piece *piece_of(const struct weir__set *set, uint32_t line)
{
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->pieces[middle].first_line <= line)
            low = middle + 1;
        else
            high = middle;
    }
    const struct weir__set_piece *piece = low ? &set->pieces[low - 1] : NULL;
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

/* Names the fields of all problems of a piece, whose text is parsed once for that. */
static void name_fields(struct compiling *c, const struct weir__set_piece *piece)
{
    const struct weir__set *set = c->set;
    size_t index = (size_t)(piece - set->pieces);
    size_t end = index + 1 < set->count ? set->pieces[index + 1].offset : set->len, len = 0;
    uint32_t lines = 0;
    for (size_t i = piece->offset; i < end && lines < piece->lines; i++, len++)
        lines += set->text[i] == '\n';
    struct weir__source source = {SOURCE, {set->text + piece->offset, len}};
    struct weir__diagnostics report = {NULL, NULL, &source, 1, 0, 0, {0, 0, 0}};
    struct weir__arena arena = {.bytes_max = (size_t)64 << 20};
    const struct weir__node *root = weir__yaml_read(0, &arena, &report);
    char field[256];
    for (size_t i = 0; i < c->count; i++) {
        struct unnamed *one = &c->unnamed[i];
        if (one->piece != piece)
            continue;
        one->piece = NULL;
        if (root)
            weir__document_field(root, one->line, one->column, field, sizeof field);
        if (root && *field)
            json_object_set_new(one->problem, "field", json_string(field));
    }
    weir__arena_free(&arena);
}

static void report(void *context, const weir_diagnostic *what)
{
    struct compiling *c = context;
    char message[WEIR__MESSAGE_MAX + WEIR__DOCUMENT_NAME];
    uint32_t line = (uint32_t)what->line, column = (uint32_t)what->column;
    const struct weir__set_piece *piece = line ? piece_of(c->set, line) : NULL;
    bool wanted = piece && json_object_get(c->about, piece->name);
    if (what->severity == WEIR_IS_WARNING && !wanted)
        return;
    translate(c->set, what->message, message, sizeof message);
    weir_diagnostic own = *what;
    own.message = message;
    own.line = own.column = 0;
    uint32_t own_line = piece ? line - piece->first_line + 1 : 0;
    if (piece) {
        uint32_t own_column = column > piece->columns ? column - piece->columns : 1;
        if (piece->added.line == own_line && own_column >= piece->added.column + piece->added.len)
            own_column -= piece->added.len;
        own.line = (int)own_line;
        own.column = (int)own_column;
    }
    json_t *problem = weir__add_problem(c->problems, piece ? piece->name : NULL, NULL, &own);
    if (piece && problem && c->count < COUNT_OF(c->unnamed))
        c->unnamed[c->count++] = (struct unnamed){piece, problem, own_line, column};
}

int weir__set_compile(const struct weir__set *set, const json_t *about, json_t *problems, size_t *rules)
{
    struct compiling context = {.set = set, .about = about, .problems = problems};
    weir_rules *compiled = NULL;
    int error = weir_rules_parse(SOURCE, set->text, set->len, report, &context, &compiled);
    *rules = compiled ? weir_rules_count(compiled) : 0;
    weir_rules_free(compiled);
    for (size_t i = 0; i < context.count; i++)
        if (context.unnamed[i].piece)
            name_fields(&context, context.unnamed[i].piece);
    return error;
}
