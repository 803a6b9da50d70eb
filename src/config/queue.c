/* weir.yaml: `queue`: deferred requests. */
#include "config/config.h"
#include "rules/yaml.h"

#include <stdio.h>
#include <sys/un.h>

#define BODY_MAX (INT64_C(3) << 20) /* of one deferred request, headers included */

/* Headers that are kept by default. Host, Idempotency-Key and X-Forwarded-… are always kept. */
static const char *const default_headers[] = {"accept",           "accept-language",  "authorization",
                                              "content-encoding", "content-language", "content-type",
                                              "cookie",           "user-agent",       "x-*"};

/* Reads a header's name or a prefix with '*', in lower case. NULL after a report. */
static const char *header_read(struct weir__reader *reader, const struct weir__node *node)
{
    char name[128], shown[WEIR__SHOWN];
    weir_text text;
    if (!weir__field_text(reader->report, node, "headers", &text))
        return NULL;
    bool good = text.len > 0 && text.len < sizeof name;
    for (size_t i = 0; good && i < text.len; i++) {
        good = text.data[i] == '*' ? i + 1 == text.len : weir__is_token(text.data[i]);
        name[i] = (char)weir__lower(text.data[i]);
    }
    if (good)
        return weir__config_text(reader, (weir_text){name, text.len});
    weir__report_error(reader->report, node->place,
                       "headers are names such as content-type, or the beginning of some, x-*; not \"%s\"",
                       weir__printable(text, shown, sizeof shown));
    return NULL;
}

static void headers_read(struct weir__reader *reader, const struct weir__node *node)
{
    struct weir__queue_config *queue = &reader->config->queue;
    const char **names;
    if (node->kind != WEIR__LIST || node->count > WEIR__KEPT_HEADERS_MAX) {
        weir__report_error(reader->report, node->place, "headers is a list of at most %d names, not %s",
                           WEIR__KEPT_HEADERS_MAX, node->kind == WEIR__LIST ? "of more" : weir__node_is(node));
        return;
    }
    names = weir__arena_array(&reader->config->arena, node->count + 1, sizeof *names);
    queue->headers = names;
    queue->header_count = 0;
    for (const struct weir__node *one = node->first; names && one; one = one->next)
        if ((names[queue->header_count] = header_read(reader, one)))
            queue->header_count++;
}

static void deliver_read(struct weir__reader *reader, const struct weir__node *node)
{
    struct weir__server server = {0};
    char url[400];
    if (!weir__config_server(reader, node, &server))
        return;
    int len = snprintf(url, sizeof url, "%s%s",
                       !server.host   ? ""
                       : server.https ? "https://"
                                      : "http://",
                       server.address);
    reader->config->queue.deliver_to = weir__config_text(reader, (weir_text){url, (size_t)len});
}

static void bounds_read(struct weir__reader *reader, const struct weir__node *node)
{
    struct weir__queue_config *queue = &reader->config->queue;
    const struct weir__node *member;
    struct weir__parsed_window age;
    if (WEIR__GIVEN(member, node, "max"))
        weir__field_int(reader->report, member, "max", 1, INT32_MAX, &queue->max);
    if (WEIR__GIVEN(member, node, "max_bytes"))
        weir__field_size(reader->report, member, "max_bytes", INT64_C(64) << 10, &queue->max_bytes);
    if (WEIR__GIVEN(member, node, "max_age") && weir__field_window(reader->report, member, "max_age", &age))
        queue->max_age_ms = age.ns < 1000000 ? 1 : age.ns / 1000000;
    if (WEIR__GIVEN(member, node, "body") && weir__field_size(reader->report, member, "body", 0, &queue->body_bytes) &&
        queue->body_bytes > BODY_MAX)
        weir__report_error(reader->report, member->place, "body must be at most %dKiB", (int)(BODY_MAX >> 10));
}

/* Sets the agent's socket and the queue's database. */
static void places_find(struct weir__reader *reader)
{
    struct weir__config *config = reader->config;
    struct sockaddr_un room;
    if (!config->state_path)
        return; /* reported already */
    config->queue.socket = weir__config_in_state(reader, "queue.sock", "");
    if (!config->store.url)
        config->queue.database = weir__config_in_state(reader, "queue.db", "sqlite:");
    /* The agent binds it as queue.sock.new, then renames it. */
    if (!config->queue.socket || strlen(config->queue.socket) + strlen(".new") >= sizeof room.sun_path)
        weir__report_error(reader->report, config->state_place.line ? config->state_place : config->queue.place,
                           "the path of the state folder is too long for a socket in it: %zu bytes at most",
                           sizeof room.sun_path - sizeof "/queue.sock.new");
}

void weir__config_queue(struct weir__reader *reader, const struct weir__node *root)
{
    static const char *const names[] = {"sync", "max",     "max_bytes", "max_age",
                                        "body", "headers", "retries",   "deliver_to"};
    static const char *const syncs[] = {"always", "second"};
    struct weir__queue_config *queue = &reader->config->queue;
    const struct weir__node *node = weir__node_get(root, "queue"), *member;
    int sync = 0;
    if (!node)
        return;
    *queue = (struct weir__queue_config){.wanted = true,
                                         .place = node->place,
                                         .max = 100000,
                                         .max_bytes = INT64_C(1) << 30,
                                         .max_age_ms = INT64_C(86400000),
                                         .body_bytes = INT64_C(1) << 20,
                                         .headers = default_headers,
                                         .header_count = sizeof default_headers / sizeof *default_headers,
                                         .retries = 8};
    if (!weir__config_is(node, "on")) {
        if (!weir__field_names(reader->report, node, "queue", WEIR__LIST_OF(names)))
            return;
        if (WEIR__GIVEN(member, node, "sync") &&
            weir__field_choice(reader->report, member, "sync", WEIR__LIST_OF(syncs), &sync))
            queue->sync_second = sync == 1;
        bounds_read(reader, node);
        if (WEIR__GIVEN(member, node, "headers"))
            headers_read(reader, member);
        if (WEIR__GIVEN(member, node, "retries"))
            weir__field_int(reader->report, member, "retries", 0, 1000, &queue->retries);
        if (WEIR__GIVEN(member, node, "deliver_to"))
            deliver_read(reader, member);
    }
    if (!queue->deliver_to && !weir__node_get(root, "gateway"))
        weir__report_error(reader->report, node->place,
                           "there is no gateway to deliver to: name the server of deferred requests under deliver_to");
    places_find(reader);
}
