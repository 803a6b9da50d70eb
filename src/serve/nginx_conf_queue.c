/*
 * nginx.conf of the queue: the location that sends a denied request to the agent, ticket requests, and the delivery
 * server.
 *
 * The agent trusts the headers X-Weir-…: the location sets all of them, so that none comes from a client. Rule and key
 * are hexadecimal, as they may contain any byte.
 */
#include "serve/nginx.h"

#include <inttypes.h>
#include <unistd.h>

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

void weir__nginx_queue_upstream(FILE *to, const struct weir__config *config)
{
    char server[256];
    snprintf(server, sizeof server, "unix:%s", config->queue.socket);
    fputs("    upstream weir_queue {\n        server ", to);
    weir__nginx_quoted(to, server);
    /* Shorter than the agent's idle timeout: the agent never closes a connection that is about to be used. */
    fprintf(
        to,
        ";\n        keepalive %ld;\n        keepalive_timeout 60s;\n        keepalive_requests 1000000000;\n    }\n",
        share_of_worker(config, IDLE_MAX, IDLE_MAX / 8));
    fputs("    upstream weir_tickets {\n        server ", to);
    weir__nginx_quoted(to, server);
    fprintf(to, " max_conns=%ld;\n    }\n", share_of_worker(config, LOOKS_MAX, LOOKS_MAX));
}

/* Every status but 202, from the agent or from nginx. */
#define FAILURES                                                                                                       \
    "400 401 403 404 405 406 408 409 410 411 412 413 414 415 416 417 421 422 426 428 429 431 494 500 501 502 503 504 " \
    "505 507 508"

/* The supervisor logs that the agent is unavailable; nginx must not for each request. */
#define QUIET "            error_log stderr alert;\n"

static void write_accept(FILE *to, const struct weir__config *config)
{
    int64_t body = config->queue.body_bytes;
    if (config->body_bytes && config->body_bytes < body)
        body = config->body_bytes; /* a longer body is never forwarded */
    fprintf(to, "        weir_queue @weir_queue body=%" PRId64 " headers=client;\n        location @weir_queue {\n",
            body);
    /* 0 means unlimited to nginx; the agent enforces 0. */
    fprintf(to, "            client_max_body_size %" PRId64 ";\n", body ? body : 1);
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
          to);
}

void weir__nginx_queue_locations(FILE *to, const struct weir__config *config)
{
    write_accept(to, config);
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
          "            return 503 '{\"error\":\"unavailable\",\"message\":\"The queue cannot be asked at the "
          "moment.\"}\\n';\n"
          "        }\n",
          to);
}

/* Client headers come from the deferred request, not from the agent's connection. */
void weir__nginx_queue_delivery(FILE *to, const struct weir__config *config)
{
    char listen[512];
    snprintf(listen, sizeof listen, "unix:%s", config->queue.gateway ? config->queue.gateway : "deliver/socket");
    fputs("    server {\n        listen ", to);
    weir__nginx_quoted(to, listen);
    fputs(";\n"
          "        client_max_body_size 0;\n"
          "        proxy_set_header Host $weir_host;\n"
          "        proxy_set_header Connection \"\";\n"
          "        proxy_set_header Upgrade \"\";\n"
          "        proxy_set_header X-Real-IP $http_x_real_ip;\n"
          "        proxy_set_header X-Forwarded-For $http_x_forwarded_for;\n"
          "        proxy_set_header X-Forwarded-Host $http_x_forwarded_host;\n"
          "        proxy_set_header X-Forwarded-Proto $http_x_forwarded_proto;\n",
          to);
}
