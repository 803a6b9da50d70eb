/* weir convert: the command line, and the writing of rules. */
#include "cli/convert.h"
#include "cli/text.h"
#include "cli/diagnose.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* True for a text that YAML reads as text without quotes, in any position. */
static bool is_plain(const char *text)
{
    static const char *const reserved[] = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "absent"};
    if (!isalpha((unsigned char)text[0]) && text[0] != '/' && text[0] != '_')
        return false;
    for (const char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("/_-.$=", *c) && !(*c == '*' && c > text))
            return false;
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcasecmp(text, reserved[i]) == 0)
            return false;
    return true;
}

const char *weir__scalar(const char *text)
{
    struct weir__buffer scalar = {0}, *to = &scalar;
    bool control = false;
    size_t len = strlen(text);
    if (is_plain(text))
        return weir__format("%s", text);
    for (size_t i = 0; i < len; i++)
        control |= (unsigned char)text[i] < 0x20 || text[i] == 0x7f;
    /* In single quotes only the quote is special: regular expressions stay readable. */
    weir__buffer_printf(to, "%c", control ? '"' : '\'');
    for (size_t at = 0; at < len;) {
        uint32_t point;
        size_t bytes = weir__utf8_decode(text + at, len - at, &point);
        if (bytes == 0)
            weir__buffer_printf(to, "\xef\xbf\xbd"); /* YAML cannot contain this byte */
        else if (control && (point < 0x20 || point == 0x7f))
            weir__buffer_printf(to, "\\x%02x", (unsigned)point);
        else if (control && (point == '"' || point == '\\'))
            weir__buffer_printf(to, "\\%c", (char)point);
        else
            weir__buffer_printf(to, "%s%.*s", !control && point == '\'' ? "'" : "", (int)bytes, text + at);
        at += bytes ? bytes : 1;
    }
    weir__buffer_printf(to, "%c", control ? '"' : '\'');
    return weir__buffer_keep(&scalar);
}

void weir__convert_warn(struct weir__convert *convert, struct weir__new_rule *rule, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *message = weir__vformat(format, arguments);
    va_end(arguments);
    convert->warnings++;
    weir__print_line(stderr, "%s:%d: warning: %s", convert->file, line, message);
    if (rule)
        weir__buffer_printf(&rule->notes, "%s\n", message);
}

/*
 * Writes each line of `text` after "# ", indented. Other line breaks, such as CR or U+0085, are escaped: YAML would end
 * the comment there.
 */
static void put_comment(struct weir__buffer *to, const char *text, int indent)
{
    size_t len = strlen(text);
    for (size_t at = 0; at < len;) {
        bool begins = at == 0 || text[at - 1] == '\n', ends = text[at] == '\n';
        struct weir__shown next = weir__shown_next(text + at, len - at);
        if (begins)
            weir__buffer_printf(to, "%*s# ", indent, "");
        weir__buffer_printf(to, "%.*s", (int)next.len, ends ? "\n" : next.text);
        at += next.taken;
    }
}

void weir__convert_head(struct weir__convert *convert, const char *text)
{
    struct weir__buffer comment = {0};
    put_comment(&comment, text, 0);
    const char *line = weir__buffer_keep(&comment);
    if (!strstr(weir__buffer_text(&convert->head), line))
        weir__buffer_printf(&convert->head, "%s", line);
}

/* Writes lines of fields, indented. */
static void put_fields(struct weir__buffer *to, const struct weir__buffer *fields, int indent)
{
    const char *at = weir__buffer_text(fields);
    while (*at) {
        size_t len = strcspn(at, "\n");
        weir__buffer_printf(to, "%*s%.*s\n", indent, "", (int)len, at);
        at += len + (at[len] == '\n');
    }
}

/* Makes a unique and valid name for a rule: cut at the end of a character, numbered if need be. */
static void choose_name(struct weir__convert *convert, const char *wanted, char *name)
{
    enum { NUMBER_MAX = 12 };
    size_t cut = 0, len = strlen(wanted);
    for (size_t at = 0; at < len;) {
        uint32_t point = 0;
        size_t bytes = weir__utf8_decode(wanted + at, len - at, &point);
        bool good = bytes > 0 && point >= 0x20 && point != 0x7f && point != '"' && point != '\\';
        bytes = good ? bytes : 1;
        if (cut + bytes > WEIR_NAME_MAX - NUMBER_MAX)
            break;
        memcpy(name + cut, good ? wanted + at : "_", bytes);
        cut += bytes;
        at += bytes;
    }
    name[cut] = '\0';
    if (cut == 0)
        cut = (size_t)snprintf(name, WEIR_NAME_MAX + 1, "rule");
    for (size_t i = 2; json_object_get(convert->names, name) && i < json_object_size(convert->names) + 3; i++)
        snprintf(name + cut, WEIR_NAME_MAX + 1 - cut, "-%zu", i);
    json_object_set_new(convert->names, name, json_true());
}

void weir__convert_rule(struct weir__convert *convert, struct weir__new_rule *rule, bool kept)
{
    struct weir__buffer *to = &convert->rules;
    enum { BUFFERS = 5 };
    struct weir__buffer *buffers[BUFFERS] = {&rule->name, &rule->notes, &rule->match, &rule->key, &rule->more};
    if (to->len > 0)
        weir__buffer_printf(to, "\n");
    put_comment(to, weir__buffer_text(&rule->notes), 2);
    if (kept) {
        char name[WEIR_NAME_MAX + 1];
        choose_name(convert, weir__buffer_text(&rule->name), name);
        weir__buffer_printf(to, "  - name: %s\n", weir__scalar(name));
        if (rule->match.len > 0)
            weir__buffer_printf(to, "    match:\n");
        put_fields(to, &rule->match, 6);
        if (rule->key.len > 0)
            weir__buffer_printf(to, "    key: %s\n", weir__scalar(rule->key.data));
        put_fields(to, &rule->more, 4);
    }
    for (size_t i = 0; i < BUFFERS; i++)
        weir__buffer_free(buffers[i]);
}

void weir__convert_identity(struct weir__convert *convert, const char *name)
{
    struct weir__buffer header = {0};
    bool begins = true;
    for (const char *c = name; *c; c++) {
        if (*c != '_')
            weir__buffer_printf(&header, "%c", begins ? toupper((unsigned char)*c) : *c);
        else if (!begins && c[1])
            weir__buffer_printf(&header, "-");
        begins = *c == '_';
    }
    json_object_set_new(convert->identity, name, json_string(weir__format("header:X-%s", weir__buffer_keep(&header))));
}

/* ---- The command ---- */

enum source { UNKNOWN, DESCRIPTORS, NGINX, OWN };

/* True if a line of the text begins with `start`. */
static bool has_line(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0 || strstr(text, weir__format("\n%s", start));
}

static enum source source_of(const char *text)
{
    if (has_line(text, "domain:") || has_line(text, "descriptors:"))
        return DESCRIPTORS;
    if (has_line(text, "rules:"))
        return OWN;
    return strstr(text, "limit_req") ? NGINX : UNKNOWN;
}

static bool convert_file(struct weir__convert *convert, const char *path, enum source from)
{
    size_t len;
    char *text = weir__read_all(path, WEIR__INPUT_MAX, &len);
    convert->file = strcmp(path, "-") == 0 ? "<stdin>" : path;
    if (!text) {
        fprintf(stderr, "%s: error: cannot be read: %s\n", convert->file, strerror(errno));
        return false;
    }
    if (from == UNKNOWN)
        from = source_of(text);
    if (from == DESCRIPTORS)
        weir__convert_descriptors(convert, text, len);
    else if (from == NGINX)
        weir__convert_nginx(convert, text, len);
    else
        fprintf(stderr, "%s: error: %s\n", convert->file,
                from == OWN ? "these are weir's own rules already"
                            : "neither descriptors nor nginx's limit_req; name the format with --from");
    free(text);
    return (from == DESCRIPTORS || from == NGINX) && !convert->failed;
}

/* The result as one text. */
static void put_all(const struct weir__convert *convert, struct weir__buffer *to)
{
    if (convert->head.len > 0)
        weir__buffer_printf(to, "%s\n", convert->head.data);
    const char *name;
    const json_t *source;
    bool named = json_object_size(convert->identity) > 0;
    if (named || convert->trusted.len > 0)
        weir__buffer_printf(to, "identity:\n");
    if (named)
        weir__buffer_printf(
            to, "  # Where an attribute comes from if the application does not give it. These are guesses: set\n"
                "  # them right, and let only a trusted proxy set such headers.\n");
    json_object_foreach(convert->identity, name, source)
        weir__buffer_printf(to, "  %s: %s\n", name, json_string_value(source));
    if (convert->trusted.len > 0)
        weir__buffer_printf(to, "  client_ip: { trusted_proxies: [%s] }\n", convert->trusted.data);
    weir__buffer_printf(to, "rules:%s\n%s", json_object_size(convert->names) ? "" : " []",
                        weir__buffer_text(&convert->rules));
}

bool weir__convert_check(const char *name, const char *text, size_t len, bool errors_only)
{
    struct weir__findings findings = {.to = stderr, .errors_only = errors_only};
    weir_rules *rules = NULL;
    int error = weir_rules_parse(name, text, len, weir__add_finding, &findings, &rules);
    if (error)
        weir__find_failure(&findings, name, error);
    weir_rules_free(rules);
    return error == 0;
}

static int convert_all(const char **paths, size_t count, enum source from)
{
    struct weir__convert convert = {.names = json_object(), .identity = json_object()};
    struct weir__buffer result = {0};
    bool good = true;
    for (size_t i = 0; i < count; i++)
        good &= convert_file(&convert, paths[i], from);
    size_t rules = json_object_size(convert.names);
    if (good && rules == 0) {
        fprintf(stderr, "weir convert: no limit found\n");
        good = false;
    }
    put_all(&convert, &result);
    if (convert.failed) {
        fprintf(stderr, "weir convert: nothing was converted\n");
        good = false;
    } else if (rules > 0) {
        fputs(weir__buffer_text(&result), stdout);
        /* The result must be valid rules. Warnings about them are left to weir lint. */
        good &= weir__convert_check("<converted>", result.data, result.len, true);
    }
    if (convert.warnings > 0)
        fprintf(stderr, "weir convert: %zu rule%s, %d warning%s; read the comments\n", rules, rules == 1 ? "" : "s",
                convert.warnings, convert.warnings == 1 ? "" : "s");
    json_decref(convert.names);
    json_decref(convert.identity);
    weir__buffer_free(&convert.rules);
    weir__buffer_free(&convert.trusted);
    weir__buffer_free(&convert.head);
    weir__buffer_free(&result);
    return good ? 0 : 1;
}

static bool read_source(const char *text, enum source *from)
{
    static const char *const formats[] = {"descriptors", "nginx"};
    for (size_t i = 0; i < 2; i++)
        if (strcmp(text, formats[i]) == 0) {
            *from = i == 0 ? DESCRIPTORS : NGINX;
            return true;
        }
    const char *likely = weir__suggest(weir__text_of(text), formats, 2);
    fprintf(stderr, "weir convert: --from '%s': ", text);
    if (likely)
        fprintf(stderr, "did you mean '%s'?\n", likely);
    else
        fprintf(stderr, "use descriptors or nginx\n");
    return false;
}

int weir__cmd_convert(struct weir__given *given)
{
    const char *format = weir__option(given, "from");
    enum source from = UNKNOWN;
    if (format && !read_source(format, &from))
        return 2;
    return convert_all(given->arguments, given->argument_count, from);
}
