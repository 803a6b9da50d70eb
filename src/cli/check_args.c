/* weir check: the command line, and the request or descriptors that it describes. */
#include "cli/check.h"
#include "base/clock.h"
#include "base/duration.h"
#include "cli/diagnose.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool reject(const char *what, const char *given, const char *expected)
{
    fprintf(stderr, "weir check: %s '%s': %s\n", what, given, expected);
    return false;
}

static bool add(struct weir__check *check, enum weir_attribute_kind kind, const char *name, const char *value)
{
    check->attributes = weir__grow(check->attributes, check->attribute_count, sizeof *check->attributes);
    check->attributes[check->attribute_count++] = (weir_attribute){kind, name, value};
    return true;
}

/* Characters of a token, as in RFC 9110: names of headers, methods. */
static size_t token_length(const char *text)
{
    size_t len = 0;
    while (weir__is_token(text[len]))
        len++;
    return len;
}

/* Adds "Name: value"; several headers of one name are joined, as the library expects. */
static bool add_header(struct weir__check *check, const char *line)
{
    size_t name_len = token_length(line);
    const char *value = line + name_len + 1;
    if (name_len == 0 || line[name_len] != ':' || strpbrk(line, "\r\n"))
        return reject("-H", line, "not a header; write 'Name: value'");
    weir_text trimmed = weir__text_trim(weir__text_of(value));
    const char *name = weir__format("%.*s", (int)name_len, line);
    const char *text = weir__format("%.*s", (int)trimmed.len, trimmed.data);
    if (strcasecmp(name, "Host") == 0)
        check->host = text;
    if (strcasecmp(name, "Accept") == 0 && strcasestr(text, "application/problem+json"))
        check->accepts_problem = true;
    for (size_t i = 0; i < check->attribute_count; i++) {
        weir_attribute *same = &check->attributes[i];
        if (same->kind != WEIR_ATTR_HEADER || strcasecmp(same->name, name) != 0)
            continue;
        same->value = weir__format("%s%s%s", same->value, strcasecmp(name, "Cookie") == 0 ? "; " : ", ", text);
        return true;
    }
    return add(check, WEIR_ATTR_HEADER, name, text);
}

/* Adds "name=value", a named attribute. */
static bool add_named(struct weir__check *check, const char *pair)
{
    size_t len = 0;
    while (islower((unsigned char)pair[len]) || pair[len] == '_' || (len > 0 && isdigit((unsigned char)pair[len])))
        len++;
    if (len == 0 || pair[len] != '=')
        return reject("-A", pair, "not an attribute; write name=value, the name of a-z, 0-9 and _");
    return add(check, WEIR_ATTR_NAMED, weir__format("%.*s", (int)len, pair), pair + len + 1);
}

/* Cuts the URL into host and target. */
static bool take_url(struct weir__check *check, const char *url)
{
    const char *path = url;
    for (const char *at = url; *at != '\0'; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            return reject("URL", url, "it contains a blank or a control character; write it as %20");
    if (strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0) {
        const char *host = strchr(url, '/') + 2;
        size_t len = strcspn(host, "/?#");
        path = host + len;
        const char *at = memrchr(host, '@', len); /* behind user and password */
        host = at ? at + 1 : host;
        if (host == path)
            return reject("URL", url, "it has no host");
        if (!check->host)
            check->host = weir__format("%.*s", (int)(path - host), host);
    } else if (url[0] != '/' && strcmp(url, "*") != 0) {
        return reject("URL", url, "begin it with '/' or 'http://'");
    }
    check->target = weir__format("%s%.*s", *path == '/' || *path == '*' ? "" : "/", (int)strcspn(path, "#"), path);
    return true;
}

static bool finish_request(struct weir__check *check)
{
    check->method = check->given->argument_count > 1 ? check->given->arguments[0] : "GET";
    if (check->given->argument_count > 2)
        return reject("argument", check->given->arguments[2], "one METHOD and one URL");
    if (check->given->argument_count > 1 && check->method[token_length(check->method)] != '\0')
        return reject("METHOD", check->method, "not a method; write it before the URL, such as POST");
    const char *url = check->given->arguments[check->given->argument_count - 1];
    if (!strchr(url, '/') && strchr(url, '='))
        return reject("URL", url, "a descriptor needs --domain");
    if (!take_url(check, url))
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
    char *at = weir__format("%s", word);
    weir_descriptor_entry *entries = weir__keep(calloc(most, sizeof *entries));
    weir_descriptor *descriptor = &check->descriptors[check->descriptor_count++];
    descriptor->entries = entries;
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

/* Makes the request or the descriptors of the arguments, when all options are known. */
static bool finish(struct weir__check *check)
{
    if (!check->domain)
        return finish_request(check);
    check->descriptors = weir__keep(calloc(check->given->argument_count, sizeof *check->descriptors));
    for (size_t i = 0; i < check->given->argument_count; i++)
        if (!add_descriptor(check, check->given->arguments[i]))
            return false;
    return true;
}

/* ---- The command line ---- */

#define COST_MAX   INT64_C(4294967295)
#define REPEAT_MAX 1000000
#define AT_PAST_NS (5 * WEIR_SECOND) /* by how much --at of a segment may be in the past: clocks differ */

static bool is_address(const char *text)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

/* Options that contradict one another, once all are known. */
static bool makes_sense(const struct weir__check *check)
{
    const char *why = NULL;
    if (!check->rules)
        why = "which rules? give --rules FILE; there is no weir.yaml in this directory";
    else if (weir__option(check->given, "take") && !check->segment)
        why = "--take is for --segment; without one the counters are discarded";
    else if (check->domain && (check->has_cost || check->ip || check->attribute_count > 0))
        why = "--cost, --ip, -H and -A are of requests; with --domain give descriptors and --hits";
    else if (!check->domain && check->hits > 0)
        why = "--hits is for descriptors (--domain); requests have --cost";
    else if (check->given->argument_count == 0)
        why = check->domain ? "which descriptor? give KEY=VALUE,KEY=VALUE" : "which request? give METHOD URL";
    if (why)
        fprintf(stderr, "weir check: %s\n'weir check --help' explains them\n", why);
    return !why;
}

/* Reads options that are not text. */
static bool read_values(struct weir__check *check, const struct weir__given *given)
{
    const char *at = weir__option(given, "at"), *repeat = weir__option(given, "repeat"),
               *every = weir__option(given, "every"), *cost = weir__option(given, "cost"),
               *hits = weir__option(given, "hits");
    check->has_at = at;
    check->has_cost = cost;
    if (at && !(weir__read_time(at, &check->at_ns) && check->at_ns > 0))
        return reject("--at", at, "not a time; use seconds since 1970 or 2026-01-02T03:04:05Z, from 1970 to 2199");
    if (at && check->segment && check->at_ns < weir__clock_ns(CLOCK_REALTIME) - AT_PAST_NS)
        return reject("--at", at,
                      "in the past, and a segment has only the counters of now; leave out --at, or leave out --segment "
                      "to play it against fresh counters at that time");
    if (repeat && !weir__read_int(repeat, 1, REPEAT_MAX, &check->repeat))
        return reject("--repeat", repeat, "use a number from 1 to 1000000");
    if (every && !weir__parse_duration(weir__text_of(every), INT64_C(90000) * 86400 * WEIR_SECOND, &check->every_ns))
        return reject("--every", every, "not a duration; use seconds, or a number with us, ms, s, m, h, d, w, mo or y");
    if (cost && !weir__read_int(cost, -COST_MAX, COST_MAX, &check->cost))
        return reject("--cost", cost, "use a whole number from -4294967295 to 4294967295");
    if (hits && !weir__read_int(hits, 1, COST_MAX, &check->hits))
        return reject("--hits", hits, "use a whole number from 1 to 4294967295");
    return !check->ip || is_address(check->ip) || reject("--ip", check->ip, "not an IPv4 or IPv6 address");
}

bool weir__check_parse(struct weir__check *check, const struct weir__given *given)
{
    const char *rules = weir__option(given, "rules");
    *check = (struct weir__check){.rules = rules ? rules : weir__input_default(),
                                  .segment = weir__option(given, "segment"),
                                  .domain = weir__option(given, "domain"),
                                  .ip = weir__option(given, "ip"),
                                  .repeat = 1,
                                  .given = given};
    for (size_t i = 0; i < given->option_count; i++) {
        const struct weir__given_option *option = &given->options[i];
        if ((weir__text_is(option->name, "header") && !add_header(check, option->value)) ||
            (weir__text_is(option->name, "attribute") && !add_named(check, option->value)))
            return false;
    }
    return read_values(check, given) && makes_sense(check) && finish(check);
}
