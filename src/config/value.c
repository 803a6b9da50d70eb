/* Values of weir.yaml: paths, sizes, times, addresses, URLs, users. */
#include "base/text.h"
#include "base/number.h"
#include "config/config.h"
#include "rules/address.h"
#include "rules/yaml.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>

const char *weir__config_text(struct weir__config *config, weir_text text)
{
    return weir__arena_copy(&config->arena, text).data;
}

bool weir__config_is(const struct weir__node *node, const char *word)
{
    return node->kind == WEIR__SCALAR && weir__text_is(node->text, word);
}

bool weir__config_is_word(weir_text text, const char *others)
{
    bool good = text.len > 0;
    for (size_t i = 0; i < text.len; i++)
        good &= (unsigned char)text.data[i] > 0x20 && text.data[i] != 0x7f && !strchr(others, text.data[i]);
    return good;
}

/* ---- Paths ---- */

/* True without control characters and '$', which begins a variable in nginx.conf. Of any encoding, as paths are. */
static bool is_plain(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f || *text == '$')
            return false;
    return true;
}

bool weir__config_path(void *context, const struct weir__node *node, const char *what, void *path)
{
    struct weir__config *config = context;
    weir_text text;
    char absolute_path[4096];
    if (!weir__field_text(node, what, &text))
        return false;
    if (text.len == 0)
        return weir__node_error(node, "%s must be a path, and is empty", what);
    bool absolute = text.data[0] == '/';
    const char *folder = absolute ? "" : config->folder;
    if (!is_plain(text.data) || !is_plain(folder))
        return weir__node_error(node, "%s must be a path without '$' and control characters%s", what,
                                is_plain(text.data) ? ", and the folder of weir.yaml has some" : "");
    int len = snprintf(absolute_path, sizeof absolute_path, "%s%s%s", folder, absolute ? "" : "/", text.data);
    if (len < 0 || (size_t)len >= sizeof absolute_path)
        return weir__node_error(node, "%s is too long for a path", what);
    return (*(const char **)path = weir__config_text(config, (weir_text){absolute_path, (size_t)len}));
}

/* ---- Times ---- */

bool weir__config_ms(void *config, const struct weir__node *node, const char *what, void *ms)
{
    struct weir__parsed_window window;
    (void)config;
    if (!weir__field_window(node, what, &window))
        return false;
    if (window.ns > WEIR_DAY || window.ns % 1000000 != 0)
        return weir__node_error(node, "%s must be from 1ms to 1d, in whole milliseconds", what);
    *(int64_t *)ms = window.ns / 1000000;
    return true;
}

/* ---- Hosts and ports ---- */

static bool is_port(weir_text text)
{
    int64_t port;
    return weir__parse_int(text, &port) && port >= 1 && port <= 65535;
}

/* A name or an IPv4 address. */
static bool is_host(weir_text text)
{
    struct weir__address unused;
    bool numeric = text.len > 0;
    if (text.len == 0 || text.len > 253 || text.data[0] == '-' || text.data[0] == '.')
        return false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (!weir__is_digit(c) && !weir__is_letter(c) && c != '-' && c != '.' && c != '_')
            return false;
        numeric &= weir__is_digit(c) || c == '.';
    }
    return !numeric || weir__address_parse(text, &unused);
}

/* A parsed host with an optional port; `wrong`: why it is invalid. */
struct authority {
    weir_text host; /* without brackets */
    weir_text port; /* NULL: none */
    bool ipv6;
    const char *wrong;
};

static struct authority authority_read(weir_text text)
{
    struct authority is = {.host = text};
    weir_text rest = {NULL, 0};
    if (text.len > 0 && text.data[0] == '[') {
        struct weir__address unused;
        const char *end = memchr(text.data, ']', text.len);
        if (!end)
            return (struct authority){.wrong = "the bracket is never closed"};
        is.ipv6 = true;
        is.host = (weir_text){text.data + 1, (size_t)(end - text.data) - 1};
        if (!memchr(is.host.data, ':', is.host.len) || memchr(is.host.data, '%', is.host.len) ||
            !weir__address_parse(is.host, &unused))
            return (struct authority){.wrong = "what is in the brackets is not an IPv6 address"};
        rest = (weir_text){end + 1, text.len - is.host.len - 2};
        if (rest.len > 0 && rest.data[0] != ':')
            return (struct authority){.wrong = "after the bracket comes a colon and the port"};
    } else {
        const char *colon = memchr(text.data, ':', text.len);
        if (colon) {
            is.host.len = (size_t)(colon - text.data);
            rest = (weir_text){colon, text.len - is.host.len};
            if (memchr(colon + 1, ':', rest.len - 1))
                return (struct authority){.wrong = "an IPv6 address needs brackets, as in \"[::1]:8080\""};
        }
    }
    if (rest.len > 0) {
        is.port = (weir_text){rest.data + 1, rest.len - 1};
        if (!is_port(is.port))
            is.wrong = "the port must be a number from 1 to 65535";
    }
    return is;
}

#define LISTENER "a port, or an address and a port such as 127.0.0.1:8080"
#define UPSTREAM "a URL such as http://127.0.0.1:9000"

static bool address_wrong(const struct weir__node *node, const char *what, const char *expected, const char *why)
{
    char shown[WEIR__SHOWN];
    return weir__node_error(node, "%s must be %s, not \"%s\": %s", what, expected,
                            weir__printable(node->text, shown, sizeof shown), why);
}

bool weir__config_listener(void *config, const struct weir__node *node, const char *what, void *to)
{
    struct weir__listener *listener = to;
    weir_text text;
    listener->place = node->place;
    if (!weir__field_text(node, what, &text))
        return false;
    if (is_port(text)) {
        listener->address = listener->port = text.data;
        return true;
    }
    struct authority is = authority_read(text);
    bool any = weir__text_is(is.host, "*");
    if (!is.wrong && !is.port.data)
        is.wrong = "it has no port";
    if (!is.wrong && !is.ipv6 && !any && !is_host(is.host))
        is.wrong = "that is no address and no name of a host";
    if (is.wrong)
        return address_wrong(node, what, LISTENER, is.wrong);
    listener->port = weir__config_text(config, is.port);
    listener->host = any ? NULL : weir__config_text(config, is.host);
    listener->address = any ? listener->port : text.data;
    return true;
}

/* ---- Upstream servers ---- */

bool weir__config_server(struct weir__config *config, const struct weir__node *node, struct weir__server *server)
{
    struct authority is = {.wrong = NULL};
    weir_text text;
    char address[320];
    server->place = node->place;
    if (!weir__field_text(node, "an upstream", &text))
        return false;
    weir_text path = text;
    if (weir__text_skip(&path, "unix:") && path.data[0] == '/') {
        server->address = text.data;
        return weir__config_is_word(path, "$:;{}\"'\\") ||
               address_wrong(node, "an upstream", UPSTREAM, "such a character cannot be in the path of a socket");
    }
    server->https = weir__text_skip(&text, "https://");
    bool url = server->https || weir__text_skip(&text, "http://");
    if (text.len > 0 && text.data[text.len - 1] == '/')
        text.len--;
    if (!url)
        is.wrong = "it begins with http://, https:// or unix:/";
    else if (memchr(text.data, '@', text.len))
        is.wrong = "a user and a password cannot be in it";
    else if (memchr(text.data, '/', text.len) || memchr(text.data, '?', text.len))
        is.wrong = "it ends after host and port: paths are passed on as they come";
    else
        is = authority_read(text);
    if (!is.wrong && !is.ipv6 && !is_host(is.host))
        is.wrong = "that is no address and no name of a host";
    if (is.wrong)
        return address_wrong(node, "an upstream", UPSTREAM, is.wrong);
    weir_text port = is.port.data ? is.port : server->https ? WEIR__TEXT("443") : WEIR__TEXT("80");
    int len = snprintf(address, sizeof address, is.ipv6 ? "[%.*s]:%.*s" : "%.*s:%.*s", (int)is.host.len, is.host.data,
                       (int)port.len, port.data);
    server->address = weir__config_text(config, (weir_text){address, (size_t)len});
    server->host = weir__config_text(config, is.host);
    return true;
}

/* ---- Users ---- */

bool weir__workers_of(const struct weir__config *config, struct weir__workers *workers)
{
    workers->name = config->user ? config->user : getpwnam("www-data") ? "www-data" : "nobody";
    const struct passwd *user = getpwnam(workers->name);
    const struct group *group = user ? getgrgid(user->pw_gid) : NULL;
    if (!user || !group || strlen(user->pw_name) >= sizeof workers->user ||
        strlen(group->gr_name) >= sizeof workers->group)
        return false;
    workers->group_id = (unsigned)group->gr_gid;
    snprintf(workers->user, sizeof workers->user, "%s", user->pw_name);
    snprintf(workers->group, sizeof workers->group, "%s", group->gr_name);
    return true;
}
