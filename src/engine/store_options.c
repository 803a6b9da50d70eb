/* Parsing of the store's URL and options. */
#include "engine/store_options.h"
#include "base/duration.h"
#include "base/number.h"

#include "rules/yaml.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PORT          6379
#define SENTINEL_PORT 26379
#define HOUR_US       (INT64_C(3600) * 1000000)

/* Where the message about an error goes. */
struct why {
    char *to;
    size_t size;
};

static int wrong(const struct why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int wrong(const struct why *why, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    if (why->size > 0)
        vsnprintf(why->to, why->size, format, list);
    va_end(list);
    return WEIR_ESTOREURL;
}

/* Decodes %XX. False: malformed, too long, or a zero byte. */
static bool unescape(weir_text text, char *to, size_t size)
{
    size_t len = 0;

    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '%') {
            int high = text.len - i < 3 ? -1 : weir__hex_value(text.data[i + 1]);
            int low = text.len - i < 3 ? -1 : weir__hex_value(text.data[i + 2]);
            if (high < 0 || low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (c == '\0' || len + 1 >= size)
            return false;
        to[len++] = c;
    }
    to[len] = '\0';
    return true;
}

/* Removes what is before the first of `marks` from `rest` and returns it; the mark stays in `rest`. */
static weir_text cut(weir_text *rest, const char *marks)
{
    weir_text before = {rest->data, 0};

    while (before.len < rest->len && !strchr(marks, rest->data[before.len]))
        before.len++;
    rest->data += before.len;
    rest->len -= before.len;
    return before;
}

static bool skip(weir_text *rest, const char *word)
{
    size_t len = strlen(word);

    if (rest->len < len || memcmp(rest->data, word, len) != 0)
        return false;
    rest->data += len;
    rest->len -= len;
    return true;
}

/* ---- Options by name ---- */

static int set_duration(int64_t *to, const char *name, const char *value, int64_t least_us, const struct why *why)
{
    weir_text text = weir__text_of(value);
    int64_t bare, ns;

    /* Refuses a number without a unit: seconds or milliseconds could be meant. */
    if (weir__parse_int(text, &bare) || !weir__parse_duration(text, HOUR_US * 1000, &ns) || ns / 1000 < least_us)
        return wrong(why, "%s: '%.40s' is not a duration between %lld us and 1 hour; write it as in 20ms or 1s", name,
                     value, (long long)least_us);
    *to = ns / 1000;
    return 0;
}

static int set_bool(bool *to, const char *name, const char *value, const struct why *why)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};

    for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++) {
        if (strcmp(value, yes[i]) == 0 || strcmp(value, no[i]) == 0) {
            *to = strcmp(value, yes[i]) == 0;
            return 0;
        }
    }
    return wrong(why, "%s: '%.40s' is neither true nor false", name, value);
}

/* Does not repeat the value in the message: it may be a secret. */
static int set_text(char *to, size_t size, const char *name, const char *value, const struct why *why)
{
    if (strlen(value) >= size)
        return wrong(why, "%s is longer than %zu bytes", name, size - 1);
    memcpy(to, value, strlen(value) + 1);
    return 0;
}

static int set_prefix(struct weir__store_options *options, const char *value, const struct why *why)
{
    /* Braces would put all keys of a cluster into one slot; blanks and quotes make names hard to type. */
    for (const char *c = value; *c; c++)
        if (*c <= ' ' || *c == 0x7f || strchr("{}%\"'", *c))
            return wrong(why, "prefix: no blanks, quotes, braces or per cent signs, and only ASCII");
    if (*value == '\0')
        return wrong(why, "prefix is empty; leave it out for 'weir'");
    return set_text(options->prefix, sizeof(options->prefix), "prefix", value, why);
}

static int set_failures(struct weir__store_options *options, const char *value, const struct why *why)
{
    int64_t count;

    if (!weir__parse_int((weir_text){value, strlen(value)}, &count) || count < 1 || count > 1000000)
        return wrong(why, "breaker_failures: '%.40s' is not a number from 1 to 1000000", value);
    options->breaker_failures = (unsigned)count;
    return 0;
}

static int set_verify(struct weir__store_options *options, const char *value, const struct why *why)
{
    bool verify;
    int error = set_bool(&verify, "verify", value, why);

    if (!error)
        options->no_verify = !verify;
    return error;
}

static int set_option(struct weir__store_options *options, const char *name, const char *value, const struct why *why)
{
    const struct {
        const char *name;
        int64_t *to;
        int64_t least_us;
    } durations[] = {{"deadline", &options->deadline_us, 100},
                     {"connect_timeout", &options->connect_us, 1000},
                     {"sync_interval", &options->sync_interval_us, 1000},
                     {"retry_min", &options->retry_min_us, 1000},
                     {"retry_max", &options->retry_max_us, 1000}};
    const struct {
        const char *name;
        char *to;
        size_t size;
    } texts[] = {{"ca", options->ca, sizeof(options->ca)},
                 {"certificate", options->certificate, sizeof(options->certificate)},
                 {"key", options->key, sizeof(options->key)},
                 {"server_name", options->server_name, sizeof(options->server_name)},
                 {"user", options->user, sizeof(options->user)},
                 {"password", options->password, sizeof(options->password)},
                 {"sentinel_user", options->sentinel_user, sizeof(options->sentinel_user)},
                 {"sentinel_password", options->sentinel_password, sizeof(options->sentinel_password)}};

    for (size_t i = 0; i < sizeof(durations) / sizeof(*durations); i++)
        if (strcmp(name, durations[i].name) == 0)
            return set_duration(durations[i].to, name, value, durations[i].least_us, why);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (strcmp(name, texts[i].name) == 0)
            return set_text(texts[i].to, texts[i].size, name, value, why);
    if (strcmp(name, "prefix") == 0)
        return set_prefix(options, value, why);
    if (strcmp(name, "hash_keys") == 0)
        return set_bool(&options->hash_keys, name, value, why);
    if (strcmp(name, "verify") == 0)
        return set_verify(options, value, why);
    if (strcmp(name, "breaker_failures") == 0)
        return set_failures(options, value, why);
    return wrong(why, "there is no option '%.40s'", name);
}

int weir__store_option(struct weir__store_options *options, const char *name, const char *value, char *why,
                       size_t why_size)
{
    return set_option(options, name, value, &(struct why){why, why_size});
}

/* ---- Parts of the URL ---- */

static int read_scheme(weir_text *rest, struct weir__store_options *options, const struct why *why)
{
    if (!skip(rest, "redis") && !skip(rest, "valkey"))
        return wrong(why, "the URL starts with redis://, rediss://, redis+unix://, redis+sentinel:// or "
                          "redis+cluster://");
    options->tls = skip(rest, "s");
    if (skip(rest, "+sentinel"))
        options->kind = WEIR__SENTINEL;
    else if (skip(rest, "+cluster"))
        options->kind = WEIR__CLUSTER;
    else if (skip(rest, "+unix"))
        options->unix_socket = true;
    if (!skip(rest, "://"))
        return wrong(why, "there is no such kind of store; use redis://, rediss://, redis+unix://, redis+sentinel:// "
                          "or redis+cluster://");
    if (options->unix_socket && options->tls)
        return wrong(why, "TLS is not supported over a unix socket; use redis+unix://");
    return 0;
}

/*
 * An unescaped @ of a password would make the rest of the password a host, which is displayed. An @ is allowed in the
 * query and in a master's name.
 */
static bool has_stray_at(weir_text rest, const struct weir__store_options *options)
{
    weir_text part = cut(&rest, options->kind == WEIR__SENTINEL ? "/?" : "?");

    return part.len > 0 && memchr(part.data, '@', part.len) != NULL;
}

static int read_login(weir_text *rest, struct weir__store_options *options, const struct why *why)
{
    weir_text all = *rest, login = cut(&all, "@/?");

    bool given = all.len > 0 && all.data[0] == '@';
    weir_text after = given ? (weir_text){all.data + 1, all.len - 1} : all;

    if (has_stray_at(after, options))
        return wrong(why, "an @ or / in user or password is written as %%40 or %%2F");
    if (!given)
        return 0;
    *rest = after;
    weir_text password = login, user = cut(&password, ":");
    if (password.len > 0)
        password = (weir_text){password.data + 1, password.len - 1};
    if (!unescape(user, options->user, sizeof(options->user)) ||
        !unescape(password, options->password, sizeof(options->password)))
        return wrong(why, "user or password before the @ is too long or has a wrong %%XX");
    return 0;
}

static int read_port(weir_text text, uint16_t *port, const struct why *why)
{
    int64_t number;

    if (!weir__parse_int(text, &number) || number < 1 || number > 65535)
        return wrong(why, "a host's port is not a number from 1 to 65535"); /* not repeated: it may be a password */
    *port = (uint16_t)number;
    return 0;
}

static int read_host(weir_text text, struct weir__store_options *options, const struct why *why)
{
    struct weir__store_host *host = &options->seeds[options->seed_count];
    weir_text rest = text, name;

    host->port = options->kind == WEIR__SENTINEL ? SENTINEL_PORT : PORT;
    if (skip(&rest, "[")) {
        name = cut(&rest, "]");
        if (!skip(&rest, "]"))
            return wrong(why, "the address lacks its ]");
    } else {
        name = cut(&rest, ":");
    }
    if (name.len == 0 || !unescape(name, host->name, sizeof(host->name)))
        return wrong(why, "a host's name is missing, too long or has a wrong %%XX");
    options->seed_count++;
    if (rest.len == 0)
        return 0;
    if (!skip(&rest, ":"))
        return wrong(why, "after the address comes a colon and the port, or nothing");
    return read_port(rest, &host->port, why);
}

static int read_hosts(weir_text *rest, struct weir__store_options *options, const struct why *why)
{
    weir_text hosts = cut(rest, "/?");

    do {
        weir_text host = cut(&hosts, ",");
        if (options->seed_count == (options->kind == WEIR__SINGLE ? 1 : WEIR__STORE_SEEDS))
            return wrong(why, options->kind == WEIR__SINGLE ? "one server has one host; several: redis+sentinel:// or "
                                                              "redis+cluster://"
                                                            : "more than 16 hosts");
        int error = read_host(host, options, why);
        if (error)
            return error;
    } while (skip(&hosts, ","));
    return 0;
}

static int read_database(weir_text text, struct weir__store_options *options, const struct why *why)
{
    int64_t number;

    if (text.len == 0)
        return 0;
    if (options->kind == WEIR__CLUSTER)
        return wrong(why, "a cluster has no databases; leave out what follows the hosts");
    if (!weir__parse_int(text, &number) || number < 0 || number > 65535)
        return wrong(why, "the database '%.*s' is not a number from 0 to 65535", (int)(text.len < 40 ? text.len : 40),
                     text.data);
    options->database = (int)number;
    return 0;
}

static int read_path(weir_text *rest, struct weir__store_options *options, const struct why *why)
{
    weir_text path = cut(rest, "?");

    if (options->unix_socket) {
        /* The address of a unix socket holds 107 bytes. */
        if (path.len == 0 || path.data[0] != '/' || !unescape(path, options->seeds[0].name, 108))
            return wrong(why, "redis+unix:// is followed by the whole path of the socket, of at most 107 bytes");
        options->seed_count = 1;
        return 0;
    }
    (void)skip(&path, "/");
    if (options->kind == WEIR__SENTINEL) {
        weir_text master = cut(&path, "/");
        if (master.len == 0 || !unescape(master, options->master, sizeof(options->master)))
            return wrong(why, "after the sentinels comes the master's name, as in redis+sentinel://a,b,c/mymaster");
        (void)skip(&path, "/");
    }
    return read_database(path, options, why);
}

static int read_query(weir_text *rest, struct weir__store_options *options, const struct why *why)
{
    if (!skip(rest, "?"))
        return 0;
    while (rest->len > 0) {
        weir_text value = cut(rest, "&"), name = cut(&value, "=");
        char names[64], values[1024];
        (void)skip(rest, "&");
        if (!skip(&value, "=") || !unescape(name, names, sizeof(names)) || !unescape(value, values, sizeof(values)))
            return wrong(why, "after the ? come options as name=value, with & between them");
        int error;
        int64_t database;
        if (options->unix_socket && strcmp(names, "database") == 0)
            error = weir__parse_int((weir_text){values, strlen(values)}, &database)
                        ? read_database((weir_text){values, strlen(values)}, options, why)
                        : wrong(why, "the database is not a number");
        else
            error = set_option(options, names, values, why);
        if (error)
            return error;
    }
    return 0;
}

int weir__store_fits(const struct weir__store_options *options, char *why, size_t why_size)
{
    const struct why shown = {why, why_size};

    if (options->user[0] && !options->password[0])
        return wrong(&shown, "a user without a password; write user:password@, or :password@ for the default user");
    if (options->sentinel_user[0] && !options->sentinel_password[0])
        return wrong(&shown, "sentinel_user has no sentinel_password");
    if (options->retry_min_us > options->retry_max_us)
        return wrong(&shown, "retry_min is longer than retry_max");
    if (!options->certificate[0] != !options->key[0])
        return wrong(&shown, "certificate and key go together");
    return 0;
}

int weir__store_parse(const char *url, struct weir__store_options *options, char *why, size_t why_size)
{
    const struct why shown = {why, why_size};
    weir_text rest = {url, strlen(url)};

    memset(options, 0, sizeof(*options));
    memcpy(options->prefix, "weir", sizeof("weir"));
    options->deadline_us = 20000;
    options->connect_us = 1000000;
    options->sync_interval_us = 50000;
    options->breaker_failures = 5;
    options->retry_min_us = 50000;
    options->retry_max_us = 1000000;

    int error = read_scheme(&rest, options, &shown);
    if (!error && !options->unix_socket) {
        error = read_login(&rest, options, &shown);
        if (!error)
            error = read_hosts(&rest, options, &shown);
    }
    if (!error)
        error = read_path(&rest, options, &shown);
    if (!error)
        error = read_query(&rest, options, &shown);
    return error ? error : weir__store_fits(options, why, why_size);
}

void weir__store_shown(const struct weir__store_options *options, char *to, size_t size)
{
    static const char *const kinds[] = {"", "+sentinel", "+cluster"};
    size_t len = 0;

    if (size == 0)
        return;
    to[0] = '\0';
#define SHOW(...)                                                                                                      \
    do {                                                                                                               \
        int added_ = snprintf(to + len, size - len, __VA_ARGS__);                                                      \
        len = added_ < 0 || (size_t)added_ >= size - len ? size - 1 : len + (size_t)added_;                            \
    } while (0)
    SHOW("redis%s%s://", options->tls ? "s" : "", options->unix_socket ? "+unix" : kinds[options->kind]);
    if (options->user[0])
        SHOW("%s@", options->user);
    for (size_t i = 0; i < options->seed_count; i++) {
        const struct weir__store_host *host = &options->seeds[i];
        bool address = strchr(host->name, ':') != NULL;
        if (options->unix_socket)
            SHOW("%s", host->name);
        else
            SHOW("%s%s%s%s:%u", i > 0 ? "," : "", address ? "[" : "", host->name, address ? "]" : "",
                 (unsigned)host->port);
    }
    if (options->kind == WEIR__SENTINEL)
        SHOW("/%s", options->master);
    if (options->database > 0)
        SHOW("%s%d", options->unix_socket ? "?database=" : "/", options->database);
#undef SHOW
}
