/* What commands find through a weir.yaml: its rules and counters, the database of its rules service, its queue. */
#include "config/config.h"
#include "queue/queue.h"
#include "rules/set.h"
#include "serve/privilege.h"
#include "serve/serve.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Rules and counters ---- */

struct opened {
    struct weir__file_rules rules; /* must be first: the caller's pointer */
    struct weir__config config;
};

bool weir__is_weir_yaml(const char *path)
{
    struct stat at;
    struct weir__sources sources;
    if (stat(path, &at) != 0 || !S_ISREG(at.st_mode) || weir__sources_read(path, NULL, NULL, &sources) != 0)
        return false;
    struct weir__arena arena = {.bytes_max = (size_t)64 << 20};
    struct weir__diagnostics report = {.sources = sources.list, .source_count = sources.count};
    const struct weir__node *root = sources.count == 1 ? weir__yaml_read(0, &arena, &report) : NULL;
    bool is = root && weir__rules_weir_yaml(root);
    weir__arena_free(&arena);
    weir__sources_free(&sources);
    return is;
}

/* The published rules; before the first publication, those that the file names. */
static bool find_rules(struct opened *opened)
{
    const struct weir__config *config = &opened->config;
    bool first = config->published && access(config->rules_path, F_OK) != 0;
    weir_text text = first ? config->import_text : config->rules_text;
    opened->rules.path = first ? config->import_path : config->rules_path;
    opened->rules.text = opened->rules.path ? NULL : text.data;
    opened->rules.len = opened->rules.path ? 0 : text.len;
    opened->rules.segment = config->segment_path;
    return opened->rules.path || text.len > 0;
}

struct weir__file_rules *weir__file_rules_open(const char *file, weir_diagnose *diagnose, void *context)
{
    struct opened *opened = calloc(1, sizeof *opened);
    if (!opened)
        return NULL;
    if (weir__config_load(&opened->config, file, diagnose, context) == 0 &&
        (find_rules(opened) ||
         weir__config_report(
             file,
             "nothing was published yet in the rules service that it takes its rules from: weir rules get published",
             diagnose, context)))
        return &opened->rules;
    weir__file_rules_close(&opened->rules);
    return NULL;
}

void weir__file_rules_close(struct weir__file_rules *rules)
{
    struct opened *opened = (struct opened *)rules;
    if (!opened)
        return;
    weir__config_free(&opened->config);
    free(opened);
}

/* ---- The database of the rules service ---- */

static bool database_find(const struct weir__config *config, weir_diagnose *diagnose, void *context, char *url,
                          size_t size)
{
    const char *database = config->admin.database;
    if (!database)
        return weir__config_report(config->file, "it has no rules service; the field admin adds one", diagnose,
                                   context);
    if (strlen(database) >= size)
        return weir__config_report(config->file, "the address of the database is too long", diagnose, context);
    /* `weir token create` may run before weir serve ever did. If this fails, opening the database reports why. */
    (void)mkdir(config->state_path, 0755);
    snprintf(url, size, "%s", database);
    return true;
}

bool weir__rules_database(const char *file, weir_diagnose *diagnose, void *context, char *url, size_t size)
{
    struct weir__config *config = calloc(1, sizeof *config);
    if (!config)
        return false;
    bool found =
        weir__config_load(config, file, diagnose, context) == 0 && database_find(config, diagnose, context, url, size);
    weir__config_free(config);
    free(config);
    return found;
}

/* ---- The queue ---- */

static const struct weir__logger terminal = {.file = 2, .plain = true};

struct weir__file_queue {
    struct weir__config config;
    struct weir__queue_admin *admin;
};

struct weir__file_queue *weir__file_queue_open(const char *file, weir_diagnose *diagnose, void *context)
{
    struct weir__file_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return NULL;
    const struct weir__queue_config *config = &queue->config.queue;
    if (weir__config_load(&queue->config, file, diagnose, context) == 0 &&
        (config->wanted ||
         weir__config_report(file, "there is no queue in it: nothing is deferred here", diagnose, context))) {
        weir__handover_take_store(&queue->config); /* another user may not read its files: see weir__act_as_owner */
        queue->admin = weir__queue_admin_open(&queue->config, &terminal);
    }
    if (queue->admin)
        return queue;
    weir__file_queue_close(queue);
    return NULL;
}

const struct weir__control_queue *weir__file_queue_calls(const struct weir__file_queue *queue)
{
    return weir__queue_admin_calls(queue->admin);
}

const char *weir__file_queue_rules(const struct weir__file_queue *queue)
{
    return queue->config.admin.database;
}

const char *weir__file_queue_database(const struct weir__file_queue *queue)
{
    return queue->config.queue.database;
}

void weir__file_queue_close(struct weir__file_queue *queue)
{
    if (!queue)
        return;
    weir__queue_admin_close(queue->admin);
    weir__config_free(&queue->config);
    free(queue);
}
