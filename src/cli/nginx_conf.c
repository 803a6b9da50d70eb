/* weir convert: parses nginx's configuration, without recursion. All directives are accepted. */
#include "cli/convert.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct nginx_conf_reader {
    const char *file; /* for messages */
    const char *at, *end;
    char *word; /* room for the longest word */
    int line, depth;
    struct weir__directive *block, *last; /* the open block, and the last of its members */
    struct weir__directive *now;          /* the one whose words are being read */
};

static bool fail(const struct nginx_conf_reader *reader, const char *error)
{
    fprintf(stderr, "%s:%d: error: %s\n", reader->file, reader->line, error);
    return false;
}

static void skip_blanks(struct nginx_conf_reader *reader)
{
    while (reader->at < reader->end) {
        char c = *reader->at;
        if (c == '#') {
            while (reader->at < reader->end && *reader->at != '\n')
                reader->at++;
        } else if (isspace((unsigned char)c)) {
            reader->line += c == '\n';
            reader->at++;
        } else {
            return;
        }
    }
}

/* The directive that the next word belongs to. */
static struct weir__directive *begin(struct nginx_conf_reader *reader)
{
    if (reader->now)
        return reader->now;
    struct weir__directive *fresh = weir__keep(calloc(1, sizeof *fresh));
    fresh->line = reader->line;
    fresh->parent = reader->block;
    if (reader->last)
        reader->last->next = fresh;
    else
        reader->block->first = fresh;
    reader->last = reader->now = fresh;
    return fresh;
}

/* True at the end of a word: its quote, or a character that a bare word cannot have. "${" begins a variable. */
static bool ends_word(const struct nginx_conf_reader *reader, char quote, char before)
{
    char c = *reader->at;
    return quote ? c == quote : isspace((unsigned char)c) || c == ';' || (c == '{' && before != '$');
}

/* One word, in quotes or not. */
static bool read_word(struct nginx_conf_reader *reader)
{
    struct weir__directive *directive = begin(reader);
    size_t len = 0;
    char quote = *reader->at == '"' || *reader->at == '\'' ? *reader->at++ : '\0';
    while (reader->at < reader->end && !ends_word(reader, quote, len ? reader->word[len - 1] : '\0')) {
        if (*reader->at == '\0')
            return fail(reader, "a NUL byte");
        if (*reader->at == '\\' && reader->at + 1 < reader->end) {
            if (!strchr("\"'\\", reader->at[1])) /* before other characters nginx keeps the backslash */
                reader->word[len++] = '\\';
            reader->at++;
        }
        reader->line += *reader->at == '\n';
        reader->word[len++] = *reader->at++;
    }
    if (quote && reader->at == reader->end)
        return fail(reader, "an unterminated quoted string");
    reader->at += quote != '\0';
    if (directive->count < WEIR__NGINX_ARGUMENTS)
        directive->arguments[directive->count++] = weir__format("%.*s", (int)len, reader->word);
    return true;
}

/* The position after a quoted string or a comment of Lua at `at`, whose braces do not count; else `at`. */
static const char *behind_text(const char *at, const char *end)
{
    if (*at == '-' && at + 1 < end && at[1] == '-') {
        while (at < end && *at != '\n')
            at++;
        return at;
    }
    if (*at != '"' && *at != '\'')
        return at;
    char quote = *at++;
    while (at < end && *at != quote && *at != '\n')
        at += *at == '\\' && at + 1 < end ? 2 : 1;
    return at < end && *at == quote ? at + 1 : at;
}

/* Skips code (Lua) between braces. */
static bool skip_code(struct nginx_conf_reader *reader)
{
    int open = 0;
    while (reader->at < reader->end) {
        const char *behind = behind_text(reader->at, reader->end);
        if (behind != reader->at) {
            reader->at = behind;
            continue;
        }
        reader->line += *reader->at == '\n';
        open += *reader->at == '{';
        open -= *reader->at == '}';
        reader->at++;
        if (open == 0) {
            reader->now = NULL;
            return true;
        }
    }
    return fail(reader, "a '{' that is never closed");
}

static bool open_block(struct nginx_conf_reader *reader)
{
    const char *name = reader->now ? reader->now->arguments[0] : NULL;
    size_t len = name ? strlen(name) : 0;
    if (!name)
        return fail(reader, "a '{' without a directive");
    if (len > 6 && strcmp(name + len - 6, "_block") == 0)
        return skip_code(reader);
    if (++reader->depth > WEIR__NGINX_DEPTH)
        return fail(reader, "blocks nested too deeply");
    reader->block = reader->now;
    reader->now = reader->last = NULL;
    reader->at++;
    return true;
}

static bool close_block(struct nginx_conf_reader *reader)
{
    if (reader->depth == 0)
        return fail(reader, "a '}' without its '{'");
    if (reader->now)
        return fail(reader, "a ';' is missing before '}'");
    reader->depth--;
    reader->last = reader->block;
    reader->block = reader->block->parent;
    reader->at++;
    return true;
}

bool weir__nginx_read(struct weir__directive *root, const char *file, const char *text, size_t len)
{
    struct nginx_conf_reader reader = {.file = file, .at = text, .end = text + len, .line = 1, .block = root};
    reader.word = weir__keep(malloc(len + 1));
    bool good = true;
    while (good) {
        skip_blanks(&reader);
        if (reader.at == reader.end)
            break;
        if (*reader.at == ';') {
            reader.now = NULL;
            reader.at++;
        } else if (*reader.at == '{') {
            good = open_block(&reader);
        } else if (*reader.at == '}') {
            good = close_block(&reader);
        } else {
            good = read_word(&reader);
        }
    }
    if (good && reader.depth > 0)
        return fail(&reader, "a '{' that is never closed");
    if (good && reader.now)
        return fail(&reader, "the last directive has no ';'");
    return good;
}

const struct weir__directive *weir__nginx_next(const struct weir__directive *at)
{
    if (at->first)
        return at->first;
    while (at && !at->next)
        at = at->parent;
    return at ? at->next : NULL;
}

bool weir__directive_is(const struct weir__directive *directive, const char *name)
{
    return directive->count > 0 && strcmp(directive->arguments[0], name) == 0;
}

const char *weir__directive_value(const struct weir__directive *directive, const char *name)
{
    size_t len = strlen(name);
    for (int i = 1; i < directive->count; i++)
        if (strncmp(directive->arguments[i], name, len) == 0 && directive->arguments[i][len] == '=')
            return directive->arguments[i] + len + 1;
    return NULL;
}

bool weir__directive_has(const struct weir__directive *directive, const char *word)
{
    for (int i = 1; i < directive->count; i++)
        if (strcmp(directive->arguments[i], word) == 0)
            return true;
    return false;
}
