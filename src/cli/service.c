/* The client of the rules service: options, paths, calls; and the service in this process on its database. */
#include "serve/serve.h"
#include "cli/rules.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 256 };

struct weir__service {
    struct weir__http *http; /* or, in this process: */
    const char *url;         /* of http */
    struct weir__control *control;
    struct weir__file *file;        /* weir.yaml; NULL: the database is given */
    struct weir__named_rules named; /* the rules that it names */
    struct weir__control_host host;
    struct weir__file_owner owner;
    char user[NAME_MAX_BYTES];
};

/* ---- The service in this process ---- */

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
static bool places_find(struct weir__service *service, const char *file, enum weir__file_part part, const char **url)
{
    struct weir__findings findings = {.to = stderr, .errors_only = true};
    if (file) {
        service->file = weir__file_open(file, part, weir__add_finding, &findings);
        if (!service->file)
            return false;
        *url = service->file->database ? service->file->database : "sqlite::memory:"; /* there is no audit log */
        service->named = (struct weir__named_rules){service->file->rules_path, service->file->rules_text, file};
        if (service->file->keys)
            service->host = *service->file->keys;
        service->host.queue = service->file->queue;
    }
    service->owner = weir__database_owner(*url);
    if (service->host.queue && !service->owner.user)
        service->owner = weir__database_owner(service->file->queue_database);
    return true;
}

/* Opens the database, or with `file` the one that it names. False: the error was printed. */
static bool open_here(struct weir__service *service, const struct weir__given *given, const char *database,
                      const char *file, enum weir__file_part part)
{
    const char *url = database;
    if (!places_find(service, file, part, &url))
        return false;
    name_user(service->user, sizeof service->user);
    bool shows_files = service->file && service->file->rules_in_files && strncmp(given->command, "rules ", 6) == 0 &&
                       strcmp(given->command, "rules import") != 0;
    struct weir__control_options open = {.url = url,
                                         .files = shows_files ? &service->named : NULL,
                                         .session_ms = service->file ? service->file->session_ms : 0,
                                         .login_links = service->file && service->file->dashboard,
                                         .host = service->file ? &service->host : NULL};
    int error = weir__act_as_owner(&service->owner) ? weir__control_open(&open, &service->control) : WEIR__DB_GONE;
    weir__act_as_self(&service->owner);
    if (error == 0)
        return true;
    fprintf(stderr, "weir %s: %s", given->command, weir__db_strerror(error));
    if (strncmp(url, "sqlite:", 7) == 0) /* the URL of another may have a password */
        fprintf(stderr, " (%s)", url);
    if (service->owner.user)
        fprintf(stderr, " (opened as its owner, uid %u)", service->owner.user);
    fputc('\n', stderr);
    return false;
}

static bool send_here(struct weir__service *service, struct weir__service_call *call, const char *path)
{
    size_t path_len = strcspn(path, "?");
    struct weir__rest_request request = {
        .method = weir__text_of(call->method),
        .path = {path, path_len},
        .query = weir__text_of(path + path_len + (path[path_len] == '?')),
        .content_type = weir__text_of(call->content_type),
        .accept = weir__text_of(call->wants_yaml ? "application/yaml" : "application/json"),
        .if_match = weir__text_of(call->if_match ? weir__format("\"v%" PRId64 "\"", call->if_match) : ""),
        .reason = weir__text_of(call->reason ? call->reason : ""),
        .body = call->body,
        .address = "local",
        .local_user = service->user};
    struct weir__rest_reply reply = {0};
    if (!weir__act_as_owner(&service->owner)) {
        fprintf(stderr, "weir: cannot act as the owner of the database: %s\n", strerror(errno));
        return false;
    }
    weir__rest_run(service->control, &request, &reply);
    weir__act_as_self(&service->owner);
    const char *etag = weir__rest_header(&reply, "ETag");
    call->status = reply.status;
    call->version = etag ? weir__etag_version(etag) : 0;
    call->len = reply.len;
    call->text = weir__must(calloc(1, reply.len + 1));
    if (reply.len > 0)
        memcpy(call->text, reply.body, reply.len);
    weir__rest_free(&reply);
    return true;
}

/* ---- Importing ---- */

const struct weir__named_rules *weir__service_named(const struct weir__service *service)
{
    return service->http ? NULL : &service->named;
}

struct weir__import_result weir__service_import(const struct weir__given *given, const struct weir__named_rules *named,
                                                const struct weir__documents *documents,
                                                struct weir__findings *findings)
{
    struct weir__service *service = given->service;
    struct weir__import_result result = {.no_database = true};
    if (!weir__act_as_owner(&service->owner))
        return result;
    result = weir__control_import(service->control, named, documents, service->user, weir__option(given, "reason"),
                                  weir__add_finding, findings);
    weir__act_as_self(&service->owner);
    return result;
}

/* ---- Opening ---- */

/* The error in the options, or NULL. */
static const char *wrong_options(const struct weir__given *given, const char *url, const char *database,
                                 const char *file, enum weir__file_part part)
{
    /* Every user of a host sees the arguments of all processes. */
    const char *begin = database ? strstr(database, "://") : NULL, *at = begin ? strchr(begin, '@') : NULL;
    const char *own_url = weir__option(given, "url");
    if (weir__option(given, "token"))
        return "--token would show the token to every user of this host; use --token-file FILE or the environment: "
               "WEIR_TOKEN";
    if ((at && memchr(begin + 3, ':', (size_t)(at - begin - 3))) || (database && strstr(database, "password=")))
        return "--db would show the password to every user of this host; leave it out, and use PGPASSWORD, ~/.pgpass, "
               "or --file with its weir.yaml";
    if (own_url && strchr(own_url, '@'))
        return "--url has neither user nor password; use --token-file FILE or the environment: WEIR_TOKEN";
    if (!url && !database && !file)
        return part == WEIR__FILE_DATABASE ? "which rules service? --url, WEIR_URL, --db, or --file with its weir.yaml"
                                           : "there is no weir.yaml in this folder: --file /etc/weir/weir.yaml names "
                                             "one, --url a rules service";
    if ((url != NULL) + (database != NULL) + (file != NULL) > 1)
        return "one of --url, --db and --file";
    if (part == WEIR__FILE_QUEUE && database)
        return "the database of rules has no requests in it; --url, or --file with its weir.yaml";
    if (part == WEIR__FILE_KEYS && database)
        return "the database of rules has no keys in it; --url, or --file with its weir.yaml";
    if (!url && (weir__option(given, "token-file") || weir__option(given, "ca")))
        return "--token-file and --ca are for a --url";
    return NULL;
}

struct weir__service *weir__service_open(const struct weir__given *given, int *code)
{
    const char *url = weir__option(given, "url"), *database = weir__option(given, "db"),
               *file = weir__option(given, "file"), *default_url = getenv("WEIR_URL");
    enum weir__file_part part = strncmp(given->command, "queue ", 6) == 0 ? WEIR__FILE_QUEUE
                                : strncmp(given->command, "key ", 4) == 0 ? WEIR__FILE_KEYS
                                                                          : WEIR__FILE_DATABASE;
    if (!url && !database && !file) {
        url = default_url && *default_url ? default_url : NULL;
        file = url ? NULL : weir__input_default();
    }
    const char *wrong = wrong_options(given, url, database, file, part);
    if (wrong) {
        fprintf(stderr, "weir %s: %s\n", given->command, wrong);
        *code = 2;
        return NULL;
    }
    struct weir__service *service = weir__must(calloc(1, sizeof *service));
    service->url = url;
    if (url ? (service->http = weir__http_open(given, url)) != NULL : open_here(service, given, database, file, part))
        return service;
    *code = 1;
    weir__service_close(service);
    return NULL;
}

const char *weir__service_dashboard(const struct weir__given *given)
{
    const struct weir__service *service = given->service;
    const char *url = service->url ? service->url : service->file ? service->file->dashboard : NULL;
    if (url)
        return weir__format("%.*s", (int)(strlen(url) - (url[strlen(url) - 1] == '/')), url);
    fprintf(stderr, "weir %s: %s\n", given->command,
            service->file ? "login links are for an admin listener that only this host can reach, as 127.0.0.1:9091"
                          : "where is the dashboard? --url, or --file with its weir.yaml");
    return NULL;
}

void weir__service_close(struct weir__service *service)
{
    if (!service)
        return;
    if (service->http)
        weir__http_close(service->http);
    if (!service->http && weir__act_as_owner(&service->owner)) {
        if (service->control)
            weir__control_close(service->control);
        weir__file_close(service->file);
        weir__act_as_self(&service->owner);
    }
    free(service);
}

/* ---- Calls, over either transport ---- */

int64_t weir__etag_version(const char *etag)
{
    weir_text text = weir__text_of(etag);
    int64_t version;
    bool tagged = weir__text_skip(&text, "\"v") && text.len > 0 && text.data[--text.len] == '"';
    return tagged && weir__parse_int(text, &version) && version > 0 ? version : 0;
}

bool weir__send(const struct weir__given *given, struct weir__service_call *call, const char *path)
{
    char *text = NULL;
    call->method = call->method ? call->method : "GET";
    call->content_type = call->body.data ? "application/yaml" : "application/json";
    if ((strcmp(call->method, "POST") == 0 || call->json_body) && !call->body.data) {
        text = call->json_body ? json_dumps(call->json_body, JSON_COMPACT) : NULL;
        json_decref(call->json_body);
        call->json_body = NULL;
        if (!text) {
            fprintf(stderr, "weir %s: no memory, or a text that is not UTF-8\n", given->command);
            return false;
        }
        call->body = weir__text_of(text);
    }
    struct weir__service *service = given->service;
    bool sent = service->http ? weir__http_send(given, service->http, call, path) : send_here(service, call, path);
    if (sent && call->len > 0 && (call->text[0] == '{' || call->text[0] == '['))
        call->json = json_loadb(call->text, call->len, 0, NULL);
    bool good = call->status >= 200 && call->status < 300;
    call->is_other = good && call->status != 204 && !call->wants_yaml && !json_is_object(call->json);
    call->body = (weir_text){0};
    free(text);
    return sent;
}

bool weir__call(const struct weir__given *given, struct weir__service_call *call, const char *path)
{
    return weir__send(given, call, path) && weir__is_good(given, call);
}

void weir__call_free(struct weir__service_call *call)
{
    json_decref(call->json);
    free(call->text);
    *call = (struct weir__service_call){0};
}

const json_t *weir__call_problems(const struct weir__service_call *call)
{
    const json_t *problems = json_object_get(json_object_get(call->json, "error"), "errors");
    return json_is_array(problems) && json_array_size(problems) > 0 ? problems : NULL;
}

const char *weir__call_message(const struct weir__service_call *call)
{
    const char *message = json_string_value(json_object_get(json_object_get(call->json, "error"), "message"));
    return message ? message : "this is not a reply of a rules service";
}

/* A line or a column; 0 if there is none, or one that no document has. */
static int place_in(const json_t *problem, const char *member)
{
    int64_t number = weir__member_int(problem, member);
    return number > 0 && number <= WEIR__INPUT_MAX ? (int)number : 0;
}

weir_diagnostic weir__problem_diagnostic(const json_t *problem)
{
    const char *document = weir__member(problem, "document"), *suggestion = weir__member(problem, "suggestion");
    bool warning = strcmp(weir__member(problem, "severity"), "warning") == 0;
    return (weir_diagnostic){.severity = warning ? WEIR_IS_WARNING : WEIR_IS_ERROR,
                             .file = *document ? document : NULL,
                             .line = place_in(problem, "line"),
                             .column = place_in(problem, "column"),
                             .message = weir__member(problem, "message"),
                             .suggestion = *suggestion ? suggestion : NULL};
}

bool weir__is_good(const struct weir__given *given, const struct weir__service_call *call)
{
    const char *about = call->about;
    struct weir__findings findings = {.to = stderr};
    const json_t *problem;
    size_t i;
    if (call->status >= 200 && call->status < 300 && !call->is_other)
        return true;
    json_array_foreach(weir__call_problems(call), i, problem)
    { /* as weir lint shows errors, under the document's name */
        weir_diagnostic what = weir__problem_diagnostic(problem);
        what.file = what.file ? what.file : about;
        weir__add_finding(&findings, &what);
    }
    char status[16] = "";
    if (given->service->http)
        snprintf(status, sizeof status, " (%d)", call->status);
    weir__print_line(stderr, "weir %s: %s%s%s%s%s", given->command, about ? about : "", about ? ": " : "",
                     weir__call_message(call), status,
                     call->status == 401 ? "; give a token: --token-file or WEIR_TOKEN" : "");
    return false;
}

const char *weir__path(const char *form, ...)
{
    struct weir__buffer path = {0};
    size_t member = 0; /* where the current member of the query begins */
    va_list texts;
    va_start(texts, form);
    for (; *form; form++) {
        if (*form == '?' || *form == '&') {
            member = path.len;
            weir__buffer_printf(&path, "%c", path.len && strchr(path.data, '?') ? '&' : '?');
        } else if (*form != '%') {
            weir__buffer_printf(&path, "%c", *form);
        } else {
            const char *text = va_arg(texts, const char *);
            for (const char *c = text; c && *c; c++)
                weir__buffer_printf(&path,
                                    weir__is_letter(*c) || weir__is_digit(*c) || strchr("-_.~", *c) ? "%c" : "%%%02X",
                                    (unsigned char)*c);
            if (!text) {
                path.len = member;
                weir__buffer_printf(&path, "%s", "");
            }
        }
    }
    va_end(texts);
    return weir__buffer_keep(&path);
}

const char *weir__digits(int64_t number)
{
    return number ? weir__format("%" PRId64, number) : NULL;
}
