/* Opening a host to look at it. See open_host.h. */
#include "stats/open_host.h"

#include <stdio.h>
#include <string.h>

static bool tell(weir_diagnose *diagnose, void *context, const char *file, int error)
{
    char message[256];
    snprintf(message, sizeof message, "%s (%s)", weir_strerror(error), weir_error_name(error));
    diagnose(context, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = file, .message = message});
    return false;
}

/* True if it is a segment, whatever its state; a text file is none. */
static bool is_segment(const char *path)
{
    weir_segment_options how = {.path = path, .flags = WEIR_OPEN_READONLY};
    weir_segment *segment = NULL;
    int error = weir_segment_open(&how, &segment);
    weir_segment_close(segment);
    return error != WEIR_ENOTSEG && error != WEIR_ENOENT && error != WEIR_EPERM;
}

bool weir__looker_open(struct weir__looker *looker, const char *what, const char *rules, weir_diagnose *diagnose,
                       void *context)
{
    *looker = (struct weir__looker){0};
    bool segment = is_segment(what), unnamed = segment && !rules;
    weir_options how = {.segment = {.path = what, .flags = WEIR_OPEN_READONLY}, .rules_path = rules};
    if (!segment) {
        int error = weir__config_load(&looker->config, what, diagnose, context);
        if (error)
            return error == WEIR_ERULES || error == WEIR_ERULESPATH ? false : tell(diagnose, context, what, error);
        how.segment.path = looker->config.segment_path;
        if (!rules) {
            how.rules_path = looker->config.rules_path;
            how.rules_text = how.rules_path ? NULL : looker->config.rules_text.data;
        }
    }
    if (unnamed) /* there must be one; it is not shown */
        how.rules_text = "rules: [{ name: none, limit: 1, window: 1s }]\n";
    looker->source = (struct weir__rule_source){.path = how.rules_path,
                                                .text = {how.rules_text, how.rules_text ? strlen(how.rules_text) : 0}};
    how.diagnose = diagnose;
    how.diagnose_context = context;
    int error = weir_open(&how, &looker->engine);
    if (error == WEIR_ERULES || error == WEIR_ERULESPATH) /* was told */
        return false;
    if (error)
        return tell(diagnose, context, how.segment.path, error);
    (void)!weir_segment_guard(weir_engine_segment(looker->engine));
    error = weir__sight_open(&looker->sight, looker->engine, how.segment.path);
    looker->sight.unnamed = unnamed;
    looker->sight.host_name = looker->config.host_name;
    weir__fleet_open(&looker->fleet, how.segment.path, looker->config.store.url != NULL);
    return error ? tell(diagnose, context, what, error) : true;
}

void weir__looker_close(struct weir__looker *looker)
{
    if (looker->sight.engine)
        weir__sight_close(&looker->sight);
    weir__fleet_close(&looker->fleet);
    weir__rule_source_free(&looker->source);
    weir_close(looker->engine);
    if (looker->config.file)
        weir__config_free(&looker->config);
    *looker = (struct weir__looker){0};
}
