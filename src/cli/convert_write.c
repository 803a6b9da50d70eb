/* weir convert: writing rules. */
#define _GNU_SOURCE /* strdup */
#include "cli/convert.h"
#include "cli/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Room for `more` bytes and a zero. */
static bool make_room(struct weir__convert_buffer *to, size_t more)
{
    size_t room = to->room ? to->room : 256;
    while (room - to->len <= more)
        room *= 2;
    if (room > to->room) {
        char *text = realloc(to->text, room);
        if (!text) {
            to->failed = true;
            return false;
        }
        to->text = text;
        to->room = room;
    }
    return true;
}

static void put_variable(struct weir__convert_buffer *to, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (len < 0 || !make_room(to, (size_t)len))
        return;
    vsnprintf(to->text + to->len, to->room - to->len, format, arguments);
    to->len += (size_t)len;
}

void weir__put(struct weir__convert_buffer *to, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put_variable(to, format, arguments);
    va_end(arguments);
}

/* Text that YAML reads as nothing but text, wherever it stands. */
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

void weir__put_scalar(struct weir__convert_buffer *to, const char *text)
{
    bool control = false;
    if (is_plain(text)) {
        weir__put(to, "%s", text);
        return;
    }
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++)
        control |= (unsigned char)text[i] < 0x20 || text[i] == 0x7f;
    /* In single quotes nothing is special but the quote: regular expressions stay readable. */
    weir__put(to, "%c", control ? '"' : '\'');
    for (size_t at = 0; at < len;) {
        uint32_t point;
        size_t bytes = weir__utf8_next(text + at, len - at, &point);
        if (bytes == 0)
            weir__put(to, "\xef\xbf\xbd"); /* no YAML can hold this byte */
        else if (control && (point < 0x20 || point == 0x7f))
            weir__put(to, "\\x%02x", (unsigned)point);
        else if (control && (point == '"' || point == '\\'))
            weir__put(to, "\\%c", (char)point);
        else
            weir__put(to, "%s%.*s", !control && point == '\'' ? "'" : "", (int)bytes, text + at);
        at += bytes ? bytes : 1;
    }
    weir__put(to, "%c", control ? '"' : '\'');
}

void weir__convert_warn(struct weir__convert *convert, struct weir__new_rule *rule, int line, const char *format, ...)
{
    struct weir__convert_buffer message = {0};
    va_list arguments;
    va_start(arguments, format);
    put_variable(&message, format, arguments);
    va_end(arguments);
    convert->warnings++;
    if (!message.text) {
        convert->failed = true;
        return;
    }
    weir__print_text(stderr, convert->file, SIZE_MAX, false);
    fprintf(stderr, ":%d: warning: ", line);
    weir__print_text(stderr, message.text, SIZE_MAX, false);
    fputc('\n', stderr);
    if (rule)
        weir__put(&rule->notes, "%s\n", message.text);
    free(message.text);
}

/* Every line of `text` behind "# ", at `indent`; what cannot stand in a comment is '?'. */
static void put_comment(struct weir__convert_buffer *to, const char *text, int indent)
{
    size_t len = strlen(text);
    bool begins = true;
    for (size_t at = 0; at < len;) {
        uint32_t point = 0;
        size_t bytes = weir__utf8_next(text + at, len - at, &point);
        if (begins)
            weir__put(to, "%*s# ", indent, "");
        begins = bytes == 1 && point == '\n';
        if (begins)
            weir__put(to, "\n");
        else if (bytes == 0 || point < 0x20 || (point >= 0x7f && point < 0xa0))
            weir__put(to, "?");
        else
            weir__put(to, "%.*s", (int)bytes, text + at);
        at += bytes ? bytes : 1;
    }
}

void weir__convert_head(struct weir__convert *convert, const char *text)
{
    struct weir__convert_buffer line = {0};
    put_comment(&line, text, 0);
    if (line.text && (!convert->head.text || !strstr(convert->head.text, line.text)))
        weir__put(&convert->head, "%s", line.text);
    free(line.text);
}

/* Lines of fields, each behind `indent` blanks. */
static void put_fields(struct weir__convert_buffer *to, const struct weir__convert_buffer *fields, int indent)
{
    const char *at = fields->text;
    while (at && *at) {
        size_t len = strcspn(at, "\n");
        weir__put(to, "%*s%.*s\n", indent, "", (int)len, at);
        at += len + (at[len] == '\n');
    }
}

static bool is_taken(const struct weir__convert *convert, const char *name)
{
    for (size_t i = 0; i < convert->name_count; i++)
        if (strcmp(convert->names[i], name) == 0)
            return true;
    return false;
}

/* A name for the rule that no other has, of what a name may have: cut at the end of a character, numbered if need be.
 */
static void choose_name(struct weir__convert *convert, const char *wanted, char *name)
{
    enum { NUMBER_MAX = 12 };
    size_t cut = 0, len = strlen(wanted);
    for (size_t at = 0; at < len;) {
        uint32_t point = 0;
        size_t bytes = weir__utf8_next(wanted + at, len - at, &point);
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
    for (size_t i = 2; is_taken(convert, name) && i < convert->name_count + 3; i++)
        snprintf(name + cut, WEIR_NAME_MAX + 1 - cut, "-%zu", i);
    char **names = realloc(convert->names, (convert->name_count + 1) * sizeof *names);
    if (!names) {
        convert->failed = true;
        return;
    }
    convert->names = names;
    convert->names[convert->name_count] = strdup(name);
    convert->failed |= !convert->names[convert->name_count];
    convert->name_count += convert->names[convert->name_count] != NULL;
}

void weir__convert_rule(struct weir__convert *convert, struct weir__new_rule *rule, bool kept)
{
    struct weir__convert_buffer *to = &convert->rules;
    enum { BUFFERS = 5 };
    struct weir__convert_buffer *buffers[BUFFERS] = {&rule->name, &rule->notes, &rule->match, &rule->key, &rule->more};
    if (to->len > 0)
        weir__put(to, "\n");
    if (rule->notes.text)
        put_comment(to, rule->notes.text, 2);
    if (kept) {
        char name[WEIR_NAME_MAX + 1];
        choose_name(convert, rule->name.text ? rule->name.text : "", name);
        weir__put(to, "  - name: ");
        weir__put_scalar(to, name);
        weir__put(to, "\n");
        if (rule->match.len > 0)
            weir__put(to, "    match:\n");
        put_fields(to, &rule->match, 6);
        if (rule->key.len > 0) {
            weir__put(to, "    key: ");
            weir__put_scalar(to, rule->key.text);
            weir__put(to, "\n");
        }
        put_fields(to, &rule->more, 4);
    }
    for (size_t i = 0; i < BUFFERS; i++) {
        convert->failed |= buffers[i]->failed;
        free(buffers[i]->text);
        *buffers[i] = (struct weir__convert_buffer){0};
    }
}

void weir__convert_identity(struct weir__convert *convert, const char *name)
{
    struct weir__convert_buffer *to = &convert->identity;
    struct weir__convert_buffer line = {0};
    bool begins = true;
    weir__put(&line, "%s: header:X-", name);
    for (const char *c = name; *c; c++) {
        if (*c != '_')
            weir__put(&line, "%c", begins ? toupper((unsigned char)*c) : *c);
        else if (!begins && c[1])
            weir__put(&line, "-");
        begins = *c == '_';
    }
    weir__put(&line, "\n");
    size_t len = line.text ? strlen(line.text) : 0;
    const char *at = to->text;
    bool known = false;
    while (len && (at = at ? strstr(at, line.text) : NULL) && !known) {
        known = at == to->text || at[-1] == '\n';
        at++;
    }
    if (len && !known)
        weir__put(to, "%s", line.text);
    convert->failed |= line.failed;
    free(line.text);
}
