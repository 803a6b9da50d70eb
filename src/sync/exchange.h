/* Exchanging with the store, as a process does it: opened by weir.yaml, every interval, until it is told to end. */
#ifndef WEIR_SYNC_EXCHANGE_H
#define WEIR_SYNC_EXCHANGE_H

#include "config/config.h"
#include "base/log.h"

enum weir__exchange_end {
    WEIR__EXCHANGE_FAILED, /* it could not begin, which was told */
    WEIR__EXCHANGE_STOPPED,
    WEIR__EXCHANGE_CHANGED
};

/* How a process hears that it should begin anew: asked twice a second, and at once with `asked` after a SIGHUP. */
struct weir__exchange_watch {
    bool (*changed)(void *context, bool asked);
    void *context;
};

/*
 * Runs until somebody wishes a stop by `signals` (weir__signals_open), with a last exchange then, or until `watch`
 * (NULL: nobody) says so.
 */
enum weir__exchange_end weir__exchange_run(const struct weir__config *config, const struct weir__logger *log,
                                           int signals, const struct weir__exchange_watch *watch);
/* One exchange. 0; or an error, which was told. */
int weir__exchange_once(const struct weir__config *config, const struct weir__logger *log);

/* ---- For every engine that the agent opens ---- */

/* What an operator can do about a segment that cannot be opened, or weir_strerror. */
const char *weir__segment_advice(int error);
/* A weir_diagnose that logs only what concerns sidecar files of the segment; workers log the rest. */
struct weir__sidecar_log {
    const char *segment;
    const struct weir__logger *log;
};
void weir__log_sidecar(void *context, const weir_diagnostic *diagnostic);
/* weir_segment_guard; logs a failure. */
void weir__segment_guard_logged(weir_segment *segment, const char *path, const struct weir__logger *log);

#endif
