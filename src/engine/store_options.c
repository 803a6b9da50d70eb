/* Parsing of the store's URL and options. */
#include "engine/store_options.h"
#include "base/buffer.h"
#include "base/duration.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PORT          6379
#define SENTINEL_PORT 26379
#define HOUR_US       (INT64_C(3600) * 1000000)

/* A URL being parsed. */
struct parser {
    weir_text rest; /* what is left of the URL */
    struct weir__store_options *options;
    char *why; /* where the message about an error goes */
    size_t why_size;
};

__attribute__((format(printf, 2, 3))) static int wrong(const struct parser *p, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (p->why_size > 0)
        vsnprintf(p->why, p->why_size, format, list);
    va_end(list);
    return WEIR_ESTOREURL;
}

/* Decodes %XX. False: malformed, too long, or a zero byte. */
static bool unescape(weir_text text, char *to, size_t size)
{
    int len = weir__percent_decode(text, false, to, size);
    return len >= 0 && strlen(to) == (size_t)len;
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

/* ---- Options by name ---- */

static const struct option {
    const char *name;
    enum { DURATION, TEXT, PREFIX, BOOL, COUNT } kind;
    size_t at;     /* offset of its field, of type int64_t, char[], char[], bool, unsigned */
    int64_t bound; /* DURATION: the least, in microseconds; TEXT: the field's size; BOOL: the value that sets it */
} known_options[] = {
#define FIELD(field) offsetof(struct weir__store_options, field)
#define SIZE(field)  sizeof(((struct weir__store_options *)0)->field)
    {"deadline", DURATION, FIELD(deadline_us), 100},
    {"connect_timeout", DURATION, FIELD(connect_us), 1000},
    {"sync_interval", DURATION, FIELD(sync_interval_us), 1000},
    {"retry_min", DURATION, FIELD(retry_min_us), 1000},
    {"retry_max", DURATION, FIELD(retry_max_us), 1000},
    {"heartbeat", DURATION, FIELD(heartbeat_us), 1000},
    {"breaker_failures", COUNT, FIELD(breaker_failures), 0},
    {"hash_keys", BOOL, FIELD(hash_keys), true},
    {"verify", BOOL, FIELD(no_verify), false},
    {"prefix", PREFIX, FIELD(prefix), SIZE(prefix)},
    {"ca", TEXT, FIELD(ca), SIZE(ca)},
    {"certificate", TEXT, FIELD(certificate), SIZE(certificate)},
    {"key", TEXT, FIELD(key), SIZE(key)},
    {"server_name", TEXT, FIELD(server_name), SIZE(server_name)},
    {"user", TEXT, FIELD(user), SIZE(user)},
    {"password", TEXT, FIELD(password), SIZE(password)},
    {"sentinel_user", TEXT, FIELD(sentinel_user), SIZE(sentinel_user)},
    {"sentinel_password", TEXT, FIELD(sentinel_password), SIZE(sentinel_password)},
#undef SIZE
#undef FIELD
};

static int set_duration(const struct parser *p, const struct option *option, const char *value, int64_t *to)
{
    weir_text text = weir__text_of(value);
    int64_t bare, ns;
    /* Refuses a number without a unit: seconds or milliseconds could be meant. */
    if (weir__parse_int(text, &bare) || !weir__parse_duration(text, HOUR_US * 1000, &ns) || ns / 1000 < option->bound)
        return wrong(p, "%s: '%.40s' is not a duration between %lld us and 1 hour; write it as in 20ms or 1s",
                     option->name, value, (long long)option->bound);
    *to = ns / 1000;
    return 0;
}

static int set_bool(const struct parser *p, const struct option *option, const char *value, bool *to)
{
    static const char *const spellings[] = {"false", "no", "off", "0", "true", "yes", "on", "1"};
    for (size_t i = 0; i < 8; i++)
        if (strcmp(value, spellings[i]) == 0) {
            *to = (i >= 4) == option->bound;
            return 0;
        }
    return wrong(p, "%s: '%.40s' is neither true nor false", option->name, value);
}

/* Does not repeat the value in the message: it may be a secret. */
static int set_text(const struct parser *p, const struct option *option, const char *value, char *to)
{
    /* Braces would put all keys of a cluster into one slot; blanks and quotes make names hard to type. */
    for (const char *c = value; *c && option->kind == PREFIX; c++)
        if (*c <= ' ' || *c == 0x7f || strchr("{}%\"'", *c))
            return wrong(p, "prefix: no blanks, quotes, braces or per cent signs, and only ASCII");
    if (!*value && option->kind == PREFIX)
        return wrong(p, "prefix is empty; leave it out for 'weir'");
    if (strlen(value) >= (size_t)option->bound)
        return wrong(p, "%s is longer than %lld bytes", option->name, (long long)option->bound - 1);
    memcpy(to, value, strlen(value) + 1);
    return 0;
}

static int set_count(const struct parser *p, const struct option *option, const char *value, unsigned *to)
{
    int64_t count;
    if (!weir__parse_int(weir__text_of(value), &count) || count < 1 || count > 1000000)
        return wrong(p, "%s: '%.40s' is not a number from 1 to 1000000", option->name, value);
    *to = (unsigned)count;
    return 0;
}

static int set_option(const struct parser *p, const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof known_options / sizeof *known_options; i++) {
        const struct option *option = &known_options[i];
        void *to = (char *)p->options + option->at;
        if (strcmp(name, option->name) != 0)
            continue;
        return option->kind == DURATION ? set_duration(p, option, value, to)
               : option->kind == BOOL   ? set_bool(p, option, value, to)
               : option->kind == COUNT  ? set_count(p, option, value, to)
                                        : set_text(p, option, value, to);
    }
    return wrong(p, "there is no option '%.40s'", name);
}

int weir__store_option(struct weir__store_options *options, const char *name, const char *value, char *why,
                       size_t why_size)
{
    return set_option(&(struct parser){.options = options, .why = why, .why_size = why_size}, name, value);
}

/* ---- Parts of the URL ---- */

static int read_scheme(struct parser *p)
{
    struct weir__store_options *options = p->options;
    if (!weir__text_skip(&p->rest, "redis") && !weir__text_skip(&p->rest, "valkey"))
        return wrong(p, "the URL starts with redis://, rediss://, redis+unix://, redis+sentinel:// or "
                        "redis+cluster://");
    options->tls = weir__text_skip(&p->rest, "s");
    if (weir__text_skip(&p->rest, "+sentinel"))
        options->kind = WEIR__SENTINEL;
    else if (weir__text_skip(&p->rest, "+cluster"))
        options->kind = WEIR__CLUSTER;
    else if (weir__text_skip(&p->rest, "+unix"))
        options->unix_socket = true;
    if (!weir__text_skip(&p->rest, "://"))
        return wrong(p, "there is no such kind of store; use redis://, rediss://, redis+unix://, redis+sentinel:// "
                        "or redis+cluster://");
    if (options->unix_socket && options->tls)
        return wrong(p, "TLS is not supported over a unix socket; use redis+unix://");
    return 0;
}

static int read_login(struct parser *p)
{
    struct weir__store_options *options = p->options;
    weir_text after = p->rest, login = cut(&after, "@/?");
    bool given = weir__text_skip(&after, "@");
    /*
     * An unescaped @ of a password would make the rest of the password a host, which is displayed. An @ is allowed in
     * the query and in a master's name.
     */
    weir_text rest = after, hosts = cut(&rest, options->kind == WEIR__SENTINEL ? "/?" : "?");
    if (hosts.len > 0 && memchr(hosts.data, '@', hosts.len))
        return wrong(p, "an @ or / in user or password is written as %%40 or %%2F");
    if (!given)
        return 0;
    p->rest = after;
    weir_text password = login, user = cut(&password, ":");
    (void)weir__text_skip(&password, ":");
    if (!unescape(user, options->user, sizeof options->user) ||
        !unescape(password, options->password, sizeof options->password))
        return wrong(p, "user or password before the @ is too long or has a wrong %%XX");
    return 0;
}

static int read_host(const struct parser *p, weir_text rest)
{
    struct weir__store_options *options = p->options;
    struct weir__store_host *host = &options->seeds[options->seed_count];
    bool bracket = weir__text_skip(&rest, "[");
    weir_text name = cut(&rest, bracket ? "]" : ":");
    int64_t port = options->kind == WEIR__SENTINEL ? SENTINEL_PORT : PORT;
    if (bracket && !weir__text_skip(&rest, "]"))
        return wrong(p, "the address lacks its ]");
    if (name.len == 0 || !unescape(name, host->name, sizeof host->name))
        return wrong(p, "a host's name is missing, too long or has a wrong %%XX");
    options->seed_count++;
    bool has_port = rest.len > 0;
    if (has_port && !weir__text_skip(&rest, ":"))
        return wrong(p, "after the address comes a colon and the port, or nothing");
    if (has_port && (!weir__parse_int(rest, &port) || port < 1 || port > 65535))
        return wrong(p, "a host's port is not a number from 1 to 65535"); /* not repeated: it may be a password */
    host->port = (uint16_t)port;
    return 0;
}

static int read_hosts(struct parser *p)
{
    weir_text hosts = cut(&p->rest, "/?");
    bool single = p->options->kind == WEIR__SINGLE;
    do {
        weir_text host = cut(&hosts, ",");
        if (p->options->seed_count == (single ? 1 : WEIR__STORE_SEEDS))
            return wrong(p, "%s",
                         single ? "one server has one host; several: redis+sentinel:// or redis+cluster://"
                                : "more than 16 hosts");
        int error = read_host(p, host);
        if (error)
            return error;
    } while (weir__text_skip(&hosts, ","));
    return 0;
}

static int read_database(const struct parser *p, weir_text text)
{
    int64_t number;
    if (text.len == 0)
        return 0;
    if (p->options->kind == WEIR__CLUSTER)
        return wrong(p, "a cluster has no databases; leave out what follows the hosts");
    if (!weir__parse_int(text, &number) || number < 0 || number > 65535)
        return wrong(p, "the database '%.*s' is not a number from 0 to 65535", (int)(text.len < 40 ? text.len : 40),
                     text.data);
    p->options->database = (int)number;
    return 0;
}

static int read_path(struct parser *p)
{
    struct weir__store_options *options = p->options;
    weir_text path = cut(&p->rest, "?");
    if (options->unix_socket) {
        /* The address of a unix socket holds 107 bytes. */
        if (path.len == 0 || path.data[0] != '/' || !unescape(path, options->seeds[0].name, 108))
            return wrong(p, "redis+unix:// is followed by the whole path of the socket, of at most 107 bytes");
        options->seed_count = 1;
        return 0;
    }
    (void)weir__text_skip(&path, "/");
    if (options->kind == WEIR__SENTINEL) {
        weir_text master = cut(&path, "/");
        if (master.len == 0 || !unescape(master, options->master, sizeof options->master))
            return wrong(p, "after the sentinels comes the master's name, as in redis+sentinel://a,b,c/mymaster");
        (void)weir__text_skip(&path, "/");
    }
    return read_database(p, path);
}

static int read_query(struct parser *p)
{
    int error = 0;
    if (!weir__text_skip(&p->rest, "?"))
        return 0;
    while (p->rest.len > 0 && !error) {
        weir_text value = cut(&p->rest, "&"), name = cut(&value, "=");
        char names[64], values[1024];
        int64_t database;
        (void)weir__text_skip(&p->rest, "&");
        if (!weir__text_skip(&value, "=") || !unescape(name, names, sizeof names) ||
            !unescape(value, values, sizeof values))
            return wrong(p, "after the ? come options as name=value, with & between them");
        if (!p->options->unix_socket || strcmp(names, "database") != 0)
            error = set_option(p, names, values);
        else if (weir__parse_int(weir__text_of(values), &database))
            error = read_database(p, weir__text_of(values));
        else
            error = wrong(p, "the database is not a number");
    }
    return error;
}

int weir__store_fits(const struct weir__store_options *options, char *why, size_t why_size)
{
    const struct parser p = {.why = why, .why_size = why_size};
    if (options->user[0] && !options->password[0])
        return wrong(&p, "a user without a password; write user:password@, or :password@ for the default user");
    if (options->sentinel_user[0] && !options->sentinel_password[0])
        return wrong(&p, "sentinel_user has no sentinel_password");
    if (options->retry_min_us > options->retry_max_us)
        return wrong(&p, "retry_min is longer than retry_max");
    if (!options->certificate[0] != !options->key[0])
        return wrong(&p, "certificate and key go together");
    return 0;
}

int weir__store_parse(const char *url, struct weir__store_options *options, char *why, size_t why_size)
{
    struct parser p = {weir__text_of(url), options, why, why_size};
    *options = (struct weir__store_options){.prefix = "weir",
                                            .deadline_us = 20000,
                                            .connect_us = 1000000,
                                            .sync_interval_us = 50000,
                                            .breaker_failures = 5,
                                            .retry_min_us = 50000,
                                            .retry_max_us = 1000000,
                                            .heartbeat_us = 5000000};
    int error = read_scheme(&p);
    if (!error && !options->unix_socket)
        error = read_login(&p);
    if (!error && !options->unix_socket)
        error = read_hosts(&p);
    if (!error)
        error = read_path(&p);
    if (!error)
        error = read_query(&p);
    return error ? error : weir__store_fits(options, why, why_size);
}

void weir__store_shown(const struct weir__store_options *options, char *to, size_t size)
{
    static const char *const kinds[] = {"", "+sentinel", "+cluster"};
    struct weir__buffer shown = {0};
    weir__buffer_printf(&shown, "redis%s%s://", options->tls ? "s" : "",
                        options->unix_socket ? "+unix" : kinds[options->kind]);
    if (options->user[0])
        weir__buffer_printf(&shown, "%s@", options->user);
    for (size_t i = 0; i < options->seed_count; i++) {
        const struct weir__store_host *host = &options->seeds[i];
        bool address = strchr(host->name, ':') != NULL;
        if (options->unix_socket)
            weir__buffer_printf(&shown, "%s", host->name);
        else
            weir__buffer_printf(&shown, "%s%s%s%s:%u", i > 0 ? "," : "", address ? "[" : "", host->name,
                                address ? "]" : "", (unsigned)host->port);
    }
    if (options->kind == WEIR__SENTINEL)
        weir__buffer_printf(&shown, "/%s", options->master);
    if (options->database > 0)
        weir__buffer_printf(&shown, "%s%d", options->unix_socket ? "?database=" : "/", options->database);
    snprintf(to, size, "%s", shown.failed ? "" : shown.data);
    weir__buffer_free(&shown);
}
