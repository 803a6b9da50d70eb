/* One delivery: the copy of a deferred request, its headers, and its HTTP transfer by libcurl. */
#include "queue/dispatcher_internal.h"
#include "queue/ingest_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define CONNECT_MS   5000L
#define WANTED_MAX_S 300 /* seconds; longer values of Retry-After are cut to the maximum back-off */

/* ---- The copy ---- */

bool weir__delivery_copy(struct weir__delivery *delivery, const struct weir__deferred *item)
{
    struct weir__deferred *to = &delivery->item;
    weir_text *texts[] = {&to->rule, &to->key, &to->method, &to->target, &to->headers, &to->body};
    const size_t count = sizeof texts / sizeof(weir_text *);
    size_t size = count;
    *to = *item;
    to->why = (weir_text){"", 0};
    for (size_t i = 0; i < count; i++)
        size += texts[i]->len;
    char *at = delivery->text = malloc(size);
    if (!at)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (texts[i]->len)
            memcpy(at, texts[i]->data, texts[i]->len);
        at[texts[i]->len] = 0;
        texts[i]->data = at;
        at += texts[i]->len + 1;
    }
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
    for (size_t i = 0; i < text.len; i++)
        if (!weir__is_token(text.data[i]))
            return false;
    return text.len > 0;
}

/* True if it has no control characters and blanks, except those of `allowed`. */
static bool is_printable(weir_text text, const char *allowed)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c == 0 || c == 0x7f || (c <= ' ' && !strchr(allowed, c)))
            return false;
    }
    return true;
}

bool weir__delivery_is_sendable(const struct weir__deferred *item)
{
    return item->target.len > 0 && is_printable(item->target, "") && is_token(item->method);
}

/* Parses the next well-formed header line; false at the end. */
static bool next_field(weir_text *rest, struct weir__header_line *field)
{
    while (rest->len) {
        const char *end = memmem(rest->data, rest->len, "\r\n", 2);
        size_t len = end ? (size_t)(end - rest->data) : rest->len, skip = len + (end ? 2 : 0);
        const char *line = rest->data, *colon = memchr(line, ':', len);
        *rest = (weir_text){rest->data + skip, rest->len - skip};
        if (!colon)
            continue;
        field->name = (weir_text){line, (size_t)(colon - line)};
        field->value = weir__text_trim((weir_text){colon + 1, len - field->name.len - 1});
        if (is_token(field->name) && is_printable(field->value, " \t"))
            return true;
    }
    return false;
}

static bool is_named(weir_text name, const char *word)
{
    return weir__text_equal_nocase(name, weir__text_of(word));
}

/* True if there is a header of this name, or one whose value is a list with `listed`. */
static bool has(weir_text headers, const char *name, const weir_text *listed)
{
    struct weir__header_line field;
    while (next_field(&headers, &field))
        if (is_named(field.name, name) && (!listed || weir__text_listed(field.value, *listed)))
            return true;
    return false;
}

/* Appends a line. False: out of memory. */
__attribute__((format(printf, 2, 3))) static bool add_line(struct curl_slist **list, const char *format, ...)
{
    struct curl_slist *longer = NULL;
    char *line;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&line, format, arguments) >= 0) {
        longer = curl_slist_append(*list, line);
        free(line);
    }
    va_end(arguments);
    *list = longer ? longer : *list;
    return longer != NULL;
}

struct curl_slist *weir__delivery_headers(const struct weir__deferred *item, int attempt)
{
    static const char *const own[] = {"Accept", "Content-Type", "User-Agent"};
    weir_text rest = item->headers;
    struct weir__header_line field;
    struct curl_slist *list = NULL;
    bool good = add_line(&list, "X-Weir-Attempt: %d", attempt);
    /* For libcurl "Name: value" adds a header, "Name:" suppresses one, and "Name;" adds one without a value. */
    while (good && next_field(&rest, &field))
        if (!weir__is_hop_header(field.name) && !has(item->headers, "connection", &field.name))
            good = add_line(&list, "%.*s%s%.*s", (int)field.name.len, field.name.data, field.value.len ? ": " : ";",
                            (int)field.value.len, field.value.data);
    if (!has(item->headers, "idempotency-key", NULL))
        good = good && add_line(&list, "Idempotency-Key: %s", item->ticket);
    for (size_t i = 0; good && i < sizeof own / sizeof *own; i++)
        good = has(item->headers, own[i], NULL) || add_line(&list, "%s:", own[i]);
    if (good && add_line(&list, "Expect:"))
        return list;
    curl_slist_free_all(list);
    return NULL;
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
    *delivery->error = 0;
    if (!delivery->curl || !delivery->headers)
        return false;
    set_request(delivery->curl, item, target);
    set_transfer(delivery, target);
    if (curl_multi_add_handle(multi, delivery->curl) != CURLM_OK)
        return false;
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
    delivery->end.status = status >= 200 ? (int)status : 0;
    if (curl_easy_getinfo(delivery->curl, CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK && seconds > 0)
        delivery->retry_after_ms = seconds < WANTED_MAX_S ? (int64_t)seconds * 1000 : WANTED_MAX_S * 1000;
    if (status >= 200)
        snprintf(delivery->why, sizeof delivery->why, "status %ld", status);
    else
        snprintf(delivery->why, sizeof delivery->why, "no reply: %.200s",
                 *delivery->error ? delivery->error : curl_easy_strerror(code));
}
