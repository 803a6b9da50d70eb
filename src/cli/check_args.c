/* weir check: the command line, and the request or descriptors that it describes. */
#include "cli/check.h"
#include "base/text.h"
#include "base/duration.h"
#include "cli/diagnose.h"
#include "cli/cli.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool reject(const char *what, const char *given, const char *expected)
{
    fprintf(stderr, "weir check: %s '%s': %s\n", what, given, expected);
    return false;
}

/* Frees the text in weir__check_drop. Returns it. */
static char *own(struct weir__check *check, char *text)
{
    check->owned = weir__grow(check->owned, check->owned_count, sizeof *check->owned);
    return check->owned[check->owned_count++] = weir__must(text);
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
    check->attributes = weir__grow(check->attributes, check->attribute_count, sizeof *check->attributes);
    check->attributes[check->attribute_count++] = (weir_attribute){kind, name, value};
    return true;
}

/* Formats a text that weir__check_drop frees. */
__attribute__((format(printf, 2, 3))) static char *print(struct weir__check *check, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    return own(check, text);
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
static bool add_header(void *context, const char *line)
{
    struct weir__check *check = context;
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
    if (strcasecmp(name, "Host") == 0)
        check->host = text;
    if (strcasecmp(name, "Accept") == 0 && strcasestr(text, "application/problem+json"))
        check->accepts_problem = true;
    for (size_t i = 0; i < check->attribute_count; i++) {
        weir_attribute *same = &check->attributes[i];
        if (same->kind != WEIR_ATTR_HEADER || strcasecmp(same->name, name) != 0)
            continue;
        same->value = print(check, "%s%s%s", same->value, strcasecmp(name, "Cookie") == 0 ? "; " : ", ", text);
        return true;
    }
    return add(check, WEIR_ATTR_HEADER, name, text);
}

/* Adds "name=value", a named attribute. */
static bool add_named(void *context, const char *pair)
{
    struct weir__check *check = context;
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
    check->target = print(check, "%s%.*s", *path == '/' || *path == '*' ? "" : "/", (int)strcspn(path, "#"), path);
    return true;
}

static bool finish_request(struct weir__check *check)
{
    check->method = check->argument_count > 1 ? check->arguments[0] : "GET";
    if (check->argument_count > 2)
        return reject("argument", check->arguments[2], "one METHOD and one URL");
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
    weir_descriptor_entry *entries = weir__must(calloc(most, sizeof *entries));
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
    check->descriptors = weir__must(calloc(check->argument_count, sizeof *check->descriptors));
    for (size_t i = 0; i < check->argument_count; i++)
        if (!add_descriptor(check, check->arguments[i]))
            return false;
    return true;
}

/* ---- The command line ---- */

#define COST_MAX   INT64_C(4294967295)
#define REPEAT_MAX 1000000

static const char usage[] =
    "usage: weir check [--rules FILE|DIR] [OPTIONS] [METHOD] URL\n"
    "       weir check [--rules FILE|DIR] --domain DOMAIN [OPTIONS] KEY=VALUE[,KEY=VALUE...]...\n"
    "Plays a request against rules and shows the decision and its reason. The URL is absolute, or a path.\n"
    "With --domain it plays descriptors, one an argument ('\\,' is a comma in a value).\n"
    "\n"
    "  -r, --rules PATH        a file, a directory, '-' for standard input, or a weir.yaml (the default)\n"
    "  -i, --ip ADDR           the address the connection comes from\n"
    "  -H, --header 'N: V'     a header of the request; may be given several times\n"
    "  -A, --attribute N=V     a named attribute, such as user_id=42; may be given several times\n"
    "      --cost N            the cost, instead of that of the rules; 0 only reads, negative refunds\n"
    "      --hits N            the cost of descriptors\n"
    "      --at TIME           the time: seconds since 1970, or ISO 8601 (2026-01-02T03:04:05Z)\n"
    "      --repeat N          play it N times and show each (--all: also if they are many)\n"
    "      --every DURATION    the time between them (100ms, 2s, 1m); default: none\n"
    "      --segment PATH      use these counters, or those of a weir.yaml; only reads them, unless:\n"
    "      --take              take from them\n"
    "      --json              one object\n"
    "      --exit-code         exit with 1 if the request is denied\n"
    "\n"
    "Without --segment the counters are new and discarded afterwards. Exits with 0 if the request could be\n"
    "played, 1 if not (the rules have errors, no such segment), 2 for a wrong command line.\n";

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
    else if (check->take && !check->segment)
        why = "--take is for --segment; without one the counters are discarded";
    else if (check->domain && (check->has_cost || check->ip || check->attribute_count > 0))
        why = "--cost, --ip, -H and -A are of requests; with --domain give descriptors and --hits";
    else if (!check->domain && check->hits > 0)
        why = "--hits is for descriptors (--domain); requests have --cost";
    else if (check->argument_count == 0)
        why = check->domain ? "which descriptor? give KEY=VALUE,KEY=VALUE" : "which request? give METHOD URL";
    if (why)
        fprintf(stderr, "weir check: %s\n'weir check --help' explains them\n", why);
    return !why;
}

/* The values of options that are not text. */
struct check_values {
    const char *at, *repeat, *every, *cost, *hits;
};

static bool read_values(struct weir__check *check, const struct check_values *given)
{
    if (given->at && !((check->has_at = weir__read_time(given->at, &check->at_ns)) && check->at_ns > 0))
        return reject("--at", given->at,
                      "not a time; use seconds since 1970 or 2026-01-02T03:04:05Z, from 1970 to 2199");
    if (given->repeat && !weir__read_int(given->repeat, 1, REPEAT_MAX, &check->repeat))
        return reject("--repeat", given->repeat, "use a number from 1 to 1000000");
    if (given->every &&
        !weir__parse_duration(weir__text_of(given->every), INT64_C(90000) * 86400 * WEIR_SECOND, &check->every_ns))
        return reject("--every", given->every,
                      "not a duration; use seconds, or a number with us, ms, s, m, h, d, w, mo or y");
    if (given->cost && !(check->has_cost = weir__read_int(given->cost, -COST_MAX, COST_MAX, &check->cost)))
        return reject("--cost", given->cost, "use a whole number from -4294967295 to 4294967295");
    if (given->hits && !weir__read_int(given->hits, 1, COST_MAX, &check->hits))
        return reject("--hits", given->hits, "use a whole number from 1 to 4294967295");
    return !check->ip || is_address(check->ip) || reject("--ip", check->ip, "not an IPv4 or IPv6 address");
}

int weir__check_parse(struct weir__check *check, int argc, char **argv)
{
    struct check_values values = {0};
    const struct weir__option options[] = {
        {"rules", 'r', .value = &check->rules},   {"segment", 's', .value = &check->segment},
        {"domain", 'd', .value = &check->domain}, {"at", .value = &values.at},
        {"repeat", 'n', .value = &values.repeat}, {"every", .value = &values.every},
        {"cost", .value = &values.cost},          {"hits", .value = &values.hits},
        {"ip", 'i', .value = &check->ip},         {"header", 'H', .take = add_header},
        {"attribute", 'A', .take = add_named},    {"take", .flag = &check->take},
        {"json", .flag = &check->json},           {"exit-code", .flag = &check->exit_code},
        {"all", 'a', .flag = &check->all}};
    *check = (struct weir__check){.repeat = 1, .arguments = weir__must(calloc((size_t)argc, sizeof(const char *)))};
    struct weir__args args = {"check",          usage,        options, sizeof options / sizeof *options,
                              check->arguments, (size_t)argc, 0,       check};
    int code = weir__args_read(&args, argc, argv);
    if (code >= 0)
        return code;
    check->argument_count = args.argument_count;
    check->rules = check->rules ? check->rules : weir__input_default();
    return read_values(check, &values) && makes_sense(check) && finish(check) ? -1 : 2;
}
