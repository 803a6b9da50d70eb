/* Reads the command line of a subcommand, and numbers and times in it. */
#include "base/number.h"
#include "base/text.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND_NS INT64_C(1000000000)
#define LAST_TIME INT64_C(7258118400) /* the year 2200: later times do not fit the engine's arithmetic */
enum { OPTIONS_MAX = 40, WRONG = 2 };

void *weir__must(void *memory)
{
    if (memory)
        return memory;
    fputs("weir: out of memory\n", stderr);
    exit(1);
}

/* The room doubles, so that it is full whenever the count is a power of two. */
void *weir__grow(void *list, size_t count, size_t element_bytes)
{
    enum { FIRST = 16 };
    if (count > 0 && (count < FIRST || (count & (count - 1))))
        return list;
    return weir__must(realloc(list, (count ? 2 * count : FIRST) * element_bytes));
}

const char *weir__buffer_text(const struct weir__buffer *buffer)
{
    if (buffer->failed)
        weir__must(NULL);
    return buffer->len ? buffer->data : "";
}

int weir__flush(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    perror("weir: standard output");
    return 1;
}

struct argv_walk {
    char **argv;
    int argc, at;
};

static int no_option(const struct weir__args *args, weir_text given)
{
    const char *names[OPTIONS_MAX] = {"help"};
    size_t count = 1;
    for (size_t i = 0; i < args->option_count && count < OPTIONS_MAX; i++)
        names[count++] = args->options[i].name;
    const char *likely = weir__suggest(given, names, count);
    fprintf(stderr, "weir %s: no option '--%.*s'", args->command, (int)given.len, given.data);
    if (likely)
        fprintf(stderr, "; did you mean '--%s'?", likely);
    fprintf(stderr, "\n'weir %s --help' lists them\n", args->command);
    return WRONG;
}

static int print_usage(const struct weir__args *args)
{
    fputs(args->usage, stdout);
    return 0;
}

/* Sets an option to the value in the same word, or to the next word if `attached` is NULL. -1, or the exit code. */
static int set_option(const struct weir__args *args, const struct weir__option *option, const char *attached,
                      struct argv_walk *walk)
{
    const char *value = attached ? attached : walk->argv[++walk->at];
    if (option->take)
        return option->take(args->context, value) ? -1 : WRONG;
    *option->value = value;
    return -1;
}

/* "-r", "-rFILE", or several flags in one word. */
static int read_letters(const struct weir__args *args, struct argv_walk *walk)
{
    for (const char *at = walk->argv[walk->at] + 1; *at; at++) {
        size_t i = 0;
        if (*at == 'h')
            return print_usage(args);
        while (i < args->option_count && args->options[i].letter != *at)
            i++;
        if (i == args->option_count) {
            fprintf(stderr, "weir %s: no option '-%c'\n'weir %s --help' lists them\n", args->command, *at,
                    args->command);
            return WRONG;
        }
        if (args->options[i].flag) {
            *args->options[i].flag = true;
            continue;
        }
        if (!at[1] && walk->at + 1 >= walk->argc) {
            fprintf(stderr, "weir %s: -%c needs a value\n", args->command, *at);
            return WRONG;
        }
        return set_option(args, &args->options[i], at[1] ? at + 1 : NULL, walk);
    }
    return -1;
}

/* "--rules FILE" or "--rules=FILE" */
static int read_name(const struct weir__args *args, struct argv_walk *walk)
{
    const char *name = walk->argv[walk->at] + 2, *equals = strchr(name, '=');
    weir_text given = {name, equals ? (size_t)(equals - name) : strlen(name)};
    const struct weir__option *option = NULL;
    bool help = weir__text_is(given, "help");
    for (size_t i = 0; i < args->option_count && !option; i++)
        if (weir__text_is(given, args->options[i].name))
            option = &args->options[i];
    if (!help && !option)
        return no_option(args, given);
    bool is_flag = help || option->flag, lacks = !is_flag && !equals && walk->at + 1 >= walk->argc;
    if (lacks || (is_flag && equals)) {
        fprintf(stderr, "weir %s: --%.*s %s\n", args->command, (int)given.len, name,
                lacks ? "needs a value" : "takes no value");
        return WRONG;
    }
    if (help)
        return print_usage(args);
    if (!is_flag)
        return set_option(args, option, equals ? equals + 1 : NULL, walk);
    *option->flag = true;
    return -1;
}

int weir__args_read(struct weir__args *args, int argc, char **argv)
{
    struct argv_walk walk = {argv, argc, 1};
    bool options_end = false;
    for (; walk.at < argc; walk.at++) {
        const char *word = argv[walk.at];
        int code = -1;
        if (options_end || word[0] != '-' || word[1] == '\0') {
            if (args->argument_count == args->arguments_max) {
                fprintf(stderr, "weir %s: unexpected argument '%s'\n%s", args->command, word, args->usage);
                return WRONG;
            }
            args->arguments[args->argument_count++] = word;
        } else if (strcmp(word, "--") == 0) {
            options_end = true;
        } else {
            code = word[1] == '-' ? read_name(args, &walk) : read_letters(args, &walk);
        }
        if (code >= 0)
            return code;
    }
    return -1;
}

int weir__args_read_word(const char *command, const char *usage, const struct weir__option *options,
                         size_t option_count, const char **word, int argc, char **argv)
{
    struct weir__args args = {command, usage, options, option_count, word, word != NULL, 0, NULL};
    return weir__args_read(&args, argc, argv);
}

/* ---- Numbers and times ---- */

bool weir__read_int(const char *text, int64_t min, int64_t max, int64_t *value)
{
    int64_t number;
    if (!weir__parse_int(weir__text_of(text + (*text == '+')), &number) || number < min || number > max)
        return false;
    *value = number;
    return true;
}

/* Parses digits with a fraction, in billionths; *end is after them. Digits after the ninth are cut. */
static bool read_decimal(const char *text, int64_t max, const char **end, int64_t *billionths)
{
    int64_t integer = 0, part = 0, unit = SECOND_NS / 10;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        integer = integer * 10 + (*at - '0');
        if (integer > max)
            return false;
    }
    if (at == text)
        return false;
    if (*at == '.') {
        const char *first = ++at;
        for (; *at >= '0' && *at <= '9'; at++, unit /= 10)
            part += (*at - '0') * unit;
        if (at == first)
            return false;
    }
    *end = at;
    *billionths = integer * SECOND_NS + part;
    return true;
}

/* Exactly `count` digits. */
static bool read_digits(const char **at, int count, int *value)
{
    int number = 0;
    for (int i = 0; i < count; i++, (*at)++) {
        if (**at < '0' || **at > '9')
            return false;
        number = number * 10 + (**at - '0');
    }
    *value = number;
    return true;
}

/* "Z", "+01:00", "-0530" or nothing, which is UTC; the end must follow. */
static bool read_zone(const char *at, int *offset_s)
{
    int hours, minutes;
    *offset_s = 0;
    if (*at == '\0' || ((*at == 'Z' || *at == 'z') && at[1] == '\0'))
        return true;
    if (*at != '+' && *at != '-')
        return false;
    int sign = *at++ == '-' ? -1 : 1;
    if (!read_digits(&at, 2, &hours))
        return false;
    at += *at == ':';
    if (!read_digits(&at, 2, &minutes) || *at != '\0' || hours > 23 || minutes > 59)
        return false;
    *offset_s = sign * (hours * 3600 + minutes * 60);
    return true;
}

/* Parses "T03:04", "T03:04:05" or "T03:04:05.25"; *at moves past it. */
static bool read_clock(const char **at, struct tm *tm, int64_t *part_ns)
{
    (*at)++;
    if (!read_digits(at, 2, &tm->tm_hour) || *(*at)++ != ':' || !read_digits(at, 2, &tm->tm_min))
        return false;
    if (**at != ':')
        return true;
    const char *end;
    int64_t seconds;
    if (!read_decimal(++*at, 59, &end, &seconds) || end < *at + 2 || ((*at)[2] != '.' && end != *at + 2))
        return false;
    *at = end;
    tm->tm_sec = (int)(seconds / SECOND_NS);
    *part_ns = seconds % SECOND_NS;
    return true;
}

static bool read_iso(const char *at, int64_t *ns)
{
    struct tm tm = {0};
    int64_t part_ns = 0;
    int offset_s, year, month;
    if (!read_digits(&at, 4, &year) || *at++ != '-' || !read_digits(&at, 2, &month) || *at++ != '-' ||
        !read_digits(&at, 2, &tm.tm_mday))
        return false;
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    if ((*at == 'T' || *at == 't' || *at == ' ') && !read_clock(&at, &tm, &part_ns))
        return false;
    if (!read_zone(at, &offset_s))
        return false;
    struct tm normal = tm; /* timegm moves the 30th of February on; here it is a mistake */
    int64_t seconds = (int64_t)timegm(&normal) - offset_s;
    if (normal.tm_mday != tm.tm_mday || normal.tm_mon != tm.tm_mon || normal.tm_hour != tm.tm_hour ||
        normal.tm_min != tm.tm_min)
        return false;
    if (seconds < 0 || seconds >= LAST_TIME)
        return false;
    *ns = seconds * SECOND_NS + part_ns;
    return true;
}

bool weir__read_time(const char *text, int64_t *ns)
{
    const char *end;
    int64_t time_ns;
    if (read_decimal(text, LAST_TIME - 1, &end, &time_ns) && *end == '\0') {
        *ns = time_ns;
        return true;
    }
    return read_iso(text, ns);
}
