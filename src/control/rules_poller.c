/* The rules poller: see control.h. */
#include "control/control.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/hash.h"
#include "engine/mapped_file.h"
#include "engine/rule_files.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BODY_MAX    ((size_t)64 << 20) /* maximal size of rules */
#define TAG_MAX     256
#define WAIT_MAX_MS INT64_C(30000)
#define LOOK_MS     5000L

struct weir__rules_poller {
    const struct weir__config *config;
    const struct weir__logger *log;
    CURL *curl;
    char tag[TAG_MAX];                  /* ETag of the rules on disk; "": unknown */
    char trouble[CURL_ERROR_SIZE + 64]; /* last error, to log each once */
    unsigned failures;                  /* in a row */
    uint64_t active, rejected;          /* checksums of the last texts that were activated and rejected; 0: none */
    struct weir__buffer body;
    weir__format_heartbeat *format_heartbeat; /* may be NULL */
    void *heartbeat_context;
};

struct weir__rules_poller *weir__rules_poller_new(const struct weir__config *config, const struct weir__logger *log,
                                                  weir__format_heartbeat *format_heartbeat, void *context)
{
    struct weir__rules_poller *poller = calloc(1, sizeof *poller);
    if (!poller)
        return NULL;
    *poller = (struct weir__rules_poller){.config = config,
                                          .log = log,
                                          .curl = curl_easy_init(),
                                          .format_heartbeat = format_heartbeat,
                                          .heartbeat_context = context};
    if (!poller->curl) {
        free(poller);
        return NULL;
    }
    return poller;
}

void weir__rules_poller_free(struct weir__rules_poller *poller)
{
    if (!poller)
        return;
    curl_easy_cleanup(poller->curl);
    weir__buffer_free(&poller->body);
    free(poller);
}

static int trouble(struct weir__rules_poller *poller, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs an error, unless it is the last one again. Returns -1. */
static int trouble(struct weir__rules_poller *poller, const char *format, ...)
{
    char what[sizeof poller->trouble];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    poller->failures++;
    if (strcmp(poller->trouble, what) == 0)
        return -1;
    snprintf(poller->trouble, sizeof poller->trouble, "%s", what);
    weir__logf(poller->log, WEIR__LOG_WARNING, "rules of %s: %s; those on disk stay active",
               poller->config->origin.shown, what);
    return -1;
}

/* ---- Requests ---- */

static size_t take_body(char *data, size_t one, size_t count, void *context)
{
    struct weir__rules_poller *r = context;
    size_t more = one * count;
    if (more > BODY_MAX - r->body.len)
        return 0;
    weir__buffer_add(&r->body, data, more);
    return r->body.failed ? 0 : more;
}

/* Reads the token. -1: the error was logged. */
static int token_read(struct weir__rules_poller *poller, char *to, size_t size)
{
    const struct weir__origin *origin = &poller->config->origin;
    size_t len;
    errno = EFBIG;
    char *text = origin->token_file ? weir__file_read_short(origin->token_file, size - 1, &len)
                                    : strdup(origin->token ? origin->token : "");
    if (!text)
        return trouble(poller, "token_file cannot be read: %s", strerror(errno));
    len = strcspn(text, " \t\r\n");
    snprintf(to, size, "%.*s", (int)len, text);
    free(text);
    if (!len && origin->token_file)
        return trouble(poller, "token_file is empty");
    return len < size ? 0 : trouble(poller, "the token is too long");
}

/* Adds a header, unless its value is empty. */
static struct curl_slist *header_add(struct curl_slist *list, const char *name, const char *value)
{
    char line[2200];
    snprintf(line, sizeof line, "%s%s", name, value);
    return *value ? curl_slist_append(list, line) : list;
}

static struct curl_slist *headers_make(const struct weir__rules_poller *poller, const char *token)
{
    char heartbeat[2186] = "";
    if (poller->format_heartbeat &&
        poller->format_heartbeat(poller->heartbeat_context, heartbeat, sizeof heartbeat) == 0)
        *heartbeat = 0;
    struct curl_slist *list = header_add(NULL, "Accept: ", "application/yaml");
    list = header_add(list, "Authorization: Bearer ", token);
    list = header_add(list, "X-Weir-Host: ", heartbeat);
    return header_add(list, "If-None-Match: ", poller->tag);
}

/* The status, or 0 and *why. */
static long fetch(struct weir__rules_poller *r, const char *token, const char **why)
{
    static char reason[CURL_ERROR_SIZE];
    struct curl_slist *headers = headers_make(r, token);
    long status = 0;
    weir__buffer_free(&r->body); /* also after a failure for lack of memory */
    *reason = 0;
    curl_easy_reset(r->curl);
    curl_easy_setopt(r->curl, CURLOPT_URL, r->config->origin.url);
    curl_easy_setopt(r->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(r->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(r->curl, CURLOPT_TIMEOUT_MS, LOOK_MS);
    curl_easy_setopt(r->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(r->curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(r->curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(r->curl, CURLOPT_WRITEDATA, r);
    if (r->config->origin.ca)
        curl_easy_setopt(r->curl, CURLOPT_CAINFO, r->config->origin.ca);
    CURLcode code = curl_easy_perform(r->curl);
    curl_slist_free_all(headers);
    if (code != CURLE_OK) {
        *why = *reason ? reason : curl_easy_strerror(code);
        return 0;
    }
    curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static uint64_t text_checksum(const char *text, size_t len)
{
    return weir__hash_text((weir_text){text, len}, 1) | 1;
}

/* 0: it cannot be read. */
static uint64_t file_checksum(const char *path)
{
    size_t len;
    char *text = weir__file_read(path, &len);
    uint64_t checksum = text ? text_checksum(text, len) : 0;
    free(text);
    return checksum;
}

/* Activates the text of the reply. 1, 0: it is active already, or -1. A text is logged once, whatever it is. */
static int replace(struct weir__rules_poller *poller)
{
    weir_rules *rules;
    struct curl_header *header;
    const char *text = poller->body.data ? poller->body.data : "", *tag = "";
    uint64_t checksum = text_checksum(text, poller->body.len);
    if (curl_easy_header(poller->curl, "ETag", 0, CURLH_HEADER, -1, &header) == CURLHE_OK &&
        strlen(header->value) < TAG_MAX)
        tag = header->value;
    if (!poller->active)
        poller->active = file_checksum(poller->config->rules_path);
    if (checksum == poller->active && (!*poller->tag || strcmp(tag, poller->tag) == 0)) {
        snprintf(poller->tag, TAG_MAX, "%s", tag); /* after a start, or of a service without tags */
        return 0;
    }
    int error = weir__rules_parse_published(poller->config->origin.shown, text, poller->body.len,
                                            checksum == poller->rejected ? NULL : weir__log_diagnostic,
                                            (void *)(uintptr_t)poller->log, &rules);
    poller->rejected = error ? checksum : 0;
    if (error)
        return trouble(poller, "%s", weir_strerror(error));
    size_t count = weir_rules_count(rules);
    weir_rules_free(rules);
    if (!weir__file_write(poller->config->rules_path, text, poller->body.len))
        return trouble(poller, "%s cannot be written: %s", poller->config->rules_path, strerror(errno));
    poller->active = checksum;
    snprintf(poller->tag, TAG_MAX, "%s", tag);
    weir__logf(poller->log, WEIR__LOG_INFO, "%zu rule%s of %s, revision %s, %s active", count, count == 1 ? "" : "s",
               poller->config->origin.shown, *tag ? tag : "without a tag", count == 1 ? "is" : "are");
    return 1;
}

int weir__rules_poller_poll(struct weir__rules_poller *poller)
{
    char token[2048];
    const char *why = NULL;
    if (token_read(poller, token, sizeof token) != 0)
        return -1;
    /* If the file was removed, the rules are fetched whatever their tag. */
    if (access(poller->config->rules_path, R_OK) != 0) {
        *poller->tag = 0;
        poller->active = 0;
    }
    long status = fetch(poller, token, &why);
    if (status == 0)
        return trouble(poller, "%s", why ? why : "no reply");
    if (status == 401 || status == 403)
        return trouble(poller, "the token is refused (%ld)", status);
    if (status != 304 && status != 200)
        return trouble(poller, "the reply is %ld", status);
    int done = status == 200 ? replace(poller) : 0;
    if (done < 0)
        return -1;
    if (*poller->trouble && done == 0) /* otherwise replace() has logged the new rules */
        weir__logf(poller->log, WEIR__LOG_INFO, "rules of %s: available again", poller->config->origin.shown);
    *poller->trouble = 0;
    poller->failures = 0;
    return done;
}

int64_t weir__rules_poller_wait_ms(struct weir__rules_poller *poller)
{
    uint64_t dice = 0;
    int64_t wait = poller->config->origin.poll_ms;
    for (unsigned i = 0; i < poller->failures && i < 8 && wait < WAIT_MAX_MS; i++)
        wait *= 2;
    if (wait > WAIT_MAX_MS && poller->failures)
        wait = poller->config->origin.poll_ms > WAIT_MAX_MS ? poller->config->origin.poll_ms : WAIT_MAX_MS;
    if (weir__random_fill(&dice, sizeof dice) != 0)
        dice = 0;
    /* Jitter of a fifth, so that hosts that were started at once do not poll at once. */
    return wait - wait / 5 + (int64_t)(dice % (uint64_t)(wait * 2 / 5 + 1));
}
