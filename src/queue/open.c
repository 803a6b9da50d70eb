/* The queue that a weir.yaml has: see open.h. */
#include "queue/open.h"
#include "control/publish_file.h"
#include "config/config.h"
#include "queue/in_doubt.h"

#include <errno.h>
#include <stdio.h>

#define URL_MAX 8192

/* A process has one queue, and several handles of it: what one put without an answer no other may deliver. */
static struct weir__in_doubt in_doubt = WEIR__IN_DOUBT_INIT;

static void log_set_aside(const void *log, const char *path)
{
    weir__logf(
        log, WEIR__LOG_WARNING,
        "queue: the log of the file that was removed or moved could not be written back into it, and is kept as %s",
        path);
}

int weir__queue_open_configured(const struct weir__config *config, const char *name, const struct weir__logger *log,
                                struct weir__queue **queue, char *why)
{
    const struct weir__queue_config *wanted = &config->queue;
    char url[URL_MAX];
    struct weir__queue_options options = {.url = wanted->database ? wanted->database : url,
                                          .sync_second = wanted->sync_second,
                                          .bounds = {wanted->max, wanted->max_bytes, wanted->max_age_ms},
                                          /* So that all that wait can die without one being forgotten. */
                                          .dead_max = wanted->max > WEIR__QUEUE_DEAD_MAX ? wanted->max : 0,
                                          .name = name,
                                          .in_doubt = &in_doubt,
                                          .set_aside = log_set_aside,
                                          .context = log};
    *why = 0;
    if (wanted->database && !weir__publish_folder(wanted->socket)) {
        snprintf(why, WEIR__QUEUE_SOURCE_TEXT, "%.200s cannot be made: %s", config->state_path, strerror(errno));
        return WEIR__QUEUE_READONLY;
    }
    if (!wanted->database && !weir__store_url(&config->store, url, sizeof url, why, WEIR__QUEUE_SOURCE_TEXT))
        return WEIR__QUEUE_URL;
    return weir__queue_open(&options, queue, why);
}
