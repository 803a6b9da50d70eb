/* The rules service as the commands see it. */
#define _GNU_SOURCE /* strdup */
#include "cli/service.h"
#include "cli/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct weir__service {
    const char *command;
    struct weir__http *http;
    struct weir__local *local;
};

/* Fills in from the environment and the folder what the command line does not say. False: nothing says it. */
static bool complete(struct weir__service_options *options)
{
    const char *url = getenv("WEIR_URL");
    if (!options->url && !options->database && !options->file) {
        if (url && *url)
            options->url = url;
        else if (access("weir.yaml", F_OK) == 0)
            options->file = "weir.yaml";
    }
    if (options->url && !options->token && !options->token_file) {
        const char *token = getenv("WEIR_TOKEN");
        if (token && *token)
            options->token = token;
    }
    return options->url || options->database || options->file;
}

/* Every user of a host sees the arguments of all processes. True after the error was printed. */
static bool shows_secret(const struct weir__service_options *given)
{
    const char *database = given->database ? given->database : "", *url = given->url ? given->url : "";
    const char *begin = strstr(database, "://"), *at = begin ? strchr(begin, '@') : NULL;
    bool password = (at && memchr(begin + 3, ':', (size_t)(at - begin - 3))) || strstr(database, "password=");
    if (given->token)
        fprintf(stderr,
                "weir %s: --token would show the token to every user of this host; use --token-file FILE or the "
                "environment: WEIR_TOKEN\n",
                given->command);
    else if (password)
        fprintf(stderr,
                "weir %s: --db would show the password to every user of this host; leave it out, and use PGPASSWORD, "
                "~/.pgpass, or --file with its weir.yaml\n",
                given->command);
    else if (strchr(url, '@'))
        fprintf(stderr,
                "weir %s: --url has neither user nor password; use --token-file FILE or the environment: WEIR_TOKEN\n",
                given->command);
    return given->token || password || strchr(url, '@');
}

struct weir__service *weir__service_open(const struct weir__service_options *given, int *code)
{
    struct weir__service_options options = *given;
    *code = 2;
    if (shows_secret(given))
        return NULL;
    if (!complete(&options)) {
        fprintf(stderr, "weir %s: which rules service? --url, WEIR_URL, --db, or --file with its weir.yaml\n",
                options.command);
        return NULL;
    }
    if ((options.url != NULL) + (options.database != NULL) + (options.file != NULL) > 1) {
        fprintf(stderr, "weir %s: one of --url, --db and --file\n", options.command);
        return NULL;
    }
    if (options.queue && options.database) {
        fprintf(stderr, "weir %s: the database of rules has no requests in it; --url, or --file with its weir.yaml\n",
                options.command);
        return NULL;
    }
    if (!options.url && (options.token_file || options.ca)) {
        fprintf(stderr, "weir %s: --token-file and --ca are for a --url\n", options.command);
        return NULL;
    }
    *code = 1;
    struct weir__service *service = calloc(1, sizeof *service);
    if (!service)
        return NULL;
    service->command = options.command;
    if (options.url)
        service->http = weir__http_open(&options);
    else
        service->local = weir__local_open(&options);
    if (service->http || service->local)
        return service;
    free(service);
    return NULL;
}

void weir__service_close(struct weir__service *service)
{
    if (!service)
        return;
    if (service->http)
        weir__http_close(service->http);
    if (service->local)
        weir__local_close(service->local);
    free(service);
}

bool weir__service_call(struct weir__service *service, const struct weir__service_request *request,
                        struct weir__service_reply *reply)
{
    *reply = (struct weir__service_reply){0};
    bool sent = service->http ? weir__http_call(service->http, request, reply)
                              : weir__local_call(service->local, request, reply);
    if (sent && reply->len > 0 && (reply->body[0] == '{' || reply->body[0] == '['))
        reply->json = json_loadb(reply->body, reply->len, 0, NULL);
    bool good = reply->status >= 200 && reply->status < 300;
    reply->is_other = good && reply->status != 204 && !request->wants_yaml && !json_is_object(reply->json);
    return sent;
}

void weir__service_reply_free(struct weir__service_reply *reply)
{
    json_decref(reply->json);
    free(reply->body);
    *reply = (struct weir__service_reply){0};
}

const json_t *weir__service_reply_problems(const struct weir__service_reply *reply)
{
    const json_t *problems = json_object_get(json_object_get(reply->json, "error"), "errors");
    return json_is_array(problems) && json_array_size(problems) > 0 ? problems : NULL;
}

const char *weir__service_reply_message(const struct weir__service_reply *reply)
{
    const char *message = json_string_value(json_object_get(json_object_get(reply->json, "error"), "message"));
    return message ? message : "it answered with something else than the rules service would";
}

/* What is wrong with a document, as weir lint shows it, under the document's own name. */
static void show_problems(const json_t *problems, const char *about)
{
    struct weir__findings findings = {.to = stderr};
    size_t i;
    const json_t *problem;
    json_array_foreach(problems, i, problem)
    {
        const char *severity = json_string_value(json_object_get(problem, "severity"));
        const char *document = json_string_value(json_object_get(problem, "document"));
        const char *message = json_string_value(json_object_get(problem, "message"));
        weir_diagnostic what = {.severity =
                                    severity && strcmp(severity, "warning") == 0 ? WEIR_IS_WARNING : WEIR_IS_ERROR,
                                .file = document ? document : about,
                                .line = (int)json_integer_value(json_object_get(problem, "line")),
                                .column = (int)json_integer_value(json_object_get(problem, "column")),
                                .message = message ? message : "",
                                .suggestion = json_string_value(json_object_get(problem, "suggestion"))};
        weir__add_finding(&findings, &what);
    }
    weir__findings_free(&findings);
}

bool weir__service_reply_is_good(const struct weir__service *service, const struct weir__service_reply *reply,
                                 const char *about)
{
    if (reply->status >= 200 && reply->status < 300 && !reply->is_other)
        return true;
    const json_t *problems = weir__service_reply_problems(reply);
    if (problems)
        show_problems(problems, about);
    fprintf(stderr, "weir %s: ", service->command);
    if (about) {
        weir__print_text(stderr, about, SIZE_MAX, false);
        fputs(": ", stderr);
    }
    weir__print_text(stderr, weir__service_reply_message(reply), SIZE_MAX, false);
    if (service->http)
        fprintf(stderr, " (%d)", reply->status);
    if (reply->status == 401)
        fputs("; give a token: --token-file or WEIR_TOKEN", stderr);
    fputc('\n', stderr);
    return false;
}

char *weir__query_escape(const char *text)
{
    static const char hex[] = "0123456789ABCDEF";
    char *escaped = malloc(3 * strlen(text) + 1), *to = escaped;
    for (; escaped && *text; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-_.~", c)) {
            *to++ = (char)c;
        } else {
            *to++ = '%';
            *to++ = hex[c >> 4];
            *to++ = hex[c & 15];
        }
    }
    if (escaped)
        *to = '\0';
    return escaped;
}

char *weir__service_path(const char *name, const char *rest)
{
    static const char start[] = "/v1/rules/";
    char *escaped = weir__query_escape(name), *path = NULL;
    size_t size = sizeof start + (escaped ? strlen(escaped) : 0) + strlen(rest);
    if (escaped)
        path = malloc(size);
    if (path)
        snprintf(path, size, "%s%s%s", start, escaped, rest);
    free(escaped);
    return path;
}

int64_t weir__etag_version(const char *etag, size_t len)
{
    int64_t version = 0;
    if (len < 4 || memcmp(etag, "\"v", 2) != 0 || etag[len - 1] != '"' || len > 20)
        return 0;
    for (size_t i = 2; i + 1 < len; i++) {
        if (etag[i] < '0' || etag[i] > '9')
            return 0;
        version = 10 * version + (etag[i] - '0');
    }
    return version;
}
