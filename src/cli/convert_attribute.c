/* weir convert: attributes, and conditions on them. */
#include "cli/convert.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Names ---- */

static void name_it(struct weir__attribute_name *name, enum weir__name_kind kind, const char *text, size_t len)
{
    name->kind = kind;
    if (len >= sizeof name->text)
        len = sizeof name->text - 1;
    memcpy(name->text, text, len);
    name->text[len] = '\0';
}

/* An attribute of the application: [a-z_][a-z0-9_]*, and not a field of `match`. */
static void name_named(struct weir__attribute_name *name, const char *text, size_t len)
{
    static const char *const taken[] = {"path", "method", "host", "header", "query", "network", "cookie", "client_ip"};
    size_t used = 0;
    name->kind = WEIR__NAME_NAMED;
    if (len == 0 || isdigit((unsigned char)text[0]))
        name->text[used++] = '_';
    for (size_t i = 0; i < len && used + 8 < sizeof name->text; i++) {
        int c = tolower((unsigned char)text[i]);
        name->text[used++] = (char)(c < 0x80 && isalnum(c) ? c : '_');
    }
    name->text[used] = '\0';
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcmp(name->text, taken[i]) == 0) {
            name->text[used] = '_';
            name->text[used + 1] = '\0';
        }
}

/* Names with a fixed meaning. */
struct known {
    const char *text;
    enum weir__name_kind kind;
};

static bool look_up(const struct known *list, size_t count, const char *text, size_t len,
                    struct weir__attribute_name *name)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i].text) == len && memcmp(list[i].text, text, len) == 0) {
            name_it(name, list[i].kind, "", 0);
            return true;
        }
    return false;
}

/* True if it may be the name of a header: other names have no dashes. */
static bool is_header(const char *text)
{
    bool dash = false;
    for (const char *c = text; *c; c++) {
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '_')
            return false;
        dash |= *c == '-';
    }
    return dash && strlen(text) < sizeof((struct weir__attribute_name *)0)->text;
}

void weir__attribute_for_key(const char *key, int number, struct weir__attribute_name *name)
{
    static const struct known keys[] = {
        {"remote_address", WEIR__NAME_CLIENT_IP},
        {"masked_remote_address", WEIR__NAME_CLIENT_IP},
        {"client_ip", WEIR__NAME_CLIENT_IP},
        {"path", WEIR__NAME_PATH},
        {":path", WEIR__NAME_PATH},
        {"request_path", WEIR__NAME_PATH},
        {"method", WEIR__NAME_METHOD},
        {":method", WEIR__NAME_METHOD},
        {"request_method", WEIR__NAME_METHOD},
        {"host", WEIR__NAME_HOST},
        {"authority", WEIR__NAME_HOST},
        {":authority", WEIR__NAME_HOST},
    };
    size_t len = strlen(key);
    if (number == 1 && look_up(keys, sizeof keys / sizeof *keys, key, len, name))
        return;
    if (number == 1 && is_header(key)) {
        name_it(name, WEIR__NAME_HEADER, key, len);
        return;
    }
    name_named(name, key, len);
    if (number > 1) {
        size_t used = strlen(name->text);
        snprintf(name->text + used, sizeof name->text - used, "_%d", number);
    }
}

bool weir__attribute_for_variable(const char *variable, size_t len, struct weir__attribute_name *name)
{
    static const struct known variables[] = {
        {"binary_remote_addr", WEIR__NAME_CLIENT_IP},
        {"remote_addr", WEIR__NAME_CLIENT_IP},
        {"realip_remote_addr", WEIR__NAME_CLIENT_IP},
        {"uri", WEIR__NAME_PATH},
        {"document_uri", WEIR__NAME_PATH},
        {"request_uri", WEIR__NAME_PATH},
        {"request_method", WEIR__NAME_METHOD},
        {"host", WEIR__NAME_HOST},
        {"server_name", WEIR__NAME_HOST},
        {"http_host", WEIR__NAME_HOST},
    };
    static const struct known prefixes[] = {
        {"http_", WEIR__NAME_HEADER}, {"cookie_", WEIR__NAME_COOKIE}, {"arg_", WEIR__NAME_QUERY}};
    if (look_up(variables, sizeof variables / sizeof *variables, variable, len, name))
        return true;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t skip = strlen(prefixes[i].text);
        if (len <= skip || len - skip >= sizeof name->text || memcmp(variable, prefixes[i].text, skip) != 0)
            continue;
        name_it(name, prefixes[i].kind, variable + skip, len - skip);
        for (char *c = name->text; *c && name->kind == WEIR__NAME_HEADER; c++)
            *c = *c == '_' ? '-' : *c;
        return true;
    }
    name_named(name, variable, len);
    return false;
}

const char *weir__template(const struct weir__attribute_name *name)
{
    static const char *const prefixes[] = {"client_ip", "path", "method", "host", "header:", "cookie:", "query:", ""};
    return weir__text("${%s%s}", prefixes[name->kind], name->text);
}

/* ---- Conditions ---- */

const char *weir__regex(const char *text, bool stars)
{
    struct weir__buffer to = {0};
    weir__buffer_printf(&to, "%s", "");
    for (; *text; text++) {
        if (*text == '*' && stars)
            weir__buffer_printf(&to, ".*");
        else
            weir__buffer_printf(&to, "%s%c", strchr("\\^$.[]|()?*+{}", *text) ? "\\" : "", *text);
    }
    return weir__keep(to.failed ? NULL : to.data);
}

bool weir__is_network(const char *text)
{
    char address[64];
    unsigned char bytes[16];
    size_t len = strcspn(text, "/");
    char *end = NULL;
    if (len >= sizeof address)
        return false;
    memcpy(address, text, len);
    address[len] = '\0';
    int bits = inet_pton(AF_INET, address, bytes) == 1 ? 32 : inet_pton(AF_INET6, address, bytes) == 1 ? 128 : -1;
    if (text[len] == '/') {
        long given = isdigit((unsigned char)text[len + 1]) ? strtol(text + len + 1, &end, 10) : -1;
        return given >= 0 && given <= bits && *end == '\0';
    }
    return bits > 0;
}

/* A value as a pattern: in paths '*' stops at '/', so it becomes "**" unless it is the last segment. */
static const char *pattern_of(const struct weir__attribute_name *name, const char *value)
{
    struct weir__buffer pattern = {0};
    for (const char *c = value; *c; c++) {
        bool last = c[1] == '\0' && c > value && c[-1] == '/';
        weir__buffer_printf(&pattern, "%s%c", *c == '*' && name->kind == WEIR__NAME_PATH && !last ? "*" : "", *c);
    }
    const char *scalar = weir__scalar(weir__buffer_text(&pattern));
    weir__buffer_free(&pattern);
    return scalar;
}

/* Adds a member to a map such as `header: { a: x }`, which may exist: `match` has each field once. */
static void put_member(struct weir__buffer *match, const char *field, const char *name, const char *pattern)
{
    const char *start = weir__text("%s: { ", field), *added = weir__text("%s: %s }\n", weir__scalar(name), pattern);
    const char *line = weir__buffer_text(match);
    while (*line && strncmp(line, start, strlen(start)) != 0)
        line += strcspn(line, "\n") + 1;
    if (!*line) {
        weir__buffer_printf(match, "%s%s", start, added);
        return;
    }
    struct weir__buffer all = {0};
    size_t end = strcspn(line, "\n") - strlen(" }");
    weir__buffer_printf(&all, "%.*s%.*s, %s%s", (int)(line - match->data), match->data, (int)end, line, added,
                        line + end + strlen(" }\n"));
    weir__buffer_free(match);
    *match = all;
}

bool weir__put_condition(struct weir__buffer *match, const struct weir__attribute_name *name, const char *value,
                         const char *const *rivals, size_t rival_count)
{
    static const char *const fields[] = {"network", "path", "method", "host", "header", "", "query", ""};
    struct weir__buffer others = {0};
    bool networks = !*value || weir__is_network(value);
    for (size_t i = 0; i < rival_count; i++) {
        networks &= weir__is_network(rivals[i]);
        if (*value) /* in a regular expression, which matches the pattern without its rivals */
            weir__buffer_printf(&others, "%s%s", i ? "|" : "", weir__regex(rivals[i], true));
        else
            weir__buffer_printf(&others, "%s%s", i ? ", " : "", pattern_of(name, rivals[i]));
    }
    const char *text = pattern_of(name, value), *but = weir__buffer_text(&others);
    if (!*value)
        text = weir__text("{ not: [%s] }", but);
    else if (rival_count > 0)
        text =
            weir__text("{ regex: %s }", weir__scalar(weir__text("(?s)^(?!(?:%s)$)%s$", but, weir__regex(value, true))));
    weir__buffer_free(&others);
    if (!*value && rival_count == 0)
        return true;
    if (name->kind == WEIR__NAME_CLIENT_IP && !networks)
        return false;
    if (name->kind == WEIR__NAME_HEADER || name->kind == WEIR__NAME_QUERY)
        put_member(match, fields[name->kind], name->text, text);
    else
        weir__buffer_printf(match, "%s: %s\n", name->kind == WEIR__NAME_NAMED ? name->text : fields[name->kind], text);
    return true;
}
