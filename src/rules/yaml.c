/* Builds the tree from the events of libyaml, without recursion, and rewords its messages; writes nodes as JSON. */
#include "rules/yaml.h"
#include "base/json_writer.h"

#include <search.h>
#include <yaml.h>

/* ---- Messages of libyaml, reworded: the correction, at the place of the mistake ---- */

static struct weir__place place_of_mark(uint32_t source, yaml_mark_t mark)
{
    return (struct weir__place){source, (uint32_t)mark.line + 1, (uint32_t)mark.column + 1};
}

#define TABS "YAML does not allow tabs for indentation; use spaces"

enum where {
    AT_PROBLEM, /* where the parser stopped */
    AT_CONTEXT, /* where what it was reading begins */
    IN_LAYOUT,  /* where it stopped; tabs may be to blame. The message may name the line of the beginning */
    IN_BRACKETS /* as IN_LAYOUT, or the beginning if it stopped at the end of the file */
};

struct translation {
    const char *context; /* how libyaml's context begins, or NULL */
    const char *problem;
    enum where where;
    const char *message;
};

static const struct translation translations[] = {
    {NULL, "could not find expected ':'", AT_CONTEXT, "this looks like a key, but there is no ':' after it"},
    {NULL, "block sequence entries are not allowed in this context", IN_LAYOUT,
     "a list item ('- ') is not allowed here; begin it on a line of its own, below its key"},
    {NULL, "mapping keys are not allowed in this context", IN_LAYOUT,
     "a key is not allowed here; begin it on a line of its own"},
    {NULL, "mapping values are not allowed in this context", IN_LAYOUT,
     "a ':' is not allowed here; check the indentation, or put text that contains ': ' in quotes"},
    {"while scanning a quoted scalar", "found unexpected end of stream", AT_CONTEXT, "this quote is never closed"},
    {"while scanning a quoted scalar", "found unexpected document indicator", AT_CONTEXT, "this quote is never closed"},
    {NULL, "found unknown escape character", AT_PROBLEM,
     "this is no escape that YAML knows; double the backslash, or use single quotes"},
    {NULL, "did not find expected hexdecimal number", AT_PROBLEM,
     "\\x, \\u and \\U are followed by 2, 4 and 8 hexadecimal digits"},
    {NULL, "found invalid Unicode character escape code", AT_PROBLEM, "this escape is no Unicode character"},
    {NULL, "found a tab character", AT_PROBLEM, TABS},
    {"while scanning a block scalar", "found an indentation indicator equal to 0", AT_PROBLEM,
     "the indentation after '|' or '>' is a digit from 1 to 9"},
    {"while scanning a block scalar", "did not find expected comment or line break", AT_PROBLEM,
     "after '|' or '>' the text begins on the next line; put it in quotes if the sign is part of it"},
    {"while scanning an alias", "", AT_CONTEXT, "text that begins with '*' must be in quotes"},
    {"while scanning an anchor", "", AT_CONTEXT, "text that begins with '&' must be in quotes"},
    {"while scanning a tag", "", AT_CONTEXT, "text that begins with '!' must be in quotes"},
    {"while parsing a tag", "", AT_CONTEXT, "text that begins with '!' must be in quotes"},
    {NULL, "found undefined tag handle", AT_PROBLEM, "text that begins with '!' must be in quotes"},
    {"while scanning a directive", "", AT_CONTEXT,
     "a line that begins with '%' is a directive, and not one that is known"},
    {NULL, "found incompatible YAML document", AT_PROBLEM, "this is written for a version of YAML that is not known"},
    {NULL, "did not find expected <document start>", IN_LAYOUT,
     "this does not belong to what is before it; check the indentation"},
    {NULL, "did not find expected node content", AT_PROBLEM, "a value or a closing bracket is missing here"},
    {NULL, "did not find expected ',' or ']'", IN_BRACKETS,
     "expected ',' or ']': the list that begins on line %u is open"},
    {NULL, "did not find expected ',' or '}'", IN_BRACKETS,
     "expected ',' or '}': the map that begins on line %u is open"},
    {NULL, "did not find expected '-' indicator", IN_LAYOUT,
     "expected the next '- ' of the list that begins on line %u; check the indentation"},
    {NULL, "did not find expected key", IN_LAYOUT,
     "expected the next key of the map that begins on line %u; check the indentation and the quotes"},
};

static bool begins(const char *text, const char *with)
{
    return text && strncmp(text, with, strlen(with)) == 0;
}

static const struct translation *translation_find(const char *context, const char *problem)
{
    for (size_t i = 0; i < WEIR__COUNT(translations); i++) {
        const struct translation *t = &translations[i];
        if ((!t->context || begins(context, t->context)) && begins(problem, t->problem))
            return t;
    }
    return NULL;
}

/* The next byte of the scanner, where its problems are; 0 at the end. */
static unsigned char next_byte(const yaml_parser_t *parser)
{
    return parser->unread ? *parser->buffer.pointer : 0;
}

/* The bytes themselves are wrong. libyaml gives their offset. */
static void reader_problem(const yaml_parser_t *parser, uint32_t source, size_t skipped,
                           struct weir__diagnostics *report)
{
    struct weir__place place = weir__place_at(report, source, parser->problem_offset + skipped);

    if (!begins(parser->problem, "control characters"))
        weir__report_error(report, place, "this is not valid UTF-8; save the file as UTF-8");
    else if (parser->problem_value == 0)
        weir__report_error(report, place, "there is a zero byte in the text; is this a text file in UTF-8?");
    else
        weir__report_error(report, place,
                           "control character U+%04X is not allowed; in double quotes it can be written \"\\%s%0*x\"",
                           (unsigned)parser->problem_value, parser->problem_value > 0xff ? "u" : "x",
                           parser->problem_value > 0xff ? 4 : 2, (unsigned)parser->problem_value);
}

/* The file has ended in the middle of something. */
static bool is_at_end(const yaml_parser_t *parser)
{
    return parser->problem_mark.index == parser->mark.index && next_byte(parser) == 0;
}

static void bad_character(struct weir__diagnostics *report, struct weir__place place, unsigned char byte)
{
    if (byte == '\t')
        weir__report_error(report, place, TABS);
    else
        weir__report_error(report, place, "text that begins with '%c' must be in quotes", byte);
}

/* A tab in the blanks that the place's line begins with; *place becomes its place. */
static bool has_tab_indent(struct weir__diagnostics *report, struct weir__place *place)
{
    weir_text line;
    size_t i = 0;
    if (!weir__place_find(report, *place, &line))
        return false;
    while (i < line.len && line.data[i] == ' ')
        i++;
    if (i == line.len || line.data[i] != '\t' || i + 1 >= place->column)
        return false;
    place->column = (uint32_t)i + 1;
    return true;
}

/* True for a bracket within a text, as in { key: ${client_ip} }, which YAML reads as a map. */
static bool opens_in_text(struct weir__diagnostics *report, struct weir__place place)
{
    weir_text rest;
    return place.column > 1 && weir__place_byte(report, place, &rest) && rest.len > 0 &&
           (*rest.data == '{' || *rest.data == '[') && !strchr(" \t,[]{}\"'", rest.data[-1]);
}

static void report_parser_problem(const yaml_parser_t *parser, uint32_t source, size_t skipped,
                                  struct weir__diagnostics *report)
{
    if (parser->error == YAML_READER_ERROR) {
        reader_problem(parser, source, skipped, report);
        return;
    }

    struct weir__place place = place_of_mark(source, parser->problem_mark);
    const char *problem = parser->problem ? parser->problem : "this cannot be read";
    const struct translation *t = translation_find(parser->context, problem);
    struct weir__place begin = parser->context ? place_of_mark(source, parser->context_mark) : place;

    if (begins(problem, "found character that cannot start any token"))
        bad_character(report, place, next_byte(parser));
    else if (!t)
        weir__report_error(report, place, "%s", problem);
    else if (t->where == AT_CONTEXT)
        weir__report_error(report, begin, "%s", t->message);
    else if (t->where == AT_PROBLEM)
        weir__report_error(report, place, "%s", t->message);
    else if (t->where == IN_LAYOUT && has_tab_indent(report, &place))
        weir__report_error(report, place, TABS);
    else if (t->where == IN_BRACKETS && is_at_end(parser))
        weir__report_error(report, begin, "this is never closed");
    else if (t->where == IN_BRACKETS && opens_in_text(report, place))
        weir__report_error(report, place,
                           "inside of { } and [ ], text that contains '{' or '[' must be in quotes: '${name}'");
    else
        weir__report_error(report, place, t->message, begin.line);
}

/* ---- The tree ---- */

/* A list or map that is still open. */
struct open {
    struct weir__node *node;
    struct weir__node **end; /* where its next member is linked */
    struct weir__node *name; /* of a map: the key whose value comes next; NULL: a key comes next */
};

struct yaml_reading {
    yaml_parser_t parser;
    uint32_t source;
    struct weir__arena *arena;
    struct weir__diagnostics *report;
    struct open stack[WEIR__YAML_DEPTH];
    int depth;
    struct weir__node *root;
    bool document; /* has begun */
    bool stopped;  /* at the end, or at something that cannot be read past */
};

static void stop_without_memory(struct yaml_reading *r)
{
    r->arena->failed = true;
    r->stopped = true;
}

/* ---- Duplicates ---- */

static void keep(void *key)
{
    (void)key;
}

void weir__tree_free(void *root)
{
    tdestroy(root, keep);
}

static int compare_names(const void *a, const void *b)
{
    return weir__text_order(((const struct weir__node *)a)->text, ((const struct weir__node *)b)->text);
}

/* Reports duplicate keys. A tree finds them in n log n for any keys. */
static void check_doubles(struct yaml_reading *r, const struct weir__node *map)
{
    void *names = NULL;
    char shown[WEIR__SHOWN];
    for (const struct weir__node *member = map->first; member && !r->stopped; member = member->next) {
        const struct weir__node *name = member->name, *const *first = tsearch(name, &names, compare_names);
        if (!first)
            stop_without_memory(r);
        else if (*first != name)
            weir__node_error(name, "\"%s\" is here a second time: it is already on line %u",
                             r->report->secret ? "..." : weir__printable(name->text, shown, sizeof shown),
                             (*first)->place.line);
    }
    weir__tree_free(names);
}

/* ---- Nodes ---- */

static struct weir__node *node_new(struct yaml_reading *r, enum weir__node_kind kind, const yaml_event_t *event,
                                   weir_text text)
{
    struct weir__node *node = weir__arena_take(r->arena, sizeof *node + text.len + 1);
    if (!node) {
        stop_without_memory(r);
        return NULL;
    }
    node->kind = kind;
    node->report = r->report;
    node->place = place_of_mark(r->source, event->start_mark);
    node->end = place_of_mark(r->source, event->end_mark);
    if (kind == WEIR__SCALAR) {
        char *copy = (char *)(node + 1);
        if (text.len)
            memcpy(copy, text.data, text.len);
        node->text = (weir_text){copy, text.len};
    }
    return node;
}

/* Puts a node where it belongs: at the root, into the open list, or as a key or a value into the open map. */
static void node_place(struct yaml_reading *r, struct weir__node *node)
{
    if (r->depth == 0) {
        r->root = node;
        return;
    }
    struct open *open = &r->stack[r->depth - 1];
    if (open->node->kind == WEIR__MAP) {
        if (!open->name) {
            open->name = node;
            return;
        }
        node->name = open->name;
        open->name = NULL;
    }
    *open->end = node;
    open->end = &node->next;
    open->node->count++;
}

static bool key_is_next(const struct yaml_reading *r)
{
    const struct open *open = r->depth ? &r->stack[r->depth - 1] : NULL;
    return open && open->node->kind == WEIR__MAP && !open->name;
}

/* Reports anchors and tags, which are not supported; reading goes on without them. */
static void check_extras(struct yaml_reading *r, const yaml_event_t *event, const yaml_char_t *anchor, bool tagged)
{
    struct weir__place place = place_of_mark(r->source, event->start_mark);
    if (anchor)
        weir__report_error(r->report, place,
                           "anchors (&name) are not supported; write the value out where it is needed, or put text "
                           "that begins with '&' in quotes");
    if (tagged)
        weir__report_error(r->report, place,
                           "tags (!name) are not supported; leave it out, or put text that begins with '!' in quotes");
}

static void check_key(const struct weir__node *node)
{
    if (node->quoted)
        return;
    if (weir__text_is(node->text, "<<"))
        weir__node_error(node, "merges (<<) are not supported; write the fields out");
    else if (node->text.len == 0)
        weir__node_error(node, "there is no key before the ':'");
}

static void read_scalar(struct yaml_reading *r, const yaml_event_t *event)
{
    weir_text text = {(const char *)event->data.scalar.value, event->data.scalar.length};
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;

    /* For a lone '!' libyaml gives no tag, but then the text is not implicitly plain either. */
    check_extras(r, event, event->data.scalar.anchor,
                 event->data.scalar.tag || (plain && !event->data.scalar.plain_implicit));
    struct weir__node *node = node_new(r, WEIR__SCALAR, event, text);
    if (!node)
        return;
    node->quoted = !plain;
    if (memchr(node->text.data, 0, text.len + 1) != node->text.data + text.len)
        weir__node_error(node, "a zero byte (\\0) is not allowed in a text");
    if (key_is_next(r))
        check_key(node);
    node_place(r, node);
}

/* Reads an alias as an empty text, so that the text after it is checked, too. */
static void read_alias(struct yaml_reading *r, const yaml_event_t *event)
{
    weir__report_error(r->report, place_of_mark(r->source, event->start_mark),
                       "aliases (*name) are not supported; write the value out, or put text that begins with '*' in "
                       "quotes");
    struct weir__node *node = node_new(r, WEIR__SCALAR, event, (weir_text){NULL, 0});
    if (node)
        node_place(r, node);
}

static void read_start(struct yaml_reading *r, const yaml_event_t *event, enum weir__node_kind kind, bool flow)
{
    struct weir__place place = place_of_mark(r->source, event->start_mark);
    if (key_is_next(r)) {
        weir__report_error(r->report, place, "a key must be a text, not a %s", kind == WEIR__MAP ? "map" : "list");
        r->stopped = true;
        return;
    }
    if (r->depth == WEIR__YAML_DEPTH) {
        weir__report_error(r->report, place, "lists and maps are nested deeper than %d levels", WEIR__YAML_DEPTH);
        r->stopped = true;
        return;
    }
    struct weir__node *node = node_new(r, kind, event, (weir_text){NULL, 0});
    if (!node)
        return;
    node->flow = flow;
    node_place(r, node);
    r->stack[r->depth++] = (struct open){node, &node->first, NULL};
}

static void read_end(struct yaml_reading *r, const yaml_event_t *event)
{
    r->stack[--r->depth].node->end = place_of_mark(r->source, event->end_mark);
}

static void read_event(struct yaml_reading *r, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (r->document) {
            weir__report_error(r->report, place_of_mark(r->source, event->start_mark),
                               "a second document begins here; a file is one document");
            r->stopped = true;
        }
        r->document = true;
        break;
    case YAML_SCALAR_EVENT:
        read_scalar(r, event);
        break;
    case YAML_ALIAS_EVENT:
        read_alias(r, event);
        break;
    case YAML_SEQUENCE_START_EVENT:
        check_extras(r, event, event->data.sequence_start.anchor, event->data.sequence_start.tag);
        read_start(r, event, WEIR__LIST, event->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE);
        break;
    case YAML_MAPPING_START_EVENT:
        check_extras(r, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
        read_start(r, event, WEIR__MAP, event->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE);
        break;
    case YAML_MAPPING_END_EVENT:
        check_doubles(r, r->stack[r->depth - 1].node);
        read_end(r, event);
        break;
    case YAML_SEQUENCE_END_EVENT:
        read_end(r, event);
        break;
    case YAML_STREAM_END_EVENT:
        r->stopped = true;
        break;
    default: /* the beginning of the stream, the end of the document */
        break;
    }
}

/* ---- Reading ---- */

/*
 * Directives for tags are of no use here, and libyaml compares each with all before it: a file full of them would keep
 * it busy for hours. Found here, before it sees them. Reports the first.
 */
static bool has_tag_directive(struct weir__diagnostics *report, uint32_t source, weir_text text)
{
    static const char breaks[] = "\n\r\x85\xa8\xa9\xbf"; /* last bytes of line breaks and of the byte order mark */
    const char *at = text.data, *end = text.data + text.len;

    for (; (at = memmem(at, (size_t)(end - at), "%TAG", 4)) != NULL; at++) {
        if (at == text.data || memchr(breaks, at[-1], sizeof breaks - 1)) {
            weir__report_error(report, weir__place_at(report, source, (size_t)(at - text.data)),
                               "tags are not supported; leave the directive out");
            return true;
        }
    }
    return false;
}

static void read_events(struct yaml_reading *r, size_t skipped)
{
    while (!r->stopped) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r->parser, &event)) {
            /* libyaml does not set an error if it has no memory for a tag. */
            if (r->parser.error == YAML_MEMORY_ERROR || r->parser.error == YAML_NO_ERROR)
                r->arena->failed = true;
            else
                report_parser_problem(&r->parser, r->source, skipped, r->report);
            break;
        }
        read_event(r, &event);
        yaml_event_delete(&event);
    }
}

const struct weir__node *weir__yaml_read(uint32_t source, struct weir__arena *arena, struct weir__diagnostics *report)
{
    struct yaml_reading r = {.source = source, .arena = arena, .report = report};
    struct weir__place file = {source, 0, 0};
    weir_text text = report->sources[source].text;
    int errors_before = report->errors;

    if (text.len > WEIR__YAML_BYTES) {
        weir__report_error(report, file, "the file is larger than %zu MiB", WEIR__YAML_BYTES >> 20);
        return NULL;
    }
    if (text.len == 0)
        text.data = "";
    if (has_tag_directive(report, source, text))
        return NULL;
    /* libyaml would count a byte order mark as a column, and find the second line indented differently. */
    size_t skipped = weir__has_byte_order_mark(text) ? 3 : 0;
    if (yaml_parser_initialize(&r.parser)) {
        yaml_parser_set_input_string(&r.parser, (const unsigned char *)text.data + skipped, text.len - skipped);
        yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
        read_events(&r, skipped);
        yaml_parser_delete(&r.parser);
    } else {
        arena->failed = true;
    }
    if (arena->failed)
        weir__report_error(report, file, "there is not enough memory to read the file");
    else if (report->errors == errors_before &&
             (!r.root || (r.root->kind == WEIR__SCALAR && !r.root->quoted && r.root->text.len == 0)))
        weir__report_error(report, file, "the file is empty");
    return report->errors == errors_before ? r.root : NULL;
}

const struct weir__node *weir__node_get(const struct weir__node *map, const char *name)
{
    if (!map || map->kind != WEIR__MAP)
        return NULL;
    const struct weir__node *member = map->first;
    while (member && !weir__text_is(member->name->text, name))
        member = member->next;
    return member;
}

/* Digits, optionally with a sign and a fraction. */
static bool looks_like_number(weir_text text)
{
    const char *at = text.data + (text.len > 1 && text.data[0] == '-');
    at += strspn(at, WEIR__DECIMALS);
    at += *at == '.' && at > text.data;
    at += strspn(at, WEIR__DECIMALS);
    return text.len > 0 && at == text.data + text.len;
}

bool weir__node_is_null(const struct weir__node *node)
{
    return node->kind == WEIR__SCALAR && !node->quoted &&
           (node->text.len == 0 || weir__text_is(node->text, "~") || weir__text_is(node->text, "null"));
}

const char *weir__node_is(const struct weir__node *node)
{
    if (node->kind != WEIR__SCALAR)
        return node->kind == WEIR__MAP ? "a map" : "a list";
    if (node->quoted)
        return "text";
    if (node->text.len == 0)
        return "nothing";
    if (weir__node_is_null(node))
        return "null";
    if (weir__text_is(node->text, "true") || weir__text_is(node->text, "false"))
        return "true or false";
    return looks_like_number(node->text) ? "a number" : "text";
}

/* ---- JSON ---- */

/* True for a number of JSON: no plus, no leading zeros, digits on both sides of the point. */
static bool is_number(const char *at)
{
    at += *at == '-';
    size_t n = strspn(at, WEIR__DECIMALS);
    if (n == 0 || (n > 1 && *at == '0'))
        return false;
    at += n;
    if (*at == '.') {
        n = strspn(++at, WEIR__DECIMALS);
        at += n;
    }
    if (n > 0 && (*at == 'e' || *at == 'E')) {
        at += at[1] == '+' || at[1] == '-' ? 2 : 1;
        n = strspn(at, WEIR__DECIMALS);
        at += n;
    }
    return n > 0 && !*at;
}

/* What YAML 1.1 takes a plain scalar for: the first word of its row. */
static void put_scalar(struct weir__buffer *w, const struct weir__node *node)
{
    static const char *const scalars[][13] = {
        {"null", "", "~", "null", "Null", "NULL"},
        {"true", "true", "True", "TRUE", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON"},
        {"false", "false", "False", "FALSE", "n", "N", "no", "No", "NO", "off", "Off", "OFF"}};
    if (!node->quoted && is_number(node->text.data)) {
        weir__buffer_add(w, node->text.data, node->text.len);
        return;
    }
    for (size_t row = 0; row < WEIR__COUNT(scalars) && !node->quoted; row++) {
        for (size_t i = 1; scalars[row][i]; i++) {
            if (weir__text_is(node->text, scalars[row][i])) {
                weir__buffer_add(w, scalars[row][0], strlen(scalars[row][0]));
                return;
            }
        }
    }
    weir__json_add_string(w, node->text);
}

/* The reader bounds the depth of a tree. */
static void put_node(struct weir__buffer *w, const struct weir__node *node)
{
    bool map = node->kind == WEIR__MAP;
    if (node->kind == WEIR__SCALAR) {
        put_scalar(w, node);
        return;
    }
    weir__buffer_add(w, map ? "{" : "[", 1);
    for (const struct weir__node *member = node->first; member; member = member->next) {
        if (map) {
            weir__json_add_string(w, member->name->text);
            weir__buffer_add(w, ":", 1);
        }
        put_node(w, member);
        if (member->next)
            weir__buffer_add(w, ",", 1);
    }
    weir__buffer_add(w, map ? "}" : "]", 1);
}

weir_text weir__node_json(struct weir__arena *arena, const struct weir__node *node)
{
    struct weir__buffer w = {0};
    put_node(&w, node);
    arena->failed |= w.failed;
    weir_text json = w.failed ? (weir_text){NULL, 0} : weir__arena_copy(arena, (weir_text){w.data, w.len});
    weir__buffer_free(&w);
    return json;
}
