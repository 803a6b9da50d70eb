/* The admin listener: see control.h. */
#include "base/atomic.h"
#include "base/buffer.h"
#include "base/file.h"
#include "control/control.h"
#include "control/dashboard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    CONNECTIONS = 512,
    CONNECTIONS_OF_ONE = 64, /* address */
    IDLE_S = 30,
    STACK = 2 << 20,        /* bytes, of each thread */
    BODIES_MAX = 128 << 20, /* bytes of all bodies, which are kept before a token is checked; one address has less */
    BODY_SMALL = 64 << 10,  /* bytes of a body that is kept in any case */
    LAST_MS = 1000,         /* for requests in progress when it stops */
    LOOK_MS = 5
};

struct weir__admin {
    struct MHD_Daemon *daemon;
    struct weir__control *control;
    bool tls;
    char *certificate, *key;
    uint64_t bodies;   /* bytes, of all connections; atomic */
    uint64_t requests; /* in progress, and expected by connections that have sent none yet; atomic */
};

/* A connection. */
struct admin_connection {
    bool used;    /* it has sent a request */
    bool trusted; /* its last token or session was valid */
};

/* A request while it is received. */
struct admin_request {
    char *target; /* path and query as they came: libmicrohttpd would split and decode them */
    bool begun;   /* its headers were received */
    bool too_long;
    bool busy; /* there are too many bytes of other bodies */
    struct weir__buffer body;
    size_t counted; /* in weir__admin.bodies */
};

/* ---- Replies ---- */

static enum MHD_Result send_response(struct MHD_Connection *connection, unsigned status, struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Content-Security-Policy", WEIR__DASHBOARD_POLICY);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static weir_text header(struct MHD_Connection *connection, const char *name)
{
    const char *value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
    return weir__text_of(value ? value : "");
}

static enum MHD_Result send_file(struct MHD_Connection *connection, const struct weir__dashboard_file *file)
{
    bool packed = file->packed && strcasestr(header(connection, "Accept-Encoding").data, "gzip");
    bool same = strcasestr(header(connection, "If-None-Match").data, file->etag);
    const unsigned char *data = packed ? file->packed : file->bytes;
    size_t len = same ? 0 : packed ? file->packed_size : file->size;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)data, MHD_RESPMEM_PERSISTENT);
    if (response) {
        MHD_add_response_header(response, "Content-Type", file->type);
        MHD_add_response_header(response, "ETag", file->etag);
        MHD_add_response_header(response, "Vary", "Accept-Encoding");
        MHD_add_response_header(response, "Cache-Control",
                                file->forever ? "public, max-age=31536000, immutable" : "no-cache");
        if (packed && !same)
            MHD_add_response_header(response, "Content-Encoding", "gzip");
    }
    return send_response(connection, same ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, response);
}

static enum MHD_Result send_reply(struct MHD_Connection *connection, struct weir__rest_reply *reply)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(reply->body ? reply->len : 0, reply->body, MHD_RESPMEM_MUST_FREE);
    if (response)
        reply->body = NULL; /* the response has it */
    for (size_t i = 0; response && i < reply->header_count; i++)
        MHD_add_response_header(response, reply->headers[i].name, reply->headers[i].value);
    if (response && reply->last)
        MHD_add_response_header(response, "Connection", "close");
    enum MHD_Result result = send_response(connection, (unsigned)reply->status, response);
    weir__rest_free(reply);
    return result;
}

static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned status, const char *text)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT);
    if (response)
        MHD_add_response_header(response, "Content-Type", "application/json");
    return send_response(connection, status, response);
}

/* ---- Requests ---- */

static void address_of(struct MHD_Connection *connection, char *to, size_t size)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const void *address = info ? info->client_addr : NULL;
    int family = address ? info->client_addr->sa_family : AF_UNSPEC;
    *to = 0;
    if (family == AF_INET)
        inet_ntop(family, &((const struct sockaddr_in *)address)->sin_addr, to, (socklen_t)size);
    else if (family == AF_INET6)
        inet_ntop(family, &((const struct sockaddr_in6 *)address)->sin6_addr, to, (socklen_t)size);
}

/*
 * Runs a request, after the login throttle's delay. As each connection has a thread, at most CONNECTIONS_OF_ONE tokens
 * of an address and CONNECTIONS in total are checked within a delay, whether clients wait for the reply or not.
 */
static enum MHD_Result run(struct weir__admin *admin, struct MHD_Connection *connection, const char *method,
                           const struct admin_request *received)
{
    const char *target = received->target;
    char address[INET6_ADDRSTRLEN];
    struct weir__rest_reply reply = {0};
    size_t path_len = strcspn(target, "?#");
    const char *query = target[path_len] == '?' ? target + path_len + 1 : "";
    address_of(connection, address, sizeof address);
    struct weir__rest_request request = {
        .method = weir__text_of(method),
        .path = {target, path_len},
        .query = {query, strcspn(query, "#")},
        .authorization = header(connection, "Authorization"),
        .cookie = header(connection, "Cookie"),
        .content_type = header(connection, "Content-Type"),
        .accept = header(connection, "Accept"),
        .if_match = header(connection, "If-Match"),
        .if_none_match = header(connection, "If-None-Match"),
        .origin = header(connection, "Origin"),
        .host = header(connection, "Host"),
        .reason = header(connection, "X-Weir-Reason"),
        .heartbeat = header(connection, "X-Weir-Host"),
        .body = {received->body.data ? received->body.data : "", received->body.len},
        .address = address,
        .tls = admin->tls,
    };
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct admin_connection *state = info ? info->socket_context : NULL;
    int64_t delay_ms = state && state->trusted ? 0 : weir__rest_delay_ms(admin->control, &request);
    if (delay_ms > 0)
        nanosleep(&(struct timespec){delay_ms / 1000, delay_ms % 1000 * 1000000}, NULL);
    weir__rest_run(admin->control, &request, &reply);
    if (state)
        state->trusted = (state->trusted || reply.right_token) && !reply.wrong_token;
    return send_reply(connection, &reply);
}

static void body_add(struct weir__admin *admin, struct admin_request *received, const char *data, size_t len)
{
    received->too_long |= len > WEIR__REST_BODY_MAX - received->body.len;
    if (received->too_long || received->busy)
        return;
    received->counted += len;
    weir__add64(&admin->bodies, len);
    received->busy = weir__load64(&admin->bodies) > BODIES_MAX && received->body.len + len > BODY_SMALL;
    if (!received->busy)
        weir__buffer_add(&received->body, data, len);
}

static enum MHD_Result handle_request(void *context, struct MHD_Connection *connection, const char *url,
                                      const char *method, const char *version, const char *data, size_t *len,
                                      void **state)
{
    struct weir__admin *admin = context;
    struct admin_request *received = *state;
    (void)version;
    if (!received)
        return MHD_NO; /* no memory for it */
    if (!received->begun) {
        received->begun = true;
        return MHD_YES;
    }
    if (*len) {
        body_add(admin, received, data, *len);
        *len = 0;
        return MHD_YES;
    }
    if (received->busy)
        return send_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                         "{\"error\":{\"code\":\"busy\",\"message\":\"too many long bodies at once; try again\"}}");
    if (received->too_long || received->body.failed)
        return send_text(connection, MHD_HTTP_CONTENT_TOO_LARGE,
                         "{\"error\":{\"code\":\"too_large\",\"message\":\"the body is longer than 1 MiB\"}}");
    /* HEAD is handled as GET: libmicrohttpd leaves the body out. */
    bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    const struct weir__dashboard_file *file = reads ? weir__dashboard_find(url) : NULL;
    return file ? send_file(connection, file) : run(admin, connection, reads ? "GET" : method, received);
}

static void *begin(void *context, const char *target, struct MHD_Connection *connection)
{
    struct admin_request *received = calloc(1, sizeof *received);
    struct weir__admin *admin = context;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct admin_connection *state = info ? info->socket_context : NULL;
    bool first = state && !state->used;
    if (received && !(received->target = strdup(target))) {
        free(received);
        received = NULL;
    }
    if (received && !first)
        weir__add64(&admin->requests, 1);
    if (received && first)
        state->used = true;
    return received;
}

static void end(void *context, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode why)
{
    struct weir__admin *admin = context;
    struct admin_request *received = *state;
    (void)connection;
    (void)why;
    if (!received)
        return;
    weir__add64(&admin->bodies, -(uint64_t)received->counted);
    weir__add64(&admin->requests, -(uint64_t)1);
    weir__buffer_free(&received->body);
    free(received->target);
    free(received);
    *state = NULL;
}

static void connected(void *context, struct MHD_Connection *connection, void **state,
                      enum MHD_ConnectionNotificationCode what)
{
    struct weir__admin *admin = context;
    struct admin_connection *known = *state;
    (void)connection;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *state = known = calloc(1, sizeof *known);
        if (known)
            weir__add64(&admin->requests, 1);
        return;
    }
    if (known && !known->used)
        weir__add64(&admin->requests, -(uint64_t)1);
    free(known);
    *state = NULL;
}

/* ---- Listening ---- */

int weir__admin_bind(const struct weir__listener *listener, char *why, size_t why_size)
{
    struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *found;
    const int on = 1;
    hints.ai_family = listener->host ? AF_UNSPEC : AF_INET;
    if (getaddrinfo(listener->host, listener->port, &hints, &found) != 0) {
        snprintf(why, why_size, "%s is no address", listener->address);
        return -1;
    }
    bool six = found->ai_family == AF_INET6;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        (six && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0) ||
        bind(fd, found->ai_addr, found->ai_addrlen) != 0) {
        snprintf(why, why_size, "cannot listen on %s: %s", listener->address, strerror(errno));
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static struct MHD_Daemon *listen_at(struct weir__admin *admin, int socket)
{
    /* One thread per connection: a request that waits for the database does not block others. */
    unsigned flags =
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_ITC | (admin->tls ? MHD_USE_TLS : 0u);
    /* As nginx's listeners: the defaults of GnuTLS have TLS 1.0 and 1.1. */
    static char versions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_PRIORITIES, 0, versions},
                                   {MHD_OPTION_HTTPS_MEM_CERT, 0, admin->certificate},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, admin->key},
                                   {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem plain[] = {{MHD_OPTION_END, 0, NULL}};
    if (listen(socket, SOMAXCONN) != 0)
        return NULL;
    return MHD_start_daemon(flags, 0, NULL, NULL, handle_request, admin, MHD_OPTION_LISTEN_SOCKET, socket,
                            MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK, MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)CONNECTIONS, MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)CONNECTIONS_OF_ONE,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_URI_LOG_CALLBACK, begin, admin,
                            MHD_OPTION_NOTIFY_COMPLETED, end, admin, MHD_OPTION_NOTIFY_CONNECTION, connected, admin,
                            MHD_OPTION_ARRAY, admin->tls ? tls : plain, MHD_OPTION_END);
}

struct weir__admin *weir__admin_start(const struct weir__admin_config *config, struct weir__control *control, char *why,
                                      size_t why_size)
{
    const struct weir__listener *listener = config->listener;
    struct weir__admin *admin = calloc(1, sizeof *admin);
    snprintf(why, why_size, "out of memory");
    if (!admin)
        return NULL;
    *admin = (struct weir__admin){.control = control, .tls = listener->tls.certificate != NULL};
    if (admin->tls) {
        size_t len;
        admin->certificate =
            config->certificate ? strdup(config->certificate) : weir__file_read(listener->tls.certificate, &len);
        admin->key = config->key ? strdup(config->key) : weir__file_read(listener->tls.key, &len);
    }
    if (admin->tls && (!admin->certificate || !admin->key)) {
        snprintf(why, why_size, "certificate or key cannot be read");
        weir__admin_stop(admin);
        return NULL;
    }
    int bound = config->socket > 0 ? fcntl(config->socket, F_DUPFD_CLOEXEC, 0) /* it stays, for another attempt */
                                   : weir__admin_bind(listener, why, why_size);
    errno = 0;
    if (bound >= 0 && !(admin->daemon = listen_at(admin, bound))) {
        snprintf(why, why_size, "cannot listen on %s: %s", listener->address,
                 errno ? strerror(errno) : "the certificate and its key do not fit, or are damaged");
        close(bound);
    }
    if (admin->daemon)
        return admin;
    weir__admin_stop(admin);
    return NULL;
}

bool weir__dashboard_is_built(void)
{
    return weir__dashboard_count > 1;
}

void weir__admin_stop(struct weir__admin *admin)
{
    if (!admin)
        return;
    if (admin->daemon) {
        /* Otherwise libmicrohttpd calls shutdown(2), also for the processes that share the socket. */
        MHD_socket socket = MHD_quiesce_daemon(admin->daemon);
        int waited = 0;
        do
            usleep(LOOK_MS * 1000);
        while ((waited += LOOK_MS) < LAST_MS && weir__load64(&admin->requests));
        MHD_stop_daemon(admin->daemon);
        if (socket != MHD_INVALID_SOCKET)
            close(socket);
    }
    free(admin->certificate);
    free(admin->key);
    free(admin);
}
