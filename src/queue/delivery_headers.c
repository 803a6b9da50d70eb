/* A deferred request as it is sent: see delivery_headers.h. */
#define _GNU_SOURCE /* memmem */
#include "queue/delivery_headers.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_token(weir_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!plain && (c == 0 || !strchr("!#$%&'*+-.^_`|~", c)))
            return false;
    }
    return text.len > 0;
}

bool weir__delivery_is_sendable(const struct weir__deferred *item)
{
    for (size_t i = 0; i < item->target.len; i++) {
        unsigned char c = (unsigned char)item->target.data[i];
        if (c <= ' ' || c == 0x7f)
            return false;
    }
    return item->target.len > 0 && is_token(item->method);
}

/* ---- Headers ---- */

struct header_field {
    weir_text name, value;
};

static bool is_value(weir_text text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

/* The next line that is a header; false at the end. */
static bool next_field(weir_text *rest, struct header_field *header_field)
{
    while (rest->len) {
        const char *end = memmem(rest->data, rest->len, "\r\n", 2);
        size_t len = end ? (size_t)(end - rest->data) : rest->len, skip = len + (end ? 2 : 0);
        const char *colon = memchr(rest->data, ':', len);
        weir_text line = {rest->data, len};
        *rest = (weir_text){rest->data + skip, rest->len - skip};
        if (!colon)
            continue;
        size_t name = (size_t)(colon - line.data);
        header_field->name = (weir_text){line.data, name};
        header_field->value = weir__text_trim((weir_text){colon + 1, line.len - name - 1});
        if (is_token(header_field->name) && is_value(header_field->value))
            return true;
    }
    return false;
}

static bool is_named(weir_text name, const char *word)
{
    return weir__text_equal_nocase(name, (weir_text){word, strlen(word)});
}

static bool connection_names(weir_text headers, weir_text name)
{
    struct header_field header_field;
    while (next_field(&headers, &header_field))
        if (is_named(header_field.name, "connection") && weir__text_listed(header_field.value, name))
            return true;
    return false;
}

static bool has(weir_text headers, const char *name)
{
    struct header_field header_field;
    while (next_field(&headers, &header_field))
        if (is_named(header_field.name, name))
            return true;
    return false;
}

static bool goes_along(weir_text headers, weir_text name)
{
    static const char *const not [] = {"connection",
                                       "keep-alive",
                                       "proxy-connection",
                                       "proxy-authenticate",
                                       "proxy-authorization",
                                       "te",
                                       "trailer",
                                       "transfer-encoding",
                                       "upgrade",
                                       "content-length",
                                       "expect",
                                       "x-weir-attempt",
                                       "x-weir-tier",
                                       "x-weir-others"};
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        if (is_named(name, not [i]))
            return false;
    return !connection_names(headers, name);
}

/* Takes the list over. NULL: no memory, and it is gone. */
static struct curl_slist *add(struct curl_slist *list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(list, line);
    if (!longer)
        curl_slist_free_all(list);
    return longer;
}

/* libcurl leaves "Name:" out, and writes a header without a value for "Name;". */
static struct curl_slist *add_field(struct curl_slist *list, const struct header_field *header_field)
{
    size_t size = header_field->name.len + header_field->value.len + 4;
    char *line = malloc(size);
    if (!line) {
        curl_slist_free_all(list);
        return NULL;
    }
    if (header_field->value.len)
        snprintf(line, size, "%.*s: %.*s", (int)header_field->name.len, header_field->name.data,
                 (int)header_field->value.len, header_field->value.data);
    else
        snprintf(line, size, "%.*s;", (int)header_field->name.len, header_field->name.data);
    list = add(list, line);
    free(line);
    return list;
}

struct curl_slist *weir__delivery_headers(const struct weir__deferred *item, int attempt)
{
    static const char *const own[] = {"Accept", "Content-Type", "User-Agent"};
    weir_text rest = item->headers;
    struct header_field header_field;
    char line[64 + WEIR__TICKET_LEN];
    snprintf(line, sizeof line, "X-Weir-Attempt: %d", attempt);
    struct curl_slist *list = add(NULL, line);
    while (list && next_field(&rest, &header_field))
        if (goes_along(item->headers, header_field.name))
            list = add_field(list, &header_field);
    if (list && !has(item->headers, "idempotency-key")) {
        snprintf(line, sizeof line, "Idempotency-Key: %s", item->ticket);
        list = add(list, line);
    }
    for (size_t i = 0; list && i < sizeof own / sizeof *own; i++) {
        snprintf(line, sizeof line, "%s:", own[i]);
        if (!has(item->headers, own[i]))
            list = add(list, line);
    }
    return list ? add(list, "Expect:") : NULL;
}
