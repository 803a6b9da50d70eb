/*
 * Records denials in the ring of recent denials (table/denial_ring.h), a sidecar file of the segment, for weir why. It
 * never waits, and its errors do not affect requests.
 */
#ifndef WEIR_ENGINE_DENIAL_RECORDER_H
#define WEIR_ENGINE_DENIAL_RECORDER_H

#include "engine/evaluation.h"

/* Opens or makes the file at `where` (path, bytes, mode, owner); path NULL: anonymous memory. */
int weir__denial_recorder_open(const struct weir__file_spec *where, struct weir__denial_recorder *recorder);

/*
 * Records the evals of a request that deny it: the reported one, `by`, and those in shadow. `values` NULL: a request
 * without attributes. The engine must have a ring.
 */
void weir__denial_record(const struct weir__request_ctx *ctx, const struct weir__rule_eval *by,
                         struct weir__values *values);

/* True if a request with this result is to be recorded: an enforced or a shadow rule denied it. */
static inline bool weir__denial_recorded(const struct weir__request_ctx *ctx, const weir_result *result)
{
    return (!weir_passes(&result->decision) || result->shadow_denied) && ctx->engine->denial_recorder.ring.rows &&
           !ctx->dry_run;
}

#endif
