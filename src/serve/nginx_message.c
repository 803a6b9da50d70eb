/* Parses nginx's error messages, and rewords them in terms of weir.yaml. */
#include "serve/nginx.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>

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

/* `2026/11/15 06:41:31 [emerg] 12#12: *3 message`, or `nginx: [emerg] message` before nginx opens its log. */
struct weir__nginx_message weir__nginx_message_parse(weir_text line)
{
    struct weir__nginx_message other = {WEIR__NGINX_OTHER, line, 0};
    long pid = 0;
    weir_text rest = line, behind;
    bool early = weir__text_skip(&rest, "nginx: ");
    if (!early && !(skip(&rest, "0123456789/") && weir__text_skip(&rest, " ") && skip(&rest, "0123456789:") &&
                    weir__text_skip(&rest, " ")))
        return other;
    const char *end = rest.len && rest.data[0] == '[' ? memchr(rest.data, ']', rest.len) : NULL;
    if (!end)
        return early ? (struct weir__nginx_message){WEIR__NGINX_NOTICE, rest, 0} : other;
    enum weir__nginx_level level = level_of((weir_text){rest.data + 1, (size_t)(end - rest.data) - 1});
    rest = (weir_text){end + 1, rest.len - (size_t)(end - rest.data) - 1};
    skip(&rest, " ");
    behind = rest;
    if (!early && level && skip(&behind, "0123456789#") && weir__text_skip(&behind, ": ")) {
        pid = strtol(rest.data, NULL, 10); /* ends at the colon or before it */
        rest = behind;
    }
    behind = rest;
    if (weir__text_skip(&behind, "*") && skip(&behind, "0123456789") && weir__text_skip(&behind, " "))
        rest = behind;
    return (struct weir__nginx_message){level, rest, pid};
}

/* ---- Translating ---- */

/* The comment at the end of a line of nginx.conf: the place in weir.yaml. */
static weir_text place_of(const char *conf, long number)
{
    weir_text found = {"", 0};
    for (long i = 1; i < number && conf; i++) {
        conf = strchr(conf, '\n');
        conf += conf != NULL;
    }
    size_t len = conf && number ? strcspn(conf, "\n") : 0;
    for (size_t i = 0; i + 3 < len; i++)
        if (memcmp(conf + i, " # ", 3) == 0)
            found = (weir_text){conf + i + 3, len - i - 3};
    return found;
}

/* The text between `before` and the next `after`. */
static bool between(const char *text, const char *before, const char *after, weir_text *found)
{
    const char *from = strstr(text, before), *to = from ? strstr(from + strlen(before), after) : NULL;
    if (!to)
        return false;
    from += strlen(before);
    *found = (weir_text){from, (size_t)(to - from)};
    return true;
}

/* Messages about certificates and keys have only a path: the number of the line that names it, or 0. */
static long line_of_file(const char *conf, const char *message)
{
    weir_text path, about = weir__text_of(message);
    if (!conf || !(weir__text_skip(&about, "cannot load ") || weir__text_skip(&about, "SSL_CTX_")) ||
        !between(message, "\"", "\"", &path))
        return 0;
    const char *at = memmem(conf, strlen(conf), path.data, path.len);
    long number = at != NULL;
    for (const char *c = conf; at && c < at; c++)
        number += *c == '\n';
    return number;
}

/* Cuts ` in /…/nginx.conf:33` off the end of a message and returns 33; 0: not at its end. Elsewhere it may come from a
 * client. */
static long cut_place(char *message)
{
    static const char mark[] = "nginx.conf:"; /* also matches next-nginx.conf */
    char *at = strstr(message, mark), *in = NULL;
    for (char *c = message; at && (c = strstr(c, " in ")) && c < at; c++)
        in = c;
    const char *digits = in ? at + sizeof mark - 1 : "";
    if (!*digits || digits[strspn(digits, "0123456789")])
        return 0;
    *in = 0;
    return strtol(digits, NULL, 10);
}

/* Rewords a known message. False: unknown. */
static __attribute__((noinline)) bool reword(const char *message, char *buffer, size_t size)
{
    static const struct {
        const char *has;            /* anywhere in the message */
        const char *before, *after; /* around what it is about */
        const char *begin, *end;    /* the new message around that */
    } known[] = {
        {"(13:", "bind() to ", " failed", "no permission to listen on ",
         "; ports below 1024 are for root: choose another"},
        {"(99:", "bind() to ", " failed", "this machine has no address ", ""},
        {"", "host not found in upstream \"", "\"", "no host is known by the name of the upstream ", ""},
        {"is not binary compatible", "module \"", "\"", "the module ",
         " was built for another nginx; build it again with make nginx"},
    };
    weir_text what = weir__text_of(message);
    if (weir__text_skip(&what, "weir: ")) { /* of weir's own modules */
        snprintf(buffer, size, "%.*s", (int)what.len, what.data);
        return true;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(message, known[i].has) && between(message, known[i].before, known[i].after, &what)) {
            snprintf(buffer, size, "%s%.*s%s", known[i].begin, (int)what.len, what.data, known[i].end);
            return true;
        }
    if (strstr(message, "(98:") && between(message, "bind() to ", " failed", &what)) {
        const char *colon = memrchr(what.data, ':', what.len);
        int port = colon ? (int)(what.data + what.len - colon) - 1 : 0;
        snprintf(buffer, size, "%.*s is in use already; ss -ltnp 'sport = :%.*s' shows by which process", (int)what.len,
                 what.data, port, colon ? colon + 1 : "");
    } else if (between(message, "dlopen() \"", "\"", &what)) {
        snprintf(buffer, size, "the module %.*s cannot be loaded: %s", (int)what.len, what.data, message);
    } else {
        return false;
    }
    return true;
}

void weir__nginx_message_format(weir_text text, const char *conf, char *buffer, size_t size)
{
    char message[WEIR__LOG_MESSAGE_MAX], better[WEIR__LOG_MESSAGE_MAX + sizeof "nginx: "];
    snprintf(message, sizeof message, "%.*s", (int)text.len, text.data);
    long number = cut_place(message);
    weir_text place = place_of(conf, number ? number : line_of_file(conf, message));
    if (!reword(message, better, sizeof better))
        snprintf(better, sizeof better, "nginx: %s", message);
    snprintf(buffer, size, "%.*s%s%s", (int)place.len, place.data, place.len ? ": " : "", better);
}
