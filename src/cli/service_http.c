/* The rules service over HTTP, by libcurl. */
#include "cli/cli.h"
#include "cli/service.h"
#include "cli/text.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define REPLY_MAX ((size_t)64 << 20) /* a published set may have the size of the largest rules */
enum { TOKEN_MAX = 4096, CONNECT_S = 10, ALL_S = 60 };

struct weir__http {
    const char *command;
    CURL *curl;
    char *base; /* the address without a slash at its end */
    char *token;
    const char *ca;
};

/* ---- Opening ---- */

/* The first word of a file, from malloc; NULL after an error was printed. */
static char *token_read(const char *command, const char *path)
{
    size_t len;
    struct stat at;
    if (stat(path, &at) == 0 && S_ISREG(at.st_mode) && (at.st_mode & S_IROTH))
        fprintf(stderr, "weir %s: warning: %s: every user of this host may read it (mode %04o); chmod o= %s\n", command,
                path, at.st_mode & 07777u, path);
    errno = 0;
    char *text = weir__read_all(path, TOKEN_MAX, &len);
    if (!text) {
        fprintf(stderr, "weir %s: %s: %s\n", command, path, errno ? strerror(errno) : "it cannot be read");
        return NULL;
    }
    text[strcspn(text, " \t\r\n")] = '\0';
    if (*text)
        return text;
    fprintf(stderr, "weir %s: %s: there is no token in it\n", command, path);
    free(text);
    return NULL;
}

/* False for a token with characters that could end the header. */
static bool is_token(const char *token)
{
    for (const char *c = token; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f)
            return false;
    return *token != '\0';
}

/* The address of a service: scheme and host, perhaps a path before /v1. */
static char *base_of(const char *command, const char *url)
{
    bool known = strncasecmp(url, "https://", 8) == 0 || strncasecmp(url, "http://", 7) == 0;
    if (!known || strpbrk(url, "?# \t\r\n")) {
        fprintf(stderr, "weir %s: --url is the address of a rules service, such as https://host:9091\n", command);
        return NULL;
    }
    char *base = weir__must(strdup(url));
    size_t len = strlen(base);
    while (len > 0 && base[len - 1] == '/')
        base[--len] = '\0';
    return base;
}

struct weir__http *weir__http_open(const struct weir__service_options *options)
{
    struct weir__http *http = weir__must(calloc(1, sizeof *http));
    http->command = options->command;
    http->ca = options->ca;
    http->base = base_of(options->command, options->url);
    if (!http->base)
        goto failed;
    if (options->token_file || options->token) {
        http->token = options->token_file ? token_read(options->command, options->token_file)
                                          : weir__must(strdup(options->token));
        if (!http->token)
            goto failed;
        if (!is_token(http->token)) {
            fprintf(stderr, "weir %s: the token has characters that no token has\n", options->command);
            goto failed;
        }
    }
    http->curl = curl_easy_init();
    if (http->curl)
        return http;
    fprintf(stderr, "weir %s: libcurl cannot be used\n", options->command);
failed:
    weir__http_close(http);
    return NULL;
}

void weir__http_close(struct weir__http *http)
{
    curl_easy_cleanup(http->curl);
    free(http->base);
    free(http->token);
    free(http);
}

/* ---- Requests ---- */

static size_t take_body(char *data, size_t one, size_t count, void *context)
{
    struct weir__service_reply *reply = context;
    size_t more = one * count;
    if (more > REPLY_MAX - reply->len)
        return 0;
    char *grown = realloc(reply->body, reply->len + more + 1);
    if (!grown)
        return 0;
    memcpy(grown + reply->len, data, more);
    reply->body = grown;
    reply->len += more;
    grown[reply->len] = '\0';
    return more;
}

static size_t take_header(char *data, size_t one, size_t count, void *context)
{
    static const char name[] = "etag:";
    struct weir__service_reply *reply = context;
    size_t len = one * count, at = sizeof name - 1, end = len;
    if (len <= at || strncasecmp(data, name, at) != 0)
        return len;
    while (at < end && data[at] == ' ')
        at++;
    while (end > at && strchr("\r\n ", data[end - 1]))
        end--;
    reply->version = weir__etag_version(data + at, end - at);
    return len;
}

/* Adds "NAME: VALUE"; control characters become blanks, so that it stays one header. */
static void add_header(struct curl_slist **list, const char *name, const char *value)
{
    struct weir__buffer line = {0};
    weir__buffer_printf(&line, "%s: %s", name, value);
    weir__buffer_text(&line);
    for (char *c = line.data; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    *list = weir__must(curl_slist_append(*list, line.data));
    weir__buffer_free(&line);
}

static struct curl_slist *headers_make(const struct weir__http *http, const struct weir__service_request *q)
{
    struct curl_slist *list = NULL;
    char text[TOKEN_MAX + 16];
    add_header(&list, "Accept", q->wants_yaml ? "application/yaml" : "application/json");
    add_header(&list, "Expect", "");
    if (http->token) {
        snprintf(text, sizeof text, "Bearer %s", http->token);
        add_header(&list, "Authorization", text);
    }
    if (q->body)
        add_header(&list, "Content-Type", q->yaml ? "application/yaml" : "application/json");
    if (q->if_match) {
        snprintf(text, sizeof text, "\"v%lld\"", (long long)q->if_match);
        add_header(&list, "If-Match", text);
    }
    if (q->reason)
        add_header(&list, "X-Weir-Reason", q->reason);
    return list;
}

static void set_up(struct weir__http *http, const struct weir__service_request *q, struct weir__service_reply *reply,
                   const char *url, struct curl_slist *headers)
{
    CURL *curl = http->curl;
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR,
                     "http,https"); /* redirects are not followed: a token is for one host */
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, q->method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)ALL_S);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, reply);
    if (http->ca)
        curl_easy_setopt(curl, CURLOPT_CAINFO, http->ca);
    if (q->body) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->len);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, q->body);
    }
}

bool weir__http_call(struct weir__http *http, const struct weir__service_request *q, struct weir__service_reply *reply)
{
    char why[CURL_ERROR_SIZE] = "";
    struct weir__buffer url = {0};
    struct curl_slist *headers = headers_make(http, q);
    weir__buffer_printf(&url, "%s%s", http->base, q->path);
    set_up(http, q, reply, weir__buffer_text(&url), headers);
    curl_easy_setopt(http->curl, CURLOPT_ERRORBUFFER, why);
    CURLcode code = curl_easy_perform(http->curl);
    if (code == CURLE_OK) {
        long status = 0;
        curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &status);
        reply->status = (int)status;
    } else {
        fprintf(stderr, "weir %s: %s: %s\n", http->command, http->base, *why ? why : curl_easy_strerror(code));
    }
    curl_slist_free_all(headers);
    weir__buffer_free(&url);
    return code == CURLE_OK;
}
