/* weir convert: attributes, and conditions on them. */
#include "cli/convert.h"
#include "rules/set.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- Names ---- */

enum { NAME_MAX_BYTES = 56, HEADER_MAX = 64 };

bool weir__attribute_is_always(const char *attribute)
{
    static const char *const always[] = {"client_ip", "path", "method", "host"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (strcmp(attribute, always[i]) == 0)
            return true;
    return false;
}

bool weir__attribute_is_named(const char *attribute)
{
    return !weir__attribute_is_always(attribute) && !strchr(attribute, ':');
}

/* An attribute of the application: [a-z_][a-z0-9_]*, and not a field of `match`. */
static const char *named(const char *text, size_t len)
{
    static const char *const taken[] = {"header", "query", "network", "cookie"};
    char *name = weir__format("%s%.*s", len == 0 || isdigit((unsigned char)text[0]) ? "_" : "",
                              (int)(len < NAME_MAX_BYTES ? len : NAME_MAX_BYTES), text);
    name[strnlen(name, NAME_MAX_BYTES)] = '\0';
    for (char *c = name; *c; c++)
        *c = weir__is_letter(*c) || weir__is_digit(*c) ? (char)weir__lower(*c) : '_';
    bool is_taken = weir__attribute_is_always(name);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        is_taken |= strcmp(name, taken[i]) == 0;
    return is_taken ? weir__format("%s_", name) : name;
}

/* Names with a fixed meaning, and their attributes. */
typedef const char *const known_name[2];

static const char *look_up(known_name *list, size_t count, const char *text, size_t len)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i][0]) == len && memcmp(list[i][0], text, len) == 0)
            return list[i][1];
    return NULL;
}

/* True if it may be the name of a header: other names have no dashes. */
static bool is_header(const char *text)
{
    for (const char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '_')
            return false;
    return strchr(text, '-') && strlen(text) < HEADER_MAX;
}

const char *weir__attribute_for_key(const char *key, int number)
{
    static known_name keys[] = {{"remote_address", "client_ip"},
                                {"masked_remote_address", "client_ip"},
                                {"client_ip", "client_ip"},
                                {"path", "path"},
                                {":path", "path"},
                                {"request_path", "path"},
                                {"method", "method"},
                                {":method", "method"},
                                {"request_method", "method"},
                                {"host", "host"},
                                {"authority", "host"},
                                {":authority", "host"}};
    const char *known = look_up(keys, sizeof keys / sizeof *keys, key, strlen(key));
    if (number > 1)
        return weir__format("%s_%d", named(key, strlen(key)), number);
    return known ? known : is_header(key) ? weir__format("header:%s", key) : named(key, strlen(key));
}

const char *weir__attribute_for_variable(const char *variable, size_t len, bool *known)
{
    static known_name variables[] = {{"binary_remote_addr", "client_ip"},
                                     {"remote_addr", "client_ip"},
                                     {"realip_remote_addr", "client_ip"},
                                     {"uri", "path"},
                                     {"document_uri", "path"},
                                     {"request_uri", "path"},
                                     {"request_method", "method"},
                                     {"host", "host"},
                                     {"server_name", "host"},
                                     {"http_host", "host"}};
    static known_name prefixes[] = {{"http_", "header:"}, {"cookie_", "cookie:"}, {"arg_", "query:"}};
    const char *attribute = look_up(variables, sizeof variables / sizeof *variables, variable, len);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !attribute; i++) {
        size_t skip = strlen(prefixes[i][0]);
        if (len <= skip || len - skip >= HEADER_MAX || memcmp(variable, prefixes[i][0], skip) != 0)
            continue;
        char *made = weir__format("%s%.*s", prefixes[i][1], (int)(len - skip), variable + skip);
        for (char *c = made; *c && i == 0; c++)
            *c = *c == '_' ? '-' : *c;
        attribute = made;
    }
    *known = attribute != NULL;
    return attribute ? attribute : named(variable, len);
}

/* ---- Conditions ---- */

const char *weir__regex(const char *text, bool stars)
{
    struct weir__buffer to = {0};
    for (; *text; text++) {
        if (*text == '*' && stars)
            weir__buffer_printf(&to, ".*");
        else
            weir__buffer_printf(&to, "%s%c", strchr("\\^$.[]|()?*+{}", *text) ? "\\" : "", *text);
    }
    return weir__buffer_keep(&to);
}

bool weir__is_network(const char *text)
{
    struct weir__network network;
    bool host_bits;
    return weir__network_parse(weir__text_of(text), &network, &host_bits);
}

/* A value as a pattern: in paths '*' stops at '/', so it becomes "**" unless it is the last segment. */
static const char *pattern_of(const char *attribute, const char *value)
{
    struct weir__buffer pattern = {0};
    for (const char *c = value; *c; c++) {
        bool last = c[1] == '\0' && c > value && c[-1] == '/';
        weir__buffer_printf(&pattern, "%s%c", *c == '*' && strcmp(attribute, "path") == 0 && !last ? "*" : "", *c);
    }
    return weir__scalar(weir__buffer_keep(&pattern));
}

/* Adds a member to a map such as `header: { a: x }`, which may exist: `match` has each field once. */
static void put_member(struct weir__buffer *match, const char *field, const char *name, const char *pattern)
{
    const char *start = weir__format("%s: { ", field), *added = weir__format("%s: %s }\n", weir__scalar(name), pattern);
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

bool weir__put_condition(struct weir__buffer *match, const char *attribute, const char *value,
                         const char *const *rivals, size_t rival_count)
{
    const char *colon = strchr(attribute, ':');
    bool address = strcmp(attribute, "client_ip") == 0;
    struct weir__buffer others = {0};
    bool networks = !*value || weir__is_network(value);
    for (size_t i = 0; i < rival_count; i++) {
        networks &= weir__is_network(rivals[i]);
        if (*value) /* in a regular expression, which matches the pattern without its rivals */
            weir__buffer_printf(&others, "%s%s", i ? "|" : "", weir__regex(rivals[i], true));
        else
            weir__buffer_printf(&others, "%s%s", i ? ", " : "", pattern_of(attribute, rivals[i]));
    }
    const char *text = pattern_of(attribute, value), *but = weir__buffer_keep(&others);
    if (!*value)
        text = weir__format("{ not: [%s] }", but);
    else if (rival_count > 0)
        text = weir__format("{ regex: %s }",
                            weir__scalar(weir__format("(?s)^(?!(?:%s)$)%s$", but, weir__regex(value, true))));
    if (!*value && rival_count == 0)
        return true;
    if (address && !networks)
        return false;
    if (colon)
        put_member(match, weir__format("%.*s", (int)(colon - attribute), attribute), colon + 1, text);
    else
        weir__buffer_printf(match, "%s: %s\n", address ? "network" : attribute, text);
    return true;
}
