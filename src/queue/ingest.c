/*
 * The listener of ingest: HTTP on a Unix socket by libmicrohttpd, in one thread. Each request is suspended while its
 * job is with the committer (ingest_commit.c).
 */
#include "queue/ingest_internal.h"
#include "base/atomic.h"
#include "base/file.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    CONNECTIONS = 4096,      /* twice nginx's idle ones (nginx_conf.c) */
    HEADER_BYTES = 64 << 10, /* of a connection: nginx accepts 32 KiB of headers, and adds some */
    LINES_MAX = 512,         /* header lines */
    MEMORY_BYTES = 64 << 20, /* of all requests in progress, besides one of the largest */
    IDLE_S = 120,            /* longer than nginx keeps an idle connection */
    LAST_MS = 2000,          /* at the end, for replies in progress */
    LOOK_US = 2000,          /* poll interval meanwhile */
    NEXT_US = 50000,         /* before that, for connections in use to be closed with their next reply */
    BACKLOG = 4096,
    FILES = 8192 /* descriptors: as many connections as nginx's workers may keep open */
};

struct weir__ingest {
    const struct weir__config *config;
    struct MHD_Daemon *daemon;
    struct weir__committer *committer;
    bool shared;        /* its socket is config->queue.listener */
    uint64_t exchanges; /* in progress; atomic */
    size_t bytes;       /* of their memory; the listener's thread alone uses it */
};

enum exchange_state { EXCHANGE_REFUSED, EXCHANGE_READING, EXCHANGE_WAITING, EXCHANGE_DONE };

/* One HTTP exchange. */
struct exchange {
    struct weir__ingest_job job; /* first: `done` casts it back */
    struct weir__ingest *ingest;
    struct MHD_Connection *connection;
    enum exchange_state state;
    char *room; /* texts of the item; its method and target are libmicrohttpd's, until the end of the request */
    char *body;
    size_t body_len, body_size;
    size_t charged; /* bytes, of ingest->bytes */
};

/* A header of the request, or NULL. */
static const char *header(const struct exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

/* ---- Responses ---- */

static uint64_t stopping; /* a listener of this process stops: replies close their connections; atomic */

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned status, const char *body,
                               const char *const *headers)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(body), (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", "application/json");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    if (weir__load64(&stopping))
        MHD_add_response_header(response, "Connection", "close");
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
    return respond(connection, status, body, NULL);
}

static enum MHD_Result respond_put(const struct exchange *exchange)
{
    const char *ticket = exchange->job.put.item.ticket;
    char body[160], location[64];
    const char *wait = header(exchange, weir__ingest_field_names[WEIR__INGEST_RETRY_AFTER]);
    const char *headers[] = {"Location", location, "Retry-After", wait && *wait ? wait : "1", NULL};
    if (exchange->job.put.error)
        return refuse(exchange->connection, MHD_HTTP_SERVICE_UNAVAILABLE, "not_enqueued",
                      weir__queue_strerror(exchange->job.put.error));
    snprintf(location, sizeof location, "/.weir/tickets/%s", ticket);
    snprintf(body, sizeof body, "{\"ticket\":\"%s\",\"status\":\"%s\"}\n", ticket, location);
    return respond(exchange->connection, MHD_HTTP_ACCEPTED, body, headers);
}

static enum MHD_Result respond_ticket(const struct exchange *exchange)
{
    static const char *const may[] = {"Retry-After", "1", NULL};
    const struct weir__ingest_job *job = &exchange->job;
    char body[WEIR__TICKET_JSON_MAX + 1];
    if (job->put.error == WEIR__QUEUE_GONE)
        return refuse(exchange->connection, MHD_HTTP_NOT_FOUND, "not_found", weir__queue_strerror(job->put.error));
    if (job->put.error && (job->put.error != WEIR__QUEUE_STATE || !job->json[0]))
        return respond(exchange->connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                       "{\"error\":\"unavailable\",\"message\":\"The queue is unavailable.\"}\n", may);
    snprintf(body, sizeof body, "%s\n", job->json);
    return respond(exchange->connection, job->put.error ? MHD_HTTP_CONFLICT : MHD_HTTP_OK, body, NULL);
}

/* ---- Requests ---- */

struct header_lines {
    struct weir__header_line line[LINES_MAX];
    size_t count;
    bool too_many;
};

static enum MHD_Result add_line(void *context, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                const char *value, size_t value_len)
{
    struct header_lines *lines = context;
    (void)kind;
    if (lines->count == LINES_MAX) {
        lines->too_many = true;
        return MHD_NO;
    }
    lines->line[lines->count++] = (struct weir__header_line){{name, name_len}, {value ? value : "", value_len}};
    return MHD_YES;
}

/* Reserves memory for a request; false: the bound of all requests is reached. */
static bool charge(struct exchange *exchange, size_t bytes)
{
    struct weir__ingest *ingest = exchange->ingest;
    if (ingest->bytes + bytes > MEMORY_BYTES + (size_t)ingest->config->queue.body_bytes)
        return false;
    ingest->bytes += bytes;
    exchange->charged = bytes;
    return true;
}

/* Content-Length; nginx buffers bodies, so it is always known. False: too long or chunked. */
static bool body_size(const struct exchange *exchange, size_t *size)
{
    const char *text = header(exchange, "Content-Length");
    int64_t length = 0;
    if (header(exchange, "Transfer-Encoding") || (text && !weir__parse_int(weir__text_of(text), &length)))
        return false;
    *size = (size_t)length;
    return length >= 0 && length <= exchange->ingest->config->queue.body_bytes;
}

/* The header is complete: parses it. The body may follow. */
static enum MHD_Result begin_put(struct exchange *exchange)
{
    struct weir__ingest_job *job = &exchange->job;
    struct header_lines lines = {.count = 0};
    weir_text fields[WEIR__INGEST_COUNT];
    job->kind = WEIR__JOB_PUT;
    MHD_get_connection_values_n(exchange->connection, MHD_HEADER_KIND, add_line, &lines);
    for (size_t i = 0; i < WEIR__INGEST_COUNT; i++) {
        const char *value = header(exchange, weir__ingest_field_names[i]);
        fields[i] = (weir_text){value, value ? strlen(value) : 0};
    }
    const char *wrong = lines.too_many
                            ? "too many headers"
                            : weir__ingest_read_request(&exchange->ingest->config->queue, fields, lines.line,
                                                        lines.count, &job->put.item, &job->put.bounds, &exchange->room);
    if (wrong)
        return refuse(exchange->connection, MHD_HTTP_BAD_REQUEST, "bad_request", wrong);
    if (!body_size(exchange, &exchange->body_size))
        return refuse(exchange->connection, MHD_HTTP_CONTENT_TOO_LARGE, "too_large", "the body is too long");
    if (!charge(exchange, exchange->body_size + (size_t)weir__deferred_bytes(&job->put.item)) ||
        (exchange->body_size && !(exchange->body = malloc(exchange->body_size))))
        return refuse(exchange->connection, MHD_HTTP_SERVICE_UNAVAILABLE, "busy", "too many requests at once");
    exchange->state = EXCHANGE_READING;
    return MHD_YES;
}

static enum MHD_Result begin_ticket(struct exchange *exchange, const char *method, const char *ticket)
{
    static const char *const may[] = {"Allow", "GET, HEAD, DELETE", NULL};
    bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    if (!weir__is_ticket(ticket))
        return refuse(exchange->connection, MHD_HTTP_NOT_FOUND, "not_found", weir__queue_strerror(WEIR__QUEUE_GONE));
    if (!reads && strcmp(method, "DELETE") != 0)
        return respond(exchange->connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                       "{\"error\":\"method_not_allowed\",\"message\":\"Use GET to read it, DELETE to cancel it.\"}\n",
                       may);
    exchange->job.kind = reads ? WEIR__JOB_FIND : WEIR__JOB_CANCEL;
    memcpy(exchange->job.put.item.ticket, ticket, WEIR__TICKET_LEN + 1);
    exchange->state = EXCHANGE_READING;
    return MHD_YES;
}

static enum MHD_Result begin(struct exchange *exchange, const char *path, const char *method)
{
    static const char tickets[] = "/tickets/";
    if (strcmp(path, "/accept") == 0 && strcmp(method, "POST") == 0)
        return begin_put(exchange);
    if (strncmp(path, tickets, sizeof tickets - 1) == 0)
        return begin_ticket(exchange, method, path + sizeof tickets - 1);
    return refuse(exchange->connection, MHD_HTTP_NOT_FOUND, "not_found", "no such path");
}

/* A job is done. In the committer's thread, mostly. */
static void done(struct weir__ingest_job *job)
{
    struct exchange *exchange = (struct exchange *)job;
    /* Visible to the listener's thread through the lock that MHD_resume_connection takes. */
    exchange->state = EXCHANGE_DONE;
    MHD_resume_connection(exchange->connection);
}

/*
 * The request is complete: hands the job to the committer, which resumes the connection. Suspended first, so that it
 * cannot be resumed before.
 */
static enum MHD_Result submit_job(struct exchange *exchange)
{
    struct weir__ingest_job *job = &exchange->job;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    job->fd = info ? info->connect_fd : -1;
    job->put.item.body = (weir_text){exchange->body, exchange->body_len};
    exchange->state = EXCHANGE_WAITING;
    MHD_suspend_connection(exchange->connection);
    if (!weir__committer_add(exchange->ingest->committer, job)) {
        job->put.error = WEIR__QUEUE_BUSY;
        done(job);
    }
    return MHD_YES;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *len, void **state)
{
    struct weir__ingest *ingest = context;
    struct exchange *exchange = *state;
    (void)version;
    if (!exchange) { /* the header is complete */
        *state = exchange = calloc(1, sizeof *exchange);
        if (!exchange)
            return MHD_NO;
        exchange->ingest = ingest;
        exchange->connection = connection;
        weir__add64(&ingest->exchanges, 1);
        return begin(exchange, url, method);
    }
    switch (exchange->state) {
    case EXCHANGE_READING:
        if (!*len)
            return submit_job(exchange);
        if (*len > exchange->body_size - exchange->body_len)
            return MHD_NO;
        memcpy(exchange->body + exchange->body_len, data, *len);
        exchange->body_len += *len;
        *len = 0;
        return MHD_YES;
    case EXCHANGE_DONE:
        return exchange->job.kind == WEIR__JOB_PUT ? respond_put(exchange) : respond_ticket(exchange);
    default:
        return MHD_NO;
    }
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct weir__ingest *ingest = context;
    struct exchange *exchange = *state;
    (void)connection;
    (void)why;
    if (!exchange)
        return;
    ingest->bytes -= exchange->charged;
    weir__add64(&ingest->exchanges, UINT64_MAX);
    free(exchange->room);
    free(exchange->body);
    free(exchange);
    *state = NULL;
}

/* ---- The socket ---- */

/* A Unix socket, not bound or connected to `path` yet; -1: errno has the reason. */
static int unix_socket(const char *path, struct sockaddr_un *at)
{
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(at->sun_path, sizeof at->sun_path, "%s", path); /* the configuration's check bounds the length */
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static bool is_listened_on(const char *path)
{
    struct sockaddr_un at;
    int fd = unix_socket(path, &at);
    bool listening = fd >= 0 && (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0 || errno == EAGAIN);
    if (fd >= 0)
        close(fd);
    return listening;
}

/* Access for this user, or for nginx's workers. Set before listen(), so that no other user can connect. */
static bool admit(const struct weir__config *config, const char *path)
{
    struct weir__workers workers;
    if (geteuid() != 0 && !config->dropped)
        return chmod(path, 0600) == 0;
    if (!weir__workers_of(config, &workers)) {
        errno = ENOENT;
        return false;
    }
    return chown(path, (uid_t)-1, (gid_t)workers.group_id) == 0 && chmod(path, 0660) == 0;
}

static void allow_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= FILES)
        return;
    files.rlim_cur = files.rlim_max < FILES ? files.rlim_max : FILES;
    (void)!setrlimit(RLIMIT_NOFILE, &files);
}

/* True if the socket listens, and the path is (as far as one can see) its own: an agent before this one bound it. */
static bool is_ready(int shared, const char *path)
{
    int listens = 0;
    socklen_t len = sizeof listens;
    struct stat at;
    return shared > 0 && getsockopt(shared, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens &&
           lstat(path, &at) == 0 && S_ISSOCK(at.st_mode);
}

static bool is_bound(int fd)
{
    struct sockaddr_un at;
    socklen_t len = sizeof at;
    return getsockname(fd, (struct sockaddr *)&at, &len) != 0 || len > sizeof at.sun_family;
}

static int listen_socket(const struct weir__config *config, bool *shared, char *why, size_t why_size)
{
    const char *path = config->queue.socket;
    char temporary[sizeof((struct sockaddr_un *)NULL)->sun_path];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    *shared = true;
    if (is_ready(config->queue.listener, path)) {
        allow_files();
        return fcntl(config->queue.listener, F_DUPFD_CLOEXEC, 0);
    }
    if (is_listened_on(path)) {
        snprintf(why, why_size, "another agent listens on %s already", path);
        return -1;
    }
    struct sockaddr_un at;
    int fd = unix_socket(temporary, &at);
    *shared = config->queue.listener > 0 && !is_bound(config->queue.listener) && fd >= 0;
    if (*shared)
        *shared = dup3(config->queue.listener, fd, O_CLOEXEC) == fd;
    unlink(temporary);
    if (fd >= 0 && weir__file_make_folder(path) && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 &&
        admit(config, temporary) && listen(fd, BACKLOG) == 0 && rename(temporary, path) == 0) {
        allow_files();
        return fd;
    }
    snprintf(why, why_size, "cannot listen on %s: %s", path, strerror(errno));
    unlink(temporary);
    if (fd >= 0)
        close(fd);
    return -1;
}

/* ---- Start and stop ---- */

static struct MHD_Daemon *listen_on(struct weir__ingest *ingest, int socket)
{
    return MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, handle, ingest,
                            MHD_OPTION_LISTEN_SOCKET, socket, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
                            (unsigned)IDLE_S, MHD_OPTION_NOTIFY_COMPLETED, on_completed, ingest, MHD_OPTION_END);
}

struct weir__ingest *weir__ingest_start(const struct weir__config *config, const struct weir__logger *log,
                                        struct weir__dispatcher *dispatcher, char *why, size_t why_size)
{
    struct weir__ingest *ingest = calloc(1, sizeof *ingest);
    snprintf(why, why_size, "out of memory");
    if (!ingest)
        return NULL;
    ingest->config = config;
    int socket = listen_socket(config, &ingest->shared, why, why_size);
    if (socket >= 0)
        ingest->committer = weir__committer_start(config, log, done, dispatcher);
    if (ingest->committer && !(ingest->daemon = listen_on(ingest, socket)))
        snprintf(why, why_size, "cannot listen on %s: %s", config->queue.socket, strerror(errno));
    if (ingest->daemon)
        return ingest;
    if (socket >= 0)
        close(socket);
    weir__ingest_stop(ingest);
    return NULL;
}

void weir__ingest_stop(struct weir__ingest *ingest)
{
    if (!ingest)
        return;
    if (ingest->daemon) {
        if (!ingest->shared) /* clients of a shared one wait for the next agent */
            unlink(ingest->config->queue.socket);
        weir__store64(&stopping, 1);
        MHD_socket socket = MHD_quiesce_daemon(ingest->daemon);
        if (ingest->shared) /* nginx connects anew for the requests after these, and the next agent accepts */
            usleep(NEXT_US);
        weir__committer_end(ingest->committer); /* completes all jobs, so nothing is suspended any more */
        for (int64_t until = weir__monotonic_ms() + LAST_MS;
             weir__load64(&ingest->exchanges) && weir__monotonic_ms() < until;)
            usleep(LOOK_US); /* responses in progress */
        MHD_stop_daemon(ingest->daemon);
        weir__store64(&stopping, 0);
        if (socket != MHD_INVALID_SOCKET)
            close(socket);
    }
    weir__committer_free(ingest->committer);
    free(ingest);
}
