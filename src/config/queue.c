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

/* Reads a header's name or a prefix with '*', in lower case. NULL after an error. */
static const char *header_read(struct weir__config *config, const struct weir__node *node, const char *what)
{
    char name[128], shown[WEIR__SHOWN];
    weir_text text;
    if (!weir__field_text(node, what, &text))
        return NULL;
    bool good = text.len > 0 && text.len < sizeof name;
    for (size_t i = 0; good && i < text.len; i++) {
        good = text.data[i] == '*' ? i + 1 == text.len : weir__is_token(text.data[i]);
        name[i] = (char)weir__lower(text.data[i]);
    }
    if (good)
        return weir__config_text(config, (weir_text){name, text.len});
    weir__node_error(node, "headers are names such as content-type, or the beginning of some, x-*; not \"%s\"",
                     weir__printable(text, shown, sizeof shown));
    return NULL;
}

static bool headers_read(void *context, const struct weir__node *node, const char *what, void *to)
{
    struct weir__config *config = context;
    struct weir__queue_config *queue = to;
    if (node->kind != WEIR__LIST || node->count > WEIR__KEPT_HEADERS_MAX)
        return weir__node_error(node, "headers is a list of at most %d names, not %s", WEIR__KEPT_HEADERS_MAX,
                                node->kind == WEIR__LIST ? "of more" : weir__node_is(node));
    const char **names = weir__arena_array(&config->arena, node->count + 1, sizeof *names);
    queue->headers = names;
    queue->header_count = 0;
    for (const struct weir__node *one = node->first; names && one; one = one->next)
        if ((names[queue->header_count] = header_read(config, one, what)))
            queue->header_count++;
    return names;
}

static bool deliver_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    struct weir__server server = {0};
    char url[400];
    (void)what;
    if (!weir__config_server(config, node, &server))
        return false;
    snprintf(url, sizeof url, "%s%s", !server.host ? "" : server.https ? "https://" : "http://", server.address);
    return (*(const char **)to = weir__config_text(config, weir__text_of(url)));
}

static bool body_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    (void)config;
    return weir__field_size(node, what, 0, to) &&
           (*(int64_t *)to <= BODY_MAX || weir__node_error(node, "body must be at most %dKiB", (int)(BODY_MAX >> 10)));
}

/* Sets the agent's socket and the queue's database. */
static void places_find(struct weir__config *config, struct weir__diagnostics *report)
{
    struct sockaddr_un room;
    if (!config->state_path)
        return; /* reported already */
    config->queue.socket = weir__config_in_state(config, "queue.sock", "");
    if (!config->store.url)
        config->queue.database = weir__config_in_state(config, "queue.db", "sqlite:");
    /* The agent binds it as queue.sock.new, then renames it. */
    if (!config->queue.socket || strlen(config->queue.socket) + strlen(".new") >= sizeof room.sun_path)
        weir__report_error(report, config->state_place.line ? config->state_place : config->queue.place,
                           "the path of the state folder is too long for a socket in it: %zu bytes at most",
                           sizeof room.sun_path - sizeof "/queue.sock.new");
}

void weir__config_queue(struct weir__config *config, const struct weir__node *root)
{
    static const char *const syncs[] = {"always", "second", NULL};
    static const struct weir__field fields[] = {
        {"sync", WEIR__FIELD_CHOICE, WEIR__CONFIG(queue.sync_second), .choices = syncs},
        {"max", WEIR__FIELD_INT, WEIR__CONFIG(queue.max), .min = 1, .max = INT32_MAX},
        {"max_bytes", WEIR__FIELD_SIZE, WEIR__CONFIG(queue.max_bytes), .min = INT64_C(64) << 10},
        {"max_age", WEIR__FIELD_AGE, WEIR__CONFIG(queue.max_age_ms)},
        {"body", WEIR__FIELD_READ, WEIR__CONFIG(queue.body_bytes), .read = body_read},
        {"headers", WEIR__FIELD_READ, WEIR__CONFIG(queue), .read = headers_read},
        {"retries", WEIR__FIELD_INT, WEIR__CONFIG(queue.retries), .max = 1000},
        {"deliver_to", WEIR__FIELD_READ, WEIR__CONFIG(queue.deliver_to), .read = deliver_read},
    };
    const struct weir__node *node = weir__node_get(root, "queue");
    if (!node)
        return;
    config->queue = (struct weir__queue_config){.wanted = true,
                                                .place = node->place,
                                                .max = 100000,
                                                .max_bytes = INT64_C(1) << 30,
                                                .max_age_ms = INT64_C(86400000),
                                                .body_bytes = INT64_C(1) << 20,
                                                .headers = default_headers,
                                                .header_count = WEIR__COUNT(default_headers),
                                                .retries = 8};
    if (node->kind == WEIR__SCALAR && !weir__config_is(node, "on")) {
        weir__node_error(node, "queue is on, or a map such as { max_age: 6h }; without a queue leave it out");
        return;
    }
    if (node->kind != WEIR__SCALAR) {
        weir__fields_read(node, "queue", WEIR__LIST_OF(fields), config, config);
        if (node->kind != WEIR__MAP)
            return;
    }
    if (!weir__node_get(node, "deliver_to") && !weir__node_get(root, "gateway"))
        weir__node_error(node,
                         "there is no gateway to deliver to: name the server of deferred requests under deliver_to");
    places_find(config, node->report);
}
