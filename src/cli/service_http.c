/* The rules service over HTTP, by libcurl. */
#include "cli/service.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define REPLY_MAX ((size_t)64 << 20) /* a published set may have the size of the largest rules */
enum { TOKEN_MAX = 4096, CONNECT_S = 10, ALL_S = 60 };

struct weir__http {
    CURL *curl;
    char *base; /* the address without a slash at its end */
    const char *token, *ca;
};

/* ---- Opening ---- */

/* The first word of a file; NULL after an error was printed. */
static const char *token_read(const char *command, const char *path)
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
    weir__keep(text);
    text[strcspn(text, " \t\r\n")] = '\0';
    if (*text)
        return text;
    fprintf(stderr, "weir %s: %s: there is no token in it\n", command, path);
    return NULL;
}

struct weir__http *weir__http_open(const struct weir__given *given, const char *url)
{
    const char *command = given->command, *file = weir__option(given, "token-file"), *token = getenv("WEIR_TOKEN");
    bool known = strncasecmp(url, "https://", 8) == 0 || strncasecmp(url, "http://", 7) == 0;
    if (!known || strpbrk(url, "?# \t\r\n")) {
        fprintf(stderr, "weir %s: --url is the address of a rules service, such as https://host:9091\n", command);
        return NULL;
    }
    if (file && !(token = token_read(command, file)))
        return NULL;
    if (token && !weir__text_graphic(weir__text_of(token))) { /* such characters could end the header */
        fprintf(stderr, "weir %s: the token has characters that no token has\n", command);
        return NULL;
    }
    struct weir__http *http = weir__keep(calloc(1, sizeof *http));
    *http = (struct weir__http){curl_easy_init(), weir__format("%s", url), token, weir__option(given, "ca")};
    for (size_t len = strlen(url); len > 0 && http->base[len - 1] == '/'; len--)
        http->base[len - 1] = '\0';
    if (http->curl)
        return http;
    fprintf(stderr, "weir %s: libcurl cannot be used\n", command);
    return NULL;
}

void weir__http_close(struct weir__http *http)
{
    curl_easy_cleanup(http->curl);
}

/* ---- Requests ---- */

static size_t take_body(char *data, size_t one, size_t count, void *context)
{
    struct weir__service_call *call = context;
    size_t more = one * count;
    char *grown = more > REPLY_MAX - call->len ? NULL : realloc(call->text, call->len + more + 1);
    if (!grown)
        return 0;
    memcpy(grown + call->len, data, more);
    call->text = grown;
    call->len += more;
    grown[call->len] = '\0';
    return more;
}

/* Adds a header; control characters become blanks, so that it stays one. */
static void add_header(struct curl_slist **list, char *line)
{
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    *list = weir__must(curl_slist_append(*list, line));
}

static struct curl_slist *headers_make(const struct weir__http *http, const struct weir__service_call *call)
{
    struct curl_slist *list = NULL;
    add_header(&list, weir__format("Accept: application/%s", call->wants_yaml ? "yaml" : "json"));
    add_header(&list, weir__format("Expect: "));
    if (http->token && *http->token)
        add_header(&list, weir__format("Authorization: Bearer %s", http->token));
    if (call->body.data)
        add_header(&list, weir__format("Content-Type: %s", call->content_type));
    if (call->if_match)
        add_header(&list, weir__format("If-Match: \"v%lld\"", (long long)call->if_match));
    if (call->reason)
        add_header(&list, weir__format("X-Weir-Reason: %s", call->reason));
    return list;
}

bool weir__http_send(const struct weir__given *given, struct weir__http *http, struct weir__service_call *call,
                     const char *path)
{
    CURL *curl = http->curl;
    char why[CURL_ERROR_SIZE] = "";
    long status = 0;
    struct curl_header *etag;
    struct curl_slist *headers = headers_make(http, call);
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, weir__format("%s%s", http->base, path));
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR,
                     "http,https"); /* redirects are not followed: a token is for one host */
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)ALL_S);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    if (http->ca)
        curl_easy_setopt(curl, CURLOPT_CAINFO, http->ca);
    if (call->body.data) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.len);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->body.data);
    }
    CURLcode code = curl_easy_perform(curl);
    if (code == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    else
        fprintf(stderr, "weir %s: %s: %s\n", given->command, http->base, *why ? why : curl_easy_strerror(code));
    call->status = (int)status;
    if (curl_easy_header(curl, "ETag", 0, CURLH_HEADER, -1, &etag) == CURLHE_OK)
        call->version = weir__etag_version(etag->value);
    curl_slist_free_all(headers);
    return code == CURLE_OK;
}
