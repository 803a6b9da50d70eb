/* A walk over the options of a subcommand. */
#include "cli/options.h"

#include <stdio.h>
#include <string.h>

enum { WORD_MAX = 40, OPTIONS_MAX = 40 };

/* How many letters must be added, dropped, changed or swapped with their neighbour; both at most WORD_MAX long. */
static int distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int row[3][WORD_MAX + 1];
    for (size_t j = 0; j <= b_len; j++)
        row[0][j] = (int)j;
    for (size_t i = 1; i <= a_len; i++) {
        int *now = row[i % 3];
        const int *last = row[(i - 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= b_len; j++) {
            int best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && row[(i - 2) % 3][j - 2] + 1 < best)
                best = row[(i - 2) % 3][j - 2] + 1;
            now[j] = best;
        }
    }
    return row[a_len % 3][b_len];
}

const char *weir__likely_word(const char *word, const char *const *candidates, size_t count)
{
    const char *likely = NULL;
    size_t len = strlen(word);
    if (len == 0 || len > WORD_MAX)
        return NULL;
    int best = len < 5 ? 2 : 3; /* below this it is likely a slip of the finger */
    for (size_t i = 0; i < count; i++) {
        size_t other = strlen(candidates[i]);
        int edits = other > WORD_MAX ? best : distance(word, len, candidates[i], other);
        if (edits < best) {
            best = edits;
            likely = candidates[i];
        }
    }
    return likely;
}

static int unknown(const struct weir__args *args, const char *given, size_t name_len)
{
    const char *names[OPTIONS_MAX];
    char name[WORD_MAX + 1] = "";
    size_t count = 0;
    for (size_t i = 0; i < args->option_count && count < OPTIONS_MAX; i++)
        names[count++] = args->options[i].name;
    if (name_len <= WORD_MAX)
        memcpy(name, given, name_len);
    const char *likely = weir__likely_word(name, names, count);
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
