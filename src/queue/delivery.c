/* One deferred request on its way: see delivery.h. */
#include "queue/delivery.h"
#include "queue/delivery_headers.h"

#include <stdio.h>
#include <stdlib.h>

#define CONNECT_MS   5000L
#define WANTED_MAX_S 300 /* of a Retry-After: as long as the back-off itself */

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

/* ---- The transfer ---- */

/* What the server answers is nobody's any more. */
static size_t drop(char *data, size_t one, size_t count, void *context)
{
    (void)data;
    (void)context;
    return one * count;
}

/* Whether a request has a body, an empty one too, and is not to be sent without saying how long it is. */
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
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L); /* or it would wait for the body that the answer speaks of */
    } else if (has_body(item)) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)item->body.len);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, item->body.data);
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, item->method.data);
}

/* Nothing of what libcurl could do besides: no redirects (which is its default), proxies, other protocols, signals. */
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
    /* An answer whose body broke off is one all the same: the status says what the server did. */
    curl_easy_getinfo(delivery->curl, CURLINFO_RESPONSE_CODE, &status);
    delivery->status = (int)status;
    if (curl_easy_getinfo(delivery->curl, CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK && seconds > 0)
        delivery->retry_after_ms = seconds < WANTED_MAX_S ? (int64_t)seconds * 1000 : WANTED_MAX_S * 1000;
    if (status >= 200)
        snprintf(delivery->why, sizeof delivery->why, "the answer was %ld", status);
    else
        snprintf(delivery->why, sizeof delivery->why, "no answer: %.200s",
                 *delivery->error ? delivery->error : curl_easy_strerror(code));
    if (status < 200)
        delivery->status = 0;
    curl_slist_free_all(delivery->headers);
    delivery->headers = NULL;
}
