/*
 * The commands' client of the rules service (docs/reference/rest.md has the API), over HTTP or in this process on the
 * database itself; and the output of what it replies.
 */
#ifndef WEIR_CLI_SERVICE_H
#define WEIR_CLI_SERVICE_H

#include "cli/cli.h"
#include "cli/diagnose.h"
#include "cli/text.h"

#include <jansson.h>

/* ---- Calls (service.c, service_http.c) ---- */

/* A request, and the reply to it. */
struct weir__service_call {
    const char *method; /* NULL: GET */
    const char *about;  /* for messages: the document or the key that it is about; may be NULL */
    json_t *json_body;  /* of POST, unless it is YAML; taken over; NULL is an error */
    weir_text body;     /* YAML */
    bool wants_yaml;    /* the reply shall be YAML; else it is an object of JSON */
    int64_t if_match;   /* a version; 0: none */
    const char *reason;
    const char *content_type; /* set by weir__send */

    int status;      /* 0: there is no reply */
    int64_t version; /* of its ETag; 0: none */
    char *text;      /* followed by a zero byte */
    size_t len;
    json_t *json;  /* the text, if it is JSON; else NULL */
    bool is_other; /* not a reply of a rules service */
};

/* Opens the service that the options name. NULL: the error was printed; *code is the exit code. */
struct weir__service *weir__service_open(const struct weir__given *given, int *code);
/* The URL of its dashboard, for login links; NULL after an error was printed. */
const char *weir__service_dashboard(const struct weir__given *given);
/* NULL is allowed. */
void weir__service_close(struct weir__service *service);

/* A path. Each '%' is replaced by a text, escaped. A member of the query with NULL is left out. */
const char *weir__path(const char *form, ...);
/* The digits of a number; NULL for 0. */
const char *weir__digits(int64_t number);

/* False: there is no reply, and the reason was printed. Free the call either way. */
bool weir__send(const struct weir__given *given, struct weir__service_call *call, const char *path);
/* True for a reply of 2xx with the expected content. Otherwise prints the service's error. */
bool weir__is_good(const struct weir__given *given, const struct weir__service_call *call);
/* Both: false after an error was printed. */
bool weir__call(const struct weir__given *given, struct weir__service_call *call, const char *path);
void weir__call_free(struct weir__service_call *call);
/* Frees a call. Before that, if it is good, prints the reply: by `print`, or with --json as it is. Returns the exit
 * code. */
int weir__call_end(const struct weir__given *given, struct weir__service_call *call, bool good,
                   void (*print)(const json_t *reply));

/* The list of errors in documents, or NULL. */
const json_t *weir__call_problems(const struct weir__service_call *call);
/* One of them. Its texts live as long as `problem`. */
weir_diagnostic weir__problem_diagnostic(const json_t *problem);
/* The reason of a refusal, in one line. */
const char *weir__call_message(const struct weir__service_call *call);
/* The list in a reply's `items`; NULL after an error was printed. */
json_t *weir__call_items(const struct weir__given *given, const struct weir__service_call *call);
/* All pages of a list; NULL after an error was printed. */
json_t *weir__list_all(const struct weir__given *given, const char *path);

/* The deferred request of a ticket in the queue of a weir.yaml; NULL: it has none (queue.c). */
json_t *weir__deferred_find(const char *file, const char *ticket);

/* ---- Output (reply.c) ---- */

/* Members of an object as text; "" if there is none. `buffer` has 32 bytes. */
const char *weir__member(const json_t *object, const char *name);
const char *weir__member_number(const json_t *object, const char *name, char *buffer);
/* "2026-11-15 10:15" */
const char *weir__member_time(const json_t *object, const char *name, char *buffer);
/* 0 if there is no such integer. */
int64_t weir__member_int(const json_t *object, const char *name);

/* Prints a table of objects, or the line `none` if there are none. */
void weir__print_items(const json_t *items, const struct weir__column *columns, size_t count, const char *none);

/* Prints a diff, in colours on a terminal. Its text came from others: nothing in it may move the cursor. */
void weir__print_diff(const char *diff);

/* ---- Between the files ---- */

/* Over HTTP (service_http.c). Both print the reason if they fail. */
struct weir__http;
struct weir__http *weir__http_open(const struct weir__given *given, const char *url);
void weir__http_close(struct weir__http *http);
bool weir__http_send(const struct weir__given *given, struct weir__http *http, struct weir__service_call *call,
                     const char *path);

/* The number in an ETag such as "v12", with its quotes; 0: it is not such a tag. */
int64_t weir__etag_version(const char *etag);

#endif
