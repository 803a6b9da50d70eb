/* Requests of the Redis protocol: complete, partial, and malformed. */
#include "../../test.h"
#include "services/resp/resp.h"

static struct weir__resp_command command;
static char copy[2 * WEIR__RESP_COMMAND_MAX];

static enum weir__resp_result parse_as(const char *text, size_t len, bool unauthenticated)
{
    memcpy(copy, text, len);
    return weir__resp_parse(copy, len, unauthenticated, &command);
}

static enum weir__resp_result parse(const char *text)
{
    return parse_as(text, strlen(text), false);
}

static bool arg_is(size_t i, const char *text)
{
    return i < command.count && command.args[i].len == strlen(text) &&
           memcmp(command.args[i].data, text, command.args[i].len) == 0;
}

#define BROKEN(text, why)                                                                                              \
    do {                                                                                                               \
        CHECK_EQ(parse(text), WEIR__RESP_INVALID);                                                                     \
        CHECK(strcmp(command.error, (why)) == 0);                                                                      \
        if (strcmp(command.error, (why)) != 0)                                                                         \
            printf("  %s\n", command.error);                                                                           \
    } while (0)

TEST(arrays)
{
    CHECK_EQ(parse("*2\r\n$4\r\nECHO\r\n$12\r\nhello\r\nworld\r\n*1\r\n"), WEIR__RESP_COMMAND);
    CHECK_EQ(command.count, 2);
    CHECK(arg_is(0, "ECHO") && arg_is(1, "hello\r\nworld"));
    CHECK_EQ(command.length, 33);
    CHECK_EQ(parse("*2\r\n$0\r\n\r\n$1\r\n\n\r\n"), WEIR__RESP_COMMAND);
    CHECK(arg_is(0, "") && arg_is(1, "\n"));
    CHECK_EQ(parse("*0\r\nPING\r\n"), WEIR__RESP_COMMAND);
    CHECK(command.count == 0 && command.length == 4);
    CHECK_EQ(parse("*-1\r\nPING\r\n"), WEIR__RESP_COMMAND);
    CHECK(command.count == 0 && command.length == 5);
}

TEST(every_prefix_needs_more)
{
    static const char ten[] = "*10\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n$1\r\ne\r\n"
                              "$1\r\nf\r\n$1\r\ng\r\n$1\r\nh\r\n$1\r\ni\r\n$1\r\nj\r\n";
    static const char *const texts[] = {"*3\r\n$11\r\nCL.THROTTLE\r\n$4\r\nkey1\r\n$0\r\n\r\n", "ECHO \"a b\"  'c'\r\n",
                                        ten};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        size_t total = strlen(texts[i]);
        for (size_t len = 0; len < total; len++) {
            CHECK_EQ(parse_as(texts[i], len, false), WEIR__RESP_MORE);
            CHECK(command.need > len && command.need <= total);
        }
        CHECK_EQ(parse_as(texts[i], total, false), WEIR__RESP_COMMAND);
        CHECK_EQ(command.length, total);
    }
}

TEST(long_bulk_reports_the_bytes_it_needs)
{
    CHECK_EQ(parse("*2\r\n$4\r\nECHO\r\n$1000000\r\nabc"), WEIR__RESP_MORE);
    CHECK_EQ(command.need, 14 + 10 + 1000000 + 2);
}

TEST(wrong_lengths_are_refused)
{
    BROKEN("*1025\r\n", "Protocol error: invalid multibulk length");
    BROKEN("*99999999999999999999\r\n", "Protocol error: invalid multibulk length");
    BROKEN("*abc\r\n", "Protocol error: invalid multibulk length");
    BROKEN("*1x\r\n", "Protocol error: invalid multibulk length");
    BROKEN("*+1\r\n", "Protocol error: invalid multibulk length");
    BROKEN("*\r\n", "Protocol error: invalid multibulk length");
    BROKEN("*01\r\n", "Protocol error: invalid multibulk length");
    BROKEN("*1\rX", "Protocol error: invalid multibulk length");
    BROKEN("*11111111111111111111111111111111111111111", "Protocol error: invalid multibulk length");
    BROKEN("*1\r\n$-1\r\n", "Protocol error: invalid bulk length");
    BROKEN("*1\r\n$-9223372036854775808\r\n", "Protocol error: invalid bulk length");
    BROKEN("*1\r\n$99999999999\r\n", "Protocol error: invalid bulk length");
    BROKEN("*1\r\n$9223372036854775807\r\n", "Protocol error: invalid bulk length");
    BROKEN("*1\r\n$18446744073709551615\r\n", "Protocol error: invalid bulk length");
    BROKEN("*1\r\n$\r\n", "Protocol error: invalid bulk length");
    BROKEN("*1\r\n$1048577\r\n", "Protocol error: invalid bulk length");
    BROKEN("*1\r\n$1048576\r\n", "Protocol error: too big command");
    BROKEN("*2\r\n$4\r\nECHO\r\n$1048570\r\n", "Protocol error: too big command");
}

TEST(non_bulk_elements_are_refused)
{
    BROKEN("*1\r\n+PING\r\n", "Protocol error: expected '$', got '+'");
    BROKEN("*1\r\n\n", "Protocol error: expected '$', got '?'");
    BROKEN("*1\r\n$4\r\nPINGxx", "Protocol error: expected a line's end after a bulk string");
    BROKEN("*1\r\n$4\r\nPING\n\n", "Protocol error: expected a line's end after a bulk string");
    BROKEN("*1\r\n$3\r\nPING\r\n", "Protocol error: expected a line's end after a bulk string");
}

TEST(inline_commands)
{
    CHECK_EQ(parse("PING\r\nPING\r\n"), WEIR__RESP_COMMAND);
    CHECK(command.count == 1 && arg_is(0, "PING") && command.length == 6);
    CHECK_EQ(parse("  SET\tkey  value \n"), WEIR__RESP_COMMAND);
    CHECK(command.count == 3 && arg_is(0, "SET") && arg_is(1, "key") && arg_is(2, "value"));
    CHECK_EQ(parse("\r\n"), WEIR__RESP_COMMAND);
    CHECK(command.count == 0 && command.length == 2);
    CHECK_EQ(parse("\n"), WEIR__RESP_COMMAND);
    CHECK(command.count == 0 && command.length == 1);
    CHECK_EQ(parse("$99999999999\r\n"), WEIR__RESP_COMMAND);
    CHECK(arg_is(0, "$99999999999"));
}

TEST(quotes)
{
    CHECK_EQ(parse("ECHO \"a b\" 'c d' \"\" ''\r\n"), WEIR__RESP_COMMAND);
    CHECK_EQ(command.count, 5);
    CHECK(arg_is(1, "a b") && arg_is(2, "c d") && arg_is(3, "") && arg_is(4, ""));
    CHECK_EQ(parse("ECHO \"\\x41\\n\\r\\t\\b\\a\\\\\\\"\\q\\xZZ\" 'it\\'s\\n'\r\n"), WEIR__RESP_COMMAND);
    CHECK(arg_is(1, "A\n\r\t\b\a\\\"qxZZ") && arg_is(2, "it's\\n"));
    CHECK_EQ(parse("ECHO a\"b c\"\r\n"), WEIR__RESP_COMMAND);
    CHECK(command.count == 2 && arg_is(1, "ab c"));
    BROKEN("PING \"a\r\n", "Protocol error: unbalanced quotes in request");
    BROKEN("PING 'a\r\n", "Protocol error: unbalanced quotes in request");
    BROKEN("PING \"a\"b\r\n", "Protocol error: unbalanced quotes in request");
    BROKEN("PING 'a'b\r\n", "Protocol error: unbalanced quotes in request");
    BROKEN("PING \"\\\n", "Protocol error: unbalanced quotes in request");
    BROKEN("PING '\\'\n", "Protocol error: unbalanced quotes in request");
}

TEST(inline_bounds)
{
    static char line[WEIR__RESP_INLINE_MAX + 2];
    memset(line, 'a', sizeof line);
    CHECK_EQ(parse_as(line, WEIR__RESP_INLINE_MAX - 1, false), WEIR__RESP_MORE);
    CHECK_EQ(parse_as(line, WEIR__RESP_INLINE_MAX, false), WEIR__RESP_INVALID);
    line[WEIR__RESP_INLINE_MAX - 1] = '\n';
    CHECK_EQ(parse_as(line, WEIR__RESP_INLINE_MAX, false), WEIR__RESP_COMMAND);
    CHECK_EQ(command.args[0].len, WEIR__RESP_INLINE_MAX - 1);
    for (size_t i = 0; i < WEIR__RESP_INLINE_MAX; i += 2)
        line[i] = ' ';
    CHECK_EQ(parse_as(line, WEIR__RESP_INLINE_MAX, false), WEIR__RESP_INVALID); /* too many words */
    line[2 * WEIR__RESP_ARGS] = '\n';
    CHECK_EQ(parse_as(line, 2 * WEIR__RESP_ARGS + 1, false), WEIR__RESP_COMMAND);
    CHECK_EQ(command.count, WEIR__RESP_ARGS);
}

TEST(unauthenticated_clients_have_small_limits)
{
    static const char eleven[] = "*11\r\n", big[] = "*1\r\n$16385\r\n", fits[] = "*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n";
    CHECK_EQ(parse_as(eleven, strlen(eleven), true), WEIR__RESP_INVALID);
    CHECK_EQ(parse_as(big, strlen(big), true), WEIR__RESP_INVALID);
    CHECK_EQ(parse_as(fits, strlen(fits), true), WEIR__RESP_COMMAND);
    CHECK_EQ(parse_as("a b c d e f g h i j\n", 20, true), WEIR__RESP_COMMAND);
    CHECK_EQ(parse_as("a b c d e f g h i j k\n", 22, true), WEIR__RESP_INVALID);
}

TEST(integers)
{
    static const struct {
        const char *text;
        int64_t value;
        bool good;
    } cases[] = {{"0", 0, true},
                 {"-1", -1, true},
                 {"42", 42, true},
                 {"9223372036854775807", INT64_MAX, true},
                 {"-9223372036854775808", INT64_MIN, true},
                 {"9223372036854775808", 0, false},
                 {"-9223372036854775809", 0, false},
                 {"99999999999999999999", 0, false},
                 {"", 0, false},
                 {"-", 0, false},
                 {"-0", 0, false},
                 {"+1", 0, false},
                 {"01", 0, false},
                 {" 1", 0, false},
                 {"1 ", 0, false},
                 {"1.0", 0, false},
                 {"0x1", 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t value = 77;
        CHECK_EQ(weir__resp_integer((weir_text){cases[i].text, strlen(cases[i].text)}, &value), cases[i].good);
        CHECK_EQ(value, cases[i].good ? cases[i].value : 77);
    }
}

TEST(command_names_ignore_case)
{
    CHECK(weir__resp_is((weir_text){"Cl.Throttle", 11}, "cl.throttle"));
    CHECK(!weir__resp_is((weir_text){"Cl.Throttle", 10}, "cl.throttle"));
    CHECK(!weir__resp_is((weir_text){"ping\0", 5}, "ping"));
    CHECK(!weir__resp_is((weir_text){"", 0}, "ping"));
    CHECK(weir__resp_is((weir_text){NULL, 0}, ""));
}

/* Random commands in a pipeline are parsed unchanged. */
TEST(random_pipelines)
{
    uint64_t random = 7;
    for (int64_t round = 0; round < test_scaled(2000, 100); round++) {
        static char text[100000], expect[20][20][40];
        size_t used = 0, counts[20], lens[20][20], commands = 1 + test_random(&random) % 20;
        for (size_t c = 0; c < commands; c++) {
            counts[c] = 1 + test_random(&random) % 20;
            used += (size_t)snprintf(text + used, 40, "*%zu\r\n", counts[c]);
            for (size_t a = 0; a < counts[c]; a++) {
                lens[c][a] = test_random(&random) % 40;
                for (size_t i = 0; i < lens[c][a]; i++)
                    expect[c][a][i] = (char)test_random(&random);
                used += (size_t)snprintf(text + used, 40, "$%zu\r\n", lens[c][a]);
                memcpy(text + used, expect[c][a], lens[c][a]);
                used += lens[c][a];
                memcpy(text + used, "\r\n", 2);
                used += 2;
            }
        }
        size_t at = 0;
        for (size_t c = 0; c < commands; c++) {
            CHECK_EQ(weir__resp_parse(text + at, used - at, false, &command), WEIR__RESP_COMMAND);
            CHECK_EQ(command.count, counts[c]);
            for (size_t a = 0; a < command.count; a++)
                CHECK(command.args[a].len == lens[c][a] && memcmp(command.args[a].data, expect[c][a], lens[c][a]) == 0);
            at += command.length;
        }
        CHECK_EQ(at, used);
    }
}

TEST_MAIN
