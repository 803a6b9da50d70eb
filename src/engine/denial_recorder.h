/*
 * Records denials and warnings in the ring of recent denials (table/denial_ring.h), a sidecar file of the segment, for
 * weir why. It never waits, and its errors do not affect requests.
 */
#ifndef WEIR_ENGINE_DENIAL_RECORDER_H
#define WEIR_ENGINE_DENIAL_RECORDER_H

#include "engine/evaluation.h"

/* Opens or makes the file at `where` (path, bytes, mode, owner); path NULL: anonymous memory. */
int weir__denial_recorder_open(const struct weir__file_spec *where, struct weir__denial_recorder *recorder);

/*
 * Records the evals of a request that deny it: the reported one, `by`, and those in shadow; and those that warn.
 * `values` NULL: a request without attributes. The engine must have a ring.
 */
void weir__denial_record(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by,
                         struct weir__values *values);

#define WEIR__WARNING_LINE 768 /* bytes */

/*
 * Formats the next warning that was not logged yet, by any process of the segment; `cursor` is the caller's, zeroed at
 * first. False: there is none.
 */
bool weir__warning_line(const weir *engine, struct weir__warning_cursor *cursor, char line[WEIR__WARNING_LINE]);

/* The number of warnings that the notifier has not delivered yet. False: no notifier runs. */
bool weir__warnings_pending(const weir *engine, uint64_t *count);

/* The key of an entry as it is shown: its text, or the hash that weir top and the log of denied requests show. */
const char *weir__denial_key(const weir_segment *segment, const struct weir__denial *entry, char *text, size_t size);

/* True if a request with this result is to be recorded: an enforced or a shadow rule denied it, or a rule warns. */
static inline bool weir__denial_recorded(const struct weir__request_ctx *ctx, const weir_result *result)
{
    return (!weir_passes(&result->decision) || result->shadow_denied || ctx->warned) &&
           ctx->engine->denial_recorder.ring.rows && !ctx->dry_run;
}

#endif
