/*
 * A line of words, separated by blanks. In "double quotes" \n, \r, \t, \b, \a and \x41 are what they are in C and a
 * backslash before anything else is left out; in 'single quotes' only \' is special. A closing quote ends its word.
 */
#include "services/resp/inline.h"

#include <string.h>

/* The words are written over the line they were read from: `to` never overtakes `at`. */
struct line {
    const char *at, *end;
    char *to;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' || c == 0;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static char escaped(char c)
{
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'b':
        return '\b';
    case 'a':
        return '\a';
    default:
        return c;
    }
}

/* What a backslash in double quotes stands for. */
static void read_escape(struct line *line)
{
    const char *at = line->at; /* the backslash */
    if (line->end - at >= 4 && at[1] == 'x' && hex(at[2]) >= 0 && hex(at[3]) >= 0) {
        *line->to++ = (char)(hex(at[2]) << 4 | hex(at[3]));
        line->at += 4;
    } else if (line->end - at >= 2) {
        *line->to++ = escaped(at[1]);
        line->at += 2;
    } else {
        *line->to++ = *line->at++;
    }
}

/* From behind an opening quote to behind the closing one; false if there is none, or if the word goes on after it. */
static bool read_quoted(struct line *line, char quote)
{
    while (line->at < line->end && *line->at != quote) {
        bool may_escape = *line->at == '\\' && line->end - line->at >= 2;
        if (may_escape && quote == '"') {
            read_escape(line);
        } else {
            line->at += may_escape && line->at[1] == '\'';
            *line->to++ = *line->at++;
        }
    }
    if (line->at == line->end)
        return false;
    line->at++;
    return line->at == line->end || is_blank(*line->at);
}

static bool read_word(struct line *line, weir_text *word)
{
    char *start = line->to;
    bool quoted = false;
    while (line->at < line->end && !is_blank(*line->at) && !quoted) {
        char c = *line->at++;
        quoted = c == '"' || c == '\'';
        if (!quoted)
            *line->to++ = c;
        else if (!read_quoted(line, c))
            return false;
    }
    *word = (weir_text){start, (size_t)(line->to - start)};
    return true;
}

enum weir__resp_result weir__resp_inline(char *data, size_t len, bool unauthenticated,
                                         struct weir__resp_command *command)
{
    size_t most = unauthenticated ? WEIR__RESP_UNAUTHENTICATED_BULK : WEIR__RESP_INLINE_MAX;
    size_t args_max = unauthenticated ? WEIR__RESP_UNAUTHENTICATED_ARGS : WEIR__RESP_ARGS;
    const char *end = memchr(data, '\n', len < most ? len : most);
    if (!end && len >= most)
        return weir__resp_invalid(command, "Protocol error: too big inline request");
    command->need = len + 1;
    if (!end)
        return WEIR__RESP_MORE;

    struct line line = {data, end, data};
    for (;;) {
        while (line.at < line.end && is_blank(*line.at))
            line.at++;
        if (line.at == line.end)
            break;
        if (command->count == args_max)
            return weir__resp_invalid(command, "Protocol error: too many words in an inline request");
        if (!read_word(&line, &command->args[command->count++]))
            return weir__resp_invalid(command, "Protocol error: unbalanced quotes in request");
    }
    command->length = (size_t)(end - data) + 1;
    return WEIR__RESP_COMMAND;
}
