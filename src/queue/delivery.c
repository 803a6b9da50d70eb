/* One delivery: the copy of a deferred request, its headers, and its HTTP transfer by libcurl. */
#include "queue/dispatcher_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define CONNECT_MS   5000L
#define WANTED_MAX_S 300 /* seconds; longer values of Retry-After are cut to the maximum back-off */

/* ---- The copy ---- */

static weir_text copy(char **to, weir_text from)
{
    weir_text made = {*to, from.len};
    if (from.len)
        memcpy(*to, from.data, from.len);
    (*to)[from.len] = 0;
    *to += from.len + 1;
    return made;
}

bool weir__delivery_copy(struct weir__delivery *delivery, const struct weir__deferred *item)
{
    size_t size =
        item->rule.len + item->key.len + item->method.len + item->target.len + item->headers.len + item->body.len + 6;
    char *to = malloc(size);
    if (!to)
        return false;
    delivery->text = to;
    delivery->item = *item;
    delivery->item.why = (weir_text){"", 0};
    delivery->item.rule = copy(&to, item->rule);
    delivery->item.key = copy(&to, item->key);
    delivery->item.method = copy(&to, item->method);
    delivery->item.target = copy(&to, item->target);
    delivery->item.headers = copy(&to, item->headers);
    delivery->item.body = copy(&to, item->body);
    delivery->state = WEIR__DELIVERY_CLAIMED;
    return true;
}

void weir__delivery_clear(struct weir__delivery *delivery)
{
    CURL *curl = delivery->curl;
    curl_slist_free_all(delivery->headers);
    free(delivery->text);
    *delivery = (struct weir__delivery){.curl = curl};
}

/* ---- The request as it is sent ---- */

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

/* Parses the next well-formed header line; false at the end. */
static bool next_field(weir_text *rest, struct header_field *field)
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
        field->name = (weir_text){line.data, name};
        field->value = weir__text_trim((weir_text){colon + 1, line.len - name - 1});
        if (is_token(field->name) && is_value(field->value))
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
    struct header_field field;
    while (next_field(&headers, &field))
        if (is_named(field.name, "connection") && weir__text_listed(field.value, name))
            return true;
    return false;
}

static bool has(weir_text headers, const char *name)
{
    struct header_field field;
    while (next_field(&headers, &field))
        if (is_named(field.name, name))
            return true;
    return false;
}

static bool goes_along(weir_text headers, weir_text name)
{
    static const char *const never[] = {"connection",
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
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (is_named(name, never[i]))
            return false;
    return !connection_names(headers, name);
}

/* Appends a line; on failure frees the list and returns NULL. */
static struct curl_slist *add(struct curl_slist *list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(list, line);
    if (!longer)
        curl_slist_free_all(list);
    return longer;
}

/* For libcurl "Name: value" adds a header, "Name:" suppresses one, and "Name;" adds one without a value. */
static struct curl_slist *add_field(struct curl_slist *list, const struct header_field *field)
{
    size_t size = field->name.len + field->value.len + 4;
    char *line = malloc(size);
    if (!line) {
        curl_slist_free_all(list);
        return NULL;
    }
    if (field->value.len)
        snprintf(line, size, "%.*s: %.*s", (int)field->name.len, field->name.data, (int)field->value.len,
                 field->value.data);
    else
        snprintf(line, size, "%.*s;", (int)field->name.len, field->name.data);
    list = add(list, line);
    free(line);
    return list;
}

struct curl_slist *weir__delivery_headers(const struct weir__deferred *item, int attempt)
{
    static const char *const own[] = {"Accept", "Content-Type", "User-Agent"};
    weir_text rest = item->headers;
    struct header_field field;
    char line[64 + WEIR__TICKET_LEN];
    snprintf(line, sizeof line, "X-Weir-Attempt: %d", attempt);
    struct curl_slist *list = add(NULL, line);
    while (list && next_field(&rest, &field))
        if (goes_along(item->headers, field.name))
            list = add_field(list, &field);
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

/* ---- The transfer ---- */

/* A write callback that discards the response body. */
static size_t drop(char *data, size_t one, size_t count, void *context)
{
    (void)data;
    (void)context;
    return one * count;
}

/* True for methods whose requests have a body, even if it is empty: Content-Length is sent. */
static bool has_body(const struct weir__deferred *item)
{
    static const char *const methods[] = {"POST", "PUT", "PATCH"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (weir__text_is(item->method, methods[i]))
            return true;
    return item->body.len > 0;
}

static void set_request(CURL *curl, const struct weir__deferred *item, const struct weir__delivery_target *target)
{
    curl_easy_setopt(curl, CURLOPT_URL, target->url);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_REQUEST_TARGET, item->target.data);
    if (weir__text_is(item->method, "HEAD")) {
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L); /* HEAD: do not wait for the body that Content-Length announces */
    } else if (has_body(item)) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)item->body.len);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, item->body.data);
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, item->method.data);
}

/* Disables what libcurl would do by itself: redirects (its default), proxies, other protocols, signals. */
static void set_transfer(struct weir__delivery *delivery, const struct weir__delivery_target *target)
{
    CURL *curl = delivery->curl;
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)target->timeout_ms);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, delivery->error);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, delivery->headers);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, delivery);
    if (target->socket)
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, target->socket);
    if (target->ca)
        curl_easy_setopt(curl, CURLOPT_CAINFO, target->ca);
    if (target->unverified) {
        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    }
}

bool weir__delivery_send(struct weir__delivery *delivery, const struct weir__delivery_target *target, CURLM *multi)
{
    const struct weir__deferred *item = &delivery->item;
    if (delivery->curl)
        curl_easy_reset(delivery->curl);
    else
        delivery->curl = curl_easy_init();
    delivery->headers = weir__delivery_headers(item, item->attempts + 1);
    if (!delivery->curl || !delivery->headers) {
        snprintf(delivery->why, sizeof delivery->why, "out of memory");
        return false;
    }
    *delivery->error = 0;
    set_request(delivery->curl, item, target);
    set_transfer(delivery, target);
    CURLMcode code = curl_multi_add_handle(multi, delivery->curl);
    if (code != CURLM_OK) {
        snprintf(delivery->why, sizeof delivery->why, "%s", curl_multi_strerror(code));
        return false;
    }
    delivery->state = WEIR__DELIVERY_SENT;
    return true;
}

void weir__delivery_received(struct weir__delivery *delivery, CURLM *multi, CURLcode code)
{
    long status = 0;
    curl_off_t seconds = 0;
    curl_multi_remove_handle(multi, delivery->curl);
    /* A reply whose body was cut off counts: its status is known. */
    curl_easy_getinfo(delivery->curl, CURLINFO_RESPONSE_CODE, &status);
    delivery->status = (int)status;
    if (curl_easy_getinfo(delivery->curl, CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK && seconds > 0)
        delivery->retry_after_ms = seconds < WANTED_MAX_S ? (int64_t)seconds * 1000 : WANTED_MAX_S * 1000;
    if (status >= 200)
        snprintf(delivery->why, sizeof delivery->why, "status %ld", status);
    else
        snprintf(delivery->why, sizeof delivery->why, "no reply: %.200s",
                 *delivery->error ? delivery->error : curl_easy_strerror(code));
    if (status < 200)
        delivery->status = 0;
    curl_slist_free_all(delivery->headers);
    delivery->headers = NULL;
}
