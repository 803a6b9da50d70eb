/* The queue of a weir.yaml, for commands that open it themselves. */
#include "serve/serve.h"
#include "serve/handover.h"
#include "queue/queue_admin.h"

#include <stdlib.h>

static const struct weir__logger terminal = {.file = 2, .plain = true};

struct weir__file_queue {
    struct weir__config config;
    struct weir__queue_admin *desk;
};

struct weir__file_queue *weir__file_queue_open(const char *file, weir_diagnose *diagnose, void *context)
{
    struct weir__file_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return NULL;
    int error = weir__config_load(&queue->config, file, diagnose, context);
    const char *wrong = error == WEIR_ENOMEM || error == WEIR_ERULESBUSY ? weir_strerror(error)
                        : !error && !queue->config.queue.wanted ? "there is no queue in it: nothing is deferred here"
                                                                : NULL;
    if (wrong)
        diagnose(context, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = file, .message = wrong});
    if (!error && !wrong && queue->config.queue.database)
        weir__handover_create(queue->config.queue.database + strlen("sqlite:"));
    if (!error && !wrong)
        queue->desk = weir__queue_admin_open(&queue->config, &terminal);
    if (queue->desk)
        return queue;
    weir__file_queue_close(queue);
    return NULL;
}

const struct weir__control_queue *weir__file_queue_calls(const struct weir__file_queue *queue)
{
    return weir__queue_admin_calls(queue->desk);
}

const char *weir__file_queue_rules(const struct weir__file_queue *queue)
{
    return queue->config.admin.database;
}

void weir__file_queue_close(struct weir__file_queue *queue)
{
    if (!queue)
        return;
    weir__queue_admin_close(queue->desk);
    weir__config_free(&queue->config);
    free(queue);
}
