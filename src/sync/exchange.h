/* The agent's sync thread: rounds at each sync interval, from weir.yaml until stopped. */
#ifndef WEIR_SYNC_EXCHANGE_H
#define WEIR_SYNC_EXCHANGE_H

#include "config/config.h"
#include "base/log.h"

enum weir__exchange_end {
    WEIR__EXCHANGE_FAILED, /* failed to start, which was logged */
    WEIR__EXCHANGE_STOPPED,
    WEIR__EXCHANGE_CHANGED
};

/* Checks whether the thread must restart: called twice a second, and after a SIGHUP with `requested`. */
struct weir__exchange_watch {
    bool (*changed)(void *context, bool requested);
    void *context;
};

/*
 * Runs until `signals` (weir__signals_open) brings a stop, after a last round, or until `watch` (or NULL) reports a
 * change.
 */
enum weir__exchange_end weir__exchange_run(const struct weir__config *config, const struct weir__logger *log,
                                           int signals, const struct weir__exchange_watch *watch);
/* Runs one round. 0, or an error, which was logged. */
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
