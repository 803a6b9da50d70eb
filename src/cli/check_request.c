/* weir check: from words of the command line to a request or descriptors. */
#define _GNU_SOURCE /* strdup, strndup, asprintf */
#include "cli/check.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool reject(const char *what, const char *given, const char *expected)
{
    fprintf(stderr, "weir check: %s '%s': %s\n", what, given, expected);
    return false;
}

static bool no_memory(void)
{
    fprintf(stderr, "weir check: %s\n", weir_strerror(WEIR_ENOMEM));
    return false;
}

/* Keeps a text until weir__check_drop; NULL, also if `text` is. */
static char *own(struct weir__check *check, char *text)
{
    if (text && check->owned_count == check->owned_room) {
        size_t room = check->owned_room ? 2 * check->owned_room : 32;
        char **list = realloc(check->owned, room * sizeof *list);
        if (!list) {
            free(text);
            return NULL;
        }
        check->owned = list;
        check->owned_room = room;
    }
    if (text)
        check->owned[check->owned_count++] = text;
    return text;
}

void weir__check_drop(struct weir__check *check)
{
    for (size_t i = 0; i < check->owned_count; i++)
        free(check->owned[i]);
    for (size_t i = 0; i < check->descriptor_count; i++)
        free((void *)check->descriptors[i].entries);
    free(check->owned);
    free(check->descriptors);
    free(check->attributes);
    free(check->arguments);
}

static bool add(struct weir__check *check, enum weir_attribute_kind kind, const char *name, const char *value)
{
    weir_attribute *list = NULL;
    if (name && value)
        list = realloc(check->attributes, (check->attribute_count + 1) * sizeof *list);
    if (!list)
        return no_memory();
    check->attributes = list;
    check->attributes[check->attribute_count++] = (weir_attribute){kind, name, value};
    return true;
}

/* Characters of a token, as in RFC 9110: names of headers, methods. */
static size_t token_length(const char *text)
{
    size_t len = 0;
    while (isalnum((unsigned char)text[len]) || (text[len] && strchr("!#$%&'*+-.^_`|~", text[len])))
        len++;
    return len;
}

bool weir__check_add_header(struct weir__check *check, const char *line)
{
    size_t name_len = token_length(line);
    const char *value = line + name_len + 1;
    if (name_len == 0 || line[name_len] != ':' || strpbrk(line, "\r\n"))
        return reject("-H", line, "not a header; write 'Name: value'");
    value += strspn(value, " \t");
    size_t value_len = strlen(value);
    while (value_len > 0 && (value[value_len - 1] == ' ' || value[value_len - 1] == '\t'))
        value_len--;
    char *name = own(check, strndup(line, name_len));
    char *text = own(check, strndup(value, value_len));
    if (!name || !text)
        return no_memory();
    if (strcasecmp(name, "Host") == 0)
        check->host = text;
    if (strcasecmp(name, "Accept") == 0 && strcasestr(text, "application/problem+json"))
        check->accepts_problem = true;
    for (size_t i = 0; i < check->attribute_count; i++) {
        weir_attribute *same = &check->attributes[i];
        if (same->kind != WEIR_ATTR_HEADER || strcasecmp(same->name, name) != 0)
            continue;
        char *joined = NULL;
        const char *between = strcasecmp(name, "Cookie") == 0 ? "; " : ", ";
        if (asprintf(&joined, "%s%s%s", same->value, between, text) < 0 || !own(check, joined))
            return no_memory();
        same->value = joined;
        return true;
    }
    return add(check, WEIR_ATTR_HEADER, name, text);
}

bool weir__check_add_named(struct weir__check *check, const char *pair)
{
    size_t len = 0;
    while (islower((unsigned char)pair[len]) || pair[len] == '_' || (len > 0 && isdigit((unsigned char)pair[len])))
        len++;
    if (len == 0 || pair[len] != '=')
        return reject("-A", pair, "not an attribute; write name=value, the name of a-z, 0-9 and _");
    return add(check, WEIR_ATTR_NAMED, own(check, strndup(pair, len)), pair + len + 1);
}

/* Cuts the URL into host and target. */
static bool take_url(struct weir__check *check)
{
    const char *url = check->url;
    const char *path = url;
    for (const char *at = url; *at != '\0'; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            return reject("URL", url, "it contains a blank or a control character; write it as %20");
    if (strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0) {
        const char *host = strchr(url, '/') + 2;
        size_t len = strcspn(host, "/?#");
        path = host + len;
        for (size_t i = 0; i < len; i++)
            if (host[i] == '@') { /* user and password */
                host += i + 1;
                len -= i + 1;
                i = 0;
            }
        if (len == 0)
            return reject("URL", url, "it has no host");
        if (!check->host)
            check->host = own(check, strndup(host, len));
    } else if (url[0] != '/' && strcmp(url, "*") != 0) {
        return reject("URL", url, "begin it with '/' or 'http://'");
    }
    char *target = NULL;
    if (asprintf(&target, "%s%.*s", *path == '/' || *path == '*' ? "" : "/", (int)strcspn(path, "#"), path) < 0)
        target = NULL;
    check->target = own(check, target);
    return check->target || no_memory();
}

static bool finish_request(struct weir__check *check)
{
    check->method = check->argument_count > 1 ? check->arguments[0] : "GET";
    if (check->argument_count > 2)
        return reject("argument", check->arguments[2], "one METHOD and one URL, please");
    if (check->argument_count > 1 && check->method[token_length(check->method)] != '\0')
        return reject("METHOD", check->method, "not a method; write it before the URL, such as POST");
    check->url = check->arguments[check->argument_count - 1];
    if (!strchr(check->url, '/') && strchr(check->url, '='))
        return reject("URL", check->url, "a descriptor needs --domain");
    if (!take_url(check))
        return false;
    return add(check, WEIR_ATTR_TARGET, "", check->target) && add(check, WEIR_ATTR_METHOD, "", check->method) &&
           (!check->host || add(check, WEIR_ATTR_HOST, "", check->host)) &&
           (!check->ip || add(check, WEIR_ATTR_PEER, "", check->ip));
}

/* Takes the part of `*at` up to an unescaped `stop` or comma, without its backslashes, in place. */
static weir_text cut(char **at, char stop, char *stopped_at)
{
    char *begin = *at, *to = *at, *from = *at;
    while (*from && *from != ',' && *from != stop) {
        if (*from == '\\' && from[1])
            from++;
        *to++ = *from++;
    }
    *stopped_at = *from;
    *at = from + (*from != '\0');
    return (weir_text){begin, (size_t)(to - begin)};
}

/* "key=value,key=value" */
static bool add_descriptor(struct weir__check *check, const char *word)
{
    size_t most = 1;
    for (const char *c = word; *c; c++)
        most += *c == ',';
    char *at = own(check, strdup(word));
    weir_descriptor_entry *entries = calloc(most, sizeof *entries);
    weir_descriptor *descriptor = &check->descriptors[check->descriptor_count];
    if (!at || !entries) {
        free(entries);
        return no_memory();
    }
    descriptor->entries = entries;
    check->descriptor_count++;
    for (char stopped = ','; stopped == ',';) {
        weir_descriptor_entry *entry = &entries[descriptor->entry_count++];
        entry->key = cut(&at, '=', &stopped);
        entry->value = (weir_text){"", 0};
        if (entry->key.len == 0)
            return reject("descriptor", word, "write KEY=VALUE,KEY=VALUE");
        if (stopped == '=')
            entry->value = cut(&at, '\0', &stopped);
    }
    return true;
}

bool weir__check_finish(struct weir__check *check)
{
    if (!check->domain)
        return finish_request(check);
    check->descriptors = calloc(check->argument_count, sizeof *check->descriptors);
    if (!check->descriptors)
        return no_memory();
    for (size_t i = 0; i < check->argument_count; i++)
        if (!add_descriptor(check, check->arguments[i]))
            return false;
    return true;
}
