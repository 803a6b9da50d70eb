/*
 * What libyaml says in its own words, in ours: what to do about it, and at the place where the mistake is rather than
 * where the parser noticed.
 */
#include "rules/yaml_problem.h"

#define TABS "YAML does not allow tabs for indentation; use spaces"

enum where {
    AT_PROBLEM, /* where the parser stopped */
    AT_CONTEXT, /* where what it was reading begins */
    IN_LAYOUT,  /* where it stopped; tabs may be to blame. The message may name the line of the beginning */
    IN_BRACKETS /* where it stopped, or the beginning if that is the end of the file. The same */
};

struct translation {
    const char *context; /* how libyaml's context begins, or NULL */
    const char *problem;
    enum where where;
    const char *message;
};

static const struct translation translations[] = {
    {NULL, "could not find expected ':'", AT_CONTEXT, "this looks like a key, but there is no ':' behind it"},
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
     "the indentation behind '|' or '>' is a digit from 1 to 9"},
    {"while scanning a block scalar", "did not find expected comment or line break", AT_PROBLEM,
     "behind '|' or '>' the text begins on the next line; put it in quotes if the sign is part of it"},
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
    for (size_t i = 0; i < sizeof translations / sizeof *translations; i++) {
        const struct translation *t = &translations[i];
        if ((!t->context || begins(context, t->context)) && begins(problem, t->problem))
            return t;
    }
    return NULL;
}

/* The first byte that the scanner has not taken; 0 at the end. It stands where the scanner's problems are. */
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

/* A bracket in the middle of a text, as in { key: ${client_ip} }: YAML takes it for a map of its own. */
static bool opens_in_text(struct weir__diagnostics *report, struct weir__place place)
{
    weir_text line;
    uint32_t column = 1;
    size_t i = 0;
    if (!weir__place_find(report, place, &line))
        return false;
    for (; i < line.len && line.data[i] != '\n' && column < place.column; i++)
        column += i + 1 < line.len && ((unsigned char)line.data[i + 1] & 0xc0) != 0x80;
    return i > 0 && i < line.len && column == place.column && (line.data[i] == '{' || line.data[i] == '[') &&
           !strchr(" \t,[]{}\"'", line.data[i - 1]);
}

void weir__yaml_problem(const yaml_parser_t *parser, uint32_t source, size_t skipped, struct weir__diagnostics *report)
{
    if (parser->error == YAML_READER_ERROR) {
        reader_problem(parser, source, skipped, report);
        return;
    }

    struct weir__place place = weir__yaml_place(source, parser->problem_mark);
    const char *problem = parser->problem ? parser->problem : "this cannot be read";
    const struct translation *t = translation_find(parser->context, problem);
    struct weir__place begin = parser->context ? weir__yaml_place(source, parser->context_mark) : place;

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
