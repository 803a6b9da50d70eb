/* The notifier: see notifier.h. Messages are signed as https://www.standardwebhooks.com specifies. */
#include "serve/notifier.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "base/sha256.h"
#include "engine/denial_recorder.h"
#include "engine/hot_key_sampler.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define WARNINGS_MAX  100  /* of a message */
#define RETRY_MIN_MS  1000 /* exponential back-off: 1 s, 2 s, … with 50 % jitter */
#define RETRY_MAX_MS  60000
#define AFTER_MAX_S   600 /* the longest Retry-After that is respected */
#define TRANSFER_MS   5000L
#define SECRET_MAX    1024
#define SECRET_PREFIX "whsec_" /* the rest is base64 */

struct weir__notifier {
    const struct weir__config *config;
    const weir_segment *segment;
    const struct weir__logger *log;
    bool (*ending)(void *context);
    void *context;
    CURL *curl;
    struct weir__warning_cursor cursor;
    struct weir__buffer message; /* that is being delivered; len 0: none */
    uint64_t next;               /* ticket of the first warning behind it */
    char id[64];                 /* of the message: the same in each attempt */
    size_t count;                /* warnings in it */
    unsigned failures;           /* in a row */
    int64_t due_ms;              /* of the next attempt, on the monotonic clock */
    char trouble[CURL_ERROR_SIZE + 64];
};

static size_t discard(char *data, size_t one, size_t count, void *context)
{
    (void)data;
    (void)context;
    return one * count;
}

static int is_ending(void *context, curl_off_t down, curl_off_t got, curl_off_t up, curl_off_t sent)
{
    const struct weir__notifier *notifier = context;
    (void)down, (void)got, (void)up, (void)sent;
    return notifier->ending(notifier->context);
}

struct weir__notifier *weir__notifier_new(const struct weir__config *config, const weir_segment *segment,
                                          const struct weir__logger *log, bool (*ending)(void *context), void *context)
{
    struct weir__notifier *notifier = calloc(1, sizeof *notifier);
    CURL *curl = notifier ? curl_easy_init() : NULL;
    if (!curl) {
        free(notifier);
        return NULL;
    }
    *notifier = (struct weir__notifier){
        .config = config, .segment = segment, .log = log, .ending = ending, .context = context, .curl = curl};
    return notifier;
}

void weir__notifier_free(struct weir__notifier *notifier)
{
    if (!notifier)
        return;
    curl_easy_cleanup(notifier->curl);
    weir__buffer_free(&notifier->message);
    free(notifier);
}

/* ---- The message ---- */

static void add_text(struct weir__buffer *json, const char *name, const struct weir__denial *entry,
                     enum weir__denial_text which)
{
    weir_text text = weir__denial_text(entry, which);
    if (!text.len)
        return;
    weir__buffer_printf(json, ",\"%s\":", name);
    weir__json_add_string(json, text);
}

static void add_warning(struct weir__notifier *notifier, const struct weir__denial *entry)
{
    struct weir__buffer *json = &notifier->message;
    char time[WEIR__TIME_TEXT], key[512];
    bool hidden = entry->flags & WEIR__DENIAL_HIDDEN;
    weir__time_text((int64_t)entry->first_ms, time);
    if (notifier->count)
        weir__buffer_add_literal(json, ",");
    weir__json_add(json, "{\"at\":%s,\"rule\":%t,\"shadow\":%b,\"key\":%s,\"hidden\":%b,\"cut\":%b", time,
                   weir__denial_text(entry, WEIR__DENIAL_RULE), (entry->flags & WEIR__DENIAL_SHADOW) != 0,
                   weir__denial_key(notifier->segment, entry, key, sizeof key),
                   hidden || !weir__denial_text(entry, WEIR__DENIAL_KEY).len,
                   (entry->flags & WEIR__DENIAL_KEY_CUT) != 0);
    weir__json_add(json, ",\"warn_at\":%d,\"used\":%d,\"capacity\":%d,\"limit\":%d,\"window\":%n,\"cost\":%d",
                   (int64_t)entry->warn_at, entry->capacity - entry->remaining, entry->capacity, entry->limit,
                   entry->window_ns, entry->cost);
    add_text(json, "tier", entry, WEIR__DENIAL_TIER);
    if (!hidden)
        add_text(json, "client", entry, WEIR__DENIAL_CLIENT);
    add_text(json, "request_id", entry, WEIR__DENIAL_REQUEST);
    add_text(json, "path", entry, WEIR__DENIAL_PATH);
    weir__buffer_add_literal(json, "}");
    notifier->count++;
}

static void begin_message(struct weir__notifier *notifier, uint64_t first)
{
    char host[256] = "", time[WEIR__TIME_TEXT];
    if (!notifier->config->host_name)
        (void)gethostname(host, sizeof host - 1);
    weir__time_text(weir__wall_ms(), time);
    snprintf(notifier->id, sizeof notifier->id, "%016" PRIx64 "-%" PRIu64, weir__pseudonym(notifier->segment, 0),
             first);
    weir__json_add(&notifier->message,
                   "{\"type\":\"limit.warnings\",\"timestamp\":%s,\"data\":{\"host\":%s,\"warnings\":[", time,
                   notifier->config->host_name ? notifier->config->host_name : host);
}

/* Makes a message of the warnings that were not sent yet, if there are any. */
static void collect(struct weir__notifier *notifier, const struct weir__denial_ring *ring)
{
    struct weir__denial entry;
    notifier->count = 0;
    weir__warning_resume(ring, &ring->header->to_notify, &notifier->cursor);
    while (notifier->count < WARNINGS_MAX && weir__warning_next(ring, &notifier->cursor, &entry)) {
        if (!notifier->count)
            begin_message(notifier, entry.ticket);
        add_warning(notifier, &entry);
    }
    notifier->next = notifier->cursor.next;
    if (!notifier->count) {
        weir__store64(&ring->header->to_notify, notifier->next); /* it has begun */
        return;
    }
    weir__json_add(&notifier->message, "],\"missed\":%d}}", (int64_t)notifier->cursor.missed);
    notifier->cursor.missed = 0;
    if (notifier->message.failed) { /* no memory: the next step tries again */
        weir__buffer_free(&notifier->message);
        notifier->message = (struct weir__buffer){0};
    }
}

/* ---- The signature ---- */

/* The key of the secret's text. Returns its length; 0: it is empty, too long, or not base64. */
static size_t decode_secret(const char *text, uint8_t key[SECRET_MAX])
{
    weir_text word = {text, strcspn(text, " \t\r\n")};
    if (word.len > SECRET_MAX)
        return 0;
    if (!weir__text_skip(&word, SECRET_PREFIX)) {
        memcpy(key, word.data, word.len);
        return word.len;
    }
    size_t padding = 0;
    while (padding < 2 && padding < word.len && word.data[word.len - 1 - padding] == '=')
        padding++;
    int decoded = word.len ? EVP_DecodeBlock(key, (const unsigned char *)word.data, (int)word.len) : 0;
    return decoded > (int)padding ? (size_t)decoded - padding : 0;
}

/* Reads the secret. -1: the error is in errno; 0: it is empty or malformed. */
static ssize_t read_secret(const struct weir__notify_config *config, uint8_t key[SECRET_MAX])
{
    size_t len = 0;
    errno = EFBIG;
    char *text =
        config->secret ? strdup(config->secret) : weir__file_read_short(config->secret_file, SECRET_MAX - 1, &len);
    if (!text)
        return -1;
    ssize_t size = (ssize_t)decode_secret(text, key);
    explicit_bzero(text, strlen(text));
    free(text);
    return size;
}

/* The value of webhook-signature. False: no memory. */
static bool sign(const struct weir__notifier *notifier, const uint8_t *key, size_t len, const char *time,
                 char value[64])
{
    uint8_t mac[WEIR__SHA256_BYTES];
    unsigned char encoded[48];
    struct weir__buffer signed_text = {0};
    weir__buffer_printf(&signed_text, "%s.%s.", notifier->id, time);
    weir__buffer_add(&signed_text, notifier->message.data, notifier->message.len);
    if (signed_text.failed)
        return false;
    weir__hmac_sha256(key, len, signed_text.data, signed_text.len, mac);
    weir__buffer_free(&signed_text);
    (void)EVP_EncodeBlock(encoded, mac, sizeof mac);
    snprintf(value, 64, "v1,%s", (const char *)encoded);
    return true;
}

/* Adds the signature to the headers. False: *why. */
static bool add_signature(const struct weir__notifier *notifier, const char *time, struct curl_slist **headers,
                          char *why, size_t size)
{
    const struct weir__notify_config *config = &notifier->config->notify;
    uint8_t key[SECRET_MAX];
    char value[64], line[128];
    if (!config->secret && !config->secret_file)
        return true;
    ssize_t len = read_secret(config, key);
    bool good = len > 0 && sign(notifier, key, (size_t)len, time, value);
    explicit_bzero(key, sizeof key);
    if (!good) {
        snprintf(why, size, "secret_file %s%s",
                 len < 0    ? "cannot be read: "
                 : len == 0 ? "is empty, too long, or not base64 after " SECRET_PREFIX
                            : "cannot be used: no memory",
                 len < 0 ? strerror(errno) : "");
        return false;
    }
    snprintf(line, sizeof line, "webhook-signature: %s", value);
    struct curl_slist *with_signature = curl_slist_append(*headers, line);
    if (!with_signature) { /* the message is not sent unsigned */
        snprintf(why, size, "no memory");
        return false;
    }
    *headers = with_signature;
    return true;
}

/* ---- Sending ---- */

static struct curl_slist *make_headers(const struct weir__notifier *notifier, char time[24])
{
    char line[128];
    snprintf(time, 24, "%" PRId64, weir__wall_ms() / 1000);
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Expect:"); /* no 100-continue */
    snprintf(line, sizeof line, "webhook-id: %s", notifier->id);
    headers = curl_slist_append(headers, line);
    snprintf(line, sizeof line, "webhook-timestamp: %s", time);
    return curl_slist_append(headers, line);
}

/* Sends the message once. Returns the status; 0: *why. */
static long send_once(struct weir__notifier *notifier, char *why, size_t size)
{
    const struct weir__notify_config *config = &notifier->config->notify;
    CURL *curl = notifier->curl;
    char time[24], reason[CURL_ERROR_SIZE] = "";
    long status = 0;
    struct curl_slist *headers = make_headers(notifier, time);
    if (!add_signature(notifier, time, &headers, why, size)) {
        curl_slist_free_all(headers);
        return 0;
    }
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, config->url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "weir/" WEIR_VERSION);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, notifier->message.data);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)notifier->message.len);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, TRANSFER_MS);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, discard);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, is_ending);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, notifier);
    if (config->ca)
        curl_easy_setopt(curl, CURLOPT_CAINFO, config->ca);
    CURLcode code = curl_easy_perform(curl);
    curl_slist_free_all(headers);
    if (code != CURLE_OK)
        snprintf(why, size, "%s", *reason ? reason : curl_easy_strerror(code));
    else
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

/* The pause before the next attempt: exponential back-off with jitter, and at least what the receiver asks for. */
static int64_t pause_ms(const struct weir__notifier *notifier, long status)
{
    int64_t wait = RETRY_MIN_MS;
    curl_off_t after_s = 0;
    uint32_t dice = 0;
    for (unsigned i = 1; i < notifier->failures && wait < RETRY_MAX_MS; i++)
        wait *= 2;
    wait = wait < RETRY_MAX_MS ? wait : RETRY_MAX_MS;
    if (status && curl_easy_getinfo(notifier->curl, CURLINFO_RETRY_AFTER, &after_s) == CURLE_OK && after_s > 0) {
        after_s = after_s < AFTER_MAX_S ? after_s : AFTER_MAX_S;
        wait = after_s * 1000 > wait ? after_s * 1000 : wait;
    }
    (void)!weir__random_fill(&dice, sizeof dice);
    return wait + (int64_t)(dice % (uint32_t)(wait / 2));
}

/* True for a status that means that this message is never accepted. */
static bool is_final(long status)
{
    return status == 400 || status == 410 || status == 413 || status == 422;
}

/* Delivers the message. True: it is done, accepted or refused for good. */
static bool deliver(struct weir__notifier *notifier)
{
    const char *shown = notifier->config->notify.shown;
    char why[sizeof notifier->trouble] = "";
    long status = send_once(notifier, why, sizeof why);
    bool accepted = status >= 200 && status < 300;
    if (accepted || is_final(status)) {
        if (!accepted)
            weir__logf(notifier->log, WEIR__LOG_ERROR, "notify %s: refused with %ld; %zu warning%s dropped", shown,
                       status, notifier->count, notifier->count == 1 ? " is" : "s are");
        else if (*notifier->trouble)
            weir__logf(notifier->log, WEIR__LOG_INFO, "notify %s: available again", shown);
        *notifier->trouble = 0;
        notifier->failures = 0;
        return true;
    }
    if (notifier->ending(notifier->context)) /* the transfer was aborted; the next agent goes on */
        return false;
    if (status)
        snprintf(why, sizeof why, "the reply is %ld", status);
    notifier->failures++;
    int64_t wait_ms = pause_ms(notifier, status);
    notifier->due_ms = weir__monotonic_ms() + wait_ms;
    if (strcmp(why, notifier->trouble) != 0)
        weir__logf(notifier->log, WEIR__LOG_WARNING, "notify %s: %s; retrying in %" PRId64 " ms", shown, why, wait_ms);
    snprintf(notifier->trouble, sizeof notifier->trouble, "%s", why);
    return false;
}

/* Opens the ring, which nginx makes: it may not exist yet, and a new one may have replaced it since the last step. */
static bool open_ring(const struct weir__notifier *notifier, struct weir__mapped *mapped,
                      struct weir__denial_ring *ring)
{
    char path[4200];
    snprintf(path, sizeof path, "%s.denials", notifier->config->segment_path);
    struct weir__file_spec spec = {.path = path,
                                   .owner = notifier->segment->mapped.owner,
                                   .check = weir__row_file_check,
                                   .plan = &weir__denial_format};
    if (weir__mapped_open(&spec, mapped) != 0)
        return false;
    if (weir__denial_attach(mapped->memory, mapped->bytes, ring))
        return true;
    weir__mapped_close(mapped);
    return false;
}

void weir__notifier_step(struct weir__notifier *notifier)
{
    struct weir__mapped mapped = {0};
    struct weir__denial_ring ring;
    if (!open_ring(notifier, &mapped, &ring))
        return;
    if (!notifier->message.len)
        collect(notifier, &ring);
    weir__store64(&ring.header->notifier_ms, (uint64_t)weir__wall_ms());
    if (notifier->message.len && weir__monotonic_ms() >= notifier->due_ms && deliver(notifier)) {
        weir__store64(&ring.header->to_notify, notifier->next);
        weir__buffer_free(&notifier->message);
        notifier->message = (struct weir__buffer){0};
    }
    weir__mapped_close(&mapped);
}
