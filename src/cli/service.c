/* The client of the rules service: options, paths, replies; and the service in this process on its database. */
#include "base/text.h"
#include "serve/serve.h"
#include "cli/service.h"
#include "control/control.h"
#include "cli/cli.h"
#include "cli/text.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The service in this process ---- */

enum { NAME_MAX_BYTES = 256, URL_MAX = 4096 };

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

struct weir__local {
    struct weir__control *control;
    struct weir__file_queue *queue; /* NULL: not needed */
    struct weir__control_host host;
    struct weir__database_owner owner;
    char user[NAME_MAX_BYTES];
};

/* The login name of the user, also under sudo. */
static void name_user(char *name, size_t size)
{
    if (getlogin_r(name, size) == 0 && *name)
        return;
    const struct passwd *entry = getpwuid(getuid());
    if (entry)
        snprintf(name, size, "%s", entry->pw_name);
    else
        snprintf(name, size, "uid %ld", (long)getuid());
}

/* Finds the database, and opens the queue if it is needed. False: the error was printed. */
static bool places_find(struct weir__local *local, const struct weir__service_options *options, char *url)
{
    struct weir__findings findings = {.to = stderr};
    bool found = true;
    if (options->file && options->queue) {
        local->queue = weir__file_queue_open(options->file, weir__find_errors, &findings);
        found = local->queue != NULL;
        const char *rules = found ? weir__file_queue_rules(local->queue) : NULL;
        snprintf(url, URL_MAX, "%s",
                 rules ? rules : "sqlite::memory:"); /* without a rules service there is no audit log */
    } else if (options->file) {
        found = weir__rules_database(options->file, weir__find_errors, &findings, url, URL_MAX);
    } else {
        snprintf(url, URL_MAX, "%s", options->database);
    }
    weir__findings_free(&findings);
    if (found)
        local->owner = weir__database_owner(url);
    if (local->queue && !local->owner.user)
        local->owner = weir__database_owner(weir__file_queue_database(local->queue));
    return found;
}

static struct weir__local *local_open(const struct weir__service_options *options)
{
    char url[URL_MAX];
    struct weir__local *local = weir__must(calloc(1, sizeof *local));
    if (!places_find(local, options, url)) {
        free(local);
        return NULL;
    }
    name_user(local->user, sizeof local->user);
    if (local->queue)
        local->host.queue = weir__file_queue_calls(local->queue);
    struct weir__control_options open = {.url = url, .host = local->queue ? &local->host : NULL};
    int error = weir__act_as_owner(&local->owner) ? weir__control_open(&open, &local->control) : WEIR__DB_GONE;
    weir__act_as_self(&local->owner);
    if (error == 0)
        return local;
    fprintf(stderr, "weir %s: %s", options->command, weir__db_strerror(error));
    if (local->owner.user)
        fprintf(stderr, " (opened as its owner, uid %u)", local->owner.user);
    fputc('\n', stderr);
    weir__file_queue_close(local->queue);
    free(local);
    return NULL;
}

static void local_close(struct weir__local *local)
{
    if (weir__act_as_owner(&local->owner)) {
        weir__control_close(local->control);
        weir__file_queue_close(local->queue);
        weir__act_as_self(&local->owner);
    }
    free(local);
}

static bool local_call(struct weir__local *local, const struct weir__service_request *q,
                       struct weir__service_reply *reply)
{
    const char *query = strchr(q->path, '?');
    char tag[40] = "";
    if (q->if_match)
        snprintf(tag, sizeof tag, "\"v%lld\"", (long long)q->if_match);
    struct weir__rest_request request = {
        .method = weir__text_of(q->method),
        .path = {q->path, query ? (size_t)(query - q->path) : strlen(q->path)},
        .query = weir__text_of(query ? query + 1 : ""),
        .content_type = weir__text_of(q->yaml ? "application/yaml" : "application/json"),
        .accept = weir__text_of(q->wants_yaml ? "application/yaml" : "application/json"),
        .if_match = weir__text_of(tag),
        .reason = weir__text_of(q->reason ? q->reason : ""),
        .body = {q->body ? q->body : "", q->body ? q->len : 0},
        .address = "local",
        .local_user = local->user};
    struct weir__rest_reply internal = {0};
    if (!weir__act_as_owner(&local->owner)) {
        fprintf(stderr, "weir: cannot act as the owner of the database: %s\n", strerror(errno));
        return false;
    }
    weir__rest_run(local->control, &request, &internal);
    weir__act_as_self(&local->owner);
    const char *etag = weir__rest_header(&internal, "ETag");
    reply->status = internal.status;
    reply->version = etag ? weir__etag_version(etag, strlen(etag)) : 0;
    reply->body = weir__must(malloc(internal.len + 1));
    if (internal.len > 0)
        memcpy(reply->body, internal.body, internal.len);
    reply->body[internal.len] = '\0';
    reply->len = internal.len;
    weir__rest_free(&internal);
    return true;
}

/* ---- Over either transport ---- */

struct weir__service {
    const char *command;
    struct weir__http *http;
    struct weir__local *local;
};

/* Fills in options that the command line lacks, from the environment and the current directory. */
static void complete(struct weir__service_options *options)
{
    const char *url = getenv("WEIR_URL"), *token = getenv("WEIR_TOKEN");
    if (!options->url && !options->database && !options->file) {
        if (url && *url)
            options->url = url;
        else
            options->file = weir__input_default();
    }
    if (options->url && !options->token && !options->token_file && token && *token)
        options->token = token;
}

/* The error in the options, or NULL. */
static const char *wrong_options(const struct weir__service_options *given, const struct weir__service_options *options)
{
    /* Every user of a host sees the arguments of all processes. */
    const char *database = given->database ? given->database : "";
    const char *begin = strstr(database, "://"), *at = begin ? strchr(begin, '@') : NULL;
    if (given->token)
        return "--token would show the token to every user of this host; use --token-file FILE or the environment: "
               "WEIR_TOKEN";
    if ((at && memchr(begin + 3, ':', (size_t)(at - begin - 3))) || strstr(database, "password="))
        return "--db would show the password to every user of this host; leave it out, and use PGPASSWORD, ~/.pgpass, "
               "or --file with its weir.yaml";
    if (given->url && strchr(given->url, '@'))
        return "--url has neither user nor password; use --token-file FILE or the environment: WEIR_TOKEN";
    if (!options->url && !options->database && !options->file)
        return "which rules service? --url, WEIR_URL, --db, or --file with its weir.yaml";
    if ((options->url != NULL) + (options->database != NULL) + (options->file != NULL) > 1)
        return "one of --url, --db and --file";
    if (options->queue && options->database)
        return "the database of rules has no requests in it; --url, or --file with its weir.yaml";
    if (!options->url && (options->token_file || options->ca))
        return "--token-file and --ca are for a --url";
    return NULL;
}

struct weir__service *weir__service_open(const struct weir__service_options *given, int *code)
{
    struct weir__service_options options = *given;
    complete(&options);
    const char *wrong = wrong_options(given, &options);
    if (wrong) {
        fprintf(stderr, "weir %s: %s\n", options.command, wrong);
        *code = 2;
        return NULL;
    }
    *code = 1;
    struct weir__service *service = weir__must(calloc(1, sizeof *service));
    service->command = options.command;
    if (options.url)
        service->http = weir__http_open(&options);
    else
        service->local = local_open(&options);
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
        local_close(service->local);
    free(service);
}

bool weir__service_call(struct weir__service *service, const struct weir__service_request *request,
                        struct weir__service_reply *reply)
{
    *reply = (struct weir__service_reply){0};
    bool sent =
        service->http ? weir__http_call(service->http, request, reply) : local_call(service->local, request, reply);
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
    return message ? message : "this is not a reply of a rules service";
}

weir_diagnostic weir__problem_diagnostic(const json_t *problem)
{
    const char *severity = json_string_value(json_object_get(problem, "severity"));
    const char *message = json_string_value(json_object_get(problem, "message"));
    return (weir_diagnostic){.severity = severity && strcmp(severity, "warning") == 0 ? WEIR_IS_WARNING : WEIR_IS_ERROR,
                             .file = json_string_value(json_object_get(problem, "document")),
                             .line = (int)json_integer_value(json_object_get(problem, "line")),
                             .column = (int)json_integer_value(json_object_get(problem, "column")),
                             .message = message ? message : "",
                             .suggestion = json_string_value(json_object_get(problem, "suggestion"))};
}

/* Shows errors in a document as weir lint does, under the document's name. */
static void show_problems(const json_t *problems, const char *about)
{
    struct weir__findings findings = {.to = stderr};
    size_t i;
    const json_t *problem;
    json_array_foreach(problems, i, problem)
    {
        weir_diagnostic what = weir__problem_diagnostic(problem);
        what.file = what.file ? what.file : about;
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
    char status[16] = "";
    if (service->http)
        snprintf(status, sizeof status, " (%d)", reply->status);
    weir__print_line(stderr, "weir %s: %s%s%s%s%s", service->command, about ? about : "", about ? ": " : "",
                     weir__service_reply_message(reply), status,
                     reply->status == 401 ? "; give a token: --token-file or WEIR_TOKEN" : "");
    return false;
}

static void add_escaped(struct weir__buffer *path, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-_.~", c);
        weir__buffer_printf(path, plain ? "%c" : "%%%02X", c);
    }
}

char *weir__service_path(const char *start, const char *name, const char *rest)
{
    struct weir__buffer path = {0};
    weir__buffer_printf(&path, "%s", start);
    add_escaped(&path, name);
    weir__buffer_printf(&path, "%s", rest);
    weir__must(path.failed ? NULL : path.data);
    return path.data;
}

void weir__query_add(struct weir__buffer *path, const char *name, const char *value)
{
    if (!value)
        return;
    weir__buffer_printf(path, "%c%s=", path->data && strchr(path->data, '?') ? '&' : '?', name);
    add_escaped(path, value);
}
