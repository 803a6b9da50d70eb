/* The listener of the queue: see ingest.h. */
#include "queue/ingest.h"
#include "queue/ingest_commit.h"
#include "queue/ingest_request.h"
#include "queue/ingest_socket.h"
#include "base/clock.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    CONNECTIONS = 4096,      /* twice as many as nginx keeps idle (nginx_conf_queue.c) */
    HEADER_BYTES = 64 << 10, /* of a connection: nginx takes 32 KiB of a client's headers, and adds some */
    LINES_MAX = 512,         /* of a header */
    MEMORY_BYTES = 64 << 20, /* of all requests that are being taken in, besides one of the largest */
    IDLE_S = 120,            /* longer than nginx keeps an idle connection */
    LAST_MS = 2000           /* for the last answers */
};

struct weir__acceptor {
    const struct weir__config *config;
    struct MHD_Daemon *daemon;
    struct weir__committer *committer;
    void (*put)(void *context);
    void *context;

    pthread_mutex_t lock;
    pthread_cond_t none;
    size_t visits; /* requests that have no answer yet */
    size_t bytes;  /* of their memory */
};

enum visit_state { VISIT_NEW, VISIT_READING, VISIT_WAITING, VISIT_DONE };

/* A request, from its first line on. */
struct visit {
    struct weir__errand errand; /* first: what is done is found again by it */
    struct weir__acceptor *acceptor;
    struct MHD_Connection *connection;
    enum visit_state state;
    char path[96]; /* of its first line */
    char *room;    /* the item's texts */
    char *body;
    size_t body_len, body_size;
    size_t charged; /* bytes */
};

/* ---- Answers ---- */

static enum MHD_Result answer_with(struct MHD_Connection *connection, unsigned status, const char *body,
                                   const char *const *headers)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(body), (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "application/json");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    for (; headers && *headers; headers += 2)
        MHD_add_response_header(response, headers[0], headers[1]);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned status, const char *error,
                              const char *message)
{
    char body[512];
    snprintf(body, sizeof body, "{\"error\":\"%s\",\"message\":\"%s\"}\n", error, message);
    return answer_with(connection, status, body, NULL);
}

static enum MHD_Result answer_put(const struct visit *visit)
{
    const char *ticket = visit->errand.item.ticket;
    char body[160], location[64];
    const char *wait =
        MHD_lookup_connection_value(visit->connection, MHD_HEADER_KIND, weir__brought_names[WEIR__BROUGHT_RETRY_AFTER]);
    const char *headers[] = {"Location", location, "Retry-After", wait && *wait ? wait : "1", NULL};
    if (visit->errand.error)
        return refuse(visit->connection, MHD_HTTP_SERVICE_UNAVAILABLE, "not_kept",
                      weir__queue_strerror(visit->errand.error));
    snprintf(location, sizeof location, "/.weir/tickets/%s", ticket);
    snprintf(body, sizeof body, "{\"ticket\":\"%s\",\"status\":\"%s\"}\n", ticket, location);
    return answer_with(visit->connection, MHD_HTTP_ACCEPTED, body, headers);
}

static enum MHD_Result answer_ticket(const struct visit *visit)
{
    static const char *const may[] = {"Retry-After", "1", NULL};
    const struct weir__errand *errand = &visit->errand;
    char body[WEIR__TICKET_TEXT + 1];
    snprintf(body, sizeof body, "%s\n", errand->told);
    if (errand->error == WEIR__QUEUE_GONE)
        return refuse(visit->connection, MHD_HTTP_NOT_FOUND, "not_found", weir__queue_strerror(errand->error));
    if (errand->error == WEIR__QUEUE_STATE && errand->told[0])
        return answer_with(visit->connection, MHD_HTTP_CONFLICT, body, NULL);
    if (errand->error)
        return answer_with(visit->connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                           "{\"error\":\"unavailable\",\"message\":\"The queue cannot be asked at the moment.\"}\n",
                           may);
    return answer_with(visit->connection, MHD_HTTP_OK, body, NULL);
}

/* ---- Requests that come in ---- */

struct lines {
    struct weir__header_line line[LINES_MAX];
    size_t count;
    bool too_many;
};

static enum MHD_Result add_line(void *context, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                const char *value, size_t value_len)
{
    struct lines *lines = context;
    (void)kind;
    if (lines->count == LINES_MAX) {
        lines->too_many = true;
        return MHD_NO;
    }
    lines->line[lines->count++] = (struct weir__header_line){{name, name_len}, {value ? value : "", value_len}};
    return MHD_YES;
}

/* Memory for all requests at once is bounded. */
static bool charge(struct visit *visit, size_t bytes)
{
    struct weir__acceptor *acceptor = visit->acceptor;
    pthread_mutex_lock(&acceptor->lock);
    bool room = acceptor->bytes + bytes <= MEMORY_BYTES + (size_t)acceptor->config->queue.body_bytes;
    if (room) {
        acceptor->bytes += bytes;
        visit->charged += bytes;
    }
    pthread_mutex_unlock(&acceptor->lock);
    return room;
}

/* How long the body will be: nginx has all of it, and says so. False: it does not, or it is too long. */
static bool body_size(const struct visit *visit, size_t *size)
{
    const char *text = MHD_lookup_connection_value(visit->connection, MHD_HEADER_KIND, "Content-Length");
    char *end = NULL;
    *size = 0;
    if (MHD_lookup_connection_value(visit->connection, MHD_HEADER_KIND, "Transfer-Encoding"))
        return false;
    if (!text)
        return true;
    errno = 0;
    unsigned long long length = strtoull(text, &end, 10);
    *size = (size_t)length;
    return !errno && *text && !*end && length <= (unsigned long long)visit->acceptor->config->queue.body_bytes;
}

/* What nginx says of it has come; its body may follow. */
static enum MHD_Result begin_put(struct visit *visit)
{
    struct weir__errand *errand = &visit->errand;
    struct lines *lines = calloc(1, sizeof *lines);
    weir_text brought[WEIR__BROUGHT_COUNT];
    const char *wrong = "no memory";
    errand->kind = WEIR__ERRAND_PUT;
    if (lines) {
        MHD_get_connection_values_n(visit->connection, MHD_HEADER_KIND, add_line, lines);
        for (size_t i = 0; i < WEIR__BROUGHT_COUNT; i++) {
            const char *value = MHD_lookup_connection_value(visit->connection, MHD_HEADER_KIND, weir__brought_names[i]);
            brought[i] = (weir_text){value, value ? strlen(value) : 0};
        }
        wrong = lines->too_many ? "too many headers"
                                : weir__request_read(&visit->acceptor->config->queue, brought, lines->line,
                                                     lines->count, &errand->item, &errand->bounds, &visit->room);
    }
    free(lines);
    if (wrong)
        return refuse(visit->connection, MHD_HTTP_BAD_REQUEST, "bad_request", wrong);
    if (!body_size(visit, &visit->body_size))
        return refuse(visit->connection, MHD_HTTP_CONTENT_TOO_LARGE, "too_large", "the body is too long");
    if (!charge(visit, visit->body_size + (size_t)weir__deferred_bytes(&errand->item)) ||
        (visit->body_size && !(visit->body = malloc(visit->body_size))))
        return refuse(visit->connection, MHD_HTTP_SERVICE_UNAVAILABLE, "busy", "too many requests at once");
    visit->state = VISIT_READING;
    return MHD_YES;
}

static enum MHD_Result begin_look(struct visit *visit, const char *method, const char *ticket)
{
    static const char *const may[] = {"Allow", "GET, HEAD, DELETE", NULL};
    bool looks = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    if (strlen(ticket) != WEIR__TICKET_LEN || strspn(ticket, "0123456789abcdef") != WEIR__TICKET_LEN)
        return refuse(visit->connection, MHD_HTTP_NOT_FOUND, "not_found", weir__queue_strerror(WEIR__QUEUE_GONE));
    if (!looks && strcmp(method, "DELETE") != 0)
        return answer_with(visit->connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                           "{\"error\":\"method_not_allowed\",\"message\":\"GET looks, DELETE cancels.\"}\n", may);
    visit->errand.kind = looks ? WEIR__ERRAND_LOOK : WEIR__ERRAND_CANCEL;
    memcpy(visit->errand.item.ticket, ticket, WEIR__TICKET_LEN + 1);
    visit->state = VISIT_READING;
    return MHD_YES;
}

static enum MHD_Result begin(struct visit *visit, const char *method)
{
    static const char tickets[] = "/tickets/";
    if (strcmp(visit->path, "/accept") == 0 && strcmp(method, "POST") == 0)
        return begin_put(visit);
    if (strncmp(visit->path, tickets, sizeof tickets - 1) == 0)
        return begin_look(visit, method, visit->path + sizeof tickets - 1);
    return refuse(visit->connection, MHD_HTTP_NOT_FOUND, "not_found", "there is nothing here");
}

/* All of it is here. It is suspended before the committer knows of it, which resumes it. */
static enum MHD_Result ask_queue(struct visit *visit)
{
    struct weir__errand *errand = &visit->errand;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(visit->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    errand->fd = info ? info->connect_fd : -1;
    errand->item.body = (weir_text){visit->body, visit->body_len};
    visit->state = VISIT_WAITING;
    MHD_suspend_connection(visit->connection);
    if (weir__committer_add(visit->acceptor->committer, errand))
        return MHD_YES;
    errand->error = WEIR__QUEUE_BUSY;
    visit->state = VISIT_DONE;
    MHD_resume_connection(visit->connection);
    return MHD_YES;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *len, void **state)
{
    struct visit *visit = *state;
    (void)context;
    (void)url;
    (void)version;
    if (!visit)
        return MHD_NO; /* no memory for it */
    visit->connection = connection;
    switch (visit->state) {
    case VISIT_NEW:
        return begin(visit, method);
    case VISIT_READING:
        if (!*len)
            return ask_queue(visit);
        if (*len > visit->body_size - visit->body_len)
            return MHD_NO;
        memcpy(visit->body + visit->body_len, data, *len);
        visit->body_len += *len;
        *len = 0;
        return MHD_YES;
    case VISIT_DONE:
        return visit->errand.kind == WEIR__ERRAND_PUT ? answer_put(visit) : answer_ticket(visit);
    default:
        return MHD_NO;
    }
}

/* In the committer's thread. */
static void done(void *context, struct weir__errand *errand)
{
    struct visit *visit = (struct visit *)errand;
    (void)context;
    visit->state = VISIT_DONE; /* seen by the listener's thread through the lock that resuming takes */
    MHD_resume_connection(visit->connection);
}

static void was_put(void *context)
{
    const struct weir__acceptor *acceptor = context;
    if (acceptor->put)
        acceptor->put(acceptor->context);
}

/* ---- From the first line to the last byte ---- */

static void *first_line(void *context, const char *target, struct MHD_Connection *connection)
{
    struct weir__acceptor *acceptor = context;
    struct visit *visit = calloc(1, sizeof *visit);
    (void)connection;
    if (!visit)
        return NULL;
    visit->acceptor = acceptor;
    snprintf(visit->path, sizeof visit->path, "%s", target);
    pthread_mutex_lock(&acceptor->lock);
    acceptor->visits++;
    pthread_mutex_unlock(&acceptor->lock);
    return visit;
}

static void last_byte(void *context, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode why)
{
    struct weir__acceptor *acceptor = context;
    struct visit *visit = *state;
    (void)connection;
    (void)why;
    if (!visit)
        return;
    pthread_mutex_lock(&acceptor->lock);
    acceptor->bytes -= visit->charged;
    if (!--acceptor->visits)
        pthread_cond_signal(&acceptor->none);
    pthread_mutex_unlock(&acceptor->lock);
    free(visit->room);
    free(visit->body);
    free(visit);
    *state = NULL;
}

/* ---- Beginning and end ---- */

static struct MHD_Daemon *listen_on(struct weir__acceptor *acceptor, int socket)
{
    return MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, handle, acceptor,
                            MHD_OPTION_LISTEN_SOCKET, socket, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
                            (unsigned)IDLE_S, MHD_OPTION_URI_LOG_CALLBACK, first_line, acceptor,
                            MHD_OPTION_NOTIFY_COMPLETED, last_byte, acceptor, MHD_OPTION_END);
}

struct weir__acceptor *weir__acceptor_start(const struct weir__config *config, const struct weir__logger *log,
                                            void (*put)(void *context), void *context, char *why, size_t why_size)
{
    struct weir__acceptor *acceptor = calloc(1, sizeof *acceptor);
    snprintf(why, why_size, "out of memory");
    if (!acceptor)
        return NULL;
    *acceptor = (struct weir__acceptor){.config = config, .put = put, .context = context};
    weir__deadline_cond(&acceptor->none);
    pthread_mutex_init(&acceptor->lock, NULL);
    int socket = weir__accept_listen(config, why, why_size);
    if (socket >= 0)
        acceptor->committer = weir__committer_start(config, log, done, was_put, acceptor);
    if (acceptor->committer && !(acceptor->daemon = listen_on(acceptor, socket)))
        snprintf(why, why_size, "cannot listen on %s: %s", config->queue.socket, strerror(errno));
    if (acceptor->daemon)
        return acceptor;
    if (socket >= 0)
        close(socket);
    weir__acceptor_stop(acceptor);
    return NULL;
}

/* Those whose answers are on their way. */
static void wait_for_last(struct weir__acceptor *acceptor)
{
    struct timespec until = weir__deadline(LAST_MS * 1000);
    pthread_mutex_lock(&acceptor->lock);
    while (acceptor->visits && pthread_cond_timedwait(&acceptor->none, &acceptor->lock, &until) == 0)
        continue;
    pthread_mutex_unlock(&acceptor->lock);
}

void weir__acceptor_stop(struct weir__acceptor *acceptor)
{
    if (!acceptor)
        return;
    if (acceptor->daemon) {
        unlink(acceptor->config->queue.socket);
        MHD_socket socket = MHD_quiesce_daemon(acceptor->daemon);
        weir__committer_end(acceptor->committer); /* nothing is suspended from then on */
        wait_for_last(acceptor);
        MHD_stop_daemon(acceptor->daemon);
        if (socket != MHD_INVALID_SOCKET)
            close(socket);
    }
    weir__committer_free(acceptor->committer);
    pthread_cond_destroy(&acceptor->none);
    pthread_mutex_destroy(&acceptor->lock);
    free(acceptor);
}

void weir__acceptor_figures(struct weir__acceptor *acceptor, struct weir__acceptor_figures *figures)
{
    weir__committer_figures(acceptor->committer, figures);
}
