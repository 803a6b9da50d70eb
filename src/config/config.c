/* Reads and validates weir.yaml: its members but gateway, service, store, queue, load and rules. See config.h. */
#include "config/config.h"
#include "rules/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#define MIB       (INT64_C(1) << 20)
#define HOT_BYTES (8 * MIB)
#define HOST_MAX  64

static void segment_read(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"path", "size"};
    struct weir__config *config = reader->config;
    const struct weir__node *member;
    if (!weir__field_names(reader->report, node, "segment", WEIR__LIST_OF(names)))
        return;
    config->segment_place = node->place;
    if (WEIR__GIVEN(member, node, "path")) {
        config->segment_path = weir__config_path(reader, member, "path");
        config->segment_place = member->place;
        config->segment_is_ours = false;
    }
    if (WEIR__GIVEN(member, node, "size"))
        weir__field_size(reader->report, member, "size", INT64_C(64) << 10, &config->segment_bytes);
}

/* "off", a size, or a map with one. */
static void hot_read(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"size", "hash_keys"};
    struct weir__config *config = reader->config;
    const struct weir__node *size = node, *member;
    config->hot_place = node->place;
    if (weir__config_is(node, "off")) {
        config->hot_bytes = 0;
        return;
    }
    if (node->kind == WEIR__MAP) {
        if (!weir__field_names(reader->report, node, "hot_keys", WEIR__LIST_OF(names)))
            return;
        size = weir__node_get(node, "size");
        if (WEIR__GIVEN(member, node, "hash_keys"))
            weir__field_bool(reader->report, member, "hash_keys", &config->hot_hash);
    }
    config->hot_bytes = HOT_BYTES;
    if (size)
        weir__field_size(reader->report, size, "hot_keys", INT64_C(128) << 10, &config->hot_bytes);
}

static void workers_read(struct weir__reader *reader, const struct weir__node *node)
{
    if (!weir__config_is(node, "auto"))
        weir__field_int(reader->report, node, "workers", 1, 1024, &reader->config->workers);
}

/* `user` or `agent_user`. */
static void user_read(struct weir__reader *reader, const struct weir__node *node)
{
    struct weir__config *config = reader->config;
    const char *what = node->name->text.data;
    bool agent = strcmp(what, "agent_user") == 0;
    weir_text name;
    if (!weir__field_text(reader->report, node, what, &name))
        return;
    *(agent ? &config->agent_user : &config->user) = weir__config_text(reader, name);
    *(agent ? &config->agent_user_place : &config->user_place) = node->place;
}

/* The name of this host that other hosts and the dashboard show. */
static void host_read(struct weir__reader *reader, const struct weir__node *node)
{
    weir_text name;
    if (!weir__field_text(reader->report, node, "host", &name))
        return;
    if (!name.len || name.len > HOST_MAX)
        weir__report_error(reader->report, node->place, "host is a name of 1 to %d bytes", HOST_MAX);
    else
        reader->config->host_name = weir__config_text(reader, name);
}

/* ---- Logs ---- */

/* "stderr" or a file. */
static bool log_path(struct weir__reader *reader, const struct weir__node *node, const char **path)
{
    *path = NULL;
    if (weir__config_is(node, "stderr"))
        return true;
    *path = weir__config_path(reader, node, "a log's path");
    return *path != NULL;
}

static const char *const formats[] = {"text", "json"};

static void log_read(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"path", "format"};
    struct weir__config *config = reader->config;
    const struct weir__node *member;
    int format = 0;
    config->log_place = node->place;
    if (!weir__field_names(reader->report, node, "log", WEIR__LIST_OF(names)))
        return;
    if (WEIR__GIVEN(member, node, "path")) {
        log_path(reader, member, &config->log_path);
        config->log_place = member->place;
    }
    if (WEIR__GIVEN(member, node, "format") &&
        weir__field_choice(reader->report, member, "format", WEIR__LIST_OF(formats), &format))
        config->log_json = format == 1;
}

/* A path, or a map with one. */
static void access_read(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"path", "format"};
    struct weir__config *config = reader->config;
    const struct weir__node *path = node, *member = NULL;
    int format = config->log_json;
    if (weir__config_is(node, "off"))
        return;
    if (node->kind == WEIR__MAP) {
        if (!weir__field_names(reader->report, node, "access_log", WEIR__LIST_OF(names)))
            return;
        path = weir__node_get(node, "path");
        member = weir__node_get(node, "format");
    }
    if (member && !weir__field_choice(reader->report, member, "format", WEIR__LIST_OF(formats), &format))
        return;
    config->access_place = path ? path->place : node->place;
    if (!path || log_path(reader, path, &config->access_path))
        config->access_log = format ? WEIR__LOG_JSON : WEIR__LOG_TEXT;
}

static void denied_read(struct weir__reader *reader, const struct weir__node *node)
{
    static const char *const names[] = {"path", "rate", "hash_keys"};
    struct weir__config *config = reader->config;
    const struct weir__node *path = node, *member;
    if (weir__config_is(node, "off"))
        return;
    if (node->kind == WEIR__MAP) {
        if (!weir__field_names(reader->report, node, "denied_log", WEIR__LIST_OF(names)))
            return;
        path = weir__node_get(node, "path");
        if (WEIR__GIVEN(member, node, "rate"))
            weir__field_int(reader->report, member, "rate", 1, 1000000, &config->denied_rate);
        if (WEIR__GIVEN(member, node, "hash_keys"))
            weir__field_bool(reader->report, member, "hash_keys", &config->denied_hash);
    }
    config->denied_place = path ? path->place : node->place;
    config->denied_log = !path || log_path(reader, path, &config->denied_path);
}

/* ---- The file ---- */

static void metrics_read(struct weir__reader *reader, const struct weir__node *node)
{
    struct weir__listener *listener = weir__arena_take(&reader->config->arena, sizeof *listener);
    if (listener && weir__config_listener(reader, node, "metrics", listener))
        reader->config->metrics = listener;
}

static bool has_all(const struct weir__listener *listener, const char *host)
{
    return listener->host && strcmp(listener->host, host) == 0;
}

/* True if the addresses overlap. nginx accepts a port on all addresses and the same port on one address as two servers,
 * and would mix their clients up. */
static bool collide(const struct weir__listener *a, const struct weir__listener *b)
{
    bool a6 = a->host && strchr(a->host, ':'), b6 = b->host && strchr(b->host, ':');
    if (strcmp(a->port, b->port) != 0 || a6 != b6)
        return false;
    if (a6)
        return has_all(a, "::") || has_all(b, "::") || strcasecmp(a->host, b->host) == 0;
    return !a->host || !b->host || has_all(a, "0.0.0.0") || has_all(b, "0.0.0.0") || strcasecmp(a->host, b->host) == 0;
}

/* Listener `i` of all, nginx's and the agent's; NULL: not given. */
static const struct weir__listener *listener_at(const struct weir__config *config, size_t i)
{
    if (i < config->listener_count)
        return &config->listeners[i];
    return i == config->listener_count ? config->metrics : config->admin.listener;
}

static void check_doubles(struct weir__reader *reader)
{
    const struct weir__config *config = reader->config;
    char at[256];
    for (size_t i = 0; i < config->listener_count + 2 && !config->arena.failed; i++) {
        const struct weir__listener *one = listener_at(config, i);
        for (size_t j = 0; one && j < i; j++) {
            const struct weir__listener *other = listener_at(config, j);
            if (other && collide(other, one)) {
                weir__report_error(reader->report, one->place, "%s is listened on at %s already", one->address,
                                   weir__place_text(reader->report, other->place, at, sizeof at));
                break;
            }
        }
    }
}

static void root_read(struct weir__reader *reader, const struct weir__node *root)
{
    static const char *const names[] = {"segment", "workers",    "hot_keys",   "user",     "gateway",   "metrics",
                                        "log",     "access_log", "denied_log", "rules",    "identity",  "allow",
                                        "block",   "service",    "store",      "admin",    "rules_db",  "state",
                                        "queue",   "load",       "host",       "response", "normalize", "agent_user"};
    static const struct {
        const char *name;
        void (*read)(struct weir__reader *reader, const struct weir__node *node);
    } members[] = {{"log", log_read},
                   {"segment", segment_read},
                   {"workers", workers_read},
                   {"hot_keys", hot_read},
                   {"load", weir__config_load_level},
                   {"user", user_read},
                   {"agent_user", user_read},
                   {"host", host_read},
                   {"gateway", weir__config_gateway},
                   {"service", weir__config_service},
                   {"metrics", metrics_read},
                   {"access_log", access_read},
                   {"denied_log", denied_read},
                   {"store", weir__config_store}};
    const struct weir__node *member;
    if (!weir__field_names(reader->report, root, "weir.yaml", WEIR__LIST_OF(names)))
        return;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (WEIR__GIVEN(member, root, members[i].name))
            members[i].read(reader, member);
    /* The dashboard shows hot keys. */
    if (weir__node_get(root, "admin") && !weir__node_get(root, "hot_keys"))
        reader->config->hot_bytes = HOT_BYTES;
    /* With one of the others it may be a file for weir agent; preflight.c reports this for weir serve. */
    if (!weir__node_get(root, "gateway") && !weir__node_get(root, "service") && !weir__node_get(root, "store") &&
        !weir__node_get(root, "admin") && !weir__node_get(root, "load") && !weir__node_get(root, "queue"))
        weir__report_error(reader->report, root->place,
                           "there is neither a gateway (where to listen, and where to send on to) nor a service");
    weir__config_control(reader, root);
    weir__config_queue(reader, root);
    weir__config_rules(reader, root);
    weir__config_publish(reader);
    check_doubles(reader);
}

static void defaults(struct weir__config *config)
{
    char path[64];
    int len = snprintf(path, sizeof path, "/dev/shm/weir-%u", (unsigned)geteuid());
    config->segment_path = weir__arena_copy(&config->arena, (weir_text){path, (size_t)len}).data;
    config->segment_is_ours = true;
    config->listeners = weir__arena_array(&config->arena, WEIR__LISTENERS_MAX, sizeof *config->listeners);
    config->segment_bytes = 64 * MIB;
    config->keepalive = 64;
    config->max_fails = 3;
    config->fail_ms = 10000;
    config->connect_ms = 5000;
    config->read_ms = 60000;
    config->send_ms = 60000;
    config->body_bytes = 10 * MIB;
    config->upstream_verify = true;
    config->denied_rate = 100;
}

bool weir__config_report(const char *file, const char *message, weir_diagnose *diagnose, void *context)
{
    if (diagnose)
        diagnose(context, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = file, .message = message});
    return false;
}

/* ---- Secrets ---- */

static void mask(const char *from, const char *end)
{
    if (from < end)
        memset((char *)(uintptr_t)from, '*', (size_t)(end - from));
}

/* Masks user and password of a URL, and ?password=…, in [from, end). */
static void url_mask(const char *from, const char *end)
{
    static const char argument[] = "password=";
    for (const char *at = from; at + 3 <= end; at++) {
        if (memcmp(at, "://", 3) == 0) {
            const char *sign = NULL;
            for (const char *c = at + 3; c < end && !strchr("/?# ,\"'", *c); c++)
                sign = *c == '@' ? c : sign;
            mask(at + 3, sign);
        } else if ((size_t)(end - at) >= sizeof argument && memcmp(at, argument, sizeof argument - 1) == 0) {
            at += sizeof argument - 1;
            mask(at, at + strcspn(at, "& ,\"'\n"));
        }
    }
}

/* Masks a scalar in the text of the file, up to the end of its line at most. */
static void scalar_mask(struct weir__reader *reader, const struct weir__node *node, bool secret)
{
    weir_text rest;
    if (!weir__place_find(reader->report, node->place, &rest))
        return;
    const char *at = rest.data, *line = memchr(at, '\n', rest.len), *end = line ? line : rest.data + rest.len;
    for (uint32_t column = 1; column < node->place.column && at < end; column++)
        for (at++; at < end && ((unsigned char)*at & 0xc0) == 0x80;)
            at++;
    size_t quotes = node->quoted ? 2 : 0, left = (size_t)(end - at);
    const char *closing = node->quoted && left > 1 ? memchr(at + 1, *at, left - 1) : NULL;
    const char *stop = node->text.len + quotes < left ? at + node->text.len + quotes : end;
    stop = closing && closing + 1 > stop ? closing + 1 : stop;
    if (secret)
        mask(at, stop);
    else
        url_mask(at, stop);
}

/* True for tokens and passwords, and for misspelt names of them, whose lines the message about the name quotes. */
static bool is_secret(const struct weir__node *name)
{
    static const char *const markers[] = {"tok", "pas", "pw", "secret"};
    const char *text = name ? name->text.data : "", *file = strstr(text, "_file");
    for (size_t i = 0; i < sizeof markers / sizeof *markers && !(file && !file[strlen("_file")]); i++)
        if (strcasestr(text, markers[i]))
            return true;
    return false;
}

/* The depth is bounded by the reader of YAML. */
static void secrets_mask(struct weir__reader *reader, const struct weir__node *node, bool secret)
{
    if (node->kind == WEIR__SCALAR)
        scalar_mask(reader, node, secret);
    for (const struct weir__node *member = node->first; member; member = member->next)
        secrets_mask(reader, member, secret || is_secret(member->name));
}

/* Messages quote lines of the file, and end in logs: masks the secrets there. Not in rules, which are read from the
 * text. */
static void quotes_mask(struct weir__reader *reader, const struct weir__node *root)
{
    static const char *const names[] = {"service", "store", "admin", "rules_db", "rules"};
    for (size_t i = 0; i < sizeof names / sizeof *names && root->kind == WEIR__MAP; i++) {
        const struct weir__node *member = weir__node_get(root, names[i]);
        if (member && (strcmp(names[i], "rules") != 0 || weir__config_is_origin(member)))
            secrets_mask(reader, member, false);
    }
}

/* Sets the folder that relative paths are relative to: that of weir.yaml. */
static bool folder_find(struct weir__config *config, weir_diagnose *diagnose, void *context)
{
    char *absolute_path = realpath(config->file, NULL);
    if (!absolute_path)
        return weir__config_report(config->file, "cannot be read: no such file", diagnose, context);
    const char *slash = strrchr(absolute_path, '/');
    size_t len = slash && slash > absolute_path ? (size_t)(slash - absolute_path) : 0;
    config->folder = weir__arena_copy(&config->arena, (weir_text){absolute_path, len}).data;
    free(absolute_path);
    return true;
}

static int load(struct weir__config *config, const char *file, weir_diagnose *diagnose, void *context)
{
    *config = (struct weir__config){.arena = {.bytes_max = (size_t)64 << 20}, .file = file, .rls_count_denied = true};
    int error = weir__sources_read(file, diagnose, context, &config->sources);
    if (error)
        return error;
    if (!folder_find(config, diagnose, context))
        return WEIR_ERULESPATH;
    struct weir__diagnostics report = {
        .diagnose = diagnose, .context = context, .sources = config->sources.list, .source_count = 1};
    struct weir__reader reader = {config, &report};
    if (config->sources.count != 1 || strcmp(config->sources.list[0].name, file) != 0) {
        weir__report_error(&report, ((struct weir__place){0}), "this is a directory; name the file in it");
        return WEIR_ERULESPATH;
    }
    defaults(config);
    const struct weir__node *root = weir__yaml_read(0, &config->arena, &report);
    if (root) {
        quotes_mask(&reader, root);
        root_read(&reader, root);
    }
    if (config->arena.failed)
        return WEIR_ENOMEM;
    return report.errors ? WEIR_ERULES : 0;
}

int weir__config_load(struct weir__config *config, const char *file, weir_diagnose *diagnose, void *context)
{
    int error = load(config, file, diagnose, context);
    if (error == WEIR_ERULESBUSY)
        weir__config_report(file, "changed while it was read; try again", diagnose, context);
    else if (error && error != WEIR_ERULES && error != WEIR_ERULESPATH)
        weir__config_report(file, weir_strerror(error), diagnose, context);
    return error;
}

static void text_wipe(const char *text)
{
    if (text)
        explicit_bzero((void *)(uintptr_t)text, strlen(text));
}

void weir__config_wipe(struct weir__config *config)
{
    for (size_t i = 0; i < config->sources.count; i++)
        explicit_bzero((void *)(uintptr_t)config->sources.list[i].text.data, config->sources.list[i].text.len);
    for (size_t i = 0; i < config->access.token_count; i++)
        text_wipe(config->access.token[i]);
    text_wipe(config->access.password);
    text_wipe(config->access.operator_password);
}

void weir__config_free(struct weir__config *config)
{
    weir__config_wipe(config);
    weir__arena_free(&config->arena);
    weir__sources_free(&config->sources);
    *config = (struct weir__config){0};
}
