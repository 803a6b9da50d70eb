/* Parses nginx's error messages, and rewords them in terms of weir.yaml. */
#include "serve/nginx.h"
#include "base/text.h"

#include <stdio.h>

/* ---- Parsing ---- */

static enum weir__nginx_level level_of(weir_text word)
{
    static const struct {
        const char *name;
        enum weir__nginx_level level;
    } levels[] = {{"debug", WEIR__NGINX_NOTICE}, {"info", WEIR__NGINX_NOTICE}, {"notice", WEIR__NGINX_NOTICE},
                  {"warn", WEIR__NGINX_WARNING}, {"error", WEIR__NGINX_ERROR}, {"crit", WEIR__NGINX_ERROR},
                  {"alert", WEIR__NGINX_ERROR},  {"emerg", WEIR__NGINX_FATAL}};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (weir__text_is(word, levels[i].name))
            return levels[i].level;
    return WEIR__NGINX_OTHER;
}

/* Skips characters of `accept`. False: there are none. */
static bool skip(weir_text *text, const char *accept)
{
    size_t i = 0;
    while (i < text->len && text->data[i] && strchr(accept, text->data[i]))
        i++;
    *text = (weir_text){text->data + i, text->len - i};
    return i > 0;
}

static bool begins(weir_text *text, const char *with)
{
    size_t len = strlen(with);
    if (text->len < len || memcmp(text->data, with, len) != 0)
        return false;
    *text = (weir_text){text->data + len, text->len - len};
    return true;
}

/* `2026/11/15 06:41:31 [emerg] 12#12: *3 message`, or `nginx: [emerg] message` before nginx opens its log. */
struct weir__nginx_message weir__nginx_message_parse(weir_text line)
{
    struct weir__nginx_message other = {WEIR__NGINX_OTHER, line};
    weir_text rest = line, behind;
    bool early = begins(&rest, "nginx: ");
    if (!early &&
        !(skip(&rest, "0123456789/") && begins(&rest, " ") && skip(&rest, "0123456789:") && begins(&rest, " ")))
        return other;
    const char *end = rest.len && rest.data[0] == '[' ? memchr(rest.data, ']', rest.len) : NULL;
    if (!end)
        return early ? (struct weir__nginx_message){WEIR__NGINX_NOTICE, rest} : other;
    enum weir__nginx_level level = level_of((weir_text){rest.data + 1, (size_t)(end - rest.data) - 1});
    rest = (weir_text){end + 1, rest.len - (size_t)(end - rest.data) - 1};
    skip(&rest, " ");
    behind = rest;
    if (!early && level && skip(&behind, "0123456789#") && begins(&behind, ": "))
        rest = behind;
    behind = rest;
    if (begins(&behind, "*") && skip(&behind, "0123456789") && begins(&behind, " "))
        rest = behind;
    return (struct weir__nginx_message){level, rest};
}

/* ---- Translating ---- */

/* The comment at the end of a line of nginx.conf: the place in weir.yaml. */
static weir_text place_of(const char *conf, long number)
{
    for (long i = 1; i < number && conf; i++) {
        conf = strchr(conf, '\n');
        conf += conf != NULL;
    }
    weir_text none = {NULL, 0}, found = none;
    if (!conf)
        return none;
    size_t len = strcspn(conf, "\n");
    for (size_t i = 0; i + 3 < len; i++)
        if (memcmp(conf + i, " # ", 3) == 0)
            found = (weir_text){conf + i + 3, len - i - 3};
    return found;
}

/* The text between `before` and the next `after`. */
static bool between(weir_text text, const char *before, const char *after, weir_text *found)
{
    const char *from = memmem(text.data, text.len, before, strlen(before));
    if (!from)
        return false;
    from += strlen(before);
    size_t left = text.len - (size_t)(from - text.data);
    const char *to = memmem(from, left, after, strlen(after));
    if (!to)
        return false;
    *found = (weir_text){from, (size_t)(to - from)};
    return true;
}

/* Messages about certificates and keys have only a path: the number of the line that names it, or 0. */
static long line_of_file(const char *conf, weir_text message)
{
    weir_text path, about = message;
    if (!(begins(&about, "cannot load ") || begins(&about, "SSL_CTX_")) || !between(message, "\"", "\"", &path))
        return 0;
    const char *at = memmem(conf, strlen(conf), path.data, path.len);
    long number = at != NULL;
    for (const char *c = conf; at && c < at; c++)
        number += *c == '\n';
    return number;
}

/* Cuts ` in /…/nginx.conf:33` off the end of a message and returns 33; 0: not at its end. Elsewhere it may come from a
 * client. */
static long cut_place(weir_text *message)
{
    static const char mark[] = "nginx.conf:"; /* also matches next-nginx.conf */
    const char *at = memmem(message->data, message->len, mark, sizeof mark - 1), *in = NULL;
    if (!at)
        return 0;
    for (const char *c = message->data; c + 4 < at; c++)
        if (memcmp(c, " in ", 4) == 0)
            in = c;
    if (!in)
        return 0;
    long number = 0;
    const char *end = message->data + message->len;
    const char *c = at + sizeof mark - 1;
    for (; c < end && *c >= '0' && *c <= '9' && number < 1000000; c++)
        number = number * 10 + (*c - '0');
    if (c < end)
        return 0;
    message->len = (size_t)(in - message->data);
    return number;
}

static bool has(weir_text text, const char *part)
{
    return memmem(text.data, text.len, part, strlen(part)) != NULL;
}

/* Rewords a known message. False: unknown. */
static bool reword(weir_text message, char *buffer, size_t size)
{
    weir_text what;
    if (between(message, "bind() to ", " failed", &what)) {
        const char *colon = memrchr(what.data, ':', what.len);
        int port = colon ? (int)(what.data + what.len - colon) - 1 : 0;
        if (has(message, "(98:"))
            snprintf(buffer, size, "%.*s is in use already; ss -ltnp 'sport = :%.*s' shows by which process",
                     (int)what.len, what.data, port, colon ? colon + 1 : "");
        else if (has(message, "(13:"))
            snprintf(buffer, size, "no permission to listen on %.*s; ports below 1024 are for root: choose another",
                     (int)what.len, what.data);
        else if (has(message, "(99:"))
            snprintf(buffer, size, "this machine has no address %.*s", (int)what.len, what.data);
        else
            return false;
        return true;
    }
    if (between(message, "host not found in upstream \"", "\"", &what))
        snprintf(buffer, size, "no host is known by the name of the upstream %.*s", (int)what.len, what.data);
    else if (has(message, "is not binary compatible") && between(message, "module \"", "\"", &what))
        snprintf(buffer, size, "the module %.*s was built for another nginx; build it again with make nginx",
                 (int)what.len, what.data);
    else if (between(message, "dlopen() \"", "\"", &what))
        snprintf(buffer, size, "the module %.*s cannot be loaded: %.*s", (int)what.len, what.data, (int)message.len,
                 message.data);
    else
        return false;
    return true;
}

void weir__nginx_message_format(weir_text message, const char *conf, char *buffer, size_t size)
{
    char better[WEIR__LOG_MESSAGE_MAX];
    long number = cut_place(&message);
    number = number ? number : line_of_file(conf, message);
    weir_text place = place_of(conf, number);
    if (!reword(message, better, sizeof better))
        snprintf(better, sizeof better, "nginx: %.*s", (int)message.len, message.data);
    if (number == 0)
        place.len = 0;
    snprintf(buffer, size, "%.*s%s%s", (int)place.len, place.len ? place.data : "", place.len ? ": " : "", better);
}
