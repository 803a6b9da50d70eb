/* Opens the segment of a host, and its sidecar files, read-only. See open_host.h. */
#include "stats/open_host.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool report_error(weir_diagnose *diagnose, void *context, const char *file, int error)
{
    char message[256];
    snprintf(message, sizeof message, "%s (%s)", weir_strerror(error), weir_error_name(error));
    diagnose(context, &(weir_diagnostic){.severity = WEIR_IS_ERROR, .file = file, .message = message});
    return false;
}

/* True for a segment in any state, false for a text file. */
static bool is_segment(const char *path)
{
    weir_segment_options how = {.path = path, .flags = WEIR_OPEN_READONLY};
    weir_segment *segment = NULL;
    int error = weir_segment_open(&how, &segment);
    weir_segment_close(segment);
    return error != WEIR_ENOTSEG && error != WEIR_ENOENT && error != WEIR_EPERM;
}

bool weir__open_host(struct weir__opened_host *host, const char *what, const char *rules, weir_diagnose *diagnose,
                     void *context)
{
    *host = (struct weir__opened_host){0};
    char keys[4200];
    bool segment = is_segment(what), unnamed = segment && !rules;
    weir_options how = {
        .segment = {.path = what, .flags = WEIR_OPEN_READONLY}, .rules_path = rules, .flags = WEIR__SKIP_MAPS};
    if (!segment) {
        int error = weir__config_load(&host->config, what, diagnose, context);
        if (error) /* reported */
            return false;
        how.segment.path = host->config.segment_path;
        if (!rules) {
            how.rules_path = host->config.rules_path;
            how.rules_text = how.rules_path ? NULL : host->config.rules_text.data;
        }
        how.store = host->config.store.url;
        how.default_consistency = host->config.store.consistency;
    }
    snprintf(keys, sizeof keys, "%s.keys", what);
    if (segment && access(keys, F_OK) == 0) { /* a host with a store has this file; the URL does not matter */
        how.store = "redis://127.0.0.1";
        how.default_consistency = WEIR_PER_ALGORITHM;
    }
    how.flags |= WEIR_NO_CONNECT;
    how.ledger = how.store ? "" : NULL; /* in memory: without one, rules that are eventual would be strict */
    if (unnamed)                        /* the engine needs a rule; this one is not shown */
        how.rules_text = "rules: [{ name: none, limit: 1, window: 1s }]\n";
    host->source = (struct weir__rule_source){.path = how.rules_path,
                                              .text = {how.rules_text, how.rules_text ? strlen(how.rules_text) : 0}};
    how.diagnose = diagnose;
    how.diagnose_context = context;
    if (host->config.published && how.rules_path == host->config.rules_path)
        host->owner = weir__file_owner(how.rules_path);
    if (host->owner.user)
        weir__store_take_files(&host->config);
    int error = weir__act_as_owner(&host->owner) ? weir_open(&how, &host->engine) : WEIR_EPERM;
    if (error == WEIR_ERULES || error == WEIR_ERULESPATH) /* reported already */
        return false;
    if (error)
        return report_error(diagnose, context, how.segment.path, error);
    (void)!weir_segment_guard(weir_engine_segment(host->engine));
    weir__snapshot_open(&host->snapshot, host->engine, how.segment.path);
    host->snapshot.unnamed = unnamed;
    host->snapshot.host_name = host->config.host_name;
    if (unnamed)
        weir__snapshot_refresh(&host->snapshot);
    weir__membership_open(&host->membership, how.segment.path, host->config.store.url != NULL);
    return true;
}

void weir__close_host(struct weir__opened_host *host)
{
    weir__snapshot_close(&host->snapshot);
    weir__membership_close(&host->membership);
    weir__rule_source_free(&host->source);
    weir_close(host->engine);
    weir__act_as_self(&host->owner);
    if (host->config.file)
        weir__config_free(&host->config);
    *host = (struct weir__opened_host){0};
}
