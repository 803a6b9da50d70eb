/* Reads command lines, and numbers and times in them; prints help texts; keeps the memory of a command. */
#include "cli/cli.h"
#include "base/duration.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MAX = 40, WRONG = 2 };

/* ---- Memory ---- */

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

void *weir__keep(void *memory)
{
    static void **kept;
    static size_t count;
    kept = weir__grow(kept, count, sizeof *kept);
    return kept[count++] = weir__must(memory);
}

char *weir__vformat(const char *format, va_list arguments)
{
    char *text = NULL;
    return weir__keep(vasprintf(&text, format, arguments) < 0 ? NULL : text);
}

char *weir__format(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = weir__vformat(format, arguments);
    va_end(arguments);
    return text;
}

const char *weir__buffer_text(const struct weir__buffer *buffer)
{
    if (buffer->failed)
        weir__must(NULL);
    return buffer->len ? buffer->data : "";
}

char *weir__buffer_keep(struct weir__buffer *buffer)
{
    char *text = weir__format("%s", weir__buffer_text(buffer)); /* without the buffer's spare room */
    weir__buffer_free(buffer);
    return text;
}

/* ---- Help ---- */

WEIR__EMBED(help_texts, "src/cli/help.txt");

void weir__help(FILE *to, const char *name)
{
    char *heading = weir__format("\n=== %s\n", name);
    const char *line = strstr(help_texts, heading);
    for (line += line ? strlen(heading) : 0; line && *line && strncmp(line, "=== ", 4) != 0;) {
        size_t len = strcspn(line, "\n");
        if (*line == '+')
            weir__help(to, weir__format("%.*s", (int)len - 1, line + 1));
        else
            fprintf(to, "%.*s\n", (int)len, line);
        line += len + 1;
    }
}

/* ---- Options ---- */

/* An option that a command knows. */
struct known_option {
    weir_text name;
    char letter; /* 0: none */
    bool has_value;
};

/* Reads the next option of a list such as "rules,r= json". False at its end. */
static bool next_known(const char **list, struct known_option *option)
{
    const char *at = *list + strspn(*list, " ");
    size_t len = strcspn(at, " "), name = strcspn(at, " ,=");
    *option = (struct known_option){{at, name}, at[name] == ',' ? at[name + 1] : '\0', len && at[len - 1] == '='};
    *list = at + len;
    return len > 0;
}

/* A command line that is being read. */
struct argv_reader {
    struct weir__given *given;
    const char *known; /* options of the command */
    char **next;       /* word */
};

/* Finds an option by its letter, or else by its name. */
static bool find_known(const struct argv_reader *reader, weir_text name, char letter, struct known_option *option)
{
    const char *list = reader->known;
    while (next_known(&list, option))
        if (letter ? option->letter == letter : weir__text_equal(option->name, name))
            return true;
    return false;
}

static int no_option(const struct argv_reader *reader, weir_text given)
{
    const char *names[OPTIONS_MAX], *list = reader->known;
    struct known_option option;
    size_t count = 0;
    while (count < OPTIONS_MAX && next_known(&list, &option))
        names[count++] = weir__format("%.*s", (int)option.name.len, option.name.data);
    const char *likely = weir__suggest(given, names, count), *command = reader->given->command;
    fprintf(stderr, "weir %s: no option '--%.*s'", command, (int)given.len, given.data);
    if (likely)
        fprintf(stderr, "; did you mean '--%s'?", likely);
    fprintf(stderr, "\n'weir %s --help' lists them\n", command);
    return WRONG;
}

/* Adds an option with the value in its own word, or else in the next one. -1, or the exit code. */
static int add_option(struct argv_reader *reader, const struct known_option *option, const char *value,
                      const char *shown)
{
    struct weir__given *given = reader->given;
    bool lacks = option->has_value && !value && !(value = *reader->next++);
    if (lacks || (!option->has_value && value)) {
        fprintf(stderr, "weir %s: %s %s\n", given->command, shown, lacks ? "needs a value" : "takes no value");
        return WRONG;
    }
    if (weir__text_is(option->name, "help")) {
        weir__help(stdout, given->command);
        return 0;
    }
    given->options = weir__grow(given->options, given->option_count, sizeof *given->options);
    given->options[given->option_count++] = (struct weir__given_option){option->name, value ? value : ""};
    return -1;
}

/* "-r", "-rFILE", or several flags in one word. */
static int read_letters(struct argv_reader *reader, const char *word)
{
    struct known_option option;
    int code = -1;
    for (const char *at = word + 1; *at && code < 0; at++) {
        if (!find_known(reader, (weir_text){0}, *at, &option)) {
            fprintf(stderr, "weir %s: no option '-%c'\n'weir %s --help' lists them\n", reader->given->command, *at,
                    reader->given->command);
            return WRONG;
        }
        if (option.has_value)
            return add_option(reader, &option, at[1] ? at + 1 : NULL, weir__format("-%c", *at));
        code = add_option(reader, &option, NULL, "");
    }
    return code;
}

/* "--rules FILE" or "--rules=FILE" */
static int read_name(struct argv_reader *reader, const char *word)
{
    struct known_option option;
    size_t len = strcspn(word, "=");
    weir_text name = {word + 2, len - 2};
    if (!find_known(reader, name, '\0', &option))
        return no_option(reader, name);
    return add_option(reader, &option, word[len] ? word + len + 1 : NULL, weir__format("%.*s", (int)len, word));
}

int weir__read_options(struct weir__given *given, const struct weir__cli_command *command, char **argv)
{
    struct argv_reader reader = {given, weir__format("help,h %s", command->options), argv};
    bool options_end = false;
    while (*reader.next) {
        const char *word = *reader.next++;
        int code = -1;
        if (options_end || word[0] != '-' || word[1] == '\0') {
            if (given->argument_count == command->most) {
                fprintf(stderr, "weir %s: unexpected argument '%s'\n", given->command, word);
                weir__help(stderr, given->command);
                return WRONG;
            }
            given->arguments[given->argument_count++] = word;
        } else if (strcmp(word, "--") == 0) {
            options_end = true;
        } else {
            code = word[1] == '-' ? read_name(&reader, word) : read_letters(&reader, word);
        }
        if (code >= 0)
            return code;
    }
    given->json = weir__option(given, "json") != NULL;
    if (given->argument_count >= command->least)
        return -1;
    if (command->lacks)
        fprintf(stderr, "weir %s: %s\n", given->command, command->lacks);
    weir__help(stderr, given->command);
    return WRONG;
}

const char *weir__option(const struct weir__given *given, const char *name)
{
    for (size_t i = given->option_count; i-- > 0;)
        if (weir__text_is(given->options[i].name, name))
            return given->options[i].value;
    return NULL;
}

const char *weir__argument(const struct weir__given *given, const char *otherwise)
{
    return given->argument_count > 0 ? given->arguments[0] : otherwise;
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

int64_t weir__option_number(const struct weir__given *given, const char *name)
{
    const char *text = weir__option(given, name);
    int64_t number = 0;
    if (!text || weir__read_int(text + (*text == 'v'), 1, INT64_MAX, &number))
        return number;
    fprintf(stderr, "weir %s: --%s is a number of at least 1\n", given->command, name);
    return -1;
}

bool weir__read_time(const char *text, int64_t *ns)
{
    bool plain = *text && text[strspn(text, "0123456789.")] == '\0';
    return plain ? weir__parse_duration(weir__text_of(text), WEIR__TIME_MAX, ns) : weir__parse_time(text, ns);
}
