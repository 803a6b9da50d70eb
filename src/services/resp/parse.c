/* Parses RESP requests: arrays of bulk strings, and inline commands. */
#include "services/resp/resp.h"

#include "base/number.h"

#include <string.h>

#define LENGTH_MAX 32 /* bytes of a length line */

bool weir__resp_integer(weir_text text, int64_t *value)
{
    return !weir__text_is(text, "-0") && weir__parse_int(text, value);
}

bool weir__resp_is(weir_text text, const char *word)
{
    size_t i = 0;
    for (; i < text.len && word[i]; i++)
        if (weir__lower(text.data[i]) != (unsigned char)word[i])
            return false;
    return i == text.len && !word[i];
}

static enum weir__resp_result invalid(struct weir__resp_command *command, const char *why)
{
    size_t len = strlen(why);
    memcpy(command->error, why, len < sizeof command->error ? len + 1 : sizeof command->error);
    command->error[sizeof command->error - 1] = 0;
    return WEIR__RESP_INVALID;
}

static enum weir__resp_result more(struct weir__resp_command *command, size_t need)
{
    command->need = need;
    return WEIR__RESP_MORE;
}

/*
 * Reads the number of a length line: *at is its type byte, then the byte after its end. WEIR__RESP_INVALID without an
 * error text: the caller sets it.
 */
static enum weir__resp_result read_length(const char *data, size_t len, size_t *at, int64_t *value,
                                          struct weir__resp_command *command)
{
    size_t from = *at + 1, i = from;
    /* Fast path: one digit, or two without a leading 0. */
    if (len - from >= 4 && weir__is_digit(data[from])) {
        if (data[from + 1] == '\r' && data[from + 2] == '\n') {
            *value = data[from] - '0';
            *at = from + 3;
            return WEIR__RESP_COMMAND;
        }
        if (data[from] != '0' && weir__is_digit(data[from + 1]) && data[from + 2] == '\r' && data[from + 3] == '\n') {
            *value = 10 * (data[from] - '0') + data[from + 1] - '0';
            *at = from + 4;
            return WEIR__RESP_COMMAND;
        }
    }
    while (i < len && data[i] != '\r' && i - from < LENGTH_MAX)
        i++;
    if (i - from == LENGTH_MAX)
        return WEIR__RESP_INVALID;
    if (len - i < 2)
        return more(command, i + 2);
    if (data[i + 1] != '\n' || !weir__resp_integer((weir_text){data + from, i - from}, value))
        return WEIR__RESP_INVALID;
    *at = i + 2;
    return WEIR__RESP_COMMAND;
}

static enum weir__resp_result expected_bulk(struct weir__resp_command *command, char got)
{
    char why[] = "Protocol error: expected '$', got ' '";
    /* a control character would break the error line */
    why[sizeof why - 3] = got > ' ' && got < 0x7f ? got : '?';
    return invalid(command, why);
}

/* Reads the bulk string at *at. */
static enum weir__resp_result read_bulk(const char *data, size_t len, size_t *at, size_t max, weir_text *to,
                                        struct weir__resp_command *command)
{
    int64_t length = 0;
    if (*at == len)
        return more(command, len + 1);
    if (data[*at] != '$')
        return expected_bulk(command, data[*at]);
    enum weir__resp_result result = read_length(data, len, at, &length, command);
    if (result == WEIR__RESP_MORE)
        return result;
    if (result == WEIR__RESP_INVALID || length < 0 || (uint64_t)length > max)
        return invalid(command, "Protocol error: invalid bulk length");
    size_t end = *at + (size_t)length;
    if (end + 2 > WEIR__RESP_COMMAND_MAX)
        return invalid(command, "Protocol error: too big command");
    if (len < end + 2)
        return more(command, end + 2);
    if (data[end] != '\r' || data[end + 1] != '\n')
        return invalid(command, "Protocol error: expected a line's end after a bulk string");
    *to = (weir_text){data + *at, (size_t)length};
    *at = end + 2;
    return WEIR__RESP_COMMAND;
}

/* ---- Inline commands ---- */

/*
 * Words separated by blanks. In "double quotes" \n, \r, \t, \b, \a and \x41 are as in C, and a backslash before another
 * character is dropped; in 'single quotes' only \' is special. A closing quote must end its word. The words are written
 * over the line in place: `to` never overtakes `at`.
 */
struct line {
    const char *at, *end;
    char *to;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' || c == 0;
}

static char escaped(char c)
{
    static const char letters[] = "nrtba", meanings[] = "\n\r\t\b\a";
    const char *found = c ? strchr(letters, c) : NULL;
    return found ? meanings[found - letters] : c;
}

/* Decodes an escape in double quotes. */
static void read_escape(struct line *line)
{
    const char *at = line->at; /* the backslash */
    if (line->end - at >= 4 && at[1] == 'x' && weir__hex_value(at[2]) >= 0 && weir__hex_value(at[3]) >= 0) {
        *line->to++ = (char)(weir__hex_value(at[2]) << 4 | weir__hex_value(at[3]));
        line->at += 4;
    } else if (line->end - at >= 2) {
        *line->to++ = escaped(at[1]);
        line->at += 2;
    } else {
        *line->to++ = *line->at++;
    }
}

/* Reads from behind an opening quote to behind the closing one; false: unbalanced, or the word goes on after it. */
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

static enum weir__resp_result parse_inline(char *data, size_t len, bool unauthenticated,
                                           struct weir__resp_command *command)
{
    size_t most = unauthenticated ? WEIR__RESP_UNAUTHENTICATED_BULK : WEIR__RESP_INLINE_MAX;
    size_t args_max = unauthenticated ? WEIR__RESP_UNAUTHENTICATED_ARGS : WEIR__RESP_ARGS;
    const char *end = memchr(data, '\n', len < most ? len : most);
    if (!end && len >= most)
        return invalid(command, "Protocol error: too big inline request");
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
            return invalid(command, "Protocol error: too many words in an inline request");
        if (!read_word(&line, &command->args[command->count++]))
            return invalid(command, "Protocol error: unbalanced quotes in request");
    }
    command->length = (size_t)(end - data) + 1;
    return WEIR__RESP_COMMAND;
}

/* ---- Commands ---- */

static enum weir__resp_result read_array(const char *data, size_t len, bool unauthenticated,
                                         struct weir__resp_command *command)
{
    size_t at = 0, bulk_max = unauthenticated ? WEIR__RESP_UNAUTHENTICATED_BULK : WEIR__RESP_COMMAND_MAX;
    int64_t count = 0, count_max = unauthenticated ? WEIR__RESP_UNAUTHENTICATED_ARGS : WEIR__RESP_ARGS;
    enum weir__resp_result result = read_length(data, len, &at, &count, command);
    if (result == WEIR__RESP_MORE)
        return result;
    if (result == WEIR__RESP_INVALID || count > count_max)
        return invalid(command, "Protocol error: invalid multibulk length");
    command->count = count > 0 ? (size_t)count : 0; /* a null or empty array is skipped */
    for (size_t i = 0; i < command->count; i++) {
        result = read_bulk(data, len, &at, bulk_max, &command->args[i], command);
        if (result != WEIR__RESP_COMMAND)
            return result;
    }
    command->length = at;
    return WEIR__RESP_COMMAND;
}

enum weir__resp_result weir__resp_parse(char *data, size_t len, bool unauthenticated,
                                        struct weir__resp_command *command)
{
    command->count = command->length = 0;
    if (!len)
        return more(command, 1);
    return *data == '*' ? read_array(data, len, unauthenticated, command)
                        : parse_inline(data, len, unauthenticated, command);
}
