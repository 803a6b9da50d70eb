/* The rules service in this process: the database is opened here, and who runs the command is its operator. */
#define _GNU_SOURCE /* getlogin_r */
#include "base/text.h"
#include "serve/serve.h"
#include "cli/service.h"
#include "control/control.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 256, URL_MAX = 4096 };

struct weir__local {
    struct weir__control *control;
    struct weir__file_queue *queue; /* NULL: not needed */
    struct weir__control_host host;
    struct weir__database_owner owner;
    char user[NAME_MAX_BYTES];
};

/* The name that this person logged in with, also behind sudo. */
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
        snprintf(url, URL_MAX, "%s", rules ? rules : "sqlite::memory:"); /* without a service there is no audit log */
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

struct weir__local *weir__local_open(const struct weir__service_options *options)
{
    char url[URL_MAX];
    struct weir__local *local = calloc(1, sizeof *local);
    if (!local || !places_find(local, options, url)) {
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

void weir__local_close(struct weir__local *local)
{
    if (weir__act_as_owner(&local->owner)) {
        weir__control_close(local->control);
        weir__file_queue_close(local->queue);
        weir__act_as_self(&local->owner);
    }
    free(local);
}

bool weir__local_call(struct weir__local *local, const struct weir__service_request *q,
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
    reply->body = malloc(internal.len + 1);
    if (!reply->body) {
        fprintf(stderr, "weir: out of memory\n");
        weir__rest_free(&internal);
        return false;
    }
    if (internal.len > 0)
        memcpy(reply->body, internal.body, internal.len);
    reply->body[internal.len] = '\0';
    reply->len = internal.len;
    weir__rest_free(&internal);
    return true;
}
