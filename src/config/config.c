/* Reads and validates weir.yaml: its members but gateway, service, store, queue, load and rules. See config.h. */
#include "config/config.h"
#include "rules/yaml.h"
#include "table/denial_ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#define MIB       (INT64_C(1) << 20)
#define HOT_BYTES (8 * MIB)
#define HOST_MAX  64

/* ---- Fields ---- */

static bool workers_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    (void)config;
    return weir__config_is(node, "auto") || weir__field_int(node, what, 1, 1024, to);
}

/* The name of this host that other hosts and the dashboard show. */
static bool host_read(void *config, const struct weir__node *node, const char *what, void *to)
{
    weir_text name;
    (void)config;
    if (!weir__field_text(node, what, &name))
        return false;
    if (!name.len || name.len > HOST_MAX)
        return weir__node_error(node, "host is a name of 1 to %d bytes", HOST_MAX);
    *(const char **)to = name.data;
    return true;
}

static bool metrics_read(void *context, const struct weir__node *node, const char *what, void *to)
{
    struct weir__config *config = context;
    struct weir__listener *listener = weir__arena_take(&config->arena, sizeof *listener);
    (void)to;
    if (!listener || !weir__config_listener(config, node, what, listener))
        return false;
    config->metrics = listener;
    return true;
}

static const struct weir__field segment_fields[] = {
    {"path", WEIR__FIELD_READ, WEIR__CONFIG(segment_path), WEIR__CONFIG_PLACE(segment_place),
     .read = weir__config_path},
    {"size", WEIR__FIELD_SIZE, WEIR__CONFIG(segment_bytes), .min = INT64_C(64) << 10},
};

/* "off", a size, or a map with one. */
static bool hot_read(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const struct weir__field fields[] = {
        {"size", WEIR__FIELD_SIZE, WEIR__CONFIG(hot_bytes), .what = "hot_keys", .min = INT64_C(128) << 10},
        {"hash_keys", WEIR__FIELD_BOOL, WEIR__CONFIG(hot_hash)},
    };
    struct weir__config *config = to;
    bool off = weir__config_is(node, "off");
    config->hot_bytes = off ? 0 : HOT_BYTES;
    return off || weir__fields_or_first(node, what, WEIR__LIST_OF(fields), config, context);
}

/* "off", a size, or a map with one. */
static bool ring_read(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const struct weir__field fields[] = {
        {"size", WEIR__FIELD_SIZE, WEIR__CONFIG(denial_bytes), .what = "denials", .min = INT64_C(64) << 10,
         .max = WEIR__DENIAL_BYTES_MAX},
        {"hash_keys", WEIR__FIELD_BOOL, WEIR__CONFIG(denial_hash)},
    };
    struct weir__config *config = to;
    bool off = weir__config_is(node, "off");
    config->denial_bytes = off ? 0 : config->denial_bytes;
    return off || weir__fields_or_first(node, what, WEIR__LIST_OF(fields), config, context);
}

/* ---- Logs ---- */

/* "stderr" or a file. */
static bool log_path(void *config, const struct weir__node *node, const char *what, void *to)
{
    (void)what;
    *(const char **)to = NULL;
    return weir__config_is(node, "stderr") || weir__config_path(config, node, "a log's path", to);
}

static const char *const formats[] = {"text", "json", NULL};

static const struct weir__field log_fields[] = {
    {"path", WEIR__FIELD_READ, WEIR__CONFIG(log_path), WEIR__CONFIG_PLACE(log_place), .read = log_path},
    {"format", WEIR__FIELD_CHOICE, WEIR__CONFIG(log_json), .choices = formats},
};

/* "off", a path, or a map with one. */
static bool access_read(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const struct weir__field fields[] = {
        {"path", WEIR__FIELD_READ, WEIR__CONFIG(access_path), WEIR__CONFIG_PLACE(access_place), .read = log_path},
        {"format", WEIR__FIELD_CHOICE, WEIR__CONFIG(access_log), .min = WEIR__LOG_TEXT, .choices = formats},
    };
    struct weir__config *config = to;
    if (weir__config_is(node, "off"))
        return true;
    config->access_log = config->log_json ? WEIR__LOG_JSON : WEIR__LOG_TEXT;
    return weir__fields_or_first(node, what, WEIR__LIST_OF(fields), config, context);
}

static bool denied_read(void *context, const struct weir__node *node, const char *what, void *to)
{
    static const struct weir__field fields[] = {
        {"path", WEIR__FIELD_READ, WEIR__CONFIG(denied_path), WEIR__CONFIG_PLACE(denied_place), .read = log_path},
        {"rate", WEIR__FIELD_INT, WEIR__CONFIG(denied_rate), .min = 1, .max = 1000000},
        {"hash_keys", WEIR__FIELD_BOOL, WEIR__CONFIG(denied_hash)},
    };
    struct weir__config *config = to;
    config->denied_log = !weir__config_is(node, "off");
    return !config->denied_log || weir__fields_or_first(node, what, WEIR__LIST_OF(fields), config, context);
}

/* ---- The file ---- */

static const struct weir__field root_fields[] = {
    {"log", WEIR__FIELD_MAP, WEIR__CONFIG_PLACE(log_place), WEIR__MAP_OF(log_fields)},
    {"segment", WEIR__FIELD_MAP, WEIR__CONFIG_PLACE(segment_place), WEIR__MAP_OF(segment_fields)},
    {"workers", WEIR__FIELD_READ, WEIR__CONFIG(workers), .read = workers_read},
    {"hot_keys", WEIR__FIELD_READ, WEIR__CONFIG_PLACE(hot_place), .read = hot_read},
    {"denials", WEIR__FIELD_READ, WEIR__CONFIG_PLACE(denial_place), .read = ring_read},
    {"load", WEIR__FIELD_READ, .read = weir__config_load_level},
    {"user", WEIR__FIELD_STRING, WEIR__CONFIG(user), WEIR__CONFIG_PLACE(user_place)},
    {"agent_user", WEIR__FIELD_STRING, WEIR__CONFIG(agent_user), WEIR__CONFIG_PLACE(agent_user_place)},
    {"host", WEIR__FIELD_READ, WEIR__CONFIG(host_name), .read = host_read},
    {"gateway", WEIR__FIELD_READ, .read = weir__config_gateway},
    {"service", WEIR__FIELD_READ, .read = weir__config_service},
    {"metrics", WEIR__FIELD_READ, .read = metrics_read},
    {"access_log", WEIR__FIELD_READ, WEIR__CONFIG_PLACE(access_place), .read = access_read},
    {"denied_log", WEIR__FIELD_READ, WEIR__CONFIG_PLACE(denied_place), .read = denied_read},
    {"store", WEIR__FIELD_READ, .read = weir__config_store},
    {"notify", WEIR__FIELD_READ, .read = weir__config_notify},
    /* Read after the others, by weir__config_control, weir__config_queue and weir__config_rules. */
    {.name = "admin"},
    {.name = "rules_db"},
    {.name = "state"},
    {.name = "queue"},
    {.name = "rules"},
    {.name = "identity"},
    {.name = "allow"},
    {.name = "block"},
    {.name = "response"},
    {.name = "normalize"},
};

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

static void check_doubles(const struct weir__config *config, struct weir__diagnostics *report)
{
    char at[256];
    for (size_t i = 0; i < config->listener_count + 2 && !config->arena.failed; i++) {
        const struct weir__listener *one = listener_at(config, i);
        for (size_t j = 0; one && j < i; j++) {
            const struct weir__listener *other = listener_at(config, j);
            if (other && collide(other, one)) {
                weir__report_error(report, one->place, "%s is listened on at %s already", one->address,
                                   weir__place_text(report, other->place, at, sizeof at));
                break;
            }
        }
    }
}

static void root_read(struct weir__config *config, const struct weir__node *root)
{
    weir__fields_read(root, "weir.yaml", WEIR__LIST_OF(root_fields), config, config);
    if (root->kind != WEIR__MAP)
        return;
    config->segment_is_ours = !weir__node_get(weir__node_get(root, "segment"), "path");
    /* The dashboard shows hot keys. */
    if (weir__node_get(root, "admin") && !weir__node_get(root, "hot_keys"))
        config->hot_bytes = HOT_BYTES;
    /* With one of the others it may be a file for weir agent; deployment.c reports this for weir serve. */
    if (!weir__node_get(root, "gateway") && !weir__node_get(root, "service") && !weir__node_get(root, "store") &&
        !weir__node_get(root, "admin") && !weir__node_get(root, "load") && !weir__node_get(root, "queue") &&
        !weir__node_get(root, "notify"))
        weir__node_error(root, "there is neither a gateway (where to listen, and where to send on to) nor a service");
    weir__config_control(config, root);
    weir__config_queue(config, root);
    weir__config_rules(config, root);
    if (weir__config_publish(config) && config->admin.listener && !config->admin.rules && weir__node_get(root, "rules"))
        weir__report_warning(root->report, config->rules_place, WEIR__RULES_UNDECIDED);
    check_doubles(config, root->report);
}

static void defaults(struct weir__config *config)
{
    char path[64];
    int len = snprintf(path, sizeof path, "/dev/shm/weir-%u", (unsigned)geteuid());
    config->segment_path = weir__arena_copy(&config->arena, (weir_text){path, (size_t)len}).data;
    config->listeners = weir__arena_array(&config->arena, WEIR__LISTENERS_MAX, sizeof *config->listeners);
    config->segment_bytes = WEIR__SEGMENT_DEFAULT;
    config->keepalive = 64;
    config->max_fails = 3;
    config->fail_ms = 10000;
    config->connect_ms = 5000;
    config->read_ms = 60000;
    config->send_ms = 60000;
    config->body_bytes = 10 * MIB;
    config->upstream_verify = true;
    config->denied_rate = 100;
    config->denial_bytes = WEIR__DENIAL_BYTES;
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
    for (char *at = (char *)(uintptr_t)from; at < end;) {
        size_t line_break = weir__line_break(at, (size_t)(end - at)); /* kept, so that the lines keep their numbers */
        if (!line_break)
            *at = '*';
        at += line_break ? line_break : 1;
    }
}

/* Masks user and password of a URL, and ?password=…, in [from, end); with `path`, all that follows the host. */
static void url_mask(const char *from, const char *end, bool path)
{
    static const char argument[] = "password=";
    for (const char *at = from; at + 3 <= end; at++) {
        if (memcmp(at, "://", 3) == 0) {
            const char *sign = NULL;
            for (const char *c = at + 3; c < end && !strchr("/?# ,\"'", *c); c++)
                sign = *c == '@' ? c : sign;
            mask(at + 3, sign);
            for (const char *host = at + 3; path && host < end; host++)
                if (strchr("/?#", *host))
                    mask(host, end);
        } else if ((size_t)(end - at) >= sizeof argument && memcmp(at, argument, sizeof argument - 1) == 0) {
            at += sizeof argument - 1;
            mask(at, at + strcspn(at, "& ,\"'\n"));
        }
    }
}

/* Masks a scalar in the text of the file. */
static void scalar_mask(const struct weir__node *node, bool secret, bool path)
{
    weir_text from, to;
    if (!weir__place_byte(node->report, node->place, &from) || !weir__place_byte(node->report, node->end, &to))
        return;
    if (secret)
        mask(from.data, to.data);
    else
        url_mask(from.data, to.data, path);
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
static void secrets_mask(const struct weir__node *node, bool secret, bool path)
{
    if (node->kind == WEIR__SCALAR)
        scalar_mask(node, secret, path);
    for (const struct weir__node *member = node->first; member; member = member->next)
        secrets_mask(member, secret || is_secret(member->name), path);
}

/* Messages quote lines of the file, and end in logs: masks the secrets there. Not in rules, which are read from the
 * text. */
static void quotes_mask(const struct weir__node *root)
{
    static const char *const names[] = {"service", "store", "admin", "rules_db", "notify", "rules"};
    for (size_t i = 0; i < sizeof names / sizeof *names && root->kind == WEIR__MAP; i++) {
        const struct weir__node *member = weir__node_get(root, names[i]);
        if (member && (strcmp(names[i], "rules") != 0 || weir__config_is_origin(member)))
            secrets_mask(member, false, strcmp(names[i], "notify") == 0); /* the path of a webhook is a secret */
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
    if (config->sources.count != 1 || strcmp(config->sources.list[0].name, file) != 0) {
        weir__report_error(&report, ((struct weir__place){0}), "this is a directory; name the file in it");
        return WEIR_ERULESPATH;
    }
    defaults(config);
    const struct weir__node *root = weir__yaml_read(0, &config->arena, &report);
    if (root) {
        quotes_mask(root);
        root_read(config, root);
    }
    if (config->arena.failed)
        return WEIR_ENOMEM;
    return report.errors ? WEIR_ERULES : 0;
}

static struct weir__config *newest; /* of those that were read, and are not freed */

int weir__config_load(struct weir__config *config, const char *file, weir_diagnose *diagnose, void *context)
{
    int error = load(config, file, diagnose, context);
    config->before = newest;
    newest = config;
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

static void wipe(const struct weir__config *config)
{
    for (size_t i = 0; i < config->sources.count; i++)
        explicit_bzero((void *)(uintptr_t)config->sources.list[i].text.data, config->sources.list[i].text.len);
    for (size_t i = 0; i < config->access.token_count; i++)
        text_wipe(config->access.token[i]);
    text_wipe(config->access.password);
    text_wipe(config->access.operator_password);
    text_wipe(config->nginx_conf);
}

void weir__secrets_wipe(void)
{
    for (const struct weir__config *config = newest; config; config = config->before)
        wipe(config);
}

void weir__config_free(struct weir__config *config)
{
    struct weir__config **at = &newest;
    while (*at && *at != config)
        at = &(*at)->before;
    if (*at)
        *at = config->before;
    wipe(config);
    weir__arena_free(&config->arena);
    weir__sources_free(&config->sources);
    *config = (struct weir__config){0};
}
