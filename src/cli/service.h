/*
 * The commands' client of the rules service: over HTTP, or in this process on the database itself. docs/control.md has
 * the API.
 */
#ifndef WEIR_CLI_SERVICE_H
#define WEIR_CLI_SERVICE_H

#include "base/buffer.h"
#include "cli/diagnose.h"

#include <jansson.h>

/* How to reach the service: `url`, `database` or `file`, or the environment and the current folder. */
struct weir__service_options {
    const char *command; /* for messages: "rules apply" */
    const char *url, *token, *token_file, *ca;
    const char *database; /* sqlite:/path or postgresql://… */
    const char *file;     /* a weir.yaml that names it */
    bool queue;           /* for deferred requests: weir.yaml needs no rules service */
};

struct weir__service_request {
    const char *method, *path; /* the path with its query */
    const char *body;          /* may be NULL */
    size_t len;
    bool yaml;        /* the body is; else it is JSON */
    bool wants_yaml;  /* the reply shall be YAML; else it is an object of JSON */
    int64_t if_match; /* a version; 0: none */
    const char *reason;
};

struct weir__service_reply {
    int status;
    int64_t version; /* of its ETag; 0: none */
    char *body;      /* followed by a zero byte */
    size_t len;
    json_t *json;  /* the body, if it is JSON; else NULL */
    bool is_other; /* not a reply of a rules service */
};

struct weir__service;

/* NULL: the error was printed; *code is the exit code. */
struct weir__service *weir__service_open(const struct weir__service_options *options, int *code);
void weir__service_close(struct weir__service *service);

/* False: there was no reply, and the reason was printed. Free `reply` either way. */
bool weir__service_call(struct weir__service *service, const struct weir__service_request *request,
                        struct weir__service_reply *reply);
void weir__service_reply_free(struct weir__service_reply *reply);

/*
 * True for 2xx with the expected content. Otherwise prints the service's error; `about` (may be NULL) is the document
 * that was sent.
 */
bool weir__service_reply_is_good(const struct weir__service *service, const struct weir__service_reply *reply,
                                 const char *about);
/* The list of errors in documents, or NULL. */
const json_t *weir__service_reply_problems(const struct weir__service_reply *reply);
/* One of them. Its texts live as long as `problem`. */
weir_diagnostic weir__problem_diagnostic(const json_t *problem);
/* The reason of a refusal, in one line. */
const char *weir__service_reply_message(const struct weir__service_reply *reply);

/* `start`, the escaped `name` and `rest`. From malloc. */
char *weir__service_path(const char *start, const char *name, const char *rest);
/* Adds "?name=value" or "&name=value" to a path; nothing if the value is NULL. */
void weir__query_add(struct weir__buffer *path, const char *name, const char *value);

/* ---- Between the files ---- */

/* Over HTTP (service_http.c). Both print the reason if they fail. */
struct weir__http;
struct weir__http *weir__http_open(const struct weir__service_options *options);
void weir__http_close(struct weir__http *http);
bool weir__http_call(struct weir__http *http, const struct weir__service_request *request,
                     struct weir__service_reply *reply);

/* The number in an ETag such as "v12", with its quotes; 0: it is not such a tag. */
int64_t weir__etag_version(const char *etag, size_t len);

#endif
