/* What the response to a denied request depends on, and the names of reasons. */
#ifndef WEIR_ENGINE_RESPONSE_H
#define WEIR_ENGINE_RESPONSE_H

#include <weir/check.h>

/* Why a request is denied, as far as the response to the client depends on it. */
enum weir__denial_kind {
    WEIR__DENIED_BY_LIMIT,
    WEIR__DENIED_BY_BLOCK, /* by an operator, a block list or a limit of 0 */
    WEIR__DENIED_MISSING,  /* an attribute */
    WEIR__DENIED_FAILURE,  /* on_store_failure: closed */
    WEIR__DENIED_SHED
};
static inline enum weir__denial_kind weir__denial_kind_of(enum weir_reason reason, enum weir_verdict verdict)
{
    return reason == WEIR_BY_LIMIT         ? verdict == WEIR_BLOCKED ? WEIR__DENIED_BY_BLOCK : WEIR__DENIED_BY_LIMIT
           : reason == WEIR_BY_MISSING_KEY ? WEIR__DENIED_MISSING
           : reason == WEIR_BY_FAILURE     ? WEIR__DENIED_FAILURE
           : reason == WEIR_BY_SHED        ? WEIR__DENIED_SHED
                                           : WEIR__DENIED_BY_BLOCK;
}

/* The message of a denial to the client: the rule's own, or one for the reason, in `text`. */
#define WEIR__MESSAGE_ROOM (64 + WEIR_MISSING_MAX)
weir_text weir__result_message(const weir_result *result, char text[WEIR__MESSAGE_ROOM]);

/* The name of a reason: see weir_outcome_reason. `in_flight`: the limit counts requests in flight. */
const char *weir__reason_name(enum weir_reason reason, enum weir_verdict verdict, bool in_flight);

#endif
