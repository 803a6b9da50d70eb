/*
 * nginx's configuration: the way of a denied request into the queue, and back.
 *
 * What the agent believes of a request is in headers X-Weir-…; the location sets every one of them, so none of a
 * client's gets through. Rule and key are in hexadecimal digits: they may hold any bytes.
 */
#include "serve/nginx.h"

#include <inttypes.h>
#include <unistd.h>

/* Idle connections of all workers to the agent, which takes twice as many at once: none of them keeps out another. */
#define IDLE_MAX 2048
/* Questions about tickets at once: anybody may ask without a limit, and is not to keep out what is to be kept. */
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
    /* The agent waits longer before it closes an idle one: none is closed under a request. */
    fprintf(
        to,
        ";\n        keepalive %ld;\n        keepalive_timeout 60s;\n        keepalive_requests 1000000000;\n    }\n",
        share_of_worker(config, IDLE_MAX, IDLE_MAX / 8));
    fputs("    upstream weir_tickets {\n        server ", to);
    weir__nginx_quoted(to, server);
    fprintf(to, " max_conns=%ld;\n    }\n", share_of_worker(config, LOOKS_MAX, LOOKS_MAX));
}

/* Whatever the agent answers but 202, and whatever nginx finds on the way to it. */
#define FAILURES                                                                                                       \
    "400 401 403 404 405 406 408 409 410 411 412 413 414 415 416 417 421 422 426 428 429 431 494 500 501 502 503 504 " \
    "505 507 508"

/* That the agent is away is told once, by those who start it: not by nginx for each request. */
#define QUIET "            error_log stderr alert;\n"

static void write_accept(FILE *to, const struct weir__config *config)
{
    int64_t body = config->queue.body_bytes;
    if (config->body_bytes && config->body_bytes < body)
        body = config->body_bytes; /* what is longer never gets to a server */
    fprintf(to, "        weir_queue @weir_queue body=%" PRId64 " headers=client;\n        location @weir_queue {\n",
            body);
    /* 0 would mean any to nginx; the agent knows. */
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
    /* Who may not ask for more may all the same ask what has become of what was kept. */
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

/* Who the client was is known from when the request was kept. */
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
