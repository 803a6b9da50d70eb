/* A walk over the options of a subcommand. */
#include "cli/options.h"
#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

enum { OPTIONS_MAX = 40 };

static int unknown(const struct weir__args *args, const char *given, size_t name_len)
{
    const char *names[OPTIONS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < args->option_count && count < OPTIONS_MAX; i++)
        names[count++] = args->options[i].name;
    const char *likely = weir__suggest((weir_text){given, name_len}, names, count);
    fprintf(stderr, "weir %s: no option '--%.*s'", args->command, (int)name_len, given);
    if (likely)
        fprintf(stderr, "; did you mean '--%s'?", likely);
    fprintf(stderr, "\n'weir %s --help' lists them\n", args->command);
    return WEIR__ARG_BAD;
}

/* The value of the option just read: what stands behind it in the same word, or else the next word. */
static bool take_value(struct weir__args *args, const char *attached)
{
    if (!attached && args->at >= args->argc)
        return false;
    args->value = attached ? attached : args->argv[args->at++];
    return true;
}

static int next_letter(struct weir__args *args)
{
    const char *word = args->argv[args->at];
    char letter = word[args->letter_at++];
    const char *rest = word + args->letter_at;
    if (*rest == '\0') {
        args->at++;
        args->letter_at = 0;
    }
    for (size_t i = 0; i < args->option_count; i++) {
        if (args->options[i].letter != letter)
            continue;
        if (!args->options[i].has_value)
            return (int)i;
        if (*rest != '\0') {
            args->at++;
            args->letter_at = 0;
        }
        if (take_value(args, *rest != '\0' ? rest : NULL))
            return (int)i;
        fprintf(stderr, "weir %s: -%c needs a value\n", args->command, letter);
        return WEIR__ARG_BAD;
    }
    fprintf(stderr, "weir %s: no option '-%c'\n'weir %s --help' lists them\n", args->command, letter, args->command);
    return WEIR__ARG_BAD;
}

int weir__args_next(struct weir__args *args)
{
    args->value = NULL;
    if (args->letter_at > 0)
        return next_letter(args);
    if (args->at >= args->argc)
        return WEIR__ARG_END;
    const char *word = args->argv[args->at];
    if (!args->no_options && strcmp(word, "--") == 0) {
        args->no_options = true;
        if (++args->at >= args->argc)
            return WEIR__ARG_END;
        word = args->argv[args->at];
    }
    if (args->no_options || word[0] != '-' || word[1] == '\0') {
        args->value = word;
        args->at++;
        return WEIR__ARG_WORD;
    }
    if (word[1] != '-') {
        args->letter_at = 1;
        return next_letter(args);
    }
    const char *name = word + 2;
    const char *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    args->at++;
    for (size_t i = 0; i < args->option_count; i++) {
        const struct weir__option *option = &args->options[i];
        if (strlen(option->name) != len || memcmp(option->name, name, len) != 0)
            continue;
        if (!option->has_value && !equals)
            return (int)i;
        if (option->has_value && take_value(args, equals ? equals + 1 : NULL))
            return (int)i;
        fprintf(stderr, "weir %s: --%s %s\n", args->command, option->name,
                option->has_value ? "needs a value" : "takes no value");
        return WEIR__ARG_BAD;
    }
    return unknown(args, name, len);
}
