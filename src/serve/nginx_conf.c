/* Writes nginx.conf for a weir.yaml. A line that comes from weir.yaml ends in a comment with its place there, so that
 * nginx_message.c can translate nginx's errors. */
#include "serve/deployment.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

struct writer {
    FILE *to;
    const struct weir__config *config;
    const struct weir__facts *facts;
    const struct weir__nginx_setting *setting;
};

/* ---- Syntax ---- */

static void escaped(FILE *to, const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fputc('\\', to);
        fputc(*c, to);
    }
}

static void quoted(struct writer *w, const char *text)
{
    fputc('"', w->to);
    escaped(w->to, text);
    fputc('"', w->to);
}

/* Ends a line with a comment: its place in weir.yaml. */
static void from(struct writer *w, struct weir__place place)
{
    if (place.line > 0) {
        fputs(" # ", w->to);
        for (const char *c = w->config->file; *c; c++)
            fputc((unsigned char)*c < 0x20 ? '?' : *c, w->to);
        fprintf(w->to, ":%u:%u", place.line, place.column);
    }
    fputc('\n', w->to);
}

/* A line `name "text";` with its place in weir.yaml; `name` begins with the indentation. */
static void directive(struct writer *w, const char *name, const char *text, struct weir__place place)
{
    fprintf(w->to, "%s ", name);
    quoted(w, text);
    fputc(';', w->to);
    from(w, place);
}

static const struct weir__place nowhere;

bool weir__speaks_resp(const struct weir__config *config)
{
    for (size_t i = 0; i < config->listener_count; i++)
        if (config->listeners[i].kind == WEIR__RESP)
            return true;
    return false;
}

/* ---- The process ---- */

static void write_process(struct writer *w)
{
    enum { CONNECTIONS = 10240, RESERVED = 64, FEWEST = 64 };
    const struct weir__config *config = w->config;
    long files = w->setting->open_files - RESERVED;
    long connections = files > CONNECTIONS ? CONNECTIONS : files < FEWEST ? FEWEST : files;
    fputs("# Written by weir serve; changes here are lost.\n", w->to);
    directive(w, "load_module", w->setting->nginx->module, nowhere);
    if (weir__speaks_resp(config)) {
        if (*w->setting->nginx->stream_core)
            directive(w, "load_module", w->setting->nginx->stream_core, nowhere);
        directive(w, "load_module", w->setting->nginx->stream_module, nowhere);
    }
    fputs("daemon off;\nmaster_process on;\n", w->to);
    if (*w->facts->user) {
        fprintf(w->to, "user %s %s;", w->facts->user, w->facts->group);
        from(w, config->user_place);
    }
    if (config->workers)
        fprintf(w->to, "worker_processes %" PRId64 ";\n", config->workers);
    else
        fputs("worker_processes auto;\n", w->to);
    fprintf(w->to, "pid nginx.pid;\nerror_log stderr notice;\nevents {\n    worker_connections %ld;\n}\n", connections);
}

/* ---- Logs ---- */

static void write_log(struct writer *w, const char *name, const char *path, const char *more, struct weir__place place)
{
    fprintf(w->to, "    %s ", name);
    quoted(w, w->setting->test_only ? "/dev/null" : path ? path : "/dev/stderr");
    fprintf(w->to, "%s;", more);
    from(w, place);
}

static void write_logs(struct writer *w)
{
    const struct weir__config *config = w->config;
    char more[96];
    static const char json[] =
        " '{\"time\":\"$time_iso8601\",\"client\":\"$weir_client\",\"method\":\"$request_method\",\"path\":\"$uri\","
        "\"host\":\"$host\",\"status\":$status,\"bytes\":$body_bytes_sent,\"seconds\":$request_time,"
        "\"upstream\":\"$upstream_addr\",\"decision\":\"$weir_decision\",\"rule\":\"$weir_rule\"}' escape=json";
    static const char text[] = " '$weir_client [$time_iso8601] \"$request\" $status $body_bytes_sent $request_time "
                               "\"$upstream_addr\" \"$http_user_agent\" $weir_decision \"$weir_rule\"'";
    fputs("    access_log off;\n", w->to); /* nginx's access_log blocks the worker on a slow disk */
    if (config->access_log != WEIR__LOG_OFF)
        write_log(w, "weir_access_log", config->access_path, config->access_log == WEIR__LOG_JSON ? json : text,
                  config->access_place);
    if (config->denied_log) {
        snprintf(more, sizeof more, " rate=%" PRId64 "%s", config->denied_rate, config->denied_hash ? " hash" : "");
        write_log(w, "weir_log_denied", config->denied_path, more, config->denied_place);
    }
}

/* ---- Upstreams ---- */

static void write_upstream(struct writer *w, size_t number)
{
    const struct weir__config *config = w->config;
    const struct weir__route *route = &config->routes[number];
    fprintf(w->to, "    upstream weir_%zu {\n        zone weir_%zu %zuk;\n", number, number,
            64 + 2 * route->server_count);
    for (size_t i = 0; i < route->server_count; i++) {
        fprintf(w->to, "        server %s max_fails=%" PRId64 " fail_timeout=%" PRId64 "s;", route->servers[i].address,
                config->max_fails, config->fail_ms / 1000);
        from(w, route->servers[i].place);
    }
    if (config->keepalive)
        fprintf(w->to, "        keepalive %" PRId64 ";\n", config->keepalive);
    fputs("    }\n", w->to);
}

/* Proxy settings of all routes. */
static void write_passing(struct writer *w)
{
    const struct weir__config *config = w->config;
    /* Only WebSocket: an upgrade to HTTP/2 (h2c) would let requests bypass the limits. No X-Accel-Redirect: a server
     * would choose which other server gets the client's request, and no rule would count it there. */
    fputs("    map $http_upgrade $weir_upgrade {\n"
          "        default \"\";\n"
          "        websocket websocket;\n"
          "    }\n"
          "    map $weir_upgrade $weir_connection {\n"
          "        default upgrade;\n"
          "        \"\" \"\";\n"
          "    }\n"
          "    proxy_http_version 1.1;\n"
          "    proxy_set_header Host $weir_host;\n"
          "    proxy_set_header Upgrade $weir_upgrade;\n"
          "    proxy_set_header Connection $weir_connection;\n"
          "    proxy_set_header X-Real-IP $weir_client;\n"
          "    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n"
          "    proxy_set_header X-Forwarded-Host $weir_host;\n"
          "    proxy_set_header X-Forwarded-Proto $scheme;\n"
          "    proxy_ignore_headers X-Accel-Redirect;\n"
          "    proxy_next_upstream error timeout;\n",
          w->to);
    fprintf(w->to,
            "    proxy_connect_timeout %" PRId64 "ms;\n    proxy_read_timeout %" PRId64
            "ms;\n    proxy_send_timeout %" PRId64 "ms;\n",
            config->connect_ms, config->read_ms, config->send_ms);
    fprintf(w->to, "    client_max_body_size %" PRId64 ";\n", config->body_bytes);
}

static void write_pass(struct writer *w, const struct weir__route *route)
{
    const struct weir__config *config = w->config;
    size_t number = (size_t)(route - config->routes);
    bool https = route->servers[0].https;
    const char *name = config->upstream_name ? config->upstream_name : route->servers[0].host;
    fprintf(w->to, "            proxy_pass %s://weir_%zu;\n", https ? "https" : "http", number);
    if (!https)
        return;
    fputs("            proxy_ssl_server_name on;\n", w->to);
    directive(w, "            proxy_ssl_name", name, nowhere);
    if (w->facts->upstream_ca) {
        fputs("            proxy_ssl_verify on;\n            proxy_ssl_verify_depth 5;\n", w->to);
        directive(w, "            proxy_ssl_trusted_certificate", w->facts->upstream_ca, config->upstream_ca_place);
    }
}

/* `route` NULL: no upstream for this path. The rules apply all the same, so not `return`, which runs before them. */
static void write_location(struct writer *w, const char *modifier, const char *path, const struct weir__route *route)
{
    fprintf(w->to, "        location %s", modifier);
    quoted(w, path);
    fputs(" {\n", w->to);
    if (route)
        write_pass(w, route);
    else
        fputs("            root none;\n            try_files /none =404;\n", w->to);
    fputs("        }\n", w->to);
}

static const struct weir__route *route_of(const struct weir__config *config, enum weir__route_kind kind,
                                          const char *path, size_t len)
{
    for (size_t i = 0; i < config->route_count; i++) {
        const struct weir__route *route = &config->routes[i];
        if (route->kind == kind && strlen(route->path) == len && memcmp(route->path, path, len) == 0)
            return route;
    }
    return NULL;
}

static void write_locations(struct writer *w)
{
    const struct weir__config *config = w->config;
    const struct weir__route *all = route_of(config, WEIR__ROUTE_ALL, "/", 1);
    for (size_t i = 0; i < config->route_count; i++) {
        const struct weir__route *route = &config->routes[i];
        if (route->kind == WEIR__ROUTE_EXACT)
            write_location(w, "= ", route->path, route);
        if (route->kind != WEIR__ROUTE_PREFIX)
            continue;
        write_location(w, "", route->path, route);
        /* Without it nginx redirects /api to /api/. */
        size_t len = strlen(route->path) - 1;
        if (!route_of(config, WEIR__ROUTE_EXACT, route->path, len)) {
            char *bare = strndup(route->path, len);
            if (bare)
                write_location(w, "= ", bare, all);
            free(bare);
        }
    }
    write_location(w, "", "/", all);
}

/* ---- The queue ---- */

/*
 * The location that sends a denied request to the agent, ticket requests, and the delivery server. The agent trusts the
 * headers X-Weir-…: the location sets all of them, so that none comes from a client. Rule and key are hexadecimal, as
 * they may contain any byte.
 */

/* Idle connections of all workers to the agent; half of the agent's limit, so that none is refused. */
#define IDLE_MAX 2048
/* Concurrent ticket requests, which no rule limits: bounded, so that they do not displace requests to be deferred. */
#define LOOKS_MAX 512

static long share_of_worker(const struct weir__config *config, long all, long most)
{
    enum { FEWEST = 4 };
    long workers = config->workers ? (long)config->workers : sysconf(_SC_NPROCESSORS_ONLN);
    long share = all / (workers > 0 ? workers : 1);
    return share > most ? most : share < FEWEST ? FEWEST : share;
}

static void write_queue_upstreams(struct writer *w)
{
    char server[256];
    snprintf(server, sizeof server, "unix:%s", w->config->queue.socket);
    fputs("    upstream weir_queue {\n        server ", w->to);
    quoted(w, server);
    /* Shorter than the agent's idle timeout: the agent never closes a connection that is about to be used. */
    fprintf(
        w->to,
        ";\n        keepalive %ld;\n        keepalive_timeout 60s;\n        keepalive_requests 1000000000;\n    }\n",
        share_of_worker(w->config, IDLE_MAX, IDLE_MAX / 8));
    fputs("    upstream weir_tickets {\n        server ", w->to);
    quoted(w, server);
    fprintf(w->to, " max_conns=%ld;\n    }\n", share_of_worker(w->config, LOOKS_MAX, LOOKS_MAX));
}

/* Every status but 202, from the agent or from nginx. */
#define FAILURES                                                                                                       \
    "400 401 403 404 405 406 408 409 410 411 412 413 414 415 416 417 421 422 426 428 429 431 494 500 501 502 503 504 " \
    "505 507 508"

/* The supervisor logs that the agent is unavailable; nginx must not for each request. */
#define QUIET "            error_log stderr alert;\n"

static void write_accept(struct writer *w)
{
    int64_t body = w->config->queue.body_bytes;
    if (w->config->body_bytes && w->config->body_bytes < body)
        body = w->config->body_bytes; /* a longer body is never forwarded */
    fprintf(w->to, "        weir_queue @weir_queue body=%" PRId64 " headers=client;\n        location @weir_queue {\n",
            body);
    /* 0 means unlimited to nginx; the agent enforces 0. */
    fprintf(w->to, "            client_max_body_size %" PRId64 ";\n", body ? body : 1);
    fputs("            set $weir_queue_way /accept;\n"
          "            proxy_pass http://weir_queue$weir_queue_way;\n"
          "            proxy_method POST;\n" QUIET "            proxy_request_buffering on;\n"
          "            proxy_next_upstream off;\n"
          "            proxy_connect_timeout 2s;\n"
          "            proxy_send_timeout 10s;\n"
          "            proxy_read_timeout 10s;\n"
          "            proxy_intercept_errors on;\n"
          "            recursive_error_pages on;\n"
          "            error_page " FAILURES " = @weir_denied;\n"
          "            proxy_set_header Host $weir_host;\n"
          "            proxy_set_header Connection \"\";\n"
          "            proxy_set_header Upgrade \"\";\n"
          "            proxy_set_header X-Real-IP $weir_client;\n"
          "            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n"
          "            proxy_set_header X-Forwarded-Host $weir_host;\n"
          "            proxy_set_header X-Forwarded-Proto $scheme;\n"
          "            proxy_set_header X-Weir-Method $request_method;\n"
          "            proxy_set_header X-Weir-Target $request_uri;\n"
          "            proxy_set_header X-Weir-Rule $weir_queue_rule;\n"
          "            proxy_set_header X-Weir-Key $weir_queue_key;\n"
          "            proxy_set_header X-Weir-Tier $weir_queue_tier;\n"
          "            proxy_set_header X-Weir-Cost $weir_queue_cost;\n"
          "            proxy_set_header X-Weir-Bounds $weir_queue_bounds;\n"
          "            proxy_set_header X-Weir-Connection $http_connection;\n"
          "            proxy_set_header X-Weir-Retry-After $weir_retry_after;\n"
          "        }\n"
          "        location @weir_denied {\n            weir_denied;\n        }\n",
          w->to);
}

static void write_queue_locations(struct writer *w)
{
    write_accept(w);
    /* weir off: a client beyond its limit may look up its tickets. */
    fputs("        location /.weir/tickets/ {\n"
          "            weir off;\n"
          "            client_max_body_size 1k;\n"
          "            proxy_pass http://weir_tickets/tickets/;\n"
          "            proxy_pass_request_headers off;\n" QUIET "            proxy_pass_request_body off;\n"
          "            proxy_set_header Content-Length \"\";\n"
          "            proxy_set_header Host weir;\n"
          "            proxy_set_header Connection \"\";\n"
          "            proxy_next_upstream off;\n"
          "            proxy_connect_timeout 2s;\n"
          "            proxy_read_timeout 10s;\n"
          "            error_page 502 504 = @weir_no_tickets;\n"
          "        }\n"
          "        location @weir_no_tickets {\n"
          "            weir off;\n"
          "            default_type application/json;\n"
          "            add_header Retry-After 1 always;\n"
          "            return 503 '{\"error\":\"unavailable\",\"message\":\"The queue is unavailable.\"}\\n';\n"
          "        }\n",
          w->to);
}

/* Client headers come from the deferred request, not from the agent's connection. */
static void write_delivery_listen(struct writer *w)
{
    char listen[512];
    snprintf(listen, sizeof listen, "unix:%s", w->config->queue.gateway ? w->config->queue.gateway : "deliver/socket");
    fputs("    server {\n        listen ", w->to);
    quoted(w, listen);
    fputs(";\n"
          "        client_max_body_size 0;\n"
          "        proxy_set_header Host $weir_host;\n"
          "        proxy_set_header Connection \"\";\n"
          "        proxy_set_header Upgrade \"\";\n"
          "        proxy_set_header X-Real-IP $http_x_real_ip;\n"
          "        proxy_set_header X-Forwarded-For $http_x_forwarded_for;\n"
          "        proxy_set_header X-Forwarded-Host $http_x_forwarded_host;\n"
          "        proxy_set_header X-Forwarded-Proto $http_x_forwarded_proto;\n",
          w->to);
}

/* ---- Servers ---- */

/* The directives that every server begins with. */
static void write_listen(struct writer *w, const struct weir__listener *listener, bool http2)
{
    enum { HTTP2_ALONE = 1025001 }; /* nginx 1.25.1: http2 is a directive */
    bool stream = listener->kind == WEIR__RESP, alone = !stream && w->setting->nginx->version >= HTTP2_ALONE;
    bool tls = listener->tls.certificate != NULL;
    fprintf(w->to, "    server {\n        listen %s%s%s;", listener->address, tls ? " ssl" : "",
            http2 && !alone ? " http2" : "");
    from(w, listener->place);
    if (alone)
        fprintf(w->to, "        http2 %s;\n", http2 ? "on" : "off");
    if (!tls)
        return;
    directive(w, "        ssl_certificate", listener->tls.certificate, listener->tls.certificate_place);
    directive(w, "        ssl_certificate_key", listener->tls.key, listener->tls.key_place);
    if (listener->tls.client_ca) {
        fputs("        ssl_verify_client on;\n", w->to);
        directive(w, "        ssl_client_certificate", listener->tls.client_ca, listener->tls.client_ca_place);
    }
}

static void write_gateway(struct writer *w, const struct weir__listener *listener)
{
    write_listen(w, listener, listener->http2);
    fputs("        weir on;\n", w->to);
    if (w->config->queue.wanted)
        write_queue_locations(w);
    write_locations(w);
    fputs("    }\n", w->to);
}

/* The server through which the agent delivers deferred requests: the gateway's routes without limits. */
static void write_delivery(struct writer *w)
{
    const struct weir__queue_config *queue = &w->config->queue;
    if (!queue->wanted || !w->config->route_count)
        return;
    write_queue_upstreams(w);
    if (queue->deliver_to)
        return;
    write_delivery_listen(w);
    write_locations(w);
    fputs("    }\n", w->to);
}

static void write_metrics(struct writer *w)
{
    const struct weir__listener *listener = w->config->metrics;
    if (!listener)
        return;
    fprintf(w->to, "    server {\n        listen %s;", listener->address);
    from(w, listener->place);
    fputs("        weir_access_log off;\n"
          "        location = /metrics {\n            weir_metrics;\n        }\n"
          "        location = /weir/status {\n"
          "            weir_status;\n            allow 127.0.0.1;\n            allow ::1;\n            deny all;\n"
          "        }\n"
          "        location / {\n            return 404;\n        }\n"
          "    }\n",
          w->to);
}

/* ---- The service ---- */

/* Clients of the service keep their connections open for long. */
#define SERVICE_COMMON                                                                                                 \
    "        weir_access_log off;\n"                                                                                   \
    "        keepalive_requests 1000000000;\n"                                                                         \
    "        keepalive_timeout 1h;\n"                                                                                  \
    "        client_max_body_size 1m;\n"                                                                               \
    "        client_body_buffer_size 1m;\n"

static void write_envoy(struct writer *w)
{
    const struct weir__config *config = w->config;
    fprintf(w->to, "        weir_rls_headers %s;\n        weir_rls_metadata %s;\n        weir_rls_count_denied %s;\n",
            config->rls_headers ? "on" : "off", config->rls_metadata ? "on" : "off",
            config->rls_count_denied ? "on" : "off");
}

static void write_grpc(struct writer *w, const struct weir__listener *listener)
{
    write_listen(w, listener, true);
    fputs(SERVICE_COMMON, w->to);
    write_envoy(w);
    fputs("        location / {\n            weir_rls;\n        }\n"
          "    }\n",
          w->to);
}

static void write_forward_auth(struct writer *w)
{
    const struct weir__forward_auth *auth = &w->config->auth;
    if (auth->headers)
        fprintf(w->to, "        weir_auth_headers %s;\n", auth->headers);
    for (size_t i = 0; i < auth->proxy_count; i++)
        fprintf(w->to, "        weir_auth_trusted_proxies %s;\n", auth->proxy[i]);
}

/* An endpoint that counts: requires the server's tokens, unless access.open names it. */
static void write_endpoint(struct writer *w, const char *location, const char *directives, int endpoint)
{
    fprintf(w->to, "        location %s {\n            %s\n%s        }\n", location, directives,
            w->config->access.open[endpoint] ? "            weir_api_open on;\n" : "");
}

static void write_api(struct writer *w, const struct weir__listener *listener)
{
    const struct weir__access *access = &w->config->access;
    write_listen(w, listener, listener->http2);
    fputs(SERVICE_COMMON, w->to);
    for (size_t i = 0; i < access->token_count; i++) {
        fputs("        weir_api_token ", w->to);
        quoted(w, access->token[i]);
        fputs(access->token_operator[i] ? " operator;\n" : ";\n", w->to);
    }
    if (access->open_operator)
        fputs("        weir_api_operator on;\n", w->to);
    write_forward_auth(w);
    write_envoy(w);
    write_endpoint(w, "/v1/", "weir_api;", WEIR__ENDPOINT_API);
    write_endpoint(w, "= /v1/auth", "weir_auth;", WEIR__ENDPOINT_AUTH);
    write_endpoint(w, "= /v1/auth/403", "weir_auth;\n            weir_auth_status 403;", WEIR__ENDPOINT_AUTH);
    write_endpoint(w, "= /json", "weir_rls_json;", WEIR__ENDPOINT_JSON);
    fputs("        location = /healthcheck {\n            return 200 \"OK\";\n        }\n"
          "        location / {\n            return 404;\n        }\n"
          "    }\n",
          w->to);
}

static void write_store(struct writer *w)
{
    const struct weir__store *store = &w->config->store;
    fputs("    weir_store ", w->to);
    quoted(w, store->url);
    for (size_t i = 0; i < store->setting_count; i++) {
        fprintf(w->to, " \"%s=", store->settings[i].name);
        escaped(w->to, store->settings[i].value);
        fputc('"', w->to);
    }
    fputs(";", w->to);
    from(w, store->place);
}

/* Segment, rules and store, for http and for stream. */
static void write_rules(struct writer *w)
{
    const struct weir__config *config = w->config;
    fputs("    weir_segment ", w->to);
    quoted(w, w->setting->test_only ? "segment" : config->segment_path);
    fprintf(w->to, " %" PRId64 ";", w->setting->test_only ? INT64_C(1) << 20 : config->segment_bytes);
    from(w, config->segment_place);
    if (config->hot_bytes && !w->setting->test_only) {
        bool hide = config->hot_hash || config->denied_hash; /* keys that are hashed in the log are hashed here, too */
        fprintf(w->to, "    weir_hot_keys %" PRId64 "%s;", config->hot_bytes, hide ? " hash" : "");
        from(w, config->hot_place);
    }
    if (config->load.on && !w->setting->test_only) {
        fputs("    weir_load on;", w->to);
        from(w, config->load.place);
    }
    fputs("    weir_rules ", w->to);
    quoted(w, w->setting->rules_file);
    fputs(w->setting->rules_by_workers ? " workers;" : ";", w->to);
    from(w, config->rules_place);
    if (config->store.url)
        write_store(w);
}

static void write_stream(struct writer *w)
{
    const struct weir__config *config = w->config;
    const struct weir__access *access = &config->access;
    if (!weir__speaks_resp(config))
        return;
    fputs("stream {\n", w->to);
    write_rules(w);
    for (size_t i = 0; i < config->listener_count; i++) {
        if (config->listeners[i].kind != WEIR__RESP)
            continue;
        write_listen(w, &config->listeners[i], false);
        fputs("        weir_resp;\n", w->to);
        if (access->password)
            directive(w, "        weir_resp_password", access->password, nowhere);
        if (access->operator_password)
            directive(w, "        weir_resp_operator_password", access->operator_password, nowhere);
        fputs("    }\n", w->to);
    }
    fputs("}\n", w->to);
}

static void write_http(struct writer *w)
{
    static const char *const folders[] = {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"};
    const struct weir__config *config = w->config;
    fputs("http {\n    server_tokens off;\n", w->to);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        fprintf(w->to, "    %s_temp_path %s;\n", folders[i], folders[i]);
    write_rules(w);
    write_logs(w);
    fputs("    ssl_protocols TLSv1.2 TLSv1.3;\n"
          "    ssl_session_cache shared:weir_tls:10m;\n",
          w->to);
    write_passing(w);
    for (size_t i = 0; i < config->route_count; i++)
        write_upstream(w, i);
    write_delivery(w);
    for (size_t i = 0; i < config->listener_count; i++) {
        const struct weir__listener *listener = &config->listeners[i];
        if (listener->kind == WEIR__GATEWAY)
            write_gateway(w, listener);
        else if (listener->kind == WEIR__GRPC)
            write_grpc(w, listener);
        else if (listener->kind == WEIR__HTTP_API)
            write_api(w, listener);
    }
    write_metrics(w);
    fputs("}\n", w->to);
}

char *weir__nginx_conf(const struct weir__config *config, const struct weir__facts *facts,
                       const struct weir__nginx_setting *setting)
{
    char *text = NULL;
    size_t len;
    struct writer w = {open_memstream(&text, &len), config, facts, setting};
    if (!w.to)
        return NULL;
    write_process(&w);
    write_http(&w);
    write_stream(&w);
    bool good = !ferror(w.to);
    good &= fclose(w.to) == 0;
    if (good)
        return text;
    free(text);
    return NULL;
}
