/* Arrays of bulk strings, and what a command's words mean. */
#include "services/resp/inline.h"

#include <string.h>

#define LENGTH_MAX 32 /* bytes of a line that says how many or how long */

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool weir__resp_integer(weir_text text, int64_t *value)
{
    const char *at = text.data, *end = text.data + text.len;
    bool negative = at < end && *at == '-';
    uint64_t sum = 0, most = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    at += negative;
    if (at == end || end - at > 19 || (*at == '0' && (end - at > 1 || negative)))
        return false;
    for (; at < end; at++) {
        if (!is_digit(*at))
            return false;
        sum = sum * 10 + (uint64_t)(*at - '0'); /* 19 digits: below 2^64 */
    }
    if (sum > most)
        return false;
    *value = negative ? (int64_t)-sum : (int64_t)sum;
    return true;
}

bool weir__resp_is(weir_text text, const char *word)
{
    size_t i = 0;
    for (; i < text.len && word[i]; i++) {
        char c = text.data[i];
        if ((c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c) != word[i])
            return false;
    }
    return i == text.len && !word[i];
}

enum weir__resp_result weir__resp_invalid(struct weir__resp_command *command, const char *why)
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
 * The number on the line whose first byte is at *at, which is skipped: *at is behind the line's end then.
 * WEIR__RESP_INVALID without an error text: the caller knows what the number is.
 */
static enum weir__resp_result read_length(const char *data, size_t len, size_t *at, int64_t *value,
                                          struct weir__resp_command *command)
{
    size_t from = *at + 1, i = from;
    /* Nearly always one digit or two, of which the first is not 0. */
    if (len - from >= 4 && is_digit(data[from])) {
        if (data[from + 1] == '\r' && data[from + 2] == '\n') {
            *value = data[from] - '0';
            *at = from + 3;
            return WEIR__RESP_COMMAND;
        }
        if (data[from] != '0' && is_digit(data[from + 1]) && data[from + 2] == '\r' && data[from + 3] == '\n') {
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
    /* What is no letter would spoil the line. */
    why[sizeof why - 3] = got > ' ' && got < 0x7f ? got : '?';
    return weir__resp_invalid(command, why);
}

/* The bulk string at *at. */
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
        return weir__resp_invalid(command, "Protocol error: invalid bulk length");
    size_t end = *at + (size_t)length;
    if (end + 2 > WEIR__RESP_COMMAND_MAX)
        return weir__resp_invalid(command, "Protocol error: too big command");
    if (len < end + 2)
        return more(command, end + 2);
    if (data[end] != '\r' || data[end + 1] != '\n')
        return weir__resp_invalid(command, "Protocol error: expected a line's end after a bulk string");
    *to = (weir_text){data + *at, (size_t)length};
    *at = end + 2;
    return WEIR__RESP_COMMAND;
}

static enum weir__resp_result read_array(const char *data, size_t len, bool unauthenticated,
                                         struct weir__resp_command *command)
{
    size_t at = 0, bulk_max = unauthenticated ? WEIR__RESP_UNAUTHENTICATED_BULK : WEIR__RESP_COMMAND_MAX;
    int64_t count = 0, count_max = unauthenticated ? WEIR__RESP_UNAUTHENTICATED_ARGS : WEIR__RESP_ARGS;
    enum weir__resp_result result = read_length(data, len, &at, &count, command);
    if (result == WEIR__RESP_MORE)
        return result;
    if (result == WEIR__RESP_INVALID || count > count_max)
        return weir__resp_invalid(command, "Protocol error: invalid multibulk length");
    command->count = count > 0 ? (size_t)count : 0; /* an array that is none, or empty, is no command */
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
                        : weir__resp_inline(data, len, unauthenticated, command);
}
